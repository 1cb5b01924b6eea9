"""A machine that is slow is found, moved away from, and measured; anything else is said only."""

import random
from dataclasses import replace

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jobs import after, at_boundary, held, loaded, move, orders, parked, prepared, switched
from paces import Law, Told, even, job_of, slow

from trainmover.controller import Job, decide
from trainmover.controller.change.options import LEAVE, STANDBY, way_of
from trainmover.controller.events import SlowFound, SlowMeasured, SlowSuspected
from trainmover.controller.facts import Facts
from trainmover.controller.policies.stragglers.answer import PAUSE_MS, evidence, outcome_text
from trainmover.controller.policies.stragglers.excess import may_be_slow
from trainmover.controller.policies.stragglers.known import Effect, SlowMove, Stragglers
from trainmover.controller.policies.stragglers.pace import MEASURED, SETTLES, Pace, Sample, medians
from trainmover.controller.standby.warming import REST
from trainmover.controller.state import Cordon, Incident, Kind, Outcome
from trainmover.protocol import messages as m
from trainmover.server.view.causes import cause_of

SLOW = "slow: "


def moved(told: Told) -> Told:
    """The move under way comes to its end."""
    job = told.job
    assert job.change is not None
    ((slot, joiner),) = job.change.joiners.items()
    epoch = job.change.epoch
    seats = [joiner if at == slot else name for at, name in enumerate(job.seats)]
    told.job, _ = after(
        job,
        parked(joiner, slot, epoch),
        *(prepared(name, rank, epoch) for rank, name in enumerate(seats)),
        *(at_boundary(name, rank, epoch) for rank, name in enumerate(job.seats)),
        loaded(joiner, slot, epoch),
        *(switched(name, rank, epoch) for rank, name in enumerate(seats)),
    )
    told.first_commits()
    assert told.job.incidents[-1].outcome is Outcome.DONE
    return told


def kinds(told: Told) -> list[str]:
    return [event.kind for event in told.events if isinstance(event, SlowFound)]


@pytest.mark.parametrize("seed", range(20))
def test_a_machine_that_becomes_a_fifth_slower_is_found_within_ten_steps(seed: int) -> None:
    told = Told(job_of(), seed).steps(74, even())
    assert told.events == []
    assert told.until_found(30, slow(2)) <= 10
    (found,) = told.events
    assert isinstance(found, SlowFound)
    assert (found.machine, found.ranks, found.kind) == ("m3", [2], "machine")
    assert found.own_ms == pytest.approx(120, rel=0.05)
    assert found.usual_ms == pytest.approx(100, rel=0.05)
    assert max(found.before) < 111 < min(found.since) * 1.02


def test_its_ranks_go_to_a_standby_and_it_is_cordoned_with_what_was_seen() -> None:
    told = Told(job_of()).steps(30, even()).steps(10, slow(2))
    change, cordon = told.job.change, told.job.cordoned["m3"]
    assert change is not None
    assert change.joiners == {2: "m5"}
    assert cordon.reason.startswith(SLOW)
    assert "100." in cordon.reason
    assert "m3 is slow" in told.job.incidents[-1].cause
    assert cause_of(told.job.incidents[-1]) == "slow machine"


def test_what_was_weighed_is_kept_with_the_move() -> None:
    told = Told(job_of()).steps(30, even()).steps(10, slow(2))
    incident = told.job.incidents[-1]
    stays, moves = incident.options
    assert (stays.name, moves.name) == (LEAVE, STANDBY)
    assert way_of(incident) == STANDBY
    assert (moves.ms, moves.why) == (PAUSE_MS, "m5")
    assert stays.ms is not None
    assert stays.ms > PAUSE_MS
    assert stays.why.startswith("1000 steps, each ")


def test_by_default_it_is_said_and_nothing_is_done() -> None:
    told = Told(job_of("watch")).steps(30, even()).steps(40, slow(2))
    assert kinds(told) == ["machine"]
    assert told.job.change is None
    assert told.job.cordoned == {}
    assert told.effects == []
    assert "--stragglers act would move them to m5" in told.job.stragglers.findings[-1].done


def test_off_looks_for_nothing() -> None:
    assert Told(job_of("off")).steps(200, slow(2)).events == []


