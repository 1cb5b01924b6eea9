"""Which communicator is taken, and what is said where it cannot be."""

import importlib.util
import subprocess
import sys
from typing import Any

import pytest

from trainmover import communicators
from trainmover.comm import GlooCommunicator, Groups
from trainmover.comm.native.communicator import NativeCommunicator
from trainmover.errors import UserError


def not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def test_native_is_taken_where_it_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    assert communicators.default() == "native"
    not_built(monkeypatch)
    assert communicators.default() == "gloo"


def test_without_the_extension_three_lines_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    not_built(monkeypatch)
    with pytest.raises(UserError) as caught:
        Groups().choose("native")
    assert len(str(caught.value).splitlines()) == 3
    assert "make setup" in caught.value.do


@pytest.mark.parametrize(
    ("name", "kind"), [("gloo", GlooCommunicator), ("native", NativeCommunicator)]
)
def test_groups_get_what_was_chosen(name: str, kind: type) -> None:
    registry = Groups()
    registry.choose(name, b"token")
    registry.sandbox()
    made: Any = registry.private("gate", 0, 2)
    assert type(made._member.communicator) is kind
    with pytest.raises(UserError, match="groups were there already"):
        registry.choose(name, b"token")
    registry.close()


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(UserError, match="nccl is no communicator"):
        Groups().choose("nccl")


@pytest.mark.turns(4)
@pytest.mark.parametrize("name", ["gloo", "native"])
def test_a_plain_process_chooses_by_its_environment(name: str) -> None:
    ask = (
        "import trainmover.comm.install; from trainmover.comm import groups;"
        "print(type(groups._communicator()).__name__)"
    )
    environment = {"TRAINMOVER_COMM": name, "PYTHONPATH": ":".join(filter(None, sys.path))}
    said = subprocess.run(
        [sys.executable, "-c", ask], env=environment, capture_output=True, text=True, check=True
    )
    assert said.stdout.strip().lower() == f"{name}communicator"


@pytest.mark.turns(4)
def test_one_script_is_for_both_launchers() -> None:
    """Where a runtime serves groups the import changes nothing."""
    ask = (
        "from trainmover.comm import groups, hook_torch; hook_torch(groups);"
        "groups.choose('gloo'); import trainmover.comm.install;"
        "print(type(groups._communicator()).__name__)"
    )
    environment = {"TRAINMOVER_COMM": "native", "PYTHONPATH": ":".join(filter(None, sys.path))}
    said = subprocess.run(
        [sys.executable, "-c", ask], env=environment, capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "GlooCommunicator"


@pytest.mark.turns(4)
def test_gloo_needs_no_extension() -> None:
    """It is found nowhere, and what would go faster with it goes without."""
    ask = (
        "import sys, trainmover.communicators as known; known.native_is_built = lambda: False;"
        "import trainmover.comm; sys.exit('trainmover._native' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", ask], check=True, timeout=60)
