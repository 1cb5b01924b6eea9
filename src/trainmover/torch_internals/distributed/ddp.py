# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel: what it knows that no state_dict has.

*Flags*: whether the next forward begins with a broadcast, whether backward reduces. *Buckets*: in
which groups gradients are summed. The first backward that reduces notes in which order gradients
come; the next forward makes other buckets of that, and broadcasts rank 0's, once in the whole
training. A model may come to that long after the others of its script. A process that has not come
to it where its peers have would broadcast alone, and sum other groups than they.
"""

import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from trainmover.torch_internals.distributed.c10d import (
    ProcessGroup,
    Work,
    _compute_bucket_assignment_by_size,
)

SYNC_FLAGS = ("require_forward_param_sync", "require_backward_grad_sync")
STANDING = attrgetter(*SYNC_FLAGS, "_has_rebuilt_buckets")
"""Its flags, and whether it has rebuilt its buckets: what every step asks."""

summed_by: Callable[[DistributedDataParallel], list[nn.Parameter]] = attrgetter(
    "_module_parameters"
)
"""Parameters that it was made with, in their order: it sums gradients by that, whatever names they
have by now."""

_TABLES = nn.Embedding, nn.EmbeddingBag
"""Modules whose gradient may be sparse."""

Buckets = list[list[int]]
"""Numbers of parameters; none at all: the next forward rebuilds."""

_LOGGED_EVERY = 100
"""Forwards: torch's own rate."""


def flags_of(wrapper: DistributedDataParallel) -> list[bool]:
    """Whether the next forward begins with a broadcast of buffers; whether backward reduces."""
    return [bool(getattr(wrapper, flag)) for flag in SYNC_FLAGS]


def set_flags(wrapper: DistributedDataParallel, values: list[bool]) -> None:
    """What `flags_of` gave."""
    for flag, value in zip(SYNC_FLAGS, values, strict=True):
        setattr(wrapper, flag, value)


# --- buckets --------------------------------------------------------------------------------------


@dataclass
class _Known:
    """What is known of a wrapper.

    buckets  that it has rebuilt
    noted    it was made to rebuild at its next forward, whatever its backward has done
    times    of its last backward, when it was made to forget its order of gradients
    """

    buckets: Buckets | None = None
    noted: bool = False
    times: tuple[int, ...] | None = None


_known: "weakref.WeakKeyDictionary[DistributedDataParallel, _Known]" = weakref.WeakKeyDictionary()


def watch_buckets() -> None:
    """Know of every rebuild from now on, as it is made. Call it once a process."""
    forward: Any = DistributedDataParallel._pre_forward

    @functools.wraps(forward)
    def pre_forward(self: DistributedDataParallel, *inputs: Any, **kwargs: Any) -> Any:
        if self._has_rebuilt_buckets or buckets_of(self) is None or not torch.is_grad_enabled():
            return forward(self, *inputs, **kwargs)
        try:
            return forward(self, *inputs, **kwargs)
        finally:
            _note_rebuilt(self)

    setattr(DistributedDataParallel, "_pre_forward", pre_forward)  # noqa: B010


def buckets_of(wrapper: DistributedDataParallel) -> Buckets | None:
    """Those that it has rebuilt. [] if its next forward does, None if a backward comes before."""
    known = _known_of(wrapper)
    if wrapper._has_rebuilt_buckets:
        known.buckets = known.buckets or _told(wrapper)
        return known.buckets
    return [] if known.noted or _has_noted(wrapper, known) else None


def learns_its_graph(wrapper: DistributedDataParallel) -> bool:
    """Whether its graph is static, and it has not come to know it: only a backward teaches it."""
    return wrapper.static_graph and buckets_of(wrapper) is None


def set_buckets(wrapper: DistributedDataParallel, buckets: Buckets | None) -> None:
    """What `buckets_of` gave, here or elsewhere. Nobody else takes part."""
    if buckets == buckets_of(wrapper) or not _rebuilds(wrapper):
        return
    if buckets is None and (first := _first_buckets(wrapper)):
        _forget(wrapper, noted=True)
        _rebuild_as(wrapper, first)
    _forget(wrapper, noted=buckets is not None)
    if buckets:
        _rebuild_as(wrapper, buckets)


