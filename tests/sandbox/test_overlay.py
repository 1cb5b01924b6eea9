"""A shadow run changes no file of the job's, and reads what it has written nevertheless."""

import builtins
import bz2
import gzip
import io
import json
import mmap
import os
import pickle
import shutil
import subprocess
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy
import pytest
import torch

from trainmover.errors import StateMismatch
from trainmover.sandbox.process.opened import Opened
from trainmover.sandbox.process.overlay import COPIES_MAX, Overlay
from trainmover.sandbox.process.traces import NoTraces

OF_JOB, NEW = "of the job\n", "of the run\n"


@pytest.fixture
def overlay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Overlay]:
    """Folders of tests are there to stay; its copies lie in one of their own."""
    monkeypatch.setattr("trainmover.sandbox.process.opened._temporary", list)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "copies"))
    (tmp_path / "copies").mkdir()
    overlay = Overlay()
    yield overlay
    overlay.end()
    assert not os.listdir(tmp_path / "copies")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of the job's, with nothing beside it."""
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "log.txt").write_text(OF_JOB)
    return tmp_path / "job" / "log.txt"


def print_to(path: Path) -> None:
    with open(path, "a") as file:
        print(NEW, end="", file=file)


def write_other(path: Path) -> Path:
    other = path.with_name("other")
    other.write_text(NEW)
    return other


def to_replace(path: Path) -> None:
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(NEW)
    os.replace(file.name, path)


def to_remove_first(path: Path) -> None:
    path.unlink()
    with open(path, "x") as file:
        file.write(NEW)


def in_a_folder_made_anew(path: Path) -> None:
    shutil.rmtree(path.parent)
    os.makedirs(path.parent)
    path.write_text(NEW)


def through_a_link(path: Path) -> None:
    link = path.with_name("latest")
    link.symlink_to(path)
    link.write_text(NEW)
    link.unlink()


WRITES: dict[str, Callable[[Path], Any]] = {
    "text": lambda path: path.write_text(NEW),
    "bytes": lambda path: path.write_bytes(NEW.encode()),
    "by a relative name": lambda path: Path(os.path.relpath(path)).write_text(NEW),
    "in two turns": lambda path: (path.write_text(""), print_to(path)),
    "by another name": lambda path: write_other(path).replace(path),
    "by a move": lambda path: shutil.move(write_other(path), path),
    "by a copy": lambda path: shutil.copyfile(write_other(path), path),
    "atomically": to_replace,
    "anew": to_remove_first,
    "in a folder that is made anew": in_a_folder_made_anew,
    "through a link": through_a_link,
}


@pytest.mark.parametrize("what", WRITES)
def test_what_is_written_goes_into_a_copy_that_the_run_reads(
    what: str, overlay: Overlay, path: Path
) -> None:
    overlay.begin()
    WRITES[what](path)
    path.with_name("other").unlink(missing_ok=True)
    assert path.read_text() == NEW
    overlay.end()
    assert path.read_text() == OF_JOB
    assert os.listdir(path.parent) == [path.name]


def save_scripted(path: Path) -> None:
    torch.jit.script(torch.nn.Linear(2, 2)).save(str(path))


def zip_to(path: Path, mode: Literal["w", "a"] = "w") -> None:
    with zipfile.ZipFile(path, mode) as file:
        file.writestr("log", NEW)


OTHERS: dict[str, Callable[[Path], Any]] = {
    "a line at the end": print_to,
    "a checkpoint": lambda path: torch.save({"x": torch.ones(2)}, path),
    "a checkpoint of an older form": lambda path: torch.save(
        {"x": torch.ones(2)}, path, _use_new_zipfile_serialization=False
    ),
    "a module of TorchScript": save_scripted,
    "numbers": lambda path: numpy.savetxt(path, numpy.ones(2)),
    "an array": lambda path: numpy.save(path.open("wb"), numpy.ones(2)),
    "an archive": zip_to,
    "arrays": lambda path: numpy.savez(path.open("wb"), numpy.ones(2)),
    "more of an archive": lambda path: zip_to(path, "a"),
    "packed": lambda path: gzip.GzipFile(path, "w").close(),
    "packed otherwise": lambda path: bz2.open(path, "w").close(),
    "archived otherwise": lambda path: tarfile.open(path, "w").close(),
    "as an image": lambda path: path.open("w+b").close(),
    "nothing": lambda path: path.unlink(),
    "no folder": lambda path: shutil.rmtree(path.parent),
    "a folder elsewhere": lambda path: path.parent.rename(path.parent.with_name("old")),
    "a name elsewhere": lambda path: path.rename(path.with_name("old.txt")).unlink(),
}


