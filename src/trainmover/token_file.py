# SPDX-License-Identifier: Apache-2.0
"""The job's token: what every connection must prove to know. It lies in a file, and nowhere else.

Never on a command line, in a log, in the journal or in an answer: whoever knows it is of the job.
"""

import os
import stat
from pathlib import Path

from trainmover import ownership
from trainmover.errors import UserError
from trainmover.protocol.hello import TOKEN_BYTES_MIN

_TOKEN_BYTES_MAX = 4096


def read_token(path: Path) -> bytes:
    """Read the token of a job. Raises UserError for a file that cannot be read, that others may
    read or have made, or a guessable token.

    What is no file (`<(pass show job)`) has nobody else to read it.
    """
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            token = file.read(_TOKEN_BYTES_MAX).strip()
    except OSError as error:
        raise _refused(f"The token file {path} cannot be read: {error.strerror}.") from error
    if stat.S_ISREG(found.st_mode):
        _check_private(path, found)
    if not token.isascii() or not token.decode().isprintable():
        raise _refused(f"The token in {path} is not one line of plain characters.")
    if len(token) < TOKEN_BYTES_MIN:
        raise _refused(
            f"The token in {path} is shorter than {TOKEN_BYTES_MIN} bytes: it could be guessed."
        )
    return token


def _check_private(path: Path, found: os.stat_result) -> None:
    if not ownership.is_trusted(found):
        raise _refused(f"The token file {path} belongs to {ownership.owner(found)}, who knows it.")
    if why := ownership.why_open(found):
        raise _refused(f"The token file {path} {why}.", do=f"chmod 600 {path}")


def _refused(
    happened: str, do: str = "Give the token file of the job with --token-file."
) -> UserError:
    return UserError(happened, means="Nothing was started, and nothing was connected to.", do=do)
