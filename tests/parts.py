"""Parts of the tests, by folder: `pytest --part fast` collects and runs one of them.

fast   decide, simulate, read and write: no processes; `make test`, in a minute
jobs   processes, sockets, signals; `make test-jobs`
rest   all others, and those of the fast folders that are marked `long`
"""

from pathlib import Path

import pytest

NAMES = ("fast", "jobs", "rest")
FAST = {
    "cli/report",
    "cli/watch",
    "controller",
    "graph",
    "health",
    "journal",
    "loops",
    "mutants",
    "protocol",
    "rank",
    "server/machines",
    "server/view",
    "simulator",
    "tls",
}
"""And the files of `tests` itself."""
JOBS = {
    "agent",
    "chaos",
    "check",
    "cli",
    "docs",
    "e2e/bad",
    "e2e/engines",
    "e2e/faults",
    "e2e/groups",
    "e2e/parallel",
    "e2e/service",
    "engines",
    "examples",
    "fork_server",
    "launch",
    "listeners",
    "server",
}
TESTS = Path(__file__).parent


def part_of(path: Path) -> str:
    """Return the part that tests of this file or folder belong to, if they are not `long`."""
    place = path.relative_to(TESTS)
    folders = [place, *place.parents]
    if FAST.intersection(map(str, folders)) or (place.parent == Path() and place.suffix == ".py"):
        return "fast"
    return "jobs" if JOBS.intersection(map(str, folders)) else "rest"


def is_left_out(path: Path, wanted: list[str]) -> bool:
    """Whether nothing below this folder, or in this file, is in the parts that are wanted."""
    if not path.is_relative_to(TESTS) or path == TESTS:
        return False
    place = str(path.relative_to(TESTS))
    if path.is_dir() and any(one.startswith(f"{place}/") for one in FAST | JOBS):
        return False  # It holds folders of several parts.
    part = part_of(path)
    holds_long = part == "fast" and "rest" in wanted
    return part not in wanted and not holds_long


def choose(config: pytest.Config, items: list[pytest.Item], wanted: list[str]) -> None:
    """Deselect the items of other parts."""
    left = [item for item in items if _part(item) not in wanted]
    items[:] = [item for item in items if _part(item) in wanted]
    config.hook.pytest_deselected(items=left)


def _part(item: pytest.Item) -> str:
    part = part_of(item.path)
    return "rest" if part == "fast" and item.get_closest_marker("long") else part
