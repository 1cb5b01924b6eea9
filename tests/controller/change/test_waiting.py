"""What `status` says a job waits for, at each stage of what it does."""

from typing import Any

import msgspec
from jobs import (
    AT_BOUNDARY,
    BOUNDARY,
    DRAINS,
    RECOVERY_SWITCHES,
    RUNNING,
    after,
    gathering,
    lost,
    running,
    switched,
    vault,
)

from trainmover.controller import Job
from trainmover.controller.values import replace
from trainmover.ids import MachineId
from trainmover.server.view.waiting import waiting_json


def waits(job: Job, *awaited: str, why: str = "", at_us: int = 1_000_000) -> list[dict[str, Any]]:
    return waiting_json(job, [MachineId(name) for name in awaited], why, 300_000, at_us)


def whats(job: Job) -> list[str]:
    return [one["what"] for one in waits(job)]


def test_a_job_that_trains_waits_for_nothing() -> None:
    assert waits(RUNNING) == []


def test_a_drain_names_ranks_keepers_and_joiners() -> None:
    job, _ = after(DRAINS, vault("m1", 2))
    assert whats(job) == [
        "ranks 0,2 to say where they stand",
        "m3 to say which records it keeps",
        "m4 to run the script as the lost machine's ranks",
    ]
    (first, *_) = waits(job)
    assert (first["machines"], first["ranks"]) == (["m1", "m3"], [0, 2])
    assert first["since_us"] == 100


def test_what_has_come_is_not_waited_for() -> None:
    job, _ = after(BOUNDARY, AT_BOUNDARY[0])
    assert whats(job)[0] == "rank 2 to come to their boundary"
    job, _ = after(RECOVERY_SWITCHES, switched("m1", 0, 2))
    assert whats(job) == ["ranks 1-2 to exchange their groups"]


def test_a_missing_machine_has_the_time_that_was_allowed() -> None:
    alone = running(standbys=0)
    allowed = replace(alone, spec=msgspec.structs.replace(alone.spec, wait_s=60))
    job, _ = after(allowed, lost("m2", at_us=100))
    (one,) = waits(job)
    assert one["what"] == "1 machine to join, for rank 1"
    assert one["left_s"] == 59.0001


def test_a_machine_that_is_not_given_up_has_its_patience() -> None:
    (one,) = waits(RUNNING, "m2", why="the job would end")
    assert one["what"] == "m2 to return: the job would end"
    assert (one["ranks"], one["since_s"], one["left_s"]) == ([1], 0.3, 64.7)


def test_a_job_that_gathers_says_how_many_are_there() -> None:
    assert whats(gathering(machines=3)) == ["machines to join: 3 of 3 are there"]
