"""The HTTP API: a token on every request, answers when things are done, a stream to resume."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from trainmover.journal import Journal
from trainmover.protocol.messages import JobSpec
from trainmover.server.api import Api
from trainmover.server.run import Server, bind

TOKEN = b"0123456789abcdef-token"
AUTH = {"Authorization": f"Bearer {TOKEN.decode()}"}
WAIT_S = 60.0

Act = Callable[[Server, httpx.AsyncClient], Awaitable[None]]
Play = Callable[[Act], None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Runs an act with a server, its API and a client that knows the token."""

    async def run(act: Act) -> None:
        spec = JobSpec(run_id="r", argv=["x"])
        with Journal.create(tmp_path / "j.sqlite", spec) as journal:
            server = Server(spec, TOKEN, journal)
            await server.start(bind("127.0.0.1:0", "The controller"))
            api, listener = Api(server, TOKEN), bind("127.0.0.1:0", "The API")
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            await api.start(listener)
            try:
                async with (
                    asyncio.timeout(WAIT_S),
                    httpx.AsyncClient(base_url=url, headers=AUTH, trust_env=False) as client,
                ):
                    await act(server, client)
            finally:
                await server.close()
                await api.close()

    return lambda act: asyncio.run(run(act))


@pytest.mark.parametrize("given", ["", "Bearer wrong", TOKEN.decode(), "Bearer"])
@pytest.mark.parametrize("path", ["/api/status", "/api/events", "/api/move", "/nothing"])
def test_nothing_is_said_without_the_token(play: Play, given: str, path: str) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        reply = await client.get(path, headers={"Authorization": given})
        assert reply.status_code == 401
        assert "m1" not in reply.text

    play(act)


def test_status_is_a_snapshot(play: Play) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        status = (await client.get("/api/status")).json()
        assert (status["run"], status["phase"], status["machines"]) == ("r", "gathering", [])

    play(act)


def test_a_request_that_is_refused_says_why(play: Play) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        for what in ("move", "kill"):
            answer = (await client.post(f"/api/{what}", json={"machine": "m9"})).json()
            assert answer["ok"] is False
            assert answer["text"]

    play(act)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"machine": 1}', b'{"machine": "m", "x": 1}'])
def test_a_bad_body_is_a_bad_request(play: Play, body: bytes) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        reply = await client.post("/api/move", content=body)
        assert (reply.status_code, list(reply.json())) == (400, ["error"])

    play(act)


def test_a_long_body_is_refused_before_it_is_here(play: Play) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65536

    async def act(server: Server, client: httpx.AsyncClient) -> None:
        for body in (b"x" * 65537, endless()):
            with suppress(httpx.WriteError, httpx.ReadError):
                assert (await client.post("/api/move", content=body)).status_code == 413
        assert (await client.get("/api/status")).status_code == 200

    play(act)


def test_events_can_be_asked_for_after_a_number(play: Play) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        for text in ("one", "two", "three"):
            server.note(text)
        events = (await client.get("/api/events?after=1")).json()
        assert [(event["seq"], event["text"]) for event in events] == [(2, "two"), (3, "three")]
        assert (await client.get("/api/events?after=x")).status_code == 400

    play(act)


async def read(reply: httpx.Response, count: int) -> list[tuple[int, str]]:
    """The next entries of an event stream: (id, text)."""
    entries: list[tuple[int, str]] = []
    number = 0
    async for line in reply.aiter_lines():
        if line.startswith("id: "):
            number = int(line[4:])
        if line.startswith("data: "):
            entries.append((number, json.loads(line[6:])["text"]))
        if len(entries) == count:
            break
    return entries


def test_the_stream_goes_on_and_is_resumed_where_it_broke_off(play: Play) -> None:
    headers = {"Accept": "text/event-stream"}

    async def act(server: Server, client: httpx.AsyncClient) -> None:
        server.note("one")
        asyncio.get_running_loop().call_later(0.05, server.note, "two")
        async with client.stream("GET", "/api/events", headers=headers) as reply:
            assert await read(reply, 2) == [(1, "one"), (2, "two")]
        server.note("missed")
        again = headers | {"Last-Event-ID": "2"}
        asyncio.get_running_loop().call_later(0.05, server.note, "four")
        async with client.stream("GET", "/api/events", headers=again) as reply:
            assert await read(reply, 2) == [(3, "missed"), (4, "four")]

    play(act)


def test_stop_ends_the_job_and_the_stream(play: Play) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        headers = {"Accept": "text/event-stream"}
        async with client.stream("GET", "/api/events", headers=headers) as reply:
            assert (await client.post("/api/stop")).json()["ok"]
            assert [text for _, text in await read(reply, 99)] == [
                "the job is to stop: asked for over the API"
            ]
        assert (await server.ended)[0] == 143

    play(act)
