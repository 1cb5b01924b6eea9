# SPDX-License-Identifier: Apache-2.0
"""A run's certificate: a given one, looked at before anything starts, or one made for the run."""

import socket
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from trainmover.communicators import NCCL
from trainmover.errors import UserError
from trainmover.launch.options import RunOptions
from trainmover.launch.runs import RunDirectory
from trainmover.tls.files import TlsFiles

SOON = timedelta(days=30)
ANY = "0.0.0.0"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
_COVERED = "TLS: links of agents, the API, vaults and state on its way are encrypted"
_OPEN = {
    "native": f"{_COVERED}, and what ranks on different hosts exchange in collectives; "
    "torch's store on each host is not",
    "gloo": f"{_COVERED}; what ranks exchange in collectives, and torch's store on each host, are "
    "not (--comm native encrypts collectives)",
}


@dataclass(frozen=True)
class Certified:
    """files: None: the run has no TLS. notes: what the user should know of it."""

    files: TlsFiles | None
    notes: list[str]


def certified(options: RunOptions, directory: RunDirectory) -> Certified:
    """Raises UserError for files that processes of the run, or who asks it over the API, would not
    believe, and where there is nothing that encrypts collectives."""
    files = options.tls_files
    if files is None and not options.tls:
        return Certified(None, [])
    if options.gpu_comm == NCCL:
        raise UserError(
            "NCCL encrypts nothing, and --tls promises that what ranks exchange is encrypted.",
            means="Nothing was started.",
            do="Leave out --gpu-comm nccl; or --tls, where the network is your own.",
        )
    from trainmover.tls import libcrypto

    if options.comm == "native":
        libcrypto.path()
    if files is None:
        files = _made(options, directory)
    from trainmover.tls.contexts import check

    hosts = {options.bind.rpartition(":")[0], _api_host(options), LOOPBACK[0]} - {"", ANY}
    ends = min(check(files, host) for host in hosts)
    soon = ends - datetime.now(UTC) < SOON
    late = [f"the certificate ends on {ends:%Y-%m-%d}: no machine can join after that"] * soon
    return Certified(files, [_OPEN[options.comm], *late])


def _made(options: RunOptions, directory: RunDirectory) -> TlsFiles:
    if options.bind:
        raise UserError(
            "--tls makes a certificate for this host only, and --bind is for several.",
            means="Nothing was started.",
            do="Give one that names each of them: --tls-cert, --tls-key, --tls-ca",
        )
    try:
        from trainmover.tls.making import make
    except ImportError as error:
        raise UserError(
            "No certificate can be made: the package `cryptography` is missing.",
            means="Nothing was started.",
            do="pip install 'trainmover[tls]', or give one: --tls-cert, --tls-key, --tls-ca",
        ) from error
    names = (*LOOPBACK, *({_api_host(options), socket.gethostname()} - {"", ANY, *LOOPBACK}))
    return make(directory.path / "tls", directory.run_id, names)


def _api_host(options: RunOptions) -> str:
    return options.api_bind.rpartition(":")[0]
