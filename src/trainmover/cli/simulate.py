"""`trainmover simulate --seed 7`: the controller that runs jobs, where everything goes wrong."""

import argparse
import gc
import json
import sys
import time

from trainmover.cli.examples import examples_of
from trainmover.cli.suggest import complain_in_three_lines
from trainmover.errors import UserError
from trainmover.simulator.coverage import Coverage, possible_pairs
from trainmover.simulator.faults import EVERYTHING, NAMES, Faults, only
from trainmover.simulator.report import Summary, failure
from trainmover.simulator.story import plan_of, play
from trainmover.simulator.trace import Trace

SUMMARY = "let machines, links and the controller fail in a fake world, and check what it decides"
PROGRESS_S = 0.5
GARBAGE_AFTER = 20_000
"""Worlds make many values and few cycles: to look for those less often makes them quicker."""


def main(argv: list[str]) -> int:
    """Play seeds. Exit status 1 if something happened that must never be."""
    options = parser().parse_args(argv)
    seeds = _seeds(options)
    gc.set_threshold(GARBAGE_AFTER)
    began = time.perf_counter()
    summary, coverage = Summary(), Coverage()
    for seed in seeds:
        _play(seed, options, summary, coverage, began, many=len(seeds) > 1)
    took_s = time.perf_counter() - began
    if options.json:
        print(json.dumps(summary.as_json(took_s) | _covered(options, coverage)))
    else:
        _progress("")
        print("\n".join(summary.lines(took_s)))
        if options.coverage:
            print("\n".join(_coverage_lines(coverage)))
    return 1 if summary.failed else 0


def parser() -> argparse.ArgumentParser:
    faults = "\n".join(f"  {name:<12}{what}" for name, what in NAMES.items())
    parser = argparse.ArgumentParser(
        prog="trainmover simulate",
        description=f"{SUMMARY}.",
        epilog=f"faults:\n{faults}\n\n{examples_of('simulate')}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    complain_in_three_lines(parser)
    seeds = parser.add_mutually_exclusive_group()
    seeds.add_argument("--seed", type=int, default=0, metavar="N", help="the only chance in it")
    seeds.add_argument("--seeds", metavar="A..B", help="all from A up to, not including, B")
    parser.add_argument("--machines", type=int, default=4, metavar="N", help="that hold ranks")
    parser.add_argument("--standbys", type=int, default=2, metavar="N", help="and others")
    parser.add_argument(
        "--nproc", type=int, metavar="N", help="workers a machine (1 or 2, by seed)"
    )
    parser.add_argument(
        "--minutes", type=float, default=1 / 3, metavar="M", help="of faults, before they stop"
    )
    parser.add_argument("--faults", metavar="NAME,...", help="these only; see below")
    parser.add_argument("--trace", action="store_true", help="show every event and what followed")
    parser.add_argument(
        "--coverage", action="store_true", help="show which transitions were not reached"
    )
    parser.add_argument("--json", action="store_true", help="JSON for programs")
    return parser


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
    if options.faults is None:
        return EVERYTHING
    names = options.faults.split(",")
    if unknown := [name for name in names if name not in NAMES]:
        raise UserError(
            f"There is no fault {unknown[0]!r}.",
            means="Nothing was simulated.",
            do=f"Choose among: {', '.join(NAMES)}",
        )
    return only(names)


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
    trace = (Trace(print),) if options.trace else ()
    more = (coverage,) if options.coverage else ()
    result = play(plan, *trace, *more)
    flags = _flags(options)
    summary.add(result, flags)
    if result.violation and not options.json:
        if not options.trace:  # Play it again, to see how it came to that.
            result = play(plan, Trace())
        _progress("")
        print("\n".join(failure(result, flags, last=1 if options.trace else 25)))
    elif many and not options.json:
        took_s = time.perf_counter() - began
        _progress(f"seed {seed}: {summary.incidents} incidents in {took_s:.0f} s")


def _flags(options: argparse.Namespace) -> list[str]:
    """What was asked for besides the seed, and is not as it is by default."""
    flags: list[str] = []
    if (options.machines, options.standbys) != (4, 2):
        flags += ["--machines", str(options.machines), "--standbys", str(options.standbys)]
    if options.nproc is not None:
        flags += ["--nproc", str(options.nproc)]
    if options.minutes != 1 / 3:
        flags += ["--minutes", str(options.minutes)]
    if options.faults is not None:
        flags += ["--faults", options.faults]
    return flags


def _progress(text: str) -> None:
    """One line that the next one replaces, where somebody looks on."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


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
