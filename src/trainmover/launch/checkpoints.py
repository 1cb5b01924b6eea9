# SPDX-License-Identifier: Apache-2.0
"""What `--checkpoint` and `--resume` ask for, checked before anything is started."""

import platform
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import xxhash

from trainmover.errors import UserError
from trainmover.protocol.checkpoint import differences
from trainmover.protocol.messages import Checkpoint, JobSpec
from trainmover.server.checkpoints.check import manifests, newest_usable
from trainmover.server.checkpoints.folder import CheckpointFolder, is_empty


@dataclass(frozen=True, kw_only=True)
class CheckpointOptions:
    """Of `trainmover run`.

    folder  to write to; None: no checkpoints, or, of a resumed job, to where it is resumed from
    every   committed steps from one to the next
    keep    how many
    resume  folder whose newest usable checkpoint the job goes on from
    again   it goes on from `folder` if a checkpoint is there, else it begins: the same call may be
            made any number of times
    """

    folder: Path | None = None
    every: int = 1000
    keep: int = 3
    resume: Path | None = None
    again: bool = False

    @property
    def source(self) -> Path | None:
        """What to go on from; None: begin."""
        if self.again and self.folder is not None and not is_empty(self.folder):
            return self.folder
        return self.resume


@dataclass(frozen=True)
class Prepared:
    """What came of the options. notes: what the user should know."""

    spec: JobSpec
    folder: CheckpointFolder | None = None
    notes: list[str] = field(default_factory=list)


def prepare(options: CheckpointOptions, spec: JobSpec, held: ExitStack) -> Prepared:
    """Look at the folders, and hold the one that is written to until `held` ends. UserError."""
    spec = _with_identity(spec)
    path = options.folder or options.resume
    if path is None:
        return Prepared(spec)
    path = path.resolve()
    source = None if options.source is None else options.source.resolve()
    notes: list[str] = []
    if source is not None:
        found, notes = _find(source, spec)
        spec = msgspec.structs.replace(spec, resume=found, seed=found.seed or spec.seed)
    if source != path:
        _check_fresh(path)
    folder = CheckpointFolder.take(path)
    held.callback(folder.close)
    spec = msgspec.structs.replace(
        spec,
        checkpoint=str(path),
        checkpoint_every=options.every,
        checkpoints_kept=options.keep,
    )
    return Prepared(spec, folder, notes)


def _with_identity(spec: JobSpec) -> JobSpec:
    """The spec, with what tells its job from another."""
    return msgspec.structs.replace(
        spec, script=_hash_of_script(spec), python=platform.python_version()
    )


def _check_fresh(folder: Path) -> None:
    """Raise UserError if a job that begins would write among the checkpoints of another."""
    if is_empty(folder):
        return
    newest = next((found for _, found in manifests(folder) if isinstance(found, Checkpoint)), None)
    of = f"of run {newest.run_id}, the newest of step {newest.step}" if newest else "already"
    raise UserError(
        f"{folder} holds checkpoints {of}.",
        means="Nothing was started: this job begins at step 1 and would mix its own with them.",
        do=f"Go on from them with --resume {folder} (--resume auto: if there are some), or give "
        "--checkpoint an empty folder.",
    )


def _find(folder: Path, spec: JobSpec) -> tuple[Checkpoint, list[str]]:
    """The newest usable checkpoint of this very job, and what the user should know of it.

    Raises UserError if there is none, or it is another job's.
    """
    for _, manifest in manifests(folder):
        if isinstance(manifest, Checkpoint):
            _check_job(folder, manifest, spec)
    found, notes = newest_usable([folder])
    if found is not None:
        return found, notes
    raise UserError(
        "\n".join([f"There is no checkpoint in {folder} that can be used.", *notes]),
        means="Nothing was started.",
        do="Give --resume the folder that --checkpoint named, or leave it away to begin at step 1.",
    )


def _check_job(folder: Path, found: Checkpoint, spec: JobSpec) -> None:
    different = "; ".join(differences(found, spec))
    if different:
        raise UserError(
            f"The checkpoints in {folder} are of another job: it had {different}.",
            means="Nothing was started: the numbers would not be those of that job.",
            do="Give what it had, or begin with its weights: write them for torch to load with "
            f"trainmover checkpoints {folder} --export OUT",
        )


def _hash_of_script(spec: JobSpec) -> str:
    """As the workers' own check has it; of a module they alone can tell."""
    try:
        path = Path(spec.cwd) / spec.argv[0]
        return "" if spec.module else xxhash.xxh3_128_hexdigest(path.read_bytes())
    except OSError:
        return ""
