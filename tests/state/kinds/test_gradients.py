"""Which gradients between two steps are state, and that they come back as they were."""

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainmover.errors import StateMismatch
from trainmover.state import encode
from trainmover.state.kinds import gradients
from trainmover.state.kinds.gradients import FIRST_WATCHED, WATCHED_EACH, Gradients
from trainmover.state.tracked import Tracked
from trainmover.torch_internals.watching.gradients import plain


def backward(model: nn.Module) -> None:
    model(torch.ones(1, 2)).sum().backward()


def one_of(model: nn.Module) -> Gradients:
    return Gradients(model.parameters(), lambda: {id(p) for p in model.parameters()})


def micro_step(model: nn.Module, state: Gradients) -> None:
    """Accumulates; the gate is at its return."""
    state.begin_step()
    backward(model)
    state.at_gate()


def update_step(model: nn.Module, state: Gradients, *, to_none: bool = True) -> None:
    state.begin_step()
    backward(model)
    state.at_gate()
    state.spend(model.parameters())
    model.zero_grad(set_to_none=to_none)
    state.end_step()


def moved(state: dict[str, Any]) -> dict[str, Any]:
    """As another process gets it."""
    result: dict[str, Any] = encode.decode(encode.encode(state))
    return result


def grads(model: nn.Module) -> list[Tensor | None]:
    return [parameter.grad for parameter in model.parameters()]


def test_without_gradients_there_is_no_state() -> None:
    model = nn.Linear(2, 1)
    state = one_of(model)
    for _ in range(3):
        update_step(model, state)
        assert state.state_dict() == {}
        assert state.kept_bytes == 0


def test_what_the_next_step_adds_to_is_put_back_bit_for_bit() -> None:
    model = nn.Linear(2, 1)
    state = one_of(model)
    micro_step(model, state)
    kept = moved(state.state_dict())
    state.begin_step()
    backward(model)
    state.at_gate()
    first = [grad.clone() for grad in grads(model) if grad is not None]
    assert state.put_back() == ""
    assert moved(state.state_dict())["values"].keys() == kept["values"].keys()
    state.begin_again()
    backward(model)
    assert all(torch.equal(a, b) for a, b in zip(first, grads(model), strict=True))  # type: ignore[arg-type]
    assert state.kept_bytes == 3 * 4


def test_parts_of_one_tensor_stay_its_parts() -> None:
    """As where an optimizer updates all parameters as one."""
    model = nn.Linear(2, 1)
    state, whole = one_of(model), torch.zeros(3)
    model.weight.grad, model.bias.grad = whole[:2].view(1, 2), whole[2:]
    micro_step(model, state)
    sent, expected = moved(state.state_dict()), whole.clone()
    micro_step(model, state)
    assert state.put_back() == ""
    assert torch.equal(whole, expected)
    backward(model)
    state.load_state_dict(sent)
    assert torch.equal(whole, expected)
    assert model.bias.grad.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()


def test_they_travel_to_another_process() -> None:
    source, joiner = nn.Linear(2, 1), nn.Linear(2, 1)
    state, there = one_of(source), one_of(joiner)
    micro_step(source, state)
    micro_step(source, state)
    there.load_state_dict(moved(state.state_dict()))
    assert [g.tolist() for g in grads(joiner)] == [g.tolist() for g in grads(source)]  # type: ignore[union-attr]
    there.load_state_dict({})
    assert grads(joiner) == [None, None]
    assert there.kept_bytes == 0


def test_after_an_update_only_their_presence_counts() -> None:
    """zero_grad(set_to_none=False): an optimizer does not pass over a parameter with zeros."""
    model = nn.Linear(2, 1)
    state = one_of(model)
    update_step(model, state, to_none=False)
    kept = moved(state.state_dict())
    assert kept["values"] == {}
    backward(model)
    state.load_state_dict(kept)
    assert [g.tolist() for g in grads(model)] == [[[0.0, 0.0]], [0.0]]  # type: ignore[union-attr]


def test_what_every_step_clears_first_is_not_kept() -> None:
    """As the second half of a GAN leaves gradients on the first."""
    model = nn.Linear(2, 1)
    state = one_of(model)
    micro_step(model, state)
    state.begin_step()
    model.zero_grad()
    backward(model)
    state.at_gate()
    assert state.state_dict()["values"] == {}
    assert state.kept_bytes == 0


def test_a_step_that_adds_to_what_was_not_kept_cannot_be_run_again() -> None:
    model = nn.Linear(2, 1)
    state = one_of(model)
    micro_step(model, state)
    state.begin_step()
    model.zero_grad()
    backward(model)
    state.at_gate()
    micro_step(model, state)
    assert "for the first time" in state.put_back()
    micro_step(model, state)
    assert state.put_back() == ""


