"""What ties processes to each other."""

import subprocess
import sys

import psutil
import pytest

from trainmover.lifeline import descendants

HAS_A_CHILD = (
    "import subprocess; child = subprocess.Popen(['sleep', '60']); print(child.pid, flush=True);"
    "child.wait()"
)


def test_descendants_are_children_and_theirs() -> None:
    with subprocess.Popen([sys.executable, "-c", HAS_A_CHILD], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        below = int(process.stdout.readline())
        assert {process.pid, below} <= {one.pid for one in descendants()}
        psutil.Process(below).kill()


def test_the_host_is_not_read_for_a_process_without_children(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.waitid", _no_child)
    monkeypatch.setattr(psutil.Process, "children", None)
    assert descendants() == []


def _no_child(*_: object) -> None:
    raise ChildProcessError
