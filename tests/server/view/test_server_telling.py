"""What people are told once."""

from pathlib import Path

from trainmover.controller.events import WorkerSaid
from trainmover.controller.state import Job
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
