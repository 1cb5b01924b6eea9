"""What an attribute holds may be changed where no store to it shows: it is compared then."""

import ast
import textwrap
from pathlib import Path

import captures
import pytest

from trainmover.state.script.code.source import read, together

SCRIPT = """
import bisect, contextlib, heapq, operator, random
def push(seen, value):
    seen.append(value)
def shift(tensors, by):
    for one in tensors: one.add_(by)
def shifted(tensors):
    return zip(tensors, tensors)
@contextlib.contextmanager
def opened(one):
    yield one
class Trainer:
    def __init__(self):
        self.kept = {made}
        self.push = getattr(self.kept, "append", None)
    @property
    def alias(self):
        return self.kept
    def given(self):
        return self.kept
    def run(self):
        for x, y in job.batches(DATA):
            value = float(x.sum())
            {change}
trainer = Trainer()
trainer.run()
"""
LIST, ARRAY, TENSORS = "list(range(20))", "numpy.zeros(3)", "[torch.zeros(2)]"
LEARNED = "torch.zeros(2, requires_grad=True)"
TENSOR, ROWS = "torch.zeros(2)", "torch.zeros(3, 2)"
CHANGES = [
    (LIST, "random.Random(value).shuffle(self.kept)"),
    ("[]", "heapq.heappush(self.kept, value)"),
    ("[]", "bisect.insort(self.kept, value)"),
    ("[]", "push(self.kept, value)"),
    ("[]", "push(seen=self.kept, value=value)"),
    ("{}", "operator.setitem(self.kept, 'a', value)"),
    ("{}", "self.kept.__setitem__('a', value)"),
    ("[]", "(lambda one: self.kept.append(one))(value)"),
    ("[]", "self.push(value)"),
    ("[]", "put = self.kept.append; put(value)"),
    ("[]", "self.alias.append(value)"),
    ("[]", "self.given().append(value)"),
    ("[]", "getattr(self, 'kept').append(value)"),
    ("[]", "vars(self)['kept'].append(value)"),
    ("[]", "getattr(self, 'ke' + 'pt').append(value)"),
    ("[]", "for one in (self.kept, []): one.append(value)"),
    ("[[]]", "for one in iter(self.kept): one.append(value)"),
    ("[[]]", "sorted(self.kept)[0].append(value)"),
    ("{0: []}", "next(iter(self.kept.values())).append(value)"),
    ("(torch.zeros(2),)", "shift(self.kept, value)"),
    ("(torch.zeros(2),)", "shift(tensors=self.kept, by=value)"),
    ("(1, ([], 2))", "push(self.kept[1][0], value)"),
    ("[]", "one, count = self.kept, 3; one.append(value)"),
    ("[]", "one = self.kept; other = one; other.append(value)"),
    ("[]", "(one := self.kept).append(value)"),
    ("[]", "with opened(self.kept) as one: one.append(value)"),
    ("set()", "self.kept.symmetric_difference_update({value})"),
    (ARRAY, "numpy.add.at(self.kept, [y], 1)"),
    (ARRAY, "numpy.add(self.kept, value, out=self.kept)"),
    (ARRAY, "numpy.copyto(self.kept, value)"),
    (ARRAY, "self.kept.fill(value)"),
    (ARRAY, "self.kept.put(1, value)"),
    (TENSORS, "torch._foreach_add_(self.kept, [x])"),
    (TENSORS, "[one.mul_(0.9).add_(value) for one in self.kept]"),
    (TENSORS, "list(map(lambda one: one.add_(value), self.kept))"),
    (TENSORS, "for one, _ in shifted(self.kept): one.add_(value)"),
    ("[]", "(lambda value, one=self.kept: one.append(value))(value)"),
    ("[]", "match self.kept:\n                case list() as one: one.append(value)"),
    (LEARNED, "torch.optim.SGD([self.kept], 0.1).step((self.kept * x).sum().backward)"),
    (f"[{LEARNED}]", "torch.optim.SGD(self.kept, 0.1).step((self.kept[0] * x).sum().backward)"),
    (TENSOR, "torch.add(self.kept, x, out=self.kept)"),
    (TENSOR, "nn.init.constant_(self.kept, value)"),
    (TENSOR, "self.kept.data.copy_(x)"),
    (TENSOR, "self.kept.numpy()[0] = value"),
    (ROWS, "self.kept.select(0, 1).copy_(x)"),
    (ROWS, "self.kept.view(-1)[2] = value"),
    (ROWS, "for row in self.kept.unbind(0): row.add_(value)"),
]


