"""Who comes to an endpoint, and by which way: its own user only, and nobody in between."""

import os
import shutil
import signal
import socket
import stat
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from native_calls import Call, perform
from native_outcomes import try_prepare
from native_raw_peer import card, dial, greet, is_closed, moved
from native_team import Formation, Rank, Team, open_seat
from native_topologies import on

from trainmover import _native

CHECK = [Call("all_reduce", count=100_000, seed=9), Call("barrier")]
LINGER_S = 300  # longer than any test waits
NOBODY = 65534
TOKEN = b"t" * 32
shm = pytest.mark.parametrize("team", on("2-shm"), indirect=True)
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def where(rank: Rank) -> tuple[str, str, int]:
    return rank.endpoint.address, rank.endpoint.path, rank.endpoint.incarnation


def stats(rank: Rank) -> dict[str, Any]:
    return dict(rank.endpoint.stats())


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short name."""
    made = Path(tempfile.mkdtemp(prefix="tm-"))
    yield made
    shutil.rmtree(made)


# The socket and where it lies.


def test_the_local_socket_lies_where_it_was_said_and_goes(folder: Path) -> None:
    endpoint = _native.Endpoint(TOKEN, "here", folder=str(folder))
    assert Path(endpoint.path).parent == folder
    assert stat.S_ISSOCK(os.stat(endpoint.path).st_mode)
    endpoint.close()
    assert list(folder.iterdir()) == []


def test_without_a_folder_it_makes_a_private_one_and_removes_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(folder))
    endpoint = _native.Endpoint(TOKEN, "here")
    (own,) = folder.iterdir()
    assert Path(endpoint.path).parent == own
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    endpoint.close()
    assert list(folder.iterdir()) == []


def test_a_temporary_folder_with_a_long_name_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = folder / ("x" * 90)
    deep.mkdir()
    monkeypatch.setenv("TMPDIR", str(deep))
    endpoint = _native.Endpoint(TOKEN, "here")
    assert endpoint.path.startswith("/tmp/trainmover-")
    endpoint.close()
    assert not Path(endpoint.path).parent.exists()


def test_a_folder_with_too_long_a_name_is_refused(folder: Path) -> None:
    deep = folder / ("x" * 90)
    deep.mkdir(mode=0o700)
    with pytest.raises(_native.Refused, match=r"too long.*shorter name"):
        _native.Endpoint(TOKEN, "here", folder=str(deep))


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_that_others_can_enter_is_refused(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    with pytest.raises(_native.Refused, match="0700"):
        _native.Endpoint(TOKEN, "here", folder=str(folder))
    folder.chmod(0o700)


# Other users.


def as_nobody(act: Callable[[], bool]) -> int:
    """Fork a process of another user that does that. Returns its id."""
    child = os.fork()
    if child == 0:
        code = 1
        with suppress(BaseException):
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            code = 0 if act() else 2
        os._exit(code)
    return child


def code_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def knock(path: str) -> bool:
    """True: the connection was closed without a word."""
    with dial(path) as link, suppress(BrokenPipeError, ConnectionResetError):
        link.sendall(bytes(56))
        return link.recv(1) == b""
    return True


def may_not_enter(path: str) -> bool:
    try:
        dial(path)
    except PermissionError:
        return True
    return False


@root_only
@shm
def test_another_user_does_not_come_to_the_socket(world: Formation) -> None:
    _, path, _ = world.players[0].ask(where)
    assert code_of(as_nobody(lambda: may_not_enter(path))) == 0


@root_only
@shm
def test_another_user_who_comes_to_the_socket_is_sent_away(world: Formation) -> None:
    """As if the folder had been opened to all."""
    _, path, _ = world.players[0].ask(where)
    Path(path).parent.chmod(0o755)
    Path(path).chmod(0o777)
    try:
        assert code_of(as_nobody(lambda: knock(path))) == 0
    finally:
        Path(path).parent.chmod(0o700)
    told = world.players[0].ask(stats)
    assert "another user" in told["last_close_reason"]
    world.all(perform, CHECK)


def listen_until_told(path: str, pipe: int) -> bool:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        Path(path).chmod(0o777)
        os.write(pipe, b"!")
        return os.read(pipe, 1) == b""


@root_only
@shm
def test_a_listener_of_another_user_is_not_believed(world: Formation, folder: Path) -> None:
    folder.chmod(0o777)
    path = str(folder / "s")
    ours, theirs = socket.socketpair()
    child = as_nobody(lambda: ours.close() is None and listen_until_told(path, theirs.fileno()))
    theirs.close()
    try:
        assert ours.recv(1) == b"!"
        honest = world.players[0]
        host, above = honest.host, (1 << 64) - 1  # who has the lower number dials
        cards = [honest.ask(open_seat, "pair", 0, 2), card(above, host, "127.0.0.1:1", path)]
        told = honest.ask(try_prepare, "pair", 1, cards, 30.0)
    finally:
        ours.close()
    assert (told.kind, "another user" in told.text) == ("Refused", True), told
    assert code_of(child) == 0


# Descriptors.


def lingering() -> tuple[socket.socket, list[socket.socket]]:
    """A socket that takes LINGER_S to close, as long as the others are kept."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    full = socket.create_connection(listener.getsockname())
    reader, _ = listener.accept()
    full.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            full.send(bytes(1 << 16))
    full.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER_S))
    return full, [listener, reader]


