# SPDX-License-Identifier: Apache-2.0
"""Private names of torch by which a script's objects are carried (`graph`)."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

HOOKS_OF_LEAVES = ("_backward_hooks", "_post_accumulate_grad_hooks")
"""Attributes of a leaf that hold its hooks; None where it has none."""

MADE_ATTRIBUTES = frozenset({"_backward_cls"})
"""Attributes that torch gives to a script's classes, made anew in each process."""

NOT_CARRIED: dict[type, frozenset[str]] = {
    DistributedDataParallel: frozenset(
        {"modules_buffers", "named_module_buffers", "_has_rebuilt_buckets"}
    )
}
"""Attributes by class that each forward pass makes anew of others, or that tell what C++ has: with
another value they would hide that this is to be set (`ddp.set_buckets`)."""

OF_THE_PROCESS = (
    *("torch.distributed.distributed_c10d", "torch.distributed.rendezvous", "torch._dynamo"),
    *("torch._inductor", "torch.fx", "torch._ops", "torch.jit", "torch.multiprocessing"),
    *("torch.profiler", "torch.autograd.profiler"),
)
"""Packages whose objects belong to the process."""

WITH_PROCESSES = "MultiProcessingDataLoaderIter"
"""End of the names of iterators of loaders with processes of their own: torch's, torchdata's."""

subclass_of: Callable[[Any, Tensor], Tensor] = Tensor._make_subclass
"""Return a tensor of a subclass over the memory of another one."""


def set_local(tensor: Any, part: Tensor) -> None:
    """Give a sharded tensor another local part."""
    tensor._local_tensor = part
