"""Random augmentation in the process that trains."""

import kit
import torch
from torch import Tensor
from torch.utils.data import Dataset

job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)


class Augmented(Dataset[tuple[Tensor, Tensor]]):
    """With noise of whichever process loads."""

    def __init__(self) -> None:
        self.data = kit.dataset()

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x, y = self.data[index]
        return x + 0.1 * torch.randn(x.shape), y


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job, Augmented()), passes=None)):
    train_step(x, y)
