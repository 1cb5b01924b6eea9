"""`python tests/e2e/scripts/combinations.py --seeds 0..500`: scripts by chance, faults by chance.

Each seed is a script (`compose.py`) and one to three faults, some within another. It is run plainly
and disturbed, and every committed value, the final state and what is printed must be equal. Results
go to a file, a line a seed, with the commit; seeds that it has of this commit are not run again, so
a campaign can be stopped and continued. At its end the dated result is written.
"""

import argparse
import contextlib
import io
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import arms
from arms import Fault, Place, Verdict
from compose import Composed, compose
from habits import Habit

from bench.result import RESULTS, Claim, say, setting, write

LINES = RESULTS / "tmp/combinations.jsonl"
FIRST, SECOND, THIRD = (12, 17), (20, 24), (27, 31)
"""Steps behind which faults come; the first one after the replicas were compared."""


def faults_of(seed: int, composed: Composed, machines: int) -> list[Fault]:
    """One to three; those of one machine's state alone come one after the other."""
    chance = random.Random(f"faults {seed}")
    faults = []
    for number, steps in enumerate([FIRST, SECOND, THIRD][: chance.choice([1, 1, 2, 3])]):
        places: list[Place | None] = [Place.MOVED, None] if number else [*Place, None]
        slot = chance.randrange(machines)
        fault = Fault(chance.choice(places), slot, chance.randrange(*steps), chance.random() * 0.05)
        others = [other for other in range(machines) if other != slot]
        if machines > 2 and not composed.alone and chance.random() < 0.3:
            fault = Fault(None, slot, fault.hold, fault.delay_s, chance.choice(others))
        faults.append(fault)
    return faults


def run_seed(seed: int) -> dict[str, Any]:
    """What came of it, as a line of the results."""
    composed = compose(seed)
    chance = random.Random(f"shape {seed}")
    machines, nproc = chance.choice([(2, 1), (2, 1), (3, 1), (2, 2)])
    faults = faults_of(seed, composed, machines)
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tm-composed-") as folder:
        script = Path(folder, f"composed_{seed}.py")
        script.write_text(composed.source)
        script.with_name("kit.py").symlink_to(Path(__file__).with_name("kit.py").resolve())
        habit = Habit(
            str(script.with_suffix("")), machines=machines, nproc=nproc, moment=composed.has_moment
        )
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            verdict, why = arms.judge(habit, *faults)
    return {
        "seed": seed,
        "verdict": verdict.name,
        "why": why,
        "seconds": round(time.monotonic() - begun_s, 1),
        "shape": f"{machines} x {nproc}",
        "parts": composed.parts,
        "faults": [str(fault) for fault in faults],
        "shown": "" if verdict is Verdict.EQUAL else shown.getvalue()[-2000:],
    }


def campaign(seeds: range, results: Path, minutes: float) -> list[dict[str, Any]]:
    """All of them that are not in the file yet; those of this commit that are, at the end."""
    where = setting([os.getloadavg()[0]])
    known = _read(results, where.commit)
    until_s = time.monotonic() + minutes * 60
    results.parent.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        if seed in known or time.monotonic() > until_s:
            continue
        known[seed] = {"commit": where.commit, **run_seed(seed)}
        with results.open("a") as file:
            file.write(json.dumps(known[seed]) + "\n")
        line = known[seed]
        text = f"{seed:5} {line['seconds']:5.1f} s  {line['verdict']}"
        print(text + (f": {line['why'][:300]}" if line["why"] else ""), flush=True)
    return [known[seed] for seed in seeds if seed in known]


def _read(results: Path, commit: str) -> dict[int, dict[str, Any]]:
    lines = results.read_text().splitlines() if results.exists() else []
    return {line["seed"]: line for line in map(json.loads, lines) if line["commit"] == commit}


def claims(done: list[dict[str, Any]], asked: int) -> list[Claim]:
    wrong = Counter(line["verdict"] for line in done)
    silent = wrong[Verdict.SILENT.name]
    return [
        Claim("silent differences", silent, "seeds", 0),
        Claim("other than equal", len(done) - wrong[Verdict.EQUAL.name], "seeds", 0),
        Claim("not run yet", asked - len(done), "seeds", 0),
    ]


def table(done: list[dict[str, Any]]) -> list[str]:
    lines = [f"{len(done)} seeds, {sum(len(line['faults']) for line in done)} faults.", ""]
    lines += ["| outcome | seeds |", "|---|---|"]
    for verdict, count in Counter(line["verdict"] for line in done).most_common():
        lines.append(f"| {Verdict[verdict]} | {count} |")
    for line in done:
        if line["verdict"] != Verdict.EQUAL.name:
            lines += ["", f"Seed {line['seed']}, {line['shape']}: {Verdict[line['verdict']]}."]
            lines += [f"{', '.join(line['faults'])}. {line['why']}"]
    return lines


def main() -> int:
    """0 if all was equal, and nothing is left to run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0..500", help="first..end, the end not included")
    parser.add_argument("--results", type=Path, default=LINES)
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after them")
    parser.add_argument("--show", action="store_true", help="the scripts, and run nothing")
    options = parser.parse_args()
    first, _, end = options.seeds.partition("..")
    seeds = range(int(first), int(end or int(first) + 1))
    if options.show:
        for seed in seeds:
            print(compose(seed).source)
        return 0
    done = campaign(seeds, options.results, options.minutes)
    found = claims(done, len(seeds))
    if len(done) == len(seeds):
        where = setting([os.getloadavg()[0]])
        quick = len(seeds) < 500
        print(write("combinations", found, table(done), where, done, quick=quick))
    return say("combinations", found, table(done), as_json=False)


if __name__ == "__main__":
    sys.exit(main())
