"""Crowds at every door of a run whose processes may have few descriptors: the job trains on."""

import os
import socket
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from chaos_run import Running
from listeners import listening

from trainmover.descriptors import raise_limit, shares
from trainmover.server.http.roles import viewer_token

SCRIPT = Path(__file__).with_name("open_files.py")
STEPS = 20
WAIT_S = 5.0
NOBODY = 65534


@pytest.fixture(params=[pytest.param(256, marks=pytest.mark.turns(4)), 1024])
def crowded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Running, int]]:
    """A run 2+1 whose processes have so many descriptors, and whose script uses a fifth of them."""
    raise_limit()
    files, hurry = request.param, tmp_path / "hurry"
    running = Running(
        tmp_path,
        ["--machines", "2", "--standbys", "1", str(SCRIPT), str(files // 5), str(hurry)],
        files=files,
    )
    try:
        running.until(running.run, "a run")
        running.until(lambda: running.ready(1), "a warm standby")
        running.until(lambda: running.step() >= 3, "steps")
        yield running, files
        assert not running.over, running.output.read_text()
        hurry.touch()
        assert running.end() == 0, running.output.read_text()
        assert "Traceback" not in running.output.read_text()
        assert "restarted" not in running.output.read_text()
    finally:
        running.kill()


def trains_on(running: Running, steps: int = STEPS) -> None:
    begun, epoch = running.step(), (running.status() or {}).get("epoch")
    running.until(lambda: running.step() >= begun + steps, "steps")
    assert not running.over, running.output.read_text()
    assert (running.status() or {}).get("epoch") == epoch


@contextmanager
def crowd(ports: Collection[int], each: int) -> Iterator[None]:
    """So many connections to each port, three times, that say nothing and stay: those of another
    user, where that is possible."""
    told, tell = os.pipe()
    over, end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(end)
            if os.geteuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            links = [knock(port) for _ in range(3) for port in ports for _ in range(each)]
            os.write(tell, b"!")
            os.read(over, 1)
            assert links
        finally:
            os._exit(0)
    os.close(tell)
    try:
        assert os.read(told, 1) == b"!"
        yield
    finally:
        for descriptor in (end, over, told):
            os.close(descriptor)
        os.waitpid(child, 0)


def knock(port: int) -> socket.socket:
    """A listener may be silent: nothing is waited for."""
    link = socket.socket()
    link.setblocking(False)
    with suppress(BlockingIOError):
        link.connect(("127.0.0.1", port))
    return link


def say(port: int, said: bytes) -> socket.socket | None:
    with suppress(OSError):
        link = socket.create_connection(("127.0.0.1", port), WAIT_S)
        link.sendall(said)
        return link
    return None


def test_a_job_trains_on(crowded: tuple[Running, int]) -> None:
    """Strangers stand at all listeners; then a viewer holds back the bodies of its requests."""
    running, files = crowded
    listeners = [one for each in running.family() for one in listening(each) if one.port]
    ports = {one.port for one in listeners if os.geteuid() == 0 or one.process != "agent"}
    with crowd(ports, shares(files).native_strangers + 20):
        trains_on(running)
        counts = {f"{' '.join(one.cmdline())} {one.pid}": one.num_fds() for one in running.family()}
        assert max(counts.values()) < files, counts
    hold_back(running, files)


def hold_back(running: Running, files: int) -> None:
    """The controller serves the operator meanwhile, and closes what is held back."""
    run, controller = running.run(), running.controller()
    assert run is not None
    assert controller is not None
    viewer = viewer_token(Path(run.token_file).read_bytes().strip()).decode()
    said = "POST /api/v1/session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n"
    said += f"Authorization: Bearer {viewer}\r\n\r\n{{"
    port = int(run.api_url.rpartition(":")[2])
    with ExitStack() as stack:
        links = [
            stack.enter_context(link)
            for _ in range(files + 100)
            if (link := say(port, said.encode())) is not None
        ]
        assert psutil.Process(controller).num_fds() < files
        trains_on(running)
        deadline = time.monotonic() + 60
        while [link for link in links if _is_open(link)]:
            assert time.monotonic() < deadline, "connections that hold back a body stay"
            time.sleep(0.2)
    assert running.controller() == controller


def _is_open(link: socket.socket) -> bool:
    link.setblocking(False)
    try:
        return link.recv(4096) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False
