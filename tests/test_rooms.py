"""The map of the project, kept true: which room may import which, and what pure code may not touch.

A room is a folder of src/trainmover, or a file that lies there. ARCHITECTURE.md draws the same map.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "src"
PACKAGE = ROOT / "trainmover"

WORDS = {"errors", "ids", "version"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "ids": set(),
    "version": set(),
    "lifeline": set(),
    "durable": set(),
    "splice": set(),
    "names": set(),
    "spans": set(),
    "symptoms": set(),
    "outlet": set(),
    "installed": set(),
    "ownership": {"errors"},
    "escaping": set(),
    "tracebacks": {"escaping"},
    "descriptors": set(),
    "fork_server": {"lifeline"},
    "communicators": {"errors"},
    "asked": {"communicators"},
    "loops": {"asked", "errors", "installed"},
    "protocol": WORDS,
    "token_file": {"errors", "ownership", "protocol"},
    "tls": {"errors", "ownership", "protocol"},
    "listeners": WORDS | {"communicators", "descriptors", "protocol", "tls"},
    "controller": WORDS | {"symptoms", "protocol"},
    "rank": WORDS | {"protocol"},
    "journal": WORDS | {"ownership", "protocol", "controller"},
    "comm": WORDS | {"communicators", "descriptors", "tls", "torch_internals"},
    "torch_internals": WORDS | {"asked"},
    "state": WORDS
    | {"asked", "descriptors", "installed", "loops", "protocol", "tls", "listeners"}
    | {"torch_internals"},
    "graph": WORDS | {"asked", "loops", "protocol", "state", "torch_internals"},
    "check": WORDS | {"graph", "loops", "sandbox", "tracebacks"},
    "sandbox": WORDS | {"installed", "lifeline", "protocol", "comm", "state", "torch_internals"},
    "health": WORDS | {"lifeline", "tls", "token_file", "protocol", "listeners", "state"},
    "worker": WORDS
    | {"asked", "descriptors", "durable", "escaping", "lifeline", "names", "ownership", "tls"}
    | {"token_file"}
    | {"loops", "protocol", "rank", "listeners", "comm", "state", "graph", "sandbox"}
    | {"torch_internals"},
    "agent": WORDS
    | {"descriptors", "lifeline", "outlet", "spans", "symptoms", "tls", "token_file", "tracebacks"}
    | {"escaping", "fork_server", "ownership", "splice", "protocol", "listeners", "state"},
    "server": WORDS
    | {"descriptors", "durable", "escaping", "lifeline", "names", "ownership", "splice"}
    | {"tls", "token_file", "tracebacks"}
    | {"protocol", "listeners", "controller", "journal"},
    "simulator": WORDS
    | {"symptoms", "protocol", "controller", "rank", "journal", "agent", "server"},
    "launch": WORDS
    | {"communicators", "descriptors", "lifeline", "fork_server", "ownership", "tls", "token_file"}
    | {"tracebacks", "protocol", "controller", "journal", "server", "agent"},
    "engines": WORDS | {"ownership", "tls", "token_file", "controller", "launch"},
    "cli": WORDS
    | {"communicators", "descriptors", "escaping", "outlet", "spans", "tls", "token_file"}
    | {"tracebacks"}
    | {"protocol", "controller", "journal", "server", "agent", "launch", "simulator"}
    | {"engines"},
    "__init__": {"version", "worker"},
    "__main__": {"cli"},
}

# Time, chance and the outside world reach these as values.
PURE_ROOMS = {"errors", "escaping", "ids", "version", "spans", "symptoms"}
PURE_ROOMS |= {"protocol", "controller", "rank"}
PURE_FILES = {
    "agent/decide.py",
    "agent/letters.py",
    "agent/outbox.py",
    "agent/relaying/carrier.py",
    "agent/together.py",
    "journal/packed.py",
    "server/machines/absence.py",
    "server/machines/accounts.py",
    "server/machines/carrying.py",
    "server/machines/lanes.py",
    "server/machines/relays.py",
    "server/control.py",
    "server/hearing.py",
    "server/machines/reception.py",
    "server/history/rows.py",
    "cli/doctor/verdicts.py",
    "loops/iterators.py",
    "loops/rewrite.py",
    "cli/report/chrome.py",
    "cli/report/goodput.py",
    "cli/report/lanes.py",
    "cli/report/page.py",
    "cli/report/svg.py",
    "cli/report/text.py",
    "cli/report/timeline.py",
    "cli/watch/progress.py",
    "server/length.py",
    "server/surroundings.py",
    "server/machines/returns.py",
    "server/view/sentences.py",
    "server/view/divergences.py",
    "server/ranks.py",
    "server/view/standings.py",
    "server/view/nans.py",
    "server/view/watching.py",
    "worker/watch/deadline.py",
    "server/machines/admission.py",
}
IMPURE = {"asyncio", "datetime", "os", "random", "secrets", "socket", "subprocess", "threading"}
IMPURE |= {"time", "torch", "uuid"}

# A command that answers in a moment cannot wait for `import torch`. Processes of their own may.
LIGHT_ROOMS = PURE_ROOMS | {
    "durable",
    "lifeline",
    "symptoms",
    "splice",
    "names",
    "spans",
    "outlet",
    "tracebacks",
    "installed",
    "ownership",
    "descriptors",
    "fork_server",
    "communicators",
    "asked",
    "loops",
    "token_file",
    "tls",
    "listeners",
    "journal",
    "agent",
    "server",
    "simulator",
    "launch",
    "cli",
}
OWN_PROCESS = {"server/store.py"}

# Where somebody from outside comes in. What the product starts by a module's name, in a process of
# its own or when a command needs it, stands there as a text, which counts as an import.
ENTRIES = {
    "trainmover": "the public package",
    "trainmover.cli.main": "the console script",
    "trainmover.comm.install": "imported by scripts that have no runtime",
}

FILES = sorted(PACKAGE.rglob("*.py"))

NATIVE = PACKAGE.parents[1] / "native/src"
NATIVE_FLOORS = [
    "base",
    "crypto",
    "links",
    "session",
    "collectives",
    "endpoint",
    "python",
    "binding",
]
"""Folders of the native library, each of which includes nothing of those behind it."""


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[: -1 if parts[-1] == "__init__" else None])


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def modules(tree: ast.AST, path: Path) -> Iterator[str]:
    """Every module that is imported below `tree`, by its full dotted name."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


