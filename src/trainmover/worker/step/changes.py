# SPDX-License-Identifier: Apache-2.0
"""Does a step change bulk state before its gate?

Mostly parameters, optimizers' state and averages of weights change behind the gate only, so an
aborted step finds them as they were. But a momentum encoder is brought up to date in forward,
weight decay by hand comes before the update, and some scripts update without an optimizer. Such a
step, run again, would do it twice, on all ranks alike, and nobody would see it. So it is looked for
in every step:

    version counters and addresses    as the step begins, and at its first update or its gate
    bytes                             the same in first steps, and now and then in later ones: for
                                      what leaves no mark (`.data`, numpy's view of the memory)

The same is asked of the lines between the fetch of a batch and its step: whoever takes a rank
stands at the fetch and runs them again, on the state of a rank that has run them (`since_fetch`).

And of the lines between a step's return and the next fetch: an average of weights, say, is brought
up to date there. Whoever takes a rank that was lost in them runs them on the state of a rank that
has been through them, and what they work out of that average is another number (`moved`).

A step that has changed something there is not made again: if it is aborted, all ranks go back to a
snapshot. So they do from the first finding by bytes on, since what leaves no mark may come again.

It may also begin in any later step, and be lost sight of between two looks. So whoever makes an
alias past torch's counters counts as a writer, see `unseen`; looks at bytes are for what nobody
sees made.
"""

import time
from collections.abc import Iterator, Mapping, Sequence, Set

from torch import Tensor, nn
from torch.optim import Optimizer

from trainmover.sandbox.record import STEPS
from trainmover.state.encode import as_local
from trainmover.state.proof.device_digest import lies_elsewhere
from trainmover.state.proof.digest import hashes_of
from trainmover.state.tracked import Tracked
from trainmover.torch_internals.tensors import Watched
from trainmover.torch_internals.watching.aliases import storage_of

SHARE = 0.003
"""Of the time, that looks at bytes may take after the first steps."""


