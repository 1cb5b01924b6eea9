"""The batches of a job: data passes over a loader, with a place that another process can resume at.

A position is taken at every step and must be cheap, so for a plain DataLoader it does not say where
the samplers stand. It says how the pass *began* (the random generators at the fetch of its first
batch) and how many batches were taken since. To resume, the pass is begun again from there and the
batches are passed over: their indices only, if the loader loads in this process, else with their
data, because the random state inside loader processes can be had in no other way. A loader with
state_dict(), as StatefulDataLoader, is asked for its own state instead (unless it reads a stream
whose dataset keeps none: then its batches are passed over as well).

    first fetch of a pass   set_epoch(pass), note the generators, iter(loader): draws seeds
    every fetch             batches_taken += 1
    after the last batch    still "all taken of pass p": a sampler may draw once more when it is
                            found empty, and that is part of the next fetch

What must hold for the resumed batches to be equal bit for bit:

- The caller restores the random generators of its record right after `resume` and before the next
  fetch; `resume` itself leaves the global generators as it found them.
- Samplers draw from the global generators at the start of a pass only (torch's do), or from a
  torch.Generator in an attribute `generator` of loader, sampler or batch sampler. If the indices
  passed over differ from those that were taken, `resume` raises StateMismatch.
- A plain DataLoader's processes start afresh in every pass: persistent_workers is not used.
- StatefulDataLoader restores indices and the datasets' own state, not the random state inside its
  loader processes.
"""

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from trainmover.errors import StateMismatch, UserError
from trainmover.state import rng
from trainmover.state.encode import decode, encode
from trainmover.worker.data.samples import Samples, ids_of, why_unknown
from trainmover.worker.data.trail import Trail

_LOADS_HERE: dict[str, Any] = {
    "num_workers": 0,
    "timeout": 0,
    "prefetch_factor": None,
    "persistent_workers": False,
}


