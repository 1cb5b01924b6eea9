"""Orders that come so close together that the main thread sees only the last."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from trainmover.comm import Groups
from trainmover.protocol import messages as m
from trainmover.protocol.framing import FrameReader
from trainmover.state.transfer import StateServer
from trainmover.worker.boundary import Boundary
from trainmover.worker.control import Control
from trainmover.worker.link import ControlLink
from trainmover.worker.standing import Unwind
from trainmover.worker.station import Station


@pytest.fixture(autouse=True)
def own_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """An order must not end epochs of the tests that follow in this process."""
    monkeypatch.setattr("trainmover.worker.control.groups", Groups())


@pytest.fixture
def agent() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.settimeout(30)
    with ours:
        yield ours, theirs


@pytest.fixture
def here(agent: Any) -> Iterator[Station]:
    """Of a process that connects to nobody but its agent."""
    spec = m.JobSpec(run_id="r", argv=["x"], machines=2)
    token = b"t" * 16
    stores: Any = None
    station = Station(
        spec=spec,
        token=token,
        local_rank=0,
        link=ControlLink(os.dup(agent[1].fileno())),
        server=StateServer(token),
        stores=stores,
    )
    yield station
    station.server.close()


def heard(agent: Any) -> list[m.WorkerFact]:
    agent[1].close()
    return [m.decode_worker_fact(p) for p in FrameReader().feed(agent[0].recv(1 << 16))]


def test_a_joiner_overtaken_right_after_go_says_its_position(here: Station, agent: Any) -> None:
    """The controller counts on its rank from `Go` on, its main thread may still sleep."""
    control, standing = Control(here), here.standing
    standing.ordered = standing.switched = m.Epoch(2)
    standing.committed = m.Step(7)
    control.obey(m.Go(epoch=m.Epoch(2)))
    control.obey(m.Interrupt(epoch=m.Epoch(3)))
    assert heard(agent) == [m.Position(rank=m.Rank(0), epoch=m.Epoch(3), committed=7, gate=0)]


def boundary(here: Station) -> Boundary:
    unused: Any = None
    return Boundary(m.Rank(0), here, unused, follow=unused, offer=unused)


WAITS: dict[str, Callable[[Station], object]] = {
    "verdict": lambda here: boundary(here).settle(),
    "switch": lambda here: here.standing.await_switch(m.Epoch(2)),
    "go": lambda here: here.standing.await_go(m.Epoch(2)),
}


@pytest.mark.parametrize("wait", WAITS)
def test_nothing_that_waits_for_a_switchover_outlives_exit(here: Station, wait: str) -> None:
    standing, ended = here.standing, threading.Event()
    standing.live, standing.epoch, standing.ordered = True, m.Epoch(1), m.Epoch(2)

    def run() -> None:
        with pytest.raises(Unwind):
            WAITS[wait](here)
        ended.set()

    threading.Thread(target=run, daemon=True).start()
    with standing.changed:
        standing.exit = True
        standing.changed.notify_all()
    assert ended.wait(30)
