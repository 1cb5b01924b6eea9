"""What NCCL under trainmover comes to on one GPU, part by part; each takes eight minutes at most.

    python -m bench.gpu --part A1        2, 3 and 4 ranks meet; how long a small call takes
    python -m bench.gpu --part A2        every call is right; what a call costs its caller
    python -m bench.gpu --part A3        a step with and without the wait for the device
    python -m bench.gpu --part B1        SIGKILL and SIGSTOP in a call: until it ends
    python -m bench.gpu --part B2        a coming epoch prepared while training goes on
    python -m bench.gpu --part B3        200 prepared and given up under load
    python -m bench.gpu --part C1        DDP, compiled: moved and killed, bit for bit
    python -m bench.gpu --part C2        FSDP2 and HSDP
    python -m bench.gpu --part C3        downtimes of those
    python -m bench.gpu --part D         copies and digests by size
    python -m bench.gpu --part D2        state from device to device by size, as in a planned move

All ranks share the GPU: NCCL takes them for hosts, and the GPU gives each its slices of time. What
is measured so says nothing of bandwidth between GPUs. With --stand-in parts A1 to B3, and D2, run
over the stand-in, on the CPU: to see that the bench works, never a result.
"""

import argparse
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from bench import result
from bench.result import Claim

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "gpu")]
import fake_nccl  # noqa: E402
import one_gpu  # noqa: E402  the tests' settings, found by the line above

SHARED = "**All ranks share one GPU (NCCL_HOSTID): nothing here is a bandwidth between GPUs.**"
_FORK = multiprocessing.get_context("fork")
_PATIENCE_S = 120
Program = Callable[..., Any]


class Team:
    """Ranks as processes that have not touched the GPU before, with a store that they share."""

    def __init__(self, size: int, device: str) -> None:
        self.size, self.device = size, device
        self._results: Any = _FORK.Queue()
        mine, theirs = _FORK.Pipe()
        self._host = _FORK.Process(target=_host_store, args=(theirs,), daemon=True)
        self._host.start()
        self.port = int(mine.recv())
        self.processes: dict[int, Any] = {}

    def start(self, rank: int, program: Program, *args: Any) -> None:
        process = _FORK.Process(target=self._child, args=(rank, program, args), daemon=True)
        process.start()
        self.processes[rank] = process

    def _child(self, rank: int, program: Program, args: tuple[Any, ...]) -> None:
        try:
            answer = (rank, program(self, rank, *args), "")
        except BaseException as error:  # noqa: BLE001  the child's outermost frame
            answer = (rank, None, repr(error))
        self._results.put(answer)
        self._results.close()
        self._results.join_thread()
        os._exit(0)

    def results(self, count: int) -> dict[int, Any]:
        found = {}
        for _ in range(count):
            rank, value, error = self._results.get(timeout=_PATIENCE_S)
            if error:
                raise RuntimeError(f"rank {rank}: {error}")
            found[rank] = value
        return found

    def run(self, program: Program, *args: Any) -> dict[int, Any]:
        for rank in range(self.size):
            self.start(rank, program, *args)
        return self.results(self.size)

    def close(self) -> None:
        for process in [*self.processes.values(), self._host]:
            if process.is_alive():
                process.kill()
            process.join()

    def __enter__(self) -> "Team":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # In a rank.

    def store(self) -> dist.Store:
        patience = timedelta(seconds=_PATIENCE_S)
        return dist.TCPStore("127.0.0.1", self.port, is_master=False, timeout=patience)

    def join(self, rank: int, *, ours: bool = True) -> dist.Store:
        """The world, by our groups or by torch's own."""
        if self.device == "cuda":
            one_gpu.pass_for_a_host()
            torch.cuda.set_device(0)
        store = self.store()
        if ours:
            from trainmover.comm import groups, hook_torch

            hook_torch(groups)
            groups.choose("native", b"a bench's token", "nccl")
            groups.use_store(store, 1)
        script = dist.PrefixStore("script", store)
        dist.init_process_group("nccl", store=script, rank=rank, world_size=self.size)
        return store

    def ones(self, count: int) -> torch.Tensor:
        return torch.ones(count, device=self.device)

    def finish(self) -> None:
        """All that was given to the device is done."""
        if self.device == "cuda":
            torch.cuda.synchronize()


def _host_store(pipe: Any) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    pipe.send(store.port)
    signal.pause()


def median_us(times: list[float]) -> float:
    return statistics.median(times) * 1e6


def timed(job: Callable[[], object]) -> float:
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


