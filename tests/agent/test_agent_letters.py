"""What an agent sends, keeps and says again, whatever becomes of its links: without any."""

import time
from typing import cast

import pytest

from trainmover.agent.letters import UNSAFE_US, Letters
from trainmover.agent.uplink import Uplink
from trainmover.ids import Epoch, MachineId, Rank
from trainmover.protocol import messages as m
from trainmover.protocol.deadlines import LANE_SILENT_S, SILENT_S, beats

SECOND = 1_000_000
M1 = MachineId("m1")
SPEC = m.JobSpec(run_id="r", argv=["x"], machines=1)


def begun() -> Letters:
    return Letters(M1, "i", lease_us=60 * SECOND, now_us=0)


def joined() -> Letters:
    letters = begun()
    letters.hear(m.Welcome(spec=SPEC, term=7), 0)
    return letters


def exited(pid: int) -> m.WorkerExited:
    return m.WorkerExited(local_rank=0, pid=pid, code=1)


def read(payloads: list[bytes]) -> list[m.AgentFact]:
    return [m.decode_agent_fact(payload) for payload in payloads]


def hello(incarnation: str) -> m.Hello:
    return m.Hello(
        machine=M1, version="", protocol=1, nproc=1, standby=False, vault="v", host="h", pid=1,
        incarnation=incarnation,
    )  # fmt: skip


def output(text: str) -> m.Output:
    return m.Output(rank=Rank(0), stream="stdout", text=text)


def test_before_it_is_welcome_it_keeps_what_it_says_and_then_says_all_in_order() -> None:
    letters = begun()
    assert read([letters.greeting(hello)]) == [hello("i")]
    assert letters.say(exited(1), 0) == letters.say(exited(2), 0) == []
    assert letters.tell(output("a"), linked=False) == []
    send, obey = letters.hear(m.Welcome(spec=SPEC, term=7), 0)
    assert (read(send), obey) == ([exited(1), exited(2), output("a")], True)
    assert read(letters.say(exited(3), 0)) == [exited(3)]
    assert letters.waiting_bytes == 0


def test_what_may_be_lost_goes_over_a_link_or_nowhere_but_output_waits() -> None:
    letters = joined()
    assert read(letters.tell(m.Heartbeat(), linked=True)) == [m.Heartbeat()]
    letters.link_lost()
    assert letters.tell(m.Heartbeat(), linked=False) == []
    assert letters.waiting_bytes == 0
    letters.tell(m.Unwritten(path="p", why="full"), linked=False)
    assert letters.waiting_bytes > 0


def test_only_what_decide_orders_is_counted() -> None:
    letters = joined()
    for order in (m.Heard(facts=0), m.LookFor(number=1, vaults={}), m.Shutdown()):
        letters.hear(order, 0)
    assert letters.heard == 0
    assert letters.hear(m.StartWorkers(epoch=Epoch(0), restarts=0), 0).obey
    assert letters.heard == 1
    assert not letters.hear(m.Heard(facts=0), 0).obey


def test_who_returns_says_what_it_has_heard_and_then_what_is_not_safe() -> None:
    letters = joined()
    letters.hear(m.Die(), 0)
    for pid in (1, 2, 3):
        letters.say(exited(pid), 0)
    letters.hear(m.Heard(facts=1), 0)
    letters.link_lost()
    assert letters.say(exited(4), 0) == []
    (back,) = read([letters.greeting(hello)])
    assert isinstance(back, m.Return)
    assert (back.incarnation, back.heard, back.term, back.dropped) == ("i", 1, 7, 1)
    send, obey = letters.hear(m.Resumed(facts=2, term=9), 0)
    assert (read(send), obey, letters.term) == ([exited(3), exited(4)], False, 9)


def test_a_welcome_while_it_returns_is_obeyed_and_does_not_let_it_in() -> None:
    """A controller that has forgotten what it heard says so first; `Resumed` follows."""
    letters = joined()
    letters.link_lost()
    letters.say(exited(1), 0)
    assert letters.hear(m.Welcome(spec=SPEC, term=8), 0) == ([], True)
    assert not letters.welcomed
    assert read(letters.hear(m.Resumed(facts=0, term=8), 0).send) == [exited(1)]


