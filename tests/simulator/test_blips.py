"""Machines and the controller that do not hear each other for a while: nobody is lost for that."""

import random

import pytest

from trainmover.controller.state import MachineState
from trainmover.ids import MachineId
from trainmover.simulator.checkers import all_checkers
from trainmover.simulator.faults import SECOND
from trainmover.simulator.places.network import CONTROLLER
from trainmover.simulator.world import World

FROZEN_US = round(1.4 * SECOND)
"""Until a machine that holds the others up is given up; what then follows takes a tenth of it."""


def begun(
    seed: int, machines: int, standbys: int, racks: int = 0, relays_above: int = 256
) -> World:
    """All train, all standbys are warm, and it goes on for a while."""
    world = World(
        seed,
        machines=machines,
        standbys=standbys,
        racks=racks,
        relays_above=relays_above,
        refill=False,
        checkers=all_checkers(),
    )

    def ready() -> bool:
        job = world.job
        warm = [m for m in job.machines.values() if m.state is MachineState.WARM]
        return job.all_recorded and job.change is None and len(warm) == standbys

    assert world.run(120 * SECOND, until=ready)
    world.run(2 * SECOND)
    return world


def cut(world: World, names: list[MachineId], for_us: int) -> None:
    """Between these and the controller nothing goes, in one direction or both."""
    for name in names:
        ways = [(name, CONTROLLER), (CONTROLLER, name)]
        for way in world.random.choice((ways[:1], ways[1:], ways)):
            world.network.cut(*way)
            world.at(for_us, world.network.mend, *way)


SMALL = [(*size, s) for size in ((2, 0), (2, 2), (4, 2)) for s in (0.5, 1.3, 3.0, 8.0, 30.0)]


@pytest.mark.turns(4)
@pytest.mark.parametrize(("machines", "standbys", "seconds"), [*SMALL, (24, 6, 1.3), (24, 6, 8.0)])
def test_a_blip_on_any_links_to_the_controller_costs_nothing(
    machines: int, standbys: int, seconds: float
) -> None:
    """Of all machines, of two neighbours, of one, and of some."""
    for seed in range(4 if machines < 24 else 2):
        world = begun(seed, machines, standbys)
        names, chance = sorted(world.boxes), random.Random(seed)
        chosen = [
            names,
            list(world.job.seats[:2]),
            names[:1],
            chance.sample(names, len(names) // 2),
        ]
        epoch, before = world.job.epoch, world.training.newest
        cut(world, chosen[seed], int(seconds * SECOND))
        world.run(int(seconds * SECOND) + 20 * SECOND)
        assert world.ended is None, world.ended
        assert (world.job.incidents, world.job.epoch) == ((), epoch)
        assert world.training.newest > before + 8 * seconds
        assert world.host is not None
        assert world.host.control.absence.quiet == {}


@pytest.mark.turns(4)
@pytest.mark.parametrize("machines", [2, 4, 24])
def test_links_that_break_cost_nothing(machines: int) -> None:
    for seed in range(2):
        world = begun(seed, machines, 1)
        for _ in range(5):
            for box in world.boxes.values():
                if box.link is not None and world.random.random() < 0.7:
                    box.link.reset()
            world.run(world.between(1000, 2 * SECOND))
        world.run(5 * SECOND)
        assert (world.ended, world.job.incidents) == (None, ())


def test_who_only_the_controller_does_not_reach_goes_behind_a_neighbour() -> None:
    world = begun(1, 4, 2)
    cut_off = world.job.seats[1]
    world.network.cut(cut_off, CONTROLLER)
    world.network.cut(CONTROLLER, cut_off)
    world.run(4 * SECOND)
    assert world.host is not None
    assert world.host.control.members[cut_off].relay is not None
    world.run(100 * SECOND)
    assert world.job.incidents == ()


def test_longer_than_its_patience_nobody_is_waited_for() -> None:
    world = begun(1, 4, 2, relays_above=0)
    cut_off = world.job.seats[1]
    world.network.cut(cut_off, CONTROLLER)
    world.network.cut(CONTROLLER, cut_off)
    world.run(55 * SECOND)
    assert world.job.incidents == ()
    world.run(20 * SECOND)
    (incident,) = world.job.incidents
    assert (incident.lost, incident.outcome) == ((cut_off,), "done")
    assert not world.boxes[cut_off].alive, "its lease was over too"


@pytest.mark.turns(4)
@pytest.mark.parametrize(("machines", "standbys"), [(2, 1), (4, 2), (24, 6)])
@pytest.mark.parametrize("how", ["frozen", "power", "alone"])
def test_a_machine_that_holds_the_others_up_is_given_up_soon(
    machines: int, standbys: int, how: str
) -> None:
    """It stands still, has no power, or no network at all."""
    for seed in range(4):
        world = begun(seed, machines, standbys)
        box = world.boxes[world.job.seats[1]]
        if how == "frozen":
            box.frozen = True
        elif how == "power":
            box.die(silent=True)
        else:
            others = [*(name for name in world.boxes if name != box.name), CONTROLLER]
            for other in others:
                world.network.cut(box.name, other)
                world.network.cut(other, box.name)
            for worker in box.workers:
                worker.stopped = True  # It cannot pass a gate.
        began = world.now
        assert world.run(5 * SECOND, until=lambda world=world: bool(world.job.incidents))
        assert world.now - began <= FROZEN_US
        assert world.job.incidents[0].lost == (box.name,)


def test_half_of_all_machines_without_power_are_one_loss() -> None:
    world = begun(2, 8, 8, racks=2)
    rack = [box.name for box in world.boxes.values() if box.rack == "rack 0"]
    for name in rack:
        world.boxes[name].die(silent=True)
    world.run(5 * SECOND)
    (incident,) = world.job.incidents
    assert (sorted(incident.lost), incident.outcome) == (sorted(rack), "done")


def test_a_standby_that_nobody_reaches_is_given_up_without_an_incident() -> None:
    world = begun(3, 4, 2)
    spare = next(name for name in world.boxes if name not in world.job.seats)
    world.boxes[spare].die(silent=True)
    world.run(5 * SECOND)
    assert spare not in world.job.machines
    assert world.job.incidents == ()
