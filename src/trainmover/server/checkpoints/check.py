# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a folder: which of them can be used, and why the others cannot.

To look at a checkpoint takes a moment, however large it is: its manifest is read, and every file
must be there, regular, and of the size that the manifest says. Whether the bytes are those that
were written, each rank finds out of its own part where it reads it. To verify one is to read it to
its last byte, which takes as long as the disk needs.

Everything here waits for disks, so the server calls it in a thread.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

import msgspec
import xxhash

from trainmover.ids import Step
from trainmover.ownership import foreign_writer, open_regular, read_regular, size_of_regular
from trainmover.protocol.checkpoint import FIRST_STEPS, FORMAT, MANIFEST, PUBLISHED
from trainmover.protocol.malformed import MALFORMED
from trainmover.protocol.messages import Checkpoint, Written

PART_BYTES = 16 * 1024 * 1024
MANIFEST_BYTES_MAX = 64 * 1024 * 1024
_NAME = re.compile(rf"{PUBLISHED}[0-9]{{12,18}}")
_FILE = re.compile(rf"({PUBLISHED}[0-9]{{12,18}}|{FIRST_STEPS})/(?!\.\.?\Z)[^/\0]+")

At = Callable[[str], None]
"""Called with each operation on the disk before it begins; what it raises ends the work."""


def unwatched(operation: str) -> None:
    """Let every operation begin."""


class Manifest(msgspec.Struct, frozen=True):
    """What lies in the file. xxh3: xxh3-128 of the bytes of `checkpoint`, hex."""

    xxh3: str
    checkpoint: msgspec.Raw


class Damaged(Exception):
    """A checkpoint, or a file of it, that is not as it was written."""


def manifests(folder: Path, at: At = unwatched) -> Iterator[tuple[str, Checkpoint | str]]:
    """Name and manifest of every checkpoint, the newest first; or why it cannot be used."""
    at(f"listing {folder}")
    for name in sorted(published_names(folder), reverse=True):
        try:
            at(f"reading {folder / name / MANIFEST}")
            yield name, read_manifest(folder, name)
        except Damaged as damaged:
            yield name, str(damaged)


def published_names(folder: Path) -> list[str]:
    """Names of the checkpoints in a folder, in no order; [] if it cannot be read."""
    try:
        return [name for name in os.listdir(folder) if _NAME.fullmatch(name)]
    except OSError:
        return []


def verified(folder: Path) -> Iterator[tuple[str, Checkpoint | str]]:
    """As `manifests`, with every file read: or why it is not whole."""
    for name, manifest in manifests(folder):
        yield name, _why_not(manifest, _verify) or manifest


