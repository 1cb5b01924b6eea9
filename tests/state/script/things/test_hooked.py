"""Hooks that a script gives to tensors and optimizers, or takes from them, while it trains."""

from pathlib import Path

import captures
import pytest

SCRIPT = """
from torch.nn.modules.module import register_module_forward_hook
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
job.tracked["model"], job.tracked["optimizer"] = model, optimizer
def half(gradient):
    return gradient / 2
def seen(*given):
    pass
def freeze(tensor):
    tensor.register_hook(half)
{before}
def go(x):
    {late}
for x, y in job.batches(DATA):
    if x[0] > 5 and y:
        go(x)
{behind}
"""
LATE = [
    ("", "model.weight.register_hook(half)"),
    ("", "freeze(model.bias)"),
    ("", "model.weight.register_post_accumulate_grad_hook(seen)"),
    ("", "optimizer.register_step_pre_hook(seen)"),
    ("", "handles.append(register_module_forward_hook(seen))"),
    ("handle = model.weight.register_hook(half)", "handle.remove()"),
    ("handle = optimizer.register_step_post_hook(seen)", "handle.remove()"),
]


@pytest.mark.parametrize(("before", "late"), LATE)
def test_they_are_on_no_other_machine(tmp_path: Path, before: str, late: str) -> None:
    behind = "for handle in handles: handle.remove()"
    text = SCRIPT.format(before=f"handles = []\n{before}", late=late, behind=behind)
    differences = captures.run_in(tmp_path, text).differences()
    found = {one.name: (one.file, one.line > 0) for one in differences}
    assert found["hooks of tensors and optimizers"] == ("train.py", True)


@pytest.mark.parametrize("late", ["pass", "model.weight.register_hook(half).remove()"])
def test_those_of_the_set_up_and_those_that_are_gone_again_are_everywhere(
    tmp_path: Path, late: str
) -> None:
    before = "freeze(model.weight)\noptimizer.register_step_pre_hook(seen)"
    text = SCRIPT.format(before=before, late=late, behind="")
    assert not captures.run_in(tmp_path, text).differences()


@pytest.mark.parametrize("owner", ["nn.Linear", "torch.Tensor"])
def test_what_is_stored_on_a_class_of_a_library_is_on_no_other_machine(
    tmp_path: Path, owner: str
) -> None:
    script = f"""
    {owner}.gain = 0.0
    def note(x):
        {owner}.gain = float(x.sum())
    for x, y in job.batches(DATA):
        print({owner}.gain)
        note(x)
    del {owner}.gain
    """
    [found] = captures.run_in(tmp_path, script).differences()
    assert found.name.endswith(".gain")
