"""Random heaps of a script: objects of every kind that lead to each other, and changes to them."""

import collections
import enum
import functools
import itertools
import random
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch


class Color(enum.Enum):
    """A member of an enumeration."""

    RED = 1
    BLUE = 2


class Plain:
    """An object with attributes."""


class Slotted:
    """An object with slots, one of them private, and a base that has some too."""

    __slots__ = ("__hidden", "__weakref__", "left", "right")

    def hide(self, value: Any) -> None:
        self.__hidden = value

    def hidden(self) -> Any:
        return self.__hidden


class Meter(Slotted):
    """Slots of a base, and a dict."""


class Table(dict[Any, Any]):
    """A dict with attributes."""


class Picky:
    """A class whose `__new__` and `__init__` want arguments."""

    def __new__(cls, size: int) -> "Picky":
        made = super().__new__(cls)
        made.made_with = size
        return made

    def __init__(self, size: int) -> None:
        self.size = size

    made_with: int


Pair = collections.namedtuple("Pair", "first second")


def counter(start: int) -> tuple[Callable[[], int], Callable[[], int]]:
    """Two functions that share a variable."""
    count = start

    def add() -> int:
        nonlocal count
        count += 1
        return count

    def read() -> int:
        return count

    return add, read


def walk_to(limit: int, held: list[Any]) -> Iterator[int]:
    """A generator whose variables are state."""
    total = 0
    for number in (turns := iter(range(limit))):
        total += number
        held.append(total)
        yield total
    del turns


MAKERS: list[Callable[[random.Random], Any]] = [
    lambda r: [],
    lambda r: {},
    lambda r: collections.OrderedDict(),
    lambda r: collections.defaultdict(list),
    lambda r: collections.deque(maxlen=r.choice([None, 3])),
    lambda r: {r.randrange(100) for _ in range(r.randrange(6))},
    lambda r: frozenset(r.randrange(100) for _ in range(3)),
    lambda r: collections.Counter(r.choices("abc", k=4)),
    lambda r: Table(),
    lambda r: Plain(),
    lambda r: Meter(),
    lambda r: Picky(r.randrange(9)),
    lambda r: types.SimpleNamespace(),
    lambda r: bytearray(r.randbytes(5)),
    lambda r: torch.tensor([r.random() for _ in range(4)]),
    lambda r: torch.nn.Parameter(torch.full((2, 2), r.random())),
    lambda r: numpy.array([r.randrange(50) for _ in range(3)]),
    lambda r: numpy.array([[], None], dtype=object),
    lambda r: torch.Generator().manual_seed(r.randrange(99)),
    lambda r: numpy.random.default_rng(r.randrange(99)),
    lambda r: numpy.random.RandomState(r.randrange(99)),
    lambda r: random.Random(r.randrange(99)),
    lambda r: counter(r.randrange(9)),
    lambda r: walk_to(5 + r.randrange(5), []),
    lambda r: itertools.count(r.randrange(9)),
    lambda r: itertools.cycle([1, 2, 3]),
    lambda r: iter([1, 2, 3, 4]),
    lambda r: enumerate(range(9)),
    lambda r: zip([1, 2, 3], iter("abc"), strict=False),
    lambda r: functools.partial(max, r.randrange(9)),
    lambda r: functools.partial(torch.sum, dim=r.randrange(2)),
    lambda r: ValueError("text", r.randrange(9)),
    lambda r: r.choice([*Color]),
    lambda r: Pair(r.random(), None),
    lambda r: torch.nn.Linear(2, 2),
    lambda r: torch.nn.BatchNorm1d(2),
]


def value(r: random.Random) -> Any:
    """A plain value."""
    return r.choice([None, True, -1, 2**70, 0.1, -0.0, float("nan"), "text", b"x", (1, "a"), 1j])


def link(r: random.Random, owner: Any, part: Any) -> None:
    """Have one object lead to another in a way that it allows."""
    match owner:
        case dict():
            owner[r.choice("abcd") if r.random() < 0.8 else r.randrange(5)] = part
        case list() | collections.deque():
            owner.append(part)
        case set():
            owner.add(r.randrange(1000))
        case Slotted():
            setattr(owner, r.choice(["left", "right"]), part)
            owner.hide(r.random())
            owner.more = part  # type: ignore[attr-defined]
        case Plain() | Picky() | types.SimpleNamespace():
            setattr(owner, r.choice("abc"), part)
        case numpy.ndarray() if owner.dtype == object:
            owner[1] = part
        case torch.Tensor() if isinstance(part, torch.Tensor) and owner.is_leaf:
            owner.note = part  # type: ignore[attr-defined]
        case _:
            pass


def change(r: random.Random, obj: Any) -> None:
    """Change an object in place, as a step may."""
    match obj:
        case torch.nn.Module():
            with torch.no_grad():
                next(obj.parameters()).add_(r.random())
            obj.train(r.random() < 0.5)
        case torch.Tensor():
            with torch.no_grad():
                obj.data = r.choice([obj.data + 1, obj.data.clone(), obj.data])
                obj.add_(0.5)
        case numpy.ndarray() if obj.dtype != object:
            obj += 1
        case bytearray():
            obj.append(r.randrange(256))
        case torch.Generator():
            torch.rand(1, generator=obj)
        case numpy.random.Generator() | numpy.random.RandomState():
            obj.normal()
        case random.Random():
            obj.gauss(0, 1)
        case (types.FunctionType() as add, _):
            add()
        case list() | collections.deque() if obj and r.random() < 0.5:
            obj.pop()
        case dict() if obj and r.random() < 0.5:
            obj.pop(r.choice([*obj]))
        case set() if obj and r.random() < 0.5:
            obj.pop()
        case BaseException():
            obj.args = (r.random(),)
        case types.GeneratorType() | enumerate() | zip() | itertools.count() | itertools.cycle():
            next(obj, None)
        case _ if type(obj) is type(iter([])):
            next(obj, None)
        case _:
            link(r, obj, value(r))


def heap(seed: int, size: int = 30) -> list[Any]:
    """Objects in an order that is the same for every seed of one script, linked at random."""
    r = random.Random(seed)
    objects = [r.choice(MAKERS)(r) for _ in range(size)]
    objects += views(r)
    for _ in range(3 * size):
        link(r, r.choice(objects), r.choice(objects) if r.random() < 0.6 else value(r))
    shared = [one for one in objects if isinstance(one, Plain)]
    objects += [weakref.ref(one) for one in shared[:2]]
    return objects


def views(r: random.Random) -> list[Any]:
    """Tensors and arrays over one memory, and a gradient."""
    base = torch.arange(12.0).reshape(3, 4) * r.random()
    parameter = torch.nn.Parameter(base[1:].clone())
    parameter.grad = torch.ones_like(parameter) * r.random()
    return [base, base[1], base.t(), base.numpy()[:, 1], parameter, parameter.detach()[0]]


def disturb(seed: int, objects: list[Any]) -> None:
    """Change, replace, remove and add at random."""
    r = random.Random(seed)
    for _ in range(2 * len(objects)):
        change(r, r.choice(objects))
    for _ in range(len(objects) // 4):
        objects[r.randrange(len(objects))] = r.choice(MAKERS)(r)
    r.shuffle(objects)
