# SPDX-License-Identifier: Apache-2.0
"""The variables of a script that nobody tracks: found, captured at each fetch, compared.

What counts, in the frames of the script's own files, from its top to the fetch:

    locals      that may still be read (`liveness`), and targets of the `for` loops around, which
                show how far an iterator without a name is
    globals     that some function stores to, or whose content some code changes
    cells, defaults and attributes of the script's functions
    attributes  of objects and classes of the script's own that are reached from there, and those
                that it hangs on others' objects, if they are stored to after the set-up, unless
                each step writes them before it reads them
    things      that are no plain values and change as they are used (`things`), and what is trained
                and not tracked (`untracked`), wherever the script keeps them
    generators  of random numbers, wherever one of these is one: what they will draw from, but for
                those that go with the rank: tracked ones, and those of the loops under way
    the process what the script sets in its environment, torch and numpy (`process`)

Not what tells the time or the machine (`clocks`). What each step writes before it reads it is not
compared, and goes along (`brief`). Where all that lies is found once for a place in
the script (`search`), and looked for again when something is another object than it was; a capture
only reads it.
"""

import dataclasses
import inspect
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import CodeType, FrameType, ModuleType
from typing import Any

import msgspec
from torch import Tensor, nn

from trainmover.asked import are
from trainmover.state import rng
from trainmover.state.kinds.generators import KeptGenerator, is_generator
from trainmover.state.script import away, brief, handles
from trainmover.state.script.code.in_steps import Steps, steps_in, stored_in_steps
from trainmover.state.script.code.relied_on import worthless
from trainmover.state.script.code.scopes import Source
from trainmover.state.script.code.source import source_of, temporary_in, together, tree_of
from trainmover.state.script.code.times.clocks import tells_in
from trainmover.state.script.comparison import (
    Comparison,
    Known,
    all_in,
    decoded,
    is_given,
    known_of,
    path_of,
    state_of,
    words_in,
)
from trainmover.state.script.counts import Count, Counts
from trainmover.state.script.fold.there import entry_of as entry_of_there
from trainmover.state.script.left import Left, Now
from trainmover.state.script.lines import line_of
from trainmover.state.script.overlooked import Overlooked
from trainmover.state.script.place.alike import go_on_alike, under_way
from trainmover.state.script.process import settings_of
from trainmover.state.script.putting import (
    larger,
    store_in,
    stored,
    to_put,
)
from trainmover.state.script.search.contents import changes_in_place, handed_on
from trainmover.state.script.search.frames import Search
from trainmover.state.script.search.layout import (
    ABSENT,
    NEVER,
    NO_TYPES,
    PROCESS,
    Layout,
    Slot,
    going,
    now_in,
    short,
    value_of,
)
from trainmover.state.script.sharing import SHARED, Sharing
from trainmover.state.script.things.held import goes_on_later
from trainmover.state.script.things.layers import Layers
from trainmover.state.script.things.libraries import kept_in, module_of
from trainmover.state.script.things.things import First, Places, Things
from trainmover.state.script.things.views import Views
from trainmover.state.script.values import (
    NO_VALUE,
    PLAIN,
    Entry,
    could_be_read,
    entry_of,
    generator_entry,
    handle_entry,
    of_kind,
    standing_for,
)
from trainmover.state.script.worked_out import Unknown, worked_out
from trainmover.torch_internals.modules import buffers_of

LAYOUTS_MAX = 8
LOOKS_AGAIN_EVERY = 64
"""Captures after which a place is searched anew, in case a list has got another object."""
_SMALL = 64
_HELD_BY_US = 4
"""References to what a frame shows of its locals: its own, our list's, our loop's, the count's."""
_PACKAGE = os.path.join(
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), ""
)
_encoder = msgspec.msgpack.Encoder()


def all_loaded() -> list[ModuleType]:
    return [module for module in list(sys.modules.values()) if type(module) is ModuleType]


