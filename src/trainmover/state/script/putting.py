"""Plain values that a joiner's script has made otherwise on its way are put as the rank has them.

Lines between two passes run again on a joiner's way (an evaluation, and what follows from it: the
best so far, how often there was none better, a list of all), on state and values that are no
rank's. What they leave in a variable is then another than the rank's, whose record has it. A plain
value says all of itself, and so does a small collection of such, or a small tensor. It can be had
where the rank had it; who compares afterwards sees that nothing else is another.

A value may also be all that shows of what nobody can compare: the count of an object of some
library, or of a thread. Where a script keeps such, nothing is put.

    stored     lines that have run since the set-up have stored to it: it is none of the machine's
               own, as a port or the number of a file
    no target  of a loop, which shows how far an iterator is
"""

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from enum import Enum
from types import FrameType, ModuleType
from typing import Any

from torch import Tensor
from torch.utils.data import Dataset, Sampler

from trainmover.state.encode import decode
from trainmover.state.script.handles import store
from trainmover.state.script.search import Slot
from trainmover.state.script.things import BOUND, module_of
from trainmover.state.script.untracked import TRAINED
from trainmover.state.script.values import PLAIN, Entry, same

_SEEN_THROUGH = frozenset({"torch", "numpy", __name__.partition(".")[0], *sys.stdlib_module_names})
"""Packages whose objects are compared, as far as they keep anything that a step could count on."""
_ONLY_SHOW = frozenset(
    {"tqdm", "rich", "wandb", "tensorboard", "tensorboardX", "mlflow", "loguru", "structlog"}
)
_STORELESS = (list, tuple)
_ADD: dict[type, Callable[[Any, Any], None]] = {
    list: list.extend,
    deque: deque.extend,
    set: set.update,
    dict: dict.update,
}
_KNOWN = (type, ModuleType, Enum, Dataset, Sampler, *TRAINED, *BOUND)
"""What has nothing of its own, or is compared elsewhere."""


def stored(*histories: Sequence[Mapping[str, Entry]]) -> set[str]:
    """Keys of variables that have got another value from one capture to a later one.

    histories: of one process each
    """
    found = set()
    for captures in histories:
        for number, later in enumerate(captures):
            for before in captures[:number]:
                common = later.keys() & before.keys()
                found |= {key for key in common if not same(before[key], later[key])}
    return found


def to_put(
    theirs: Mapping[str, Entry], mine: Mapping[str, Entry], among: Set[str]
) -> dict[str, Any]:
    """By key what is to be in those whose value is another here, where both values say all of
    themselves. Raises ProtocolError for contents that are none."""
    both = theirs.keys() & mine.keys() & among
    others = {key for key in both if not same(theirs[key], mine[key])}
    known = {key for key in others if _says_all(theirs[key]) and _says_all(mine[key])}
    return {key: _value_of(theirs[key]) for key in known}


def _says_all(entry: Entry) -> bool:
    return type(entry) in PLAIN or len(entry) > 2


def _value_of(entry: Entry) -> Any:
    return entry if type(entry) in PLAIN else decode(entry[2])


def put(slot: Slot, frame: FrameType | None, own: object, value: object) -> None:
    """Have this value in it. What others may hold too is filled; else it is stored, as the script
    would, if there is a name to store to."""
    if slot.target or _is_filled(own, value):
        return
    if slot.of is not None:
        setattr(slot.of, slot.name, value)
    elif not isinstance(slot.owner, _STORELESS):
        store(frame if slot.owner is None else slot.owner, slot.name, value)


def _is_filled(own: Any, value: Any) -> bool:
    """Whether the very object could take what the other holds."""
    if isinstance(value, Tensor):
        fits = type(own) is Tensor and own.shape == value.shape and own.dtype == value.dtype
        if fits:
            own.detach().copy_(value)
        return fits
    if type(value) is not (list if type(own) is deque else type(own)):
        return False
    if isinstance(value, dict):
        value = {k: own[k] if _is_filled(own.get(k), one) else one for k, one in value.items()}
    if type(own) not in _ADD:
        return False
    own.clear()
    _ADD[type(own)](own, value)
    return True


def keeps_elsewhere(kept: Iterable[object], is_own: Callable[[str], bool]) -> bool:
    """Whether the script may keep something that nobody compares.

    kept: what its variables hold. is_own: whether a file is the script's
    """
    return any(map(_is_closed, _with_contents(kept))) or _has_threads(is_own)


def _with_contents(kept: Iterable[object]) -> Iterator[object]:
    for value in kept:
        yield value
        if type(value) is dict:
            yield from value.values()
        elif type(value) is list or type(value) is tuple or type(value) is set:
            yield from value


def _is_closed(value: object) -> bool:
    """Whether it is an object of some library's."""
    kind = type(value)
    package = module_of(kind).partition(".")[0]
    if package in _SEEN_THROUGH or package in _ONLY_SHOW or issubclass(kind, _KNOWN):
        return False
    file = getattr(sys.modules.get(package), "__file__", None)
    return file is None or "site-packages" in file or "dist-packages" in file


def _has_threads(is_own: Callable[[str], bool]) -> bool:
    """Whether lines of the script's run in another thread."""
    own = threading.get_ident()
    for number, frame in sys._current_frames().items():
        at: FrameType | None = frame
        while number != own and at is not None:
            if is_own(at.f_code.co_filename):
                return True
            at = at.f_back
    return False
