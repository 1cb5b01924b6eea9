# SPDX-License-Identifier: Apache-2.0
"""A: what is true of a call, and what it costs."""

import statistics
import time

import torch
import torch.distributed as dist

from bench.on_gpu.jobs import tests_pass
from bench.on_gpu.team import Found, Plan, Team, median_us, timed
from bench.result import Claim

HOST_US_MOST = 10.0
WAIT_MOST = 1.01


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


def meeting(plan: Plan) -> Found:
    """A1: 2, 3 and 4 ranks meet; how long a small call takes."""
    found = Found(raw={})
    found.table += ["| ranks | by | seconds to the first call | a small call, ms |"]
    found.table += ["|---|---|---|---|"]
    for size in (2, 3, 4):
        for ours in arms(plan):
            with Team(size, plan.device) as team:
                met, times = team.run(meets, ours, plan.among(5, 50))[0]
            found.raw[f"{size} {name_of(ours)}"] = times
            small_ms = median_us(times) / 1e3
            found.table.append(f"| {size} | {name_of(ours)} | {met:.2f} | {small_ms:.2f} |")
    return found


def arms(plan: Plan) -> tuple[bool, ...]:
    """A torch without NCCL has no such groups of its own."""
    return (True,) if plan.stands_in else (True, False)


def name_of(ours: bool) -> str:
    return "trainmover" if ours else "torch"


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


def calling(plan: Plan) -> Found:
    """A2: every call is right; what a call costs its caller."""
    times = {}
    for ours in arms(plan):
        with Team(2, plan.device) as team:
            times[ours] = team.run(costs, ours, plan.among(20, 300))[0]
    here = median_us(times[True])
    table = [f"A call costs its caller {here:.1f} us."]
    calls = "comm/nccl/test_nccl_calls.py" if plan.stands_in else "gpu/test_gpu_calls.py"
    claims = [Claim("tests of calls that fail", float(not tests_pass(f"tests/{calls}")), "", 0.0)]
    if False in times:
        there = median_us(times[False])
        table[0] += f" ProcessGroupNCCL's costs {there:.1f} us."
        claims.append(Claim("a call beyond ProcessGroupNCCL's", here - there, "us", HOST_US_MOST))
    return Found(claims, table, {name_of(ours): every for ours, every in times.items()})


def steps_of(team: Team, rank: int, waits: bool, steps: int) -> list[float]:
    """Steps with, or without, what the gate waits for on the device."""
    from trainmover.comm import groups

    team.join(rank)
    gpu = team.device == "cuda"
    width, depth, batch = (4096, 24, 2048) if gpu else (64, 4, 8)
    kind = torch.bfloat16 if gpu else torch.float32
    layers = [torch.nn.Linear(width, width) for _ in range(depth)]
    model = torch.nn.Sequential(*layers).to(team.device, kind)
    optimizer = torch.optim.AdamW(model.parameters(), fused=gpu)
    given = torch.randn(batch, width).to(team.device, kind)

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
    times = [timed(step) for _ in range(steps)]
    team.finish()
    return times


def waiting(plan: Plan) -> Found:
    """A3: a step with and without the wait for the device."""
    found: dict[bool, list[float]] = {True: [], False: []}
    for waits in (True, False, False, True):
        with Team(2, plan.device) as team:
            found[waits] += team.run(steps_of, waits, plan.among(5, 60))[0]
    with_wait, without = (statistics.mean(found[waits]) for waits in (True, False))
    said = f"A step takes {with_wait * 1e3:.1f} ms with the wait, {without * 1e3:.1f} without."
    claim = Claim("a step with the wait to one without", with_wait / without, "ratio", WAIT_MOST)
    raw = {"with": found[True], "without": found[False]}
    return Found([claim], [said], raw)
