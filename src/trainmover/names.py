# SPDX-License-Identifier: Apache-2.0
"""Names of addresses: torch asks for one as a process first connects to a store, only to show it in
messages. Where the name server says nothing that takes five or ten seconds, and a recovery may have
to wait for it.

Of no effect where the C library is not glibc.
"""

import ctypes

_SECONDS, _TRIES = 0, 1
"""Of C's `struct __res_state`, in ints: retrans, retry."""


def ask_nobody() -> None:
    """This process looks names up in files only. For one that needs none."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "__nss_configure_lookup"):
        libc["__nss_configure_lookup"](b"hosts", b"files")


def ask_once() -> None:
    """The calling thread, and no other, asks a name server once and waits for a second."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "__res_init") or not hasattr(libc, "__res_state"):
        return
    state = libc["__res_state"]
    state.restype = ctypes.POINTER(ctypes.c_int)
    if libc["__res_init"]() == 0:
        state()[_SECONDS] = state()[_TRIES] = 1
