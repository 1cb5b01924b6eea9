"""The data of each pass are chosen and labelled by the model, as it was at its end."""

from enum import Enum, auto

import kit
import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

job, args = kit.begin()
CLASSES = 3


class Stage(Enum):
    SUPERVISED = auto()
    MIXED = auto()
    REFINED = auto()

    def next(self) -> "Stage":
        return {Stage.SUPERVISED: Stage.MIXED}.get(self, Stage.REFINED)


net = nn.Sequential(nn.Linear(kit.WIDTH, 16), nn.ReLU(), nn.Linear(16, CLASSES))
model = kit.replicated(job, net)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
job.track(model=model, optimizer=optimizer)
x_all = kit.dataset(208).tensors[0]
y_all = torch.bucketize(x_all[:, 0] + x_all[:, 1], torch.tensor([-0.5, 0.5]))
labelled = TensorDataset(x_all[:80], y_all[:80], torch.ones(80))
pool = x_all[80:]


@job.step
def train_step(x: Tensor, y: Tensor, weight: Tensor) -> None:
    kit.pace(job, args)
    losses = nn.functional.cross_entropy(model(x), y, reduction="none")
    loss = (losses * weight).mean()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


@torch.no_grad()
def pseudo(limits: np.ndarray, stage: Stage) -> tuple[TensorDataset, np.ndarray]:
    sure, label = net(pool).softmax(1).max(1)
    kept = sure.numpy() >= limits[label.numpy()]
    taken = np.bincount(label.numpy()[kept], minlength=CLASSES)
    limits = np.where(taken > 12, limits + 0.03, limits * 0.95)
    weight = 0.3 if stage is Stage.MIXED else 0.6
    chosen = torch.from_numpy(kept)
    x, y = torch.cat([x_all[:80], pool[chosen][:48]]), torch.cat([y_all[:80], label[chosen][:48]])
    weights = torch.full((len(x),), weight)
    weights[:80] = 1.0
    return TensorDataset(x, y, weights), limits


def main() -> None:
    data, stage = labelled, Stage.SUPERVISED
    limits = np.full(CLASSES, 0.5)
    while job.steps < args.steps:
        for x, y, weight in kit.until(job, args, job.batches(kit.loader(job, data))):
            train_step(x, y, weight)
            kit.moment(job, args)
        stage = stage.next()
        data, limits = pseudo(limits, stage)
        kit.say(job, f"{job.steps} {stage.name} {len(data)} {limits.round(6).tolist()}")


main()
