"""What a variable's value is in the record."""

import torch
from torch import nn

from trainmover.state.script.values import entry_of, same
from trainmover.state.script.views import Views


def test_what_shows_tracked_memory_has_no_value_of_its_own() -> None:
    model = nn.Linear(3, 2)
    views = Views([("model", model)])
    shown = [parameter.detach().numpy() for parameter in model.parameters()]
    before = entry_of(shown, views=views), entry_of(model.weight.detach()[1], views=views)
    shown[0] *= 2
    assert before == (entry_of(shown, views=views), entry_of(model.weight.detach()[1], views=views))
    assert not same(before[1], entry_of(model.weight.detach()[0], views=views))
    assert not same(before[0], entry_of([one.copy() for one in shown], views=views))
    assert not same(before[0], entry_of(shown[::-1], views=views))
    model.weight.data = torch.ones(2, 3)  # It has other memory now: that one is the script's own.
    assert not same(before[0], entry_of(shown, views=views))