@pytest.mark.parametrize(("made", "change"), CHANGES, ids=[change for _, change in CHANGES])
def test_what_is_changed_through_another_s_hands_is_named(
    tmp_path: Path, made: str, change: str
) -> None:
    job = captures.run_in(tmp_path, SCRIPT.format(made=made, change=change))
    assert any(".kept" in one.name for one in job.differences())


@pytest.mark.parametrize(
    "change",
    [
        "Late.count = getattr(Late, 'count', 0) + 1",
        "torch.count = getattr(torch, 'count', 0) + 1",
        "weight.count = getattr(weight, 'count', 0) + 1",
    ],
)
def test_an_attribute_that_comes_late_is_seen_at_once(tmp_path: Path, change: str) -> None:
    script = f"""
    class Late:
        pass
    net, late = nn.Linear(2, 2), Late()
    job.tracked["net"] = net
    weight = net.weight
    def step():
        {change}
    for x, y in job.batches(DATA):
        step()
    vars(torch).pop("count", None)
    """
    job = captures.run_in(tmp_path, script)
    assert any(one.name.endswith("count") for one in job.differences(3, 4))


ANOTHER_FILE = {
    "a list that is shuffled": (
        "import random\nKEPT = list(range(20))\n"
        "def change(by):\n    random.Random(by).shuffle(KEPT)\n"
    ),
    "tensors in a tuple": (
        "import torch\nKEPT = (torch.zeros(2),)\n"
        "def change(by):\n    for one in KEPT: one.add_(by)\n"
    ),
}


@pytest.mark.parametrize("text", ANOTHER_FILE.values(), ids=ANOTHER_FILE)
def test_a_global_of_another_file_is_too(tmp_path: Path, text: str) -> None:
    (tmp_path / "another.py").write_text(text)
    script = f"""
    import sys
    sys.path.insert(0, {str(tmp_path)!r})
    import another
    for x, y in job.batches(DATA):
        another.change(float(x.sum()))
    del sys.modules["another"], sys.path[0]
    """
    assert [one.name for one in captures.run_in(tmp_path, script).differences()] == ["KEPT"]


def test_an_imported_global_is_named_with_the_line_of_its_import(tmp_path: Path) -> None:
    (tmp_path / "shared.py").write_text("KEPT = [1]\ndef grow(by): KEPT[0] += by\n")
    script = f"""
    import sys
    sys.path.insert(0, {str(tmp_path)!r})
    from shared import KEPT, grow
    def mean():
        return sum(KEPT)
    for x, y in job.batches(DATA):
        grow(float(x.sum()))
        mean()
    del sys.modules["shared"], sys.path[0]
    """
    found = captures.run_in(tmp_path, script).differences()
    assert ("KEPT", "train.py", 11) in {(one.name, one.file, one.line) for one in found}


@pytest.mark.parametrize(
    "text",
    [
        "print(self.kept, len(self.kept), sum(self.kept))",
        "total = self.kept + 1",
        "if value in self.kept: pass",
        "for one in self.kept: print(one)",
        "mean = self.kept.mean()",
    ],
)
def test_who_only_reads_hands_nothing_on(text: str) -> None:
    assert not read(ast.parse(f"def run(self, number, value):\n    {text}\n")).handed


@pytest.mark.parametrize(
    "text",
    [
        "for one in self.kept: average(one, self.weights)",
        "for rate, one in zip(self.rates, self.kept): average(one, rate)",
        "[average(one) for one in self.kept]",
    ],
)
def test_a_loop_that_gives_on_what_it_takes_out_hands_it_on(text: str) -> None:
    assert "kept" in read(ast.parse(f"def run(self):\n    {text}\n")).handed


FUNCTIONS = """
import torch
def move(kept, others):
    for one, by in zip(kept, others): one.mul_(0.9).add_(by)
def pass_on(others, kept): move(kept, others)
def put(kept): kept[0] = 1
def grow(kept):
    last = kept[-1]
    last.data += 1
def sum_into(x, *, kept): torch.add(x, x, out=kept)
def mean(kept): return kept.mean() + kept[0]
class Other:
    def push(self, kept): kept.append(1)
"""


@pytest.mark.parametrize(
    "text",
    [
        "move(self.kept[0], self.read[0])",
        "move(others=self.read[0], kept=self.kept[0])",
        "pass_on(self.read[0], self.kept[0])",
        "put(self.kept['a'])",
        "grow(self.kept[0])",
        "sum_into(self.read[0], kept=self.kept[0])",
        "self.push(self.kept[0]); mean(self.read[0])",
    ],
)
def test_a_part_is_handed_to_a_function_of_the_file_that_changes_it(text: str) -> None:
    found = together([read(ast.parse(f"{FUNCTIONS}\ndef run(self):\n    {text}\n"))]).handed
    assert [*found] == ["kept"]


