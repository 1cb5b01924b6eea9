# SPDX-License-Identifier: Apache-2.0
"""`trainmover simulate --seed 7`: the controller that runs jobs, where everything goes wrong."""

import argparse
import gc
import sys
import time

from trainmover.cli.output import redraw, say, say_json
from trainmover.errors import UserError
from trainmover.simulator.coverage import Coverage, possible_pairs
from trainmover.simulator.faults import MIXES, NAMES, Faults, only
from trainmover.simulator.report import Summary, failure
from trainmover.simulator.story import plan_of, play
from trainmover.simulator.trace import Trace

PROGRESS_S = 0.5
GARBAGE_AFTER = 20_000
"""Worlds make many values and few cycles: to look for those less often makes them quicker."""


def main(options: argparse.Namespace) -> int:
    """Play seeds. Exit status 1 if something happened that must never be."""
    seeds = _seeds(options)
    gc.set_threshold(GARBAGE_AFTER)
    began = time.perf_counter()
    summary, coverage = Summary(), Coverage()
    for seed in seeds:
        _play(seed, options, summary, coverage, began, many=len(seeds) > 1)
    took_s = time.perf_counter() - began
    if options.json:
        say_json(summary.as_json(took_s) | _covered(options, coverage))
    else:
        _progress("")
        say("\n".join(summary.lines(took_s)))
        if options.coverage:
            say("\n".join(_coverage_lines(coverage)))
    return 1 if summary.failed else 0


def _seeds(options: argparse.Namespace) -> range:
    if options.seeds is None:
        return range(options.seed, options.seed + 1)
    first, _, end = options.seeds.partition("..")
    if not (first.isdecimal() and end.isdecimal()):
        raise UserError(
            f"{options.seeds!r} is no range of seeds.",
            means="Nothing was simulated.",
            do="Write it as --seeds 0..500",
        )
    return range(int(first), int(end))


def _faults(options: argparse.Namespace) -> Faults:
    mix = MIXES[options.mix]
    if options.faults is None:
        return mix
    names = options.faults.split(",")
    if unknown := [name for name in names if name not in NAMES]:
        raise UserError(
            f"There is no fault {unknown[0]!r}.",
            means="Nothing was simulated.",
            do=f"Choose among: {', '.join(NAMES)}",
        )
    return only(names, like=mix)


def _play(
    seed: int,
    options: argparse.Namespace,
    summary: Summary,
    coverage: Coverage,
    began: float,
    *,
    many: bool,
) -> None:
    plan = plan_of(
        seed,
        machines=options.machines,
        standbys=options.standbys,
        nproc=options.nproc,
        seconds=round(60 * options.minutes),
        faults=_faults(options),
    )
    trace = (Trace(say),) if options.trace else ()
    more = (coverage,) if options.coverage else ()
    result = play(plan, *trace, *more)
    flags = _flags(options)
    summary.add(result, flags)
    if result.violation and not options.json:
        if not options.trace:  # Play it again, to see how it came to that.
            result = play(plan, Trace())
        _progress("")
        say("\n".join(failure(result, flags, last=1 if options.trace else 25)))
    elif many and not options.json:
        took_s = time.perf_counter() - began
        _progress(f"seed {seed}: {summary.incidents} incidents in {took_s:.0f} s")


def _flags(options: argparse.Namespace) -> list[str]:
    """Return what was asked for besides the seed, and is not as it is by default."""
    flags: list[str] = []
    if (options.machines, options.standbys) != (4, 2):
        flags += ["--machines", str(options.machines), "--standbys", str(options.standbys)]
    if options.nproc is not None:
        flags += ["--nproc", str(options.nproc)]
    if options.minutes != 1 / 3:
        flags += ["--minutes", str(options.minutes)]
    if options.mix != "usual":
        flags += ["--mix", options.mix]
    if options.faults is not None:
        flags += ["--faults", options.faults]
    return flags


def _progress(text: str) -> None:
    """Write one line that the next one replaces, where somebody looks on."""
    if sys.stderr.isatty():
        redraw(text, sys.stderr)


def _covered(options: argparse.Namespace, coverage: Coverage) -> dict[str, object]:
    if not options.coverage:
        return {}
    return {"reached": len(coverage.pairs), "not_reached": coverage.not_reached()}


def _coverage_lines(coverage: Coverage) -> list[str]:
    missing: dict[str, list[str]] = {}
    for state, event in coverage.not_reached():
        missing.setdefault(state, []).append(event)
    whole = sum(1 for _ in possible_pairs())
    reached = whole - sum(map(len, missing.values()))
    return [
        f"  reached    {reached} of {whole} pairs of a state and an event that can be",
        *(f"    not in {state}: {', '.join(events)}" for state, events in missing.items()),
    ]