class Variables:
    """Of one run of the script. Main thread only.

    tracked  the objects that it tracks, by name
    is_own   whether a file is the script's own, and not installed
    of_loops generators that draw for the loops under way
    loaded   modules of which some may be the script's own
    loaders  what is made of the script's own objects and gives the batches of the loops under way
    samplers of those loops: their numbers go with the places in them
    comparison  of captures
    """

    def __init__(
        self,
        tracked: Callable[[], Iterable[tuple[str, object]]],
        is_own: Callable[[str], bool],
        of_loops: Callable[[], Iterable[object]] = tuple,
        loaded: Callable[[], Iterable[ModuleType]] = all_loaded,
        loaders: Callable[[], Iterable[object]] = tuple,
        samplers: Callable[[], Iterable[object]] = tuple,
    ) -> None:
        self._tracked = tracked
        self._is_own = is_own
        self._of_loops = of_loops
        self._loaded = loaded
        self._loaders = loaders
        self._samplers = samplers
        self.comparison = Comparison(self._line_of)
        self._carried: dict[int, tuple[dict[str, Any], set[str]]] = {}
        self._own_codes: dict[CodeType, bool] = {}
        self._own_files: dict[str, bool] = {}
        self._outermost: FrameType | None = None
        self._layouts: dict[tuple[Any, ...], Layout] = {}
        self._modules_seen = 0
        self._own_modules: list[ModuleType] = []
        self._unlisted: list[ModuleType] = []
        self._source = Source()
        self._outgrown = False
        self._no_values: dict[type, Entry] = {}  # Of which no object is a plain value.
        self._with_values: set[type] = set()
        self._draw_nothing = set(PLAIN)  # Types that are no generators.
        self._counting: set[str] = set()  # Keys of loops' targets that have been no part of one.
        self._shown: set[str] = set()  # Those that only a full capture has.
        self._sharing = Sharing()
        self._newest: Layout | None = None
        self._views = Views()
        self._things = Things()  # Of the place that was captured last.
        self._first, self._places = First(), Places()
        self._overlooked = Overlooked(self._entry_of)
        self._begun = dict(os.environ)
        self.at: list[int] = []
        self._given: tuple[object, ...] = ()  # Plain values in the batch that came last.
        self.left = Left(self._now, self._entry_of, self._said)
        self.counts = Counts(self._steps)
        self._in_steps: tuple[Source, Steps, frozenset[str]] | None = None
        self._collects = True  # What calls us may be a function in C that collects.
        self._reads: dict[str, Entry] = {}  # Before the fetch, by key, since that batch.

    # --- capture ----------------------------------------------------------------------------------

    def capture(self, *, full: bool = False) -> bytes:
        """What they are now, to be called below the script's frames.

        full: with the names of those that have no plain value, to compare with another's
        """
        frames = self.frames(sys._getframe(1))
        captured = self._read_all(frames, full)
        if self._overlooked.look(self._newest.watched if self._newest is not None else ()):
            self._outgrown = True
        if self._outgrown:  # There is an object that was not there before: look what it holds.
            self._layouts.clear()
            captured = self._read_all(frames, full)
        self._places.is_open = False
        return captured

    def capture_at_step(self, *, full: bool = False) -> bytes:
        """As `capture`, where the script calls a step. What the last fetch has found stays."""
        known = self._newest, self._views, self._things, self._reads
        self._reads, self._collects = {}, False
        try:
            return self.capture(full=full)
        finally:
            self._newest, self._views, self._things, self._reads = known
            self._collects = True

    def standing_at(self) -> list[int]:
        """Instructions at which the script's frames stand, to be called below them."""
        frames = self.frames(sys._getframe(1))
        return [under_way(frame.f_code, frame.f_lasti) for frame in frames]

    def goes_on_as(self, theirs: bytes) -> bool:
        """Whether the script, below whose frames this is called, goes on from here as from where
        those were captured, in another line of the same functions."""
        frames, there = self.frames(sys._getframe(1)), decoded(theirs).at
        return len(frames) != len(there) or all(
            go_on_alike(frame.f_code, under_way(frame.f_code, frame.f_lasti), at)
            for frame, at in zip(frames, there, strict=True)
        )

    def begin(self) -> None:
        """The script fetches, and has never done so before: see `Places`."""
        if self._places.is_open:
            self.capture()

    def _entry_of(self, slot: Slot, value: object) -> Entry:
        """Of one that is watched."""
        if slot.there:
            return entry_of_there(value)
        return entry_of(value, secret=slot.secret, views=self._views, things=self._things)

    def gave(self, batch: object) -> None:
        """The script gets this batch: its parts are no variables of the script's."""
        self._given = () if isinstance(batch, Tensor) else tuple(_plain_parts(batch, 3))
        self.fetch_is_over()

    def fetch_is_over(self) -> None:
        """With a batch or without: loops that are around the next fetch may have begun since."""
        if self._reads:
            self._reads = {}

    def stand(self) -> None:
        """State may be put where this run stands. What loops around the fetch go through was made
        of what is there before."""
        self.capture()

    def _read_all(self, frames: list[FrameType], full: bool) -> bytes:
        locals_of = [frame.f_locals for frame in frames]
        layout = self._layout_for(frames, locals_of)
        self._outgrown, self._shown = False, set()
        self._sharing.begin()
        found: dict[str, Entry] = {}
        at_end: dict[str, Entry] = {}
        others: list[str] = []
        self._read_locals(layout, locals_of, full, found, at_end, others)
        for slot in layout.outside:
            # As `now_in`, without its call.
            value = value_of(slot) if slot.is_asked else slot.owner.get(slot.name, ABSENT)
            if value is not slot.last:
                self._read(slot, value, full)
            if slot.entry is not NO_VALUE:
                found[slot.key] = slot.entry
            elif not slot.missing:
                others.append(slot.key)
        if layout.reads:
            self._read_before(layout, frames, locals_of, found)
        if layout.managers:
            self._read_managers(layout, frames, found)
        if self._sharing.is_shared:
            self._sharing.tell(found, layout.tracked)
        if full:  # The rank may have seen it change.
            watched = [
                (slot, value) for slot in layout.watched if (value := now_in(slot)) is not ABSENT
            ]
            entries = [(slot.key, self._entry_of(slot, value)) for slot, value in watched]
            found |= {key: entry for key, entry in entries if entry is not NO_VALUE}
            self._shown |= {slot.key for slot in layout.watched}
            stay = {slot.key for slot in layout.carried} - {*going(layout.carried)}
            layout.tracked = [key for key in layout.tracked if key not in stay]
        things = layout.things  # A container may have got an object that the search has not seen.
        self._outgrown |= things.news and layout.uses > 1
        things.news = False
        for name, value in self.settings().items():
            found[f"{PROCESS}\x1f\x1f0\x1f{name}"] = entry_of(value)
        _let_go(frames, locals_of)
        short = self._read_brief(layout) if layout.brief else {}
        captured = [layout.place, found, at_end, layout.tracked, others, short]
        self.at = layout.at
        return _encoder.encode([*captured, [*self._shown], layout.at])

    def _read_locals(
        self,
        layout: Layout,
        locals_of: list[Any],
        full: bool,
        found: dict[str, Entry],
        at_end: dict[str, Entry],
        others: list[str],
    ) -> None:
        """Of all frames. Every call counts here: this is done at each fetch."""
        for values, slots in zip(locals_of, layout.frames, strict=True):
            get = values.get
            for slot in slots:
                value = get(slot.name, ABSENT)
                if value is not slot.last and type(value) not in slot.silent:
                    self._read(slot, value, full)
                if slot.entry is not NO_VALUE:
                    (at_end if slot.at_end else found)[slot.key] = slot.entry
                elif not slot.missing:
                    others.append(slot.key)

    def _read_brief(self, layout: Layout) -> dict[str, Entry]:
        found, left = {}, brief.TOTAL_BYTES_MAX
        for slot in layout.brief:
            # As `now_in`, without its call.
            value = value_of(slot) if slot.is_asked else slot.owner.get(slot.name, ABSENT)
            if value is not slot.last:
                slot.last = value if type(value) in PLAIN else NEVER
                slot.entry = could_be_read(
                    partial(brief.entry, value, self._views, self._things), NO_VALUE
                )
            if slot.entry is not NO_VALUE and (left := left - brief.size_of(slot.entry)) >= 0:
                found[slot.key] = slot.entry
        return found

    def _read_before(
        self, layout: Layout, frames: list[FrameType], locals_of: list[Any], found: dict[str, Entry]
    ) -> None:
        """As it was when it was first asked for at this fetch: the statement has read it."""
        for number, key, node in layout.reads:
            if key not in self._reads:
                try:
                    value = worked_out(node, locals_of[number], frames[number].f_globals)
                except Unknown:
                    value = NO_VALUE
                known = value is not NO_VALUE
                self._reads[key] = entry_of(value, things=self._things) if known else NO_VALUE
            if self._reads[key] is not NO_VALUE:
                found[key] = self._reads[key]

    def _read_managers(
        self, layout: Layout, frames: list[FrameType], found: dict[str, Entry]
    ) -> None:
        """What they hold, where no name tells."""
        for key, number, read, _ in layout.managers:
            value = read(frames[number])
            if value is None:
                continue
            kind = type(value)
            if kind in self._no_values:
                entry = self._no_values[kind]
            else:
                entry = entry_of(value, things=self._things)
                self._note_kind(kind, entry)
            if entry is not NO_VALUE:
                found[key] = entry

    def _read(self, slot: Slot, value: Any, full: bool) -> None:
        """Of a value that is not the very object it was, or may have changed in place. `last` and
        `silent` say what need not be read again."""
        kind = type(value)
        if slot.there:
            slot.missing, slot.last = value is ABSENT, value if kind in PLAIN else NEVER
            slot.entry = NO_VALUE if slot.missing else entry_of_there(value)
            return
        if slot.told_by is not None:
            if slot.told_by.tells(value, kind):
                if kind in SHARED:
                    self._sharing.note_whole(slot, value)
                return
            slot.told_by = None
        if kind is Layers:
            if slot.before is not None and value.is_same():
                return
            value.note()
        slot.missing, slot.silent = value is ABSENT, NO_TYPES
        if kind in PLAIN:
            if slot.count:
                counts = self._counts(slot, value, full)
                slot.entry = entry_of(value, secret=slot.secret) if counts else NO_VALUE
            else:
                slot.last = value
                slot.entry = entry_of(value, secret=slot.secret)
            return
        was_plain, slot.last = type(slot.last) in PLAIN, NEVER
        self._outgrown |= was_plain and not slot.missing and not issubclass(kind, Tensor)
        slot.entry = NO_VALUE
        if slot.missing:
            slot.last = ABSENT
        elif slot.count:
            slot.silent = frozenset({kind})
        elif kind in self._no_values:
            slot.silent, slot.entry = frozenset({kind}), self._no_values[kind]
        elif kind not in self._draw_nothing and self._is_generator(value, kind):
            name = self._known_along(value)
            slot.entry = handle_entry(name) if name else generator_entry(value)
        else:
            if kind in SHARED:
                self._sharing.note(slot, value)
            self._read_thing(slot, value, kind)

    def _is_generator(self, value: object, kind: type) -> bool:
        """Asked once of each kind that is none."""
        if is_generator(value):
            return True
        self._draw_nothing.add(kind)
        return False

    def _read_thing(self, slot: Slot, value: Any, kind: type) -> None:
        """Of what is no plain value by itself."""
        slot.entry = entry_of(
            value,
            secret=slot.secret,
            before=slot.before,
            views=self._views,
            things=self._things,
        )
        slot.before = slot.entry
        slot.told_by = standing_for(value, self._things)
        if self._things.stays(value):
            slot.last = value
        self._note_kind(kind, slot.entry)

    def _note_kind(self, kind: type, entry: Entry) -> None:
        """Whether its objects are ever told by more than their type: asked once."""
        if kind in self._with_values:
            return
        none = entry is of_kind(kind) and not (
            issubclass(kind, Tensor)
            or handles.is_one(kind)
            or any(type(one) is kind for _, one in self._tracked())
        )
        if none:
            self._no_values[kind] = entry
        else:
            self._with_values.add(kind)

    def _known_along(self, generator: object) -> str:
        """Which one it is of those that a rank takes with it; "": none. What that draws the rank
        knows, and which of them a variable is it does not. A script may hold one of the process by
        a method: `self.draw = random.random`."""
        return next((name for name, one in self._going_along() if one is generator), "")

    def _going_along(self) -> Iterator[tuple[str, object]]:
        for number, one in enumerate(rng.of_process()):
            yield f"generator {number} of the process", one
        for name, obj in self._tracked():
            one = obj.generator if isinstance(obj, KeptGenerator) else obj
            yield f"the generator that is tracked as `{name}`", one
        for one in self._of_loops():
            yield "a generator of a loop over data", one

    def _counts(self, slot: Slot, value: object, full: bool) -> bool:
        """Whether a loop's target shows how far its iterator is: not if it is the batch, or a part
        of it, since that follows from where the loader stands. Small numbers may be equal by
        chance, so it counts for good once it was no part; who compares has it in any case."""
        if slot.key not in self._counting and not any(value is one for one in self._given):
            self._counting.add(slot.key)
        if full and slot.key not in self._counting:
            self._shown.add(slot.key)
        return full or slot.key in self._counting

    def frames(self, innermost: FrameType | None) -> list[FrameType]:
        """Those of the script's own code, outermost first.

        What has called the outermost one is not looked at again: that stays the same for as long as
        it runs, unless it is a generator.
        """
        found = []
        frame, own, outermost = innermost, self._own_codes, self._outermost
        while frame is not None:
            code = frame.f_code
            is_own = own.get(code)
            if is_own is None:
                is_own = own[code] = self.is_own_file(code.co_filename)
            if is_own:
                found.append(frame)
                if frame is outermost:
                    break
            frame = frame.f_back
        if frame is None:
            is_fixed = found and not goes_on_later(found[-1].f_code)
            self._outermost = found[-1] if is_fixed else None
        found.reverse()
        return found

    def own_modules(self) -> list[ModuleType]:
        """Those of the script's that are loaded."""
        self._learn_modules()
        return [*self._own_modules]

    def is_own_file(self, path: str) -> bool:
        """Whether the script has it, and no library."""
        if path not in self._own_files:
            may_be = not path.startswith(_PACKAGE) and self._is_own(path)
            self._own_files[path] = may_be and os.path.isfile(path)
        return self._own_files[path]

    def _layout_for(self, frames: list[FrameType], locals_of: list[Any]) -> Layout:
        at = tuple([(frame.f_code, frame.f_lasti) for frame in frames])
        if len(sys.modules) != self._modules_seen:
            self._learn_modules()
        layout = self._layouts.get(at)
        swapped = "__dict__" in self._source.attributes  # What holds attributes is another then.
        if layout is None or swapped or not _holds(layout, locals_of):
            if len(self._layouts) >= LAYOUTS_MAX:
                self._layouts.clear()
            search = Search(
                dataclasses.replace(self._source, temporary=self._temporary_at(frames)),
                self.is_own_file,
                self._own_modules,
                self._tracked(),
                lambda held: self._carried.get(id(held), ({}, ()))[1],
                self._loaders(),
                self._samplers(),
                self._first,
                self._places,
                self._overlooked.counting,
            )
            layout = self._layouts[at] = search.layout(
                frames, locals_of, _fed(frames) if self._collects else set()
            )
            layout.at = [under_way(code, lasti) for code, lasti in at]
            if layout.unlisted:  # Once more, now that it is known what their sources say.
                self._unlisted += map(_as_module, layout.unlisted)
                self._modules_seen = 0
                self._layouts.clear()
                return self._layout_for(frames, locals_of)
        layout.uses += 1
        self._newest, self._views, self._things = layout, layout.views, layout.things
        return layout

    def look_again(self) -> None:
        """Find anew, to be called below the script's frames, what lies in the state of tracked
        objects: that was put meanwhile, and what had the value of some part of it by chance has
        another one now. What is compared stays the same: a rank has not been searched since."""
        known, self._layouts = self._layouts, {}
        frames = self.frames(sys._getframe(1))
        locals_of = [frame.f_locals for frame in frames]
        layout = self._layout_for(frames, locals_of)
        _let_go(frames, locals_of)
        found = {slot.key for slot in (*layout.outside, *layout.brief)}
        others = found - {*layout.tracked}
        self._layouts = known
        for one in known.values():
            one.tracked = [key for key in one.tracked if key not in others]

    def _temporary_at(self, frames: list[FrameType]) -> set[str]:
        """Attributes that are written before they are read, from these frames on."""
        lines: dict[str, set[int]] = {}
        for frame in frames:
            at = os.path.realpath(frame.f_code.co_filename)
            lines.setdefault(at, set()).add(frame.f_lineno)
        paths = list(dict.fromkeys(module.__file__ or "" for module in self._own_modules))
        known = [(path, source) for path in paths if (source := source_of(path)) is not None]
        here = tuple(frozenset(lines.get(os.path.realpath(path), ())) for path, _ in known)
        return temporary_in([source for _, source in known], here)

    def _learn_modules(self) -> None:
        """Which of the loaded modules are the script's own, and what their source says. Where one
        has come that a function imports, all is looked for again."""
        if len(sys.modules) == self._modules_seen:
            return
        self._modules_seen = len(sys.modules)
        paths = [(module, getattr(module, "__file__", None)) for module in self._loaded()]
        own = [(module, path) for module, path in paths if path and self.is_own_file(path)]
        own += [(module, module.__file__) for module in self._unlisted]
        modules = [module for module, _ in own]
        if are(modules, self._own_modules):
            return
        self._own_modules = modules
        self._layouts.clear()
        known = [source for _, path in own if (source := source_of(path)) is not None]
        self._source = together(known)

    def stored_on(self, owner: object) -> set[str]:
        """Of a tracked object what goes with it: what `altered_on` gives, and what others change in
        it."""
        found = self.altered_on(owner)
        file = getattr(sys.modules.get(module_of(type(owner))), "__file__", None)
        if self.is_own_file(file or ""):
            found |= handed_on(self._source, vars(owner))
        self._carried[id(vars(owner))] = vars(owner), found
        return found | kept_in(owner)

    def altered_on(self, owner: object) -> set[str]:
        """Attributes of an object that the script stores to after its set-up, and relies on later:
        by methods of its class, or from elsewhere, if it has them."""
        self._learn_modules()
        source = self._source
        buffers = [*buffers_of(owner).items()] if isinstance(owner, nn.Module) else []
        known = source.by_others & {*vars(owner), *(name for name, _ in buffers)}
        own, others = list[str](), list[type]()
        for kind in type(owner).__mro__:
            module = sys.modules.get(module_of(kind))
            if self.is_own_file(getattr(module, "__file__", None) or ""):
                own.append(kind.__name__)
                known |= source.by_class.get(kind.__name__, set())
                known |= {name for name in vars(owner) if source.dynamic and name[:1] != "_"}
            else:
                others.append(kind)
        held = {**dict(buffers), **vars(owner)}
        clocks = {
            name
            for name in known
            if tells_in(source, name, own, stays=not changes_in_place(held.get(name)))
        }
        return known - worthless(known & source.temporary, others) - clocks

    @property
    def things(self) -> Things:
        """That were found where the last fetch was."""
        return self._things

    def settings(self) -> dict[str, Any]:
        """What the script sets for the whole process while it trains; mostly nothing."""
        if not self._source.environ and not self._source.settings:
            return {}
        return settings_of(self._source, self._begun)

    # --- handles ----------------------------------------------------------------------------------

    def give(self, theirs: bytes, own: Mapping[Known, object]) -> None:
        """Where the rank had a handle, store this process's own. To be called below the script's
        frames, where the rank's variables were captured.

        own: what this process has, by what the entries of each have in common
        Raises ProtocolError on malformed bytes.
        """
        if not theirs:
            return
        their, _ = all_in(theirs)
        for slot, value, frame in self._values_at(self.frames(sys._getframe(1))):
            entry = their.get(slot.key, NO_VALUE)
            if is_given(entry, value, own) and value is not own[known_of(entry)]:
                owner = frame if slot.owner is None else slot.owner
                handles.store(owner, slot.name, own[known_of(entry)])

    # --- plain values -----------------------------------------------------------------------------

    @property
    def summed(self) -> set[str]:
        """Keys of variables that sum up what steps give, wherever the script fetches."""
        found, others = set[str](), set[str]()
        for layout in self._layouts.values():
            found |= layout.summed
            others |= {slot.key for slots in layout.frames for slot in slots} - layout.summed
        return found - others

    def counted(self, counts: Sequence[Count]) -> set[str]:
        """Keys of the variables that are counted so, but for what goes with tracked state. To be
        called below the script's frames."""
        return self._counted(self.frames(sys._getframe(1)), counts)

    def _counted(self, frames: list[FrameType], counts: Sequence[Count]) -> set[str]:
        if not counts:
            return set()
        found = {
            slot.key
            for slot, *it in self._values_at(frames)
            if any(one.is_in(slot, *it) for one in counts)
        }
        return found - self._along()

    def _along(self) -> set[str]:
        """Keys of what goes with tracked state."""
        newest = self._newest
        return set() if newest is None else {*newest.tracked, *(one.key for one in newest.carried)}

    def put_brief(
        self,
        theirs: Mapping[str, Entry],
        tracked: Collection[str],
        own: bytes,
        *histories: Sequence[bytes],
    ) -> None:
        """Store what seems to be written before it is read as another had it: see `brief`. To be
        called below the script's frames.

        tracked: keys of what goes with tracked state there
        histories: captures of one process each
        Raises ProtocolError on malformed bytes.
        """
        every = [[decoded(one).brief for one in history if one] for history in histories]
        mine = decoded(own)
        among = stored(*every) - {*tracked, *mine.tracked}
        wanted = to_put(theirs, mine.brief, among)
        if self._newest is None:
            return
        if large := theirs.keys() - {*tracked, *mine.tracked, *mine.brief}:
            wanted |= larger(theirs, self._no_longer_small(large))
        if wanted:
            brief.store(self._newest.brief, wanted)

    def _no_longer_small(self, keys: set[str]) -> Iterator[str]:
        """Those that have a value here, and one that is too large for a record."""
        slots = self._newest.brief if self._newest is not None else []
        for slot in slots:
            value = now_in(slot) if slot.key in keys else ABSENT
            small = brief.entry(value, self._views, self._things) is not NO_VALUE
            if away.is_value(value) and not small:
                yield slot.key

    def put_away(self, known: Collection[str], *, with_locals: bool) -> None:
        """What seems to be written before it is read, and is gone with the rank: see `away`. To be
        called below the script's frames, behind `put_brief`.

        known: keys of attributes that are as the rank had them
        with_locals: those of the frames too
        """
        newest = self._newest
        if newest is None:
            return
        stay = {*known, *self._along()}
        for slot in newest.brief:
            if slot.key not in stay and not slot.is_asked and away.is_value(now_in(slot)):
                store_in(slot, None, away.Away(self._said(slot.key)))
        frames = self.frames(sys._getframe(1)) if with_locals else []
        for frame, names in zip(frames, newest.dead if with_locals else [], strict=True):
            at = f"{os.path.basename(frame.f_code.co_filename)} line {frame.f_lineno}"
            values = frame.f_locals
            for name in [one for one in names if away.is_value(values.get(one, ABSENT))]:
                handles.store(frame, name, away.Away(f"`{name}` (behind {at})"))

    def _values_at(self, frames: list[FrameType]) -> Iterator[tuple[Slot, Any, FrameType | None]]:
        """Every variable, and the frame that has it, if one of a function has."""
        locals_of = [frame.f_locals for frame in frames]
        layout = self._layout_for(frames, locals_of)
        for frame, values, slots in zip(frames, locals_of, layout.frames, strict=True):
            for slot in slots:
                yield slot, values.get(slot.name, ABSENT), frame
        for slot in layout.outside:
            yield slot, now_in(slot), None
        _let_go(frames, locals_of)

    # --- what steps leave -------------------------------------------------------------------------

    def in_steps(self, path: str) -> bool:
        """Whether the source of some step stores to a name in this path."""
        *_, names = self._run_in_steps()
        return not names.isdisjoint(words_in(path))

    def _steps(self) -> Steps:
        return self._run_in_steps()[1]

    def _run_in_steps(self) -> tuple[Source, Steps, frozenset[str]]:
        known = self._in_steps
        if known is None or known[0] is not self._source:
            trees = [tree_of(module.__file__ or "") for module in self._own_modules]
            steps = steps_in([tree for tree in trees if tree is not None])
            known = self._in_steps = self._source, steps, stored_in_steps(steps)
        return known

    def stored_in_steps(self) -> dict[str, bytes]:
        """What variables that steps store to are at the fetch that was captured last, but for what
        goes with tracked state: see `comparison.state_of`."""
        newest = self._newest
        if newest is None:
            return {}
        if newest.in_steps is None:
            slots = [slot for shown in newest.frames for slot in shown] + newest.outside
            tracked = {*newest.tracked}
            own = [slot for slot in slots if not slot.target and slot.key not in tracked]
            newest.in_steps = [slot for slot in own if self.in_steps(path_of(slot.key))]
        if not newest.in_steps:
            return {}
        known = [slot for slot in newest.in_steps if slot.entry is not NO_VALUE]
        return {slot.key: state_of(slot.entry) for slot in known}

    def written_in_steps(self, *histories: Sequence[bytes]) -> set[str]:
        """Keys of what steps seem to write before they read it, and have written otherwise from one
        capture to the next."""
        every = [[decoded(one).brief for one in history if one] for history in histories]
        return {key for key in stored(*every) if self.in_steps(path_of(key))}

    def _now(self, frame: FrameType | None) -> Iterator[Now]:
        """Every variable of the newest place that does not go with tracked state, below the frames
        that were there then."""
        newest = self._newest
        if newest is None:
            return
        stay = self._along()
        for one, slots, place in zip(self.frames(frame), newest.frames, newest.place, strict=False):
            if [short(one.f_code.co_filename), one.f_code.co_name] != place[:2]:
                break
            values = one.f_locals
            for slot in slots:
                if slot.key not in stay and not slot.target:
                    yield Now(slot, values.get(slot.name, ABSENT), one)
        for slot in (*newest.brief, *newest.outside):
            if slot.key not in stay:
                yield Now(slot, now_in(slot), None)

    def _said(self, key: str) -> str:
        file, line = self._line_of(key)
        return f"`{path_of(key)}` ({file} line {line})"

    def _line_of(self, key: str) -> tuple[str, int]:
        return line_of(key, self._own_modules, self._layouts.values())

    def forget(self) -> None:
        """Drop every reference to what the script made."""
        self._given, self._newest, self._views, self._things = (), None, Views(), Things()
        self._outermost = None
        self._first, self._places = First(), Places()
        self._overlooked.forget()
        self.counts.forget()
        self._sharing.begin()
        self._layouts.clear()
        self._carried.clear()
        self._own_modules.clear()
        self._unlisted.clear()
        self._own_codes.clear()


