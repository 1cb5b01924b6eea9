"""A batch's hash tells it from every other one, and is the same for the same."""

from typing import Any

import numpy
import pytest
import torch

from trainmover.worker.data.batch_hash import QUICK_BYTES_MAX, BatchHash

LARGE = 4 * QUICK_BYTES_MAX


def large() -> torch.Tensor:
    return torch.arange(LARGE // 4, dtype=torch.float32)


def whole(batch: Any) -> list[int]:
    """Once the rest is hashed too."""
    hashed = BatchHash(batch)
    assert not hashed.differs_from(hashed.pair)  # waits
    return hashed.pair


DIFFERENT: list[Any] = [
    None, 0, 1, 1.0, "1", b"1", True, [], (), [1], [1, 2], [2, 1], (1, 2), {"a": 1}, {"b": 1},
    {"a": 2}, torch.zeros(2), torch.zeros(3), torch.zeros(2, 1), torch.zeros(2, dtype=torch.int32),
    torch.ones(2), [torch.ones(2), torch.zeros(2)], [torch.zeros(2), torch.ones(2)],
    torch.ones(2, dtype=torch.bfloat16), numpy.zeros(2), numpy.ones(2), numpy.float32(3), large(),
    torch.zeros(()), torch.zeros(0),
]  # fmt: skip


def test_different_batches_have_different_hashes() -> None:
    hashes = [BatchHash(batch).quick for batch in DIFFERENT]
    assert len(set(hashes)) == len(hashes)
    assert hashes == [BatchHash(batch).quick for batch in DIFFERENT]


def test_strides_do_not_show() -> None:
    batch = torch.rand(3, 4)
    assert BatchHash(batch.t().contiguous().t()).quick == BatchHash(batch).quick


@pytest.mark.parametrize("place", [0, LARGE // 8, LARGE // 4 - 1])
def test_any_number_in_a_large_batch_counts(place: int) -> None:
    batch, other = large(), large()
    other[place] += 1
    assert whole(batch) == whole(large())
    assert BatchHash(other).differs_from(whole(batch))


def test_a_batch_that_a_step_writes_into_is_known_by_its_blocks_alone() -> None:
    from trainmover.worker.data import batch_hash

    batch = large()
    quick = BatchHash(batch, whole=False).quick
    before = batch_hash._quick([batch])
    batch.mul_(2)
    assert batch_hash._whole([batch], before) == 0
    assert not BatchHash(large()).differs_from([quick, 0])


def test_a_large_batch_with_other_strides_is_hashed_without_a_copy_of_it_all() -> None:
    batch = large().reshape(-1, 1024).t()
    assert BatchHash(batch, whole=False).quick == BatchHash(batch.clone(), whole=False).quick
    other = batch.clone()
    other[0] += 1
    assert BatchHash(batch).differs_from(whole(other))


def test_tensors_of_several_lengths_in_one_are_read() -> None:
    def nested(*parts: list[float]) -> BatchHash:
        return BatchHash(torch.nested.nested_tensor([torch.tensor(part) for part in parts]))

    pair = nested([1.0, 2.0], [3.0]).pair
    assert not nested([1.0, 2.0], [3.0]).differs_from(pair)
    assert nested([1.0], [2.0, 3.0]).differs_from(pair)
    assert nested([1.0, 2.0], [4.0]).differs_from(pair)
