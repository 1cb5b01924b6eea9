"""What a loss would cost, from what was measured."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from jobs import (
    RECOVERED,
    RUNNING,
    after,
    certificate,
    committed,
    failed,
    joined,
    past,
    running,
    said,
    up,
)

from trainmover.controller import Job
from trainmover.controller.change.incidents import amend
from trainmover.controller.change.seats import with_machine
from trainmover.controller.standby.attest import (
    FIXED_MS,
    START_MS,
    STATE_BYTES_PER_MS,
    attest_held,
    predicted_ms,
)
from trainmover.controller.state import Attestation, MachineState
from trainmover.ids import Slot
from trainmover.protocol import messages as m

HELD_BYTES = 1000
RUN_MS = 20


def predicted(job: Job, machine: str = "m4") -> float | None:
    return predicted_ms(job, job.machines[machine], 0)


def test_a_held_run_costs_nothing_and_one_that_is_not_its_measured_time() -> None:
    state_ms = HELD_BYTES / STATE_BYTES_PER_MS
    assert predicted(RUNNING) == pytest.approx(FIXED_MS + state_ms)
    free = with_machine(RUNNING, "m4", held=None)
    others = predicted_ms(RUNNING, RUNNING.machines["m4"], 0, other_held=True)
    assert predicted(free) == others == pytest.approx(FIXED_MS + state_ms + RUN_MS)


def test_of_all_processes_of_a_machine_the_slowest_run_counts() -> None:
    for first_ms, then_ms in ((30, 20), (20, 30)):
        job = running(nproc=2)
        job = with_machine(job, "m4", state=MachineState.HOLDING, held=None, work=0)
        facts = [
            m.Held(rank=rank, trace="t", run_ms=ms, held_bytes=1)
            for rank, ms in ((0, first_ms), (1, then_ms))
        ]
        job, _ = after(job, *(said("m4", one, local_rank=one.rank) for one in facts))
        assert job.machines["m4"].attests[0].run_ms == 30


def test_before_a_second_run_the_first_stands_for_it() -> None:
    attest = replace(RUNNING.machines["m4"].attests[0], run_ms=None)
    job = with_machine(RUNNING, "m4", held=None, attests={0: attest})
    assert predicted(job) == pytest.approx(FIXED_MS + HELD_BYTES / STATE_BYTES_PER_MS + 50)


def test_fresh_processes_take_their_time() -> None:
    job = with_machine(RUNNING, "m4", held=None, once="a port")
    before = predicted(with_machine(RUNNING, "m4", held=None))
    assert before is not None
    assert predicted(job) == pytest.approx(before + START_MS)


def test_what_is_not_proven_is_not_predicted() -> None:
    job, _ = after(RUNNING, joined("m5", standby=True), up("m5"))
    assert predicted(job, "m5") is None
    assert predicted(after(running(), failed("m4", 0))[0]) is None


def test_state_and_the_rest_are_as_in_past_recoveries() -> None:
    job, _ = after(
        RECOVERED,
        *(committed(f"m{i}", r, 2, gap_us=900_000, median_us=0, at_us=1000) for r, i in
          ((0, 1), (1, 4), (2, 3))),
    )  # fmt: skip
    big = replace_bytes(certificate(1), 30_000)
    marks = {"heard": 0, "detect": 10_000, "bind": 110_000, "state": 410_000}
    job = amend(job, 1, certificates=(big,), marks=marks)
    job, _ = after(job, joined("m5", standby=True), up("m5"))
    job = with_machine(job, "m5", held=0, attests=RUNNING.machines["m4"].attests)
    # 900 ms, of which 100 were the bind and 300 the state; 30 kB took 1 ms.
    assert predicted(job, "m5") == pytest.approx(500 + 1)


def test_state_that_took_no_time_that_could_be_measured_is_no_measure() -> None:
    at_once = msgspec.structs.replace(certificate(1), state_ms=0.0)
    job = amend(RECOVERED, 1, certificates=(at_once,))
    job, _ = after(job, joined("m5", standby=True), up("m5"))
    job = with_machine(job, "m5", held=0, attests=RUNNING.machines["m4"].attests)
    assert predicted(job, "m5") == pytest.approx(FIXED_MS + HELD_BYTES / STATE_BYTES_PER_MS)


def replace_bytes(given: m.Certificate, count: int) -> m.Certificate:
    return msgspec.structs.replace(given, bytes=count)


@pytest.mark.parametrize(
    ("changes", "other_held", "ms"),
    [
        ({}, False, 450 + 8500 / 450),
        ({}, True, 450 + 8500 / 450 + 20),
        ({"held": None}, False, 450 + 8500 / 450 + 20),
        ({"once": "it binds a port"}, False, 450 + 8500 / 450),
        ({"once": "it binds a port"}, True, 450 + 8500 / 450 + 20 + START_MS),
        ({"attests": {}}, False, None),
        ({"attests": {0: Attestation(0, failed="no")}}, False, None),
        ({"held": None, "attests": {0: Attestation(0, warm_ms=7)}}, False, 450 + 8500 / 450 + 7),
    ],
)
def test_what_past_recoveries_and_their_state_have_taken_is_what_the_next_would(
    changes: dict[str, Any], other_held: bool, ms: float | None
) -> None:
    """Of those in place and done: 850, 450 and 20 ms beside binding and state; eight states at 450
    bytes a millisecond, the newest of 8,000 bytes and 500 that were there."""
    job = replace(RUNNING, incidents=past())
    machine = replace(RUNNING.machines["m4"], **changes)
    assert predicted_ms(job, machine, Slot(0), other_held=other_held) == pytest.approx(ms)


@pytest.mark.parametrize(
    ("before", "said", "after"),
    [
        (None, [], Attestation(5, run_ms=20, held_bytes=2000, device_bytes=20)),
        (
            Attestation(1, run_ms=30, held_bytes=7, device_bytes=3),
            [0],
            Attestation(5, run_ms=30, held_bytes=2007, device_bytes=23),
        ),
        (
            Attestation(1, run_ms=30, held_bytes=7, device_bytes=3, stale=True),
            [],
            Attestation(5, run_ms=20, held_bytes=2000, device_bytes=20),
        ),
        (
            Attestation(1, 40, 30, 7, 3, stale=True),
            [],
            Attestation(5, 40, 20, 7, 3),
        ),
    ],
)
def test_what_a_held_run_takes_counts_where_no_run_was_before(
    before: Attestation | None, said: list[int], after: Attestation
) -> None:
    """said: workers of the machine that have held theirs already."""
    attests = {} if before is None else {Slot(0): before}
    job = with_machine(RUNNING, "m4", attests=attests, said=frozenset(said))
    fact = m.Held(rank=0, trace="t", run_ms=20, held_bytes=2000, device_bytes=20)
    job = attest_held(job, "m4", Slot(0), fact, 5)
    assert job.machines["m4"].attests == {0: after}
