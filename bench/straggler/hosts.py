# SPDX-License-Identifier: Apache-2.0
"""Machines with a network each, joined by a bridge, on this host; ways between them can be slowed.

For root only, and to be used in a network of one's own (`unshare --net`): all of it goes with the
processes that live in it. A machine's queue holds back what goes to another one at a given rate.
"""

import os
import shutil
import subprocess
import sys
from functools import partial
from types import TracebackType

from trainmover.lifeline import die_with

HERE = "10.88.0.1"
TOOLS = ("ip", "tc", "unshare", "nsenter")
FREE, SLOW = "10gbit", "60mbit"


def possible() -> bool:
    """Whether this user may make networks, and has what is needed for it."""
    if os.geteuid() != 0 or not all(map(shutil.which, TOOLS)):
        return False
    tried = "ip link set lo up && tc qdisc add dev lo root handle 1: htb default 1"
    return (
        subprocess.run(["unshare", "--net", "sh", "-c", tried], capture_output=True).returncode == 0
    )


class Hosts:
    """machines: named m1, m2, ..."""

    def __init__(self, machines: int) -> None:
        self.names = [f"m{number + 1}" for number in range(machines)]
        self._children: list[subprocess.Popen[bytes]] = []
        self._holders: dict[str, int] = {}
        _run("ip link set lo up")
        _run("ip link add bridge type bridge")
        _run(f"ip addr add {HERE}/24 dev bridge")
        _run("ip link set bridge up")

    def __enter__(self) -> "Hosts":
        for name in self.names:
            self._make(name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for child in self._children:
            child.kill()
            child.wait()

    def address(self, name: str) -> str:
        return f"10.88.0.{10 + self.names.index(name)}"

    def _make(self, name: str) -> None:
        """A process that holds its network, and a cable from there to the bridge."""
        holder = self._start(["unshare", "--net", "sh", "-c", "echo; exec sleep 100000"])
        assert holder.stdout is not None
        holder.stdout.readline()
        self._holders[name] = holder.pid
        _run(f"ip link add {name} type veth peer name eth0 netns {holder.pid}")
        _run(f"ip link set {name} master bridge up")
        inside = partial(self._inside, name)
        inside("ip link set lo up")
        inside(f"ip addr add {self.address(name)}/24 dev eth0")
        inside("ip link set eth0 up")
        inside("tc qdisc add dev eth0 root handle 1: htb default 1")
        inside(f"tc class add dev eth0 parent 1: classid 1:1 htb rate {FREE}")
        for number, other in enumerate(self.names, 2):
            if other == name:
                continue
            inside(f"tc class add dev eth0 parent 1: classid 1:{number} htb rate {FREE}")
            to = f"match ip dst {self.address(other)}/32"
            inside(f"tc filter add dev eth0 parent 1: protocol ip u32 {to} flowid 1:{number}")

    def start_agents(self, controller: str, token_file: str) -> None:
        """One for each machine; they end with this process."""
        for name in self.names:
            agent = [sys.executable, "-m", "trainmover.agent", "--machine", name]
            agent += ["--controller", controller, "--token-file", token_file]
            agent += ["--parent", str(os.getpid()), "--kernel-log", "/dev/null"]
            self._start([*self._enter(name), *agent])

    def limit(self, one: str, other: str, rate: str) -> None:
        """Of the way between two machines, in both directions."""
        for at, to in ((one, other), (other, one)):
            number = 2 + self.names.index(to)
            self._inside(
                at, f"tc class change dev eth0 parent 1: classid 1:{number} htb rate {rate}"
            )

    def _inside(self, name: str, command: str) -> None:
        _run(" ".join([*self._enter(name), command]))

    def _enter(self, name: str) -> list[str]:
        return ["nsenter", "--net", "--target", str(self._holders[name])]

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        dies = partial(die_with, os.getpid())
        child = subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=dies)
        self._children.append(child)
        return child


def _run(command: str) -> None:
    done = subprocess.run(command.split(), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr.strip()}")
