"""How many changes of one line in what decides the tests find: `make mutants`.

    python tests/mutants/mutants.py [--seed S] [--count 200] [--minutes M] [--workers 2]

Of all changes (`one_line.py`) in `controller` and `rank` as many as asked for are drawn by the
seed. Each is made in a process of its own (`forked.py`), where the simulator plays worlds until one
is wrong (`worlds.py`); what none finds is put to the unit tests of those rooms. Of what a new seed
draws they are to find 93 % together. Results go to a file, a line a change, with the commit;
changes that it has of this commit are not tried again, so a run can be stopped and continued. At
its end the dated result is written.
"""

import argparse
import importlib
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import one_line
from forked import CPU_S, Child, Hung, ended, plant, within
from one_line import Change

from bench.result import Claim, say, setting, write

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src/trainmover"
ROOMS = ("controller", "rank")
LINES = ROOT / "bench/results/tmp/mutants.jsonl"
WORLDS = 160
WORLD_S, TESTS_S = 4, 70
"""Of processor time, before what was changed counts as hung: some 30 and 4 times the usual."""
NEEDED = 0.93
COUNT = 200
SIMULATOR, TESTS, NOBODY = "simulator", "unit tests", "nobody"


@dataclass(frozen=True)
class Found:
    """by: SIMULATOR, TESTS, or NOBODY; how: in which world, or by which test."""

    by: str
    how: str


# --- which ----------------------------------------------------------------------------------------


def modules() -> list[str]:
    """Below trainmover, with dots."""
    files = [file for room in ROOMS for file in sorted((SOURCE / room).rglob("*.py"))]
    names = (str(file.relative_to(SOURCE).with_suffix("")).replace("/", ".") for file in files)
    return [name for name in names if not name.endswith("__init__")]


def path_of(module: str) -> Path:
    return SOURCE / f"{module.replace('.', '/')}.py"


def drawn(seed: str, count: int) -> list[Change]:
    """So many of all, each as likely as the others; a larger count begins with the same ones."""
    every = [
        (module, number)
        for module in modules()
        for number in range(one_line.count(path_of(module).read_text()))
    ]
    random.Random(seed).shuffle(every)
    return [named(module, number) for module, number in every[:count]]


def named(module: str, number: int) -> Change:
    return one_line.change_of(module, path_of(module).read_text(), number)


# --- one of them ----------------------------------------------------------------------------------


def put_to_the_test(change: Change | None, worlds: int) -> dict[str, Any]:
    """In a process of its own: who finds it, and what that took. None: nothing is changed."""
    if change is not None:
        tree = one_line.changed(path_of(change.module).read_text(), change.number)
        plant(f"trainmover.{change.module}", path_of(change.module), tree)
    module = change.module if change is not None else ""
    found = _by_simulator(worlds) or _by_tests(module) or Found(NOBODY, "")
    return {"by": found.by, "how": found.how, "cpu_s": round(time.process_time(), 2)}


def _by_simulator(worlds: int) -> Found | None:
    world = -1
    try:
        import worlds as simulated

        for world in range(worlds):
            with within(WORLD_S):
                wrong = simulated.wrong_in(world)
            if wrong:
                return Found(SIMULATOR, f"world {world}: {wrong}")
    except Hung:
        return Found(SIMULATOR, f"world {world} does not end")
    except Exception as error:  # noqa: BLE001  # Whatever else a change makes of the code is no less found.
        return Found(SIMULATOR, f"world {world}: {type(error).__name__}: {error}")
    return None


def _by_tests(module: str) -> Found | None:
    import pytest

    class Failed:
        name = ""

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                self.name = report.nodeid

        def pytest_collectreport(self, report: pytest.CollectReport) -> None:
            if report.failed:
                self.name = report.nodeid

    failed = Failed()
    plain = [
        "--timeout",
        "0",
        "-x",
        "-q",
        "-m",
        "not soak",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
    ]
    try:
        with within(TESTS_S):
            status = pytest.main([*plain, *map(str, tests_of(module))], plugins=[failed])
    except Hung:
        return Found(TESTS, "they do not end")
    return Found(TESTS, failed.name) if status else None


def tests_of(module: str) -> list[Path]:
    """Unit tests of the rooms that decide; first those that import this module. Tests that measure
    time are left out: they fail for want of it.
    """
    every = [file for room in ROOMS for file in sorted((ROOT / "tests" / room).rglob("test_*.py"))]
    every = [file for file in every if file.name != "test_scale.py"]
    line = f"from trainmover.{module} import"
    return sorted(every, key=lambda file: line not in file.read_text())


# --- all of them ----------------------------------------------------------------------------------


