"""What people install: a wheel made of the source distribution, in an environment of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent
CONSTRAINTS = PROJECT / "constraints.txt"
PACK = "import sys; sys.path.insert(0, 'native'); import backend; backend.build_sdist(sys.argv[1])"


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    """What it printed. Nothing of our own environment but the index that pip asks."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "TRAINMOVER"))}
    done = subprocess.run(
        command, cwd=cwd, env=clean | env, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=1800,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_the_demo_is_shown_from_a_wheel_of_the_source_distribution(tmp_path: Path) -> None:
    run(sys.executable, "-c", PACK, tmp_path / "sdist", cwd=PROJECT)
    (source,) = (tmp_path / "sdist").glob("trainmover-*.tar.gz")
    pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation")
    run(*pip, "-w", tmp_path, source, cwd=tmp_path, TRAINMOVER_NATIVE="1",
        PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # fmt: skip
    (wheel,) = tmp_path.glob("trainmover-*.whl")

    run(sys.executable, "-m", "venv", "there", cwd=tmp_path)
    there = tmp_path / "there" / "bin"
    installing = (there / "python", "-m", "pip", "install", "-q", "-c", CONSTRAINTS)
    run(*installing, "torch", cwd=tmp_path)
    run(*installing, f"{wheel}[plots]", cwd=tmp_path)
    said = run(there / "trainmover", "demo", "--out", tmp_path / "demo", cwd=tmp_path)
    assert "EQUAL" in said
    assert (tmp_path / "demo").is_dir()
    assert "native" in run(there / "trainmover", "doctor", cwd=tmp_path)