class _Unlisted:
    """Stands for a module that only its functions hold."""


def _as_module(held: dict[str, Any]) -> Any:
    module = _Unlisted()
    module.__dict__ = held
    return module


def _fed(frames: list[FrameType]) -> set[FrameType]:
    """Of the script's frames those right above the fetch, or above a generator of the script's:
    what runs between both was not written in Python."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    above = [one.f_back for one in frames if one.f_code.co_flags & inspect.CO_GENERATOR]
    return {one for one in [frame, *above] if one in frames and one is not None}


def _plain_parts(value: object, depth: int) -> Iterator[object]:
    """Plain values in a batch, as far as scripts unpack them."""
    if type(value) in PLAIN:
        yield value
    elif depth and isinstance(value, list | tuple | dict) and len(value) <= _SMALL:
        for one in value.values() if isinstance(value, dict) else value:
            yield from _plain_parts(one, depth - 1)


def _holds(layout: Layout, locals_of: list[Any]) -> bool:
    """Whether everything is where the search found it."""
    if layout.uses >= LOOKS_AGAIN_EVERY:
        return False
    for number, name, known in layout.roots:
        if locals_of[number].get(name) is not known:
            return False
    for owner, name, child in layout.children:
        if owner.get(name) is not child:
            return False
    return layout.keeps_sizes()


def _let_go(frames: list[FrameType], locals_of: list[Any]) -> None:
    """Before Python 3.13 a frame keeps what it has shown of its locals: batches and graphs would
    live a step longer. Not where the script itself has asked for the same dict."""
    for number, frame in enumerate(frames):
        values = locals_of[number]
        is_shown = type(values) is dict and frame.f_code.co_flags & inspect.CO_OPTIMIZED
        if is_shown and sys.getrefcount(values) <= _HELD_BY_US:
            values.clear()