def campaign(every: list[Change], options: argparse.Namespace, commit: str) -> dict[str, Any]:
    """Lines of them by change; those of this commit that the file has are not tried again."""
    known = _read(options.results, commit)
    left = [change for change in every if change.id not in known]
    options.results.parent.mkdir(parents=True, exist_ok=True)
    for done, (change, line) in enumerate(_tried(left, options), 1):
        known[change.id] = line = {"commit": commit, "id": change.id, "what": str(change), **line}
        with options.results.open("a") as file:
            file.write(json.dumps(line) + "\n")
        mark = "!!" if line["by"] == NOBODY else "  "
        print(
            f"{mark} {done:4}/{len(left)} {change}: {line['by']}  {line['how'][:100]}", flush=True
        )
    return {change.id: known[change.id] for change in every if change.id in known}


def _tried(
    left: list[Change], options: argparse.Namespace
) -> Iterator[tuple[Change, dict[str, Any]]]:
    """As many at once as there are workers; none is begun when time is up."""
    until_s = time.monotonic() + options.minutes * 60
    running: dict[int, tuple[Change, Child]] = {}
    waiting = list(reversed(left))
    died = {"by": TESTS, "how": "the process dies", "cpu_s": CPU_S}
    while waiting or running:
        while waiting and len(running) < options.workers:
            if time.monotonic() > until_s:
                waiting.clear()
                break
            change = waiting.pop()
            child = Child(lambda change=change: put_to_the_test(change, options.worlds))  # type: ignore[misc]
            running[child.pid] = change, child
        for child in ended([child for _, child in running.values()]):
            change, _ = running.pop(child.pid)
            yield change, child.said() or died


def unchanged_is_well(worlds: int) -> None:
    """Else every change would be found."""
    child = Child(lambda: put_to_the_test(None, worlds))
    said = child.said()
    if said is None or said["by"] != NOBODY:
        raise SystemExit(f"Without any change: {said}.\nNothing was tried.\nMend that first.")
    print(f"   without any change all is well, after {said['cpu_s']} s", flush=True)


def _import_what_is_not_changed() -> None:
    """Once for all processes."""
    for name in ("asyncio", "hypothesis", "pytest", "sqlite3", "trainmover.protocol.messages"):
        importlib.import_module(name)


def _read(results: Path, commit: str) -> dict[str, Any]:
    lines = results.read_text().splitlines() if results.exists() else []
    return {line["id"]: line for line in map(json.loads, lines) if line["commit"] == commit}


# --- what it says ---------------------------------------------------------------------------------


def shares(done: dict[str, Any]) -> tuple[float, float]:
    """What the simulator finds, and what it finds with the unit tests, of 1."""
    by = Counter(line["by"] for line in done.values())
    tried = max(1, len(done))
    return by[SIMULATOR] / tried, (by[SIMULATOR] + by[TESTS]) / tried


def claims(done: dict[str, Any], asked: int) -> list[Claim]:
    _, together = shares(done)
    return [
        Claim("changes that nobody finds", 1 - together, "of 1", 1 - NEEDED),
        Claim("not tried yet", asked - len(done), "changes", 0),
    ]


def table(done: dict[str, Any], options: argparse.Namespace) -> list[str]:
    alone, together = shares(done)
    cpu_s = sum(line["cpu_s"] for line in done.values())
    lines = [
        f"{len(done)} changes, drawn by seed `{options.seed}`; {options.worlds} worlds at most. "
        f"The simulator alone finds {alone:.1%}, with unit tests {together:.1%}. "
        f"{cpu_s / max(1, len(done)):.1f} s of one core each.",
        "",
        "Found by nobody:",
        "",
    ]
    missed = [line for line in done.values() if line["by"] == NOBODY]
    return [*lines, *(f"- {line['what']}" for line in missed)]


def main() -> int:
    """0 if as many are found as should be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", default="1", help="by which changes are drawn")
    parser.add_argument("--count", type=int, default=COUNT, help="of changes")
    parser.add_argument(
        "--worlds", type=int, default=WORLDS, help="that the simulator plays of each"
    )
    parser.add_argument("--only", nargs="+", default=(), help="changes by their id, module:number")
    parser.add_argument("--results", type=Path, default=LINES)
    parser.add_argument("--minutes", type=float, default=1e6, help="begin nothing after them")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="changes at once")
    options = parser.parse_args()
    every = drawn(options.seed, options.count)
    if options.only:
        every = [named(module, int(n)) for module, n in (one.split(":") for one in options.only)]
    begun = setting([os.getloadavg()[0]])
    _import_what_is_not_changed()
    unchanged_is_well(options.worlds)
    done = campaign(every, options, begun.commit)
    said = claims(done, len(every))
    if len(done) == len(every):
        where = setting([*begun.loads, os.getloadavg()[0]])
        small = len(every) < COUNT
        lines = table(done, options)
        print(write("mutants", said, lines, where, list(done.values()), quick=small))
    return say("mutants", said, table(done, options), as_json=False)


if __name__ == "__main__":
    sys.exit(main())
