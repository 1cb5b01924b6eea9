"""Samples of the shared state: equal on replicas, and others soon after these have parted."""

import pytest
import torch
from torch import nn

from trainmover.ids import Step
from trainmover.state import staging
from trainmover.state.proof import device_digest, samples
from trainmover.state.proof.samples import Proof, Sample, Samples
from trainmover.state.tracked import Tracked
from trainmover.torch_internals.watching.gradients import watch
from trainmover.worker.keep.rounds import is_compared


class Average:
    """As scripts write it: a dict of tensors, kept in place."""

    def __init__(self, model: nn.Module) -> None:
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}

    def state_dict(self) -> dict[str, object]:
        return {"shadow": self.shadow}

    def load_state_dict(self, state: dict[str, object]) -> None:
        raise NotImplementedError


class Rank:
    """One replica, training on."""

    def __init__(self, lr: float = 0.1) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(8)])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr)
        self.average = Average(self.model)
        self.tracked = Tracked()
        self.tracked.add("model", self.model)
        self.tracked.add("optimizer", self.optimizer)
        self.tracked.add("average", self.average)
        self.samples = Samples(self.tracked)

    def step(self, step: int, *, every: int = 0) -> Sample:
        self.samples.take(Step(step), anew=is_compared(Step(step - 1), every))
        self.optimizer.zero_grad()
        torch.manual_seed(step)
        self.model(torch.randn(4, 64)).square().mean().backward()
        self.optimizer.step()
        assert self.samples.newest is not None
        return self.samples.newest


def parted_by(one: Rank, other: Rank, first: int, last: int) -> int | None:
    """The first gate at which it shows."""
    for step in range(first, last):
        mine, its = one.step(step), other.step(step)
        if mine.parts_from({its.gate: its}):
            return step
    return None


def test_replicas_have_equal_samples_for_ever() -> None:
    assert parted_by(Rank(), Rank(), 1, 60) is None


def test_another_update_shows_at_the_next_gate() -> None:
    one, other = Rank(), Rank()
    assert parted_by(one, other, 1, 14) is None
    other.optimizer.param_groups[0]["lr"] = 0.05
    assert parted_by(one, other, 14, 30) == 15


@pytest.mark.parametrize("what", ["one parameter", "an object of the script's own"])
def test_what_parts_in_one_place_shows_once_that_is_sampled(what: str) -> None:
    one, other = Rank(), Rank()
    assert parted_by(one, other, 1, 12) is None
    with torch.no_grad():
        if what == "one parameter":
            other.model[5].weight.mul_(1.5)
            other.optimizer.state[other.model[5].weight]["exp_avg"].mul_(2)
        else:
            for shadow in other.average.shadow.values():
                shadow.mul_(0.9)
    found = parted_by(one, other, 12, 40)
    assert found is not None


def test_what_is_known_as_a_whole_shows_at_its_gate() -> None:
    one, other = Rank(), Rank()
    one.samples.take(Step(1), anew=True, hashes=[b"bank"])
    other.samples.take(Step(1), anew=True, hashes=[b"another"])
    assert one.samples.hash != other.samples.hash


def test_a_chain_that_began_elsewhere_says_nothing() -> None:
    one, late = Rank(), Rank()
    for step in range(1, 9):
        mine = one.step(step)
    its = late.step(8)
    assert mine.chain != its.chain
    assert not mine.parts_from({its.gate: its})
    assert not mine.parts_from({})


def test_a_joiner_goes_on_with_the_chain_of_its_source() -> None:
    one, other = Rank(), Rank()
    assert parted_by(one, other, 1, 9) is None
    proof = Proof.from_bytes(Proof("d", one.samples.told()).to_bytes())
    assert proof.digest == "d"
    joiner = Samples(other.tracked)
    joiner.go_on_from(proof.samples)
    other.samples = joiner
    assert parted_by(one, other, 9, 20) is None


def test_a_step_that_is_run_again_has_the_same_sample() -> None:
    rank = Rank()
    rank.step(1)
    rank.samples.take(Step(2), anew=False)
    first = rank.samples.newest
    rank.samples.take(Step(2), anew=False)
    assert rank.samples.newest == first


def test_storage_that_is_freed_for_now_is_not_read() -> None:
    rank = Rank()
    for parameter in rank.model.parameters():
        parameter.untyped_storage().resize_(0)
    rank.samples.take(Step(1), anew=False)
    assert rank.samples.newest is not None


def test_other_layouts_give_the_same_elements() -> None:
    one, other = Rank(), Rank()
    for parameter in other.model.parameters():
        if parameter.dim() == 2:
            parameter.data = parameter.data.t().contiguous().t()
            assert not parameter.is_contiguous()
    one.samples.take(Step(1), anew=False)
    other.samples.take(Step(1), anew=False)
    assert one.samples.newest == other.samples.newest


