# SPDX-License-Identifier: Apache-2.0
"""What does a slow machine cost, and how soon is it found? Beside doing nothing, and a restart.

    python -m bench.straggler            about ten minutes
    python -m bench.straggler --quick    a look, without Fig. 14

Four machines of one rank on this host, and standbys. A machine is slowed by stopping its worker's
process for 20 ms of each 115; a rank by more arithmetic in its steps; the way between two machines
by a queue of the kernel, for which each machine has a network of its own (root only).

Fig. 13 of the paper: one machine from step 75 of 100 on; Fig. 14: another one at each 50th step.
Lost is what steps take more than the median before, of all time. The restart beside it: torchrun's,
saved and restarted at the step at which ours found the machine, with the pause that it has in this
very sitting.
"""

import math
import os
import statistics
import sys
from dataclasses import asdict, replace

import msgspec

from bench import result
from bench.straggler import cost, kinds
from bench.straggler.arms import Ran, every_50th, of_kinds, one_at, play
from bench.straggler.hosts import possible
from bench.torchrun_arm import torchrun_job

SEED = 7
SINCE = 75
"""The step from which one machine is slow, as in Fig. 13."""
GPT_ARGS = ["--steps", "1000000", "--log-every", "1000000"]


def main() -> int:
    """Exit status 0 if every claim holds."""
    parser = result.parser("straggler", __doc__, quick="few trials; no claim to be stable")
    options = parser.parse_args()
    trials, times, episodes = (1, 0, 3) if options.quick else (3, 6, 20)
    if options.smoke:
        return smoke(as_json=options.json)
    loads = [os.getloadavg()[0]]
    acts, watches, often, idle = [], [], [], []
    story = one_at(SINCE, 100)
    for _ in range(trials):
        acts.append(_said("one, act", play(story, policy="act", standbys=1), SINCE))
        watches.append(_said("one, nothing", play(story, policy="watch", standbys=1), SINCE))
        loads.append(os.getloadavg()[0])
    if times:
        story = every_50th(times, SEED)
        often.append(_said("often, act", play(story, policy="act", standbys=2), 50))
        idle.append(_said("often, nothing", play(story, policy="watch", standbys=2), 50))
    both = told_apart(episodes)
    loads.append(os.getloadavg()[0])
    with torchrun_job(GPT_ARGS) as job:
        pause_ms = job.planned().downtime_ms
    claims = [*judge(acts, watches, often, idle, both), cost.claim()]
    table = tabulated(acts, watches, often, idle, both, pause_ms)
    everything = {"one": acts, "nothing": watches, "often": often, "idle": idle, "both": [both]}
    raw = {
        name: [msgspec.to_builtins(asdict(ran)) for ran in rans]
        for name, rans in everything.items()
    }
    where = result.setting(loads)
    raw_all = {**raw, "restart_ms": pause_ms}
    path = result.write("straggler", claims, table, where, raw_all, quick=options.quick)
    return result.say("straggler", claims, [*table, f"written to {path}"], as_json=options.json)


def smoke(*, as_json: bool) -> int:
    """Play one short story on two machines, and judge it as if it were both arms."""
    ran = _said("one", play(one_at(10, 18), policy="act", standbys=0, machines=2), 10)
    both = replace(ran, episodes=[])
    claims = [*judge([ran], [ran], [], [], both, since=10), cost.claim()]
    table = tabulated([ran], [ran], [], [], both, math.nan)
    raw = {"one": [msgspec.to_builtins(asdict(ran))]}
    where = result.setting([os.getloadavg()[0]])
    path = result.write("straggler", claims, table, where, raw, quick=True)
    return result.say("straggler", claims, [*table, f"written to {path}"], as_json=as_json)


def told_apart(episodes: int) -> Ran:
    """Of ways between machines, too, where they can be made slow: by root."""
    if possible():
        return kinds.played(episodes, SEED)
    print("ways between machines are left out: only root can slow them", file=sys.stderr)
    return play(of_kinds(episodes, SEED), policy="watch", standbys=0)