# --- A: what is true ------------------------------------------------------------------------------


def meets(team: Team, rank: int, ours: bool, calls: int) -> tuple[float, list[float]]:
    began = time.perf_counter()
    team.join(rank, ours=ours)
    tensor = team.ones(2)

    def call() -> None:
        dist.all_reduce(tensor)
        team.finish()

    call()
    met = time.perf_counter() - began
    return met, [timed(call) for _ in range(calls)]


def part_a1(device: str, quick: bool) -> tuple[list[Claim], list[str], Any]:
    calls, rows, raw = (5, [], {}) if quick else (50, [], {})
    arms = (True,) if device == "cpu" else (True, False)
    rows += ["| ranks | by | seconds to the first call | a small call, ms |", "|---|---|---|---|"]
    for size in (2, 3, 4):
        for ours in arms:
            with Team(size, device) as team:
                met, times = team.run(meets, ours, calls)[0]
            raw[f"{size} {'ours' if ours else 'torch'}"] = times
            name = "trainmover" if ours else "torch"
            rows.append(f"| {size} | {name} | {met:.2f} | {median_us(times) / 1e3:.2f} |")
    return [], rows, raw


def costs(team: Team, rank: int, ours: bool, calls: int) -> list[float]:
    """Of the host alone, for a call in the background."""
    team.join(rank, ours=ours)
    tensor = team.ones(1024)
    dist.all_reduce(tensor)
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        work = dist.all_reduce(tensor, async_op=True)
        times.append(time.perf_counter() - began)
        assert work is not None
        work.wait()
        team.finish()
    return times


def part_a2(device: str, quick: bool) -> tuple[list[Claim], list[str], Any]:
    found = {}
    for ours in (True,) if device == "cpu" else (True, False):
        with Team(2, device) as team:
            found[ours] = team.run(costs, ours, 20 if quick else 300)[0]
    here = median_us(found[True])
    there = median_us(found[False]) if False in found else 0.0
    rows = [f"A call costs its caller {here:.1f} us; ProcessGroupNCCL's {there:.1f} us.", ""]
    right = device == "cpu" or pytest_passes("tests/gpu/test_gpu_calls.py")
    claims = [
        Claim("a call beyond ProcessGroupNCCL's", here - there, "us", 10.0),
        Claim("calls that are wrong", float(not right), "", 0.0),
    ]
    return claims, rows, {str(ours): times for ours, times in found.items()}


def steps_of(team: Team, rank: int, waits: bool, steps: int) -> list[float]:
    """Steps with, or without, what the gate waits for on the device."""
    from trainmover.comm import groups

    team.join(rank)
    width, depth = (4096, 24) if team.device == "cuda" else (64, 4)
    kind = torch.bfloat16 if team.device == "cuda" else torch.float32
    layers = [torch.nn.Linear(width, width) for _ in range(depth)]
    model = torch.nn.Sequential(*layers).to(team.device, kind)
    optimizer = torch.optim.AdamW(model.parameters(), fused=team.device == "cuda")
    given = torch.randn(2048 if team.device == "cuda" else 8, width).to(team.device, kind)

    def step() -> None:
        model(given).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        if waits:
            groups.come_through(lambda: False)
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(5):
        step()
    team.finish()
    times = []
    for _ in range(steps):
        times.append(timed(step))
    team.finish()
    return times


def part_a3(device: str, quick: bool) -> tuple[list[Claim], list[str], Any]:
    found: dict[bool, list[float]] = {True: [], False: []}
    for waits in (True, False, False, True):
        with Team(2, device) as team:
            found[waits] += team.run(steps_of, waits, 5 if quick else 60)[0]
    with_wait, without = (statistics.mean(found[waits]) for waits in (True, False))
    rows = [
        f"A step takes {with_wait * 1e3:.1f} ms with the wait, {without * 1e3:.1f} without.",
        "",
    ]
    claim = Claim("a step with the wait to one without", with_wait / without, "", 1.01)
    return [claim], rows, {str(waits): times for waits, times in found.items()}


# --- B: how calls end, how epochs begin ------------------------------------------------------


def ends(team: Team, rank: int, how: int) -> tuple[float, int]:
    """A peer is lost in a call: seconds until nothing is left on the device, and what leaked."""
    from trainmover.comm import groups
    from trainmover.comm.nccl.ending import endings

    store = team.join(rank)
    tensor = team.ones(1 << 20)
    dist.all_reduce(tensor)
    team.finish()
    store.set(f"ready/{rank}", "")
    store.wait([f"ready/{other}" for other in range(team.size)])
    if rank == 1:
        os.kill(os.getpid(), how)
    time.sleep(0.05)
    for _ in range(3):
        dist.all_reduce(tensor, async_op=True)
    began = time.perf_counter()
    groups.drain("a bench ends it", epoch=2)
    groups.await_empty_device()
    return time.perf_counter() - began, endings.leaked


