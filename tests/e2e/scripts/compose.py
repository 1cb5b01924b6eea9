"""A training script from a seed: habits that are to be equal, put together by chance.

Every part is a few lines of text for one place in the script; a part says with which others it
cannot stand. What comes out is an ordinary script, written to a file, that `arms.py` can run.
"""

import random
import re
from dataclasses import dataclass
from textwrap import indent

IMPORTS = """import contextlib
import random

import kit
import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import Dataset
from torchdata.stateful_dataloader import StatefulDataLoader

job, args = kit.begin()
"""

MODELS = {
    "ddp": "model = kit.replicated(job, kit.network())",
    "static graph": "model = kit.replicated(job, kit.network(), static_graph=True)",
    "unused": "model = kit.replicated(job, kit.network(), find_unused_parameters=True)",
    "own buffers": "model = kit.replicated(job, kit.network(), broadcast_buffers=False)",
    "by hand": "model = kit.network()\ntorch.manual_seed(100 + job.rank)",
    "fsdp2": "model = fully_shard(kit.network(norm=False))\ntorch.manual_seed(100 + job.rank)",
}
OPTIMIZERS = {
    "sgd": "torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)",
    "adamw": "torch.optim.AdamW(model.parameters(), lr=1e-2)",
    "adagrad": "torch.optim.Adagrad(model.parameters(), lr=1e-2)",
    "zero": "ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-2)",
}
BEFORE = {
    "nothing": "",
    "decay": "with torch.no_grad():\n    for p in model.parameters():\n        p.mul_(0.99)",
    "clamp": "for p in model.parameters():\n    p.data.clamp_(-1, 1)",
    "centre": "with torch.no_grad():\n    bank.total.lerp_(kit.mean(x.mean()), 0.1)",
    "worst": "worst = loss.detach().clone()\ndist.all_reduce(worst, dist.ReduceOp.MAX)\n"
    "optimizer.param_groups[0]['lr'] = 1e-2 / (1 + worst.item())",
}
AFTER = {
    "nothing": "",
    "averaged loss": "mean = kit.mean(loss.detach().clone())\n"
    "optimizer.param_groups[0]['lr'] = 1e-2 / (1 + mean.item())",
    "plateau": "plateau.step(kit.mean(loss.detach().clone()).item())",
    "schedule": "schedule.step()",
    "average": "average.update_parameters(model)",
    "late average": "if number >= 6:\n    average.update_parameters(model)",
    "gathered": "found = [torch.zeros(()) for _ in range(job.world_size)]\n"
    "dist.all_gather(found, loss.detach())\nvalues.best = min(values.best, min(found).item())",
}
CLEARED = {
    "after": ("", "optimizer.zero_grad()"),
    "before": ("optimizer.zero_grad()", ""),
    "in place": ("optimizer.zero_grad(set_to_none=False)", ""),
    "never": ("", ""),
}
NOISE = {
    "none": "0.0",
    "torch": "torch.randn(x.shape)",
    "torch generator": "torch.randn(x.shape, generator=chance_torch)",
    "numpy": "float(np.random.normal())",
    "numpy generator": "float(chance_numpy.normal())",
    "python": "random.gauss()",
    "python object": "chance_python.random()",
}
BETWEEN = {
    "nothing": "",
    "schedule": "schedule.step()",
    "plateau": "plateau.step(kit.mean(loss).item())",
    "barrier": "kit.moment(job, args)\ndist.barrier()",
    "average": "average.update_parameters(model)",
    "evaluated": """if job.steps % every == 0:
    kit.moment(job, args)
    with torch.no_grad():
        error = kit.mean(inner(held_x).square().mean()).item()
    optimizer.param_groups[0]["lr"] = 1e-2 / (1 + error)
    kit.say(job, f"step {job.steps} held out {error:.9g}")""",
    "objects": """if job.steps % every == 0:
    kit.moment(job, args)
    objects = [None] * job.world_size
    dist.all_gather_object(objects, (job.rank, loss.item()))
    optimizer.param_groups[0]["lr"] = 1e-2 / (1 + max(value for _, value in objects))""",
    "word": """if job.steps % every == 0:
    kit.moment(job, args)
    word = [loss.item()]
    dist.broadcast_object_list(word)
    kit.say(job, f"step {job.steps} {word[0]:.9g}")""",
    "group": """if job.steps % every == 0:
    kit.moment(job, args)
    group = dist.new_group()
    dist.all_reduce(loss, group=group)
    kit.say(job, f"step {job.steps} {loss.item():.9g}")""",
    "best": """values.count += 1
values.best = min(values.best, loss.item())
if values.count % 5 == 0:
    kit.say(job, f"count {values.count} best {values.best:.9g}")""",
}
LOADERS = {
    "plain": "kit.loader(job)",
    "augmented": "kit.loader(job, Augmented())",
    "worker": "kit.loader(job, Augmented(), num_workers=1)",
    "stateful": "StatefulDataLoader(data, 8, sampler=kit.loader(job).sampler)",
    "sequence": "list(zip(*(part.split(8) for part in data.tensors), strict=True))",
}
LOOPS = {
    "for": "for x, y in kit.until(job, args, job.batches(loader, passes=None)):\n    one(x, y)",
    "while": "batches = iter(job.batches(loader, passes=None))\n"
    "while job.steps < args.steps:\n    one(*next(batches))",
    "passes": "for number in job.range(100):\n"
    "    for x, y in kit.until(job, args, job.batches(loader)):\n        one(x, y)\n"
    "    if job.steps >= args.steps:\n        break",
    "enumerated": "for number, (x, y) in enumerate(job.batches(loader, passes=None)):\n"
    "    optimizer.param_groups[0]['lr'] = 1e-2 / (1 + 0.1 * number)\n    one(x, y)\n"
    "    if job.steps >= args.steps:\n        break",
    "zipped": "both = zip(job.batches(loader, passes=None), job.batches(range(7), passes=None))\n"
    "for (x, y), number in kit.until(job, args, both):\n    one(x + 0.01 * number, y)",
    "several": "batches = job.batches(loader, passes=None)\nwhile job.steps < args.steps:\n"
    "    pair = [next(batches), next(batches)]\n"
    "    one(*(torch.cat(parts) for parts in zip(*pair, strict=True)))",
    "ahead": "batches = job.batches(loader, passes=None)\nx, y = next(batches)\n"
    "while job.steps < args.steps:\n    following = next(batches)\n    one(x, y)\n"
    "    x, y = following",
}
SETUP = """data = kit.dataset()
held_x = torch.randn(16, kit.WIDTH, generator=torch.Generator().manual_seed(8 + job.rank))
inner = getattr(model, "module", model)
every = {every}


class Augmented(Dataset):
    def __len__(self):
        return len(data)

    def __getitem__(self, index):
        return data[index][0] + 0.1 * torch.randn(kit.WIDTH), data[index][1]


class Bank(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(()))


class Values:
    best, count = float("inf"), 0


bank = Bank()
job.track(model=model, optimizer=optimizer, bank=bank)
"""
EXTRAS = {
    "plateau": "plateau = torch.optim.lr_scheduler.ReduceLROnPlateau("
    "optimizer, factor=0.7, patience=1)\njob.track(plateau=plateau)",
    "schedule": "schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.8)\n"
    "job.track(schedule=schedule)",
    "average": "average = AveragedModel(inner, multi_avg_fn=get_ema_multi_avg_fn(0.9), "
    "use_buffers=True)\njob.track(average=average)",
    "values": "values = Values()",
    "chance_torch": "chance_torch = torch.Generator().manual_seed(7 + job.rank)\n"
    "job.track(chance_torch=chance_torch)",
    "chance_numpy": "chance_numpy = np.random.default_rng(7 + job.rank)\n"
    "job.track(chance_numpy=chance_numpy)",
    "chance_python": "chance_python = random.Random(7 + job.rank)\n"
    "job.track(chance_python=chance_python)",
    "np.random": "np.random.seed(6 + job.rank)",
    "random.gauss": "random.seed(5 + job.rank)",
}
"""Lines of set-up for whoever uses the name."""


