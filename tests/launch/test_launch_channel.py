"""What supervisor and controller tell each other."""

from collections.abc import Iterator

import pytest

from trainmover.launch.controller.channel import AgentEnded, Begin, Channel, Heard, Over

BEGIN = Begin(notes=["a note"], lost_us=3)
ENDED = AgentEnded(number=1, machine="m1", code=-9, said="last words\n")


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    ours, theirs = Channel.pair()
    with theirs:
        other = Channel(theirs)
        yield ours, other
    ours.close()


def test_what_was_said_is_heard_in_order(ends: tuple[Channel, Channel]) -> None:
    supervisor, controller = ends
    for message in (BEGIN, ENDED):
        supervisor.say(message)
    assert controller.first() == BEGIN
    assert controller.heard() == [ENDED]
    controller.say(Heard(number=1))
    assert supervisor.heard() == [Heard(number=1)]


def test_last_words_are_heard_before_the_end(ends: tuple[Channel, Channel]) -> None:
    supervisor, controller = ends
    controller.say(Over(code=3))
    controller.close()
    assert supervisor.heard() == [Over(code=3)]
    with pytest.raises(ConnectionError):
        supervisor.heard()
    supervisor.say(ENDED)  # Swallowed.
