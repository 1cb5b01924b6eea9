"""The HTTP API: what the CLI and the dashboard talk to. Loopback, and a token on every request.

GET  /api/status                 snapshot
GET  /api/events?after=N         entries above N; with Accept: text/event-stream they go on coming,
                                 id = sequence number, resumed with Last-Event-ID
POST /api/move {"machine": m, "reason": why}    when the move is done, refused or cancelled
POST /api/kill {"machine": m}                   a drill
POST /api/stop {"reason": why}                  end the job; the body may be missing, as each reason
"""

import asyncio
import contextlib
import hmac
import socket
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from trainmover.controller.effects import Answer
from trainmover.protocol.crowd import AT_ONCE, QUEUE, Crowd
from trainmover.protocol.malformed import MALFORMED
from trainmover.server.run import STOP_GRACE_S, Server
from trainmover.server.view.notices import Happened, Told
from trainmover.server.view.snapshot import incident_json
from trainmover.server.visitor import HEADERS_BYTES_MAX, Visitor, proved

if TYPE_CHECKING:
    from trainmover.tls.contexts import Tls

STOPPED_CODE = 143
DIGITS_MAX = 20
BODY_BYTES_MAX = 64 * 1024


class Kill(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a drill."""

    machine: str


class Move(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a move."""

    machine: str
    reason: str = ""


class Stop(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a stop."""

    reason: str = ""


B = TypeVar("B", Kill, Move, Stop)


class TokenRequired:
    """Refuses every request that does not carry the job's token."""

    def __init__(self, app: ASGIApp, token: bytes) -> None:
        self._app = app
        self._expected = b"Bearer " + token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._allowed(scope):
            refused = _json({"error": "This request does not carry the job's token."}, status=401)
            refused.headers["Connection"] = "close"
            await refused(scope, receive, send)
        else:
            proved(scope)
            await self._app(scope, receive, send)

    def _allowed(self, scope: Scope) -> bool:
        given: bytes = dict(scope["headers"]).get(b"authorization", b"")
        return hmac.compare_digest(given, self._expected)


class Api:
    """Serves one Server over HTTP on the running loop, from `start` to `close`."""

    def __init__(self, server: Server, token: bytes, tls: "Tls | None" = None) -> None:
        self._server = server
        app = TokenRequired(_application(server), token)
        crowd: Crowd[asyncio.Transport] = Crowd()

        def visitor(**given: Any) -> asyncio.Protocol:
            visitor = Visitor(crowd, **given)
            return visitor if tls is None else tls.behind(visitor, crowd.heard)

        config = uvicorn.Config(
            app,
            http=visitor,  # type: ignore[arg-type]  # it makes connections
            h11_max_incomplete_event_size=HEADERS_BYTES_MAX,
            backlog=AT_ONCE,
            log_level="critical",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
            ws="none",
        )
        self._uvicorn = _QuietUvicorn(config)
        self._task: asyncio.Task[None] | None = None

    async def start(self, listener: socket.socket) -> None:
        self._task = asyncio.create_task(self._uvicorn.serve(sockets=[listener]))
        while not self._uvicorn.started and not self._task.done():
            await asyncio.sleep(0.001)
        if not self._task.done():
            listener.listen(QUEUE)

    async def close(self) -> None:
        """Finish what is being answered, at most a second."""
        self._uvicorn.should_exit = True
        if self._task is not None:
            await self._task


class _QuietUvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the host's business."""
        yield


def _application(server: Server) -> Starlette:
    return Starlette(routes=_routes(server), exception_handlers={HTTPException: _refused})


async def _refused(request: Request, error: Exception) -> Response:
    """What is wrong with a request, as JSON like all answers."""
    assert isinstance(error, HTTPException)
    refused = _json({"error": error.detail}, status=error.status_code)
    refused.headers.update(error.headers or {})
    return refused


def _routes(server: Server) -> list[Route]:
    async def status(request: Request) -> Response:
        return _json(server.status())

    async def events(request: Request) -> Response:
        after = request.headers.get("last-event-id") or request.query_params.get("after", "0")
        if not after.isascii() or not after.isdigit() or len(after) > DIGITS_MAX:
            return _json({"error": f"after must be a sequence number, not {after!r}."}, status=400)
        if "text/event-stream" in request.headers.get("accept", ""):
            return StreamingResponse(_stream(server, int(after)), media_type="text/event-stream")
        return _json([told_json(told) async for told in server.news.since(int(after))])

    async def move(request: Request) -> Response:
        asked = await _body(request, Move)
        return await _answered(server, server.move(asked.machine, asked.reason))

    async def kill(request: Request) -> Response:
        asked = await _body(request, Kill)
        return await _answered(server, server.kill(asked.machine))

    async def stop(request: Request) -> Response:
        reason = (await _body(request, Stop, default=b"{}")).reason
        why = "asked for over the API" + (f": {reason}" if reason else "")
        server.stop(STOPPED_CODE, why, grace_s=STOP_GRACE_S)
        return _json({"ok": True, "text": "The job is stopping."})

    return [
        Route("/api/status", status),
        Route("/api/events", events),
        Route("/api/move", move, methods=["POST"]),
        Route("/api/kill", kill, methods=["POST"]),
        Route("/api/stop", stop, methods=["POST"]),
    ]


async def _answered(server: Server, asked: Awaitable[Answer]) -> Response:
    answer = await asked
    incident = None
    if answer.incident is not None:
        incident = incident_json(server.job.incidents[answer.incident - 1])
    return _json({"ok": answer.ok, "text": answer.text, "incident": incident})


async def _body(request: Request, kind: type[B], default: bytes = b"") -> B:
    """Raises HTTPException for one that is none, or too large, before it is all here."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > BODY_BYTES_MAX:
            text = f"At most {BODY_BYTES_MAX} bytes are taken."
            raise HTTPException(413, text, headers={"Connection": "close"})
    try:
        return msgspec.json.decode(body or default, type=kind)
    except MALFORMED as error:
        raise HTTPException(400, f"The body is no {kind.__name__.lower()}: {error}.") from error


async def _stream(server: Server, after: int) -> AsyncIterator[bytes]:
    """Entries above `after`, then each as it comes, until the job is over."""
    while True:
        more = server.news.more
        async for told in server.news.since(after):
            yield _line(told)
            after = told.seq
        if server.over:
            return
        await more.wait()


def _line(told: Told) -> bytes:
    return b"id: %d\ndata: %s\n\n" % (told.seq, msgspec.json.encode(told_json(told)))


def told_json(told: Told | Happened) -> dict[str, Any]:
    """One entry of the event stream."""
    return {
        "seq": told.seq,
        "at_us": told.at_us,
        "kind": told.kind,
        "text": told.text,
        "event": msgspec.to_builtins(told.event, str_keys=True),
    }


def _json(value: object, status: int = 200) -> Response:
    data = msgspec.json.encode(value)
    return Response(data, status_code=status, media_type="application/json")
