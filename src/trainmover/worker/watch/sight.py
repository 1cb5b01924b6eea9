# SPDX-License-Identifier: Apache-2.0
"""Where the main thread stands, seen from another thread. Used only when it has stood for long.

The innermost frame that is ours tells what it is about: it waits in a group, fetches a batch, waits
for something of the runtime's, or it has called the script, which is where it is then.
"""

import os
import sys
import traceback
from dataclasses import dataclass
from types import FrameType

import trainmover
from trainmover.comm.calls.arguments import MESSAGES
from trainmover.comm.positions import name_of
from trainmover.torch_internals.compiling import COMPILES
from trainmover.worker.program import place_of

CALL, SCRIPT, FETCH, RUNTIME, COMPILE = "call", "script", "fetch", "runtime", "compile"
_PACKAGE = os.path.dirname(trainmover.__file__)
_COMM = os.path.join(_PACKAGE, "comm", "")
_WORKER = os.path.join(_PACKAGE, "worker", "")
_FETCHES = os.path.join(_WORKER, "data", "")
_CALLS_SCRIPT = frozenset(_WORKER + name for name in ("member.py", "api.py", "program.py"))


@dataclass(frozen=True)
class Sight:
    """where: one of the words above; call, group, place: as in `Stands`."""

    where: str
    call: str = ""
    group: str = ""
    place: str = ""


def look(thread: int) -> Sight:
    """What the thread with this number is about."""
    innermost = sys._current_frames().get(thread)
    if innermost is None:
        return Sight(RUNTIME)
    frames = _outwards(innermost)
    place = place_of(traceback.extract_stack(innermost))
    if any(frame.f_code.co_filename.endswith(COMPILES) for frame in frames):
        return Sight(COMPILE, place=place)
    ours = next((f for f in frames if f.f_code.co_filename.startswith(_PACKAGE)), None)
    where = SCRIPT if ours is None else _where(ours.f_code.co_filename)
    call, group = _call(frames) if where == CALL else ("", "")
    return Sight(where, call, group, place)


def _outwards(innermost: FrameType) -> list[FrameType]:
    frames = []
    frame: FrameType | None = innermost
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


def _where(path: str) -> str:
    if path.startswith(_COMM):
        return CALL
    if path.startswith(_FETCHES):
        return FETCH
    return SCRIPT if path in _CALLS_SCRIPT else RUNTIME


def _call(frames: list[FrameType]) -> tuple[str, str]:
    """The operation with its group, for people; and the group, if that counts such operations. As
    far as the frames of the group's methods tell."""
    for frame in frames:
        if frame.f_code.co_filename == _COMM + "shim.py" and "op" in frame.f_code.co_freevars:
            op, member = frame.f_locals["op"], frame.f_locals["self"]._member
            counted = "" if op in MESSAGES else name_of(member)
            return f"{op} of group {member.name}", counted
        if frame.f_code.co_filename == _COMM + "private.py":
            member = frame.f_locals["self"]._member
            return f"the {member.name}", name_of(member)
    return "a call of a group", ""
