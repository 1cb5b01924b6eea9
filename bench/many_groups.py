# SPDX-License-Identifier: Apache-2.0
"""examples/gpt.py with many groups: over all ranks as many more as the first argument says.

They stand for those that a job of several kinds of parallelism has: for data, tensors, stages,
experts, metrics. Each is used once, as the job is set up.
"""

import sys
from typing import Any

import torch
import torch.distributed as dist

from examples import gpt


def main() -> None:
    """Train, with the groups made as soon as there is a first one."""
    count, stock = int(sys.argv.pop(1)), dist.init_process_group

    def with_groups(*args: Any, **kwargs: Any) -> None:
        dist.init_process_group = stock
        stock(*args, **kwargs)
        for _ in range(count):
            dist.all_reduce(torch.ones(1), group=dist.new_group())

    dist.init_process_group = with_groups
    gpt.main()


if __name__ == "__main__":
    main()
