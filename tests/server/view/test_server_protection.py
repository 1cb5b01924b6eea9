"""A script that never asks for protection is told of it while it runs, once."""

import msgspec
import pytest
from http_jobs import training

from trainmover.controller.events import Tick
from trainmover.controller.facts import Facts, Ranks
from trainmover.controller.state import Job, Phase
from trainmover.controller.values import replace
from trainmover.ids import Rank
from trainmover.protocol.messages import JobSpec
from trainmover.server.view.protection import UNATTACHED_S, Unattached, protected
from trainmover.server.view.sentences import sentence

RUNNING = replace(Job(spec=JobSpec(run_id="r", argv=["train.py"])), phase=Phase.RUNNING)
BEAT_US = 200_000
BEATS = round(UNATTACHED_S * 1e6 / BEAT_US)


def told(jobs: list[Job]) -> list[int]:
    """At which beats."""
    unattached = Unattached()
    return [beat for beat, job in enumerate(jobs) if unattached.look(job, 1 + beat * BEAT_US)]


def test_it_is_told_once_after_its_time() -> None:
    assert told([RUNNING] * 3 * BEATS) == [BEATS]


def test_a_job_without_standbys_is_not_called_protected() -> None:
    assert protected(training(2, 1)).startswith("protected: ")
    alone = protected(training(2, 0))
    assert "protected: " not in alone
    assert "NOT protected from the loss of a machine: there is no standby" in alone


def test_what_goes_along_of_the_script_is_said() -> None:
    job = training(2, 1)
    [rank, *_] = job.recorded
    one = msgspec.structs.replace(job.recorded[rank], objects=1234, opaque=2)
    said = protected(replace(job, recorded=Facts({**job.recorded, rank: one})))
    assert "; 1,232 objects of the script (2 opaque: each process has its own); " in said
    assert "objects of the script" not in protected(job)


@pytest.mark.parametrize(("standbys", "good"), [(1, True), (0, False)])
def test_that_it_is_protected_is_good_news(standbys: int, good: bool) -> None:
    job = training(2, standbys)
    said = sentence(replace(job, recorded=Facts()), Tick(at_us=1), job)
    assert (said.loud, said.good) == (True, good)


def test_the_time_begins_when_the_script_does() -> None:
    gathering = replace(RUNNING, phase=Phase.GATHERING)
    assert told([gathering] * BEATS + [RUNNING] * 2 * BEATS) == [2 * BEATS]


def test_a_script_that_attaches_in_time_hears_nothing() -> None:
    attached = replace(RUNNING, attached=Ranks([Rank(0)]))
    assert told([RUNNING] * BEATS + [attached] * BEATS) == []
