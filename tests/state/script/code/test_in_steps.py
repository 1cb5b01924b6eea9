"""Which names steps may store to, by the source."""

import ast
import textwrap

import pytest

from trainmover.state.script.code.in_steps import steps_in, stored_in_steps


def names(*texts: str) -> set[str]:
    return {*stored_in_steps(steps_in([ast.parse(textwrap.dedent(text)) for text in texts]))}


@pytest.mark.parametrize(
    ("body", "stored"),
    [
        ("trainer.aux = 1", {"aux"}),
        ("trainer.aux += 1", {"aux"}),
        ("del trainer.aux", {"aux"}),
        ("SEEN.append(1)", {"SEEN"}),
        ("SEEN[0] = 1", {"SEEN"}),
        ("global SEEN; SEEN = 1", {"SEEN"}),
        ('setattr(trainer, "aux", 1)', {"aux"}),
        ('vars(trainer)["aux"] = 1', {"aux"}),
        ("trainer.__dict__.update(aux=1)", {"aux", "__dict__"}),
        ("trainer.seen.clear()", {"seen"}),
        ("flip()", {"turn"}),
        ("trainer.note(1)", {"noted"}),
        ("each(flip)", {"turn"}),
        ("local = trainer.aux", set()),
    ],
)
@pytest.mark.parametrize("marked", ["@job.step\n", "", "@tm.job.step()\n"])
def test_what_a_step_stores_to(body: str, stored: set[str], marked: str) -> None:
    text = f"{marked}def train(x):\n    {body}\n"
    text += "" if marked else "run = job.step(train)\n"
    helpers = """
    def flip():
        global turn
        turn = not turn
    class Trainer:
        def note(self, x):
            self.noted = x
        def elsewhere(self):
            self.best = 1
    """
    assert names(text, helpers) == stored


def test_what_nobody_calls_by_name_runs_in_steps_too() -> None:
    text = """
    def hook(module, given, made):
        ACTS.append(made)
    model.register_forward_hook(hook)
    other.register_hook(lambda grad: NORMS.append(grad))
    class Net(nn.Module):
        def forward(self, x):
            self.last = x
    def evaluate():
        trainer.best = 1
    """
    assert names(text) == {"ACTS", "NORMS", "last"}


@pytest.mark.parametrize(
    ("body", "method"),
    [
        ("meter += x", "__iadd__"),
        ("y = meter * x", "__mul__"),
        ("y = x - meter", "__rsub__"),
        ("meter[0] = x", "__setitem__"),
        ("del meter[0]", "__delitem__"),
        ("meter.last = x", "__setattr__"),
        ("if meter > x: pass", "__gt__"),
        ("if x in meter: pass", "__contains__"),
        ("y = float(meter)", "__float__"),
        ("with meter: pass", "__exit__"),
    ],
)
def test_what_syntax_calls_runs_in_steps_too(body: str, method: str) -> None:
    text = f"""
    class Meter:
        def {method}(self, *given):
            self.aux = 1
    @job.step
    def train(x):
        {body}
    """
    other = text.replace("@job.step", "")
    assert "aux" in names(text)
    assert "aux" not in names(other, "@job.step\ndef run(x):\n    x.backward()\n")


@pytest.mark.parametrize(
    ("bases", "calls", "is_one"),
    [
        ("(logging.Handler)", "", True),
        ("(Own)", "", True),
        ("", "", False),
        ("(ABC)", "", False),
        ("(logging.Handler)", "handler.emit(1)", False),
    ],
)
def test_what_a_library_calls_may_run_in_steps(bases: str, calls: str, *, is_one: bool) -> None:
    text = f"""
    class Own(logging.Handler): ...
    class Counting{bases}:
        def emit(self, record):
            self.aux = 1
    @job.step
    def train(x): ...
    {calls}
    """
    assert ("aux" in names(text)) is is_one
