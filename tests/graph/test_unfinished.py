"""Values that lie on the stacks of frames while a script fetches are named."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from trainmover.graph.unfinished import unfinished

CASES = {
    "batch = fetch()": "",
    "step(model, fetch())": "",
    "step(1, fetch())": "",
    "batch = [fetch()]": "",
    "total = total + fetch()": "`total`",
    "total += fetch()": "`total`",
    "step(total, fetch())": "`total`",
    "step(x=total, y=fetch())": "`total`",
    "both = (total, fetch())": "`total`",
    "held[fetch()] = 1": "",
    "both = 1 + (fetch() + total)": "",
    "total = model.total + fetch()": "`model.total`",
    "total = float(3) * fetch()": "`float(3)`",
    "is_less = total < fetch()": "`total`",
    "got = sum(map(fetch, [1, 2]))": "what `sum` collects",
    "got = next(map(fetch, [1, 2]))": "",
    "for one in map(fetch, [1]): pass": "",
    "with model.entered(total): fetch()": "",
    "if total or fetch(): pass": "",
    "def inner():\n    return fetch()\nstep(total, inner())": "`total`",
    "got = fetch() if model else 0": "",
}


class Model:
    total = 1.0

    def entered(self, _: object) -> Any:
        return torch.no_grad()


@pytest.mark.parametrize("source", CASES)
@pytest.mark.parametrize("total", [0.0, torch.zeros(1)], ids=["number", "tensor"])
def test_what_a_statement_has_read_before_it_fetches(
    source: str, total: Any, tmp_path: Path
) -> None:
    found: list[str] = []

    def fetch(*_: object) -> Any:
        frames, frame = [], sys._getframe(1)
        while frame.f_code.co_filename == str(path) and frame.f_back is not None:
            frames.append(frame)
            frame = frame.f_back
        found.append(unfinished(frames[::-1]))
        return torch.ones(1) if isinstance(total, torch.Tensor) else 1

    path = tmp_path / "script.py"
    path.write_text(f"{source}\n")
    names = {"fetch": fetch, "total": total + 0, "model": Model(), "step": lambda *_, **more: 1}
    exec(compile(path.read_text(), str(path), "exec"), {**names, "held": {}})
    expected = CASES[source]
    assert found, "it has fetched"
    assert found[-1].startswith(expected)
    assert bool(found[-1]) == bool(expected)
    if expected:
        assert "script.py line" in found[-1]
