"""Two groups are made every seventh step: one of the last two ranks, held by a function, and one of
all, held by an object. Who is in no pair holds torch's number for that."""

from argparse import Namespace

import kit
import torch
import torch.distributed as dist
from torch import Tensor

import trainmover as tm


class Trainer:
    """Holds the newest group of all ranks."""

    def __init__(self, job: tm.Job, args: Namespace) -> None:
        self.job, self.args, self.everybody = job, args, None
        self.model = kit.replicated(job, kit.network())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        job.track(model=self.model, optimizer=self.optimizer)
        self.step = job.step(self.train_step)

    def train_step(self, x: Tensor, y: Tensor, pair: "dist.ProcessGroup | int | None") -> Tensor:
        kit.pace(self.job, self.args)
        loss = kit.error(self.model, x, y)
        loss.backward()
        self.job.report(loss=loss)
        of_pair = loss.detach().clone()
        if pair != dist.GroupMember.NON_GROUP_MEMBER:
            dist.all_reduce(of_pair, group=pair)
        total = of_pair.clone()
        dist.all_reduce(total, group=self.everybody)
        self.optimizer.param_groups[0]["lr"] = 1e-2 / (1 + total.item())
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total

    def run(self) -> None:
        pair = None
        batches = self.job.batches(kit.loader(self.job), passes=None)
        for x, y in kit.until(self.job, self.args, batches):
            self.step(x, y, pair)
            if self.job.steps % 7 == 0:
                kit.moment(self.job, self.args)
                pair = dist.new_group([1, 2])
                self.everybody = dist.new_group()


Trainer(*kit.begin()).run()
