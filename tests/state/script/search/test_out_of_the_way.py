"""What a script keeps in places of others: in libraries' objects and classes, in factories, behind
other generators, in large memory."""

import textwrap
from pathlib import Path

import captures
import pytest

COUNTED = """
    def counted(function):
        seen = 0.0
        def inner(*given, **named):
            nonlocal seen
            seen = seen + 1
            return function(*given, **named)
        return inner
"""
SCRIPTS = {
    "a layer's forward": f"""{COUNTED}
    net = nn.Linear(2, 1)
    net.forward = counted(net.forward)
    for x, y in job.batches(DATA):
        net(x)
    """,
    "a function of a library": f"""{COUNTED}
    plain, nn.functional.relu6 = nn.functional.relu6, counted(nn.functional.relu6)
    for x, y in job.batches(DATA):
        nn.functional.relu6(x)
    nn.functional.relu6 = plain
    """,
    "a method of a library's class": f"""{COUNTED}
    plain, nn.Bilinear.extra_repr = nn.Bilinear.extra_repr, counted(nn.Bilinear.extra_repr)
    for x, y in job.batches(DATA):
        nn.Bilinear(1, 1, 1).extra_repr()
    nn.Bilinear.extra_repr = plain
    """,
    "a dict on a layer": """
    net = nn.Linear(2, 1)
    net.stats = {"seen": 0.0}
    def bump(stats):
        stats["seen"] += 1
    for x, y in job.batches(DATA):
        bump(net.stats)
    """,
    "a list on a parameter of an object's": """
    class Trainer:
        def __init__(self):
            self.net = nn.Linear(2, 1)
            self.net.weight.seen = [0.0]
        def step(self):
            bump(self.net.weight.seen)
    def bump(seen):
        seen[0] += 1
    trainer = Trainer()
    for x, y in job.batches(DATA):
        trainer.step()
    """,
    "a generator behind another": """
    def inner():
        seen = 0.0
        while True:
            seen += 1
            yield seen > 3
    def outer():
        yield from inner()
    drawn = outer()
    for x, y in job.batches(DATA):
        next(drawn)
    """,
    "a generator that another one loops over": """
    def inner():
        seen = 0.0
        while True:
            seen += 1
            yield seen > 3
    def outer():
        for high in inner():
            yield high
    drawn = outer()
    for x, y in job.batches(DATA):
        next(drawn)
    """,
    "a list that a generator loops over": """
    def outer(values):
        for _ in values[:40]:
            yield 0
    drawn = outer([*range(50)])
    for x, y in job.batches(DATA):
        next(drawn)
        if y:
            next(drawn)
    """,
    "what a dict makes its values with": """
    by_name = collections.defaultdict(itertools.count().__next__)
    for x, y in job.batches(DATA):
        by_name[y]
        by_name.clear()
    """,
    "what a dict is to make its values with": """
    by_name = collections.defaultdict(float)
    def turn(value):
        by_name.default_factory = lambda: value
    for x, y in job.batches(DATA):
        print(by_name[y])
        by_name.clear()
        turn(float(x[0]))
    """,
    "what a method was made with": """
    import functools
    class State:
        def _use(self, kept):
            kept["seen"] += 1
        use = functools.partialmethod(_use, {"seen": 0})
    state = State()
    for x, y in job.batches(DATA):
        state.use()
    """,
    "a module that was made": """
    class Trainer:
        def __init__(self):
            self.config = types.ModuleType("config")
            self.config.gain = 0.0
        def step(self, x):
            print(self.config.gain)
            self.config.gain = float(x[0])
    trainer = Trainer()
    for x, y in job.batches(DATA):
        trainer.step(x)
    """,
    "the begin of a large file in memory": """
    import io
    kept = io.BytesIO(b"0" * 5000)
    for x, y in job.batches(DATA):
        kept.seek(0)
        kept.write(b"%d" % int(x[0]))
        kept.seek(0)
    """,
    "the end of a large memory": """
    import ctypes
    kept = (ctypes.c_double * 500)()
    for x, y in job.batches(DATA):
        kept[499] = float(x[0])
    """,
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_it_is_compared_wherever_it_lies(tmp_path: Path, script: str) -> None:
    assert captures.run_in(tmp_path, textwrap.dedent(script)).differences()


UNTOUCHED = """
net = nn.Linear(2, 1)
net.stats, net.names = {"seen": 0.0}, ["a", "b"]
by_name = collections.defaultdict(float)
def shown(stats):
    print(stats)
for x, y in job.batches(DATA):
    shown(net.stats)
    by_name[0] = 1.0
"""


def test_what_is_only_shown_stays(tmp_path: Path) -> None:
    assert not captures.run_in(tmp_path, UNTOUCHED).differences()
