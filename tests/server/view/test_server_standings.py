"""Roles and standbys as the API shows them."""

from typing import Any

from trainmover.controller import Job, decide
from trainmover.controller.events import MachineJoined, WorkerSaid
from trainmover.ids import MachineId, Rank, Slot, Step
from trainmover.protocol import messages as m
from trainmover.server.view.standings import roles_json, standbys_json

SPEC = m.JobSpec(run_id="r", argv=["x.py"], machines=3, standbys=1)


def fed(job: Job, *facts: tuple[str, m.WorkerFact]) -> Job:
    for machine, fact in facts:
        said = WorkerSaid(at_us=5_000_000, machine=MachineId(machine), local_rank=0, fact=fact)  # type: ignore[arg-type]
        job, _ = decide(job, said)
    return job


def job_of_two_roles() -> Job:
    job = Job(SPEC)
    for i in range(4):
        joined = MachineJoined(
            at_us=0, machine=MachineId(f"m{i + 1}"), standby=i == 3, vault=f"v{i}", host="h"
        )
        job, _ = decide(job, joined)
    up = m.WorkerUp(pid=1, address="a", torch="2.13", version="1")
    job = fed(job, *((f"m{i + 1}", up) for i in range(4)))
    return fed(
        job,
        ("m1", recorded(0, "a", 100)),
        ("m2", recorded(1, "b", 300)),
        ("m3", recorded(2, "b", 0, record_of=1)),
    )


def recorded(rank: int, trace: str, count: int, record_of: int | None = None) -> m.Recorded:
    return m.Recorded(
        rank=Rank(rank), step=Step(3), trace=trace, digest="d", bytes=count,
        bytes_full=10 * count, record_of=None if record_of is None else Rank(record_of),
    )  # fmt: skip


def warm(rank: int, trace: str) -> m.Warm:
    return m.Warm(rank=Rank(rank), shadow_steps=3, trace=trace, warm_ms=40, held_bytes=7)


def row(job: Job, index: int) -> dict[str, Any]:
    return standbys_json(job, now_us=9_000_000)[index]


def test_roles_say_their_ranks_and_records() -> None:
    first, second = roles_json(job_of_two_roles())
    assert (first["role"], first["ranks"], first["record_bytes"]) == (0, [0], 100)
    assert (second["ranks"], second["record_bytes"]) == ([1, 2], 300)
    assert second["record_bytes_full"] == 3000


def test_a_standby_has_a_row_for_each_kind() -> None:
    job = fed(job_of_two_roles(), ("m4", warm(0, "a")))
    proven, due = row(job, 0), row(job, 1)
    assert (proven["ranks"], due["ranks"]) == ([0], [1, 2])
    assert (proven["trace_equal"], due["trace_equal"]) == (True, None)
    assert (proven["warmed_s"], proven["warm_ms"], proven["held_bytes"]) == (4.0, 40, 7)
    assert (proven["state"], proven["torch"], due["predicted_ms"]) == ("warming", "2.13", None)
    assert (due["roles"], due["record_bytes"]) == ([1], 300)


def test_what_is_held_and_what_failed_are_shown() -> None:
    job = fed(job_of_two_roles(), ("m4", warm(0, "a")))
    failed = m.SandboxFailed(rank=Rank(1), reason="it raised")
    job = fed(job, ("m4", failed), ("m4", m.Held(rank=Rank(0), trace="a", run_ms=20)))
    assert job.machines[MachineId("m4")].held == Slot(0)
    assert (row(job, 0)["holds"], row(job, 0)["second_run_ms"]) == ([0], 20)
    assert (row(job, 1)["trace_equal"], row(job, 1)["note"]) == (False, "it raised")
    assert row(job, 1)["predicted_ms"] is None


def test_before_there_are_roles_a_standby_has_one_row() -> None:
    joined = MachineJoined(at_us=0, machine=MachineId("m4"), standby=True, vault="v", host="h")
    job, _ = decide(Job(SPEC), joined)
    assert roles_json(job) == []
    (only,) = standbys_json(job, now_us=0)
    assert (only["machine"], only["ranks"], only["trace_equal"]) == ("m4", [], None)
