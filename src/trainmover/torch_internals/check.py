"""Is everything there, under its name?"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from trainmover.errors import TrainmoverError
from trainmover.torch_internals import compiling, ddp, fsdp, loaders, tensors

Needed = dict[str, tuple[str, ...]]
"""Names by the file of torch that they are in."""

_PARTS: tuple[tuple[str, Needed], ...] = (
    ("tensors", tensors.NEEDED),
    ("compiling", compiling.NEEDED),
    ("ddp", ddp.NEEDED),
    ("fsdp", fsdp.NEEDED),
    ("loaders", loaders.NEEDED),
)


def check(root: Path | None = None) -> None:
    """Raises TrainmoverError if the installed torch lacks a name, or is none of 2.11 to 2.13.

    root: where torch's sources are
    """
    root = root or Path(torch.__file__).parent
    missing = [name for _, needed in _PARTS for name in _missing(root, needed)]
    if missing:
        raise TrainmoverError(
            f"torch {torch.__version__} has no {', '.join(missing)}.",
            means="What trainmover must read there to keep the numbers is gone or has another "
            "name; no job is started with it.",
            do="Use torch 2.11 to 2.13, or report the version.",
        )


def _missing(root: Path, needed: Needed) -> Iterator[str]:
    """Names that their file does not have. "one|other": either will do."""
    for file, names in needed.items():
        text = _text(root / file)
        yield from (f"{name} in {file}" for name in names if not _has(text, name.split("|")))


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
