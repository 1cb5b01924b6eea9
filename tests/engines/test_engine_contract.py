"""What every engine does, the simulator's included."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.engines import fake_slurm
from tests.engines.beds import Bed, RealBed, SimulatedBed
from trainmover.engines.local import Local
from trainmover.engines.slurm import Slurm
from trainmover.launch.runs import Run, process_started


def run_of(folder: Path) -> Run:
    """A run whose controller answers nobody: agents wait for it."""
    token = folder / "token"
    token.write_text("a token of more than enough characters")
    token.chmod(0o600)
    started = process_started(os.getpid())
    assert started is not None
    return Run(
        run_id="contract", api_url="http://127.0.0.1:9", host="h", pid=os.getpid(),
        started=started, directory=str(folder), token_file=str(token), journal="",
    )  # fmt: skip


@pytest.fixture
def controller() -> Iterator[str]:
    """One that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield "{}:{}".format(*listener.getsockname())


@pytest.fixture(params=["local", "slurm", "simulated"])
def bed(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    controller: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Bed]:
    if request.param == "simulated":
        yield SimulatedBed()
        return
    run = msgspec.structs.replace(run_of(tmp_path), controller=controller)
    for name, value in fake_slurm.install(tmp_path / "slurm", nodes=4).items():
        monkeypatch.setenv(name, value)
    real = RealBed(lambda: Local(run) if request.param == "local" else Slurm(run))
    yield real
    real.wants, real.held = {}, set()
    real.engine.close()
    real.until(lambda: not real.engine.look())


class TestContract:
    def test_what_is_wanted_is_started_once_and_granted(self, bed: Bed) -> None:
        bed.ask(1, "m1", "m2")
        bed.until(lambda: bed.granted.keys() >= {"m1", "m2"})
        assert bed.running() == {"m1", "m2"}
        assert len(set(bed.granted.values())) == 2

    def test_another_want_is_taken_up_beside_the_first(self, bed: Bed) -> None:
        bed.ask(1, "m1")
        bed.ask(2, "m2", standby=True)
        bed.until(lambda: len(bed.granted) == 2)
        bed.ask(3, "m3", standby=True)
        bed.until(lambda: "m3" in bed.granted)
        assert bed.running() == {"m1", "m2", "m3"}

    def test_what_is_not_held_any_more_is_ended(self, bed: Bed) -> None:
        bed.ask(1, "m1", "m2")
        bed.until(lambda: len(bed.granted) == 2)
        bed.held.discard("m1")
        bed.until(lambda: bed.running() == {"m2"})

    def test_who_asks_again_gets_nothing_twice(self, bed: Bed) -> None:
        bed.ask(1, "m1")
        bed.until(lambda: "m1" in bed.granted)
        node = bed.granted["m1"]
        bed.begin()
        bed.ask(2, "m2")
        bed.until(lambda: "m2" in bed.granted)
        assert bed.running() == {"m1", "m2"}
        assert bed.granted["m1"] == node


class TestSlurm:
    @pytest.fixture
    def cluster(self, bed: Bed, tmp_path: Path) -> Path:
        return tmp_path / "slurm"

    pytestmark = pytest.mark.parametrize("bed", ["slurm"], indirect=True)

    def test_a_full_cluster_tells_the_place(self, bed: Bed, cluster: Path) -> None:
        bed.ask(1, *(f"m{number}" for number in range(1, 7)))
        bed.until(lambda: len(bed.granted) == 4 and set(bed.places.values()) == {1, 2})

    def test_a_drained_node_is_told_with_its_reason(self, bed: Bed, cluster: Path) -> None:
        bed.ask(1, "m1")
        bed.until(lambda: "m1" in bed.granted)
        with fake_slurm.Cluster.locked(cluster) as known:
            known.set_node(bed.granted["m1"], "draining", "xid 79")
        bed.until(lambda: bed.notices.get("m1") == "drain")

    def test_a_time_limit_is_told_while_there_is_time(self, bed: Bed, cluster: Path) -> None:
        bed.ask(1, "m1")
        bed.until(lambda: "m1" in bed.granted)
        with fake_slurm.Cluster.locked(cluster) as known:
            ((key, job),) = known.jobs.items()
            known.keep(key, job | {"left": "1:10"})
        bed.until(lambda: bed.notices.get("m1") == "time limit")

    def test_a_full_queue_is_a_denial(self, bed: Bed, cluster: Path) -> None:
        (cluster / "full").touch()
        bed.ask(1, "m1")
        bed.until(lambda: bed.denied[:1] == ["quota"])
        (cluster / "full").unlink()
        bed.ask(1, "m1", tries=2)
        bed.until(lambda: "m1" in bed.granted)

    def test_nothing_follows_from_a_scheduler_that_is_silent(self, bed: Bed, cluster: Path) -> None:
        bed.ask(1, "m1")
        bed.until(lambda: "m1" in bed.granted)
        (cluster / "hangs").touch()
        assert isinstance(bed, RealBed)
        bed.adapter.turn()
        assert not bed.notices
        (cluster / "hangs").unlink()

    def test_a_machine_that_ends_at_once_is_told_of(self, bed: Bed, cluster: Path) -> None:
        assert isinstance(bed, RealBed)
        Path(bed.engine._script).write_text("#!/bin/sh\necho no such python; exit 1\n")  # type: ignore[attr-defined]
        bed.ask(1, "m1")
        bed.until(lambda: bed.notices.get("m1") == "gone")
        assert bed.engine.words("m1") == "no such python"
