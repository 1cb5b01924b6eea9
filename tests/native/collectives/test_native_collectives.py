"""Every collective against the documented reference, on every mix of shared memory and TCP."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_calls import (
    CAMPAIGN,
    KINDS,
    MOVING,
    PROPERTY,
    REDUCING,
    Call,
    any_calls,
    counts_near_borders,
    perform,
    perform_queued,
)
from native_data import DTYPES, REDUCIBLE, blank, code, op_code
from native_team import Formation, Rank
from native_topologies import STAGES, on

everywhere = pytest.mark.parametrize("team", STAGES, indirect=True)
mixes = pytest.mark.parametrize("team", on("3-shm", "3-tcp", "4-crossed", "5-pairs"), indirect=True)


@pytest.mark.turns(4)
@everywhere
def test_every_dtype_and_op_reduces_as_documented(world: Formation) -> None:
    for turn, kind in enumerate(REDUCING):
        profile = ("special", "bits", "plain")[(turn + world.size) % 3]
        calls = [Call(kind, d, 37, op, root=turn, seed=7, profile=profile) for d, op in REDUCIBLE]
        world.all(perform, calls)


@pytest.mark.turns(4)
@everywhere
def test_every_dtype_moves_bit_for_bit(world: Formation) -> None:
    for kind in MOVING:
        world.all(perform, [Call(kind, dtype, 29, seed=3, profile="bits") for dtype in DTYPES])


@pytest.mark.turns(4)
@everywhere
def test_every_count_and_every_root(world: Formation) -> None:
    for kind in KINDS:
        roots = range(world.size)
        counts = [0, 1, world.size - 1, world.size + 1, 1009]
        world.all(perform, [Call(kind, count=c, root=r, seed=c) for c in counts for r in roots])


@mixes
def test_counts_around_the_borders_of_chunks(world: Formation) -> None:
    for turn, kind in enumerate(("all_reduce", "all_to_all", "broadcast", "reduce_scatter")):
        counts = counts_near_borders("f32", world.size)[turn::4]
        world.all(perform, [Call(kind, count=c, seed=c, offset=c % 2) for c in counts])


@pytest.mark.soak
@everywhere
@pytest.mark.parametrize("dtype", ["f32", "bf16", "u8", "c128"])
def test_all_counts_around_the_borders_of_chunks(world: Formation, dtype: str) -> None:
    for kind in KINDS:
        counts = counts_near_borders(dtype, world.size)
        world.all(perform, [Call(kind, dtype, c, seed=c, offset=c % 2) for c in counts])


@pytest.mark.turns(4)
@everywhere
@given(data=st.data())
@settings(PROPERTY, max_examples=8)
def test_any_sequence_of_collectives(world: Formation, data: st.DataObject) -> None:
    world.all(perform, data.draw(any_calls(world.size)))


@mixes
@given(data=st.data())
@settings(PROPERTY, max_examples=8)
def test_queued_calls_run_in_the_order_they_were_made(
    world: Formation, data: st.DataObject
) -> None:
    world.all(perform_queued, data.draw(any_calls(world.size)))


@pytest.mark.soak
@everywhere
@given(data=st.data())
@settings(CAMPAIGN, max_examples=400)
def test_any_sequence_of_collectives_at_length(world: Formation, data: st.DataObject) -> None:
    program = data.draw(st.sampled_from([perform, perform_queued]))
    world.all(program, data.draw(any_calls(world.size, 12)))


def chain(rank: Rank, name: str) -> list[float]:
    """One buffer through many background sums: any other order would give other numbers."""
    group, (seat, size) = rank.groups[name], rank.seats[name]
    data, last = blank("f64", 1000), blank("f64", 1000)
    data.tensor.fill_(1), last.tensor.fill_(seat)
    f64, total, mean = code("f64"), op_code("sum"), op_code("avg")
    tickets = []
    for turn in range(20):
        tickets.append(group.all_reduce(data.pointer, 1000, f64, total, True))
        tickets.append(group.broadcast(data.pointer, 1000, f64, turn % size, True))
        tickets.append(group.all_reduce(data.pointer, 1000, f64, mean, True))
    group.all_reduce(last.pointer, 1000, f64, op_code("max"), False)
    assert all(ticket.done() for ticket in tickets), "the inline call overtook a queued one"
    assert all(ticket.wait(0) for ticket in tickets)
    return [*data.tensor[::999].tolist(), last.tensor[0].item(), float(group.sequence)]


@everywhere
def test_an_inline_call_comes_after_what_was_queued_before(world: Formation) -> None:
    size = world.size
    assert world.all(chain) == [[size**20, size**20, size - 1, 61]] * size


def pass_barrier(rank: Rank, name: str, late_s: float) -> tuple[int, int]:
    """When the rank came to the barrier and when it left, on the machine's clock."""
    time.sleep(late_s)
    came = time.monotonic_ns()
    rank.groups[name].barrier(False)
    return came, time.monotonic_ns()


@everywhere
def test_nobody_leaves_a_barrier_before_the_last_has_come(world: Formation) -> None:
    for late in range(world.size):
        jobs = [
            (player, (world.name, 0.02 if seat == late else 0.0))
            for seat, player in enumerate(world.players)
        ]
        passed = world.team.each(jobs, pass_barrier)
        assert max(came for came, _ in passed) <= min(left for _, left in passed)
