# SPDX-License-Identifier: Apache-2.0
"""Is everything there, under its name?"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
import torch.distributed

from trainmover.errors import TrainmoverError
from trainmover.torch_internals.names import IN_FILES, IN_MEMORY


def check(root: Path | None = None, top: object = torch) -> None:
    """Raises TrainmoverError if the installed torch lacks a name, or is none of 2.11 to 2.13.

    root: where torch's sources are. top: torch, as it is loaded
    """
    missing = [*_missing_in_files(root or Path(torch.__file__).parent), *_missing_in(top)]
    if missing:
        raise unknown(missing)


def unknown(missing: Iterable[str]) -> TrainmoverError:
    """This torch is not one that trainmover was written for."""
    return TrainmoverError(
        f"torch {torch.__version__} has no {', '.join(missing)}.",
        means="What trainmover must read there to keep the numbers is gone or has another "
        "name; no job is started with it.",
        do="Use torch 2.11 to 2.13, or report the version.",
    )


def _missing_in_files(root: Path) -> Iterator[str]:
    """Names that their file does not have. "one|other": either will do."""
    for file, names in IN_FILES.items():
        text = _text(root / file)
        yield from (f"{name} in {file}" for name in names if not _has(text, name.split("|")))


def _missing_in(top: object) -> Iterator[str]:
    """Names that their owner does not have, or whose owner is not there."""
    for path, names in IN_MEMORY.items():
        owner = _owner(top, path.split(".")[1:])
        yield from (f"{name} in {path}" for name in names if not hasattr(owner, name))


def _owner(top: object, path: Iterable[str]) -> object:
    owner = top
    for name in path:
        if not hasattr(owner, name):
            return None
        owner = getattr(owner, name)
    return owner


def _has(text: str, names: Iterable[str]) -> bool:
    return any(_stands_in(text, name) for name in names)


def _stands_in(text: str, name: str) -> bool:
    """As a word of its own. (A pattern takes ten times as long, as every worker starts.)"""
    at = text.find(name)
    while at >= 0:
        around = text[at - 1 : at] + text[at + len(name) : at + len(name) + 1]
        if not any(one.isalnum() or one == "_" for one in around):
            return True
        at = text.find(name, at + 1)
    return False


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
