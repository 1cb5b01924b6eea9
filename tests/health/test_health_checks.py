"""What each check of a machine gives, and what it does not let pass."""

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainmover.health import checks
from trainmover.health.checks import Unfit


def test_each_gives_a_rate(tmp_path: Path) -> None:
    for told in (
        checks.memory(2**20), checks.disk(tmp_path), checks.processor(), checks.loopback()
    ):  # fmt: skip
        ((name, rate),) = told.items()
        assert rate > 0, name
    assert list(tmp_path.iterdir()) == []


def test_memory_with_a_bit_that_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    same = checks._same

    def with_a_flaw(words: np.ndarray, wanted: Any) -> None:
        words[1000] ^= np.uint64(1 << 7)
        same(words, wanted)

    monkeypatch.setattr(checks, "_same", with_a_flaw)
    with pytest.raises(Unfit, match=r"memory gave back 1 of 131072 words with other bits"):
        checks.memory(2**20)


def test_a_processor_that_computes_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = checks._factors(checks.SIDE)
    left[3, 3] += 1
    monkeypatch.setattr(checks, "_factors", lambda side: (left, right))
    with pytest.raises(Unfit, match="other bits than on any machine"):
        checks.processor()


def test_every_product_is_exact_whatever_adds_in_which_order() -> None:
    left, right = checks._factors(checks.SIDE)
    exact = left.astype(np.int64) @ right.astype(np.int64)
    assert np.abs(exact).max() < 2**24
    assert checks.digest(exact) == checks.PRODUCT


def test_a_disk_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(Unfit, match="cannot be written: No such file"):
        checks.disk(tmp_path / "none")


def test_a_disk_that_gives_back_other_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgets(descriptor: int, offset: int, length: int, advice: int) -> None:
        os.pwrite(descriptor, b"\0\0\0\0", 4096)

    monkeypatch.setattr(os, "posix_fadvise", forgets)
    with pytest.raises(Unfit, match="read back with other bytes"):
        checks.disk(tmp_path)


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        ("0, 0\n1, 4\n", 0, "GPU 1 has 4 memory errors that it could not correct"),
        ("Unable to determine the device handle: GPU is lost\n", 15, "GPU is lost"),
    ],
)
def test_a_gpu_that_complains(
    said: str, code: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks.shutil, "which", lambda name: "/usr/bin/nvidia-smi")
    done = subprocess.CompletedProcess((), code, stdout=said)
    monkeypatch.setattr(checks.subprocess, "run", lambda *given, **more: done)
    with pytest.raises(Unfit, match=words):
        checks.gpus()


def test_where_there_is_no_gpu_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.shutil, "which", lambda name: None)
    assert checks.gpus() == {}
