"""`python tests/chaos/listeners.py [--comm gloo] [--tls] [--hosts] [--relays]`: who listens.

SECURITY.md's table says it. This starts a run, looks up every socket that one of its processes
listens on (/proc), knocks at each, and compares: 1 if a listener has no row, or a row no listener.
With --hosts, controller and machines are on hosts of their own (`chaos_net.py`).
"""

import argparse
import ctypes
import os
import signal
import socket
import ssl
import struct
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import psutil

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos_net import Net, why_none
from chaos_run import Running, send
from drive import Work
from tls_files import made

from trainmover.protocol.hello import OPENING_BYTES, End, Where, is_loopback

ROOT = Path(__file__).resolve().parents[2]
MACHINES, STANDBYS = 2, 1
LONG_ENOUGH_S = 600.0
"""Of work: the run is stopped as soon as it was looked at."""
SAYS_S = 5.0
"""For which a listener that says something at once is waited for."""
_LISTENS, _ACCEPTS = "0A", 0x10000
_CLONE_NEWNET = 0x40000000
_SERVICE_ENDS = 8 + 16 + 16
"""Of an opening: version, nonce, service."""


@dataclass(frozen=True)
class Row:
    """Of the table."""

    listener: str
    process: str
    when: str
    address: str
    tls: str

    def holds(self, setting: "Setting") -> bool:
        """Whether a run has it."""
        return self.when == "always" or self.when.strip("`") in setting.flags


@dataclass(frozen=True)
class Setting:
    """How a run is started."""

    comm: str = "native"
    tls: bool = False
    hosts: bool = False
    relays: bool = False

    @property
    def flags(self) -> set[str]:
        return {
            f"--comm {self.comm}", *["--bind"] * self.hosts, *["--relays-above"] * self.relays
        }  # fmt: skip


@dataclass
class Heard:
    """A listener. process: whose it is; private: a file that only its user can come to; said: the
    first that it says; tls: whether in TLS."""

    pid: int
    process: str
    inode: int
    host: str = ""
    port: int = 0
    path: str = ""
    private: bool = False
    said: bytes = b""
    tls: bool = False

    def __str__(self) -> str:
        return f"{self.process} {self.pid} at {self.path or f'{self.host}:{self.port}'}"


@dataclass
class Seen:
    """What a run listens on. api: the port it says it has."""

    setting: Setting
    api: int = 0
    heard: list[Heard] = field(default_factory=list)


# --- the table ------------------------------------------------------------------------------------


def table(text: str = "") -> list[Row]:
    """As it stands in SECURITY.md."""
    text = text or (ROOT / "SECURITY.md").read_text()
    lines = text.partition("## Who listens")[2].partition("\n## ")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    head, _, *rows = cells
    names = ("listener", "process", "when", "address", "with `--tls`")
    places = [head.index(name) for name in names]
    return [Row(*(row[place] for place in places)) for row in rows]


def _says(service: str) -> Callable[[Heard, Seen], bool]:
    """A listener of that service."""

    def is_it(one: Heard, seen: Seen) -> bool:
        if not one.port or not one.said:
            return False
        ours = End(service, Where(one.host, one.port)).opening(one.said[8:24])
        return one.said[:_SERVICE_ENDS] == ours[:_SERVICE_ENDS]

    return is_it


def _silent(one: Heard, process: str) -> bool:
    return bool(one.port) and not one.said and one.process == process


IS: dict[str, Callable[[Heard, Seen], bool]] = {
    "control link": _says("controller"),
    "relay": _says("relay"),
    "vault": _says("vault"),
    "state server": _says("state"),
    "the stores' listener": _says("store"),
    "HTTP API": lambda one, seen: one.port == seen.api,
    "torch's store": lambda one, seen: _silent(one, "store"),
    "way to torch's store": lambda one, seen: _silent(one, "agent"),
    "native endpoint, TCP": lambda one, seen: (
        _silent(one, "worker") and seen.setting.comm == "native"
    ),
    "native endpoint, local socket": lambda one, seen: one.private,
    "gloo's links": lambda one, seen: _silent(one, "worker") and seen.setting.comm == "gloo",
}
"""By the names of rows."""
SEVERAL = {"gloo's links"}
"""Of which a process may have more than one."""


