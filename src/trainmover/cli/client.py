# SPDX-License-Identifier: Apache-2.0
"""A client of a run's HTTP API."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from trainmover.cli.trust import tls_error, trust
from trainmover.errors import PeerLost
from trainmover.launch.runs import Run
from trainmover.server.http.roles import viewer_token
from trainmover.token_file import read_token

CONNECT_S = 5.0
DIALS_MAX = 5
V1 = "/api/v1"
NOT_FOUND = 404
NEVER = 10**18 - 1
"""Number that no entry of a journal comes to."""


class Client:
    """Raises PeerLost if the run ends meanwhile, ProtocolError if it is not the one it seems."""

    def __init__(self, run: Run, *, viewer: bool = False) -> None:
        self._run = run
        token = read_token(Path(run.token_file))
        token = viewer_token(token) if viewer else token
        self._http = httpx.Client(
            base_url=run.api_url,
            headers={"Authorization": f"Bearer {token.decode()}"},
            timeout=httpx.Timeout(None, connect=CONNECT_S),
            trust_env=False,
            verify=trust(run),
        )

    def status(self) -> dict[str, Any]:
        return self._get(f"{V1}/status")  # type: ignore[no-any-return]

    def incident(self, number: int) -> dict[str, Any]:
        return self._get(f"{V1}/incidents/{number}")  # type: ignore[no-any-return]

    def loss(self, machine: str) -> dict[str, Any] | None:
        """Return what the loss of a machine would mean; None if there is no such machine."""
        with self._translated():
            reply = self._http.get(f"{V1}/machines/{quote(machine, safe='')}/loss")
            if reply.status_code == NOT_FOUND:
                return None
            reply.raise_for_status()
            return reply.json()  # type: ignore[no-any-return]

    def events(self, after: int = 0) -> list[dict[str, Any]]:
        return self._get(f"{V1}/events?after={after}")  # type: ignore[no-any-return]

    def code(self) -> dict[str, Any]:
        """Return a code for a session of a browser; good once."""
        return self.ask("codes", {})

    def ask(self, what: str, body: dict[str, Any]) -> dict[str, Any]:
        """POST move, drain, kill, stop ...; waits for the answer, however long it takes."""
        self.status()  # A connection that has proved the token is pushed out by none.
        with self._translated():
            reply = self._http.post(f"{V1}/{what}", json=body)
            reply.raise_for_status()
            answer: dict[str, Any] = reply.json()
            return answer

    def follow(self, after: int = 0) -> Iterator[dict[str, Any]]:
        """Yield entries above `after`, then each as it comes, until the run ends."""
        return self._follow(f"{V1}/events", after)

    def pulses(self) -> Iterator[dict[str, Any]]:
        """Yield what changes all the time, once a second; the last one says how the job ended."""
        said = self._follow(f"{V1}/events?pulse=true", NEVER)
        return (one for one in said if "over" in one)

    def _follow(self, path: str, after: int) -> Iterator[dict[str, Any]]:
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
        with self._translated(), self._http.stream("GET", path, headers=headers) as reply:
            reply.raise_for_status()
            for line in reply.iter_lines():
                if line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))

    def _get(self, path: str) -> Any:
        with self._translated():
            for _ in range(DIALS_MAX - 1):
                # Others that have proved nothing may push us out of it before we are heard.
                with suppress(httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
                    return self._got(path)
            return self._got(path)

    def _got(self, path: str) -> Any:
        reply = self._http.get(path)
        reply.raise_for_status()
        return reply.json()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except httpx.HTTPStatusError as error:
            raise PeerLost(
                f"Run {self._run.run_id} refused the request: {_why(error.response)}",
                means="Nothing was done; the job goes on.",
                do=f"The token in {self._run.token_file} must be the one it was started with.",
            ) from error
        except httpx.HTTPError as error:
            if (mistrust := tls_error(self._run, error)) is not None:
                raise mistrust from error
            raise PeerLost(
                f"Run {self._run.run_id} did not answer: {error or type(error).__name__}.",
                means="It has probably just ended.",
                do="See whether it lives: trainmover status",
            ) from error


def _why(reply: httpx.Response) -> str:
    """Return the answer's own words, where it has any."""
    with suppress(httpx.StreamError, ValueError, KeyError, TypeError):
        return f"{reply.json()['error']} (HTTP {reply.status_code})"
    return f"HTTP {reply.status_code}."
