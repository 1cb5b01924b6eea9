"""The extension is built from these sources and lies where every process of ours finds it."""

import hashlib
import hmac
import importlib
import os
import platform
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SRC = Path(__file__).resolve().parents[2] / "src"


@pytest.fixture(scope="module")
def native() -> ModuleType:
    if os.environ.get("TRAINMOVER_NATIVE") == "0":
        pytest.skip("TRAINMOVER_NATIVE=0: installed without the native communicator")
    return importlib.import_module("trainmover._native")


def test_it_is_in_the_source_tree(native: ModuleType) -> None:
    assert native.__file__ is not None
    assert Path(native.__file__).parent == SRC / "trainmover"


def test_features_say_what_was_built(native: ModuleType) -> None:
    features = native.features()
    assert features["isa"] in {"avx512", "avx2", "baseline"}
    assert features["sanitizer"] == ""
    assert features["version"]


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="asks the kernel what the CPU can")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="other CPUs have one set of kernels")
def test_the_best_instruction_set_is_in_use(native: ModuleType) -> None:
    flags = set(Path("/proc/cpuinfo").read_text().split())
    best = "avx2" if {"avx2", "f16c"} <= flags else "baseline"
    if {"avx2", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq"} <= flags:
        best = "avx512"
    assert native.features()["isa"] == best


@pytest.mark.parametrize("key_length", [0, 1, 32, 64, 65, 200])
def test_hmac_is_hashlibs(native: ModuleType, key_length: int) -> None:
    chance = random.Random(key_length)
    key = chance.randbytes(key_length)
    for length in [*range(0, 130), 1000]:
        message = chance.randbytes(length)
        assert native.hmac_sha256(key, message) == hmac.digest(key, message, hashlib.sha256)


@pytest.mark.parametrize("flags", [["-P"], ["-I"], []])
def test_other_processes_find_it(native: ModuleType, flags: list[str], tmp_path: Path) -> None:
    program = "import trainmover._native as n; print(n.__file__)"
    command = [sys.executable, *flags, "-c", program]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == native.__file__


def test_it_needs_no_library_beyond_the_systems(native: ModuleType) -> None:
    """No torch inside: one build serves every torch."""
    ran = subprocess.run(["ldd", str(native.__file__)], capture_output=True, text=True, check=True)
    assert "torch" not in ran.stdout
    assert "not found" not in ran.stdout
