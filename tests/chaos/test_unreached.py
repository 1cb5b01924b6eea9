"""The controller alone does not reach a healthy machine. See `unreached.py`."""

import pytest
from chaos_script import passes, why_no_hosts

SOAK_S = 900.0


@pytest.fixture(scope="module", autouse=True)
def _own_network() -> None:
    if reason := why_no_hosts():
        pytest.skip(f"no hosts with a network of ours: {reason}")


@pytest.mark.timeout(700)
def test_a_standby_that_only_the_controller_does_not_reach_holds_up_no_recovery() -> None:
    passes("unreached.py", "standby-at-kill", "--quick", within_s=600)


@pytest.mark.soak
@pytest.mark.parametrize("case", ["standby-before", "standby-at-kill"])
def test_an_idle_standby_costs_no_downtime(case: str) -> None:
    passes("unreached.py", case, within_s=SOAK_S)


@pytest.mark.soak
@pytest.mark.xfail(
    reason="neither its agent nor its ranks (the store) go by way of a neighbour yet", strict=False
)
@pytest.mark.parametrize("case", ["survivor-before", "survivor-at-kill"])
def test_a_survivor_says_what_it_must_by_way_of_a_neighbour(case: str) -> None:
    passes("unreached.py", case, within_s=SOAK_S)
