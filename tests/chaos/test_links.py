"""Machines on hosts of their own, whose network fails. See `links.py`."""

import pytest
from chaos_script import passes, why_no_hosts
from links import FAULTS


@pytest.fixture(scope="module")
def own_network() -> None:
    if reason := why_no_hosts():
        pytest.skip(f"no hosts with a network of ours: {reason}")


@pytest.mark.soak
@pytest.mark.usefixtures("own_network")
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_the_job_comes_through(fault: str) -> None:
    passes("links.py", fault, within_s=600)
