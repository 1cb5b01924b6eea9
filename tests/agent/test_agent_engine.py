"""Clouds are asked whether they will take this machine away."""

import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from trainmover.agent import flags
from trainmover.agent.engine import ENGINES, Engine

SPOT = "/latest/meta-data/spot/instance-action"
PREEMPTED = "/computeMetadata/v1/instance/preempted"
MAINTENANCE = "/computeMetadata/v1/instance/maintenance-event"
NAME = "/metadata/instance/compute/name"
EVENTS = "/metadata/scheduledevents"
PREEMPT = '{"Events": [{"EventType": "%s", "Resources": ["%s"], "NotBefore": ""}]}'


class Cloud(ThreadingHTTPServer):
    """says: path -> its answer; all else is not found. wants: a header that it insists on."""

    daemon_threads = True

    def __init__(self, wants: str) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.says: dict[str, str] = {}
        self.wants = wants
        self.asked = threading.Semaphore(0)

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Answering(BaseHTTPRequestHandler):
    server: Cloud

    def do_PUT(self) -> None:
        self._answer(200, "a token of theirs")

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if self.server.wants not in self.headers:
            self._answer(401, "who are you")
        elif path in self.server.says:
            self._answer(200, self.server.says[path])
        else:
            self._answer(404, "nothing")
        self.server.asked.release()

    def _answer(self, code: int, text: str) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


WANTS = {"aws": "X-aws-ec2-metadata-token", "gce": "Metadata-Flavor", "azure": "Metadata"}


@pytest.fixture(params=list(ENGINES))
def cloud(request: pytest.FixtureRequest) -> Iterator[tuple[str, Cloud]]:
    server = Cloud(WANTS[request.param])
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield request.param, server
    finally:
        server.shutdown()
        server.server_close()


GOES = {
    "aws": {SPOT: '{"action": "terminate", "time": "2020-01-01T00:00:00Z"}'},
    "gce": {PREEMPTED: "TRUE", MAINTENANCE: "NONE"},
    "azure": {NAME: "vm1", EVENTS: PREEMPT % ("Preempt", "vm1")},
}
LEFT_S = {"aws": 0.0, "gce": 30.0, "azure": 0.0}
STAYS = {
    "aws": [{}],
    "gce": [
        {PREEMPTED: "FALSE", MAINTENANCE: "NONE"},
        {MAINTENANCE: "MIGRATE_ON_HOST_MAINTENANCE"},
    ],
    "azure": [
        {NAME: "vm1", EVENTS: PREEMPT % ("Preempt", "vm2")},
        {NAME: "vm1", EVENTS: PREEMPT % ("Freeze", "vm1")},
        {NAME: "vm1", EVENTS: "<html>"},
        {NAME: "vm1", EVENTS: '{"Events": 7}'},
        {NAME: "vm1"},
    ],
}


def test_a_notice_is_heard_once(cloud: tuple[str, Cloud]) -> None:
    name, server = cloud
    heard: queue.Queue[float] = queue.Queue()
    engine = Engine(name, 30.0, heard.put, base=server.base, every_s=0.01)
    try:
        for _ in range(6):
            assert server.asked.acquire(timeout=20)
        assert heard.empty()
        server.says = GOES[name]
        assert heard.get(timeout=20) == LEFT_S[name]
        for _ in range(6):
            assert server.asked.acquire(timeout=20)
        assert heard.empty()
    finally:
        engine.close()


def test_one_that_stays_is_not_told_of(
    cloud: tuple[str, Cloud], capsys: pytest.CaptureFixture[str]
) -> None:
    name, server = cloud
    heard: list[float] = []
    for says in STAYS[name]:
        server.says = says
        engine = Engine(name, 30.0, heard.append, base=server.base, every_s=0.01)
        for _ in range(8):
            assert server.asked.acquire(timeout=20)
        engine.close()
    assert heard == []
    assert capsys.readouterr().err == ""


def test_maintenance_that_ends_the_machine_is_a_notice() -> None:
    from trainmover.agent import engine

    server = Cloud("Metadata-Flavor")
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        server.says = {MAINTENANCE: "TERMINATE_ON_HOST_MAINTENANCE"}
        assert engine.ask_gce(server.base, 30.0, engine.datetime.now(engine.UTC)) == 30.0
    finally:
        server.shutdown()
        server.server_close()


def test_where_nobody_answers_that_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    said = threading.Semaphore(0)
    server = Cloud("X-that-nobody-sends")
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    engine = Engine("gce", 30.0, lambda left_s: said.release(), base=server.base, every_s=0.01)
    for _ in range(4):
        assert server.asked.acquire(timeout=20)
    engine.close()
    server.shutdown()
    server.server_close()
    assert not said.acquire(blocking=False)
    told = capsys.readouterr().err
    assert told.count("gce does not say") == 1
    assert "Leave --notice-from out" in told


def test_it_is_a_flag_of_the_agent() -> None:
    given = ["--controller", "c:1", "--machine", "m1", "--token-file", "t", "--notice-from", "gce"]
    assert flags.parser().parse_args(given).notice_from == "gce"
    assert set(flags.ENGINES) == set(ENGINES)
