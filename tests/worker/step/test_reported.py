"""The numbers that a step reports."""

from functools import partial, wraps

import pytest
import torch

from trainmover.errors import UserError
from trainmover.worker.step.reported import NAME_CHARS_MAX, NAMES_MAX, Reported, code_of


def test_the_returned_number_counts_where_none_was_reported() -> None:
    reported = Reported()
    reported.begin(lambda: None)
    reported.returned(torch.ones((), requires_grad=True) * 2)
    assert reported.numbers() == {"loss": 2.0}
    reported.begin(lambda: None)
    reported.values["mine"] = 3.0
    reported.returned(torch.tensor(1.0))
    assert reported.numbers() == {"mine": 3.0}
    reported.begin(lambda: None)
    reported.returned(torch.ones(2))
    assert reported.numbers() == {}


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


def test_more_than_one_number_is_refused() -> None:
    reported = Reported()
    reported.values = {"loss": torch.ones(2)}
    with pytest.raises(UserError, match="shape"):
        reported.numbers()


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
