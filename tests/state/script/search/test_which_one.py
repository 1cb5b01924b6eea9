"""Of several that are made alike a variable is one, and another one is another value."""

from pathlib import Path

import captures
import pytest

SCRIPT = """
import functools, weakref
class Slot:
    def __init__(self):
        self.level = 0.0
    def set(self, level):
        self.level = level
    def read(self):
        return self.level
def huber(delta):
    def loss(x):
        return delta * x
    return loss
def fast(x):
    return x
def slow(x):
    return x / 2
def rule(x, factor=1.0, *, shift=0.0):
    return factor * x + shift
def gate(slot):
    return slot.level
class Fast:
    rate = 1.0
class Slow:
    rate = 0.5
class Base:
    pass
class Kind(Fast, Base):
    rule = staticmethod(fast)
    gain = property(lambda self: 1.0)
class Trainer:
    def turn(self):
        {turn}
slots, losses = [Slot(), Slot()], [huber(0.1), huber(1.0)]
fast_factor, slow_factor = lambda x: x, lambda x: x / 2
trainer = Trainer()
trainer.kept = {kept}
for x, y in job.batches(DATA):
    if x[0] > 5:
        trainer.turn()
    {each}
    print(trainer.kept, Kind.rate, Kind.rule, Kind.gain, rule(x))
"""
TURNS = [
    ("slots[0]", "self.kept = slots[1]", "trainer.kept"),
    ("losses[0]", "self.kept = losses[1]", "trainer.kept"),
    ("slots[0].read", "self.kept = slots[1].read", "trainer.kept"),
    ("fast_factor", "self.kept = slow_factor", "trainer.kept"),
    ("[*slots]", "self.kept.reverse()", "trainer.kept"),
    ("[*losses]", "self.kept = losses[::-1]", "trainer.kept"),
    ("{'a': slots[0]}", "self.kept['a'] = slots[1]", "trainer.kept"),
    ("functools.partial(gate, slots[0])", "self.kept = functools.partial(gate, slots[1])", "kept"),
    ("weakref.ref(slots[0])", "self.kept = weakref.ref(slots[1])", "trainer.kept"),
    ("0", "rule.__defaults__ = (2.0,)", "defaults of rule"),
    ("0", "rule.__kwdefaults__ = {'shift': 1.0}", "defaults of rule"),
    ("0", "Kind.rule = staticmethod(slow)", "Kind.rule"),
    ("0", "Kind.gain = property(lambda self: 2.0)", "Kind.gain"),
    ("0", "Kind.__bases__ = (Slow, Base)", "Kind.__bases__"),
]


def _names(tmp_path: Path, kept: str, turn: str, each: str = "pass") -> list[str]:
    return captures.names_in(tmp_path, SCRIPT.format(kept=kept, turn=turn, each=each))


@pytest.mark.parametrize(("kept", "turn", "name"), TURNS, ids=[turn for _, turn, _ in TURNS])
def test_another_one_is_another_value(tmp_path: Path, kept: str, turn: str, name: str) -> None:
    assert any(name in one for one in _names(tmp_path, kept, turn))


@pytest.mark.parametrize(
    ("kept", "turn", "name"), TURNS[:9], ids=[turn for _, turn, _ in TURNS[:9]]
)
@pytest.mark.parametrize("each", ["pass", "other = [Slot(), huber(3.0)]", "slots = [*slots]"])
def test_the_same_one_is_the_same(
    tmp_path: Path, kept: str, turn: str, name: str, each: str
) -> None:
    """Whatever else is made anew meanwhile."""
    turn = f"if job is None: {turn}"
    assert not _names(tmp_path, kept, turn, each)


@pytest.mark.parametrize("made", ["Slot()", "huber(1.0)", "Slot().read", "[Slot(), Slot()]"])
def test_one_that_is_made_anew_each_time_stands_for_itself(tmp_path: Path, made: str) -> None:
    assert not _names(tmp_path, made, f"self.kept = {made}", f"trainer.kept = {made}")
