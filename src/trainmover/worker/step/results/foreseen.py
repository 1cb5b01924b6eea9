# SPDX-License-Identifier: Apache-2.0
"""What a step will give, as its gate sees it: in variables of the step's function.

A rank may be lost behind its gate, before its step has returned. The step has committed then, and
what it gives has to be in the record of its gate. Mostly the script has it there already: a loss
in a variable, of which the returned number is made. The first calls show which variables those
are; each later call is compared with what its gate saw, bit for bit. What lies in none is worked
out at the gate, if it can be: see `ahead`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, NamedTuple, TypeGuard

from torch import Tensor

from trainmover.state import tensor_bytes
from trainmover.torch_internals.trees import tree_flatten, tree_unflatten
from trainmover.worker.step.results.ahead import Ahead, ahead_of
from trainmover.worker.step.results.given import BYTES_MAX, packed
from trainmover.worker.step.results.reads import NOTHING
from trainmover.worker.step.results.reported import LOOKS_MAX

VALUES = 2
"""So many that differ a number must have had: another variable is equal to it once by chance."""
AHEAD_CALLS = 3
"""In so many what was worked out ahead must have been what the function gave."""
PARTS_MAX = 8
"""Of a list in a variable: of a longer one none is looked at."""
FUNCTIONS_MAX = 64
"""So many are known: a script may make a callable object for each step."""


class _Place(NamedTuple):
    """A variable of a function, or one part of the short list that it holds.

    number  of that part; -1: all of it
    """

    code: CodeType
    name: str
    number: int


@dataclass
class _Part:
    """One number or tensor of what a function gives.

    form    its type; of a tensor of one element its shape, which a variable may have in another
    places  variables that have held it at each gate
    values  that it had, packed
    """

    form: type | tuple[int, ...]
    places: set[_Place]
    values: set[bytes]


@dataclass
class _Learned:
    """Of one function.

    spec    how what it gives is made of its parts
    ahead   what works it out at the gate; None: nothing does
    worked  in so many calls that has been what the function gave
    """

    looks: int = 0
    is_blind: bool = False
    spec: Any = None
    parts: list[_Part] = field(default_factory=list)
    is_read: bool = False
    ahead: Ahead | None = None
    worked: int = 0

    @property
    def knows(self) -> bool:
        return bool(self.parts) and all(
            one.places and len(one.values) >= VALUES for one in self.parts
        )

    @property
    def lacks(self) -> bool:
        """Whether something of it was in no variable."""
        return not all(one.places for one in self.parts)

    @property
    def works_out(self) -> bool:
        """Whether what is worked out ahead is what it gives, as far as calls have shown."""
        return self.ahead is not None and self.worked >= AHEAD_CALLS


class Foreseen:
    """Of one rank's steps.

    result  of the step under way, packed; b"" if its gate does not know

    kept: gives the tensors that steps update
    """

    def __init__(self, kept: Callable[[], Iterable[Tensor]] = tuple) -> None:
        self._kept = kept
        self.result = b""
        self._is_given = False
        self._of: dict[object, _Learned] = {}
        self._seen: dict[_Place, Tensor | float] = {}
        self._ahead = b""  # The same, worked out.

    def begin(self) -> None:
        """A step is tried."""
        self.result, self._is_given, self._seen, self._ahead = b"", False, {}, b""

    def at_gate(self, code: object, frames: Callable[[], Iterable[FrameType]]) -> None:
        """The step commits now. frames: of its function, and of what that has called."""
        learned = self._of.get(code)
        if learned is None:
            learned = self._of[code] = _Learned()
            if len(self._of) > FUNCTIONS_MAX:
                del self._of[next(iter(self._of))]
        if learned.knows:
            self.result = _made(learned, {frame.f_code: frame for frame in frames()})
            return
        if learned.lacks:
            self._work_out(learned, next((one for one in frames() if one.f_code is code), None))
        if learned.looks < LOOKS_MAX:
            learned.looks += 1
            self._seen = {
                _Place(frame.f_code, name, number): value
                for frame in frames()
                for name, held in frame.f_locals.items()
                for number, value in _parts_of(held)
            }

    def _work_out(self, learned: _Learned, frame: FrameType | None) -> None:
        """frame: of the function; None: it is no function of Python"""
        if frame is None:
            return
        if not learned.is_read:
            learned.is_read, learned.ahead = True, ahead_of(frame, self._kept())
        if learned.ahead is None:
            return
        if (given := learned.ahead.work_out(frame)) is NOTHING:
            learned.ahead = None
            return
        self._ahead = packed(given)
        if learned.works_out:
            self.result = self._ahead

    def at_return(self, result: Any) -> None:
        """The step gives this, and commits only now."""
        self.result, self._is_given = packed(result), True

    def returned(self, code: object, result: Any) -> bytes:
        """The step gives this, packed: b"" if its gate knew, or if it cannot be sent."""
        if self._is_given or (data := packed(result)) == self.result:
            return b""
        if learned := self._of.get(code):
            _learn(learned, result, self._seen)
            if data == self._ahead:
                learned.worked += 1
            elif self._ahead:
                learned.ahead = None
        self._seen = {}
        return data

    def goes_blind(self, code: object) -> bool:
        """Whether the gates of that function will not know what it gives, since its last call."""
        learned = self._of.get(code)
        if learned is None or learned.is_blind or learned.looks < LOOKS_MAX:
            return False
        if learned.knows or learned.works_out:
            return False
        learned.is_blind = True
        return True


def _learn(learned: _Learned, result: Any, seen: dict[_Place, Tensor | float]) -> None:
    """seen: the variables at its gate; none where that was believed to know, and was wrong."""
    leaves, spec = tree_flatten(result) if seen else ([], None)
    parts: list[_Part] = []
    for leaf in leaves:
        places = {place for place, value in seen.items() if _is(value, leaf)}
        parts.append(_Part(_form(leaf), places, {packed(leaf)}))
    if spec == learned.spec and [one.form for one in parts] == [one.form for one in learned.parts]:
        for now, before in zip(parts, learned.parts, strict=True):
            now.places &= before.places
            now.values |= before.values
    learned.spec, learned.parts = spec, parts


def _made(learned: _Learned, frames: dict[CodeType, FrameType]) -> bytes:
    """What the function will return, packed; b"" if one of the variables is not there."""
    leaves: list[Any] = []
    for part in learned.parts:
        place = min(part.places, key=lambda place: place[1:])
        value = _value_at(place, frames)
        part_now = _in_form(value, part.form) if _may_be_given(value) else None
        if part_now is None:
            return b""
        leaves.append(part_now)
    return packed(tree_unflatten(leaves, learned.spec))


def _parts_of(held: Any) -> Iterator[tuple[int, Tensor | float]]:
    """What a variable holds that may be given, itself or in a short list; their numbers as places
    have them."""
    if _may_be_given(held):
        yield -1, held
    elif type(held) in (list, tuple) and len(held) <= PARTS_MAX:
        for number, one in enumerate(held):
            if _may_be_given(one):
                yield number, one


def _value_at(place: _Place, frames: Mapping[CodeType, FrameType]) -> Any:
    """None: there is no such variable, or no such part."""
    if place.code not in frames:
        return None
    value = frames[place.code].f_locals.get(place.name)
    if place.number < 0:
        return value
    if not isinstance(value, list | tuple) or len(value) <= place.number:
        return None
    return value[place.number]


def _may_be_given(value: Any) -> TypeGuard[Tensor | float]:
    if isinstance(value, Tensor):
        is_small = tensor_bytes.is_plain(value) and value.nbytes <= BYTES_MAX
        return is_small and not hasattr(value, "device_mesh")
    return type(value) is float


def _is(value: Tensor | float, leaf: Any) -> bool:
    """Whether this part may be had from that variable."""
    form = _form(leaf)
    if form is Tensor:
        if not isinstance(value, Tensor) or value.shape != leaf.shape:
            return False
        return value.data_ptr() == int(leaf.data_ptr())
    made = _in_form(value, form)
    return made is not None and packed(made) == packed(leaf)


def _form(leaf: Any) -> type | tuple[int, ...]:
    if not isinstance(leaf, Tensor):
        return type(leaf)
    return tuple(leaf.shape) if leaf.numel() == 1 else Tensor


def _in_form(value: Tensor | float, form: type | tuple[int, ...]) -> Tensor | float | None:
    """A variable's value as a step gives it: `loss.item()` of a loss, `correct[0]` of one number.
    None: it cannot be had of it."""
    if not isinstance(value, Tensor):
        return value if form is float else None
    value = value.detach()
    if form is Tensor:
        return value
    if value.numel() != 1:
        return None
    if isinstance(form, tuple):
        return value.reshape(form)
    return float(value) if form is float else None