@pytest.mark.parametrize("said", [b"?" * 56, b"?", b"?" * 4000], ids=["greeting", "byte", "more"])
@shm
def test_a_descriptor_passed_before_the_proof_holds_nobody_up(
    world: Formation, said: bytes
) -> None:
    _, path, _ = world.players[0].ask(where)
    with ExitStack() as stack:
        full, others = lingering()
        for one in others:
            stack.enter_context(one)
        link = stack.enter_context(dial(path))
        world.players[0].stop()  # so that it gets the last descriptor of that socket
        socket.send_fds(link, [said], [full.fileno()])
        full.close()
        world.players[0].signal(signal.SIGCONT)
        assert is_closed(link)
        world.all(perform, CHECK)
        world.refill(1)  # a hello, which the thread that was to be held up answers
        world.all(perform, CHECK)


@shm
def test_a_descriptor_that_comes_with_the_proof_ends_the_connection(world: Formation) -> None:
    _, path, incarnation = world.players[0].ask(where)
    passed = os.memfd_create("passed")
    try:
        with dial(path) as link:
            verdict = greet(link, world.team.token, incarnation, passes=passed)
            assert (verdict[0], "descriptors" in verdict[1]) == (0, True)
            assert is_closed(link)
    finally:
        os.close(passed)
    world.all(perform, CHECK)


# Somebody in between.


class Relay:
    """Hands on what two processes say to each other, at an address of its own."""

    def __init__(self, target: str, folder: Path) -> None:
        local = target.startswith("/")
        self._target = target
        self._listener = socket.socket(socket.AF_UNIX if local else socket.AF_INET)
        self._listener.bind(str(folder / str(id(self))) if local else ("127.0.0.1", 0))
        self._listener.listen()
        name = self._listener.getsockname()
        self.address = name if local else f"{name[0]}:{name[1]}"
        self._links = [self._listener]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = dial(self._target)
                self._links += [near, far]
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=_hand_on, args=ends, daemon=True).start()

    def close(self) -> None:
        for link in self._links:
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            link.close()


def _hand_on(source: socket.socket, to: socket.socket) -> None:
    with suppress(OSError):
        while said := source.recv(1 << 16):
            to.sendall(said)
        to.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("team", on("2-tcp", "2-shm"), indirect=True)
def test_a_relay_is_not_believed(team: Team, folder: Path) -> None:
    """Cards that name its address, and it hands everything on: both sides refuse."""
    pair = Formation(team, "pair")
    cards = pair.cards()
    relays = []
    for seat, player in enumerate(team.players):
        address, path, _ = player.ask(where)
        relays.append(Relay(path if team.hosts[0] == team.hosts[1] else address, folder))
        named = relays[-1].address
        cards[seat] = moved(cards[seat], player.host, named, named)
    for player in team.players:
        player.start(try_prepare, "pair", 1, cards, 3.0)
    told = team.finish(team.players)
    for relay in relays:
        relay.close()
    dialler, listener = sorted(told, key=lambda one: one.kind != "Refused")
    assert "address" in dialler.text, told
    assert {listener.kind} <= {"Refused", "TimedOut"}, told
    assert [player.ask(stats)["links_opened"] for player in team.players] == [0, 0]


@pytest.mark.parametrize("team", on("2-tcp", "2-shm"), indirect=True)
def test_a_hello_for_another_address_is_refused(world: Formation) -> None:
    address, path, incarnation = world.players[0].ask(where)
    for dialled in (address, path):
        with dial(dialled) as link:
            verdict = greet(link, world.team.token, incarnation, address=dialled + "0")
            assert (verdict[0], "address" in verdict[1]) == (0, True)
            assert is_closed(link)
    world.all(perform, CHECK)
