# SPDX-License-Identifier: Apache-2.0
"""What a power failure must not take."""

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Have the names in it safe on disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
