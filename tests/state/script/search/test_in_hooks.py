"""What the state of a communication hook keeps is compared, as far as it is not sent with it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed as dist
from captures import JOINER, RANK, run_in
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from trainmover.state.kinds.parallel.hooks import forget_hooks, watch_hooks

SCRIPT = """
from torch.nn.parallel import DistributedDataParallel

def exact(gradient):
    return gradient

def coarse(gradient):
    return gradient.bfloat16()

class Compression:
    def __init__(self):
        self.buckets, self.pack, self.ways, self.sizes = 0, exact, {"first": exact}, [0]
        self.nested = [[exact, 0]]
        self.kind, self.group = nn.Linear, torch.distributed.group.WORLD

def hook(state, bucket):
    return state.pack(state.kind(bucket))

compression = Compression()
model = DistributedDataParallel(nn.Linear(1, 1))
model.register_comm_hook(compression, hook)
job.tracked["model"] = model
for x in job.batches(DATA):
    step(x[0])
    if x[0][0] > 5:
        CHANGE
"""


@pytest.fixture(autouse=True)
def _hooks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    register = DistributedDataParallel.register_comm_hook
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    monkeypatch.setattr(DistributedDataParallel, "register_comm_hook", register)
    watch_hooks()
    yield
    forget_hooks()
    dist.destroy_process_group()


SENT = [
    "compression.buckets += 1",
    "compression.sizes.append(1)",
    "compression.rate = x[0][0].item()",
]
STAYS = {
    "compression.pack = coarse": "pack",
    "compression.ways['first'] = coarse": "ways",
    "compression.nested[0][0] = coarse": "nested",
    "compression.kind = nn.LayerNorm": "kind",
}


def names(folder: Path, change: str) -> set[str]:
    found = run_in(folder, SCRIPT.replace("CHANGE", change))
    theirs, own = found.theirs[RANK], found.own[JOINER]
    compared = found.variables.comparison.differences(theirs, own, at_boundary=False)
    return {one.name.rpartition(".")[2] for one in compared}


@pytest.mark.parametrize("change", SENT)
def test_what_is_sent_need_not_be_equal(tmp_path: Path, change: str) -> None:
    assert names(tmp_path, change) == set()


@pytest.mark.parametrize("change", STAYS)
def test_what_stays_must_be_the_same(tmp_path: Path, change: str) -> None:
    """At the fetch behind the third batch another than behind the eleventh."""
    assert STAYS[change] in {name.partition("[")[0] for name in names(tmp_path, change)}
