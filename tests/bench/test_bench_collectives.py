"""The pure parts of the collectives bench: what is claimed from which figures, and the tables."""

import os
import signal
import time

import pytest

from bench.collectives import claims, tables
from bench.collectives.abort import Aborts, Trial
from bench.collectives.arms import buffers, check
from bench.collectives.calls import MIB, Calls, Cell, Times, in_turn
from bench.collectives.calls import Plan as CallsPlan
from bench.collectives.codes import REPEATED, Codes
from bench.collectives.crew import Crew, CrewError
from bench.collectives.scale import Case as ScaleCase
from bench.collectives.scale import Scale
from bench.collectives.shim import Added
from bench.collectives.switchover import Case, Plan, Switched, Switchovers, gloo_trials
from bench.collectives.timing import Spent, pair_said, said, size_said, slowest, timed


def rounds(*medians_us: float) -> list[Spent]:
    return [Spent(median_us, median_us) for median_us in medians_us]


def times(arm: str, size_bytes: int, *medians_us: float, ranks: int = 2) -> Times:
    return {Cell(arm, ranks, "all_reduce", size_bytes): rounds(*medians_us)}


def test_a_ratio_pairs_the_rounds() -> None:
    """The third round was disturbed for both alike."""
    assert claims.ratio(rounds(1, 2, 40), rounds(10, 20, 400)) == 0.1


def test_the_best_ratio_takes_the_best_round_of_each() -> None:
    assert claims.best_ratio(rounds(4, 2), rounds(10, 20)) == 0.2


def test_a_claim_names_size_ranks_place_and_opponent() -> None:
    measured = times("ours shm", 8, 2.0) | times("gloo", 8, 100.0)
    (claim,) = claims.of_calls(measured)
    assert claim.claim == "all_reduce 8 B, 2 ranks, one host: time / gloo's"
    assert (claim.value, claim.most, claim.holds) == (0.02, 0.1, True)


def test_over_tcp_less_is_claimed() -> None:
    measured = times("ours tcp", 64 * MIB, 10.0) | times("gloo", 64 * MIB, 12.0)
    (claim,) = claims.of_calls(measured)
    assert claim.most == pytest.approx(1 / 1.3)
    assert not claim.holds


def test_each_transport_meets_its_own_of_open_mpi() -> None:
    measured = times("ours shm", MIB, 50.0) | times("Open MPI shm", MIB, 100.0)
    measured |= times("ours tcp", MIB, 300.0) | times("Open MPI tcp", MIB, 200.0)
    found = {claim.claim.partition(": ")[0]: claim for claim in claims.of_calls(measured)}
    assert found["all_reduce 1 MiB, 2 ranks, one host"].holds
    assert not found["all_reduce 1 MiB, 2 ranks, loopback TCP"].holds


def test_an_arm_that_was_not_run_makes_no_claim() -> None:
    assert claims.of_calls(times("ours shm", MIB, 50.0)) == []


def test_what_the_shim_adds_is_the_median_of_the_rounds_differences() -> None:
    added = Added({"through torch": rounds(12, 15, 90), "direct": rounds(2, 3, 80)})
    (claim,) = claims.of_shim(added)
    assert (claim.value, claim.holds) == (10, True)


def test_a_code_costs_what_many_more_have_added() -> None:
    """Of the rounds the best counts: what disturbs only adds."""
    plain = {8: rounds(40, 400), MIB: rounds(1000, 9000)}
    added_us = {8: 1, MIB: 20}
    codes = Codes()
    for size, times in plain.items():
        codes.times[size, "plain"] = codes.times[size, "encrypted"] = times
        more = REPEATED * added_us[size]
        codes.times[size, "repeated"] = rounds(*(one.median_us + more for one in times))
    small, large = claims.of_codes(codes)
    assert (small.value, small.holds) == (1, True)
    assert (large.value, large.holds) == (20 / 1000, True)
    (table,) = tables.of_codes(codes)
    assert [row[0] for row in table.rows] == ["8 B", "1 MiB"]


def switched(*, links: int, small_ms: float, large_ms: float) -> Switchovers:
    cases = {Case("ours shm", 4, 1): small_ms, Case("ours shm", 64, 1): large_ms}
    trials = {case: [Switched(1.0, still_ms, links)] for case, still_ms in cases.items()}
    return Switchovers(trials, trials, {}, [])


def test_one_link_and_a_flat_pause_hold() -> None:
    found = claims.of_switchovers(switched(links=1, small_ms=0.10, large_ms=0.15))
    assert [claim.value for claim in found] == [1, pytest.approx(1.5)]
    assert all(claim.holds for claim in found)


def test_a_second_link_or_a_growing_pause_does_not_hold() -> None:
    found = claims.of_switchovers(switched(links=2, small_ms=0.1, large_ms=1.0))
    assert not any(claim.holds for claim in found)


