# SPDX-License-Identifier: Apache-2.0
"""How a loader's place can be kept, or why it cannot."""

import enum
from typing import Any

import numpy
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from trainmover.errors import UserError
from trainmover.worker.data import worker_state


class Kind(enum.Enum):
    """What is done to come to a place in a pass.

    INDEXED   torch's own loader over a dataset with indices: those are passed over
    STATEFUL  the loader keeps its place itself
    REPLAYED  the batches that were taken are drawn again
    """

    INDEXED = enum.auto()
    STATEFUL = enum.auto()
    REPLAYED = enum.auto()


def kind_of(loader: Any) -> Kind:
    """Raises UserError for a loader whose batches could not be resumed elsewhere."""
    if reason := _why_not(loader):
        raise UserError(
            f"job.batches cannot resume this loader: {reason}.",
            means="After a move or a loss its rank would train on other data.",
            do=_do_instead(loader),
        )
    stateful = has_state(loader)
    if not isinstance(loader, DataLoader):
        return Kind.STATEFUL if stateful else Kind.REPLAYED
    if is_stream(loader) and not stateful:
        return Kind.REPLAYED
    if not stateful:
        return Kind.REPLAYED if _has_own_way(loader) else Kind.INDEXED
    return Kind.STATEFUL if _keeps_all(loader) else Kind.REPLAYED


def has_state(part: Any) -> bool:
    return hasattr(part, "state_dict") and hasattr(part, "load_state_dict")


def is_stream(loader: Any) -> bool:
    return isinstance(getattr(loader, "dataset", None), IterableDataset)


def is_torchdatas(loader: Any) -> bool:
    """Whether a loader with a state is torchdata's, or made from it: to ask it begins a pass."""
    return any(base.__module__.startswith("torchdata.") for base in type(loader).__mro__)


def loads_here(loader: Any) -> bool:
    """Whether what draws its batches is this process."""
    return not isinstance(loader, DataLoader) or loader.num_workers == 0


def _keeps_all(loader: Any) -> bool:
    """Whether the state of this DataLoader holds all that its batches depend on."""
    if _has_own_way(loader) or not is_torchdatas(loader):
        return False
    if loads_here(loader) or worker_state.can_keep(loader.dataset):
        return True
    # Nothing that draws: a list, a tensor, and torch's own way to put samples together.
    plain = isinstance(loader.dataset, list | tuple | range | dict | Tensor | numpy.ndarray)
    return plain and loader.collate_fn.__module__.startswith("torch.")


def _has_own_way(loader: Any) -> bool:
    """Whether its class iterates in another way than torch's and torchdata's loaders do."""
    module: str = type(loader).__iter__.__module__
    return not module.startswith(("torch.", "torchdata."))


def _why_not(loader: Any) -> str:
    if hasattr(loader, "__next__"):
        return "an iterator can be read only once"
    if _is_prepared(loader):
        return (
            f"a {type(loader).__name__} of Accelerate draws one batch ahead, and exchanges "
            "generators between the ranks as a pass begins"
        )
    if getattr(loader, "num_workers", 0) > 1 and not getattr(loader, "in_order", True):
        return "with in_order=False the order of its batches is left to chance"
    return ""


def _do_instead(loader: Any) -> str:
    if _is_prepared(loader):
        return (
            "Let accelerator.prepare() have model and optimizer only; give job.batches the loader "
            "itself, with a DistributedSampler, and move batches to the device in the step."
        )
    return "Use torchdata's StatefulDataLoader, or a DataLoader over a map-style dataset."


def _is_prepared(loader: Any) -> bool:
    """By Accelerate: a loader around another one."""
    return "base_dataloader" in getattr(loader, "__dict__", {})
