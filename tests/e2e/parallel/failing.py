"""Plain data parallel on devices of which one fails, as `--fails` says; on m2 and m4 only.

bus     rank 1's has fallen off the bus: all that is asked of it is answered with an error
ecc     a bit in it has flipped that cannot be mended: the script's next call raises
memory  m4's has no room for the state that it is to take
"""

import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from layout import WIDTH, batches, flags, optimizer_for, pause, train
from torch import Tensor, nn

import trainmover as tm
from trainmover.comm.nccl.device import own_device

at = sys.argv.index("--fails")
fails = sys.argv[at + 1]
del sys.argv[at : at + 2]
args = flags()
machine = os.environ["TRAINMOVER_MACHINE"]
job = tm.attach()
dist.init_process_group(args.backend)
torch.manual_seed(1)
model = nn.parallel.DistributedDataParallel(nn.Linear(WIDTH, WIDTH).to(args.device))
optimizer = optimizer_for(args, model.parameters())


class Mean:
    """Of losses; tracked, so a joiner loads it."""

    def __init__(self) -> None:
        self.value = 0.0

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if fails == "memory" and machine == "m4":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        self.value = state["value"]


mean = Mean()
job.track(model=model, optimizer=optimizer, mean=mean)


def fail() -> None:
    if job.is_shadow or job.steps != 20 or machine != "m2":
        return
    if fails == "bus":
        own_device(None, 0).set("device_error", 719)  # type: ignore[attr-defined]
    elif fails == "ecc":
        raise torch.AcceleratorError("CUDA error: uncorrectable ECC error encountered")


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    pause(job, args)
    fail()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    mean.value = 0.9 * mean.value + 0.1 * float(loss)
    return loss


train(job, args, batches(job, job.rank, job.world_size), train_step)
