"""Strangers at an endpoint's listeners: so many stand there; without descriptors they wait."""

import socket
import subprocess
import sys
from contextlib import ExitStack

from native_raw_peer import is_closed

from trainmover import _native

TOKEN = b"t" * 32
WAIT_S = 60.0
FULL = """
import os, resource, sys, time
from trainmover import _native

endpoint = _native.Endpoint(b"t" * 32, "here")
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    print(endpoint.address, flush=True)
sys.stdin.readline()
busy, wall = time.process_time(), time.monotonic()
while not endpoint.stats()["links_refused"] or time.monotonic() - wall < 1:
    time.sleep(0.05)
print((time.process_time() - busy) / (time.monotonic() - wall), flush=True)
for descriptor in held:
    os.close(descriptor)
sys.stdin.readline()
"""


def knock(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), WAIT_S)


def test_no_more_stand_there_than_were_said() -> None:
    endpoint = _native.Endpoint(TOKEN, "here", strangers_max=4)
    with ExitStack() as stack:
        stack.callback(endpoint.close)
        links = [stack.enter_context(knock(endpoint.address)) for _ in range(12)]
        for link in links[:8]:
            assert is_closed(link)
        assert endpoint.stats()["links_refused"] == 8
        assert endpoint.stats()["last_close_reason"] == "too many connections at once"


def test_without_descriptors_who_comes_waits_and_nothing_spins() -> None:
    """In a process of its own."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", FULL], text=True, **pipes) as one:
        assert one.stdin is not None
        assert one.stdout is not None
        try:
            with knock(one.stdout.readline().strip()) as link:
                one.stdin.write("\n")
                one.stdin.flush()
                assert float(one.stdout.readline()) < 0.5, "the thread of the doors spins"
                link.settimeout(WAIT_S)
                link.sendall(b"no greeting".ljust(64, b"\0"))
                link.recv(1)  # An answer, or the end: it was accepted.
        finally:
            one.kill()