@pytest.mark.parametrize("what", OTHERS)
def test_whatever_it_is_the_file_of_the_job_stays(what: str, overlay: Overlay, path: Path) -> None:
    overlay.begin()
    OTHERS[what](path)
    overlay.end()
    assert path.read_text() == OF_JOB
    assert os.listdir(path.parent) == [path.name]


def test_a_checkpoint_of_the_run_is_its_own(overlay: Overlay, path: Path) -> None:
    torch.save({"x": torch.zeros(2)}, path)
    overlay.begin()
    torch.save({"x": torch.ones(2)}, str(path))
    assert torch.load(path)["x"].tolist() == [1, 1]
    overlay.end()
    assert torch.load(path)["x"].tolist() == [0, 0]


# --- what is done all the same --------------------------------------------------------------------


def test_what_is_new_is_made(overlay: Overlay, path: Path) -> None:
    """A library that does not ask Python may look for it."""
    overlay.begin()
    for name, text in (("config.json", json.dumps({"rate": 0.1})), ("corpus.txt", "words")):
        path.with_name(name).write_text("first")
        path.with_name(name).write_text(text)
    overlay.end()
    assert path.with_name("config.json").read_text() == '{"rate": 0.1}'
    assert path.with_name("corpus.txt").read_text() == "words"


LOCKS: dict[str, Callable[[Path], Any]] = {
    "open": lambda lock: open(lock, "x").close(),
    "below": lambda lock: os.close(os.open(lock, os.O_CREAT | os.O_EXCL)),
    "a folder": lambda lock: lock.mkdir(),
    "a link": lambda lock: lock.symlink_to("12345"),
}


@pytest.mark.parametrize("made", LOCKS)
def test_a_lock_of_the_run_is_given_back(made: str, overlay: Overlay, path: Path) -> None:
    """Ranks would wait for it."""
    lock = path.with_name("lock")
    overlay.begin()
    LOCKS[made](lock)
    with pytest.raises(FileExistsError):
        LOCKS[made](lock)
    if made == "a folder":
        lock.rmdir()
    else:
        lock.unlink()
    overlay.end()
    assert os.listdir(path.parent) == [path.name]


def test_what_only_is_looked_for_is_not_the_run_s(overlay: Overlay, path: Path) -> None:
    """The job may make it meanwhile."""
    overlay.begin()
    state = path.with_name("state.json")
    for mode in ("r", "r+"):
        with pytest.raises(FileNotFoundError):
            state.open(mode)
    subprocess.run(["cp", str(path), str(state)], check=True)
    assert not overlay.has_made(str(state))
    state.write_text(NEW)
    overlay.end()
    assert state.read_text() == OF_JOB


READS: dict[str, Callable[[Path], str]] = {
    "by a read": lambda path: path.read_text(),
    "by a write": lambda path: read_from_the_start(path),
    "by a move": lambda path: path.rename(path.with_name("log.txt.1")).read_text(),
}


def read_from_the_start(path: Path) -> str:
    with path.open("r+") as file:
        return file.read()


@pytest.mark.parametrize("reads", READS)
def test_who_reads_what_the_run_has_added_to_reads_the_job_s(
    reads: str, overlay: Overlay, path: Path
) -> None:
    opened = Opened(overlay)
    opened.begin(1)
    overlay.begin()
    print_to(path)
    print_to(path)
    assert not opened.newer
    assert READS[reads](path) == OF_JOB + NEW + NEW
    if reads == "by a read":
        assert f"reads {path} (test_overlay.py line " in opened.newer
    opened.end()
    overlay.end()
    assert path.read_text() == OF_JOB


def test_links_of_the_job_s_stay(overlay: Overlay, path: Path) -> None:
    latest, new = path.with_name("latest"), path.with_name("latest.new")
    latest.symlink_to(path.name)
    overlay.begin()
    new.symlink_to("another")
    new.replace(latest)
    os.link(path, path.with_name("best"))
    path.with_name("best").write_text(NEW)
    latest.unlink()
    latest.symlink_to("another")
    overlay.end()
    assert os.readlink(latest) == path.name
    assert path.read_text() == path.with_name("best").read_text() == OF_JOB


