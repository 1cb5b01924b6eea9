# SPDX-License-Identifier: Apache-2.0
"""trainmover: replace a machine of a running PyTorch job while the others stay alive.

    import trainmover as tm

    job = tm.attach()
    job.track(model=model, optimizer=optimizer)

    @job.step
    def train_step(batch): ...

    for batch in job.batches(loader, passes=3):
        train_step(batch)

Importing this package is cheap: torch is imported by `attach()`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainmover.worker.api import Job, attach

from trainmover.version import VERSION as __version__

__all__ = ["Job", "__version__", "attach"]


def __getattr__(name: str) -> Any:
    if name in ("attach", "Job"):
        from trainmover.worker import api

        return getattr(api, name)
    raise AttributeError(f"module 'trainmover' has no attribute {name!r}")
