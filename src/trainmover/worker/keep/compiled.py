# SPDX-License-Identifier: Apache-2.0
"""What torch.compile has made: shared between machines, and kept apart between runs.

A rank that keeps the record of its first steps also keeps what was compiled in them: torch's own
portable form, and the libraries its CPU kernels were built into, which that form leaves out. A
standby takes both into its compile cache before its first shadow run, so no machine compiles what
another has. It is code: it comes over the job's authenticated links, from a rank that runs the same
script, or from files that only this user can write, and is trusted as far as that script is. Its
names are torch's hashes of source, compiler
and instruction set, so a machine of another kind finds nothing in it and compiles for itself.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
import xxhash

from trainmover.errors import ProtocolError
from trainmover.ids import Rank
from trainmover.state.encode import decode, encode
from trainmover.torch_internals import compiling


def blob_name(rank: Rank) -> str:
    """Under which name it lies in a vault."""
    return f"compiled/{rank}"


class Packed(NamedTuple):
    """What `unpack` takes, and a hash of what it is: equal where the same was compiled."""

    data: bytes
    made: str


def packed() -> Packed | None:
    """Everything this process has compiled or taken from its cache; None if it was nothing."""
    saved = torch.compiler.save_cache_artifacts()
    if saved is None:
        return None
    artifacts, info = saved
    folder = compiling.folder()
    libraries = {str(p.relative_to(folder)): p.read_bytes() for p in _loaded_from(folder)}
    names = " ".join(sorted(set(info.inductor_artifacts)))
    return Packed(encode([artifacts, libraries]), xxhash.xxh3_64_hexdigest(names.encode()))


def unpack(data: bytes | bytearray) -> None:
    """Take into this machine's compile cache what `packed` gave elsewhere, and write nowhere else.

    Raises ProtocolError for what cannot be loaded. What the cache has then is found by nobody, or
    is what this machine would have compiled.
    """
    try:
        artifacts, libraries = decode(bytes(data))
        if type(artifacts) is not bytes or type(libraries) is not dict:
            raise ValueError("other parts than expected")
        if not all(type(content) is bytes for content in libraries.values()):
            raise ValueError("a library that is not bytes")
        folder = compiling.folder()
        files = [(_inside(folder, name), content) for name, content in libraries.items()]
        made = compiling.artifacts_in(artifacts)
        for path, content in files:
            _put(path, content)
        compiling.load(made)
    except Exception as error:  # torch unpickles it: anything may be raised.
        raise ProtocolError(
            f"What another rank has compiled cannot be loaded ({type(error).__name__}: {error}).",
            means="This machine compiles for itself.",
            do="Nothing: it takes longer, and has the same numbers.",
        ) from error


def forget() -> None:
    """The next run starts as the first: what it compiles anew is found in the cache.

    Without this, code of an installed module would be compiled once more in every run, up to
    torch's limit, and run uncompiled from then on: with other bits.
    """
    compiling.forget()


def _loaded_from(folder: Path) -> Iterator[Path]:
    """The libraries of that folder that are part of this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = {line.partition("/")[2] for line in lines if line.endswith(".so")}
    for path in sorted(Path("/" + name) for name in paths):
        if path.is_relative_to(folder) and path.exists():
            yield path


def _inside(folder: Path, name: object) -> Path:
    if type(name) is not str or not name.endswith(".so"):
        raise ValueError(f"{name!r} is no library")
    path = (folder / name).resolve()
    if not path.is_relative_to(folder):
        raise ValueError(f"{name!r} lies elsewhere")
    return path


def _put(path: Path, content: bytes) -> None:
    """Whole or not at all: other processes may look for it at this very moment."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    os.chmod(file.name, 0o755)
    os.replace(file.name, path)
