"""How jobs end that cannot go well: a clear message, a defined status, nothing left behind."""

import pytest
from harness import Live, run

pytestmark = pytest.mark.turns(12)


def test_a_step_that_raises_where_steps_are_quick_ends_the_job_with_its_traceback() -> None:
    """The rank waits a moment for word of a lost peer, and is not replaced for that."""
    outcome = run(["--misbehave", "raise-inside", "--pace", "0.02"], machines=2, standbys=0)
    assert outcome.code == 1
    assert "ValueError: the data is broken" in outcome.text
    assert outcome.job.incidents == ()


def test_a_script_that_raises_ends_the_job_with_its_traceback() -> None:
    outcome = run(["--misbehave", "raise", "--pace", "0"], machines=2, standbys=0)
    assert outcome.code == 1
    assert "ValueError: the data is broken" in outcome.text
    assert outcome.text.count("Traceback") == 1
    assert outcome.text.startswith("Rank 1 raised")
    assert not outcome.job.incidents


def test_ranks_that_make_different_calls_end_the_job_with_both_calls_named() -> None:
    """The native communicator sees it; it is no lost peer, so the step is not tried for ever."""
    arguments = ["--misbehave", "differ", "--pace", "0"]
    outcome = run(arguments, machines=2, standbys=0, comm="native")  # gloo cannot tell.
    assert outcome.code == 1
    assert "CallsDiffer" in outcome.text
    assert "broadcast" in outcome.text
    assert "all_reduce" in outcome.text


def test_a_rank_that_ends_early_ends_the_job_with_both_ranks_named() -> None:
    outcome = run(["--misbehave", "exit-early", "--pace", "0"], machines=2, standbys=0)
    assert outcome.code == 1
    assert "rank 1 ended after step 8" in outcome.text
    assert "rank 0 went on to step 9" in outcome.text


def test_the_exit_status_is_the_scripts() -> None:
    outcome = run(["--misbehave", "exit-7", "--pace", "0"], machines=2, standbys=0)
    assert outcome.code == 7


def test_a_script_that_never_attaches_runs_and_is_told() -> None:
    outcome = run(["--misbehave", "never-attach"], machines=2, standbys=0)
    assert outcome.code == 0
    assert "never called trainmover.attach()" in outcome.text


def test_two_machines_lost_with_one_standby_ends_with_a_reason() -> None:
    async def scenario(live: Live) -> None:
        await live.warm(1)
        live.handle.kill("m1")
        live.handle.kill("m3")
        await live.until(lambda: live.job.code is not None)

    outcome = run(["--steps", "100000", "--pace", "0.02"], scenario, machines=4, standbys=1)
    assert outcome.code == 1
    assert "standby" in outcome.text
    assert "The last step reported as committed is" in outcome.text


def test_a_loss_before_anything_is_recorded_starts_the_job_again() -> None:
    async def scenario(live: Live) -> None:
        await live.until(lambda: len(live.job.attached) == 2)
        live.signal_worker("m2")

    outcome = run(["--steps", "30", "--pace", "0.3"], scenario, machines=2, standbys=1)
    assert outcome.code == 0, outcome.text
    assert outcome.job.incidents[0].rung == 3
    assert len(outcome.rows) == 60


def test_a_step_that_never_updates_is_told_once() -> None:
    outcome = run(["--misbehave", "never-step", "--pace", "0", "--steps", "10"], machines=2)
    assert outcome.code == 0, outcome.text
    assert sum("without an optimizer.step()" in s for s in outcome.sentences) == 1
