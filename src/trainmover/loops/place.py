# SPDX-License-Identifier: Apache-2.0
"""Place of a thread in the loops of its script, found by walking its frames.

Nothing is noted as loops run. Rewritten code binds each loop to a variable of its own; the loops of
a frame that are under way are those whose lines contain the frame's line. `LoopSite` has the lines.
"""

import inspect
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType
from typing import Any, NamedTuple

from trainmover.loops.rewrite import PREFIX, LoopSite
from trainmover.loops.turns import KINDS, AnyLoop, Collector

_sites: dict[str, dict[str, LoopSite]] = {}


class ActiveLoop(NamedTuple):
    """Loop under way: qualified name of its function, first line of its header, its iterator."""

    function: str
    line: int
    loop: AnyLoop


def register(path: str, sites: Iterable[LoopSite]) -> None:
    """Know the loops of rewritten code from now on; `path` is the file name that the code has."""
    _sites[path] = {site.variable: site for site in sites}


def sites_of(path: str) -> tuple[LoopSite, ...]:
    """Return the loops of a module that was rewritten, in the order of its text."""
    return tuple(_sites.get(path, {}).values())


def registered_paths() -> tuple[str, ...]:
    """Return the files whose loops are known."""
    return tuple(_sites)


def active_loops(frame: FrameType | None) -> list[ActiveLoop]:
    """Return the loops under way in a frame and its callers, the outermost first."""
    found: list[ActiveLoop] = []
    while frame is not None:
        found += reversed([*_loops_in(frame)])
        frame = frame.f_back
    return found[::-1]


def current_loop(frame: FrameType | None) -> AnyLoop | None:
    """Return the innermost loop under way in a frame and its callers."""
    while frame is not None:
        loops = [*_loops_in(frame)]
        if loops:
            return loops[-1].loop
        frame = frame.f_back
    return None


def loop_at(frame: FrameType, line: int) -> AnyLoop | None:
    """Return the loop under way in this frame with its header on this line, if there is one."""
    return next((one.loop for one in _loops_in(frame) if one.line == line), None)


def frame_of(loop: AnyLoop, frame: FrameType | None) -> FrameType | None:
    """Return the frame, of this one and its callers, in which a loop is under way."""
    while frame is not None:
        if any(one.loop is loop for one in _loops_in(frame)):
            return frame
        frame = frame.f_back
    return None


def _loops_in(frame: FrameType) -> Iterator[ActiveLoop]:
    """Give the loops of one frame, the outermost first."""
    code = frame.f_code
    sites = _sites.get(code.co_filename)
    if sites is None:
        return
    if code.co_name == "<genexpr>":
        loop = frame.f_locals.get(".0")
        if isinstance(loop, KINDS):
            yield ActiveLoop(code.co_qualname, code.co_firstlineno, loop)
    names = [name for name in _variables(code) if name in sites]
    if not names:
        return
    line, values = frame.f_lineno or 0, frame.f_locals
    for site in sorted([sites[name] for name in names], key=_order):
        loop = _loop_of(values.get(site.variable))
        if loop is not None and site.line <= line <= site.last_line:
            if site.kind == "yield from" and loop.has_ended:
                continue  # It keeps its variable.
            yield ActiveLoop(code.co_qualname, site.line, loop)


def _variables(code: CodeType) -> Iterator[str]:
    """Give the names of variables of loops that a frame of this code may have."""
    is_function = code.co_flags & inspect.CO_OPTIMIZED
    names = code.co_varnames + code.co_cellvars if is_function else code.co_names
    return (name for name in names if name.startswith(PREFIX))


def _order(site: LoopSite) -> tuple[int, int, int]:
    """Sort loops that contain one line: of two, the one that begins later is inside."""
    return site.line, -site.last_line, int(site.variable.removeprefix(PREFIX))


def _loop_of(value: Any) -> AnyLoop | None:
    if isinstance(value, Collector):
        value = value.loop
    return value if isinstance(value, KINDS) else None
