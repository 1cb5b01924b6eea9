"""What people are told once, or seldom."""

from dataclasses import replace
from pathlib import Path

import pytest

from trainmover.controller.events import SlowFound, WorkerSaid
from trainmover.controller.policies.stragglers.known import Finding, Stragglers
from trainmover.controller.state import Job, Machine, Machines
from trainmover.ids import MachineId, Rank
from trainmover.journal import Journal
from trainmover.protocol.messages import JobSpec, Warned
from trainmover.server.history.past import Past
from trainmover.server.surroundings import Decided
from trainmover.server.view.notices import Notice
from trainmover.server.view.telling import Telling


def test_what_ranks_warn_of_in_the_same_words_is_loud_once(tmp_path: Path) -> None:
    spec = JobSpec(run_id="r", argv=["x"])
    job, notices = Job(spec), list[Notice]()
    with Journal.create(tmp_path / "journal", spec) as journal:
        telling = Telling(
            journal, Past(job), watch=notices.append, now=lambda: 0, stop=lambda *_: None
        )
        for rank, text in ((0, "it compiles"), (1, "it compiles"), (1, "other")):
            fact = Warned(rank=Rank(rank), text=text)
            event = WorkerSaid(at_us=0, machine=MachineId("m1"), local_rank=0, fact=fact)
            telling.happened(Decided(seq=1, event=event, before=job, after=job, effects=()))
    said = [(one.text, one.loud) for one in notices]  # type: ignore[union-attr]
    assert said == [
        ("rank 0: it compiles", True),
        ("rank 1: it compiles", False),
        ("rank 1: other", True),
    ]


@pytest.mark.parametrize(
    ("hosts", "loud"), [("hh", [False, False, True, False]), ("hg", [True, True, True, True])]
)
def test_slowness_by_turns_of_processes_of_one_host_is_loud_once_a_minute(
    tmp_path: Path, hosts: str, loud: list[bool]
) -> None:
    names = [MachineId("m1"), MachineId("m2")]
    each = [
        Machine(id=n, standby=False, vault="", host=h) for n, h in zip(names, hosts, strict=True)
    ]
    spec, notices = JobSpec(run_id="r", argv=["x"]), list[Notice]()
    before = Job(spec, machines=Machines({one.id: one for one in each}))
    with Journal.create(tmp_path / "journal", spec) as journal:
        telling = Telling(
            journal, Past(before), watch=notices.append, now=lambda: 0, stop=lambda *_: None
        )
        for seq, at_s in enumerate((5, 60, 66, 70)):
            found = SlowFound(
                at_us=at_s * 1_000_000, epoch=before.epoch, machine=names[seq % 2], kind="machine",
                ranks=[seq % 2], step=9, steps=7, own_ms=140, usual_ms=100,
            )  # fmt: skip
            known = Stragglers(findings=(Finding(found, "nothing is done"),))
            after = replace(before, stragglers=known)
            telling.happened(Decided(seq, event=found, before=before, after=after, effects=()))
    assert [one.loud for one in notices] == loud  # type: ignore[union-attr]
    assert all("is slow" in one.text for one in notices)  # type: ignore[union-attr]
