# SPDX-License-Identifier: Apache-2.0
"""A small convolutional network with batch-norm learns to tell drawn shapes apart.
python examples/classifier.py
torchrun --nproc-per-node 2 examples/classifier.py
trainmover run --machines 2 --standbys 1 examples/classifier.py
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import trainmover as tm

SHAPES = ("disc", "square", "diamond", "cross")


def draw(count: int, seed: int) -> TensorDataset:
    """Noisy 16 x 16 pictures of one shape each: [count, 1, 16, 16] float32, and [count] int64."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(len(SHAPES), (count,), generator=random)
    centre = 6 + 4 * torch.rand(2, count, 1, 1, generator=random)
    radius = 3 + 3 * torch.rand(count, 1, 1, generator=random)
    across, down = torch.arange(16.0) - centre[0], torch.arange(16.0)[:, None] - centre[1]
    dx, dy = torch.broadcast_tensors(across.abs(), down.abs())
    cross = torch.where(torch.minimum(dx, dy) < 1, torch.maximum(dx, dy), 99)
    far = torch.stack([torch.hypot(dx, dy), torch.maximum(dx, dy), 0.7 * (dx + dy), cross])
    drawn = (far[labels, torch.arange(count)] < radius).float()
    noise = torch.randn(drawn.shape, generator=random)
    return TensorDataset((drawn + 0.3 * noise).unsqueeze(1), labels)


def network() -> nn.Module:
    def stage(inputs: int, outputs: int) -> list[nn.Module]:
        convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        return [convolution, nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]

    head = [nn.Flatten(), nn.Dropout(0.2), nn.Linear(64 * 4, len(SHAPES))]
    return nn.Sequential(*stage(1, 16), *stage(16, 32), *stage(32, 64), *head)


class Progress:
    """What this rank has done."""

    batches, loss_sum = 0, 0.0


def flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--passes", type=int, default=4, help="data passes")
    parser.add_argument("--batch", type=int, default=32, help="images a rank and step")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate")
    parser.add_argument("--log-every", type=int, default=16, help="batches between lines")
    parser.add_argument("--seed", type=int, default=1, help="of weights, data order, dropout")
    return parser.parse_args()


def main() -> None:
    args = flags()
    torch.set_num_threads(1)
    job = tm.attach()
    rank, world = job.rank, job.world_size
    if world > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(args.seed)  # the same weights on every rank
    cnn = network()
    model = nn.parallel.DistributedDataParallel(cnn) if world > 1 else cnn
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    progress = Progress()  # they follow the rank
    job.track(model=model, optimizer=optimizer)
    torch.manual_seed(args.seed + 1 + rank)  # another dropout mask on every rank

    @job.step
    def train_step(images: Tensor, labels: Tensor) -> Tensor:
        model.train()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        job.report(loss=loss)
        progress.batches += 1  # before the commit, as everything of this rank alone
        progress.loss_sum += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    @job.step
    def accuracy(images: Tensor, labels: Tensor) -> Tensor:
        model.eval()
        with torch.no_grad():
            right = (model(images).argmax(1) == labels).float().mean()
        if world > 1:
            dist.all_reduce(right)
        return right / world

    held_out = draw(512 * world, seed=args.seed + 1)[rank::world]
    train = draw(2048, seed=args.seed)
    sampler = DistributedSampler(train, world, rank, seed=args.seed, drop_last=True)
    loader = DataLoader(train, args.batch, sampler=sampler, drop_last=True)
    for images, labels in job.batches(loader, passes=args.passes):
        loss = train_step(images, labels)
        if rank == 0 and progress.batches % args.log_every == 0:
            print(f"step {progress.batches} loss {loss.item():.9g}", flush=True)
        if progress.batches % len(loader) == 0:
            share = accuracy(*held_out)
            if rank == 0:
                print(f"accuracy {share.item():.4f} loss sum {progress.loss_sum:.9g}", flush=True)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