def test_gradients_that_nobody_clears_are_state_though_they_are_consumed() -> None:
    source, joiner = nn.Linear(2, 1), nn.Linear(2, 1)
    state, there = one_of(source), one_of(joiner)
    for _ in range(2):
        state.begin_step()
        backward(source)
        state.at_gate()
        state.spend(source.parameters())
        state.end_step()
    assert [grad.tolist() for grad in grads(source)] == [[[2.0, 2.0]], [2.0]]  # type: ignore[union-attr]
    there.load_state_dict(moved(state.state_dict()))
    assert [grad.tolist() for grad in grads(joiner)] == [[[2.0, 2.0]], [2.0]]  # type: ignore[union-attr]


def test_an_evaluation_between_tells_nothing() -> None:
    """It leaves what lies there, and the next step clears it."""
    model = nn.Linear(2, 1)
    state = one_of(model)
    for _ in range(3):
        state.begin_step()
        model.zero_grad()
        backward(model)
        state.at_gate()
        state.spend(model.parameters())
        state.end_step()
        state.begin_step()
        model(torch.ones(1, 2))
        state.at_gate()
        state.end_step()
    assert not state.accumulate
    assert state.state_dict()["values"] == {}


def test_a_gradient_that_is_added_to_and_then_replaced_was_read() -> None:
    """DDP puts a view of a bucket in its place."""
    model = nn.Linear(2, 1)
    state = one_of(model)
    micro_step(model, state)
    state.begin_step()
    backward(model)
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.grad = parameter.grad.clone()
    state.at_gate()
    assert state.accumulate


def test_who_made_up_zeros_refuses_to_add_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "BYTES_MAX", 8)
    source, joiner = nn.Linear(2, 1), nn.Linear(2, 1)
    state, there = one_of(source), one_of(joiner)
    micro_step(source, state)  # Not known yet to be added to, and too large to go on suspicion.
    there.load_state_dict(moved(state.state_dict()))
    there.begin_step()
    backward(joiner)
    with pytest.raises(StateMismatch, match="was not given"):
        there.at_gate()
    there.load_state_dict(moved(state.state_dict()))
    there.begin_step()
    joiner.zero_grad()
    backward(joiner)
    there.at_gate()


@pytest.mark.parametrize("to_none", [False, True])
def test_at_the_gate_of_an_update_it_is_known_what_will_be_left(*, to_none: bool) -> None:
    """Ranks whose own parameters had no gradient this time must not differ there for ever."""
    model = nn.Linear(2, 1)
    state = one_of(model)
    update_step(model, state, to_none=to_none)
    state.begin_step()
    backward(model)
    state.spend(model.parameters())
    at_gate = moved(state.state_dict())
    model.zero_grad(set_to_none=to_none)
    state.end_step()
    assert moved(state.state_dict()) == at_gate


def test_zeros_are_nothing_to_add_to() -> None:
    model = nn.Linear(2, 1)
    state = one_of(model)
    micro_step(model, state)
    model.zero_grad(set_to_none=False)
    micro_step(model, state)
    assert not state.accumulate
    micro_step(model, state)
    assert state.accumulate


def test_what_was_taken_over_is_given_on() -> None:
    """To the record of the very next step, whatever the process had updated before."""
    source, joiner = nn.Linear(2, 1), nn.Linear(2, 1)
    state, there = one_of(source), one_of(joiner)
    micro_step(source, state)
    there.spend(joiner.parameters())
    there.load_state_dict(moved(state.state_dict()))
    assert moved(there.state_dict())["values"].keys() == {0, 1}


def test_those_that_no_optimizer_consumes_do_not_count() -> None:
    model = nn.Linear(2, 1)
    state = Gradients(model.parameters(), set)
    micro_step(model, state)
    micro_step(model, state)
    assert state.state_dict()["values"] == {}


def test_more_than_a_record_carries_is_bulk_state(monkeypatch: pytest.MonkeyPatch) -> None:
    source, joiner = nn.Linear(2, 1), nn.Linear(2, 1)
    state, there = one_of(source), one_of(joiner)
    monkeypatch.setattr(gradients, "BYTES_MAX", 8)
    micro_step(source, state)
    assert state.large.state_dict() == {}  # Not known yet to be added to.
    micro_step(source, state)
    kept = moved(state.state_dict())
    assert (kept["values"], kept["large"]) == ({}, True)
    there.large.load_state_dict(state.large.state_dict())
    there.load_state_dict(kept)
    assert [grad.tolist() for grad in grads(joiner)] == [[[2.0, 2.0]], [2.0]]  # type: ignore[union-attr]
    there.begin_step()
    backward(joiner)
    there.at_gate()


