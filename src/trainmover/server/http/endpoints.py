# SPDX-License-Identifier: Apache-2.0
"""What can be asked of a live run: one table, from which requests are served and described.

Everything is at /api/v1, but what others expect elsewhere: /healthz, /metrics, and the page at /.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from trainmover.controller.effects import Answer as Answered
from trainmover.controller.events import Granted
from trainmover.escaping import ONE_LINE
from trainmover.ids import MachineId, Rank, Step
from trainmover.journal.rows import CommittedRow, numbers
from trainmover.protocol.malformed import MALFORMED
from trainmover.server.http import types
from trainmover.server.http.answers import as_json, encoded
from trainmover.server.http.guard import asker_of, peer_of
from trainmover.server.http.metrics import CONTENT_TYPE, Metrics
from trainmover.server.http.roles import CODE_S, SESSION_S, Role, Roles
from trainmover.server.http.stream import CONTENT_TYPE as EVENT_STREAM
from trainmover.server.http.stream import EventStream, Feed, entry
from trainmover.server.run import STOP_GRACE_S, Server
from trainmover.server.view.engine import Queued
from trainmover.server.view.redundancy import loss_json
from trainmover.server.view.snapshot import incident_json

V1 = "/api/v1"
LOSSES_MAX = 1000
"""Steps in one answer."""
LOSSES_PART = 20
"""Steps that are read in one go: these hold up the controller for some milliseconds."""
STOPPED_CODE = 143
DIGITS_MAX = 18
BODY_BYTES_MAX = 256 * 1024
"""A placement names all machines of a job."""
STRANGERS_BODY_BYTES_MAX = 8 * 1024
"""A token or a code, without having proved one."""

B = TypeVar("B", bound=msgspec.Struct)


@dataclass(frozen=True)
class Live:
    """What requests are about."""

    server: Server
    roles: Roles
    feed: Feed
    metrics: Metrics


@dataclass(frozen=True)
class Endpoint:
    """role: the least; None: anybody's. body, answer: types. optional_body: it may be missing.

    query   name, what it means, its schema
    stream  what server-sent events carry, one of these, if it is asked for them
    """

    method: str
    path: str
    summary: str
    role: Role | None
    serve: Callable[[Live, Request], Awaitable[ASGIApp]]
    answer: Any
    body: type[msgspec.Struct] | None = None
    optional_body: bool = False
    query: tuple[tuple[str, str, Mapping[str, Any]], ...] = ()
    stream: tuple[Any, ...] = ()
    content_type: str = "application/json"


# --- looking --------------------------------------------------------------------------------------


async def _healthz(live: Live, request: Request) -> Response:
    return as_json(types.Healthy(ok=True, over=live.server.over))


async def _metrics(live: Live, request: Request) -> Response:
    return Response(live.metrics.text(), media_type=CONTENT_TYPE)


async def _status(live: Live, request: Request) -> Response:
    return encoded(live.feed.status())


async def _incident(live: Live, request: Request) -> Response:
    number = _number(request.path_params["number"], "The number of an incident")
    job = live.server.job
    incident = live.server.incidents.of(job, number)
    if incident is None:
        were = job.incidents[-1].number if job.incidents else 0
        raise HTTPException(404, f"There is no incident {number}; there were {were}.")
    return as_json(incident_json(incident))


async def _events(live: Live, request: Request) -> ASGIApp:
    given = request.headers.get("last-event-id") or request.query_params.get("after", "0")
    after = _number(given, "after")
    if EVENT_STREAM not in request.headers.get("accept", ""):
        return as_json([entry(told) async for told in live.server.news.since(after)])
    if request.method == "HEAD":
        return Response(media_type=EVENT_STREAM)
    role = asker_of(request.scope).role
    if live.feed.readers[role] >= live.feed.streams_max:
        text = f"Too many read the stream as the {role.word}."
        raise HTTPException(503, text, headers={"Retry-After": "5"})
    pulses = request.query_params.get("pulse", "") == "true"
    return EventStream(live.server, live.feed, role, after, pulses=pulses)


async def _losses(live: Live, request: Request) -> Response:
    rank = _number(request.query_params.get("rank", "0"), "rank")
    after = _number(request.query_params.get("after", "0"), "after")
    rows: list[CommittedRow] = []
    for done in range(0, LOSSES_MAX, LOSSES_PART):
        most = min(LOSSES_PART, LOSSES_MAX - done)
        rows += live.server.rows_after(Rank(rank), Step(after + done), most)
        await asyncio.sleep(0)
    return as_json(
        [types.Losses(rank=row.rank, step=row.step, values=numbers(row)) for row in rows]
    )


def _number(given: str, what: str) -> int:
    if not given.isascii() or not given.isdigit() or len(given) > DIGITS_MAX:
        raise HTTPException(400, f"{what} must be a whole number, not {given[:100]!r}.")
    return int(given)


# --- changing -------------------------------------------------------------------------------------


def _asks(
    verb: str, act: Callable[[Server, types.Ask], Awaitable[Answered]]
) -> Callable[[Live, Request], Awaitable[Response]]:
    """One that names a machine, and may say why."""

    async def serve(live: Live, request: Request) -> Response:
        asked = await _body(request, types.Ask)
        _audit(live, request, f"{verb} {asked.machine}", asked.reason)
        return _answered(live, await act(live.server, asked))

    return serve


_move = _asks("move", lambda server, asked: server.move(asked.machine, asked.reason))


async def _drain(live: Live, request: Request) -> Response:
    asked = await _body(request, types.Drain)
    names = [asked.machine, *asked.also]
    _audit(live, request, f"drain {', '.join(names)}", asked.reason)
    return _answered(live, await live.server.drain(names, asked.reason, left_s=asked.left_s))


_NAMED = 16
"""In the line of who asked; the event has them all."""


async def _roll(live: Live, request: Request) -> Response:
    asked = await _body(request, types.Roll)
    names = ", ".join(asked.machines[:_NAMED]) or "all machines"
    _audit(live, request, f"roll {names}", asked.reason)
    return _answered(live, await live.server.roll(**msgspec.structs.asdict(asked)))


async def _place(live: Live, request: Request) -> Response:
    asked = await _body(request, types.Place)
    if asked.dry_run:
        return _answered(live, live.server.would_place(asked.seats))
    _audit(live, request, f"place {', '.join(asked.seats[:_NAMED])}", asked.reason)
    return _answered(live, await live.server.place(asked.seats, asked.reason))


async def _plan(live: Live, request: Request) -> Response:
    asked = await _body(request, types.Steer)
    _audit(live, request, f"the plan is to {'go on' if asked.going else 'stop'}", asked.reason)
    return _answered(live, await live.server.steer(going=asked.going, reason=asked.reason))


_cordon = _asks("cordon", lambda server, asked: server.cordon(asked.machine, asked.reason))
_examine = _asks("health", lambda server, asked: server.examine(asked.machine))
_uncordon = _asks("uncordon", lambda server, asked: server.uncordon(asked.machine))


async def _kill(live: Live, request: Request) -> Response:
    """One that would end the job takes force: whoever asks may not know that a standby is gone."""
    asked = await _body(request, types.Kill)
    _audit(live, request, f"kill {asked.machine}")
    loss = loss_json(live.server.job, MachineId(asked.machine))
    if loss["ends"] and not asked.force:
        text = (
            f"{loss['text']}\nNothing was done.\n"
            f"Add a standby (trainmover add), or do it: trainmover kill {asked.machine} --force"
        )
        return as_json(types.Answer(ok=False, text=text, incident=None))
    answer = await live.server.kill(asked.machine)
    if answer.ok:
        answer = replace(answer, text=f"{answer.text} {loss['text']}")
    return _answered(live, answer)


async def _loss(live: Live, request: Request) -> Response:
    name, job = request.path_params["machine"], live.server.job
    if name not in job.machines:
        raise HTTPException(404, f"There is no machine {name[:200]}.")
    return as_json(loss_json(job, MachineId(name)))


async def _stop(live: Live, request: Request) -> Response:
    reason = (await _body(request, types.Stop, default=b"{}")).reason
    _audit(live, request, "stop", reason)
    why = "asked for over the API" + (f": {reason}" if reason else "")
    live.server.stop(STOPPED_CODE, why, grace_s=STOP_GRACE_S)
    return as_json(types.Answer(ok=True, text="The job is stopping.", incident=None))


WANTS_S = 30.0
"""For which an engine that knows the newest wants is left without an answer, at most."""


async def _wants(live: Live, request: Request) -> Response:
    after = _number(request.query_params.get("after", "0"), "after")
    within_s = _number(request.query_params.get("within", "0"), "within") / 1000
    return as_json(await live.server.wants(after, min(within_s, WANTS_S)))


async def _grants(live: Live, request: Request) -> Response:
    said = await _body(request, types.Grants)
    queue = said.queued
    places = (
        None if queue is None else {MachineId(q.machine): Queued(q.place, q.why) for q in queue}
    )
    granted = [Granted(machine=MachineId(one.machine), node=one.node) for one in said.granted]
    denied = [(one.want, one.why, one.text, one.retry_s) for one in said.denied]
    live.server.engine_answers(granted, denied, places)
    return as_json(types.Answer(ok=True, text="", incident=None))


async def _notice(live: Live, request: Request) -> Response:
    said = await _body(request, types.EngineNotice)
    live.server.engine_notices(said.machine, said.kind, said.left_s, said.text)
    return as_json(types.Answer(ok=True, text="", incident=None))


def _audit(live: Live, request: Request, what: str, reason: str = "") -> None:
    """A line in the journal, before anything is done."""
    why = f" ({reason})" if reason else ""
    live.server.note(f"{asker_of(request.scope)} asks: {what}{why}")


def _answered(live: Live, answer: Answered) -> Response:
    incident = None
    if answer.incident is not None:
        known = live.server.incidents.of(live.server.job, answer.incident)
        incident = None if known is None else incident_json(known)
    return as_json({"ok": answer.ok, "text": answer.text, "incident": incident})


# --- sessions -------------------------------------------------------------------------------------


async def _code(live: Live, request: Request) -> Response:
    asker = asker_of(request.scope)
    if asker.how != "token":
        raise HTTPException(403, "A code takes a token: a session makes no other session.")
    return as_json(types.Code(code=live.roles.code(asker.role, time.time()), expires_s=CODE_S))


async def _enter(live: Live, request: Request) -> Response:
    given = await _body(request, types.Enter, bytes_max=STRANGERS_BODY_BYTES_MAX)
    role = None
    if given.code is not None:
        role = live.roles.redeem(given.code, time.time())
    elif given.token is not None:
        role = live.roles.of_token(given.token.encode())
    if role is None:
        live.server.turned_away(f"the API refused a session to {peer_of(request.scope)}")
        why = "This code was used already, or is older than a minute. Type: trainmover dashboard"
        raise HTTPException(401, why if given.token is None else "This is no token of the job.")
    live.server.note(f"a session of the {role.word} begins at {peer_of(request.scope)}")
    session = live.roles.begin(role, time.time())
    return as_json(types.Session(role=role.word, session=session, expires_s=SESSION_S))


async def _session(live: Live, request: Request) -> Response:
    return as_json(types.Who(role=asker_of(request.scope).role.word))


async def _body(
    request: Request, kind: type[B], default: bytes = b"", *, bytes_max: int = BODY_BYTES_MAX
) -> B:
    """Raises HTTPException for one that is none, or too large, before it is all here."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > bytes_max:
            text = f"At most {bytes_max} bytes are taken."
            raise HTTPException(413, text, headers={"Connection": "close"})
    try:
        return msgspec.json.decode(body or default, type=kind)
    except MALFORMED as error:
        why = str(error).replace(f"`str` matching regex {ONE_LINE!r}", types.SEEN)
        raise HTTPException(400, f"The body is no {kind.__name__.lower()}: {why}.") from error


