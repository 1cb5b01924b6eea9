# SPDX-License-Identifier: Apache-2.0
"""Exit statuses of commands. docs/reference/exit-codes.md has this table, too."""

DONE, FAILED, WRONG_CALL = 0, 1, 2
HUNG_UP, INTERRUPTED, TERMINATED = 129, 130, 143

MEANINGS = {
    str(DONE): "done; of `run`: the script ended well on every rank",
    str(
        FAILED
    ): "not done: the job has failed or a request was refused; or what was checked is not "
    "as it should be (`check`, `checkpoints`, `data`, `demo`, `doctor`, `simulate`)",
    str(WRONG_CALL): "yours to mend: a flag, a file, or there is no such run; nothing was begun",
    str(HUNG_UP): "stopped by SIGHUP: the terminal was closed",
    str(INTERRUPTED): "stopped by SIGINT: Ctrl-C",
    str(TERMINATED): "stopped by SIGTERM, or with `trainmover stop`",
    "other": "of `run` and `controller`: the script's own, of the first rank that ended with it",
}


def table() -> str:
    """Return the table for a terminal."""
    return "\n".join(f"  {code:<7}{meaning.replace('`', '')}" for code, meaning in MEANINGS.items())
