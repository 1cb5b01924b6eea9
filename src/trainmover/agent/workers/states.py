# SPDX-License-Identifier: Apache-2.0
"""What state the processes of the workers are in: from the kernel, and from their own pulse.

Looked at on the agent's own beat, and counted in beats: an agent that was itself not let run has
seen nothing. A pulse is a number in a file, which a thread of the worker counts up as long as the
process executes Python; a byte beside it says whether it is in a step (`worker/watch/footing.py`).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

BEATS_BLOCKED = 5
BEATS_HEADLESS = 2
BEATS_DEAF = 4
BEATS_DEAF_MAX = 300
"""A minute: outside of steps that are known, a script may write a file that takes so long."""
IN_A_QUICK_STEP = b"\x01"
_KERNEL = {"T": "stopped", "t": "traced"}


@dataclass
class _Seen:
    """Of one process. still, blocked, headless: beats for which that has been so.

    count, quick  what its pulse says
    patience  beats without a pulse that are put up with: more, if it went on after that many
    """

    pid: int
    said: str = ""
    count: bytes = b""
    quick: bool = False
    still: int = 0
    blocked: int = 0
    headless: int = 0
    patience: int = BEATS_DEAF


@dataclass(frozen=True)
class Changed:
    """A process is in another state than was said last. beats: for so long already."""

    local_rank: int
    pid: int
    state: str
    beats: int


class States:
    """Of one machine's workers. pulse: local rank -> the file of its pulse."""

    def __init__(self, pulse: Callable[[int], Path]) -> None:
        self._pulse = pulse
        self._seen: dict[int, _Seen] = {}

    def look(self, pids: Mapping[int, int], *, live: bool) -> Iterator[Changed]:
        """One beat. live: they have ranks; what only starts, or is in the sandbox, may be deaf."""
        for local_rank, pid in pids.items():
            seen = self._seen.get(local_rank)
            if seen is None or seen.pid != pid:
                seen = self._seen[local_rank] = _Seen(pid)
            self._take_pulse(local_rank, seen)
            state = self._state(seen, kernel_state(pid), live=live)
            if state != seen.said:
                if seen.said == "deaf":
                    seen.patience = min(2 * seen.patience, BEATS_DEAF_MAX)
                seen.said = state
                yield Changed(local_rank, pid, state, seen.still)

    def _take_pulse(self, local_rank: int, seen: _Seen) -> None:
        try:
            pulse = self._pulse(local_rank).read_bytes()
        except OSError:
            pulse = b""
        count = pulse[8:]
        seen.still = seen.still + 1 if any(count) and count == seen.count else 0
        seen.count, seen.quick = count, pulse[:1] == IN_A_QUICK_STEP

    def _state(self, seen: _Seen, letter: str, *, live: bool) -> str:
        seen.blocked = seen.blocked + 1 if letter == "D" else 0
        seen.headless = seen.headless + 1 if letter == "Z" else 0
        if letter in _KERNEL:
            return _KERNEL[letter]
        if seen.headless >= BEATS_HEADLESS:
            return "headless"
        if seen.blocked >= BEATS_BLOCKED:
            return "blocked"
        patience = seen.patience if seen.quick else BEATS_DEAF_MAX
        return "deaf" if live and seen.still >= patience else ""


def kernel_state(pid: int) -> str:
    """One letter of /proc/PID/stat, as ps shows it; "" if the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[0]


def waits_in_kernel(pid: int) -> str:
    """Where in the kernel its main thread sleeps; "" if that is not told."""
    try:
        where = Path(f"/proc/{pid}/wchan").read_text().strip()
    except OSError:
        return ""
    return where if where != "0" else ""


def out_of_memory_kills() -> int:
    """Processes that the kernel has killed for want of memory: in our control group as far as it
    says so, else on the whole host."""
    counts = [_count(path, "oom_kill") for path in (_group_events(), Path("/proc/vmstat"))]
    return sum(count for count in counts if count is not None)


def _group_events() -> Path:
    try:
        group = Path("/proc/self/cgroup").read_text().rpartition("::")[2].strip()
    except OSError:
        group = "/"
    return Path(f"/sys/fs/cgroup{group}") / "memory.events"


def _count(path: Path, name: str) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.split()[:1] == [name]), None)
