# SPDX-License-Identifier: Apache-2.0
"""The batches of a job: data passes over a loader, with a place that another process can resume at.

A position is taken at every step and must be cheap, so for a plain DataLoader it does not say where
the samplers stand. It says how the pass *began* (the random generators at the fetch of its first
batch, the samplers' epochs) and how many batches were taken since. To resume, the pass is begun
again from there and the batches are passed over: their indices only, if the loader loads in this
process, else with their data, because the random state inside loader processes can be had in no
other way. A StatefulDataLoader is asked for its own state instead (unless it reads a stream whose
dataset keeps none: then its batches are passed over as well).

    first fetch of a pass   samplers' epochs, note the generators, iter(loader): draws seeds
    every fetch             batches_taken += 1
    after the last batch    still "all taken of pass p": a sampler may draw once more when it is
                            found empty, and that is part of the next fetch

What must hold for the resumed batches to be equal bit for bit, and what sees to it:

- The caller restores the random generators of its record right after `resume` and before the next
  fetch; `resume` itself leaves the global generators as it found them.
- Generators of samplers begin as they did in the pass; those that a dataset or a collate function
  holds, where the loader loads here, are put to where they stood at the fetch.
- Samplers draw at the start of a pass, or from generators that can be seen. If the indices passed
  over differ from those that were taken, `resume` raises StateMismatch; so it does if batches that
  are passed over with their data are others (`batch_hash`). Of those that a fetch draws from the
  global generators only the last is compared: it can be drawn again with the numbers it had.
- A plain DataLoader's processes start afresh in every pass: persistent_workers is not used.
- A StatefulDataLoader's keep their generators beside the dataset's state (`worker_state`).
- A loader makes no collectives: whoever takes the rank would make them when the others do not.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import xxhash
from torch.utils.data import DataLoader

from trainmover.errors import StateMismatch, UserError
from trainmover.state import rng
from trainmover.state.encode import decode, encode
from trainmover.state.kinds.generators import Generator
from trainmover.torch_internals.loaders import UNBEGUN, fetches_here, pass_over
from trainmover.worker.data import worker_state
from trainmover.worker.data.batch_hash import batch_hash
from trainmover.worker.data.counted import Counted
from trainmover.worker.data.epochs import Epochs
from trainmover.worker.data.loader_kinds import (
    Kind,
    has_state,
    is_stream,
    is_torchdatas,
    kind_of,
    loads_here,
)
from trainmover.worker.data.loader_parts import (
    OF_TORCH,
    all_generators,
    counting,
    drawing_generators,
    keeps_own,
    loading_generators,
    numbers_of,
    parts,
    set_numbers,
    set_states,
    states_of,
)
from trainmover.worker.data.pass_tensors import PassTensors
from trainmover.worker.data.samples import Samples, ids_of, why_unknown
from trainmover.worker.data.since import Since
from trainmover.worker.data.trail import Trail

OF_PASS = ("epochs", "numbers", "generators", "parts", "rng")
_NONE = encode({})
_NEVER_DRAW = (range, list, tuple)
_LOADS_HERE: dict[str, Any] = {
    "num_workers": 0,
    "timeout": 0,
    "prefetch_factor": None,
    "persistent_workers": False,
}


class Batches:
    """Iterator over the batches of `passes` data passes; endless with None.

    over     the loader, as the script has it
    samples  how to tell which samples a batch is made of; None: nobody asks
    hash     of the batch taken last, if there is one: see `watch`
    drawn    batches taken in all passes
    """

    def __init__(self, loader: Any, passes: int | None, samples: Samples = None) -> None:
        """Raises UserError for a loader whose batches could not be resumed elsewhere."""
        self._kind = kind_of(loader)
        self.samples = samples or None
        if samples is True and (reason := why_unknown(loader)):
            raise _unknown_samples(reason)
        self.over = self._loader = loader
        self._trail: Trail | None = None
        if isinstance(loader, DataLoader):
            if not has_state(loader):
                self._loader, self._trail = _traced(loader, keeps=samples is True)
            elif not loads_here(loader) and worker_state.can_keep(loader.dataset):
                worker_state.keep_generators(loader)
        self._keeps_own = self._loader is not loader and keeps_own(loader)
        self._epochs = Epochs(self._loader)
        self._passes = passes
        self._iterator: Iterator[Any] | None = None
        self._indices: Any = None  # Of the batch taken last.
        self._begin: dict[str, Any] = {}  # Of the pass under way: that part of its positions.
        self._loading: dict[str, Any] = {}  # Generators that load here.
        self._tensors: PassTensors | None = None  # Of its samplers.
        self._since: Since | None = None  # What others make of its parts in the pass under way.
        self._counted: Counted | None = None  # What its loader's own state is made of.
        self._collectives: Callable[[], int | None] | None = None
        self._calls: int | None = None  # Collectives until the pass began.
        self._hashing = False
        self.hash: int | None = None
        self._chain = 0  # Of the hashes of this pass.
        self._last: list[Any] | None = None  # A batch that drew: the generators before, its hash.
        self._stand_in: list[Any] = []
        self.pass_index = 0
        self.batches_taken = self.drawn = 0
        self.finished = passes is not None and passes <= 0

    def watch(self, collectives: Callable[[], int | None]) -> None:
        """It is to be resumed elsewhere: hash the batches as they come, and see to it that none of
        the `collectives` counted is made for them. None: nobody can tell now."""
        self._hashing, self._collectives = True, collectives

    def __iter__(self) -> "Batches":
        return self

    def __len__(self) -> int:
        """Batches in all passes. Raises TypeError if that is not known."""
        if self._passes is None:
            raise TypeError("an endless iterator has no length")
        return len(self._loader) * self._passes

    def __next__(self) -> Any:
        """Fetch the next batch, beginning the next pass where one ends."""
        while not self.finished:
            if self._iterator is None:
                self._begin_pass()
            assert self._iterator is not None
            try:
                batch = self._draw()
            except StopIteration:
                self._end_pass()
                continue
            if self.batches_taken == 0:
                self._begun_well()
            self.batches_taken += 1
            self.drawn += 1
            if self.samples is True:
                self._indices = self._taken_last()
            return batch
        raise StopIteration

    def sample_ids(self, batch: Any) -> list[int | str]:
        """Of the batch that was taken last."""
        return ids_of(self.samples(batch) if callable(self.samples) else self._indices)

    def _taken_last(self) -> Any:
        place = self.batches_taken - 1
        return place if self._trail is None else self._trail.indices_of(place)

    def stand_in(self) -> Any:
        """A batch such as its loader gives, for a round that is passed by: all rounds get the same
        one. A sequence gives the very item. Raises StopIteration if there is none."""
        place, self.drawn = self.drawn, self.drawn + 1
        if type(self._loader) in _NEVER_DRAW:
            if not self._loader:
                raise StopIteration
            return self._loader[place % len(self._loader)]
        if not self._stand_in:
            outside = rng.capture()
            try:
                self._stand_in = [next(iter(_loading_here(self._loader)))]
            finally:
                rng.restore(outside)
        return self._stand_in[0]

    @property
    def rounds(self) -> int | None:
        """That a loop over it has, if it is not left early; None: not known, or endless."""
        length = _length(self._loader)
        return None if length is None or self._passes is None else length * self._passes

    @property
    def is_all(self) -> bool:
        """Whether it was said how long the script goes round: by `range`, or a number of passes.
        One pass is what a script asks for that counts its passes itself."""
        return type(self._loader) is range or (self._passes or 0) > 1

    def position(self) -> dict[str, Any]:
        """The place before the next batch; the same until that is fetched. Encodable.

        After the last batch of pass p it is "all taken of pass p", which continues with pass p + 1.
        """
        position: dict[str, Any] = {"pass": self.pass_index, "drawn": self.drawn}
        if self.finished:
            return position | {"finished": True}
        position["taken"] = self.batches_taken
        if not self._begin or self._iterator is None:
            return position | self._before_pass()
        position |= self._begin
        if self._since is not None and (since := self._since.state()):
            position["since"] = since
        if self._tensors is not None and (before := self._tensors.changed()):
            position["tensors"] = encode(before)
        if self._loading:
            position["held"] = states_of(self._loading)
        if self._hashing:
            position["chain"] = self._chain
            if self._last is not None:
                position["last"] = self._last
        if self._kind is Kind.STATEFUL:
            state = self._state_of_loader()
            if _has_own_state(self._loader, state):
                position["loader"] = encode(state)  # Now: the loader may change what it showed.
        elif self._trail is not None:
            position["trail"] = self._trail.mark_after(self.batches_taken)
        return position

    @property
    def since(self) -> dict[str, Any]:
        """What its parts have become in the pass under way, and not by it."""
        return {} if self._since is None else self._since.state()

    def put_since(self, state: dict[str, Any]) -> None:
        """As another process had it."""
        if self._since is not None:
            self._since.put(state)
            self._give_back()

    def _state_of_loader(self) -> Any:
        """Its own."""
        if self._counted is not None and (state := self._counted.state(self._loader)) is not None:
            return state
        asked = self._loader.state_dict()
        self._counted = Counted.of(self._loader, asked)
        return asked

    def resume(self, position: dict[str, Any]) -> None:
        """Stand at a `position` of an equal loader, here or in another process.

        Global generators are left as they were found; the caller then restores those of its record.
        Raises StateMismatch if the loader does not give what it gave there.
        """
        self.close()
        self.pass_index, self.batches_taken = position["pass"], position.get("taken", 0)
        self.drawn = position["drawn"]
        self.finished = position.get("finished", False)
        if self.finished:
            return
        self._epochs.resume(position["epochs"], self.pass_index)
        set_numbers(self._loader, position["numbers"])
        self._give_back()
        # A sampler's draws are compared as the pass is begun again.
        later = {*position.get("held", ()), *drawing_generators(self._loader)}
        set_states(all_generators(self._loader), position["generators"], later)
        _set_part_states(self._loader, position.get("parts", {}))
        if "rng" not in position:
            return
        outside = rng.capture()
        try:
            rng.restore(position["rng"])
            self._resume_pass(position)
            self.put_since(position.get("since", {}))
        finally:
            rng.restore(outside)

    def close(self) -> None:
        """End what the pass under way holds, loader processes above all."""
        self._iterator = self._counted = self._since = self._tensors = None
        self._begin, self._loading = {}, {}
        self._chain, self._last = 0, None

    def _begin_pass(self) -> None:
        self._epochs.begin_pass(self.pass_index)
        self._begin = self._before_pass() | {"rng": rng.capture()}
        if self._kind is Kind.STATEFUL:
            self._begin.pop("parts", None)  # The loader's own state has them.
        self._tensors = PassTensors(self._loader)
        self._calls = None if self._collectives is None else self._collectives()
        if self._keeps_own:
            share(self.over, self._loader)
        self._iterator = iter(self._loader)

    def _before_pass(self) -> dict[str, Any]:
        """What a pass depends on that is about to begin."""
        before: dict[str, Any] = {
            "epochs": self._epochs.state(),
            "numbers": numbers_of(self._loader),
            "generators": states_of(all_generators(self._loader)),
        }
        if self._kind is not Kind.INDEXED and (states := _part_states(self._loader)):
            before["parts"] = states
        return before

    def _begun_well(self) -> None:
        """The first batch of a pass has come."""
        before, self._calls = self._calls, None
        after = None if self._collectives is None else self._collectives()
        if before is not None and after is not None and after > before:
            raise UserError(
                "The loader makes collectives as a pass begins.",
                means="Whoever takes a rank begins its pass when the others do not: all would wait "
                "for each other.",
                do="Exchange what the ranks must agree on before job.batches, and give the result "
                "to the loader.",
            )
        self._note_parts()

    def _note_parts(self) -> None:
        """The first batch has come: the pass has made of them what it makes by itself."""
        self._look_for_generators()
        known = all_generators(self._loader)
        draws = {name: one for name, one in known.items() if name not in self._loading}
        self._since = Since(self._loader, self._epochs, draws)

    def generators(self) -> list[Generator]:
        """That its loader draws from."""
        return [*all_generators(self._loader).values(), *self._loading.values()]

    def loading(self) -> list[object]:
        """What makes its batches in this process, and whose state does not go with its place."""
        if self._kind is Kind.STATEFUL or not isinstance(self._loader, DataLoader):
            return []
        return [self._loader.dataset, self._loader.collate_fn] if loads_here(self._loader) else []

    def samplers(self) -> list[Any]:
        """Parts of its loader whose numbers go with its place."""
        return counting(self._loader)

    def _look_for_generators(self) -> None:
        """Again after the first batch: a dataset may make its own only when it is first asked."""
        self._loading = loading_generators(self._loader) if loads_here(self._loader) else {}

    def _next_of_own(self) -> Any:
        """Of a loader that keeps something in its attributes: the same in the script's."""
        assert self._iterator is not None
        share(self.over, self._loader)
        try:
            return next(self._iterator)
        finally:
            self._give_back()

    def _give_back(self) -> None:
        if self._keeps_own:
            share(self._loader, self.over)

    def _draw(self, *, again: bool = False) -> Any:
        """The next batch of the pass. again: it is passed over."""
        assert self._iterator is not None
        if not self._hashing:
            return self._next_of_own() if self._keeps_own else next(self._iterator)
        watched = self._kind is Kind.REPLAYED and type(self._loader) not in _NEVER_DRAW
        before = rng.capture() if watched and loads_here(self._loader) else b""
        batch = self._next_of_own() if self._keeps_own else next(self._iterator)
        self.hash = batch_hash(batch)
        if before and rng.capture() != before:  # Passed over, it would be another one.
            self._last = [before, self.hash]
        else:
            self._last = None
            self._chain = xxhash.xxh3_64_intdigest(b"%d %d" % (self._chain, self.hash))
        return batch

    def _end_pass(self) -> None:
        empty = self.batches_taken == 0
        self.close()
        self.pass_index += 1
        self.batches_taken = 0
        self.finished = self.pass_index == self._passes
        if empty and self._passes is None:
            raise UserError(
                "The loader gives no batch, and its passes are endless.",
                means="The job would spin for ever without a step.",
                do="Check the dataset's length against batch size and drop_last.",
            )

    def _resume_pass(self, position: dict[str, Any]) -> None:
        self._begin = {name: position[name] for name in OF_PASS if name in position}
        if "loader" in position:
            self._loader.load_state_dict(decode(position["loader"]))
            self._iterator = iter(self._loader)
            self._note_parts()
        else:
            self._tensors = PassTensors(self._loader)
            with self._tensors.as_begun(decode(position.get("tensors", _NONE))):
                self._iterator = self._begun_again()
                self._pass_over(position)
            if self._since is not None and "tensors" in position:
                self._note_parts()  # Without what they held for that.
            if self._trail is not None:
                self._check_trail(position["trail"])
        self._chain, self._last = position.get("chain", 0), position.get("last")
        self._look_for_generators()
        if loads_here(self._loader):
            set_states(self._loading, position.get("held", {}))

    def _begun_again(self) -> Iterator[Any]:
        """The iterator of the pass; with every batch taken, one that never loads data."""
        loader = self._loader
        if self._kind is Kind.INDEXED and self.batches_taken == _length(loader):
            loader = _loading_here(loader)
        return iter(loader)

    def _pass_over(self, position: dict[str, Any]) -> None:
        iterator: Any = self._iterator
        count = self.batches_taken
        try:
            if self._kind is Kind.INDEXED and fetches_here(iterator):
                # A dataset may make a generator with its first sample: then one is loaded.
                loads = position.get("held", {}).keys() > loading_generators(self._loader).keys()
                for number in range(count):
                    if loads and number == 0:
                        next(iterator)
                    else:
                        pass_over(iterator)
                    if number == 0:
                        self._note_parts()
                return
            self._chain, last = 0, position.get("last")
            for number in range(count):
                if last is not None and number == count - 1:
                    rng.restore(last[0])
                self._draw(again=True)
                if number == 0:
                    self._note_parts()
        except StopIteration:
            raise self._other_batches() from None
        if self._hashing and "chain" in position and count:
            own = None if self._last is None else self._last[1]
            there = None if last is None else last[1]
            if own != there or self._chain != position["chain"]:
                raise self._other_batches()

    def _check_trail(self, mark: int) -> None:
        assert self._trail is not None
        if self._trail.mark_after(self.batches_taken) != mark:
            raise self._other_batches()

    def _other_batches(self) -> StateMismatch:
        return StateMismatch(
            "The loader does not give the batches again that were taken before the move.",
            means="Going on would train on other data.",
            do="A pass must give the same each time that it begins: its sampler must draw at the "
            "start of a pass only, or from a torch.Generator in its attribute `generator`; and the "
            "dataset must be the same on every machine.",
        )


