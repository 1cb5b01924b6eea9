# SPDX-License-Identifier: Apache-2.0
"""What a call must be like to make sense, checked before any rank is bothered with it.

As strict as gloo, which says no in the same words.
"""

from collections.abc import Sequence
from typing import Any, NoReturn

from torch import Tensor


class Checks:
    """Checks of one call. All raise RuntimeError."""

    def __init__(self, op: str, size: int) -> None:
        self.op = op
        self.size = size

    def refuse(self, why: str) -> NoReturn:
        raise RuntimeError(f"invalid argument of {self.op}: {why}")

    def one(self, tensors: Any, what: str) -> Tensor:
        """The only tensor of a list, dense."""
        if isinstance(tensors, Tensor):
            tensors = [tensors]
        if len(tensors) != 1:
            self.refuse(f"requires a single-element {what} list")
        return self.dense(tensors[0])

    def dense(self, tensor: Tensor) -> Tensor:
        if tensor.is_sparse:
            self.refuse("only supports dense tensors")
        return tensor

    def seat(self, seat: int, what: str) -> int:
        if not 0 <= seat < self.size:
            self.refuse(f"invalid {what}: {seat}")
        return seat

    def one_each(self, tensors: Sequence[Tensor], like: Tensor, what: str) -> Sequence[Tensor]:
        """One for every seat, of type and size of `like`."""
        if len(tensors) != self.size:
            self.refuse(
                f"Incorrect {what} list size {len(tensors)}. {what.capitalize()} list size should "
                f"be {self.size}, same as size of the process group."
            )
        for index, tensor in enumerate(tensors):
            self.alike(tensor, like, index)
        return tensors

    def alike(self, tensor: Tensor, like: Tensor, index: int) -> None:
        self.dense(tensor)
        if tensor.dtype != like.dtype:
            self.refuse(
                f"invalid tensor type at index {index} (expected {like.dtype}, got {tensor.dtype})"
            )
        if tensor.shape != like.shape:
            self.refuse(
                f"invalid tensor size at index {index} (expected {tuple(like.shape)}, got "
                f"{tuple(tensor.shape)})"
            )

    def nested(self, lists: Any, what: str) -> Sequence[Tensor]:
        """The only list of a list of lists."""
        if len(lists) == 1 and not isinstance(lists[0], Tensor):
            inner: Sequence[Tensor] = lists[0]
            return inner
        if lists and isinstance(lists[0], Tensor):  # The form of one list for one tensor.
            return list(lists)
        self.refuse(
            f"requires a single-element {what} list containing a list with {self.size} tensors"
        )

    def whole(self, large: Tensor, part: Tensor, what: str) -> None:
        """`large` holds one `part` for every seat."""
        if large.dtype != part.dtype:
            self.refuse(f"{what} tensor must have the same type as the other tensor")
        if large.numel() != part.numel() * self.size:
            self.refuse(
                f"{what} tensor size must be equal to world_size times the size of the other "
                f"tensor: {large.numel()} is not {self.size} * {part.numel()}"
            )

    def splits(self, tensor: Tensor, splits: Sequence[int], what: str) -> list[int]:
        """How many elements of `tensor` go to each seat; no splits means equal ones."""
        rows = tensor.shape[0] if tensor.dim() else 0
        if not splits:
            if rows % self.size:
                self.refuse("Tensor's dim 0 does not divide equally across group size")
            return [tensor.numel() // self.size] * self.size
        if len(splits) != self.size:
            self.refuse(f"Number of {what} splits not equal to group size")
        if sum(splits) != rows:
            self.refuse(f"{what} split sizes don't match total dim 0 size")
        width = tensor.numel() // rows if rows else 0
        return [int(split) * width for split in splits]
