# SPDX-License-Identifier: Apache-2.0
"""State of the process as roots: the same dicts as long as nothing changes, and no other's."""

import logging
import os
import sys
from types import ModuleType

import pytest
import torch

from tests.graph.carrying import SCRIPT
from trainmover.graph.process import ProcessState
from trainmover.graph.script import loops_last


def changed(process: ProcessState, before: dict[str, object]) -> set[str]:
    """Return which roots are other dicts than before; all are what is read anew."""
    now = process.seen()
    assert now == process.settings()
    return {name for name, one in now.items() if one is not before[name]}


def test_a_root_is_another_dict_as_soon_as_something_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = ProcessState(SCRIPT)
    before = process.seen()
    assert changed(process, before) == set()
    monkeypatch.setenv("OF_A_TEST", "1")
    assert changed(process, before) == {"environment"}
    before = process.seen()
    monkeypatch.setenv("OF_A_TEST", "2")
    assert changed(process, before) == {"environment"}
    before = process.seen()
    with torch.no_grad():
        assert changed(process, before) == {"settings"}
    before = process.seen()
    logging.getLogger("of_a_test")
    try:
        assert changed(process, before) == {"loggers"}
    finally:
        del logging.Logger.manager.loggerDict["of_a_test"]


def test_loggers_of_a_library_that_was_loaded_since_are_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = ProcessState(SCRIPT)
    logging.getLogger("of_a_test")
    try:
        before = process.seen()
        monkeypatch.setitem(sys.modules, "of_a_test", ModuleType("of_a_test"))
        process.settings()
        assert changed(process, before) == {"loggers"}
    finally:
        del logging.Logger.manager.loggerDict["of_a_test"]


def test_what_a_restore_fills_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    process = ProcessState(SCRIPT)
    monkeypatch.setenv("OF_A_TEST", "1")
    seen, filled = process.seen(), process.settings()
    filled["environment"]["OF_A_TEST"] = "2"  # type: ignore[index]
    process.write(filled)
    assert os.environ["OF_A_TEST"] == "2"
    assert changed(process, seen) == {"environment"}


def test_an_environment_of_the_script_s_own_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    process = ProcessState(SCRIPT)
    before = process.seen()
    monkeypatch.setattr(os, "environ", {**os.environ, "OF_A_TEST": "1"})
    assert changed(process, before) == {"environment"}


def test_variables_that_hold_loops_are_restored_last() -> None:
    names = {"_tm_1": 1, "meter": 2, "_tm_2": 3, "batches": 4}
    assert [*loops_last(names)] == ["meter", "batches", "_tm_1", "_tm_2"]
    assert loops_last({"meter": 2}) == {"meter": 2}