def share(given: object, to: object) -> None:
    """What a loader of another class than torch's keeps in its attributes, from one to its twin."""
    names = vars(given).keys() - OF_TORCH
    vars(to).update({name: vars(given)[name] for name in names})


def _traced(loader: "DataLoader[Any]", *, keeps: bool) -> "tuple[DataLoader[Any], Trail | None]":
    """A copy of the loader with the same parts, whose indices leave a trail (a stream has none)."""
    if is_stream(loader):
        return _copied(loader, persistent_workers=False), None
    sampler = "sampler" if loader.batch_sampler is None else "batch_sampler"
    trail = Trail(getattr(loader, sampler), keeps=keeps)
    return _copied(loader, persistent_workers=False, **{sampler: trail}), trail


def _copied(loader: "DataLoader[Any]", **changes: Any) -> "DataLoader[Any]":
    # A loader refuses to have these attributes set, rightly: it is being iterated. The copy is not.
    twin = copy.copy(loader)
    vars(twin).update(changes, **UNBEGUN)
    return twin


def _loading_here(loader: Any) -> Any:
    """Itself, or a copy without processes of its own."""
    return loader if loads_here(loader) or has_state(loader) else _copied(loader, **_LOADS_HERE)


def _stateful_parts(loader: Any) -> dict[str, Any]:
    """What a loader reads from and may have moved: dataset and samplers with a state; the loader,
    if it has one of its own making.

    Before the first fetch their states are the loader's: to ask torchdata's loader itself would
    begin a pass, and draw. In a loader process only a copy of the dataset moves.
    """
    own, *inner = parts(loader)
    found = [*inner, ("dataset", getattr(loader, "dataset", None))]
    if isinstance(loader, DataLoader) and not is_torchdatas(loader):
        found.append(own)
    return {name: part for name, part in found if has_state(part)}


