"""`trainmover memory`: kinds that somebody has become columns, machines say what they keep."""

from trainmover.cli.console import Terminal
from trainmover.cli.watch.memory import show
from trainmover.controller import Job
from trainmover.controller.state import Machine
from trainmover.ids import MachineId, Rank
from trainmover.protocol.messages import Heartbeat, JobSpec, Weighed
from trainmover.server.view.memory import memory_json
from trainmover.server.view.progress import Progress

M1 = MachineId("m1")


def shown(progress: Progress) -> list[str]:
    machine = Machine(id=M1, standby=False, vault="", host="h")
    job = Job(spec=JobSpec(run_id="r", argv=[]), machines={M1: machine}, seats=(M1,))
    console = Terminal(width=120, record=True, file=None, quiet=False)
    with console.capture() as captured:
        show(memory_json(job, progress), console)
    return [" ".join(line.split()) for line in captured.get().splitlines()]


def test_kinds_are_columns_and_the_newest_word_counts() -> None:
    progress = Progress()
    for rss in (1, 3_000_000):
        kinds = {"state": 2_000_000, "record": 999}
        progress.note(Weighed(rank=Rank(0), kinds=kinds, rss=rss, peak=4_000_000))
    progress.vaults[M1] = Heartbeat(vault_bytes=5_000, vault_max=10**9)
    assert shown(progress) == [
        "RANK MACHINE STATE RECORD PROCESS PEAK",
        "0 m1 2.0 MB 999 B 3.0 MB 4.0 MB",
        "MACHINE KEPT FOR OTHERS AT MOST",
        "m1 5.0 kB 1.0 GB",
    ]


def test_before_the_first_steps_nothing_is_known() -> None:
    assert shown(Progress())[0] == "No rank has made its first steps yet."