def test_a_move_that_has_helped_is_told_with_what_it_has_cost() -> None:
    told = moved(Told(job_of()).steps(30, even()).steps(10, slow(2)))
    told.steps(20, even())
    (move,) = told.job.stragglers.moves
    assert move.effect is Effect.HELPED
    assert isinstance(told.events[-1], SlowMeasured)
    assert told.job.cordoned["m3"].reason.startswith(SLOW)
    assert move.repaid_steps == pytest.approx(90 / 20, rel=0.4)
    assert "it has helped" in told.job.incidents[-1].note
    assert told.steps(200, even()).job.change is None


@pytest.mark.parametrize("longer_ms", [20.0, 30.0])
def test_a_move_by_which_no_step_is_shorter_is_not_said_to_be_repaid(longer_ms: float) -> None:
    """It was 20 of 100 ms; all steps take 1000 ms now, and a smaller part of them is too much."""
    told = moved(Told(job_of()).steps(30, even()).steps(10, slow(2)))
    (move,) = told.job.stragglers.moves
    job = replace(
        told.job, stragglers=Stragglers(moves=(replace(move, own_ms=120.0, usual_ms=100.0),))
    )
    measured = SlowMeasured(
        at_us=9, epoch=job.epoch, incident=move.incident, own_ms=1000 + longer_ms, usual_ms=1000,
        steps=8,
    )  # fmt: skip
    (move,) = decide(job, measured)[0].stragglers.moves
    assert (move.effect, move.repaid_steps) == (Effect.HELPED, None)


def test_what_is_as_slow_elsewhere_is_never_moved_again_and_its_machine_is_free() -> None:
    told = moved(Told(job_of(standbys=3)).steps(30, even()).steps(10, slow(2)))
    told.steps(2000, slow(2))
    assert [move.effect for move in told.job.stragglers.moves] == [Effect.VAIN]
    assert told.job.change is None
    assert told.job.cordoned == {}
    assert len(told.job.incidents) == 1
    assert "in vain" in told.job.stragglers.findings[-1].done


def test_a_cordon_of_somebody_elses_stays() -> None:
    told = Told(job_of(standbys=3)).steps(30, even())
    mine = Cordon(5, "its fan is loud")
    told.job = told.job.__class__(**{**vars(told.job), "cordoned": {"m3": mine}})
    moved(told.steps(10, slow(2))).steps(30, slow(2))
    assert told.job.stragglers.moves[-1].effect is Effect.VAIN
    assert told.job.cordoned == {"m3": mine}


def test_one_that_is_slower_there_is_moved_away_once_more_and_no_further() -> None:
    told = moved(Told(job_of(standbys=3)).steps(30, even()).steps(10, slow(2)))
    worse = told.job.seats[2]
    told.steps(14, slow(2, 1.6))
    assert told.job.stragglers.moves[0].effect is Effect.WORSE
    assert told.job.change is not None
    assert list(told.job.cordoned) == [worse]
    moved(told).steps(20, slow(2, 2.5))
    assert [move.effect for move in told.job.stragglers.moves] == [Effect.WORSE, Effect.WORSE]
    assert told.job.change is None


def test_a_rank_that_has_more_to_do_is_never_moved() -> None:
    busy: Law = lambda rank, step: 80 * (1.25 if rank == 2 else 1.0)  # noqa: E731
    told = Told(job_of(standbys=3)).steps(30, even()).steps(2000, slow(2, 1.2), busy)
    assert set(kinds(told)) == {"rank"}
    assert told.job.incidents == ()
    assert told.job.cordoned == {}


def test_ranks_of_one_machine_that_are_slow_together_are_one_finding() -> None:
    both: Law = lambda rank, step: 100 * (1.2 if rank in (2, 3) else 1.0)  # noqa: E731
    told = Told(job_of(nproc=2)).steps(30, even()).steps(12, both)
    (found,) = told.events
    assert isinstance(found, SlowFound)
    assert (found.kind, found.machine, found.ranks) == ("machine", "m2", [2, 3])


