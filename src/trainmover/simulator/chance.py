# SPDX-License-Identifier: Apache-2.0
"""How things go wrong in a world, by chance: one method for each name in `faults.NAMES`."""

from collections.abc import Callable

from trainmover.controller.events import (
    CordonRequested,
    DrainRequested,
    HealthRequested,
    KillRequested,
    MoveRequested,
    PlaceRequested,
    PlanSteered,
    RollRequested,
    SlowFound,
    UncordonRequested,
)
from trainmover.controller.policies.plans.known import Standing
from trainmover.ids import MachineId, Rank, Step
from trainmover.protocol import messages as m
from trainmover.simulator import asking, deadlines, imagined
from trainmover.simulator.faults import DISTURBS_LONG, Faults
from trainmover.simulator.places.machines import Box
from trainmover.simulator.places.network import CONTROLLER
from trainmover.simulator.ranks.runs import go_in_circles
from trainmover.simulator.ranks.snapshots import file_key
from trainmover.simulator.ranks.workers import Worker
from trainmover.simulator.world import World
from trainmover.symptoms import SYMPTOMS

HOUR_US = 3_600_000_000
TORN_AGAIN, BLOCKED = 0.3, 0.25
LASTS_MAX_S = 130.0
"""Twice as long as anybody is waited for: more tells nothing new."""
MOVES_ALONE = {
    "arrive",
    "full",
    "clock",
    "vault",
    "move",
    "cordon",
    "drain",
    "roll",
    "place",
    "unprepared",
    "unfit",
    "ask",
    "imagine",
    "flip",
    "nan",
    "recompile",
    "straggle",
    "heavy",
    "narrow",
    "trunk",
    "cut_standby",
    "disk_hang",
    "writer_hang",
    "prepare_fails",
}
"""What no step need fail for."""


