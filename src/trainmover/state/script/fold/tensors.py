# SPDX-License-Identifier: Apache-2.0
"""Tensors and arrays that are more than shape, dtype and bytes: of what they are made."""

from collections.abc import Iterator
from typing import Any

import numpy
import torch
from torch import Tensor

_BY_ROWS, _BY_COLUMNS = (torch.sparse_csr, torch.sparse_bsr), (torch.sparse_csc, torch.sparse_bsc)
_BY_CHANNEL = (torch.per_channel_affine, torch.per_channel_affine_float_qparams)


def parts_of(value: Tensor) -> Iterator[Any]:
    """Words and plain tensors; none of one of which nothing is known."""
    whole = value.detach()
    if whole.layout == torch.sparse_coo:
        whole = whole.coalesce()
        yield from (whole.indices(), whole.values())
    elif whole.layout in _BY_ROWS:
        yield from ("rows", whole.crow_indices(), whole.col_indices(), whole.values())
    elif whole.layout in _BY_COLUMNS:
        yield from ("columns", whole.ccol_indices(), whole.row_indices(), whole.values())
    elif whole.is_nested:
        yield from ("nested", *whole.unbind())
    elif whole.is_quantized:
        yield from (str(whole.dtype), whole.int_repr(), *_scales_of(whole))


def _scales_of(value: Tensor) -> Iterator[Any]:
    scheme = value.qscheme()
    yield str(scheme)
    if scheme in _BY_CHANNEL:
        yield value.q_per_channel_axis()
        yield from (value.q_per_channel_scales(), value.q_per_channel_zero_points())
    else:
        yield from (value.q_scale(), value.q_zero_point())


def parts_of_masked(value: "numpy.ma.MaskedArray[Any, Any]") -> tuple[Any, Any, Any]:
    """Its data, what of them is masked, and what stands for that."""
    return numpy.ma.getdata(value), numpy.ma.getmaskarray(value), numpy.asarray(value.fill_value)
