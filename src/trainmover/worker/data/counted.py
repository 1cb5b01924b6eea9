# SPDX-License-Identifier: Apache-2.0
"""The state of torchdata's own loader, without asking it."""

from typing import Any

from trainmover.torch_internals.loaders import YIELDED, pass_of, yielded

_ITERATOR = "torchdata.stateful_dataloader.stateful_dataloader._StatefulSingleProcessDataLoaderIter"
_BATCHES = "torchdata.stateful_dataloader.sampler._BatchSamplerIterator"
_OF_BATCHES, _TAKEN = "_sampler_iter_state", "samples_yielded"
_WITH_OWN_STATE = ("_index_sampler_state", "fetcher_state", "dataset_state")
_STATE = {
    *(*_WITH_OWN_STATE, _OF_BATCHES, "_sampler_iter_yielded", YIELDED),
    *("_IterableDataset_len_called", "_shared_seed", "_iterator_finished"),
}


class Counted:
    """The state of a pass over a dataset with indices, made of its counters.

    To ask for it takes seventy calls of Python, and if none of its parts has a state of its own it
    differs from batch to batch in a few counters only.
    """

    def __init__(self, iterator: Any, state: dict[str, Any]) -> None:
        self._iterator, self._batches = iterator, iterator._sampler_iter
        self._state = state

    @staticmethod
    def of(loader: Any, state: Any) -> "Counted | None":
        """Of the pass of which `loader` has given this state; None: it has to be asked."""
        if type(state) is not dict or set(state) != _STATE:
            return None
        iterator, batches = pass_of(loader), state[_OF_BATCHES]
        if _kind(iterator) != _ITERATOR or _kind(iterator._sampler_iter) != _BATCHES:
            return None
        if [*batches] != [_TAKEN] or any(state[name] is not None for name in _WITH_OWN_STATE):
            return None
        made = Counted(iterator, state)
        return made if made.state(loader) == state else None

    def state(self, loader: Any) -> dict[str, Any] | None:
        """What `loader.state_dict()` would give; None: it is in another pass."""
        iterator, batches = self._iterator, self._batches
        if pass_of(loader) is not iterator or iterator._sampler_iter is not batches:
            return None
        return self._state | {
            _OF_BATCHES: {_TAKEN: batches.samples_yielded},
            "_sampler_iter_yielded": iterator._sampler_iter_yielded,
            YIELDED: yielded(iterator),
            "_iterator_finished": iterator._finished,
        }


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
