"""From the fetch where a joiner parks to the point where its rank stood."""

import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from trainmover.errors import StateMismatch
from trainmover.ids import Rank, Step
from trainmover.protocol.messages import Row
from trainmover.worker.data.batch_hash import BatchHash
from trainmover.worker.data.batches import Batches
from trainmover.worker.join.unknown import UnknownNumber, UnknownTensor
from trainmover.worker.join.way.way import Way, like, made_up
from trainmover.worker.step.keeper import Moment, RankRecord, row_bytes, row_of
from trainmover.worker.step.results.given import Given, packed

HERE, EARLIER = [30, 4], [12, 4]


def way(*ordinals: int, now: dict[str, bytes] | None = None) -> Way:
    positions: list[list[Any]] = [[ordinal, {}, b"", 0, [], HERE] for ordinal in ordinals]
    gate = None if now is None else Moment(b"", now)
    rows = [row_bytes(Row(step=Step(5), at_us=1, values={"loss": 0.5}))]
    record = RankRecord(Step(6), False, Step(5), positions, Moment(b"", {}), gate, rows)
    return Way(Rank(1), record, Step(5))


def test_a_rank_that_stood_at_this_very_fetch_is_there() -> None:
    assert not way(0).leads_on_from([0], [], HERE)
    assert way(1).leads_on_from([0], [], HERE)
    assert way(0, 0).leads_on_from([0], [], HERE)
    assert way(0, now={}).leads_on_from([0], [], HERE)


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


def onward(*ordinals: int, top_step: int = 6, reserve: int = 0) -> Way:
    """Of a rank that was lost behind the gate of step 5, in loop 1."""
    record = way(1, now={}).record
    before = [[ordinal, {}, b"", 5, [15, 4, 3], HERE] for ordinal in ordinals]
    source = RankRecord(
        Step(6), False, Step(top_step), before, Moment(b"", {}), None, reserve=reserve
    )
    path = Way(Rank(1), record, Step(5), source)
    path.reached = 1
    return path


def at(*rounds: tuple[int, int]) -> list[list[Any]]:
    """Before a fetch: of each loop the ordinal, and the batches that it has given."""
    return [[ordinal, {"drawn": drawn}, b"", 5, [], HERE] for ordinal, drawn in rounds]


def test_behind_a_loop_that_its_source_has_left_the_way_goes_on() -> None:
    path = onward(4)
    further = [path.ends_further(at((number, 0)), []) for number in (1, 2, 3, 4)]
    assert further == [True] * 3 + [False]
    assert path.ends_further(at((4, 0)), [0])


def test_loops_of_two_rounds_of_the_one_around_them_are_two() -> None:
    rank = RankRecord(Step(6), False, Step(5), at((0, 2), (0, 12)), Moment(b"", {}), None)
    source = RankRecord(Step(6), True, Step(6), at((0, 3), (0, 0)), Moment(b"", {}), None)
    path = Way(Rank(1), rank, Step(5), source)
    assert path.leads_on_from([0, 0], [], HERE)
    places = [at((0, 2), (0, 13)), at((0, 3)), at((0, 3), (0, 0))]
    assert [path.ends_further(place, []) for place in places] == [True, True, False]
    source.positions = at((0, 2), (0, 13))  # At the fetch that ends the loop.
    assert Way(Rank(1), rank, Step(5), source).onward is None


def test_a_rank_that_had_come_to_the_end_of_its_loop_has_stood_before_its_source_or_behind_it() -> (
    None
):
    """complete: lost in the lines behind the loop, or in the next one."""
    end, further = at((0, 15)), at((1, 0))
    told = RankRecord(Step(6), True, Step(6), end, Moment(b"", {}), None)
    source = RankRecord(Step(6), True, Step(6), further, Moment(b"", {}), None)
    path = Way(Rank(1), told, Step(5), source)
    assert path.leads_on_from([0], [], HERE)
    assert [path.ends_further(end, []), path.ends_further(further, [])] == [True, False]
    assert Way(Rank(1), source, Step(5), told).onward is None


