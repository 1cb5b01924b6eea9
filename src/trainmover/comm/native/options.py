# SPDX-License-Identifier: Apache-2.0
"""The options of a call, however torch's overloads give them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from trainmover.comm.native.types import UNSET


@dataclass
class Options:
    """background: the caller waits by himself. timeout: None for the group's own."""

    background: bool = True
    timeout: timedelta | None = None
    root: int = 0
    reduction: Any = dist.ReduceOp.SUM


def options_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Options:
    """From an object with options, or from a root, an operator and a timeout given as they are."""
    options = Options()
    for value in (*args, *kwargs.values()):
        if isinstance(value, timedelta):
            options.timeout = value
        elif isinstance(value, int):
            options.root = value
        elif isinstance(value, (dist.ReduceOp, dist.ReduceOp.RedOpType)):
            options.reduction = value
        elif hasattr(value, "timeout"):
            _read(options, value)
    return options


def _read(options: Options, given: Any) -> None:
    options.background = given.asyncOp
    options.timeout = None if given.timeout == UNSET else given.timeout
    options.root = getattr(given, "rootRank", 0)
    options.reduction = getattr(given, "reduceOp", options.reduction)
