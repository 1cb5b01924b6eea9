"""Chunks cover everything once, and are read and written wherever the bytes lie."""

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from trainmover.state import chunks, tensor_bytes

MIB = chunks.CHUNK_BYTES


@given(st.lists(st.integers(0, 40), max_size=20))
def test_chunks_cover_every_byte_once_in_order(sizes: list[int]) -> None:
    cut = list(chunks.cut(sizes, chunk_bytes=16))
    covered = [(p.tensor, at) for chunk in cut for p in chunk for at in range(p.start, p.stop)]
    assert covered == [(n, at) for n, size in enumerate(sizes) for at in range(size)]
    assert all(0 < chunks.length(chunk) <= 16 for chunk in cut)


def test_a_chunk_does_not_pass_for_another() -> None:
    assert chunks.checksum(1, b"abc") != chunks.checksum(2, b"abc")


LAYOUTS = {
    "contiguous": lambda: torch.randn(700, 900),
    "transposed": lambda: torch.randn(700, 900).t(),
    "channels last": lambda: torch.randn(3, 40, 70, 60).to(memory_format=torch.channels_last),
    "every second": lambda: torch.randn(1_200_000)[::2],
    "one long row": lambda: torch.randn(600_000, 1).t().expand(1, 600_000)[:, ::2],
    "half": lambda: torch.randn(900, 700).t().bfloat16(),
    "conjugated": lambda: torch.randn(400, 500, dtype=torch.complex64).conj().t(),
    "number": lambda: torch.tensor(3.0),
}
each_layout = pytest.mark.parametrize("layout", LAYOUTS)


@each_layout
def test_chunks_in_any_order_make_the_tensor_again(layout: str) -> None:
    sent, beside = LAYOUTS[layout](), torch.arange(5)
    got = [torch.zeros_like(sent), torch.zeros_like(beside)]
    source, destination = chunks.Source([sent, beside]), chunks.Destination(got)
    staging = bytearray(chunks.CHUNK_BYTES)
    order = list(range(len(destination.chunks)))
    random.Random(1).shuffle(order)
    for number in order:
        buffer = destination.buffer(number, staging)
        buffer[:] = source.payload(destination.chunks[number])
        destination.accept(number, buffer, staging)
    assert torch.equal(got[0], sent)
    assert torch.equal(got[1], beside)


def put(tensor: Tensor, start: int, stop: int, size: int) -> None:
    data = tensor_bytes.read_range(tensor, start * size, stop * size)
    twin = torch.zeros_like(tensor)
    tensor_bytes.write_range(twin, start * size, memoryview(bytearray(data)))
    flat, expected = twin.reshape(-1), tensor.reshape(-1)
    assert torch.equal(flat[start:stop], expected[start:stop])
    assert not flat[:start].any()
    assert not flat[stop:].any()


@given(st.integers(0, 119), st.integers(1, 120))
def test_any_range_of_a_strided_tensor(start: int, count: int) -> None:
    stop = min(120, start + count)
    tensor = torch.arange(1, 121).view(5, 4, 3, 2).permute(2, 0, 3, 1)
    put(tensor, start, stop, 8)
    put(torch.arange(1, 241)[::2], start, stop, 8)


def test_a_large_contiguous_tensor_is_not_copied() -> None:
    tensor = torch.zeros(MIB)
    source, destination = chunks.Source([tensor]), chunks.Destination([tensor])
    tensor[300_000] = 7
    assert bytes(source.payload(destination.chunks[1])) == bytes(
        tensor_bytes.view_bytes(tensor)[MIB : 2 * MIB]
    )
    destination.buffer(1, bytearray(MIB))[:4] = b"\0\0\x80\x3f"
    assert tensor[MIB // 4] == 1.0
