"""Names of addresses: torch asks for them as it connects to a store, only to show them in messages.

Where the name server does not answer that takes five or ten seconds, and a recovery may have to
wait for it. The address of a store is a number, so who connects to one needs no name server.
"""

import ctypes

_SERVERS = 4
"""Of C's `struct __res_state`, in ints: retrans, retry, options (two), nscount."""


def ask_no_server() -> None:
    """The calling thread, and no other, looks names up in files only from now on; numbers for the
    rest. Of no effect where the C library is not glibc."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "__res_init") or not hasattr(libc, "__res_state"):
        return
    state = libc["__res_state"]
    state.restype = ctypes.POINTER(ctypes.c_int)
    if libc["__res_init"]() == 0:
        state()[_SERVERS] = 0
