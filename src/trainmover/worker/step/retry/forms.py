# SPDX-License-Identifier: Apache-2.0
"""In which form tensors lay, and where: a step may shorten a buffer in place, lengthen it, or give
it other memory (`resize_`, `set_`, `.data = ...`), and it stays the same object. Its bytes alone
would be put back into a tensor that has no place for them.

A form is kept as another tensor on the same memory, which stays as it is.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from trainmover.asked import Words, are
from trainmover.torch_internals.memory import words_of

_PLAIN = (Tensor, nn.Parameter)


class Forms:
    """noted: of each tensor its form, None for one of another class."""

    def __init__(self) -> None:
        self.noted: list[Tensor | None] = []
        self._tensors: list[Tensor] = []
        self._words: Words | None = None  # Which show that all lie as they lay.

    def note(self, tensors: list[Tensor]) -> None:
        """As they are now; made anew only if one lies otherwise."""
        if self._words is not None and are(tensors, self._tensors) and self._words.same():
            return
        self._tensors = list(tensors)
        self.noted = [one.detach() if type(one) in _PLAIN else None for one in tensors]
        self._words = words_of(self._tensors, form=True)


def put_back_forms(tensors: Sequence[Tensor], forms: Sequence[Tensor | None]) -> None:
    """The same tensors lie where they lay, with room for what they held there."""
    for tensor, form in zip(tensors, forms, strict=True):
        if form is None or _lies(tensor) == _lies(form):
            continue
        storage, size = form.untyped_storage(), _end(form)
        if storage.nbytes() < size:
            storage.resize_(size)
        tensor.data = form.detach()


def _lies(tensor: Tensor) -> tuple[object, ...]:
    where = tensor.untyped_storage().data_ptr(), tensor.storage_offset()
    return *where, tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def _end(form: Tensor) -> int:
    """Of its memory, in bytes."""
    if not form.numel():
        return 0
    steps = zip(form.shape, form.stride(), strict=True)
    last = form.storage_offset() + sum((size - 1) * stride for size, stride in steps)
    return int(last + 1) * form.element_size()
