# SPDX-License-Identifier: Apache-2.0
"""libnccl as it comes with torch, bound by ctypes: loaded when a group first asks for it.

It is never one of ours: the library that torch has loaded, or else the one that the loader finds.
`TRAINMOVER_NCCL` names another file; the tests name their stand-in (`native/fake_nccl`).
"""

import ctypes
import functools
import os
from collections.abc import Callable
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_size_t, c_uint, c_void_p
from pathlib import Path
from typing import Any

import torch

from trainmover.comm.failures import ConnectionEnded, LibraryFailed
from trainmover.comm.nccl.seats import in_words
from trainmover.errors import UserError

OLDEST = 21800
"""2.18: the first with all that is asked of it here."""

_REVOKES = 22807
_FILE = "TRAINMOVER_NCCL"
_USUAL = "libnccl.so.2"
_UNDEFINED = -(2**31)
_BUFFER = c_void_p

SUCCESS, CUDA_ERROR, SYSTEM_ERROR, INTERNAL_ERROR, REMOTE_ERROR, IN_PROGRESS = 0, 1, 2, 3, 6, 7
SUM, PRODUCT, MAX, MIN, AVG = range(5)
UINT8 = 1


class UniqueId(ctypes.Structure):
    """Identifier by which the seats of one communicator find each other."""

    _fields_ = [("internal", c_char * 128)]

    def to_hex(self) -> str:
        return bytes(self).hex()

    @classmethod
    def from_hex(cls, text: str) -> "UniqueId":
        """Raises ValueError for what is none."""
        raw = bytes.fromhex(text)
        if len(raw) != ctypes.sizeof(cls):
            raise ValueError(f"an id of {len(raw)} bytes")
        return cls.from_buffer_copy(raw)


class _Config(ctypes.Structure):
    """The beginning of ncclConfig_t, as 2.18 has it: newer versions take what follows as unset."""

    _fields_ = [
        ("size", c_size_t),
        ("magic", c_uint),
        ("version", c_uint),
        ("blocking", c_int),
        ("cga_cluster_size", c_int),
        ("min_ctas", c_int),
        ("max_ctas", c_int),
        ("net_name", c_char_p),
        ("split_share", c_int),
    ]

    def __init__(self) -> None:
        unset = [_UNDEFINED] * 3
        size = ctypes.sizeof(type(self))
        super().__init__(size, 0xCAFEBEEF, OLDEST, 1, *unset, None, _UNDEFINED)


class NcclError(LibraryFailed):
    """A call of the library failed: it was misused, or it has a fault of its own."""

    code = 0


class NcclPeerLost(NcclError, ConnectionEnded):
    """A peer is gone, or the network; scripts know it in gloo's words."""


def error_of(call: str, code: int, text: str, last: str) -> RuntimeError:
    """Return what a failed call raises.

    text  what the code means
    last  what the library said last, which names the cause; "" for nothing
    """
    said = f"NCCL: {call}: {text} (code {code})" + (last and f": {last}")
    if code == CUDA_ERROR:
        full = "out of memory" in last.lower()
        return torch.OutOfMemoryError(said) if full else torch.AcceleratorError(said)
    lost = code in (SYSTEM_ERROR, REMOTE_ERROR)
    error = NcclPeerLost(f"{said}: connection closed") if lost else NcclError(said)
    error.code = code
    return error


