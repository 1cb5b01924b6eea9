# SPDX-License-Identifier: Apache-2.0
"""Gathering into, and scattering from, one tensor that holds a part for every seat."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from trainmover.comm.native.staging import Staging
from trainmover.comm.native.types import moved_code, operator_code, reduced_code


def gather_into(stage: Staging, output: Tensor, given: Tensor) -> Callable[[bool], Any]:
    """All seats' `given`, one behind the other."""
    count, code = given.numel(), moved_code(given.dtype)
    at, first, step = stage.reads(given), stage.writes(output), count * given.element_size()
    outputs = [first + seat * step for seat in range(stage.session.size)]
    return lambda background: stage.group.all_gather(
        at, outputs, count, code, background, stage.epoch
    )


def scatter_from(
    stage: Staging, output: Tensor, given: Tensor, reduction: Any
) -> Callable[[bool], Any]:
    """This seat's part of the sum of all seats' `given`."""
    count, code = output.numel(), reduced_code(output.dtype)
    operator = operator_code(reduction)
    first, at, step = stage.reads(given), stage.writes(output), count * output.element_size()
    inputs = [first + seat * step for seat in range(stage.session.size)]
    return lambda background: stage.group.reduce_scatter(
        inputs, at, count, code, operator, background, stage.epoch
    )
