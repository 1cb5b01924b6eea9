"""Which errors mean that a peer is gone: the step is then run again with another one."""

import pytest
import torch

from trainmover.comm.failures import (
    CallsDiffer,
    ConnectionEnded,
    means_lost_device,
    means_lost_peer,
)
from trainmover.comm.nccl.library import error_of


@pytest.mark.parametrize(
    ("error", "peer", "device"),
    [
        (RuntimeError("Connection reset by peer"), True, False),
        (ConnectionEnded("whatever it says"), True, False),
        (CallsDiffer("connection closed"), False, False),
        (torch.AcceleratorError("the launch timed out and was terminated"), False, True),
        (torch.AcceleratorError("device-side assert triggered"), False, False),
        (torch.OutOfMemoryError("timeout, socket"), False, False),
        (error_of("ncclAllReduce", 1, "unhandled cuda error", "Cuda failure 719"), False, True),
        (error_of("ncclAllReduce", 1, "unhandled cuda error", "out of memory"), False, False),
        (error_of("ncclAllReduce", 2, "unhandled system error", ""), True, False),
        (error_of("ncclAllReduce", 3, "internal error", "socket"), False, False),
        (error_of("ncclAllReduce", 5, "invalid usage", "timeout"), False, False),
        (error_of("ncclAllReduce", 6, "remote process exited", ""), True, False),
    ],
)
def test_a_lost_peer_is_told_from_a_mistake(error: Exception, peer: bool, device: bool) -> None:
    assert (means_lost_peer(error), means_lost_device(error)) == (peer, device)


def test_an_error_of_nccl_carries_its_last_words() -> None:
    error = error_of("ncclAllReduce", 5, "invalid usage", "Message truncated: 8 bytes")
    assert str(error) == ("NCCL: ncclAllReduce: invalid usage (code 5): Message truncated: 8 bytes")
