"""`python tests/e2e/scripts/combinations.py --seeds 0..10`: scripts by chance, faults by chance.

Each seed is a script (`compose.py`) and one to three faults, some within another. It is run plainly
and disturbed, and every committed value, the final state and what is printed must be equal.
`campaign.py` runs hundreds of them.
"""

import argparse
import contextlib
import io
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import arms
from arms import Fault, Place, Verdict
from compose import Composed, compose
from habits import Habit

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
            str(script.with_suffix("")),
            machines=machines,
            nproc=nproc,
            holds=(FIRST[0], THIRD[1]),
            moment=composed.has_moment,
            alone=composed.alone,
        )
        with quiet() as shown:
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


@contextlib.contextmanager
def quiet() -> Iterator[io.StringIO]:
    """What is printed meanwhile."""
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        yield shown


def range_of(text: str) -> range:
    """Of "3..5", and of "3"."""
    first, _, end = text.partition("..")
    return range(int(first), int(end or int(first) + 1))


def main() -> int:
    """0 if all was equal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0..10", help="first..end, the end not included")
    parser.add_argument("--show", action="store_true", help="the scripts, and run nothing")
    options = parser.parse_args()
    wrong = 0
    for seed in range_of(options.seeds):
        if options.show:
            print(compose(seed).source)
            continue
        line = run_seed(seed)
        wrong += line["verdict"] != Verdict.EQUAL.name
        text = f"{seed:5} {line['seconds']:5.1f} s  {line['verdict']}"
        print(text + (f": {line['why'][:300]}" if line["why"] else ""), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