def test_ranks_of_one_machine_that_are_slow_together_stay_known_to_be() -> None:
    both: Law = lambda rank, step: 100 * (2 if rank in (2, 3) else 1.0)  # noqa: E731
    told = Told(job_of("watch", nproc=2), sigma=0).steps(100, even()).steps(50, both)
    assert [event.machine for event in told.events if isinstance(event, SlowFound)] == ["m2"]
    each = job_of("watch", nproc=2)
    roles = {
        rank: msgspec.structs.replace(its, trace=f"t{rank % 2}")
        for rank, its in each.recorded.items()
    }
    told = Told(replace(each, recorded=Facts(roles)), sigma=0).steps(100, even()).steps(50, both)
    assert [event.machine for event in told.events if isinstance(event, SlowFound)] == ["m2"]


def test_one_that_is_slow_now_and_then_is_not_named_beside_one_that_is() -> None:
    law: Law = lambda rank, step: 100 * (1.2 if rank == 2 or (rank == 3 and step % 3 == 0) else 1.0)  # noqa: E731
    told = Told(job_of("watch", nproc=2)).steps(30, even()).steps(12, law)
    (found,) = told.events
    assert isinstance(found, SlowFound)
    assert found.ranks == [2]


def test_who_has_come_there_by_another_move_is_moved_if_that_machine_is_slow() -> None:
    """The move for slowness is not measured yet, and it was to another machine."""
    job = moved(Told(job_of(standbys=3)).steps(30, even()).steps(10, slow(2))).job
    (move,) = job.stragglers.moves
    assert move.effect is Effect.OPEN
    found = SlowFound(
        at_us=9, epoch=job.epoch, machine=job.seats[2], kind="machine", ranks=[2], step=99,
        steps=7, own_ms=140, usual_ms=100,
    )  # fmt: skip
    assert decide(job, found)[0].change is None
    elsewhere = SlowMove(
        move.slot, move.leaver, "m9", move.incident, move.own_ms, move.usual_ms, kind=move.kind
    )
    job = replace(job, stragglers=replace(job.stragglers, moves=(elsewhere,)))
    assert decide(job, found)[0].change is not None


@pytest.mark.parametrize("slow_at", [(), (0, 2), (1, 3, 5, 7, 9)])
def test_what_is_mostly_as_quick_as_others_again_is_not_told_again(slow_at: tuple[int]) -> None:
    told = Told(job_of("watch")).steps(74, even()).steps(20, slow(2))
    every = 5 if len(slow_at) == 2 else 10
    law: Law = lambda rank, step: 100 * (1.2 if rank == 2 and step % every in slow_at else 1.0)  # noqa: E731
    told.steps(200, law)
    assert kinds(told) == ["machine"]


def test_one_that_is_slow_again_is_told_again() -> None:
    told = Told(job_of("watch")).steps(74, even()).steps(20, slow(2)).steps(100, even())
    assert told.until_found(30, slow(2)) <= 10


def test_a_slow_rank_is_known_to_be_slow_until_ten_steps_later() -> None:
    """The tenth step is slow again and does not count; the five after it do."""
    told = Told(job_of("watch"), sigma=0).steps(74, even())
    assert told.until_found(30, slow(2, 2.0)) == 5
    told.steps(9, even())
    assert told.until_found(30, slow(2, 2.0)) == 1 + 5


def now_and_then(*slow_ranks: int) -> Law:
    """Make rank 0 slow in every 13th step, so that a row of slow steps is likelier by chance.

    It takes seven to find a rank. It would take six if a third more healthy steps were counted.
    """
    return lambda rank, step: (
        200.0 if rank in slow_ranks else 150.0 if rank == 0 and step % 13 == 0 else 100.0
    )


def test_steps_of_a_rank_that_is_known_to_be_slow_are_no_measure_of_the_others() -> None:
    told = Told(job_of("watch"), sigma=0).steps(300, now_and_then())
    told.until_found(30, now_and_then(2))
    assert told.until_found(30, now_and_then(1, 2)) == 7


def test_steps_of_a_rank_on_the_machine_that_it_has_left_are_no_measure_of_the_others() -> None:
    told = Told(job_of("watch"), sigma=0).steps(300, now_and_then())
    told.job, _ = decide(told.job, move("m3"))
    moved(told)
    assert told.until_found(30, now_and_then(1)) == 7


def test_slow_steps_of_long_ago_are_not_taken_off_those_of_others() -> None:
    long_ago: Law = lambda rank, step: 150.0 if rank == 2 and step % 13 == 0 else 100.0  # noqa: E731
    told = Told(job_of("watch"), sigma=0).steps(300, long_ago).steps(300, now_and_then())
    told.until_found(30, now_and_then(2))
    assert told.until_found(30, now_and_then(1, 2)) == 7


