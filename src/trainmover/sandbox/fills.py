"""Random initialisation of large parameters, done once in a process and then only pretended.

A joiner's parameters are overwritten by the job's state, so the numbers they were initialised with
do not matter, unless something else is made of them. The first shadow run finds out, and every
later one checks again:

    fills   of large tensors by `uniform_` and `normal_`: the generator's state before and after
    flow    what set-up computes of a filled tensor, and what of that is alive at the first step

A fill is skipped if in an earlier run its tensor was part of the tracked state at the first step,
and nothing else alive was made of it. A later run gives the tensor cheap numbers and puts the
generator into the state where the fill had left it, if it is in the state where the fill had found
it; else the fill is made. So every other random number is the same, whatever is skipped. In doubt
nothing is: tensor subclasses (sharded parameters), other modes, numbers read out of a tensor,
compiled code that runs during set-up.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import xxhash
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from trainmover.errors import StateMismatch

SWITCH = "TRAINMOVER_INIT"
"""`full` makes every fill."""
LARGE_BYTES = 1 << 20
_BLOCK = 1 << 16
_ALL = -1
_PLAIN = (Tensor, nn.Parameter, nn.Buffer)
_OPS = ("uniform_", "normal_")
_READS = ("numpy", "tolist")
_SCALARS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default)


@dataclass
class _Fill:
    """One that was made or skipped in this run. bit: its place in the masks of `_Flow`."""

    key: bytes
    after: Tensor
    storage: StorageWeakRef
    skipped: bool
    bit: int


class _Flow(TorchDispatchMode):
    """Which storages hold what was made of which fills: a mask of their bits each.

    spoiled  mask of the fills whose numbers were read
    lost     something was seen that cannot be followed
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.spoiled = 0
        self.lost = False
        self._compiled = _compilations()
        self._masks: dict[int, tuple[StorageWeakRef, int]] = {}

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Else what is compiled while this mode is on would never be compiled again."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Else every call would go through dynamo's switch, and load it first."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        given = [x for x in _pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        mask = 0
        for tensor in given:
            mask |= self.mask_of(tensor)
        if mask and func in _SCALARS:
            self.spoiled |= mask
        elif mask:
            made = [x for x in _pytree.tree_leaves(result) if isinstance(x, Tensor)]
            schema = getattr(func, "_schema", None)
            changed = given if schema is None or schema.is_mutable else []
            for tensor in (*made, *changed):
                self.mark(tensor, mask)
        return result

    def mask_of(self, tensor: Tensor) -> int:
        if type(tensor) not in _PLAIN:
            self.lost = True
            return 0
        known = self._masks.get(tensor.untyped_storage()._cdata)
        return 0 if known is None or _is_gone(known[0]) else known[1]

    def mark(self, tensor: Tensor, mask: int) -> None:
        if type(tensor) not in _PLAIN:
            self.lost = True
            return
        mask |= self.mask_of(tensor)
        self._masks[tensor.untyped_storage()._cdata] = _weak(tensor), mask

    def bad(self, tracked: set[int]) -> int:
        """Mask of the fills that something alive beside the tracked state was made of."""
        if self.lost or _compilations() != self._compiled:
            return _ALL
        mask = self.spoiled
        for place, (ref, its) in self._masks.items():
            if place not in tracked and not _is_gone(ref):
                mask |= its
        return mask


class Fills:
    """One for the process; a run lies between `begin` and `end`, its set-up ends with `settle`."""

    def __init__(self) -> None:
        self._known: dict[bytes, Tensor] = {}
        self._fills: list[_Fill] = []
        self._flow: _Flow | None = None
        self._begun = False
        self._patched: dict[str, Any] = {}

    def begin(self) -> None:
        """A run in the sandbox begins."""
        if os.environ.get(SWITCH) == "full":
            return
        self._begun, self._fills, self._flow = True, [], None
        self._patched = {name: vars(Tensor).get(name) for name in (*_OPS, *_READS)}
        for name in _OPS:
            setattr(Tensor, name, self._filling(name, getattr(Tensor, name)))
        for name in _READS:
            setattr(Tensor, name, self._reading(getattr(Tensor, name)))

    def settle(self, tracked: Iterable[Tensor]) -> None:
        """Set-up is over, the first step begins.

        tracked: the tensors that will be overwritten by the job's state.
        Raises StateMismatch if a fill was skipped that matters.
        """
        if not self._begun:
            return
        flow, fills = self._flow, self._fills
        self.end()
        if flow is None:
            return
        places = {t.untyped_storage()._cdata for t in tracked if _is_whole(t)}
        bad = flow.bad(places)
        for fill in fills:
            held = not _is_gone(fill.storage) and fill.storage.cdata in places
            useless = held and not bad & fill.bit
            if useless:
                self._known[fill.key] = fill.after
            elif fill.skipped:
                raise _mattered()

    def end(self) -> None:
        """Nothing is watched any more."""
        if not self._begun:
            return
        self._begun = False
        for name, own in self._patched.items():
            if own is None:
                delattr(Tensor, name)  # It is the parent class's again.
            else:
                setattr(Tensor, name, own)
        if self._flow is not None:
            self._leave(self._flow)
        self._fills, self._flow = [], None

    def _leave(self, flow: _Flow) -> None:
        """Take the mode off the stack, also from below others."""
        above = []
        while torch._C._len_torch_dispatch_stack() > 0:
            mode = torch._C._get_dispatch_stack_at(torch._C._len_torch_dispatch_stack() - 1)
            if mode is flow:
                break
            above.append(torch._C._pop_torch_dispatch_stack())
        flow.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        for mode in reversed(above):
            torch._C._push_on_torch_dispatch_stack(mode)

    def _filling(self, name: str, real: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def fill(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            flow = self._watching(tensor, kwargs) if self._begun else None
            if flow is None:
                return real(tensor, *args, **kwargs)
            before = torch.get_rng_state()
            key = _key(name, tensor, args, kwargs, before)
            after = self._known.get(key)
            if after is None:
                real(tensor, *args, **kwargs)
            else:
                _pretend(real, tensor, args, kwargs)
                torch.set_rng_state(after)
            self._note(flow, tensor, key, skipped=after is not None)
            return tensor

        return fill

    def _reading(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Numbers that leave torch are not followed."""

        def read(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            if self._flow is not None and type(tensor) in _PLAIN:
                self._flow.spoiled |= self._flow.mask_of(tensor)
            return real(tensor, *args, **kwargs)

        return read

    def _watching(self, tensor: Tensor, kwargs: dict[str, Any]) -> _Flow | None:
        """The flow, begun with the first fill that may be skipped; None for one that may not."""
        plain = type(tensor) in _PLAIN and tensor.device.type == "cpu" and tensor.is_contiguous()
        if not plain or tensor.nbytes < LARGE_BYTES or kwargs.get("generator") is not None:
            return None
        if self._flow is None:
            if torch._C._len_torch_dispatch_stack() > 0:
                return None
            self._flow = _Flow()
            self._flow.__enter__()  # type: ignore[no-untyped-call]
        return self._flow

    def _note(self, flow: _Flow, tensor: Tensor, key: bytes, *, skipped: bool) -> None:
        bit = 1 << len(self._fills)
        self._fills.append(_Fill(key, torch.get_rng_state(), _weak(tensor), skipped, bit))
        flow.mark(tensor, bit)


def _compilations() -> int:
    """How many functions this process has compiled."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return 0 if dynamo is None else int(dynamo.counters["frames"]["total"])


def _weak(tensor: Tensor) -> StorageWeakRef:
    return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]


def _is_whole(tensor: Tensor) -> bool:
    """Whether overwriting it leaves nothing of its storage as it was."""
    return type(tensor) in _PLAIN and tensor.nbytes == tensor.untyped_storage().nbytes()


def _is_gone(storage: StorageWeakRef) -> bool:
    gone: bool = storage.expired()  # type: ignore[no-untyped-call]
    return gone


def _key(name: str, tensor: Tensor, args: Any, kwargs: Any, before: Tensor) -> bytes:
    """Hash of all that says how a fill moves the generator."""
    what = f"{name} {args} {sorted(kwargs.items())} {tuple(tensor.shape)} {tensor.dtype}"
    digest = xxhash.xxh3_128(what.encode())
    digest.update(before.numpy().tobytes())
    return digest.digest()


def _pretend(real: Callable[..., Tensor], tensor: Tensor, args: Any, kwargs: Any) -> None:
    """Numbers of the same distribution, the same ones again and again: much cheaper."""
    flat = tensor.detach().view(-1)
    with torch.no_grad():
        real(flat[:_BLOCK], *args, **kwargs)
        for piece in _pieces(flat):
            piece.copy_(flat[: piece.numel()])


def _pieces(flat: Tensor) -> Iterator[Tensor]:
    """What lies behind the first block, each piece as long as all before it."""
    at = _BLOCK
    while at < flat.numel():
        yield flat[at : 2 * at]
        at *= 2


def _mattered() -> StateMismatch:
    return StateMismatch(
        "This run made something of parameters whose initialisation was skipped.",
        means="This machine runs the script in a fresh process instead.",
        do=f"Set {SWITCH}=full to have every parameter initialised in every run.",
    )
