"""A job of played machines behind a real controller and API, on a thread of its own: for a browser.

Machines answer at once as real ones would, and commit a step now and then; a controller may die and
another one come, on the same ports.
"""

import asyncio
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from http_plays import TOKEN
from puppets import Puppet

from trainmover.controller import Job
from trainmover.controller.state import MachineState
from trainmover.ids import Rank, Step
from trainmover.journal import Journal
from trainmover.protocol import messages as m
from trainmover.server.history.past import Past
from trainmover.server.http.api import Api
from trainmover.server.http.roles import Role
from trainmover.server.machines.absence import AGENT_ENDED
from trainmover.server.run import Server, bind

SPEC = m.JobSpec(run_id="calm-heron", argv=["x"], machines=2, standbys=2, fingerprint_every=0)
STEP_S = 0.1
WAIT_S = 60.0

T = TypeVar("T")


class Player(Puppet):
    """One machine."""

    def obey(self, payload: bytes, order: m.Order) -> None:
        if isinstance(order, m.Die):
            self.die()
        elif isinstance(order, m.Interrupt):
            self.play(order)
            steps = [Step(step) for step in range(max(1, self.step - 20), self.step + 20)]
            held = {Rank(rank): steps for rank in range(SPEC.world_size)}
            self.say(m.VaultHeld(epoch=order.epoch, records=held))
        else:
            super().obey(payload, order)


class Living:
    """Use as a context. job: show this one instead, in which nothing happens."""

    def __init__(self, folder: Path, job: Job | None = None) -> None:
        self._folder, self._job = folder, job
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.players: list[Player] = []

    def __enter__(self) -> "Living":
        self._thread.start()
        self.do(self._begin())
        return self

    def __exit__(self, *_: object) -> None:
        self.do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()

    def do(self, what: Coroutine[Any, Any, T]) -> T:
        """On the job's thread."""
        done: Future[T] = asyncio.run_coroutine_threadsafe(what, self._loop)
        return done.result(WAIT_S)

    def address(self, role: Role = Role.OPERATOR) -> str:
        """With a code in it that is good once."""
        return f"{self.url}/#code={self.do(self._code(role))}"

    async def _code(self, role: Role) -> str:
        return self._api.roles.code(role, time.time())

    def die(self) -> None:
        """As a process that is killed: nothing is said to anybody."""
        self.do(self._die())

    def finish(self) -> None:
        """Every rank's script runs to its end."""
        self.do(self._finish())

    def lose(self, *machines: str) -> None:
        """Their agents end, which the host of the controller sees."""
        self.do(self._lose(machines))

    def stop(self, code: int, why: str) -> None:
        """As Ctrl-C does."""
        self.do(self._stop(code, why))

    def leave(self) -> None:
        """The job is over: its controller leaves once the machines have."""
        self.do(self._leave())

    def come_back(self) -> None:
        """Another controller goes on from the journal."""
        self.do(self._come_back())

    async def _begin(self) -> None:
        spec = SPEC if self._job is None else self._job.spec
        self._journal = Journal.create(self._folder / "j.sqlite", spec)
        self._port = self._api_port = 0
        await self._serve(None)
        if self._job is not None:
            self.server.control.job = self._job
            return
        for number in range(1, 5):
            player = Player(f"m{number}", self._port, standby=number > 2)
            self.players.append(player)
            await player.join(TOKEN)
        async with asyncio.timeout(WAIT_S):
            while not self._is_ready():
                await asyncio.sleep(0.01)
        self._training = asyncio.create_task(self._train())

    def _is_ready(self) -> bool:
        machines = self.server.job.machines
        warm = [
            one
            for one in machines.values()
            if one.state is MachineState.WARM and one.held is not None
        ]
        return len(warm) == SPEC.standbys

    async def _serve(self, past: Past | None) -> None:
        control, api = (bind(f"127.0.0.1:{p}", "x") for p in (self._port, self._api_port))
        self._port, self._api_port = control.getsockname()[1], api.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._api_port}"
        spec = self._journal.spec
        self.server = Server(spec, TOKEN, self._journal, past=past)
        await self.server.start(control)
        self._api = Api(self.server, TOKEN)
        await self._api.start(api)

    async def _train(self) -> None:
        """Commit a step of all ranks at once, and nothing while a change is under way.

        A machine that has not heard of the newest membership yet, such as a leaver, trains in none.
        """
        while True:
            await asyncio.sleep(STEP_S)
            job = self.server.job
            running = [
                player
                for player in self.players
                if player.running and player.epoch == job.epoch and not player.gone.is_set()
            ]
            if job.change is None and len(running) == SPEC.machines:
                for player in running:
                    player.commit(1, first=False)

    async def _finish(self) -> None:
        self._training.cancel()
        for player in self.players:
            player.finish()

    async def _lose(self, machines: tuple[str, ...]) -> None:
        for player in self.players:
            if player.machine in machines:
                player.die()
                self.server.machine_ended(player.machine, AGENT_ENDED)

    async def _stop(self, code: int, why: str) -> None:
        self.server.stop(code, why)

    async def _leave(self) -> None:
        async with asyncio.timeout(WAIT_S):
            await self.server.ended
        await self._die()

    async def _die(self) -> None:
        self.server.pulse.stop()
        self.server._listener.close()
        for link in list(self.server.links):
            link.abort()
        await self._api.close()
        await self.server.close()

    async def _come_back(self) -> None:
        self._journal.close()
        self._journal = Journal.take_over(self._folder / "j.sqlite")
        await self._serve(Past.of(self._journal))

    async def _end(self) -> None:
        if self._job is None:
            self._training.cancel()
        for player in self.players:
            player.die()
        await self._die()
        self._journal.close()