def _forget(wrapper: DistributedDataParallel, *, noted: bool) -> None:
    """Have a wrapper rebuild its buckets at its next forward if `noted`, else behind a backward."""
    reducer: Any = wrapper.reducer
    reducer._reset_state()
    _told(wrapper)  # Else torch would not log those that come.
    _known[wrapper] = _Known(times=_times(wrapper), noted=noted)
    wrapper._has_rebuilt_buckets = False
    if noted:
        reducer._push_all_rebuilt_params()


def _first_buckets(wrapper: DistributedDataParallel) -> Buckets:
    """Return those that a wrapper of this kind sums its first gradients in; [] if that is not
    known, since it was made to train other parameters."""
    parameters = [one for one in summed_by(wrapper) if one.requires_grad]
    if len(parameters) != len(_times(wrapper)):
        return []
    tables = (one for one in wrapper.module.modules() if isinstance(one, _TABLES))
    sparse = {id(one.weight) for one in tables if one.sparse}
    is_sparse = [id(one) in sparse for one in parameters]
    tensors: list[Tensor] = [*parameters]
    made, _ = _compute_bucket_assignment_by_size(tensors, [sys.maxsize], is_sparse)
    return [[*numbers] for numbers in reversed(made)]


def _rebuilds(wrapper: DistributedDataParallel) -> bool:
    """Whether it ever does."""
    return wrapper.static_graph or not wrapper.find_unused_parameters


def _known_of(wrapper: DistributedDataParallel) -> _Known:
    known = _known.get(wrapper)
    if known is None:
        known = _known[wrapper] = _Known()
    return known


def _times(wrapper: DistributedDataParallel) -> tuple[int, ...]:
    """When the gradient of each parameter came, in the last backward that has reduced."""
    return tuple(wrapper.reducer.get_backward_stats())


def _has_noted(wrapper: DistributedDataParallel, known: _Known) -> bool:
    if not _rebuilds(wrapper):
        return False
    times = _times(wrapper)
    return any(times) if known.times is None else times != known.times


def _note_rebuilt(wrapper: DistributedDataParallel) -> None:
    """A forward was to rebuild its buckets. Those that a collective has left that was cut short are
    none: a backward with them would end the process."""
    known, buckets = _known_of(wrapper), _told(wrapper)
    count = len(_times(wrapper))
    if sorted(number for bucket in buckets for number in bucket) != list(range(count)):
        set_buckets(wrapper, [list(range(count))])
    else:
        known.buckets, wrapper._has_rebuilt_buckets = buckets, True


def _told(wrapper: DistributedDataParallel) -> Buckets:
    """As torch logs them; it reads them anew only in some forwards, unless it is told to."""
    logger: Any = wrapper.logger
    wrapper.reducer._set_ddp_runtime_logging_sample_rate(1)
    logger.set_runtime_stats_and_log()
    wrapper.reducer._set_ddp_runtime_logging_sample_rate(_LOGGED_EVERY)
    text = logger._get_ddp_logging_data().strs_map.get("rebuilt_per_bucket_param_indices", "")
    return [[int(number) for number in bucket.split()] for bucket in text.split(",") if bucket]


def _rebuild_as(wrapper: DistributedDataParallel, buckets: Buckets) -> None:
    reducer: Any = wrapper.reducer
    answers = _Answers(buckets)  # torch alone would not keep it.
    reducer._update_process_group(answers)
    try:
        reducer._rebuild_buckets()
    finally:
        reducer._update_process_group(wrapper.process_group)
    _known_of(wrapper).buckets, wrapper._has_rebuilt_buckets = buckets, True


class _Answers(ProcessGroup):
    """A group whose broadcasts give what rank 0's gave as it rebuilt: all its buckets and how many
    there are, then how large each is."""

    def __init__(self, buckets: Buckets) -> None:
        super().__init__(0, 1)  # type: ignore[call-arg]
        numbers = [number for bucket in buckets for number in bucket]
        self._values: Iterator[list[int]] = iter(
            [[*numbers, len(buckets)], [len(bucket) for bucket in buckets]]
        )

    def broadcast(self, tensors: list[Tensor], options: Any = None) -> Work:  # type: ignore[override]
        tensors[0].copy_(torch.tensor(next(self._values), dtype=tensors[0].dtype))
        return _Over()


class _Over(Work):
    """What is done."""

    def wait(self, *timeout: Any) -> bool:
        return True

    def get_future(self) -> "Future[Any]":
        future: Future[Any] = Future()
        future.set_result(None)
        return future