def test_averages_that_a_function_is_given_one_by_one_are_compared(tmp_path: Path) -> None:
    script = """
    class Averages:
        def __init__(self, net):
            self.kept = [[one.detach().clone() for one in net.parameters()]]
    def move(averages, params):
        for average, param in zip(averages, params):
            average.lerp_(param.detach(), 0.1)
    def main():
        net = nn.Linear(2, 2)
        job.tracked["net"] = net
        averages = Averages(net)
        for x, y in job.batches(DATA):
            with torch.no_grad():
                for one in net.parameters():
                    one.add_(float(x.sum()))
            move(averages.kept[0], list(net.parameters()))
        print(averages.kept[0][0].sum())
    main()
    """
    found = captures.run_in(tmp_path, script).differences()
    assert [one.name for one in found] == ["averages.kept"]


def test_what_a_constructor_does_it_does_once() -> None:
    text = "class A:\n    def __init__(self):\n        shuffle(self.kept)\n"
    assert not read(ast.parse(text)).handed


HELPERS = {
    "averages.py": """
import heapq, torch
def advance(kept, others):
    for one, by in zip(kept, others): one.detach().mul_(0.9).add_(by)
def deeper(others, kept): advance(kept, others)
def rest(rate, kept): torch._foreach_mul_(list(kept), rate)
def mean(kept): return sum(kept)
class Averager:
    def into(self, kept, others): torch._foreach_lerp_(kept, others, 0.1)
    @staticmethod
    def plainly(kept, others): advance(kept, others)
    def __call__(self, others, kept): self.into(kept, others)
class Faster(Averager):
    pass
""",
    "functions.py": "def every(rate, *kept):\n    for one in kept: one.mul_(rate)\n",
    "heaps.py": "import heapq\ndef push(kept, one): heapq.heappush(kept, one)\n",
}
IMPORTS = """
import copy, functions, heapq, logging, numpy, os, random, torch
import torch.nn.functional as F
from functools import partial
from torch import distributed as dist
"""
TAKES = [
    "from averages import advance\nadvance(self.kept[0], self.read[0])",
    "from averages import advance as move\nmove(self.kept[0], self.read[0])",
    "import averages\naverages.advance(kept=self.kept[0], others=self.read[0])",
    "averages.deeper(self.read[0], self.kept[0])",
    "averages.rest(0.9, self.kept[0])",
    "averages.advance([self.kept[0][1], self.kept[0][2]], self.read[0])",
    "averages.advance(self.kept['slow'].values(), self.read[0])",
    "slow = self.kept[0]\naverages.advance(slow, self.read[0])",
    "self.averager.into(self.kept[0], self.read[0])",
    "Averager.plainly(self.kept[0], self.read[0])",
    "into = self.averager.into\ninto(self.kept[0], self.read[0])",
    "move = Averager()\nmove(self.read[0], self.kept[0])",
    "self.move = Faster()\nself.move(self.read[0], self.kept[0])",
    "move = partial(averages.deeper, self.read[0])\nmove(self.kept[0])",
    "run(move=advance)\nmove(self.kept[0], self.read[0])",
    "push(self.kept[0], mean(self.read[0]))",
    "heapq.heappush(self.kept[0], self.read[0])",
    "random.shuffle(self.kept['train'])",
    "dist.all_reduce(self.kept[0])",
    "slow = self.kept[0]\ntorch._foreach_mul_(slow, 0.1)",
]


@pytest.mark.parametrize("text", TAKES)
def test_a_part_is_handed_to_what_changes_it_in_any_file_of_the_script(text: str) -> None:
    script = f"{IMPORTS}\ndef run(self):\n{textwrap.indent(text, '    ')}\n"
    files = [read(ast.parse(one)) for one in (script, *HELPERS.values())]
    found = together(files).handed
    assert "kept" in found
    assert "read" not in found


