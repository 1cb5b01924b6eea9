"""The real server and real links of agents, over which nothing comes for a while, in neither
direction; the workers are puppets that train on."""

import asyncio
from pathlib import Path

import pytest
from puppets import Puppet

from trainmover.controller.state import MachineState
from trainmover.ids import MachineId
from trainmover.journal import Journal
from trainmover.protocol import messages as m
from trainmover.server.run import Server, bind

TOKEN = b"0123456789abcdef-token"
WAIT_S = 60.0


class Stage:
    """machines hold ranks, one more stands by; the links of those in `through` stall."""

    def __init__(self, folder: Path, machines: int, through: list[str]) -> None:
        self.spec = m.JobSpec(
            run_id="r", argv=["x"], machines=machines, standbys=1, nproc=1, fingerprint_every=0
        )
        self.path, self.through = folder / "j.sqlite", through

    def play(self, stall_s: float) -> None:
        asyncio.run(asyncio.wait_for(self._play(stall_s), WAIT_S + stall_s))

    async def _play(self, stall_s: float) -> None:
        with Journal.create(self.path, self.spec) as journal:
            self.server = Server(self.spec, TOKEN, journal)
            listener = bind("127.0.0.1:0", "the test")
            port = listener.getsockname()[1]
            await self.server.start(listener)
            names = [f"m{number + 1}" for number in range(self.spec.machines + 1)]
            self.puppets = [
                await Puppet(name, port, standby=name == names[-1]).join(TOKEN) for name in names
            ]
            try:
                await self._blip(stall_s)
            finally:
                for puppet in self.puppets:
                    puppet.die()
                await self.server.close()

    async def _blip(self, stall_s: float) -> None:
        while not self._all_train():
            await asyncio.sleep(0.01)
        transports = self._transports()
        for one in transports:
            one.pause_reading()
        await self._train(min(stall_s, 2.0))
        assert set(self.server.control.absence.quiet) == set(self.through)
        await self._train(max(0.0, stall_s - 2.0))
        for one in transports:
            if not one.is_closing():
                one.resume_reading()
        while self.server.control.absence.quiet or any(
            p.up._letters.outbox.kept for p in self.puppets
        ):
            await self._train(0.05)

    def _transports(self) -> list[asyncio.Transport]:
        """Both ends of the links that stall."""
        links = [self.server.control.members[MachineId(name)] for name in self.through]
        links += [p.up._link for p in self.puppets if p.machine in self.through]  # type: ignore[misc]
        return [link._transport for link in links]  # type: ignore[attr-defined]

    async def _train(self, for_s: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + for_s
        while loop.time() < end:
            for puppet in self.puppets:
                if puppet.running:
                    puppet.commit(1, first=False)
            await asyncio.sleep(0.05)

    def _all_train(self) -> bool:
        job = self.server.job
        warm = [one for one in job.machines.values() if one.state is MachineState.WARM]
        return job.all_recorded and len(warm) == 1


ALL = ["m1", "m2", "m3", "m4", "m5"]


@pytest.mark.turns(4)
@pytest.mark.parametrize(
    ("machines", "through", "stall_s"),
    [(2, ALL[:3], 1.3), (4, ALL, 1.3), (4, ["m2", "m3"], 1.3), (4, ["m2", "m3"], 8.0)],
    ids=["all of two", "all of four", "two neighbours", "two that dial anew"],
)
def test_links_that_stall_end_nobody(
    tmp_path: Path, machines: int, through: list[str], stall_s: float
) -> None:
    stage = Stage(tmp_path, machines, through)
    stage.play(stall_s)
    job = stage.server.job
    assert (job.incidents, job.code, len(job.machines)) == ((), None, machines + 1)
    assert all(len(puppet.heard) == 1 for puppet in stage.puppets), "nobody has begun anew"
    with Journal.open(stage.path) as journal:
        steps = [row.step for row in journal.rows()]
    each = len(steps) // machines
    assert steps == [*range(1, each + 1)] * machines, "each row came exactly once"
