"""Orders that come so close together that the main thread sees only the last."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from trainmover.comm import Groups
from trainmover.ids import Epoch, Rank, Slot, Step
from trainmover.protocol import messages as m
from trainmover.protocol.framing import FrameReader
from trainmover.sandbox.binding import binding_of
from trainmover.sandbox.record import Record
from trainmover.state.transfer import StateServer
from trainmover.worker import control as control_module
from trainmover.worker.control import Control
from trainmover.worker.join.joiner import Joiner
from trainmover.worker.join.shadow import Shadow
from trainmover.worker.join.way.trial import AGAIN, Trials
from trainmover.worker.keep.snapshots import Snapshots
from trainmover.worker.link import ControlLink
from trainmover.worker.member import Member
from trainmover.worker.standing import Unwind
from trainmover.worker.station import Station
from trainmover.worker.step.boundary import Boundary
from trainmover.worker.step.keeper import Moment, RankRecord


@pytest.fixture(autouse=True)
def own_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """An order must not end epochs of the tests that follow in this process."""
    own = Groups()
    own.sandbox()
    for module in ("control", "step.gate", "join.shadow"):
        monkeypatch.setattr(f"trainmover.worker.{module}.groups", own)


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
    link, server = ControlLink(os.dup(agent[1].fileno())), StateServer(token)
    station = Station(
        spec=spec,
        token=token,
        local_rank=0,
        link=link,
        server=server,
        stores=stores,
        torchs=stores,
        snapshots=Snapshots(token, server, link.say),
    )
    yield station
    station.server.close()


def heard(agent: Any) -> list[m.WorkerFact]:
    agent[1].close()
    return [m.decode_worker_fact(p) for p in FrameReader().feed(agent[0].recv(1 << 16))]


def test_a_joiner_overtaken_right_after_go_says_its_position(here: Station, agent: Any) -> None:
    """The controller counts on its rank from `Go` on, its main thread may still sleep."""
    control, standing = Control(here), here.standing
    standing.ordered = standing.switched = Epoch(2)
    standing.committed = Step(7)
    control.obey(m.Go(epoch=Epoch(2)))
    control.obey(m.Interrupt(epoch=Epoch(3)))
    assert heard(agent) == [m.Position(rank=Rank(0), epoch=Epoch(3), committed=7, gate=0)]


def boundary(here: Station) -> Boundary:
    unused: Any = None
    return Boundary(Rank(0), here, unused, exchange=unused, follow=unused, offer=unused)


def waits(here: Station, told: Callable[[Epoch], object]) -> object:
    return here.standing.until(lambda: told(Epoch(2)))


WAITS: dict[str, Callable[[Station], object]] = {
    "verdict": lambda here: boundary(here).settle(),
    "switch": lambda here: waits(here, here.standing.next_switch),
    "go": lambda here: waits(here, here.standing.in_force),
}


@pytest.mark.parametrize("wait", WAITS)
def test_nothing_that_waits_for_a_switchover_outlives_exit(here: Station, wait: str) -> None:
    standing, ended = here.standing, threading.Event()
    standing.live, standing.epoch, standing.ordered = True, Epoch(1), Epoch(2)

    def run() -> None:
        with pytest.raises(Unwind):
            WAITS[wait](here)
        ended.set()

    threading.Thread(target=run, daemon=True).start()
    with standing.changed:
        standing.exit = True
        standing.changed.notify_all()
    assert ended.wait(30)


RECORD = Record(
    binding_of(["train.py"], module=False, world_size=2, nproc=1), 0, 3, "t", signature="s"
)


ELSEWHERE = RankRecord(Step(9), [], Moment(b"", {}))


def held(here: Station, control: Control) -> tuple[Shadow, threading.Thread, list[BaseException]]:
    """A held run that stands at its first step, in a thread of its own."""
    shadow = Shadow(Member(Rank(1), here, is_shadow=True), RECORD, here.token, holds=True)
    joiner = Joiner(shadow, here.token)
    control.member, control.joiner = joiner.member, joiner
    ended: list[BaseException] = []

    def run() -> None:
        try:
            joiner.takeover.begin(cast(Epoch, shadow.park()))
        except Unwind as unwound:
            ended.append(unwound)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return shadow, thread, ended


def facts(agent: Any, count: int) -> list[m.WorkerFact]:
    """The next facts, awaited."""
    reader, found = FrameReader(), list[m.WorkerFact]()
    while len(found) < count:
        found += [m.decode_worker_fact(p) for p in reader.feed(agent[0].recv(1 << 16))]
    return found


def test_a_held_run_is_bound_without_running_again(here: Station, agent: Any) -> None:
    control = Control(here)
    shadow, thread, ended = held(here, control)
    (said,) = facts(agent, 1)
    assert isinstance(said, m.Held)
    control.obey(m.Bind(epoch=Epoch(4), slot=Slot(1), records={}))
    (parked,) = facts(agent, 1)
    assert parked == m.Parked(rank=Rank(1), epoch=Epoch(4), trace=said.trace, bind_ms=0)
    control.obey(m.Leave(epoch=Epoch(4)))
    thread.join(30)
    assert len(ended) == 1
    assert shadow.bound_for == 4


@pytest.mark.parametrize(
    "order",
    [
        m.Bind(epoch=Epoch(4), slot=Slot(0), records={}),
        m.Bind(epoch=Epoch(4), slot=Slot(1), records={}, run=1),
        m.WarmUp(slot=Slot(1), records={}),
        m.Hold(slot=Slot(1), records={}),
    ],
)
def test_other_work_ends_a_held_run(here: Station, agent: Any, order: Any) -> None:
    control = Control(here)
    shadow, thread, ended = held(here, control)
    facts(agent, 1)
    control.obey(order)
    thread.join(30)
    assert len(ended) == 1
    assert shadow.bound_for is None
    assert control_module.groups.deserted  # Another worker may wait for it, or it for that one.
    assert control.next_work() is order
    assert not here.standing.recalled


@pytest.mark.parametrize("bound_for", [None, Epoch(4)])
def test_a_held_run_gives_way_to_a_trial_unless_it_is_needed(
    here: Station, bound_for: Epoch | None
) -> None:
    shadow = Shadow(
        Member(Rank(1), here, is_shadow=True),
        RECORD,
        here.token,
        bound_for=bound_for,
        holds=True,
        is_due=lambda rank, record: (rank, record) == (1, ELSEWHERE),
    )
    shadow.refusal.elsewhere = ELSEWHERE
    if bound_for is None:
        with pytest.raises(Unwind):
            shadow.park()
    else:
        assert shadow.park() == bound_for
    assert shadow.outdated == (ELSEWHERE if bound_for is None else None)
    assert not shadow.is_only_held


def test_a_warm_up_tries_the_way_to_where_its_rank_is_until_other_work_waits(
    here: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = Member(Rank(1), here, is_shadow=True)

    def warm_up(*, is_due: bool = True) -> Shadow:
        shadow = Shadow(member, RECORD, here.token, is_due=lambda *_: is_due)
        shadow.refusal.elsewhere = ELSEWHERE
        return shadow

    with pytest.raises(Unwind):
        warm_up(is_due=False).park()
    shadow = warm_up()
    assert shadow.park() is shadow.tries is ELSEWHERE
    shadow.unwind_if_over()
    here.standing.recalled = True
    with pytest.raises(Unwind):
        shadow.unwind_if_over()
    here.standing.recalled = False
    monkeypatch.setattr("trainmover.worker.join.shadow.TRIAL_S", -1.0)
    slow = warm_up()
    assert slow.park() is ELSEWHERE
    with pytest.raises(Unwind):
        slow.unwind_if_over()


def at(step: int, number: int) -> RankRecord:
    """Of a rank in that pass."""
    return RankRecord(Step(step), [[number, {}, b"", 0, {}, []]], Moment(b"", {}))


def test_the_way_is_tried_in_two_passes_and_then_after_many_more_steps() -> None:
    trials, rank = Trials(), Rank(1)
    assert trials.are_due(rank, at(9, 1))
    trials.note(rank, at(9, 1))
    assert not trials.are_due(rank, at(10, 1))
    assert not trials.are_due(rank, at(10 * AGAIN, 1))
    assert trials.are_due(rank, at(11, 2))
    trials.note(rank, at(11, 2))
    due = [step for step in range(12, 100) if trials.are_due(rank, at(step, step // 10 + 2))]
    assert due == [*range(AGAIN * 11, 100)]
    assert trials.are_due(Rank(0), at(9, 1))


def test_a_recalled_run_is_not_bound_any_more(here: Station, agent: Any) -> None:
    """It unwinds: the slot needs a new run."""
    control = Control(here)
    shadow, thread, _ = held(here, control)
    facts(agent, 1)
    bind = m.Bind(epoch=Epoch(4), slot=Slot(1), records={})
    with here.standing.changed:  # So that the run does not wake in between.
        control.obey(m.WarmUp(slot=Slot(0), records={}))
        control.obey(bind)
    thread.join(30)
    assert shadow.bound_for is None
    assert control.next_work() is bind


def test_a_complete_cut_does_not_keep_orders_waiting(
    here: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older snapshots go only when nobody reads them any more."""
    free: list[bool] = []

    def completed(step: Step) -> None:
        def try_it() -> None:
            if here.standing.changed.acquire(blocking=False):
                free.append(True)
                here.standing.changed.release()

        other = threading.Thread(target=try_it)
        other.start()
        other.join()

    monkeypatch.setattr(here.snapshots, "completed", completed)
    Control(here).obey(m.CutComplete(step=Step(5)))
    assert free == [True]
