# SPDX-License-Identifier: Apache-2.0
"""What a job does about a machine that seems about to fail. Pure.

`watch` says it. `act` lets a machine of which something grave was found take no ranks any more; its
own go to a standby as soon as one can take them, as those of a machine that will be taken away
(`maintenance.leaving`). What is not grave is only said: it may be what the script does. Where more
than a quarter of the machines show something at once it is hardly theirs, and they are needed.
"""

from trainmover.controller.change.seats import with_cordon
from trainmover.controller.effects import Decision
from trainmover.controller.events import AnomalyFound
from trainmover.controller.policies.anomalies.known import KEPT, Finding
from trainmover.controller.state import Cordon, Job
from trainmover.controller.values import replace
from trainmover.ids import MachineId

AGAIN_US = 3600 * 1_000_000
"""The same of the same machine is told again after an hour."""
PART = 4
"""At most one in so many is taken out."""


def anomaly_found(job: Job, event: AnomalyFound) -> Decision:
    """One of the detectors beside the job has found something."""
    if job.spec.anomalies == "off":
        return job, ()
    seen = Finding(event.at_us, event.machine, event.sign, event.text, event.grave)
    return found(job, seen), ()


def found(job: Job, seen: Finding) -> Job:
    """Keep it, and do what is to be done. A machine that has been lost by now is none."""
    if seen.machine not in job.machines:
        return job
    findings = job.anomalies.findings
    for at, one in enumerate(findings):
        if _same(one, seen):
            again = replace(one, times=one.times + seen.times)
            return _with(job, (*findings[:at], again, *findings[at + 1 :]))
    why_not = _why_not(job, seen)
    if not why_not:
        known = job.cordoned.get(seen.machine)
        cordon = known or Cordon(seen.at_us, f"about to fail: {seen.text}", spared=True)
        job = with_cordon(job, seen.machine, replace(cordon, failing=True))
    done = why_not or (
        "its ranks go to a standby" if seen.machine in job.seats else "it takes no ranks"
    )
    return _with(job, (*findings, replace(seen, done=done))[-KEPT:])


def _same(one: Finding, seen: Finding) -> bool:
    lately = seen.at_us - one.at_us < AGAIN_US
    return lately and (one.machine, one.sign) == (seen.machine, seen.sign)


def _why_not(job: Job, seen: Finding) -> str:
    """Why nothing is done; "" if something is."""
    if not seen.grave:
        return "this alone is no reason to move it"
    known = job.cordoned.get(seen.machine)
    if known is not None and known.failing:
        return "it takes no ranks already"
    if job.spec.anomalies != "act":
        return "nothing is done; --anomalies act would give its ranks to a standby"
    if len(failing(job)) >= max(1, len(job.machines) // PART):
        return "nothing is done: so many machines at once are hardly what is broken"
    return ""


def failing(job: Job) -> list[MachineId]:
    """Those that are here and were taken out."""
    return [name for name, one in job.cordoned.items() if one.failing and name in job.machines]


def _with(job: Job, findings: tuple[Finding, ...]) -> Job:
    return replace(job, anomalies=replace(job.anomalies, findings=findings))