def part_b1(device: str, quick: bool) -> tuple[list[Claim], list[str], Any]:
    found: dict[str, list[float]] = {}
    leaked = 0
    for how in (signal.SIGKILL, signal.SIGSTOP):
        times = found[how.name] = []
        for _ in range(2 if quick else 50):
            with Team(2, device) as team:
                for rank in range(2):
                    team.start(rank, ends, how)
                took, lost = team.results(1)[0]
            times.append(took)
            leaked += lost
    every = sorted(time for times in found.values() for time in times)
    rows = [f"- {name}: {median_us(times) / 1e3:.1f} ms" for name, times in found.items()]
    claims = [
        Claim("from the order to an empty device, median", median_us(every) / 1e3, "ms", 20.0),
        Claim("leaked", float(leaked), "", 0.0),
    ]
    return claims, [*rows, ""], found


def prepares(team: Team, rank: int, epochs: int, steps: int) -> tuple[list[float], list[float]]:
    """Steps alone, and steps while coming epochs are prepared and given up."""
    from trainmover.comm import groups

    team.join(rank)
    tensor, other = team.ones(1 << 18), team.ones(1 << 10)

    def step() -> None:
        for _ in range(4):
            dist.all_reduce(tensor)
        other.mul_(1.0)
        team.finish()

    alone = [timed(step) for _ in range(steps)]
    over = threading.Event()

    def come_and_go() -> None:
        for epoch in range(2, 2 + epochs):
            store = team.store()
            groups.prepare(epoch, store)
            prepared = groups.prepared(epoch)
            if not prepared.wait(60) or prepared.error is not None:
                raise RuntimeError(f"epoch {epoch}: {prepared.error or 'it hangs'}")
            store.set(f"come/{epoch}/{rank}", "")
            store.wait([f"come/{epoch}/{peer}" for peer in range(team.size)])
            groups.discard(epoch)
        over.set()

    threading.Thread(target=come_and_go, daemon=True).start()
    beside = []
    ended = team.ones(1)
    while True:
        beside.append(timed(step))
        ended.fill_(float(over.is_set()))
        dist.all_reduce(ended, dist.ReduceOp.MIN)
        if ended.item() > 0:
            return alone, beside


def part_b2(device: str, quick: bool, epochs: int = 10) -> tuple[list[Claim], list[str], Any]:
    with Team(2, device) as team:
        alone, beside = team.run(prepares, 2 if quick else epochs, 10 if quick else 200)[0]
    usual = statistics.median(alone)
    rows = [
        f"A step takes {usual * 1e3:.2f} ms; the longest beside {max(beside) * 1e3:.2f} ms.",
        "",
    ]
    claim = Claim("the longest step to the median one", max(beside) / usual, "", 2.0)
    return [claim], rows, {"alone": alone, "beside": beside}


def part_b3(device: str, quick: bool) -> tuple[list[Claim], list[str], Any]:
    """Who hangs raises."""
    _, rows, raw = part_b2(device, quick, epochs=200)
    return [Claim("preparations that hang", 0.0, "", 0.0)], rows, raw


# --- C and D --------------------------------------------------------------------------------------


def pytest_passes(*arguments: str) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def jobs(scripts: str) -> tuple[list[Claim], list[str], Any]:
    passed = pytest_passes("tests/gpu/test_gpu_jobs.py", "-k", scripts)
    return [Claim(f"{scripts}: tests that fail", float(not passed), "", 0.0)], [], {}


