"""What is wrong with a script, in words."""

import socket

import pytest

from trainmover.sandbox.reasons import AGAIN, why


def test_a_port_in_use_is_told_however_it_was_bound() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket() as second,
        pytest.raises(OSError, match="in use") as raised,
    ):
        second.bind(server.getsockname())
    assert "binds a port at train.py line 9" in why(f"OSError: {raised.value}", "train.py line 9")
    store = (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
        "network address. port: 29511, useIpv6: false, code: -98, name: EADDRINUSE"
    )
    assert "binds port 29511" in why(store, "")


@pytest.mark.parametrize("error", ["EOFError: EOF when reading a line", "bdb.BdbQuit"])
def test_who_asks_is_told_that_nobody_answers(error: str) -> None:
    assert "asks for input at a.py line 3, and there is nobody" in why(error, "a.py line 3")


def test_a_second_run_that_fails_is_told_as_such() -> None:
    said = why("RuntimeError: registered twice", "a.py line 3", again=True)
    assert said.startswith(AGAIN)
    assert said.endswith("raised in the sandbox at a.py line 3: RuntimeError: registered twice")


def test_anything_else_is_told_as_it_is() -> None:
    assert why("ValueError: x", "") == "the script raised in the sandbox: ValueError: x"


def test_an_error_of_ours_needs_no_class_and_only_its_first_line() -> None:
    error = "trainmover.errors.StateMismatch: It made more steps.\nIt means.\nDo this."
    assert why(error, "") == "in the sandbox: It made more steps."
