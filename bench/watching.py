# SPDX-License-Identifier: Apache-2.0
"""What does watching cost? The controller that is read from, the job that trains, and the page.

    python -m bench.watching            10 s a size, three pairs of runs
    python -m bench.watching --quick    3 s a size, one pair

The controller's part of a core, with ten event streams and a scrape each second beside none, for
jobs of 4 and of 1,000 machines (played ones, which say nothing themselves). The median step of
examples/gpt.py under `trainmover run`, read like that and not, in turns. And the time from frame to
frame of the page in Chromium at 1,000 machines, all of whose figures change each second; left out
where there is no Chromium.
"""

import asyncio
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import httpx
import msgspec

from bench import result
from bench.overhead import RANKS, starter, timed
from trainmover.launch.runs import PUBLISHED, Run

ROOT = Path(__file__).resolve().parents[1]
sys.path += [
    str(ROOT / "tests" / "server"),
    str(ROOT / "tests" / "server" / "api"),
]  # Its played jobs are ours, too.

STREAMS = 10
SIZES = (4, 1000)
V1 = "/api/v1"
FRAMES = """async (seconds) => {
  const gaps = [], until = performance.now() + 1000 * seconds;
  let before = performance.now();
  while (before < until) {
    const now = await new Promise(requestAnimationFrame);
    gaps.push(now - before); before = now;
  }
  return gaps.slice(1);
}"""


def main() -> int:
    """Exit status 0 if all claims hold."""
    parser = result.parser("watching", __doc__, quick="shorter, one pair")
    options = parser.parse_args()
    seconds, pairs, steps = (3.0, 1, 60) if options.quick else (10.0, 3, 150)
    sizes: tuple[int, ...] = SIZES
    ranks = RANKS
    arms = ["read", "not read"]
    if options.smoke:
        seconds, steps, sizes, ranks, arms = 0.5, 60, SIZES[:1], 1, ["read"]
    loads = [os.getloadavg()[0]]
    costs = {
        (machines, streams): alone(controller_cost, machines, streams, seconds)
        for machines in sizes
        for streams in (0, STREAMS)
    }
    step_ms: dict[str, list[float]] = {arm: [] for arm in arms}
    for turn in range(pairs):
        for arm in arms[:: -1 if turn % 2 else 1]:
            step_ms[arm].append(step_time(ranks, steps, read=arm == "read"))
            loads.append(os.getloadavg()[0])
            print(f"{arm:<9}{step_ms[arm][-1]:7.2f} ms a step", file=sys.stderr, flush=True)
    frames = alone(frames_of_page, seconds, sizes[-1])
    loads.append(os.getloadavg()[0])
    claims = judge(costs, step_ms, frames)
    table = tabulated(costs, step_ms, frames)
    raw = {
        "controller": {f"{size[0]} machines, {size[1]} streams": it for size, it in costs.items()},
        "step_ms": step_ms,
        "frames_ms": frames,
    }
    where = result.setting(loads)
    path = result.write("watching", claims, table, where, raw, quick=options.quick)
    return result.say("watching", claims, [*table, f"written to {path}"], as_json=options.json)


def judge(
    costs: dict[tuple[int, int], dict[str, float]],
    step_ms: dict[str, list[float]],
    frames: list[float],
) -> list[result.Claim]:
    """What is promised; a job is compared with the run beside it."""
    claims = []
    if "not read" in step_ms:
        pairs = zip(step_ms["read"], step_ms["not read"], strict=True)
        ratio = statistics.median(read / unread for read, unread in pairs)
        claims.append(result.Claim("step when read / when not", ratio, "ratio", 1.02))
    sizes = sorted({machines for machines, _ in costs})
    for machines in sizes:
        part = costs[machines, STREAMS]["core"]
        claims.append(result.Claim(f"controller, {machines} machines", part, "of a core", 0.05))
    status_ms = costs[sizes[-1], 0]["status_ms"]
    claims.append(result.Claim(f"status, {sizes[-1]} machines", status_ms, "ms", 50.0))
    if frames:
        rate = statistics.median(frames)
        claims.append(result.Claim(f"a frame, {sizes[-1]} machines", rate, "ms", 1000 / 30))
    return claims


def tabulated(
    costs: dict[tuple[int, int], dict[str, float]],
    step_ms: dict[str, list[float]],
    frames: list[float],
) -> list[str]:
    names = {"status_ms": "a status, ms", "metrics_ms": "a scrape, ms", "pulse_ms": "a pulse, ms"}
    lines = [f"| machines | streams | {' | '.join(names.values())} | part of a core |"]
    lines.append("|---" * 6 + "|")
    for (machines, streams), took in costs.items():
        each = " | ".join(f"{took[name]:.2f}" for name in names)
        lines.append(f"| {machines} | {streams} | {each} | {took['core']:.4f} |")
    lines += ["", "| job | median step, ms |", "|---|---|"]
    for arm, values in step_ms.items():
        lines.append(f"| {arm} | {', '.join(f'{value:.1f}' for value in values)} |")
    if not frames:
        return [*lines, "", "There is no Chromium here: frames of the page were not measured."]
    at = statistics.quantiles(frames, n=100)
    lines += ["", f"Frames of the page: median {at[49]:.1f} ms, 99 % within {at[98]:.1f} ms, "]
    lines[-1] += f"{len(frames)} of them."
    return lines


def alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """In a process of its own, which has nothing else to do."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


# --- the controller -------------------------------------------------------------------------------


def controller_cost(machines: int, streams: int, seconds: float) -> dict[str, float]:
    """Milliseconds of processor a call, and the part of a core that all of it takes."""
    with tempfile.TemporaryDirectory(prefix="bench-watching-") as folder:
        return asyncio.run(_controller_cost(machines, streams, seconds, Path(folder)))


async def _controller_cost(
    machines: int, streams: int, seconds: float, folder: Path
) -> dict[str, float]:
    from http_jobs import commit, training
    from http_plays import TOKEN, serving

    from trainmover.server.http import stream
    from trainmover.server.http.metrics import Metrics

    async with serving(folder / "j.sqlite", training(machines, 4)) as (server, url):
        for step in range(1, 80):
            commit(server, step, first=step == 1)
        took = {}
        for name, act in (
            ("status_ms", lambda: msgspec.json.encode(server.status())),
            ("metrics_ms", Metrics(server).text),
            ("pulse_ms", lambda: stream.pulse(server)),
        ):
            begun = time.process_time()
            for _ in range(10):
                act()
            took[name] = (time.process_time() - begun) * 100
        with reading(url, TOKEN.decode(), streams) as all_read:
            while not all_read.is_set():
                await asyncio.sleep(0.1)
            begun, spent = time.monotonic(), time.process_time()
            while time.monotonic() - begun < seconds:
                await asyncio.sleep(0.5)
                server.note("news")
            took["core"] = (time.process_time() - spent) / (time.monotonic() - begun)
        return took


# --- who reads ------------------------------------------------------------------------------------


@contextmanager
def reading(url: str, token: str, streams: int) -> Iterator[Event]:
    """As long as the body runs; 0 streams: nobody does. The event says that all have begun."""
    context = multiprocessing.get_context("spawn")
    all_read = context.Event()
    reader = context.Process(target=read, args=(url, token, streams, all_read))
    if streams:
        reader.start()
    else:
        all_read.set()
    try:
        yield all_read
    finally:
        if streams:
            reader.kill()
            reader.join()


def read(url: str, token: str, streams: int, all_read: Event) -> None:
    """Until the end of this process: streams, and a scrape each second."""
    asyncio.run(_read(url, token, streams, all_read))


async def _read(url: str, token: str, streams: int, all_read: Event) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    limits = httpx.Limits(max_connections=None)

    async with httpx.AsyncClient(
        base_url=url, headers=headers, trust_env=False, timeout=None, limits=limits
    ) as client:
        begun: list[int] = []

        async def follow(number: int) -> None:
            path, kind = f"{V1}/events?pulse=true", {"Accept": "text/event-stream"}
            async with client.stream("GET", path, headers=kind) as reply:
                begun.append(number)
                if len(begun) == streams:
                    all_read.set()
                async for _ in reply.aiter_raw():
                    pass

        async with asyncio.TaskGroup() as group:
            for number in range(streams):
                group.create_task(follow(number))
            while True:
                (await client.get("/metrics")).raise_for_status()
                await asyncio.sleep(1.0)


# --- a job that trains ----------------------------------------------------------------------------


def step_time(ranks: int, steps: int, *, read: bool) -> float:
    """Median milliseconds of a step of one run."""
    with tempfile.TemporaryDirectory(prefix="bench-watching-") as folder:
        there, context = Path(folder) / "run", multiprocessing.get_context("spawn")
        all_read = context.Event()
        watcher = context.Process(target=read_run, args=(there, all_read))
        if read:
            watcher.start()
        try:
            command = [*starter("trainmover", ranks), f"--run-dir={there}"]
            took = timed(command, ["--steps", str(steps), "--batch", "16"])
            assert all_read.is_set() == read
            return took
        finally:
            if read:
                watcher.kill()
                watcher.join()


def read_run(directory: Path, all_read: Event) -> None:
    """The run there, once it has begun, until it is over."""
    while not (directory / PUBLISHED).exists():
        time.sleep(0.05)
    run = msgspec.json.decode((directory / PUBLISHED).read_bytes(), type=Run)
    try:
        read(run.api_url, Path(run.token_file).read_text(), STREAMS, all_read)
    except* (httpx.TransportError, httpx.HTTPStatusError):
        pass  # It is over.


# --- the page -------------------------------------------------------------------------------------


def frames_of_page(seconds: float, machines: int) -> list[float]:
    """Milliseconds from frame to frame while the figures of 1,000 machines change each second."""
    from http_jobs import commit, training
    from http_living import Living
    from playwright.sync_api import sync_playwright

    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        return []
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
    with (
        tempfile.TemporaryDirectory(prefix="bench-watching-") as folder,
        Living(Path(folder), training(machines, 4)) as living,
        sync_playwright() as playwright,
    ):

        async def train() -> None:
            for step in range(1, 10_000):
                commit(living.server, step, first=step == 1)
                await asyncio.sleep(1.0)

        chromium = playwright.chromium.launch(executable_path=found, headless=True, args=flags)
        page = chromium.new_page(viewport={"width": 1280, "height": 900})
        page.goto(living.address())
        page.wait_for_selector(f"[data-machine=m{machines}]")
        training_on = asyncio.run_coroutine_threadsafe(train(), living._loop)
        gaps: list[float] = page.evaluate(FRAMES, seconds)
        training_on.cancel()
        chromium.close()
        return gaps


if __name__ == "__main__":
    sys.exit(main())
