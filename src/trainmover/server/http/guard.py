# SPDX-License-Identifier: Apache-2.0
"""Who is let in: every request goes through here before anything else looks at it.

Host     an address or a name of this host: a page that has its own name point here (DNS
         rebinding) does not come through
Origin   none, or this very page: no other site's page asks in a browser
role     of the token or session; whoever has none sees that the controller lives, and the
         page's files
"""

import ipaddress
import socket
import time
from collections.abc import Callable, Collection

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainmover.server.http.answers import refusal
from trainmover.server.http.roles import Asker, Role, Roles, looks_like_session
from trainmover.server.http.visitor import HEADERS_BYTES_MAX, prove

ASKER = "asker"
SAFE = ("GET", "HEAD", "OPTIONS")
_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"x-frame-options": b"DENY",
    b"content-security-policy": (
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
}


class Guard:
    """open_to_all: (method, path) of what needs no role. names: of this host, besides its
    addresses. refused: told of strangers who try to change something."""

    def __init__(
        self,
        app: ASGIApp,
        roles: Roles,
        *,
        tls: bool,
        open_to_all: Collection[tuple[str, str]],
        names: Collection[str] = (),
        refused: Callable[[str], None],
    ) -> None:
        self._app = app
        self._roles = roles
        self._scheme = "https" if tls else "http"
        self._open = frozenset(open_to_all)
        self._names = {"localhost", socket.gethostname().lower(), *names}
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        send = _with_headers(send)
        if _head_bytes(scope) > HEADERS_BYTES_MAX:
            why = f"The request's line and headers have more than {HEADERS_BYTES_MAX} bytes."
            await refusal(431, why, close=True)(scope, receive, send)
            return
        asker = self._asker(headers, scope)
        if asker is not None and not prove(scope, asker.role):
            await _too_many(asker.role)(scope, receive, send)
            return
        if asker is not None:
            scope["state"][ASKER] = asker
        if why := self._why_elsewhere(headers) or self._why_forged(headers):
            await refusal(403, why)(scope, receive, send)
        elif asker is None and (scope["method"], scope["path"]) not in self._open:
            await self._turn_away(headers, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _turn_away(
        self, headers: dict[bytes, str], scope: Scope, receive: Receive, send: Send
    ) -> None:
        if scope["method"] not in SAFE:
            what = f"{scope['method'][:20]} {scope['path'][:100]!r}"
            self._refused(f"the API refused {what} without a token from {peer_of(scope)}")
        had_session = looks_like_session(_bearer(headers) or "")
        over = "The session is over. Type: trainmover dashboard"
        none = "This request carries no token of the job, nor a session."
        await refusal(401, over if had_session else none, close=True)(scope, receive, send)

    def _asker(self, headers: dict[bytes, str], scope: Scope) -> Asker | None:
        given = _bearer(headers)
        if given is None:
            return None
        if (role := self._roles.of_token(given.encode("latin-1"))) is not None:
            return Asker(role, "token", peer_of(scope))
        if (role := self._roles.of_session(given, time.time())) is not None:
            return Asker(role, "session", peer_of(scope))
        return None

    def _why_elsewhere(self, headers: dict[bytes, str]) -> str:
        host = headers.get(b"host", "")
        if _is_here(host, self._names):
            return ""
        return f"Host is {host[:100]!r}: this is another one. Ask by address, or by its own name."

    def _why_forged(self, headers: dict[bytes, str]) -> str:
        origin = headers.get(b"origin")
        own = f"{self._scheme}://{headers.get(b'host', '')}"
        if origin is not None and origin.lower() != own.lower():
            return f"Another site's page has asked for this: {origin[:100]!r}."
        return ""


def peer_of(scope: Scope) -> str:
    host, port = scope.get("client") or ("?", 0)
    return f"{host}:{port}"


def _is_here(host: str, names: Collection[str]) -> bool:
    """Addresses cannot be made to point elsewhere, names can.

    >>> [_is_here(host, {"localhost"}) for host in ("10.0.0.5:80", "[::1]:80", "localhost")]
    [True, True, True]
    >>> _is_here("a.com:80", {"localhost"})
    False
    """
    name, _, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
    if not name or not (port == "" or port.isdigit()):
        name = host
    name = name.lower().removesuffix(".")
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return name in names
    return True


def _head_bytes(scope: Scope) -> int:
    """What a request has before its body, as it came but for separators."""
    headers = sum(len(name) + len(value) for name, value in scope["headers"])
    return headers + len(scope["raw_path"]) + len(scope["query_string"])


def _bearer(headers: dict[bytes, str]) -> str | None:
    kind, _, given = headers.get(b"authorization", "").partition(" ")
    return given if kind == "Bearer" else None


def _too_many(role: Role) -> Response:
    text = f"Too many connections of the {role.word}. Close some, or come again in a moment."
    refused = refusal(503, text, close=True)
    refused.headers["Retry-After"] = "5"
    return refused


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = list(message.get("headers", []))
            there = {name.lower() for name, _ in given}
            more = [(name, value) for name, value in _HEADERS.items() if name not in there]
            if b"cache-control" not in there:
                more.append((b"cache-control", b"no-store"))
            message["headers"] = given + more
        await send(message)

    return sending


def asker_of(scope: Scope) -> Asker:
    """Of a request that has come through."""
    asker: Asker = scope["state"][ASKER]
    return asker


def may(scope: Scope, role: Role) -> bool:
    """Whether whoever asks has at least this role."""
    return asker_of(scope).role >= role
