# SPDX-License-Identifier: Apache-2.0
"""How a fork server forks, so that the new process is the child of the fork server's own parent.

    asker (a subreaper) ── fork server ── middle ── child        middle ends at once, so that
    asker ──────────────── fork server                           the kernel gives the child
      └── child                                              to the nearest subreaper above

The child waits until that has happened: it may tie its life to its parent's then, and whoever asked
waits for it, signals it and reaps it as if it had been forked there.
"""

import os

import msgspec

from trainmover.fork_server.wire import Born

_BORN_BYTES_MAX = 4096


def fork() -> tuple[bool, int]:
    """(whether we are the child, the end of a pipe: the child `tell`s by it, we `hear`).

    Raises OSError, in the fork server only.
    """
    orphaned, keep = os.pipe()
    told, tell_by = os.pipe()
    try:
        middle = os.fork()
    except OSError:
        _close(orphaned, keep, told, tell_by)
        raise
    if middle == 0:
        _fork_and_end()
        _close(keep, told)
        os.read(orphaned, 1)  # Ends when the fork server knows that the middle has ended.
        _close(orphaned)
        return True, tell_by
    os.waitpid(middle, 0)
    _close(orphaned, keep, tell_by)
    return False, told


def _fork_and_end() -> None:
    """Returns in the child of the middle only."""
    try:
        child = os.fork()
    except OSError:
        os._exit(1)
    if child:
        os._exit(0)


def tell(pipe: int, born: Born) -> None:
    """Of the child, once: it is there, or why not. Closes the pipe."""
    os.write(pipe, msgspec.msgpack.encode(born)[:_BORN_BYTES_MAX])
    _close(pipe)


def hear(pipe: int) -> bytes:
    """What the child told, encoded; blocks until it has. Closes the pipe."""
    answer = os.read(pipe, _BORN_BYTES_MAX)
    _close(pipe)
    return answer or msgspec.msgpack.encode(Born(error="the new process has ended"))


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
