"""A run that must leave no traces is stopped before it makes one."""

import io
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import numpy
import pytest
import torch

from trainmover.sandbox.process.remains import Remains
from trainmover.sandbox.process.traces import NoTraces


class Stopped(BaseException):
    """As the run is unwound: no `except Exception` catches it."""


def stop() -> NoReturn:
    raise Stopped


@pytest.fixture
def begin() -> Iterator[Callable[[list[int]], None]]:
    traces = NoTraces()
    yield lambda opened: traces.begin(stop, opened)
    traces.end()


def connect(path: Path) -> None:
    with socket.socket() as one:
        one.connect(("127.0.0.1", 9))


TRACES: dict[str, Callable[[Path], Any]] = {
    "a file": lambda path: path.write_text("new"),
    "a file that is added to": lambda path: path.open("a"),
    "an empty file": lambda path: path.touch(),
    "an array": lambda path: numpy.save(path, numpy.ones(2)),
    "a memory map": lambda path: numpy.memmap(path, dtype="f4", mode="w+", shape=(2,)),
    "a folder": lambda path: path.with_name("folder").mkdir(),
    "another name": lambda path: path.rename(path.with_name("other")),
    "nothing": lambda path: path.unlink(),
    "a process": lambda path: subprocess.run(["true"], check=True),
    "a command": lambda path: os.system("true"),
    "a database": lambda path: sqlite3.connect(path),
    "what is sent": connect,
}


@pytest.mark.parametrize("what", TRACES)
def test_it_is_stopped_before(
    what: str, begin: Callable[[list[int]], None], tmp_path: Path
) -> None:
    path = tmp_path / "model.pt"
    path.write_text("of the job")
    begin([])
    with pytest.raises(Stopped):
        TRACES[what](path)
    assert path.read_text() == "of the job"
    assert os.listdir(tmp_path) == [path.name]


def save_scripted(path: Path) -> None:
    module = torch.jit.script(torch.nn.Linear(2, 2))
    module.save(str(path))


@pytest.mark.parametrize(
    "save",
    [
        lambda path: torch.save({"x": torch.ones(2)}, path),
        lambda path: torch.save({"x": torch.ones(2)}, str(path)),
        save_scripted,
    ],
)
def test_a_checkpoint_goes_nowhere(
    save: Callable[[Path], None], begin: Callable[[list[int]], None], tmp_path: Path
) -> None:
    path = tmp_path / "model.pt"
    path.write_text("of the job")
    begin([])
    save(path)
    assert path.read_text() == "of the job"
    assert os.listdir(tmp_path) == [path.name]


def test_what_leaves_none_goes_on(begin: Callable[[list[int]], None], tmp_path: Path) -> None:
    (tmp_path / "data").write_text("1")
    begin([])
    assert (tmp_path / "data").read_text() == "1"
    kept = io.BytesIO()
    torch.save({"x": torch.ones(2)}, kept)
    kept.seek(0)
    assert torch.load(kept)["x"].tolist() == [1, 1]


def test_what_is_open_leads_nowhere(begin: Callable[[list[int]], None], tmp_path: Path) -> None:
    before, path = Remains(), tmp_path / "log.txt"
    with path.open("w", buffering=1) as log:
        log.write("a step\n")
        begin(before.opened())
        log.write("of another process\n")
    assert path.read_text() == "a step\n"


def test_afterwards_all_is_as_it_was(tmp_path: Path) -> None:
    traces = NoTraces()
    traces.begin(stop, [])
    traces.end()
    torch.save({"x": torch.ones(2)}, tmp_path / "model.pt")
    save_scripted(tmp_path / "scripted.pt")
    assert len(os.listdir(tmp_path)) == 2


def test_what_safetensors_writes_goes_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written in Rust, and each of its modules has the function under this name."""
    path, traces = tmp_path / "model.safetensors", NoTraces()
    library: Any = ModuleType("safetensors.torch")
    library.serialize_file = lambda tensors, file, metadata: path.write_bytes(b"new")
    monkeypatch.setitem(sys.modules, "safetensors.torch", library)
    traces.begin(stop, [])
    library.serialize_file({}, path, metadata=None)
    assert not path.exists()
    traces.end()
    library.serialize_file({}, path, metadata=None)
    assert path.exists()
