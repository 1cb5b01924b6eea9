"""What watching costs: nothing of a worker, and of the controller's loop little, for any number.

Times are compared with others of the same moment, or told by
`python tests/server/api/test_http_cost.py`.
"""

import asyncio
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from http_jobs import commit, training
from http_plays import AUTH, TOKEN, V1, play, serving

from trainmover.controller import Job
from trainmover.controller.compare.known import Divergence
from trainmover.controller.standstill.stuck import Standstill
from trainmover.controller.state import Change, Kind, Stage
from trainmover.ids import Epoch, MachineId, Rank, Slot, Step
from trainmover.protocol.messages import KeepSnapshots, Stands, Watched, Weighed
from trainmover.server.http import stream, types
from trainmover.server.http.metrics import Metrics
from trainmover.server.http.stream import Feed
from trainmover.server.run import Server


def waiting() -> Job:
    """Much at once: a recovery that waits, a checkpoint, ranks that parted, one that stands."""
    job = training(4, 2)
    change = Change(
        kind=Kind.RECOVERY, epoch=Epoch(3), stage=Stage.DRAIN, incident=1, joiners={Slot(0): M5},
        leavers={Slot(0): MachineId("m1")}, missing=frozenset({Slot(1)}), until_us=10**18,
    )  # fmt: skip
    divergence = Divergence(Step(8), Step(4), (Rank(0), Rank(1)), (Rank(1),), (("w",), ()), (M5,))
    comparison = replace(job.comparison, step=Step(8), divergences=(divergence,))
    spec = msgspec.structs.replace(job.spec, checkpoint="/c", checkpoint_every=5)
    standing = Stands(
        rank=Rank(2), epoch=Epoch(2), step=Step(1), where="script", place="train.py line 3",
        counts={}, call="", still_ms=900, deadline_ms=500,
    )  # fmt: skip
    hanging = replace(job.hanging, stands={Rank(2): Standstill(standing, 0)})
    return replace(job, spec=spec, change=change, comparison=comparison, hanging=hanging)


M5 = MachineId("m5")


@pytest.mark.parametrize("job", [training(4, 2), training(2, 0, incidents=0), waiting()])
def test_a_status_and_an_incident_are_what_their_types_say(tmp_path: Path, job: Job) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        server.pulse.stop()
        commit(server, 1, first=True)
        for rank in map(Rank, range(job.spec.world_size)):
            told = Watched(rank=rank, deadline_ms=500)
            server.told(M5, told)
            server.told(M5, Weighed(rank=rank, kinds={"state": 1}, rss=2, peak=3))
        status = (await client.get(f"{V1}/status")).json()
        assert as_declared(types.Status, status) == status
        for number in range(1, len(job.incidents) + 1):
            incident = (await client.get(f"{V1}/incidents/{number}")).json()
            assert as_declared(types.IncidentOf, incident) == incident
        beat = json.loads(Feed(server).pulse().partition(b"data: ")[2])
        assert as_declared(types.Pulse, beat) == beat
        server.note("news")
        for one in (await client.get(f"{V1}/events")).json():
            assert as_declared(types.Entry, one) == one

    play(tmp_path, act, job)


def as_declared(kind: Any, value: Any) -> Any:
    """Read by its type, where a field that is not declared is left away, and one that is not there
    an error."""
    read = msgspec.convert(value, kind)
    return json.loads(msgspec.json.encode(read))


def test_nothing_that_is_asked_over_http_is_asked_of_a_machine(tmp_path: Path) -> None:
    """A worker does what it is told: so it does not know whether anybody looks."""

    class Machine:
        machine, quiet_ticks, heard_us, relay = "m1", 0, 0, None

        def __init__(self) -> None:
            self.sent: list[object] = []

        def send(self, order: object) -> None:
            self.sent.append(order)

        def close(self) -> None: ...

        def abort(self) -> None: ...

    async def act(server: Server, client: httpx.AsyncClient) -> None:
        server.pulse.stop()
        link = Machine()
        server.control.members["m1"] = link  # type: ignore[index,assignment]
        for _ in range(3):
            for path in (
                "/metrics",
                "/healthz",
                f"{V1}/status",
                f"{V1}/events",
                f"{V1}/incidents/1",
            ):
                assert (await client.get(path)).status_code == 200
            Feed(server).pulse()
        assert not [one for one in link.sent if not isinstance(one, KeepSnapshots)]

    play(tmp_path, act, training(4, 2))


def test_a_status_is_made_once_for_who_asks_together(tmp_path: Path) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        made: list[int] = []
        status = server.status

        def counted() -> dict[str, object]:
            made.append(1)
            return status()

        server.status = counted  # type: ignore[method-assign,assignment]
        feed = Feed(server, now_s=lambda: 1.0)
        assert len({feed.status() for _ in range(50)}) == 1
        assert len(made) == 1
        server.note("something has happened")
        assert json.loads(feed.status())["seq"] == 1
        assert len(made) == 2

    play(tmp_path, act, training(4, 2))


async def measure(machines: int, streams: int, seconds: float, folder: Path) -> dict[str, float]:
    """Milliseconds of processor a call, and the part of a core that the controller takes."""
    async with serving(folder / f"{machines}.sqlite", training(machines, 4)) as (server, url):
        for step in range(1, 80):
            commit(server, step, first=step == 1)
        took = {}
        for name, act in (
            ("status_ms", lambda: msgspec.json.encode(server.status())),
            ("metrics_ms", Metrics(server).text),
            ("pulse_ms", lambda: stream.pulse(server)),
        ):
            begun = time.process_time()
            for _ in range(10):
                act()
            took[name] = (time.process_time() - begun) * 100
        reader = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "read", url, str(streams), str(seconds),
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        idle = time.process_time()
        await asyncio.sleep(1.0)
        idle = time.process_time() - idle
        assert reader.stdout is not None
        await reader.stdout.readline()
        begun, spent, step = time.monotonic(), time.process_time(), 80
        while time.monotonic() - begun < seconds:
            await asyncio.sleep(0.5)
            server.note(f"step {step}")
            step += 1
        took["core"] = (time.process_time() - spent) / (time.monotonic() - begun)
        reader.kill()
        await reader.communicate()
        return took


async def read(url: str, streams: int, seconds: float) -> None:
    async def one() -> None:
        headers = AUTH | {"Accept": "text/event-stream"}
        async with (
            httpx.AsyncClient(
                base_url=url, headers=headers, trust_env=False, timeout=None
            ) as client,
            client.stream("GET", f"{V1}/events?pulse=true") as reply,
        ):
            async for _ in reply.aiter_raw():
                pass

    async def scrape() -> None:
        async with httpx.AsyncClient(base_url=url, headers=AUTH, trust_env=False) as client:
            while True:
                await client.get("/metrics")
                await asyncio.sleep(1.0)

    async with asyncio.TaskGroup() as group:
        for _ in range(streams):
            group.create_task(one())
        await asyncio.sleep(0.5)
        print("ready", flush=True)
        group.create_task(scrape())


if __name__ == "__main__":
    if sys.argv[1:2] == ["read"]:
        asyncio.run(read(sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
    else:
        import tempfile

        assert TOKEN
        for machines, streams in ((4, 0), (4, 10), (1000, 0), (1000, 10)):
            with tempfile.TemporaryDirectory() as folder:
                print(
                    machines, streams, asyncio.run(measure(machines, streams, 10.0, Path(folder)))
                )