def newest_whole(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that is whole, every file read, and a sentence for each newer one."""
    damaged: list[str] = []
    for name, found in verified(folder):
        if isinstance(found, Checkpoint):
            return found, damaged
        damaged.append(_passed_over(folder / name, found))
    return None, damaged


def newest_usable(
    folders: Iterable[Path],
    unusable: Collection[Step] = (),
    at: At = unwatched,
    *,
    records_are_elsewhere: bool = False,
) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint of all folders that looks whole, and what people should know of it.

    That is a sentence for each newer one that cannot be used, and one if what was compiled is left
    out, since others could have written it: it is code.

    unusable  steps of checkpoints that turned out to be damaged
    records_are_elsewhere  in the memory of machines; if not, those in files are verified: they are
        small, all checkpoints share them, and without them no rank can join
    """
    found = [
        (name, folder, manifest)
        for folder in dict.fromkeys(folders)
        for name, manifest in manifests(folder, at)
    ]
    sentences: list[str] = []
    for name, folder, manifest in sorted(found, key=lambda each: each[0], reverse=True):
        at(f"looking at the files of {folder / name}")
        why = _why_not_usable(manifest, unusable)
        if not why and not records_are_elsewhere:
            why = _why_not(_only_records(manifest), _verify)
        if not why:
            assert isinstance(manifest, Checkpoint)
            usable, said = _without_foreign_code(name, manifest)
            return usable, sentences + said
        sentences.append(_passed_over(folder / name, why))
    return None, sentences


def looks_whole(manifest: Checkpoint) -> bool:
    """Whether every file that a job needs is there and of the right size; none is read."""
    return not _why_not_usable(manifest, ())


def _why_not_usable(manifest: Checkpoint | str, unusable: Collection[Step]) -> str:
    """As `_why_not`, after a look. What was compiled is not needed: it can be compiled again."""
    if isinstance(manifest, str):
        return manifest
    if manifest.step in unusable:
        return "a rank could not use its part"
    return _why_not(msgspec.structs.replace(manifest, compiled={}), _look)


def _without_foreign_code(name: str, found: Checkpoint) -> tuple[Checkpoint, list[str]]:
    paths = [Path(found.folder, name, MANIFEST)] if found.compiled else []
    paths += sorted({Path(found.path(one)) for one in found.compiled.values()})
    why = next((why for path in paths if (why := foreign_writer(path))), "")
    if not why:
        return found, []
    said = (
        f"what {found.folder}/{name} has compiled is not taken, since it is code and {why}: the "
        f"run compiles again. If all in it is yours: chown -R and chmod -R go-w {found.folder}"
    )
    return msgspec.structs.replace(found, compiled={}), [said]


def _only_records(manifest: Checkpoint | str) -> Checkpoint | str:
    if isinstance(manifest, str):
        return manifest
    return msgspec.structs.replace(manifest, states={}, compiled={})


def _passed_over(path: Path, why: str) -> str:
    return f"{path} is passed over: {why}."


def _why_not(manifest: Checkpoint | str, check: Callable[[Path, Written], None]) -> str:
    """Why this one cannot be taken; "" if it can."""
    if isinstance(manifest, str):
        return manifest
    try:
        for written in {written.file: written for written in _files(manifest)}.values():
            check(Path(manifest.path(written)), written)
    except Damaged as damaged:
        return str(damaged)
    return ""


def read_manifest(folder: Path, name: str) -> Checkpoint:
    """Of one checkpoint. Its files are where it lies now, whatever was their folder. Damaged."""
    try:
        data = read_regular(folder / name / MANIFEST, MANIFEST_BYTES_MAX)
        manifest = msgspec.json.decode(data, type=Manifest)
        if xxhash.xxh3_128_hexdigest(manifest.checkpoint) != manifest.xxh3:
            raise Damaged("its manifest's checksum differs")
        checkpoint = msgspec.json.decode(manifest.checkpoint, type=Checkpoint)
    except OSError as error:
        raise Damaged(f"its manifest cannot be read: {error.strerror}") from error
    except (*MALFORMED, ValueError) as error:
        raise Damaged(f"its manifest is none of trainmover {error}") from error
    if checkpoint.format != FORMAT:
        raise Damaged(f"its format is {checkpoint.format}, this trainmover reads {FORMAT}")
    for written in _files(checkpoint):
        if not _FILE.fullmatch(written.file):
            raise Damaged(f"its manifest names {written.file!r}, which no checkpoint has")
    return msgspec.structs.replace(checkpoint, folder=str(folder.resolve()))


def _files(checkpoint: Checkpoint) -> Iterator[Written]:
    for parts in checkpoint.states.values():
        yield from parts
    for files in (checkpoint.records, checkpoint.compiled):
        yield from files.values()


def _look(path: Path, written: Written) -> None:
    try:
        size = size_of_regular(path)
    except OSError as error:
        raise Damaged(f"{written.file} cannot be read: {error.strerror}") from error
    if size != written.bytes:
        raise Damaged(f"{written.file} has {size} bytes and not {written.bytes}")


def _verify(path: Path, written: Written) -> None:
    _look(path, written)
    digest = xxhash.xxh3_128()
    try:
        with open_regular(path) as file:
            while part := file.read(PART_BYTES):
                digest.update(part)
    except OSError as error:
        raise Damaged(f"{written.file} cannot be read: {error.strerror}") from error
    if digest.hexdigest() != written.digest:
        raise Damaged(f"{written.file} is damaged: its checksum differs")
