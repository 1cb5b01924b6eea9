"""Shared by all tests. Modules here and in each folder are importable by their plain names."""

import gc
import hashlib
import itertools
import os
import shutil
import stat
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path

import parts
import pytest
from hypothesis import settings

from trainmover.fork_server.pages import use_huge_pages

os.environ.setdefault("OMP_NUM_THREADS", "1")
"""As launchers set it for each rank: where tests share cores, threads that wait for others spin.
Set before torch is imported, which reads it then."""

settings.register_profile("no clock decides", deadline=None)
settings.load_profile("no clock decides")

SEED = "TRAINMOVER_TEST_SEED"
LOOKS_EVERY, OBJECTS_MAX = 16, 50_000
_SET_UP = itertools.count()
_GROUPS: list[object] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--comm", help="communicator of the end-to-end tests: native or gloo")
    parser.addoption("--rewrite", action="store_true", help="transcripts are written anew")
    parser.addoption("--all-turns", action="store_true", help="those of other commits too")
    parser.addoption("--part", action="append", choices=parts.NAMES, help="see tests/parts.py")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Folders of other parts are not even imported."""
    wanted = config.getoption("--part")
    return True if wanted and parts.is_left_out(collection_path, wanted) else None


@cache
def seed() -> str:
    """Of what changes from commit to commit: the environment's, so that a run can be had again;
    else the commit."""
    if said := os.environ.get(SEED):
        return said
    if shutil.which("git") is None:
        return "no commit"
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    folder = Path(__file__).parent
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "no commit"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"{SEED}={seed()}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of those marked `turns(n)` one in n runs at each commit; the others are soak. It is one of
    each n that follow on one another, so each family has its share at every commit."""
    if wanted := config.getoption("--part"):
        parts.choose(config, items, wanted)
    if config.getoption("--all-turns"):
        return
    marked = defaultdict[int, list[pytest.Item]](list)
    for item in items:
        for marker in item.iter_markers("turns"):
            marked[marker.args[0]].append(item)
    for turns, among in marked.items():
        for first in range(0, len(among), turns):
            neighbours = among[first : first + turns]
            chosen = _drawn(f"{seed()} {neighbours[0].nodeid}", len(neighbours))
            for item in neighbours[:chosen] + neighbours[chosen + 1 :]:
                item.add_marker(pytest.mark.soak)


def _drawn(words: str, below: int) -> int:
    """The same for the same words, in every process."""
    return int.from_bytes(hashlib.sha256(words.encode()).digest()) % below


def pytest_sessionstart() -> None:
    """One of several processes of a run, which pytest-timeout may end in the midst of a test: the
    run sees that by the end of its pipes, which what the test has forked must not hold."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        pipes = [fd for fd in range(3, 256) if _is_pipe(fd)]
        os.register_at_fork(after_in_child=lambda: [os.close(fd) for fd in pipes if _is_pipe(fd)])


def _is_pipe(fd: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(fd).st_mode)
    except OSError:
        return False


def pytest_collection_finish() -> None:
    """What is loaded by now stays: collections, and searches for who holds an object, pass it by.
    There are millions of objects, and tests of the worker collect at each end of a run. Forks, of
    which tests of groups make thousands, copy little of it."""
    _let_all_stay()
    use_huge_pages()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """What earlier tests have left stays, too, where it is much: what was read of source files is
    kept, which soon is a million objects."""
    if next(_SET_UP) % LOOKS_EVERY == 0 and len(gc.get_objects()) > OBJECTS_MAX:
        _let_all_stay()


def _let_all_stay() -> None:
    gc.collect()
    gc.freeze()


@pytest.fixture
def seed_of_commit() -> str:
    return seed()


@pytest.fixture
def group_of_one() -> Iterator[None]:
    """torch's default group, of this process alone. It stays afterwards: who lets go of one waits
    for its threads to end, while these may wait for Python."""
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True, timeout=timedelta(seconds=30))
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    _GROUPS.append(dist.group.WORLD)
    try:
        yield
    finally:
        dist.destroy_process_group()


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs of this test are found only by it."""
    home = tmp_path / "home"
    monkeypatch.setenv("TRAINMOVER_HOME", str(home))
    return home
