"""Which checkpoint of a folder is whole: read to the last byte before anything is taken from it.

Everything here reads disks, so the server calls it in a thread.
"""

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import msgspec
import xxhash

from trainmover.ids import Step
from trainmover.protocol.checkpoint import FORMAT, MANIFEST, PUBLISHED
from trainmover.protocol.malformed import MALFORMED
from trainmover.protocol.messages import Checkpoint, Written

PART_BYTES = 16 * 1024 * 1024


class Manifest(msgspec.Struct, frozen=True):
    """What lies in the file. xxh3: xxh3-128 of the bytes of `checkpoint`, hex."""

    xxh3: str
    checkpoint: msgspec.Raw


class Damaged(Exception):
    """A checkpoint, or a file of it, that is not as it was written."""


def manifests(folder: Path) -> Iterator[tuple[str, Checkpoint | str]]:
    """Name and manifest of every checkpoint, the newest first; or why it cannot be used."""
    names = [path.name for path in _entries(folder) if path.name.startswith(PUBLISHED)]
    for name in sorted(names, reverse=True):
        try:
            yield name, read_manifest(folder, name)
        except Damaged as damaged:
            yield name, str(damaged)


def whole_ones(folder: Path) -> Iterator[tuple[str, Checkpoint | str]]:
    """As `manifests`, with every file read: or why it is not whole."""
    for name, manifest in manifests(folder):
        yield name, _why_not(manifest, ()) or manifest


def newest_whole(
    folders: Iterable[Path], unusable: Collection[Step] = ()
) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint of all that is whole, and a sentence for each newer one that is not."""
    found = [
        (name, folder, manifest)
        for folder in dict.fromkeys(folders)
        for name, manifest in manifests(folder)
    ]
    damaged: list[str] = []
    for name, folder, manifest in sorted(found, key=lambda each: each[0], reverse=True):
        why = _why_not(manifest, unusable)
        if not why:
            assert isinstance(manifest, Checkpoint)
            return manifest, damaged
        damaged.append(f"{folder / name} is passed over: {why}.")
    return None, damaged


def is_whole(manifest: Checkpoint) -> bool:
    """Whether every file of it is what was written, read to its last byte."""
    return not _why_not(manifest, ())


def stamps(manifest: Checkpoint) -> list[tuple[int, int]]:
    """Sizes and times of its files as they are now: while they stay, nobody has written to them."""
    found = (Path(manifest.path(written)) for written in _files(manifest))
    return [_stamp(path) for path in found]


def _stamp(path: Path) -> tuple[int, int]:
    try:
        now = path.stat()
    except OSError:
        return (-1, -1)
    return (now.st_size, now.st_mtime_ns)


def _why_not(manifest: Checkpoint | str, unusable: Collection[Step]) -> str:
    """Why this one cannot be taken; "" if it can."""
    if isinstance(manifest, str):
        return manifest
    if manifest.step in unusable:
        return "a rank could not use its part"
    try:
        for written in {written.file: written for written in _files(manifest)}.values():
            _check(Path(manifest.path(written)), written)
    except Damaged as damaged:
        return str(damaged)
    return ""


def read_manifest(folder: Path, name: str) -> Checkpoint:
    """Of one checkpoint. Its files are where it lies now, whatever was their folder. Damaged."""
    try:
        manifest = msgspec.json.decode((folder / name / MANIFEST).read_bytes(), type=Manifest)
        if xxhash.xxh3_128_hexdigest(manifest.checkpoint) != manifest.xxh3:
            raise Damaged("its manifest's checksum differs")
        checkpoint = msgspec.json.decode(manifest.checkpoint, type=Checkpoint)
    except OSError as error:
        raise Damaged(f"its manifest cannot be read: {error.strerror}") from error
    except (*MALFORMED, ValueError) as error:
        raise Damaged(f"its manifest is none of trainmover {error}") from error
    if checkpoint.format != FORMAT:
        raise Damaged(f"its format is {checkpoint.format}, this trainmover reads {FORMAT}")
    return msgspec.structs.replace(checkpoint, folder=str(folder.resolve()))


def _files(checkpoint: Checkpoint) -> Iterator[Written]:
    for parts in checkpoint.states.values():
        yield from parts
    for files in (checkpoint.records, checkpoint.compiled):
        yield from files.values()


def _check(path: Path, written: Written) -> None:
    digest = xxhash.xxh3_128()
    try:
        size = path.stat().st_size
        if size != written.bytes:
            raise Damaged(f"{written.file} has {size} bytes and not {written.bytes}")
        with path.open("rb", buffering=0) as file:
            while part := file.read(PART_BYTES):
                digest.update(part)
    except OSError as error:
        raise Damaged(f"{written.file} cannot be read: {error.strerror}") from error
    if digest.hexdigest() != written.digest:
        raise Damaged(f"{written.file} is damaged: its checksum differs")


def _entries(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in os.listdir(folder)]
    except OSError:
        return []
