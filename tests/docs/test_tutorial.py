"""The tutorial runs as it is written, and shows what it says it shows.

Blocks with a title are files; blocks of bash are typed into one shell; a block of text is what the
commands before it print. Numbers in it are examples, and `...` stands for anything.
"""

import doctest
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\w+)(?: title=\"(\S+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = "---- the next block ----"
COMMANDS = {"trainmover": "trainmover", "torchrun": "torch.distributed.run"}
LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks(page: str) -> tuple[dict[str, str], list[str], dict[int, str]]:
    """Files by name, commands, and what commands print by their number."""
    files, commands, shown = {}, [], {}
    for kind, title, text in FENCE.findall(page):
        if title:
            files[title] = text
        elif kind == "bash":
            commands.append(text)
        elif kind == "text":
            shown[len(commands) - 1] = text
    return files, commands, shown


def environment(folder: Path) -> dict[str, str]:
    """In which `trainmover` and `torchrun` are this interpreter's, and no other run is seen."""
    for name, module in COMMANDS.items():
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
        (folder / name).chmod(0o755)
    told = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE")}
    return told | {
        "PATH": os.pathsep.join([str(folder), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT / "src"),
        "TRAINMOVER_HOME": str(folder / "home"),
        "OMP_NUM_THREADS": "1",
    }


def typed(commands: list[str], work: Path, environment: dict[str, str]) -> list[str]:
    """What each of the commands prints, in one shell; none of ours may fail. Under torchrun gloo's
    threads may abort a process that has printed all and ends."""
    script = f"echo '{MARK}'\n".join(["set -e\n", *commands])
    script = re.sub(r"(?m)^(torchrun .*)$", r"\1 || true", script)
    shell = subprocess.Popen(
        ["bash", "-c", script],
        cwd=work,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = shell.communicate(timeout=170)
    finally:
        if shell.poll() is None:
            os.killpg(shell.pid, signal.SIGTERM)
    assert shell.returncode == 0, output
    return output.split(MARK + "\n")[1:]


def alike(text: str) -> str:
    """Without its numbers: they are of the machine on which the page was written."""
    return re.sub(r"\d+(\.\d+)?", "0", text)


@pytest.mark.turns(8)
def test_the_tutorial_runs_as_written(tmp_path: Path) -> None:
    files, commands, shown = blocks((ROOT / "docs" / "tutorial.md").read_text())
    work, programs = tmp_path / "work", tmp_path / "programs"
    work.mkdir()
    programs.mkdir()
    for name, text in files.items():
        (work / name).write_text(text)
    printed = typed(commands, work, environment(programs))
    same = doctest.OutputChecker().check_output
    for number, expected in shown.items():
        assert same(alike(expected), alike(printed[number]), LOOSELY), printed[number]
    assert len(shown) >= 5
    losses = (work / "moved.txt").read_text().splitlines()
    assert len(losses) == 12
