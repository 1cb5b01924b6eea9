# SPDX-License-Identifier: Apache-2.0
"""How fast state moves from sources to a joiner, and what keeping it safe costs.

    python -m bench.state            five rounds, up to 2 GB, about five minutes
    python -m bench.state --quick    a look, up to 256 MB

speed   bytes from one source over 1 and 4 connections, with TLS and without, beside sockets alone
        that move as much without looking at it; the arms take turns in every round
share   two sources that may send only so much, beside one
pause   what of a job's pause state takes (its digest at both ends, and the bytes between) over the
        size of the state, and under limits; and the memory taken beyond the state itself
early   the same for a state of which nine tenths are frozen, with and without sending them before
        the pause, under a limit of 1 GB/s

Beside that: the speed of fingerprints, and a sharded job with snapshots beside one without.

Source and joiner are processes of this host, so on few cores both ends share them.
"""

import os
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench import result
from bench.collectives.crew import Crew
from bench.fingerprint import fingerprint_gb_s
from bench.snapshots import seconds, snapshot_overhead
from bench.state import picture
from bench.state.ends import MB, End
from trainmover.tls.files import TlsFiles
from trainmover.tls.making import make

RAW_MOST = 1 / 0.8
SHARED_MOST = 1 / 1.6
MEMORY_MIB_MOST = 64.0
FINGERPRINT_GB_S_LEAST = 5.0
SNAPSHOTS_MOST = 1.01
EARLY_MOST = 0.5
EARLY_BYTES_MOST = 0.11
STREAMS = (1, 4)
SHARE_BYTES_S = 250 * MB
JOINER, SOURCES = 2, (0, 1)
EARLY_BYTES_S = 1000 * MB
EARLY, ALL_IN_PAUSE = "nine tenths early", "all in the pause"


@dataclass(frozen=True)
class Plan:
    """Sizes and limits in bytes.

    snapshots  rounds, and steps of each run; of none, one run with snapshots and no comparison
    width      of the model that is fingerprinted
    """

    rounds: int
    snapshots: tuple[int, int]
    speed: int
    sizes: tuple[int, ...]
    limited: int
    limits: tuple[int, ...]
    width: int = 3072


FULL = Plan(
    rounds=5,
    snapshots=(3, 250),
    speed=1000 * MB,
    sizes=tuple(size * MB for size in (10, 30, 100, 300, 1000, 2000)),
    limited=500 * MB,
    limits=tuple(limit * MB for limit in (250, 500, 1000, 2000)),
)
QUICK = Plan(
    rounds=3,
    snapshots=(1, 60),
    speed=256 * MB,
    sizes=tuple(size * MB for size in (10, 64, 256)),
    limited=128 * MB,
    limits=(250 * MB, 1000 * MB),
)
SMOKE = Plan(
    rounds=1,
    snapshots=(0, 12),
    width=256,
    speed=16 * MB,
    sizes=(10 * MB,),
    limited=16 * MB,
    limits=(250 * MB,),
)


@dataclass
class Measured:
    """Seconds of every round.

    speed   by arm and connections
    share   by number of limited sources
    pause   by size, without a limit
    limits  by limit, at the plan's size
    early   by whether what is frozen was sent before, at the plan's size
    sent    bytes in the pause, of every round of `early`
    over    bytes of memory beyond the state, of every fetch of `pause`
    """

    speed: dict[str, list[float]] = field(default_factory=dict)
    share: dict[int, list[float]] = field(default_factory=dict)
    pause: dict[int, list[float]] = field(default_factory=dict)
    limits: dict[int, list[float]] = field(default_factory=dict)
    early: dict[str, list[float]] = field(default_factory=dict)
    sent: dict[str, list[int]] = field(default_factory=dict)
    over: list[int] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)