class Chance:
    """Lets faults happen in `world` until it is told to stop.

    count      name -> how often
    unsettled  how much has gone wrong since a step was last committed
    """

    def __init__(self, world: World, faults: Faults) -> None:
        self.world, self.faults = world, faults
        self.random = world.random
        self.count: dict[str, int] = {}
        self.unsettled: list[str] = []
        self.going = False
        self._newest = 0
        self._names = list(faults.weights)
        self._weights = list(faults.weights.values())

    def go(self) -> None:
        """Begin."""
        self.going = True
        self._plan()

    def stop(self) -> None:
        """No more of it; what began ends by itself."""
        self.going = False

    def _plan(self) -> None:
        wait_s = self.random.expovariate(1e6 / self.faults.pause_us)
        if self.random.random() < self.faults.together:
            wait_s /= 20
        self.world.at(int(wait_s * 1e6) + 1000, self._strike)

    def _strike(self) -> None:
        if not self.going or self.world.ended is not None:
            return
        self._plan()
        self.settle()
        if len(self.unsettled) < (self.faults.unsettled_max if self.random.random() < 0.4 else 1):
            (name,) = self.random.choices(self._names, self._weights)
            self.let(name)

    def settle(self) -> None:
        """Forget what is over: the whole job has gone on since, and waits for nothing. A rank that
        is to go round for ever once its groups drain has yet to do so."""
        world = self.world
        if world.ended is not None:
            return  # What has ended it is not over.
        if world.host is None or world.host.control.accounts.away or not world.store_known:
            return
        job = world.host.job
        if job.change is not None or _open(job.incidents):
            return
        if any(machine.killed_us is not None for machine in job.machines.values()):
            return  # It may hear only later that it is to die.
        if world.training.newest >= self._newest + 2 and not world.network.cuts:
            self.unsettled = ["spins" for worker in world.workers() if worker.spins]

    def let(self, name: str) -> bool:
        """It happens, if there is anything that it can happen to."""
        acts: dict[str, Callable[[], str]] = {
            "death": self._death, "power": self._power, "rack": self._rack,
            "freeze": self._freeze, "circles": self._circles, "spins": self._spins,
            "between": self._between, "garbage": self._garbage, "flip": self._flip,
            "nan": self._nan, "recompile": self._recompile,
            "crash": self._crash, "socket": self._socket, "stop": self._stop, "stuck": self._stuck,
            "reset": self._reset, "trunk": self._trunk, "cut": self._cut,
            "partition": self._partition, "slow": self._slow, "straggle": self._straggle,
            "heavy": self._heavy, "narrow": self._narrow,
            "cut_standby": self._cut_standby, "cut_survivor": self._cut_survivor,
            "reboot": self._reboot, "disk_hang": self._disk_hang,
            "writer_hang": self._writer_hang, "prepare_fails": self._prepare_fails,
            "controller": self._controller, "torn": self._torn, "clock": self._clock,
            "halt": self._halt,
            "store": self._store, "full": self._full, "arrive": self._arrive,
            "vault": self._vault, "rot": self._rot, "unprepared": self._unprepared,
            "unfit": self._unfit, "ask": self._ask, "imagine": self._imagine,
            "move": self._move, "drill": self._drill,
            "cordon": self._cordon, "drain": self._drain,
            "roll": self._roll, "place": self._place, "notice": self._notice,
            "examine": self._examine, "sign": self._sign,
        }  # fmt: skip
        what = acts[name]()
        if not what:
            return False
        self.world.note(f"! {name}: {what}")
        self.world.befell(name)
        self.count[name] = self.count.get(name, 0) + 1
        self._newest = self.world.training.newest
        if name not in MOVES_ALONE:
            self.unsettled.append(name)
        return True

    # --- whom -----------------------------------------------------------------------------------

    def _box(self) -> Box | None:
        """A machine; rather one that has ranks."""
        alive = [box for box in self.world.boxes.values() if box.alive and not box.frozen]
        seated = [box for box in alive if box.place.live]
        some = seated if seated and self.random.random() < 0.7 else alive
        return self.random.choice(some) if some else None

    def _worker(self) -> Worker | None:
        box = self._box()
        return self.random.choice(box.workers) if box is not None and box.workers else None

    def _lasts_us(self, fault: str, least_us: int, most_us: int) -> int:
        """How long an outage lasts: as usual, or near a deadline, in most cases a short one."""
        names = self.faults.bites.get(fault, ())
        if not names:
            return least_us if least_us == most_us else self.world.between(least_us, most_us)
        known = [deadlines.seconds(self.world.spec, name) for name in names]
        (near_s,) = self.random.choices(known, [1 / seconds for seconds in known])
        factor = 10 ** self.random.uniform(-1, 1)
        return int(min(near_s * factor, LASTS_MAX_S) * 1e6)

    # --- what -----------------------------------------------------------------------------------

    def _death(self) -> str:
        box = self._box()
        if box is not None:
            box.die(silent=False)
        return box.name if box is not None else ""

    def _power(self) -> str:
        box = self._box()
        if box is not None:
            box.die(silent=True)
        return box.name if box is not None else ""

    def _rack(self) -> str:
        box = self._box()
        if box is None or not box.rack:
            return ""
        for one in list(self.world.boxes.values()):
            if one.rack == box.rack:
                one.die(silent=True)
        return box.rack

    def _freeze(self) -> str:
        box = self._box()
        if box is None:
            return ""
        box.frozen = True
        self.world.struck.add(box.name)
        for_us = self._lasts_us("freeze", 100_000, 4_000_000)
        self.world.at(for_us, box.thaw)
        return f"{box.name} for {for_us / 1e6:.1f} s"

    def _crash(self) -> str:
        worker = self._worker()
        if worker is not None:
            worker.box.exited(worker, self.random.choice((-9, -11, 1)))
        return repr(worker) if worker is not None else ""

    def _socket(self) -> str:
        worker = self._worker()
        if worker is None or worker.blocked or worker.cut_off:
            return ""
        worker.box.cut_off(worker)
        return repr(worker)

    def _stop(self) -> str:
        worker = self._worker()
        if worker is None or worker.stopped:
            return ""
        worker.stopped = True
        seen_us = self.world.between(0, 200_000)
        worker.box.later(seen_us, worker.box.process_state, worker, "stopped", seen_us // 1000)
        if self.random.random() < 0.5:
            worker.box.later(self._lasts_us("stop", 50_000, 3_000_000), self._continued, worker)
        return repr(worker)

    def _continued(self, worker: Worker) -> None:
        worker.go_on()
        worker.moved_us = self.world.now
        worker.box.later(self.world.between(0, 200_000), worker.box.process_state, worker, "", 0)

    def _stuck(self) -> str:
        if self.world.spec.world_size == 1:
            return ""  # Nobody waits for it: it might as well be slow.
        busy = [w for w in self.world.workers() if w.computing and not w.stuck]
        steady = [w for w in busy if w.lived_steps > 2 and w.recorded]
        if not steady:
            return ""
        worker = self.random.choice(steady)
        worker.stuck = True
        worker.blocked = self.random.random() < BLOCKED
        return f"{worker!r}{', and cannot be killed' if worker.blocked else ''}"

    def _spins(self) -> str:
        worker = self._live()
        if worker is not None:
            worker.spins = True
        return repr(worker) if worker is not None else ""

    def _between(self) -> str:
        worker = self._live()
        if worker is not None:
            worker.between = True
            where = f"train.py line {worker.step}"
            worker.say(m.BetweenSteps(rank=worker.rank, step=worker.step, where=where))
        return repr(worker) if worker is not None else ""

    def _garbage(self) -> str:
        worker = self._live()
        if worker is None:
            return ""
        worker.raised()
        return repr(worker)

    def _live(self) -> Worker | None:
        """A rank that trains."""
        live = [
            w
            for w in self.world.workers()
            if w.live and not (w.finished or w.stopped or w.pending or w.drains or w.stuck)
        ]
        return self.random.choice(live) if live else None

    def _circles(self) -> str:
        running = [w for w in self.world.workers() if w.work is not None]
        if not running:
            return ""
        worker = self.random.choice(running)
        return repr(worker) if go_in_circles(worker) else ""

    def _flip(self) -> str:
        live = [w for w in self.world.workers() if w.live and not w.finished]
        if not live or not self.world.spec.fingerprint_every or self._flawed():
            return ""
        worker = self.random.choice(live)
        self.world.flip(worker)
        return repr(worker)

    def _flawed(self) -> bool:
        """Whether something is wrong already: of two that are wrong in the same group the healthy
        might be outvoted."""
        return any(w.holds.flaw for w in self.world.workers() if w.live)

    def _nan(self) -> str:
        step = Step(self.world.training.newest + self.random.randint(2, 6))  # Of none begun.
        self.world.nan_steps.add(step)
        return f"in step {step}"

    def _recompile(self) -> str:
        first = [w for w in self.world.workers() if w.live and w.rank == 0 and w.recorded]
        if not first or not self.world.spec.fingerprint_every:
            return ""
        first[0].steps_changed = f"compiled after {self.world.now}"
        return repr(first[0])

    def _reset(self) -> str:
        box = self._box()
        if box is None or box.link is None:
            return ""
        box.link.reset()
        return box.name

    def _trunk(self) -> str:
        boxes = self.world.boxes.values()
        trunks = [b.relay.trunk for b in boxes if b.relay is not None and not b.relay.over]
        if not trunks:
            return ""
        trunk = self.random.choice(trunks)
        trunk.reset()
        return trunk.machine

    def _cut(self) -> str:
        box = self._box()
        return "" if box is None else self._part("cut", box.name, CONTROLLER)

    def _partition(self) -> str:
        one, other = self._box(), self._box()
        if one is None or other is None or one is other:
            return ""
        return self._part("partition", one.name, other.name)

    def _cut_standby(self) -> str:
        """A standby, not one that is to join."""
        job = self.world.job if self.world.host is not None else None
        change = job.change if job is not None else None
        taken = {} if change is None else change.joiners
        return self._cut_one(lambda name: name not in taken.values(), seated=False)

    def _cut_survivor(self) -> str:
        return self._cut_one(lambda name: True, seated=True)

    def _cut_one(self, may: Callable[[MachineId], bool], *, seated: bool) -> str:
        """Both ways between it and the controller, and no other way."""
        host = self.world.host
        if host is None:
            return ""
        alive = [box.name for box in self.world.boxes.values() if box.alive and not box.frozen]
        here = [name for name in alive if name in host.job.machines and may(name)]
        some = [name for name in here if (name in host.job.seats) is seated]
        if not some:
            return ""
        one = self.random.choice(some)
        fault = "cut_survivor" if seated else "cut_standby"
        return self._cut_ways(fault, [(one, CONTROLLER), (CONTROLLER, one)])

    def _part(self, fault: str, one: MachineId, other: MachineId) -> str:
        ways = self.random.choice(([(one, other)], [(other, one)], [(one, other), (other, one)]))
        return self._cut_ways(fault, ways)

    def _cut_ways(self, fault: str, ways: list[tuple[MachineId, MachineId]]) -> str:
        for_us = self._lasts_us(fault, 200_000, 8_000_000)
        if fault not in self.faults.bites and fault == "partition" and self.random.random() < 0.2:
            for_us *= 10
        for way in ways:
            self.world.network.cut(*way)
            self.world.at(for_us, self._mend, way)
        return f"{', '.join(f'{a} -> {b}' for a, b in ways)} for {for_us / 1e6:.1f} s"

    def _mend(self, way: tuple[MachineId, MachineId]) -> None:
        self.world.network.mend(*way)
        self.world.training.look_again()

    def _slow(self) -> str:
        box = self._box()
        if box is None:
            return ""
        slow = self.world.network.slow
        self.world.struck.add(box.name)
        slow[box.name] = self.world.between(5_000, 300_000)
        self.world.at(2_000_000, self._fast, box.name)
        return f"{box.name} by {slow[box.name] // 1000} ms"

    def _fast(self, machine: MachineId) -> None:
        self.world.network.slow.pop(machine, None)

    def _straggle(self) -> str:
        box = self._box()
        if box is None or box.name in self.world.slow:
            return ""
        by = self.random.uniform(1.2, 2.0)
        self.world.slow_down(box.name, by)
        self.world.at(self.world.between(2_000_000, 20_000_000), self._swift, box.name)
        return f"{box.name} by {by:.2f}"

    def _swift(self, machine: MachineId) -> None:
        self.world.slow.pop(machine, None)

    def _narrow(self) -> str:
        """Between two that have ranks."""
        host = self.world.host
        if host is None or len(host.job.seats) < 2:
            return ""
        pair = frozenset(self.random.sample(host.job.seats, 2))
        self.world.narrow.add(pair)
        self.world.ever_narrow.add(pair)
        self.world.at(self.world.between(2_000_000, 20_000_000), self.world.narrow.discard, pair)
        return " and ".join(sorted(pair))

    def _heavy(self) -> str:
        worker = self._live()
        if worker is None:
            return ""
        self.world.heavy[worker.rank] = self.random.uniform(1.2, 2.0)
        return f"rank {worker.rank}"

    def _controller(self) -> str:
        if self.world.host is None:
            return ""
        away_us = self._lasts_us("controller", 50_000, 2_000_000)
        self.world.lose_controller(away_us)
        return f"for {away_us / 1e6:.1f} s"

    def _halt(self) -> str:
        if self.world.host is None or self.world.host.is_stopped:
            return ""
        for_us = self._lasts_us("halt", 100_000, 4_000_000)
        self.world.stop_controller(for_us)
        return f"for {for_us / 1e6:.1f} s"

    def _reboot(self) -> str:
        what = self._controller()
        return f"{what}, its clock {self._clock()}" if what else ""

    def _clock(self) -> str:
        off_us = self.world.between(-HOUR_US, HOUR_US)
        self.world.clock_off_us += off_us
        return f"by {off_us / 1e6:.0f} s"

    def _torn(self) -> str:
        if self.world.host is None:
            return ""
        torn, away_us = self.random.randint(1, 6), self.world.between(50_000, 2_000_000)
        self.world.lose_controller(away_us, torn=torn)
        if self.random.random() < TORN_AGAIN:  # Perhaps before all machines are back.
            self.world.at(away_us + self.world.between(1_000, 300_000), self._torn_again)
        return f"{torn} records"

    def _torn_again(self) -> None:
        self.world.note(f"! torn again: {self._torn()}")

    def _store(self) -> str:
        self.world.lose_store()
        return self.world.store

    def _full(self) -> str:
        self.world.disk_full = True
        for_us = self._lasts_us("full", 1_500_000, 1_500_000)
        self.world.at(for_us, setattr, self.world, "disk_full", False)
        return f"for {for_us / 1e6:.1f} s"

    def _disk_hang(self) -> str:
        world = self.world
        for_us = self._lasts_us("disk_hang", 500_000, 5_000_000)
        world.disk_hangs_until_us = max(world.disk_hangs_until_us, world.now + for_us)
        return f"for {for_us / 1e6:.1f} s"

    def _writer_hang(self) -> str:
        if not self.world.spec.checkpoint:
            return ""
        rank = Rank(self.random.randrange(self.world.spec.world_size))
        self.world.hung_writers.add(rank)
        return f"rank {rank}"

    def _prepare_fails(self) -> str:
        """Another machine, which stays, cannot prepare; after a while it can."""
        host, box = self.world.host, self._box()
        if host is None or box is None or not box.is_in or box.name not in host.job.seats:
            return ""
        others = [name for name in host.job.seats if name != box.name]
        if not others:
            return ""
        other, left_us = (
            self.random.choice(others),
            self._lasts_us("prepare_fails", 500_000, 6_000_000),
        )
        box.say(m.Leaving(left_ms=left_us // 1000))
        self.world.unprepared.add(other)
        self.world.at(left_us, self.world.unprepared.discard, other)
        self.world.at(left_us, self._taken_away, box, box.incarnation)
        return f"{box.name} for {other}, taken away in {left_us / 1e6:.1f} s"

    def _vault(self) -> str:
        box = self._box()
        if box is None or not box.has_room:
            return ""
        box.has_room = False
        return box.name

    def _rot(self) -> str:
        """A rank's snapshots of the newest cut, or its file of the newest checkpoint."""
        world = self.world
        if world.host is None:
            return ""
        rank, job = Rank(self.random.randrange(world.spec.world_size)), world.host.job
        if job.cut is not None and self.random.random() < 0.5:
            world.spoilt.add((rank, job.cut.step))
            return f"what is kept of rank {rank} after step {job.cut.step}"
        if job.checkpoint is None:
            return ""
        file = file_key(job.checkpoint.step, job.checkpoint.states[rank][0].file)
        world.rotten.add(file)
        return file

    def _unfit(self) -> str:
        box = self._box()
        if box is None:
            return ""
        if self.random.random() < 0.5:
            self.world.strays.add(box.name)
            return f"{box.name}, once"
        cannot = (
            box.name,
            self.world.program(Rank(self.random.randrange(self.world.spec.world_size))),
        )
        self.world.unfit.add(cannot)
        self.world.at(self.world.between(500_000, 5_000_000), self.world.unfit.discard, cannot)
        return " as ".join(cannot)

    def _ask(self) -> str:
        """What is cordoned by it is uncordoned after a while, and a plan is steered."""
        host = self.world.host
        if host is None or not host.job.seats:
            return ""
        event = asking.anything(host.job, self.random, self._number(), host.now)
        before = host.job.cordoned
        host.request(event)
        if self.world.ended is None:
            for machine in host.job.cordoned.keys() - before.keys():
                self.world.at(self.world.between(500_000, 5_000_000), self._uncordon, machine)
        self.world.at(self.world.between(1_000_000, 9_000_000), self._steer)
        return repr(event)

    def _imagine(self) -> str:
        """Where it names a machine as slow, that counts as if it had been."""
        world, host = self.world, self.world.host
        if host is None or not host.job.seats:
            return ""
        event = imagined.anything(host.job, self.random, world.training.newest, host.now)
        world.imagined.append(event)
        if isinstance(event, SlowFound) and event.machine is not None:
            world.ever_slow.add(event.machine)
            world.ever_narrow |= {frozenset({event.machine, event.peer})} if event.peer else set()
        before = host.job.cordoned
        host.request(event)
        for machine in host.job.cordoned.keys() - before.keys():
            world.at(world.between(2_000_000, 6_000_000), self._uncordon, machine)
        return repr(event)

    def _unprepared(self) -> str:
        worker = self._live()
        if worker is None:
            return ""
        worker.unprepared = "no memory is left for its links"
        return repr(worker)

    def _arrive(self) -> str:
        return self.world.add(standby=True).name

    def _move(self) -> str:
        return self._request(MoveRequested)

    def _drill(self) -> str:
        return self._request(KillRequested)

    def _request(self, kind: type[MoveRequested] | type[KillRequested]) -> str:
        """About some machine that holds ranks."""
        host = self.world.host
        if host is None or not host.job.seats:
            return ""
        machine = self.random.choice(host.job.seats)
        host.request(kind(at_us=host.now, request=self._number(), machine=machine))
        return machine

    def _number(self) -> str:
        self.world.requests += 1
        return f"r{self.world.requests}"

    def _cordon(self) -> str:
        """Rather a standby than not."""
        host = self.world.host
        if host is None or not host.job.machines:
            return ""
        names = sorted(host.job.machines)
        standbys = [name for name in names if name not in host.job.seats]
        some = standbys if standbys and self.random.random() < 0.7 else names
        machine = self.random.choice(some)
        host.request(CordonRequested(at_us=host.now, request=self._number(), machine=machine))
        self.world.at(self.world.between(500_000, 5_000_000), self._uncordon, machine)
        return machine

    def _examine(self) -> str:
        host = self.world.host
        if host is None or not host.job.machines:
            return ""
        machine = self.random.choice(sorted(host.job.machines))
        host.request(HealthRequested(at_us=host.now, request=self._number(), machine=machine))
        return machine

    def _notice(self) -> str:
        box = self._box()
        if box is None or box.link is None or not box.is_in:
            return ""
        left_us = self.world.between(100_000, 6_000_000)
        box.say(m.Leaving(left_ms=left_us // 1000))
        self.world.at(left_us, self._taken_away, box, box.incarnation)
        return f"{box.name}, in {left_us / 1e6:.1f} s"

    def _sign(self) -> str:
        """Two in three fail soon."""
        box = self._box()
        if box is None or box.link is None or not box.is_in:
            return ""
        symptom = self.random.choice(SYMPTOMS)
        count = self.random.choice((1, 3, 12))
        box.say(m.Sign(symptom=symptom.name, line="as kernels say it", count=count))
        if self.random.random() < 2 / 3:
            left_us = self.world.between(100_000, 6_000_000)
            self.world.at(left_us, self._taken_away, box, box.incarnation)
        return f"{box.name}: {symptom.name}, {count} times"

    def _taken_away(self, box: Box, incarnation: str) -> None:
        """As a death by chance: not while too much else is unsettled."""
        if not self.going or not box.alive or box.incarnation != incarnation:
            return
        self.settle()
        if self.unsettled:
            self.world.at(500_000, self._taken_away, box, incarnation)
            return
        box.die(silent=False)
        self.world.befell("death")
        self.world.note(f"! {box.name} is taken away")
        self.count["death"] = self.count.get("death", 0) + 1
        self.unsettled.append("death")

    def _drain(self) -> str:
        """Two machines with ranks, or more than can be."""
        host = self.world.host
        if host is None or not host.job.seats:
            return ""
        some = self.random.sample(host.job.seats, min(len(host.job.seats), self._how_many()))
        until_us = self.random.choice((0, host.now + 200_000))
        host.request(
            DrainRequested(
                at_us=host.now, request=self._number(), machines=[*some], until_us=until_us
            )
        )
        for machine in some:
            self.world.at(self.world.between(500_000, 5_000_000), self._uncordon, machine)
        return ", ".join(some)

    def _roll(self) -> str:
        """Held ones are uncordoned after a while; one that has stopped is told to go on."""
        host = self.world.host
        if host is None or not host.job.seats:
            return ""
        hold, at_once = self.random.random() < 0.3, self._how_many()
        request = self._number()
        host.request(RollRequested(at_us=host.now, request=request, at_once=at_once, hold=hold))
        for machine in sorted(host.job.machines) if hold else ():
            self.world.at(self.world.between(1_000_000, 9_000_000), self._uncordon, machine)
        self.world.at(self.world.between(1_000_000, 9_000_000), self._steer)
        return f"{at_once} at once{', held' * hold}"

    def _place(self) -> str:
        """Some of the machines there are, in any order."""
        host = self.world.host
        if host is None or not host.job.seats:
            return ""
        names = sorted(host.job.machines)
        seats = self.random.sample(names, min(len(host.job.seats), len(names)))
        if self.random.random() < 0.5:  # All of them in rings.
            seats = self.random.sample(host.job.seats, len(host.job.seats))
        host.request(PlaceRequested(at_us=host.now, request=self._number(), seats=[*seats]))
        self.world.at(self.world.between(1_000_000, 9_000_000), self._steer)
        return ", ".join(seats)

    def _steer(self) -> None:
        """What has stopped goes on; what goes on may be stopped."""
        host = self.world.host
        if host is None or host.job.plan is None or not self.going:
            return
        going = host.job.plan.standing is Standing.STOPPED
        host.request(PlanSteered(at_us=host.now, request=self._number(), going=going))

    def _how_many(self) -> int:
        return self.random.choice((1, 2, 2, 2, 3))

    def _uncordon(self, machine: MachineId) -> None:
        """Until it is: a controller may be away, and forget it with the end of its journal."""
        host = self.world.host
        cordoned = host is not None and machine in host.job.cordoned
        if host is not None and cordoned:
            at_us, request = host.now, self._number()
            host.request(UncordonRequested(at_us=at_us, request=request, machine=machine))
        if self.world.ended is None and (cordoned or self.going or host is None):
            self.world.at(1_000_000, self._uncordon, machine)


def _open(incidents: tuple[object, ...]) -> bool:
    return bool(incidents) and getattr(incidents[-1], "outcome", "") == "open"


def disturbances(names: list[str]) -> int:
    """In how many epochs these may disturb a job: some do so again and again."""
    return sum(3 if name in DISTURBS_LONG else 1 for name in names)
