# SPDX-License-Identifier: Apache-2.0
"""How a call between ranks can end other than with its result."""

import re

import torch
import torch.distributed as dist

from trainmover.errors import StateMismatch


class Drained(Exception):
    """The epoch ended while this call waited, so nobody will ever answer it.

    Only calls that the runtime itself makes raise it. Collectives of the script never do: they
    complete with whatever their buffers hold, and the step is judged at its gate.
    """


class DrainedObject(Drained):
    """What was to be unpickled never came: the collective that brings it was given up.

    The script sees it, where `all_gather_object` and its kin would have read bytes that nobody has
    sent. It ends no job: a step that it ends is made again.
    """

    def __init__(self) -> None:
        super().__init__("the object that another rank was to send never came: a rank was lost")


_OF_THE_DEVICE = re.compile(
    "uncorrectable ECC|NVLink error|hardware stack error|unspecified launch failure|busy or "
    "unavailable|no CUDA-capable device|context is destroyed|: unknown error",
    re.IGNORECASE,
)
"""CUDA's words for what no script does. It says of an illegal access, or of an assertion, that the
script is to blame, and mostly it is: that would happen on another machine too."""


def is_of_device(error: BaseException) -> bool:
    """Whether an exception says that the device under the script has failed."""
    return isinstance(error, torch.AcceleratorError) and bool(_OF_THE_DEVICE.search(str(error)))


class DeviceLost(Exception):
    """The device of this process answers with errors, or not at all: its rank is lost, not the job.

    Nothing that lies on it can be believed or given to anybody.
    """


class ReplayMismatch(StateMismatch):
    """A call in the sandbox that the record does not answer."""


class ConnectionEnded(RuntimeError):
    """A peer is gone or silent for too long, in words that scripts know from gloo."""


class LibraryFailed(RuntimeError):
    """A library refused a call, or failed in it, and no peer is to blame: the next try would fail
    too."""


class CallsDiffer(RuntimeError):
    """The ranks of a group made different calls, both are named: no change of members mends it."""


_LOST = re.compile(
    r"connection (was )?(closed|reset|refused|aborted)|timed out|timeout|broken pipe|"
    r"transport/|read error|write error|socket|not connected|no route to host|unreachable",
    re.IGNORECASE,
)
_MISUSE = re.compile(r"enforce fail|invalid|mismatch|unsupported|not supported", re.IGNORECASE)


_OTHER_KINDS = (CallsDiffer, LibraryFailed, torch.AcceleratorError, torch.OutOfMemoryError)
"""Whatever their text says: a kernel that "timed out" is no peer."""


def means_lost_peer(error: BaseException) -> bool:
    """Tell a broken connection from a call that could never have worked.

    gloo reports both as RuntimeError, so the text decides. When in doubt the answer is no: an
    error that the script sees is better than a step that is retried for ever.
    """
    if isinstance(error, (dist.DistNetworkError, ConnectionEnded)):
        return True
    if isinstance(error, _OTHER_KINDS):
        return False
    if not isinstance(error, RuntimeError) or isinstance(error, NotImplementedError):
        return False
    text = str(error)
    return bool(_LOST.search(text)) and not _MISUSE.search(text)


def means_lost_device(error: BaseException) -> bool:
    """Whether torch says that the device itself has failed: not that its memory is full, and not
    that a kernel has refused its arguments, which another device would do too."""
    failed = isinstance(error, torch.AcceleratorError)
    return failed and "device-side assert" not in str(error)
