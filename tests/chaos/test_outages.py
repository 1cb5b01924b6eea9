"""No controller for a while, at the worst moment. See `outages.py`."""

import pytest
from chaos_script import passes
from outages import HOW, MOMENTS

SOAK_S = 900.0


@pytest.mark.soak
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("moment", MOMENTS)
def test_the_job_goes_on_as_if_nothing_had_been(moment: str, how: str) -> None:
    passes("outages.py", moment, "--how", how, within_s=SOAK_S)
