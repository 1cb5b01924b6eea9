"""No standby is left and the job may wait: for a machine, or until the time is over."""

from dataclasses import replace

import msgspec
from jobs import (
    RUNNING,
    after,
    at_boundary,
    ended,
    joined,
    kinds,
    lost,
    orders,
    parked,
    position,
    running,
    up,
    vault,
)

from trainmover.controller import Job, decide
from trainmover.controller.clock import TICK_US, tick_due
from trainmover.controller.events import Tick
from trainmover.controller.state import Stage
from trainmover.protocol import messages as m

WAIT_S = 30


def patient(**knobs: int) -> Job:
    job = running(standbys=0, **knobs)
    return replace(job, spec=msgspec.structs.replace(job.spec, wait_s=WAIT_S))


WAITS, WAIT_EFFECTS = decide(patient(), lost("m2", at_us=100))
FACTS = (position("m1", 0, 2), position("m3", 2, 2), vault("m1", 2), vault("m3", 2, {1: [8]}))


def test_the_recovery_stays_open_in_the_drain() -> None:
    assert sorted(orders(WAIT_EFFECTS, m.Interrupt)) == ["m1", "m3"]
    job, effects = after(WAITS, *FACTS)
    assert effects == ()
    assert job.change is not None
    assert (job.change.stage, job.change.missing) == (Stage.DRAIN, {1})
    assert job.change.leavers == {1: "m2"}
    assert (job.incidents[0].joiner, job.incidents[0].ranks) == (None, (1,))


def test_a_machine_that_joins_takes_the_slot_and_is_bound_when_it_is_up() -> None:
    job, effects = after(WAITS, *FACTS, joined("m5", standby=True), vault("m5", 2))
    assert kinds(effects)[-2:] == [("m1", "Verdict"), ("m3", "Verdict")]
    assert job.incidents[0].joiner == "m5"
    job, effects = decide(job, up("m5"))
    assert orders(effects, m.Bind)["m5"].slot == 1
    _, effects = after(job, at_boundary("m1", 0, 2), at_boundary("m3", 2, 2), parked("m5", 1, 2))
    assert sorted(orders(effects, m.Switch)) == ["m1", "m3", "m5"]


def test_in_vain_it_ends_with_the_reason() -> None:
    job, effects = after(WAITS, *FACTS, Tick(at_us=100 + WAIT_S * 1_000_000 - 1))
    assert effects == ()
    _, effects = decide(job, Tick(at_us=100 + WAIT_S * 1_000_000))
    text = ended(effects).text
    assert text.startswith("m2 was lost: link broke; 1 machine must be replaced and 0 standbys")
    assert "none has come in 30 s" in text


def test_another_loss_meanwhile_does_not_make_it_wait_longer() -> None:
    job, _ = decide(WAITS, lost("m3", at_us=5_000_000))
    assert job.change is not None
    assert job.change.missing == {1, 2}
    assert job.change.until_us == 100 + WAIT_S * 1_000_000
    job, _ = after(job, joined("m5", standby=True))
    assert job.change is not None
    assert (job.change.joiners, job.change.missing) == ({1: "m5"}, {2})


def test_a_slot_taken_in_one_recovery_stays_so_in_the_next() -> None:
    job, _ = after(WAITS, joined("m5", standby=True), up("m5"), joined("m6", standby=True))
    job, _ = decide(job, lost("m3"))
    assert job.change is not None
    assert (job.change.joiners, job.change.missing) == ({1: "m5", 2: "m6"}, frozenset())


def test_the_clock_is_asked_for_only_when_something_depends_on_it() -> None:
    assert not tick_due(running(standbys=0), 0, TICK_US)
    assert tick_due(RUNNING, 0, TICK_US)
    assert not tick_due(RUNNING, 1, TICK_US)
    until_us = 100 + WAIT_S * 1_000_000
    assert [tick_due(WAITS, 0, at_us) for at_us in (until_us - 1, until_us)] == [False, True]