def main() -> int:
    """Exit status 0 if every claim holds."""
    parser = result.parser("state", __doc__, quick="few rounds; no claim to be stable")
    options = parser.parse_args()
    plan = SMOKE if options.smoke else QUICK if options.quick else FULL
    measured = Measured()
    with Crew(3, End) as crew:
        for part in (speed, share, pause, limits, early):
            part(crew, plan, measured)
    claims = [*judge(measured), *beside(plan)]
    table = tabulated(measured, plan)
    where = result.setting(measured.loads)
    path = result.write("state", claims, table, where, asdict(measured), quick=options.quick)
    drawn = result.TEMPORARY / f"{path.stem}.png"
    picture.draw(drawn, measured.pause, measured.limits, plan.limited)
    return result.say("state", claims, [*table, f"written to {path}"], as_json=options.json)


# --- measuring ------------------------------------------------------------------------------------


def speed(crew: Crew, plan: Plan, measured: Measured) -> None:
    with tempfile.TemporaryDirectory(prefix="tm-bench-") as folder:
        speed_beside(crew, plan, measured, make(Path(folder, "tls"), "bench", ["127.0.0.1"]))


def speed_beside(crew: Crew, plan: Plan, measured: Measured, files: TlsFiles) -> None:
    source = SOURCES[0]
    build(crew, plan.speed)
    address, port = crew.one(source, "serve"), crew.one(source, "port")
    secured = crew.one(source, "serve_in_tls", files)
    crew.one(JOINER, "bytes_only", [address], 1)  # Warm: the digest is made, pages are touched.
    crew.one(JOINER, "dial_in_tls", files)
    crew.one(JOINER, "bytes_only", [secured], 1)
    crew.one(JOINER, "dial_in_tls", None)
    for _ in range(plan.rounds):
        for streams in STREAMS:
            crew.ask(source, "send_raw", streams)
            raw_s = crew.one(JOINER, "take_raw", port, streams)
            crew.answer(source)
            note(measured, measured.speed, f"sockets alone, {streams}", raw_s)
            ours_s = crew.one(JOINER, "bytes_only", [address], streams)
            note(measured, measured.speed, f"transfer, {streams}", ours_s)
            crew.one(JOINER, "dial_in_tls", files)
            secured_s = crew.one(JOINER, "bytes_only", [secured], streams)
            note(measured, measured.speed, f"transfer in TLS, {streams}", secured_s)
            crew.one(JOINER, "dial_in_tls", None)


def share(crew: Crew, plan: Plan, measured: Measured) -> None:
    build(crew, plan.limited)
    addresses = crew.all("serve", SHARE_BYTES_S, seats=SOURCES)
    for _ in range(plan.rounds):
        for count in (1, 2):
            took_s = crew.one(JOINER, "bytes_only", addresses[:count], 1)
            note(measured, measured.share, count, took_s)


def pause(crew: Crew, plan: Plan, measured: Measured) -> None:
    for size in plan.sizes:
        build(crew, size)
        for _ in range(plan.rounds):
            take(crew, 0, measured, measured.pause, size)


def limits(crew: Crew, plan: Plan, measured: Measured) -> None:
    build(crew, plan.limited)
    for limit in plan.limits:
        for _ in range(plan.rounds):
            take(crew, limit, measured, measured.limits, limit)