@pytest.mark.parametrize(
    "path",
    [onward(1), onward(0), onward(4, top_step=5), onward(4, reserve=1)],
    ids=["the same loop", "an earlier one", "has not fetched yet", "in reserve"],
)
def test_else_it_ends_where_the_rank_fetches_next(path: Way) -> None:
    assert path.onward is None
    assert not path.ends_further(at((1, 0)), [])


def test_a_rank_at_another_member_s_fetch_is_elsewhere() -> None:
    path = way(1)
    path.record.member = [0]
    assert not path.leads_on_from([1], [0], HERE)
    assert path.leads_on_from([1], [], HERE)


def test_between_steps_kept_values_are_what_they_were_at_the_last_gate() -> None:
    top, now = (
        Moment(b"", {"kept": b"0", "other": b"0"}),
        Moment(b"", {"kept": b"3", "other": b"1"}),
    )
    given = [Given(Step(5), {}, b"", {"kept": b"1"}), Given(Step(6), {})]
    record = RankRecord(Step(8), False, Step(5), [], top, now, given=given)
    behind = [Way(Rank(1), record, Step(7)).small_behind(Step(step)) for step in (5, 6, 7)]
    assert behind == [{"kept": b"1", "other": b"0"}, {}, now.small]
    record.given = []
    assert Way(Rank(1), record, Step(7)).small_behind(Step(5)) == now.small


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


def test_a_step_that_is_passed_over_gives_what_it_reported() -> None:
    (name,) = row_of(way(0).record.rows[0]).values
    number = torch.empty(1, dtype=torch.float64, device="meta")
    given = way(0).given(Step(5), number, [name])
    assert (given.tolist(), given.dtype) == ([0.5], torch.float64)
    assert way(0).given(Step(5), 0.25, [name]) == 0.5
    for step, names in ((5, ["another"]), (5, []), (4, [name])):
        assert isinstance(way(0).given(Step(step), number, names), UnknownTensor)


def test_a_step_that_is_passed_over_gives_what_its_record_has_of_it() -> None:
    record = way(0).record
    record.given = [
        Given(Step(3), {"loss": 0.125}),
        Given(Step(4), {"loss": 0.75}, packed({"error": 0.25})),
    ]
    path = Way(Rank(1), record, Step(5))
    assert path.given(Step(3), 0.5, ["loss"]) == 0.125
    assert path.given(Step(4), None, []) == {"error": 0.25}


def test_replicas_take_what_became_of_the_source_s_since_the_gate() -> None:
    own = {"scheduler": b"old", "sampler": b"own", "new": b"own"}
    source = {
        "behind": ["scheduler"],
        "unproved": [],
        "proved": [],
        "parted": False,
        "between": [],
        "courses": {5: {}},
        "return_small": {},
        "drew_behind": False,
        "gate_small": {"scheduler": b"at gate", "sampler": b"other"},
        "small": {"scheduler": b"after", "sampler": b"other"},
    }
    gate = {"scheduler": b"at gate", "sampler": b"mine"}
    assert way(0).small_on_arrival(own, source) == own
    arrived = way(0, now=gate).small_on_arrival(own, source)
    assert arrived == {"scheduler": b"after", "sampler": b"own", "new": b"own"}


