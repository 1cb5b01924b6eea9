"""A torch that has renamed what trainmover reads is refused with a sentence, before any job."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from trainmover.errors import TrainmoverError
from trainmover.torch_internals.check import check
from trainmover.torch_internals.names import IN_FILES, IN_MEMORY

INSTALLED = Path(torch.__file__).parent
FILED = [(file, name) for file, names in IN_FILES.items() for name in names]
LOADED = [(path, name) for path, names in IN_MEMORY.items() for name in names]


class Without:
    """What is at `path` of a thing, but for one name at its end."""

    def __init__(self, thing: Any, path: list[str], name: str) -> None:
        self._thing, self._path, self._name = thing, path, name

    def __getattr__(self, name: str) -> Any:
        if not self._path and name == self._name:
            raise AttributeError(name)
        value = getattr(self._thing, name)
        if self._path and name == self._path[0]:
            return Without(value, self._path[1:], self._name)
        return value


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the installed torch, as far as they are looked at."""
    root = tmp_path_factory.mktemp("torch")
    for file in IN_FILES:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(INSTALLED / file, root / file)
    return root


def test_the_installed_torch_has_everything() -> None:
    check()


@pytest.mark.parametrize(("file", "name"), FILED, ids=lambda value: str(value))
def test_a_rename_in_a_file_is_named(file: str, name: str, copied: Path) -> None:
    text = (copied / file).read_text()
    changed = text
    for either in name.split("|"):
        changed = changed.replace(either, "renamed")
    (copied / file).write_text(changed)
    try:
        with pytest.raises(TrainmoverError, match="no job is started with it") as caught:
            check(copied)
    finally:
        (copied / file).write_text(text)
    assert f"{name} in {file}" in str(caught.value)


@pytest.mark.parametrize(("path", "name"), LOADED, ids=lambda value: str(value))
def test_a_rename_in_what_is_loaded_is_named(path: str, name: str) -> None:
    with pytest.raises(TrainmoverError, match="no job is started with it") as caught:
        check(top=Without(torch, path.split(".")[1:], name))
    assert str(caught.value).startswith(f"torch {torch.__version__} has no {name} in {path}")


def test_a_file_that_is_gone_is_named_with_all_it_had(tmp_path: Path) -> None:
    with pytest.raises(TrainmoverError) as caught:
        check(tmp_path)
    assert all(f"{name} in {file}" in str(caught.value) for file, name in FILED)


def test_an_owner_that_is_gone_is_named_with_all_it_had() -> None:
    with pytest.raises(TrainmoverError) as caught:
        check(top=Without(torch, [], "_C"))
    missing = [(path, name) for path, name in LOADED if path.startswith("torch._C")]
    assert all(f"{name} in {path}" in str(caught.value) for path, name in missing)


COMPILED = """
import torch
from trainmover.comm import groups, hook_torch
from trainmover.comm.calls.arguments import describe

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


@pytest.mark.turns(4)
def test_our_code_is_not_compiled_with_the_script() -> None:
    assert graphs("hook_torch(groups)") == "2"  # One before our function, one behind it.
    assert graphs("") == "1"
