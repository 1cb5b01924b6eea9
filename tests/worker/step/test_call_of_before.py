"""Who waits for a collective of an earlier step that was cut short does not go on with its rest."""

from types import SimpleNamespace
from typing import Any

import pytest

from trainmover.comm import groups
from trainmover.errors import StateMismatch
from trainmover.ids import Rank
from trainmover.protocol.messages import WorkerFact
from trainmover.worker.step.cut_short import CutShort


@pytest.mark.parametrize(
    ("in_step", "passed", "cut", "refused"),
    [
        (True, False, False, True),
        (True, False, True, False),  # In this try: the step will not count.
        (True, True, False, False),
        (False, False, False, False),
    ],
)
def test_a_step_cannot_be_run_again_with_it(
    *, in_step: bool, passed: bool, cut: bool, refused: bool
) -> None:
    said = list[WorkerFact]()
    stands: Any = SimpleNamespace(in_step=in_step, passed=passed, calls=3, is_shadow=False)
    boundary: Any = SimpleNamespace(
        cut_short=cut, misled=False, closing=False, settle=lambda: said.append(said[0])
    )
    cut_short = CutShort(Rank(0), stands, boundary=boundary, gate=Any, say=said.append)
    try:
        assert groups.on_given_up is not None
        if refused:
            with pytest.raises(StateMismatch, match="began before it, and was cut short"):
                groups.on_given_up()
            assert boundary.misled
            assert len(said) == 2
        else:
            groups.on_given_up()
            assert not said
    finally:
        cut_short.forget()
