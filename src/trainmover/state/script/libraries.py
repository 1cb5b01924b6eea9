"""Objects of libraries, torch's own and numpy's apart.

A metric of torchmetrics is a module whose state lies in plain attributes, of which no state_dict
knows: tensors, and lists of them, that its methods store to. The library's source says which.
"""

import sys

import torch
from torch import Tensor, nn

from trainmover.state.kinds.attributes import goes_along
from trainmover.state.script.code.source import source_of
from trainmover.torch_internals.modules import tensors_of

_SEEN_THROUGH = frozenset({"torch", "numpy", __name__.partition(".")[0], *sys.stdlib_module_names})
"""Packages whose objects are compared, as far as they keep anything that a step could count on."""

_OF_THE_PLACE = (torch.device, torch.dtype)


def module_of(kind: type) -> str:
    """Name of the module it says it is from; a class may say anything."""
    name: object = kind.__module__
    return name if type(name) is str else ""


def is_of_library(kind: type) -> bool:
    """Whether it is neither the script's own nor one that is known."""
    package = module_of(kind).partition(".")[0]
    if package in _SEEN_THROUGH:
        return False
    file = getattr(sys.modules.get(package), "__file__", None)
    return file is None or "site-packages" in file or "dist-packages" in file


def kept_in(owner: object) -> set[str]:
    """Attributes of a module in which it keeps what its methods find, of those that can be sent:
    none of a layer, whose state is in parameters and buffers."""
    if not issubclass(type(owner), nn.Module) or not is_of_library(type(owner)):
        return set()
    held = vars(owner)
    keeps = any(type(value) in (Tensor, list) for value in held.values())
    if not keeps or nn.Parameter in map(type, tensors_of(owner).values()):  # type: ignore[arg-type]
        return set()
    found = set[str]()
    for kind in filter(is_of_library, type(owner).__mro__):
        source = source_of(getattr(sys.modules.get(module_of(kind)), "__file__", None) or "")
        if source is not None:
            found |= source.by_class.get(kind.__name__, set())
            found |= {name for name in held if source.dynamic and name[:1] != "_"}
    known = {name: held[name] for name in found & held.keys()}
    return {
        name for name, one in known.items() if type(one) not in _OF_THE_PLACE and goes_along(one)
    }
