"""What the job knows of controllers that died."""

from jobs import RUNNING, after, lost

from trainmover.controller.events import ControllerReturned


def test_a_takeover_is_counted_and_changes_nothing_else() -> None:
    job, effects = after(RUNNING, ControllerReturned(at_us=7), ControllerReturned(at_us=9))
    assert effects == ()
    assert (job.takeovers, job.taken_over_us) == (2, 9)
    assert (job.epoch_last, job.runs) == (RUNNING.epoch_last, RUNNING.runs)


def test_numbers_that_a_torn_journal_may_have_lost_are_not_given_out_again() -> None:
    job, _ = after(RUNNING, ControllerReturned(at_us=7, cut=True), lost("m2"))
    assert job.change is not None
    assert job.change.epoch > RUNNING.epoch_last + 1000
    assert job.runs > RUNNING.runs + 999
