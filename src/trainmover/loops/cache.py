# SPDX-License-Identifier: Apache-2.0
"""Rewritten code on disk, in the folder of the bytecode cache.

A file is named like the module's bytecode (`train.cpython-311.opt-trainmover0.pyc`) and begins with
two SHA-256 digests: of what the code was made from, and of the rest of the file. So code of another
source, path, Python or way to rewrite is not used, nor what was damaged. All errors mean: no cache.
"""

import hashlib
import importlib.util
import marshal
import os
import sys
import tempfile
from contextlib import suppress
from types import CodeType

from trainmover.loops.rewrite import VERSION, LoopSite, Rewritten, rewrite

_DIGEST_BYTES = 32


def rewrite_cached(source: bytes, path: str, *, repeats: bool = True) -> Rewritten:
    """Return what `rewrite` makes of a source, from the cache where it is there."""
    key = _key(source, path, repeats)
    try:
        file = importlib.util.cache_from_source(
            path, optimization=f"trainmover{'' if repeats else 'run'}{sys.flags.optimize}"
        )
    except (NotImplementedError, ValueError):
        return rewrite(source, path, repeats=repeats)
    known = _read(file, key)
    if known is not None:
        return known
    rewritten = rewrite(source, path, repeats=repeats)
    if rewritten.code is not None and not sys.dont_write_bytecode:
        _write(file, key, rewritten)
    return rewritten


def _key(source: bytes, path: str, repeats: bool) -> bytes:
    facts = (VERSION, repeats, importlib.util.MAGIC_NUMBER, sys.implementation.cache_tag, path)
    return hashlib.sha256(repr(facts).encode("utf-8", "surrogateescape") + source).digest()


def _read(file: str, key: bytes) -> Rewritten | None:
    try:
        with open(file, "rb") as stored:
            data = stored.read()
    except OSError:
        return None
    start = 2 * _DIGEST_BYTES
    payload = data[start:]
    if data[:start] != key + hashlib.sha256(payload).digest():
        return None
    try:
        code, sites, reason = marshal.loads(payload)
        return Rewritten(code, tuple([LoopSite(*site) for site in sites]), reason)
    except (ValueError, EOFError, TypeError):
        return None


def _write(file: str, key: bytes, rewritten: Rewritten) -> None:
    code: CodeType | None = rewritten.code
    payload = marshal.dumps((code, [tuple(site) for site in rewritten.sites], rewritten.reason))
    folder = os.path.dirname(file)
    with suppress(OSError):
        os.makedirs(folder, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
        try:
            with open(descriptor, "wb") as stored:
                stored.write(key + hashlib.sha256(payload).digest() + payload)
            os.replace(temporary, file)
        except OSError:
            os.unlink(temporary)
