"""What both ends count, and what the host has to do again."""

from typing import Any

import msgspec
import pytest

from trainmover.controller.effects import Fence, FindCheckpoint, GiveUpCheckpoint, Publish, Send
from trainmover.controller.events import (
    AgentSaid,
    CheckpointFailed,
    CheckpointFound,
    CheckpointPublished,
    ControllerReturned,
    Lost,
    MachineJoined,
    MachinesLost,
)
from trainmover.ids import Epoch, MachineId, Step
from trainmover.protocol import messages as m
from trainmover.server.machines.accounts import Account, Accounts
from trainmover.server.machines.admission import taken_back
from trainmover.version import VERSION

M1 = MachineId("m1")
JOINED = MachineJoined(at_us=0, machine=M1, standby=False, vault="v", host="h", incarnation="i")
EXITED = m.WorkerExited(local_rank=0, pid=1, code=0)
GO, LEAVE, DIE = m.Go(epoch=Epoch(1)), m.Leave(epoch=Epoch(1)), m.Die()
BACK = m.Return(
    machine=M1, incarnation="i", version=VERSION, protocol=m.PROTOCOL, heard=1, term=0, dropped=4,
    said=4,
)  # fmt: skip
CHECKPOINT = m.Checkpoint(
    folder="f", run_id="r", step=Step(3), epoch=Epoch(1), argv=[], module=False, script="",
    machines=1, nproc=1, torch="2", trainmover="1", python="3", states={}, records={}, compiled={},
    recorded=[],
)  # fmt: skip


@pytest.fixture
def accounts() -> Accounts:
    """m1 has said five facts and was given three orders."""
    accounts = Accounts()
    accounts.journaled(JOINED, away=True)
    for order in (GO, LEAVE, DIE):
        accounts.ordered(Send(M1, order))
    accounts.journaled(AgentSaid(at_us=1, machine=M1, fact=EXITED, number=5), away=True)
    accounts.journaled(ControllerReturned(at_us=2), away=False)
    return accounts


def test_who_is_back_is_given_what_it_has_not_heard(accounts: Accounts) -> None:
    assert taken_back(BACK, accounts.of[M1], Epoch(1), accounts.term) == [LEAVE, DIE]
    assert accounts.away == [M1]


def test_what_was_ordered_since_the_takeover_nobody_can_have_heard(accounts: Accounts) -> None:
    """Who has heard four knows one that the journal has lost."""
    accounts.ordered(Send(M1, GO))
    assert taken_back(BACK, accounts.of[M1], Epoch(1), accounts.term) == [LEAVE, DIE, GO]
    lost = taken_back(
        msgspec.structs.replace(BACK, heard=4), accounts.of[M1], Epoch(1), accounts.term
    )
    assert isinstance(lost, m.Refused)


def test_what_two_crashes_have_torn_is_missed_whatever_came_since(accounts: Accounts) -> None:
    """The agent has heard four of the first controller, of which three are left; the second, which
    never saw it, has ordered more before it died as well."""
    accounts.ordered(Send(M1, GO))
    accounts.journaled(ControllerReturned(at_us=3), away=False)
    heard_four = msgspec.structs.replace(BACK, heard=4)
    assert isinstance(taken_back(heard_four, accounts.of[M1], Epoch(1), accounts.term), m.Refused)
    of_the_second = msgspec.structs.replace(heard_four, term=2)
    assert taken_back(of_the_second, accounts.of[M1], Epoch(1), accounts.term) == []


def test_whose_controller_the_journal_does_not_know_begins_anew_if_it_has_heard_any(
    accounts: Accounts,
) -> None:
    torn = msgspec.structs.replace(BACK, term=9)
    assert isinstance(taken_back(torn, accounts.of[M1], Epoch(1), accounts.term), m.Refused)
    nothing = msgspec.structs.replace(torn, heard=0)
    assert taken_back(nothing, accounts.of[M1], Epoch(1), accounts.term) == [GO, LEAVE, DIE]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"incarnation": "k"}, "given up for lost (epoch 7)"),
        ({"heard": 4}, "the journal has lost"),
        ({"dropped": 6}, "the journal has lost"),
    ],
)
def test_who_does_not_fit_begins_anew(accounts: Accounts, change: dict[str, Any], why: str) -> None:
    answer = taken_back(
        msgspec.structs.replace(BACK, **change), accounts.of[M1], Epoch(7), accounts.term
    )
    assert isinstance(answer, m.Refused)
    assert (why in answer.reason, answer.retry_s) == (True, 0.0)


def test_another_version_is_refused_for_good(accounts: Accounts) -> None:
    other = msgspec.structs.replace(BACK, version="0.0.0")
    answer = taken_back(other, accounts.of[M1], Epoch(1), accounts.term)
    assert isinstance(answer, m.Refused)
    assert answer.retry_s is None


def test_an_order_is_kept_until_the_machine_has_heard_it(accounts: Accounts) -> None:
    accounts.journaled(JOINED, away=False)
    account = accounts.of[M1]
    for order in (GO, LEAVE, DIE):
        accounts.ordered(Send(M1, order))
    account.heard(2)
    assert account == Account("i", orders=3, pending=[DIE])
    account.heard(1)  # Said before.
    assert account.pending == [DIE]
    assert accounts.away == []


def test_who_is_back_knows_what_was_taken(accounts: Accounts) -> None:
    account = accounts.of[M1]
    account.back(2)
    assert (account.pending, account.told, accounts.away) == ([DIE], 5, [])


def test_a_machine_that_is_lost_has_no_account(accounts: Accounts) -> None:
    accounts.journaled(
        MachinesLost(at_us=2, lost=[Lost(machine=M1, why="", heard_us=1)]), away=True
    )
    assert not accounts.of
    accounts.journaled(JOINED, away=True)
    accounts.ordered(Fence(M1))
    assert not accounts.of


def test_the_host_does_again_what_has_left_no_result() -> None:
    accounts = Accounts()
    second = msgspec.structs.replace(CHECKPOINT, step=Step(6))
    find = FindCheckpoint(Epoch(2), frozenset())
    give_up = GiveUpCheckpoint(Step(9), Epoch(1))
    for order in (Publish(CHECKPOINT), give_up, Publish(second), find):
        accounts.ordered(order)
    accounts.journaled(CheckpointPublished(at_us=1, checkpoint=CHECKPOINT), away=False)
    assert accounts.undone == [give_up, Publish(second), find]
    failed = CheckpointFailed(at_us=2, step=Step(6), epoch=Epoch(1), why="")
    accounts.journaled(failed, away=False)
    assert accounts.undone == [find]
    found = CheckpointFound(at_us=3, epoch=Epoch(2), checkpoint=None, damaged=[])
    accounts.journaled(found, away=False)
    assert accounts.undone == []
