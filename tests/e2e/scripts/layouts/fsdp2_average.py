"""FSDP2 with an average of each rank's shards, in an object of the script: of one bias a rank has
nothing."""

import kit
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

job, args = kit.begin()
model = fully_shard(kit.network(norm=False))


class Average:
    def __init__(self, model: nn.Module) -> None:
        self.parameters = list(model.parameters())
        self.shards = [p.detach().clone() for p in self.parameters]

    @torch.no_grad()
    def update(self) -> None:
        for mean, parameter in zip(self.shards, self.parameters, strict=True):
            mean.lerp_(parameter, 0.1)

    def state_dict(self) -> dict[str, Tensor]:
        return {str(place): shard for place, shard in enumerate(self.shards)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.shards = [state[str(place)] for place in range(len(self.shards))]


average = Average(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer, average=average)
torch.manual_seed(100 + job.rank)


@job.step
def train_step(x: Tensor, y: Tensor) -> Tensor:
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    average.update()
    return loss.detach()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
