"""A batch's hash tells it from every other one, and is the same for the same."""

from typing import Any

import numpy
import pytest
import torch

from trainmover.worker.data.batch_hash import BYTES_MAX, batch_hash

LARGE = 4 * BYTES_MAX


def large() -> torch.Tensor:
    return torch.arange(LARGE // 4, dtype=torch.float32)


DIFFERENT: list[Any] = [
    None, 0, 1, 1.0, "1", b"1", True, [], (), [1], [1, 2], [2, 1], (1, 2), {"a": 1}, {"b": 1},
    {"a": 2}, torch.zeros(2), torch.zeros(3), torch.zeros(2, 1), torch.zeros(2, dtype=torch.int32),
    torch.ones(2), [torch.ones(2), torch.zeros(2)], [torch.zeros(2), torch.ones(2)],
    torch.ones(2, dtype=torch.bfloat16), numpy.zeros(2), numpy.ones(2), numpy.float32(3), large(),
    torch.zeros(()), torch.zeros(0),
]  # fmt: skip


def test_different_batches_have_different_hashes() -> None:
    hashes = [batch_hash(batch) for batch in DIFFERENT]
    assert len(set(hashes)) == len(hashes)
    assert hashes == [batch_hash(batch) for batch in DIFFERENT]


def test_strides_do_not_show() -> None:
    batch = torch.rand(3, 4)
    assert batch_hash(batch.t().contiguous().t()) == batch_hash(batch)


@pytest.mark.parametrize(("place", "count"), [(0, 1), (LARGE // 8, LARGE // 64), (-1, 1)])
def test_in_a_large_batch_blocks_all_over_it_count(place: int, count: int) -> None:
    batch, other = large(), large()
    other[place:][:count] += 1
    assert batch_hash(batch) == batch_hash(large())
    assert batch_hash(other) != batch_hash(batch)


def test_a_large_batch_with_other_strides_is_hashed_without_a_copy_of_it_all() -> None:
    batch = large().reshape(-1, 1024).t()
    assert batch_hash(batch) == batch_hash(batch.clone())
    other = batch.clone()
    other[0] += 1
    assert batch_hash(batch) != batch_hash(other)


def test_tensors_of_several_lengths_in_one_are_read() -> None:
    def nested(*parts: list[float]) -> int:
        return batch_hash(torch.nested.nested_tensor([torch.tensor(part) for part in parts]))

    hashed = nested([1.0, 2.0], [3.0])
    assert nested([1.0, 2.0], [3.0]) == hashed
    assert nested([1.0], [2.0, 3.0]) != hashed
    assert nested([1.0, 2.0], [4.0]) != hashed
