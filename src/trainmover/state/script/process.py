"""What a script sets for its whole process while it trains: variables of the environment, and what
torch and numpy are set to. Nobody else's process has it."""

import decimal
import functools
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy
import torch

from trainmover.state.script.source import Source, names_machine
from trainmover.torch_internals.backends import PREFIX, backends
from trainmover.torch_internals.modes import chosen_device


def _set_precision(value: int) -> None:
    decimal.getcontext().prec = value


def _flushes_denormals() -> bool:
    """The processor says it by what it does."""
    return sys.float_info.min / _TWO == 0.0


def _printed_by_numpy() -> list[tuple[str, Any]]:
    """Numbers and words; functions of the script's it may have beside them."""
    known = numpy.get_printoptions().items()
    return sorted((name, value) for name, value in known if isinstance(value, bool | int | str))


def _folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # Somebody has removed it.
        return ""


def _enter_folder(path: str) -> None:
    if path:
        os.chdir(path)


@dataclass(frozen=True)
class _Setting:
    """setters: calls by which a script sets it; whatever may be entered may set it too, if `any`
    says so."""

    ask: Callable[[], Any]
    set_to: Callable[[Any], Any]
    setters: tuple[str, ...]
    any: bool = True


def _both_ways(setter: str) -> tuple[str, ...]:
    """The old and the new way to say how exact products are set parts of each other."""
    precision = "set_float32_matmul_precision"
    return (precision, PREFIX) if setter in (precision, PREFIX) else (setter,)


_ANY = ("__enter__", "enter_context")
_TWO = float("2")  # Not a constant: the quotient would be one too.
_SETTINGS: dict[str, _Setting] = {
    "torch's default dtype": _Setting(
        torch.get_default_dtype,
        torch.set_default_dtype,
        ("set_default_dtype", "set_default_tensor_type"),
    ),
    "torch's default device": _Setting(
        chosen_device,
        torch.set_default_device,
        ("set_default_device", "set_default_tensor_type"),
    ),
    "torch's number of threads": _Setting(
        torch.get_num_threads, torch.set_num_threads, ("set_num_threads",)
    ),
    "torch's deterministic algorithms": _Setting(
        torch.are_deterministic_algorithms_enabled,
        torch.use_deterministic_algorithms,
        ("use_deterministic_algorithms",),
    ),
    "whether torch records gradients": _Setting(
        torch.is_grad_enabled, torch.set_grad_enabled, ("set_grad_enabled",)
    ),
    "whether torch flushes denormal numbers": _Setting(
        _flushes_denormals, torch.set_flush_denormal, ("set_flush_denormal",)
    ),
    "torch's anomaly detection": _Setting(
        torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly, ("set_detect_anomaly",)
    ),
    "torch's autocast on the CPU": _Setting(
        lambda: torch.is_autocast_enabled("cpu"),
        lambda value: torch.set_autocast_enabled("cpu", value),
        ("set_autocast_enabled",),
    ),
    "torch's autocast on the GPU": _Setting(
        lambda: torch.is_autocast_enabled("cuda"),
        lambda value: torch.set_autocast_enabled("cuda", value),
        ("set_autocast_enabled",),
    ),
    "the dtype of torch's autocast on the CPU": _Setting(
        lambda: torch.get_autocast_dtype("cpu"),
        lambda value: torch.set_autocast_dtype("cpu", value),
        ("set_autocast_dtype",),
    ),
    "the dtype of torch's autocast on the GPU": _Setting(
        lambda: torch.get_autocast_dtype("cuda"),
        lambda value: torch.set_autocast_dtype("cuda", value),
        ("set_autocast_dtype",),
    ),
    "decimal's precision": _Setting(
        lambda: decimal.getcontext().prec, _set_precision, ("getcontext", "setcontext")
    ),
    "numpy's errors": _Setting(
        lambda: sorted(numpy.geterr().items()),
        lambda value: numpy.seterr(**dict(value)),
        ("seterr",),
    ),
    "numpy's way to print": _Setting(
        _printed_by_numpy,
        lambda value: numpy.set_printoptions(**dict(value)),
        ("set_printoptions",),
    ),
    "Python's limit of recursion": _Setting(
        sys.getrecursionlimit, sys.setrecursionlimit, ("setrecursionlimit",)
    ),
    "the current folder": _Setting(_folder, _enter_folder, ("chdir",), any=False),
    **{
        text: _Setting(one.ask, one.set_to, _both_ways(one.setter))
        for text, one in backends().items()
    },
}


@functools.cache
def _set_by(calls: frozenset[str]) -> list[tuple[str, _Setting]]:
    enters = not calls.isdisjoint(_ANY)
    return [
        (text, one)
        for text, one in _SETTINGS.items()
        if not calls.isdisjoint(one.setters) or (enters and one.any)
    ]


def settings_of(source: Source, begun: Mapping[str, str]) -> dict[str, Any]:
    """Values by names for people, of what the script may change while it trains.

    begun: the environment as the script began; of names that only the run knows those count that
    are others now
    """
    named = {*source.environ}
    if "*" in named:
        named |= {name for name in {*os.environ, *begun} if os.environ.get(name) != begun.get(name)}
    found: dict[str, Any] = {
        f"os.environ[{name!r}]": os.environ.get(name)
        for name in sorted(named - {"*"})
        if not names_machine(name)
    }
    found |= {text: one.ask() for text, one in _set_by(frozenset(source.settings))}
    return found


def put_back(settings: Mapping[str, Any]) -> None:
    """Make them what they were; see `settings_of`."""
    for text, value in settings.items():
        if name := _variable(text):
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        else:
            setting = _SETTINGS[text]
            if setting.ask() != value:
                setting.set_to(value)


def line_of(source: Source, text: str) -> int:
    """Where that is set, in one file; 0: not there."""
    if name := _variable(text):
        return source.environ.get(name) or source.environ.get("*", 0)
    setters = (*_SETTINGS[text].setters, *_ANY)
    return max((source.settings.get(name, 0) for name in setters), default=0)


def _variable(text: str) -> str:
    """Of the environment; "" for a setting."""
    if not text.startswith("os.environ["):
        return ""
    return text.removeprefix("os.environ['").removesuffix("']")