class Library:
    """The functions of one libnccl; each checks what it returns. Raises UserError as it is made."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self.dll = ctypes.CDLL(path)
            self.version = self._asked_version()
        except (OSError, AttributeError) as error:
            raise UserError(
                f"libnccl cannot be loaded: {error}.",
                means="Groups over nccl could not talk.",
                do="Install a torch that has CUDA, which brings it, or run with --gpu-comm staged.",
            ) from error
        if self.version < OLDEST:
            raise UserError(
                f"libnccl {self.text} is too old: trainmover needs {in_words(OLDEST)} or newer "
                f"({path}).",
                means="Groups over nccl could not be taken up again after a loss.",
                do="Install a newer torch, which brings its own, or run with --gpu-comm staged.",
            )
        self.revokes = self.version >= _REVOKES and hasattr(self.dll, "ncclCommRevoke")
        pair, at = [_BUFFER, _BUFFER, c_size_t, c_int], [c_void_p, c_void_p]
        self.all_reduce = self._bound("ncclAllReduce", *pair, c_int, *at)
        self.broadcast = self._bound("ncclBroadcast", *pair, c_int, *at)
        self.reduce = self._bound("ncclReduce", *pair, c_int, c_int, *at)
        self.all_gather = self._bound("ncclAllGather", *pair, *at)
        self.reduce_scatter = self._bound("ncclReduceScatter", *pair, c_int, *at)
        self.send = self._bound("ncclSend", _BUFFER, c_size_t, c_int, c_int, *at)
        self.recv = self._bound("ncclRecv", _BUFFER, c_size_t, c_int, c_int, *at)
        self.group_start = self._bound("ncclGroupStart")
        self.group_end = self._bound("ncclGroupEnd")
        self.comm_abort = self._bound("ncclCommAbort", c_void_p)
        self.comm_revoke = self._bound("ncclCommRevoke", c_void_p, c_int) if self.revokes else None
        self._unique_id = self._bound("ncclGetUniqueId", POINTER(UniqueId))
        self._init = self._bound(
            "ncclCommInitRankConfig", POINTER(c_void_p), c_int, UniqueId, c_int, POINTER(_Config)
        )
        self._async_error = self._bound("ncclCommGetAsyncError", c_void_p, POINTER(c_int))
        self._premul = self._bound(
            "ncclRedOpCreatePreMulSum", POINTER(c_int), c_void_p, c_int, c_int, c_void_p
        )
        self._premul_over = self._bound("ncclRedOpDestroy", c_int, c_void_p)

    def _asked_version(self) -> int:
        number = c_int()
        self.dll.ncclGetVersion(byref(number))
        return number.value

    @property
    def text(self) -> str:
        """Return the library's version, for people."""
        return in_words(self.version)

    def _bound(self, name: str, *types: Any) -> Callable[..., None]:
        function = getattr(self.dll, name)
        function.argtypes, function.restype = list(types), c_int

        def call(*arguments: Any) -> None:
            code = function(*arguments)
            if code not in (SUCCESS, IN_PROGRESS):
                raise self._failed(name, code)

        return call

    def _failed(self, name: str, code: int) -> RuntimeError:
        said = self.dll.ncclGetErrorString, self.dll.ncclGetLastError
        for function in said:
            function.restype = c_char_p
        text, last = said[0](c_int(code)), said[1](c_void_p())
        return error_of(name, code, _text(text) or "?", _text(last))

    def unique_id(self) -> UniqueId:
        made = UniqueId()
        self._unique_id(byref(made))
        return made

    def init(self, size: int, seat: int, unique_id: UniqueId) -> int:
        """Return a communicator. Blocks until all seats came: in the background only.

        One that fails here while its process lives keeps its sockets, and the other seats wait for
        it: it is aborted.
        """
        comm = c_void_p()
        try:
            self._init(byref(comm), size, unique_id, seat, byref(_Config()))
        except RuntimeError:
            if comm.value is not None:
                self.comm_abort(comm.value)
            raise
        assert comm.value is not None
        return comm.value

    def async_error(self, comm: int) -> RuntimeError | None:
        """Return what has gone wrong in the background; None for nothing."""
        code = c_int()
        self._async_error(comm, byref(code))
        if code.value in (SUCCESS, IN_PROGRESS):
            return None
        return self._failed("a call under way", code.value)

    def premul_sum(self, factor: Any, code: int, comm: int) -> int:
        """Return an operator that multiplies by a factor, which lies in the host's memory, before
        it adds.

        factor  a ctypes number, or an array of one, of the type that `code` names
        """
        made = c_int()
        self._premul(byref(made), byref(factor), code, 1, comm)
        return made.value

    def premul_over(self, operator: int, comm: int) -> None:
        """Calls that were given the operator keep what they need of it."""
        self._premul_over(operator, comm)


def _text(said: bytes | None) -> str:
    return (said or b"").decode(errors="replace").strip()


@functools.cache
def library() -> Library:
    """Return the library of this process. Raises UserError where there is none, or too old a
    one."""
    return Library(os.environ.get(_FILE) or _loaded() or _USUAL)


def _loaded() -> str:
    """Return the file that torch has loaded; "" if it has none."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = [line.split(maxsplit=5)[5] for line in lines if "/libnccl.so" in line]
    return paths[0] if paths else ""
