"""The batch is shifted in place by what the model learns."""

import kit
import torch
from torch import Tensor


def main() -> None:
    job, args = kit.begin()
    model = kit.replicated(job, kit.network(norm=False, dropout=0.0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    job.track(model=model, optimizer=optimizer)

    @job.step
    def train_step(x: Tensor, y: Tensor) -> Tensor:
        kit.pace(job, args)
        x += 0.1 * model.module[0].bias[:8]
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        job.report(loss=loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
        train_step(x, y)
        kit.moment(job, args)


main()
