"""Which modules are looked at as the script's."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from trainmover.sandbox.process import modules


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def loaded(name: str, file: Path) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = str(file)
    sys.modules[name] = module
    return module


def test_own_ones_are_those_that_came_whole_and_are_not_installed(tmp_path: Path) -> None:
    loaded("tm_partly", tmp_path / "tm_partly/__init__.py")
    before = modules.last()
    loaded("tm_partly.late", tmp_path / "tm_partly/late.py")
    loaded("tm_own", tmp_path / "tm_own/__init__.py")
    loaded("tm_own.part", tmp_path / "tm_own/part.py")
    loaded("tm_installed", tmp_path / "site-packages/tm_installed.py")
    assert modules.own(before) == ["tm_own", "tm_own.part"]


def test_a_stub_that_has_any_attribute_has_no_folders(tmp_path: Path) -> None:
    before = modules.last()
    stub = loaded("tm_stub", tmp_path / "site-packages/tm_stub.py")
    stub.__getattr__ = lambda name: 0  # type: ignore[method-assign]
    loaded("tm_own", tmp_path / "tm_own.py")
    assert modules.own(before) == ["tm_own"]