ANYBODY = [
    "self.average(self.kept[0], self.weights)",
    "drift = self.average(self.kept[0], self.weights)",
    "drift = average(rate=0.9, into=self.kept[0])",
    "drift = self.averages[0](self.kept[0])",
    "drift = getattr(self, name)(self.kept[0])",
    "drift = torch.compile(self.average)(self.kept[0])",
    "drift = (advance if self.slow else mean)(self.kept[0])",
    "move = advance if self.slow else mean\ndrift = move(self.kept[0], [])",
    "move = lambda one: one.add_(1)\ndrift = move(self.kept[0])",
    "move = made(0.9)\ndrift = move(self.kept[0])",
    "for move in self.averages: drift = move(self.kept[0])",
    "drift = advance(*self.kept)",
    "drift = self.averager(**self.kept[0])",
    "drift = functions.every(0.9, self.kept[0])",
    "rows.append(self.kept[0])",
    "work = pool.submit(advance, self.kept[0])",
    "works = [*map(advance, self.kept[0], [])]",
    "from other import average as move\ndrift = move(self.kept[0])",
    "import cv2\ncv2.rectangle(self.kept[0], (1, 1), (2, 2), 3)",
    "import cv2\nimage = cv2.rectangle(self.kept[0], (1, 1), (2, 2), 3)",
    "numpy.multiply(self.kept[0], 0.9, self.kept[0])",
    "numpy.multiply(self.read[0], 0.9, out=self.kept[0])",
    "self.kept[0].sort_values('loss', inplace=True)",
    "x = torch.nn.functional.relu(self.kept[0], inplace=True)",
]
"""Who may be anybody, or does it for no result."""


@pytest.mark.parametrize("text", ANYBODY)
def test_a_part_counts_that_somebody_is_given_of_whom_nothing_is_known(text: str) -> None:
    script = f"{IMPORTS}\ndef run(self, average, name):\n{textwrap.indent(text, '    ')}\n"
    files = [read(ast.parse(one)) for one in (script, *HELPERS.values())]
    assert "kept" in together(files).handed


GIVES = [
    "return self.kept[0], x",
    "return [one for one in self.kept]",
    "return list(self.kept.values())",
    "return self.kept[0] if x else self.kept[1]",
    "kept = self.kept['slow']\nlast = kept[-1]\nreturn last",
    "for one in self.kept: yield one",
    "yield from self.kept.values()",
    "for name, one in self.kept.items(): yield name, one",
    "def inner(): return self.kept[0]\nreturn inner()",
]


@pytest.mark.parametrize("text", GIVES)
def test_a_part_that_a_function_returns_counts(text: str) -> None:
    body = textwrap.indent(text, "    ")
    assert "kept" in together([read(ast.parse(f"def part(self, x):\n{body}\n"))]).handed


@pytest.mark.parametrize(("base", "counts"), [("", True), ("torch.utils.data.Dataset", False)])
def test_what_a_dataset_gives_by_index_goes_into_batches(base: str, counts: bool) -> None:
    text = f"class Rows({base}):\n    def __getitem__(self, x):\n        return self.kept[x]\n"
    assert ("kept" in together([read(ast.parse(text))]).handed) is counts


READS = [
    "x = torch.tensor(self.kept[number])",
    "x = torch.relu(self.kept[0]) + F.relu(self.kept[1], inplace=False)",
    "x = mean(self.kept[0])",
    "x.copy_(self.kept[0])",
    "print(self.kept[0], len(self.kept[1]))",
    "logger.info('%s', self.kept[0])",
    "torch.save(self.kept[0], path)",
    "os.remove(path), open(self.kept[0])",
    "row = Row(self.kept[0])",
    "x = Net()(self.kept[0]) + torch.nn.Softmax(0)(self.kept[1])",
    "net = Net()\nx = net(self.kept[0])",
    "x = copy.deepcopy(self.kept[0])",
]


@pytest.mark.parametrize("text", READS)
def test_a_part_that_is_only_read_does_not_count(text: str) -> None:
    rows = "class Row:\n    x: object\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
    body = f"{IMPORTS}{rows}        return x + 1\ndef run(self, rows, number, path):\n"
    files = [f"{body}{textwrap.indent(text, '    ')}\n", *HELPERS.values()]
    assert "kept" not in together([read(ast.parse(one)) for one in files]).handed


def test_a_part_that_another_file_changes_is_named_with_the_line_that_gives_it(
    tmp_path: Path,
) -> None:
    for name, text in HELPERS.items():
        (tmp_path / name).write_text(text)
    script = f"""
    import sys
    sys.path.insert(0, {str(tmp_path)!r})
    from averages import advance
    class Trainer:
        def __init__(self):
            self.kept = {{"slow": [torch.zeros(2)]}}
        def run(self):
            for x, y in job.batches(DATA):
                advance(self.kept["slow"], [x])
    Trainer().run()
    del sys.modules["averages"], sys.path[0]
    """
    [found] = captures.run_in(tmp_path, script).differences()
    assert (found.name, found.file, found.line) == ("self.kept", "train.py", 17)


def test_a_function_that_only_calls_itself_is_read() -> None:
    assert not read(ast.parse("def again(one):\n    again(one)\n")).handed
