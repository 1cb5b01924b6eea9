# SPDX-License-Identifier: Apache-2.0
"""all_reduce of sparse tensors: everybody gathers everybody's entries and adds them up, by seat."""

from typing import Any

import torch
from torch import Tensor

from trainmover.comm.native.checks import Checks
from trainmover.comm.native.options import Options
from trainmover.comm.native.staging import Staging, copy_into
from trainmover.comm.native.types import moved_code, operator_code
from trainmover.torch_internals.tensors import entries_in


def all_reduce_sparse(stage: Staging, checks: Checks, tensor: Tensor, options: Options) -> Any:
    """Done when it returns: how much is to be gathered is known only after a first round.

    Raises RuntimeError for anything but a sum, and when shapes differ between seats.
    """
    if operator_code(options.reduction) != operator_code(torch.distributed.ReduceOp.SUM):
        checks.refuse("only the sum is supported for sparse tensors")
    if tensor.layout is not torch.sparse_coo:
        checks.refuse("unsupported layout")
    mine = tensor.detach().cpu().coalesce()
    counts = _counts(stage, checks, mine)
    longest = max(counts)
    indices = _gather(stage, _padded(mine.indices().t(), longest))
    values = _gather(stage, _padded(mine.values(), longest))
    total = torch.zeros_like(mine)
    for seat, count in enumerate(counts):
        part = indices[seat, :count].t(), values[seat, :count]
        total = total + torch.sparse_coo_tensor(*part, mine.shape, is_coalesced=True)
    stage.then(lambda: copy_into(tensor, total.coalesce()))
    return stage.finish([tensor])


def _counts(stage: Staging, checks: Checks, mine: Tensor) -> list[int]:
    """Entries of every seat."""
    shape = [mine.sparse_dim(), mine.dense_dim(), *mine.shape]
    about = torch.tensor([entries_in(mine), *shape], dtype=torch.int64)
    everybody = _gather(stage, about)
    if any(row[1:].tolist() != shape for row in everybody):
        checks.refuse("Sparse dimensions do not match")
    return [int(row[0]) for row in everybody]


def _padded(part: Tensor, rows: int) -> Tensor:
    """With as many rows as the longest has."""
    whole = torch.zeros(rows, *part.shape[1:], dtype=part.dtype)
    whole[: part.shape[0]] = part
    return whole


def _gather(stage: Staging, mine: Tensor) -> Tensor:
    """One row for every seat."""
    size = stage.session.size
    every = torch.empty(size, *mine.shape, dtype=mine.dtype)
    step, first = mine.numel() * mine.element_size(), every.data_ptr()
    outputs = [first + seat * step for seat in range(size)]
    code, count = moved_code(mine.dtype), mine.numel()
    stage.group.all_gather(mine.data_ptr(), outputs, count, code, False, stage.epoch)
    return every
