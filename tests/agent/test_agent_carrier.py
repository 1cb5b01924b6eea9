"""What a relay does with the frames of lanes, as values."""

import pytest

from trainmover.agent.relaying.carrier import CARRIED_BYTES, Carrier
from trainmover.errors import ProtocolError
from trainmover.ids import MachineId
from trainmover.protocol.lanes import BEAT
from trainmover.protocol.messages import encode
from trainmover.protocol.messages.trunk import (
    Beat,
    Came,
    Carried,
    Carry,
    CloseLane,
    Gone,
    decode_trunk_fact,
)

M1, M2 = MachineId("m1"), MachineId("m2")


def carrier_of_two() -> Carrier:
    carrier = Carrier()
    assert [carrier.come(M1), carrier.come(M2)] == [1, 2]
    assert said(carrier) == [Came(lane=1, machine=M1), Came(lane=2, machine=M2)]
    return carrier


def said(carrier: Carrier) -> list[object]:
    return [decode_trunk_fact(payload) for payload in carrier.given()]


def test_beats_of_all_lanes_are_one_frame() -> None:
    carrier = carrier_of_two()
    carrier.say(2, BEAT)
    assert not carrier.is_full
    carrier.say(1, BEAT)
    assert carrier.is_full
    assert said(carrier) == [Carried(beats=[2, 1], said=[])]
    assert not carrier.waits


def test_what_lanes_say_goes_in_the_order_in_which_it_came() -> None:
    carrier = carrier_of_two()
    for lane, frame in ((1, b"a"), (2, b"b"), (1, b"c")):
        carrier.say(lane, frame)
    assert said(carrier) == [Carried(beats=[], said=[(1, b"a"), (2, b"b"), (1, b"c")])]


def test_much_goes_at_once() -> None:
    carrier = carrier_of_two()
    carrier.say(1, bytes(CARRIED_BYTES))
    assert carrier.is_full


def test_the_last_words_of_a_lane_go_before_its_end() -> None:
    carrier = carrier_of_two()
    carrier.say(1, b"last")
    carrier.go(1)
    assert said(carrier) == [Carried(beats=[], said=[(1, b"last")]), Gone(lane=1)]
    carrier.go(1)
    assert not carrier.waits


def test_orders_go_to_the_lanes_that_they_are_for_each_behind_its_mark() -> None:
    carrier = carrier_of_two()
    order = Carry(said=[(b"go", [(1, b"x"), (2, b"y"), (7, b"z")]), (b"on", [(1, b"w")])])
    assert list(carrier.hear(encode(order))) == [(1, b"xgo"), (2, b"ygo"), (1, b"won")]
    assert list(carrier.hear(encode(Beat()))) == [(1, BEAT), (2, BEAT)]


def test_a_lane_that_is_closed_hears_nothing_more() -> None:
    carrier = carrier_of_two()
    assert list(carrier.hear(encode(CloseLane(lane=1)))) == [(1, None)]
    assert list(carrier.hear(encode(Carry(said=[(b"go", [(1, b"x")])])))) == []
    assert list(carrier.hear(encode(CloseLane(lane=1)))) == []


def test_what_no_controller_says_is_refused() -> None:
    with pytest.raises(ProtocolError):
        list(carrier_of_two().hear(encode(Gone(lane=1))))
