import pytest
from torch.nn.parallel import DistributedDataParallel

from trainmover.state.kinds.modules import modes


@pytest.fixture
def known_wrappers(monkeypatch: pytest.MonkeyPatch, group_of_one: None) -> None:
    """Every DistributedDataParallel that is made, in a group of one, is known."""
    monkeypatch.setattr(DistributedDataParallel, "__init__", DistributedDataParallel.__init__)
    monkeypatch.setattr(modes, "_wrappers", [])
    modes.watch_wrappers()
