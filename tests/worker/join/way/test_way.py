"""From the fetch where a joiner parks to the point where its rank stood."""

import math
import subprocess
import sys
from typing import Any

import pytest
import torch

from trainmover.errors import StateMismatch
from trainmover.ids import Rank, Step
from trainmover.worker.join.way.way import Way, made_up
from trainmover.worker.step.keeper import Moment, RankRecord

HERE, EARLIER = [30, 4], [12, 4]


def way(*ordinals: int) -> Way:
    positions: list[list[Any]] = [[ordinal, {}, b"", 0, [], HERE] for ordinal in ordinals]
    return Way(Rank(1), RankRecord(Step(6), positions, Moment(b"", {})))


def test_a_rank_that_stood_at_this_very_fetch_is_there() -> None:
    assert not way(0).leads_on_from([0], [], HERE)
    assert way(1).leads_on_from([0], [], HERE)
    assert way(0, 0).leads_on_from([0], [], HERE)


def test_loops_that_are_over_end_and_those_the_rank_was_in_are_resumed() -> None:
    path = way(1, 2)
    assert [path.resumes([0]), path.resumes([0, 0]), path.resumes([1])] == [False, False, True]
    path.reached = 1
    assert [path.resumes([1, 0]), path.resumes([1, 2])] == [False, True]
    path.reached = 2
    assert not path.in_loops


def test_the_loop_that_fetches_must_be_the_rank_s() -> None:
    path = way(1, 2)
    path.record.member, path.record.beside = [0], [[[0], {}]]
    assert path.leads_on_from([1, 2], [0], HERE)
    assert [path.fetched_elsewhere([]), path.fetched_elsewhere([0])] == [False, True]
    path.reached = 1
    assert [path.fetched_elsewhere([]), path.fetched_elsewhere([0])] == [True, False]
    assert [path.draws_from([0]), path.draws_from([3])] == [True, False]


def test_a_loop_beside_that_the_rank_had_begun_anew_ends_here_first() -> None:
    path = way(1)
    path.record.positions[0][1] = {"drawn": 12, "before": 0}
    path.record.member, path.record.beside = [0], [[[0], {"drawn": 1, "before": 1}]]
    assert [path.was_begun_anew([0], 0), path.was_begun_anew([0], 1)] == [True, False]
    assert not path.was_begun_anew([1], 0)


def at(*rounds: tuple[int, int]) -> list[list[Any]]:
    """Before a fetch: of each loop the ordinal, and the batches that it has given."""
    return [[ordinal, {"drawn": drawn}, b"", 5, [], HERE] for ordinal, drawn in rounds]


def test_a_rank_at_another_member_s_fetch_is_elsewhere() -> None:
    path = way(1)
    path.record.member = [0]
    assert not path.leads_on_from([1], [0], HERE)
    assert path.leads_on_from([1], [], HERE)


def test_a_loop_is_resumed_in_the_line_where_its_rank_had_fetched() -> None:
    path = way(0)
    path.record.positions = at((0, 2))
    assert not path.leads_on_from([0], [], HERE)
    assert path.leads_on_from([0], [], EARLIER)
    assert [path.is_before_line(EARLIER, passed) for passed in range(3)] == [True, True, False]
    assert not path.is_before_line(HERE)
    assert path.calls_at_line() == 5


def test_one_whose_rank_has_not_fetched_is_resumed_where_it_begins() -> None:
    path = way(0)
    path.record.positions = at((0, 0))
    assert not path.is_before_line(EARLIER)


def test_a_script_that_passes_by_its_loop_is_refused() -> None:
    path = way(1, 2)
    with pytest.raises(StateMismatch, match="rank 1"):
        path.resumes([2])
    path.reached = 1
    with pytest.raises(StateMismatch):
        path.resumes([1])


def test_a_round_that_is_passed_by_gives_what_is_compared() -> None:
    assert made_up(None, 0.5) is None
    assert made_up(torch.empty(1, device="meta"), 0.5).tolist() == [0.5]
    assert made_up(3.0, 0.5) == 0.5
    loss, parts = made_up((torch.ones(2), {"right": 3, "share": 0.5}), 0.5)
    assert loss.isnan().all()
    assert parts["right"] == 3
    assert math.isnan(parts["share"])


PASSES_BY = """
import torch, torch.distributed as dist
from trainmover.comm import groups, hook_torch
from trainmover.errors import StateMismatch
from trainmover.worker.join.way.way import Silence

class Answers(Silence):
    def serve(self, call):  # As a record does: rank 0 has sent both.
        if call.op == "broadcast" and call.outputs[0].dtype == torch.long:
            call.outputs[0].copy_(torch.tensor([len(one) for one in SENT]))
        elif call.op == "broadcast":
            call.outputs[0].copy_(torch.frombuffer(bytearray(b"".join(SENT)), dtype=torch.uint8))
        return True

import pickle
SENT = [pickle.dumps({"a": 1}), pickle.dumps("word")]
hook_torch(groups)
groups.rendezvous_store = dist.HashStore
groups.sandbox()
groups.tap = Answers()
dist.init_process_group("gloo", rank=1, world_size=3)

def broadcast():
    word = [None, None]
    dist.broadcast_object_list(word)
    return word

assert broadcast() == [{"a": 1}, "word"]
groups.tap = Silence()
groups.roster.travel()
assert broadcast() == broadcast() == [{"a": 1}, "word"]
found = [None] * 3
dist.all_gather_object(found, {"rank": 1})
assert found == [{"rank": 1}] * 3
out = [torch.zeros(2) for _ in range(3)]
dist.all_gather(out, torch.ones(2))
assert torch.stack(out).sum() == 6
try:
    dist.broadcast_object_list([None])
except StateMismatch as error:
    assert "Nobody keeps the object" in str(error) and "line" in str(error), error
else:
    raise AssertionError("no object is known here")
"""


def test_an_object_that_was_sent_long_ago_is_one_of_its_kind() -> None:
    done = subprocess.run([sys.executable, "-c", PASSES_BY], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
