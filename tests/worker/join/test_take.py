"""A joiner takes bulk state from several ranks at once, and says what was wrong with them."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
import torch
from torch import nn

from trainmover.errors import PeerLost
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Source, Switch, Warned, WorkerFact
from trainmover.state.encode import encode
from trainmover.state.proof.samples import Proof, Sample
from trainmover.state.tracked import Tracked
from trainmover.state.transfer import Direct, Offered, StateServer
from trainmover.worker.join.early import Early
from trainmover.worker.join.taken import Taken, Unlike, take
from trainmover.worker.step.keeper import Moment, RankRecord

TOKEN = b"t" * 16
RECORD = RankRecord(Step(8), [], Moment(b"", {}))


def tracked(value: float) -> Tracked:
    """32 MB, enough for several sources."""
    made = Tracked()
    made.add("model", nn.ParameterList([nn.Parameter(torch.full((8_000_000,), value))]))
    return made


@pytest.fixture
def servers() -> Iterator[list[StateServer]]:
    """So slow that no source gives all before the others begin."""
    with ExitStack() as stack:
        servers = [StateServer(TOKEN, bytes_s=100e6) for _ in range(3)]
        for server in servers:
            stack.callback(server.close)
        yield servers


def offer(server: StateServer, state: Tracked, samples: dict[int, Sample] | None = None) -> None:
    bulk, tensors = state.bulk_header()
    whole, hashes = state.replica_digest()
    header = {"bulk": bulk, "digest": whole, "record": RECORD.to_bytes()}
    proof = Proof(whole, samples or {}).to_bytes()
    of_each = [hashes[path] for path in state.bulk_paths(bulk)]
    server.offer("2", lambda: Offered(encode(header), tensors, whole, of_each, proof=proof))


def taken_by(
    rank: int,
    servers: list[StateServer],
    into: Tracked,
    *,
    known: RankRecord | None = RECORD,
    early: Early | None = None,
    diverged: bool = False,
) -> tuple[Taken, list[WorkerFact]]:
    """The servers are those of ranks 0, 1, 2."""
    said: list[WorkerFact] = []
    order = Switch(
        epoch=Epoch(2),
        committed=Step(7),
        sources={Rank(rank): [Source(Rank(n), s.address) for n, s in enumerate(servers)]},
        records={},
        buddies={},
        diverged=[Rank(rank)] if diverged else [],
    )
    cancelled = threading.Event()
    taken = take(
        order,
        Rank(rank),
        into,
        token=TOKEN,
        known=known,
        early=early or Early(into, TOKEN),
        direct=Direct(TOKEN, lambda: None),
        cancelled=cancelled,
        say=said.append,
        arrived=True,
    )
    return taken, said


def test_all_ranks_give_and_the_certificate_says_how_much(servers: list[StateServer]) -> None:
    for server in servers:
        offer(server, tracked(1.0))
    joiner = tracked(0.0)
    taken, said = taken_by(3, servers, joiner)
    assert joiner.digest() == tracked(1.0).digest()
    assert taken.source == 0
    assert taken.given.keys() == {0, 1, 2}
    assert sum(taken.given.values()) == taken.bytes == 32_000_000
    assert taken.digest == taken.header["digest"]
    assert [fact for fact in said if isinstance(fact, Warned)] == []


def test_what_came_in_the_same_pause_counts_as_given_though_it_is_taken_twice(
    servers: list[StateServer],
) -> None:
    for server in servers:
        offer(server, tracked(1.0))
    joiner = tracked(0.0)
    early = Early(joiner, TOKEN)
    first, _ = taken_by(3, servers, joiner, early=early)
    again, _ = taken_by(3, servers, joiner, early=early)
    assert (again.bytes, again.given, again.held) == (0, {}, 32_000_000)
    both = again.after(first)
    assert (both.bytes, both.given, both.held) == (32_000_000, first.given, 0)
    assert both.seconds == first.seconds + again.seconds


def test_holders_that_differ_prove_nothing_and_the_joiner_says_what_each_holds(
    servers: list[StateServer],
) -> None:
    for server, value in zip(servers, (1.0, 1.0, 1.5), strict=True):
        offer(server, tracked(value))
    with pytest.raises(Unlike) as found:
        taken_by(3, servers, tracked(0.0))
    good, bad = tracked(1.0).replica_digest().whole, tracked(1.5).replica_digest().whole
    assert found.value.holders == {0: good, 1: good, 2: bad}
    assert found.value.unlike == []


def test_so_it_is_if_there_is_too_little_to_share(servers: list[StateServer]) -> None:
    for server, value in zip(servers, (1.0, 1.0, 1.5), strict=True):
        offer(server, small(value))
    with pytest.raises(Unlike):
        taken_by(3, servers, small(0.0))


def small(value: float) -> Tracked:
    made = Tracked()
    made.add("model", nn.ParameterList([nn.Parameter(torch.full((8,), value))]))
    return made


GATE = Sample(gate=7, since=4, chain=b"a")


@pytest.mark.parametrize(
    ("holds", "unlike"),
    [
        ([GATE, GATE], []),
        ([GATE, GATE._replace(chain=b"b")], [1]),
        ([GATE._replace(chain=b"b", since=6), GATE._replace(chain=b"b", gate=6)], []),
    ],
    ids=["alike", "one is not", "not known"],
)
def test_who_held_something_else_at_the_lost_ranks_gate_is_no_replica(
    servers: list[StateServer], holds: list[Sample], unlike: list[int]
) -> None:
    for server, sample in zip(servers, holds, strict=False):
        offer(server, small(1.0), {sample.gate: sample})
    lost = replace(RECORD, sample=GATE)
    if not unlike:
        taken, _ = taken_by(3, servers[:2], small(0.0), known=lost)
        assert taken.samples == {holds[0].gate: holds[0]}
        return
    with pytest.raises(Unlike) as found:
        taken_by(3, servers[:2], small(0.0), known=lost)
    assert found.value.unlike == unlike
    taken, _ = taken_by(3, servers[:2], small(0.0), known=lost, diverged=True)
    assert taken.source == 0, "what a rank held that had diverged is no measure"


def test_a_leaver_gives_its_own_record_or_the_move_is_off(servers: list[StateServer]) -> None:
    for server in servers:
        offer(server, tracked(1.0))
    taken, _ = taken_by(0, servers, tracked(0.0), known=None)
    assert taken.record == RECORD
    servers[0].close()
    with pytest.raises(PeerLost):
        taken_by(0, servers, tracked(0.0), known=None)
