"""Every habit at every place, and hundreds of scripts by chance: `make soak`, in about an hour.

    python tests/e2e/scripts/campaign.py [--seeds 0..500] [--minutes M] [--workers 2]

What is run is an *item*: a habit without a fault (`loops/nested calm`), a habit with one at a place
(`loops/nested gate`), or a seed of `combinations.py`. Results go to a file, a line an item, with
the commit; items that it has of this commit are not run again, so a campaign can be stopped and
continued. At its end the dated result is written.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import arms
import combinations
from arms import Place, Verdict
from habits import HABITS, Habit

from bench.result import RESULTS, Claim, say, setting, write
from trainmover.lifeline import die_with

LINES = RESULTS / "tmp/campaign.jsonl"
CALM = "calm"
KNOWN = {habit.name: habit for habit in HABITS}
FOR_FAULTS = "of the habits"
"""The seed of where in a run a habit is disturbed; `--faults` chooses another."""


@dataclass(frozen=True)
class Item:
    """habit: its name, "" for a seed; at: a place, CALM, or the seed."""

    habit: str
    at: str

    def __str__(self) -> str:
        return f"{self.habit} {self.at}" if self.habit else f"seed {self.at}"


def items(seeds: range) -> list[Item]:
    """Habits first: whatever breaks is found soonest there."""
    ways = [CALM, *Place]
    of_habits = [Item(habit.name, way) for way in ways for habit in HABITS]
    return [*of_habits, *(Item("", str(seed)) for seed in seeds)]


def line_of(item: Item, faults: str) -> dict[str, Any]:
    """Run it: what came of it, as a line of the results. as_promised: the campaign holds."""
    begun_s = time.monotonic()
    if not item.habit:
        line = combinations.run_seed(int(item.at))
        line["as_promised"] = line["verdict"] == Verdict.EQUAL.name
    else:
        habit = KNOWN[item.habit]
        verdict, why = _calm(habit) if item.at == CALM else _disturbed(habit, item.at, faults)
        kept = verdict is Verdict.EQUAL if item.at == CALM else arms.as_promised(habit, verdict)
        line = {"verdict": verdict.name, "why": why, "as_promised": kept}
    return line | {"item": str(item), "seconds": round(time.monotonic() - begun_s, 1)}


def _calm(habit: Habit) -> tuple[Verdict, str]:
    with combinations.quiet() as shown:
        difference = arms.differs_calm(habit)
    if difference == arms.AS_PLAIN or (habit.refused and difference.startswith(arms.ENDS)):
        return Verdict.EQUAL, ""
    return Verdict.SILENT, f"{difference}\n{shown.getvalue()[-2000:]}"


def _disturbed(habit: Habit, place: str, faults: str) -> tuple[Verdict, str]:
    with combinations.quiet():
        return arms.judge(habit, arms.fault_of(habit, faults, Place(place)))


# --- the campaign ------------------------------------------------------------------------------


def campaign(every: list[Item], options: argparse.Namespace, commit: str) -> dict[str, Any]:
    """Lines of all of them by item; those of this commit that the file has are not run again."""
    known = _read(options.results, commit)
    left = [item for item in every if str(item) not in known]
    until_s = time.monotonic() + options.minutes * 60
    options.results.parent.mkdir(parents=True, exist_ok=True)
    for done, line in enumerate(_run(left, options, until_s), 1):
        known[line["item"]] = line = {"commit": commit, **line}
        with options.results.open("a") as file:
            file.write(json.dumps(line) + "\n")
        mark = "  " if line["as_promised"] else "!!"
        text = f"{mark} {done:4}/{len(left)} {line['item']:36}{line['seconds']:6.1f} s"
        print(f"{text}  {line['verdict']}: {line['why'][:300]}".rstrip(": "), flush=True)
    return {str(item): known[str(item)] for item in every if str(item) in known}


def _run(left: list[Item], options: argparse.Namespace, until_s: float) -> Iterator[dict[str, Any]]:
    """Each worker imports torch once for all that it runs; what has begun is ended."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(options.workers, die_with, (os.getpid(),)) as pool:
        asked = [(item, options.faults, until_s) for item in left]
        for line in pool.imap_unordered(_in_worker, asked):
            if line is not None:
                yield line
        pool.close()
        pool.join()


def _in_worker(asked: tuple[Item, str, float]) -> dict[str, Any] | None:
    item, faults, until_s = asked
    return None if time.monotonic() > until_s else line_of(item, faults)


def _read(results: Path, commit: str) -> dict[str, Any]:
    lines = results.read_text().splitlines() if results.exists() else []
    return {line["item"]: line for line in map(json.loads, lines) if line["commit"] == commit}


# --- what it says ------------------------------------------------------------------------------


def claims(done: dict[str, Any], asked: int) -> list[Claim]:
    silent = [line for line in done.values() if line["verdict"] == Verdict.SILENT.name]
    broken = [line for line in done.values() if not line["as_promised"]]
    return [
        Claim("silent differences", len(silent), "runs", 0),
        Claim("neither equal nor refused as promised", len(broken), "runs", 0),
        Claim("not run yet", asked - len(done), "runs", 0),
    ]


def table(done: dict[str, Any]) -> list[str]:
    seeds = [line for line in done.values() if "seed" in line]
    faults = sum(len(line["faults"]) for line in seeds)
    lines = [f"{len(done) - len(seeds)} runs of habits; {len(seeds)} seeds with {faults} faults."]
    if seeds:
        lines[0] += f" Seeds {seeds[0]['seed']} to {seeds[-1]['seed']}."
    lines += ["", "| outcome | runs of habits | seeds |", "|---|---|---|"]
    counts = Counter((line["verdict"], "seed" in line) for line in done.values())
    for verdict in Verdict:
        habits, composed = counts[verdict.name, False], counts[verdict.name, True]
        if habits or composed:
            lines.append(f"| {verdict} | {habits} | {composed} |")
    for line in done.values():
        if not line["as_promised"]:
            where = f"{line['shape']}; {', '.join(line['faults'])}. " if "seed" in line else ""
            lines += ["", f"`{line['item']}`: {Verdict[line['verdict']]}. {where}"]
            lines[-1] += " ".join(line["why"].split())[:600]
    return lines


def main() -> int:
    """0 if all was as promised, and nothing is left to run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0..500", help="first..end, the end not included")
    parser.add_argument("--faults", default=FOR_FAULTS, help="seed of where habits are disturbed")
    parser.add_argument("--only", default="", help="items whose name has this")
    parser.add_argument("--results", type=Path, default=LINES)
    parser.add_argument("--minutes", type=float, default=1e6, help="begin nothing after them")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="items at once")
    options = parser.parse_args()
    every = [one for one in items(combinations.range_of(options.seeds)) if options.only in str(one)]
    begun = setting([os.getloadavg()[0]])
    done = campaign(every, options, begun.commit)
    found = claims(done, len(every))
    if len(done) == len(every):
        where = setting([*begun.loads, os.getloadavg()[0]])
        small = len(every) < len(items(range(500)))
        print(write("campaign", found, table(done), where, list(done.values()), quick=small))
    return say("campaign", found, table(done), as_json=False)


if __name__ == "__main__":
    sys.exit(main())
