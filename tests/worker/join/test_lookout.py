"""A standby sees in the rank's records what it could not have."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from torch.utils.data import DataLoader, DistributedSampler, Sampler
from vaults import TOKEN, Buddies

from trainmover.comm.meet.listed import Listed, listed_as_bytes
from trainmover.ids import Rank, Step
from trainmover.protocol.messages import Stored
from trainmover.state.script import handles
from trainmover.state.script.comparison import decoded, path_of
from trainmover.state.script.variables import Variables
from trainmover.state.vault import VaultClient
from trainmover.worker.data.batches import Batches
from trainmover.worker.data.loops import Loops
from trainmover.worker.join.lookout import Foresight, Lookout, Seen
from trainmover.worker.step.keeper import Moment, RankRecord


def record(step: int, positions: list[list[Any]], variables: bytes) -> RankRecord:
    top = Moment(b"", {})
    return RankRecord(Step(step), True, Step(step), positions, top, None, variables=variables)


def place(ordinal: int, taken: int) -> list[Any]:
    return [ordinal, {"pass": 0, "taken": taken}, b"", 0]


@pytest.fixture
def variables() -> Variables:
    return Variables(lambda: [], lambda file: file == __file__)


def in_first_loop() -> tuple[Loops, Batches]:
    loops, batches = Loops(), Batches(range(5), 1)
    loops.begin(batches)
    loops.enter(batches)
    return loops, batches


def moments(variables: Variables) -> Iterator[bytes]:
    """Captures of a loop that keeps a count."""
    count, batches = 0, iter(variables.capture, None)
    while True:
        yield next(batches)
        count += 1


class Peers:
    """A handle."""

    def __init__(self, name: str) -> None:
        self.name = name


def makes_peers(variables: Variables) -> Iterator[bytes]:
    """Captures of a loop that keeps what it has made."""
    peers: Peers | None = None
    batches = iter(variables.capture, None)
    while True:
        yield next(batches)
        peers = Peers("0,1#1" if peers is None else "0,1#2")


@pytest.mark.parametrize("ordinal", [0, 2])
def test_groups_that_a_joiner_is_given_are_no_reason_to_refuse(
    variables: Variables, ordinal: int
) -> None:
    """Neither where it stands in the rank's loop, nor if it sees the rank in another one."""
    handles.learn(Peers, lambda peers: (peers.name, "some peers"))
    loops, batches = in_first_loop()
    loop = makes_peers(variables)
    own, later, newest = next(loop), next(loop), next(loop)
    had = listed_as_bytes([Listed((0, 1), 60.0, "train.py line 7")] * 3)
    seen = replace(record(3, [place(ordinal, 3)], later), groups=had)
    foresight = Foresight(variables, loops, lambda: own)
    assert foresight.differences(Seen([seen])) == []
    assert foresight.differences(Seen([replace(seen, variables=newest)])) == []
    unlisted = replace(seen, variables=later, groups=b"")
    [found] = foresight.differences(Seen([unlisted]))
    assert (found.name, found.theirs) == ("peers", "some peers")
    assert batches is not None


def test_a_record_of_the_loop_where_the_run_stands_is_compared_with_it(
    variables: Variables,
) -> None:
    loops, batches = in_first_loop()
    loop = moments(variables)
    own, later = next(loop), next(loop)
    foresight = Foresight(variables, loops, lambda: own)
    assert foresight.differences(Seen([record(3, [place(0, 3)], own)])) == []
    [found] = foresight.differences(Seen([record(4, [place(0, 4)], later)]))
    assert (found.name, found.theirs, found.own) == ("count", "1", "0")
    assert batches is not None


def in_the_loop(variables: Variables, by: str = "lines between") -> tuple[Any, ...]:
    """A run that stands in the rank's loop, the key of what changes there, and captures of five
    rounds. by: what stores to it"""
    known: Any = variables
    loops, batches = in_first_loop()
    loop = moments(variables)
    rounds = next(loop), next(loop), next(loop), next(loop), next(loop)
    [key] = [key for key in decoded(rounds[0]).found if path_of(key) == "count"]
    known.could_be_put = lambda own, theirs: {key} if by == "lines between" else set()
    return Foresight(variables, loops, lambda: rounds[0]), rounds, batches


