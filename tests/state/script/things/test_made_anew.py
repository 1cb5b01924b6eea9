"""Functions and classes that a script makes while it trains are told by what they are made of."""

from pathlib import Path

import captures
import pytest

MADE = {
    "a class by type": 'kept = type("Kept", (), {"rate": 0.1 * number})',
    "a class with a method that has another default": """
                def rate(self, by=number):
                    return by
                kept = type("Kept", (), {"rate": rate})""",
    "an enumeration": 'kept = enum.Enum("Kept", {"RATE": number})',
    "a named tuple with other defaults": 'kept = namedtuple("Kept", "rate", defaults=[number])',
    "a dataclass with another default": 'kept = make_dataclass("Kept", [("rate", int, number)])',
    "a dataset of torch's": "kept = TensorDataset(torch.full((2,), 1.0 * {number}))",
    "a choice of samples": "kept = Subset(DATA, [0, {number} % 3])",
    "a loader over one": "kept = DataLoader(Subset(DATA, [{number} % 3]))",
    "parts of data": "kept = ConcatDataset([Subset(DATA, [{number} % 3])])",
    "a sampler": "kept = SubsetRandomSampler([{number} % 3])",
    "a text with a tuple": 'kept = eval(f"lambda x: x in (1, {number})")',
    "a text with a set": 'kept = eval(f"lambda x: x in {{1, {number}}}")',
    "a text with a function in a function": 'kept = eval(f"lambda: lambda: {number}")',
}
SCRIPT = """
        import enum
        from collections import namedtuple
        from dataclasses import make_dataclass
        from torch.utils.data import ConcatDataset, DataLoader, Subset
        from torch.utils.data import SubsetRandomSampler, TensorDataset
        kept = None
        def main():
            global kept
            for number, (x, y) in enumerate(job.batches(DATA)):
                {line}
        main()
        """


@pytest.mark.parametrize("name", MADE)
def test_what_it_is_made_of_counts(name: str, tmp_path: Path) -> None:
    given = "{number}" if "eval(" in MADE[name] else "number"
    line = MADE[name].replace("{number}", given)
    assert "kept" in captures.names_in(tmp_path, SCRIPT.format(line=line))


@pytest.mark.parametrize("name", MADE)
def test_made_of_the_same_it_is_the_same(name: str, tmp_path: Path) -> None:
    line = MADE[name].replace("{number}", "3").replace("number", "3")
    assert "kept" not in captures.names_in(tmp_path, SCRIPT.format(line=line))
