"""A resumed loader must give what the undisturbed one gives, from every place, bit for bit."""

import random
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    WeightedRandomSampler,
)

from trainmover.errors import StateMismatch, UserError
from trainmover.state import rng
from trainmover.state.encode import decode, encode
from trainmover.worker.data.batches import Batches

PASSES = 2
Record = tuple[bytes, bytes]  # Encoded position, RNG: what a rank record holds of the data.


class Noisy(Dataset[torch.Tensor]):
    """Augments at random, as vision datasets do: from the generators of whichever process loads."""

    def __len__(self) -> int:
        return 22

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index, random.random(), numpy.random.rand()]) + torch.rand(3)


class Plain(Noisy):
    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(index)])


class OwnGenerators(Noisy):
    """Augments from generators of its own, and of its transforms."""

    def __init__(self, late: torch.Generator | None = None) -> None:
        self.rng = numpy.random.default_rng(3)
        self.transforms = [Flip(random.Random(4)), Flip(numpy.random.RandomState(5))]
        self.late = late

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.late is None:
            self.late = torch.Generator().manual_seed(6)
        drawn = [self.rng.random(), *(flip() for flip in self.transforms), SHARED.random()]
        return torch.tensor([index, *drawn]) + torch.rand(5, generator=self.late)


class Flip:
    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def __call__(self) -> float:
        random_number: float = self.generator.uniform(0, 1)
        return random_number


SHARED = random.Random(7)


class Samples:
    """An iterable of a script's own: a class, whose passes count on."""

    def __init__(self) -> None:
        self.passes = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        self.passes += 1
        order = random.Random(self.passes)
        for _ in range(5):
            yield torch.tensor([order.random(), float(self.passes)])


class Drawn(Samples):
    """Synthetic data."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        order = torch.randperm(5)
        for number in order:
            yield torch.rand(3) + number + random.random()


class Drifting(Samples):
    """Goes on where it stood when it was begun last; where it began is the class's."""

    at = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(5):
            self.at += 1
            yield torch.tensor([float(self.at)])


class Doubling(DataLoader[torch.Tensor]):
    """Has its own way to iterate."""

    def __iter__(self) -> Any:
        for batch in super().__iter__():
            yield 2 * batch


class Buckets:
    """A batch sampler that shuffles with the global generators, and knows no length."""

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(22).tolist()
        random.shuffle(order)
        while order:
            yield [order.pop() for _ in range(min(len(order), len(order) % 3 + 2))]


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def distributed() -> "DataLoader[torch.Tensor]":
    sampler: Any = DistributedSampler(Noisy(), num_replicas=2, rank=1, seed=3)
    return DataLoader(Noisy(), batch_size=3, sampler=sampler)


def lazy_generator() -> "DataLoader[torch.Tensor]":
    """Draws 32 numbers at a time during the pass, and once more when it is found empty."""
    sampler = RandomSampler(Noisy(), replacement=True, num_samples=64, generator=seeded())
    return DataLoader(Noisy(), batch_size=8, sampler=sampler)


def stateful(workers: int) -> Any:
    loader = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    return loader(Noisy(), batch_size=4, shuffle=True, num_workers=workers)


def stateful_with_generators(workers: int) -> Any:
    loader = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    SHARED.seed(7)
    return loader(OwnGenerators(seeded()), batch_size=4, shuffle=True, num_workers=workers)


def plain_with_generators(workers: int) -> "DataLoader[torch.Tensor]":
    SHARED.seed(7)
    return DataLoader(OwnGenerators(), batch_size=4, shuffle=True, num_workers=workers)