@pytest.mark.parametrize("returned", [False, True])
def test_large_buffers_that_the_source_holds_otherwise_are_not_taken(returned: bool) -> None:
    """No record has them: they came from the source."""
    name = "model.large_buffers"
    source: dict[str, Any] = {
        "behind": [],
        "unproved": [],
        "proved": [],
        "parted": False,
        "between": [],
        "courses": {},
        "drew_behind": False,
        "gate_small": {name: b"as returned" if returned else b"theirs"},
        "return_small": {name: b"theirs"},
        "small": {name: b"theirs"},
    }
    alike, other = way(0, now={name: b"theirs"}), way(0, now={name: b"the rank's"})
    for one in (alike, other):
        one.record.returned = returned
    assert alike.small_on_arrival({name: b""}, source).keys() == {name}
    with pytest.raises(StateMismatch, match="large buffers in `model`"):
        other.small_on_arrival({name: b""}, source)
    at_fetch = way(0)
    at_fetch.record.top.small[name] = b"the rank's"
    with pytest.raises(StateMismatch, match="large buffers in `model`"):
        at_fetch.small_on_arrival({name: b""}, source)


def test_lines_behind_the_last_step_read_what_that_makes_behind_its_gate() -> None:
    """Of what was the source's at the gate; a record from the return has it itself."""
    gate = {"rates": b"1", "mode": b"train", "meter": b"own", "loss": b"2"}
    source = {
        "gate_small": gate | {"meter": b"the source's"},
        "return_small": {"rates": b"2", "mode": b"eval", "meter": b"reset", "loss": b"9"},
        "behind": ["rates", "mode", "meter"],
        "moved": ["average.mean"],
    }
    for returned in (False, True):
        path = way(0, now=gate)
        path.record.returned = returned
        path.learn_behind(source)
        behind = gate if returned else gate | {"rates": b"2", "mode": b"eval"}
        assert path.small_behind(Step(5)) == behind
        assert path.small_behind(Step(4)) == {}
        assert path.moved == ["average.mean"]


@pytest.mark.parametrize("theirs", [{5: {"meter": 9}}, {5: {"meter": 7}, 4: {"meter": 9}}, {}])
def test_what_is_reset_on_all_ranks_is_each_rank_s_own_if_it_has_parted_before(
    theirs: dict[int, dict[str, int]],
) -> None:
    """As a meter of losses is, behind the first step of a pass."""
    gate = {"meter": b"nothing yet"}
    source = {
        "behind": [],
        "unproved": [],
        "proved": [],
        "parted": False,
        "between": ["meter"],
        "courses": theirs,
        "return_small": gate,
        "drew_behind": False,
        "gate_small": gate,
        "small": {"meter": b"the source's loss"},
    }
    record = way(0, now=gate)
    record.record.courses = {"meter": 9}
    arrived = record.small_on_arrival({"meter": b"the rank's loss"}, source)
    alike = theirs == {5: {"meter": 9}}
    assert arrived == {"meter": b"the source's loss" if alike else b"the rank's loss"}


def test_what_was_made_with_random_numbers_between_the_steps_is_the_rank_s_own() -> None:
    gate = {"gradients": b"none", "scheduler": b"at gate"}
    source = {
        "behind": ["scheduler"],
        "unproved": [],
        "proved": [],
        "parted": False,
        "between": [],
        "courses": {5: {}},
        "return_small": {},
        "drew_behind": False,
        "gate_small": gate,
        "small": {"gradients": b"the source's", "scheduler": b"after"},
    }
    own = {"gradients": b"made here", "scheduler": b"old"}
    arrived = way(0, now=gate).small_on_arrival(own, source, drew=True)
    assert arrived == {"gradients": b"made here", "scheduler": b"after"}


