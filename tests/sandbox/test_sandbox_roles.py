"""Ranks of one role are told by what they call and track, and only a few of them store records."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sandbox_calls import call, closed, record_of
from torch import nn

from trainmover.comm import Call
from trainmover.sandbox.recorder import Recorder
from trainmover.sandbox.replayer import Replayer
from trainmover.sandbox.sharing import Share, Stores, share_of
from trainmover.sandbox.trace import group_of, trace_of, what_of
from trainmover.state.tracked import Tracked

ONE, TWO = torch.ones(1), torch.ones(2)


def trace(*calls: Call) -> str:
    return trace_of((group_of(each), what_of(each)) for each in calls)


def test_a_call_is_told_in_words() -> None:
    words = what_of(call(torch.ones(2, 3), ONE, ONE, torch.tensor(1), op="broadcast", root=2))
    assert words == "broadcast of 2x3 float32 + 2 * 1 float32 + scalar int64, root 2, SUM"
    assert what_of(call(op="barrier", reduction=None)) == "barrier of nothing"


def test_a_trace_knows_order_group_and_call_but_no_numbers_and_names() -> None:
    a, b = call(ONE), call(TWO)
    assert trace(a, b) == trace(call(ONE, seq=8), b)
    assert trace(a) == trace(call(ONE, seat=3))
    assert len({trace(), trace(a), trace(a, b), trace(b, a), trace(a, a)}) == 5
    assert len({trace(a), trace(call(ONE, number=1)), trace(call(ONE, size=2))}) == 3
    assert trace_of([("ab", "c")]) != trace_of([("a", "bc")])


def test_the_order_counts_within_a_group_only() -> None:
    """Two groups may be used from two threads."""
    a, b, other = call(ONE), call(TWO), call(ONE, number=1)
    assert trace(a, b, other) == trace(other, a, b) == trace(a, other, b)
    assert trace(a, b, other) != trace(b, a, other)


def test_middle_stages_of_a_pipeline_call_the_same() -> None:
    def stage(seat: int) -> list[Call]:
        sends = call(TWO, op="send", seat=seat, size=4, root=seat + 1, reduction=None)
        receives = call(TWO, op="recv", seat=seat, size=4, root=seat - 1, reduction=None, seq=1)
        return [sends, receives]

    assert trace(*stage(1)) == trace(*stage(2))
    backwards = call(TWO, op="send", seat=1, size=4, root=0, reduction=None)
    assert trace(stage(1)[0]) != trace(backwards)
    assert record_of(*stage(1)).kind() == record_of(*stage(2)).kind()


def test_the_load_of_experts_makes_no_roles() -> None:
    light, heavy = (call(torch.ones(n, 8), op="alltoall_base") for n in (3, 30))
    assert trace(light) == trace(heavy)
    assert trace(light) != trace(call(torch.ones(3, 4), op="alltoall_base"))
    assert record_of(light).kind() == record_of(heavy).kind()


def test_the_trace_is_that_of_the_last_step_and_equal_on_both_sides() -> None:
    recorder = Recorder(0, record_of().binding)
    step = [call(torch.ones(2), seq=1), call(torch.ones(4), seq=2)]
    for each in (call(torch.ones(9)), *step):
        if each is step[0]:
            recorder.begin_step()
        recorder.serve(each)
        recorder.done(each)
    record = closed(recorder, "").finish()
    replayer = Replayer(record)
    replayer.serve(call(torch.ones(9)))
    assert replayer.trace() != record.trace
    replayer.begin_step()
    replayer.serve(step[0]), replayer.serve(step[1])
    assert replayer.trace() == record.trace


@pytest.mark.parametrize(
    ("kinds", "owns", "nproc", "shares"),
    [
        ("aaaa", "xxyx", 1, "W0 W1 S0 N0"),
        ("aaaa", "xxyx", 2, "W0 N0 W2 N0"),
        ("aaaa", "xxxy", 4, "W0 N0 N0 S0"),
        ("abba", "xyzx", 1, "W0 W1 W2 W3"),
        ("abcabc", "xyzxyz", 2, "W0 W1 W2 W3 W4 W5"),
        ("a", "x", 1, "W0"),
    ],
)
def test_a_kind_is_stored_whole_by_two_on_different_machines(
    kinds: str, owns: str, nproc: int, shares: str
) -> None:
    k, o = [each.encode() for each in kinds], [each.encode() for each in owns]
    found = [share_of(rank, k, o, nproc) for rank in range(len(k))]
    assert " ".join(f"{s.stores.name[0]}{s.base}" for s in found) == shares


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy")), min_size=1), st.data())
def test_whatever_a_rank_does_not_store_lies_elsewhere(
    ranks: list[tuple[str, str]], data: st.DataObject
) -> None:
    nproc = data.draw(st.sampled_from([n for n in (1, 2, 4) if len(ranks) % n == 0]))
    kinds, owns = [k.encode() for k, _ in ranks], [o.encode() for _, o in ranks]
    for rank in range(len(ranks)):
        stores, base = share_of(rank, kinds, owns, nproc)
        assert kinds[base] == kinds[rank]
        assert share_of(base, kinds, owns, nproc) == Share(Stores.WHOLE, base)
        assert stores is not Stores.NOTHING or owns[base] == owns[rank]
        whole = {
            other // nproc
            for other, kind in enumerate(kinds)
            if kind == kinds[rank] and share_of(other, kinds, owns, nproc).stores is Stores.WHOLE
        }
        machines = {o // nproc for o, kind in enumerate(kinds) if kind == kinds[rank]}
        assert len(whole) == min(2, len(machines))


class Stage(nn.Module):
    """What is left of a model in a stage: layers keep their numbers."""

    def __init__(self, *numbers: int, width: int = 4, head: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({str(n): nn.Linear(width, width) for n in numbers})
        if head:
            self.head = nn.Linear(width, 2)


def signature(model: nn.Module, *, steps: int = 1, lr: float = 0.1) -> str:
    tracked = Tracked()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    tracked.add("model", model)
    tracked.add("optimizer", optimizer)
    for _ in range(steps):
        sum(p.sum() for p in model.parameters()).backward()  # type: ignore[union-attr]
        optimizer.step()
    return tracked.signature()


def test_a_signature_knows_names_shapes_and_dtypes_but_no_values() -> None:
    stage = signature(Stage(2, 3))
    assert stage == signature(Stage(2, 3), steps=4, lr=0.3) == signature(Stage(6, 9))
    others = [Stage(2), Stage(2, 3, width=5), Stage(2, 3, head=True), Stage(2, 3).double()]
    assert len({stage, *(signature(other) for other in others)}) == 5
    assert stage != signature(Stage(2, 3), steps=0)
