"""Random histories with rounds: the healthy are never accused, and nobody takes corrupted state."""

import struct
from dataclasses import replace

import msgspec
import pytest
from test_world import check, play
from world import Worker, World

from trainmover.protocol import messages as m

EVERY = 2


class Watched(World):
    """A world whose ranks fingerprint their one tensor, and in which bits may flip.

    bad       processes whose state is corrupted
    infected  ranks that were at any time
    """

    def __init__(self, seed: int, **knobs: int) -> None:
        super().__init__(seed, **knobs)
        spec = msgspec.structs.replace(self.job.spec, on_divergence="replace")
        self.job = replace(self.job, spec=spec)
        self.bad: list[Worker] = []
        self.infected: set[int] = set()

    def is_bad(self, worker: Worker) -> bool:
        return any(worker is bad for bad in self.bad)

    def flip(self, machine: str) -> None:
        for worker in self.boxes[machine].workers[:1]:
            if worker.live:
                self.bad.append(worker)
                self.infected.add(worker.rank)

    def commit(self, worker: Worker) -> None:
        super().commit(worker)
        if worker.step % EVERY or worker.pending:
            return
        value = worker.step + 100 * self.is_bad(worker)
        fact = m.Fingerprinted(
            rank=worker.rank, epoch=worker.epoch, step=worker.step, layout="L", paths=["w"],
            sections=[1, 0, 0], shared=struct.pack("<Q", value),
        )  # fmt: skip
        self.say(worker, fact)

    def switch(self, worker: Worker, order: m.Switch) -> None:
        before = worker.step, worker.switched
        joins = not worker.live
        super().switch(worker, order)
        if not joins or (worker.step, worker.switched) == before:
            return
        sources = order.sources[worker.rank]
        holders = [w for w in self.peers_of_all() if w.live and w.rank == sources[0].rank]
        if any(map(self.is_bad, holders)):
            self.bad.append(worker)
            self.infected.add(worker.rank)


@pytest.mark.parametrize("seed", range(40))
def test_without_a_flipped_bit_there_is_no_alarm(seed: int) -> None:
    world = Watched(seed, machines=4, nproc=1 + seed % 2)
    play(world, kills=seed % 3 == 0, crashes=1, moves=2)
    check(world)
    assert world.job.comparison.divergences == ()


@pytest.mark.parametrize("seed", range(60))
def test_a_flipped_bit_never_accuses_the_healthy_nor_ends_the_job(seed: int) -> None:
    world = Watched(seed, machines=4, standbys=3)
    world.run(moments=world.random.randrange(100, 900))
    world.flip(world.random.choice(list(world.boxes)))
    play(world, kills=seed % 2, crashes=seed % 3 == 0, moves=seed % 2)
    check(world)
    assert world.ended is not None
    assert world.ended.code == 0, world.ended.text
    for divergence in world.job.comparison.divergences:
        assert set(divergence.astray) <= world.infected
        assert set(divergence.holders) & world.infected


def test_it_is_found_and_healed_in_most_histories() -> None:
    found, healed = 0, 0
    for seed in range(30):
        world = Watched(seed, machines=4, standbys=2, steps=60)
        world.run(moments=300)
        world.flip("m2")
        world.run(moments=20000)
        found += any(d.astray == (1,) for d in world.job.comparison.divergences)
        left = [w for w in world.peers_of_all() if world.is_bad(w) and w.live]
        healed += bool(world.infected) and not left and not world.job.comparison.astray
    assert found > 25
    assert healed > 25
