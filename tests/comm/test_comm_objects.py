"""Objects that others have sent: what stands for them on the way of a run that comes by later."""

import pickle
from typing import Any

import pytest
import torch
from torch import Tensor

from trainmover.comm.objects import BYTES_MAX, KEPT_MAX, Objects, goes_with_record
from trainmover.errors import StateMismatch


def pickled(value: object) -> Tensor:
    return torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)


def come(objects: Objects, *values: object) -> None:
    """All at this one line."""
    for value in values:
        tensor = pickled(value)
        objects.came(tensor, tensor.numel())


def once_more(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> Any:
    """At the line of `come`."""
    (line,) = objects._came or [""]
    monkeypatch.setattr("trainmover.comm.objects.line_of_script", lambda: line)
    tensor, size = objects.once_more()
    return pickle.loads(bytes(tensor[:size].tolist()))


def test_who_takes_a_rank_is_given_what_came_to_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    rank, joiner = Objects(), Objects()
    assert rank.kept() == []
    come(rank, *range(KEPT_MAX + 2))
    joiner.stand_with(rank.kept())
    given = [once_more(joiner, monkeypatch) for _ in range(KEPT_MAX)]
    assert given == list(range(2, KEPT_MAX + 2))
    assert joiner.kept() == rank.kept()


def test_what_came_to_a_run_itself_is_nearer(monkeypatch: pytest.MonkeyPatch) -> None:
    rank, joiner = Objects(), Objects()
    for objects, value in ((rank, "there"), (joiner, "here")):
        come(objects, value)
    joiner.stand_with(rank.kept())
    assert once_more(joiner, monkeypatch) == "here"


def test_large_ones_do_not_go_with_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    rank, joiner = Objects(), Objects()
    come(rank, b"x" * BYTES_MAX)
    assert rank.kept() == []
    joiner.stand_with(rank.kept())
    with pytest.raises(StateMismatch, match="Nobody keeps the object"):
        once_more(joiner, monkeypatch)


def unpickles(size: int) -> bool:
    return goes_with_record(size)


def broadcast_object_list(size: int) -> bool:
    return unpickles(size)


def all_gather_object(size: int) -> bool:
    return unpickles(size)


def test_a_live_rank_keeps_nothing_that_no_record_takes() -> None:
    assert broadcast_object_list(BYTES_MAX)
    assert not broadcast_object_list(BYTES_MAX + 1)
    assert not all_gather_object(1)


def test_a_damaged_record_gives_nothing_to_unpickle() -> None:
    joiner = Objects()
    joiner.stand_with([("train.py line 3", b"")])
    assert joiner.kept() == []


def test_the_end_of_a_run_forgets_them() -> None:
    rank = Objects()
    come(rank, 1)
    rank.forget()
    assert rank.kept() == []