def early(crew: Crew, plan: Plan, measured: Measured) -> None:
    """Both arms in every round, each with a joiner that holds nothing of the state."""
    size = plan.limited
    for _ in range(plan.rounds):
        for arm in (ALL_IN_PAUSE, EARLY):
            parameters = build(crew, size)
            address = crew.one(SOURCES[0], "serve", EARLY_BYTES_S)
            if arm == EARLY:
                crew.one(SOURCES[0], "train", max(1, parameters // 10))
                crew.one(JOINER, "take_early", address)
                crew.one(SOURCES[0], "stand")
            took_s, _, sent = crew.one(JOINER, "take", [address])
            measured.sent.setdefault(arm, []).append(sent)
            note(measured, measured.early, arm, took_s)


def build(crew: Crew, size: int) -> int:
    """The same state in the sources, another in the joiner. Of how many tensors."""
    for seat in (*SOURCES, JOINER):
        parameters = crew.one(seat, "build", size, 0.0 if seat == JOINER else 1.0)
    return int(parameters)


def take(
    crew: Crew, limit: int, measured: Measured, into: dict[int, list[float]], key: int
) -> None:
    """A source that has not made its digest yet."""
    address = crew.one(SOURCES[0], "serve", limit)
    took_s, over, _ = crew.one(JOINER, "take", [address])
    measured.over.append(over)
    note(measured, into, key, took_s)


def note(measured: Measured, into: dict[Any, list[float]], key: Any, took_s: float) -> None:
    into.setdefault(key, []).append(took_s)
    measured.loads.append(os.getloadavg()[0])
    print(f"{key}: {took_s * 1000:.0f} ms, load {measured.loads[-1]:.1f}", file=sys.stderr)


# --- judging --------------------------------------------------------------------------------------


def judge(measured: Measured) -> list[result.Claim]:
    """The claims with what was measured."""
    claims = [
        result.Claim(
            f"transfer, {streams} connection{'s' * (streams > 1)}: time / sockets alone's",
            paired(measured.speed, f"transfer, {streams}", f"sockets alone, {streams}"),
            "ratio",
            RAW_MOST,
        )
        for streams in STREAMS
    ]
    shared = paired(measured.share, 2, 1)
    claims.append(result.Claim("two limited sources: time / one's", shared, "ratio", SHARED_MOST))
    saved = paired(measured.early, EARLY, ALL_IN_PAUSE)
    claims.append(
        result.Claim("nine tenths sent early: pause / without", saved, "ratio", EARLY_MOST)
    )
    few = max(measured.sent[EARLY]) / min(measured.sent[ALL_IN_PAUSE])
    claims.append(result.Claim("bytes sent in it / without", few, "ratio", EARLY_BYTES_MOST))
    over = max(measured.over) / 2**20
    claims.append(result.Claim("memory beyond the state", over, "MiB", MEMORY_MIB_MOST))
    return claims


def paired(times: dict[Any, list[float]], mine: Any, other: Any) -> float:
    """Median of the rounds' ratios, so that a change of load between rounds does not count."""
    pairs = zip(times[mine], times[other], strict=True)
    return statistics.median(own / their for own, their in pairs)


def beside(plan: Plan) -> list[result.Claim]:
    """About state that does not move. Speed as time, which a claim can only have too much of."""
    took = 1 / fingerprint_gb_s(plan.width)
    claims = [
        result.Claim("fingerprint of 1 GB on one core", took, "s", 1 / FINGERPRINT_GB_S_LEAST)
    ]
    rounds, steps = plan.snapshots
    if rounds:
        share = snapshot_overhead(rounds, steps)
        return [
            *claims,
            result.Claim("run with snapshots / without", share, "ratio", SNAPSHOTS_MOST),
        ]
    seconds(None, steps, machines=2, first=4)
    return claims


def tabulated(measured: Measured, plan: Plan) -> list[str]:
    """GB/s of the arms, then the pause."""
    lines = ["| bytes only | GB/s: median (all) |", "|---|---|"]
    for arm, times in measured.speed.items():
        lines.append(
            f"| {arm} connection{'s' * (not arm.endswith(' 1'))} | {rates(plan.speed, times)} |"
        )
    for count, times in measured.share.items():
        said = f"{count} source{'s' * (count > 1)} of {SHARE_BYTES_S / 1e9:g} GB/s"
        lines.append(f"| {said} | {rates(plan.limited, times)} |")
    lines += ["", "| pause for state | limit, GB/s | ms: median (all) |", "|---|---|---|"]
    for size, times in measured.pause.items():
        lines.append(f"| {size // MB} MB | none | {millis(times)} |")
    for arm, times in measured.early.items():
        lines.append(
            f"| {plan.limited // MB} MB, {arm} | {EARLY_BYTES_S / 1e9:g} | {millis(times)} |"
        )
    for limit, times in measured.limits.items():
        lines.append(f"| {plan.limited // MB} MB | {limit / 1e9:g} | {millis(times)} |")
    return lines


def rates(size: int, times: list[float]) -> str:
    all_ = ", ".join(f"{size / took / 1e9:.2f}" for took in times)
    return f"{size / statistics.median(times) / 1e9:.2f} ({all_})"


def millis(times: list[float]) -> str:
    all_ = ", ".join(f"{took * 1000:.0f}" for took in times)
    return f"{statistics.median(times) * 1000:.0f} ({all_})"


if __name__ == "__main__":
    sys.exit(main())