class Batches:
    """Iterator over the batches of `passes` data passes; endless with None.

    Calls set_epoch(pass) on sampler and batch sampler where they have it, as every training loop
    with a DistributedSampler should.

    samples  how to tell which samples a batch is made of; None: nobody asks
    """

    def __init__(self, loader: Any, passes: int | None, samples: Samples = None) -> None:
        """Raises UserError for a loader whose batches could not be resumed elsewhere."""
        self._stateful = hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")
        _check(loader, stateful=self._stateful)
        self.samples = samples or None
        if samples is True and (reason := why_unknown(loader, stateful=self._stateful)):
            raise _unknown_samples(reason)
        self._loader = loader
        self._trail: Trail | None = None
        if isinstance(loader, DataLoader) and not self._stateful:
            self._loader, self._trail = _traced(loader, keeps=samples is True)
        self._passes = passes
        self._iterator: Iterator[Any] | None = None
        self._indices: Any = None  # Of the batch taken last.
        self._begin: _Begin | None = None  # Of the pass under way.
        self.pass_index = 0
        self.batches_taken = 0
        self.finished = passes is not None and passes <= 0

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
                batch = next(self._iterator)
            except StopIteration:
                self._end_pass()
                continue
            self.batches_taken += 1
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

    def position(self) -> dict[str, Any]:
        """The place before the next batch; the same until that is fetched. Encodable.

        After the last batch of pass p it is "all taken of pass p", which continues with pass p + 1.
        """
        if self.finished:
            return {"pass": self.pass_index, "finished": True}
        position: dict[str, Any] = {"pass": self.pass_index, "taken": self.batches_taken}
        if self._begin is None or self._iterator is None:
            position["generators"] = _generator_states(self._loader)
            if self._stateful:
                position["parts"] = _part_states(self._loader)
            return position
        position |= {"generators": self._begin.generators, "rng": self._begin.rng}
        if self._stateful:
            state = self._loader.state_dict()
            if _has_own_state(self._loader, state):
                position["loader"] = encode(state)  # Now: the loader may change what it showed.
        elif self._trail is not None:
            position["trail"] = self._trail.mark_after(self.batches_taken)
        return position

    def resume(self, position: dict[str, Any]) -> None:
        """Stand at a `position` of an equal loader, here or in another process.

        Global generators are left as they were found; the caller then restores those of its record.
        Raises StateMismatch if the loader does not give what it gave there.
        """
        self.close()
        self.pass_index, self.batches_taken = position["pass"], position.get("taken", 0)
        self.finished = position.get("finished", False)
        if self.finished:
            return
        _set_generators(self._loader, position["generators"])
        _set_part_states(self._loader, position.get("parts", {}))
        if "rng" not in position:
            return
        outside = rng.capture()
        try:
            rng.restore(position["rng"])
            self._resume_pass(position)
        finally:
            rng.restore(outside)

    @property
    def at_end(self) -> bool:
        """Whether it is known that there is no further batch."""
        if self.finished or self._passes is None:
            return self.finished
        length = _length(self._loader)
        return self.pass_index == self._passes - 1 and length == self.batches_taken

    def close(self) -> None:
        """End what the pass under way holds, loader processes above all."""
        self._iterator = None
        self._begin = None

    def _begin_pass(self) -> None:
        self._set_epoch()
        self._begin = _Begin(rng.capture(), _generator_states(self._loader))
        self._iterator = iter(self._loader)

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
        self._set_epoch()
        self._begin = _Begin(position["rng"], position["generators"])
        if "loader" in position:
            self._loader.load_state_dict(decode(position["loader"]))
            self._iterator = iter(self._loader)
            return
        self._iterator = self._begun_again(position)
        self._pass_over(self.batches_taken)
        if self._trail is not None and self._trail.mark_after(self.batches_taken) != position.get(
            "trail"
        ):
            raise _other_indices()

    def _begun_again(self, position: dict[str, Any]) -> Iterator[Any]:
        """The iterator of the pass; with every batch taken, one that never loads data."""
        loader = self._loader
        if self._trail is not None and self.batches_taken == _length(loader):
            loader = _copied(loader, **_LOADS_HERE)
        return iter(loader)

    def _pass_over(self, count: int) -> None:
        iterator = self._iterator
        assert iterator is not None
        loads_here = self._trail is not None and getattr(iterator, "_num_workers", None) == 0
        advance = getattr(iterator, "_next_index", None) if loads_here else None
        try:
            for _ in range(count):
                if advance is not None:
                    advance()
                else:
                    next(iterator)
        except StopIteration:
            raise _other_indices() from None

    def _set_epoch(self) -> None:
        seen: list[object] = []
        for _, part in _parts(self._loader):
            if hasattr(part, "set_epoch") and not any(part is other for other in seen):
                seen.append(part)
                part.set_epoch(self.pass_index)


class _Begin:
    """The random generators at the fetch of a pass's first batch."""

    def __init__(self, global_rng: bytes, generators: dict[str, bytes]) -> None:
        self.rng = global_rng
        self.generators = generators


def _traced(loader: "DataLoader[Any]", *, keeps: bool) -> "tuple[DataLoader[Any], Trail]":
    """A copy of the loader with the same parts, whose indices leave a trail."""
    sampler = "sampler" if loader.batch_sampler is None else "batch_sampler"
    trail = Trail(getattr(loader, sampler), keeps=keeps)
    return _copied(loader, persistent_workers=False, **{sampler: trail}), trail


def _copied(loader: "DataLoader[Any]", **changes: Any) -> "DataLoader[Any]":
    # A loader refuses to have these attributes set, rightly: it is being iterated. The copy is not.
    twin = copy.copy(loader)
    vars(twin).update(changes, _iterator=None)
    return twin


def _stateful_parts(loader: Any) -> dict[str, Any]:
    """What a stateful loader reads from and may have moved: dataset and samplers with a state.

    Before the first fetch their states are the loader's: to ask the loader itself would begin a
    pass, and draw. In a loader process only a copy of the dataset moves.
    """
    parts = [*_parts(loader)[1:], ("dataset", getattr(loader, "dataset", None))]
    return {
        name: part
        for name, part in parts
        if hasattr(part, "state_dict") and hasattr(part, "load_state_dict")
    }


