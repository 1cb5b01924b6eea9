# SPDX-License-Identifier: Apache-2.0
"""How soon is a failure seen, and is one ever seen that is none?

    python -m bench.faults            seven trials of each, and half an hour without a fault
    python -m bench.faults --quick    one of each, and a quarter of a minute

Detection: from the moment a process or machine dies, freezes or stands still to the controller's
knowledge of it. Control: from the death of a controller until the next one has heard of all
machines. False alarms: incidents of a job whose steps vary by a factor of five and which evaluates,
declared as `job.pause_watch`, for 20 s. The simulator: incidents a second, time to start.
"""

import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench import result
from bench.faults import detection, replayed, simulated, takeover, uneven
from bench.faults.detection import AGENT, EXIT, FROZEN, KINDS, MACHINE, STUCK

EXIT_MS_MOST, CLOSED_MS_MOST, SILENT_MS_MOST = 20.0, 50.0, 1500.0
STUCK_STEPS, STUCK_MS_MORE = 3, 1000.0
CONTROL_MS_MOST = REPLAY_MS_MOST = 1000.0
INCIDENTS_S_LEAST = 200.0
START_S_MOST = 0.3


@dataclass
class Measured:
    """detect_ms: by kind; control_ms: of controllers; replay_ms, replay_all_ms: of a long journal,
    with a bookmark and without; the rest as the claims say."""

    detect_ms: dict[str, list[float]]
    step_ms: float
    control_ms: list[float]
    false_alarms: int
    calm_s: float
    incidents_s: float
    start_s: float
    replay_ms: list[float] = field(default_factory=list)
    replay_all_ms: list[float] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)


def main() -> int:
    """Exit status 0 if every claim holds."""
    parser = result.parser("faults", __doc__, quick="few trials; no claim to be stable")
    parser.add_argument("--trials", type=int, default=7, help="of each kind (7)")
    options = parser.parse_args()
    if options.smoke:
        measured = measure(1, 2.0, 0.5, 2, kinds=(STUCK,), events=4_000, machines=2)
    else:
        measured = measure(1, 15.0, 3.0, 10) if options.quick else measure(options.trials)
    claims, table = judge(measured), tabulated(measured)
    where = result.setting(measured.loads)
    path = result.write("faults", claims, table, where, measured.__dict__, quick=options.quick)
    return result.say("faults", claims, [*table, f"written to {path}"], as_json=options.json)


def measure(
    trials: int,
    calm_s: float = 1800.0,
    evaluation_s: float = 20.0,
    seeds: int = 200,
    kinds: Sequence[str] = KINDS,
    events: int = replayed.EVENTS_MANY,
    machines: int | None = None,
) -> Measured:
    """Everything, one after the other. machines: of each job; None: as usual."""
    here = (detection.MACHINES, detection.STANDBYS) if machines is None else (machines, 1)
    detected = detection.measure([*kinds] * trials, _said, *here)
    control_ms = takeover.measure(trials, _said, machines or takeover.MACHINES)
    replay_ms, replay_all_ms = replayed.measure(min(trials, 3), events)
    incidents_s, start_s = (
        simulated.incidents_s(seeds),
        simulated.start_s(min(trials, simulated.STARTS)),
    )
    _said(f"simulated       {incidents_s:8.0f} incidents a second")
    loads = [*detected.loads, os.getloadavg()[0]]
    uneven_ones = (uneven.MACHINES, 1) if machines is None else (machines, 0)
    false_alarms = uneven.false_alarms(
        calm_s, evaluation_s, *uneven_ones
    )  # It may meet other work.
    _said(f"false alarms    {false_alarms:8d} in {calm_s:.0f} s")
    return Measured(
        detect_ms=detected.detect_ms,
        step_ms=statistics.median(detected.step_ms),
        control_ms=control_ms,
        false_alarms=false_alarms,
        calm_s=calm_s,
        incidents_s=incidents_s,
        start_s=start_s,
        replay_ms=replay_ms,
        replay_all_ms=replay_all_ms,
        loads=loads,
    )


def judge(measured: Measured) -> list[result.Claim]:
    """The claims with what was measured, medians."""
    median = {kind: statistics.median(all_) for kind, all_ in measured.detect_ms.items() if all_}
    stuck_most = STUCK_STEPS * measured.step_ms + STUCK_MS_MORE
    control_ms = statistics.median(measured.control_ms)
    replay_ms = statistics.median(measured.replay_ms)
    most_ms = {
        EXIT: EXIT_MS_MOST,
        AGENT: CLOSED_MS_MOST,
        MACHINE: CLOSED_MS_MOST,
        FROZEN: SILENT_MS_MOST,
        STUCK: stuck_most,
    }
    return [
        *(
            result.Claim(f"{kind}: seen after", median[kind], "ms", most)
            for kind, most in most_ms.items()
            if kind in median
        ),
        result.Claim("controller killed: control again after", control_ms, "ms", CONTROL_MS_MOST),
        result.Claim("50,000 events replayed in", replay_ms, "ms", REPLAY_MS_MOST),
        result.Claim("false alarms", measured.false_alarms, "incidents", 0),
        result.Claim(
            "time of a simulated incident",
            1000.0 / measured.incidents_s,
            "ms",
            1000.0 / INCIDENTS_S_LEAST,
        ),
        result.Claim("start of the simulator", measured.start_s, "s", START_S_MOST),
    ]


def tabulated(measured: Measured) -> list[str]:
    """Detection as a table, milliseconds."""
    lines = ["| fault | seen after, ms: median (all) |", "|---|---|"]
    rows = {
        **measured.detect_ms,
        "controller killed, control again": measured.control_ms,
        "50,000 events replayed, with a bookmark": measured.replay_ms,
        "the same without one": measured.replay_all_ms,
    }
    for kind, all_ms in rows.items():
        if not all_ms:
            continue
        each = ", ".join(f"{ms:.1f}" for ms in all_ms)
        lines.append(f"| {kind} | {statistics.median(all_ms):.1f} ({each}) |")
    lines += [
        "",
        f"A step takes {measured.step_ms:.0f} ms. {measured.false_alarms} false alarms in ",
    ]
    lines[-1] += (
        f"{measured.calm_s:.0f} s. {measured.incidents_s:.0f} simulated incidents a second."
    )
    return lines


def _said(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
