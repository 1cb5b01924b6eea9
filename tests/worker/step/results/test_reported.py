"""The number that a step returns is known at its gate, once it was seen where it lies."""

from collections.abc import Callable
from functools import partial, wraps

import pytest
import torch
from torch import Tensor

from trainmover.errors import UserError
from trainmover.worker.step.results.reported import NAME_CHARS_MAX, NAMES_MAX, Reported, code_of

Step = Callable[[], Tensor]


def make(reported: Reported, function: Step, at_gate: list[dict[str, float]]) -> dict[str, float]:
    """A step whose gate is where it calls `gate`, or else at its return."""
    reported.begin(function)
    gates = len(at_gate)
    result = function()
    reported.returned(result, passed=len(at_gate) > gates)
    return reported.numbers()


def script(reported: Reported, at_gate: list[dict[str, float]]) -> tuple[Step, list[float]]:
    losses: list[float] = []

    def inner() -> Tensor:
        inner_loss = torch.tensor(float(len(losses) + 1))
        losses.append(float(inner_loss))
        at_gate.append(reported.at_gate())
        return inner_loss

    def step() -> Tensor:
        other = torch.tensor(7.0)
        loss = inner()
        del other
        return loss.detach()

    return step, losses


def test_the_returned_number_is_found_among_the_variables() -> None:
    reported, at_gate = Reported(), list[dict[str, float]]()
    step, losses = script(reported, at_gate)
    for _ in range(4):
        assert make(reported, step, at_gate) == {"loss": losses[-1]}
        assert not reported.late
    assert at_gate == [{}, {"loss": 2.0}, {"loss": 3.0}, {"loss": 4.0}]


@pytest.mark.filterwarnings("error")
def test_a_loss_with_its_graph_is_read_without_a_warning() -> None:
    reported, at_gate = Reported(), list[dict[str, float]]()

    def step() -> Tensor:
        loss = torch.ones((), requires_grad=True) * 2
        at_gate.append(reported.at_gate())
        return loss

    for _ in range(3):
        assert make(reported, step, at_gate) == {"loss": 2.0}


def test_a_number_that_is_made_behind_the_gate_is_late() -> None:
    reported, at_gate = Reported(), list[dict[str, float]]()

    def step() -> Tensor:
        loss = torch.tensor(1.0)
        at_gate.append(reported.at_gate())
        return loss * 2

    assert make(reported, step, at_gate) == {"loss": 2.0}
    assert reported.late


def test_a_number_that_changes_behind_the_gate_is_late() -> None:
    reported, at_gate = Reported(), list[dict[str, float]]()
    changes = []

    def step() -> Tensor:
        loss = torch.tensor(1.0)
        at_gate.append(reported.at_gate())
        if changes:
            loss.add_(1)
        return loss

    for _ in range(2):
        make(reported, step, at_gate)
        assert not reported.late
    changes.append(True)
    assert make(reported, step, at_gate) == {"loss": 2.0}
    assert at_gate[-1] == {"loss": 1.0}
    assert reported.late


def test_what_was_reported_by_name_counts() -> None:
    reported = Reported()

    def step() -> Tensor:
        reported.values["mine"] = 3.0
        assert reported.at_gate() == {"mine": 3.0}
        return torch.tensor(1.0)

    reported.begin(step)
    reported.returned(step(), passed=True)
    assert reported.numbers() == {"mine": 3.0}
    assert not reported.late


def test_names_and_number_of_values_have_bounds() -> None:
    """Each step alone decides, so a joiner that makes it decides the same."""
    reported = Reported()
    for _ in range(2):
        reported.begin(lambda: None)
        for number in range(2 * NAMES_MAX):
            if reported.has_room(f"v{number}"):
                reported.values[f"v{number}"] = 1.0
        assert len(reported.numbers()) == NAMES_MAX
        assert reported.has_room("v0")
        assert not reported.has_room("another")
    assert not Reported().has_room("x" * (NAME_CHARS_MAX + 1))
    assert "the job goes on" in reported.told_of_bounds()
    assert reported.told_of_bounds() == ""


def test_a_nan_is_itself() -> None:
    reported, at_gate = Reported(), list[dict[str, float]]()

    def step() -> Tensor:
        loss = torch.tensor(float("nan"))
        at_gate.append(reported.at_gate())
        return loss

    for _ in range(3):
        make(reported, step, at_gate)
        assert not reported.late


def test_more_than_one_number_is_refused() -> None:
    reported = Reported()
    reported.values = {"loss": torch.ones(2)}
    with pytest.raises(UserError, match="shape"):
        reported.at_gate()


def test_one_function_is_known_by_its_code_and_two_callables_are_two() -> None:
    def step(loss: float, scale: float = 1.0) -> float:
        return loss * scale

    class Step:
        def __call__(self, loss: float) -> float:
            return loss

    one, other = Step(), Step()
    assert (
        code_of(partial(step, scale=2.0)) is code_of(wraps(step)(lambda *_: None)) is step.__code__
    )
    assert code_of(one) is one
    assert code_of(one) != code_of(other)


def tried(reported: Reported, loss: float, *, is_own: bool = True, draws: int = 1) -> None:
    """One try of a step, up to its gate."""
    reported.begin(tried)
    torch.manual_seed(1)
    torch.rand(draws)
    reported.values = {"loss": torch.tensor(loss), "seconds": torch.rand(1), "time": loss}
    reported.own |= {"loss"} if is_own else set()


@pytest.mark.parametrize(
    ("again", "what"),
    [
        ({"loss": 0.5}, ""),
        ({"loss": 0.25}, "it has reported loss = 0.25 then, and 0.5 before"),
        ({"loss": 0.5, "draws": 2}, "it has drawn other random numbers then"),
    ],
)
def test_a_step_that_is_made_again_gives_what_it_gave(again: dict[str, float], what: str) -> None:
    reported = Reported()
    tried(reported, 0.5)
    reported.abort(at_gate=True)
    tried(reported, **again)  # type: ignore[arg-type]
    assert reported.differs() == what
    reported.committed()
    assert not reported.differs()


def test_what_was_made_of_a_collective_that_was_cut_short_says_nothing() -> None:
    reported = Reported()
    tried(reported, 0.5, is_own=False, draws=3)
    reported.abort(at_gate=False)
    tried(reported, 0.25)
    assert reported.differs() == ""


def test_nan_is_itself() -> None:
    reported = Reported()
    tried(reported, float("nan"))
    reported.abort(at_gate=True)
    tried(reported, float("nan"))
    assert reported.differs() == ""
