"""Relays that are struck: nobody is lost for that but who was struck himself."""

from collections.abc import Callable
from functools import partial

import pytest

from trainmover.controller.state import MachineState
from trainmover.ids import MachineId
from trainmover.server.machines.absence import Absence, Quiet
from trainmover.simulator.checkers import all_checkers
from trainmover.simulator.faults import SECOND
from trainmover.simulator.happenings import Violation
from trainmover.simulator.places.network import CONTROLLER
from trainmover.simulator.world import World

SEEDS = 4


def begun(seed: int, machines: int = 6, standbys: int = 3, racks: int = 0) -> World:
    """All train, all standbys are warm, and all but the relays are behind them."""
    world = World(
        seed, machines=machines, standbys=standbys, racks=racks, refill=False, relays_above=4,
        checkers=all_checkers(),
    )  # fmt: skip

    def ready() -> bool:
        job = world.job
        warm = [m for m in job.machines.values() if m.state is MachineState.WARM]
        return job.all_recorded and job.change is None and len(warm) == standbys

    assert world.run(120 * SECOND, until=ready)
    assert world.run(60 * SECOND, until=lambda: all_are_behind(world))
    world.run(2 * SECOND)
    return world


def behind(world: World) -> dict[MachineId, MachineId]:
    """Machine -> the relay that its link goes over."""
    assert world.host is not None
    members = world.host.control.members
    return {name: link.relay for name, link in members.items() if link.relay is not None}


def all_are_behind(world: World) -> bool:
    relays = set(behind(world).values())
    return bool(relays) and len(relays) + len(behind(world)) == len(world.boxes)


def one_with_members(world: World) -> tuple[MachineId, list[MachineId]]:
    relay = next(iter(behind(world).values()))
    return relay, [name for name, its in behind(world).items() if its == relay]


def freeze(world: World, relay: MachineId) -> None:
    world.boxes[relay].frozen = True


def lose_power(world: World, relay: MachineId) -> None:
    world.boxes[relay].die(silent=True)


def die(world: World, relay: MachineId) -> None:
    world.boxes[relay].die(silent=False)


def cut_off(world: World, relay: MachineId) -> None:
    """From the controller; it reaches all machines, which train on."""
    world.network.cut(relay, CONTROLLER)
    world.network.cut(CONTROLLER, relay)


def break_trunk(world: World, relay: MachineId) -> None:
    its = world.boxes[relay].relay
    assert its is not None
    its.trunk.reset()


def cut_from_members(world: World, relay: MachineId) -> None:
    for name in world.boxes:
        if name != relay:
            world.network.cut(relay, name)


def be_slow(world: World, relay: MachineId) -> None:
    world.network.slow[relay] = SECOND


STRIKES = [freeze, lose_power, die, cut_off, break_trunk, cut_from_members, be_slow]


@pytest.mark.turns(4)
@pytest.mark.parametrize("strike", STRIKES)
def test_of_a_relay_that_is_struck_alone_no_member_is_lost(
    strike: Callable[[World, MachineId], None],
) -> None:
    for seed in range(SEEDS):
        world = begun(seed)
        relay, members = one_with_members(world)
        strike(world, relay)
        world.run(40 * SECOND)
        assert world.ended is None, world.ended
        lost = {name for incident in world.job.incidents for name in incident.lost}
        assert lost <= {relay}, f"seed {seed}: {lost}"
        assert set(members) <= set(world.job.machines)
        if strike in (break_trunk, cut_off, be_slow):
            assert world.job.incidents == ()


@pytest.mark.turns(4)
@pytest.mark.parametrize("strike", [freeze, lose_power, die, cut_off])
def test_members_are_heard_again_before_a_joiner_would_be_spared(
    strike: Callable[[World, MachineId], None],
) -> None:
    for seed in range(SEEDS):
        world = begun(seed)
        assert world.host is not None
        relay, members = one_with_members(world)
        strike(world, relay)
        began = world.now
        heard = partial(are_heard_directly, world, members)
        assert world.run(3 * SECOND, until=heard), f"seed {seed}"
        assert world.now - began < 2.2 * SECOND


def are_heard_directly(world: World, names: list[MachineId]) -> bool:
    assert world.host is not None
    links = [world.host.control.members.get(name) for name in names]
    return all(link is not None and link.relay is None for link in links)


@pytest.mark.turns(4)
@pytest.mark.parametrize("silent", [False, True])
def test_a_relay_that_is_lost_with_its_members_is_one_loss(silent: bool) -> None:
    for seed in range(SEEDS):
        world = begun(seed, 6, 6)
        relay, members = one_with_members(world)
        member = next(name for name in members if not beside(world, relay, name))
        gone = {relay, member}
        for name in gone:
            world.boxes[name].die(silent=silent)
        world.run(20 * SECOND)
        assert world.ended is None, world.ended
        assert gone & set(world.job.machines) == set()
        assert {*members} - gone <= set(world.job.machines)
        assert len(world.job.incidents) <= 1


def beside(world: World, one: MachineId, other: MachineId) -> bool:
    """Whether one may keep what the other needs."""
    seats = list(world.job.seats)
    if one not in seats or other not in seats:
        return False
    return (seats.index(one) - seats.index(other)) % len(seats) in (1, len(seats) - 1)


def test_a_controller_that_dies_finds_all_and_all_come_behind_relays_again() -> None:
    for seed in range(SEEDS):
        world = begun(seed)
        world.lose_controller(SECOND)
        assert world.run(60 * SECOND, until=lambda world=world: _is_whole(world)), f"seed {seed}"
        assert (world.ended, world.job.incidents) == (None, ())


def _is_whole(world: World) -> bool:
    return world.host is not None and all_are_behind(world)


def test_a_controller_that_hears_nobody_for_a_while_finds_its_lanes_as_they_were() -> None:
    for seed in range(SEEDS):
        world = begun(seed)
        was = behind(world)
        for name in world.boxes:
            world.network.cut(name, CONTROLLER)
            world.at(3 * SECOND, world.network.mend, name, CONTROLLER)
        world.run(20 * SECOND)
        assert (world.ended, world.job.incidents) == (None, ())
        assert behind(world).items() <= was.items()
        assert world.host is not None
        assert world.host.control.absence.quiet == {}


def test_all_come_back_behind_relays_after_a_relay_has_died() -> None:
    world = begun(1)
    relay, _ = one_with_members(world)
    world.boxes[relay].die(silent=False)
    world.run(60 * SECOND)
    relays = set(behind(world).values())
    assert relay not in relays
    assert len(relays) + len(behind(world)) == len(world.job.machines)


def test_a_controller_that_takes_a_silent_relay_for_evidence_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def blames(self: Absence, name: MachineId, one: Quiet, *given: object) -> str:
        return "its relay is silent" if one.carried and self._is_away(one) else ""

    monkeypatch.setattr(Absence, "_why", blames)
    world = begun(1)
    freeze(world, one_with_members(world)[0])
    with pytest.raises(Violation, match="which nothing befell"):
        world.run(5 * SECOND)
