# SPDX-License-Identifier: Apache-2.0
"""Whether it has an effect to read the state of an object of the script's.

It is read at every step, where a plain run reads it for a checkpoint, or never. A state_dict() that
draws random numbers, or makes an optimizer begin its state (as torch.distributed.checkpoint's does)
would give other numbers in an undisturbed run. What an object only knows of itself, as how often it
was read, is compared where a standby tries it (`rehearsal`).
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from trainmover.errors import UserError
from trainmover.state import rng
from trainmover.state.held import all_held_by
from trainmover.torch_internals.tensors import version_of

_DEPTH_MAX = 3
_Part = nn.Module | Optimizer


class Reading:
    """Of one object, from before its state is read.

    beside: tracked objects, which its state_dict() may reach as well
    """

    def __init__(self, name: str, obj: object, beside: Iterable[object]) -> None:
        self._name, self._obj = name, obj
        self._inside = {} if isinstance(obj, _Part) else dict(_parts_of(name, obj, 0))
        parts = [*self._inside.values(), *(one for one in beside if isinstance(one, _Part))]
        self._parts = {id(one): one for one in parts}.values()
        self._before = self._marks()

    def check(self) -> None:
        """It was read. Raises UserError, with file and line, if that has changed anything."""
        both = zip(self._before, self._marks(), strict=True)
        changed = dict.fromkeys(what for (what, mark), (_, now) in both if now != mark)
        if not changed:
            return
        parts = ", ".join(f"{path.rpartition('.')[2]}={path}" for path in self._inside)
        instead = f"Track what it is made of: job.track({parts})." if parts else ""
        raise UserError(
            f"`{self._name}` cannot be tracked: state_dict() of {_written(self._obj)} changes "
            f"{' and '.join(changed)}.",
            means="Its state is read for each step: an undisturbed run would have other numbers.",
            do=instead or "Let it only give its state, or track what it is made of.",
        )

    def _marks(self) -> list[tuple[str, Any]]:
        """What it is, in words, and how it is now."""
        parts = [(f"the state of {type(one).__name__}", _mark_of(one)) for one in self._parts]
        return [("the generators of random numbers", rng.capture()), *parts]


def is_own(obj: object) -> bool:
    """Whether code that is not torch's says what its state is."""
    if not isinstance(obj, nn.Module):
        return not _is_of_torch(obj, "state_dict")
    ways = "state_dict", "get_extra_state"
    return not all(_is_of_torch(part, way) for part in obj.modules() for way in ways)


def _is_of_torch(obj: object, way: str) -> bool:
    module = getattr(getattr(type(obj), way, None), "__module__", None) or ""
    return str(module).startswith("torch.")


def _parts_of(path: str, value: object, depth: int) -> Iterator[tuple[str, _Part]]:
    """Modules and optimizers that it holds, in objects of own classes, by names of attributes."""
    if isinstance(value, _Part):
        yield path, value
    elif depth < _DEPTH_MAX:
        for name, one in all_held_by(value).items():
            yield from _parts_of(f"{path}.{name}", one, depth + 1)


def _mark_of(one: _Part) -> list[Any]:
    """Of its tensors and their gradients who has written to them; how much state there is."""
    if isinstance(one, nn.Module):
        return [_tensor_mark(tensor) for tensor in (*one.parameters(), *one.buffers())]
    kept = [state for state in one.state.values() if isinstance(state, dict)]
    tensors = [value for state in kept for value in state.values() if isinstance(value, Tensor)]
    of_groups = [tensor for group in one.param_groups for tensor in group["params"]]
    return [len(kept), *map(_tensor_mark, [*tensors, *of_groups])]


def _tensor_mark(tensor: Tensor) -> tuple[int, int, int]:
    if not tensor.is_leaf or tensor.grad is None:
        return version_of(tensor), 0, 0
    return version_of(tensor), id(tensor.grad), version_of(tensor.grad)


def _written(obj: object) -> str:
    """Its class, and where the method stands."""
    code = getattr(getattr(type(obj), "state_dict", None), "__code__", None)
    where = f" ({Path(code.co_filename).name} line {code.co_firstlineno})" if code else ""
    return f"{type(obj).__name__}{where}"
