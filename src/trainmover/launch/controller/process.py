# SPDX-License-Identifier: Apache-2.0
"""The controller of a run as a child of the supervisor; another takes its place when it dies, or
when it stands still for too long and is killed for that."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable

import msgspec

from trainmover.errors import JobFailed
from trainmover.launch.controller.channel import (
    Ask,
    Begin,
    Channel,
    Heard,
    Over,
    Ready,
    ToController,
)
from trainmover.launch.controller.silence import LOOK_S, Silence, state_of
from trainmover.launch.place import RunPlace
from trainmover.lifeline import when_ended

DEATHS_MAX = 5
DEATHS_S = 60.0
END_S = 10.0


class ControllerProcess:
    """One process after another, in a session of its own: a Ctrl-C at the terminal is for the
    supervisor, which tells it.

    watch  whether one that stands still is replaced
    over   done when the job is over (exit status), or fails when no controller stays alive
    """

    def __init__(
        self, place: RunPlace, *, json: bool, watch: bool, over: asyncio.Future[int]
    ) -> None:
        self._place = place
        self._json = json
        self._watch = watch
        self._over = over
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._unwatch: Callable[[], None] | None = None
        self._gone = asyncio.Event()
        self._begin: Begin | None = None
        self._unheard: list[ToController] = []
        self._said = 0
        self._deaths: deque[float] = deque(maxlen=DEATHS_MAX)
        self._published = False
        self._heard_us = 0
        self._killed = ""
        self._ready = self._asked = False
        self._silence = Silence()
        self._looking: asyncio.TimerHandle | None = None
        self._memory = os.memfd_create("journal")  # What a full disk does not take: see `Memory`.

    def start(self) -> None:
        """It imports, and waits for `begin` before it looks at anything."""
        self._channel, theirs = Channel.pair()
        with theirs:
            self._process = self._execute(theirs.fileno())
        self._gone.clear()
        self._ready = self._asked = False
        self._silence = Silence()
        loop = asyncio.get_running_loop()
        self._unwatch = when_ended(loop, self._process.pid, self._died)
        loop.add_reader(self._channel, self._hear)
        self._say_all()
        if self._watch:
            self._looking = loop.call_later(LOOK_S, self._look)

    def begin(self, notes: list[str]) -> None:
        """Everything it needs is there."""
        self._begin = Begin(notes=notes)
        self._say_all()

    def _say_all(self) -> None:
        if self._channel is None or self._begin is None:
            return
        self._channel.say(self._begin)
        for message in self._unheard:
            self._channel.say(message)

    def tell(self, message: ToController) -> None:
        """This one, or the next if it dies before it has heard."""
        self._said += 1
        numbered = msgspec.structs.replace(message, number=self._said)
        self._unheard.append(numbered)
        if self._channel is not None and self._begin is not None:
            self._channel.say(numbered)

    async def ended(self) -> None:
        """Once the process has ended by itself; not for ever."""
        if self._process is not None:
            try:
                await asyncio.wait_for(self._gone.wait(), END_S)
            except TimeoutError:
                return

    async def stop(self) -> None:
        """End what is left. A process that hangs in the kernel, as on a disk, is left to it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            try:
                self._process.wait(END_S)
            except subprocess.TimeoutExpired:
                print(_hangs(self._process.pid), file=sys.stderr)
            self._let_go()
        os.close(self._memory)

    def _execute(self, channel: int) -> "subprocess.Popen[bytes]":
        place = self._place
        shared = {
            "--supervisor": channel,
            "--control": place.control.fileno(),
            "--api": place.api.fileno(),
            "--journal-memory": self._memory,
        }
        if place.checkpoints is not None:
            shared["--checkpoint-lock"] = place.checkpoints.lock
        command = [sys.executable, "-P", "-m", "trainmover", "controller"]
        command += ["--run-dir", place.run.directory, "--parent", str(os.getpid())]
        command += ["--json"] * self._json
        for flag, descriptor in shared.items():
            command += [flag, str(descriptor)]
        return subprocess.Popen(
            command,
            env=os.environ | {"TRAINMOVER_RUN_ID": place.run.run_id},
            stdin=subprocess.DEVNULL,
            pass_fds=tuple(shared.values()),
            start_new_session=True,
        )

    def _look(self) -> None:
        """Whether it still does anything; one question is open at most."""
        assert self._process is not None
        assert self._channel is not None
        why = self._silence.looked(state_of(self._process.pid), expected=self._asked)
        if why and not self._over.done():
            self._killed = why
            self._process.send_signal(signal.SIGKILL)
            return
        if self._ready and not self._asked:
            self._asked = True
            self._channel.say(Ask())
        self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _hear(self) -> None:
        assert self._channel is not None
        try:
            messages = self._channel.heard()
        except OSError:
            asyncio.get_running_loop().remove_reader(self._channel)
            return
        for message in messages:
            self._asked = False
            self._silence.broken()
            self._heard_us = time.time_ns() // 1000
            match message:
                case Ready():
                    self._ready = True
                    if not self._published:
                        self._published = True
                        self._place.directory.publish(self._place.run)
                case Heard(number=number):
                    self._unheard = [one for one in self._unheard if one.number > number]
                case Over(code=code) if not self._over.done():
                    self._over.set_result(code)

    def _died(self) -> None:
        assert self._process is not None
        code = self._process.wait()
        self._hear()  # Its last words.
        self._let_go()
        if self._over.done():
            return
        if code >= 0 and not self._published:
            self._over.set_exception(_never_began(code))
            return
        now = asyncio.get_running_loop().time()
        if len(self._deaths) == DEATHS_MAX and now - self._deaths[0] < DEATHS_S:
            self._over.set_exception(_given_up(code))
            return
        self._deaths.append(now)
        killed, self._killed = self._killed, ""
        if self._begin is not None:
            lost_us = self._heard_us if killed and self._heard_us else time.time_ns() // 1000
            self._begin = msgspec.structs.replace(self._begin, lost_us=lost_us, killed=killed)
        self.start()

    def _let_go(self) -> None:
        loop = asyncio.get_running_loop()
        assert self._channel is not None
        if self._looking is not None:
            self._looking.cancel()
        if self._unwatch is not None:
            self._unwatch()
        loop.remove_reader(self._channel)
        self._channel.close()
        self._process = self._channel = None
        self._gone.set()


def _hangs(pid: int) -> str:
    return (
        f"trainmover: the controller (pid {pid}) was killed {END_S:.0f} s ago and has not ended:\n"
        "it hangs in the kernel. The run ends without it.\n"
        "Look at the disks that it writes to (--checkpoint, --journal)."
    )


def _given_up(code: int) -> JobFailed:
    how = f"signal {-code}" if code < 0 else f"exit status {code}"
    return JobFailed(
        f"The controller has ended more than {DEATHS_MAX} times within {DEATHS_S:.0f} s ({how}).",
        means="The job has ended: nobody could decide what is next.",
        do="Its output above says why. Go on from a checkpoint (--resume), if there is one.",
    )


def _never_began(code: int) -> JobFailed:
    return JobFailed(
        f"The controller could not begin (exit status {code}).",
        means="The job has ended: another one would do no better.",
        do="Its output above says why.",
    )
