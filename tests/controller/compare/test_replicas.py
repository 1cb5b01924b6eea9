"""Replicas are found by what ranks hold, and one that differs is named; never a healthy one."""

import struct

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from jobs import RUNNING, after, certificate, recorded, running, said

from trainmover.controller import Job
from trainmover.controller.compare.comparison import gone_back, healed, with_fact
from trainmover.controller.compare.known import Comparison, Divergence, Parted
from trainmover.controller.compare.replicas import replicas, taken_over
from trainmover.protocol.messages import Fingerprinted

State = dict[str, int]
DENSE = {"optimizer": 5, "w": 1}


def fact(
    rank: int, step: int, shared: State, buffers: State | None = None, small: State | None = None,
    *, epoch: int = 1, like: int | None = None,
) -> Fingerprinted:  # fmt: skip
    sections = [shared, buffers or {}, small or {}]
    paths = [path for section in sections for path in section]
    packed = [struct.pack(f"<{len(its)}Q", *its.values()) for its in sections]
    return Fingerprinted(
        rank=rank, epoch=epoch, step=step, layout="/".join(paths), paths=paths,
        sections=list(map(len, sections)), like=like,
        shared=b"" if like is not None else packed[0], rest=packed[1] + packed[2],
        read=8, took_us=step,
    )  # fmt: skip


def compared(comparison: Comparison, step: int, *states: State) -> Comparison:
    """After a round in which rank 0, 1, ... hold these."""
    for rank, state in enumerate(states):
        told = fact(rank, step, state)
        comparison = with_fact(comparison, told, epoch=1, world_size=len(states))
    assert comparison.step == step
    return comparison


def rounds(*each: list[State]) -> Comparison:
    comparison = Comparison()
    for number, states in enumerate(each, start=1):
        comparison = compared(comparison, 10 * number, *states)
    return comparison


