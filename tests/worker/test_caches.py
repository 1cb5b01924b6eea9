"""Between two runs in one process torch forgets the groups of the first."""

import subprocess
import sys

import pytest

TWO_RUNS = """
import torch, torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from trainmover.worker.caches import forget_groups

def run(others):
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    for _ in range(others):
        dist.new_group([0, 1])  # So the groups of the mesh are called otherwise in each run.
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    x = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0), Shard(1)])
    torch.linalg.vector_norm(x).full_tensor()
    dist.destroy_process_group()
    {between}

run(3)
run(0)
"""


def outcome(between: str) -> str:
    program = TWO_RUNS.replace("{between}", between)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stderr


@pytest.mark.turns(4)
def test_a_plan_of_the_run_before_is_not_used_again() -> None:
    assert outcome("forget_groups()") == ""


@pytest.mark.turns(4)
def test_it_would_be_without_us() -> None:
    """Should torch see to it itself one day, `caches` can go."""
    assert "Could not resolve the process group" in outcome("pass")
