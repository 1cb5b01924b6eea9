"""No controller for a while, at the worst moment. See `outages.py`."""

from itertools import product

import pytest
from chaos_script import passes
from outages import HOW, MOMENTS

SOAK_S = 900.0
NOT_YET = {("stall-ending", "frozen"), ("stall-over", "frozen")}
"""A controller that stood still and goes on counts that time against machines."""


def cases() -> list[object]:
    fails = pytest.mark.xfail(reason="a controller that stood still counts the time", strict=False)
    return [
        pytest.param(*case, marks=fails if case in NOT_YET else ())
        for case in product(MOMENTS, HOW)
    ]


@pytest.mark.soak
@pytest.mark.parametrize(("moment", "how"), cases())
def test_the_job_goes_on_as_if_nothing_had_been(moment: str, how: str) -> None:
    passes("outages.py", moment, "--how", how, within_s=SOAK_S)
