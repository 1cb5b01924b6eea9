# SPDX-License-Identifier: Apache-2.0
"""examples/gpt.py, with the moment of every completed step written to BENCH_DIR."""

import os
import time
from pathlib import Path
from typing import Any

import trainmover as tm
from examples import gpt
from trainmover.lifeline import die_with
from trainmover.worker.api import JobBatches


def main() -> None:
    """A mark is made where the script comes back for its next batch: the whole step is in it."""
    by_torchrun = "TRAINMOVER_RUN_ID" not in os.environ
    if by_torchrun:
        die_with(os.getppid())  # torchrun's agent leaves its workers behind if it is killed.
    fetch = JobBatches.__next__
    path = Path(os.environ["BENCH_DIR"]) / f"steps.{os.getpid()}"

    with path.open("a", buffering=1) as marks:

        def marked_fetch(batches: JobBatches) -> Any:
            job = tm.attach()
            marks.write(f"{job.rank} {job.steps} {time.time_ns() // 1000}\n")
            return fetch(batches)

        JobBatches.__next__ = marked_fetch  # type: ignore[method-assign,assignment]
        gpt.main()
    if by_torchrun:
        os._exit(0)  # gloo's threads abort one interpreter in ten that ends beside them.


if __name__ == "__main__":
    main()
