# SPDX-License-Identifier: Apache-2.0
"""Where runs on this machine can be found: one private directory each.

$TRAINMOVER_HOME or ~/.cache/trainmover      0700 if it was made by us; else as it is
  runs/<run id>/                             0700
    .trainmover-run  our mark: a folder without it is never removed
    run.json    how to reach it; there while it lives
    prometheus.json  the same for Prometheus (file_sd), there as long
    job.json    the same, for its controllers
    token       0600
    tls/        a certificate made for this run; its key 0600
    m1/ ...     private to that machine
  runs/@.../    of a run whose directory is elsewhere (--run-dir)
    run.json, prometheus.json  copies of their own, so that it is found too
"""

import itertools
import os
import random
import re
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from trainmover import ownership
from trainmover.errors import UserError
from trainmover.ownership import NotOurs
from trainmover.protocol.malformed import MALFORMED
from trainmover.tls.files import TlsFiles

PUBLISHED = "run.json"
TARGETS = "prometheus.json"
KEPT = "job.json"
_ORPHAN_S = 3600.0
_HOW = ("brisk", "calm", "deft", "fair", "keen", "kind", "neat", "quick", "sharp", "swift", "wise")
_WHO = ("badger", "crane", "finch", "heron", "ibis", "lark", "lynx", "marten", "otter", "raven")


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A live run. started: the kernel's start time of `pid`, so that a reused pid is not it.

    api_bind    host:port where the API listens for other hosts too; "": for this one only
    controller  host:port that agents dial; the rest is what they are started with
    engine      that starts its machines, with engine_args; "": they are started otherwise
    report      file that says at the end where the time went; "": none
    progress    whether its screen says how far it is
    """

    run_id: str
    api_url: str
    host: str
    pid: int
    started: int
    directory: str
    token_file: str
    journal: str
    api_bind: str = ""
    controller: str = ""
    nproc: int = 1
    role: str = "default"
    shutdown_s: float = 5.0
    worker: tuple[str, ...] = ()
    engine: str = ""
    engine_args: tuple[str, ...] = ()
    tls: TlsFiles | None = None
    report: str = ""
    progress: bool = True


@dataclass(frozen=True)
class RunDirectory:
    """A run's private files. `remove` when it ends."""

    path: Path
    run_id: str

    @classmethod
    def create(
        cls, run_id: str = "", path: Path | None = None, *, anew: bool = False
    ) -> "RunDirectory":
        """A fresh directory, 0700. Raises UserError if it is in use or cannot be made.

        anew  one that a run of this host has left, which was killed, is removed for it
        """
        if run_id:
            _check_name(run_id)
        if path is not None:
            return cls(_make(path.resolve(), path.name, anew=anew), run_id or path.resolve().name)
        if run_id:
            return cls(_make(runs_home() / run_id, run_id, anew=anew), run_id)
        names = (f"{random.choice(_HOW)}-{random.choice(_WHO)}{n or ''}" for n in itertools.count())
        for name in names:
            if not (runs_home() / name).exists():
                return cls(_make(runs_home() / name, name), name)
        raise AssertionError("unreachable")

    @property
    def token_file(self) -> Path:
        return self.path / "token"

    def write_token(self) -> bytes:
        """A fresh token, in a file only we can read."""
        token = secrets.token_hex(32).encode()
        with _room_for(self.token_file):
            ownership.write_new(self.token_file, token)
        return token

    def findable(self) -> list[str]:
        """Have a place where commands look. What the user should know if there is none."""
        try:
            if (elsewhere := self._elsewhere()) is not None:
                elsewhere.mkdir(exist_ok=True, mode=0o700)
                ownership.mark(elsewhere)
        except (OSError, UserError) as error:
            why = f"no command finds this run by itself, since {home()} cannot be used"
            return [f"{why} ({_first_line(error)}): give each of them --run-dir {self.path}"]
        return []

    def publish(self, run: Run) -> None:
        """Let status, move, kill and events find the run, and Prometheus."""
        _write(self.path / PUBLISHED, run)
        _write_text(self.path / TARGETS, targets(run))
        with suppress(OSError, UserError):  # See `findable`.
            if (elsewhere := self._elsewhere()) is not None:
                _write(elsewhere / PUBLISHED, run)
                _write_text(elsewhere / TARGETS, targets(run))

    def withdraw(self) -> None:
        """It lives no more."""
        (self.path / TARGETS).unlink(missing_ok=True)
        (self.path / PUBLISHED).unlink(missing_ok=True)
        self._forget_elsewhere()

    def keep(self, run: Run) -> None:
        """For controllers, the first one and those that follow: see `kept_run`."""
        _write(self.path / KEPT, run)

    def remove(self) -> None:
        ownership.remove_marked(self.path)
        self._forget_elsewhere()

    def _elsewhere(self) -> Path | None:
        """Where a run is found whose directory is not among the others; None if it is."""
        runs = runs_home()
        if self.path.parent == runs.resolve():
            return None
        place = f"{socket.gethostname()}:{self.path}".encode()
        return runs / f"@{blake2b(place, digest_size=8).hexdigest()}"

    def _forget_elsewhere(self) -> None:
        with suppress(OSError, UserError):
            if (elsewhere := self._elsewhere()) is not None:
                ownership.remove_marked(elsewhere)


