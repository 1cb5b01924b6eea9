"""Where a script is left that would go on with what a collective has not given."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from trainmover.comm import groups
from trainmover.ids import Rank, Step
from trainmover.worker.standing import Unwind
from trainmover.worker.step.cut_short import CutShort


@pytest.fixture
def in_sandbox() -> Iterator[None]:
    groups.sandbox()
    yield
    groups.close()


def test_a_run_in_the_sandbox_that_is_of_no_more_use_is_left_at_its_next_call(
    in_sandbox: None,
) -> None:
    """Its script may wait in a loop until all agree, which calls that give nothing never do."""
    nothing: Any = SimpleNamespace(misled=False)
    stands: Any = SimpleNamespace(in_step=True, passed=False, calls=Step(1), is_shadow=True)
    cut_short = CutShort(Rank(0), stands, boundary=nothing, gate=nothing, say=lambda fact: None)
    leave = groups.on_given_up
    assert leave is not None
    leave()
    groups.desert("other work waits for it")
    with pytest.raises(Unwind):
        leave()
    cut_short.forget()