_NUMBER = {"type": "integer", "minimum": 0, "maximum": 10**DIGITS_MAX - 1}
_AFTER = ("after", "entries above this number; the header Last-Event-ID says the same", _NUMBER)
_PULSE = ("pulse", "the stream has an event `pulse` each second, too", {"type": "boolean"})
_RANK = ("rank", "whose; 0 if none is named", _NUMBER)
_STEP = ("after", "steps behind this one", _NUMBER)
_V, _O = Role.VIEWER, Role.OPERATOR

ENDPOINTS = (
    Endpoint("GET", "/healthz", "Whether the controller answers.", None, _healthz, types.Healthy),
    Endpoint("GET", "/metrics", "For Prometheus.", _V, _metrics, str, content_type="text/plain"),
    Endpoint("GET", f"{V1}/status", "The whole job.", _V, _status, types.Status),
    Endpoint(
        "GET", f"{V1}/incidents/{{number}}", "One incident.", _V, _incident, types.IncidentOf
    ),
    Endpoint(
        "GET", f"{V1}/machines/{{machine}}/loss", "What the loss of a machine would mean.", _V,
        _loss, types.LossOf,
    ),
    Endpoint(
        "GET", f"{V1}/events", "What has happened, or as a stream what happens.", _V, _events,
        list[types.Entry], query=(_AFTER, _PULSE), stream=(types.Entry, types.Pulse),
    ),
    Endpoint(
        "GET", f"{V1}/losses", f"The committed losses of a rank, at most {LOSSES_MAX} steps.", _V,
        _losses, list[types.Losses], query=(_RANK, _STEP),
    ),
    Endpoint(
        "POST", f"{V1}/move", "Move a machine's ranks to a standby; answered when that is done.",
        _O, _move, types.Answer, types.Ask,
    ),
    Endpoint(
        "POST", f"{V1}/drain", "Cordon machines, then move their ranks, if any, as one change.", _O,
        _drain, types.Answer, types.Drain,
    ),
    Endpoint(
        "POST", f"{V1}/roll", "Begin to have every machine give up its ranks once.", _O, _roll,
        types.Answer, types.Roll,
    ),
    Endpoint(
        "POST", f"{V1}/place", "Begin to give slots to other machines.", _O, _place, types.Answer,
        types.Place,
    ),
    Endpoint(
        "POST", f"{V1}/plan", "Stop a roll or a placement, or let it go on.", _O, _plan,
        types.Answer, types.Steer,
    ),
    Endpoint(
        "POST", f"{V1}/cordon", "Let a machine take no ranks.", _O, _cordon, types.Answer, types.Ask
    ),
    Endpoint(
        "POST", f"{V1}/health", "Measure what it can do.", _O, _examine, types.Answer, types.Ask
    ),
    Endpoint(
        "POST", f"{V1}/uncordon", "Let it take ranks again.", _O, _uncordon, types.Answer, types.Ask
    ),
    Endpoint(
        "POST", f"{V1}/kill", "Kill a machine, as a drill.", _O, _kill, types.Answer, types.Kill
    ),
    Endpoint(
        "POST", f"{V1}/stop", "End the job in order.", _O, _stop, types.Answer, types.Stop, True
    ),
    Endpoint(
        "GET", f"{V1}/wants", "What an engine is to start and to hold, once it is another.", _V,
        _wants, types.WantsOf, query=(
            ("after", "the version that is known", _NUMBER),
            ("within", "milliseconds to wait for another one", _NUMBER),
        ),
    ),
    Endpoint(
        "POST", f"{V1}/grants", "What an engine has started, denied, or queued.", _O, _grants,
        types.Answer, types.Grants,
    ),
    Endpoint(
        "POST", f"{V1}/notices", "What becomes of a machine that an engine has granted.", _O,
        _notice, types.Answer, types.EngineNotice,
    ),
    Endpoint(
        "POST", f"{V1}/codes", "A one-time code for a session of the token's role.", _V, _code,
        types.Code,
    ),
    Endpoint(
        "POST", f"{V1}/session", "Begin a session of a browser.", None, _enter, types.Session,
        types.Enter,
    ),
    Endpoint("GET", f"{V1}/session", "Who one is.", _V, _session, types.Who),
)  # fmt: skip