def targets(run: Run) -> bytes:
    """Return the run as a target of Prometheus. A run that ends takes its target away, so that an
    alert on one that does not answer is about a run that did not end."""
    url = urlsplit(run.api_url)
    labels = {"run": run.run_id, "__scheme__": url.scheme}
    return msgspec.json.encode([{"targets": [url.netloc], "labels": labels}])


def home() -> Path:
    """Where everything of ours on this machine lives."""
    given = os.environ.get("TRAINMOVER_HOME")
    return Path(given) if given else Path.home() / ".cache" / "trainmover"


def runs_home() -> Path:
    """The parent of runs' directories, made on first use. Raises UserError where others could put
    folders of theirs in its place."""
    path = home() / "runs"
    try:
        ownership.check_place(path)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.mkdir(exist_ok=True, mode=0o700)
        ownership.check_unwritable(path)
    except OSError as error:
        raise UserError(
            f"The folder {path} cannot be used: {error.strerror}.",
            means="Runs of this machine are looked for there; nothing was done.",
            do="Set TRAINMOVER_HOME to a place that can be written.",
        ) from error
    return path


def process_started(pid: int) -> int | None:
    """Clock ticks after boot at which a process started; None if it does not live."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def begun_us(started: int) -> int:
    """Return by the host's clock when a process began; started: as in `process_started`."""
    up_us = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    age_us = up_us - started * 1_000_000 // os.sysconf("SC_CLK_TCK")
    return time.time_ns() // 1000 - max(0, age_us)


def lived_by_us(run: Run) -> Run:
    """The run, alive as long as this process is."""
    started = process_started(os.getpid())
    assert started is not None
    return msgspec.structs.replace(run, pid=os.getpid(), started=started)


def live_runs() -> list[Run]:
    """Runs of this machine that live; what dead ones left behind is removed.

    A directory is removed only on proof: it has our mark, and its own run.json names a process that
    is no more, or it never got one for an hour. It may be in the middle of being published.
    """
    runs = []
    for path in sorted(runs_home().iterdir()):
        if not _is_private(path):
            continue  # Somebody else's, or no run's: TensorBoard, too, calls its folder so.
        run = _published(path)
        if run is not None and run.host != socket.gethostname():
            continue  # a home directory shared between machines: theirs to judge
        if run is not None and lives(run):
            runs.append(run)
        elif run is not None or _old(path):
            ownership.remove_marked(path)
    return sorted(runs, key=lambda run: (run.run_id, run.directory))


def read_run(directory: Path) -> Run | None:
    """The live run of a directory; None if there is none. Raises NotOurs."""
    _check_there(directory)
    run = _published(directory)
    return run if run is not None and lives(run) else None


def kept_run(directory: Path) -> Run:
    """What a controller has to know of the run of a directory. Raises UserError."""
    _check_there(directory)
    run = _kept(directory)
    if run is None:
        raise UserError(
            f"{directory} is not the directory of a run.",
            means="There is nothing to control.",
            do="Start one: trainmover run --machines 2 --standbys 1 train.py",
        )
    return run


def _check_there(directory: Path) -> None:
    """Raise NotOurs for a directory of somebody else. One that is missing has no run."""
    with suppress(OSError):
        ownership.check_private(directory)


def _is_private(directory: Path) -> bool:
    try:
        ownership.check_private(directory)
    except (OSError, NotOurs):
        return False
    return True


def _published(directory: Path) -> Run | None:
    return _read(directory / PUBLISHED)


def _write(path: Path, run: Run) -> None:
    _write_text(path, msgspec.json.encode(run))


