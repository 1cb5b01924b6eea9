"""How far a scaler is with an optimizer goes with the rank, and a retry puts it back."""

import torch
from torch import nn
from torch.amp.grad_scaler import OptState

from tests.again import Again
from trainmover.state.tracked import Tracked
from trainmover.torch_internals.optimizers import stages_of


def build(*, enabled: bool = True) -> tuple[Tracked, torch.amp.GradScaler, torch.optim.Optimizer]:
    """Two optimizers, of which the second one is nearly always unscaled later."""
    model = nn.Linear(2, 2)
    first, second = (torch.optim.SGD([one], lr=0.1) for one in model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, enabled=enabled)
    tracked = Tracked()
    objects = {"scaler": scaler, "model": model, "first": first, "second": second}
    for name, obj in objects.items():
        tracked.add(name, obj)
    scaler.scale(model(torch.ones(1, 2)).sum()).backward()
    return tracked, scaler, second


def test_a_rank_that_is_taken_between_unscaling_and_its_update() -> None:
    theirs, scaler, optimizer = build()
    scaler.unscale_(optimizer)
    mine, own, own_optimizer = build()
    assert theirs.small_states()["scaler.stages"] != mine.small_states()["scaler.stages"]
    mine.load_small({"scaler.stages": theirs.small_states()["scaler.stages"]})
    [(known, one)] = stages_of(own).items()
    assert known == id(own_optimizer)
    assert one["stage"] is OptState.UNSCALED
    [(device, inf)] = one["found_inf_per_device"].items()
    assert (device, inf.item()) == (torch.device("cpu"), 0.0)
    own.step(own_optimizer)
    own.update()
    assert theirs.small_states().keys() == mine.small_states().keys()


def test_a_retry_unscales_again() -> None:
    tracked, scaler, optimizer = build()
    before = Again(tracked, (scaler,))
    scaler.unscale_(optimizer)
    assert before.put_back() == ""
    scaler.unscale_(optimizer)


def test_one_that_is_off_has_none() -> None:
    tracked, scaler, optimizer = build(enabled=False)
    scaler.unscale_(optimizer)
    tracked.load_small(tracked.small_states())
    assert stages_of(scaler) == {}