@dataclass(frozen=True)
class Composed:
    """A script, and of what it was made."""

    source: str
    parts: dict[str, str]

    @property
    def alone(self) -> bool:
        """Whether a rank holds what nobody else does, before any snapshot."""
        return self.parts["model"] == "fsdp2" or self.parts["optimizer"] == "zero"

    @property
    def has_moment(self) -> bool:
        return "kit.moment" in self.source


def compose(seed: int) -> Composed:
    """The script of this seed."""
    chance = random.Random(f"script {seed}")
    parts = _choose(chance)
    while _clash(parts):
        parts = _choose(chance)
    return Composed(_source(parts, chance), parts)


def _choose(chance: random.Random) -> dict[str, str]:
    places = {
        "model": MODELS,
        "optimizer": OPTIMIZERS,
        "before": BEFORE,
        "after": AFTER,
        "cleared": CLEARED,
        "noise": NOISE,
        "between": BETWEEN,
        "loader": LOADERS,
        "loop": LOOPS,
    }
    parts = {place: chance.choice(list(known)) for place, known in places.items()}
    parts["passes"] = chance.choice(["one", "one", "two", "two calls"])
    return parts


def _clash(parts: dict[str, str]) -> bool:
    """What does not go together in torch itself, or would drive one thing from two places."""
    driven = [name for name in ("schedule", "plateau", "average") if name in parts["between"]]
    twice = any(name in parts["after"] for name in driven)
    sharded = parts["model"] == "fsdp2"
    return (
        twice
        or (sharded and parts["optimizer"] == "zero")
        or (sharded and "average" in parts["after"] + parts["between"])
        or (parts["model"] == "static graph" and parts["passes"] != "one")
        or (parts["model"] in ("fsdp2", "by hand") and parts["passes"] != "one")
        or (parts["cleared"] == "never" and parts["passes"] != "one")
        or (parts["optimizer"] == "zero" and parts["model"] == "by hand")
    )


