"""As nanoGPT trains: no loader, batches drawn by torch's own numbers, micro-steps in a loop."""

import sys

import common
import torch
import torch.distributed as dist
from torch import nn

rank, world = common.begin()
x, y = common.samples(512)
model = common.network()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
torch.manual_seed(7 + rank)


def get_batch():
    at = torch.randint(len(x), (8,))
    return x[at], y[at]


step, best, running = 0, float("inf"), -1.0
config = [name for name, value in globals().items() if isinstance(value, int | float | str)]
inputs, targets = get_batch()
while True:
    rate = 0.01 * min(1.0, (step + 1) / 10)
    for group in optimizer.param_groups:
        group["lr"] = rate
    if step % 10 == 9:
        model.eval()
        with torch.no_grad():
            value = nn.functional.mse_loss(model(x), y)
        dist.all_reduce(value)
        best = min(best, value.item())
        model.train()
        if rank == 0:
            print(f"step {step} best {best:.9g} running {running:.9g}", flush=True)
    for micro in range(3):
        model.require_backward_grad_sync = micro == 2
        loss = nn.functional.mse_loss(model(inputs), targets) / 3
        inputs, targets = get_batch()
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    running = loss.item() if running < 0 else 0.9 * running + 0.1 * loss.item()
    common.pace()
    step += 1
    if step > int(sys.argv[1] if len(sys.argv) > 1 else 40):
        break
dist.destroy_process_group()
