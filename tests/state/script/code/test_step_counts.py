"""What each step counts, whatever its data."""

import ast
import textwrap

import pytest

from trainmover.state.script.code.in_steps import steps_in
from trainmover.state.script.code.step_counts import StepCount, counted_by


def counts(body: str, more: str = "", *, arguments: str = "self, x") -> list[StepCount]:
    """Of a step with this body, which is called `train`."""
    text = f"@job.step\ndef train({arguments}):\n" + textwrap.indent(textwrap.dedent(body), "    ")
    trees = [ast.parse(one) for one in (text, textwrap.dedent(more))]
    known = counted_by(steps_in(trees))
    return [one for step, found in known.items() for one in found if step.name == "train"]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("self.steps += 1", StepCount(("self", "steps"), 1)),
        ("self.left -= 0.5", StepCount(("self", "left"), -0.5)),
        ("self.steps = self.steps + 2", StepCount(("self", "steps"), 2)),
        ("trainer.state.steps += 1", StepCount(("trainer", "state", "steps"), 1)),
        ("global STEPS; STEPS += 1", StepCount(("STEPS",), 1)),
        ("state['step'] += 1", StepCount(("state",), 1, "step")),
        ("self.counts[0] += 1", StepCount(("self", "counts"), 1, 0)),
        ("with torch.autocast('cpu'): self.steps += 1", StepCount(("self", "steps"), 1)),
        ("try: self.steps += 1\nfinally: x()", StepCount(("self", "steps"), 1)),
        ("try: x()\nfinally: self.steps += 1", StepCount(("self", "steps"), 1)),
        ("state['step'] += 1; use(state['step'])", StepCount(("state",), 1, "step")),
        ("if x: y = 1\nself.steps += 1\nreturn y", StepCount(("self", "steps"), 1)),
        ("def inner(): return 1\nself.steps += 1", StepCount(("self", "steps"), 1)),
        ("optimizer.train()\nself.steps += 1", StepCount(("self", "steps"), 1)),
    ],
)
def test_what_every_step_counts(body: str, found: StepCount) -> None:
    assert counts(body) == [found]


@pytest.mark.parametrize(
    "body",
    [
        "if x: self.steps += 1",
        "for _ in x: self.steps += 1",
        "with x: self.steps += 1",
        "with suppress(ValueError): self.steps += 1",
        "with autocast(), suppress(ValueError): self.steps += 1",
        "with no_grad():\n    if x: return\nself.steps += 1",
        "try: self.steps += 1\nexcept ValueError: pass",
        "try: x()\nexcept ValueError: self.steps += 1",
        "if x: return\nself.steps += 1",
        "while x:\n    if y: return 1\nself.steps += 1",
        "yield 1\nself.steps += 1",
        "self.steps += x",
        "self.steps += True",
        "self.steps *= 2",
        "self.steps = self.seen + 1",
        "self.steps = 1 + 1",
        "steps = 0\nsteps += 1",
        "self = other\nself.steps += 1",
        "state = {}\nstate['step'] += 1",
        "state[x] += 1",
        "make().steps += 1",
        "self.steps += 1\nif x: self.steps = 0",
        "self.steps += 1\ndel other.steps",
        "self.steps += 1\nreset(self)",
        "self.steps += 1\nsetattr(other, 'steps', 0)",
        "self.steps += 1\nsetattr(other, x, 0)",
        "self.steps += 1\nvars(other).update(x)",
        "self.steps += 1\ndef inner(): self.steps += 1",
        "self.state.steps += 1\nself.state = x",
        "state['step'] += 1\nstate['best'] = x",
        "state['step'] += 1\nstate['all'].append(x)",
        "state['step'] += 1\nnote(state)",
        "state['step'] += 1\nmine = state",
        "self.state['step'] += 1\nnote(self.state)",
        "self.state['step'] += 1\nself.state.update(x=1)",
        "self.steps += 1\nself.train(x)",
        "self.steps += 1\nsuper().train(x)",
    ],
)
def test_what_depends_on_data_or_is_stored_to_elsewhere_is_no_count(body: str) -> None:
    more = """
    def reset(one):
        one.steps = 0
    """
    assert not counts(body, more)


def test_a_step_that_is_part_of_another_counts_twice_or_not_at_all() -> None:
    more = "@job.step\ndef both(x):\n    train(x)\n"
    assert counts("state['step'] += 1", arguments="x")
    assert not counts("state['step'] += 1", more, arguments="x")


def test_several_kinds_of_steps_may_count_the_same() -> None:
    more = "class Other:\n    @job.step\n    def fit(self):\n        self.steps += 1\n"
    assert counts("self.steps += 1", more)
    assert not counts("self.steps += 1", more.replace("+=", "="))


def test_what_lines_between_steps_store_to_is_theirs() -> None:
    more = "def evaluate(one):\n    one.steps = 0\n"
    assert counts("self.steps += 1", more)
