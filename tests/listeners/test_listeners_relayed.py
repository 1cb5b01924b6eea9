"""A stranger at an address where members dial, who passes them on to a real listener of the job.

It may have a port that a dead vault has left. It knows no token; members prove theirs to it as to
anybody, and the listener believes whoever has proved it. Yet it gets in nowhere.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from open_listeners import LISTENERS, WAIT_S, Opened, opened

from trainmover.errors import ProtocolError
from trainmover.protocol.hello import OPENING_BYTES, PROOF_BYTES

RELAYED = [name for name in LISTENERS if not name.startswith("api")]
PLAIN = [name for name in RELAYED if not name.endswith("TLS")]


class Relay:
    """Passes everything on, in both directions. heard: what came from the listener."""

    def __init__(self, listener: Opened, host: str = "127.0.0.1") -> None:
        self._real = listener
        self._listener = socket.create_server((host, 0))
        self.address = "{}:{}".format(*self._listener.getsockname())
        self.heard = b""
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._thread.join(WAIT_S)
        self._listener.close()

    def _run(self) -> None:
        self._listener.settimeout(WAIT_S)
        member, _ = self._listener.accept()
        listener = self._real.knock()
        up = threading.Thread(target=self._pass, args=(member, listener))
        up.start()
        self.heard = self._pass(listener, member)
        up.join(WAIT_S)
        member.close()
        listener.close()

    def _pass(self, one: socket.socket, other: socket.socket) -> bytes:
        passed = b""
        with suppress(OSError):
            while data := one.recv(4096):
                passed += data
                other.sendall(data)
        with suppress(OSError):
            other.shutdown(socket.SHUT_WR)
        return passed


@contextmanager
def relayed(name: str, folder: Path, host: str = "127.0.0.1") -> Iterator[tuple[Opened, Relay]]:
    with opened(name, folder / "journal.sqlite") as listener:
        relay = Relay(listener, host)
        yield listener, relay
        relay.close()


@pytest.mark.parametrize("name", RELAYED)
def test_who_is_passed_on_hears_that_and_proves_nothing(name: str, tmp_path: Path) -> None:
    with relayed(name, tmp_path) as (listener, relay):
        with pytest.raises(ProtocolError, match="somebody between the two passes the connection"):
            listener.come_to(relay.address, listener.files)
        listener.enter()


@pytest.mark.parametrize("name", PLAIN)
def test_a_stranger_who_passes_a_hello_on_gets_a_proof_that_is_of_no_use(
    name: str, tmp_path: Path
) -> None:
    """Then the listener hangs up on it."""
    with relayed(name, tmp_path) as (listener, relay):
        with pytest.raises(ProtocolError):
            listener.come_to(relay.address, None)
        relay.close()
        assert len(relay.heard) == OPENING_BYTES + PROOF_BYTES


@pytest.mark.parametrize("name", PLAIN)
def test_another_address_of_this_host_is_another_address(name: str, tmp_path: Path) -> None:
    told = pytest.raises(ProtocolError, match=r"dialled at 127\.0\.0\.2:\d+ is the one at 127")
    with relayed(name, tmp_path, "127.0.0.2") as (listener, relay), told:
        listener.come_to(relay.address, None)


@pytest.mark.parametrize("name", PLAIN)
def test_another_service_of_the_job_is_named(name: str, tmp_path: Path) -> None:
    """A member that was given a wrong address, which is of the job."""
    other = PLAIN[PLAIN.index(name) - 1]
    with (
        opened(name, tmp_path / "journal.sqlite") as listener,
        opened(other, tmp_path / "other.sqlite") as elsewhere,
    ):
        with pytest.raises(ProtocolError, match="is of this job, but it is not the"):
            listener.come_to("{}:{}".format(*elsewhere.address), None)
        elsewhere.enter()
