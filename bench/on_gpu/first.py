# SPDX-License-Identifier: Apache-2.0
"""Probes for the first minutes on a GPU: what a device that runs ahead of its host does to us. Each
takes the kind of device, runs in a process of its own, and says what it expects."""

import os
import signal
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bench.on_gpu.epochs import prepares
from bench.on_gpu.team import Found, Team
from bench.result import Claim

COMPUTE_S = 6.0
"""Queued before a loss: more than any fixed patience of ours should be."""
KERNELS = 4000
"""Small ones, more than a launch queue holds: who launches the next one stands."""
CYCLES_A_SECOND = 1.9e9
_MIB = 1 << 20


@dataclass(frozen=True)
class Probe:
    """limit_s: after which it is ended; shows: what it is about, for people."""

    run: Callable[[str], Found]
    limit_s: int
    shows: str


def used_mib(device: str) -> float:
    """Memory of the whole device that anybody uses, in MiB; 0 without one."""
    if device == "cpu":
        return 0.0
    free, total = torch.cuda.mem_get_info()
    return (total - free) / _MIB


def sleep_on(device: str, seconds: float) -> None:
    """Queue work that takes so long, where there is a queue."""
    if device == "cuda":
        torch.cuda._sleep(int(seconds * CYCLES_A_SECOND))


def context(device: str) -> Found:
    """What it takes until libnccl has been loaded and has run once."""
    from trainmover.comm.nccl.communicator import warm_up
    from trainmover.comm.nccl.device import own_device
    from trainmover.comm.nccl.library import library

    began = time.monotonic()
    if device == "cuda":
        torch.zeros(1, device="cuda")
        torch.cuda.synchronize()
    context_s, before = time.monotonic() - began, used_mib(device)
    warm_up(own_device(None, 0))
    took_s = time.monotonic() - began
    found = library()
    told = {"nccl": found.text, "revokes": found.revokes, "context_s": context_s, "warm_s": took_s}
    claims = [
        Claim("until libnccl has run once", took_s, "s", 30.0),
        Claim("memory that libnccl takes", used_mib(device) - before, "MiB", 1024.0),
    ]
    return Found(claims, [f"- {name}: {value}" for name, value in told.items()], told)