LOADERS: dict[str, Callable[[], Any]] = {
    "in order": lambda: DataLoader(Noisy(), batch_size=4),
    "shuffle": lambda: DataLoader(Noisy(), batch_size=4, shuffle=True),
    "shuffle, full batches": lambda: DataLoader(Noisy(), batch_size=11, shuffle=True),
    "generator": lambda: DataLoader(Noisy(), batch_size=11, shuffle=True, generator=seeded()),
    "distributed": distributed,
    "replacement": lambda: DataLoader(
        Noisy(), batch_size=4, sampler=RandomSampler(Noisy(), replacement=True)
    ),
    "lazy generator": lazy_generator,
    "weighted": lambda: DataLoader(
        Noisy(), batch_size=4, sampler=WeightedRandomSampler([1.0, 2.0] * 11, 22)
    ),
    "batch sampler": lambda: DataLoader(Noisy(), batch_sampler=Buckets()),  # type: ignore[arg-type]
    "no batches": lambda: DataLoader(Plain(), batch_size=None, shuffle=True),
    "a list": lambda: [torch.tensor([float(n)]) for n in range(5)],
    "stateful": lambda: stateful(0),
    "own generators": lambda: plain_with_generators(0),
    "stateful, own generators": lambda: stateful_with_generators(0),
    "stream": lambda: DataLoader(NoisyStream(), batch_size=2),
    "stream with a state": lambda: DataLoader(StatefulStream(), batch_size=1),
    "a class": Samples,
    "a class that draws": Drawn,
    "a class that goes on": Drifting,
    "own way": lambda: Doubling(Noisy(), batch_size=4, shuffle=True),
    "own way, generator": lambda: Doubling(Noisy(), 4, shuffle=True, generator=seeded()),
}
SLOW_LOADERS: dict[str, Callable[[], Any]] = {
    "processes": lambda: DataLoader(
        Noisy(), batch_size=4, shuffle=True, num_workers=2, generator=seeded()
    ),
    "persistent processes": lambda: DataLoader(
        Noisy(), batch_size=6, shuffle=True, num_workers=2, persistent_workers=True
    ),
    "stateful processes": lambda: stateful(2),
    "processes, own generators": lambda: plain_with_generators(2),
    "stateful processes, own generators": lambda: stateful_with_generators(2),
    "own way, processes": lambda: Doubling(Noisy(), 4, shuffle=True, num_workers=2),
    "stream, processes": lambda: DataLoader(NoisyStream(), batch_size=2, num_workers=2),
}


def seed_all(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)


def train(batches: Batches) -> Iterator[tuple[Record, torch.Tensor]]:
    """Steps as the runtime takes them: the record of a step is taken before its batch is fetched.

    Yields that record, and the batch with a random number that the step draws (dropout).
    """
    while True:
        record = encode(batches.position()), rng.capture()
        assert encode(batches.position()) == record[0]
        batch = next(batches, None)
        if batch is None:
            return
        assert encode(decode(encode(batches.position()))) == encode(batches.position())
        yield record, torch.cat([batch.reshape(-1), torch.rand(1), torch.rand(1) + random.random()])


def watched(loader: Any, passes: int | None = PASSES) -> Batches:
    batches = Batches(loader, passes)
    batches.watch(lambda: 0)
    return batches


def resumed(loader: Any, record: Record, *, used: bool) -> Batches:
    """As a joiner does it: often after shadow steps with the same loader."""
    batches = watched(loader)
    if used:
        next(batches), next(batches)
    before = rng.capture()
    batches.resume(decode(record[0]))
    assert rng.capture() == before, "resume left other global generators"
    rng.restore(record[1])
    return batches


def check_resumes(make: Callable[[], Any], places: Callable[[int], list[int]]) -> None:
    seed_all(1)
    undisturbed = list(train(watched(make())))
    end = rng.capture()
    for place, used in product(places(len(undisturbed)), (False, True)):
        seed_all(1000 + place)
        batches = resumed(make(), undisturbed[place][0], used=used)
        rest = list(train(batches))
        assert len(rest) == len(undisturbed) - place
        for (record, batch), (expected_record, expected) in zip(
            rest, undisturbed[place:], strict=True
        ):
            assert torch.equal(batch, expected), f"resumed at {place}, {used=}"
            assert record == expected_record
        assert rng.capture() == end


@pytest.mark.parametrize("name", LOADERS)
def test_resumes_bitwise_from_every_place(name: str) -> None:
    makes_one_late = name == "own generators"
    check_resumes(LOADERS[name], lambda count: list(range(makes_one_late, count)))


