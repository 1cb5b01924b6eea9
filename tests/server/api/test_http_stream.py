"""The event stream: goes on, is resumed, costs nothing for who does not read."""

import asyncio
import json
import socket
from pathlib import Path

import httpx
import pytest
from http_plays import AUTH, V1, VIEWER, play

from trainmover import descriptors
from trainmover.descriptors import raise_limit, shares
from trainmover.server.http import stream, visitor
from trainmover.server.run import Server

SSE = {"Accept": "text/event-stream"}


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


def test_the_stream_goes_on_and_is_resumed_where_it_broke_off(tmp_path: Path) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        server.note("one")
        asyncio.get_running_loop().call_later(0.05, server.note, "two")
        async with client.stream("GET", f"{V1}/events", headers=SSE) as reply:
            assert await read(reply, 2) == [(1, "one"), (2, "two")]
        server.note("missed")
        again = SSE | {"Last-Event-ID": "2"}
        asyncio.get_running_loop().call_later(0.05, server.note, "four")
        async with client.stream("GET", f"{V1}/events", headers=again) as reply:
            assert await read(reply, 2) == [(3, "missed"), (4, "four")]

    play(tmp_path, act)


def test_it_ends_with_the_job(tmp_path: Path) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        async with client.stream("GET", f"{V1}/events", headers=SSE) as reply:
            assert (await client.post(f"{V1}/stop")).json()["ok"]
            texts = [text for _, text in await read(reply, 99)]
            assert texts[-1] == "the job is to stop: asked for over the API"

    play(tmp_path, act)


def test_a_pulse_comes_for_who_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "PULSE_S", 0.02)

    async def act(server: Server, client: httpx.AsyncClient) -> None:
        pulses: list[dict[str, object]] = []
        async with client.stream("GET", f"{V1}/events?pulse=true", headers=SSE) as reply:
            name = ""
            async for line in reply.aiter_lines():
                name = line[7:] if line.startswith("event: ") else name
                if line.startswith("data: ") and name == "pulse":
                    pulses.append(json.loads(line[6:]))
                if len(pulses) == 3:
                    break
        assert {pulse["phase"] for pulse in pulses} == {"gathering"}

    play(tmp_path, act)


def test_the_last_pulse_says_how_the_job_has_ended(tmp_path: Path) -> None:
    """Though the one before was made a moment ago."""

    async def act(server: Server, client: httpx.AsyncClient) -> None:
        last: dict[str, object] = {}
        async with client.stream("GET", f"{V1}/events?pulse=true", headers=SSE) as reply:
            async for line in reply.aiter_lines():
                if line.startswith("data: ") and "phase" in (said := json.loads(line[6:])):
                    last = said
                    if not said["over"]:
                        assert (said["code"], said["ended_because"]) == (None, "")
                        server.stop(130, "stopped by SIGINT")
        assert last["over"]
        assert last["code"] == 130
        assert "stopped by SIGINT" in str(last["ended_because"])

    play(tmp_path, act)


def test_an_entry_is_encoded_once_for_all_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[int] = []
    entry = stream.entry
    monkeypatch.setattr(stream, "entry", lambda told: encoded.append(told.seq) or entry(told))

    async def act(server: Server, client: httpx.AsyncClient) -> None:
        async def reader() -> None:
            async with client.stream("GET", f"{V1}/events", headers=SSE) as reply:
                assert await read(reply, 3) == [(1, "1"), (2, "2"), (3, "3")]

        readers = [asyncio.create_task(reader()) for _ in range(10)]
        for text in ("1", "2", "3"):
            await asyncio.sleep(0.02)
            server.note(text)
        await asyncio.gather(*readers)
        assert encoded == [1, 2, 3]

    play(tmp_path, act)


def test_who_stops_reading_is_cut_off_and_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visitor, "SLOW_S", 0.2)

    async def act(server: Server, client: httpx.AsyncClient) -> None:
        host, port = str(client.base_url).rstrip("/").removeprefix("http://").split(":")
        slow = socket.create_connection((host, int(port)))
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        asked = f"GET {V1}/events HTTP/1.1\r\nHost: {host}\r\n"
        asked += f"Accept: text/event-stream\r\nAuthorization: {AUTH['Authorization']}\r\n\r\n"
        slow.sendall(asked.encode())
        while (await client.get("/healthz")).status_code == 200:
            server.note("x" * 100_000)
            if await _readers(server, client) == 0:
                break
        slow.close()

    async def _readers(server: Server, client: httpx.AsyncClient) -> int:
        await asyncio.sleep(0.01)
        return sum(seen[0].readers.values()) if len(server.news.recent) > 20 else 1

    seen: list[stream.Feed] = []
    begin = stream.Feed.__init__

    def watched(feed: stream.Feed, *given: object) -> None:
        begin(feed, *given)  # type: ignore[arg-type]
        seen.append(feed)

    monkeypatch.setattr(stream.Feed, "__init__", watched)
    play(tmp_path, act)


def test_too_many_readers_are_told_to_come_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a role: viewers keep out no operator."""
    monkeypatch.setattr(descriptors, "PROVED_MAX", 4)
    monkeypatch.setattr(descriptors, "_between", lambda least, wanted, most: min(wanted, most))
    viewer = SSE | VIEWER

    async def act(server: Server, client: httpx.AsyncClient) -> None:
        async with (
            client.stream("GET", f"{V1}/events", headers=viewer),
            client.stream("GET", f"{V1}/events", headers=viewer),
        ):
            refused = await client.get(f"{V1}/events", headers=viewer)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
            async with client.stream("GET", f"{V1}/events", headers=SSE) as operators:
                assert operators.status_code == 200

    play(tmp_path, act)


def test_head_of_the_stream_ends_at_once(tmp_path: Path) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        head = await client.head(f"{V1}/events", headers=SSE)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-type"].startswith("text/event-stream")

    play(tmp_path, act)


def test_two_hundred_pages_at_once(tmp_path: Path) -> None:
    """Each is a snapshot, and a stream that stays."""
    raise_limit()
    pages = min(200, shares().streams)

    async def act(server: Server, client: httpx.AsyncClient) -> None:
        host, _, port = str(client.base_url).rstrip("/").removeprefix("http://").rpartition(":")
        token = f"Host: {host}\r\nAuthorization: {AUTH['Authorization']}\r\n"
        there: list[int] = []

        async def page() -> None:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"GET {V1}/status HTTP/1.1\r\n{token}\r\n".encode())
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
            ask = f"GET {V1}/events HTTP/1.1\r\n{token}Accept: text/event-stream\r\n\r\n"
            writer.write(ask.encode())
            await reader.readuntil(b'"text":"before"')
            there.append(1)
            await reader.readuntil(b'"text":"now"')
            writer.close()

        server.note("before")
        open_pages = [asyncio.create_task(page()) for _ in range(pages)]
        while len(there) < pages and not any(one.done() for one in open_pages):
            await asyncio.sleep(0.01)
        server.note("now")
        await asyncio.gather(*open_pages)

    play(tmp_path, act)
