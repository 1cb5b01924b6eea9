# SPDX-License-Identifier: Apache-2.0
"""Certificates that a command believes when it asks a run that speaks TLS."""

from typing import TYPE_CHECKING

from trainmover.errors import TrainmoverError
from trainmover.launch.runs import Run

if TYPE_CHECKING:
    import ssl


def trust(run: Run) -> "ssl.SSLContext | bool":
    """Return the certificates for httpx, which without TLS need not load the authorities of the
    whole world."""
    if run.tls is None:
        return False
    from trainmover.tls.contexts import trusting

    return trusting(run.tls.ca)


def tls_error(run: Run, error: BaseException) -> TrainmoverError | None:
    """Return what to say if a request failed because of TLS."""
    import ssl

    from trainmover.tls.refusals import Listener

    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if cause is None:
        return None
    said = Listener(run.api_url.partition("://")[2], "API").refused(cause)
    return said if isinstance(said, TrainmoverError) else None
