"""What lies in a tracked object and goes with it need not be equal on a standby."""

from itertools import permutations
from pathlib import Path

import pytest
from captures import JOINER, RANK, Job, installed, run_in

TOY_AVERAGER = """
import torch

class Averager:
    def __init__(self):
        self.step = self.seen = 0
    def average(self):
        self.step += 1
        self.seen += 2

class Averaging(torch.optim.SGD):
    def __init__(self, params, averager):
        super().__init__(params, lr=0.1)
        self.averager = averager
    def state_dict(self):
        return super().state_dict() | {"step": self.averager.step}
"""
SCRIPT = """
from toy_averager import Averager, Averaging
averager = Averager()
optimizer = Averaging(nn.Linear(1, 1).parameters(), averager)
for x in job.batches(DATA):
    step(x[0])
    optimizer.averager.average()
"""


@pytest.fixture
def found(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Job:
    """Of a script with an optimizer of a library, which counts in an object of its own."""
    with installed(tmp_path_factory.mktemp("elsewhere"), monkeypatch, "toy_averager", TOY_AVERAGER):
        tracks = SCRIPT.replace("\nfor", "\njob.tracked['optimizer'] = optimizer\nfor", 1)
        return run_in(tmp_path, tracks)


def test_what_an_optimizer_adds_to_its_state_by_name_goes_with_it(found: Job) -> None:
    theirs, own = found.theirs[RANK], found.own[JOINER]
    before = found.variables.comparison.differences(theirs, own, at_boundary=False)
    assert {one.name.rpartition(".")[2] for one in before} == {"seen"}


MANY = """
class Meter:
    def __init__(self):
        self.total, self.part, self.count = 0, Part(), 0
    def state_dict(self):
        return {"total": self.total, "count": self.count}
    def load_state_dict(self, state):
        self.total, self.count = state["total"], state["count"]
class Part:
    def __init__(self):
        self.count = 0
class Trainer:
    def __init__(self):
        self.meter, self.part, self.done, self.seen = Meter(), Part(), 0, 0
trainer = Trainer()
TRACKED
for x in job.batches(DATA):
    step(x[0])
    trainer.done += 1
    trainer.seen += 2
    trainer.meter.total += 3
    trainer.meter.count += 4
    trainer.part.count += 5
    trainer.meter.part.count += 6
"""


@pytest.mark.parametrize("kept", permutations(["done", "seen", "meter", "part"]))
def test_what_is_tracked_goes_along_in_whatever_order_it_is_tracked(
    tmp_path: Path, kept: tuple[str, ...]
) -> None:
    ways = {
        "done": "job.tracked['done'] = Attributes(trainer, ('done',))",
        "seen": "job.tracked['seen'] = Attributes(trainer, ('seen',))",
        "meter": "job.tracked['meter'] = trainer.meter",
        "part": "job.tracked['part'] = Attributes(trainer.part, ('count',))",
    }
    kinds = "from trainmover.state.kinds.values import Attributes\n"
    found = run_in(tmp_path, MANY.replace("TRACKED", kinds + "\n".join(ways[one] for one in kept)))
    theirs, own = found.theirs[RANK], found.own[JOINER]
    before = found.variables.comparison.differences(theirs, own, at_boundary=False)
    assert {one.name.partition("meter.")[2] for one in before} == {"part.count"}


def test_a_name_in_a_state_stands_for_none_of_the_attributes_of_other_objects(
    tmp_path: Path,
) -> None:
    kept = "from trainmover.state.kinds.values import Attributes\ntrainer.count = 0\n"
    script = MANY.replace("TRACKED", kept + "job.tracked['it'] = Attributes(trainer, ('count',))")
    found = run_in(tmp_path, script + "    trainer.count += 1\n")
    theirs, own = found.theirs[RANK], found.own[JOINER]
    before = found.variables.comparison.differences(theirs, own, at_boundary=False)
    kept_back = {one.name.removeprefix("it.owner.") for one in before}
    assert kept_back == {"done", "seen", "part.count", "meter.part.count"} | {
        f"meter.{name}" for name in ("total", "count")
    }


WHICH = """
from trainmover.state.kinds.generators import KeptGenerator
from trainmover.state.kinds.values import Attributes
class Meter:
    def __init__(self, rate):
        self.rate, self.level = rate, 0.0
    def state_dict(self):
        return {{"level": self.level}}
    def load_state_dict(self, state):
        self.level = state["level"]
    def update(self, x):
        self.level += self.rate * float(x)
class Plain:
    def __init__(self):
        self.level = 0.0
class Trainer:
    def turn(self):
        self.current = another
def one_rate(step):
    return 1.0
def another_rate(step):
    return 0.5
model, other_model = nn.Linear(1, 1), nn.Linear(1, 1)
optimizer = torch.optim.AdamW(model.parameters())
other = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, one_rate)
tracked = {{
    "model": model, "other_model": other_model, "optimizer": optimizer, "other": other,
    "schedule": schedule, "meter": Meter(0.1), "other_meter": Meter(0.1),
    "one": torch.Generator(), "two": torch.Generator(), "plain": Plain(), "other_plain": Plain(),
}}
for name, obj in tracked.items():
    if isinstance(obj, torch.Generator):
        job.tracked[name] = KeptGenerator(name, obj)
    elif isinstance(obj, Plain):
        job.tracked[name] = Attributes(obj, ("level",))
    else:
        job.tracked[name] = obj
trainer = Trainer()
current, another = {now}, {then}
trainer.current, by_name = current, {{"current": current}}
for x, y in job.batches(DATA):
    if x[0] > 5:
        {turn}
    print(current, by_name, trainer.current)
"""
TURNS = {
    "current = another": "current",
    "trainer.current = another": "trainer.current",
    "trainer.turn()": "trainer.current",
    "by_name['current'] = another": "by_name",
}
KINDS = [
    ("optimizer", "other"),
    ("model", "other_model"),
    ("tracked['meter']", "tracked['other_meter']"),
    ("tracked['one']", "tracked['two']"),
    ("tracked['plain']", "tracked['other_plain']"),
    ("tracked['meter'].update", "tracked['other_meter'].update"),
    ("optimizer", "torch.optim.AdamW(model.parameters())"),
    ("torch.default_generator", "tracked['one']"),
    ("one_rate", "another_rate"),
]


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize(("now", "then"), KINDS)
def test_which_of_what_is_tracked_a_name_stands_for_is_on_no_other_machine(
    tmp_path: Path, now: str, then: str, turn: str
) -> None:
    found = run_in(tmp_path, WHICH.format(now=now, then=then, turn=turn))
    for at_boundary in (True, False):
        names = [
            one.name
            for one in found.variables.comparison.differences(
                found.theirs[RANK], found.own[JOINER], at_boundary=at_boundary
            )
        ]
        assert TURNS[turn] in names


def test_the_functions_of_a_schedule_are_in_no_state(tmp_path: Path) -> None:
    turn = "schedule.lr_lambdas[0] = another_rate"
    found = run_in(tmp_path, WHICH.format(now="1", then="1", turn=turn))
    theirs, own = found.theirs[RANK], found.own[JOINER]
    before = found.variables.comparison.differences(theirs, own, at_boundary=False)
    assert "schedule.lr_lambdas" in [one.name for one in before]


@pytest.mark.parametrize("kind", ["types.SimpleNamespace", "argparse.Namespace"])
def test_what_is_kept_of_a_namespace_goes_along(tmp_path: Path, kind: str) -> None:
    script = f"""
    from trainmover.state.kinds.values import Attributes
    kept = {kind}(level=0.0, other=0.0)
    job.tracked["kept"] = Attributes(kept, ("level",))
    for x, y in job.batches(DATA):
        kept.level += 1
        CHANGED
    """
    found = run_in(tmp_path, script.replace("CHANGED", "print(kept.level)"))
    theirs, own = found.theirs[RANK], found.own[JOINER]
    assert not found.variables.comparison.differences(theirs, own, at_boundary=False)
    found = run_in(tmp_path, script.replace("CHANGED", "kept.other += 1"))
    theirs, own = found.theirs[RANK], found.own[JOINER]
    before = found.variables.comparison.differences(theirs, own, at_boundary=False)
    assert {one.name.rpartition(".")[2] for one in before} == {"kept", "other"}


NAMESAKES = {
    "a dict that is kept": """
        from trainmover.state.kinds.values import Attributes
        class Progress:
            def __init__(self):
                self.best, self.loss = {"loss": 1e9, "step": 0}, 1.0
            def note(self, loss):
                self.loss = 0.9 * self.loss + 0.1 * loss
                self.best["loss"], self.best["step"] = loss, self.best["step"] + 1
        kept = Progress()
        job.tracked["kept"] = Attributes(kept, ("best",))
        for x, y in job.batches(DATA):
            kept.note(float(x[0]))
        """,
    "the state of what it holds": """
        class Plateau:
            def __init__(self):
                self.loss = 0.0
        class Guard:
            def __init__(self):
                self.plateau, self.loss = Plateau(), 1.0
            def state_dict(self):
                return {"plateau": {"loss": self.plateau.loss}}
            def load_state_dict(self, state):
                self.plateau.loss = state["plateau"]["loss"]
            def note(self, loss):
                self.loss = 0.9 * self.loss + 0.1 * loss
                self.plateau.loss = loss
        job.tracked["kept"] = kept = Guard()
        for x, y in job.batches(DATA):
            kept.note(float(x[0]))
        """,
    "another value at its top": """
        class Guard:
            def __init__(self):
                self.best, self.loss = {"loss": 1e9}, 1.0
            def state_dict(self):
                return {"loss": self.best["loss"]}
            def load_state_dict(self, state):
                self.best["loss"] = state["loss"]
            def note(self, loss):
                self.loss = 0.9 * self.loss + 0.1 * loss
                self.best["loss"] = loss
        job.tracked["kept"] = kept = Guard()
        for x, y in job.batches(DATA):
            kept.note(float(x[0]))
        """,
}


@pytest.mark.parametrize("where", NAMESAKES)
def test_a_name_that_lies_in_a_state_is_none_of_the_objects_own(tmp_path: Path, where: str) -> None:
    found = run_in(tmp_path, NAMESAKES[where])
    theirs, own = found.theirs[RANK], found.own[JOINER]
    before = found.variables.comparison.differences(theirs, own, at_boundary=False)
    assert "loss" in {one.name.rpartition(".")[2] for one in before}


def test_what_is_kept_by_an_equal_value_is_no_namesake_of_its_parts(tmp_path: Path) -> None:
    script = """
    from trainmover.state.kinds.values import Attributes
    class Progress:
        def __init__(self):
            self.best, self.calls = {"step": 0}, 0
        def note(self):
            self.best["step"] += 1
            self.calls += 1
    kept = Progress()
    job.tracked["kept"] = Attributes(kept, ("best",))
    for x, y in job.batches(DATA):
        kept.note()
    """
    found = run_in(tmp_path, script)
    theirs, own = found.theirs[RANK], found.own[JOINER]
    before = found.variables.comparison.differences(theirs, own, at_boundary=False)
    assert {one.name.rpartition(".")[2] for one in before} == {"calls"}


FORMS = {
    "deque(maxlen=4)": ("self.kept.append(x)", "list(self.kept)"),
    "Counter()": ("self.kept[int(x)] += 1", "dict(self.kept)"),
    "torch.zeros(2)": ("self.kept += x", "self.kept.tolist()"),
    "torch.zeros(())": ("self.kept += x", "self.kept.item()"),
    "0.0": ("self.kept += x", "torch.tensor(self.kept, dtype=torch.float64)"),
    "random.Random(1)": ("self.kept.random()", "self.kept.getstate()"),
    "torch.Generator()": ("torch.rand(1, generator=self.kept)", "self.kept.get_state()"),
    "numpy.random.default_rng(1)": ("self.kept.random()", "self.kept.bit_generator.state"),
}


@pytest.mark.parametrize("kind", FORMS)
def test_an_attribute_may_lie_in_the_state_in_another_form(tmp_path: Path, kind: str) -> None:
    note, state = FORMS[kind]
    found = run_in(
        tmp_path,
        f"""
        import random
        from collections import Counter, deque
        class Kept:
            def __init__(self):
                self._kept = {kind}
            def state_dict(self):
                return {{"kept": {state.replace("self.", "self._")}}}
            def load_state_dict(self, state):
                pass
            def note(self, x):
                {note.replace("self.", "self._")}
        job.tracked["it"] = it = Kept()
        for x, y in job.batches(DATA):
            it.note(float(x[0]))
        """,
    )
    theirs, own = found.theirs[RANK], found.own[JOINER]
    assert not found.variables.comparison.differences(theirs, own, at_boundary=False)
