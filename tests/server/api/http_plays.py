"""A server, its API, and a client that knows the token, in this process."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from trainmover.controller import Job
from trainmover.journal import Journal
from trainmover.protocol.messages import JobSpec
from trainmover.server.http.api import Api
from trainmover.server.http.roles import viewer_token
from trainmover.server.run import Server, bind

TOKEN = b"0123456789abcdef-token"
AUTH = {"Authorization": f"Bearer {TOKEN.decode()}"}
VIEWER = {"Authorization": f"Bearer {viewer_token(TOKEN).decode()}"}
V1 = "/api/v1"
WAIT_S = 60.0

Act = Callable[[Server, httpx.AsyncClient], Awaitable[None]]


@asynccontextmanager
async def serving(path: Path, job: Job | None = None) -> AsyncIterator[tuple[Server, str]]:
    """job: what the controller is to think of the job."""
    spec = JobSpec(run_id="r", argv=["x"]) if job is None else job.spec
    with Journal.create(path, spec) as journal:
        server = Server(spec, TOKEN, journal)
        if job is not None:
            server.control.job = job
        await server.start(bind("127.0.0.1:0", "The controller"))
        api, listener = Api(server, TOKEN), bind("127.0.0.1:0", "The API")
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        await api.start(listener)
        try:
            async with asyncio.timeout(WAIT_S):
                yield server, url
        finally:
            await server.close()
            await api.close()


def play(path: Path, act: Act, job: Job | None = None) -> None:
    """Runs an act."""

    async def run() -> None:
        async with (
            serving(path / "j.sqlite", job) as (server, url),
            httpx.AsyncClient(base_url=url, headers=AUTH, trust_env=False) as client,
        ):
            await act(server, client)

    asyncio.run(run())
