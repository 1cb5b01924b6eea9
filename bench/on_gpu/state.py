# SPDX-License-Identifier: Apache-2.0
"""D: state, copied, hashed and moved."""

from collections.abc import Iterator

import torch

from bench.collectives.crew import Crew
from bench.on_gpu.team import Found, Plan, Team, timed
from bench.result import Claim
from bench.state.ends import End

GB = 1e9
S_A_GB_MOST = 0.2
DIGEST_S_A_GB_MOST = 0.001
MIB = 1 << 20


def sizes(plan: Plan) -> tuple[int, ...]:
    if plan.stands_in:
        return (1 * MIB, 8 * MIB)
    return (1024 * MIB,) if plan.quick else (1024 * MIB, 8192 * MIB, 32768 * MIB)


def warm(times: int = 2) -> Iterator[bool]:
    """All but the last time are for warming up."""
    yield from (number == times - 1 for number in range(times))


class Bytes:
    """A process with as many bytes on its device."""

    def __init__(self, device: str) -> None:
        self._device = device

    def hash(self, size: int) -> float:
        from trainmover.state.proof.device_digest import digests

        flat = self._made(size)
        return [timed(lambda: digests([flat])) for _ in warm()][-1]

    def hash_many(self, size: int, count: int) -> float:
        """As `count` tensors."""
        from trainmover.state.proof.device_digest import digests

        parts = list(self._made(size).view(count, -1))
        return [timed(lambda: digests(parts)) for _ in warm()][-1]

    def copy(self, size: int) -> float:
        from trainmover.state.staging import copy_to_host

        flat, place = self._made(size), torch.empty(size, dtype=torch.uint8)
        return [timed(lambda: copy_to_host(flat, place)) for _ in warm()][-1]

    def _made(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, device=self._device).random_(0, 255)


def at_rest(plan: Plan) -> Found:
    """D: digests and copies to the host by size, and whole moves over TCP."""
    table = ["| MiB | digest, GB/s | of 1024 tensors | copy to the host | moved over TCP |"]
    table += ["|---|---|---|---|---|"]
    raw = {}
    for size in sizes(plan):
        with Crew(1, lambda seat: Bytes(plan.device)) as crew:
            times = [crew.one(0, "hash", size), crew.one(0, "hash_many", size, 1024)]
            times.append(crew.one(0, "copy", size))
        times.append(moved_over_tcp(plan, size))
        raw[size // MIB] = times
        rates = " | ".join(f"{size / GB / time:.2f}" for time in times)
        table.append(f"| {size // MIB} | {rates} |")
    largest = max(raw)
    gigabytes = largest * MIB / GB
    hashed, _, copied, moved = raw[largest]
    claims = [
        Claim("digest, s a GB (1 TB/s is 0.001)", hashed / gigabytes, "s", DIGEST_S_A_GB_MOST),
        Claim("copy to the host, s a GB (5 GB/s is 0.2)", copied / gigabytes, "s", S_A_GB_MOST),
        Claim("moved over TCP, s a GB (5 GB/s is 0.2)", moved / gigabytes, "s", S_A_GB_MOST),
    ]
    return Found(claims, table, raw)


def moved_over_tcp(plan: Plan, size: int) -> float:
    """Seconds that a pause holds for it: both digests, and what lies between."""
    with Crew(2, lambda seat: End(seat, plan.device)) as crew:
        for seat, value in enumerate((1.0, 0.0)):
            crew.one(seat, "build", size, value)
        address = crew.one(0, "serve")
        took_s, _, _ = crew.one(1, "take", [address])
    return float(took_s)


def moves(team: Team, rank: int, size: int) -> float:
    """Seconds until so many bytes are there, over a pair that has been used before."""
    from trainmover.comm import groups

    store = team.join(rank)
    pairing = groups.pairing()
    assert pairing is not None
    if rank == 0:
        store.set("pair", pairing.unique_id())
    pair = pairing.connect(store.get("pair").decode(), rank, lambda: False)
    state = torch.zeros(size, dtype=torch.uint8, device=team.device)
    move = pair.send if rank == 0 else pair.receive
    for _ in move([state[:1024]], lambda: False):
        pass
    took = timed(lambda: [None for _ in move([state], lambda: False)])
    pair.close()
    return took


def direct(plan: Plan) -> Found:
    """D2: state from device to device by size, as in a planned move."""
    table, raw = ["| MiB | s | GB/s |", "|---|---|---|"], {}
    for size in sizes(plan):
        with Team(2, plan.device) as team:
            took = raw[size // MIB] = max(team.run(moves, size).values())
        table.append(f"| {size // MIB} | {took:.3f} | {size / GB / took:.2f} |")
    largest = max(raw)
    s_a_gb = raw[largest] / (largest * MIB / GB)
    claim = Claim("from device to device, s a GB (5 GB/s is 0.2)", s_a_gb, "s", S_A_GB_MOST)
    return Found([claim], table, raw)
