# SPDX-License-Identifier: Apache-2.0
"""How a folder of checkpoints looks, and whose it is. Pure.

first-steps/            records and what was compiled, by the hash of what they hold: all
                        checkpoints of a run share them
step-000000001000/      one checkpoint; there at all only if it is complete
  manifest.json         a `Checkpoint`, and the hash of that
  bulk-0f3a...          the tensors of a snapshot, by their hash: once for all that hold the same
  rank-00000.state      the rest of a rank's snapshot, see `state.snapshot`
.writing-1000-3/        of step 1000 in epoch 3, until it is complete
.lock                   held by the run that writes here
"""

import re
from collections.abc import Iterator

from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Checkpoint, JobSpec
from trainmover.version import VERSION

FORMAT = 1
MANIFEST = "manifest.json"
FIRST_STEPS = "first-steps"
LOCK = ".lock"
PUBLISHED = "step-"
WRITING = ".writing-"
_PART = re.compile(r"manifest\.json|bulk-[0-9a-f]{32}|rank-\d{5,}\.state")


def published_name(step: Step) -> str:
    """Folder of a complete checkpoint.

    >>> published_name(Step(1000))
    'step-000000001000'
    """
    return f"{PUBLISHED}{step:012d}"


def writing_name(step: Step, epoch: Epoch) -> str:
    """Folder that ranks write to: whoever is late writes to one that nobody publishes any more."""
    return f"{WRITING}{step}-{epoch}"


def state_name(rank: Rank) -> str:
    """File of what is a rank's own in its snapshot, in either folder."""
    return f"rank-{rank:05d}.state"


def bulk_name(digest: str) -> str:
    """File of the tensors in a snapshot."""
    return f"bulk-{digest}"


def is_part_name(name: str) -> bool:
    """Whether a file in the folder of a checkpoint has a name that trainmover gives.

    >>> [is_part_name(name) for name in (state_name(Rank(3)), MANIFEST, "notes.txt")]
    [True, True, False]
    """
    return _PART.fullmatch(name) is not None


def differences(found: Checkpoint, spec: JobSpec) -> Iterator[str]:
    """How the job that has written `found` differs from the one that `spec` asks for.

    The version of torch is known only to the workers.
    """
    if found.script != spec.script:
        yield "another text of the script"
    for name, there, here in (
        ("arguments", " ".join(found.argv[1:]), " ".join(spec.argv[1:])),
        ("module", found.argv[0] * found.module, spec.argv[0] * spec.module),
        ("machines", found.machines, spec.machines),
        ("ranks a machine", found.nproc, spec.nproc),
        ("trainmover", found.trainmover, VERSION),
        ("Python", found.python, spec.python),
    ):
        if there != here:
            yield f"{name} {there or '(none)'} and not {here or '(none)'}"
