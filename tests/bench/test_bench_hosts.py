"""Machines with a network each can be made, and a way between two of them made slow, by root."""

import subprocess
import sys

import pytest

from bench.straggler.hosts import possible

SCRIPT = r"""
import socket, subprocess, sys, time
from bench.straggler.hosts import FREE, SLOW, Hosts

LISTEN = (
    "import socket; s = socket.create_server(('', 7000)); print(flush=True)\n"
    "while True:\n  c = s.accept()[0]\n  while c.recv(65536): pass\n  c.close()"
)
SEND = (
    "import socket, sys, time; s = socket.create_connection((sys.argv[1], 7000)); b = time.time()\n"
    "s.sendall(bytes(1_000_000)); s.shutdown(1); s.recv(1); print(time.time() - b)"
)
with Hosts(3) as hosts:
    for name in hosts.names:
        hosts._start([*hosts._enter(name), sys.executable, "-c", LISTEN]).stdout.readline()

    def seconds(at, to):
        command = [*hosts._enter(at), sys.executable, "-c", SEND, hosts.address(to)]
        return float(subprocess.run(command, check=True, capture_output=True).stdout)

    free = seconds("m1", "m2")
    hosts.limit("m1", "m2", "5mbit")
    slow, back, beside = seconds("m1", "m2"), seconds("m2", "m1"), seconds("m1", "m3")
    hosts.limit("m1", "m2", FREE)
    print(free, slow, back, beside, seconds("m1", "m2"))
"""


@pytest.mark.skipif(not possible(), reason="networks are made by root, with ip and tc")
def test_a_way_is_slow_while_it_is_held_up_and_others_are_not() -> None:
    """A megabyte at five megabits a second takes a second and a half."""
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    free, slow, back, beside, again = map(float, done.stdout.split())
    assert min(slow, back) > 1 > max(free, beside, again)
