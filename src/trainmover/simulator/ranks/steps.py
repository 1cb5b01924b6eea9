# SPDX-License-Identifier: Apache-2.0
"""A rank's steps: compute, have the record safe, pass the gate, update; and what it tells of it."""

import math
from functools import partial
from typing import TYPE_CHECKING

from trainmover.ids import Rank, Step
from trainmover.protocol import messages as m
from trainmover.rank.cuts import WANTED
from trainmover.simulator.happenings import Stepped
from trainmover.simulator.ranks import members, rounds, snapshots
from trainmover.simulator.ranks.bits import loss

if TYPE_CHECKING:
    from trainmover.simulator.ranks.training import Gate
    from trainmover.simulator.ranks.workers import Worker

RECORDED_AT = 3
AGAIN_US = 50_000
"""How soon is tried again what a machine out of reach prevents."""
CAME_THROUGH = 0.5
"""How often a gate that all had entered has not come through to a rank that drains."""


def begin_step(worker: "Worker") -> None:
    """Compute the next one, or end."""
    if worker.finished:
        members.stay(worker)
        return
    if worker.step >= worker.world.training.steps and _ends(worker):
        return
    if cut := worker.standing.cut_here():
        snapshots.take(worker, cut)
    worker.computing = True
    worker.box.keep(worker, Step(worker.step + 1), worker.epoch, worker.ledger.in_doubt)
    step_us = worker.world.knobs.step_us
    took_us = worker.world.between(step_us // 2, step_us)
    worker.later(round(took_us * _slower(worker)), _computed, worker, worker.step)


def _slower(worker: "Worker") -> float:
    """So many times as long as usual it takes for the step that it begins, which it will tell."""
    world = worker.world
    heavy = world.heavy.get(worker.rank, 1.0)
    slower = heavy * world.slow.get(worker.box.name, 1.0)
    worker.took = None
    if world.spec.stragglers != "off":
        noise = world.noise.uniform(0.97, 1.03)
        own_us, cpu_us = (
            round(world.knobs.step_us * slower * noise),
            round(world.knobs.step_us * heavy * noise * 0.8),
        )
        worker.took = m.Took(
            step=Step(worker.step + 1),
            own_us=own_us,
            cpu_us=cpu_us,
            waits_us=_waits(worker, slower),
        )
    return slower


def _waits(worker: "Worker", slower: float) -> dict[Rank, int]:
    """For whoever is late, and for those to whom the way is slow."""
    world, at = worker.world, worker.box.name
    late = {name for name in world.slow if slower == 1.0}
    ends = {name for pair in world.narrow if at in pair for name in pair}
    if not late and not ends:
        return {}
    waited_for = [one for one in world.workers() if one.live and one.box.name in late | ends]
    longer_us = round(world.knobs.step_us * 0.5)
    return {one.rank: longer_us for one in waited_for if one.box.name != at}


EXIT_STATUS = 3


def _ends(worker: "Worker") -> bool:
    """As its script does; False: it goes on."""
    how, rank, step = worker.world.training.how_ends(worker.rank), worker.rank, worker.step
    if how == "goes on":
        _goes_on(worker)
        return False
    tell_rows(worker)
    if how == "raises":
        worker.say(m.Raised(rank=rank, step=Step(step + 1), error="ValueError", traceback=""))
        return True
    last, digest = worker.standing.finish(), f"after {worker.holds.after}"
    code = EXIT_STATUS if how == "exits" else 0
    worker.say(m.Finished(rank=rank, step=last, code=code, digest=digest, attached=True))
    members.stay(worker)
    return True


def hear_ending(worker: "Worker", order: m.Ending) -> None:
    """Another's script has ended."""
    worker.ending = order
    if worker.live and not worker.finished and worker.step >= worker.world.training.steps:
        _goes_on(worker)


def _goes_on(worker: "Worker") -> None:
    """It has heard that another has ended before the step that it is in."""
    ending = worker.ending
    if ending is not None and worker.world.training.how_ends(worker.rank) == "goes on":
        worker.say(m.WentOn(rank=worker.rank, step=Step(worker.step + 1)))


def _computed(worker: "Worker", step: Step) -> None:
    """Into the gate, once the record is safe."""
    if not worker.computing or worker.step != step or worker.stuck:
        return
    rows = [*worker.ledger.in_doubt, _row(worker)]
    safe = worker.tainted or worker.box.keep(worker, Step(step + 2), worker.epoch, rows)
    if not safe:
        worker.later(AGAIN_US, _computed, worker, step)
    elif worker.standing.enter_gate(Step(step + 1), drains=worker.drains):
        worker.computing = False
        worker.calls += 1
        worker.moved()
        worker.world.training.entered(worker)
    else:
        cut_short(worker)


def cut_short(worker: "Worker") -> None:
    """Its collectives have ended, and left nothing that counts."""
    if worker.stuck or worker.spins or not worker.tainted:
        return
    if worker.waits is None and (worker.computing or worker.gate):
        _await_verdict(worker, Step(worker.step + 1))
    else:
        worker.look()


def _await_verdict(worker: "Worker", step: Step) -> None:
    worker.computing = False
    worker.wait(partial(worker.standing.judged, worker.rank, step), partial(_judged, worker))


def _judged(worker: "Worker", commits: bool) -> None:
    """The update is applied, or the step unwound."""
    if commits:
        _commit(worker)
    members.settle(worker)


def pass_gate(worker: "Worker", gate: "Gate") -> None:
    """It is through. Of one that is interrupted meanwhile ranks may disagree on that."""
    step, standing = gate.step, worker.standing
    if worker.epoch != gate.epoch or standing.gate != step or worker.waits is not None:
        return
    if worker.drains and worker.world.random.random() < CAME_THROUGH:
        return
    passes = standing.pass_gate(
        worker.rank,
        step,
        newest=gate.newest,
        oldest=gate.oldest,
        pause=gate.pause,
        cut=gate.flag == WANTED,
    )
    if not passes:
        _await_verdict(worker, step)
        return
    worker.snapshots.agreed(gate.flag)
    worker.moved()
    _commit(worker)
    if gate.hashes:
        rounds.tell(worker, gate)
    members.settle(worker)


def _commit(worker: "Worker") -> None:
    """The update is applied."""
    row = _row(worker)
    step, holds = worker.step, worker.holds
    worker.holds = holds.next()
    worker.lived_steps += 1
    worker.world.tell(Stepped(worker, worker.rank, worker.epoch, step, holds.after))
    if worker.ledger.enter(row, row, worker.world.now * 1000, worker.took):
        tell_rows(worker)
    if step == RECORDED_AT:
        _say_recorded(worker)


def _row(worker: "Worker") -> m.Row:
    """Of the step that follows what it holds."""
    before = worker.holds.after
    step = Step(before + 1)
    value = math.nan if step in worker.world.nan_steps else loss(before)
    return m.Row(step=step, at_us=0, values={"loss": value})


def _say_recorded(worker: "Worker") -> None:
    worker.recorded = True
    worker.say(worker.world.knobs.recorded(worker.rank, worker.step))


def tell_rows(worker: "Worker") -> None:
    """Say what was committed since."""
    now_ns = worker.world.now * 1000
    fact = worker.ledger.say_rows(worker.rank, worker.epoch, now_ns, unheard=worker.unheard)
    if fact is not None:
        worker.say(fact)


def run_rank(worker: "Worker", order: m.RunRank) -> None:
    """The script, for real, from its beginning."""
    worker.standing.begin(order.epoch)
    worker.snapshots.clear()
    worker.rank = worker.world.rank_at(order.slot, worker.local)
    worker.ledger.first_of = order.epoch
    worker.runs += 1
    worker.box.follow(order)
    snapshots.follow(worker, order)
    worker.moved()
    worker.say(m.Attached(rank=worker.rank))
    members.settle(worker)
