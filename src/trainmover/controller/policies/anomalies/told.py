# SPDX-License-Identifier: Apache-2.0
"""What a machine's kernel or processes say. Pure.

A grave line is enough. Of the others a few come on every healthy machine, so a sum is kept of those
that are more than usual (CUSUM for counts: it grows by each line and shrinks by `USUAL` a minute).
"""

from trainmover.controller.effects import Decision
from trainmover.controller.policies.anomalies.answer import found
from trainmover.controller.policies.anomalies.known import Excess, Finding
from trainmover.controller.state import Job
from trainmover.controller.values import replace
from trainmover.ids import MachineId
from trainmover.protocol.messages import Sign
from trainmover.symptoms import symptom_named

USUAL = 1.0
"""Lines a minute."""
TOO_MANY = 10.0
"""More than that."""
MINUTE_US = 60_000_000


def sign_told(job: Job, machine: MachineId, fact: Sign, at_us: int) -> Decision:
    """Its agent has read such lines."""
    symptom = symptom_named(fact.symptom)
    if job.spec.anomalies == "off" or symptom is None:
        return job, ()
    said = f"{symptom.means}: {fact.line}"
    if not symptom.grave:
        job, more = _counted(job, machine, fact, at_us)
        if more < TOO_MANY:
            return job, ()
        said = f"{more:.0f} lines more than {USUAL:g} a minute; the newest: {said}"
    seen = Finding(at_us, machine, symptom.name, said, grave=True, times=fact.count)
    return found(job, seen), ()


def _counted(job: Job, machine: MachineId, fact: Sign, at_us: int) -> tuple[Job, float]:
    """The job with a sum that has grown; those of machines that are gone are forgotten."""
    at = machine, fact.symptom
    more = risen(job.anomalies.excesses.get(at), fact.count, at_us)
    excesses = {**job.anomalies.excesses, at: Excess(more, at_us)}
    here = {of: one for of, one in excesses.items() if of[0] in job.machines}
    return replace(job, anomalies=replace(job.anomalies, excesses=here)), more


def risen(known: Excess | None, count: int, at_us: int) -> float:
    """The sum after so many lines more.

    >>> risen(None, 3, 0), risen(Excess(3.0, 0), 1, 2 * MINUTE_US), risen(Excess(3.0, 0), 1, 10**9)
    (3.0, 2.0, 1.0)
    """
    if known is None:
        return float(count)
    over = USUAL * max(at_us - known.at_us, 0) / MINUTE_US
    return max(known.value - over, 0.0) + count
