"""nanoGPT: no loader; a batch is drawn by chance from one array, the next one within the step."""

import kit
import torch
from torch import Tensor

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
data = kit.dataset(400).tensors


def get_batch() -> list[Tensor]:
    chosen = torch.randint(400, (8,))
    return [part[chosen] for part in data]


@job.step
def train_step(x: Tensor, y: Tensor) -> tuple[Tensor, list[Tensor]]:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    following = get_batch()  # while a GPU would still be at the forward pass
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach(), following


x, y = get_batch()
for _ in job.batches(range(args.steps)):
    loss, (x, y) = train_step(x, y)
    kit.say(job, f"step {job.steps} loss {loss.item():.9g}")
