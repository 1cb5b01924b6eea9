"""A machine that has too little memory for a role says so before it runs the script."""

import mmap
from pathlib import Path

import psutil
import pytest
import torch

from trainmover.sandbox.process import memory
from trainmover.sandbox.process.memory import GIB, left_bytes, private_bytes, too_little


def test_memory_of_devices_is_what_torch_has_taken_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory.device_bytes() == 0
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda index: [5, 6][index])
    assert memory.device_bytes() == 11


def test_private_memory_grows_with_what_is_held() -> None:
    before, size = private_bytes(), 64 << 20
    with mmap.mmap(-1, size, mmap.MAP_PRIVATE) as held:  # A heap may have room left.
        held.write(bytes(size))
        assert private_bytes() - before > 0.9 * size


def test_what_is_held_already_needs_no_place() -> None:
    assert too_little(8 * GIB, held=7 * GIB, left=2 * GIB, processes=2) == ""
    assert too_little(8 * GIB, held=9 * GIB, left=0, processes=2) == ""


def test_both_numbers_are_told() -> None:
    said = too_little(80 * GIB, held=GIB // 2, left=3 * GIB, processes=1)
    assert said == (
        "the role needs 79.5 GiB of memory more than is in use, and this machine has 3.0 GiB left"
    )
    assert "159.0 GiB" in too_little(80 * GIB, held=GIB // 2, left=3 * GIB, processes=2)


def test_more_than_the_machine_has_is_too_little() -> None:
    assert too_little(1 << 60, held=0, left=left_bytes(), processes=1)


@pytest.mark.parametrize("version", [1, 2])
def test_the_limit_of_a_container_counts(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "memory" if version == 1 else tmp_path
    folder = root / "pod" / "worker"
    folder.mkdir(parents=True)
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
    for name, text in zip(
        names if version == 1 else ("memory.max", "memory.current"), "95", strict=True
    ):
        (root / "pod" / name).write_text(f"{text}000000\n")
    (folder / "memory.max").write_text("max\n")
    (root / "pod" / "memory.stat").write_text("anon 1\ninactive_file 2000000\nactive_file 0\n")
    groups = "4:memory:/pod/worker" if version == 1 else "0::/pod/worker"
    (tmp_path / "cgroup").write_text(f"12:cpu:/\n{groups}\n")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    monkeypatch.setattr(memory, "_OWN_GROUPS", tmp_path / "cgroup")
    assert psutil.virtual_memory().available > 6_000_000
    assert left_bytes() == 6_000_000
