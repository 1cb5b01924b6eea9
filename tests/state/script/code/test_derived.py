"""What a library counts in an object of the script's class, which is derived from its own."""

from pathlib import Path

import pytest
from captures import installed, run_in

TOY_TRAINER = """
class State:
    def __init__(self):
        self.steps, self.limit = 0, 30

class Trainer:
    def __init__(self):
        self.state, self.total, self.name = State(), 0, "one"
    def train(self, batches):
        for x, y in batches:
            self.train_step(x)
            self.state.steps += 1
            self.total += self.state.steps
"""
SCRIPT = """
from toy_trainer import Trainer
class Mine(Trainer):
    def train_step(self, x):
        step(x)
mine = Mine()
def main():
    mine.train(job.batches(DATA))
main()
"""


def test_what_the_librarys_methods_count_is_compared(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    with installed(elsewhere, monkeypatch, "toy_trainer", TOY_TRAINER):
        found = run_in(tmp_path, SCRIPT).differences()
    assert {one.name.partition(".")[2] for one in found} == {"state.steps", "total"}