def _source(parts: dict[str, str], chance: random.Random) -> str:
    step = _step(parts)
    between = BETWEEN[parts["between"]]
    loop = LOOPS[parts["loop"]]
    used = step + between + loop
    extras = [lines for name, lines in EXTRAS.items() if _uses(used, name)]
    return "\n".join(
        [
            f'"""{", ".join(f"{place}: {part}" for place, part in parts.items())}"""\n',
            IMPORTS,
            MODELS[parts["model"]],
            f"optimizer = {OPTIMIZERS[parts['optimizer']]}",
            SETUP.format(every=chance.choice([1, 2, 3, 5, 16])),
            *extras,
            step,
            "\n\ndef one(x, y):",
            "    loss = train_step(x, y)",
            indent(between, "    "),
            f"\n\nloader = {LOADERS[parts['loader']]}",
            loop,
            "kit.say(job, f\"rates {[group['lr'] for group in optimizer.param_groups]}\")\n",
        ]
    )


def _uses(text: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", text) is not None


def _step(parts: dict[str, str]) -> str:
    first, last = CLEARED[parts["cleared"]]
    after = AFTER[parts["after"]]
    forward = f"loss = kit.error(model, x + 0.1 * {NOISE[parts['noise']]}, y)"
    match parts["passes"]:
        case "two":
            work = f"""with model.no_sync():
    {forward}
    (loss / 2).backward()
{forward}
(loss / 2).backward()"""
        case "two calls":
            work = f"""with model.no_sync() if number % 2 == 0 else contextlib.nullcontext():
    {forward}
    (loss / 2).backward()"""
        case _:
            work = f"{forward}\nloss.backward()"
    if parts["model"] == "by hand":
        work += "\nfor p in model.parameters():\n    kit.mean(p.grad)"
    update = "\n".join([BEFORE[parts["before"]], "optimizer.step()", last])
    if parts["passes"] == "two calls":
        first = first and f"if number % 2 == 0:\n    {first}"
        update = f"if number % 2 == 1:\n{indent(update, '    ')}"
    number = "number = job.steps" if _uses(first + work + update + after, "number") else ""
    lines = ["kit.pace(job, args)", number, first, work, "job.report(loss=loss)"]
    lines += [update, after, "return loss.detach()"]
    body = "\n".join(line for line in lines if line)
    return "\n\n@job.step\ndef train_step(x, y):\n" + indent(body, "    ")
