# SPDX-License-Identifier: Apache-2.0
"""How often are signs of a coming failure wrong, and how soon are they there?

    python -m bench.anomalies            24 h of 256 machines, each detector, three kinds of noise
    python -m bench.anomalies --quick    2 h of 16 machines

Noise is simulated, and given to the detectors that run in a job. It is meant to be worse than that
of a healthy cluster:

    heartbeats  on their way each takes a log-normal time; 1 in 200 is late by a Pareto law with
                exponent 1.5 (tens of seconds come up), and four times an hour the controller
                itself hears nobody for up to 30 s (Dean, Barroso, "The Tail at Scale", CACM 2013)
    memory      three tenths are free, in the mean: it wanders from there by 4 % with a memory of
                two hours, and a saw of four minutes, as collectors of garbage make it, takes up to
                a tenth of all, so less than a fifth is often free; half a percent of jitter
    own times   the three models of tests/controller/policies/test_slow_noise.py: jitter, drift and
                spikes; steps of a second
    kernel log  on each machine lines that are no symptom, and in the mean six symptoms an hour of
                those that healthy machines have, in bursts of up to five
    incidents   two an hour, on machines by chance

Then each machine fails in its turn, and it is measured how long it takes until that is told. That
a detector can find something is what makes its silence worth something.
"""

import math
import os
import random
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench import result
from trainmover.controller import Job, decide
from trainmover.controller.events import AgentSaid, AnomalyFound
from trainmover.controller.policies.anomalies.drift import Drift
from trainmover.controller.policies.anomalies.look import ROUND_US, Look
from trainmover.controller.policies.anomalies.repeats import repeating
from trainmover.controller.state import Incident, Kind, Machine, Machines, Phase
from trainmover.ids import Epoch, MachineId
from trainmover.protocol.messages import JobSpec, Sign

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "controller" / "policies"))  # Its noise is ours, too.

HOUR_S = 3600
BEAT_US = 200_000
WANDERS_US = 2 * HOUR_S * 10**6
WHOLE = 512 * 10**9
STEP_S = 1
TRIALS = 20
NOTED = ("corrected", "disk", "network", "stall", "heat")


@dataclass
class Heard:
    """What a detector has said. hours: of all machines together. after_s: of each failure."""

    hours: float
    false: int = 0
    after_s: list[float] = field(default_factory=list)
    missed: int = 0

    @property
    def a_day(self) -> float:
        """False signs of one machine in 24 h."""
        return self.false / self.hours * 24


def main() -> int:
    """Exit status 0 if all claims hold."""
    parser = result.parser("anomalies", __doc__, quick="2 h of 16 machines")
    options = parser.parse_args()
    hours, machines = (2, 16) if options.quick else (24, 256)
    trials = 1 if options.smoke else TRIALS
    loads = [os.getloadavg()[0]]
    heard = {}
    for name, detect in DETECTORS.items():
        print(f"{name}: {hours} h of {machines} machines", file=sys.stderr, flush=True)
        heard[name] = detect(hours, machines, trials)
    loads.append(os.getloadavg()[0])
    claims = [
        claim
        for name, one in heard.items()
        for claim in (
            result.Claim(f"false signs a machine and day: {name}", one.a_day, "", 0.01),
            result.Claim(f"failures that were not seen: {name}", one.missed, "", 0),
        )
    ]
    lines, raw = table(heard), {name: asdict(one) for name, one in heard.items()}
    where = result.setting(loads)
    path = result.write("anomalies", claims, lines, where, raw, quick=options.quick)
    return result.say("anomalies", claims, [*lines, f"written: {path}"], as_json=options.json)


def table(heard: dict[str, Heard]) -> list[str]:
    lines = ["| detector | machine hours | false signs | seen | after, median | worst |"]
    lines.append("|---|---|---|---|---|---|")
    for name, one in heard.items():
        seen = f"{len(one.after_s)} of {len(one.after_s) + one.missed}"
        after = (
            [statistics.median(one.after_s), max(one.after_s)] if one.after_s else [math.nan] * 2
        )
        spans = " | ".join(f"{span:.0f} s" for span in after)
        lines.append(f"| {name} | {one.hours:,.0f} | {one.false} | {seen} | {spans} |")
    return lines


def job_of(machines: int) -> Job:
    """One that runs, as far as detectors look at it."""
    spec = JobSpec(run_id="noise", argv=["train.py"], machines=machines)
    names = [MachineId(f"m{n}") for n in range(machines)]
    here = Machines({name: Machine(name, standby=False, vault="", host=name) for name in names})
    return Job(spec=spec, phase=Phase.RUNNING, seats=tuple(names), machines=here)


