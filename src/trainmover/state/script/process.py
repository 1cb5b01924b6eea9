"""What a script sets for its whole process while it trains: variables of the environment, and what
torch and numpy are set to. Nobody else's process has it."""

import decimal
import functools
import operator
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy
import torch

from trainmover.state.script.source import Source, names_machine
from trainmover.torch_internals.modes import chosen_device

_BACKENDS = (
    *("cudnn.benchmark", "cudnn.deterministic", "cudnn.allow_tf32", "cudnn.enabled"),
    *("cuda.matmul.allow_tf32", "mkldnn.enabled"),
)


def _set_backend(path: str, value: Any) -> None:
    owner, _, name = path.rpartition(".")
    setattr(operator.attrgetter(owner)(torch.backends), name, value)


def _set_precision(value: int) -> None:
    decimal.getcontext().prec = value


def _flushes_denormals() -> bool:
    """The processor says it by what it does."""
    return sys.float_info.min / _TWO == 0.0


def _printed_by_numpy() -> list[tuple[str, Any]]:
    """Numbers and words; functions of the script's it may have beside them."""
    known = numpy.get_printoptions().items()
    return sorted((name, value) for name, value in known if isinstance(value, bool | int | str))


_TWO = float("2")  # Not a constant: the quotient would be one too.
_Both = tuple[Callable[[], Any], Callable[[Any], Any]]
_SETTINGS: dict[str, _Both] = {
    "torch's default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "torch's default device": (chosen_device, torch.set_default_device),
    "torch's number of threads": (torch.get_num_threads, torch.set_num_threads),
    "torch's matmul precision": (
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    "torch's deterministic algorithms": (
        torch.are_deterministic_algorithms_enabled,
        torch.use_deterministic_algorithms,
    ),
    "whether torch records gradients": (torch.is_grad_enabled, torch.set_grad_enabled),
    "whether torch flushes denormal numbers": (_flushes_denormals, torch.set_flush_denormal),
    "torch's anomaly detection": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    "torch's autocast on the CPU": (
        lambda: torch.is_autocast_enabled("cpu"),
        lambda value: torch.set_autocast_enabled("cpu", value),
    ),
    "torch's autocast on the GPU": (
        lambda: torch.is_autocast_enabled("cuda"),
        lambda value: torch.set_autocast_enabled("cuda", value),
    ),
    "the dtype of torch's autocast on the CPU": (
        lambda: torch.get_autocast_dtype("cpu"),
        lambda value: torch.set_autocast_dtype("cpu", value),
    ),
    "the dtype of torch's autocast on the GPU": (
        lambda: torch.get_autocast_dtype("cuda"),
        lambda value: torch.set_autocast_dtype("cuda", value),
    ),
    "decimal's precision": (lambda: decimal.getcontext().prec, _set_precision),
    "numpy's errors": (
        lambda: sorted(numpy.geterr().items()),
        lambda value: numpy.seterr(**dict(value)),
    ),
    "numpy's way to print": (
        _printed_by_numpy,
        lambda value: numpy.set_printoptions(**dict(value)),
    ),
    "Python's limit of recursion": (sys.getrecursionlimit, sys.setrecursionlimit),
    **{
        f"torch.backends.{path}": (
            functools.partial(operator.attrgetter(path), torch.backends),
            functools.partial(_set_backend, path),
        )
        for path in _BACKENDS
    },
}


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
    if source.settings:
        found |= {text: ask() for text, (ask, _) in _SETTINGS.items()}
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
            ask, set_to = _SETTINGS[text]
            if ask() != value:
                set_to(value)


def line_of(source: Source, text: str) -> int:
    """Where that is set, in one file; 0: not there."""
    if name := _variable(text):
        return source.environ.get(name) or source.environ.get("*", 0)
    return source.settings


def _variable(text: str) -> str:
    """Of the environment; "" for a setting."""
    if not text.startswith("os.environ["):
        return ""
    return text.removeprefix("os.environ['").removesuffix("']")