@cache
def imported(path: Path) -> set[str]:
    return set(modules(ast.parse(path.read_text()), path))


def rooms(path: Path) -> set[str]:
    parts = (name.split(".") for name in imported(path))
    return {p[1] for p in parts if p[0] == "trainmover" and len(p) > 1 and p[1] in MAY_IMPORT}


@cache
def at_module_level(path: Path) -> set[str]:
    """Modules imported by importing `path`: not those in functions or under TYPE_CHECKING."""
    body: list[ast.stmt] = []
    for statement in ast.parse(path.read_text()).body:
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            continue
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            body.append(statement)
    return set(modules(ast.Module(body, []), path))


def packages(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def offending(paths: Iterable[Path], wrong: Callable[[Path], set[str]]) -> dict[str, set[str]]:
    """What is wrong, by file: thousands of files are looked at sooner together than one by one."""
    return {name_of(path): found for path in paths if (found := wrong(path))}


def test_a_room_imports_only_what_the_map_allows() -> None:
    new = {room_of(path) for path in FILES} - MAY_IMPORT.keys()
    assert new == set(), f"new rooms: put them on the map in {__file__}"
    assert (
        offending(FILES, lambda path: rooms(path) - MAY_IMPORT[room_of(path)] - {room_of(path)})
        == {}
    )


def test_pure_code_gets_time_and_chance_as_values() -> None:
    pure = [path for path in FILES if room_of(path) in PURE_ROOMS or name_of(path) in PURE_FILES]
    assert offending(pure, lambda path: packages(imported(path)) & IMPURE) == {}


def test_the_simulator_has_no_clock_and_takes_decisions_only() -> None:
    """Its chance is a seeded generator; of rooms with a loop it runs what is pure, and gives the
    controller's clock what it counts."""
    known = PURE_FILES | {
        "server/clock.py",
        "server/history/past.py",
        "server/history/bookmarks.py",
    }

    def theirs(path: Path) -> set[str]:
        names = imported(path)
        files = {name.removeprefix("trainmover.").replace(".", "/") + ".py" for name in names}
        loops = {
            f for f in files if f.startswith(("agent/", "server/")) and (PACKAGE / f).is_file()
        }
        return (loops - known) | (packages(names) & (IMPURE - {"random"}))

    assert offending([path for path in FILES if room_of(path) == "simulator"], theirs) == {}


def test_light_rooms_do_not_load_torch() -> None:
    light = [p for p in FILES if room_of(p) in LIGHT_ROOMS and name_of(p) not in OWN_PROCESS]
    assert offending(light, lambda path: packages(at_module_level(path)) & {"torch", "numpy"}) == {}


def test_without_tls_nothing_of_it_is_loaded() -> None:
    """Where its files are is a value like others."""

    def loaded(path: Path) -> set[str]:
        found = {name for name in at_module_level(path) if name.startswith("trainmover.tls")}
        return {name for name in found if not name.startswith("trainmover.tls.files")}

    assert offending([path for path in FILES if room_of(path) != "tls"], loaded) == {}


def test_the_map_has_no_circle() -> None:
    done: set[str] = set()
    while left := MAY_IMPORT.keys() - done:
        ready = {room for room in left if MAY_IMPORT[room] <= done}
        assert ready, f"these import each other in a circle: {sorted(left)}"
        done |= ready


def test_nothing_in_the_package_is_used_by_tests_alone() -> None:
    files = {module_of(path): path for path in FILES}
    reached: set[str] = set()
    left = {*ENTRIES}
    while left:
        reached |= left
        needed = {name for one in left for name in needs(files[one])}
        left = {name for one in needed for name in with_packages(one)} & files.keys() - reached
    assert files.keys() - reached == set(), "delete these, or move them to tests"


def needs(path: Path) -> set[str]:
    """Modules that a file imports, or that it starts by their name."""
    nodes = ast.walk(ast.parse(path.read_text()))
    texts = [node.value for node in nodes if isinstance(node, ast.Constant)]
    named = {text for text in texts if isinstance(text, str) and text.startswith("trainmover")}
    return imported(path) | named | {f"{name}.__main__" for name in named}


def with_packages(name: str) -> set[str]:
    """The module, and the packages that are imported with it."""
    parts = name.split(".")
    return {".".join(parts[:end]) for end in range(1, len(parts) + 1)}


def test_folders_of_the_native_library_include_one_way() -> None:
    wrong = {}
    for path in NATIVE.rglob("*.[ch]pp"):
        floor = NATIVE_FLOORS.index(path.relative_to(NATIVE).parts[0])
        included = re.findall(r'#include "(\w+)/', path.read_text())
        if above := {one for one in included if NATIVE_FLOORS.index(one) > floor}:
            wrong[path.relative_to(NATIVE).as_posix()] = above
    assert wrong == {}


CHAIN_MAX = 12
"""Files of `controller` of which each imports the next: so many are read, at most, to know one."""


def test_no_chain_of_imports_in_the_controller_is_long() -> None:
    files = {module_of(path): path for path in FILES if room_of(path) == "controller"}
    needs = {name: imported(path) & files.keys() - {name} for name, path in files.items()}

    @cache
    def chain(name: str) -> tuple[str, ...]:
        return (name, *max(map(chain, sorted(needs[name])), key=len, default=()))

    longest = max(map(chain, files), key=len)
    assert len(longest) <= CHAIN_MAX, " -> ".join(longest)


def test_the_map_and_the_pure_files_exist() -> None:
    assert {room_of(path) for path in FILES} == MAY_IMPORT.keys()
    assert {name for name in PURE_FILES | OWN_PROCESS if not (PACKAGE / name).is_file()} == set()


@pytest.mark.parametrize("module", ["trainmover", "trainmover.cli.main", "trainmover.agent.run"])
def test_importing_the_command_leaves_torch_alone(module: str) -> None:
    check = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True, timeout=60)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from trainmover import server", "trainmover.server"),
        ("from .. import server", "trainmover.server"),
        ("from ..server.run import Server", "trainmover.server.run"),
        ("import trainmover.server.run as run", "trainmover.server.run"),
        ("def late():\n    from time import time", "time"),
    ],
)
def test_no_way_to_write_an_import_is_overlooked(source: str, found: str) -> None:
    assert found in set(modules(ast.parse(source), PACKAGE / "controller" / "decide.py"))