@pytest.mark.parametrize(
    ("mine", "theirs", "between", "arrives"),
    [
        (b"alike", b"alike", [], b"alike"),
        (b"mine", b"theirs", ["beta"], b"theirs"),
        (b"mine", b"theirs", [], None),
        (b"mine", b"then", ["beta"], None),
        (b"then", b"theirs", [], None),
        (b"then", b"then", [], b"then"),
    ],
)
def test_what_lines_behind_the_step_make_for_the_first_time_may_be_each_rank_s_own(
    mine: bytes, theirs: bytes, between: list[str], arrives: bytes | None
) -> None:
    """Where they always change it alike it may be made of variables that are gone."""
    gate = {"beta": b"then"}
    source = {
        "behind": [],
        "unproved": [],
        "proved": [],
        "parted": False,
        "between": between,
        "courses": {5: {}},
        "drew_behind": False,
        "gate_small": gate,
        "return_small": gate,
        "small": {"beta": theirs},
    }
    path = way(0, now=gate)
    path.loaded = dict(gate)
    if arrives is None:
        with pytest.raises(StateMismatch, match="`beta`"):
            path.small_on_arrival({"beta": mine}, source)
    else:
        assert path.small_on_arrival({"beta": mine}, source) == {"beta": arrives}
    if theirs == b"then" or between:  # What it is here, where nothing was answered, says nothing.
        assert path.small_on_arrival({"beta": mine}, source, asked=True) == {"beta": theirs}
    elif mine != theirs:
        with pytest.raises(StateMismatch, match="`beta`"):
            path.small_on_arrival({"beta": mine}, source, asked=True)
    assert path.small_on_arrival({"beta": mine}, source, drew=True) == {"beta": mine}


def test_random_numbers_that_were_drawn_behind_the_gate_are_gone_with_the_rank() -> None:
    source = {"behind": [], "drew_behind": True, "gate_small": {}, "small": {}}
    with pytest.raises(StateMismatch, match="random numbers"):
        way(0, now={}).small_on_arrival({}, source)


def test_what_each_rank_has_changed_behind_the_gate_for_itself_is_refused() -> None:
    source = {
        "behind": ["sampler"],
        "unproved": [],
        "proved": [],
        "parted": False,
        "between": [],
        "courses": {5: {}},
        "return_small": {},
        "drew_behind": False,
        "gate_small": {"sampler": b"other"},
        "small": {},
    }
    with pytest.raises(StateMismatch, match="`sampler`"):
        way(0, now={"sampler": b"mine"}).small_on_arrival({"sampler": b"own"}, source)


def test_what_changed_there_for_the_first_time_is_refused_unless_the_step_had_returned() -> None:
    gate = {"average": b"at gate"}
    source = {
        "behind": ["average"],
        "unproved": ["average"],
        "proved": [],
        "parted": False,
        "between": [],
        "courses": {5: {}},
        "drew_behind": True,
        "gate_small": gate,
        "return_small": {"average": b"returned"},
        "small": {"average": b"the source's"},
    }
    path = way(0, now={"average": b"mine"})
    path.record.returned = True
    assert path.small_on_arrival({"average": b"mine"}, source) == {"average": b"mine"}
    path = way(0, now={"average": b"returned"})
    path.record.returned = True
    assert path.small_on_arrival({"average": b"old"}, source) == {"average": b"the source's"}
    with pytest.raises(StateMismatch, match="`average`"):
        way(0, now=gate).small_on_arrival(gate, source | {"drew_behind": False})


def test_what_the_rank_alone_has_changed_there_before_is_refused() -> None:
    gate = {"best": b"mine"}
    source = {
        "behind": [],
        "unproved": [],
        "proved": [],
        "parted": False,
        "between": [],
        "courses": {5: {}},
        "return_small": {},
        "drew_behind": False,
        "gate_small": gate,
        "small": gate,
    }
    path = way(0, now=gate)
    assert path.small_on_arrival(gate, source) == gate
    path.record.unproved = ["best"]
    with pytest.raises(StateMismatch, match="`best`"):
        path.small_on_arrival(gate, source)
    assert path.small_on_arrival(gate, source | {"proved": ["best"]}) == gate


def test_where_ranks_had_parted_in_the_step_before_none_is_replaced_in_this_one() -> None:
    gate = {"best": b"mine"}
    source = {
        "behind": [],
        "unproved": [],
        "proved": ["best"],
        "parted": True,
        "between": [],
        "courses": {5: {}},
        "return_small": {},
        "drew_behind": False,
        "gate_small": gate,
        "small": gate,
    }
    with pytest.raises(StateMismatch, match="in its own way"):
        way(0, now=gate).small_on_arrival(gate, source)