def test_steps_of_another_epoch_are_compared_with_nobody() -> None:
    told = Told(job_of("watch")).steps(74, even())
    epoch = told.job.epoch
    told.job = replace(told.job, epoch=epoch + 1)
    for rank in range(4):
        took = [
            (rank, m.Took(step=n, own_us=130_000 if rank == 2 else 100_000, cpu_us=1))
            for n in range(200)
        ]
        assert told.pace.take(told.job, epoch, took, 10**9) == []


def test_a_move_is_measured_by_eight_steps_after_the_four_that_find_the_memory_cold() -> None:
    told = moved(Told(job_of()).steps(30, even()).steps(10, slow(2)))
    cold = told.step + SETTLES
    law: Law = lambda rank, step: 100 * (9.0 if rank == 2 and step <= cold else 1.0)  # noqa: E731
    assert told.until_found(30, law) == SETTLES + MEASURED
    (move,) = told.job.stragglers.moves
    assert move.own_after_ms == pytest.approx(100, rel=0.05)


def test_of_a_moved_machine_the_slower_rank_is_measured() -> None:
    job = job_of(nproc=2)
    done = Incident(1, Kind.MOVE, "m9", "m1", (0, 1), "slow", 0, 1, outcome=Outcome.DONE)
    move = SlowMove(0, "m9", "m1", 1, 200.0, 100.0)
    told = Told(replace(job, incidents=(done,), stragglers=Stragglers(moves=(move,))))
    told.steps(SETTLES + MEASURED, slow(1, by=1.05))
    (measured,) = told.events
    assert isinstance(measured, SlowMeasured)
    assert measured.own_ms == pytest.approx(105, rel=0.02)


def test_what_was_told_of_a_step_that_was_cut_short_is_forgotten() -> None:
    """Its second try is told of by all ranks, in another epoch."""
    told, heard = Told(job_of("watch")), set[float]()
    told.pace = Pace(lambda machine, rank, own, usual: heard.add(own))
    told.steps(74, even())
    heard.clear()
    told.step += 1
    took = {us: m.Took(step=told.step, own_us=us, cpu_us=1) for us in (100_000, 900_000)}
    assert told.pace.take(told.job, told.job.epoch, [(2, took[900_000])], 1) == []
    told.job = replace(told.job, epoch=told.job.epoch + 1)
    each = [(rank, took[100_000]) for rank in (0, 1, 3, 2)]
    assert told.pace.take(told.job, told.job.epoch, each, 1) == []
    assert len(heard) == 1


def test_all_ranks_that_become_slower_are_everybody() -> None:
    told = Told(job_of()).steps(200, even()).steps(100, even(130))
    assert kinds(told) == ["everybody"]
    assert told.job.incidents == ()
    (found,) = told.events
    assert isinstance(found, SlowFound)
    assert (found.machine, found.ranks) == (None, [0, 1, 2, 3])
    assert found.own_ms == pytest.approx(130, rel=0.05)
    assert found.usual_ms == pytest.approx(100, rel=0.05)


def test_everybody_is_slow_if_most_steps_of_half_a_second_are() -> None:
    """Most of ten steps of 50 ms; at the pace that was usual it would be twenty of 25 ms."""
    told = Told(job_of("watch"), sigma=0).steps(200, even(25))
    assert told.until_found(40, even(50)) == 7
    (found,) = told.events
    assert isinstance(found, SlowFound)
    assert found.steps == 10


def test_all_that_is_compared_is_told_on() -> None:
    heard = []
    told = Told(job_of())
    told.pace = Pace(lambda machine, rank, own, usual: heard.append((machine, rank, own > usual)))
    told.steps(20, slow(2, 2.0))
    assert len(heard) == 20 * 4
    assert {machine for machine, rank, longer in heard if rank == 2 and longer} == {"m3"}
    assert sum(longer for _, rank, longer in heard if rank == 2) == 20


def test_without_a_standby_it_is_said_and_tried_again_later() -> None:
    told = Told(job_of(standbys=0)).steps(30, even()).steps(400, slow(2))
    assert len(kinds(told)) in (3, 4)
    assert told.job.cordoned == {}
    assert "standby" in told.job.stragglers.findings[-1].done