def test_from_a_thread_it_is_the_same(overlay: Overlay, path: Path) -> None:
    with ThreadPoolExecutor(1) as of_others:
        of_others.submit(int).result()
        overlay.begin()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(torch.save, {"x": torch.ones(2)}, path).result()
            pool.submit(Path.write_text, path.with_name("other"), NEW).result()
            pool.submit(Path.write_text, path, NEW).result()
        assert path.read_text() == NEW
        of_others.submit(Path.write_text, path.with_name("other"), OF_JOB).result()
    overlay.end()
    assert path.read_text() == path.with_name("other").read_text() == OF_JOB


def test_a_thread_that_has_another_s_number_is_the_run_s(overlay: Overlay, path: Path) -> None:
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    overlay.begin()
    over.set()
    other.join()
    for _ in range(10):
        of_run = threading.Thread(target=path.write_text, args=(NEW,))
        of_run.start()
        of_run.join()
    overlay.end()
    assert path.read_text() == OF_JOB


@pytest.mark.parametrize("how", ["deleted", "renamed"])
def test_a_folder_takes_another_s_place(how: str, overlay: Overlay, path: Path) -> None:
    overlay.begin()
    new = path.parent.with_name("new")
    new.mkdir()
    (new / "model.pt").write_text(NEW)
    if how == "deleted":
        shutil.rmtree(path.parent)
        shutil.move(new, path.parent)
    else:
        path.parent.rename(path.parent.with_name("old"))
        new.rename(path.parent)
        shutil.rmtree(path.parent.with_name("old"))
    overlay.end()
    assert os.listdir(path.parent) == [path.name]
    assert path.read_text() == OF_JOB
    assert {one.name for one in path.parents[1].iterdir()} == {"job", "copies"}


def test_folders_of_the_run_are_renamed(overlay: Overlay, path: Path) -> None:
    overlay.begin()
    folder = path.with_name("new")
    folder.mkdir()
    torch.save(1, folder / "model.pt")
    shutil.copy(folder / "model.pt", folder / "best.pt")
    folder.rename(path.with_name("checkpoint-10"))
    assert torch.load(path.with_name("checkpoint-10") / "best.pt") == 1
    overlay.end()


def test_a_folder_that_is_not_empty_is_not_deleted(overlay: Overlay, path: Path) -> None:
    overlay.begin()
    with pytest.raises(OSError, match="not empty"):
        path.parent.rmdir()
    with pytest.raises(OSError, match="directory"):
        os.remove(path.parent)
    with pytest.raises(FileNotFoundError):
        os.replace(path.with_name("none"), path)
    assert path.read_text() == OF_JOB


def test_more_files_than_can_be_kept_are_told_of(overlay: Overlay, path: Path) -> None:
    many = [path.with_name(str(number)) for number in range(COPIES_MAX + 1)]
    for one in many:
        one.write_text(OF_JOB)
    overlay.begin()
    for one in many[:-1]:
        one.write_text(NEW)
    with pytest.raises(StateMismatch, match="more than 256 files"):
        many[-1].write_text(NEW)
    overlay.end()
    assert {one.read_text() for one in many} == {OF_JOB}


def test_a_function_that_is_kept_is_the_same_elsewhere(overlay: Overlay, path: Path) -> None:
    class Store:
        open = open

    overlay.begin()

    class Later:
        open = open

    for kind in (Store, Later):
        kind.open(path, "r").close()
        kind().open(path, "r").close()
    kept = [pickle.dumps(function) for function in (open, os.remove, os.open)]
    overlay.end()
    assert [pickle.loads(one) for one in kept] == [open, os.remove, os.open]


def test_a_lock_is_the_one_that_others_have(overlay: Overlay, path: Path) -> None:
    """Of a file lock that follows no links."""
    overlay.begin()
    path.unlink()
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW)
    assert os.fstat(descriptor).st_ino == path.stat().st_ino
    os.close(descriptor)


def test_they_are_called_by_all_their_names(overlay: Overlay, path: Path) -> None:
    overlay.begin()
    folder, new = path.with_name("folder"), path.with_name("new")
    os.mkdir(path=folder, mode=0o700)
    os.close(os.open(path=new, flags=os.O_CREAT | os.O_WRONLY, mode=0o600, dir_fd=None))
    os.link(src=new, dst=path.with_name("linked"), follow_symlinks=True)
    os.symlink(src=new, dst=path.with_name("led"), target_is_directory=False)
    os.replace(src=path.with_name("linked"), dst=folder / "moved", src_dir_fd=None)
    os.rename(src=folder / "moved", dst=folder / "again")
    os.unlink(path=folder / "again")
    os.remove(path=path.with_name("led"), dir_fd=None)
    os.rmdir(path=folder)
    open(file=new, mode="w", buffering=1, encoding="utf-8", newline="\n", closefd=True).close()
    assert sorted(os.listdir(path.parent)) == [path.name, "new"]


