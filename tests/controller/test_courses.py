"""Parts of what decides say what is so, on hundreds of courses; a bug of one line is found."""

import pytest
from courses import wrong_in

from tests.planting import planted

SEEDS, EACH = 120, 30

# The course that finds it, and where the bug is planted.
BUGS = {
    "who was slow is slow for ever": (
        "fleet",
        "controller.policies.stragglers.pace",
        "if seen.told is not None and seen.since >= OVER and not seen.mostly_slow(OVER):",
        "if seen.told is None and seen.since >= OVER and not seen.mostly_slow(OVER):",
    ),
    "a rank is compared with itself, too": (
        "fleet",
        "controller.policies.stragglers.excess",
        "lower = self._after_lower if value < self._after_lower else self._lower",
        "lower = self._lower",
    ),
    "a slow machine is told at every step": (
        "fleet",
        "controller.policies.stragglers.pace",
        "seen.told = step + seen.again",
        "seen.told = step",
    ),
    "machines are said to wait for each other where one waits": (
        "fleet",
        "controller.policies.stragglers.ways",
        "if one < other and (other, one) in waits",
        "if one < other",
    ),
    "a controller that was busy accuses all": (
        "beats",
        "controller.policies.anomalies.late",
        "return max(usual + DEVIATIONS * spread, LEAST_S)",
        "return max(DEVIATIONS * spread, LEAST_S)",
    ),
    "memory that comes and goes is said to be full soon": (
        "beats",
        "controller.policies.anomalies.filling",
        "falls = min(most, least)",
        "falls = max(most, least)",
    ),
    "planned moves count as incidents of a machine": (
        "beats",
        "controller.policies.anomalies.repeats",
        "if incident.kind is not Kind.RECOVERY or incident.machine is None:",
        "if incident.machine is None:",
    ),
    "who has diverged is a source once more when all go back to before": (
        "rounds",
        "controller.compare.comparison",
        "if doubt.until is not None and step <= doubt.until",
        "if doubt.until is None and step <= doubt.until",
    ),
    "a script that trains ranks apart is taken for a flipped bit": (
        "rounds",
        "controller.compare.parting",
        "return found.alike and count <= FEW and differ < len(held)",
        "return found.alike and differ < len(held)",
    ),
    "a row that a machine may take with it is out of the record": (
        "rows",
        "rank.told",
        "while len(self._told) > TOLD_KEPT and not self._is_kept(now_ns, unheard=unheard):",
        "while len(self._told) > TOLD_KEPT:",
    ),
    "a snapshot that is void on one rank stays on the others": (
        "cuts",
        "rank.cuts",
        "return self._drop(at for at in self.held if at > self.complete)\n\n    def spoiled",
        "return []\n\n    def spoiled",
    ),
    "what came before a large number of facts is forgotten": (
        "values",
        "controller.facts",
        "new._large, new._newer = {**self._large, **newer}, {}",
        "new._large, new._newer = {**newer}, {}",
    ),
    "a machine that is lost again and again waits no longer than before": (
        "values",
        "controller.standby.flapping",
        "FIRST_S * 2.0 ** min(len(losses) - 2, 30)",
        "FIRST_S * 2.0 ** min(len(losses) - 2, 0)",
    ),
    "a machine that is to get fresh processes is forgotten": (
        "plans",
        "controller.policies.plans.roll",
        "return job, renewed + moving",
        "return job, moving",
    ),
    "of a ring of slots all are put on standbys": (
        "plans",
        "controller.policies.plans.place",
        "if slot in path:",
        "if slot is not None:",
    ),
    "two machines are counted for each that is lost early": (
        "beginnings",
        "controller.start",
        "job = replace(job, lost_early=job.lost_early + 1)",
        "job = replace(job, lost_early=job.lost_early + 2)",
    ),
    "a job begins again once more often than it may": (
        "beginnings",
        "controller.start",
        "    if job.restarts > job.spec.restarts_max:\n        return end(\n",
        "    if job.restarts > job.spec.restarts_max + 1:\n        return end(\n",
    ),
    "what was retried is measured by what was replaced": (
        "losses",
        "controller.change.options",
        "lambda one: one.rung == 1 and one.joiner is None",
        "lambda one: one.rung == 1 and one.joiner is not None",
    ),
    "ranks that were moved in vain are moved again": (
        "stragglers",
        "controller.policies.stragglers.answer",
        "return any(move.effect is Effect.VAIN for move in moves)",
        "return any(move.effect is Effect.WORSE for move in moves)",
    ),
    "a process that cannot be killed is waited for": (
        "standstill",
        "controller.standstill.hanging",
        "spared = waited >= END_US and can_be_replaced(job, machine)",
        "spared = waited >= 2 * END_US and can_be_replaced(job, machine)",
    ),
    "a machine goes for a way that was gone for a moment": (
        "ways",
        "controller.standstill.probing",
        "twice = missing & job.hanging.missing",
        "twice = missing",
    ),
    "a way that was gone an hour ago is gone twice": (
        "ways",
        "controller.standstill.probing",
        "missing = job.hanging.missing if lately else frozenset()",
        "missing = job.hanging.missing",
    ),
    "a rank that goes round has as long as the most patient one": (
        "lateness",
        "controller.standstill.lateness",
        "late = (rank for rank in _awaited(job, change) if is_late(rank))",
        "late = (rank for rank in patience if most_ms >= max(patience.values()))",
    ),
    "who has left in time is ended for not leaving": (
        "lateness",
        "controller.standstill.lateness",
        "if local not in job.machines[name].said and local in job.machines[name].pids",
        "if local in job.machines[name].pids",
    ),
    "a rank is blamed before the new one is seen to wait": (
        "lateness",
        "controller.standstill.hanging",
        "return joiner.said if joiner.state is MachineState.BOUND else frozenset()",
        "return frozenset(range(job.spec.nproc))",
    ),
    "what a lost rank held is written by the first rank alone": (
        "last",
        "controller.keep.last_checkpoint",
        "writer=writers[index % len(writers)],",
        "writer=writers[0],",
    ),
    "a rank that is another process now writes its own snapshot": (
        "last",
        "controller.keep.last_checkpoint",
        "if rank in cut.workers and address_of(job, job.seats, rank) == cut.workers[rank]",
        "if rank in cut.workers",
    ),
    "a machine that nothing speaks against is in doubt": (
        "parted",
        "controller.compare.replacing",
        "return bool(divergence.diverged) and divergence.kind is Parted.CORRUPTION",
        "return bool(divergence.diverged)",
    ),
    "a rank is moved though nobody has what it ought to hold": (
        "parted",
        "controller.compare.replacing",
        "if tries < TRIES_MAX and _can_be_mended(job, rank):",
        "if tries < TRIES_MAX:",
    ),
    "those who hold what most do are not believed": (
        "parted",
        "controller.compare.replicas",
        "family = [rank for rank in fact.holders if rank not in most]",
        "family = [rank for rank in fact.holders if rank in most]",
    ),
    "a process is ended while first steps compile": (
        "standstill",
        "controller.standstill.hanging",
        "return job.all_recorded and not job.finished and not switches",
        "return not job.finished and not switches",
    ),
    "a snapshot is given to a vault though another one has it": (
        "back",
        "controller.keep.cuts",
        "if cut.workers.get(rank) in here and not (cut.vaults.get(rank) or cut.further.get(rank))",
        "if cut.workers.get(rank) in here and not cut.vaults.get(rank)",
    ),
    "a snapshot that no vault has taken is waited for": (
        "back",
        "controller.keep.cuts",
        "workers={r: its for r, its in cut.workers.items() if r != rank}",
        "workers=cut.workers",
    ),
    "a job that is stopped while members change waits for a checkpoint": (
        "saving",
        "controller.keep.stopping",
        "trains = job.change is None and not job.finished",
        "trains = not job.finished",
    ),
    "a cut is written though a process of it is no member any more": (
        "saving",
        "controller.keep.checkpoints",
        "address_of(job, job.seats, rank) == worker for rank, worker in cut.workers.items()",
        "address_of(job, job.seats, rank) != 0 for rank, worker in cut.workers.items()",
    ),
    "of a moved machine's ranks the quickest is measured": (
        "fleet",
        "controller.policies.stragglers.pace",
        "own_us, usual_us, busier = max(each, key=lambda of: of[0] - of[1])",
        "own_us, usual_us, busier = min(each, key=lambda of: of[0] - of[1])",
    ),
    "what was told of a step that was cut short is told of its second try": (
        "fleet",
        "controller.policies.stragglers.pace",
        "role.pending.clear()",
        "role.pending",
    ),
    "a joiner that is to leave waits for its rank": (
        "ranks",
        "rank.standing",
        "if self.leave >= bound_for or self.exit:",
        "if self.exit:",
    ),
    "a snapshot of the rank that a process had before is that of its new one": (
        "cuts",
        "rank.cuts",
        "return held if held is not None and held.rank == rank else None",
        "return held",
    ),
    "what an examination before has told counts": (
        "health",
        "controller.policies.health.examine",
        "if known is None or known.told or known.number != fact.number:",
        "if known is None or known.told:",
    ),
    "a vault without room, and ranks that go on to keep snapshots": (
        "keeping",
        "controller.keep.cuts",
        "    return job, effects + more\n\n\ndef _held_by",
        "    return job, more\n\n\ndef _held_by",
    ),
    "a standby is tried again at every beat": (
        "readiness",
        "controller.standby.warming",
        "min(TRY_AGAIN_US << machine.tries, TRY_AGAIN_US_MAX)",
        "min(TRY_AGAIN_US >> machine.tries, TRY_AGAIN_US_MAX)",
    ),
    "a rank that waits for a verdict follows an older one": (
        "ranks",
        "rank.standing",
        "out = self.pending and verdict is not None and verdict.epoch == self.ordered",
        "out = self.pending and verdict is not None and verdict.epoch <= self.ordered",
    ),
    "a joiner speaks for a rank before it has it": (
        "recoveries",
        "controller.change.reports",
        "return job.seats[slot] == machine",
        "return True",
    ),
    "the step of survivors that were all in its gate is thrown away": (
        "recoveries",
        "controller.change.verdict",
        "if everybody_in and _all_held(lost, held, Step(past + 2)):",
        "if False:",
    ),
    "who was to join is looked for anew": (
        "recoveries",
        "controller.change.interruption",
        "        if slot in vacant\n",
        "        if slot not in vacant\n",
    ),
    "first steps of an epoch that was given up count": (
        "recoveries",
        "controller.change.incidents",
        "certificates=(), committed_first=Ranks(), **changes",
        "certificates=(), **changes",
    ),
    "what was prepared by a store that is lost counts": (
        "moves",
        "controller.store",
        "replace(change, epoch=epoch, prepared=Ranks())",
        "replace(change, epoch=epoch)",
    ),
    "a joiner of a move that is given up runs on": (
        "moves",
        "controller.change.move",
        "effects.append(Send(machine, Leave(epoch=change.epoch)))",
        "pass",
    ),
    "nobody is told of a move that a loss has overtaken": (
        "moves",
        "controller.change.interruption",
        "return job, answer + effects",
        "return job, effects",
    ),
    "a record is counted on whose machine is lost": (
        "dead_ends",
        "controller.change.recovery",
        "if not holders(change, rank, resume, vaults):",
        "if False:",
    ),
    "a state is believed that is not the one that was sent": (
        "dead_ends",
        "controller.change.reports",
        "if not certificate.equal:",
        "if False:",
    ),
    "each loss begins the wait for a machine anew": (
        "dead_ends",
        "controller.change.interruption",
        "waits = job.change is not None and job.change.missing",
        "waits = None",
    ),
    "a snapshot that is nowhere but in a process may go with it": (
        "goings_back",
        "controller.change.going_back",
        "return amend(job, change.incident, step=cut.step), released + given + orders",
        "return amend(job, change.incident, step=cut.step), released + orders",
    ),
    "steps that are made again are not told of": (
        "goings_back",
        "controller.change.going_back",
        "redone = newest(job) - job.cut.step",
        "redone = 0",
    ),
    "a checkpoint that is damaged is read again": (
        "resuming",
        "controller.change.from_disk",
        "return replace(job, unusable=job.unusable | {fact.unusable})",
        "return job",
    ),
    "all go on before it is known from where": (
        "resuming",
        "controller.change.from_disk",
        "if change is None or not change.disk or change.epoch != event.epoch:",
        "if change is None or not change.disk:",
    ),
    "who has left is waited for": (
        "endings",
        "controller.change.seats",
        "        if rank not in job.exited\n",
        "",
    ),
    "the place of a machine that is through is taken": (
        "endings",
        "controller.state",
        "if self._is_empty(machine) and self._is_needed(Slot(slot))",
        "if self._is_empty(machine)",
    ),
    "of what is long over nothing is told": (
        "losses",
        "controller.change.past",
        "return job, tuple(map(Closed, over))",
        "return job, ()",
    ),
    "a process that was replaced is heard of once more, and counts": (
        "restarts",
        "controller.start",
        "gone=frozenset(current.pids.values())",
        "gone=frozenset()",
    ),
    "a machine that is lost while all begin again is one more restart": (
        "restarts",
        "controller.start",
        "again = job.phase is Phase.STARTING",
        "again = job.phase is Phase.GATHERING",
    ),
    "ranks begin with another torch than the others": (
        "restarts",
        "controller.start",
        "if others := [name for name in job.seats if other_torch(job, job.machines[name])]:",
        "if others := [name for name in job.seats if not job.machines[name].torch]:",
    ),
    "machines of one rack stand next to each other": (
        "buddies",
        "controller.change.buddies",
        "name: (turn, domain)",
        "name: (domain, turn)",
    ),
    "one more copy is in the rack of the first": (
        "buddies",
        "controller.change.buddies",
        "return domain == own, domain == its",
        "return domain == own, domain != its",
    ),
    "what a job that is stopped waits for is any checkpoint": (
        "saving",
        "controller.keep.stopping",
        "tried = job.checkpointed > stopping.after",
        "tried = job.checkpointed >= stopping.after",
    ),
    "a process that can run the script once is told to do so again": (
        "joining",
        "controller.standby.standbys",
        "then = MachineState.DOWN if current.once else MachineState.IDLE",
        "then = MachineState.IDLE",
    ),
    "a run of steps that nobody makes any more is bound": (
        "joining",
        "controller.standby.warming",
        "if machine.state is not MachineState.HOLDING and machine.held is None:",
        "if machine.state is not MachineState.HOLDING:",
    ),
    "memory of one process is taken for that of all": (
        "processes",
        "controller.standby.attest",
        "held_bytes=before.held_bytes + fact.held_bytes,",
        "held_bytes=fact.held_bytes,",
    ),
    "a drain waits for a move of other machines": (
        "asked",
        "controller.policies.maintenance.drain",
        "return set(change.leavers.values()) == set(names)",
        "return True",
    ),
    "a plan that goes on keeps the move that came to nothing": (
        "stops",
        "controller.policies.plans.steering",
        'plan = replace(plan, standing=Standing.GOING, why="", incident=0)',
        'plan = replace(plan, standing=Standing.GOING, why="")',
    ),
    "who holds the run of a slot takes another": (
        "chosen",
        "controller.standby.joiners",
        "for slot in sorted(slots, key=lambda slot: (slot not in free.by_held, slot)):",
        "for slot in sorted(slots):",
    ),
    "a record that another refers to is not told of": (
        "records",
        "controller.standby.places",
        "wanted += [base for base in bases if base is not None and base not in records]",
        "wanted += []",
    ),
    "lines of one machine count for another": (
        "signs",
        "controller.policies.anomalies.told",
        "at = machine, fact.symptom",
        'at = MachineId("m1"), fact.symptom',
    ),
    "half of the machines may be taken out at once": (
        "signs",
        "controller.policies.anomalies.answer",
        "len(job.machines) // PART",
        "len(job.machines) // 2",
    ),
    "what a process says counts after it has ended": (
        "hearsay",
        "controller.decide",
        "if local_rank not in job.machines[machine].workers:",
        "if False:",
    ),
    "a rank's steps are changed by another machine": (
        "hearsay",
        "controller.decide",
        "case StepsChanged() if job.rank_of(machine, local_rank) == fact.rank:",
        "case StepsChanged():",
    ),
    "a machine that comes during a recovery is not told of it": (
        "comings",
        "controller.machines",
        "if change is None or change.kind is not Kind.RECOVERY:",
        "if True:",
    ),
    "numbers that a torn journal has lost are given out again": (
        "comings",
        "controller.machines",
        "epoch_last=Epoch(job.epoch_last + passed),",
        "",
    ),
    "a machine is compared with itself alone": (
        "figures",
        "controller.policies.health.figures",
        "if len(told) >= LEAST_KNOWN}",
        "if len(told) >= 1}",
    ),
}


@pytest.mark.turns(4)
@pytest.mark.parametrize("first", range(0, SEEDS, EACH))
def test_nothing_else_is_said_than_is_so(first: int) -> None:
    for seed in range(first, first + EACH):
        assert not wrong_in(seed), f"seed {seed}"


@pytest.mark.parametrize("what", BUGS)
def test_a_planted_bug_is_found(what: str) -> None:
    course, *bug = BUGS[what]
    with planted(*bug):
        assert any(_found(seed, course) for seed in range(4 * SEEDS))


def _found(seed: int, course: str) -> bool:
    try:
        return bool(wrong_in(seed, course))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return True
