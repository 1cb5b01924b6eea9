"""Who listens in a run is what SECURITY.md's table says. See `listeners.py`."""

import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from chaos_script import why_no_hosts
from listeners import IS, ROOT, Heard, Row, Seen, Setting, differences, listening, table

from trainmover.protocol.hello import End, Where

SCRIPT = Path(__file__).with_name("listeners.py")
ARMS = [Setting(), Setting(comm="gloo"), Setting(tls=True), Setting(hosts=True)]
ARMS += [Setting(hosts=True, tls=True), Setting(relays=True), Setting(relays=True, tls=True)]


@pytest.fixture(scope="module")
def no_hosts() -> str:
    return why_no_hosts()


@pytest.mark.parametrize(
    "arm",
    [ARMS[0], *[pytest.param(arm, marks=pytest.mark.turns(8)) for arm in ARMS[1:]]],
    ids=lambda arm: f"{arm.comm}{' tls' * arm.tls}{' hosts' * arm.hosts}{' relays' * arm.relays}",
)
def test_the_table_is_true(arm: Setting, no_hosts: str) -> None:
    if arm.hosts and no_hosts:
        pytest.skip(f"no hosts with a network of ours: {no_hosts}")
    if arm.tls:
        pytest.importorskip("cryptography")
    command = [sys.executable, str(SCRIPT), "--comm", arm.comm]
    command += ["--tls"] * arm.tls + ["--hosts"] * arm.hosts
    command += ["--relays"] * arm.relays
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_row_is_in_some_run_and_known() -> None:
    for row in table():
        assert any(row.holds(arm) for arm in ARMS), row
        assert row.listener in IS
        assert row.address in ("network", "loopback", "private file"), row


# --- that it can be false -------------------------------------------------------------------------


def opening(service: str, port: int, host: str = "127.0.0.1") -> bytes:
    return End(service, Where(host, port)).opening(os.urandom(16))


def listener(service: str, process: str, port: int) -> Heard:
    return Heard(port, process, port, "127.0.0.1", port, said=opening(service, port))


def silent(process: str, port: int, pid: int) -> Heard:
    return Heard(pid, process, port, "127.0.0.1", port)


ROWS = [
    Row("control link", "controller", "always", "network", "TLS"),
    Row("HTTP API", "controller", "always", "loopback", "TLS"),
    Row("native endpoint, TCP", "worker", "`--comm native`", "network", "**plain**"),
    Row("native endpoint, local socket", "worker", "`--comm native`", "private file", "inside"),
    Row("gloo's links", "worker", "`--comm gloo`", "network", "**plain**"),
]
GOOD = Seen(
    Setting(), 2, [listener("controller", "controller", 1), silent("controller", 2, 2)]
)  # fmt: skip
GOOD.heard += [silent("worker", 3, 3), Heard(3, "worker", 4, path="/run/s", private=True)]


def seen(*heard: Heard, without: int = -1, **setting: bool) -> Seen:
    kept = [one for number, one in enumerate(GOOD.heard) if number != without]
    return replace(GOOD, setting=replace(GOOD.setting, **setting), heard=[*kept, *heard])


def test_a_run_as_the_table_has_it() -> None:
    assert differences(GOOD, ROWS) == []


FALSE = {
    "a vault, which has no row": (seen(listener("vault", "agent", 9)), "is in no row"),
    "a silent one in an agent": (seen(silent("agent", 9, 9)), "is in no row"),
    "an abstract socket": (seen(Heard(9, "worker", 9, path="@x")), "is in no row"),
    "a socket file for all": (seen(Heard(9, "worker", 9, path="/tmp/x")), "is in no row"),
    "a second silent one": (seen(silent("worker", 9, 3)), "process 3 has 2 listeners"),
    "a row without": (seen(without=2), "nobody has `native endpoint, TCP`"),
    "another's": (seen(listener("controller", "worker", 9)), "which is of controller"),
    "on the network": (
        seen(Heard(4, "worker", 4, "10.0.0.1", 4)),
        "which should be on network",
    ),
    "on the loopback interface": (seen(hosts=True), "which should be on network"),
    "without TLS": (seen(tls=True), "does not speak TLS"),
    "in TLS": (seen(Heard(4, "worker", 4, "127.0.0.1", 4, tls=True)), "speaks TLS"),
}


@pytest.mark.parametrize("what", FALSE)
def test_what_the_table_does_not_say_is_found(what: str) -> None:
    wrong, why = FALSE[what]
    assert any(why in difference for difference in differences(wrong, ROWS))


def test_a_row_that_nobody_can_look_for_is_named() -> None:
    unknown = Row("a new one", "worker", "always", "network", "TLS")
    assert "nobody can tell what `a new one` is" in differences(GOOD, [*ROWS, unknown])


def test_every_socket_that_listens_is_seen(tmp_path: Path) -> None:
    me = psutil.Process()
    before = {one.inode for one in listening(me)}
    with ExitStack() as stack:
        plain = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        newer = stack.enter_context(socket.create_server(("::1", 0), family=socket.AF_INET6))
        local = stack.enter_context(socket.socket(socket.AF_UNIX))
        wide = stack.enter_context(socket.socket(socket.AF_UNIX))
        hidden = stack.enter_context(socket.socket(socket.AF_UNIX))
        tmp_path.chmod(0o700)
        open_to_all = tmp_path / "open"
        open_to_all.mkdir()
        open_to_all.chmod(0o755)
        local.bind(str(tmp_path / "s"))
        wide.bind(str(open_to_all / "s"))
        hidden.bind(f"\0tm-test-{os.getpid()}")
        for one in (local, wide, hidden):
            one.listen()
        stack.enter_context(socket.create_connection(plain.getsockname()))
        found = [one for one in listening(me) if one.inode not in before]
        assert [one.path for one in found if one.private] == [str(tmp_path / "s")]
        assert {one.path or (one.host, one.port) for one in found} == {
            plain.getsockname(),
            newer.getsockname()[:2],
            str(tmp_path / "s"),
            str(open_to_all / "s"),
            f"@tm-test-{os.getpid()}",
        }


def test_the_table_is_read_from_the_document() -> None:
    assert "control link" in {row.listener for row in table()}
    assert Path(__file__).resolve().parents[2] == ROOT
