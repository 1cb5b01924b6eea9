"""Planned moves while stepping, and everything that may go wrong during one."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from harness import Live, assert_equal_runs, run

from trainmover.controller.effects import Answer
from trainmover.controller.policies.plans.known import Standing
from trainmover.controller.state import Kind, Outcome, Stage
from trainmover.ids import MachineId

pytestmark = pytest.mark.turns(12)

PACED = ["--pace", "0.03"]


async def at_stage(live: Live, stage: Stage) -> None:
    await live.until(lambda: live.job.change is not None and live.job.change.stage is stage)


@pytest.mark.turns(4)
def test_moves_of_one_and_two_rank_machines_keep_the_bits(undisturbed) -> None:
    answers: list[Answer] = []

    async def scenario(live: Live) -> None:
        for machine in ("m1", "m2", "m3"):
            await live.warm(1)
            answers.append(await live.handle.move(machine))

    frozen = ["--frozen", "8"]
    outcome = run([*PACED, *frozen], scenario, until_done=True, machines=2, standbys=1, nproc=2)
    # m3 had taken the ranks of m1 and gave them to whoever was warm then.
    assert [answer.ok for answer in answers] == [True, True, True], answers
    moves = outcome.job.incidents
    assert [i.outcome for i in moves] == [Outcome.DONE] * 3
    assert all(len(i.certificates) == 2 and all(c.equal for c in i.certificates) for i in moves)
    assert {"bind", "prepare", "pause", "state", "switchover", "first_step"} <= moves[
        0
    ].marks.keys()
    for one in (certificate for move in moves for certificate in move.certificates):
        assert one.held >= 8 << 20 > 20 * one.bytes > 0, one  # What nobody writes to went before.
    calm = undisturbed(["--steps", outcome.steps, *frozen], machines=2, nproc=2)
    assert_equal_runs(outcome, calm)


def test_two_machines_are_drained_in_one_pause(undisturbed) -> None:
    answers: list[Answer] = []

    async def scenario(live: Live) -> None:
        await live.warm(2)
        answers.append(await live.handle.server.drain(["m3", "m1"], "rack 7", left_s=600))
        answers.append(await live.handle.server.drain(["m2", "m4"]))
        await live.at_step(live.step() + 3)

    outcome = run(PACED, scenario, until_done=True, machines=3, standbys=2)
    assert [answer.ok for answer in answers] == [True, False], answers
    (move,) = outcome.job.incidents
    assert (move.outcome, move.machine, sorted(move.ranks)) == (Outcome.DONE, "m3", [0, 2])
    assert sorted(c.rank for c in move.certificates) == [0, 2]
    assert all(certificate.equal for certificate in move.certificates)
    assert sorted(outcome.job.seats) == ["m2", "m4", "m5"]
    assert sorted(outcome.job.cordoned) == ["m1", "m2", "m3", "m4"]
    assert_equal_runs(outcome, undisturbed(["--steps", outcome.steps], machines=3))


def test_all_machines_have_their_turn_and_then_exchange_their_ranks(undisturbed) -> None:
    async def scenario(live: Live) -> None:
        def over() -> bool:
            plan = live.job.plan
            return plan is not None and plan.standing is not Standing.GOING

        await live.warm(1)
        assert (await live.handle.server.roll([])).ok
        await live.until(over)
        assert (await live.handle.server.place([*reversed(live.job.seats)])).ok
        await live.until(over)
        await live.at_step(live.step() + 3)

    outcome = run(PACED, scenario, until_done=True, machines=2, standbys=1, nproc=2)
    plan, moves = outcome.job.plan, outcome.job.incidents
    assert plan is not None
    assert (plan.number, plan.standing, plan.moves) == (2, Standing.DONE, 3)
    assert [i.outcome for i in moves] == [Outcome.DONE] * 5
    assert all(c.equal for move in moves for c in move.certificates)
    calm = undisturbed(["--steps", outcome.steps], machines=2, nproc=2)
    assert_equal_runs(outcome, calm)


def test_a_machine_that_is_to_be_taken_away_has_given_its_ranks_up_before(undisturbed) -> None:
    async def scenario(live: Live) -> None:
        await live.warm(1)
        worker = psutil.Process(live.pids["m2"][0])
        agent = worker.parent()
        assert agent is not None
        agent.send_signal(signal.SIGUSR1)
        await live.incidents_done(1)
        agent.kill()
        await live.until(lambda: "m2" not in live.job.machines)
        await live.at_step(live.step() + 3)

    outcome = run(PACED, scenario, until_done=True, machines=3, standbys=1)
    assert outcome.code == 0, outcome.text
    (move,) = outcome.job.incidents
    assert (move.kind, move.machine, move.outcome) == (Kind.MOVE, "m2", Outcome.DONE)
    assert "m2 will be taken away" in move.cause
    assert_equal_runs(outcome, undisturbed(["--steps", outcome.steps], machines=3))


@pytest.mark.turns(4)
def test_a_machine_that_is_ended_in_order_gives_its_ranks_up_first(undisturbed) -> None:
    """One that no run has started: SIGTERM is what a scheduler ends it by."""

    async def scenario(live: Live) -> None:
        await live.warm(1)
        started = live.handle.run
        flags = ["--controller", started.controller, "--token-file", started.token_file]
        command = [sys.executable, "-m", "trainmover.agent", "--machine", "far", "--standby"]
        with subprocess.Popen([*command, *flags, "--parent", str(os.getpid())]) as agent:
            await live.warm(2)
            seats = [live.job.seats[0], MachineId("far")]
            assert (await live.handle.server.place(seats)).ok
            await live.until(lambda: [*live.job.seats] == seats and live.job.change is None)
            await live.warm(2)
            agent.terminate()
            await live.until(lambda: "far" not in live.job.machines)
            assert await asyncio.to_thread(agent.wait) == 0
        await live.at_step(live.step() + 3)

    outcome = run(PACED, scenario, until_done=True, machines=2, standbys=1)
    assert outcome.code == 0, outcome.text
    there, back = outcome.job.incidents
    assert (there.kind, back.kind, back.machine) == (Kind.MOVE, Kind.MOVE, "far")
    assert [there.outcome, back.outcome] == [Outcome.DONE] * 2
    assert "far will be taken away" in back.cause
    assert_equal_runs(outcome, undisturbed(["--steps", outcome.steps], machines=2))


def test_a_machine_whose_kernel_says_that_it_is_broken_has_given_its_ranks_up_before_it_fails(
    undisturbed, tmp_path: Path
) -> None:
    kernel_log = tmp_path / "kmsg"
    kernel_log.touch()

    async def scenario(live: Live) -> None:
        await live.warm(1)
        started = live.handle.run
        flags = ["--controller", started.controller, "--token-file", started.token_file]
        flags += ["--kernel-log", str(kernel_log), "--parent", str(os.getpid())]
        command = [sys.executable, "-m", "trainmover.agent", "--machine", "far", "--standby"]
        with subprocess.Popen([*command, *flags]) as agent:
            await live.warm(2)
            seats = [live.job.seats[0], MachineId("far")]
            assert (await live.handle.server.place(seats)).ok
            await live.until(lambda: [*live.job.seats] == seats and live.job.change is None)
            await live.warm(2)
            with kernel_log.open("a") as log:
                log.write("NVRM: Xid (PCI:0000:3b:00): 79, pid=0, GPU has fallen off the bus.\n")
            await live.incidents_done(2)
            agent.kill()
            await live.until(lambda: "far" not in live.job.machines)
            await live.at_step(live.step() + 3)

    outcome = run(PACED, scenario, until_done=True, machines=2, standbys=1, anomalies="act")
    assert outcome.code == 0, outcome.text
    move = outcome.job.incidents[-1]
    assert (move.kind, move.machine, move.outcome) == (Kind.MOVE, "far", Outcome.DONE)
    assert move.cause.startswith("far is about to fail: a GPU is broken: NVRM: Xid")
    assert_equal_runs(outcome, undisturbed(["--steps", outcome.steps], machines=2))


def test_failures_during_a_move(undisturbed) -> None:
    """The joiner dies in prepare, the leaver dies in prepare, a machine dies at the boundary. In a
    job with TLS; the one without has the same bits."""
    answers: list[Answer] = []

    async def scenario(live: Live) -> None:
        await live.warm(3)
        moving = live.handle.move("m2")
        refused = await live.handle.move("m1")
        await at_stage(live, Stage.PREPARE)
        live.handle.kill(live.job.change.joiners[1])  # type: ignore[union-attr]
        answers.extend([refused, await moving])
        await live.warm(2)
        moving = live.handle.move("m2")
        await at_stage(live, Stage.PREPARE)
        live.handle.kill("m2")
        answers.append(await moving)
        await live.warm(1)
        await live.incidents_done(3)
        moving = live.handle.move("m3")
        await at_stage(live, Stage.SWITCH)
        live.signal_worker("m1")
        answers.append(await moving)
        await live.incidents_done(5)
        answers.append(await live.handle.move("nobody"))

    outcome = run(PACED, scenario, until_done=True, machines=3, standbys=3, tls=True)
    refused, joiner_died, leaver_died, overtaken, unknown = answers
    assert not any(answer.ok for answer in answers)
    assert "a move is running" in refused.text
    assert "the joiner failed" in joiner_died.text
    assert "m2 was lost" in leaver_died.text or "lost a link" in leaver_died.text
    assert "overtaken" in overtaken.text
    assert "There is no machine nobody" in unknown.text
    kinds = [(i.kind, i.outcome) for i in outcome.job.incidents]
    assert kinds[0] == (Kind.MOVE, Outcome.CANCELLED)
    assert_equal_runs(outcome, undisturbed(["--steps", outcome.steps], machines=3))


def test_a_silent_machine_is_lost_after_its_heartbeats(undisturbed) -> None:
    """SIGSTOP of an agent: nothing breaks, nothing is said; the machine is fenced and replaced."""

    async def scenario(live: Live) -> None:
        await live.warm(1)
        agent = psutil.Process(live.pids["m2"][0]).parent()
        assert agent is not None
        agent.suspend()
        await live.incidents_done(1)
        agent.resume()

    outcome = run(PACED, scenario, until_done=True, machines=3, standbys=1)
    assert "no heartbeat" in outcome.job.incidents[0].cause
    assert_equal_runs(outcome, undisturbed(["--steps", outcome.steps], machines=3))
