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
    "a text with a tuple": 'kept = eval(f"lambda x: x in (1, {number})")',
    "a text with a set": 'kept = eval(f"lambda x: x in {{1, {number}}}")',
    "a text with a function in a function": 'kept = eval(f"lambda: lambda: {number}")',
}
SCRIPT = """
        import enum
        from collections import namedtuple
        from dataclasses import make_dataclass
        kept = None
        def main():
            global kept
            for number, (x, y) in enumerate(job.batches(DATA)):
                {line}
        main()
        """


@pytest.mark.parametrize("name", MADE)
def test_what_it_is_made_of_counts(name: str, tmp_path: Path) -> None:
    assert "kept" in captures.names_in(tmp_path, SCRIPT.format(line=MADE[name]))


@pytest.mark.parametrize("name", MADE)
def test_made_of_the_same_it_is_the_same(name: str, tmp_path: Path) -> None:
    line = MADE[name].replace("{number}", "3").replace("number", "3")
    assert "kept" not in captures.names_in(tmp_path, SCRIPT.format(line=line))
