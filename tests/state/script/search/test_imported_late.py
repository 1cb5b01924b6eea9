"""What a module keeps that a function imports as it is called is found, whenever that is first."""

import sys
from pathlib import Path

import captures
import pytest

HELPER = """
level = 1.0

def bump(by):
    global level
    level += by
"""
SCRIPTS = {
    "in each step": """
        def step(x):
            import HELPER
            HELPER.bump(float(x.sum()))
        def main():
            for x, y in job.batches(DATA):
                step(x)
        main()
        """,
    "first in a later one": """
        def step(number, x):
            if number > 1:
                from HELPER import bump
                bump(float(x.sum()))
        def main():
            for number, (x, y) in enumerate(job.batches(DATA)):
                step(number, x)
        main()
        """,
}


@pytest.mark.parametrize("when", SCRIPTS)
def test_it_counts(when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"helper_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(HELPER)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        found = captures.names_in(tmp_path, SCRIPTS[when].replace("HELPER", name))
    finally:
        sys.modules.pop(name, None)
    assert "level" in "".join(found)
