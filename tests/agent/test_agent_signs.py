"""What an agent reads from its kernel's log and its processes, and how often it says so."""

import os
from pathlib import Path

import pytest

from trainmover.agent.signs import Signs, memory
from trainmover.protocol.messages import Sign

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=0, GPU has fallen off the bus."
CORRECTED = "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0"


class Kernel:
    """A log, and an agent that looks through it."""

    def __init__(self, path: Path, before: str = "") -> None:
        self.path, self.now, self.said = path, 100.0, list[Sign]()
        path.write_text(before)
        self.signs = Signs(path, self.said.append, lambda: self.now)

    def says(self, text: str) -> list[Sign]:
        with self.path.open("a") as log:
            log.write(text)
        return self.look()

    def look(self, after_s: float = 0.2) -> list[Sign]:
        self.now += after_s
        self.said.clear()
        self.signs.look()
        return [*self.said]


def test_a_line_of_its_kernel_is_told_at_once(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path / "kmsg")
    assert kernel.says("usb 1-1: new device\n") == []
    assert kernel.says(f"{XID}\n") == [Sign(symptom="gpu", line=XID, count=1)]
    assert kernel.look() == []


def test_what_was_said_before_it_was_there_is_no_sign(tmp_path: Path) -> None:
    assert Kernel(tmp_path / "kmsg", before=f"{XID}\n").look() == []


def test_the_same_again_and_again_is_counted_and_told_every_ten_seconds(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path / "kmsg")
    assert [one.count for one in kernel.says(f"{CORRECTED}\n")] == [1]
    assert kernel.says(f"{CORRECTED}\n" * 1000) == []
    assert kernel.says(f"{XID}\n")[0].symptom == "gpu"  # Another is not held up.
    assert [(one.symptom, one.count) for one in kernel.look(10)] == [("corrected", 1000)]


def test_half_a_line_is_none(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path / "kmsg")
    assert kernel.says(XID[:30]) == []
    assert kernel.says(f"{XID[30:]}\n")[0].line == XID


def test_a_long_line_is_shortened_and_bytes_that_are_no_text_are_borne(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path / "kmsg")
    with kernel.path.open("ab") as log:
        log.write(b"\xff\xfe" * 100_000 + b"\n" + XID.encode() + b"x" * 5000 + b"\n")
    assert [len(one.line) for one in kernel.look()] == [300]


@pytest.mark.parametrize("path", [None, Path("/nowhere/kmsg"), Path("/dev/null"), Path("/")])
def test_a_log_that_cannot_be_read_is_no_fault(path: Path | None) -> None:
    said: list[Sign] = []
    signs = Signs(path, said.append)
    signs.look()
    signs.close()
    signs.look()
    assert said == []


def test_a_pipe_is_read_as_far_as_it_has_come(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    said: list[Sign] = []
    signs = Signs(path, said.append)
    try:
        signs.look()
        path.write_text(f"{XID}\n")
        signs.look()
    finally:
        signs.close()
    assert [one.symptom for one in said] == ["gpu"]


def test_a_process_that_says_that_its_gpu_is_broken_is_heard(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path / "kmsg")
    kernel.signs.printed(b"loss 1.5\nRuntimeError: CUDA error: uncorrectable ECC error\nbye\n")
    kernel.signs.printed(b"ValueError: the user's own\n")
    assert kernel.look() == [
        Sign(symptom="memory", line="RuntimeError: CUDA error: uncorrectable ECC error", count=1)
    ]


def test_memory_is_that_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    free, whole = memory()
    assert 0 < free < whole
    monkeypatch.setattr("trainmover.agent.signs.MEMORY_INFO", tmp_path / "meminfo")
    assert memory() == (0, 0)
    (tmp_path / "meminfo").write_text("MemTotal: of another kernel\n")
    assert memory() == (0, 0)
