"""Whether the host has been started again since a journal was last written.

A process that dies takes nothing of what it has written with it. A host that loses power does: the
newest writes to the log, often all of each, so that nothing in the file shows it.
"""

from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Another one whenever the host starts; "" where that is not known."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""
