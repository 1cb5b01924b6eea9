"""Nothing that is written to an outlet fails into who writes, or holds him up."""

import errno
import os
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
from host_tools import environment, until

from trainmover import outlet as module
from trainmover.outlet import Outlet, write_all


class Disk:
    """Places that take what is written until they cannot."""

    def __init__(self) -> None:
        self.trouble: OSError | None = None
        self.written: list[bytes] = []
        self.told: list[str] = []
        self.outlet: Outlet[str] = Outlet(self._write, self._failed)

    def _write(self, place: str, data: bytes) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.written.append(data)

    def _failed(self, place: str, error: OSError) -> None:
        self.told.append(f"{place}: {error.strerror}")

    def put(self, data: bytes) -> None:
        """And wait for it."""
        self.outlet.put("log", data)
        self.outlet.close()


def full() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")


def test_all_is_written_in_order() -> None:
    disk = Disk()
    for number in range(100):
        disk.outlet.put("log", b"%d\n" % number)
    disk.outlet.close()
    assert disk.written == [b"%d\n" % number for number in range(100)]


def test_a_full_disk_is_told_once_and_what_it_did_not_take_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.0)
    disk = Disk()
    disk.trouble = full()
    for _ in range(3):
        disk.put(b"a\nb\n")
    disk.trouble = None
    disk.put(b"c\n")
    assert b"".join(disk.written) == (
        b"\n... 6 lines could not be written: No space left on device\nc\n"
    )
    disk.trouble = full()
    disk.put(b"d\n")
    assert disk.told == ["log: No space left on device"]


@pytest.mark.parametrize("number", [errno.EPIPE, errno.EIO])
def test_a_terminal_that_is_gone_is_not_tried_again(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.0)
    disk = Disk()
    disk.trouble = OSError(number, "gone")
    disk.put(b"a\n")
    disk.trouble = None
    disk.put(b"b\n")
    assert (disk.written, disk.told) == ([], ["log: gone"])


def test_a_reader_that_has_halted_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_BYTES_MAX", 1000)
    goes_on = threading.Event()
    written: list[bytes] = []

    def write(place: str, data: bytes) -> None:
        goes_on.wait()
        written.append(data)

    outlet: Outlet[str] = Outlet(write, lambda place, error: None)
    for _ in range(300):
        outlet.put("screen", b"12345678\n\n")
    goes_on.set()
    outlet.close()
    outlet.put("screen", b"last\n")
    outlet.close()
    assert len(written) == 102
    assert written[-1] == b"... 398 lines were too many to be shown\nlast\n"


def test_a_pipe_that_others_made_one_that_does_not_wait_gets_all() -> None:
    theirs, ours = os.pipe()
    os.set_blocking(ours, False)
    writer = threading.Thread(target=write_all, args=(ours, b"x" * 1_000_000))
    writer.start()
    with closing(os.fdopen(theirs, "rb")) as reader:
        assert len(reader.read(1_000_000)) == 1_000_000
    writer.join()
    os.close(ours)


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_a_stream_that_was_closed_beforehand_is_nothing(closed: str, tmp_path: Path) -> None:
    """Not the number of whatever is opened next."""
    source = (
        "import os, sys\n"
        "from trainmover.outlet import open_standard_streams\n"
        "open_standard_streams()\n"
        f"opened = os.open({str(tmp_path / 'opened')!r}, os.O_WRONLY | os.O_CREAT)\n"
        "print('out'), print('err', file=sys.stderr), sys.stdout.flush(), sys.stderr.flush()\n"
        "sys.exit(0 if opened > 2 else 5)\n"
    )
    shell = f'exec "$0" -c "$1" {closed}'
    done = subprocess.run(
        ["sh", "-c", shell, sys.executable, source], env=environment(), timeout=60, check=False
    )
    assert done.returncode == 0
    assert (tmp_path / "opened").read_bytes() == b""


def test_what_waits_for_no_reader_does_not_keep_the_process(tmp_path: Path) -> None:
    source = (
        "import os\n"
        "from trainmover.outlet import Outlet, write_all\n"
        "theirs, ours = os.pipe()\n"
        "Outlet(write_all, print).put(ours, b'x' * 1_000_000)\n"
    )
    subprocess.run([sys.executable, "-c", source], env=environment(), timeout=60, check=True)


def test_then_comes_after_what_was_put_before() -> None:
    disk = Disk()
    seen: list[int] = []
    disk.outlet.put("log", b"a\n")
    disk.outlet.then(lambda: seen.append(len(disk.written)))
    until(lambda: seen, "it is called")
    assert seen == [1]