# --- heartbeats, memory --------------------------------------------------------------------------


def late(hours: float, machines: int, trials: int = TRIALS) -> Heard:
    """A machine that fails pauses for some seconds, again and again."""
    job, heard = job_of(machines), Heard(hours * machines)
    chance = np.random.default_rng(1)
    heard.false = len(list(beats(job, chance, hours * HOUR_S)))
    for trial in range(trials):
        bad = MachineId(f"m{trial % machines}")
        found = next(beats(job, chance, 1800, bad=bad, since_s=600), None)
        _note(heard, found, bad, 600)
    return heard


def beats(
    job: Job,
    chance: np.random.Generator,
    seconds: float,
    *,
    bad: MachineId | None = None,
    since_s: float = 0,
) -> Iterator[AnomalyFound]:
    """Every heartbeat of every machine, in the order of each; none overtakes another."""
    look, deaf_until_us = Look(), 0
    last_us = dict.fromkeys(job.machines, 0)
    for at_us in range(0, int(seconds * 1e6), ROUND_US):
        if chance.random() < 4 * ROUND_US / 1e6 / HOUR_S:
            deaf_until_us = at_us + int(chance.integers(30_000_000))
        for name in job.machines:
            fails = name == bad and at_us >= since_s * 1e6
            sent = np.arange(at_us, at_us + ROUND_US, BEAT_US) + _on_their_way(chance, fails=fails)
            come = np.maximum.accumulate(np.maximum(sent, [last_us[name]]))
            come = np.maximum(come, deaf_until_us if deaf_until_us > at_us else 0)
            last_us[name] = int(come[-1])
            for heard_us in come.astype(int).tolist():
                look.heard(name, 0, 0, heard_us)
        yield from look.look(job, at_us + ROUND_US)


def _on_their_way(chance: np.random.Generator, *, fails: bool) -> NDArray[np.float64]:
    """Microseconds, of the heartbeats of a round."""
    count = ROUND_US // BEAT_US
    takes = chance.lognormal(np.log(5_000), 0.5, count)
    takes += (chance.random(count) < 1 / 200) * 100_000 * (1 + chance.pareto(1.5, count))
    if fails:
        takes[chance.integers(count)] += chance.uniform(2e6, 6e6)
    return takes


def filling(hours: float, machines: int, trials: int = TRIALS) -> Heard:
    """A machine that fails loses 1 % of its memory a minute, and has half that saw."""
    job, heard = job_of(machines), Heard(hours * machines)
    chance = random.Random(2)
    heard.false = len(list(memories(job, chance, hours * HOUR_S, Look())))
    for trial in range(trials):
        bad = MachineId(f"m{trial % machines}")
        look = Look()
        found = next(memories(job, chance, 6000, look, bad=bad), None)
        _note(heard, found, bad, 0)
    return heard


def memories(
    job: Job, chance: random.Random, seconds: float, look: Look, *, bad: MachineId | None = None
) -> Iterator[AnomalyFound]:
    wanders = {name: 0.3 for name in job.machines}
    for at_us in range(0, int(seconds * 1e6), ROUND_US):
        for number, name in enumerate(job.machines):
            home = (0.3 - wanders[name]) * ROUND_US / WANDERS_US
            wanders[name] += home + chance.gauss(0, 0.04 * math.sqrt(2 * ROUND_US / WANDERS_US))
            saw = 0.1 * ((at_us / 1e6 + 37 * number) % 240) / 240
            free = wanders[name] - saw + chance.gauss(0, 0.005)
            if name == bad:
                free = 0.4 - 0.01 * at_us / 60e6 - saw / 2 + chance.gauss(0, 0.002)
            look.heard(name, round(WHOLE * max(free, 0.0)), WHOLE, at_us + ROUND_US - 1)
        yield from (one for one in look.look(job, at_us + ROUND_US) if one.sign == "filling")


# --- own times -----------------------------------------------------------------------------------


