"""What lies in a tracked object and goes with it need not be equal on a standby."""

from pathlib import Path

import pytest
from captures import JOINER, RANK, Job, installed, run_in

TOY_AVERAGER = """
import torch

class Averager:
    def __init__(self):
        self.step = self.seen = 0
    def average(self):
        self.step += 1
        self.seen += 2

class Averaging(torch.optim.SGD):
    def __init__(self, params, averager):
        super().__init__(params, lr=0.1)
        self.averager = averager
    def state_dict(self):
        return super().state_dict() | {"step": self.averager.step}
"""
SCRIPT = """
from toy_averager import Averager, Averaging
averager = Averager()
optimizer = Averaging(nn.Linear(1, 1).parameters(), averager)
for x in job.batches(DATA):
    step(x[0])
    optimizer.averager.average()
"""


@pytest.fixture
def found(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Job:
    """Of a script with an optimizer of a library, which counts in an object of its own."""
    with installed(tmp_path_factory.mktemp("elsewhere"), monkeypatch, "toy_averager", TOY_AVERAGER):
        tracks = SCRIPT.replace("\nfor", "\njob.tracked['optimizer'] = optimizer\nfor", 1)
        return run_in(tmp_path, tracks)


def test_what_an_optimizer_adds_to_its_state_by_name_goes_with_it(found: Job) -> None:
    theirs, own = found.theirs[RANK], found.own[JOINER]
    before = found.variables.comparison.differences(theirs, own, at_boundary=False)
    assert {one.name.rpartition(".")[2] for one in before} == {"seen"}
