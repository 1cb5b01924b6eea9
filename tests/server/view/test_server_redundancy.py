"""Standbys wanted and ready, and what the loss of a machine would mean."""

import msgspec
import pytest
from http_jobs import training

from trainmover.controller import Job
from trainmover.controller.change.seats import with_machine, without_machines
from trainmover.controller.state import MachineState
from trainmover.controller.values import replace
from trainmover.ids import MachineId
from trainmover.server.view.redundancy import loss_json, redundancy_json


def without_standby(job: Job) -> Job:
    return without_machines(job, [name for name in job.machines if name not in job.seats])


def may_wait(job: Job) -> Job:
    return replace(job, spec=msgspec.structs.replace(job.spec, wait_s=60))


WARM = training(2, 1)
NONE = without_standby(WARM)
WARMING = with_machine(WARM, MachineId("m3"), state=MachineState.WARMING)


@pytest.mark.parametrize(
    ("job", "alarm", "text"),
    [
        (WARM, False, "standbys 1 of 1 ready"),
        (WARMING, True, "standbys 0 of 1 ready, 1 on the way"),
        (
            NONE,
            True,
            "standbys 0 of 1 ready: the next loss ends the job (trainmover add starts one here)",
        ),
        (
            may_wait(NONE),
            True,
            "standbys 0 of 1 ready: after the next loss the job waits up to 60 s for a machine "
            "(trainmover add starts one here)",
        ),
        (training(2, 2), False, "standbys 1 of 2 ready"),  # The last one is cordoned.
    ],
)
def test_how_many_standbys_are_ready(job: Job, alarm: bool, text: str) -> None:
    said = redundancy_json(job)
    assert (said["text"], said["alarm"]) == (text, alarm)


@pytest.mark.parametrize(
    ("job", "ends", "text"),
    [
        (WARM, False, "m3 takes rank 0 in about "),
        (WARMING, False, "m3, which is not ready yet, takes rank 0"),
        (NONE, True, "No standby: this ends the job."),
        (may_wait(NONE), False, "No standby: the job waits up to 60 s for a machine, then ends."),
    ],
)
def test_what_the_loss_of_a_machine_would_mean(job: Job, ends: bool, text: str) -> None:
    said = loss_json(job, MachineId("m1"))
    assert said["ends"] is ends
    assert said["text"].startswith(text)


def test_the_loss_of_a_standby_costs_no_rank() -> None:
    said = loss_json(WARM, MachineId("m3"))
    assert (said["ends"], said["joiners"]) == (False, {})
