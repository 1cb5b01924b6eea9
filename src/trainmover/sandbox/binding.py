# SPDX-License-Identifier: Apache-2.0
"""What a record of first steps belongs to: a script run in one certain way."""

import platform
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

import msgspec
import torch
import xxhash

from trainmover.errors import StateMismatch
from trainmover.sandbox.process.gpus import gpus_of_host
from trainmover.version import VERSION


class Binding(msgspec.Struct, frozen=True):
    """Equal bindings: the script does the same on record and replay, as far as can be known.

    script     xxh3-128 of the script's file; "" if it cannot be read
    arguments  what follows the script's name
    gpus       their kinds and the driver, "none" if the script cannot use any
    """

    script: str
    arguments: tuple[str, ...]
    world_size: int
    nproc: int
    torch: str
    trainmover: str
    python: str
    gpus: str

    def check(self, recorded: "Binding", rank: int) -> None:
        """Raise StateMismatch, naming each difference, if a record of `rank` is bound elsewhere."""
        if self == recorded:
            return
        differences = "; ".join(self._against(recorded))
        raise StateMismatch(
            f"The first steps of rank {rank} were recorded with {differences}.",
            means="This machine cannot be warmed with that record; the job trains on.",
            do="Run the same script with the same arguments and packages on every machine, and "
            "have machines of one kind.",
        )

    def _against(self, recorded: "Binding") -> Iterator[str]:
        if self.script != recorded.script:
            yield "another text of the script than lies here"
        for name in ("arguments", "world_size", "nproc", "torch", "trainmover", "python", "gpus"):
            there, here = getattr(recorded, name), getattr(self, name)
            if there != here:
                yield f"{name.replace('_', ' ')} {_shown(there)} and not {_shown(here)}"


def _text(argument: str) -> str:
    """Also of bytes that are no text, which the operating system allows."""
    return argument.encode("utf-8", "backslashreplace").decode()


def _shown(value: object) -> str:
    text = " ".join(value) or "(none)" if isinstance(value, tuple) else str(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def binding_of(argv: list[str], *, module: bool, world_size: int, nproc: int) -> Binding:
    """Of a script about to run in this process."""
    return Binding(
        script=_hash_of(_file_of(argv[0], module=module)),
        arguments=tuple(_text(argument) for argument in argv[1:]),
        world_size=world_size,
        nproc=nproc,
        torch=str(torch.__version__),
        trainmover=VERSION,
        python=platform.python_version(),
        gpus=gpus_of_host(),
    )


def _file_of(script: str, *, module: bool) -> Path | None:
    """None where there is none, or it is not found: running it will tell."""
    if not module:
        return Path(script)
    path: list[str] | None = None
    for name in script.split("."):
        found = PathFinder.find_spec(name, path)  # Imports nothing, other than importlib's own.
        if found is None:
            return None
        path = found.submodule_search_locations or []
    if path:
        found = PathFinder.find_spec("__main__", path)
    return Path(found.origin) if found is not None and found.origin else None


def _hash_of(path: Path | None) -> str:
    try:
        return "" if path is None else xxhash.xxh3_128_hexdigest(path.read_bytes())
    except OSError:
        return ""