def differences(seen: Seen, rows: list[Row]) -> list[str]:
    """Between what listens and what the table says of such a run; nothing, if it is true."""
    wrong = [f"nobody can tell what `{row.listener}` is" for row in rows if row.listener not in IS]
    known = [row for row in rows if row.listener in IS and row.holds(seen.setting)]
    found: Counter[tuple[str, int]] = Counter()
    for one in seen.heard:
        its = [row for row in known if IS[row.listener](one, seen)]
        if len(its) != 1:
            wrong.append(f"{one} is {' and '.join(row.listener for row in its) or 'in no row'}")
        for row in its:
            found[row.listener, one.pid] += 1
            wrong += _otherwise(one, row, seen.setting)
    for (listener, pid), count in found.items():
        if count > 1 and listener not in SEVERAL:
            wrong.append(f"process {pid} has {count} listeners that look like `{listener}`")
    there = {listener for listener, _ in found}
    wrong += [f"nobody has `{row.listener}`" for row in known if row.listener not in there]
    return wrong


def _otherwise(one: Heard, row: Row, setting: Setting) -> Iterator[str]:
    """What its row says of it, and is not so."""
    if one.process != row.process:
        yield f"{one} is `{row.listener}`, which is of {row.process}"
    if bool(one.path) != (row.address == "private file"):
        yield f"{one} is `{row.listener}`, which is at: {row.address}"
    local = bool(one.port) and is_loopback(one.host)
    if row.address in ("loopback", "network") and local != (
        row.address == "loopback" or not setting.hosts
    ):
        yield f"{one} is `{row.listener}`, which should be on {row.address}"
    if one.tls != (setting.tls and row.tls == "TLS"):
        yield f"{one} is `{row.listener}`, and {'speaks' if one.tls else 'does not speak'} TLS"


# --- a run ----------------------------------------------------------------------------------------


def look(setting: Setting) -> Seen:
    """Start a run and look who listens when it trains and its standby is warm."""
    with tempfile.TemporaryDirectory(prefix="listeners-") as place:
        net = Net(1 + MACHINES + STANDBYS) if setting.hosts else None
        try:
            return _look(setting, Path(place), net)
        finally:
            if net is not None:
                net.close()


def _look(setting: Setting, place: Path, net: Net | None) -> Seen:
    folder = place / "run"
    folder.mkdir()
    work = Work.small(LONG_ENOUGH_S, place / "hurry", place)
    flags = ["--comm", setting.comm, "--machines", str(MACHINES), "--standbys", str(STANDBYS)]
    flags += _tls_flags() if setting.tls else []
    flags += ["--relays-above", str(MACHINES)] if setting.relays else []
    if net is not None:
        net.enter(0)
        flags += ["--bind", net.address(0)]
    running = Running(folder, [*flags, work.script, *work.arguments])
    try:
        running.until(running.run, "a run")
        if net is not None:
            for host in range(1, 1 + MACHINES + STANDBYS):
                running.start_machine(net, host, standby=host > MACHINES)
        running.until(lambda: running.ready(STANDBYS), "a warm standby")
        running.until(lambda: running.step() >= 3, "steps")
        if setting.relays:
            running.until(lambda: _all_behind(running), "a relay that carries all others")
        seen = _seen(setting, running)
        if running.over:
            raise SystemExit(running.output.read_text(errors="replace")[-4000:])
        send(running.process.pid, signal.SIGTERM)
        running.end()
        return seen
    finally:
        running.kill()


def _all_behind(running: Running) -> bool:
    status = running.status()
    behind = sum(map(len, status["relays"].values())) if status is not None else 0
    return behind == MACHINES + STANDBYS - 1


def _tls_flags() -> list[str]:
    hosts = tuple(Net.address(host) for host in range(1 + MACHINES + STANDBYS))
    return made("listeners", ("127.0.0.1", *hosts)).flags()