def test_a_sampler_may_make_its_generator_as_its_first_pass_begins() -> None:
    """As Accelerate's does: the pass begins again where there is one already."""

    class Seeded(Sampler[int]):
        generator: torch.Generator | None = None

        def __iter__(self) -> Iterator[int]:
            self.generator = self.generator or torch.Generator()
            self.generator.manual_seed(5)
            return iter(torch.randperm(12, generator=self.generator).tolist())

        def __len__(self) -> int:
            return 12

    def make() -> Batches:
        return watched(DataLoader(list(range(12)), 2, sampler=Seeded()))

    expected, place, used = make(), make(), make()
    assert [next(place)[0] for _ in range(3)] == [next(expected)[0] for _ in range(3)]
    next(used)
    used.resume(place.position())
    assert [*map(torch.Tensor.tolist, used)] == [*map(torch.Tensor.tolist, expected)]


def test_a_generator_that_is_made_with_the_first_sample_is_refused_before_it() -> None:
    first = watched(plain_with_generators(0)).position()
    used = watched(plain_with_generators(0))
    next(used)
    with pytest.raises(StateMismatch, match=r"generators at .*dataset.late"):
        used.resume(first)


def test_a_generator_that_a_stateful_loaders_process_makes_late_is_refused_at_once() -> None:
    loader = stateful_with_generators(1)
    loader.dataset.late = None
    with pytest.raises(UserError, match=r"has made dataset\.late with its first sample"):
        next(watched(loader))