def drawn_again(numbers: list[int], *, found: list[int], step: int = 5) -> None:
    """On the way of a rank that drew `numbers` for step 5, these are `found` for `step`."""
    hashes = [BatchHash(number).pair for number in numbers]
    record = RankRecord(Step(6), False, Step(5), [], Moment(b"", {}), None, drawn=hashes)
    way, batches = Way(Rank(3), record, Step(5)), Batches(found, 1)
    batches.watch(lambda: 0)
    for _ in batches:
        way.check(batches, Step(step))
    way.check_all_drawn()


def test_a_batch_that_is_drawn_again_is_the_one_that_the_rank_had() -> None:
    drawn_again([4, 5], found=[4, 5])
    drawn_again([], found=[9])
    drawn_again([], found=[9], step=6)
    with pytest.raises(StateMismatch, match="For step 5 rank 3 had another batch"):
        drawn_again([4, 5], found=[4, 6])


def test_a_step_has_as_many_batches_as_it_had_on_the_rank() -> None:
    with pytest.raises(StateMismatch, match="For step 5 rank 3 had drawn fewer batches"):
        drawn_again([4, 5], found=[4, 5, 6])
    with pytest.raises(StateMismatch, match="For step 5 rank 3 had drawn more batches"):
        drawn_again([4, 5], found=[4])


def test_each_fetch_of_a_reserve_has_the_random_numbers_that_it_had() -> None:
    record = RankRecord(
        Step(8), True, Step(5), [], Moment(b"", {}), None, reserve=2, between=[b"6", b"7"]
    )
    way = Way(Rank(0), record, Step(7))
    seen = []
    for _ in range(3):
        seen += [way.rng_at_fetch(), way.rng_at_fetch()]
        way.passes_over()
    assert seen == [None, None, b"6", None, b"7", None]


def test_a_step_that_is_passed_over_gives_something_of_its_kind() -> None:
    assert like(None, None) is None
    assert like(3.0, 0.5) == 0.5
    assert like(torch.empty(1, device="meta"), 0.5).tolist() == [0.5]
    loss, parts = like((torch.ones(2), {"right": 3, "share": 0.5}), None)
    assert loss.shape == (2,)
    assert {*map(type, parts.values())} == {UnknownNumber}
    assert f"{parts['share']:.3f} {loss[0].item():.2f}" == "nan nan"
    for follows in USES:
        with pytest.raises(StateMismatch, match="goes on with a value"):
            follows(loss, parts["right"])


USES: list[Callable[[Any, Any], object]] = [
    lambda loss, right: right + 1,
    lambda loss, right: sum([right]),
    lambda loss, right: min(1.0, right),
    lambda loss, right: right > 0.5,
    lambda loss, right: bool(right),
    lambda loss, right: float(right),
    lambda loss, right: math.exp(right),
    lambda loss, right: math.isfinite(right),
    lambda loss, right: right in {1, 2},
    lambda loss, right: [1, 2][right],
    lambda loss, right: torch.ones(2) * right,
    lambda loss, right: torch.ones(2).add_(right),
    lambda loss, right: 0.9 * loss.mean().item(),
    lambda loss, right: loss * 2,
    lambda loss, right: torch.ones(2).add_(loss),
    lambda loss, right: torch.zeros(2).copy_(loss),
    lambda loss, right: torch.zeros(2).__setitem__(0, loss[0]),
    lambda loss, right: torch.stack([loss, loss]),
    lambda loss, right: loss < 1,
    lambda loss, right: bool(loss.sum()),
    lambda loss, right: loss.tolist(),
    lambda loss, right: float(loss.sum()),
    lambda loss, right: loss.numpy(),
]


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
