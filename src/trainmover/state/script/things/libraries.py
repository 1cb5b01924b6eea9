# SPDX-License-Identifier: Apache-2.0
"""Objects of libraries, torch's own and numpy's apart.

A metric of torchmetrics is a module whose state lies in plain attributes, of which no state_dict
knows: tensors, and lists of them, that its methods store to. The library's source says which.
"""

import ast
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import FunctionType

import torch
from torch import Tensor, nn

from trainmover.state.class_caches import cached_by_class
from trainmover.state.kinds.modules.attributes import goes_along
from trainmover.state.script.code.grammar import changed_in_place, stores_of
from trainmover.state.script.code.scopes import Source
from trainmover.state.script.code.source import source_of, tree_of
from trainmover.state.script.code.syntax import walk
from trainmover.torch_internals.modules import tensors_of

_SEEN_THROUGH = frozenset({"torch", "numpy", __name__.partition(".")[0], *sys.stdlib_module_names})
"""Packages whose objects are compared, as far as they keep anything that a step could count on."""
_ON_TOP = ("torch.distributed.algorithms.model_averaging.",)
"""Parts of these that are as libraries on top of them are."""

_ONLY_SHOW = frozenset(
    {
        *("tqdm", "rich", "alive_progress", "progressbar", "enlighten"),
        *("wandb", "tensorboard", "tensorboardX", "mlflow", "neptune", "comet_ml", "clearml"),
        *("aim", "swanlab", "dvclive", "visdom", "codecarbon", "prometheus_client", "matplotlib"),
        *("loguru", "structlog", "absl"),
    }
)
"""Packages whose objects show what they are given, and give nothing of it back."""
_OF_THE_PLACE = (torch.device, torch.dtype)


def module_of(kind: type) -> str:
    """Name of the module it says it is from; a class may say anything."""
    name: object = kind.__module__
    return name if type(name) is str else ""


def is_of_library(kind: type) -> bool:
    """Whether it is neither the script's own nor one that is known."""
    module = module_of(kind)
    package = module.partition(".")[0]
    if package in _SEEN_THROUGH:
        return module.startswith(_ON_TOP)
    file = getattr(sys.modules.get(package), "__file__", None)
    return file is None or "site-packages" in file or "dist-packages" in file


def is_like_array(kind: type) -> bool:
    """Whether objects of a library's class hold values as arrays do: pandas' frames, say."""
    gives = next((one for one in kind.__mro__ if "__array__" in vars(one)), None)
    if gives is None or not is_of_library(gives):
        return False
    computes = getattr(kind, "__array_ufunc__", None) is not None
    return computes or hasattr(kind, "__dataframe__")


def kept_in(owner: object) -> set[str]:
    """Attributes of a module in which it keeps what its methods find, of those that can be sent:
    none of a layer, whose state is in parameters and buffers."""
    if not issubclass(type(owner), nn.Module) or not is_of_library(type(owner)):
        return set()
    held = vars(owner)
    keeps = any(type(value) in (Tensor, list) for value in held.values())
    if not keeps or nn.Parameter in map(type, tensors_of(owner).values()):  # type: ignore[arg-type]
        return set()
    found = set(stored_in(type(owner)))
    for kind in filter(is_of_library, type(owner).__mro__):
        source = _source_of(kind)
        if source is not None and source.dynamic:
            found |= {name for name in held if name[:1] != "_"}
    known = {name: held[name] for name in found & held.keys()}
    return {
        name for name, one in known.items() if type(one) not in _OF_THE_PLACE and goes_along(one)
    }


def only_shows(kind: type) -> bool:
    """Whether its objects show what they are given: bars, reports, the loggers of any library."""
    package, *inside = module_of(kind).split(".")
    return package in _ONLY_SHOW or any(part.startswith("logg") for part in inside)


@cached_by_class
def stored_in(kind: type) -> frozenset[str]:
    """Attributes that methods of a library's class store to as it is used, as its source says; not
    what tells the time."""
    found = set[str]()
    for one in filter(is_of_library, kind.__mro__):
        source = _source_of(one)
        if source is not None:
            stored = source.by_class.get(one.__name__, set())
            found |= {name for name in stored if f".{name}" not in source.clocks}
    return frozenset(found)


@cached_by_class
def grown_in(kind: type) -> frozenset[str]:
    """Attributes, of whatever object, that the files of a library's class make out of what they
    were, as `state.steps += 1`."""
    return frozenset().union(*(_grown(_file_of(one)) for one in kind.__mro__ if is_of_library(one)))


@cached_by_class
def clocks_in(kind: type) -> frozenset[str]:
    """Attributes that tell the time in the files of a library's class."""
    found = [_source_of(one) for one in kind.__mro__ if is_of_library(one)]
    clocks = frozenset[str]().union(*(source.clocks for source in found if source is not None))
    return frozenset(name[1:] for name in clocks if name.startswith("."))


@lru_cache(maxsize=256)
def _grown(path: str) -> frozenset[str]:
    tree = tree_of(path)
    nodes = () if tree is None else walk(tree)
    return frozenset(one.attr for node in nodes for one in _made_of_itself(node))


def _made_of_itself(node: ast.AST) -> Iterator[ast.Attribute]:
    """What this node stores to, or an entry of which, if that is made out of what was there."""
    changed = changed_in_place(node) if isinstance(node, ast.Call) else None
    if isinstance(changed, ast.Attribute):
        yield changed
    for target, value in stores_of(node):
        owner = target
        while isinstance(owner, ast.Subscript):
            owner = owner.value
        adds = isinstance(node, ast.AugAssign)
        if isinstance(owner, ast.Attribute) and (
            adds or any(_is_same(owner, one) for one in walk(value))
        ):
            yield owner


def _is_same(target: ast.Attribute, read: ast.AST) -> bool:
    """Whether both are one attribute of one object."""
    is_one = isinstance(read, ast.Attribute) and read.attr == target.attr
    return is_one and ast.unparse(read) == ast.unparse(target)


def _source_of(kind: type) -> Source | None:
    return source_of(_file_of(kind))


def _file_of(kind: type) -> str:
    return getattr(sys.modules.get(module_of(kind)), "__file__", None) or ""


def file_of(kind: type) -> str:
    """Of the class's module; where Python knows none by that name, as of a config that is loaded by
    its path, of its functions. "" if it has none."""
    if path := _file_of(kind):
        return path
    codes = [one.__code__ for one in vars(kind).values() if type(one) is FunctionType]
    return codes[0].co_filename if codes else ""


class OwnTypes:
    """Whether a class is of the script's own code."""

    def __init__(self, is_own_file: Callable[[str], bool]) -> None:
        self._is_own_file = is_own_file
        self._known: dict[type, bool] = {}

    def __call__(self, kind: type) -> bool:
        if kind not in self._known:
            path = file_of(kind)
            self._known[kind] = bool(path) and self._is_own_file(path)
        return self._known[kind]
