"""The loss and the accuracy of a batch are returned, worked out behind the update, and summed."""

import kit
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

job, args = kit.begin()
x, y = kit.dataset().tensors
labels = (y.squeeze(1) > 0).long() + (y.squeeze(1) > 0.7).long()
net = nn.Sequential(nn.Linear(kit.WIDTH, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 3))
model = kit.replicated(job, net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
job.track(model=model, optimizer=optimizer)


def accuracy(output: Tensor, target: Tensor, topk: tuple[int, ...] = (1,)) -> list[Tensor]:
    """As in torchvision's references."""
    with torch.no_grad():
        _, pred = output.topk(max(topk), 1, True, True)
        correct = pred.t().eq(target[None])
        found = []
        for k in topk:
            found.append(correct[:k].flatten().sum(dtype=torch.float32) * (100.0 / target.size(0)))
        return found


@job.step
def train_step(data: Tensor, target: Tensor) -> tuple[float, int, float]:
    kit.pace(job, args)
    output = model(data)
    loss = F.cross_entropy(output, target)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    _, acc2 = accuracy(output, target, topk=(1, 2))
    return loss.item(), int((output.argmax(1) == target).sum().item()), acc2.item()


lost, right, second = 0.0, 0, 0.0
for data, target in kit.until(
    job, args, job.batches(kit.loader(job, TensorDataset(x, labels)), passes=None)
):
    loss, correct, acc2 = train_step(data, target)
    lost += loss
    right += correct
    second += acc2
    kit.moment(job, args)
kit.say(job, f"lost {lost!r} right {right} second {second!r}")
