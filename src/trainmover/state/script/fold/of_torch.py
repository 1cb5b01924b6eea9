# SPDX-License-Identifier: Apache-2.0
"""Ordinary objects of torch's own that are neither modules, optimizers nor data, and are told by
their attributes: autocast and other modes that a script keeps, a mask for attention, a sparsifier.
And members of enumerations that are written in C++.
"""

import contextlib
import dis
import sys
from types import FunctionType
from typing import Any

import torch

from trainmover.state.class_caches import cached_by_class
from trainmover.state.script.fold.kinds import PLAIN
from trainmover.state.script.fold.objects import attributes_of
from trainmover.state.script.things.held import has_attributes
from trainmover.state.script.things.libraries import module_of

_APART = (
    *("_", "fx", "jit", "export", "onnx", "package", "library", "compiler", "overrides", "func"),
    *("profiler", "autograd.profiler", "autograd.graph", "autograd.function", "monitor", "hub"),
    *("utils._", "utils.data", "utils.hooks", "utils.weak", "utils.benchmark", "utils.tensorboard"),
    *("utils.checkpoint", "utils.module_tracker", "utils.flop_counter", "utils.bottleneck"),
    *("utils.backend_registration", "utils.cpp_extension", "utils.collect_env", "utils.viz"),
    *("distributed", "multiprocessing", "futures", "cuda", "xpu", "mps", "mtia", "accelerator"),
    *("cpu", "backends", "testing", "storage", "serialization", "classes", "ops", "version"),
)
"""Parts of torch whose objects are of its compiler, measure, or belong to the machine, or a number
of the process is in them."""
_OF_PYTHON = (contextlib.nullcontext,)
_CONTAINERS = (dict, list, tuple, set, frozenset)
_DATA = (torch.Tensor, torch.dtype, torch.device, torch.layout, torch.memory_format)


@cached_by_class
def is_one(kind: type) -> bool:
    """Whether attributes tell all of such an object: nothing of it is written in C++."""
    if kind in _OF_PYTHON:
        return True
    parts = module_of(kind).split(".", 1)
    if parts[0] != "torch" or len(parts) == 1 or parts[1].startswith(_APART):
        return False
    return has_attributes(kind) and all(map(_is_in_python, kind.__mro__[:-1]))


def _is_in_python(kind: type) -> bool:
    file = getattr(sys.modules.get(module_of(kind)), "__file__", None)
    return file is not None and file.endswith(".py")


@cached_by_class
def is_member(kind: type) -> bool:
    """Whether its objects are members of an enumeration of torch's that is written in C++."""
    held = vars(kind)
    return module_of(kind).partition(".")[0] == "torch" and {"__members__", "__entries"} <= {*held}


def settings_of(value: object) -> dict[str, Any]:
    """Its attributes that hold data, or objects that are such themselves; not what it keeps while
    it is entered, to restore that at its end."""
    kind: Any = type(value)
    kept = _kept_while_entered(kind)
    every = attributes_of(value).items()
    return {name: one for name, one in every if name not in kept and _tells(one)}


def _tells(value: object) -> bool:
    kind: Any = type(value)
    known = kind in PLAIN or issubclass(kind, (*_CONTAINERS, *_DATA, FunctionType))
    return known or is_one(kind) or is_member(kind)


@cached_by_class
def _kept_while_entered(kind: type) -> frozenset[str]:
    """Attributes that are stored as it is entered."""
    enters = getattr(kind, "__enter__", None)
    if type(enters) is not FunctionType:
        return frozenset()
    stores = (one for one in dis.get_instructions(enters) if one.opname == "STORE_ATTR")
    return frozenset(one.argval for one in stores)
