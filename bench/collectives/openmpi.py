# SPDX-License-Identifier: Apache-2.0
"""Open MPI's all_reduce: mpi_allreduce.c, compiled for this run and started anew in every round."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

from bench.collectives.timing import Spent

SOURCE = Path(__file__).with_name("mpi_allreduce.c")
TRANSPORTS = {
    "shm": ["--mca", "btl", "self,vader"],
    "tcp": ["--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo"],
}
RUN_S = 120


class OpenMpi:
    """The compiled program. `folder` is ours and is removed by who gave it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._program = folder / "mpi_allreduce"
        command = ["mpicc", "-O3", "-o", str(self._program), str(SOURCE)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)

    def all_reduce(
        self, transport: str, ranks: int, cells: dict[int, tuple[int, int]]
    ) -> dict[int, Spent]:
        """Time of each size in bytes, given how many samples of how many calls.

        Raises CalledProcessError if it fails, TimeoutExpired if it hangs.
        """
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", *TRANSPORTS[transport]]
        command += ["-n", str(ranks), str(self._program)]
        for size, count in cells.items():
            command += [str(size), *map(str, count)]
        lines = _run(command, {"TMPDIR": str(self._folder)}).split("\n")
        rows = [line.split() for line in lines if line]
        return {int(size): Spent(float(median), float(mean)) for size, median, mean in rows}


def version() -> str | None:
    """Of the installed Open MPI; None without one, or without its compiler."""
    if not (shutil.which("mpirun") and shutil.which("mpicc")):
        return None
    done = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False)
    return done.stdout.partition("\n")[0].strip() or None


def _run(command: list[str], more: dict[str, str]) -> str:
    """Standard output. mpirun and its ranks are one session, which ends here in every case."""
    process = subprocess.Popen(
        command,
        env=os.environ | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, problem = process.communicate(timeout=RUN_S)
    except BaseException:
        process.send_signal(signal.SIGTERM)  # mpirun ends its ranks then
        try:
            process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, out, problem)
    return out
