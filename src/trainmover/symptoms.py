# SPDX-License-Identifier: Apache-2.0
"""Lines by which a kernel, or a process, says that its machine fails, or soon will. Pure.

A rule is a name, words, and whether one such line is enough: a grave one says that something is
broken, the others come now and then on healthy machines too, and mean something only where they
come often. Xid numbers: NVIDIA, "XID Errors", the column of causes; those that a program's own bug
can bring about (13, 31, 43, 45) stand for nothing here. EDAC, APEI, AER, md and NVMe: the messages
of Linux 6.1. A machine that has no memory left is no broken machine: no rule is about that.
"""

import re
from dataclasses import dataclass

LINE_MAX = 300
"""Characters of a line that are told."""


@dataclass(frozen=True)
class Symptom:
    """grave: one line is enough. means: for people."""

    name: str
    means: str
    grave: bool
    words: re.Pattern[str]


def _rule(name: str, means: str, words: str, *, grave: bool = False) -> Symptom:
    return Symptom(name, means, grave, re.compile(words, re.IGNORECASE))


_XID = r"\bXid\b(?: \([^)]*\))?:? *"
GRAVE_XID = rf"{_XID}(48|64|74|79|95|119|120|140)\b"
NOTED_XID = rf"{_XID}(6[1-3]|92|94|14[3-9])\b"

SYMPTOMS = (
    _rule(
        "gpu",
        "a GPU is broken",
        rf"{GRAVE_XID}|fallen off the bus|\bSXid\b.*fatal|NVLink error|"
        r"hardware stack error",
        grave=True,
    ),
    _rule(
        "memory",
        "its memory is broken",
        r"\bEDAC\b.*\bUE\b|uncorrect(ed|able) (\w+ )?(ECC|memory|error)|Memory failure: 0x|"
        r"event severity: (fatal|recoverable)|AER: (Multiple )?Uncorrected",
        grave=True,
    ),
    _rule(
        "disk lost",
        "a disk is lost",
        r"Remounting filesystem read-only|nvme\d+: (controller is down|Device not ready; aborting)",
        grave=True,
    ),
    _rule(
        "corrected",
        "errors were corrected",
        rf"{NOTED_XID}|\bEDAC\b.*\bCE\b|corrected (\w+ )?error|AER: (Multiple )?Corrected|"
        r"event severity: corrected|Machine check events logged",
    ),
    _rule(
        "disk",
        "a disk gives errors",
        r"I/O error, dev|Medium Error|exception Emask|nvme\d+: I/O .*(timeout|aborting)",
    ),
    _rule(
        "network",
        "a link goes down, or hangs",
        r"Link is Down|NETDEV WATCHDOG|mlx5_core .*(health|syndrome)|port \d+ .*link down",
    ),
    _rule(
        "stall",
        "a processor does not come to other work",
        r"soft lockup|hard LOCKUP|rcu: .*(stall|stalls)|blocked for more than \d+ seconds",
    ),
    _rule("heat", "it is too hot", r"cpu clock throttled|temperature above threshold"),
)
_BY_NAME = {symptom.name: symptom for symptom in SYMPTOMS}

_OF_PROCESSES = re.compile(
    rb"uncorrectable ECC|fallen off the bus|NVLink error|hardware stack error"
)


def symptom_in(line: str) -> Symptom | None:
    """Of a line of a kernel's log; None: it says nothing of that kind.

    >>> symptom_in("NVRM: Xid (PCI:0000:3b:00): 79, pid=0, GPU has fallen off the bus.").name
    'gpu'
    >>> symptom_in("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0").grave
    False
    >>> symptom_in("NVRM: Xid (PCI:0000:3b:00): 31, MMU Fault") is None  # A program's own bug.
    True
    """
    return next((one for one in SYMPTOMS if one.words.search(line)), None)


def symptom_named(name: str) -> Symptom | None:
    """The rule of that name; None: there is none."""
    return _BY_NAME.get(name)


def said_by_process(lines: bytes) -> str:
    """The first of a process's lines that says that its machine is broken; "" if none does.

    >>> said_by_process(b"step 3\\nCUDA error: uncorrectable ECC error encountered\\n")
    'CUDA error: uncorrectable ECC error encountered'
    """
    found = _OF_PROCESSES.search(lines)
    if found is None:
        return ""
    begin = lines.rfind(b"\n", 0, found.start()) + 1
    end = lines.find(b"\n", found.end())
    return lines[begin : end if end >= 0 else None].decode(errors="replace").strip()[:LINE_MAX]
