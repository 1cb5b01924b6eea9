"""Connecting to a store does not wait long for a name server that says nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

SILENT = '''
import socket, subprocess, sys
from trainmover.worker.stores import Stores, to_torch

server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
server.setblocking(False)

def questions():
    count = 0
    try:
        while server.recv(1000):
            count += 1
    except BlockingIOError:
        return count

listening = """
from time import sleep
from torch.distributed import TCPStore
from trainmover.names import ask_nobody
ask_nobody()
store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
sleep(600)
"""
store = subprocess.Popen([sys.executable, "-c", listening], stdout=subprocess.PIPE)
try:
    first = Stores(f"127.0.0.1:{int(store.stdout.readline())}", to_torch).take()
    first.set("key", "value")
    print("asked", questions())
finally:
    store.kill()
'''
ALONE = ["unshare", "--mount", "--net", "sh", "-c"]
"""With a network and a file of name servers of its own."""


def can_be_alone() -> bool:
    try:
        return not subprocess.run([*ALONE, "ip link set lo up"], capture_output=True).returncode
    except OSError:
        return False


@pytest.mark.skipif(not can_be_alone(), reason="a name server of our own needs root and namespaces")
def test_a_silent_name_server_is_asked_once(tmp_path: Path) -> None:
    """By the worker, for a second; torch asks it twice, for five each. The store asks nobody."""
    known, script = tmp_path / "resolv.conf", tmp_path / "silent.py"
    known.write_text("nameserver 127.0.0.1\n")
    script.write_text(SILENT)
    within = f"mount --bind {known} /etc/resolv.conf && ip link set lo up && exec {sys.executable}"
    done = subprocess.run([*ALONE, f"{within} {script}"], capture_output=True, text=True)
    assert done.stdout == "asked 1\n", done.stderr
