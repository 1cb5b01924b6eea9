# SPDX-License-Identifier: Apache-2.0
"""Autograd's threads, and the profiler's records."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C._autograd import _profiler_enabled

_NO_GRAPH = -1
_autograd: Any = torch.autograd  # torch's stubs lag behind.
_inside: Any = torch._C

profiling: Callable[[], bool] = _profiler_enabled
"""Whether somebody wants to see this thread's calls in a profile."""


def in_backward() -> bool:
    """Whether this thread computes gradients at this moment."""
    return bool(_inside._current_graph_task_id() != _NO_GRAPH)


def begin_record(title: str, inputs: list[Tensor]) -> Any:
    """A call in the profile, under way until `end_record` of what this gives."""
    return _autograd._record_function_with_args_enter(title, *inputs)


def end_record(record: Any) -> None:
    """In whichever thread."""
    _autograd._record_function_with_args_exit(record)
