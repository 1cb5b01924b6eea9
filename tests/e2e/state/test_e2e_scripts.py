"""Scripts that misbehave in the sandbox: the job trains on, and a plain sentence says why it has no
standby.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest
from harness import Live, Outcomes, assert_equal_runs, run

from bench.ports import free_port
from trainmover.controller.state import Kind

pytestmark = pytest.mark.turns(12)

SCRIPT = str(Path(__file__).parents[1] / "bad" / "script.py")
Wait = Callable[[Live], Awaitable[None]]


async def until_noted(live: Live) -> None:
    await live.until(lambda: any(machine.note for machine in live.job.machines.values()))


def bad(what: str, tmp_path: Path, wait: Wait = until_noted, *arguments: str) -> Outcomes:
    """A job of two ranks that ends well a few steps after what `wait` waits for."""
    until = tmp_path / "until"

    async def scenario(live: Live) -> None:
        await wait(live)
        await live.at_step(live.step() + 5)
        until.touch()

    arguments = ("--bad", what, "--until", str(until), *arguments)
    outcome = run([*arguments], scenario, machines=2, standbys=1, script=SCRIPT)
    assert outcome.code == 0, (outcome.text, outcome.sentences)
    assert all(incident.kind is Kind.MOVE for incident in outcome.job.incidents)
    return outcome


def said(outcome: Outcomes, words: str) -> bool:
    return any(words in sentence for sentence in outcome.sentences)


def test_a_fixed_port_that_a_live_rank_holds_is_named(tmp_path: Path) -> None:
    outcome = bad("port", tmp_path, until_noted, "--port", str(free_port()))
    assert said(outcome, "binds a port at script.py line")
    assert said(outcome, "let it take a free one (port 0)")


def test_a_prompt_is_no_hang(tmp_path: Path) -> None:
    outcome = bad("prompt", tmp_path)
    assert said(outcome, "the script asks for input at script.py line")


@pytest.mark.soak
def test_a_script_that_exits_in_the_sandbox_is_told(tmp_path: Path) -> None:
    outcome = bad("exit", tmp_path)
    assert said(outcome, "the script ended in the sandbox after 1 steps")


def test_processes_that_outlive_a_shadow_run_are_ended(tmp_path: Path) -> None:
    async def warm(live: Live) -> None:
        await live.warm()
        [worker] = live.pids["m3"].values()
        assert psutil.Process(worker).children() == []

    outcome = bad("children", tmp_path, warm)
    assert said(outcome, "which was ended")


def test_a_script_that_runs_only_once_in_a_process_is_found_out(tmp_path: Path) -> None:
    async def second_run(live: Live) -> None:
        await live.warm()
        live.handle.move("m1")
        await live.until(lambda: bool(live.sandbox_failed))
        [failed] = live.sandbox_failed
        assert failed.again
        assert failed.reason.startswith("the script cannot run twice in one process: ")
        assert "the registry is there already" in failed.reason
        await live.until(lambda: live.job.change is None)

    bad("once", tmp_path, second_run)


def test_a_shadow_run_gives_nothing_to_anybody(tmp_path: Path) -> None:
    """What it reports is no row, and what a script guards with `is_shadow` is not written."""
    written = tmp_path / "checkpoint"
    seen = []

    async def warm(live: Live) -> None:
        await live.warm()
        seen.append(written.read_text())

    outcome = bad("nothing", tmp_path, warm, "--written", str(written))
    assert seen
    steps = max(step for _, step in outcome.rows)
    assert len(outcome.rows) == 2 * steps


def test_a_joiner_that_initialises_nothing_trains_on_with_the_same_bits() -> None:
    async def scenario(live: Live) -> None:
        await live.warm()
        answer = await live.handle.move("m2")
        assert answer.ok, answer

    script = str(Path(SCRIPT).with_name("wide.py"))
    moved = run(["600", "60", "0.1"], scenario, machines=2, standbys=1, script=script)
    calm = run(["600", "60", "0"], machines=2, standbys=0, script=script)
    assert_equal_runs(moved, calm)
