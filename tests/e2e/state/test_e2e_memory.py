"""A move takes no more memory than training does, but for buffers of a known size."""

from pathlib import Path

import pytest
from harness import Live, run

from trainmover.protocol.messages import Weighed
from trainmover.state.chunks import CHUNK_BYTES
from trainmover.state.transfer.fetching import SOURCES_MAX

pytestmark = pytest.mark.turns(12)

MIB = 1024 * 1024
STATE = 200 * MIB
BUFFERS = SOURCES_MAX * CHUNK_BYTES
SLACK = 40 * MIB  # Stacks and arenas of a few threads, the record, what is imported late.


def resident(pid: int, name: str) -> int:
    """VmRSS or VmHWM of a process, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{name}:")]
    return int(line.split()[1]) * 1024


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def test_a_move_needs_no_second_copy_of_the_state(tmp_path: Path) -> None:
    begun: dict[str, int] = {}
    training: dict[str, int] = {}
    peaks: dict[str, int] = {}
    again: list[int] = []
    weighed: list[Weighed] = []

    async def scenario(live: Live) -> None:
        await live.holding()
        pids = {machine: live.pids[machine][0] for machine in ("m1", "m2", "m3")}
        await live.at_step(live.step() + 5)
        training.update({m: resident(pid, "VmRSS") for m, pid in pids.items()})
        begun.update({m: resident(pid, "VmHWM") for m, pid in pids.items()})
        for pid in pids.values():
            forget_peak(pid)
        assert (await live.handle.move("m1")).ok
        peaks.update({m: resident(pids[m], "VmHWM") for m in ("m2", "m3")})
        await live.holding()  # m1 has run the script once more, as the standby that it is now.
        again.append(resident(pids["m1"], "VmHWM"))
        progress = live.handle.server.progress
        await live.until(lambda: len(progress.weighed) == 2)
        weighed.extend(progress.weighed.values())
        (tmp_path / "until").touch()

    paced = ["--steps", "100000", "--pace", "0.05", "--until", str(tmp_path / "until")]
    outcome = run([*paced, "--ballast", "200"], scenario, machines=2)
    assert outcome.code == 0, outcome.text
    most = BUFFERS + SLACK
    assert training["m1"] > STATE
    # What it trained with is gone before it builds anew, but for the rank's newest snapshot.
    assert again[0] <= begun["m1"] + most + STATE
    assert peaks["m2"] <= training["m2"] + most
    assert peaks["m3"] <= max(training.values()) + most
    for one in weighed:
        assert STATE <= one.kinds["state"] < STATE + 10 * MIB
        assert 0 < one.kinds.get("communicator", 1) < one.peak
        assert one.rss <= one.peak
