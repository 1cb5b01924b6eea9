import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs of this test are found only by it."""
    home = tmp_path / "home"
    monkeypatch.setenv("TRAINMOVER_HOME", str(home))
    return home
