"""Symmetric memory, NVSHMEM and DeepEP are refused by name in a job only."""

import subprocess
import sys
from pathlib import Path

import pytest

MODULES = {
    "deep_ep": "class Buffer:\n    def __init__(self, group): self.group = group\n",
    "nvshmem": "",
    "nvshmem.core": "from nvshmem.core.init_fini import init\n",
    "nvshmem.core.init_fini": "def init(rank): return rank\n",
}

SCRIPT = """
import sys
from contextlib import suppress
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from torch import ones
if sys.argv[1] == "before":
    import deep_ep, nvshmem.core
from trainmover.comm import groups, hook_torch
from trainmover.errors import UserError
from trainmover.loops.importer import LoopFinder
hook_torch(groups)
LoopFinder().install()  # Exchanges loaders too.
import deep_ep, nvshmem.core
from deep_ep import Buffer
from nvshmem.core.init_fini import init

class Own(Buffer):
    pass

assert Buffer(3).group == 3 and isinstance(Own(3), Buffer) and nvshmem.core.init(rank=2) == 2
def of_torch(call, *args, **kwargs):
    with suppress(RuntimeError):  # It has no CUDA.
        call(*args, **kwargs)

calls = {
    "DeepEP": [lambda: Buffer(3), lambda: Own(3)],
    "NVSHMEM": [lambda: nvshmem.core.init(rank=2), lambda: init(2)],
    "torch's symmetric memory": [
        lambda: of_torch(symm_mem.empty, 4, device="cpu"),
        lambda: of_torch(symm_mem.rendezvous, ones(4), "0"),
        lambda: of_torch(symm_mem.get_mempool_allocator, "cpu"),
    ],
}
for asked in calls.values():
    for call in asked:
        call()
groups.use_store(dist.HashStore(), 1)
for library, asked in calls.items():
    for call in asked:
        try:
            call()
        except UserError as error:
            assert f"asks for {library}:" in error.happened and error.means and error.do
        else:
            raise AssertionError(library)
print("refused")
"""


@pytest.mark.parametrize("imported", ["before", "after"])
def test_side_channels_are_refused_in_a_job(imported: str, tmp_path: Path) -> None:
    for name, text in MODULES.items():
        folder = tmp_path.joinpath(*name.split("."))
        folder.mkdir()
        (folder / "__init__.py").write_text(text)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), imported]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.stdout.strip() == "refused", ran.stderr
