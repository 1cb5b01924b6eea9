"""A joiner lacks what was lost with its rank and what nobody holds: who goes where then."""

from dataclasses import replace

import msgspec
import pytest
from jobs import (
    AT_BOUNDARY,
    BOUNDARY,
    MOVE_SWITCHES,
    RECOVERED,
    RECOVERY_SWITCHES,
    after,
    at_boundary,
    drained,
    ended,
    exited,
    kinds,
    lost,
    orders,
    parked,
    position,
    recovered,
    running,
    said,
    switched,
    up,
    vault,
)

from trainmover.controller import Job
from trainmover.controller.effects import Effect
from trainmover.controller.events import WorkerSaid
from trainmover.controller.state import Cut, MachineState, Phase, Stage
from trainmover.protocol import messages as m

WHAT = "`seen` has been filled since its first steps, and only rank 1 had that"
SEATED = ("m1", "m4", "m3")
CUT = Cut(
    step=5,
    vaults={0: "vault-m2", 1: "vault-m3", 2: "vault-m1"},
    workers={rank: f"m{rank + 1}/0" for rank in range(3)},
    bytes=30,
    cost_us=300,
)


def lacks(machine: str = "m4", epoch: int = 2, rank: int = 1) -> WorkerSaid:
    return said(machine, m.Unproven(rank=rank, epoch=epoch, lacks=WHAT), at_us=500)


def all_back() -> tuple[Job, tuple[Effect, ...]]:
    """To CUT, since the joiner m4 lacked something."""
    job, _ = after(replace(RECOVERY_SWITCHES, cut=CUT), lacks())
    return after(job, *drained(3))


def switching_back() -> tuple[Job, tuple[Effect, ...]]:
    """All have left the step, and are to begin from CUT."""
    job, _ = all_back()
    job, _ = after(job, *(said(name, m.Left()) for name in SEATED))
    return after(job, *(parked(n, rank, job.epoch_last) for rank, n in enumerate(SEATED)))


def two_standbys() -> Job:
    """m2 is lost and m4 is to switch; m5 is left, and there is no cut."""
    return after(
        running(standbys=2),
        lost("m2", at_us=100),
        *drained(2),
        vault("m5", 2),
        *(at_boundary(name, rank, 2) for name, rank in (("m1", 0), ("m3", 2))),
        *(parked(name, 1, 2) for name in ("m4", "m5")),
    )[0]


# --- a recovery, with a cut at hand ---------------------------------------------------------------


def test_the_same_incident_goes_on_and_the_joiner_is_kept() -> None:
    job, effects = after(replace(RECOVERY_SWITCHES, cut=CUT), lacks())
    assert kinds(effects) == [(name, "Interrupt") for name in ("m1", "m3", "m4")]
    assert job.change is not None
    assert (job.change.epoch, job.change.stage) == (3, Stage.DRAIN)
    assert job.change.joiners == {1: "m4"}
    assert (job.change.lacking, job.change.on_way) == (WHAT, {"m4"})
    assert len(job.incidents) == 1


def test_all_go_back_to_the_cut_and_the_joiner_takes_part() -> None:
    job, effects = all_back()
    assert not orders(effects, m.Verdict), "though the step could be made with the record"
    assert orders(effects, m.Leave).keys() == {"m1", "m3", "m4"}, "its script has gone on, too"
    assert job.change is not None
    assert (job.change.back, job.committed) == (True, CUT.step)
    assert job.change.joiners == {0: "m1", 1: "m4", 2: "m3"}
    (incident,) = job.incidents
    assert (incident.rung, incident.step, incident.redone) == (2, 5, 2)
    assert incident.why_rung == WHAT


def test_a_snapshot_is_what_the_joiner_begins_from() -> None:
    job, effects = switching_back()
    assert orders(effects, m.Switch)["m4"].committed == CUT.step
    assert orders(effects, m.Switch)["m4"].back
    job, effects = after(
        job, *(switched(name, rank, job.epoch_last) for rank, name in enumerate(SEATED))
    )
    assert orders(effects, m.Go).keys() == set(SEATED)
    assert job.seats == SEATED


def test_a_cut_of_which_a_part_is_lost_is_none_at_hand() -> None:
    gone = replace(CUT, vaults={0: "vault-m2", 1: "vault-m2", 2: "vault-m1"})
    _, effects = after(replace(RECOVERY_SWITCHES, cut=gone), lacks())
    assert WHAT in ended(effects).text


