"""The pure parts of the faults bench: what is claimed from which figures, and the table."""

import pytest

from bench.faults import __main__ as faults
from bench.faults.detection import AGENT, EXIT, FROZEN, MACHINE, STUCK


@pytest.fixture
def measured() -> faults.Measured:
    """One round, in which everything holds."""
    return faults.Measured(
        detect_ms={EXIT: [9.0, 10.0, 300.0], AGENT: [5.0], MACHINE: [6.0], FROZEN: [900.0]}
        | {STUCK: [1050.0]},
        step_ms=30.0,
        control_ms=[400.0, 500.0, 2000.0],
        false_alarms=0,
        calm_s=20.0,
        incidents_s=250.0,
        start_s=0.2,
        replay_ms=[200.0],
        replay_all_ms=[6000.0],
    )


def test_claims_are_made_from_medians(measured: faults.Measured) -> None:
    claims = {claim.claim: claim for claim in faults.judge(measured)}
    assert all(claim.holds for claim in claims.values())
    assert claims["worker killed: seen after"].value == 10.0
    assert claims["controller killed: control again after"].value == 500.0
    assert claims["rank stuck: seen after"].most == 1090.0
    assert claims["time of a simulated incident"].value == 4.0


def test_a_single_false_alarm_does_not_hold(measured: faults.Measured) -> None:
    measured.false_alarms = 1
    assert [c.claim for c in faults.judge(measured) if not c.holds] == ["false alarms"]


def test_the_table_has_every_measurement(measured: faults.Measured) -> None:
    table = "\n".join(faults.tabulated(measured))
    assert f"| {EXIT} | 10.0 (9.0, 10.0, 300.0) |" in table
    assert "0 false alarms in 20 s" in table
