"""What `trainmover status` says of machines that are slow, or may fail soon."""

from typing import Any

from trainmover.cli.watch.status import anomaly_lines, slow_lines

FOUND: dict[str, Any] = {
    "machine": "m2", "kind": "machine", "step": 83, "done": "nothing", "before": [], "since": [],
    "peer": None,
}  # fmt: skip
SIGN: dict[str, Any] = {
    "machine": "m3", "sign": "gpu", "text": "a GPU is broken: Xid 79", "grave": True, "times": 1,
    "done": "its ranks go to a standby",
}  # fmt: skip


def slow(**changes: Any) -> list[str]:
    return [*slow_lines({"findings": [FOUND | changes], "moves": []})]


def odd(**changes: Any) -> list[str]:
    return [*anomaly_lines({"findings": [SIGN | changes]})]


def test_who_was_slow_is_named_and_of_a_way_both_ends() -> None:
    assert slow() == ["m2 was slow (machine) at step 83: nothing"]
    assert slow(machine=None, kind="everybody")[0].startswith("everybody was slow")
    (line,) = slow(kind="network", peer="m4")
    assert line == "the way between m2 and m4 was slow (network) at step 83: nothing"


def test_what_may_fail_is_told_with_what_was_done_and_how_often_it_was_seen() -> None:
    (line,) = odd()
    assert line == "m3 may fail soon: a GPU is broken: Xid 79; its ranks go to a standby"
    (line,) = odd(grave=False, text="its memory is full in about 4 min", times=3, done="-")
    assert line == "m3: its memory is full in about 4 min (3 times); -"
