"""The stand-in for libnccl, built once for all tests of this checkout by the compiler of
`native`."""

import ctypes
import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "native" / "fake_nccl"
BUILD = ROOT / "build" / "fake_nccl"
FLAGS = ["-O2", "-shared", "-fPIC", "-std=c++20", "-fno-strict-aliasing"]
FLAGS += ["-Wall", "-Wextra", "-Werror"]


def compiler() -> str | None:
    names = (os.environ.get("CXX", "c++"), "c++", "g++", "clang++")
    return next((found for name in names if (found := shutil.which(name))), None)


@cache
def built() -> Path:
    """The library; skips the test where there is no compiler."""
    chosen = compiler()
    if chosen is None:
        pytest.skip("needs a C++20 compiler")
    BUILD.mkdir(parents=True, exist_ok=True)
    library = BUILD / "libnccl_fake.so"
    with open(BUILD / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Tests run beside each other.
        newest = max(file.stat().st_mtime for file in SOURCES.iterdir())
        if not library.exists() or library.stat().st_mtime < newest:
            half = library.with_suffix(".new")
            source = str(SOURCES / "fake_nccl.cpp")
            command = [chosen, *FLAGS, source, "-o", str(half), "-lpthread", "-lrt"]
            subprocess.run(command, check=True)
            shutil.copy(SOURCES / "stand_in.py", BUILD)
            half.replace(library)
    return library


def set_faults(**faults: int) -> None:
    """In this process from now on. The environment is read once only, when the library is first
    asked for one, and that may have been before a fork."""
    library = ctypes.CDLL(str(built()))
    library.fakeSet.argtypes = [ctypes.c_char_p, ctypes.c_long]
    for name, value in faults.items():
        library.fakeSet(name.encode(), value)


@contextmanager
def stands_in(**faults: int) -> Iterator[None]:
    """Processes that are started within it find the stand-in where they look for libnccl, with
    these faults (`faults.hpp`). What killed ranks have left behind goes."""
    run = f"test-{os.getpid()}"
    given = {
        "TRAINMOVER_NCCL": str(built()),
        "FAKE_NCCL": ",".join(f"{name}={value}" for name, value in faults.items()),
        "FAKE_NCCL_RUN": run,
    }
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
        for left in Path("/dev/shm").glob(f"fake-nccl-{run}-*"):
            left.unlink(missing_ok=True)
