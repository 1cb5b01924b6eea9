# SPDX-License-Identifier: Apache-2.0
"""Random state inside the processes of a StatefulDataLoader.

Such a loader keeps where each of its processes stands, but not what that process draws next:
augmentations would be others after a resume. What it does keep is the dataset's own state, asked in
the process itself after each batch. So in the process, and nowhere else, the dataset gets a state
that holds the generators there beside its own.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from trainmover.errors import UserError
from trainmover.state import rng
from trainmover.worker.data.loader_parts import generators_in, set_states, states_of

_OWN, _RNG, _HELD = "own", "rng", "generators"


class KeepsGenerators:
    """What the loader calls in each of its processes before that loads.

    before   what the script has it call there; None: nothing
    collate  its collate function, which may hold generators
    """

    def __init__(self, before: Callable[[int], Any] | None, collate: Any) -> None:
        self.before = before
        self.collate = collate

    def __call__(self, number: int) -> None:
        if self.before is not None:
            self.before(number)
        info: Any = get_worker_info()
        dataset = info.dataset
        has_state = hasattr(dataset, "state_dict") and hasattr(dataset, "load_state_dict")
        if isinstance(dataset, IterableDataset) and not has_state:
            return  # Its batches are passed over, each with what it draws.
        _give_state(dataset, self.collate, has_state=has_state)


def keep_generators(loader: Any) -> None:
    """From its next pass on. loader: a StatefulDataLoader with processes"""
    if not isinstance(loader.worker_init_fn, KeepsGenerators):
        loader.worker_init_fn = KeepsGenerators(loader.worker_init_fn, loader.collate_fn)


def can_keep(dataset: Any) -> bool:
    """Whether it can be given a state: what is written in C, such as a list, cannot."""
    return hasattr(dataset, "__dict__") and not isinstance(dataset, Tensor | ModuleType)


def _give_state(dataset: Any, collate: Any, *, has_state: bool) -> None:
    kind = type(dataset)

    def held() -> dict[str, Any]:
        return generators_in([("dataset", dataset), ("collate_fn", collate)])

    begun = held().keys()

    class WithGenerators(kind):  # type: ignore[misc, valid-type]
        def state_dict(self) -> dict[str, Any]:
            own, generators = kind.state_dict(self) if has_state else None, held()
            if generators.keys() != begun:
                raise _made_late(sorted(generators.keys() - begun))
            return {_OWN: own, _RNG: rng.capture(), _HELD: states_of(generators)}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            if has_state:
                kind.load_state_dict(self, state[_OWN])
            rng.restore(state[_RNG])
            set_states(held(), state[_HELD])

    WithGenerators.__name__, WithGenerators.__qualname__ = kind.__name__, kind.__qualname__
    try:
        dataset.__class__ = WithGenerators
    except TypeError as error:
        raise UserError(
            f"What a {kind.__name__} draws in a StatefulDataLoader's processes cannot be kept: "
            f"{error}.",
            means="After a move or a loss its batches would be others.",
            do="Use a plain DataLoader, or num_workers=0.",
        ) from error


def _made_late(names: list[str]) -> UserError:
    return UserError(
        f"The dataset has made {', '.join(names)} with its first sample.",
        means="A StatefulDataLoader's process that goes on elsewhere has no such generator to go "
        "on with.",
        do="Make generators in the dataset's __init__, or in a worker_init_fn.",
    )