@pytest.mark.turns(8)
@pytest.mark.parametrize("name", SLOW_LOADERS)
def test_resumes_bitwise_with_loader_processes(name: str) -> None:
    # A place in each pass, the first place, and both sides of the boundary between passes.
    check_resumes(
        SLOW_LOADERS[name],
        lambda count: sorted({0, 2, *range(count // 2 - 1, min(count // 2 + 2, count)), count - 1}),
    )


@pytest.mark.parametrize("name", ["shuffle", "generator", "distributed", "batch sampler"])
def test_batches_are_those_of_the_bare_loader(name: str) -> None:
    seed_all(2)
    through = [batch for batch in Batches(LOADERS[name](), 1)]
    seed_all(2)
    bare = list(LOADERS[name]())
    assert all(torch.equal(a, b) for a, b in zip(through, bare, strict=True))


def test_each_pass_of_a_distributed_sampler_is_shuffled_anew() -> None:
    batches = Batches(distributed(), 2)
    drawn = [batch[:, 0].floor() for batch in batches]
    half = len(drawn) // 2
    assert len(drawn) == len(batches)
    assert not torch.equal(torch.cat(drawn[:half]), torch.cat(drawn[half:]))


def test_passing_over_loads_no_data() -> None:
    class Counted(Plain):
        loads = 0

        def __getitem__(self, index: int) -> torch.Tensor:
            Counted.loads += 1
            return super().__getitem__(index)

    def make(workers: int) -> "DataLoader[torch.Tensor]":
        return DataLoader(Counted(), batch_size=2, shuffle=True, num_workers=workers)

    batches = Batches(make(0), 1)
    for _ in range(11):
        next(batches)
    Counted.loads = 0
    for workers in (0, 2):
        again = Batches(make(workers), 1)
        again.resume(batches.position())
        assert next(again, None) is None
    assert Counted.loads == 0


def test_a_position_of_a_plain_loader_does_not_grow_or_touch_generators() -> None:
    batches = Batches(DataLoader(Plain(), shuffle=True), None)
    next(batches)
    before, size = rng.capture(), len(encode(batches.position()))
    for _ in range(60):
        next(batches)
    assert len(encode(batches.position())) <= size + 16
    assert size < 32 * 1024
    state = rng.capture()
    batches.position()
    assert rng.capture() == state != before


def test_position_at_the_start_draws_nothing() -> None:
    before = rng.capture()
    for make in LOADERS.values():
        batches = Batches(make(), 1)
        rng.restore(before)
        batches.position()
        assert rng.capture() == before


def test_the_end_is_a_place_too() -> None:
    batches = Batches(LOADERS["shuffle"](), 1)
    list(batches)
    again = Batches(LOADERS["shuffle"](), 1)
    again.resume(decode(encode(batches.position())))
    assert again.finished
    assert list(again) == []


def test_resume_leaves_what_was_under_way() -> None:
    batches = Batches(LOADERS["generator"](), 2)
    start = batches.position()
    first = list(batches)
    batches.resume(start)
    assert [b[:, 0].floor().tolist() for b in batches] == [b[:, 0].floor().tolist() for b in first]


def test_other_indices_are_noticed() -> None:
    batches = Batches(DataLoader(Plain(), sampler=range(5)), 1)
    next(batches), next(batches)
    other = Batches(DataLoader(Plain(), sampler=[4, 3, 2, 1, 0]), 1)
    with pytest.raises(StateMismatch, match="does not give the batches again"):
        other.resume(batches.position())


def test_fewer_indices_are_noticed() -> None:
    batches = Batches(DataLoader(Plain(), sampler=range(5)), 1)
    next(batches), next(batches)
    with pytest.raises(StateMismatch, match="does not give the batches again"):
        Batches(DataLoader(Plain(), sampler=range(1)), 1).resume(batches.position())


def test_missing_generators_are_noticed() -> None:
    batches = Batches(LOADERS["generator"](), 1)
    next(batches)
    with pytest.raises(StateMismatch, match="generators"):
        Batches(LOADERS["shuffle"](), 1).resume(batches.position())


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(Plain(), num_workers=2, in_order=False),
        iter([1, 2]),
    ],
    ids=["out of order", "iterator"],
)
def test_loaders_that_cannot_be_resumed_are_refused(loader: Any) -> None:
    with pytest.raises(UserError, match="cannot resume this loader"):
        Batches(loader, 1)


def test_endless_passes_over_nothing_are_refused() -> None:
    with pytest.raises(UserError, match="no batch"):
        next(Batches([], None))
    assert list(Batches([], 2)) == []


class NoisyStream(Stream):
    def __iter__(self) -> Iterator[Any]:
        for number in range(7):
            yield torch.rand(2) + number + random.random()


class StatefulStream(Stream):
    """Yields from where its state says."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        while self.at < 4:
            self.at += 1
            yield self.at
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


@pytest.mark.turns(8)
@pytest.mark.parametrize("stream", [Stream, StatefulStream])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_in_a_stateful_loader_resumes_again_and_again(
    workers: int, stream: type[Stream]
) -> None:
    module = pytest.importorskip("torchdata.stateful_dataloader")
    check_resumes(
        lambda: module.StatefulDataLoader(stream(), batch_size=1, num_workers=workers),
        lambda count: list(range(0, count, workers + 1)),
    )


def drawn(loader: Any, samples: Any = True) -> list[list[int | str]]:
    batches = Batches(loader, 1, samples)
    return [batches.sample_ids(batch) for batch in batches]


@pytest.mark.parametrize(
    "name", ["shuffle", "distributed", "batch sampler", "no batches", "processes"]
)
def test_the_ids_are_those_of_the_samples(name: str) -> None:
    make = (LOADERS | SLOW_LOADERS)[name]
    seed_all(3)
    there = [batch.reshape(-1, batch.shape[-1])[:, 0] for batch in Batches(make(), 1)]
    seed_all(3)
    # Noise below one is added to a sample's index.
    known = [
        {int(value) - below for value in values for below in (0, 1)}
        for values in (batch.tolist() for batch in there)
    ]
    told = drawn(make())
    assert sorted(id_ for ids in told for id_ in ids) == sorted(
        range(22) if name != "distributed" else (id_ for ids in told for id_ in ids)
    )
    assert all(set(ids) <= near for ids, near in zip(told, known, strict=True))


def test_ids_go_on_where_a_pass_is_resumed() -> None:
    undisturbed = drawn(LOADERS["generator"]())
    batches = Batches(LOADERS["generator"](), 1, True)
    next(batches)
    again = Batches(LOADERS["generator"](), 1, True)
    again.resume(decode(encode(batches.position())))
    assert [again.sample_ids(batch) for batch in again] == undisturbed[1:]


def test_ids_of_a_sequence_and_of_a_script_s_own_choice() -> None:
    assert drawn([5, 6, 7]) == [[0], [1], [2]]
    assert drawn([5, 6], lambda item: torch.tensor([item, 1])) == [[5, 1], [6, 1]]
    assert drawn([5, 6], lambda item: f"file {item}") == [["file 5"], ["file 6"]]


def test_samples_that_cannot_be_known_are_to_be_told() -> None:
    with pytest.raises(UserError, match="cannot know the samples"):
        Batches(LOADERS["stateful"](), 1, True)
    assert Batches(LOADERS["stateful"](), 1, lambda batch: batch[:, 0]).samples is not None
