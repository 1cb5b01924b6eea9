"""Where a tensor's bytes are read without torch, they are those that torch gives."""

import pytest
import torch
from torch import Tensor, nn

from trainmover.state.tensor_bytes import DTYPES, memory_of, size_of, view_bytes

NUMBERS = torch.arange(24).reshape(2, 3, 4)
PLAIN = [
    NUMBERS,
    NUMBERS[1],
    NUMBERS[:, :1].contiguous(),
    NUMBERS[:1, :, :1][:, 1:2],  # One element, with strides of its own.
    torch.tensor(3.5),
    torch.tensor([True, False]),
    torch.randn(3, dtype=torch.bfloat16).requires_grad_(),
    torch.randn(3, dtype=torch.complex64),
]
OTHERS = [
    *(NUMBERS.transpose(0, 1), NUMBERS[:, :, ::2], torch.zeros(0), torch.empty(3, device="meta")),
    *(torch.randn(3, dtype=torch.complex64).conj(), torch.eye(2).to_sparse()),
    nn.Parameter(torch.ones(2)),
]


@pytest.mark.parametrize("tensor", PLAIN, ids=lambda one: f"{one.dtype} {tuple(one.shape)}")
def test_the_memory_holds_what_torch_gives(tensor: Tensor) -> None:
    memory = memory_of(tensor)
    assert memory is not None
    assert memory.raw == bytes(view_bytes(tensor))


def test_who_was_read_can_still_be_resized_and_lives_as_long_as_the_view() -> None:
    tensor = torch.arange(6.0)
    view = view_bytes(tensor)
    tensor.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="freed"):
        view_bytes(tensor)
    del view, tensor
    view = view_bytes(torch.arange(6.0))
    assert bytes(view[-4:]) == bytes(view_bytes(torch.tensor(5.0)))
    view[-4:] = b"\0" * 4
    assert bytes(view_bytes(torch.zeros(0))) == b""


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_of_every_type(dtype: torch.dtype) -> None:
    tensor = torch.arange(5).to(torch.uint8).repeat(16).view(torch.uint8)
    try:
        tensor = tensor.view(dtype)
    except RuntimeError:
        pytest.skip("no view of bytes")
    memory = memory_of(tensor)
    assert memory is not None
    assert memory.raw == bytes(view_bytes(tensor))


@pytest.mark.parametrize("tensor", OTHERS, ids=lambda one: f"{one.layout} {tuple(one.shape)}")
def test_what_lies_otherwise_is_left_to_torch(tensor: Tensor) -> None:
    assert memory_of(tensor) is None


def test_a_sparse_tensor_is_as_large_as_its_parts() -> None:
    whole = torch.eye(3)
    assert size_of(whole) == 36
    assert size_of(whole.to_sparse()) == 3 * 2 * 8 + 3 * 4
    assert size_of(whole.to_sparse_csr()) == 3 * 4
