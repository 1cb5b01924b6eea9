"""State goes over a pair of devices, bit for bit; whoever is left alone there is let go.

Over the stand-in, with faults on demand.
"""

import os
import signal
import time
from typing import Any

import pytest
import torch
from comm_ranks import Ranks
from fake_nccl import set_faults

from trainmover.comm import progress
from trainmover.comm.nccl import ending
from trainmover.comm.nccl import pair as pairs
from trainmover.comm.nccl.device import own_device
from trainmover.comm.nccl.pair import Pair, Pairing
from trainmover.errors import PeerLost

pytestmark = [
    pytest.mark.parametrize("comm", ["nccl"], indirect=True),
    pytest.mark.parametrize("ranks", [2], indirect=True),
]


def tensors(seed: int) -> list[torch.Tensor]:
    chance = torch.Generator().manual_seed(seed)
    sizes = [0, 1, 70_001, 3, 250_000]
    return [torch.randn(size, generator=chance) for size in sizes]


def connected(rank: int, ranks: Ranks) -> Pair:
    pairing, store = Pairing(own_device(None, 0)), ranks.connect()
    if rank == 0:
        store.set("id", pairing.unique_id())
    unique_id = store.get("id").decode()
    deadline = time.monotonic() + 50
    return pairing.connect(unique_id, rank, lambda: time.monotonic() > deadline)


def never() -> bool:
    return False


def sends_and_receives(rank: int, ranks: Ranks) -> Any:
    pairs.BATCH_BYTES = 300_000
    pair = connected(rank, ranks)
    found = []
    for seed in (1, 2):
        if rank == 0:
            counts = list(pair.send(tensors(seed), never))
            same = True
        else:
            into = [torch.zeros_like(tensor) for tensor in tensors(seed)]
            counts = list(pair.receive(into, never))
            same = all(map(torch.equal, into, tensors(seed)))
        found += [counts, same]
    pair.close()
    return [*found, pair.freed.is_set(), pair.lost]


def test_tensors_arrive_as_they_were_as_often_as_wanted(ranks: Ranks) -> None:
    counts = [70_002 * 4 + 250_003 * 4]
    for found in ranks.run(sends_and_receives):
        assert found == [counts, True, counts, True, True, False]


def is_left_alone(rank: int, ranks: Ranks, faults: dict[str, int]) -> Any:
    """Rank 0 dies before it sends anything."""
    set_faults(**faults)
    progress.QUIET_S = 1.0
    pair = connected(rank, ranks)
    if rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    until = time.monotonic() + 0.2
    with pytest.raises(PeerLost, match="from device to device"):
        list(pair.receive(tensors(1), lambda: time.monotonic() > until))
    return [pair.freed.is_set(), pair.lost, ending.endings.leaked]


@pytest.mark.parametrize(("deaf_ms", "lost"), [(0, False), (20_000, True)])
def test_who_is_left_alone_is_let_go_and_knows_whether_its_memory_is(
    ranks: Ranks, deaf_ms: int, lost: bool
) -> None:
    for rank in range(2):
        ranks.start(str(rank), is_left_alone, rank, ranks, {"deaf_ms": deaf_ms})
    assert ranks.result("1") == [True, lost, int(lost)]


def fails_on_the_way(rank: int, ranks: Ranks) -> Any:
    set_faults(error_after=0)
    pair = connected(rank, ranks)
    move = pair.send if rank == 0 else pair.receive
    with pytest.raises(PeerLost, match="from device to device"):
        list(move(tensors(1), never))
    with pytest.raises(PeerLost, match="it is closed"):
        list(move(tensors(1), never))
    return pair.lost


def test_an_error_of_the_library_is_the_end_of_the_pair_and_of_nothing_else(ranks: Ranks) -> None:
    assert ranks.run(fails_on_the_way) == [False, False]


def nobody_comes(rank: int, ranks: Ranks) -> Any:
    pairing = Pairing(own_device(None, 0))
    with pytest.raises(PeerLost, match="is damaged"):
        pairing.connect("no id", 0, never)
    with pytest.raises(PeerLost, match="libnccl"):
        pairing.check("21800|another|")
    with pytest.raises(PeerLost, match="same device"):
        pairing.check(pairing.card())
    until = time.monotonic() + 0.2
    with pytest.raises(PeerLost, match="did not come"):
        pairing.connect(pairing.unique_id(), 0, lambda: time.monotonic() > until)
    return True


def test_who_cannot_connect_says_why(ranks: Ranks) -> None:
    assert all(ranks.run(nobody_comes))
