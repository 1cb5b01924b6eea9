"""Training frameworks as their packages are, with scripts as their users write them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frameworks import FOLDER, SCRIPTS, frameworks, packages

__all__ = ["frameworks", "packages"]


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("frameworks")
@pytest.mark.parametrize("after", [5, 20, 70])
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_framework_s_steps_are_made_again(tmp_path: Path, name: str, after: int) -> None:
    command = [sys.executable, "-m", "trainmover.cli.main", "check", "--json", "--timeout", "200"]
    script = str(FOLDER / f"{name}.py")
    done = subprocess.run(
        [*command, "--steps", "4", "--after", str(after), script],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    found = json.loads(done.stdout)
    assert found["equal"], found
    assert found["ranks"][0]["standby"]["losses"]