class Changes:
    """Of one rank, for all its steps.

    early    steps were seen to change bulk state before their gate
    unmarked  of which looks at bytes alone have shown it, for people; "": none was found by them
    names    of what the step under way has changed there
    moved    paths of what lines behind the last step have changed, as the next fetch has found
    """

    def __init__(self) -> None:
        self.early = False
        self.unmarked = ""
        self.names: list[str] = []
        self.moved: list[str] = []
        self._tracked: Tracked | None = None
        self._tensors: dict[str, Tensor] = {}
        self._fit: list[int] = []
        self._watch: Watched = Watched(())
        self._begun: Watched = self._watch
        self._hashes: dict[str, bytes] = {}
        self._fetched = False  # Since the last step.
        self._looks = False
        self._storages_at: object = None
        self._keeps_lists = False  # Of tensors, as LBFGS does: others in each step.
        self._storages = set[int]()
        self._unseen: set[str] = set()
        self._behind: dict[str, bytes] = {}  # Hashes, as a step has returned.
        self._moved_unseen: set[str] = set()
        self._made = self._look_ns = self._credit_ns = self._last_ns = 0

    def at_fetch(self, tracked: Tracked) -> None:
        """The script fetches for its next step; the first fetch counts."""
        if self._fetched:
            return
        marked = [] if self._watch.same() else self._paths_of(self._watch.changed())
        self._fetched, self._looks = True, self._looks_at_bytes()
        self._know_anew(tracked, looks=self._looks)
        self._watch.note()
        self._hashes = self._read() if self._looks else {}
        if self._behind:
            self._moved_unseen |= _other(self._behind, self._hashes)
            self._behind = {}
        self.moved = sorted({*marked, *self._moved_unseen}) if self._moved_unseen else marked

    def since_fetch(self, tracked: Tracked) -> list[str]:
        """Names of what was changed since then; the step is about to begin. What left no mark once
        may do so each time."""
        fetched, self._fetched = self._fetched, False
        if not fetched:
            return []
        if self._fit != _fit(tracked):
            return ["the optimizer"]
        if not self._watch.same():
            return self._paths_of(self._watch.changed())
        if self._looks:
            self._unseen |= _other(self._hashes, self._read())
        return sorted(self._unseen)

    def step_is_over(self, tracked: Tracked) -> None:
        """What it has fetched itself was for it. Lines behind it may change what is tracked."""
        self._fetched = False
        looks = self._made <= STEPS
        if looks:
            self._know(tracked)  # FSDP2 has put its shards in their places again.
        self._watch.note()
        self._behind = self._read() if looks else {}

    def loaded(self, tracked: Tracked) -> None:
        """Know what is tracked as it was loaded just now: no mark of before counts."""
        self._fetched, self.moved, self._behind = False, [], {}
        self._know(tracked)
        self._watch.note()

    def of_updates(self, tracked: Tracked, tensors: Sequence[Tensor]) -> list[int]:
        """Numbers of those on a device that only updates write to. None are known to be before this
        process's first steps are over, and once a change was found in any."""
        if self._made <= STEPS or self.early or self._unseen:
            return []
        own = {as_local(tensor).data_ptr() for _, tensor in watched(tracked)}
        away = [n for n, tensor in enumerate(tensors) if lies_elsewhere(tensor)]
        return [n for n in away if tensors[n].is_contiguous() and tensors[n].data_ptr() in own]

    def begin(self, tracked: Tracked) -> None:
        """A step starts, or starts again: nothing is changed yet."""
        self.names, self._tracked = [], tracked
        self._made += 1
        looks = self._looks_at_bytes()
        self._know_anew(tracked, looks=looks)
        self._begun = self._watch
        self._begun.note()
        self._hashes = self._read() if looks else {}

    def look(self) -> bool:
        """Called before the step's first update, and at its gate: the first call counts. True if
        something was found for the first time."""
        tracked, self._tracked = self._tracked, None
        if tracked is None:
            return False
        if self._fit[1::2] != _fit(tracked)[1::2]:  # The graph has its groups.
            self.names = ["the optimizer"]
        elif not self._begun.same():
            self.names = self._paths_of(self._begun.changed())
        elif self._hashes:
            self._know(tracked)
            other = _other(self._hashes, self._read())
            self.names = [path for path in self._tensors if path in other]
            self.unmarked = self.unmarked or next(iter(self.names), "")
        self._hashes = {}
        first, self.early = bool(self.names) and not self.early, self.early or bool(self.names)
        return first

    def storages(self, tracked: Tracked) -> Set[int]:
        """Return the addresses of the storages that tracked tensors lie in."""
        at = self._watch.addresses(), _fit(tracked)
        if at != self._storages_at or self._keeps_lists:
            self._storages_at = at
            states = [one for optimizer in tracked.optimizers for one in optimizer.state.values()]
            tables = [state for state in states if isinstance(state, dict)]
            self._keeps_lists = any(type(one) is list for state in tables for one in state.values())
            shards = [shard for part in tracked.unsharded for shard in part.shards().values()]
            every = (as_local(one) for one in [*shards, *(one for _, one in watched(tracked))])
            self._storages = {start for one in every if (start := storage_of(one))}
        return self._storages

    def addresses(self) -> object:
        """Of all that is watched, as the step began: equal as long as each lies where it lay."""
        return self._begun.addresses(), self._fit

    def _paths_of(self, numbers: Sequence[int]) -> list[str]:
        paths = list(self._tensors)
        return [paths[number] for number in numbers]

    def _know_anew(self, tracked: Tracked, *, looks: bool) -> None:
        fit = _fit(tracked)
        if looks or self._fit != fit:
            self._fit = fit
            self._know(tracked)

    def _know(self, tracked: Tracked) -> None:
        self._tensors = dict(watched(tracked))
        self._watch = Watched(self._tensors.values())

    def _looks_at_bytes(self) -> bool:
        """In this process's first steps, and whenever it has been paid for."""
        now_ns = time.monotonic_ns()
        if self._last_ns:
            self._credit_ns += int((now_ns - self._last_ns) * SHARE)
        self._last_ns = now_ns
        if self._made <= STEPS:
            return True
        # Not as soon as it is due: a habit of every eighth step must not hide between the looks.
        return self._credit_ns > 2 * self._look_ns and now_ns % 3 == 0

    def _read(self) -> dict[str, bytes]:
        begun_ns = time.monotonic_ns()
        tensors = [as_local(tensor) for tensor in self._tensors.values()]
        hashes = dict(zip(self._tensors, hashes_of(tensors), strict=True))
        self._look_ns = time.monotonic_ns() - begun_ns
        self._credit_ns = 0
        return hashes


def _other(before: Mapping[str, bytes], now: Mapping[str, bytes]) -> set[str]:
    """Paths of what is another now, or was not there."""
    return {path for path, found in now.items() if before.get(path) != found}


def _fit(tracked: Tracked) -> list[int]:
    """Changes when there may be other tensors to watch."""
    sizes = [tracked.count]
    for optimizer in tracked.optimizers:  # No call: this is asked four times a step.
        sizes += (len(optimizer.state), len(optimizer.param_groups))
    return sizes


def watched(tracked: Tracked) -> Iterator[tuple[str, Tensor]]:
    """Bulk state by path: the memory that is trained with. The script's graph has buffers."""
    bulk = set(tracked.bulk_names())
    for name, obj in tracked.items():
        if isinstance(obj, nn.Module):
            for path, parameter in obj.named_parameters():
                yield f"{name}.{path}", parameter
        elif isinstance(obj, Optimizer):
            yield from _state_of(name, obj)
        elif name in bulk:
            yield from _leaves_of(name, obj.state_dict())


def _state_of(name: str, optimizer: Optimizer) -> Iterator[tuple[str, Tensor]]:
    for number, state in enumerate(optimizer.state.values()):
        yield from _leaves_of(f"{name}.state[{number}]", state)


def _leaves_of(path: str, value: object) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from _leaves_of(f"{path}.{key}", entry)
    elif isinstance(value, list | tuple):
        for number, entry in enumerate(value):
            yield from _leaves_of(f"{path}[{number}]", entry)
