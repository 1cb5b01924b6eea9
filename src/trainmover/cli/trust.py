# SPDX-License-Identifier: Apache-2.0
"""Whose certificate a command believes, when it asks a run that speaks TLS."""

from typing import TYPE_CHECKING

from trainmover.errors import TrainmoverError
from trainmover.launch.runs import Run

if TYPE_CHECKING:
    import ssl


def trust(run: Run) -> "ssl.SSLContext | bool":
    """For httpx, which without TLS need not load the authorities of the whole world."""
    if run.tls is None:
        return False
    from trainmover.tls.contexts import trusting

    return trusting(run.tls.ca)


def tls_error(run: Run, error: BaseException) -> TrainmoverError | None:
    """What to say, if it is because of TLS that a request failed."""
    import ssl

    from trainmover.tls.refusals import Listener

    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if cause is None:
        return None
    said = Listener(run.api_url.partition("://")[2], "API").refused(cause)
    return said if isinstance(said, TrainmoverError) else None
