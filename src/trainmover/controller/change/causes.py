# SPDX-License-Identifier: Apache-2.0
"""Kinds of trouble that end a process or a machine, read from what was said of it. Pure.

A rule is a kind and words that stand for it; the first rule that finds its words decides, and the
sentence that has them is shown with it: whoever doubts the kind can judge for himself. Nothing is
done by it, but that what is the script's is held against no machine (`anomalies.repeats`).
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from trainmover.symptoms import GRAVE_XID, NOTED_XID

SHOWN_MAX = 300
"""Characters of a sentence."""


class Exit(StrEnum):
    """Kinds of trouble."""

    PREEMPTION = "pre-emption"
    MEMORY = "out of memory"
    HARDWARE = "hardware"
    NETWORK = "network"
    USER = "user bug"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Read:
    """kind, and the sentence that it was read from; "" where nothing says it."""

    kind: Exit
    sentence: str = ""


_RULES: list[tuple[Exit, re.Pattern[str]]] = [
    (kind, re.compile(words, re.IGNORECASE))
    for kind, words in [
        (Exit.PREEMPTION, r"will be taken away|as its owner had said|\bpre-?empt"),
        (
            Exit.MEMORY,
            r"out of memory|\bOOM\b|oom.?kill|MemoryError|cannot allocate memory|can't allocate "
            r"memory|std::bad_alloc|failed to allocate",
        ),
        (
            Exit.HARDWARE,
            rf"{GRAVE_XID}|{NOTED_XID}|\bECC\b|fallen off the bus|machine check|hardware error|"
            r"input/output error|uncorrectable|NVLink error|signal 7\b|bus error|"
            r"CUDA error: unspecified launch|differs from its replicas|digests differ",
        ),
        (
            Exit.NETWORK,
            r"lost a link|reset by peer|connection (refused|aborted|timed out)|broken pipe|"
            r"no route to host|network is (down|unreachable)|name or service not known|"
            r"ibv_|\bRDMA\b|NCCL .{0,60}(timed out|network|remote process)|key-value store|"
            r"do(es)? not reach",
        ),
        (
            Exit.USER,
            r"\braised \w+|exit status (?!0\b)\d+|\w+(Error|Exception)\b|script (is )?ended|"
            r"the script",
        ),
    ]
]


def exit_of(*texts: str) -> Read:
    """Return the cause in all that was said: causes, notes, a process's last words; lines count by
    themselves.

    >>> exit_of("worker 0 of m2 ended (signal 9: the kernel was out of memory)").kind
    <Exit.MEMORY: 'out of memory'>
    >>> exit_of("m1 was lost: its process ended")
    Read(kind=<Exit.UNKNOWN: 'unknown'>, sentence='')
    """
    lines = [line.strip() for text in texts for line in text.splitlines()]
    for kind, words in _RULES:
        for line in lines:
            if words.search(line):
                return Read(kind, line[:SHOWN_MAX])
    return Read(Exit.UNKNOWN)