def _seen(setting: Setting, running: Running) -> Seen:
    run = running.run()
    assert run is not None
    seen = Seen(setting, urlsplit(run.api_url).port or 0)
    processes = [*running.family(), psutil.Process(running.process.pid)]
    for process in processes:  # The supervisor is the last: it holds what others listen on.
        known = {one.inode for one in seen.heard}
        with suppress(psutil.NoSuchProcess, FileNotFoundError):
            seen.heard += [one for one in listening(process) if one.inode not in known]
    with ThreadPoolExecutor(len(seen.heard)) as pool:
        list(pool.map(partial(_knock, tls=setting.tls), seen.heard))
    return seen


def listening(process: psutil.Process) -> list[Heard]:
    """Every socket that it listens on."""
    folder = Path(f"/proc/{process.pid}")
    its = set(_sockets(folder / "fd"))
    mine = partial(Heard, process.pid, _kind(process))
    return [one for one in (*_tcp(folder, mine), *_unix(folder, mine)) if one.inode in its]


def _sockets(descriptors: Path) -> Iterator[int]:
    for file in descriptors.iterdir():
        with suppress(FileNotFoundError):  # Closed meanwhile.
            link = os.readlink(file)
            if link.startswith("socket:["):
                yield int(link[8:-1])


def _kind(process: psutil.Process) -> str:
    """What the table calls such a process."""
    words = " ".join(process.cmdline())
    known = {
        "trainmover.fork_server": "fork_server",
        "trainmover.worker": "worker",
        "trainmover.server.store": "store",
        "trainmover controller": "controller",
        "trainmover agent": "agent",
        "trainmover.agent": "agent",
        "trainmover run": "controller",  # The supervisor, which made them.
    }
    return next((kind for word, kind in known.items() if word in words), words)


def _tcp(folder: Path, mine: Callable[..., Heard]) -> Iterator[Heard]:
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in (folder / "net" / name).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENS:
                host, port = fields[1].split(":")
                words = struct.unpack(f"{len(host) // 8}I", bytes.fromhex(host))
                packed = struct.pack(f">{len(words)}I", *words)
                shown = socket.inet_ntop(family, packed)
                yield mine(int(fields[9]), host=shown, port=int(port, 16))


def _unix(folder: Path, mine: Callable[..., Heard]) -> Iterator[Heard]:
    for line in (folder / "net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[3], 16) & _ACCEPTS:
            path = fields[7] if len(fields) > 7 else "no name"
            yield mine(int(fields[6]), path=path, private=_is_private(Path(path)))


def _is_private(path: Path) -> bool:
    """A socket file in a folder that other users cannot enter."""
    return path.is_socket() and not path.parent.stat().st_mode & 0o077


# --- what it says ---------------------------------------------------------------------------------


def _knock(one: Heard, *, tls: bool) -> None:
    """Hear what it says to who says nothing, or in TLS."""
    if not one.port:
        return
    asking = threading.Thread(target=_ask, args=(one,), kwargs={"tls": tls})
    asking.start()  # In a thread of its own, which moves to the host of the listener.
    asking.join()


def _ask(one: Heard, *, tls: bool) -> None:
    with open(f"/proc/{one.pid}/ns/net") as namespace:
        if os.readlink(f"/proc/{one.pid}/ns/net") != os.readlink("/proc/thread-self/ns/net"):
            ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET)
    with suppress(OSError), socket.create_connection((one.host, one.port), SAYS_S) as link:
        link.settimeout(SAYS_S)
        if not tls:
            one.said = link.recv(OPENING_BYTES, socket.MSG_WAITALL)
            return
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(link) as inside:
            one.tls = True
            while len(one.said) < OPENING_BYTES and (more := inside.recv(OPENING_BYTES)):
                one.said += more


def main() -> int:
    """0 if all is well."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--comm", default="native")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--hosts", action="store_true")
    parser.add_argument("--relays", action="store_true")
    setting = Setting(**vars(parser.parse_args()))
    if setting.hosts and (reason := why_none()):
        print(reason, file=sys.stderr)
        return 1
    seen = look(setting)
    for one in seen.heard:
        print(f"{one}{' in TLS' * one.tls}: {one.said[:7].decode(errors='replace') or '-'}")
    wrong = differences(seen, table())
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
