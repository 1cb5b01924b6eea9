# SPDX-License-Identifier: Apache-2.0
"""What is said to a fork server and what it answers: one packet each, descriptors beside it."""

import msgspec

READY = b"ready"
PACKET_BYTES_MAX = 192 * 1024
"""A request is sent whole or not at all; the kernel takes a little more than this."""


class Birth(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is to be. It gets a session of its own, and exactly this environment.

    The first three descriptors sent along become 0, 1 and 2; the others keep whatever number they
    get, which the environment has under the names in `variables`.

    cwd       "": that of the fork server
    module    its `main` is called, with sys.argv[1:] = arguments
    title     what the kernel shows as its command line, as far as there is room
    asks      it gets a fork server of its own, its child, so that what is forked there are its
              descendants and not ours: `--fork-server FD` is put behind its arguments
    """

    environment: dict[str, str]
    cwd: str = ""
    module: str
    title: str
    arguments: list[str] = []
    asks: bool = False
    variables: list[str] = []


class Born(msgspec.Struct, frozen=True):
    """pids: of the new process and of its own fork server, if any; error: why there is none."""

    pids: list[int] = []
    error: str = ""