# --- without one ----------------------------------------------------------------------------------


def test_another_standby_is_looked_for() -> None:
    job = two_standbys()
    assert job.change is not None
    first = job.change.joiners[1]  # type: ignore[index]
    (other,) = {"m4", "m5"} - {first}
    assert job.change.stage is Stage.SWITCH
    job, effects = after(job, lacks(first))
    assert orders(effects, m.Leave)[first] == m.Leave(epoch=2)
    assert (job.machines[first].state, job.machines[first].note) == (MachineState.COLD, WHAT)
    assert job.change is not None
    assert (job.change.epoch, job.change.joiners) == (3, {1: other})
    assert job.change.lacking == "", "the other one may have it"


def test_the_job_ends_where_there_is_no_other_and_names_what_is_missing() -> None:
    job, effects = after(RECOVERY_SWITCHES, lacks())
    assert job.phase is Phase.ENDED
    assert f"m4 cannot take the ranks: {WHAT}" in ended(effects).text


def test_a_joiner_that_lacks_it_of_the_cut_as_well_is_replaced() -> None:
    """It is said of the way back: all would go round for ever."""
    job, _ = switching_back()
    job, effects = after(job, lacks(epoch=job.epoch_last))
    assert f"m4 cannot take the ranks: {WHAT}" in ended(effects).text


# --- a move ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [CUT, None], ids=["with a cut", "without"])
def test_a_move_goes_on_with_the_machine_that_was_to_leave(cut: Cut | None) -> None:
    before = replace(MOVE_SWITCHES, cut=cut)
    job, effects = after(before, lacks())
    assert job.phase is Phase.RUNNING
    assert orders(effects, m.Leave).keys() == {"m4"}
    assert (job.machines["m4"].state, job.machines["m4"].note) == (MachineState.COLD, WHAT)
    job, effects = recovered(job)
    assert orders(effects, m.Go).keys() == {"m1", "m2", "m3"}
    assert (job.seats, job.committed) == (before.seats, 7), "nobody went back"


# --- late, doubled, of somebody else --------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "fact"),
    [
        (RECOVERED, lacks()),
        (RECOVERY_SWITCHES, lacks(epoch=1)),
        (RECOVERY_SWITCHES, lacks("m1")),
        (RECOVERY_SWITCHES, lacks(rank=77)),
        (after(BOUNDARY, *AT_BOUNDARY)[0], lacks()),
    ],
    ids=["all train", "an epoch before", "no joiner", "no rank", "before the switch"],
)
def test_it_changes_nothing_where_it_is_no_news_of_this_switch(job: Job, fact: WorkerSaid) -> None:
    calm = replace(job, cut=CUT)
    assert after(calm, fact) == (calm, ())


def test_what_is_said_twice_is_one() -> None:
    job, _ = after(replace(RECOVERY_SWITCHES, cut=CUT), lacks())
    assert after(job, lacks()) == (job, ())
    job = two_standbys()
    assert job.change is not None
    first = job.change.joiners[1]  # type: ignore[index]
    job, _ = after(job, lacks(first))
    assert job.machines[first].state is MachineState.COLD
    assert after(job, lacks(first)) == (job, ())


def test_after_another_loss_meanwhile_the_joiner_says_it_again_and_all_go_back() -> None:
    job, _ = after(replace(RECOVERY_SWITCHES, cut=CUT), lacks(), exited("m3"), up("m3"))
    assert job.change is not None
    assert (job.change.lacking, job.change.joiners) == ("", {1: "m4", 2: "m3"})
    stays = [position("m1", 0, 4), vault("m1", 4, {2: [8]}), vault("m3", 4, {1: [8]})]
    job, _ = after(job, *stays, vault("m4", 4), parked("m3", 2, 4), at_boundary("m1", 0, 4))
    job, _ = after(job, parked("m4", 1, 4), lacks(epoch=4))
    assert job.change is not None
    assert (job.change.epoch, job.change.lacking) == (5, WHAT)
    job, _ = after(job, position("m1", 0, 5), vault("m1", 5, {2: [8]}), vault("m3", 5, {1: [8]}))
    job, _ = after(job, vault("m4", 5))
    assert job.change is not None
    assert (job.change.back, job.incidents[-1].why_rung) == (True, WHAT)


def test_the_message_needs_no_holders() -> None:
    fact = m.Unproven(rank=1, epoch=2, lacks=WHAT)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(fact), type=m.Unproven) == fact
