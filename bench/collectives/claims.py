# SPDX-License-Identifier: Apache-2.0
"""What is claimed, and from which figures each claim is made.

A ratio is the median over the rounds of that round's ratio: both sides of a pair were measured
seconds apart under the same load, so that a change of load between rounds does not count.
"""

import statistics

from bench import result
from bench.collectives.abort import Aborts
from bench.collectives.calls import CLAIMED, MIB, Cell, Times
from bench.collectives.codes import Codes
from bench.collectives.scale import Scale
from bench.collectives.shim import Added
from bench.collectives.switchover import Case, Switchovers
from bench.collectives.timing import Spent, size_said

WHERE = {"shm": "one host", "tcp": "loopback TCP"}
# Ours / gloo's at the sizes that are claimed.
GLOO_MOST = {
    "shm": dict(zip(CLAIMED, (1 / 10, 1 / 10, 1 / 5, 1 / 4), strict=True)),
    "tcp": dict(zip(CLAIMED, (1 / 3, 1 / 3, 1 / 2, 1 / 1.3), strict=True)),
}
# Ours / Open MPI's, on either transport.
MPI_MOST = {8: 3.0, MIB: 1.0, 64 * MIB: 1.0}
SHIM_US_MOST = 15.0
# By the codes of a call's frames, and their share of its time.
CODES_US_MOST = {8: 2.0}
CODES_SHARE_MOST = {MIB: 0.03}
LINKS_MOST = 1
# Of the largest number of processes to the smallest. gloo's grows about as that number does.
FLAT_MOST = 2.0
# Of a small sum by a tree to what all pairs take, by seats; and of a host's seats to seats apart.
TREE_MOST = {4: 1.0, 40: 1 / 3, 80: 1 / 5, 160: 1 / 10}
SHARED_MOST = 1.0
OUT_MS_MOST = {"killed": 5.0, "stopped": 2.0}
# From when the kernel had closed a killed one's sockets.
BEYOND_MS_MOST = 2.0
FROM = {"killed": "SIGKILL", "stopped": "being told of a SIGSTOP"}


def ratio(ours: list[Spent], theirs: list[Spent]) -> float:
    """Median of the rounds' ratios of median times."""
    pairs = zip(ours, theirs, strict=True)
    return statistics.median(mine.median_us / other.median_us for mine, other in pairs)


def best_ratio(ours: list[Spent], theirs: list[Spent]) -> float:
    """Of the best rounds of either; a look, no claim."""
    return min(mine.median_us for mine in ours) / min(other.median_us for other in theirs)


def of_calls(times: Times) -> list[result.Claim]:
    """Against gloo and, as far as it was measured, Open MPI; shared memory first."""
    rank_counts = sorted({cell.ranks for cell in times})
    claims = []
    for name, other, most in (("gloo", "gloo", GLOO_MOST), ("Open MPI", "Open MPI {}", None)):
        for transport in WHERE:
            limits = MPI_MOST if most is None else most[transport]
            for ranks in rank_counts:
                pair = (f"ours {transport}", other.format(transport))
                claims += _against(times, pair, ranks, limits, f"{WHERE[transport]}: time / {name}")
    return claims


def _against(
    times: Times, pair: tuple[str, str], ranks: int, limits: dict[int, float], said: str
) -> list[result.Claim]:
    claims = []
    for size, most in limits.items():
        ours, theirs = (times.get(Cell(arm, ranks, "all_reduce", size)) for arm in pair)
        if ours and theirs:
            name = f"all_reduce {size_said(size)}, {ranks} ranks, {said}'s"
            claims.append(result.Claim(name, ratio(ours, theirs), "ratio", most))
    return claims


def of_shim(added: Added) -> list[result.Claim]:
    name = "added to a call by torch's layer and the shim, 8 B"
    return [result.Claim(name, added.median_us(), "us", SHIM_US_MOST)]


def of_codes(codes: Codes) -> list[result.Claim]:
    added = [
        result.Claim(
            f"all_reduce {size_said(size)}: codes of its frames", codes.added_us(size), "us", most
        )
        for size, most in CODES_US_MOST.items()
    ]
    shares = [
        result.Claim(
            f"all_reduce {size_said(size)}: codes of its frames / all of it",
            codes.share(size),
            "ratio",
            most,
        )
        for size, most in CODES_SHARE_MOST.items()
    ]
    return added + shares


def of_switchovers(found: Switchovers) -> list[result.Claim]:
    """Of each of our arms: the links a stayer opened, and whether its pause grows with N."""
    claims = []
    for arm in sorted({case.arm for case in found.middle if case.arm.startswith("ours")}):
        opened = max(
            trial.opened
            for case, trials in found.worst.items()
            if case.arm == arm
            for trial in trials
        )
        name = f"switchover, {arm}: links opened by a stayer, at most"
        claims.append(result.Claim(name, opened, "links", LINKS_MOST))
        growth = growths(found, arm)
        if growth:
            few, many = _fewest_and_most(found)
            name = f"switchover, {arm}: phase 2 of a stayer, {many} processes / {few}"
            claims.append(result.Claim(name, statistics.median(growth), "ratio", FLAT_MOST))
    return claims


def growths(found: Switchovers, arm: str) -> list[float]:
    """Pause with the most processes / with the fewest, for each number of groups."""
    few, many = _fewest_and_most(found)
    if few == many:
        return []
    counts = sorted({case.groups for case in found.middle if case.arm == arm})
    pairs = [(Case(arm, few, groups), Case(arm, many, groups)) for groups in counts]
    return [
        still_ms(found, most) / still_ms(found, least)
        for least, most in pairs
        if least in found.middle and most in found.middle
    ]


def still_ms(found: Switchovers, case: Case) -> float:
    """Median over the trials of the middle stayer's pause."""
    return statistics.median(trial.still_ms for trial in found.middle[case])


def _fewest_and_most(found: Switchovers) -> tuple[int, int]:
    counts = {case.processes for case in found.middle}
    return min(counts), max(counts)


def of_scale(found: Scale) -> list[result.Claim]:
    """A small sum against the way of all pairs; seats that share hosts against seats apart."""
    claims = []
    for case, spent in found.times.items():
        other = found.times.get(found.compared(case), [])
        if not other or case == found.compared(case):
            continue
        if case.way == "tree":
            name = f"all_reduce 8 B, {case.seats} seats apart: time / all pairs'"
            claims.append(result.Claim(name, ratio(spent, other), "ratio", TREE_MOST[case.seats]))
        elif case.per_host > 1:
            name = f"{case.said}: time / of as many apart"
            claims.append(result.Claim(name, ratio(spent, other), "ratio", SHARED_MOST))
    return claims


def of_aborts(aborts: Aborts) -> list[result.Claim]:
    """From the signal, or from being told, to the last survivor out."""
    arms = dict.fromkeys(arm for arm, _ in aborts.trials if arm.startswith("ours"))
    claims = [
        result.Claim(
            f"abort, {arm}: from {FROM[kind]} to the last survivor out, median",
            aborts.median_ms(arm, kind),
            "ms",
            most,
        )
        for arm in arms
        for kind, most in OUT_MS_MOST.items()
    ]
    for arm in arms:
        beyond_ms = statistics.median(aborts.beyond_ms(arm))
        name = f"abort, {arm}: of that after the kernel had closed the killed one's sockets, median"
        claims.append(result.Claim(name, beyond_ms, "ms", BEYOND_MS_MOST))
    return claims
