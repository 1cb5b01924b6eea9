# SPDX-License-Identifier: Apache-2.0
"""Which samples a batch is made of, so that the journal can tell what each step used."""

import operator
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader

from trainmover.worker.data.loader_kinds import has_state, is_stream

Samples = bool | Callable[[Any], Any] | None
"""True: the indices that the sampler gives, or the place in a sequence. A function: of a batch."""


def ids_of(values: Any) -> list[int | str]:
    """What a sampler or a script gives for one batch: ids, one id, or a tensor of them."""
    if isinstance(values, Tensor):
        values = values.reshape(-1).tolist()
    if isinstance(values, str) or not isinstance(values, Iterable):
        values = [values]
    return [_id(value) for value in values]


def _id(value: Any) -> int | str:
    try:
        return operator.index(value)
    except TypeError:
        return str(value)


def why_unknown(loader: Any) -> str:
    """Why the indices of a loader's samples cannot be seen; "" if they can."""
    if has_state(loader):
        return "it keeps its sampler to itself"
    if is_stream(loader):
        return "a stream has no indices"
    if isinstance(loader, DataLoader) or hasattr(loader, "__getitem__"):
        return ""
    return "it is neither a DataLoader nor a sequence"