def seen_at(rounds: Sequence[bytes], rank: Sequence[int], other: Sequence[int]) -> Seen:
    """Records of steps; of the other rank those of rounds, from the one of step 1 on."""
    others = [record(step, [place(0, step)], rounds[at]) for step, at in enumerate(other, 1)]
    return Seen([record(at, [place(0, at)], rounds[at]) for at in rank], others)


def test_what_lines_between_steps_store_to_in_the_loop_where_the_run_stands_is_put(
    variables: Variables,
) -> None:
    """Once it has been seen to change on the rank and on another it is known for good."""
    foresight, rounds, _ = in_the_loop(variables)
    assert foresight.differences(seen_at(rounds, [2], [2])) == []
    assert foresight.differences(seen_at(rounds, [3, 4], [3, 4])) == []
    held = [record(5, [place(0, 5)], rounds[4]), record(6, [place(0, 6)], rounds[4])]
    assert foresight.differences(Seen(held)) == []


@pytest.mark.parametrize(
    ("by", "other", "asked"),
    [
        ("lines between", [1, 1], False),  # Of rank 0 alone, say: a source could not tell of it.
        ("step", [1, 2], False),
        ("lines between", [1, 2], True),
    ],
)
def test_what_a_source_could_not_tell_of_is_not(
    variables: Variables, by: str, other: Sequence[int], asked: bool
) -> None:
    foresight, rounds, _ = in_the_loop(variables, by)
    [found] = foresight.differences(seen_at(rounds, [1, 2], other), asked=asked)
    assert (found.name, found.theirs, found.own) == ("count", "2", "0")


def test_one_that_was_not_seen_to_change_may_be_the_machines_own(variables: Variables) -> None:
    foresight, rounds, _ = in_the_loop(variables)
    held = [record(at, [place(0, at)], rounds[2]) for at in (3, 4)]
    [found] = foresight.differences(Seen(held, held))
    assert (found.name, found.theirs) == ("count", "2")


class Counting(Sampler[int]):
    """Of the script's own, and seeds each pass by its number."""

    def __init__(self) -> None:
        self.passes = 0
        self.seed = 0

    def __len__(self) -> int:
        return 5

    def __iter__(self) -> Iterator[int]:
        self.passes += 1
        return iter(range(self.passes + self.seed, self.passes + self.seed + 5))


def in_many_passes(
    variables: Variables, loops: Loops, sampler: Any, between: Any
) -> Iterator[bytes]:
    """Captures of one loop over a loader whose length it asks."""
    loader = DataLoader(range(40), sampler=sampler)
    loops.begin(batches := Batches(loader, 3))
    loops.enter(batches)
    captures = iter(variables.capture, None)
    while len(loader):
        yield next(captures)
        between()


@pytest.mark.parametrize("under_way", [True, False])
@pytest.mark.parametrize("kind", [DistributedSampler, Counting])
def test_what_samplers_count_goes_with_the_place_in_their_loop(kind: type, under_way: bool) -> None:
    """So a standby stands where it can go on from, though the rank is passes further. Of any other
    sampler of the script's own nothing puts it."""
    loops = Loops()
    variables = Variables(
        lambda: [],
        lambda file: file == __file__,
        samplers=loops.samplers if under_way else tuple,
    )
    sampler: Any = kind(range(40), 2, 0) if kind is DistributedSampler else kind()

    def next_pass() -> None:
        list(sampler) if kind is Counting else sampler.set_epoch(sampler.epoch + 1)

    loop = in_many_passes(variables, loops, sampler, next_pass)
    own, later = next(loop), next(loop)
    foresight = Foresight(variables, loops, lambda: own)
    found = foresight.differences(Seen([record(7, [place(0, 7)], later)]))
    assert bool(found) is (kind is Counting and not under_way)


def test_what_the_script_stores_in_its_sampler_itself_is_seen() -> None:
    loops, sampler = Loops(), Counting()
    variables = Variables(lambda: [], lambda file: file == __file__, samplers=loops.samplers)

    def stores() -> None:
        sampler.seed += 1

    loop = in_many_passes(variables, loops, sampler, stores)
    own, later = next(loop), next(loop)
    foresight = Foresight(variables, loops, lambda: own)
    found = foresight.differences(Seen([record(7, [place(0, 7)], later)]))
    assert ("sampler.seed", "1", "0") in [(one.name, one.theirs, one.own) for one in found]


