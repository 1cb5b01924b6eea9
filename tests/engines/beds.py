"""Engines to be tested, each with a job that wants what a test says, and says what it was told."""

import random
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from trainmover.controller.events import EngineNoticed, MachinesDenied, MachinesGranted
from trainmover.controller.policies.capacity.known import Capacity, Grant, Need, Want
from trainmover.engines.adapter import Adapter
from trainmover.engines.engine import Engine
from trainmover.simulator.places import engine as simulated

WITHIN_S = 30.0


class Bed:
    """wants: number -> the names, whether they are standbys, tries. held: names. What was told:
    granted: name -> its node, and how often; gone, denied, places, notices."""

    def __init__(self) -> None:
        self.wants: dict[int, tuple[list[str], bool, int]] = {}
        self.held: set[str] = set()
        self.granted: dict[str, str] = {}
        self.grants = 0
        self.denied: list[str] = []
        self.places: dict[str, int] = {}
        self.notices: dict[str, str] = {}

    def ask(self, number: int, *names: str, standby: bool = False, tries: int = 1) -> None:
        self.wants[number] = ([*names], standby, tries)

    def take(self, name: str, node: str) -> None:
        self.granted[name], self.grants = node, self.grants + 1
        for number, (names, standby, tries) in list(self.wants.items()):
            if name in names:
                self.held.add(name)
                self.wants[number] = [n for n in names if n != name], standby, tries

    def until(self, fact: Callable[[], bool]) -> None:
        raise NotImplementedError

    def running(self) -> set[str]:
        raise NotImplementedError


class RealBed(Bed):
    """An engine of the package behind the adapter that runs jobs."""

    def __init__(self, make: Callable[[], Engine]) -> None:
        super().__init__()
        self.make = make
        self.begin()

    def begin(self) -> None:
        """Another adapter, which knows nothing."""
        self.engine = self.make()
        self.engine.look_s = 0.05
        self.adapter = Adapter(_Job(self), self.engine)

    def until(self, fact: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not fact():
            assert time.monotonic() < deadline, (self.__dict__, self.engine.look())
            self.adapter.turn()

    def running(self) -> set[str]:
        return {name for name, one in self.engine.look().items() if one.state == "running"}

    def wants_json(self) -> list[dict[str, Any]]:
        return [
            {"number": number, "names": names, "standby": standby, "avoid": [], "tries": tries,
             "waits": False}
            for number, (names, standby, tries) in self.wants.items()
        ]  # fmt: skip

    def grants_said(self, said: dict[str, Any]) -> None:
        for one in said["granted"]:
            self.take(one["machine"], one["node"])
        self.denied += [one["why"] for one in said["denied"]]
        self.places = {one["machine"]: one["place"] for one in said["queued"]}

    def notice(self, said: dict[str, Any]) -> None:
        self.notices[said["machine"]] = said["kind"]


class _Job:
    """What the adapter asks, for a bed whose own names are taken."""

    def __init__(self, bed: RealBed) -> None:
        self._bed = bed

    def wants(self, after: int, within_s: float) -> dict[str, Any]:
        time.sleep(within_s)
        return {"version": 1, "over": False, "wants": self._bed.wants_json(),
                "held": sorted(self._bed.held)}  # fmt: skip

    def grants(self, said: dict[str, Any]) -> None:
        self._bed.grants_said(said)

    def notice(self, said: dict[str, Any]) -> None:
        self._bed.notice(said)


class SimulatedBed(Bed):
    """The simulator's engine, in a world that has only what it touches."""

    def __init__(self) -> None:
        super().__init__()
        self.seed, self.ended, self.random = 1, None, random.Random(1)
        self.boxes: dict[str, SimpleNamespace] = {}
        self._queue: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = self.now = 0
        control = SimpleNamespace(over=None)
        self.host = SimpleNamespace(
            is_stopped=False, control=control, now=0, request=self.request, job=self
        )
        self.engine = simulated.Engine(self, 0.0)  # type: ignore[arg-type]

    def begin(self) -> None:
        """It has no other life."""

    @property
    def capacity(self) -> Capacity:
        wants = {
            number: Want(number, tuple(names), Need.STANDBY, standby, 0, tries=tries)  # type: ignore[arg-type]
            for number, (names, standby, tries) in self.wants.items()
            if names
        }
        grants = {name: Grant(node="", granted_us=0, joined=True) for name in self.held}
        return Capacity(wants=wants, grants=grants)  # type: ignore[arg-type]

    def at(self, delay_us: int, act: Callable[..., None], *args: Any) -> None:
        self._number += 1
        self._queue.append((self.now + delay_us, self._number, act, args))

    def add(self, *, standby: bool, name: str) -> None:
        self.boxes[name] = SimpleNamespace(die=lambda **_: self.boxes.pop(name, None))

    def request(self, event: object) -> None:
        match event:
            case MachinesGranted(machines=machines):
                for one in machines:
                    self.take(one.machine, one.node)
            case MachinesDenied(why=why):
                self.denied.append(why)
            case EngineNoticed(machine=machine, kind=kind):
                self.notices[machine] = kind

    def until(self, fact: Callable[[], bool]) -> None:
        for _ in range(10_000):
            if fact():
                return
            self._queue.sort()
            self.now, _, act, args = self._queue.pop(0)
            act(*args)
        raise AssertionError(self.__dict__)

    def running(self) -> set[str]:
        return {*self.boxes}