def part_c3() -> tuple[list[Claim], list[str], Any]:
    """The sentences of the jobs say every downtime, by phase."""
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-k", "replicated"]
    ran = subprocess.run(
        [*command, "tests/gpu/test_gpu_jobs.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    told = [line for line in ran.stdout.splitlines() if "downtime" in line]
    passed = Claim("tests that fail", float(ran.returncode != 0), "", 0.0)
    return [passed], [f"- {line}" for line in told], {"told": told}


def part_d(quick: bool) -> tuple[list[Claim], list[str], Any]:
    from trainmover.state.device_digest import digest
    from trainmover.state.staging import copy_to_host

    rows = ["| GiB | digest, GB/s | copy to the host, GB/s |", "|---|---|---|"]
    raw = {}
    for gib in (1,) if quick else (1, 8, 32):
        flat = torch.empty(gib << 30, dtype=torch.uint8, device="cuda").random_(0, 255)
        place = torch.empty(gib << 30, dtype=torch.uint8)
        digest(flat), copy_to_host(flat[: 1 << 20], place[: 1 << 20])  # Once, to be warm.
        hashing, copying = (
            timed(lambda f=flat: digest(f)),
            timed(lambda f=flat, p=place: copy_to_host(f, p)),
        )
        raw[gib] = (hashing, copying)
        size = flat.numel() / 1e9
        rows.append(f"| {gib} | {size / hashing:.0f} | {size / copying:.1f} |")
        del flat, place
    hashing, copying = raw[max(raw)]
    size = (max(raw) << 30) / 1e9
    claims = [
        Claim("digest, ns a KB (1 TB/s is 1)", hashing / size * 1e3, "", 1.0),
        Claim("copy to the host, s a GB (5 GB/s is 0.2)", copying / size, "s", 0.2),
    ]
    return claims, rows, raw


def moves(team: Team, rank: int, size: int) -> float:
    """Seconds until so many bytes are there, over a pair that has been used before."""
    from trainmover.comm import groups

    store = team.join(rank)
    pairing = groups.pairing()
    assert pairing is not None
    if rank == 0:
        store.set("pair", pairing.unique_id())
    pair = pairing.connect(store.get("pair").decode(), rank, lambda: False)
    state = torch.zeros(size, dtype=torch.uint8, device=team.device)
    move = pair.send if rank == 0 else pair.receive
    for _ in move([state[:1024]], lambda: False):
        pass
    took = timed(lambda: [None for _ in move([state], lambda: False)])
    pair.close()
    return took


def part_d2(device: str, quick: bool) -> tuple[list[Claim], list[str], Any]:
    rows, raw = ["| MiB | s | GB/s |", "|---|---|---|"], {}
    for mib in (1, 8) if quick else (1024, 8192, 32768):
        with Team(2, device) as team:
            raw[mib] = max(team.run(moves, mib << 20).values())
        rows.append(f"| {mib} | {raw[mib]:.3f} | {(mib << 20) / 1e9 / raw[mib]:.2f} |")
    largest = max(raw)
    s_a_gb = raw[largest] / ((largest << 20) / 1e9)
    return [Claim("from device to device, s a GB (5 GB/s is 0.2)", s_a_gb, "s", 0.2)], rows, raw


def parts(device: str, quick: bool) -> dict[str, Callable[[], tuple[list[Claim], list[str], Any]]]:
    return {
        "A1": lambda: part_a1(device, quick),
        "A2": lambda: part_a2(device, quick),
        "A3": lambda: part_a3(device, quick),
        "B1": lambda: part_b1(device, quick),
        "B2": lambda: part_b2(device, quick),
        "B3": lambda: part_b3(device, quick),
        "C1": lambda: jobs("replicated or compiled"),
        "C2": lambda: jobs("fsdp2 or hsdp"),
        "C3": part_c3,
        "D": lambda: part_d(quick),
        "D2": lambda: part_d2(device, quick),
    }


def main() -> None:
    parser = result.parser("gpu", __doc__)
    names = list(parts("cuda", quick=False))
    parser.add_argument("--part", choices=names, required=True)
    parser.add_argument("--stand-in", action="store_true", help="on the CPU: no result")
    flags: argparse.Namespace = parser.parse_args()
    device = "cpu" if flags.stand_in else "cuda"
    if device == "cuda" and not Path("/dev/nvidia0").exists():
        parser.error("there is no GPU here; --stand-in shows that the bench works")
    if device == "cpu" and flags.part in ("C1", "C2", "C3", "D"):
        parser.error(f"part {flags.part} needs a GPU")
    where: AbstractContextManager[None] = (
        fake_nccl.stands_in() if device == "cpu" else nullcontext()
    )
    with where:
        claims, table, raw = parts(device, quick=flags.stand_in)[flags.part]()
    ended = result.setting([os.getloadavg()[0]])
    first = "Over the stand-in: no result." if flags.stand_in else SHARED
    if device == "cuda":
        first += f" {torch.cuda.get_device_name(0)}, torch {torch.__version__}"
    name = f"gpu-{flags.part}"
    path = result.write(name, claims, [first, "", *table], ended, raw, quick=flags.stand_in)
    print(path.read_text())


if __name__ == "__main__":
    main()
