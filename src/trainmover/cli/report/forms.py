# SPDX-License-Identifier: Apache-2.0
"""Form of a report, by its name. Light: `run` asks it before anything is loaded."""

from pathlib import Path

from trainmover.errors import UserError


def check_name(path: Path) -> Path:
    """Return the name. Raises UserError if it does not say what to write."""
    if path.suffix in (".html", ".json", ".txt"):
        return path
    raise UserError(
        f"{path} does not say how a report is to be written.",
        means="It was not written.",
        do="Let its name end in .html, .json or .txt",
    )
