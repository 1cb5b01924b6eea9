# SPDX-License-Identifier: Apache-2.0
"""Iterators between the script and its data that keep something of what went through them.

`itertools.cycle` has the batches of the first pass and gives them again, `islice` a count,
`pairwise` the last one. That lies in no variable and in no frame, and who takes a rank begins with
an empty one: it goes on with other batches. Iterators written in Python are generators of the
script's own, whose frames are looked at like all others.

`zip(rates(), job.batches(loader))` has a rate already while it fetches: what a generator has given
so, and has not made of its own locals alone, lies nowhere either; nor has a `map` over a function
that reads more, or an iterator of the script's own class.
"""

import dis
import gc
import inspect
import itertools
from collections.abc import Iterable, Iterator
from functools import partial
from types import CodeType, FrameType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

from trainmover.installed import is_installed
from trainmover.state.script.things.held import closed_over

_NAMES = "accumulate batched cycle dropwhile groupby islice pairwise _tee _tee_dataobject"
_KEEPING = tuple(vars(itertools)[name] for name in _NAMES.split() if hasattr(itertools, name))
_PASSING = (
    enumerate,
    filter,
    map,
    zip,
    itertools.chain,
    itertools.compress,
    itertools.filterfalse,
    itertools.starmap,
    itertools.takewhile,
    itertools.zip_longest,
    tuple,  # In which zip and map have theirs.
)
_OURS = __name__.partition(".")[0]
_LOADS_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD")
_AT_ONCE = (map, zip, itertools.zip_longest)
_DEPTH_MAX = 8


def keeping(source: object, frames: Iterable[FrameType]) -> list[str]:
    """Names of those that `source` feeds, also by way of others, or of generators among the frames.

    It goes through all objects of the process: for a run in the sandbox, not for a rank's steps.
    """
    fed: list[object] = [source, *_generators_of(frames)]
    found: list[str] = []
    for _ in range(_DEPTH_MAX):
        known = {*map(id, fed)}
        fed = [one for one in gc.get_referrers(*fed) if isinstance(one, _KEEPING + _PASSING)]
        fed = [one for one in fed if id(one) not in known]
        found += [_name(one) for one in fed if isinstance(one, _KEEPING)]
        found += [name for one in fed if type(one) is tuple for name in _given_before(one, known)]
        if not fed:
            break
    return sorted(set(found))


def _generators_of(frames: Iterable[FrameType]) -> Iterator[object]:
    """That run in these frames: what iterates over one refers to it, and not to what it has."""
    own = [frame for frame in frames if frame.f_code.co_flags & inspect.CO_GENERATOR]
    for one in gc.get_objects() if own else ():
        if type(one) is GeneratorType and any(one.gi_frame is frame for frame in own):
            yield one


def _given_before(iterators: tuple[object, ...], fed: set[int]) -> Iterator[str]:
    """Of those that a `zip` goes through at once, and that it has asked before the one that feeds
    it: generators that make what they give of more than their own locals."""
    if not any(isinstance(one, _AT_ONCE) for one in gc.get_referrers(iterators)):
        return
    for one in itertools.takewhile(lambda its: id(its) not in fed, iterators):
        if name := _made_of_more(one, set()):
            yield f"{name} in a zip"


def _made_of_more(value: Any, seen: set[int]) -> str:
    """Its name, or that of what it gets its own from: a generator or a function that reads more
    than its own locals, an iterator of a class of the script's; "" if it is none."""
    if id(value) in seen:
        return ""
    seen.add(id(value))
    kind = type(value)
    if kind is GeneratorType:
        frame = value.gi_frame
        around = {} if frame is None else {**frame.f_globals, **frame.f_locals}
        more = _reads_more(value.gi_code, around, seen)
        return f"{value.gi_code.co_name}()" if more else ""
    if kind is FunctionType:
        code, around = value.__code__, value.__globals__
        own = not is_installed(code.co_filename)
        more = own and _reads_more(code, {**around, **closed_over(value)}, seen)
        return f"{code.co_name}()" if more else ""
    if kind is MethodType:
        return _made_of_more(value.__func__, seen)
    following = vars(kind).get("__next__") or vars(kind).get("__call__")
    if type(following) is FunctionType:
        of_others = kind.__module__.startswith(_OURS) or is_installed(
            following.__code__.co_filename
        )
        return "" if of_others else f"{kind.__name__}()"
    if not (hasattr(kind, "__next__") or kind is partial):
        return ""
    within = (_made_of_more(one, seen) for one in _taken_from(value))
    return next(filter(None, within), "")


def _taken_from(iterator: object) -> Iterator[object]:
    """By one that is written in C: what it goes through, and the function that it calls."""
    for one in gc.get_referents(iterator):
        yield from one if type(one) is tuple else (one,)


def _reads_more(code: CodeType, around: dict[str, object], seen: set[int]) -> bool:
    """Whether it reads an attribute of anything but a library's module, or a variable that is no
    function, class or module; or calls a function of the script's that does."""
    value: object = None
    for step in dis.get_instructions(code):
        if step.opname in _LOADS_ATTRIBUTE:
            if not (isinstance(value, ModuleType) and _is_of_library(value)):
                return True
            value = vars(value).get(step.argval)
        elif step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"):
            value = around.get(step.argval)
            if type(value) is FunctionType:
                if _made_of_more(value, seen):
                    return True
            elif not (value is None or isinstance(value, type | ModuleType) or callable(value)):
                return True
        elif step.opname not in ("CACHE", "PUSH_NULL"):
            value = None
    return False


def _is_of_library(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return file is None or is_installed(file)


def _name(iterator: object) -> str:
    """Without what marks the parts of `tee` that are not called so."""
    return f"itertools.{type(iterator).__name__.strip('_').partition('_')[0]}"
