# SPDX-License-Identifier: Apache-2.0
"""Whether anybody is suspected in a job where nothing is wrong."""

from pathlib import Path

from trainmover.controller.change.incidents import lately
from trainmover.launch.run_job import RunOptions, run_job
from trainmover.protocol.messages import LogSpec

MACHINES = 3
SCRIPT = Path(__file__).with_name("uneven_job.py")


def false_alarms(
    seconds: float, evaluation_s: float, machines: int = MACHINES, standbys: int = 1
) -> int:
    """Incidents of a job that is left alone. Raises RuntimeError if it does not end well."""
    arguments = ["--seconds", str(seconds), "--evaluation", str(evaluation_s)]
    options = RunOptions(
        argv=[str(SCRIPT), *arguments], machines=machines, standbys=standbys, log=LogSpec(show=[])
    )
    result = run_job(options)
    if result.code:
        raise RuntimeError(f"the job ended with {result.code}: {result.text}")
    return len(lately(result.job))
