"""torch.compile traces rewritten code without a break, as it does the plain code."""

import subprocess
import sys
from pathlib import Path

import pytest

MODULE = """
import torch
class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(3, 3) for _ in range(3)])
    def forward(self, x):
        for i, layer in enumerate(self.layers):
            if i == 1:
                continue
            x = layer(x)
        return x
def loops(x):
    for i, y in enumerate(z for z in (x, x + 1)):
        if i == 2:
            break
        x = x + y
    else:
        x = x * 2
    n = 0
    while n < 3:
        n += 1
    else:
        x = x + n
    for i in range(3):
        for j in [1, 2]:
            if j == 2:
                continue
            x = x + i * j
            if i == 2:
                return x
def lists(x):
    both = zip((x, x + 1), map(torch.sin, (x, x)))
    return [torch.sin(y) for y in (x, x + 1)], [a + b for a, b in both]
def generated(x):
    def items():
        for i in range(2):
            yield x + i
        yield from [x, x]
    return sum(items())
"""

SCRIPT = """
import sys
from trainmover.loops.importer import LoopFinder
if "early" in sys.argv:
    import torch._dynamo
LoopFinder().install()
import compiled_module as own
import torch
assert hasattr(own, "__tm__")
x = torch.ones(3)
for function in (own.Layers(), own.loops, own.lists, own.generated):
    compiled = torch.compile(function, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), function(x))
"""


@pytest.mark.long
@pytest.mark.parametrize("when", ["early", "late"])
def test_rewritten_code_is_compiled_whole(tmp_path: Path, when: str) -> None:
    """Also where Dynamo is imported only after the finder was installed."""
    (tmp_path / "compiled_module.py").write_text(MODULE)
    (tmp_path / "script.py").write_text(SCRIPT)
    subprocess.run([sys.executable, str(tmp_path / "script.py"), when], check=True, timeout=150)
