"""The job's token: what every connection must prove to know. It lies in a file, and nowhere else.

Never on a command line, in a log, in the journal or in an answer: whoever knows it is of the job.
"""

import os
import stat
from pathlib import Path

from trainmover.errors import UserError
from trainmover.protocol.hello import TOKEN_BYTES_MIN

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_TOKEN_BYTES_MAX = 4096


def read_token(path: Path) -> bytes:
    """Raises UserError for a file that cannot be read, that others may read, or a guessable token.

    What is no file (`<(pass show job)`) has nobody else to read it.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            token = file.read(_TOKEN_BYTES_MAX).strip()
    except OSError as error:
        raise _refused(f"The token file {path} cannot be read: {error.strerror}.") from error
    if stat.S_ISREG(mode) and mode & _OTHERS:
        raise _refused(
            f"The token file {path} is open to other users (mode {stat.S_IMODE(mode):04o}).",
            do=f"chmod 600 {path}",
        )
    if not token.isascii() or not token.decode().isprintable():
        raise _refused(f"The token in {path} is not one line of plain characters.")
    if len(token) < TOKEN_BYTES_MIN:
        raise _refused(
            f"The token in {path} is shorter than {TOKEN_BYTES_MIN} bytes: it could be guessed."
        )
    return token


def _refused(
    happened: str, do: str = "Give the token file of the job with --token-file."
) -> UserError:
    return UserError(happened, means="Nothing was started, and nothing was connected to.", do=do)
