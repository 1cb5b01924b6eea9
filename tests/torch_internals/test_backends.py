"""Whatever a script sets of torch's backends can be asked for, and put back."""

from collections.abc import Callable, Iterator

import pytest
import torch

from trainmover.torch_internals.distributed.backends import MIXED, backends


def values() -> dict[str, object]:
    return {name: one.ask() for name, one in backends().items()}


def put_back(values: dict[str, object]) -> None:
    for name, one in backends().items():
        if one.ask() != values[name]:
            one.set_to(values[name])


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before = values()
    yield
    put_back(before)
    assert values() == before


def of_all() -> None:
    torch.backends.fp32_precision = "tf32"


def of_products() -> None:
    torch.backends.cuda.matmul.fp32_precision = "tf32"


def of_one_kind() -> None:
    torch.backends.cudnn.conv.fp32_precision = "ieee"


def of_the_host() -> None:
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"


def the_old_way() -> None:
    torch.set_float32_matmul_precision("medium")
    torch.backends.cudnn.allow_tf32 = False


def both_ways() -> None:
    the_old_way()
    of_all()
    of_one_kind()


def switches() -> None:
    torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark
    torch.backends.cuda.enable_math_sdp(False)
    torch.backends.mha.set_fastpath_enabled(False)


CHANGES = [of_all, of_products, of_one_kind, of_the_host, the_old_way, both_ways, switches]


@pytest.mark.parametrize("change", CHANGES)
def test_it_is_seen_and_put_back(change: Callable[[], None]) -> None:
    before = values()
    change()
    assert values() != before
    put_back(before)
    assert values() == before


@pytest.mark.parametrize("change", [of_products, of_one_kind, both_ways])
def test_what_was_set_in_the_new_way_is_what_it_is_put_back_to(change: Callable[[], None]) -> None:
    change()
    between = values()
    assert MIXED in between.values(), "torch can tell: the old way need not be asked with care"
    torch.backends.fp32_precision = "ieee"
    torch.backends.cudnn.conv.fp32_precision = "tf32"
    put_back(between)
    assert values() == between
