"""What nobody writes to is taken before the pause; in it only what differs is sent."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

from trainmover.errors import PeerLost
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Source, Switch
from trainmover.state.encode import encode
from trainmover.state.proof.samples import Proof
from trainmover.state.tracked import Tracked
from trainmover.state.transfer import Direct, Offered, StateServer
from trainmover.worker.join import early
from trainmover.worker.join.early import KEY, Early, EarlySource
from trainmover.worker.join.taken import Taken, take
from trainmover.worker.step.keeper import Moment, RankRecord

TOKEN = b"t" * 16
RECORD = RankRecord(Step(8), [], Moment(b"", {}))
FROZEN, TRAINED = 900_000, 100_000
"""In elements of 4 bytes: of such that some chunks of 1 MiB would have both."""


class Keeps:
    """Hands out copies of its tensor, as some averages of weights do."""

    def __init__(self) -> None:
        self.value = torch.ones(50_000)

    def state_dict(self) -> dict[str, Tensor]:
        return {"value": self.value.clone()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.value.copy_(state["value"])


class Rank0:
    """A rank with a large frozen part and a small one that it trains."""

    def __init__(self, value: float) -> None:
        body, head = nn.Linear(9, FROZEN // 9, bias=False), nn.Linear(1, TRAINED, bias=False)
        self.model = nn.Sequential(body, head).requires_grad_(False)
        head.requires_grad_(True)
        self.optimizer = torch.optim.SGD(head.parameters(), lr=0.1, momentum=0.9)
        self.keeps = Keeps()
        self.steps = 0
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.fill_(value)
        self.tracked = Tracked()
        self.tracked.add("model", self.model)
        self.tracked.add("optimizer", self.optimizer)
        self.tracked.add("keeps", self.keeps)

    @property
    def frozen(self) -> Tensor:
        return self.model[0].weight

    def step(self) -> None:
        head = self.model[1].weight
        self.steps += 1  # Each gradient is another: equal ones bring the momentum to a stand.
        head.grad = torch.full_like(head, self.steps % 7)
        self.optimizer.step()


@pytest.fixture
def server() -> Iterator[StateServer]:
    server = StateServer(TOKEN)
    yield server
    server.close()


@pytest.fixture
def source() -> Rank0:
    source = Rank0(1.0)
    source.step()
    return source


@pytest.fixture
def joiner() -> Rank0:
    joiner = Rank0(0.5)
    joiner.step()
    return joiner


def fetch_until(
    source: Rank0, looks: EarlySource, done: Callable[[], bool], every: int = 1
) -> None:
    """Its loop: it fetches, and makes an update at every so many."""
    fetches = 0
    while not done():
        looks.look()
        fetches += 1
        if fetches % every == 0:
            source.step()


def taken_early(server: StateServer, source: Rank0, joiner: Rank0, *, every: int = 1) -> Early:
    looks, taking = EarlySource(source.tracked, lambda: None), Early(joiner.tracked, TOKEN)
    server.offer(KEY, looks.offered, anew=True)
    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(taking.take, server.address)
        fetch_until(source, looks, taken.done, every)
        taken.result()
    return taking


def take_rest(server: StateServer, source: Rank0, joiner: Rank0, taking: Early) -> Taken:
    """As at the boundary."""
    bulk, tensors = source.tracked.bulk_header()
    digest, hashes = source.tracked.replica_digest()
    header = encode({"bulk": bulk, "digest": digest, "record": RECORD.to_bytes()})
    proof = Proof(digest, {}).to_bytes()
    of_each = [hashes[path] for path in source.tracked.bulk_paths(bulk)]
    server.offer("2", lambda: Offered(header, tensors, digest, of_each, proof=proof))
    order = Switch(
        epoch=Epoch(2),
        committed=Step(7),
        sources={Rank(0): [Source(Rank(0), server.address)]},
        records={},
        buddies={},
    )
    taken = take(
        order,
        Rank(0),
        joiner.tracked,
        token=TOKEN,
        known=RECORD,
        early=taking,
        direct=Direct(TOKEN, lambda: None),
        cancelled=threading.Event(),
        say=lambda fact: None,
        arrived=True,
    )
    assert taken.digest == taken.header["digest"] == joiner.tracked.replica_digest().whole
    assert joiner.tracked.digest() == source.tracked.digest()
    return taken


@pytest.mark.parametrize("every", [1, 3])
def test_what_is_frozen_is_not_sent_again(
    server: StateServer, source: Rank0, joiner: Rank0, every: int
) -> None:
    taking = taken_early(server, source, joiner, every=every)
    assert torch.equal(joiner.frozen, source.frozen)
    source.step()
    taken = take_rest(server, source, joiner, taking)
    assert taken.held == 4 * FROZEN
    assert taken.bytes == 4 * (2 * TRAINED + 50_000)


def test_without_any_all_is_sent(server: StateServer, source: Rank0, joiner: Rank0) -> None:
    taken = take_rest(server, source, joiner, Early(joiner.tracked, TOKEN))
    assert (taken.held, taken.bytes) == (0, 4 * (FROZEN + 2 * TRAINED + 50_000))


@pytest.mark.parametrize("who", ["source", "joiner"])
def test_what_has_changed_since_is_sent_again(
    server: StateServer, source: Rank0, joiner: Rank0, who: str
) -> None:
    taking = taken_early(server, source, joiner)
    changed = source if who == "source" else joiner
    changed.frozen.data[7, 3] += 1.0  # torch's counter of versions does not see it
    taken = take_rest(server, source, joiner, taking)
    assert taken.held == 0


def test_what_has_come_need_not_come_again(
    server: StateServer, source: Rank0, joiner: Rank0
) -> None:
    """A joiner whose rank stands elsewhere takes the state twice."""
    taking = Early(joiner.tracked, TOKEN)
    assert take_rest(server, source, joiner, taking).held == 0
    taken = take_rest(server, source, joiner, taking)
    assert (taken.held, taken.bytes) == (4 * (FROZEN + 2 * TRAINED), 4 * 50_000)


def test_a_job_without_updates_is_not_looked_at_for_ever(
    server: StateServer, source: Rank0, joiner: Rank0
) -> None:
    taking = taken_early(server, source, joiner, every=10**9)
    assert take_rest(server, source, joiner, taking).bytes == 4 * 50_000


def test_tensors_that_the_joiner_lacks_come_in_the_pause(
    server: StateServer, source: Rank0, joiner: Rank0
) -> None:
    source.optimizer.add_param_group({"params": [source.frozen]})
    source.frozen.requires_grad_(True).grad = torch.zeros_like(source.frozen)
    source.optimizer.step()
    source.frozen.grad = None
    joiner.optimizer.add_param_group({"params": [joiner.frozen]})
    taking = taken_early(server, source, joiner)
    taken = take_rest(server, source, joiner, taking)
    assert taken.held == 4 * FROZEN
    assert taken.bytes == 4 * (FROZEN + 2 * TRAINED + 50_000)


def test_nobody_waits_for_a_rank_whose_script_is_over(
    server: StateServer, source: Rank0, joiner: Rank0
) -> None:
    looks = EarlySource(source.tracked, lambda: None)
    looks.end()
    server.offer(KEY, looks.offered, anew=True)
    Early(joiner.tracked, TOKEN).take(server.address)
    assert float(joiner.frozen.max()) == 0.5


@pytest.mark.parametrize(("spared", "waits"), [(0, False), (-1, True)])
def test_where_all_state_is_small_nobody_waits_for_two_steps(
    server: StateServer, source: Rank0, joiner: Rank0, spared: int, waits: bool
) -> None:
    looks = EarlySource(source.tracked, lambda: early.SMALL_BYTES - spared)
    server.offer(KEY, looks.offered, anew=True)
    taking = Early(joiner.tracked, TOKEN)
    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(taking.take, server.address)
        if waits:
            fetch_until(source, looks, taken.done)
        taken.result(30)
    assert float(joiner.frozen.max()) == (1.0 if waits else 0.5)


def test_a_rank_that_makes_no_step_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, server: StateServer, source: Rank0, joiner: Rank0
) -> None:
    monkeypatch.setattr(early, "PATIENCE_S", 0.1)
    server.offer(KEY, EarlySource(source.tracked, lambda: None).offered, anew=True)
    Early(joiner.tracked, TOKEN).take(server.address)
    server.withdraw(KEY)
    with pytest.raises(PeerLost):
        Early(joiner.tracked, TOKEN).take(server.address)


def test_to_hash_waits_until_nothing_is_written_any_more(
    server: StateServer, source: Rank0, joiner: Rank0
) -> None:
    """A move that is overtaken while the joiner waits for an offer."""
    looks, taking = EarlySource(source.tracked, lambda: None), Early(joiner.tracked, TOKEN)
    server.offer(KEY, looks.offered, anew=True)
    with ThreadPoolExecutor(2) as pool:
        taken = pool.submit(taking.take, server.address)
        taking.hash(pool)
        assert taken.result(30) is None
        assert taking.hashes([], []) == []
        taking.take(server.address)  # refused: it would write where the state is loaded
        looks.end()


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (700,), (40, 50), (3, 4, 5)])
def test_any_update_is_seen_in_a_few_elements(shape: tuple[int, ...]) -> None:
    tensor = torch.ones(shape).transpose(0, -1) if len(shape) > 1 else torch.ones(shape)
    before = early._sample(tensor)
    assert torch.equal(early._sample(tensor), before)
    tensor.data.add_(1.0)
    assert torch.equal(early._sample(tensor), before) == (not tensor.numel())
