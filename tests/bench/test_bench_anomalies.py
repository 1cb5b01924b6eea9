"""What `bench.anomalies` makes of detectors that are wrong, or find nothing."""

import numpy as np
import pytest

from bench import anomalies
from bench.anomalies import Heard, crept, job_of, kernel, late, repeats, table
from trainmover.controller.policies.anomalies import look, told
from trainmover.ids import MachineId


def test_what_is_said_of_healthy_machines_is_false(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told, "TOO_MANY", 3.0)
    heard = kernel(2, 16)
    assert heard.false > 0
    assert heard.a_day == heard.false / 32 * 24


def test_failures_that_nobody_tells_of_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "LIKELY", 0.999)
    assert late(0.1, 8).missed == anomalies.TRIALS
    monkeypatch.setattr(anomalies, "repeating", lambda job, at_us: {})
    assert repeats(0.1, 8).missed == anomalies.TRIALS


def test_a_rank_that_is_slower_from_some_step_on_has_crept_from_there() -> None:
    owns = np.full((4000, 8), 1.0)
    owns[2000:, 3] = 1.08
    assert crept(owns, 0) == []
    assert 2000 < crept(owns, 3)[0] < 2400


def test_a_table_has_a_line_for_each_detector() -> None:
    heard = {"late": Heard(24.0, 1, [3.0, 5.0], 1), "nothing": Heard(24.0)}
    lines = table(heard)
    assert lines[2] == "| late | 24 | 1 | 2 of 3 | 4 s | 5 s |"
    assert len(lines) == 4


def test_the_job_of_a_bench_is_one_that_is_looked_at() -> None:
    job = job_of(3)
    assert [*job.machines] == [MachineId(f"m{n}") for n in range(3)]
