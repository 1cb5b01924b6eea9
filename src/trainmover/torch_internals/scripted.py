# SPDX-License-Identifier: Apache-2.0
"""Modules of TorchScript: their attributes lie in C++, where code that is compiled changes them."""

import re
from typing import Any

import torch
from torch import nn

from trainmover.torch_internals.modules import tensors_of

_LISTS = r"append|_set_item|insert|pop|clear|extend|remove|reverse|sort|Delete"
_WRITES = rf"torch\.(?:{_LISTS}|update|popitem|setdefault|\w+_)"
"""What changes its first argument, as compiled code has it."""


def is_one(part: nn.Module) -> bool:
    """Whether it is compiled, and set up."""
    return isinstance(part, torch.jit.ScriptModule) and "_c" in vars(part)


def changed_in(part: nn.Module) -> list[str]:
    """Names of the attributes that the code of its methods changes: those that it stores to, and
    containers that it takes out and writes to. [] of any other module."""
    if not is_one(part):
        return []
    compiled: Any = part
    found: set[str] = set()
    for method in compiled._c._method_names():
        code = compiled._c._get_method(method).code
        own = re.search(r"\((\w+)", code)
        name = own[1] if own else ""
        found.update(re.findall(rf"^ +{name}\.(\w+) = ", code, re.MULTILINE))
        for local, taken in re.findall(rf"^ +(\w+) = {name}\.(\w+)$", code, re.MULTILINE):
            if re.search(rf"\b{_WRITES}\({local}\b", code):
                found.add(taken)
    return sorted(found - tensors_of(part).keys())