def judge(
    acts: list[Ran],
    watches: list[Ran],
    often: list[Ran],
    idle: list[Ran],
    both: Ran,
    *,
    since: int = SINCE,
) -> list[result.Claim]:
    """The claims with what was measured. often, idle: none where that was not."""
    taken = [steps(one) for ran in (*acts, *watches, *often, both) for one in ran.episodes]
    one = statistics.median(ran.lost(since) for ran in acts)
    nothing = statistics.median(ran.lost(since) for ran in watches)
    wrong = sum(e.found is None or e.found.kind != e.kind for e in both.episodes)
    return [
        result.Claim("steps until found, median", statistics.median(taken), "steps", 10),
        result.Claim("steps until found, worst", max(taken), "steps", 20),
        result.Claim("lost, one slow machine", 100 * one, "%", 3),
        result.Claim("lost, one slow machine / doing nothing", one / nothing, "ratio", 0.5),
        *_of_each_50th(often, idle),
        result.Claim(
            f"wrong of {len(both.episodes)}: {_kinds(both)}",
            wrong,
            "episodes",
            len(both.episodes) / 20,
        ),
    ]


def _of_each_50th(often: list[Ran], idle: list[Ran]) -> list[result.Claim]:
    if not often:
        return []
    lost, nothing = (statistics.median(ran.lost(50) for ran in rans) for rans in (often, idle))
    return [
        result.Claim("lost, another at each 50th step", 100 * lost, "%", 6),
        result.Claim("the same / doing nothing", lost / nothing, "ratio", 0.5),
    ]


def _kinds(ran: Ran) -> str:
    return ", ".join(sorted({episode.kind for episode in ran.episodes}))


def steps(episode: object) -> int:
    """Until it was found; one that never was counts as a thousand."""
    found = getattr(episode, "steps", None)
    return 1000 if found is None else found


def tabulated(
    acts: list[Ran],
    watches: list[Ran],
    often: list[Ran],
    idle: list[Ran],
    both: Ran,
    pause_ms: float,
) -> list[str]:
    """What was lost, by arm."""
    lines = ["| arm | step, ms | slow step, ms | found after steps | pauses, ms | lost, % |"]
    lines.append("|---|---|---|---|---|---|")
    for name, rans, since in (
        ("one slow machine, act", acts, SINCE),
        ("one slow machine, nothing", watches, SINCE),
        ("another each 50 steps, act", often, 50),
        ("another each 50 steps, nothing", idle, 50),
    ):
        lines += [_row(name, ran, since) for ran in rans]
    lines += [
        f"| a restart at that step: {pause_ms:.0f} ms | | | | | {_of_restart(acts, pause_ms)} |"
    ]
    found = ", ".join(str(e.steps) for e in both.episodes)
    right = sum(e.found is not None and e.found.kind == e.kind for e in both.episodes)
    lines += [
        "",
        f"By turns: {_kinds(both)}. {right} of {len(both.episodes)} rightly told apart,",
    ]
    lines += [f"found after {found} steps."]
    return lines


def _row(name: str, ran: Ran, since: int) -> str:
    slow = [e.found.own_ms for e in ran.episodes if e.found is not None]
    found = ", ".join(str(e.steps) for e in ran.episodes)
    pauses = ", ".join(f"{ms:.0f}" for ms in ran.pauses_ms) or "-"
    slow_ms = f"{statistics.median(slow):.0f}" if slow else "-"
    lost = f"{100 * ran.lost(since):.1f}"
    return f"| {name} | {ran.usual_ms:.0f} | {slow_ms} | {found} | {pauses} | {lost} |"


def _of_restart(acts: list[Ran], pause_ms: float) -> str:
    """What one would have lost that restarts as soon as ours knows."""
    lost = []
    for ran in acts:
        until = SINCE + steps(ran.episodes[0])
        slow_ms = sum(gap - ran.usual_ms for gap in ran.gaps_ms[SINCE:until])
        lost.append((slow_ms + pause_ms) / (100 * ran.usual_ms + slow_ms + pause_ms))
    return f"{100 * statistics.median(lost):.1f}"


def _said(arm: str, ran: Ran, since: int) -> Ran:
    found = [e.steps for e in ran.episodes]
    text = f"{arm:<15} step {ran.usual_ms:.0f} ms, found after {found}, pauses {ran.pauses_ms}"
    print(f"{text}, lost {100 * ran.lost(since):.1f} %", file=sys.stderr, flush=True)
    return ran


if __name__ == "__main__":
    sys.exit(main())
