# SPDX-License-Identifier: Apache-2.0
"""Who may do what: tokens, sessions of a browser, and the codes that become sessions. Pure but for
chance; time is given.

    job's token  --operator-->  all
    viewer token, made from it  --viewer-->  what changes nothing

Nothing of it is kept but codes: a session is a sentence that is signed with a key made from the
token, so that the next controller knows it too. It ends at the time that it names, and cannot be
made longer: a code takes a token.
"""

import hmac
import secrets
from dataclasses import dataclass
from enum import IntEnum
from hashlib import sha256

SESSION_S = 12 * 3600.0
CODE_S = 60.0
CODES_MAX = 64


class Role(IntEnum):
    """In order: who may do more may do less too."""

    VIEWER = 1
    OPERATOR = 2

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class Asker:
    """Who asks. how: by a token or a session; peer: from where."""

    role: Role
    how: str
    peer: str

    def __str__(self) -> str:
        return f"the {self.role.word} ({self.how}) at {self.peer}"


def viewer_token(token: bytes) -> bytes:
    """Of one who may look and change nothing. Nobody can make the job's token from it."""
    return _made(token, b"viewer").encode()


def _made(token: bytes, what: bytes) -> str:
    return hmac.new(token, b"trainmover api " + what, sha256).hexdigest()


class Roles:
    """Of one job."""

    def __init__(self, token: bytes) -> None:
        self._tokens = {Role.OPERATOR: token, Role.VIEWER: viewer_token(token)}
        self._key = _made(token, b"session").encode()
        self._codes: dict[str, tuple[Role, float]] = {}

    def of_token(self, given: bytes) -> Role | None:
        """Compared in constant time, with all there are."""
        equal = [role for role, token in self._tokens.items() if hmac.compare_digest(given, token)]
        return equal[0] if equal else None

    def begin(self, role: Role, now_s: float) -> str:
        """Return what a browser shows instead of a token."""
        said = f"{role.word}.{int(now_s + SESSION_S)}.{secrets.token_hex(16)}"
        return f"{said}.{self._sign(said)}"

    def of_session(self, shown: str, now_s: float) -> Role | None:
        """None if it is none, or over."""
        said, _, signed = shown.rpartition(".")
        if not shown.isascii() or not hmac.compare_digest(signed, self._sign(said)):
            return None
        word, ends, _ = said.split(".")
        return Role[word.upper()] if now_s < int(ends) else None

    def _sign(self, said: str) -> str:
        return hmac.new(self._key, said.encode(), sha256).hexdigest()

    def code(self, role: Role, now_s: float) -> str:
        """Return a code that is good once, for a minute. Each role has a number of its own."""
        self._codes = {code: one for code, one in self._codes.items() if one[1] > now_s}
        its = [code for code, (whose, _) in self._codes.items() if whose is role]
        if len(its) >= CODES_MAX:
            del self._codes[its[0]]
        code = secrets.token_urlsafe(24)
        self._codes[code] = (role, now_s + CODE_S)
        return code

    def redeem(self, code: str, now_s: float) -> Role | None:
        """The code is used up."""
        role, ends_s = self._codes.pop(code, (None, 0.0))
        return role if now_s < ends_s else None


def looks_like_session(shown: str) -> bool:
    """Whether this was a session of some job, at some time."""
    return shown.partition(".")[0].upper() in Role.__members__ and shown.count(".") == 3
