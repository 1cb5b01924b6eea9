# SPDX-License-Identifier: Apache-2.0
"""B: how calls end when a peer is lost, and how epochs begin beside training."""

import signal
import statistics
import threading
import time

import torch.distributed as dist

from bench.on_gpu.team import Found, Plan, Team, median_us, timed
from bench.result import Claim

ABORT_MS_MOST = 20.0
LONGEST_STEP_MOST = 2.0
HANGS_S = 60


def ends(team: Team, rank: int, how: int) -> tuple[float, int]:
    """A peer is lost in a call: seconds until nothing is left on the device, and what leaked."""
    from trainmover.comm import groups
    from trainmover.comm.nccl.ending import endings

    tensor = team.join_and_lose(rank, how)
    time.sleep(0.05)
    for _ in range(3):
        dist.all_reduce(tensor, async_op=True)
    began = time.perf_counter()
    groups.drain("a bench ends it", epoch=2)
    groups.await_empty_device()
    return time.perf_counter() - began, endings.leaked


def ending(plan: Plan) -> Found:
    """B1: SIGKILL and SIGSTOP in a call, 50 of each: until it ends."""
    found: dict[str, list[float]] = {}
    leaked = 0
    for how in (signal.SIGKILL, signal.SIGSTOP):
        times = found[how.name] = []
        for _ in range(plan.among(2, 50)):
            with Team(2, plan.device) as team:
                for rank in range(2):
                    team.start(rank, ends, how)
                took, lost = team.results(1)[0]
            times.append(took)
            leaked += lost
    every = [time for times in found.values() for time in times]
    table = [f"- {name}: {median_us(times) / 1e3:.1f} ms" for name, times in found.items()]
    claims = [
        Claim("the order to an empty device, median", median_us(every) / 1e3, "ms", ABORT_MS_MOST),
        Claim("leaked", float(leaked), "", 0.0),
    ]
    return Found(claims, table, found)


def prepares(
    team: Team, rank: int, epochs: int, steps: int
) -> tuple[list[float], list[float], list[str]]:
    """Steps alone, steps while coming epochs are prepared and given up, and what went wrong."""
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
    wrong: list[str] = []

    def come_and_go() -> None:
        try:
            for epoch in range(2, 2 + epochs):
                store = team.store()
                groups.prepare(epoch, store)
                prepared = groups.prepared(epoch)
                if not prepared.wait(HANGS_S) or prepared.error is not None:
                    wrong.append(f"epoch {epoch}: {prepared.error or 'it hangs'}")
                store.set(f"come/{epoch}/{rank}", "")
                store.wait([f"come/{epoch}/{peer}" for peer in range(team.size)])
                groups.discard(epoch)
        finally:
            over.set()

    threading.Thread(target=come_and_go, daemon=True).start()
    beside = []
    ended = team.ones(1)
    while True:
        beside.append(timed(step))
        ended.fill_(float(over.is_set()))
        dist.all_reduce(ended, dist.ReduceOp.MIN)
        if ended.item() > 0:
            return alone, beside, wrong


def preparing(plan: Plan, epochs: int = 10) -> Found:
    """B2: a coming epoch prepared while training goes on."""
    with Team(2, plan.device) as team:
        asked = plan.among(2, epochs), plan.among(10, 200)
        alone, beside, wrong = team.run(prepares, *asked)[0]
    usual = statistics.median(alone)
    said = f"A step takes {usual * 1e3:.2f} ms; the longest beside {max(beside) * 1e3:.2f} ms."
    longest = max(beside) / usual
    claims = [
        Claim("the longest step to the median one", longest, "ratio", LONGEST_STEP_MOST),
        Claim(f"of {asked[0]} preparations, those that fail or hang", float(len(wrong)), "", 0.0),
    ]
    return Found(claims, [said, *wrong], {"alone": alone, "beside": beside})


def giving_up(plan: Plan) -> Found:
    """B3: 200 prepared and given up under load."""
    return preparing(plan, epochs=200)