def with_large_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[nn.Module, nn.Module, Gradients, Gradients]:
    """A rank whose two steps have added to more than a record carries, and a joiner; and theirs."""
    source, joiner = nn.Linear(2, 1), nn.Linear(2, 1)
    state, there = one_of(source), one_of(joiner)
    monkeypatch.setattr(gradients, "BYTES_MAX", 8)
    micro_step(source, state)
    micro_step(source, state)
    return source, joiner, state, there


def test_large_ones_that_come_behind_a_record_without_them_are_read_like_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A joiner takes the record of the fetch, that of the gate, and then what bulk state holds."""
    source, joiner, state, there = with_large_ones(monkeypatch)
    kept = moved(state.state_dict())
    there.load_state_dict(moved(state.state_dict()) | {"lies": bytes(2), "large": False})
    there.load_state_dict(kept)
    with pytest.raises(StateMismatch):
        sum(grad.sum() for grad in grads(joiner) if grad is not None)
    for mine, theirs in zip(grads(joiner), grads(source), strict=True):
        assert mine is not None
        assert theirs is not None
        plain(mine).numpy()[...] = theirs.numpy()  # No version tells: bytes from a link.
    there.load_state_dict(kept)
    assert [grad.tolist() for grad in grads(joiner)] == [[[2.0, 2.0]], [2.0]]  # type: ignore[union-attr]


def test_an_update_of_a_joiner_s_shadow_run_has_consumed_nothing_of_what_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, joiner, state, there = with_large_ones(monkeypatch)
    backward(joiner)
    there.spend(joiner.parameters())  # No gate follows there, and no end of a step.
    there.large.load_state_dict(state.large.state_dict())
    assert there.large.state_dict().keys() == state.large.state_dict().keys() == {"0", "1"}


def test_an_aborted_update_leaves_what_it_found_though_it_clears_at_its_end() -> None:
    """Its gate is at its return; what it clears there was looked at before."""
    model = nn.Linear(2, 1)
    state = one_of(model)
    for _ in range(2):
        state.begin_step()
        model.zero_grad()
        backward(model)
        state.at_gate()
        state.end_step()
    lying = [grad.data_ptr() for grad in grads(model) if grad is not None]
    state.begin_step()
    model(torch.ones(1, 2))  # An evaluation that is aborted at its gate: nothing was touched.
    state.at_gate()
    assert state.put_back() == ""
    assert [grad.data_ptr() for grad in grads(model) if grad is not None] == lying
    state.begin_again()
    state.at_gate()
    model.zero_grad()
    assert state.put_back() == ""
    assert not any(plain(grad).any() for grad in grads(model) if grad is not None)
    with pytest.raises(StateMismatch, match="reads gradients that an earlier step has left"):
        grads(model)[0].norm()  # type: ignore[union-attr]
    model.zero_grad(set_to_none=False)
    assert [grad.tolist() for grad in grads(model)] == [[[0.0, 0.0]], [0.0]]  # type: ignore[union-attr]


READS: dict[str, Callable[[Any], object]] = {
    "norm": lambda grad: grad.norm(),
    "data": lambda grad: grad.data.norm(),
    "detached": lambda grad: grad.detach().sum(),
    "foreach": lambda grad: torch._foreach_norm([grad]),
    "stacked": lambda grad: torch.stack([grad, grad]),
    "clipped": lambda grad: grad.mul_(0.5),
    "number": lambda grad: grad[0, 0].item(),
    "numpy": lambda grad: grad.numpy(),
    "copy": copy.deepcopy,
    "shown": repr,
    "part": lambda grad: grad[0] + 1,
    "given": lambda grad: torch.add(torch.ones(1, 2), other=grad),
}
ASKS: dict[str, Callable[[Any], object]] = {
    "shape": lambda grad: (grad.shape, grad.size(0), grad.dtype, grad.device, grad.is_sparse),
    "graph": lambda grad: (grad.grad_fn, grad.requires_grad, grad.is_leaf),
    "version": lambda grad: grad._version,
    "none": lambda grad: grad is None,
    "cleared": lambda grad: grad.zero_(),
    "cleared data": lambda grad: grad.data.zero_(),
    "all cleared": lambda grad: torch._foreach_zero_([grad]),
    "let go": lambda grad: grad.detach_().zero_(),
}


def left_by_a_step() -> tuple[nn.Module, Gradients]:
    model = nn.Linear(2, 1)
    state = one_of(model)
    micro_step(model, state)
    state.end_step()
    return model, state


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_gradients_that_are_read_before_they_are_cleared_count(read: Callable[[Any], Any]) -> None:
    model, state = left_by_a_step()
    state.begin_step()
    read(grads(model)[0])
    model.zero_grad()
    backward(model)
    state.at_gate()
    state.end_step()
    assert state.accumulate
    assert type(grads(model)[0]) is Tensor
    assert state.state_dict()["added_to"] == [0]


@pytest.mark.parametrize("asks", ASKS.values(), ids=ASKS)
def test_who_asks_for_their_form_has_not_read_them(asks: Callable[[Any], Any]) -> None:
    model, state = left_by_a_step()
    state.begin_step()
    asks(grads(model)[0])
    model.zero_grad()
    backward(model)
    grads(model)[0].norm()  # type: ignore[union-attr]  # Of this step.
    assert not state.accumulate


def test_what_is_read_behind_the_step_counts_too_and_what_is_saved_is_a_tensor() -> None:
    model, state = left_by_a_step()
    file = io.BytesIO()
    torch.save(grads(model)[0], file)
    assert type(torch.load(io.BytesIO(file.getvalue()), weights_only=True)) is Tensor
    assert state.state_dict()["added_to"] == [0]
    assert not repr(grads(model)[1]).startswith("Watched")


def test_we_read_them_unseen() -> None:
    model, state = left_by_a_step()
    state.begin_step()
    assert len(state.state_dict()["values"]) == 2
    assert state.put_back() == ""
    assert not state.accumulate
    assert len(grads(model)) == 2


def test_what_is_first_read_long_after_the_first_steps_is_seen_now_and_then() -> None:
    model, state = left_by_a_step()
    found = []
    for number in range(2 * WATCHED_EACH):
        state.begin_step()
        if number > FIRST_WATCHED:
            grads(model)[0].norm()  # type: ignore[union-attr]
        model.zero_grad()
        backward(model)
        state.at_gate()
        state.end_step()
        found.append(state.accumulate)
    assert found.index(True) < WATCHED_EACH + 2


@pytest.mark.parametrize("clears", [True, False])
def test_who_has_just_taken_a_rank_says_what_an_update_leaves_as_the_rank_did(
    clears: bool,
) -> None:
    """At the gate of its very first update here: a record from there may be all that is left."""
    model, other = nn.Linear(2, 1), nn.Linear(2, 1)
    state, taken = one_of(model), one_of(other)

    def update(model: nn.Module, state: Gradients) -> dict[str, Any]:
        state.begin_step()
        backward(model)
        state.at_gate()
        state.spend(model.parameters())
        at_gate = moved(state.state_dict())
        if clears:
            model.zero_grad(set_to_none=False)
        state.end_step()
        return at_gate

    for _ in range(2):
        update(model, state)
    taken.load_state_dict(moved(state.state_dict()))
    theirs, here = update(model, state), update(other, taken)
    assert encode.encode(here) == encode.encode(theirs)
    assert any(here["lies"])
    assert bool(here["values"]) is not clears


def test_what_lies_when_a_step_has_returned_is_no_guess() -> None:
    """Where steps commit at their return nothing comes behind the gate."""
    model = nn.Linear(2, 1)
    state = one_of(model)
    for cleared in (True, False, True, False):
        state.begin_step()
        backward(model)
        state.spend(model.parameters())
        if cleared:
            model.zero_grad()
        state.at_gate()
        state.returned()
        assert any(state.state_dict().get("lies", b"")) is not cleared
        state.end_step()


def test_parameters_of_no_tracked_module_are_known_by_the_optimizer_that_updates_them() -> None:
    base, adapter = nn.Linear(2, 2), nn.Linear(2, 1)
    tracked = Tracked()
    tracked.add("base", base)
    tracked.add("optimizer", torch.optim.SGD([*base.parameters(), *adapter.parameters()], lr=0.1))
    assert len(tracked.gradients) == 2
    of_base, loose = tracked.gradients
    assert loose.is_of(adapter.parameters())
    loose.begin_step()
    backward(adapter)
    loose.put_back()
    assert adapter.weight.grad is None
    tracked.add("other", nn.Linear(1, 1))
    assert tracked.gradients[1] is loose
    tracked.add("adapter", adapter)
    assert loose not in tracked.gradients
    assert len(tracked.gradients) == 3
    assert of_base in tracked.gradients


def test_large_ones_of_steps_that_are_undone_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank goes back in place to a moment without gradients, with those of its last step."""
    monkeypatch.setattr(gradients, "BYTES_MAX", 8)
    model, tracked = nn.Linear(2, 1), Tracked()
    tracked.add("model", model)
    tracked.add("optimizer", torch.optim.SGD(model.parameters(), lr=0.1))
    [state] = tracked.gradients
    for _ in range(2):
        micro_step(model, state)
    model.zero_grad()
    header, tensors = tracked.bulk_header()
    digest, given = tracked.replica_digest().whole, [one.clone() for one in tensors]
    micro_step(model, state)
    assert tracked.replica_digest().whole != digest
    tracked.load_bulk_header(header, given)
    assert grads(model) == [None, None]
    assert tracked.replica_digest().whole == digest
