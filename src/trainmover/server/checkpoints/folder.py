"""The folder of a run's checkpoints: who may write there, and how one is published. See
`protocol.checkpoint` for what lies where.

A checkpoint is there from one moment to the next: its folder is complete and safe on disk, manifest
and all, before it gets its name. The oldest go only after that. All this waits for disks, so the
server calls it in a thread.
"""

import fcntl
import os
import shutil
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
    published_name,
    writing_name,
)
from trainmover.protocol.messages import Checkpoint
from trainmover.server.checkpoints.check import (
    Damaged,
    Manifest,
    is_whole,
    manifests,
    read_manifest,
    stamps,
)

_REPLACED = ".replaced-"


class CheckpointFolder:
    """Held by this run until `close`. Use `take`."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock
        self._whole: dict[str, list[tuple[int, int]]] = {}

    @classmethod
    def take(cls, path: Path, *, going_on: bool = False) -> "CheckpointFolder":
        """Make it ready to be written to. Raises UserError if it cannot be, or is another run's.

        going_on  by the successor of a controller: ranks may be writing there
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
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

    def publish(self, checkpoint: Checkpoint, keep: int) -> None:
        """Give what all ranks have written its name, and remove the oldest. Raises OSError.

        Done already, by a controller that died before it could say so, it is not done again.
        """
        source = self.path / writing_name(checkpoint.step, checkpoint.epoch)
        target = self.path / published_name(checkpoint.step)
        if source.exists() or not _lies_there(self.path, checkpoint):
            self._name(source, target, checkpoint)
        self._remove_oldest(keep)
        self._sweep()

    def _name(self, source: Path, target: Path, checkpoint: Checkpoint) -> None:
        _write_manifest(source / MANIFEST, checkpoint)
        sync_folder(source)
        if target.exists():  # Damaged, so the run went on from an older one.
            target.rename(self.path / f"{_REPLACED}{target.name}")
        source.rename(target)
        sync_folder(self.path)

    def give_up(self, step: Step, epoch: Epoch) -> None:
        """Make room: what was written so far is of no use."""
        shutil.rmtree(self.path / writing_name(step, epoch), ignore_errors=True)

    def close(self) -> None:
        """Let another run have it."""
        os.close(self._lock)

    def _remove_oldest(self, keep: int) -> None:
        """Those that are damaged do not count."""
        kept = 0
        for name, manifest in manifests(self.path):
            if kept >= keep:
                shutil.rmtree(self.path / name, ignore_errors=True)
            else:
                kept += isinstance(manifest, Checkpoint) and self._counts(name, manifest)

    def _counts(self, name: str, manifest: Checkpoint) -> bool:
        """Each is read once, and again if its files have changed."""
        now = stamps(manifest)
        if self._whole.get(name) != now:
            self._whole.pop(name, None)
            if is_whole(manifest):
                self._whole[name] = now
        return name in self._whole

    def _sweep(self) -> None:
        """Remove what nobody refers to: folders that were never published, old first steps."""
        for path in self.path.glob(f"{WRITING}*"):
            shutil.rmtree(path, ignore_errors=True)
        for path in self.path.glob(f"{_REPLACED}*"):
            shutil.rmtree(path, ignore_errors=True)
        known = {
            written.digest
            for _, manifest in manifests(self.path)
            if isinstance(manifest, Checkpoint)
            for written in (*manifest.records.values(), *manifest.compiled.values())
        }
        for path in (self.path / FIRST_STEPS).glob("*"):
            if path.name not in known and not path.name.startswith("."):
                path.unlink(missing_ok=True)


def _lies_there(folder: Path, checkpoint: Checkpoint) -> bool:
    try:
        there = read_manifest(folder, published_name(checkpoint.step))
    except Damaged:
        return False
    return msgspec.structs.replace(there, folder=checkpoint.folder) == checkpoint


def is_empty(folder: Path) -> bool:
    """Whether no checkpoint lies there."""
    return not any(folder.glob(f"{PUBLISHED}*"))


def _write_manifest(path: Path, checkpoint: Checkpoint) -> None:
    data = msgspec.json.encode(checkpoint)
    manifest = Manifest(xxhash.xxh3_128_hexdigest(data), msgspec.Raw(data))
    with path.open("wb") as file:
        file.write(msgspec.json.encode(manifest))
        file.flush()
        os.fsync(file.fileno())