def test_two_records_of_one_pass_show_what_changes(variables: Variables) -> None:
    loops, batches = in_first_loop()
    loop = moments(variables)
    own, one, other = next(loop), next(loop), next(loop)
    foresight = Foresight(variables, loops, lambda: own)
    assert foresight.differences(Seen([record(30, [place(2, 3)], one)])) == []
    [found] = foresight.differences(Seen([record(31, [place(2, 4)], other)]))
    assert found.name == "count"
    assert foresight.differences(Seen([record(41, [place(3, 0)], one)])) == []
    assert batches is not None


@pytest.mark.parametrize("by", ["step", "lines between"])
def test_two_records_of_one_look_show_what_steps_store_to(variables: Variables, by: str) -> None:
    def could_be_put(own: bytes, theirs: bytes) -> set[str]:
        found = decoded(own).found
        return {key for key in found if by != "step" and path_of(key) == "count"}

    known: Any = variables
    known.could_be_put = could_be_put
    loops, batches = in_first_loop()
    loop = moments(variables)
    own, one, other = next(loop), next(loop), next(loop)
    foresight = Foresight(variables, loops, lambda: own)
    both = [record(30, [place(2, 3)], one), record(31, [place(2, 4)], other)]
    assert [found.name for found in foresight.differences(Seen(both))] == ["count"][by != "step" :]
    in_the_next_pass = [record(40, [place(2, 4)], one), record(41, [place(3, 0)], other)]
    assert foresight.differences(Seen(in_the_next_pass)) == []
    assert foresight.differences(Seen([])) == []
    assert batches is not None


@pytest.mark.parametrize("course", [7, 8, None])
def test_what_steps_store_to_on_each_rank_for_itself_is_seen(
    variables: Variables, course: int | None
) -> None:
    """Though the newest steps have not changed it, and another one has the same now."""
    loops, batches = in_first_loop()
    loop = moments(variables)
    next(loop)
    now = next(loop)
    [key] = [key for key in decoded(now).found if path_of(key) == "count"]
    one = replace(record(30, [place(2, 3)], now), courses={key: 7, "meter": 1})
    other = replace(one, courses={"meter": 2} | ({key: course} if course else {}))
    foresight = Foresight(variables, loops, lambda: now)
    found = foresight.differences(Seen([one], [other]))
    assert [difference.name for difference in found] == ["count"][course == 7 :]
    assert foresight.differences(Seen([one], [replace(other, top_step=Step(29))])) == []
    assert batches is not None


def test_where_both_tell_of_one_fetch_it_looks_again_soon(buddies: Buddies) -> None:
    _, vault = buddies.make()
    client = VaultClient(vault.address, TOKEN)
    at_fetch = record(4, [place(0, 4)], b"v")
    client.put_record(2, 4, True, at_fetch.to_bytes())
    client.put_record(2, 5, False, replace(at_fetch, step=Step(5), complete=False).to_bytes())
    changed = threading.Condition()
    lookout = Lookout(Rank(2), {Rank(2): [Stored(Rank(2), [vault.address])]}, TOKEN, changed)
    threading.Timer(
        0.1, client.put_record, (2, 5, True, record(5, [place(0, 5)], b"w").to_bytes())
    ).start()
    lookout.begin()
    assert [one.variables for one in lookout.take().records] == [b"v", b"w"]
    lookout.end()
    client.close()


def test_the_newest_records_of_any_vault_are_seen(buddies: Buddies) -> None:
    _, first = buddies.make()
    _, second = buddies.make()
    _, gone = buddies.make()
    buddies.loop.call_soon_threadsafe(gone.close)
    for server, step in ((first, 3), (first, 4), (second, 4), (second, 5)):
        client = VaultClient(server.address, TOKEN)
        client.put_record(2, step, True, record(step, [place(0, step)], b"v").to_bytes())
        client.close()
    vaults = [server.address for server in (gone, first, second)]
    changed = threading.Condition()
    lookout = Lookout(Rank(2), {Rank(2): [Stored(Rank(2), vaults)]}, TOKEN, changed)
    lookout.begin()
    with changed:
        assert changed.wait_for(lambda: lookout.has_seen, 30)
    seen = lookout.take()
    lookout.end()
    assert [(one.step, one.variables) for one in seen.records] == [(4, b"v"), (5, b"v")]
    assert lookout.take() == Seen()
