"""No cache of the package outlives a run of the script with one of its classes as a key."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import trainmover.graph
import trainmover.state
from trainmover.state import class_caches
from trainmover.state.class_caches import forget_classes


def caches() -> Iterator[Any]:
    for room in (trainmover.state, trainmover.graph):
        for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            for value in vars(importlib.import_module(module.name)).values():
                if type(value) is type(lru_cache(len)):
                    yield value


def by_class(cache: Any) -> bool:
    """Whether classes are among its keys."""
    parameters = inspect.signature(cache).parameters.values()
    return any(one.name == "cls" or one.annotation in (type, "type") for one in parameters)


def test_every_cache_with_classes_for_keys_is_emptied_after_a_run() -> None:
    kept = [
        one.__qualname__ for one in caches() if by_class(one) and one not in class_caches._caches
    ]
    assert any(map(by_class, caches()))
    assert kept == []


def test_forgotten_classes_are_asked_again() -> None:
    class OfScript:
        pass

    asked: list[type] = []
    ask = class_caches.cached_by_class(asked.append)
    ask(OfScript)
    ask(OfScript)
    assert len(asked) == 1
    forget_classes()
    ask(OfScript)
    assert len(asked) == 2