def creeps(hours: float, machines: int, trials: int = TRIALS) -> Heard:
    """A machine that fails becomes 8 % slower within half an hour: below what counts as slow."""
    from test_slow_noise import MODELS, RANKS  # type: ignore[import-not-found]

    heard = Heard(0.0)
    for number, model in enumerate(MODELS):
        chance = np.random.default_rng(number)
        for _ in range(machines // RANKS):
            steps = int(hours * HOUR_S / STEP_S)
            owns = model(chance, steps, 0)
            heard.hours += hours * RANKS
            heard.false += sum(len(crept(owns, rank)) for rank in range(RANKS))
        for trial in range(trials):
            owns = model(chance, 3 * HOUR_S, 0)
            rank = trial % RANKS
            owns[HOUR_S:, rank] *= 1 + 0.08 * np.minimum(np.arange(2 * HOUR_S) / 1800, 1)
            at = [step for step in crept(owns, rank) if step >= HOUR_S]
            heard.after_s += [float(at[0] - HOUR_S)] if at else []
            heard.missed += not at
    return heard


def crept(owns: NDArray[np.float64], rank: int) -> list[int]:
    """Steps at which that rank is told to have crept away."""

    usual = np.median(np.delete(owns, rank, axis=1), axis=1)
    drift = Drift()
    pairs = zip((owns[:, rank] * 1e6).tolist(), (usual * 1e6).tolist(), strict=True)
    return [step for step, (own, other) in enumerate(pairs) if drift.add(own, other) is not None]


# --- lines, incidents ----------------------------------------------------------------------------


def kernel(hours: float, machines: int, trials: int = TRIALS) -> Heard:
    """A machine that fails has a line of the kind every five seconds, or one that is grave."""
    heard = Heard(hours * machines)
    chance = random.Random(3)
    job = job_of(machines)
    for at_s, name in symptoms(chance, hours, job):
        job = said(job, name, chance.choice(NOTED), chance.randint(1, 5), at_s)
    heard.false = len(job.anomalies.findings)
    for trial in range(trials):
        bad, job = MachineId(f"m{trial % machines}"), job_of(machines)
        symptom = "gpu" if trial % 2 else NOTED[trial % len(NOTED)]
        after_s = next((s for s in range(0, 600, 5) if _found_after(job, bad, symptom, s)), None)
        heard.after_s += [] if after_s is None else [float(after_s)]
        heard.missed += after_s is None
    return heard


def symptoms(chance: random.Random, hours: float, job: Job) -> Iterator[tuple[float, MachineId]]:
    """Three lines a burst, two bursts an hour and machine."""
    names, at_s = [*job.machines], 0.0
    while (at_s := at_s + chance.expovariate(2 * len(names) / HOUR_S)) < hours * HOUR_S:
        yield at_s, chance.choice(names)


def said(job: Job, name: MachineId, symptom: str, count: int, at_s: float) -> Job:
    fact = Sign(symptom=symptom, line="as kernels say it", count=count)
    return decide(job, AgentSaid(at_us=round(at_s * 1e6), machine=name, fact=fact))[0]


def _found_after(job: Job, name: MachineId, symptom: str, seconds: int) -> bool:
    for at_s in range(0, seconds + 1, 5):
        job = said(job, name, symptom, 1, at_s)
    return bool(job.anomalies.findings)


def repeats(hours: float, machines: int, trials: int = TRIALS) -> Heard:
    """A machine that fails has the next incidents, all of them, ten minutes apart."""
    heard = Heard(hours * machines)
    chance = random.Random(4)
    job, at_s = job_of(machines), 0.0
    told: dict[MachineId, float] = {}
    while (at_s := at_s + chance.expovariate(2 / HOUR_S)) < hours * HOUR_S:
        job = _with_incident(job, chance.choice([*job.machines]), at_s)
        for name in repeating(job, round(at_s * 1e6)):
            heard.false += at_s - told.get(name, -HOUR_S) >= HOUR_S
            told[name] = at_s
    for trial in range(trials):
        bad, job = MachineId(f"m{trial % machines}"), job_of(machines)
        at_s = 0.0
        for _ in range(10):
            job = _with_incident(job, bad, at_s)
            if bad in repeating(job, round(at_s * 1e6)):
                break
            at_s += 600
        heard.after_s += [at_s] if at_s < 6000 else []
        heard.missed += at_s >= 6000
    return heard


def _with_incident(job: Job, name: MachineId, at_s: float) -> Job:
    one = Incident(
        number=len(job.incidents) + 1, kind=Kind.RECOVERY, machine=name, joiner=None, ranks=(),
        cause="worker 0 ended (signal 11)", rung=1, epoch=Epoch(1),
        marks={"begun": round(at_s * 1e6)},
    )  # fmt: skip
    return replace(job, incidents=(*job.incidents, one))


def _note(heard: Heard, found: AnomalyFound | None, bad: MachineId, since_s: float) -> None:
    if found is None or found.machine != bad:
        heard.missed += 1
        heard.false += found is not None
        return
    heard.after_s.append(found.at_us / 1e6 - since_s)


DETECTORS: dict[str, Callable[[float, int, int], Heard]] = {
    "late": late,
    "filling": filling,
    "creeps": creeps,
    "kernel log": kernel,
    "repeats": repeats,
}

if __name__ == "__main__":
    sys.exit(main())
