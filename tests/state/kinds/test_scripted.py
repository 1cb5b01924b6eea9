"""What the compiled code of a module changes in its attributes is carried or refused."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainmover.errors import UserError
from trainmover.state.kinds.modules.scripted_attributes import ScriptedAttributes
from trainmover.torch_internals import scripted


class Counts(nn.Module):
    """Counts its calls, and keeps the last means."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: int = 0
        self.means: list[Tensor] = [torch.zeros(1)]
        self.scale = 2
        self.words = {"one": 1}
        self.register_buffer("norm", torch.ones(1))

    def note(self, x: Tensor) -> None:
        self.means[0] = x.mean().reshape(1)

    def forward(self, x: Tensor) -> Tensor:
        self.note(x)
        self.norm = self.norm * 0.5 + self.words["one"]
        if bool(x.sum() > 0):
            self.seen += 1
        return x * self.scale + float(self.seen)


def compiled() -> tuple[nn.Module, Any]:
    """It, and what counts in it."""
    module: nn.Module = torch.jit.script(nn.Sequential(Counts(), nn.Linear(2, 1)))
    return module, next(module.children())


def test_what_compiled_code_changes_is_known() -> None:
    assert scripted.changed_in(compiled()[1]) == ["means", "seen"]
    assert scripted.changed_in(nn.Linear(1, 1)) == []


def test_it_goes_with_the_rank() -> None:
    (module, _), (other, inside) = compiled(), compiled()
    for _ in range(3):
        module(torch.ones(1, 2))
    kept, there = ScriptedAttributes(module), ScriptedAttributes(other)
    there.load_state_dict(kept.state_dict())
    assert inside.seen == 3
    assert torch.equal(inside.means[0], torch.ones(1))


def test_too_much_is_refused() -> None:
    module, inside = compiled()
    inside.means = [torch.zeros(1 << 16)]
    with pytest.raises(UserError, match="means"):
        ScriptedAttributes(module).state_dict()
