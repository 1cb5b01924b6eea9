# SPDX-License-Identifier: Apache-2.0
"""The folder of one machine: made by its agent, or an empty one, and removed at its end."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from trainmover import ownership
from trainmover.agent.config import AgentConfig
from trainmover.errors import UserError


def make_folder(config: AgentConfig) -> Path:
    """The folder that was given, or a new one, private and marked. Raises UserError if something of
    the user's lies in it, which would go with it.

    One that an agent which was killed has left is taken again.
    """
    if config.directory is None:
        path = Path(tempfile.mkdtemp(prefix=f"trainmover-{os.getpid()}-"))
    else:
        path = config.directory.resolve()
    try:
        _take(path)
    except OSError as error:
        raise UserError(
            f"The folder {path} of this machine cannot be used: {error.strerror}.",
            means="This machine did not join; the job did not notice.",
            do="Give --dir another place, or leave it away.",
        ) from error
    return path


def _take(path: Path) -> None:
    ownership.check_place(path)
    with suppress(FileExistsError):
        path.mkdir(parents=True, mode=0o700)
    ownership.check_private(path)
    if any(path.iterdir()) and not ownership.is_marked(path):
        raise UserError(
            f"The folder {path} has something in it that is not trainmover's.",
            means="It would be removed with the folder when the agent ends; nothing was started.",
            do="Give --dir a new folder, or an empty one.",
        )
    ownership.mark(path)
