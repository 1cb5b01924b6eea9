"""Buffers that no record carries: what is made of them on each rank shows in a hash."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.again import Again
from trainmover.state.kinds.modules.buffers import Buffers
from trainmover.state.kinds.modules.large_buffers import LargeBuffers, is_hash
from trainmover.state.proof.fingerprint import fingerprint
from trainmover.state.tracked import Tracked
from trainmover.torch_internals.watching.aliases import aliases

ROWS = 140_000


class Net(nn.Module):
    bank: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("bank", torch.zeros(ROWS, 8))


def large(net: nn.Module) -> LargeBuffers:
    return LargeBuffers(net, Buffers(net))


def _write(net: Net) -> None:
    net.bank[7] = 1


def _write_unseen(net: Net) -> None:
    net.bank.data[7] = 1


def _write_by_numpy(net: Net) -> None:
    net.bank.numpy()[7] = 1


def _replace(net: Net) -> None:
    net.bank = torch.cat([net.bank[1:], torch.ones(1, 8)])


def _shorten(net: Net) -> None:
    net.bank.resize_(ROWS - 1, 8)


def _cut_unseen(net: Net) -> None:
    net.bank.data = net.bank.data[:-1]


CHANGES = [_write, _write_unseen, _write_by_numpy, _replace, _shorten, _cut_unseen]


@pytest.fixture(autouse=True)
def watching() -> Any:
    """What other tests have made says nothing here, though memory is used again."""
    kept = Tensor.data, Tensor.numpy, Tensor.__dlpack__
    aliases.watch()
    aliases.met.clear()
    yield
    aliases.met.clear()
    kind: Any = Tensor
    kind.data, kind.numpy, kind.__dlpack__ = kept


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_shows_and_so_does_the_next(change: Callable[[Net], Any]) -> None:
    net = Net()
    found = large(net)
    before = found.encoded()
    assert found.encoded() is before
    change(net)
    after = found.encoded()
    assert after != before
    assert after == large(net).encoded()
    if change is _write_unseen:
        net.bank.fill_(3)
        filled = found.encoded()
        _write_unseen(net)
        assert found.encoded() != filled


def test_an_alias_that_was_made_before_counts() -> None:
    net = Net()
    array = net.bank.numpy()
    found = large(net)
    before = found.encoded()
    array[3] = 1
    assert found.encoded() != before


def test_what_is_not_written_to_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    found = large(net)
    found.encoded()
    monkeypatch.setattr(
        "trainmover.state.kinds.modules.large_buffers.hashes_of",
        lambda tensors: pytest.fail("read"),
    )
    with torch.no_grad():
        net.norm(torch.randn(8, 4))
    found.encoded()


def test_it_is_the_same_wherever_the_same_is_held() -> None:
    one, other = Net(), Net()
    first, second = large(one), large(other)
    assert first.encoded() == second.encoded()
    _write(one)
    assert first.encoded() != second.encoded()
    _replace(other)
    other.bank = one.bank.clone()
    assert first.encoded() == second.encoded()


def test_small_buffers_are_carried_beside_large_ones() -> None:
    assert Buffers(Net()).names == {
        "norm.running_mean",
        "norm.running_var",
        "norm.num_batches_tracked",
    }


def test_it_goes_with_the_record_and_a_retry_brings_it_back() -> None:
    net = Net()
    tracked = Tracked()
    tracked.add("net", net)
    assert tracked.large_buffers == ["net.large_buffers"]
    assert is_hash("net.large_buffers")
    known = tracked.small_states()["net.large_buffers"]
    before = Again(tracked)
    _write(net)
    assert tracked.small_states()["net.large_buffers"] != known
    assert before.put_back() == ""
    assert tracked.small_states()["net.large_buffers"] == known


def test_a_model_without_large_buffers_has_no_such_state() -> None:
    tracked = Tracked()
    tracked.add("net", nn.BatchNorm1d(4))
    assert tracked.large_buffers == []
    assert "net.large_buffers" not in tracked.small_states()


def test_a_round_names_the_buffer_alone() -> None:
    """Not its hash, which nobody has written."""
    one, other = Tracked(), Tracked()
    nets = Net(), Net()
    one.add("net", nets[0])
    other.add("net", nets[1])
    _write(nets[1])
    mine, its = fingerprint(one), fingerprint(other)
    assert mine.shared != its.shared
    assert mine.rest == its.rest
