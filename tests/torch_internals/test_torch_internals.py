"""A torch that has renamed what trainmover reads is refused with a sentence, before any job."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from trainmover.errors import TrainmoverError
from trainmover.torch_internals import check
from trainmover.torch_internals.check import _PARTS

INSTALLED = Path(torch.__file__).parent
NEEDED = [(file, name) for _, needed in _PARTS for file in needed for name in needed[file]]


def test_the_installed_torch_has_everything() -> None:
    check()


@pytest.mark.parametrize(("file", "name"), NEEDED, ids=lambda value: str(value))
def test_a_rename_is_named(file: str, name: str, tmp_path: Path) -> None:
    for other, _ in NEEDED:
        copy = tmp_path / other
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text((INSTALLED / other).read_text(encoding="utf-8"))
    text = (tmp_path / file).read_text()
    for either in name.split("|"):
        text = text.replace(either, "renamed")
    (tmp_path / file).write_text(text)
    with pytest.raises(TrainmoverError, match="no job is started with it") as caught:
        check(tmp_path)
    assert f"{name} in {file}" in str(caught.value)


def test_a_file_that_is_gone_is_named_with_all_it_had(tmp_path: Path) -> None:
    with pytest.raises(TrainmoverError) as caught:
        check(tmp_path)
    assert all(f"{name} in {file}" in str(caught.value) for file, name in NEEDED)


COMPILED = """
import torch
from trainmover.comm import groups, hook_torch
from trainmover.comm.calls import describe

{hook}
traced = []

def backend(graph, inputs):
    traced.append(graph)
    return graph

@torch.compile(backend=backend, dynamic=True)
def step(x):
    y = x + 1
    call = describe("world", 0, "allreduce", [y], dict())
    return y * len(call.outputs)

assert step(torch.ones(3)).sum() == 6
print(len(traced))
"""


def graphs(hook: str) -> str:
    program = COMPILED.replace("{hook}", hook)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_our_code_is_not_compiled_with_the_script() -> None:
    assert graphs("hook_torch(groups)") == "2"  # One before our function, one behind it.
    assert graphs("") == "1"