def told(job: Job, step: int, *states: State) -> Job:
    facts = [fact(rank, step, state) for rank, state in enumerate(states)]
    nproc = job.spec.nproc
    events = (said(job.seats[f.rank // nproc], f, local_rank=f.rank % nproc) for f in facts)
    return after(job, *events)[0]


def test_replicas_are_those_with_equal_state_in_every_round() -> None:
    job = told(RUNNING, 3, {"w": 1}, {"w": 1}, {"w": 2})
    assert [replicas(job, rank, [0, 1, 2]) for rank in range(3)] == [[0, 1], [1, 0], [2]]
    job = told(job, 10, {"w": 7}, {"w": 7}, {"w": 7})
    assert replicas(job, 2, [0, 1]) == [], "they train apart and average now and then"


def test_before_the_first_round_the_digest_of_the_first_steps_tells() -> None:
    job, _ = after(RUNNING, recorded("m1", 0, digest="a"), recorded("m2", 1, digest="a"))
    assert replicas(job, 1, [0, 2]) == [0]
    assert replicas(job, 1, [2]) == []


def test_a_round_counts_only_when_every_rank_has_told() -> None:
    job, _ = after(RUNNING, said("m1", fact(0, 3, {"w": 1})), said("m2", fact(1, 3, {"w": 1})))
    assert (job.comparison.step, replicas(job, 0, [1, 2])) == (0, [1, 2])
    job = told(job, 10, {"w": 1}, {"w": 1}, {"w": 2})
    assert (job.comparison.step, replicas(job, 0, [1, 2])) == (10, [1])


def test_what_was_said_for_a_round_is_forgotten_with_it() -> None:
    comparison = compared(Comparison(), 10, DENSE, DENSE)
    assert comparison.said == {}
    comparison = with_fact(comparison, fact(0, 20, DENSE), epoch=1, world_size=2)
    assert list(comparison.said) == [0]


def test_hashes_that_do_not_fit_their_paths_make_no_round() -> None:
    """Too few, too many, half a hash, or of paths that there are not."""
    good = fact(1, 10, DENSE, {"b": 3})
    change = msgspec.structs.replace
    wrong = (
        change(good, shared=good.shared[:-8]),
        change(good, shared=good.shared + bytes(8)),
        change(good, rest=b""),
        change(good, rest=good.rest + bytes(8)),
        change(good, shared=good.shared + bytes(3)),
        change(good, rest=good.rest + bytes(3)),
    )
    for one in wrong:
        comparison = with_fact(Comparison(), fact(0, 10, DENSE, {"b": 3}), epoch=1, world_size=2)
        assert with_fact(comparison, one, epoch=1, world_size=2).step == 0
    three = change(good, layout="odd", paths=[*"abc"], sections=[2, 2, -1], rest=bytes(8))
    first = with_fact(Comparison(), fact(0, 10, DENSE, {"b": 3}), epoch=1, world_size=2)
    assert with_fact(first, three, epoch=1, world_size=2).step == 0
    other = fact(1, 10, DENSE, {"b": 3})
    paths = change(other, paths=[*(other.paths or []), "more"], layout="another")
    comparison = with_fact(Comparison(), fact(0, 10, DENSE, {"b": 3}), epoch=1, world_size=2)
    assert with_fact(comparison, paths, epoch=1, world_size=2).step == 0


def test_a_round_is_of_one_epoch_and_of_the_ranks_that_hold_the_seats() -> None:
    late = [fact(rank, 3, {"w": 1}, epoch=0) for rank in range(3)]
    job, _ = after(RUNNING, *(said(RUNNING.seats[f.rank], f) for f in late))
    assert job.comparison.said == {}
    job, _ = after(RUNNING, said("m2", fact(0, 3, {"w": 1})))
    assert job == RUNNING


def test_a_rank_may_say_whose_state_it_has_instead_of_its_hashes() -> None:
    first = fact(0, 3, {"a": 1, "b": 2}, small={"progress": 1})
    second = fact(1, 3, {"a": 1, "b": 2}, small={"progress": 2}, like=0)
    second = replace_paths(second)
    for order in ((first, second), (second, first)):
        comparison = Comparison()
        for one in order:
            comparison = with_fact(comparison, one, epoch=1, world_size=2)
        assert comparison.families == {0: 0, 1: 0}


def replace_paths(one: Fingerprinted) -> Fingerprinted:
    """As a rank says it when another has told the paths."""
    return msgspec.structs.replace(one, paths=None, sections=[])


def test_what_an_expert_shares_has_holders_though_the_rank_has_no_replica() -> None:
    states = [DENSE | {"expert": rank} for rank in range(4)]
    job = told(running(machines=4, standbys=0), 3, *states)
    assert replicas(job, 0, [1, 2, 3]) == []


# --- silent corruption ----------------------------------------------------------------------------


def test_a_rank_that_parts_from_the_others_is_named_once_with_tensor_and_step() -> None:
    good, bad = {"v": 3, "w": 2}, {"v": 3, "w": 9}
    comparison = rounds([{"v": 1, "w": 1}] * 4, [good, good, bad, good])
    assert comparison.divergences == (Divergence(20, 10, (0, 1, 2, 3), (2,), (("w",), (), ())),)
    later = compared(comparison, 30, *[{"v": 4, "w": 4}] * 2, {"v": 5, "w": 5}, {"v": 4, "w": 4})
    assert later.divergences == comparison.divergences
    assert later.diverged == {2}


def test_what_is_diverged_is_nobodys_source_and_takes_from_the_others() -> None:
    job = told(running(machines=4, standbys=1), 3, *[{"w": 1}] * 4)
    job = told(job, 10, *[{"w": 2}] * 3, {"w": 3})
    assert replicas(job, 3, [0, 1, 2]) == [0, 1, 2]
    assert replicas(job, 0, [1, 2, 3]) == [1, 2]
    own = replace_source(job, 3, 3)
    assert own.comparison.diverged == {3}, "moved with its own state it is what it was"
    assert replicas(replace_source(job, 3, 1), 0, [1, 2, 3]) == [1, 2, 3]


def replace_source(job: Job, rank: int, source: int) -> Job:
    """The rank's joiner has taken state from `source`."""
    return taken_over(job, msgspec.structs.replace(certificate(rank), source_rank=source))


def test_one_that_agrees_again_is_diverged_no_more() -> None:
    comparison = rounds([{"w": 1}] * 3, [{"w": 2}, {"w": 2}, {"w": 9}], [{"w": 3}] * 3)
    assert comparison.diverged == frozenset()
    assert set(comparison.families.values()) == {0}
    assert healed(comparison, 1, 9) == comparison


def test_what_was_kept_of_a_rank_while_it_was_diverged_is_not_trusted_later() -> None:
    """The second round finds rank 2 diverged: it was right in the first."""
    found = rounds([{"w": 1}] * 3, [{"w": 2}, {"w": 2}, {"w": 9}])
    since, step = found.divergences[0].since, found.step
    assert found.diverged == {2}
    mended = healed(found, 2, step + 5)
    assert mended.diverged == frozenset()
    assert gone_back(mended, since).diverged == frozenset()
    assert gone_back(mended, since + 1).diverged == {2}
    assert gone_back(mended, step + 5).diverged == {2}
    assert gone_back(mended, step + 6).diverged == frozenset()
    again = healed(gone_back(mended, step), 2, step + 1)
    assert gone_back(again, step + 5).diverged == frozenset()


def test_of_two_nobody_knows_which_is_right() -> None:
    comparison = rounds([{"w": 1}] * 2, [{"w": 2}, {"w": 3}])
    (divergence,) = comparison.divergences
    assert (divergence.holders, divergence.diverged) == ((0, 1), ())
    assert comparison.families == {0: 0, 1: 1}
    assert compared(comparison, 30, {"w": 5}, {"w": 6}).divergences == comparison.divergences


def test_a_tie_is_no_majority() -> None:
    comparison = rounds([{"w": 1}] * 4, [{"w": 2}, {"w": 2}, {"w": 3}, {"w": 3}])
    assert comparison.divergences[0].diverged == ()
    assert comparison.families == {0: 0, 1: 0, 2: 2, 3: 2}


def test_frozen_state_of_whole_replicas_is_watched() -> None:
    comparison = rounds([{"frozen": 1, "w": 1}] * 3, [{"frozen": 1, "w": 2}] * 2 + [
        {"frozen": 8, "w": 2}
    ])  # fmt: skip
    assert comparison.divergences[0].paths == (("frozen",), (), ())


def test_tensors_that_were_equal_by_chance_part_without_an_alarm() -> None:
    """Experts of equal seed that get their first tokens late; their ranks are no replicas."""
    early = [{"expert": 7, "own": rank} for rank in range(3)]
    later = [{"expert": 70 + rank, "own": 10 + rank} for rank in range(3)]
    comparison = rounds(early, later)
    assert comparison.divergences == ()
    assert comparison.diverged == frozenset()


def test_a_tensor_that_changed_alike_before_is_watched_among_experts_too() -> None:
    def dense(value: int, *, bad: bool = False) -> list[State]:
        return [
            {"dense": value + (bad and rank == 1), "own": 10 * value + rank} for rank in (0, 1, 2)
        ]

    comparison = rounds(dense(1), dense(2), dense(3, bad=True))
    (divergence,) = comparison.divergences
    assert (divergence.diverged, divergence.paths[0]) == ((1,), ("dense",))


def test_buffers_are_an_alarm_and_small_state_is_named_beside_one() -> None:
    def round_of(comparison: Comparison, step: int, bad: State) -> Comparison:
        for rank in range(3):
            its = {"table": 1, "progress": 1, "w": step} | (bad if rank == 1 else {})
            parts = [{name: its[name]} for name in ("w", "table", "progress")]
            comparison = with_fact(comparison, fact(rank, step, *parts), epoch=1, world_size=3)
        return comparison

    equal = round_of(Comparison(), 3, {})
    assert round_of(equal, 10, {"progress": 2}).divergences == ()
    table = round_of(equal, 10, {"table": 2})
    assert table.divergences[0].paths == ((), ("table",), ())
    assert table.diverged == frozenset(), "its record has the buffers, so it may still be a source"
    both = round_of(equal, 10, {"progress": 2, "w": 2})
    assert both.divergences[0].paths == (("w",), (), ("progress",))


def test_buffers_that_steps_change_are_no_sign_of_flipped_bits() -> None:
    """A running mean of each rank's own batches, of which two rounds came out equal."""

    def round_of(comparison: Comparison, step: int, own: State) -> Comparison:
        for rank in range(3):
            buffers = {"mean": step} | (own if rank == 1 else {})
            comparison = with_fact(
                comparison, fact(rank, step, {"w": step}, buffers), epoch=1, world_size=3
            )
        return comparison

    equal = round_of(round_of(Comparison(), 3, {}), 10, {})
    (parted,) = round_of(equal, 30, {"mean": 31}).divergences
    assert (parted.kind, parted.diverged) == (Parted.APART, ())


def test_state_that_appears_later_is_compared_from_then_on() -> None:
    comparison = rounds([{"w": 1}] * 3, [{"w": 2, "state": 1}] * 3)
    assert set(comparison.families.values()) == {0}
    bad = compared(comparison, 30, *[{"w": 3, "state": 2}] * 2, {"w": 3, "state": 4})
    assert bad.divergences[0].paths[0] == ("state",)


def test_what_once_differed_counts_while_it_is_away() -> None:
    """Gradients that are kept from step to step are not there after every step."""
    comparison = rounds([{"w": 1, "w.grad": 1}, {"w": 1, "w.grad": 2}], [{"w": 2}] * 2)
    assert comparison.families == {0: 0, 1: 1}


# --- many histories -------------------------------------------------------------------------------

ROLES = st.lists(st.integers(0, 2), min_size=2, max_size=7)


def value(role: int, step: int, path: str) -> int:
    """What a rank of this role holds. `still` is equal everywhere until it moves, late."""
    if path == "dense":
        return step
    return role * 100 + step if path == "own" or step > 30 else 0


def state(role: int, step: int) -> State:
    return {path: value(role, step, path) for path in ("dense", "own", "still")}


@given(ROLES, st.integers(2, 5))
def test_roles_are_families_and_healthy_ranks_never_alarm(roles: list[int], count: int) -> None:
    comparison = rounds(*([state(role, 10 * n) for role in roles] for n in range(count)))
    assert comparison.divergences == ()
    assert comparison.families == {r: roles.index(role) for r, role in enumerate(roles)}


@given(ROLES, st.data())
def test_one_flipped_bit_names_that_rank_and_no_other(
    roles: list[int], data: st.DataObject
) -> None:
    bad = data.draw(st.integers(0, len(roles) - 1))
    path = data.draw(st.sampled_from(["dense", "own", "still"]))
    when = data.draw(st.integers(1, 5))
    history = [[state(role, 10 * n) for role in roles] for n in range(7)]
    for states in history[when:]:
        states[bad][path] ^= 1 << 63
    comparison = rounds(*history)
    moved = path == "dense" and when > 1
    peers = [r for r, role in enumerate(roles) if moved or role == roles[bad]]
    if len(peers) == 1:
        assert comparison.divergences == ()
        return
    (divergence, *more) = comparison.divergences
    named = (bad,) if len(peers) > 2 else ()
    assert (divergence.holders, divergence.diverged) == (tuple(peers), named)
    assert divergence.paths == ((path,), (), ())
    assert divergence.step == 10 * (when + 1)
    assert more == []
    assert comparison.diverged == set(named)
