# SPDX-License-Identifier: Apache-2.0
"""Where a job's certificate lies. A job without TLS imports this, and nothing else of the room."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trainmover.errors import UserError

if TYPE_CHECKING:
    from trainmover.tls.contexts import Tls


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Absolute paths; PEM.

    cert  what all that listen show: the certificate, and those between it and the authority
    key   that belongs to it; for its user only, as the token
    ca    the authorities that whoever dials believes
    """

    cert: str
    key: str
    ca: str

    def read(self) -> "Tls":
        """Raises UserError for files that cannot be used."""
        from trainmover.tls.contexts import Tls

        return Tls(self)

    def flags(self) -> list[str]:
        """For the command line of an agent."""
        return ["--tls-cert", self.cert, "--tls-key", self.key, "--tls-ca", self.ca]

    def environment(self) -> dict[str, str]:
        """For a worker."""
        return {_variable(name): getattr(self, name) for name in self.__struct_fields__}

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> "TlsFiles | None":
        """None: it has no TLS."""
        given = {name: environment.get(_variable(name), "") for name in cls.__struct_fields__}
        return cls(**given) if all(given.values()) else None


def _variable(name: str) -> str:
    return f"TRAINMOVER_TLS_{name.upper()}"


def absolute(path: str) -> str:
    """As other processes, which may work elsewhere, have to be told it; "" stays that."""
    return str(Path(path).resolve()) if path else ""


def all_or_none(cert: str, key: str, ca: str) -> TlsFiles | None:
    """The files given on a command line, "" for each that was not. Raises UserError for a part."""
    given = {"--tls-cert": cert, "--tls-key": key, "--tls-ca": ca}
    missing = [flag for flag, path in given.items() if not path]
    if len(missing) == len(given):
        return None
    if missing:
        raise UserError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing.",
            means="Nothing was started.",
            do="TLS needs three files: --tls-cert, its --tls-key, and the --tls-ca to believe.",
        )
    return TlsFiles(cert=cert, key=key, ca=ca)
