"""Who carries what others say, and who is sent behind whom: as values."""

from collections.abc import Iterable

from trainmover.ids import MachineId
from trainmover.protocol.deadlines import RELAYS_ABOVE, beats
from trainmover.server.machines.relays import (
    ANSWER_S,
    AT_ONCE,
    GROUP,
    STEADY_S,
    Ask,
    Relays,
    SendBehind,
)

STEADY = beats(STEADY_S)
LATE = beats(ANSWER_S)


class Play:
    """Machines m1, m2, ... on links of their own; whoever is sent behind a relay, or asked to be
    one, does it at once, but those in `deaf`."""

    def __init__(self, machines: int, above: int) -> None:
        self.relays = Relays(above)
        self.place = {MachineId(f"m{n}"): ("m", n, "") for n in range(1, machines + 1)}
        self.deaf: set[str] = set()
        self.silent: set[MachineId] = set()
        for name in self.place:
            self.relays.came(name, None)

    def look(self, times: int = 1, *, calm: bool = True) -> list[Ask | SendBehind]:
        chosen: list[Ask | SendBehind] = []
        for _ in range(times):
            new = self.relays.look(self.place, self.place.keys() - self.silent, calm=calm)
            self._obey(new)
            chosen += new
        return chosen

    def _obey(self, chosen: Iterable[Ask | SendBehind]) -> None:
        for one in chosen:
            if isinstance(one, Ask):
                if one.relay not in self.deaf:
                    assert self.relays.opened(one.relay, f"{one.relay}:1")
            elif one.machine not in self.deaf:
                self.relays.gone(one.machine)
                self.relays.came(one.machine, one.relay)

    def direct(self, name: str) -> None:
        self.relays.gone(MachineId(name))
        self.relays.came(MachineId(name), None)


def relays_of(play: Play) -> dict[str, int]:
    held: dict[str, int] = {}
    for relay in play.relays.behind.values():
        held[relay] = held.get(relay, 0) + 1
    return held


def test_a_job_of_no_more_machines_than_that_has_no_relay() -> None:
    assert Play(256, above=RELAYS_ABOVE).look(10 * STEADY) == []


def test_none_relays_where_that_is_not_wanted() -> None:
    assert Play(300, above=0).look(10 * STEADY) == []


def test_all_come_behind_relays_none_of_which_carries_too_many() -> None:
    play = Play(300, above=RELAYS_ABOVE)
    assert play.look(STEADY - 1) == []
    chosen = play.look(40)
    asked = [one.relay for one in chosen if isinstance(one, Ask)]
    assert asked == ["m1", "m98", "m195", "m292"]
    held = relays_of(play)
    assert sum(held.values()) == 296
    assert max(held.values()) <= GROUP
    assert max(held.values()) - min(held.values()) <= 1
    assert not set(asked) & play.relays.behind.keys()


def test_so_many_are_sent_in_one_look_and_no_more() -> None:
    play = Play(300, above=256)
    looks = [play.look() for _ in range(STEADY + 40)]
    sent = [sum(isinstance(one, SendBehind) for one in chosen) for chosen in looks]
    assert max(sent) == AT_ONCE


def test_nobody_is_sent_or_asked_while_a_change_is_under_way() -> None:
    assert Play(5, above=3).look(3 * STEADY, calm=False) == []


def test_small_groups_where_few_are_enough() -> None:
    play = Play(4, above=3)
    play.look(STEADY + 3)
    assert relays_of(play) == {"m1": 1, "m4": 1}


def test_who_falls_back_is_left_alone_each_time_for_twice_as_long() -> None:
    play = Play(4, above=3)
    play.look(STEADY + 3)
    waits = []
    for _ in range(3):
        play.direct("m2")
        looks = 0
        while "m2" not in play.relays.behind:
            play.look()
            looks += 1
        waits.append(looks)
    assert waits == [2 * STEADY, 4 * STEADY, 8 * STEADY]


def test_a_machine_that_does_not_come_there_is_left_alone() -> None:
    play = Play(4, above=3)
    play.deaf = {"m2"}
    play.look(STEADY + LATE + 5)
    assert relays_of(play) == {"m4": 1}
    assert [one for one in play.look(STEADY) if isinstance(one, SendBehind)] == []


def test_one_that_does_not_relay_when_asked_is_replaced_by_another() -> None:
    play = Play(4, above=3)
    play.deaf = {"m1"}
    play.look(STEADY + LATE + 5)
    assert "m1" not in relays_of(play)
    assert sum(relays_of(play).values()) >= 2


def test_a_trunk_that_ends_leaves_its_relay_alone_and_all_others_come_behind_another() -> None:
    play = Play(4, above=3)
    play.look(STEADY + 3)
    members = [name for name, relay in play.relays.behind.items() if relay == "m1"]
    play.relays.ended(MachineId("m1"))
    for name in members:
        play.direct(name)
    assert relays_of(play) == {"m4": 1}
    play.look(20 * STEADY)
    assert sum(relays_of(play).values()) == 2


def test_a_relay_that_is_lost_is_none_and_its_trunk_opens_no_more() -> None:
    play = Play(5, above=3)
    play.look(STEADY + 3)
    play.relays.lost(MachineId("m1"))
    assert not play.relays.opened(MachineId("m1"), "m1:2")


def test_nobody_relays_that_was_not_asked() -> None:
    assert not Play(5, above=3).relays.opened(MachineId("m1"), "m1:1")


def test_nobody_is_sent_behind_a_relay_that_is_silent() -> None:
    play = Play(4, above=3)
    play.silent = {MachineId("m1")}
    play.look(STEADY + 10)
    assert relays_of(play) == {"m4": 2}
