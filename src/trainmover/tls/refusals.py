# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a certificate or with who shows it, as errors that say what to do."""

import os
import ssl
from dataclasses import dataclass

from trainmover.errors import ProtocolError, TrainmoverError, UserError

GONE = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""What comes of a peer that hung up."""
_REASONS = {
    "KEY_VALUES_MISMATCH": "the key does not belong to the certificate",
    "NO_CERTIFICATE_OR_CRL_FOUND": "there is no certificate in it",
    "NO_START_LINE": "it is not PEM",
    "PEM_LIB": "it is not PEM",
}


def unfit(what: str, error: OSError) -> UserError:
    """Of the job's own files."""
    return UserError(
        f"{what}: {_why(error)}.",
        means="Nothing was started, and nothing was connected to.",
        do="Give files that belong together (--tls-cert, --tls-key, --tls-ca), or --tls alone.",
    )


@dataclass(frozen=True)
class Listener:
    """Who was dialled: a service, at a host."""

    host: str
    purpose: str

    def refused(self, error: ssl.SSLError) -> TrainmoverError | ConnectionResetError:
        """What to raise for what came of a handshake with it, or after it."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return ProtocolError(
                f"The {self.purpose} service at {self.host} shows a certificate that is not to be "
                f"believed: {_why(error)}.",
                means="Nothing was said to it; the job did not notice.",
                do="Give the authority of this job's certificate (--tls-ca).",
            )
        if isinstance(error, GONE):
            return ConnectionResetError("the connection was closed")
        return ProtocolError(
            f"The {self.purpose} service at {self.host} does not speak TLS as this job does: "
            f"{_why(error)}.",
            means="Nothing was said to it; the job did not notice.",
            do="Both ends need TLS, or neither. Look whether the address is the job's.",
        )


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message.rstrip(".")
    if isinstance(error, ssl.SSLError):
        reason = getattr(error, "reason", "") or error.strerror or str(error)
        return _REASONS.get(reason.replace(" ", "_"), reason.lower().replace("_", " "))
    return os.strerror(error.errno) if error.errno else str(error)