def test_functions_of_python_are_asked_what_they_can(overlay: Overlay, path: Path) -> None:
    overlay.begin()
    assert open is io.open
    assert os.open in os.supports_dir_fd
    shutil.copy2(path, path.with_name("other"), follow_symlinks=False)
    shutil.copytree(path.parent, path.parent.with_name("copied"), symlinks=True)
    overlay.end()
    assert not any(hasattr(one, "__wrapped__") for one in os.supports_dir_fd)


def test_what_others_write_is_written(
    overlay: Overlay, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Libraries of their own accord, and what they have compiled."""
    overlay.begin()
    with monkeypatch.context() as patched:
        patched.setattr("trainmover.sandbox.process.opened.is_own_file", lambda file: False)
        path.write_text(NEW)
    (path.parent / "__pycache__").mkdir()
    (path.parent / "__pycache__" / "kept").write_text(NEW)
    overlay.end()
    assert path.read_text() == NEW
    assert (path.parent / "__pycache__" / "kept").read_text() == NEW


def test_whatever_lies_in_a_folder_of_the_run_is_its_own(overlay: Overlay, path: Path) -> None:
    overlay.begin()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["touch", f"{folder}/by_another"], check=True)
    assert not os.path.lexists(folder)
    overlay.end()


@pytest.mark.parametrize("mode", ["r+", "w+"])
def test_what_is_mapped_is_the_file_itself(mode: Any, overlay: Overlay, path: Path) -> None:
    """A map cannot be led elsewhere later."""
    overlay.begin()
    numpy.memmap(path, dtype="u1", mode=mode, shape=(2,))[:] = 65
    overlay.end()
    assert path.read_bytes()[:2] == b"AA"


def test_a_process_that_it_forks_writes_for_itself(overlay: Overlay, path: Path) -> None:
    """It may outlast the shadow run, as workers of a loader do."""
    overlay.begin()
    child = os.fork()
    if not child:
        path.write_text(NEW)
        os._exit(0)
    os.waitpid(child, 0)
    overlay.end()
    assert path.read_text() == NEW


def test_who_is_asked_for_what_is_no_file_says_so(overlay: Overlay, tmp_path: Path) -> None:
    overlay.begin()
    for ask in (open, os.remove, os.mkdir, lambda path: os.rename(path, path)):
        with pytest.raises(TypeError):
            ask(None)
        with pytest.raises(ValueError, match="null"):
            ask("a\0b")
    with pytest.raises(FileNotFoundError):
        os.remove(tmp_path / "none")
    with open(os.open(tmp_path / "by_number", os.O_CREAT | os.O_WRONLY), "w") as file:
        file.write(NEW)
    assert (tmp_path / "by_number").read_text() == NEW


# --- live -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_cleared", [False, True])
@pytest.mark.parametrize("mode", ["w", "a"])
def test_live_it_goes_on_where_the_file_ends(
    mode: str, is_cleared: bool, overlay: Overlay, path: Path
) -> None:
    overlay.begin()
    if is_cleared:
        in_a_folder_made_anew(path)
    file = path.open(mode)
    assert file.name == str(path)
    if not is_cleared:
        assert file.tell() == (0 if mode == "w" else len(OF_JOB))
    file.write("header\nof a shadow step\n")
    overlay.check()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "w") as of_rank:
        of_rank.write("a later row\n")
    overlay.lift()
    assert file.tell() == len(f"{OF_JOB}a later row\n")
    file.write(NEW)
    file.flush()
    file.write(NEW)
    file.close()
    assert path.read_text() == f"{OF_JOB}a later row\n{NEW}{NEW}"


def test_live_it_may_write_over_what_it_wrote(overlay: Overlay, path: Path) -> None:
    """As where a file says nothing but how far the run is."""
    overlay.begin()
    with path.open("w") as file:
        for live in (False, True):
            if live:
                overlay.lift()
            file.seek(0)
            file.write(NEW)
            file.truncate()
    assert path.read_text() == NEW


def mapped(path: Path) -> Any:
    with path.open("w+b") as file:
        file.truncate(8)
        return mmap.mmap(file.fileno(), 8)


def doubled(path: Path) -> Any:
    with path.open("w") as file:
        return os.fdopen(os.dup(file.fileno()), "w")


OPEN: dict[str, Callable[[Path], Any]] = {
    "bytes": lambda path: path.open("ab"),
    "mapped": mapped,
    "doubled": doubled,
    "what lies below a text": lambda path: path.open("w").detach(),  # type: ignore[attr-defined]
    "to read and write": lambda path: path.open("w+"),
    "an archive": lambda path: zipfile.ZipFile(path, "w"),
    "packed": lambda path: gzip.GzipFile(path, "a"),
    "packed otherwise": lambda path: bz2.BZ2File(path, "w"),
    "archived otherwise": lambda path: tarfile.TarFile(path, "w"),
}


@pytest.mark.parametrize("what", OPEN)
def test_what_could_not_go_on_is_told_before(what: str, overlay: Overlay, path: Path) -> None:
    overlay.begin()
    with OPEN[what](path), pytest.raises(StateMismatch, match=r"log\.txt open, and not"):
        overlay.check()
    overlay.check()
    overlay.end()
    assert path.read_text() == OF_JOB


def test_live_all_is_done_though_a_file_cannot_be_opened(overlay: Overlay, path: Path) -> None:
    overlay.begin()
    file = path.open("a")
    of_job = path.with_name("of_job")
    shutil.rmtree(path.parent)
    subprocess.run(["rm", "-r", str(path.parent)], check=True)
    with pytest.raises(FileNotFoundError):
        overlay.lift()
    file.close()
    path.parent.mkdir()
    of_job.write_text(NEW)
    assert of_job.read_text() == NEW


def test_live_it_writes_as_others_do(overlay: Overlay, path: Path) -> None:
    overlay.begin()
    path.write_text("of a shadow step")
    overlay.lift()
    assert path.read_text() == OF_JOB
    print_to(path)
    assert path.read_text() == OF_JOB + NEW


def test_afterwards_all_is_as_it_was(overlay: Overlay, path: Path) -> None:
    names = [
        *((builtins, "open"), (io, "open"), (torch._C, "PyTorchFileWriter")),
        *((os, name) for name in ("open", "remove", "unlink", "rmdir", "mkdir")),
        *((os, name) for name in ("link", "symlink", "rename", "replace")),
    ]
    before = [getattr(module, name) for module, name in names]
    for leave in (overlay.end, overlay.lift):
        overlay.begin()
        kept, held = open, path.open("w")
        leave()
        assert [getattr(module, name) for module, name in names] == before
        kept(path).close()
        held.close()
    assert path.read_text() == OF_JOB


def test_what_the_script_has_put_around_a_function_stays(
    overlay: Overlay, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def noting(file: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(file)
        return inside(file, *args, **kwargs)

    monkeypatch.setattr(builtins, "open", open)
    overlay.begin()
    inside, builtins.open = open, noting
    overlay.lift()
    print_to(path)
    assert seen == [path]
    assert path.read_text() == OF_JOB + NEW


# --- what is told of it ---------------------------------------------------------------------------


def test_what_goes_into_a_copy_is_not_told_of(overlay: Overlay, path: Path) -> None:
    of_job, opened = path.with_name("of_job"), Opened(overlay)
    of_job.touch()
    opened.begin(1)
    overlay.begin()
    path.write_text(NEW)
    assert path.read_text() == NEW
    torch.save({"x": torch.ones(2)}, path)
    torch.load(path)
    torch.save({"x": torch.ones(2)}, path.with_name("new"))
    torch.load(path.with_name("new"))
    path.with_name("new").replace(path)
    opened.check()
    assert not opened.written
    assert not opened.written
    write_other(path)
    assert not opened.written
    of_job.open("r+").close()
    assert f"changes {of_job} in place (test_overlay.py line " in opened.written
    opened.end()


STOPPED = (
    *("atomically", "through a link", "by another name", "by a move", "by a copy"),
    *("a name elsewhere", "a folder elsewhere"),
)
"""Where something is made that Python tells of."""


@pytest.mark.parametrize("what", [*WRITES, *OTHERS])
def test_a_trial_goes_on_where_nothing_is_made(what: str, overlay: Overlay, path: Path) -> None:
    class Stopped(BaseException):
        pass

    def stop() -> NoReturn:
        raise Stopped

    traces = NoTraces(overlay)
    overlay.begin()
    traces.begin(stop, [])
    try:
        with pytest.raises(Stopped) if what in STOPPED else nullcontext():
            {**WRITES, **OTHERS}[what](path)
    finally:
        traces.end()
    overlay.end()
    assert path.read_text() == OF_JOB
    assert os.listdir(path.parent) == [path.name]