def test_a_job_that_is_nearly_over_moves_nothing() -> None:
    job = job_of()
    recorded = job.recorded[0]
    known = job.recorded.having(0, msgspec.structs.replace(recorded, length=60))
    job = Job(**{**vars(job), "recorded": known})
    told = Told(job).steps(40, even()).steps(10, slow(2))
    assert told.job.change is None
    assert "do not bring that back" in told.job.stragglers.findings[-1].done


def test_two_machines_are_both_found() -> None:
    law: Law = lambda rank, step: 100 * (1.3 if rank in (2, 5) else 1.0)  # noqa: E731
    told = Told(job_of("watch", machines=8)).steps(50, even()).steps(20, law)
    found = [event.machine for event in told.events if isinstance(event, SlowFound)]
    assert sorted(map(str, found)) == ["m3", "m6"]


def test_of_two_ranks_the_slow_one_is_found() -> None:
    told = Told(job_of("watch", machines=2)).steps(50, even()).steps(20, slow(1))
    assert [event.machine for event in told.events if isinstance(event, SlowFound)] == ["m2"]


def test_of_two_ranks_one_is_not_everybody() -> None:
    told = Told(job_of("watch", machines=2)).steps(200, even()).steps(45, slow(1, 1.5))
    assert [event.machine for event in told.events if isinstance(event, SlowFound)] == ["m2"]


def test_who_shares_its_role_with_nobody_is_compared_with_nobody() -> None:
    told = Told(job_of("watch", machines=1)).steps(50, even())
    assert told.events == []


def test_single_slow_steps_and_pauses_of_all_are_no_slowness() -> None:
    chance = random.Random(4)
    told = Told(job_of())
    spikes: Law = lambda rank, step: 100 * (5.0 if chance.random() < 0.03 else 1.0)  # noqa: E731
    together: Law = lambda rank, step: 100 * (20.0 if step % 50 == 0 else 1.0)  # noqa: E731
    assert told.steps(1000, spikes).steps(1000, together).events == []


def test_steps_that_vary_five_times_are_no_slowness() -> None:
    chance = random.Random(5)
    lengths = [chance.uniform(1, 5) for _ in range(4000)]
    alike: Law = lambda rank, step: 40 * lengths[step]  # noqa: E731
    each: Law = lambda rank, step: 40 * chance.uniform(1, 5)  # noqa: E731
    assert Told(job_of()).steps(3000, alike).events == []
    assert Told(job_of()).steps(3000, each).events == []


def test_a_slow_one_is_found_among_steps_that_vary_together() -> None:
    chance = random.Random(6)
    lengths = [chance.uniform(1, 5) for _ in range(4000)]
    law: Law = lambda rank, step: 40 * lengths[step] * (1.2 if rank == 1 else 1.0)  # noqa: E731
    alike: Law = lambda rank, step: 40 * lengths[step]  # noqa: E731
    assert Told(job_of()).steps(100, alike).until_found(40, law) <= 10


def test_what_a_controller_finds_of_a_membership_that_is_over_changes_nothing() -> None:
    job = job_of()
    late = SlowFound(
        at_us=1, epoch=job.epoch - 1, machine="m3", kind="machine", ranks=[2], step=9, steps=7,
        own_ms=120, usual_ms=100,
    )  # fmt: skip
    gone = msgspec.structs.replace(late, epoch=job.epoch, machine="m9")
    measured = SlowMeasured(at_us=1, epoch=job.epoch, incident=1, own_ms=100, usual_ms=100, steps=8)
    assert after(job, late, gone, measured) == (job, ())


def test_the_outcome_is_said_with_figures() -> None:
    told = moved(Told(job_of()).steps(30, even()).steps(10, slow(2))).steps(20, even())
    assert "usual before" in outcome_text(told.job.stragglers.moves[0])


# --- a standby is ready by the time that it is no suspicion any more ------------------------------


def test_a_machine_that_may_be_slow_has_its_run_held_before_it_is_moved() -> None:
    told = Told(job_of()).steps(74, even())
    assert (told.job.machines["m5"].held, told.suspected) == (0, [])
    told.steps(3, slow(2))
    (suspicion,) = told.suspected
    assert (suspicion.machine, told.events) == ("m3", [])
    ((machine, order),) = orders(told.effects, m.Hold).items()
    assert (machine, order.slot) == ("m5", 2)
    assert told.job.change is None
    told.job, _ = after(told.job, held("m5", 2))
    told.steps(10, slow(2))
    assert told.job.change is not None
    assert told.job.change.joiners == {2: "m5"}