def _write_text(path: Path, text: bytes) -> None:
    unfinished = path.with_name(f"{path.name}.new")
    with _room_for(path):
        ownership.write_file(unfinished, text)
        unfinished.rename(path)


@contextmanager
def _room_for(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{path} could not be written: {error.strerror}.",
            means="A run cannot be without it.",
            do="Make room there, or set --run-dir or TRAINMOVER_HOME to another place.",
        ) from error


def _read(path: Path) -> Run | None:
    try:
        return msgspec.json.decode(ownership.read_file(path), type=Run)
    except (OSError, *MALFORMED):
        return None


def lives(run: Run) -> bool:
    """Whether the process that it belongs to does."""
    return process_started(run.pid) == run.started


def _died_here(run: Run) -> bool:
    return run.host == socket.gethostname() and not lives(run)


def find_run(run_id: str = "", directory: Path | None = None) -> Run:
    """The run meant: the named one, or the only one. Raises UserError."""
    found = live_runs() if directory is None else _alive_in(directory)
    runs = [run for run in found if run_id in ("", run.run_id)]
    if len(runs) == 1:
        return runs[0]
    if not runs:
        what = " in ".join(filter(None, (run_id, str(directory or ""))))
        raise UserError(
            f"Run {what} is not alive on this machine." if what else "No run is alive here.",
            means="There is nothing to show or to change.",
            do=_others(found) or "Start one: trainmover run --machines 2 --standbys 1 train.py",
        )
    raise UserError(
        f"{len(runs)} runs are alive: {_names(runs)}.",
        means="Nothing was done, since it is not clear which one is meant.",
        do=f"Say which: {_which(runs[0], runs)}",
    )


def _alive_in(directory: Path) -> list[Run]:
    run = read_run(directory)
    return [] if run is None else [run]


def _others(runs: list[Run]) -> str:
    return f"There is another one: {_names(runs)}" if runs else ""


def _names(runs: list[Run]) -> str:
    """Of those with one name, also where they are."""
    return ", ".join(
        f"{run.run_id} in {run.directory}" if _has_namesake(run, runs) else run.run_id
        for run in runs
    )


def _which(run: Run, runs: list[Run]) -> str:
    if _has_namesake(run, runs):
        return f"--run-dir {run.directory}"
    return f"--run-id {run.run_id}"


def _has_namesake(run: Run, runs: list[Run]) -> bool:
    return [other.run_id for other in runs].count(run.run_id) > 1


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".")


def _check_name(run_id: str) -> None:
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", run_id) is None:
        raise UserError(
            f"{run_id!r} cannot be the name of a run.",
            means="Nothing was started.",
            do="Use letters, digits, and . _ - after the first of them.",
        )


def _make(path: Path, what: str, *, anew: bool = False) -> Path:
    ownership.check_place(path)
    if anew and (left := _kept(path)) is not None and _died_here(left):
        ownership.remove_marked(path)
    try:
        path.mkdir(parents=True, mode=0o700)
    except FileExistsError as error:
        _take_empty(path, what, error)
    except OSError as error:
        raise UserError(
            f"The run directory {path} could not be made: {error.strerror}.",
            means="Nothing was started.",
            do="Set --run-dir or TRAINMOVER_HOME to a place that can be written.",
        ) from error
    try:
        with _room_for(path):
            ownership.mark(path)
    except UserError:
        path.rmdir()  # It is empty: nobody would know it for ours.
        raise
    return path


def _take_empty(path: Path, what: str, taken: FileExistsError) -> None:
    """Nothing, for a folder of the user's own that is empty and private. Raises UserError."""
    with suppress(OSError):
        if path.is_dir() and not any(path.iterdir()):
            ownership.check_private(path)
            return
    if (dead := _kept(path)) is not None and not lives(dead):
        raise UserError(
            f"Run {dead.run_id} in {path} has died, and its machines with it.",
            means="It cannot go on by itself; nothing was started.",
            do="Go on from its checkpoints (--resume DIR) in another place than this.",
        ) from taken
    raise UserError(
        f"The run directory {path} exists already.",
        means="Another run may be using it; nothing was started.",
        do=f"Take another --run-id than {what}, or an empty --run-dir.",
    ) from taken


def _kept(directory: Path) -> Run | None:
    return _read(directory / KEPT)


def _old(path: Path) -> bool:
    """Whether a directory without run.json is left over, not just being made."""
    try:
        return time.time() - path.stat().st_mtime > _ORPHAN_S
    except OSError:
        return False
