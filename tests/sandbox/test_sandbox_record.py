"""What was recorded is served, bit for bit where it is small; what differs is refused."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sandbox_calls import BINDING, call, closed, record_of

from trainmover.comm import Call, ReplayMismatch
from trainmover.errors import ProtocolError
from trainmover.sandbox import layout
from trainmover.sandbox.moments import Moments, moments_of
from trainmover.sandbox.record import Record, blob_name
from trainmover.sandbox.recorder import Recorder
from trainmover.sandbox.replayer import Replayer
from trainmover.sandbox.trace import group_of, trace_of, what_of

NOISE = torch.tensor([0.1, -0.0, 5e-324, float("inf"), float("nan")], dtype=torch.float64)
LARGE = torch.linspace(-1.0, 3.0, 2000)


def travelled(record: Record) -> Record:
    return layout.from_bytes(layout.to_bytes(record))


@pytest.mark.parametrize("way", [lambda record: record, travelled], ids=["here", "travelled"])
def test_small_outputs_are_served_bit_for_bit(way: Any) -> None:
    words = torch.tensor([7], dtype=torch.int64).view(torch.float64)
    record = record_of(call(NOISE), call(words, torch.tensor(True), op="gather", seq=1))
    replayer = Replayer(way(record))
    served = call(torch.zeros(5, dtype=torch.float64))
    assert replayer.serve(served) is True
    assert served.outputs[0].view(torch.int64).equal(NOISE.view(torch.int64))
    others = call(torch.zeros(1, dtype=torch.float64), torch.tensor(False), op="gather", seq=1)
    assert replayer.serve(others)
    assert others.outputs[0].view(torch.int64).item() == 7
    assert others.outputs[1].item() is True
    assert replayer.served == 2


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.uint8, torch.bool, torch.int32], ids=lambda dtype: str(dtype)
)
def test_what_is_not_floating_point_is_kept_whole_whatever_its_size(dtype: torch.dtype) -> None:
    given = torch.arange(40_000).reshape(200, 200).to(dtype)
    served = torch.zeros_like(given).t()  # also where the output is not in one piece
    Replayer(travelled(record_of(call(given.t())))).serve(call(served))
    assert served.equal(given.t())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_large_floating_point_outputs_are_made_up_or_kept_as_asked(dtype: torch.dtype) -> None:
    given = LARGE.to(dtype).repeat(2)
    made_up, whole = torch.zeros(4000, dtype=dtype), torch.zeros(2000)
    Replayer(travelled(record_of(call(given)))).serve(call(made_up))
    assert moments_of(made_up).mean == pytest.approx(moments_of(given).mean, abs=0.1)
    assert not made_up.equal(given)
    Replayer(travelled(record_of(call(LARGE), full=True))).serve(call(whole))
    assert whole.equal(LARGE)


def test_made_up_values_are_the_same_in_every_run_and_leave_the_scripts_rng_alone() -> None:
    replayers = [Replayer(record_of(call(LARGE), call(LARGE, seq=1))) for _ in range(2)]
    before = torch.get_rng_state()
    served = [[call(torch.zeros(2000), seq=seq) for seq in (0, 1)] for _ in replayers]
    for replayer, calls in zip(replayers, served, strict=True):
        assert all(replayer.serve(each) for each in calls)
    assert torch.get_rng_state().equal(before)
    assert served[0][0].outputs[0].equal(served[1][0].outputs[0])
    assert not served[0][0].outputs[0].equal(served[0][1].outputs[0])


@pytest.mark.parametrize("rows", [0, 2, 5, 3000])
@pytest.mark.parametrize("recorded", [0, 3, 3000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_uneven_exchanges_are_served_in_the_size_that_is_asked_for(
    dtype: torch.dtype, recorded: int, rows: int
) -> None:
    """Made-up values are routed elsewhere than the recorded ones were."""
    given = torch.arange(recorded * 2).reshape(recorded, 2).to(dtype)
    output = torch.full((rows, 2), -7).to(dtype)
    record = record_of(call(given, op="alltoall_base"))
    assert Replayer(record).serve(call(output, op="alltoall_base"))
    assert not output.eq(-7).any()
    assert output[: min(rows, 3)].equal(given[:rows]) or recorded != 3


def test_a_record_keeps_what_the_outputs_were_then() -> None:
    output, served = torch.ones(2), torch.zeros(2)
    record = record_of(call(output))
    output.zero_()
    Replayer(record).serve(call(served))
    assert served.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("size", [2, 2000])
def test_a_served_output_may_be_part_of_a_graph(size: int) -> None:
    replayer = Replayer(record_of(call(torch.ones(size))))
    output = torch.zeros(size, requires_grad=True)
    replayer.serve(call(output))
    assert output.tolist() == [1.0] * size


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
        call(torch.zeros(2), reduction="MAX"),
    ],
    ids=["shape", "dtype", "operation", "root", "reduction"],
)
def test_another_call_is_refused_and_both_are_named(other: Call) -> None:
    recorded = call(torch.zeros(2))
    replayer = Replayer(record_of(recorded))
    with pytest.raises(ReplayMismatch) as refusal:
        replayer.serve(other)
    happened, means, do = str(refusal.value).split("\n")
    assert what_of(recorded) in happened
    assert what_of(other) in happened
    assert "rank 3 had recorded" in happened
    assert "the job trains on" in means
    assert "depend on time, chance or data cannot have standbys" in do


@pytest.mark.parametrize("other", [{"seq": 1}, {"number": 1}])
def test_a_call_too_many_is_refused(other: dict[str, Any]) -> None:
    with pytest.raises(ReplayMismatch, match="had recorded no such call"):
        Replayer(record_of(call(torch.zeros(2)))).serve(call(torch.zeros(2), **other))


def test_a_mismatch_that_the_script_swallows_is_still_heard() -> None:
    replayer = Replayer(record_of(call(torch.zeros(2))))
    replayer.check()
    with pytest.raises(ReplayMismatch):
        replayer.serve(call(torch.zeros(2), op="broadcast"))
    with pytest.raises(ReplayMismatch, match="is broadcast of 2 float32"):
        replayer.check()


def test_the_seat_that_a_message_came_from_is_served_too() -> None:
    recorder, asked = Recorder(0, BINDING), call(torch.ones(1), op="recv_anysource")
    recorder.serve(asked)
    recorder.done(asked)
    asked.handle = SimpleNamespace(source_rank=lambda: 2)
    record = closed(recorder, "").finish()
    served = call(torch.zeros(1), op="recv_anysource")
    Replayer(travelled(record)).serve(served)
    assert served.source == 2


def test_calls_may_complete_in_any_order() -> None:
    recorder = Recorder(0, BINDING)
    first, second = call(torch.ones(1)), call(torch.zeros(1), seq=1)
    recorder.serve(first), recorder.serve(second)
    recorder.done(second), recorder.done(first)
    record = closed(recorder, "").finish()
    assert record.own() == record_of(first, second).own()


def test_a_call_that_is_open_at_the_end_may_end_later() -> None:
    recorder, late = Recorder(0, BINDING), call(torch.ones(1))
    recorder.serve(late)
    assert closed(recorder, "").waits
    recorder.done(late)
    assert not recorder.waits
    assert recorder.finish().own() == record_of(late).own()


def test_what_comes_between_a_step_and_the_fetch_is_recorded_and_no_more() -> None:
    recorder, one, between = Recorder(0, BINDING), call(torch.ones(1)), call(torch.ones(2), seq=1)
    recorder.begin_step()
    for each in (one, between):
        recorder.serve(each)
        recorder.done(each)
        if each is one:
            recorder.end_step()
    closed(recorder, "")
    recorder.begin_step()  # The step behind the fetch.
    recorder.serve(call(torch.ones(3), seq=2))
    recorder.done(call(torch.ones(3), seq=2))
    recorder.end_step()
    record = recorder.finish()
    assert list(record.entries) == [(0, 0), (0, 1)]
    assert recorder.step_trace() == trace_of([(group_of(one), what_of(one))])
    replayer = Replayer(travelled(record))
    replayer.begin_step()
    replayer.serve(call(torch.zeros(1)))
    replayer.end_step()
    replayer.serve(call(torch.zeros(2), seq=1))
    assert (replayer.trace(), replayer.step_trace()) == (record.trace, recorder.step_trace())


def test_a_call_between_a_fetch_and_its_step_is_found() -> None:
    recorder = Recorder(0, BINDING)
    recorder.fetches(), recorder.drew()
    recorder.serve(call(torch.ones(1)))  # In an evaluation: no step follows.
    recorder.fetches(), recorder.drew()
    recorder.begin_step()
    recorder.serve(call(torch.ones(1), seq=1))
    assert recorder.early == ""
    recorder.fetches(), recorder.drew()
    recorder.serve(call(torch.ones(1), seq=2))
    recorder.begin_step()
    assert recorder.early.startswith("test_sandbox_record.py line ")


def test_what_is_a_ranks_own_goes_with_the_large_outputs_of_another() -> None:
    """Sizes and small tensors of rank 1, everything large from rank 0."""
    base = record_of(call(torch.tensor([10])), call(LARGE, seq=1), rank=0, full=True)
    record = record_of(call(torch.tensor([11])), call(LARGE + 1, seq=1), rank=1, full=True)
    assert record.kind() == base.kind()
    assert record.own() != base.own()
    stored = travelled(record.without_large(0))
    assert stored.base == 0
    assert len(layout.to_bytes(stored)) < 1500
    whole = Replayer(stored.completed(travelled(base)))
    small, large = call(torch.tensor([0])), call(torch.zeros(2000), seq=1)
    assert whole.serve(small)
    assert whole.serve(large)
    assert small.outputs[0].item() == 11
    assert large.outputs[0].equal(LARGE)
    with pytest.raises(ReplayMismatch):  # alone it does not serve what it has not
        Replayer(stored).serve(call(torch.zeros(2000), seq=1))


def test_a_base_that_has_not_what_is_missing_is_refused() -> None:
    record = record_of(call(LARGE)).without_large(0)
    for base in (record_of(), record_of(call(LARGE, op="broadcast")), record):
        if base is not record:
            with pytest.raises(ProtocolError, match="lacks allreduce of 2000 float32"):
                record.completed(base)


def test_kinds_differ_with_role_and_calls_and_not_with_values() -> None:
    ones, twos = torch.ones(3), torch.full((3,), 2.0)
    one = record_of(call(ones))
    assert one.kind() == record_of(call(twos), rank=1).kind()
    assert one.own() != record_of(call(twos)).own()
    others = [record_of(call(ones), signature="other"), record_of(call(ones), call(ones, seq=1))]
    assert len({each.kind() for each in (one, *others)}) == 3


def test_the_size_of_everything_is_known_although_it_is_not_stored() -> None:
    record = record_of(call(torch.ones(1_000_000)))
    assert 4_000_000 < layout.bytes_full(record) < 4_002_000
    assert len(layout.to_bytes(record)) < 1000
    assert isinstance(record.entries[0, 0].outputs[0].payload, Moments)  # type: ignore[union-attr]


def test_each_rank_has_a_name_of_its_own_in_a_vault() -> None:
    assert len({blob_name(rank) for rank in range(20)}) == 20


def test_a_step_that_is_repeated_is_given_the_same_once_more() -> None:
    given = [torch.full((2,), float(seq)) for seq in range(4)]
    replayer = Replayer(record_of(*(call(one, seq=seq) for seq, one in enumerate(given))))
    served = [torch.zeros(2) for _ in range(6)]
    replayer.begin_step()
    replayer.serve(call(served[0], seq=0))
    replayer.end_step()
    replayer.begin_step()
    replayer.serve(call(served[1], seq=1))
    replayer.serve(call(served[2], seq=2))
    replayer.repeat_step()
    for n in (3, 4, 5):
        replayer.serve(call(served[n], seq=n))
    replayer.end_step()
    assert [int(one[0]) for one in served] == [0, 1, 2, 1, 2, 3]
    assert replayer.served == 4
