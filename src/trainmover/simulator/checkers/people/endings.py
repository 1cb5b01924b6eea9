# SPDX-License-Identifier: Apache-2.0
"""A job that ends before its script does so for a reason that what happened to it explains."""

from trainmover.controller.state import MachineState
from trainmover.ids import Rank, Step
from trainmover.simulator.happenings import Violation
from trainmover.simulator.ranks.steps import EXIT_STATUS
from trainmover.simulator.world import World

MACHINES = (
    "death",
    "power",
    "rack",
    "freeze",
    "cut",
    "cut_survivor",
    "partition",
    "drill",
    "torn",
)
"""What may cost machines; that it need not have, `losses.saved` says."""
LONG_S = 60
"""By then a machine has returned, or another has come."""
PROCESSES = ("crash", "socket", "stop", "stuck", "spins", "garbage", "circles")


def legitimate(world: World, count: dict[str, int], unsettled: list[str], *, stopped: bool) -> None:
    """Raises a Violation if the end is no right one.

    count  faults by name; unsettled: those since a step was last committed by a whole job
    """
    end = world.ended
    assert end is not None
    if end.code == 0:
        _all_through(world, torn=bool(count.get("torn")))
        return
    if stopped and end.code == 130:
        return
    if world.training.bug is not None and _as_the_script(world, *world.training.bug):
        return
    for said, explains in _REASONS.items():
        if said in end.text and explains(world, count, unsettled):
            return
    raise Violation(f"the job has ended, and nothing explains it: {end.text}")


def _as_the_script(world: World, rank: Rank, how: str) -> bool:
    """It says whose script has ended in which way, and has its status."""
    end = world.ended
    assert end is not None
    code, words = {
        "raises": (1, f"Rank {rank} raised ValueError."),
        "exits": (EXIT_STATUS, f"ended with exit status {EXIT_STATUS} on rank {rank}."),
        "goes on": (1, f"but rank {rank} went on to step"),
    }[how]
    return words in end.text and end.code == code


def _all_through(world: World, *, torn: bool) -> None:
    assert world.host is not None
    if world.training.bug is not None:
        raise Violation(f"the job has ended well, and a script has not: {world.training.bug}")
    finished = world.host.job.finished
    if set(finished) != set(range(world.spec.world_size)):
        raise Violation(f"the job has ended well, but only ranks {sorted(finished)} are through")
    steps = {step for step, _ in finished.values()}
    if steps != {world.training.steps}:
        raise Violation(f"the script has {world.training.steps} steps, ranks made {sorted(steps)}")
    if not torn:
        _all_told(world)


def _all_told(world: World) -> None:
    """No machine that has died took a committed row with it."""
    for rank in map(Rank, range(world.spec.world_size)):
        told = (Step(step) for step in range(world.knobs.resumes + 1, world.training.steps + 1))
        missing = [step for step in told if (rank, step) not in world.disk.rows]
        if missing:
            raise Violation(f"what rank {rank} has committed in steps {missing} is not known")


def _lost(world: World, count: dict[str, int]) -> int:
    in_a_rack = len(world.boxes) // max(1, world.knobs.racks)
    return sum(count.get(name, 0) for name in MACHINES) + in_a_rack * count.get("rack", 0)


def _failed_thrice(world: World, count: dict[str, int], unsettled: list[str]) -> bool:
    from trainmover.simulator.chance import disturbances

    return disturbances(unsettled) >= 3


def _nothing_to_go_back_to(world: World, count: dict[str, int], unsettled: list[str]) -> bool:
    """State of a rank is gone with two machines, or with one if no other holds the same: a rank in
    which a bit had flipped before the first round never had any like it, nor one without others.
    Once a vault had no room no cut follows: what is misled may have none to go back to."""
    if count.get("torn") or count.get("rot") or "rack" in unsettled:
        return True  # The whole job may have begun anew; a rack may be most of it.
    if world.leases_over > 1:
        return True  # The controller was away for longer than agents go on alone.
    if world.engine is not None and world.engine.takes:
        return True
    single = (
        world.knobs.alone or count.get("flip") or count.get("vault") or world.spec.machines == 1
    )
    needed = 1 if single else 2
    gone = [name for name in unsettled if name in (*MACHINES, *PROCESSES)]
    return len(gone) >= needed


def _not_a_number(world: World, count: dict[str, int], unsettled: list[str]) -> bool:
    return bool(world.nan_steps) and world.spec.on_nan == "stop"


def _other_torch(world: World, count: dict[str, int], unsettled: list[str]) -> bool:
    return bool(world.knobs.resumes and world.knobs.others)


def _rotten(world: World, count: dict[str, int], unsettled: list[str]) -> bool:
    return bool(world.rotten or world.spoilt)


def _too_often(world: World, count: dict[str, int], unsettled: list[str]) -> bool:
    """Only where few restarts are allowed."""
    return (
        _lost(world, count) + sum(count.get(name, 0) for name in PROCESSES)
        > world.spec.restarts_max
    )


def _corrupt(world: World, count: dict[str, int], unsettled: list[str]) -> bool:
    return world.knobs.corrupts > 0 or world.knobs.lacks > 0


def _early(world: World, count: dict[str, int], unsettled: list[str]) -> bool:
    return bool(unsettled)


def _others_only(world: World, count: dict[str, int], unsettled: list[str]) -> bool:
    return bool(world.knobs.others and unsettled)


def _no_machine(world: World, count: dict[str, int], unsettled: list[str]) -> bool:
    """Where a job does not wait, or not for long: there are too few now."""
    if count.get("torn") or (world.spec.wait_s < LONG_S and unsettled):
        return True
    kept_out = sum(count.get(name, 0) for name in ("cordon", "ask", "unfit", "imagine"))
    kept_out += len(world.knobs.others)
    if world.knobs.lacks:  # Whoever lacked something takes no ranks any more.
        machines = world.job.machines.values()
        kept_out += sum(machine.state is MachineState.COLD for machine in machines)
    return _lost(world, count) + kept_out + len(unsettled) > world.spec.standbys


_REASONS = {
    "must be replaced and": _no_machine,
    " times:": _failed_thrice,
    "without a committed step": _failed_thrice,
    "The job has ended after step": _nothing_to_go_back_to,
    " is whole.": _rotten,
    "was written with torch": _other_torch,
    "restarts (--max-restarts)": _too_often,
    "did not receive the state its source sent": _corrupt,
    "before the job began": _early,
    "cannot stand in for a machine with another torch": _others_only,
    "before the script began": _early,
    "that is what --on-nan stop asks for": _not_a_number,
}
