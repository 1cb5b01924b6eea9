# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, as one tree. Leaf names say who must act.

    TrainmoverError
    ├── UserError        fix the call, the flag, the script; nothing that ran was harmed
    ├── PeerLost         a member or a connection is gone; the runtime recovers or says why not
    ├── ProtocolError    a peer sent what it must not: wrong token, other version, broken frame
    ├── StateMismatch    stop: going on could train on wrong data
    └── JobFailed        the job has ended without its result; carries the exit status

Every message has three parts: what happened, what it means for the job, what to do next.
"""

import re


def one_stop(text: str) -> str:
    """Of a sentence that ends in the words of another, which had a full stop already.

    >>> one_stop("Call step()..\\nSee ../a ...")
    'Call step().\\nSee ../a ...'
    >>> one_stop("Use `f()`..")
    'Use `f()`.'
    """
    return re.sub(r"(?<=[\w)\]'\"`])\.\.(?=\s|$)", ".", text)


class TrainmoverError(Exception):
    """Root of the tree. `str()` gives the parts that are known, one a line."""

    def __init__(self, happened: str, *, means: str = "", do: str = "") -> None:
        super().__init__(happened)
        self.happened = one_stop(happened)
        self.means = one_stop(means)
        self.do = one_stop(do)

    def __str__(self) -> str:
        return "\n".join(part for part in (self.happened, self.means, self.do) if part)


class UserError(TrainmoverError):
    """A call, a flag or a script that cannot be right."""


class PeerLost(TrainmoverError):
    """A member or a connection is gone."""


class StoreUnreached(PeerLost):
    """This machine does not reach the job's store, where groups meet."""


class ProtocolError(TrainmoverError):
    """A peer broke the rules of the wire: refuse it, keep everybody else."""


class StateMismatch(TrainmoverError):
    """Two copies that must be equal are not."""


class JobFailed(TrainmoverError):
    """The job has ended without its result.

    code  exit status for the command that ran the job, 1 <= code <= 255
    """

    def __init__(self, happened: str, *, means: str = "", do: str = "", code: int = 1) -> None:
        super().__init__(happened, means=means, do=do)
        self.code = code


class Unwind(BaseException):
    """Leave a run of the script: the rank lives elsewhere or goes back, or the sandbox has seen
    enough.

    Not an Exception: a script's `except Exception` lets it pass.
    """
