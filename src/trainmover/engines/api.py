# SPDX-License-Identifier: Apache-2.0
"""The controller's API as an adapter uses it. The token comes from the run's file alone."""

from pathlib import Path
from typing import Any

import httpx

from trainmover.errors import PeerLost
from trainmover.launch.runs import Run
from trainmover.token_file import read_token

V1 = "/api/v1"
CONNECT_S = 5.0
ANSWER_S = 30.0


class Api:
    """One run's. Raises PeerLost while no controller answers."""

    def __init__(self, run: Run) -> None:
        verify: Any = False
        if run.tls is not None:
            from trainmover.tls.contexts import trusting

            verify = trusting(run.tls.ca)
        token = read_token(Path(run.token_file))
        self._http = httpx.Client(
            base_url=run.api_url,
            headers={"Authorization": f"Bearer {token.decode()}"},
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            trust_env=False,
            verify=verify,
        )

    def wants(self, after: int, within_s: float) -> dict[str, Any]:
        """Return all that is wanted, once it is another than `after`, or `within_s` are over."""
        query = {"after": max(after, 0), "within": round(1000 * within_s)}
        return self._asked("GET", "wants", params=query)

    def grants(self, said: dict[str, Any]) -> None:
        self._asked("POST", "grants", json=said)

    def notice(self, said: dict[str, Any]) -> None:
        self._asked("POST", "notices", json=said)

    def _asked(self, method: str, what: str, **given: Any) -> dict[str, Any]:
        try:
            reply = self._http.request(method, f"{V1}/{what}", **given)
            reply.raise_for_status()
            answer: dict[str, Any] = reply.json()
        except (httpx.HTTPError, ValueError) as error:
            raise PeerLost(
                f"The controller did not answer to {method} {what}: {error}.",
                means="The engine goes on with what it was told last.",
                do="Nothing: another controller comes, or the run has ended.",
            ) from error
        return answer
