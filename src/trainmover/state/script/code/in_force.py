# SPDX-License-Identifier: Apache-2.0
"""What is in force for a whole process, and which calls of a script set it."""

import contextlib
import csv
import decimal
import functools
import locale
import os
import sys
import unittest.mock
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import CodeType
from typing import Any

import numpy
import torch
from torch.distributions import Distribution

from trainmover.errors import StateMismatch
from trainmover.torch_internals.distributed.backends import backends
from trainmover.torch_internals.modes import (
    chosen_device,
    distributions_check,
    entered,
    hook_for_saved,
    printed_by_torch,
)

_OF_DECIMAL = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")


def _of_decimal() -> list[Any]:
    context = decimal.getcontext()
    trapped = sorted(one.__name__ for one, traps in context.traps.items() if traps)
    return [*(getattr(context, name) for name in _OF_DECIMAL), trapped]


def _set_decimal(value: list[Any]) -> None:
    *values, trapped = value
    context = decimal.getcontext()
    for name, one in zip(_OF_DECIMAL, values, strict=True):
        setattr(context, name, one)
    for signal in context.traps:
        context.traps[signal] = signal.__name__ in trapped


def _flags_of_decimal() -> list[str]:
    """Of what has happened in calculating since they were cleared."""
    return sorted(one.__name__ for one, is_set in decimal.getcontext().flags.items() if is_set)


def _set_flags_of_decimal(value: list[str]) -> None:
    flags = decimal.getcontext().flags
    for signal in flags:
        flags[signal] = signal.__name__ in value


_OF_DIALECT = (
    *("delimiter", "doublequote", "escapechar", "lineterminator", "quotechar", "quoting"),
    *("skipinitialspace", "strict"),
)


def _dialects() -> list[tuple[str, list[Any]]]:
    """Of tables as texts, by name."""
    every = {name: csv.get_dialect(name) for name in sorted(csv.list_dialects())}
    return [(name, [getattr(one, part) for part in _OF_DIALECT]) for name, one in every.items()]


def _set_dialects(value: list[tuple[str, list[Any]]]) -> None:
    for name in csv.list_dialects():
        csv.unregister_dialect(name)
    for name, parts in value:
        csv.register_dialect(name, **dict(zip(_OF_DIALECT, parts, strict=True)))


def _flushes_denormals() -> bool:
    """The processor says it by what it does."""
    return sys.float_info.min / _TWO == 0.0


_FORMATTER = "formatter"


def _printed_by_numpy() -> list[tuple[str, Any]]:
    """Numbers and words; of functions of the script's which they are."""
    known: dict[str, Any] = dict(numpy.get_printoptions())
    plain = sorted((name, one) for name, one in known.items() if isinstance(one, bool | int | str))
    formatter: dict[str, Any] = known.get(_FORMATTER) or {}
    told = sorted((name, _written_at(one)) for name, one in formatter.items())
    return [*plain, (_FORMATTER, told)] if told else plain


def _written_at(function: Any) -> str:
    name = getattr(function, "__qualname__", str(type(function)))
    code = getattr(function, "__code__", None)
    return f"{name}, line {code.co_firstlineno}" if isinstance(code, CodeType) else str(name)


def _print_by_numpy(value: list[Any]) -> None:
    """Raises StateMismatch where other functions do it here."""
    options, now = dict(value), dict(_printed_by_numpy())
    theirs, mine = options.pop(_FORMATTER, []), now.get(_FORMATTER, [])
    _must_be(
        [str([*map(list, theirs)])], [str([*map(list, mine)])], "functions that numpy prints with"
    )
    numpy.set_printoptions(**options)


def _modes() -> list[str]:
    """By what classes, and who packs what is saved."""
    packs = hook_for_saved()
    names = [type(one).__qualname__ for one in entered()]
    return names if packs is None else [*names, getattr(packs, "__qualname__", str(type(packs)))]


def _leave_modes(before: list[str]) -> None:
    """Raises StateMismatch where others than a further one were entered or left."""
    now = _modes()
    held = entered()
    if now[:-1] == before and held and type(held[-1]).__qualname__ == now[-1]:
        held[-1].__exit__(None, None, None)
    _must_be(before, _modes(), "modes of torch")


def _started() -> list[Any]:
    """Patches that were not entered by a `with`."""
    found: list[Any] = vars(unittest.mock._patch)["_active_patches"]
    return found


def _patched() -> list[str]:
    """Names in modules in whose place something else was put, in order."""
    active = _started()
    targets = [(one.getter(), one.attribute) for one in active]
    return [f"{getattr(owner, '__name__', type(owner))}.{name}" for owner, name in targets]


def _unpatch(before: list[str]) -> None:
    """As `_leave_modes`."""
    active = _started()
    while len(active) > len(before):
        active[-1].stop()
    _must_be(before, _patched(), "patches of unittest.mock")


def _must_be(before: list[str], now: list[str], what: str) -> None:
    if now != before:
        raise StateMismatch(
            f"The script has entered or left {what} in a step that must be made again: {now}, and "
            f"{before} as it began.",
            means="The step cannot be made again.",
            do="Enter and leave them outside of steps, or by `with` inside of one.",
        )


