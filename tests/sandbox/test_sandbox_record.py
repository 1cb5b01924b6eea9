"""What was recorded is served bit for bit; what differs is refused and both calls are named."""

from typing import Any

import pytest
import torch

from trainmover.comm import Call, ReplayMismatch
from trainmover.errors import ProtocolError, UserError
from trainmover.sandbox.record import (
    Record,
    Recorder,
    Replayer,
    blob_name,
    describe,
    trace_of,
    what_of,
)

NOISE = torch.tensor([0.1, -0.0, 5e-324, float("inf"), float("nan")], dtype=torch.float64)


def call(
    *outputs: torch.Tensor, op: str = "allreduce", seq: int = 0, group: str = "0", root: Any = None
) -> Call:
    meta = (tuple(tuple(t.shape) for t in outputs), tuple(t.dtype for t in outputs), root, "SUM")
    return Call(group=group, seq=seq, op=op, meta=meta, inputs=[], outputs=list(outputs))


def record_of(*calls: Call) -> Record:
    recorder = Recorder(rank=3)
    for each in calls:
        assert recorder.serve(each) is False
        recorder.done(each)
    record = recorder.finish(steps=3)
    assert record is not None
    return record


@pytest.mark.parametrize("travelled", [False, True])
def test_outputs_are_served_bit_for_bit(travelled: bool) -> None:
    words = torch.tensor([7], dtype=torch.int64).view(torch.float64)
    record = record_of(call(NOISE), call(words, torch.tensor(True), op="gather", seq=1))
    if travelled:
        record = Record.from_bytes(record.to_bytes())
    replayer = Replayer(record)
    served = call(torch.zeros(5, dtype=torch.float64))
    assert replayer.serve(served) is True
    assert served.outputs[0].view(torch.int64).equal(NOISE.view(torch.int64))
    others = call(torch.zeros(1, dtype=torch.float64), torch.tensor(False), op="gather", seq=1)
    assert replayer.serve(others)
    assert others.outputs[0].view(torch.int64).item() == 7
    assert others.outputs[1].item() is True
    assert replayer.served == 2


def test_a_record_keeps_what_the_outputs_were_then() -> None:
    output = torch.ones(2)
    record = record_of(call(output))
    output.zero_()
    assert record.entries["0", 0].outputs[0].tolist() == [1.0, 1.0]


def test_a_served_output_may_be_part_of_a_graph() -> None:
    replayer = Replayer(record_of(call(torch.ones(2))))
    output = torch.zeros(2, requires_grad=True)
    replayer.serve(call(output))
    assert output.tolist() == [1.0, 1.0]


def test_barriers_have_nothing_to_fill() -> None:
    replayer = Replayer(record_of(call(op="barrier")))
    assert replayer.serve(call(op="barrier"))


@pytest.mark.parametrize(
    "other",
    [
        call(torch.zeros(3)),
        call(torch.zeros(2, dtype=torch.float64)),
        call(torch.zeros(2), op="broadcast"),
        call(torch.zeros(2), root=1),
    ],
    ids=["shape", "dtype", "operation", "root"],
)
def test_another_call_is_refused_and_both_are_named(other: Call) -> None:
    recorded = call(torch.zeros(2))
    with pytest.raises(ReplayMismatch) as refusal:
        Replayer(record_of(recorded)).serve(other)
    assert what_of(recorded) in str(refusal.value)
    assert what_of(other) in str(refusal.value)
    assert "rank 3" in str(refusal.value)


@pytest.mark.parametrize("other", [{"seq": 1}, {"group": "1"}])
def test_a_call_too_many_is_refused(other: dict[str, Any]) -> None:
    with pytest.raises(ReplayMismatch, match="had recorded nothing"):
        Replayer(record_of(call(torch.zeros(2)))).serve(call(torch.zeros(2), **other))


def test_calls_may_complete_in_any_order() -> None:
    recorder = Recorder(rank=0)
    first, second = call(torch.ones(1)), call(torch.zeros(1), seq=1)
    recorder.serve(first), recorder.serve(second)
    recorder.done(second), recorder.done(first)
    record = recorder.finish(3)
    assert record is not None
    assert record.entries["0", 0].outputs[0].item() == 1.0


def test_a_call_under_way_has_no_record_yet() -> None:
    recorder = Recorder(rank=0)
    recorder.serve(call(torch.ones(1)))
    assert recorder.finish(3) is None


def test_the_trace_is_that_of_the_last_step_and_equal_on_both_sides() -> None:
    recorder = Recorder(rank=0)
    step = [call(torch.ones(2), seq=1), call(torch.ones(4), seq=2)]
    for each in (call(torch.ones(9)), *step):
        if each is step[0]:
            recorder.begin_step()
        recorder.serve(each)
        recorder.done(each)
    record = recorder.finish(3)
    assert record is not None
    replayer = Replayer(record)
    replayer.serve(call(torch.ones(9)))
    assert replayer.trace() != record.trace
    replayer.begin_step()
    replayer.serve(step[0]), replayer.serve(step[1])
    assert replayer.trace() == record.trace


def test_a_trace_knows_order_group_and_call_but_no_numbers() -> None:
    def trace(*calls: Call) -> str:
        return trace_of((each.group, what_of(each)) for each in calls)

    a, b = call(torch.ones(1)), call(torch.ones(2))
    assert trace(a, b) == trace(call(torch.ones(1), seq=8), b)
    assert len({trace(), trace(a), trace(a, b), trace(b, a), trace(a, a)}) == 5
    assert trace(a) != trace(call(torch.ones(1), group="1"))
    assert trace_of([("ab", "c")]) != trace_of([("a", "bc")])


def test_a_record_travels_whole() -> None:
    record = record_of(call(NOISE), call(op="barrier", seq=1), call(torch.ones(2), group="tp"))
    back = Record.from_bytes(record.to_bytes())
    assert (back.rank, back.steps, back.trace) == (3, 3, record.trace)
    assert list(back.entries) == [("0", 0), ("0", 1), ("tp", 0)]
    assert describe(back) == describe(record) == {"rank": 3, "calls": 3, "bytes": 48}
    assert back.to_bytes() == record.to_bytes()


@pytest.mark.parametrize("damage", [slice(0, -1), slice(1, None), slice(0, 0)])
def test_a_damaged_record_is_a_protocol_error(damage: slice) -> None:
    with pytest.raises(ProtocolError):
        Record.from_bytes(record_of(call(torch.ones(2))).to_bytes()[damage])


def test_a_collective_inside_the_optimizer_is_refused() -> None:
    recorder = Recorder(rank=0)
    recorder.in_optimizer = True
    with pytest.raises(UserError, match=r"collective of its own \(allreduce\) inside step"):
        recorder.serve(call(torch.ones(1)))
    recorder.in_optimizer = False
    assert recorder.finish(3) is not None


def test_each_rank_has_a_name_of_its_own_in_a_vault() -> None:
    assert len({blob_name(rank) for rank in range(20)}) == 20