def _part_states(loader: Any) -> dict[str, bytes]:
    return {name: encode(part.state_dict()) for name, part in _stateful_parts(loader).items()}


def _set_part_states(loader: Any, states: dict[str, bytes]) -> None:
    found = _stateful_parts(loader)
    for name, state in states.items():
        if name in found:
            found[name].load_state_dict(decode(state))


def _has_own_state(loader: Any, state: Any) -> bool:
    """False for a stream whose dataset keeps no state: passing over its batches is then up to us.

    torchdata 0.11 would do it too, but counts those batches twice: the state after that leads to a
    place too far. Nor has it one if only its iterator has, in a process whose generators nobody
    keeps then: see `worker_state`.
    """
    if not is_stream(loader):
        return True
    return _dataset_state_in(state) and (loads_here(loader) or has_state(loader.dataset))


def _dataset_state_in(state: Any) -> bool:
    if not isinstance(state, dict):
        return False
    if any(state.get(name) is not None for name in ("dataset_state", "dataset_iter_state")):
        return True
    return any(_dataset_state_in(entry) for entry in state.values())


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:
        return None


def _unknown_samples(reason: str) -> UserError:
    return UserError(
        f"job.batches(samples=True) cannot know the samples of this loader: {reason}.",
        means="Which samples each step used would not be in the journal.",
        do="Say how a batch tells: samples=lambda batch: batch['id'].",
    )
