"""Iterators between the script and its data that keep something of what went through them.

`itertools.cycle` has the batches of the first pass and gives them again, `islice` a count,
`pairwise` the last one. That lies in no variable and in no frame, and who takes a rank begins with
an empty one: it goes on with other batches. Iterators written in Python are generators of the
script's own, whose frames are looked at like all others.

`zip(rates(), job.batches(loader))` has a rate already while it fetches: what a generator has given
so, and has not made of its own locals alone, lies nowhere either.
"""

import dis
import gc
import inspect
import itertools
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType, GeneratorType, ModuleType

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
        if type(one) is GeneratorType and _reads_more(one.gi_code, one.gi_frame):
            yield f"{one.gi_code.co_name}() in a zip"


def _reads_more(code: CodeType, frame: FrameType | None) -> bool:
    """Whether it reads an attribute, or a variable that is no function, class or module."""
    around = {} if frame is None else {**frame.f_globals, **frame.f_locals}
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            return True
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"):
            value = around.get(step.argval)
            if (
                value is not None
                and not isinstance(value, type | ModuleType)
                and not callable(value)
            ):
                return True
    return False


def _name(iterator: object) -> str:
    """Without what marks the parts of `tee` that are not called so."""
    return f"itertools.{type(iterator).__name__.strip('_').partition('_')[0]}"
