"""The HTTP API: what is answered to whom, and what is wrong with a request."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from http_jobs import commit, training
from http_plays import AUTH, TOKEN, V1, VIEWER, WAIT_S, play

from trainmover import descriptors
from trainmover.controller.change.seats import without_machines
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.protocol.messages import Row
from trainmover.server.http import endpoints, visitor
from trainmover.server.http.endpoints import (
    BODY_BYTES_MAX,
    ENDPOINTS,
    STRANGERS_BODY_BYTES_MAX,
    Endpoint,
)
from trainmover.server.http.roles import SESSION_S, Role, Roles
from trainmover.server.http.types import Status
from trainmover.server.http.visitor import HEADERS_BYTES_MAX
from trainmover.server.run import Server
from trainmover.version import VERSION

SOON_S = 4.0
"""Before uvicorn closes a connection that has no whole request in it."""
CHANGES = [each for each in ENDPOINTS if each.role is Role.OPERATOR]
CLOSED = [each for each in ENDPOINTS if each.role is not None]


def named(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


def path_of(endpoint: Endpoint) -> str:
    return endpoint.path.replace("{number}", "1").replace("{machine}", "m1")


def test_nothing_is_said_without_a_token(tmp_path: Path) -> None:
    wrong = ["", "Bearer wrong", TOKEN.decode(), "Bearer", f"Basic {TOKEN.decode()}"]

    async def refused(client: httpx.AsyncClient, method: str, path: str, given: str) -> None:
        reply = await client.request(method, path, headers={"Authorization": given})
        assert (reply.status_code, list(reply.json())) == (401, ["error"]), path

    async def act(server: Server, client: httpx.AsyncClient) -> None:
        for given in wrong:
            await refused(client, "GET", f"{V1}/status", given)
        for each in CLOSED:
            await refused(client, each.method, path_of(each), wrong[0])
        for path in ("/nothing", f"{V1}/openapi.json", f"{V1}/move"):
            await refused(client, "GET", path, wrong[1])

    play(tmp_path, act)


def test_healthz_and_the_page_need_none_and_say_nothing_of_the_run(tmp_path: Path) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        del client.headers["Authorization"]
        assert (await client.get("/healthz")).json() == {"ok": True, "over": False}

    play(tmp_path, act)


def test_losses_come_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "LOSSES_MAX", 2)
    monkeypatch.setattr(endpoints, "LOSSES_PART", 1)

    async def act(server: Server, client: httpx.AsyncClient) -> None:
        rows = [Row(step=Step(n), at_us=n, values={"loss": n / 3}) for n in (1, 2)]
        rows.append(Row(step=Step(3), at_us=3, values={"loss": math.nan}))
        server._journal.append_rows(Rank(1), Epoch(2), rows)
        commit(server, 3, first=True)
        first = (await client.get(f"{V1}/losses?rank=1")).json()
        assert [(one["step"], one["values"]["loss"]) for one in first] == [(1, 1 / 3), (2, 2 / 3)]
        rest = (await client.get(f"{V1}/losses?rank=1&after=2")).json()
        assert rest == [{"rank": 1, "step": 3, "values": {"loss": "nan"}}]
        for none in ("rank=7", f"after={10**18 - 1}", f"rank={10**18 - 1}"):
            assert (await client.get(f"{V1}/losses?{none}")).json() == []
        assert (await client.get(f"{V1}/losses?after=-1")).status_code == 400

    play(tmp_path, act, training(2))


def test_a_viewer_changes_nothing(tmp_path: Path) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        client.headers.update(VIEWER)
        assert (await client.get(f"{V1}/status")).status_code == 200
        assert (await client.get("/metrics")).status_code == 200
        for each in CHANGES:
            reply = await client.post(each.path, json={"machine": "m1"})
            assert reply.status_code == 403
            assert "operator" in reply.json()["error"]
        assert not server.over

    play(tmp_path, act)


def test_status_is_a_snapshot(tmp_path: Path) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        status = (await client.get(f"{V1}/status")).json()
        assert (status["run"], status["phase"], status["machines"]) == ("r", "gathering", [])
        assert status["version"] == VERSION
        server.note("news")
        assert (await client.get(f"{V1}/status")).json()["seq"] == 1
        msgspec.convert(status, Status)

    play(tmp_path, act)


def test_a_request_that_is_refused_says_why_and_who_asked_is_in_the_journal(tmp_path: Path) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        for what in ("move", "kill", "drain", "cordon", "uncordon", "health"):
            body = {"machine": "m9"} | ({} if what == "kill" else {"reason": "its fan"})
            answer = (await client.post(f"{V1}/{what}", json=body)).json()
            assert answer["ok"] is False
            assert answer["text"]
        plans = {"roll": {"machines": ["m9"]}, "place": {"seats": ["m9"]}, "plan": {"going": True}}
        for what, asked_for in plans.items():
            answer = (await client.post(f"{V1}/{what}", json=asked_for)).json()
            assert (answer["ok"], "nothing was done" in answer["text"].lower()) == (False, True)
        texts = [told.text for told in server.news.recent]
        for what in ("move m9 (its fan)", "kill m9", "drain m9 (its fan)", "cordon m9 (its fan)"):
            asked = [text for text in texts if text.endswith(f"asks: {what}")]
            assert asked
            assert asked[0].startswith("the operator (token) at 127.0.0.1:")

    play(tmp_path, act)


@pytest.mark.parametrize(
    ("seats", "ok", "said"),
    [
        (["m3", "m2"], True, "Placement 1 begins"),
        (["m9", "m2"], False, "There is no machine m9."),
        (["m1"], False, "1 machines were named for 2 slots."),
        (["m1", "m1"], False, "m1"),
    ],
)
def test_a_dry_run_of_a_placement_is_refused_as_the_placement_would_be(
    seats: list[str], ok: bool, said: str, tmp_path: Path
) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        server.control.job = training(2, 1)
        dry = (await client.post(f"{V1}/place", json={"seats": seats, "dry_run": True})).json()
        assert (dry["ok"], said in dry["text"], server.job.plan) == (ok, True, None)
        assert not [*server.news.recent]
        real = (await client.post(f"{V1}/place", json={"seats": seats})).json()
        assert real == dry

    play(tmp_path, act)


def test_a_kill_that_would_end_the_job_takes_force(tmp_path: Path) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        server.control.job = training(2, 1)
        loss = (await client.get(f"{V1}/machines/m1/loss")).json()
        assert (loss["joiners"], loss["ends"]) == ({"0": "m3"}, False)
        assert loss["text"].startswith("m3 takes rank 0 in about ")
        server.control.job = without_machines(training(2, 1), [MachineId("m3")])
        loss = (await client.get(f"{V1}/machines/m1/loss")).json()
        assert (loss["text"], loss["ends"]) == ("No standby: this ends the job.", True)
        answer = (await client.post(f"{V1}/kill", json={"machine": "m1"})).json()
        assert (answer["ok"], "trainmover kill m1 --force" in answer["text"]) == (False, True)
        assert not server.job.machines[MachineId("m1")].killed_us
        forced = {"machine": "m1", "force": True}
        assert (await client.post(f"{V1}/kill", json=forced)).json()["ok"]
        assert server.job.machines[MachineId("m1")].killed_us
        assert (await client.get(f"{V1}/machines/m9/loss")).status_code == 404

    play(tmp_path, act)


BAD_BODIES = [
    b"", b"{}", b"[]", b"nothing", b'{"machine": 1}', b'{"machine": "m", "x": 1}', b"\xff",
    b'{"machine": ""}', b'{"machine": "%s"}' % (b"m" * 201), b"[" * 5000,
    b'{"machine": "m", "reason": "%s"}' % (b"r" * 1001), b'{"machine": "m1\\nthe operator"}',
]  # fmt: skip


def test_a_bad_body_is_a_bad_request(tmp_path: Path) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        for body in BAD_BODIES:
            for what in ("move", "drain", "cordon", "uncordon", "kill", "health"):
                reply = await client.post(f"{V1}/{what}", content=body)
                assert (reply.status_code, list(reply.json())) == (400, ["error"]), body
        assert not list(server.news.recent)

    play(tmp_path, act)


def test_a_long_body_is_refused_before_it_is_here(tmp_path: Path) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65536

    async def act(server: Server, client: httpx.AsyncClient) -> None:
        for body in (b"x" * (BODY_BYTES_MAX + 1), endless()):
            with suppress(httpx.WriteError, httpx.ReadError):
                assert (await client.post(f"{V1}/move", content=body)).status_code == 413
        assert (await client.get(f"{V1}/status")).status_code == 200

    play(tmp_path, act)


def test_wrong_methods_paths_and_numbers(tmp_path: Path) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        for each in ENDPOINTS:
            for method in ("PUT", "PATCH", "DELETE", "OPTIONS"):
                reply = await client.request(method, path_of(each))
                assert (reply.status_code, list(reply.json())) == (405, ["error"]), named(each)
        session = await client.request("PUT", f"{V1}/session")
        assert set(session.headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}
        assert (await client.get("/nothing")).status_code == 404
        assert (await client.get("/api/status")).status_code == 404
        for number in ("0", "7", "99999999999999999"):
            assert (await client.get(f"{V1}/incidents/{number}")).status_code == 404
        for number in ("x", "-1", "1e3", "9" * 30, "%C2%B2"):
            assert (await client.get(f"{V1}/incidents/{number}")).status_code == 400
            assert (await client.get(f"{V1}/events?after={number}")).status_code == 400

    play(tmp_path, act)


def test_other_hosts_and_other_sites_are_refused(tmp_path: Path) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        own = str(client.base_url).rstrip("/")
        for host in (
            "evil.example",
            "evil.example:80",
            "127.0.0.1.evil.example",
            "x:y",
            "[::1",
            "",
        ):
            for path in ("/healthz", f"{V1}/status"):
                reply = await client.get(path, headers={"Host": host})
                assert reply.status_code in (400, 403), host
        for host in ("localhost:1", "127.0.0.1", "[::1]:99", "10.1.2.3:8080"):
            assert (await client.get("/healthz", headers={"Host": host})).status_code == 200
        for origin in ("https://evil.example", "null", own.replace("http", "https"), f"{own}0"):
            for method, path in (("GET", f"{V1}/status"), ("POST", f"{V1}/stop")):
                reply = await client.request(method, path, headers={"Origin": origin})
                assert reply.status_code == 403, origin
        assert (await client.get(f"{V1}/status", headers={"Origin": own})).status_code == 200
        assert not server.over

    play(tmp_path, act)


def test_a_code_becomes_a_session_once(tmp_path: Path) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        code = (await client.post(f"{V1}/codes")).json()["code"]
        del client.headers["Authorization"]
        begun = await client.post(f"{V1}/session", json={"code": code})
        assert (begun.json()["role"], begun.json()["expires_s"]) == ("operator", SESSION_S)
        assert "set-cookie" not in begun.headers, "a cookie goes to every port of a host"
        session = begun.json()["session"]
        assert TOKEN.decode() not in session
        client.headers["Authorization"] = f"Bearer {session}"
        assert (await client.get(f"{V1}/session")).json() == {"role": "operator"}
        assert (await client.post(f"{V1}/kill", json={"machine": "m9"})).json()["text"]
        again = await client.post(f"{V1}/session", json={"code": code})
        assert again.status_code == 401

    play(tmp_path, act)


def test_a_session_cannot_make_another(tmp_path: Path) -> None:
    """So it ends when it says, also for somebody who has stolen it."""

    async def act(server: Server, client: httpx.AsyncClient) -> None:
        begun = await client.post(f"{V1}/session", json={"token": TOKEN.decode()})
        client.headers["Authorization"] = f"Bearer {begun.json()['session']}"
        refused = await client.post(f"{V1}/codes")
        assert refused.status_code == 403
        assert "a session makes no other" in refused.json()["error"]
        again = await client.post(f"{V1}/session", json={"token": begun.json()["session"]})
        assert again.status_code == 401

    play(tmp_path, act)


def test_a_viewer_s_code_is_a_viewer_s_session_and_tokens_may_be_given(tmp_path: Path) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        code = (await client.post(f"{V1}/codes", headers=VIEWER)).json()["code"]
        del client.headers["Authorization"]
        begun = await client.post(f"{V1}/session", json={"code": code})
        assert begun.json()["role"] == "viewer"
        begun = await client.post(f"{V1}/session", json={"token": TOKEN.decode()})
        assert begun.json()["role"] == "operator"
        for body in ({}, {"token": "x"}, {"code": "x"}, {"token": "\u00e9" * 50}):
            assert (await client.post(f"{V1}/session", json=body)).status_code == 401

    play(tmp_path, act)


def test_a_session_ends_is_signed_and_outlives_a_controller() -> None:
    roles = Roles(TOKEN)
    cookie = roles.begin(Role.VIEWER, 1000.0)
    assert Roles(TOKEN).of_session(cookie, 1001.0) is Role.VIEWER
    assert roles.of_session(cookie, 1000.0 + 13 * 3600) is None
    assert Roles(TOKEN + b"x").of_session(cookie, 1001.0) is None
    for forged in (
        cookie.replace("viewer", "operator"),
        cookie[:-1],
        "",
        "...",
        "\u00e9",
        "a.b.c.d",
    ):
        assert roles.of_session(forged, 1001.0) is None
    code = roles.code(Role.VIEWER, 0.0)
    assert roles.redeem(code, 61.0) is None
    operators = roles.code(Role.OPERATOR, 0.0)
    codes = [roles.code(Role.VIEWER, 0.0) for _ in range(1000)]
    assert [roles.redeem(code, 1.0) for code in codes].count(Role.VIEWER) == 64
    assert roles.redeem(operators, 1.0) is Role.OPERATOR, "viewers push out no operator"


def test_an_expired_session_is_told_what_to_do(tmp_path: Path) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        old = Roles(TOKEN).begin(Role.OPERATOR, 0.0)
        client.headers["Authorization"] = f"Bearer {old}"
        reply = await client.get(f"{V1}/status")
        assert reply.status_code == 401
        assert "trainmover dashboard" in reply.json()["error"]

    play(tmp_path, act)


def test_strangers_who_try_to_change_something_are_told_of(tmp_path: Path) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        for _ in range(20):
            await client.post(f"{V1}/stop", headers={"Authorization": "Bearer x"})
        texts = [told.text for told in server.news.recent]
        assert texts[0].startswith(
            f"the API refused POST '{V1}/stop' without a token from 127.0.0.1:"
        )
        assert len(texts) < 20

    play(tmp_path, act)


def test_what_strangers_ask_for_is_quoted(tmp_path: Path) -> None:
    """It is theirs: it forges no line of the journal, and steers no terminal."""

    async def act(server: Server, client: httpx.AsyncClient) -> None:
        del client.headers["Authorization"]
        await client.post("/x%1b%5d0;PWNED%07%1b%5b31m%0a07:13:00.000%20the%20operator%e2%80%ae")
        (text,) = (told.text for told in server.news.recent)
        assert text.startswith(
            r"the API refused POST '/x\x1b]0;PWNED\x07\x1b[31m\n07:13:00.000 the operator\u202e' "
            "without a token from 127.0.0.1:"
        )

    play(tmp_path, act)


def test_bounds_of_headers_and_bodies_are_exact(tmp_path: Path) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        large = {"X-Large": "x" * HEADERS_BYTES_MAX}
        for headers in (large, large | {"Authorization": "Bearer x"}):
            reply = await client.get(f"{V1}/status", headers=headers)
            assert reply.status_code in (400, 431)  # 400 where it comes in parts.
        small = {"X-Large": "x" * (HEADERS_BYTES_MAX - 1000)}
        assert (await client.get(f"{V1}/status", headers=small)).status_code == 200
        del client.headers["Authorization"]
        for length, code in ((100, 401), (STRANGERS_BODY_BYTES_MAX, 413)):
            body = b'{"token": "' + b"x" * length + b'"}'
            assert (await client.post(f"{V1}/session", content=body)).status_code == code

    play(tmp_path, act)


@pytest.mark.parametrize("tail", ["\n", "\x7f", "\x9b31m", "\u202etxt", "\u2028", "\u200b"])
def test_a_name_or_a_reason_is_one_line_that_can_be_seen(tmp_path: Path, tail: str) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        for asked in ({"machine": "m1", "reason": f"tests{tail}"}, {"machine": f"m1{tail}"}):
            reply = await client.post(f"{V1}/cordon", json=asked)
            assert reply.status_code == 400
            assert "Expected one line of characters that can be seen" in reply.json()["error"]
        assert not server.job.cordoned
        reply = await client.post(f"{V1}/cordon", json={"machine": "m1", "reason": "Schöße 😀"})
        assert reply.status_code == 200

    play(tmp_path, act)


def test_what_a_proved_peer_holds_back_or_does_not_read_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visitor, "REQUEST_S", 0.2)
    token = f"Authorization: {VIEWER['Authorization']}"
    whole = f"GET {V1}/status HTTP/1.1\r\nHost: 127.0.0.1\r\n{token}\r\n\r\n"
    post = f"POST {V1}/session HTTP/1.1\r\nHost: 127.0.0.1\r\n{token}\r\n"  # It reads the body.
    held = [post + "Content-Length: 9\r\n\r\n{", whole + whole[:-2], whole + post]
    held += [post + "Transfer-Encoding: chunked\r\n\r\n5\r\n{"]

    async def act(server: Server, client: httpx.AsyncClient) -> None:
        for said in held:
            reader, writer = await asyncio.open_connection(*address_of(client))
            writer.write(said.encode())
            with suppress(ConnectionError):
                async with asyncio.timeout(SOON_S):
                    await reader.read()  # Until the end.
            writer.close()

    play(tmp_path, act)


def test_a_viewer_s_connections_leave_the_operator_s_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "PROVED_MAX", 2)
    monkeypatch.setattr(descriptors, "_between", lambda least, wanted, most: min(wanted, most))

    async def act(server: Server, client: httpx.AsyncClient) -> None:
        async with AsyncExitStack() as stack:
            url = str(client.base_url)
            viewers = [
                await stack.enter_async_context(
                    httpx.AsyncClient(base_url=url, headers=VIEWER, trust_env=False)
                )
                for _ in range(3)
            ]
            codes = [(await one.get(f"{V1}/status")).status_code for one in viewers]
            assert codes == [200, 200, 503]
            assert (await client.get(f"{V1}/status")).status_code == 200
            await viewers[0].aclose()
            async with asyncio.timeout(WAIT_S):
                while (await viewers[2].get(f"{V1}/status")).status_code == 503:
                    await asyncio.sleep(0.01)

    play(tmp_path, act)


def address_of(client: httpx.AsyncClient) -> tuple[str, int]:
    host, _, port = str(client.base_url).rstrip("/").removeprefix("http://").rpartition(":")
    return host, int(port)


def test_stop_ends_the_job(tmp_path: Path) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        assert (await client.post(f"{V1}/stop", json={"reason": "enough"})).json()["ok"]
        assert (await server.ended)[0] == 143
        assert (await client.get("/healthz")).json()["over"]

    play(tmp_path, act)


def test_the_document_is_valid_and_describes_every_endpoint(tmp_path: Path) -> None:
    validator = pytest.importorskip("openapi_spec_validator", reason="it is a tool of developers")
    described: dict[str, Any] = {}

    async def act(server: Server, client: httpx.AsyncClient) -> None:
        described.update((await client.get(f"{V1}/openapi.json", headers=VIEWER)).json())

    play(tmp_path, act)
    validator.validate(described)
    there = {(how.upper(), path) for path, each in described["paths"].items() for how in each}
    assert there == {(each.method, each.path) for each in ENDPOINTS}
    schemas = described["components"]["schemas"]
    assert schemas["Ask"]["properties"]["machine"]["maxLength"] == 200
    assert {"Status", "IncidentOf", "Entry", "Pulse", "Error"} <= set(schemas)


def test_events_can_be_asked_for_after_a_number(tmp_path: Path) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        for text in ("one", "two", "three"):
            server.note(text)
        events = (await client.get(f"{V1}/events?after=1", headers=AUTH)).json()
        assert [(event["seq"], event["text"]) for event in events] == [(2, "two"), (3, "three")]

    play(tmp_path, act)
