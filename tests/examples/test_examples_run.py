"""The examples run as they say they do, and give the same numbers however they are started."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
STARTERS = {
    "torchrun": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"],
    "trainmover": ["-m", "trainmover.cli.main", "run", "--machines", "1"],
}
PAIR = {
    "torchrun": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"],
    "trainmover": ["-m", "trainmover.cli.main", "run", "--machines", "2"],
}
LAYOUTS = ("fsdp2", "pipeline", "tensor_parallel")
SMALL = {
    "gpt": ["--steps", "12", "--log-every", "1", "--dim", "32", "--layers", "1"],
    "classifier": ["--passes", "1", "--log-every", "1"],
}


def numbers(command: list[str], home: Path) -> list[str]:
    """The lines a script prints about its steps, without the marks of who started it."""
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "TRAINMOVER_HOME": str(home)}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, *command],
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return re.findall(r"(?:step|accuracy) [^\n]*", done.stdout)


@pytest.mark.turns(12)
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("starter", STARTERS)
def test_one_rank_gives_the_numbers_of_plain_python(
    name: str, starter: str, tmp_path: Path
) -> None:
    script = [str(ROOT / "examples" / f"{name}.py"), *SMALL[name]]
    plain = numbers(script, tmp_path)
    assert len(plain) >= 12
    assert numbers([*STARTERS[starter], *script], tmp_path) == plain


@pytest.mark.turns(8)
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_of_two_ranks_gives_the_numbers_of_torchrun(name: str, tmp_path: Path) -> None:
    script = [str(ROOT / "examples" / f"{name}.py"), "--steps", "6", "--log-every", "1"]
    theirs, ours = (numbers([*PAIR[starter], *script], tmp_path) for starter in PAIR)
    assert len(theirs) == 6
    assert ours == theirs


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 120