def test_a_row_of_slow_steps_is_suspected_once_it_is_less_likely_than_the_limit() -> None:
    """One of 100 other steps is slow: two in a row are exactly as likely as the limit."""
    rows = [[True] * slow + [False] * 30 for slow in (1, 2, 3, 4)]
    suspected = [may_be_slow(row, sum(row), 100 + sum(row)) for row in rows]
    assert suspected == [False, False, True, False]


@pytest.mark.parametrize(("others", "suspected"), [(59, False), (60, True), (0, False)])
def test_a_row_of_slow_steps_says_nothing_beside_too_few_others(
    others: int, suspected: bool
) -> None:
    assert may_be_slow([True] * 3 + [False] * others, 3, 3 + others) is suspected


def test_a_suspicion_that_passes_leaves_the_standby_as_ready_as_before() -> None:
    told = Told(job_of()).steps(74, even()).steps(3, slow(2)).steps(200, even())
    told.job, _ = after(told.job, held("m5", 2))
    assert (told.job.machines["m5"].held, told.events, told.job.cordoned) == (2, [], {})


@pytest.mark.parametrize("policy", ["watch", "off"])
def test_nobody_gets_ready_for_what_would_not_be_done(policy: str) -> None:
    told = Told(job_of(policy)).steps(74, even()).steps(3, slow(2))
    assert (told.suspected, told.effects) == ([], [])


def test_a_standby_that_holds_the_run_already_keeps_it() -> None:
    told = Told(job_of(standbys=2)).steps(74, even())
    assert [told.job.machines[name].held for name in ("m5", "m6")] == [0, 1]
    assert told.steps(3, slow(1)).effects == []
    assert told.suspected != []


def test_standbys_rest_between_two_suspicions() -> None:
    told = Told(job_of()).steps(74, even()).steps(3, slow(2))
    told.job, _ = after(told.job, held("m5", 2))
    at_us = told.suspected[0].at_us
    run_ms = 50  # As `jobs` has it: the longest.
    for later_ms, holds in ((REST * run_ms - 1, False), (REST * run_ms, True)):
        event = msgspec.structs.replace(
            told.suspected[0], machine="m4", at_us=at_us + 1000 * later_ms
        )
        _, effects = decide(told.job, event)
        assert bool(orders(effects, m.Hold)) == holds


def test_a_suspicion_of_an_older_membership_or_of_no_member_is_none() -> None:
    told = Told(job_of()).steps(74, even()).steps(1, slow(2))
    event = SlowSuspected(at_us=1, epoch=told.job.epoch, machine="m3", step=76)
    for other in (
        msgspec.structs.replace(event, epoch=99),
        msgspec.structs.replace(event, machine="m5"),
        msgspec.structs.replace(event, machine="m9"),
    ):
        assert decide(told.job, other) == (told.job, ())
    assert decide(told.job, event)[1] != ()


def test_what_was_seen_is_said_in_figures() -> None:
    told = Told(job_of("watch")).steps(40, even())
    told.until_found(40, slow(2, 3.5))
    (found,) = told.events
    assert isinstance(found, SlowFound)
    found = msgspec.structs.replace(found, own_ms=350.0, usual_ms=100.0)
    said = f"{found.own_ms:.1f} ms a step of its own, {found.usual_ms:.1f} of its peers (+250 %)"
    last = f"steps {found.step - found.steps + 1} to {found.step}"
    assert evidence(found) == f"{said}, {last}"


TIMES = st.tuples(st.integers(1_000, 10**6), st.integers(1_000, 10**6))


@given(st.lists(TIMES, min_size=1, max_size=30))
def test_who_is_slow_in_most_steps_is_said_to_take_longer(times: list[tuple[int, int]]) -> None:
    """However much the steps of all have changed meanwhile."""
    samples = [Sample(own, usual, own, usual) for own, usual in times]
    assume(2 * sum(sample.slow for sample in samples) > len(samples))
    own_us, usual_us, _ = medians(samples)
    assert own_us > usual_us > 0
