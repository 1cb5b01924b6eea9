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