def _part_states(loader: Any) -> dict[str, bytes]:
    return {name: encode(part.state_dict()) for name, part in _stateful_parts(loader).items()}


def _set_part_states(loader: Any, states: dict[str, bytes]) -> None:
    parts = _stateful_parts(loader)
    for name, state in states.items():
        if name in parts:
            parts[name].load_state_dict(decode(state))


def _has_own_state(loader: Any, state: Any) -> bool:
    """False for a stream whose dataset keeps no state: passing over its batches is then up to us.

    torchdata 0.11 would do it too, but counts those batches twice: the state after that leads to a
    place too far.
    """
    is_stream = isinstance(getattr(loader, "dataset", None), IterableDataset)
    return not is_stream or _dataset_state_in(state)


def _dataset_state_in(state: Any) -> bool:
    if not isinstance(state, dict):
        return False
    if any(state.get(name) is not None for name in ("dataset_state", "dataset_iter_state")):
        return True
    return any(_dataset_state_in(entry) for entry in state.values())


def _parts(loader: Any) -> list[tuple[str, Any]]:
    """Loader, sampler and batch sampler by name: what may hold a generator or an epoch."""
    sampler, batch_sampler = _inner(loader, "sampler"), _inner(loader, "batch_sampler")
    parts = {
        "loader": loader,
        "sampler": sampler,
        "batch_sampler": batch_sampler,
        "batch_sampler.sampler": _inner(batch_sampler, "sampler"),
    }
    return [(name, part) for name, part in parts.items() if part is not None]


def _inner(owner: Any, name: str) -> Any:
    part = getattr(owner, name, None)
    return part.inner if isinstance(part, Trail) else part


def _generators(loader: Any) -> dict[str, torch.Generator]:
    found = {name: getattr(part, "generator", None) for name, part in _parts(loader)}
    return {name: g for name, g in found.items() if isinstance(g, torch.Generator)}


def _generator_states(loader: Any) -> dict[str, bytes]:
    return {name: g.get_state().numpy().tobytes() for name, g in _generators(loader).items()}


def _set_generators(loader: Any, states: dict[str, bytes]) -> None:
    generators = _generators(loader)
    if generators.keys() != states.keys():
        raise StateMismatch(
            f"The loader has generators at {sorted(generators)}, at the source {sorted(states)}.",
            means="Its batches would not be those of the source.",
            do="A script must build the same loader for a rank wherever it runs.",
        )
    for name, state in states.items():
        generators[name].set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:
        return None


def _check(loader: Any, *, stateful: bool) -> None:
    reason = _why_not(loader, stateful=stateful)
    if reason:
        raise UserError(
            f"job.batches cannot resume this loader: {reason}.",
            means="After a move or a loss its rank would train on other data.",
            do="Use torchdata's StatefulDataLoader, or a DataLoader over a map-style dataset.",
        )


def _why_not(loader: Any, *, stateful: bool) -> str:
    if getattr(loader, "num_workers", 0) > 1 and not getattr(loader, "in_order", True):
        return "with in_order=False the order of its batches is left to chance"
    if stateful:
        return ""
    if isinstance(getattr(loader, "dataset", None), IterableDataset):
        return "an IterableDataset has no indices to pass over"
    if hasattr(loader, "__next__"):
        return "an iterator can be read only once"
    return ""


def _unknown_samples(reason: str) -> UserError:
    return UserError(
        f"job.batches(samples=True) cannot know the samples of this loader: {reason}.",
        means="Which samples each step used would not be in the journal.",
        do="Say how a batch tells: samples=lambda batch: batch['id'].",
    )


def _other_indices() -> StateMismatch:
    return StateMismatch(
        "The loader does not give the batches again that were taken before the move.",
        means="Going on would train on other data.",
        do="Its sampler must draw at the start of a pass only, or from a torch.Generator in its "
        "attribute `generator`; and the dataset must be the same on every machine.",
    )
