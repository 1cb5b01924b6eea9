"""Everything at once, under sanitizers, with delays wherever threads or seats depend on each other.

What happens is in `native/tests/test_schedules.cpp`; that it would find what is wrong is seen by
planting faults. The first run after a change of the library builds it, which takes minutes.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SHORT_S, LONG_S = 20, 1200
SANITIZERS = ["address", "thread"]
COMMITS = 20

pytestmark = pytest.mark.skipif(
    shutil.which("c++") is None or os.environ.get("TRAINMOVER_NATIVE") == "0",
    reason="without a compiler there is no native communicator",
)


def play(root: Path, kind: str, seconds: float, first: int, patience_s: int = 120) -> str:
    """Seeds from `first` on. What it wrote; fails, with that, where a seed does."""
    command = [str(root / "native" / "test.sh"), kind, "test_schedules"]
    command += [str(seconds), str(first), str(patience_s)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wrote = done.stdout[-1000:] + done.stderr[-6000:]
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command[1:])} ended with {done.returncode}:\n{wrote}")
    return wrote


def is_new() -> bool:
    """Whether one of the last commits has changed the library, or it is changed now. `make soak`
    plays what is as it was; and where there is no history it may be new."""
    command = ["git", "diff", "--quiet", f"HEAD~{COMMITS}", "--", "native/src", "native/tests"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode != 0


@pytest.mark.turns(2)
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_schedules(sanitizer: str, seed_of_commit: str) -> None:
    if not is_new():
        pytest.skip(f"native/ is as it was {COMMITS} commits ago")
    first = int(seed_of_commit, 16) % 1_000_000 if seed_of_commit != "no commit" else 1
    play(ROOT, sanitizer, SHORT_S, first)


@pytest.mark.soak
@pytest.mark.timeout(2 * LONG_S)
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_schedules_for_long(sanitizer: str) -> None:
    play(ROOT, sanitizer, float(os.environ.get("TRAINMOVER_SOAK_S", LONG_S)), 2_000_000)


# What is wrong, in which file, what stands there, and what is planted instead.
FAULTS = {
    "links that nobody waits for any more are read by nobody": (
        "engine.cpp",
        "        leader_.store(nullptr);\n        arm(true);",
        "        leader_.store(nullptr);",
    ),
    "a leader that leaves does not name the next one": (
        "engine.cpp",
        "    leader_.store(next);\n    arm(false);\n    next->woken_.notify_one();",
        "    leader_.store(nullptr);\n    static_cast<void>(next);",
    ),
    "an abort does not wait for who is inside": (
        "group.cpp",
        "    changed_.wait(lock, [&] { return !running_; });",
        "    static_cast<void>(stopped);",
    ),
    "links keep the buffers of a call that has failed": (
        "session.cpp",
        "        if (seat != view.seat) view.links[seat]->forget(this);",
        "        if (seat > view.size()) view.links[seat]->forget(this);",
    ),
    "who was left behind is not told": (
        "endpoint_frames.cpp",
        "        session.ending.lose(seat, text);\n        if (seat == speaker)",
        "        if (seat == speaker)",
    ),
    "memory is held for who reads it no more": (
        "endpoint_frames.cpp",
        "            if (header.epoch > 0) farewell(header.group, link.peer, header.epoch - 1);\n",
        "",
    ),
    "a slot that is used again is taken for the old one": (
        "board.cpp",
        "        if (holds(seat)) continue;",
        "        if (seat < words_.size()) continue;",
    ),
    "who was called before it led sleeps over it": (
        "engine.cpp",
        "if (std::unique_lock lock(mutex_); std::exchange(waiter.called_, false)) return true;",
        "",
    ),
    "what a link has to write is told when it may have changed": (
        "link.cpp",
        "    write_some();\n    arm();\n}",
        """    write_some();
    const bool late = waits();
    write_.unlock();
    write_.lock();
    epoll_event event{};
    event.events = armed_ = EPOLLIN | (late ? EPOLLOUT : 0U);
    event.data.u64 = id_;
    epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, fd_, &event);
}""",
    ),
    "what comes before the epoch is lost": (
        "endpoint.cpp",
        "                next->wires.adopt(seat, std::move(early.inflow));\n",
        "",
    ),
    "what was arriving when the epoch began is not counted": (
        "wires.cpp",
        "    if (any_ && (inflow.held > 0 || !inflow.pieces.empty()))",
        "    if (any_ && !inflow.pieces.empty())",
    ),
    "a stream does not mind its window": (
        "wires.cpp",
        "        if (stream.sent + length > stream.cleared + kWindow) return;\n",
        "",
    ),
    "small messages do not mind theirs": (
        "mail.cpp",
        "bytes <= kEagerMax && box.eager_sent + bytes <= box.eager_cleared + kEagerWindow;",
        "bytes <= kEagerMax;",
    ),
    "a group is closed beside its switchover": (
        "group.cpp",
        "    for (const auto epoch : epochs) discard(epoch);\n"
        "    const std::lock_guard passing(passing_);\n",
        "    for (const auto epoch : epochs) discard(epoch);\n",
    ),
}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the library, to plant in."""
    root = tmp_path_factory.mktemp("planted")
    shutil.copytree(ROOT / "native", root / "native")
    play(root, "address", 5, 1, patience_s=60)
    return root


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("wrong", FAULTS)
def test_a_planted_fault_is_found(planted: Path, wrong: str) -> None:
    name, old, new = FAULTS[wrong]
    path = planted / "native" / "src" / name
    source = path.read_text()
    assert source.count(old) == 1, f"{name} has changed: plant it anew"
    path.write_text(source.replace(old, new))
    try:
        with pytest.raises(AssertionError, match="ended with"):
            play(planted, "address", 300, 1, patience_s=20)
    finally:
        path.write_text(source)
