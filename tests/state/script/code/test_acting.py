"""A class whose methods change other objects than their own makes no tools."""

import ast
import textwrap

import pytest

from trainmover.state.script.code.source import read
from trainmover.state.script.code.times.acting import acting

TOOL = """
class Level:
    def lower(self): self.scale = 0.5
class Tool:
    def __init__(self, level, path):
        self.level, self.file, self.seen = level, open(path, "a"), []
    def note(self, loss, other=None):
        {line}
"""
ACTS = [
    "self.level.scale = loss",
    "self.level.scales[0] = loss",
    "self.level.scales.append(loss)",
    "self.level.lower()",
    "level = self.level; level.scale *= loss",
    "other.scale = loss",
    "global scale; scale = loss",
    "setattr(self.level, 'scale', loss)",
]
TOOLS = [
    "self.seen.append(loss)",
    "self.last = loss",
    "self.seen[0] = loss",
    "self.file.write(str(self.level.scale))",
    "row = {}; row['loss'] = loss; print(row)",
]


@pytest.mark.parametrize("line", ACTS)
def test_it_changes_others(line: str) -> None:
    assert "Tool" in acting(ast.parse(TOOL.format(line=line)))


@pytest.mark.parametrize("line", TOOLS)
def test_it_changes_itself_only(line: str) -> None:
    assert "Tool" not in acting(ast.parse(TOOL.format(line=line)))


@pytest.mark.parametrize(("line", "real"), [(ACTS[0], True), (TOOLS[0], False)])
def test_what_only_real_runs_make_of_it_is_refused(line: str, real: bool) -> None:
    text = TOOL.format(line=line) + textwrap.dedent("""
        tool = None
        if not job.is_shadow:
            tool = Tool(level, "log")
        if tool is not None:
            tool.note(1.0)
    """)
    assert ("tool" in read(ast.parse(text)).by_real) is real