def folder() -> str | None:
    """The current one; None if somebody has removed it."""
    with contextlib.suppress(FileNotFoundError):
        return os.getcwd()
    return None


def enter(path: str | None) -> None:
    """Make it the current one, if it was there."""
    if path is not None:
        os.chdir(path)


@dataclass(frozen=True)
class InForce:
    """One thing.

    setters  calls by which a script sets it
    any      whatever may be entered may set it too
    """

    ask: Callable[[], Any]
    set_to: Callable[[Any], Any]
    setters: tuple[str, ...]
    any: bool = True


_ANY = ("__enter__", "enter_context")
_TWO = float("2")  # Not a constant: the quotient would be one too.
IN_FORCE: dict[str, InForce] = {
    "torch's default dtype": InForce(
        torch.get_default_dtype,
        torch.set_default_dtype,
        ("set_default_dtype", "set_default_tensor_type"),
    ),
    "torch's default device": InForce(
        chosen_device,
        torch.set_default_device,
        ("set_default_device", "set_default_tensor_type"),
    ),
    "torch's number of threads": InForce(
        torch.get_num_threads, torch.set_num_threads, ("set_num_threads",)
    ),
    "torch's deterministic algorithms": InForce(
        torch.get_deterministic_debug_mode,
        torch.set_deterministic_debug_mode,
        ("use_deterministic_algorithms", "set_deterministic_debug_mode"),
    ),
    "whether torch records gradients": InForce(
        torch.is_grad_enabled, torch.set_grad_enabled, ("set_grad_enabled",)
    ),
    "whether torch flushes denormal numbers": InForce(
        _flushes_denormals, torch.set_flush_denormal, ("set_flush_denormal",)
    ),
    "torch's anomaly detection": InForce(
        torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly, ("set_detect_anomaly",)
    ),
    "torch's autocast on the CPU": InForce(
        lambda: torch.is_autocast_enabled("cpu"),
        lambda value: torch.set_autocast_enabled("cpu", value),
        ("set_autocast_enabled",),
    ),
    "torch's autocast on the GPU": InForce(
        lambda: torch.is_autocast_enabled("cuda"),
        lambda value: torch.set_autocast_enabled("cuda", value),
        ("set_autocast_enabled",),
    ),
    "the dtype of torch's autocast on the CPU": InForce(
        lambda: torch.get_autocast_dtype("cpu"),
        lambda value: torch.set_autocast_dtype("cpu", value),
        ("set_autocast_dtype",),
    ),
    "the dtype of torch's autocast on the GPU": InForce(
        lambda: torch.get_autocast_dtype("cuda"),
        lambda value: torch.set_autocast_dtype("cuda", value),
        ("set_autocast_dtype",),
    ),
    "decimal's context": InForce(_of_decimal, _set_decimal, ("getcontext", "setcontext")),
    "decimal's flags": InForce(
        _flags_of_decimal, _set_flags_of_decimal, ("clear_flags",), any=False
    ),
    "dialects of csv": InForce(
        _dialects, _set_dialects, ("register_dialect", "unregister_dialect"), any=False
    ),
    "torch's way to print": InForce(
        lambda: sorted(printed_by_torch().items()),
        lambda value: torch.set_printoptions(**dict(value)),  # type: ignore[no-untyped-call]
        ("set_printoptions",),
    ),
    "whether torch's distributions check what they are given": InForce(
        distributions_check,
        Distribution.set_default_validate_args,
        ("set_default_validate_args",),
    ),
    "the locale": InForce(
        partial(locale.setlocale, locale.LC_ALL),
        partial(locale.setlocale, locale.LC_ALL),
        ("setlocale",),
    ),
    "numpy's errors": InForce(
        lambda: sorted(numpy.geterr().items()),
        lambda value: numpy.seterr(**dict(value)),
        ("seterr",),
    ),
    "numpy's way to print": InForce(
        _printed_by_numpy,
        _print_by_numpy,
        ("set_printoptions",),
    ),
    "Python's limit of recursion": InForce(
        sys.getrecursionlimit, sys.setrecursionlimit, ("setrecursionlimit",)
    ),
    "modes of torch that were entered": InForce(_modes, _leave_modes, ("__exit__",)),
    "what unittest.mock has put in place": InForce(_patched, _unpatch, ("start", "stopall")),
    "the current folder": InForce(folder, enter, ("chdir",), any=False),
    **{text: InForce(one.ask, one.set_to, one.setters) for text, one in backends().items()},
}


SETTERS = frozenset(_ANY).union(*(one.setters for one in IN_FORCE.values()))
"""Calls that change what is in force, until they are made again; PREFIX where that is a store."""


@functools.cache
def set_by(calls: frozenset[str]) -> list[tuple[str, InForce]]:
    """What some of these calls may set, by names for people."""
    enters = not calls.isdisjoint(_ANY)
    return [
        (text, one)
        for text, one in IN_FORCE.items()
        if not calls.isdisjoint(one.setters) or (enters and one.any)
    ]


def calls_that_set(text: str) -> tuple[str, ...]:
    """Those of which one may have set it."""
    return (*IN_FORCE[text].setters, *_ANY)
