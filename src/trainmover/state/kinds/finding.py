# SPDX-License-Identifier: Apache-2.0
"""What lies beside a tracked object: an item for each kind that it has something of."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from trainmover.state.items import HasState, Item
from trainmover.state.kinds.gradients import Gradients
from trainmover.state.kinds.modules.buffers import Buffers
from trainmover.state.kinds.modules.large_buffers import KIND, NONE, LargeBuffers
from trainmover.state.kinds.modules.modes import Modes
from trainmover.state.kinds.modules.scripted_attributes import ScriptedAttributes
from trainmover.state.kinds.modules.unsaved import Unsaved
from trainmover.state.kinds.optimizers.settings import Settings
from trainmover.state.kinds.optimizers.stages import Stages
from trainmover.state.kinds.parallel.hooks import Hooks
from trainmover.state.kinds.parallel.unsharded import Unsharded
from trainmover.state.kinds.parallel.used import Used

GRADIENTS = "gradients"


def parts_of(
    name: str,
    obj: HasState,
    consumers: Callable[[], set[int]],
    optimizers: Callable[[], Sequence[Optimizer]],
) -> Iterator[Item]:
    """Of the object that is tracked as `name`.

    consumers  parameters, by id, that some optimizer will update
    optimizers that are tracked
    """
    if isinstance(obj, GradScaler):
        yield _item(name, "stages", Stages(obj, optimizers))
    if isinstance(obj, Optimizer):
        yield _item(name, "settings", Settings(obj))
    if isinstance(obj, nn.Module):
        yield from _of_module(name, obj, consumers)


def _of_module(name: str, obj: nn.Module, consumers: Callable[[], set[int]]) -> Iterator[Item]:
    if attributes := ScriptedAttributes(obj):
        yield _item(name, "attributes", attributes)
    yield _item(name, "modes", Modes(obj))
    yield _item(name, "used", Used(obj))
    yield gradients_of(name, obj.parameters(), consumers)
    yield _item(name, "hooks", Hooks(obj))
    yield _item(name, "unsaved", Unsaved(obj))
    if unsharded := Unsharded(obj):
        yield _item(name, "unsharded", unsharded, unsharded.large)
    if (buffers := Buffers(obj)).live():
        yield _item(name, "buffers", buffers)
    if (large := LargeBuffers(obj, buffers)).encoded() != NONE:
        yield _item(name, KIND, large)


def gradients_of(
    name: str, parameters: Iterable[Tensor], consumers: Callable[[], set[int]]
) -> Item:
    """Of these parameters, beside the object that is tracked as `name`."""
    gradients = Gradients(parameters, consumers)
    return _item(name, GRADIENTS, gradients, gradients.large)


def _item(name: str, kind: str, value: HasState, large: HasState | None = None) -> Item:
    return Item(f"{name}.{kind}", name, kind, value, large)
