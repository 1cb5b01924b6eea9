"""A list of times by whose length the script counts is a variable, and one for a mean is none."""

import ast
import textwrap

import pytest

from trainmover.state.script.code.source import read

TIMER = textwrap.dedent("""
    import time
    class Timer:
        def __init__(self):
            self.times = []
        def tick(self):
            self.times.append(time.time() - self.last)
            self.last = time.time()
            {line}
        def report(self):
            print("mean", sum(self.times) / len(self.times))
        def mean(self):
            n = len(self.times)
            return sum(self.times) / n if n else 0.0
        def left(self):
            if len(self.times) < 3:
                return None
            return 10 * (sum(self.times) / max(1, len(self.times)))
""")
SHOWN = [
    "pass",
    "if len(self.times) > 100: self.times.pop(0)",
    "if len(self.times) > 100: del self.times[0]",
    "if len(self.times) % 5 == 0: print(len(self.times))",
    "if len(self.times) == 50: self.report(); self.times = []",
    "if len(self.times) > 5: mean = sum(self.times) / len(self.times); print(mean)",
    "text = f'{len(self.times)} steps'",
    "self.middle = sorted(self.times)[len(self.times) // 2]",
    "for i in range(len(self.times)): print(self.times[i])",
    "mean = sum(self.times[-10:]) / min(10, len(self.times))",
    "log.info('%d steps', len(self.times))",
    "if len(self.times) > 5: return sum(self.times)",
]
COUNTS = [
    "rate = 0.1 if len(self.times) > 10 else 1.0",
    "if len(self.times) > 10: self.rate = 1.0",
    "self.steps = len(self.times)",
    "self.steps = 2 * len(self.times) + 1",
    "return len(self.times)",
    "return self.times.__len__() > 5",
    "if len(self.times) > 3: return True",
    "if len(self.times) % 10 == 0: self.evaluate()",
    "n = len(self.times); self.rate = 1 / n",
    "while len(self.times) < 4: self.step()",
    "for i in range(len(self.times)): self.rate *= 0.9",
    "self.go(len(self.times))",
    "if len(self.times) > 3:\n            with torch.no_grad(): self.rate.mul_(0.5)",
    "try: pass\n        except ValueError: self.rate = len(self.times)",
]


@pytest.mark.parametrize("line", SHOWN)
def test_how_many_times_there_are_is_only_shown(line: str) -> None:
    assert ".times" in read(ast.parse(TIMER.format(line=line))).clocks


@pytest.mark.parametrize("line", COUNTS)
def test_how_many_times_there_are_decides_something(line: str) -> None:
    source = read(ast.parse(TIMER.format(line=line)))
    assert not {".times", ".steps", ".rate"} & source.clocks


@pytest.mark.parametrize(
    ("line", "tells"), [("print(len(times))", True), ("n = len(times)", False)]
)
def test_so_it_is_with_names(line: str, tells: bool) -> None:
    text = f"import time\ntimes = []\nwhile True:\n    times.append(time.time())\n    {line}\n"
    text += "    rate = n > 5\n"
    assert ("times" in read(ast.parse(text)).scopes["<module>", 0].clocks) is tells
