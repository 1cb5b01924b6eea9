# SPDX-License-Identifier: Apache-2.0
"""torchrun's own parser, without torch: loading that takes seconds of a core, and a run would keep
it in memory to its end, for a command line.

What makes the parser is one function. It is taken out of its module's source, with the few names
that it uses from there, under the names by which that module imports them; one that is not among
them has the module loaded after all.
"""

import argparse
import ast
import builtins
import enum
import importlib.util
from pathlib import Path
from typing import Any


def torchruns_parser() -> argparse.ArgumentParser:
    """Return the parser that `torch.distributed.run` makes."""
    names = _Names("torch.distributed.run")
    names |= {"ArgumentParser": argparse.ArgumentParser, "REMAINDER": argparse.REMAINDER}
    names |= vars(_executed("torch.distributed.argparse_util"))
    modes = _Names("torch.numa.binding", Enum=enum.Enum)
    names[_imported_as("AffinityMode", names.module)] = _defined("AffinityMode", modes)
    parser: argparse.ArgumentParser = _defined("get_args_parser", names)()
    return parser


class _Names(dict[str, Any]):
    """The global names of a part of a module: those given, else the module's own."""

    def __init__(self, module: str, **given: object) -> None:
        super().__init__(given, __name__=module)
        self.module = module

    def __missing__(self, name: str) -> object:
        if hasattr(builtins, name):
            raise KeyError(name)
        return getattr(importlib.import_module(self.module), name)


def _imported_as(name: str, module: str) -> str:
    """Return what that module of torch calls what it imports under this name."""
    imports = (node for node in _tree(module).body if isinstance(node, ast.ImportFrom))
    aliases = (alias for node in imports for alias in node.names if alias.name == name)
    return next((alias.asname or name for alias in aliases), name)


def _defined(name: str, names: _Names) -> Any:
    """Return that function or class of a module of torch, defined here with these names."""
    tree = _tree(names.module)
    tree.body = [node for node in tree.body if getattr(node, "name", None) == name]
    exec(compile(tree, str(_file(names.module)), "exec"), names)
    return names[name]


def _executed(module: str) -> Any:
    """Execute a module that imports nothing of torch, without the packages that it lies in."""
    spec = importlib.util.spec_from_file_location(module, _file(module))
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def _tree(module: str) -> ast.Module:
    return ast.parse(_file(module).read_bytes())


def _file(module: str) -> Path:
    torch = importlib.util.find_spec("torch")
    assert torch is not None  # `run` has looked.
    assert torch.origin is not None
    return Path(torch.origin).parent.joinpath(*module.split(".")[1:]).with_suffix(".py")