def test_a_link_over_which_nothing_comes_is_silent_once_it_is_in() -> None:
    letters, long = begun(), round(SILENT_S * SECOND)
    assert not letters.silent(long + 1)
    letters.hear(m.Welcome(spec=SPEC), 0)
    assert not letters.silent(long)
    assert letters.silent(long + 1)
    letters.hear(m.Heard(facts=0), long)
    assert not letters.silent(long + 1)
    letters.link_lost()
    assert not letters.silent(9 * long)


def test_its_lease_begins_when_it_last_heard_anything() -> None:
    letters = joined()
    assert not letters.lease_is_over(60 * SECOND - 1)
    letters.hear(m.Heard(facts=0), 5 * SECOND)
    assert not letters.lease_is_over(65 * SECOND - 1)
    assert letters.lease_is_over(65 * SECOND)


def test_pauses_between_dials_grow_until_it_is_in_again() -> None:
    letters = begun()
    pauses = [letters.pause_s(1.0) for _ in range(6)]
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.5, 0.5]
    letters.hear(m.Welcome(spec=SPEC), 0)
    assert letters.pause_s(1.0) == 0.05


def test_what_nobody_says_to_be_safe_is_unsafe_after_a_moment() -> None:
    letters = joined()
    letters.say(exited(1), 0)
    assert not letters.safety_changed(UNSAFE_US - 1)
    assert letters.safety_changed(UNSAFE_US)
    assert letters.unsafe
    assert not letters.safety_changed(UNSAFE_US + 1)
    letters.hear(m.Heard(facts=1), UNSAFE_US + 2)
    assert letters.safety_changed(UNSAFE_US + 2)
    assert not letters.unsafe


def test_without_a_link_all_is_unsafe_and_what_was_said_then_stays_so_until_it_is_taken() -> None:
    letters = joined()
    letters.link_lost()
    assert letters.safety_changed(1)
    assert letters.unsafe
    letters.say(exited(1), 2)
    letters.hear(m.Resumed(facts=0), 3)
    assert not letters.safety_changed(4)
    letters.say(exited(2), 5)
    letters.hear(m.Heard(facts=1), 6)
    assert letters.safety_changed(7)
    assert not letters.unsafe


def test_before_it_was_ever_in_nothing_is_unsafe() -> None:
    """It has no workers."""
    letters = begun()
    letters.say(exited(1), 0)
    assert not letters.safety_changed(9 * SECOND)


def test_a_lane_is_silent_after_so_many_own_looks_that_bring_nothing() -> None:
    letters = joined()
    letters.link_lost()
    letters.goes_behind()
    letters.look()
    letters.hear(m.Resumed(facts=0), 0)
    for _ in range(beats(LANE_SILENT_S)):
        letters.look()
    assert not letters.lane_is_silent
    letters.look()
    assert letters.lane_is_silent
    letters.beat()
    assert not letters.lane_is_silent


def test_beats_over_a_lane_that_the_controller_has_not_taken_count_for_nothing() -> None:
    letters = joined()
    letters.link_lost()
    letters.goes_behind()
    for _ in range(beats(LANE_SILENT_S) + 1):
        letters.look()
        letters.beat()
    assert letters.lane_is_silent


def test_a_heartbeat_over_a_lane_is_due_once_a_second() -> None:
    letters = joined()
    letters.goes_behind()
    due = [letters.heartbeat_is_due(tenth * SECOND // 10) for tenth in range(21)]
    assert [at for at, one in enumerate(due) if one] == [0, 10, 20]


def test_a_lease_counts_the_time_for_which_the_host_was_suspended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The controller counts it, too: a lease by a clock that stands then would be longer."""
    asked: list[int] = []
    monkeypatch.setattr("time.clock_gettime_ns", lambda clock: asked.append(clock) or 7_000)
    assert Uplink._now_us(cast("Uplink", None)) == 7
    assert asked == [time.CLOCK_BOOTTIME]


def test_who_returns_says_how_many_facts_follow() -> None:
    letters = joined()
    for pid in range(3):
        letters.say(exited(pid), 0)
    letters.hear(m.Heard(facts=1), 1)
    letters.link_lost()
    (back,) = read([letters.greeting(hello)])
    assert isinstance(back, m.Return)
    assert (back.dropped, back.said) == (1, 3)
