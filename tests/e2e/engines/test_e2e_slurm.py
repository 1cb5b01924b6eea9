"""Jobs whose machines Slurm starts and replaces: the same numbers, whatever becomes of nodes."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from harness import Live, Outcomes, assert_equal_runs, run

from tests.engines import fake_slurm
from tests.engines.real_slurm import RealSlurm, lacking
from trainmover.controller.state import Outcome, Trigger

NODES = 4
SECRET = "a-token-that-is-easy-to-find-0123456789"


class FakeCluster:
    """As `RealSlurm`, of scripts and names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = fake_slurm.install(folder / "slurm", NODES)

    def drain(self, node: str, reason: str) -> None:
        with fake_slurm.Cluster.locked(self.folder / "slurm") as known:
            known.set_node(node, "draining", reason)

    def power_off(self, node: str) -> None:
        with fake_slurm.Cluster.locked(self.folder / "slurm") as known:
            pid = next(job["pid"] for job in known.jobs.values() if job["node"] == node)
            known.set_node(node, "down", "no answer")
        os.killpg(pid, signal.SIGKILL)

    def stop(self) -> None:
        with fake_slurm.Cluster.locked(self.folder / "slurm") as known:
            for job in known.jobs.values():
                os.killpg(job["pid"], signal.SIGKILL)

    def words(self) -> str:
        files = [path for path in (self.folder / "slurm").rglob("*") if path.is_file()]
        return "\n".join(path.read_text(errors="replace") for path in files)


@pytest.fixture(params=["fake", "real"])
def cluster(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeCluster | RealSlurm]:
    if request.param == "real" and (missing := lacking()):
        pytest.skip(f"a real Slurm needs {', '.join(missing)} here: make engines")
    folder = tmp_path / "cluster"
    folder.mkdir()
    made = FakeCluster(folder) if request.param == "fake" else RealSlurm(folder, NODES)
    if isinstance(made, RealSlurm):
        made.start()
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    yield made
    made.stop()


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.token"
    path.write_text(SECRET)
    path.chmod(0o600)
    return path


def node_of(live: Live, machine: str) -> str:
    return live.job.capacity.grants[machine].node


async def granted(live: Live, *machines: str) -> None:
    """Until the job knows on which nodes they run."""
    grants = lambda: live.job.capacity.grants  # noqa: E731
    await live.until(lambda: all(m in grants() and grants()[m].node for m in machines))


def on_slurm(scenario: Callable[[Live], object], **others: object) -> Outcomes:
    return run(
        ["--pace", "0.02"], scenario, until_done=True, machines=2, standbys=1,  # type: ignore[arg-type]
        engine="slurm", bind="127.0.0.1:0", **others,
    )  # fmt: skip


def test_a_node_is_drained_and_another_one_dies(
    cluster: FakeCluster | RealSlurm,
    undisturbed: Callable[..., Outcomes],
    token_file: Path,
) -> None:
    found: list[str] = []

    async def scenario(live: Live) -> None:
        await live.holding()
        await granted(live, "m1", "m2", "m3")
        found.extend(await asyncio.to_thread(found_in, cluster, SECRET))
        cluster.drain(node_of(live, "m1"), "xid-79")
        await live.incidents_done(1)
        await live.until(lambda: "m1" not in live.job.machines)
        await live.warm()
        await granted(live, "m4")
        cluster.power_off(node_of(live, "m2"))
        await live.incidents_done(2)
        await live.until(lambda: bool(live.job.capacity.wants))

    outcome = on_slurm(scenario, token_file=token_file)
    first, second = outcome.job.incidents
    assert (first.trigger, first.outcome, first.machine) == (Trigger.DRAIN, Outcome.DONE, "m1")
    assert "xid-79" in first.cause
    assert (second.outcome, second.machine, second.joiner) == (Outcome.DONE, "m2", "m4")
    assert found == []
    assert_equal_runs(outcome, undisturbed(["--steps", outcome.steps], machines=2))


def found_in(cluster: FakeCluster | RealSlurm, secret: str) -> list[str]:
    """Where the secret is that must be in its file only: the scheduler's words and files, and what
    processes of this host were started with."""
    known = [what for what, text in {"slurm": cluster.words()}.items() if secret in text]
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        with suppress(psutil.Error):
            started_with = [*process.cmdline(), *process.environ().values()]
            known += [f"process {process.pid}"] if secret in " ".join(started_with) else []
    return known


def test_a_cancelled_job_is_a_planned_move_and_the_job_ends_well(
    cluster: FakeCluster | RealSlurm, undisturbed: Callable[..., Outcomes]
) -> None:
    async def scenario(live: Live) -> None:
        await live.holding()
        await granted(live, "m1", "m2", "m3")
        job = "1_1"  # The first array of a fresh cluster, and its first machine.
        process = await asyncio.create_subprocess_exec("scancel", job)
        await process.wait()
        await live.incidents_done(1)
        await live.until(lambda: "m4" in live.job.machines)

    outcome = on_slurm(scenario)
    (first,) = outcome.job.incidents
    assert (first.trigger, first.machine) == (Trigger.NOTICE, "m1")
    assert outcome.code == 0
    assert_equal_runs(outcome, undisturbed(["--steps", outcome.steps], machines=2))
