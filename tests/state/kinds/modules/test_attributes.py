"""Plain attributes that code changes go with the rank, and no others."""

import runpy
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from trainmover.state import encode
from trainmover.state.kinds.modules.attributes import Attributes
from trainmover.state.kinds.modules.registered import registered
from trainmover.state.script.variables import Variables
from trainmover.state.tracked import Tracked

SCRIPT = """
import time
from collections import deque
import torch
from torch import nn

def note(seen, value):
    seen.append(value)

class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.calls, self.width, self.recent, self.memory = 0, width, deque(maxlen=2), None
        self.inner = nn.Linear(width, 1)
        self.begun = time.time()
        self.high, self.seen, self.views = torch.zeros(()), [], [self.inner.weight]

    def forward(self, x):
        self.calls += 1
        torch.maximum(self.high, x.detach().max() * self.calls, out=self.high)
        note(self.seen, self.calls)
        note(self.views, self.inner.bias)
        self.recent.append(self.calls / 2)
        self.memory = x.mean(0) if self.memory is None else 0.5 * self.memory + x.mean(0)
        self.out = self.inner(x + self.memory)
        self.took = time.time() - self.begun
        return self.out

class Slow(torch.optim.SGD):
    turn = 0
    def step(self, closure=None):
        self.turn += 1
        return super().step(closure)
"""


def objects(tmp_path: Path) -> tuple[Tracked, Any, Any]:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    variables = Variables(lambda: [], lambda file: file == str(path))
    made: list[Any] = []

    def make() -> None:
        """While the script's module is loaded."""
        found = runpy_globals[0]
        net = nn.Sequential(found["Net"]())
        made.extend([net, found["Slow"](net.parameters(), lr=0.1)])
        tracked.add("model", made[0])
        tracked.add("optimizer", made[1])

    runpy_globals: list[dict[str, Any]] = []
    tracked = Tracked(variables.stored_on)
    path.write_text(SCRIPT + "\nhere(globals())\n")
    runpy.run_path(
        str(path),
        {"here": lambda found: (runpy_globals.append(found), make())},
        run_name="__main__",
    )
    return tracked, made[0], made[1]


def test_another_process_has_them_after_it_took_the_small_state(tmp_path: Path) -> None:
    tracked, net, optimizer = objects(tmp_path)
    for _ in range(3):
        net(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    states = tracked.small_states()
    other, twin, other_optimizer = objects(tmp_path)
    recent = twin[0].recent
    other.load_small(states)
    assert twin[0].calls == 3
    assert twin[0].recent is recent
    assert recent == deque([1.0, 1.5], maxlen=2)
    assert twin[0].memory.equal(net[0].memory)
    assert twin[0].high == 3.0
    assert twin[0].seen == [1, 2, 3]
    assert twin[0].views[0] is twin[0].inner.weight
    assert other_optimizer.turn == 3


def test_what_is_only_of_a_step_or_tells_the_time_stays(tmp_path: Path) -> None:
    tracked, net, _ = objects(tmp_path)
    net(torch.ones(2, 4))
    states = tracked.small_states()
    other, twin, _ = objects(tmp_path)
    begun = twin[0].begun
    other.load_small(states)
    assert twin[0].begun == begun
    assert not hasattr(twin[0], "out")
    assert not hasattr(twin[0], "took")


def test_without_the_script_nothing_is_known_of_them() -> None:
    tracked = Tracked()
    tracked.add("model", nn.Linear(2, 2))
    assert "model.attributes" not in tracked.small_states()


def of_two(first: Any, second: Any) -> tuple[nn.Module, Attributes]:
    model = nn.Module()
    model.oldest, model.newest = first, second
    return model, Attributes(model, lambda _: ("oldest", "newest"))


@pytest.mark.parametrize("make", [lambda value: torch.tensor([value]), lambda value: [value]])
def test_what_is_one_here_and_two_on_the_rank_is_two(make: Callable[[float], Any]) -> None:
    """As the slots of a running mean, which all begin with one default."""
    default = make(0.0)
    here, attributes = of_two(default, default)
    _, theirs = of_two(make(1.0), make(2.0))
    attributes.load_state_dict(encode.decode(encode.encode(theirs.state_dict())))
    assert [float(here.oldest[0]), float(here.newest[0])] == [1.0, 2.0]


def test_what_is_one_stays_one_where_a_step_is_run_again() -> None:
    default = [0.0]
    here, attributes = of_two(default, default)
    before = encode.encode(attributes.state_dict())
    default.append(1.0)
    attributes.load_state_dict(encode.decode(before))
    assert here.oldest is here.newest is default
    assert default == [0.0]


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0


def test_modules_that_a_module_is_given_later_have_theirs_too() -> None:
    registered.watch()
    one, other = nn.ModuleList([Counting()]), nn.ModuleList([Counting()])
    theirs, mine = (
        Attributes(it, lambda part: {"calls"} & vars(part).keys()) for it in (one, other)
    )
    for layers in (one, other):
        layers.append(Counting())
    one[1].calls = 3  # type: ignore[assignment]
    mine.load_state_dict(theirs.state_dict())
    assert other[1].calls == 3
