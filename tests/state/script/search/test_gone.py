"""What was deleted while the script trained is another variable where it is still there."""

from collections import deque
from pathlib import Path

import captures
import pytest
from torch import nn

from trainmover.state.kinds.filling import filled
from trainmover.state.kinds.modules.attributes import Attributes

GONE = {
    "attribute": """
        class Run:
            pass
        run = Run()
        run.warm = 0.5
        def main():
            for number, (x, y) in enumerate(job.batches(DATA)):
                scale = run.warm if hasattr(run, "warm") else 1.0
                if number == 6:
                    del run.warm
        main()
    """,
    "global": """
        warm = 0.5
        def main():
            for number, (x, y) in enumerate(job.batches(DATA)):
                if number == 6:
                    globals().pop("warm")
        main()
    """,
    "of a function": """
        def smooth(x):
            return x * getattr(smooth, "warm", 1.0)
        smooth.warm = 0.5
        def main():
            for number, (x, y) in enumerate(job.batches(DATA)):
                if number == 6:
                    del smooth.warm
                smooth(x)
        main()
    """,
}


@pytest.mark.parametrize("where", GONE)
def test_it_is_told(where: str, tmp_path: Path) -> None:
    job = captures.run_in(tmp_path, GONE[where])
    found = [one for one in job.differences() if one.name.endswith("warm")]
    assert [(one.theirs, one.own) for one in found] == [("not set", "0.5")]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.warm, self.scale = 0.5, 1.0


def test_an_attribute_of_a_module_goes_as_it_came() -> None:
    theirs, own = Net(), Net()
    one, other = (Attributes(net, lambda part: ["warm", "scale"]) for net in (theirs, own))
    del theirs.warm
    other.load_state_dict(one.state_dict())
    assert not hasattr(own, "warm")
    assert own.scale == 1.0
    theirs.warm = 0.25
    other.load_state_dict(one.state_dict())
    assert own.warm == 0.25


def test_a_deque_of_another_length_is_none_that_can_be_filled() -> None:
    held = deque([1], maxlen=2)
    assert not filled(held, deque([1], maxlen=4))
    assert filled(held, deque([3], maxlen=2))
    assert list(held) == [3]
