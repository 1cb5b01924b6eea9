"""Modules of TorchScript: their attributes lie in C++, where code that is compiled changes them."""

import re
from typing import Any

import torch
from torch import nn


def is_one(part: nn.Module) -> bool:
    """Whether it is compiled, and set up."""
    return isinstance(part, torch.jit.ScriptModule) and "_c" in vars(part)


def changed_in(part: nn.Module) -> list[str]:
    """Names of the attributes that the code of its methods may change: those that it stores to, and
    containers that it takes out, whatever for. [] of any other module."""
    if not is_one(part):
        return []
    compiled: Any = part
    found: set[str] = set()
    for method in compiled._c._method_names():
        code = compiled._c._get_method(method).code
        own = re.search(r"\((\w+)", code)
        name = own[1] if own else ""
        found.update(re.findall(rf"^ +{name}\.(\w+) = ", code, re.MULTILINE))
        taken = re.findall(rf"^ +\w+ = {name}\.(\w+)$", code, re.MULTILINE)
        found.update(one for one in taken if isinstance(getattr(part, one), list | dict))
    return sorted(found)
