"""The batch's own gradient says where it hurts most."""

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
        x.requires_grad_(True)
        kit.error(model.module, x, y).backward()
        hard = (x + 0.05 * x.grad / (x.grad.norm() + 1e-6)).detach()
        optimizer.zero_grad()
        loss = kit.error(model, x.detach(), y) + 0.5 * kit.error(model, hard, y)
        loss.backward()
        job.report(loss=loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
        train_step(x, y)
        kit.moment(job, args)


main()
