"""What is changed in place by another name is a store to where it lies."""

import ast
import textwrap

import pytest

from trainmover.state.script.code.source import read

THROUGH = [
    "for slow in self.slow:\n    slow.add_(1)",
    "for slow, p in zip(self.slow, parameters):\n    slow.mul_(0.9).add_(p)",
    "for name, slow in self.slow.items():\n    slow[0] = 1.0",
    "for at, slow in enumerate(self.slow.values()):\n    slow += at",
    "kept = self.slow[0]\nkept.copy_(x)",
    "kept = self.slow\nkept.append(x)",
    "kept = self.slow.get(name)\nkept[name] = x",
    "kept, rate = self.slow[0], 0.9\nkept.mul_(rate)",
    "(kept, rate), last = (self.slow[0], 0.9), x\nkept.mul_(rate)",
    "kept: list = self.slow[0]\nkept.append(x)",
    "first = kept = self.slow[0]\nkept.append(x)",
    "if (kept := self.slow[0]) is not None:\n    kept.append(x)",
    "kept = self.slow[0] if name else x\nkept.copy_(x)",
    "kept = name or self.slow\nkept.append(x)",
    "kept = self.slow\nlast = kept[-1]\nlast.data.copy_(x)",
    "kept = [*self.slow.values()]\nfor one in kept:\n    one.add_(x)",
    "kept = self.slow\nfor one, p in zip(kept[0], parameters):\n    one.add_(p)",
    "self.slow.data[name] = x",
    "self.slow.T[0] += x",
    "put = partial(setattr, self, 'slow')\nput(x)",
]


def stored(body: str) -> set[str]:
    text = "class Average:\n    def update(self, parameters, x, name):\n"
    text += textwrap.indent(body, " " * 8) + "\n"
    source = read(ast.parse(text))
    return source.attributes.keys() & source.by_class.get("Average", set())


@pytest.mark.parametrize("body", THROUGH)
def test_what_is_taken_out_of_an_attribute_and_changed_is_that_attribute_s(body: str) -> None:
    assert "slow" in stored(body)


@pytest.mark.parametrize(
    "body",
    [
        "for slow in self.slow:\n    print(slow.sum())",
        "for slow in self.slow.parameters():\n    slow.add_(1)",
        "kept = self.slow + 1\nkept.add_(x)",
        "kept = copy(self.slow)\nkept.append(x)",
        "kept = self.slow\nlast = kept.sum()\nlast.add_(x)",
        "kept, x = self.slow, x[0]\nx.add_(1)",
    ],
)
def test_what_is_only_read_or_is_made_anew_is_not(body: str) -> None:
    assert "slow" not in stored(body)


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("self.__init__(0.5)", True),
        ("band.__init__(0.5)", True),
        ("make = band.__init__", True),
        ("self = Band(0.5)", False),
        ("super().move(0.5)", False),
    ],
)
def test_what_a_constructor_stores_may_change_where_it_is_called_again(
    line: str, *, counts: bool
) -> None:
    text = "class Band(Base):\n    def __init__(self, low):\n        super().__init__()\n"
    text += f"        self.low = low\n    def move(self, band):\n        {line}\n"
    assert ("low" in read(ast.parse(text)).attributes) == counts


def test_a_setter_that_is_made_in_the_set_up_counts() -> None:
    source = read(ast.parse("put = partial(setattr, layer, 'rate')"))
    assert "rate" in source.by_others
    assert source.dynamic == 0
    assert read(ast.parse("put = partial(setattr, layer)")).dynamic == 1


def test_what_a_sampler_is_told_is_more_than_what_it_counts() -> None:
    text = """
class Sampler:
    def note(self, loss):
        self.sharpness = loss
    def __iter__(self):
        self.passes += 1
    def set_epoch(self, epoch):
        self.epoch = epoch
"""
    assert read(ast.parse(text)).noted == {"sharpness"}
