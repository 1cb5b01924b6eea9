"""Orders that come so close together that the main thread sees only the last."""

import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from trainmover.protocol import messages as m
from trainmover.protocol.framing import FrameReader
from trainmover.worker import process
from trainmover.worker.link import ControlLink
from trainmover.worker.member import Member, Unwind
from trainmover.worker.process import Worker
from trainmover.worker.standing import Standing


class NoStores:
    def __init__(self, address: str) -> None:
        self.address = address

    def take(self) -> Any:
        raise AssertionError("nothing connects here")


@pytest.fixture
def agent() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.settimeout(30)
    with ours:
        yield ours, theirs


@pytest.fixture
def worker(agent: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    monkeypatch.setattr(process, "Stores", NoStores)
    spec = m.JobSpec(run_id="r", argv=["x"], machines=2)
    worker = Worker(spec, b"t" * 16, 0, ControlLink(os.dup(agent[1].fileno())))
    yield worker
    worker.server.close()


def heard(agent: Any) -> list[m.WorkerFact]:
    agent[1].close()
    return [m.decode_worker_fact(p) for p in FrameReader().feed(agent[0].recv(1 << 16))]


def test_a_joiner_overtaken_right_after_go_says_its_position(worker: Worker, agent: Any) -> None:
    """The controller counts on its rank from `Go` on, its main thread may still sleep."""
    standing = worker.standing
    standing.ordered = standing.switched = m.Epoch(2)
    standing.committed = m.Step(7)
    worker.obey(m.Go(epoch=m.Epoch(2)))
    worker.obey(m.Interrupt(epoch=m.Epoch(3)))
    assert heard(agent) == [m.Position(rank=m.Rank(0), epoch=m.Epoch(3), committed=7, gate=0)]


@pytest.mark.parametrize("wait", ["_await_target", "_await_switch", "_await_go"])
def test_nothing_that_waits_for_a_switchover_outlives_exit(wait: str) -> None:
    member = object.__new__(Member)
    member.standing = Standing(live=True, epoch=m.Epoch(1), ordered=m.Epoch(2))
    ended = threading.Event()

    def run() -> None:
        with pytest.raises(Unwind):
            getattr(member, wait)(m.Epoch(2))
        ended.set()

    threading.Thread(target=run, daemon=True).start()
    with member.standing.changed:
        member.standing.exit = True
        member.standing.changed.notify_all()
    assert ended.wait(30)