def test_gradients_show_one_gate_before_the_state_does() -> None:
    """Rank 1 applies what no other does; nothing differs yet."""
    ranks = Rank(), Rank()
    hashes = []
    for number, rank in enumerate(ranks):
        rank.step(1)
        for parameter in rank.model.parameters():
            assert parameter.grad is not None
            parameter.grad += number
        rank.samples.take(Step(2), anew=False)
        unaware = rank.samples.hash
        rank.samples.take(Step(2), anew=False, applies=rank.optimizer)
        hashes.append((unaware, rank.samples.hash))
    assert hashes[0][0] == hashes[1][0]
    assert hashes[0][1] != hashes[1][1]
    assert all(0 <= hash_ < 2**63 for pair in hashes for hash_ in pair)


def test_gradients_are_those_of_the_same_parameters_whatever_their_order() -> None:
    ranks = Rank(), Rank()
    ranks[1].optimizer.param_groups[0]["params"].reverse()
    for rank in ranks:
        rank.step(1)
    for step in range(2, 7):
        for rank in ranks:
            rank.samples.take(Step(step), anew=False, applies=rank.optimizer)
        assert ranks[0].samples.newest == ranks[1].samples.newest


def test_a_sample_reads_no_gradient_for_who_is_told_of_reads() -> None:
    ranks = Rank(), Rank()
    for rank in ranks:
        rank.step(1)

    def told() -> None:
        raise AssertionError("the script has read nothing")

    for parameter in ranks[1].model.parameters():
        assert parameter.grad is not None
        watch(parameter.grad, told)
    for rank in ranks:
        rank.samples.take(Step(2), anew=True, applies=rank.optimizer)
    assert ranks[0].samples.hash == ranks[1].samples.hash


def test_an_optimizer_without_gradients_adds_nothing() -> None:
    rank = Rank()
    rank.samples.take(Step(1), anew=True)
    without = rank.samples.hash
    rank.samples.take(Step(1), anew=True, applies=rank.optimizer)
    assert rank.samples.hash == without


@pytest.fixture
def _distant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory of this host passes for a device's."""
    monkeypatch.setattr(device_digest, "lies_elsewhere", lambda tensor: True)


def hash_of(rank: Rank, *, ahead: bool) -> int:
    rank.samples.take(Step(5), anew=True, ahead=ahead)
    return rank.samples.hash


@pytest.mark.usefixtures("_distant")
def test_what_a_device_has_copied_as_the_step_began_is_what_it_holds() -> None:
    early, late = Rank(), Rank()
    for rank in (early, late):
        for step in range(1, 5):
            rank.step(step)
    early.samples.look_ahead(Step(5))
    wanted = hash_of(late, ahead=False)
    with torch.no_grad():
        for parameter in early.model.parameters():
            parameter.data.add_(1.0)  # Without a mark: only what was copied is still the same.
    assert hash_of(early, ahead=True) == wanted
    assert hash_of(early, ahead=True) == wanted, "in the next try too"
    assert hash_of(early, ahead=False) != wanted


@pytest.mark.usefixtures("_distant")
def test_what_was_written_to_since_is_read_again() -> None:
    early, late = Rank(), Rank()
    early.samples.look_ahead(Step(5))
    for rank in (early, late):
        with torch.no_grad():
            for parameter in rank.model.parameters():
                parameter.add_(1.0)
    assert hash_of(early, ahead=True) == hash_of(late, ahead=False)


@pytest.mark.usefixtures("_distant")
def test_a_copy_is_for_its_step_only() -> None:
    early, late = Rank(), Rank()
    early.samples.look_ahead(Step(4))
    assert hash_of(early, ahead=True) == hash_of(late, ahead=False)
    early.samples.look_ahead(Step(5))
    early.samples.forget()
    assert hash_of(early, ahead=True) == hash_of(late, ahead=False)


def test_on_the_host_nothing_is_copied_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "begin_copy", lambda flat: pytest.fail("it was"))
    rank = Rank()
    rank.samples.look_ahead(Step(5))
    assert hash_of(rank, ahead=True) == hash_of(Rank(), ahead=False)


@pytest.mark.parametrize("step", range(1, 12))
def test_what_lies_in_memory_is_read_at_once_as_it_is_piece_by_piece(step: int) -> None:
    """A replica may have the same tensor in another layout."""
    tensors = [torch.randn(100), torch.empty(0), torch.randn(3).half(), torch.randn(7, 9)]
    bent = [*tensors[:3], tensors[3].t().contiguous().t()]
    at_once = b"".join(samples._read(tensors, Step(step)))
    assert at_once == b"".join(one.read() for one in samples._pieces(tensors, Step(step)))
    assert at_once == b"".join(samples._read(bent, Step(step)))