def streams(device: str) -> Found:
    """A future is waited for on another stream; threads go on while a launch queue is full; a
    capture of the script's is not broken by events that others ask for."""
    if device == "cpu":
        return Found([], ["- needs streams of CUDA"])
    from trainmover.comm.nccl.device import own_device

    ours, other = own_device(None, 0), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream = ours.stream()
    x = torch.zeros(1 << 20, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        sleep_on(device, 0.3)
        x.fill_(1)
    event = ours.mark(stream)
    future = ours.promise(event, stream, [x])
    with torch.cuda.stream(other):
        total = future.wait()[0].sum()
    torch.cuda.synchronize()
    gaps = {what: _longest_gap_s(what) for what in ("record", "query", "kernel")}
    claims = [
        Claim("elements that came too early", x.numel() - float(total), "", 0.0),
        Claim("captures that were broken", float(_breaks_capture()), "", 0.0),
    ]
    claims += [
        Claim(f"longest that {what}s of a full queue hold a thread", gap, "s", 0.5)
        for what, gap in gaps.items()
    ]
    return Found(claims, [], gaps)


def _longest_gap_s(what: str) -> float:
    """How long another thread stands while this one does it 3,000 times behind two seconds."""
    gaps, over = [0.0], threading.Event()

    def clock() -> None:
        last = time.perf_counter()
        while not over.is_set():
            time.sleep(0.001)
            now = time.perf_counter()
            gaps.append(now - last)
            last = now

    stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    one = torch.zeros(1, device="cuda")
    with torch.cuda.stream(stream):
        sleep_on("cuda", 2.0)
        watching = threading.Thread(target=clock)
        watching.start()
        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        for _ in range(3000):
            if what == "record":
                event.record(stream)
            else:
                one.add_(1)
            if what == "query":
                event.query()
    over.set()
    watching.join()
    torch.cuda.synchronize()
    return max(gaps)


def _breaks_capture() -> bool:
    graph: Any = torch.cuda.CUDAGraph()  # type: ignore[no-untyped-call]
    one = torch.zeros(4, device="cuda")
    event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    try:
        with torch.cuda.graph(graph):
            one.add_(1)
            asking = threading.Thread(target=event.query)
            asking.start()
            asking.join()
            one.add_(1)
    except RuntimeError:
        return True
    return False


def loses(team: Team, rank: int, how: int, kernels: int, compute_s: float) -> dict[str, Any]:
    """A peer is lost, with so much queued: what becomes of the other one."""
    from trainmover.comm import groups
    from trainmover.comm.nccl.ending import endings

    given_up: list[object] = []
    groups.on_device_lost = given_up.append
    tensor = team.join_and_lose(rank, how)
    time.sleep(0.1)

    def script() -> None:
        dist.all_reduce(tensor, async_op=True).wait()
        for _ in range(kernels):
            tensor.add_(1)
        sleep_on(team.device, compute_s)
        dist.all_reduce(tensor, async_op=True)

    threading.Thread(target=script, daemon=True).start()
    time.sleep(1.0)
    began = time.perf_counter()
    groups.drain("a probe", epoch=2)
    drained_s = time.perf_counter() - began
    groups.await_empty_device()
    empty_s = time.perf_counter() - began
    return {
        "drained_s": drained_s,
        "empty_s": empty_s,
        "leaked": endings.leaked,
        "given_up": len(given_up),
    }


def losing(kernels: int, compute_s: float) -> Callable[[str], Found]:
    """Return the probe of a loss with so many kernels and so much compute queued."""

    def run(device: str) -> Found:
        claims, raw = [], {}
        for how in (signal.SIGKILL, signal.SIGSTOP):
            with Team(2, device) as team:
                for rank in range(2):
                    team.start(rank, loses, how, kernels, compute_s)
                found = raw[how.name] = team.results(1)[0]
            most_s = 1.0 + (compute_s if device == "cuda" else 0.0)
            claims += [
                Claim(f"{how.name}: the order to end takes", found["drained_s"], "s", 0.1),
                Claim(f"{how.name}: until the device is empty", found["empty_s"], "s", most_s),
                Claim(f"{how.name}: communicators leaked", found["leaked"], "", 0.0),
                Claim(f"{how.name}: healthy ranks that give up", found["given_up"], "", 0.0),
            ]
        return Found(claims, [], raw)

    return run


def begins(team: Team, rank: int, how: str) -> dict[str, Any]:
    """A communicator of two is made, and one of them is killed in it, or fails while it lives."""
    import fake_nccl
    import one_gpu

    from trainmover.comm.nccl.device import own_device
    from trainmover.comm.nccl.init import Init
    from trainmover.comm.nccl.library import UniqueId, library

    if team.device == "cuda":
        one_gpu.pass_for_a_host()
        torch.cuda.set_device(0)
    store, ours = team.store(), library()
    if rank == 0:
        store.set("id", ours.unique_id().to_hex())
    unique_id = UniqueId.from_hex(store.get("id").decode())
    if rank == 1 and how == "killed":
        time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 1 and how == "fails":
        os.environ["NCCL_NET"] = "no-such-net"
        if team.device == "cpu":
            fake_nccl.set_faults(init_seat=1, init_fail=2)
    began = time.monotonic()
    init = Init(ours, own_device(None, 0), size=2, seat=rank, unique_id=unique_id)
    came = init.wait(lambda: time.monotonic() - began > 12)
    if rank == 1:
        time.sleep(12)  # It lives on.
    return {
        "came": came,
        "s": time.monotonic() - began,
        "error": str(init.error),
        "comm": init.comm,
    }


def making(device: str) -> Found:
    """Who makes a communicator with a seat that dies, or fails, gets none, and is let go."""
    claims, raw = [], {}
    for how in ("killed", "fails"):
        with Team(2, device) as team:
            for rank in range(2):
                team.start(rank, begins, how)
            found = raw[how] = team.results(1).get(0, {"s": 0.0, "comm": 0})
        claims += [
            Claim(f"a seat {how}: the other is let go", found["s"], "s", 15.0),
            Claim(f"a seat {how}: communicators made of it", float(bool(found["comm"])), "", 0.0),
        ]
    return Found(claims, [], raw)


def beside(device: str) -> Found:
    """Coming epochs are prepared while training goes on."""
    few = device == "cpu"
    with Team(2, device) as team:
        alone, steps, wrong = team.run(prepares, 3 if few else 20, 20 if few else 60)[0]
    usual = statistics.median(alone)
    late = sorted(steps)[int(0.99 * (len(steps) - 1))]
    claims = [
        Claim("steps beside it, the 99th of a hundred", late / usual, "times usual", 2.0),
        Claim("epochs that could not be prepared", len(wrong), "", 0.0),
    ]
    return Found(claims, [f"- {one}" for one in wrong[:3]], {"alone": alone, "beside": steps})


def shards(team: Team, rank: int, *, ours: bool) -> float:
    """Peak of torch's memory for some steps of FSDP2, in MiB."""
    from torch.distributed.fsdp import fully_shard

    team.join(rank, ours=ours)
    layers, width = (16, 4096) if team.device == "cuda" else (4, 64)
    model = nn.Sequential(*[nn.Linear(width, width, bias=False) for _ in range(layers)])
    model.to(team.device)
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    batch: Tensor = torch.randn(2 * width, width, device=team.device)
    for _ in range(3):
        model(batch).square().mean().backward()
        model.zero_grad()
    team.finish()
    return torch.cuda.max_memory_allocated() / _MIB if team.device == "cuda" else 0.0


def sharding(device: str) -> Found:
    """FSDP2 needs no more memory than over torch's own groups."""
    peaks = {}
    for ours in (True, False) if device == "cuda" else (True,):
        with Team(2, device) as team:
            for rank in range(2):
                team.start(rank, _shards_by[ours])
            peaks["ours" if ours else "torch's"] = max(team.results(2).values())
    more = peaks["ours"] - peaks.get("torch's", peaks["ours"])
    return Found([Claim("peak of FSDP2 above torch's own", more, "MiB", 64.0)], [], peaks)


def _by_ours(team: Team, rank: int) -> float:
    return shards(team, rank, ours=True)


def _by_torch(team: Team, rank: int) -> float:
    return shards(team, rank, ours=False)


_shards_by = {True: _by_ours, False: _by_torch}

PROBES = {
    "context": Probe(context, 90, "libnccl is there, and what it takes"),
    "streams": Probe(streams, 60, "events, futures, captures, and who holds the interpreter"),
    "idle": Probe(losing(0, 0.0), 60, "a peer is lost, and nothing is queued"),
    "making": Probe(making, 70, "a seat dies, or fails, while a communicator is made"),
    "compute": Probe(losing(0, COMPUTE_S), 70, "a peer is lost, and seconds of work are queued"),
    "launches": Probe(losing(KERNELS, 0.0), 60, "a peer is lost, and the launch queue is full"),
    "memory": Probe(sharding, 90, "what FSDP2 needs at its peak"),
    "beside": Probe(beside, 90, "coming epochs are prepared beside training"),
}
"""Likeliest to fail first. Their limits are eight minutes and a half at most; they take half."""
