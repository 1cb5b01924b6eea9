# SPDX-License-Identifier: Apache-2.0
"""Tensors: whether somebody has written to one, the part of a sharded one that is here, and copies.

Steps ask these for many: what is asked for one tensor is torch's own, or written in C.
"""

import operator
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._C import TensorBase

from trainmover.asked import Answers, Words, stands_for
from trainmover.torch_internals.memory import place_of, places_in, words_of
from trainmover.torch_internals.watching.gradients import plain

version_of: Callable[[Tensor], int] = operator.attrgetter("_version")
"""How often torch has written to it. One made in inference mode has no version: RuntimeError."""

Noted = tuple["weakref.ref[Tensor]", int]
"""A tensor, without keeping it, and its version."""


numpy_of: Callable[[Tensor], Any] = Tensor.numpy
"""For our own use: scripts' calls are noted, see `aliases`."""

entries_in: Callable[[Tensor], int] = operator.methodcaller("_nnz")
"""How many entries a sparse tensor has."""

coordinates_of: Callable[[Tensor], Tensor] = operator.methodcaller("_indices")
"""Of a sparse tensor's entries, as they lie there, whether coalesced or not."""

values_of: Callable[[Tensor], Tensor] = operator.methodcaller("_values")
"""The entries themselves."""

is_view: Callable[[Tensor], bool] = operator.methodcaller("_is_view")
"""Of another tensor, as autograd sees it."""

_PLAIN = {Tensor, nn.Parameter}
_SEARCHES = 8

Mark = tuple[int, int]
"""Version counter and address of the memory: it changes when torch writes to the tensor, or the
script gives it other memory."""


def local_of(tensor: Any) -> Tensor:
    """The part in this process, as the tensor that its optimizer writes to; without autograd."""
    local: Tensor = tensor._local_tensor if hasattr(tensor, "device_mesh") else tensor
    return local


def note_all(tensors: Iterable[Tensor | None]) -> list[Noted | None]:
    """As they are now. Every step asks for all gradients: so no call for each."""
    return [None if t is None else (weakref.ref(t), t._version) for t in tensors]


def arrived(tensor: Any) -> Tensor:
    """The tensor, once no collective writes it any more: one of another class may have to wait."""
    here: Tensor = tensor.wait() if hasattr(tensor, "wait") else tensor
    return here


GRADIENT, VERSION = Tensor.grad, Tensor._version
ADDRESS, FORM = Tensor.data_ptr, (Tensor.is_contiguous, Tensor.shape, Tensor.dtype)
TRAINED = Tensor.requires_grad
"""Questions for `asked`: as the class has them, so that no name is looked for at each tensor."""

_probe = torch.empty(1)
stands_for(TensorBase, _probe, _probe._cdata)


class Watched:
    """Version counters and addresses of many tensors: a step asks twice, for all parameters and
    optimizers' state. What writes past torch (`.data`, numpy) leaves no mark."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        every = list(tensors)
        plain = [at for at, tensor in enumerate(every) if type(tensor) in _PLAIN]
        others = [at for at, tensor in enumerate(every) if type(tensor) not in _PLAIN]
        self._plain, self._others = [every[at] for at in plain], [every[at] for at in others]
        self._order = plain + others
        self._marks = Answers(VERSION, ADDRESS)
        self._words: Words | None = None  # Instead, where they can be read.
        self._searches_left = _SEARCHES
        self._marks_of_others: list[Mark] = []

    def note(self) -> None:
        """As they are now."""
        if self._words is None or not self._words.note():
            self._words = self._found()
            if self._words is None:
                self._marks.note(self._plain)
        self._marks_of_others = list(map(_mark, self._others))

    def _found(self) -> Words | None:
        """Who is given other memory all the time is not worth the search."""
        if not self._searches_left:
            return None
        self._searches_left -= 1
        return words_of(self._plain, form=False)

    def same(self) -> bool:
        """Whether they are as they were noted."""
        if self._words is None:
            return self._marks.same(self._plain) and self._others_are_same()
        if self._words.same():
            return not self._others or self._others_are_same()
        return not self.changed()

    def _others_are_same(self) -> bool:
        return list(map(_mark, self._others)) == self._marks_of_others

    def changed(self) -> list[int]:
        """Which of them are not, by number."""
        known: Sequence[object]
        now: Sequence[object]
        if self._words is None:
            known = [*zip(self._marks.noted(0), self._marks.noted(1), strict=True)]
            now = [(tensor._version, tensor.data_ptr()) for tensor in self._plain]
        else:
            known = [*zip(self._words.versions(), places_in(self._words), strict=True)]
            now = [(tensor._version, place_of(tensor)) for tensor in self._plain]
        noted = [*known, *self._marks_of_others]
        both = zip(noted, [*now, *map(_mark, self._others)], self._order, strict=True)
        return sorted(at for one, other, at in both if one != other)

    def addresses(self) -> object:
        """As they were noted: equal as long as each lies where it lay."""
        plain: object = self._marks.noted(1) if self._words is None else self._words.places()
        return plain, self._marks_of_others


def _mark(tensor: Tensor) -> Mark:
    """A DTensor counts what is written to it, its local part what is written to that."""
    if not hasattr(tensor, "device_mesh"):
        return version_of(tensor), tensor.data_ptr()
    part = local_of(tensor)
    return version_of(tensor) + version_of(part), part.data_ptr()


def memory_of(tensor: Tensor) -> int:
    """Where it begins that the tensor lies in, of a DTensor its local part; 0: nobody can tell."""
    try:
        return plain(tensor).untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError, ValueError):
        pass  # As of a sparse one, or of one that wraps another.
    local = tensor.to_local() if hasattr(tensor, "to_local") else None
    return 0 if local is None else local.untyped_storage().data_ptr()
