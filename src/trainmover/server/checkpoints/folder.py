# SPDX-License-Identifier: Apache-2.0
"""The folder of a run's checkpoints: who may write there, and how one is published. See
`protocol.checkpoint` for what lies where.

A checkpoint is there from one moment to the next: its folder is complete and safe on disk, manifest
and all, before it gets its name. The oldest go only after that. All this waits for disks, so the
server calls it in a thread.
"""

import errno
import fcntl
import itertools
import os
import re
from contextlib import suppress
from pathlib import Path

import msgspec
import xxhash

from trainmover.durable import sync_folder
from trainmover.errors import UserError
from trainmover.ids import Epoch, Step
from trainmover.protocol.checkpoint import (
    FIRST_STEPS,
    LOCK,
    MANIFEST,
    PUBLISHED,
    WRITING,
    is_part_name,
    published_name,
    writing_name,
)
from trainmover.protocol.messages import Checkpoint
from trainmover.server.checkpoints.check import (
    MANIFEST_BYTES_MAX,
    At,
    Damaged,
    Manifest,
    looks_whole,
    manifests,
    published_names,
    read_manifest,
    unwatched,
)

_REPLACED = ".replaced-"
_OURS = re.compile(rf"(\{_REPLACED})?{PUBLISHED}\d{{12,}}|\{WRITING}\d+-\d+")
_DIGEST = re.compile("[0-9a-f]{32}")
"""Names of folders of checkpoints, and of what ranks keep of their first steps. Anything else is
somebody's."""


class CheckpointFolder:
    """Held by this run until `close`. Use `take`."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def take(cls, path: Path, *, going_on: bool = False) -> "CheckpointFolder":
        """Make it ready to be written to. Raises UserError if it cannot be, or is another run's.

        going_on  by the successor of a controller: ranks may be writing there
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise UserError(
                f"Checkpoints cannot be written to {path}: {error.strerror}.",
                means="Nothing was started.",
                do="Give --checkpoint a folder that can be written.",
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise UserError(
                f"Another run writes its checkpoints to {path}.",
                means="Nothing was started: they would overwrite each other.",
                do="Stop that run first, or give --checkpoint another folder.",
            ) from error
        folder = cls(path, lock)
        if not going_on:
            folder._sweep()
        return folder

    @property
    def lock(self) -> int:
        """The descriptor that holds it, for a process that is to write there in our place."""
        return self._lock

    def publish(self, checkpoint: Checkpoint, keep: int, at: At = unwatched) -> None:
        """Give what all ranks have written its name, and remove the oldest. Raises OSError.

        Done already, by a controller that died before it could say so, it is not done again.
        """
        source = self.path / writing_name(checkpoint.step, checkpoint.epoch)
        target = self.path / published_name(checkpoint.step)
        at(f"looking at {target}")
        if source.exists() or not _lies_there(self.path, checkpoint):
            self._name(source, target, checkpoint, at)
        self._remove_oldest(keep, at)
        self._sweep(at)

    def _name(self, source: Path, target: Path, checkpoint: Checkpoint, at: At) -> None:
        at(f"writing {source / MANIFEST}")
        _write_manifest(source / MANIFEST, checkpoint)
        at(f"syncing {source}")
        sync_folder(source)
        at(f"renaming {source} to {target.name}")
        if target.exists():  # Damaged, so the run went on from an older one.
            names = (f"{_REPLACED}{target.name}{n or ''}" for n in itertools.count())
            target.rename(next(p for p in map(self.path.joinpath, names) if not p.exists()))
        source.rename(target)
        at(f"syncing {self.path}")
        sync_folder(self.path)

    def give_up(self, step: Step, epoch: Epoch, at: At = unwatched) -> None:
        """Make room: what was written so far is of no use."""
        _remove(self.path / writing_name(step, epoch), at)

    def close(self) -> None:
        """Let another run have it."""
        os.close(self._lock)

    def _remove_oldest(self, keep: int, at: At) -> None:
        """Those that look damaged do not count."""
        kept = 0
        for name, manifest in manifests(self.path, at):
            if kept >= keep:
                _remove(self.path / name, at)
            else:
                kept += isinstance(manifest, Checkpoint) and looks_whole(manifest)

    def _sweep(self, at: At = unwatched) -> None:
        """Remove what nobody refers to: folders that were never published, old first steps."""
        for prefix in (WRITING, _REPLACED):
            for path in self.path.glob(f"{prefix}*"):
                _remove(path, at)
        shared = self.path / FIRST_STEPS
        if shared.is_symlink():  # Not of our making: what lies behind it is not ours to remove.
            return
        known = {
            written.digest
            for _, manifest in manifests(self.path, at)
            if isinstance(manifest, Checkpoint)
            for written in (*manifest.records.values(), *manifest.compiled.values())
        }
        at(f"listing {shared}")
        for path in shared.glob("*"):
            if _DIGEST.fullmatch(path.name) and path.name not in known:
                at(f"removing {path}")
                path.unlink(missing_ok=True)


def _remove(folder: Path, at: At) -> None:
    """Remove what trainmover has written there, and the folder if nothing else is in it: other
    programs call theirs step-1000 too, and people leave notes."""
    if folder.is_symlink() or not _OURS.fullmatch(folder.name):
        return
    at(f"removing {folder}")
    with suppress(OSError):
        for path in folder.iterdir():
            if is_part_name(path.name):
                path.unlink(missing_ok=True)
        folder.rmdir()


def _lies_there(folder: Path, checkpoint: Checkpoint) -> bool:
    try:
        there = read_manifest(folder, published_name(checkpoint.step))
    except Damaged:
        return False
    return msgspec.structs.replace(there, folder=checkpoint.folder) == checkpoint


def is_empty(folder: Path) -> bool:
    """Whether no checkpoint lies there."""
    return not published_names(folder)


def _write_manifest(path: Path, checkpoint: Checkpoint) -> None:
    data = msgspec.json.encode(checkpoint)
    manifest = msgspec.json.encode(Manifest(xxhash.xxh3_128_hexdigest(data), msgspec.Raw(data)))
    if len(manifest) > MANIFEST_BYTES_MAX:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    with path.open("wb") as file:
        file.write(manifest)
        file.flush()
        os.fsync(file.fileno())
