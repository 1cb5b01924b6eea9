"""Which variables are made of nothing but what steps give, batches hold, and constants."""

import itertools
import math
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from trainmover.state.script.place.summed import summed
from trainmover.worker.api import Job

COUNT = itertools.count()
BEFORE = """
total, n, worst, flag, k = 0.0, 0, 0.0, False, 0
for x, y in drawn():
    loss = step(x, y)
"""


def known(tmp_path: Path, text: str, given: tuple[str, ...] = ("x", "y"), **more: Any) -> set[str]:
    """Where the script stands when its loop draws."""
    found: set[str] = set()
    names: dict[str, Any] = {"torch": torch, "math": math, "LIMIT": 3, **more}
    path = tmp_path / f"script_{next(COUNT)}.py"
    path.write_text(textwrap.dedent(text))

    def drawn() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        frame = sys._getframe(1)
        assert frame.f_code.co_filename == str(path)
        found.update(summed(frame, frame.f_locals, {*given}, {"elsewhere"}))
        yield torch.ones(2), torch.ones(2)

    job = Job(cast(Any, None))

    def run_step(x: Any, y: Any) -> Any:
        raise AssertionError("never called")

    step = job.step(run_step)
    step_ran = torch.tensor(1.0)
    names |= {"drawn": drawn, "step": step, "job": job, "other": lambda *_: 1.0}
    code = compile(path.read_text(), str(path), "exec")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "steps", 3)
        patch.setattr(type(job), "rank", 0)
        job._runtime = cast(Any, type("R", (), {"run_step": lambda *_: step_ran})())
        exec(code, names)
    return found


@pytest.mark.parametrize(
    "line",
    [
        "total += loss.item()",
        "total = 0.9 * total + 0.1 * float(loss)",
        "total += loss.detach().mean().item() * x.size(0)",
        "total = max(total, loss.item()) if n % 2 else total",
        "total += math.sqrt(abs(loss.item()))",
        "total += x.shape[0] / LIMIT",
        "total += job.steps * job.rank",
        "total, n = total + loss.item(), n + 1",
        "if loss.item() > 0.2 and not n: total += 1",
        "with torch.no_grad(): total += loss.item()",
        "total += step(x, other(y)).item()",
        "for k in range(2): total += k * loss.item()",
        "worst = loss.item(); total += worst",
        "print(other(total)); total += 1",
    ],
)
def test_sums_of_what_is_known(tmp_path: Path, line: str) -> None:
    assert "total" in known(tmp_path, f"{BEFORE}    {line}")


@pytest.mark.parametrize(
    "line",
    [
        "total += other(loss)",
        "total += weight.grad.norm().item()",
        "total += len(path.read_text())",
        "worst = other(1); total += worst",
        "total += loss.item() + elsewhere",
        "if other(1) > 0.2: total += 1",
        "while other(1) > 2: total += 1",
        "for k in other(1) and (): total += 1",
        "try: total += loss.item()\n    except ValueError: pass",
        "with path.open() as f: total += 1",
        "loss = other(1); total += loss",
        "flag = bool(total := loss.item())",
        "match n:\n        case 0: total += 1",
        "if other(1) > 5: continue\n    total += loss.item()",
        "for k in range(2):\n        if other(1) > 5: break\n    total += loss.item()",
        "x.add_(other(1)); total += x.mean().item()",
        "loss[...] = 2.0; total += loss.item()",
        "import math as total",
        "total = LIMIT_OF.value",
        "total += sum(other(one) for one in x)",
        "for x, y in [(loss, other(1))]: total += y",
        "total += 1 if job.batches else 2",
    ],
)
def test_what_lines_read_elsewhere_is_no_such_sum(tmp_path: Path, line: str) -> None:
    weight = torch.nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    limit = type("L", (), {"value": 2.0})
    text = f"{BEFORE}    {line}"
    more = {"weight": weight, "path": Path(__file__), "elsewhere": 1.0, "LIMIT_OF": limit}
    assert "total" not in known(tmp_path, text, **more)


def test_what_a_loop_around_begins_anew_is_known(tmp_path: Path) -> None:
    text = """
    best = other(0)
    for epoch in range(1):
        total = 0.0
        for x, y in drawn():
            loss = step(x, y)
            total += loss.item()
            if job.steps > LIMIT: break
        best = min(best, other(epoch))
    """
    assert known(tmp_path, text) == {"total", "loss", "epoch"}


def test_in_a_function(tmp_path: Path) -> None:
    text = """
    def main(limit):
        total = 0.0
        for x, y in drawn():
            total += step(x, y).item() / limit
    main(3)
    """
    assert known(tmp_path, text) == {"total"}


def test_of_another_loop_than_the_one_that_fetches_no_batch_is_known(tmp_path: Path) -> None:
    assert "n" not in known(tmp_path, f"{BEFORE}    n += x.size(0)", given=())


def test_outside_of_loops_there_is_nothing(tmp_path: Path) -> None:
    text = "total = 0.0\nx, y = next(drawn())\ntotal += step(x, y).item()"
    assert known(tmp_path, text, given=()) == set()
