"""Private names of torch are read in one room, and that room says all of them.

A private name has a leading underscore, and trainmover does not define it outside of that room.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from trainmover.torch_internals.names import IN_FILES, IN_MEMORY

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "trainmover"
ROOM = PACKAGE / "torch_internals"
INSIDE = sorted(path for path in ROOM.rglob("*.py") if path.name != "names.py")
OUTSIDE = sorted(path for path in PACKAGE.rglob("*.py") if ROOM not in path.parents)

OTHERS = {
    "_BatchSamplerIterator": "torchdata",
    "_IterableDataset_len_called": "torchdata",
    "_StatefulSingleProcessDataLoaderIter": "torchdata",
    "_abc_impl": "abc",
    "_action_groups": "argparse",
    "_actions": "argparse",
    "_actual_context": "multiprocessing.context",
    "_bit_generator": "numpy.random",
    "_builtin_open": "bz2",
    "_current_frames": "sys",
    "_data": "os.environ",
    "_daemonic": "threading.Thread",
    "_default_context": "multiprocessing.context",
    "_datasource": "numpy.lib",
    "_exit": "os",
    "_file_openers": "numpy.lib",
    "_filters_mutated": "warnings",
    "_finished": "torchdata",
    "_getframe": "sys",
    "_group_actions": "argparse",
    "_hash": "collections.abc.Set",
    "_io": "io",
    "_index_sampler_state": "torchdata",
    "_iterator_finished": "torchdata",
    "_lru_cache_wrapper": "functools",
    "_option_string_actions": "argparse",
    "_rand": "numpy.random",
    "_replace": "named tuples",
    "_run_exitfuncs": "atexit",
    "_sampler_iter": "torchdata",
    "_sampler_iter_state": "torchdata",
    "_sampler_iter_yielded": "torchdata",
    "_shared_seed": "torchdata",
    "_target": "threading.Thread",
    "_tee_dataobject": "itertools",
    "_tm_": "variables of rewritten loops",
    "_warnings_showwarning": "logging",
}
"""Not torch's: whose then."""


def is_private(name: str) -> bool:
    return re.fullmatch(r"_[A-Za-z]\w*", name) is not None


def words(names: dict[str, tuple[str, ...]], *, paths: bool = False) -> set[str]:
    """Private words of a table's names; of its paths too."""
    parts = [name for listed in names.values() for name in listed]
    text = " ".join([*parts, *(names if paths else ())])
    return set(re.findall(r"\b_[A-Za-z]\w*", text))


SAID = words(IN_FILES) | words(IN_MEMORY)


def defined(tree: ast.AST) -> Iterator[str]:
    """Functions, classes, variables, fields, and attributes of self."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node):
            yield node.attr


def is_own(attribute: ast.Attribute) -> bool:
    """Of self, or of its class."""
    return isinstance(attribute.value, ast.Name) and attribute.value.id in ("self", "cls")


def imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """The words of what is imported from elsewhere."""
    if isinstance(node, ast.Import):
        dotted = [alias.name for alias in node.names]
    elif node.level:
        return
    else:
        dotted = [f"{node.module}.{alias.name}" for alias in node.names]
    for path in dotted:
        if path.split(".")[0] != "trainmover":
            yield from path.split(".")


def read(tree: ast.AST, own: set[str]) -> Iterator[tuple[int, str]]:
    """Line and name of what is private and not `own`, and of what has a name of torch's."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((line, name) for name in imported(node) if is_private(name))
        elif isinstance(node, ast.ClassDef):
            methods = (part for part in node.body if isinstance(part, ast.FunctionDef))
            yield from ((one.lineno, one.name) for one in methods if one.name in SAID)
        elif isinstance(node, ast.keyword) and is_private(node.arg or "") and node.arg not in own:
            yield line, str(node.arg)
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            if node.attr not in own or (node.attr in SAID and not is_own(node)):
                yield line, node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from ((line, name) for name in in_text(node.value, own))


def in_text(text: str, own: set[str]) -> Iterator[str]:
    """Of a string that is a name, or the path of a module."""
    if is_private(text):
        if text not in own or text in SAID:
            yield text
    elif re.fullmatch(r"torch\w*([./]\w+)+", text):
        yield from filter(is_private, re.split(r"[./]", text))


@cache
def read_outside() -> list[tuple[Path, int, str]]:
    """File, line and name of what is read outside of the room. Not as this file is imported, which
    every process of a run does: it takes seconds, and the trees are a million objects."""
    trees = {path: ast.parse(path.read_text()) for path in OUTSIDE}
    own = {name for tree in trees.values() for name in defined(tree) if is_private(name)}
    return [(path, *found) for path, tree in trees.items() for found in read(tree, own)]


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def test_no_private_name_of_torch_outside_of_the_room() -> None:
    found = [
        f"{name_of(path)} line {line}: {name}"
        for path, line, name in read_outside()
        if name not in OTHERS
    ]
    assert found == [], "put it behind a function in trainmover/torch_internals"


def test_what_is_not_torchs_is_still_read() -> None:
    assert {name for _, _, name in read_outside()} == OTHERS.keys()
    assert OTHERS.keys().isdisjoint(SAID)


@pytest.mark.parametrize("path", INSIDE, ids=name_of)
def test_the_room_says_every_private_name_that_it_reads(path: Path) -> None:
    tree = ast.parse(path.read_text())
    said = words(IN_FILES, paths=True) | words(IN_MEMORY, paths=True)
    assert {name for _, name in read(tree, set(defined(tree)))} - said == set()


def test_the_room_reads_every_name_that_it_says() -> None:
    text = "".join(path.read_text() for path in INSIDE)
    unread = {name for name in SAID if not re.search(rf"\b{name}\b", text)}
    assert unread == {"_compile"}  # Its file is looked for among the frames of a thread.


@pytest.mark.parametrize("path", INSIDE, ids=name_of)
def test_the_room_reads_nothing_with_a_default(path: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    gets = [call for call in calls if ast.unparse(call.func) == "getattr"]
    assert [ast.unparse(get) for get in gets if len(get.args) > 2] == []


@pytest.mark.parametrize("path", INSIDE, ids=name_of)
def test_a_file_of_the_room_has_one_idea(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 250


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("from torch._C import _nothing", "_nothing"),
        ("import torch._nothing.part", "_nothing"),
        ("from torch.utils import _nothing as plain", "_nothing"),
        ("tensor._nothing", "_nothing"),
        ("self._nothing()", "_nothing"),
        ("getattr(tensor, '_nothing', 0)", "_nothing"),
        ("NAMES = ('_nothing',)", "_nothing"),
        ("sys.modules.get('torch._nothing.part')", "_nothing"),
        ("os.path.join('torch', '_nothing', 'file.py')", "_nothing"),
        ("vars(loader).update(_nothing=None)", "_nothing"),
        ("tensor._version", "_version"),
        ("class Group:\n    def _get_backend(self): ...", "_get_backend"),
    ],
)
def test_no_way_to_read_one_is_overlooked(source: str, name: str) -> None:
    """Also where an attribute of trainmover has the same name."""
    assert name in {found for _, found in read(ast.parse(source), {"_version"})}


RENAMED = "import torch; del torch._C._autograd._profiler_enabled; import trainmover.worker.process"


def test_a_worker_of_a_torch_that_has_renamed_something_says_so_before_all_else() -> None:
    done = subprocess.run(
        [sys.executable, "-c", RENAMED], capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 1
    assert "has no _profiler_enabled in torch._C._autograd.\n" in done.stderr
    assert "no job is started with it" in done.stderr
    assert "ImportError" not in done.stderr
