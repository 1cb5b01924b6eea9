"""What `trainmover standbys` shows of what it is told."""

from typing import Any

import pytest

from trainmover.cli.console import whole_lines
from trainmover.cli.watch.standbys import show

ROW: dict[str, Any] = {
    "machine": "m4",
    "state": "warm",
    "slots": [0, 1, 2],
    "ranks": [0, 1, 2],
    "holds": [1],
    "trace_equal": True,
    "stale": False,
    "warmed_s": 5.2,
    "second_run_ms": 713,
    "held_bytes": 20_639_744,
    "device_bytes": 0,
    "predicted_ms": 241.3,
    "predicted_else_ms": 954.3,
    "record_bytes": 1612,
    "record_bytes_full": 2_682_956,
    "cordoned": False,
    "note": "cannot be rank 3: the script asks for input at train.py line 12",
}


def shown(capsys: pytest.CaptureFixture[str], **changes: Any) -> str:
    ready = {"text": "standbys 1 of 1 ready", "alarm": False}
    show({"redundancy": ready, "standbys": [ROW | changes]}, whole_lines())
    return capsys.readouterr().out


def test_memory_of_a_gpu_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert "20.6 MB, GPU 1.5 GB" in shown(capsys, device_bytes=1_500_000_000)
    assert "GPU" not in shown(capsys)


def test_what_somebody_has_written_in_brackets_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "[Hardware Error]" in shown(capsys, note="mce: [Hardware Error]: CPU 3")


def test_nothing_is_cut_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys)
    for words in ("SECOND RUN", "holds 1", "equal", "20.6 MB", "1.6 kB of 2.7 MB", ROW["note"]):
        assert words in text


def test_what_ranks_that_it_does_not_hold_would_cost_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "241 ms, others 954 ms" in shown(capsys)
    assert "others" not in shown(capsys, slots=[1], ranks=[1])
    assert "others" not in shown(capsys, predicted_ms=None, predicted_else_ms=None)
