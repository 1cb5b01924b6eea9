"""The page on Slurm runs as it is written, on a real Slurm of this host."""

import doctest
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_tutorial import LOOSELY, ROOT, alike, blocks, environment, typed

from tests.engines.real_slurm import RealSlurm, lacking


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[RealSlurm]:
    if missing := lacking():
        pytest.skip(f"a real Slurm needs {', '.join(missing)} here: make engines")
    folder = tmp_path / "cluster"
    folder.mkdir()
    slurm = RealSlurm(folder, 4)
    slurm.start()
    yield slurm
    slurm.stop()


@pytest.mark.turns(4)
def test_the_page_runs_as_written(tmp_path: Path, slurm: RealSlurm) -> None:
    files, commands, shown = blocks((ROOT / "docs/how-to/slurm.md").read_text())
    files["train.py"] = blocks((ROOT / "docs/tutorial.md").read_text())[0]["train.py"]
    work, programs = tmp_path / "work", tmp_path / "programs"
    work.mkdir()
    programs.mkdir()
    for name, text in files.items():
        (work / name).write_text(text)
    path = f"{programs}:{slurm.environment['PATH']}"
    printed = typed(commands, work, environment(programs) | slurm.environment | {"PATH": path})
    same = doctest.OutputChecker().check_output
    for number, expected in shown.items():
        assert same(alike(expected), alike(printed[number]), LOOSELY), printed[number]
    assert len(shown) == 2
