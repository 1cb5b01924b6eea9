"""What a transfer may take: a share of the network, little memory, a word now and then."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transfers import MIB, TOKEN, fetch_into, offer

from trainmover.state.transfer import StateServer, fetching
from trainmover.state.transfer.allowance import BURST_S, Allowance
from trainmover.state.transfer.dealing import AHEAD_MAX, Dealing, ahead

# --- the allowance: time is a value ---------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 10**6), st.floats(0, 0.5)), min_size=1, max_size=50))
def test_no_more_is_sent_than_is_allowed(sends: list[tuple[int, float]]) -> None:
    """However long the pauses between two sends are: what was not used is not saved up."""
    bucket, now_s, sent, rate = Allowance(1e6), 0.0, 0, 1e6
    for count, pause_s in sends:
        now_s += pause_s
        bucket, wait_s = bucket.take(count, now_s)
        now_s, sent = now_s + wait_s, sent + count
        assert sent <= rate * (now_s + BURST_S) + 1e-3
        assert bucket.left <= rate * BURST_S


def test_threads_that_send_at_once_wait_for_each_other() -> None:
    bucket, first_s = Allowance(100.0).take(100, now_s=5.0)
    _, second_s = bucket.take(100, now_s=5.0)
    assert second_s - first_s == pytest.approx(1.0)


# --- dealing: by demand ---------------------------------------------------------------------------


def test_chunks_are_asked_for_in_order_and_a_few_ahead() -> None:
    dealing = Dealing.of(range(10))
    assert dealing.ask("a", 2) == [0, 1]
    assert dealing.ask("b", 4) == [2, 3, 4, 5]
    assert dealing.ask("b", 4) == []
    dealing.arrived("a")
    assert (dealing.next("a"), dealing.ask("a", 2), dealing.left) == (1, [6], 9)


def test_what_was_asked_of_one_that_is_gone_is_asked_of_others_first() -> None:
    dealing = Dealing.of(range(6))
    dealing.ask("a", 2)
    dealing.ask("b", 2)
    dealing.drop("a")
    dealing.drop("never asked")
    assert (dealing.next("a"), dealing.ask("c", 4)) == (None, [0, 1, 4, 5])


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["ask", "come", "drop"]))))
def test_every_chunk_is_always_somewhere_once(story: list[tuple[str, str]]) -> None:
    dealing, here = Dealing.of(range(12)), []
    for stream, what in story:
        if what == "ask":
            dealing.ask(stream, 3)
        elif what == "drop":
            dealing.drop(stream)
        elif (number := dealing.next(stream)) is not None:
            here.append(number)
            dealing.arrived(stream)
        asked = [number for numbers in dealing.asked.values() for number in numbers]
        assert sorted([*here, *asked, *dealing.open]) == list(range(12))
        assert dealing.left == 12 - len(here)


def test_a_slow_stream_is_asked_for_one_at_a_time() -> None:
    assert ahead(1e6, MIB) == 1
    assert ahead(1e12, MIB) == AHEAD_MAX


# --- all of it ------------------------------------------------------------------------------------


@pytest.fixture
def slow() -> Iterator[StateServer]:
    """A machine that may send 40 MB/s."""
    server = StateServer(TOKEN, bytes_s=40e6)
    yield server
    server.close()


def test_a_limited_source_takes_its_time_over_all_connections(slow: StateServer) -> None:
    sent = torch.randn(4 * MIB)
    offer(slow, [sent])
    begin = time.monotonic()
    fetch_into([torch.empty_like(sent)], slow.address, streams=4)
    assert time.monotonic() - begin > sent.nbytes / 40e6 - 2 * BURST_S


def test_progress_is_told_now_and_then(slow: StateServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PROGRESS_AFTER_S", "PROGRESS_S"):
        monkeypatch.setattr(fetching, name, 0.05)
    sent, told = torch.randn(4 * MIB), []
    offer(slow, [sent])
    fetch_into(
        [torch.empty_like(sent)],
        slow.address,
        on_progress=lambda here, whole: told.append((here, whole)),
    )
    assert told
    assert told == sorted(told)
    assert {whole for _, whole in told} == {sent.nbytes}


def resident(field: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{field}:")[2].split()[0]) * 1024


def test_state_is_streamed_and_not_staged(slow: StateServer) -> None:
    """Both ends are in this process: neither holds any of it twice, of whatever strides."""
    server = StateServer(TOKEN)
    sent = [torch.ones(24 * MIB), torch.ones(3 * MIB, 8).t()]
    got = [torch.zeros(24 * MIB), torch.zeros(3 * MIB, 8).t()]
    for tensor in got:
        tensor.fill_(2)
    offer(server, sent)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    try:
        fetch_into(got, server.address)
        assert resident("VmHWM") - before < 64 * MIB
    finally:
        server.close()
    assert all(torch.equal(a, b) for a, b in zip(got, sent, strict=True))
