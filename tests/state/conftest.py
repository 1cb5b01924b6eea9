import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from captures import Job, run_in
from torch.nn.parallel import DistributedDataParallel

from trainmover.state.kinds.modules import modes


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[[str], Job]]:
    """Runs a script; what it imports of its own is forgotten afterwards."""
    sys.path.insert(0, str(tmp_path))
    yield lambda script: run_in(tmp_path, script)
    sys.path.remove(str(tmp_path))
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def known_wrappers(monkeypatch: pytest.MonkeyPatch, group_of_one: None) -> None:
    """Every DistributedDataParallel that is made, in a group of one, is known."""
    monkeypatch.setattr(DistributedDataParallel, "__init__", DistributedDataParallel.__init__)
    monkeypatch.setattr(modes, "_wrappers", [])
    modes.watch_wrappers()
