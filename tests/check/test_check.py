"""`trainmover check`: scripts without a line for it, as people write them."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

PLAIN = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Meter:
    def __init__(self):
        self.total, self.values = 0.0, []

    def add(self, value):
        self.total = 0.9 * self.total + 0.1 * value
        self.values.append(value)

def train(model, loader, optimizer, meter):
    for number, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean() EXTRA
        loss.backward()
        optimizer.step()
        meter.add(loss.item())

torch.manual_seed(3)
x = torch.randn(160, 4)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), 8, shuffle=True, num_workers=2)
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters())
meter = Meter()
HELD
for epoch in range(3):
    train(model, loader, optimizer, meter)
"""


def check(path: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    """Exit status, result (rank 0's by role) and errors of one check."""
    command = [sys.executable, "-m", "trainmover.cli.main", "check", "--json", *options, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, cwd=path.parent)
    found = json.loads(done.stdout or "{}")
    return done.returncode, found | found.get("ranks", [{}])[0], done.stderr


def written(folder: Path, extra: str = "", held: str = "") -> Path:
    """The script: `extra` is added to its loss, `held` are lines before its loop."""
    path = folder / "train.py"
    path.write_text(PLAIN.replace("EXTRA", extra).replace("HELD", held))
    return path


def test_an_ordinary_script_is_carried_whole(tmp_path: Path) -> None:
    status, found, _ = check(written(tmp_path, "+ 0 * meter.total"))
    assert status == 0
    assert found["equal"] is True
    assert [name for name, _ in found["run"]["loops"]] == ["<module>", "train"]
    for role in ("run", "standby"):
        assert len(found[role]["losses"]) == 3
        assert found[role]["losses"] == found[role]["repeated"]
        assert found[role]["differences"] == []
    assert len(found["run"]["changed"]) == 3
    assert found["run"]["missed"] == []


def test_state_that_lies_in_c_is_named_and_found_by_its_number(tmp_path: Path) -> None:
    held = "import threading\nlocal = threading.local()\nlocal.scale = 1.0"
    path = written(tmp_path, "* grow()", f"{held}\n{GROW}")
    status, found, _ = check(path, "--no-standby")
    assert status == 1
    assert ["__main__.local", "_thread._local"] in found["run"]["opaque"]
    assert found["run"]["losses"] != found["run"]["repeated"]


GROW = """
def grow():
    local.scale *= 1.01
    return local.scale
"""


def test_a_clock_in_a_variable_is_told_by_its_path(tmp_path: Path) -> None:
    status, found, _ = check(written(tmp_path, "", CLOCK), "--no-standby")
    assert status == 0
    assert found["run"]["losses"] == found["run"]["repeated"]
    assert [path for path, _, _ in found["run"]["values"]] == ["__main__.seen['at']"]


CLOCK = """
import time

class Clocked(Meter):
    def add(self, value):
        seen["at"] = time.time_ns()
        super().add(value)

seen = {}
meter = Clocked()
"""


@pytest.mark.parametrize(
    ("text", "shown"),
    [("print('no step')\n", "missing"), ("raise OSError('broken')\n", "error")],
)
def test_a_script_that_cannot_be_checked_is_told(tmp_path: Path, text: str, shown: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(text)
    status, found, _ = check(path, "--no-standby")
    assert status == 1
    assert found["run"][shown]


def test_a_standby_keeps_the_name_and_the_folders_of_its_machine(tmp_path: Path) -> None:
    held = """
import os, socket, tempfile
named = f"run of {socket.gethostname()}"
log = os.path.join(tempfile.gettempdir(), "log.txt")
open(log, "w").close()
def grow():
    assert os.path.exists(log)
    assert socket.gethostname() in named
    return 1.0
"""
    status, found, _ = check(written(tmp_path, "* grow()", held))
    assert status == 0
    assert found["standby"]["error"] == ""
    assert found["standby"]["values"] == []
    assert found["standby"]["notes"] == []


def test_files_of_the_script_stay_as_they_were(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("of an earlier run\n")
    held = "log = open('log.txt', 'w')\nlog.write('of the check')\nlog.flush()"
    status, _, _ = check(written(tmp_path, "", held), "--no-standby")
    assert status == 0
    assert log.read_text() == "of an earlier run\n"


def test_a_module_and_its_arguments_are_run(tmp_path: Path) -> None:
    package = tmp_path / "project"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "scale.py").write_text("import sys\nSCALE = float(sys.argv[1])\n")
    text = PLAIN.replace("EXTRA", "* SCALE").replace("HELD", "from .scale import SCALE")
    (package / "train.py").write_text(text)
    command = [sys.executable, "-m", "trainmover.cli.main", "check", "--json", "--no-standby"]
    done = subprocess.run(
        [*command, "-m", "project.train", "0.5"],
        capture_output=True,
        text=True,
        timeout=170,
        cwd=tmp_path,
    )
    assert json.loads(done.stdout)["equal"] is True


def test_what_cannot_be_checked_is_refused_at_once(tmp_path: Path) -> None:
    status, _, errors = check(tmp_path / "nothing.py")
    assert status == 2
    assert "no script" in errors


def test_a_script_that_takes_too_long_ends_with_what_it_has_started(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "import subprocess, time\n"
        "open('pid', 'w').write(str(subprocess.Popen(['sleep', '300']).pid))\n"
        "time.sleep(300)\n"
    )
    status, _, errors = check(path, "--timeout", "25")
    assert status == 1
    assert "too few steps in 25 s" in errors
    assert has_ended(int((tmp_path / "pid").read_text()))


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or is about to be collected."""
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


def test_ranks_that_work_together_are_checked_together(tmp_path: Path) -> None:
    held = """
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(100 + rank)
model = nn.parallel.DistributedDataParallel(model)
def grow():
    scale = torch.tensor(1.0 + 0.1 * rank)
    dist.all_reduce(scale)
    return scale
"""
    status, found, _ = check(written(tmp_path, "* grow()", held), "--nproc", "2", "--steps", "4")
    assert status == 0
    losses = [[rank[role]["losses"] for role in ("run", "standby")] for rank in found["ranks"]]
    assert losses[0][0] != losses[1][0]
    assert [len(one) for rank in losses for one in rank] == [4] * 4
