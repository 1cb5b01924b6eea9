# SPDX-License-Identifier: Apache-2.0
"""Cost of following what a script holds: a look beside a whole walk, in turns, in one process.

    python -m bench.graph            two hundred steps of each model, about a minute
    python -m bench.graph --quick    a look: twenty steps

Behind each step of a real loop (forward, backward, AdamW) the graph is captured whole, or what has
changed since the last look is found, by turns; then a look again, where nothing has changed.
Parameters and the optimizer's state are left out: they travel in another way. Means, since a search
that comes seldom must not hide.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from bench import result
from bench.many_modules import WIDTH, built
from trainmover.graph.look import Look
from trainmover.graph.script import Script
from trainmover.graph.walk import capture

STEPS, QUICK_STEPS, SMOKE_STEPS = 200, 20, 4
UNCHANGED_MOST, CHANGED_MOST = 1 / 50, 1 / 8
"""Of the time of a walk."""
UNCHANGED_US_MOST = 100.0
"""For a thousand nodes."""
CHANGED_US_MOST = {"modules": 1000.0, "transformer": 500.0}


@dataclass
class Measured:
    """Microseconds by what was done; nodes of the graph, and how many changed in a step."""

    nodes: int = 0
    walk: list[float] = field(default_factory=list)
    changed: list[float] = field(default_factory=list)
    unchanged: list[float] = field(default_factory=list)
    bodies: list[int] = field(default_factory=list)


def many_modules() -> nn.Module:
    """160 modules with 159 buffers."""
    return built()


def layers() -> nn.Module:
    """Four layers of a transformer."""
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    return nn.Sequential(nn.Linear(WIDTH, 64), nn.TransformerEncoder(layer, 4))


MODELS: dict[str, Callable[[], nn.Module]] = {"modules": many_modules, "transformer": layers}


class Training:
    """A loop as a script has it; its objects are the roots."""

    def __init__(self, model: nn.Module) -> None:
        torch.manual_seed(1)
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        self.losses: list[float] = []

    def step(self) -> None:
        inputs = torch.randn(8, WIDTH) if self.is_flat else torch.randn(8, 5, WIDTH)
        self.optimizer.zero_grad()
        loss = self.model(inputs).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.losses = [*self.losses[-20:], loss.item()]

    @property
    def is_flat(self) -> bool:
        return not isinstance(self.model[-1], nn.TransformerEncoder)  # type: ignore[index]

    def storages(self) -> Iterator[int]:
        """Give the addresses of parameters and of the optimizer's state."""
        for parameter in self.model.parameters():
            yield parameter.untyped_storage().data_ptr()
            for value in self.optimizer.state[parameter].values():
                yield value.untyped_storage().data_ptr()


def measure(model: nn.Module, steps: int) -> Measured:
    """Train, and do one of the two behind each step."""
    torch.set_num_threads(1)
    script, training, found = Script(lambda path: path == __file__), Training(model), Measured()
    roots: dict[str, object] = {"training": training}
    for _ in range(3):
        training.step()
    look = Look(script, training.storages(), with_gradients=False)
    found.nodes = len(look.capture([], roots).nodes)
    look.delta([], roots)
    for number in range(2 * steps):
        training.step()
        if number % 2:
            found.walk.append(timed(lambda: capture([], script, roots)))
            look.delta([], roots)
        else:
            found.changed.append(timed(lambda: note(found, look.delta([], roots))))
            found.unchanged.append(timed(lambda: look.delta([], roots)))
    return found


def note(found: Measured, delta: Any) -> None:
    found.bodies.append(len(delta.nodes))


def timed(act: Callable[[], object]) -> float:
    """Return microseconds."""
    begun = time.perf_counter_ns()
    act()
    return (time.perf_counter_ns() - begun) / 1000


def judge(measured: dict[str, Measured]) -> list[result.Claim]:
    claims = []
    for name, one in measured.items():
        walk, changed, unchanged = map(statistics.mean, (one.walk, one.changed, one.unchanged))
        claims += [
            result.Claim(f"{name}: nothing changed / walk", unchanged / walk, "", UNCHANGED_MOST),
            result.Claim(f"{name}: a step's changes / walk", changed / walk, "", CHANGED_MOST),
            result.Claim(
                f"{name}: nothing changed, of 1,000 nodes",
                1000 * unchanged / one.nodes,
                "us",
                UNCHANGED_US_MOST,
            ),
            result.Claim(f"{name}: a step's changes", changed, "us", CHANGED_US_MOST[name]),
        ]
    return claims


def tabulated(measured: dict[str, Measured]) -> list[str]:
    lines = ["| model | nodes | changed in a step | walk, ms | its changes, ms | nothing, ms |"]
    lines += ["|---|---|---|---|---|---|"]
    for name, one in measured.items():
        bodies = statistics.mean(one.bodies)
        times = [statistics.mean(each) / 1000 for each in (one.walk, one.changed, one.unchanged)]
        figures = " | ".join(f"{each:.2f}" for each in times)
        lines.append(f"| {name} | {one.nodes} | {bodies:.0f} | {figures} |")
    return lines


def main() -> int:
    parser = result.parser("graph", __doc__, quick="a look: twenty steps")
    options = parser.parse_args()
    steps = SMOKE_STEPS if options.smoke else QUICK_STEPS if options.quick else STEPS
    measured = {name: measure(make(), steps) for name, make in MODELS.items()}
    claims, table = judge(measured), tabulated(measured)
    where = result.setting([os.getloadavg()[0]])
    raw = {name: vars(one) for name, one in measured.items()}
    path = result.write("graph", claims, table, where, raw, quick=options.quick)
    return result.say("graph", claims, [*table, "", f"written to {path}"], as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
