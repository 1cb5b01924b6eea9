"""A round of fingerprints is compared, or dropped where they do not fit: `decide` never raises."""

from hypothesis import given
from hypothesis import strategies as st

from trainmover.controller.compare.comparison import with_fact
from trainmover.controller.compare.known import Comparison
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Fingerprinted

PATHS = ["model.w", "model.b", "scheduler"]
HASHES = st.sampled_from([b"", bytes(7), bytes(8), bytes(16), bytes(24), b"\1" * 8])
FACTS = st.builds(
    Fingerprinted,
    rank=st.sampled_from([Rank(0), Rank(1)]),
    epoch=st.just(Epoch(1)),
    step=st.just(Step(3)),
    layout=st.sampled_from("ab"),
    paths=st.none() | st.sampled_from([PATHS, PATHS[:1], []]),
    sections=st.sampled_from([[1, 1, 1], [2, 1, 0], [1, 0, 0], [], [3], [-1, 2, 2], [9, 9, 9]]),
    like=st.none() | st.sampled_from([Rank(0), Rank(1), Rank(7)]),
    shared=HASHES,
    rest=HASHES,
)


def sound(rank: int, shared: bytes = bytes(16)) -> Fingerprinted:
    return Fingerprinted(
        rank=Rank(rank), epoch=Epoch(1), step=Step(3), layout="a", shared=shared, rest=bytes(8),
        paths=PATHS, sections=[2, 1, 0],
    )  # fmt: skip


def told(*facts: Fingerprinted) -> Comparison:
    comparison = Comparison()
    for fact in facts:
        comparison = with_fact(comparison, fact, epoch=Epoch(1), world_size=2)
    return comparison


@given(st.lists(FACTS, max_size=6))
def test_no_fact_makes_the_comparison_raise(facts: list[Fingerprinted]) -> None:
    told(*facts)


def test_sound_ones_are_compared_and_others_are_not() -> None:
    assert told(sound(0), sound(1)).step == 3
    assert told(sound(0), sound(1, shared=bytes(8))).step == 0