def test_a_tree_is_measured_by_all_pairs_and_shared_hosts_by_seats_apart() -> None:
    tree = ScaleCase(80, 1, "all_reduce", 8, "tree")
    shared = ScaleCase(32, 8, "reduce_scatter", 512 << 10)
    found = Scale({tree: rounds(30), shared: rounds(9)})
    assert claims.of_scale(found) == []
    found.times |= {found.compared(tree): rounds(100), found.compared(shared): rounds(10)}
    small, large = claims.of_scale(found)
    assert (small.value, small.holds) == (0.3, False)
    assert (large.value, large.holds) == (0.9, True)
    (table,) = tables.of_scale(found)
    assert table.rows[1] == ("reduce_scatter 512 KiB, 4 hosts x 8", "9 us", "10 us", "0.9")


def test_the_last_survivor_counts() -> None:
    trials = [Trial((0.5, 4.0, 0.7), ("PeerLost",) * 3, 3.0)]
    trials.append(Trial((6.0, 1.0, 1.0), ("PeerLost",) * 3, 7.0))
    aborts = Aborts({("ours shm", "killed"): trials, ("ours shm", "stopped"): trials[:1]})
    killed, stopped, beyond = claims.of_aborts(aborts)
    assert (beyond.value, beyond.holds) == (0.0, True)
    assert (killed.value, killed.holds) == (5.0, True)
    assert (stopped.value, stopped.holds) == (4.0, False)


def test_the_table_has_a_row_for_each_size_and_marks_what_did_not_run() -> None:
    calls = Calls(times("ours shm", 8, 1, 3) | times("gloo", 8, 100, 300, 200))
    calls.times |= times("ours shm", MIB, 50)
    del calls.times[Cell("gloo", 2, "all_reduce", 8)][2]
    (table,) = tables.of_calls(calls)
    assert table.header == ("ranks, size", "ours shm", "gloo", "gloo / shm", "gloo / tcp")
    first = ("2, 8 B", "1 (2) us", "100 (200) us", "100 (100)", "")
    assert table.rows[:2] == [first, ("2, 1 MiB", "50 (50) us", "not run", "", "")]


def test_a_table_reads_the_same_on_screen_and_in_the_file() -> None:
    table = tables.Table("Title", ("a", "b"), [("1", "22")])
    assert table.markdown()[2:5] == ["| a | b |", "| --- | --- |", "| 1 | 22 |"]
    assert table.screen()[0] == "Title"
    assert any("22" in line for line in table.screen())


def test_gloo_left_out_says_why_in_the_table() -> None:
    found = switched(links=1, small_ms=0.1, large_ms=0.2)
    found.left_out[Case("gloo", 64, 1)] = "failed: too many open files"
    table, _ = tables.of_switchovers(found)
    assert table.rows[1][-2:] == ("failed: too many open files", "")


def test_gloo_with_very_many_links_gets_one_trial() -> None:
    plan = Plan(trials=5, gloo_trials=3, processes=(4, 64), groups=(1, 16))
    assert gloo_trials(plan, Case("gloo", 4, 16)) == 3
    assert gloo_trials(plan, Case("gloo", 64, 16)) == 1


def test_figures_have_a_unit_that_fits() -> None:
    assert [said(0.5), said(1500), said(2.5e6)] == ["0.5 us", "1.5 ms", "2.5 s"]
    assert pair_said(940, 3210) == "940 (3210) us"
    assert [size_said(8), size_said(65536), size_said(64 * MIB)] == ["8 B", "64 KiB", "64 MiB"]


def test_the_slowest_rank_counts_and_a_call_is_timed() -> None:
    assert slowest([Spent(1, 5), Spent(2, 4)]) == Spent(2, 5)
    assert timed(lambda: time.sleep(0.001), 3).median_us >= 1000


def test_every_arm_begins_a_round() -> None:
    assert {in_turn(("a", "b", "c"), turn)[0] for turn in range(3)} == {"a", "b", "c"}


def test_two_rounds_are_made_whatever_they_take() -> None:
    plan = CallsPlan(4, (2,), (8,), (), (), budget_s=40)
    assert [plan.enough(rounds, 20.0 * rounds) for rounds in (0, 1, 2, 3)] == [False] * 2 + [
        True
    ] * 2
    assert not plan.enough(3, 29.0)


def test_a_wrong_sum_is_not_timed() -> None:
    held = buffers(0, 2, 64)
    with pytest.raises(ValueError, match="all_reduce"):
        check("all_reduce", held)
    held.whole.fill_(3.0)
    check("all_reduce", held)


class Seat:
    def __init__(self, seat: int) -> None:
        self.seat = seat

    def plus(self, other: int) -> int:
        return self.seat + other

    def fail(self) -> None:
        raise ValueError("no")

    def stop(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)


def test_a_crew_answers_in_the_order_of_seats_and_tells_what_was_raised() -> None:
    with Crew(2, Seat) as crew:
        assert crew.all("plus", 10) == [10, 11]
        assert crew.each("plus", {1: (5,), 0: (7,)}) == [6, 7]
        with pytest.raises(CrewError, match="ValueError: no"):
            crew.one(1, "fail")


def test_a_crew_ends_with_a_stopped_and_a_dead_member() -> None:
    with Crew(3, Seat) as crew:
        crew.all("plus", 0)
        crew.ask(0, "stop")
        os.kill(crew.pids[1], signal.SIGKILL)
        with pytest.raises(CrewError, match="seat 1 died"):
            crew.one(1, "plus", 1)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in crew.pids)
