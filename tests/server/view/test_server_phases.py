"""Phases of an incident add up to its downtime."""

import pytest
from http_jobs import incident

from trainmover.controller.state import Kind
from trainmover.server.view.phases import phases_before, phases_of_pause, phases_text

MOVE = {"begun": 0, "bind": 3_000, "prepare": 22_000, "pause": 67_000, "first_step": 238_000}
LOSS = {"heard": 0, "detect": 2_000, "wait": 9_002_000, "drain": 9_010_000, "first_step": 9_100_000}
BEFORE = "before it bind 3 + prepare 19 ms"
WAITED = "detect 2 + wait 9000 + drain 8 + first_step 90"


@pytest.mark.parametrize(
    ("kind", "marks", "downtime_ms", "text"),
    [
        (Kind.MOVE, MOVE, 34.0, f" (pause 45 + first_step 171 - training 182 ms; {BEFORE})"),
        (Kind.MOVE, MOVE, None, f" (pause 45 + first_step 171 ms; {BEFORE})"),
        (Kind.RECOVERY, LOSS, 9_150.0, f" ({WAITED} + unnoticed 50 ms)"),
        (Kind.RECOVERY, LOSS, 9_100.0, f" ({WAITED} ms)"),
        (Kind.RECOVERY, {"heard": 0}, 9.0, ""),
    ],
)
def test_what_is_printed_adds_up(
    kind: Kind, marks: dict[str, int], downtime_ms: float | None, text: str
) -> None:
    one = incident(kind=kind, marks=marks, downtime_ms=downtime_ms)
    assert phases_text(one) == text
    assert phases_before(one) | phases_of_pause(one) == one.phases_ms
