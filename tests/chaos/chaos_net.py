"""Hosts that share nothing but a network of ours: namespaces, and a switch that every frame passes.

Each host has one interface, the other end of which is a file in this process. So a link between two
of them can be cut, in one direction too, delayed or made narrow, and the kernels at its ends see
what they would see of a cable: nothing. Needs root, /dev/net/tun and network namespaces.
"""

import ctypes
import fcntl
import heapq
import os
import select
import struct
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, permutations
from pathlib import Path

MTU = 16000
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x2, 0x1000
_CLONE_NEWNET = 0x40000000
_FRAME_BYTES_MAX = MTU + 64
_QUEUE_S_MAX = 2.0
"""What a narrow link keeps waiting for longer is dropped, as by any switch."""


@dataclass(frozen=True)
class Way:
    """From one host to another. cut: nothing arrives; bytes_s: 0 is no limit."""

    cut: bool = False
    delay_s: float = 0.0
    bytes_s: float = 0.0


OPEN = Way()
CUT = Way(cut=True)


class Net:
    """Hosts 0, 1, ... with addresses 10.77.0.1, 10.77.0.2, ...; `close` unmakes them."""

    def __init__(self, hosts: int) -> None:
        self._names = [f"tm{os.getpid()}-{host}" for host in range(hosts)]
        self._ways = {pair: OPEN for pair in permutations(range(hosts), 2)}
        self._free_s = dict.fromkeys(self._ways, 0.0)
        self._numbers = count()
        self._late: list[tuple[float, int, int, bytes]] = []
        self._taps: list[int] = []
        self._closing = False
        for host in range(hosts):
            self._make(host)
        self._thread = threading.Thread(target=self._run, name="switch", daemon=True)
        self._thread.start()

    @staticmethod
    def address(host: int) -> str:
        return f"10.77.0.{host + 1}"

    def command(self, host: int, command: Sequence[str]) -> list[str]:
        """One that executes the command on that host."""
        return ["ip", "netns", "exec", self._names[host], *command]

    def enter(self, host: int) -> None:
        """The calling thread's sockets, and its children, are on that host from now on."""
        with open(f"/run/netns/{self._names[host]}") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")

    def set(self, way: Way, *pairs: tuple[int, int]) -> None:
        """From now on, for frames from the first to the second host of each pair."""
        for pair in pairs:
            self._ways[pair] = way

    def heal(self) -> None:
        self.set(OPEN, *self._ways)

    def close(self) -> None:
        self._closing = True
        self._thread.join()
        for tap in self._taps:
            os.close(tap)
        for name in self._names:
            subprocess.run(["ip", "netns", "del", name], check=False)

    def _make(self, host: int) -> None:
        name, device = self._names[host], f"tap{os.getpid()}-{host}"
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._taps.append(tap)
        flags = struct.pack("16sH22x", device.encode(), _IFF_TAP | _IFF_NO_PI)
        fcntl.ioctl(tap, _TUNSETIFF, flags)
        _ip("netns", "add", name)
        _ip("link", "set", device, "netns", name, "address", _mac(host), "mtu", str(MTU))
        inside = ["-n", name]
        _ip(*inside, "link", "set", device, "name", "eth0")
        _ip(*inside, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            _ip(*inside, "link", "set", link, "up")
        for other in range(len(self._names)):  # A host that is cut off is not told so by ARP.
            if other != host:
                known = [self.address(other), "lladdr", _mac(other), "nud", "permanent"]
                _ip(*inside, "neigh", "replace", *known, "dev", "eth0")

    # --- the switch ---

    def _run(self) -> None:
        poll = select.poll()
        hosts = {tap: host for host, tap in enumerate(self._taps)}
        for tap in self._taps:
            poll.register(tap, select.POLLIN)
        while not self._closing:
            for tap, _ in poll.poll(self._wait_ms()):
                self._read(hosts[tap], tap)
            now_s = time.monotonic()
            while self._late and self._late[0][0] <= now_s:
                *_, host, frame = heapq.heappop(self._late)
                self._deliver(host, frame)

    def _wait_ms(self) -> int:
        if not self._late:
            return 50
        return min(50, max(0, int(1000 * (self._late[0][0] - time.monotonic()))))

    def _read(self, host: int, tap: int) -> None:
        for _ in range(64):
            try:
                frame = os.read(tap, _FRAME_BYTES_MAX)
            except BlockingIOError:
                return
            if frame[:5] == _MAC_HEAD and frame[5] < len(self._taps):
                self._pass(host, frame[5], frame)

    def _pass(self, source: int, target: int, frame: bytes) -> None:
        way = self._ways.get((source, target), CUT)
        if way.cut:
            return
        if way == OPEN:
            self._deliver(target, frame)
            return
        now_s = time.monotonic()
        due_s = now_s
        if way.bytes_s:
            begins_s = max(now_s, self._free_s[source, target])
            if begins_s - now_s > _QUEUE_S_MAX:
                return
            due_s = self._free_s[source, target] = begins_s + len(frame) / way.bytes_s
        heapq.heappush(self._late, (due_s + way.delay_s, next(self._numbers), target, frame))

    def _deliver(self, host: int, frame: bytes) -> None:
        try:
            os.write(self._taps[host], frame)
        except OSError:
            return  # Its queue is full: a switch drops it, and the sender sends it again.


_MAC_HEAD = bytes([2, 0, 0, 0, 0])


def _mac(host: int) -> str:
    return f"02:00:00:00:00:{host:02x}"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def why_none() -> str:
    """Why there can be no such network here; "" if there can."""
    if os.getuid() != 0:
        return "network namespaces need root"
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun"
    try:
        net = Net(2)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no network namespaces here: {error}"
    net.close()
    return ""
