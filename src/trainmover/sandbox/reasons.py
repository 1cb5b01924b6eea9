# SPDX-License-Identifier: Apache-2.0
"""Why a script could not be run in the sandbox, in words for whoever wrote it. Pure."""

import re

_ASKS = ("EOFError", "bdb.BdbQuit")
_PORT_IN_USE = ("EADDRINUSE", "[Errno 98]", "[Errno 48]", "Address already in use")
_PORT = re.compile(r"\bport:? (\d+)")
_OUR_CLASS = re.compile(r"^trainmover\.[\w.]+: ")

AGAIN = "the script cannot run twice in one process: "
"""Said of a run that failed after another in the same process had gone well."""


def why(error: str, where: str, *, again: bool = False) -> str:
    """One line: what is wrong with the script and what would mend it.

    error  as Python shows it below the traceback; of several lines the first
    where  file and line of the script, "" if unknown
    again  see `AGAIN`
    """
    first = error.split("\n")[0]
    return (AGAIN if again else "") + _plain(first, f" at {where}" if where else "")


def _plain(error: str, at: str) -> str:
    if error.startswith(_ASKS):
        return (
            f"in the sandbox the script asks for input{at}, and there is nobody to answer "
            f"({error}): give it what it needs as an argument"
        )
    if any(sign in error for sign in _PORT_IN_USE):
        port = _PORT.search(error)
        which = f"port {port[1]}" if port else "a port"
        return (
            f"in the sandbox the script binds {which}{at} that a live rank or another process of "
            f"this host holds ({_short(error)}): let it take a free one (port 0)"
        )
    if _OUR_CLASS.match(error):
        return f"in the sandbox{at}: {_OUR_CLASS.sub('', error)}"
    return f"the script raised in the sandbox{at}: {error}"


def _short(error: str) -> str:
    return error if len(error) <= 120 else f"{error[:117]}..."
