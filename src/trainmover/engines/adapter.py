# SPDX-License-Identifier: Apache-2.0
"""The loop between a job and its engine: compare what is wanted with what there is, and tell.

    wants, held <- API            start what is wanted and not there, end what is neither
    look()      <- engine         tell what runs, what waits and in which place, what will be taken

What was told is told again by another adapter; the job takes each thing once.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from trainmover.controller.policies.capacity.known import NoticeKind
from trainmover.engines.engine import Denied, Engine, Notice, Seen, State, Unreachable

TELL_AGAIN_S = 10.0
"""From one notice of a machine to the next: what is left of its time is newer then."""


class Job(Protocol):
    """What an adapter needs of the controller's API."""

    def wants(self, after: int, within_s: float) -> dict[str, Any]: ...
    def grants(self, said: dict[str, Any]) -> None: ...
    def notice(self, said: dict[str, Any]) -> None: ...


class Adapter:
    """One engine for one job. `turn` does all that is to be done now."""

    def __init__(self, job: Job, engine: Engine, now: Callable[[], float] = time.monotonic) -> None:
        self._job, self._engine, self._now = job, engine, now
        self._version = -1
        self._tries: dict[str, int] = {}  # Name -> the try that it was started for.
        self._begun: set[str] = set()
        self._granted: set[str] = set()
        self._queued: dict[str, Seen] = {}
        self._noticed: dict[str, tuple[Notice, float]] = {}

    def run(self, stopped: Callable[[], bool]) -> None:
        """Serve until the job is over, or until somebody says so. Raises PeerLost."""
        while not stopped() and self.turn():
            pass

    def close(self) -> None:
        """End all machines of the run."""
        self._engine.close()

    def turn(self) -> bool:
        """Whether the job goes on. Waits for news up to the engine's usual time."""
        known = self._job.wants(self._version, 0.0 if self._version < 0 else self._engine.look_s)
        if known["over"]:
            return False
        try:
            seen = self._engine.look()
        except Unreachable:
            return True  # Nothing is concluded from silence. The version stays what it was.
        self._version = known["version"]
        self._begun = set(self._tries)
        self._end_others(known, seen)
        denied = [said for want in known["wants"] if (said := self._start(want, seen))]
        self._tell(known, seen, denied)
        return True

    def _start(self, want: Mapping[str, Any], seen: dict[str, Seen]) -> dict[str, Any] | None:
        """Start what is not there yet. What was denied, or nothing."""
        tries = want["tries"]
        if want["waits"]:
            return None
        old = [n for n in want["names"] if n in seen and self._tries.get(n, tries) < tries]
        stale = [name for name in old if seen[name].state is State.QUEUED]
        if stale:  # Other nodes will do by now.
            self._engine.end(stale)
        names = [n for n in want["names"] if n in stale or n not in seen]
        names = [name for name in names if self._tries.get(name, 0) < tries]
        if not names:
            return None
        try:
            self._engine.start(names, standby=want["standby"], avoid=want["avoid"])
        except Denied as error:
            return {
                "want": want["number"],
                "why": str(error.why),
                "text": error.text,
                "retry_s": error.retry_s,
            }
        self._tries.update(dict.fromkeys(names, tries))
        return None

    def _end_others(self, known: Mapping[str, Any], seen: dict[str, Seen]) -> None:
        """What is neither wanted nor held is nobody's."""
        named = {name for want in known["wants"] for name in want["names"]} | {*known["held"]}
        if others := [name for name in seen if name not in named]:
            self._engine.end(others)
        for name in [name for name in self._tries if name not in named]:
            del self._tries[name]

    def _tell(
        self, known: Mapping[str, Any], seen: dict[str, Seen], denied: list[dict[str, Any]]
    ) -> None:
        wanted = {name for want in known["wants"] for name in want["names"]}
        # What was started before this look, and is not there, has run: that it is gone is told too.
        short = {n for n in wanted & self._begun if n not in seen}
        fresh = {n for n, one in seen.items() if one.state is State.RUNNING} | short
        fresh = {n for n in fresh if n in wanted | {*known["held"]} and n not in self._granted}
        queued = {n: one for n, one in seen.items() if one.state is State.QUEUED and n in wanted}
        if fresh or denied or queued != self._queued:
            nodes = {n: seen[n].node if n in seen else "" for n in fresh}
            self._job.grants(
                {
                    "granted": [{"machine": n, "node": nodes[n]} for n in sorted(fresh)],
                    "denied": denied,
                    "queued": [
                        {"machine": n, "place": one.place, "why": one.why}
                        for n, one in sorted(queued.items())
                    ],
                }
            )
        self._granted |= fresh
        self._queued = queued
        self._tell_notices({*known["held"]} | short, seen)

    def _gone(self, name: str) -> Notice:
        return Notice(NoticeKind.GONE, why=self._engine.words(name))

    def _tell_notices(self, held: set[str], seen: dict[str, Seen]) -> None:
        for name in held:
            notice = seen[name].notice if name in seen else self._gone(name)
            if notice is None:
                self._noticed.pop(name, None)
                continue
            before, told_s = self._noticed.get(name, (None, 0.0))
            again = notice.left_s > 0 and self._now() - told_s >= TELL_AGAIN_S
            if before is not None and before.kind is notice.kind and not again:
                continue
            self._noticed[name] = notice, self._now()
            said = {"machine": name, "kind": str(notice.kind), "text": notice.why[:500]}
            self._job.notice(said | {"left_s": max(notice.left_s, 0.0)})
