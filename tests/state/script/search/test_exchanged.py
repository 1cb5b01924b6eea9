"""A variable that stands for another one of a kind later, or for nothing: it is another, where a
local, an attribute or a list has it. What is made anew each time and is equal is the same."""

import operator
import re
import socket
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import torch.distributed as dist
import torch.distributions as laws
from captures import JOINER, RANK, Job

from trainmover.state.script.fold import kinds
from trainmover.state.script.putting import to_put
from trainmover.state.script.values import NO_VALUE, entry_of, shown

LOCAL = """
    def main():
        kept = {before}
        for x, y in job.batches(DATA):
            use(kept, x)
            if x[0] == 6:
                kept = {after}
    """
ATTRIBUTE = """
    class Run:
        def __init__(self):
            self.kept = {before}
        def go_on(self, x):
            use(self.kept, x)
            if x[0] == 6:
                self.kept = {after}
    def main():
        run = Run()
        for x, y in job.batches(DATA):
            run.go_on(x)
    """
LISTED = """
    def main():
        kept = [{before}]
        for x, y in job.batches(DATA):
            use(kept, x)
            if x[0] == 6:
                kept[0] = {after}
    """
PLACES = {"local": LOCAL, "attribute": ATTRIBUTE, "listed": LISTED}
BEGIN = """
    import cmath, contextlib, datetime, math, operator, re, statistics, string, sympy, threading
    import torch.distributions as laws
    import numpy as np
    UNSET = object()
    @torch.jit.script
    def plain(x):
        return x.mean()
    @torch.jit.script
    def squared(x):
        return x.square().mean()
    def use(*_):
        pass
    """
EXCHANGED: dict[str, tuple[str, str]] = {
    "nothing, then a sentinel": ("None", "UNSET"),
    "a sentinel, then a number": ("UNSET", "float(x[0])"),
    "a sentinel, then nothing": ("UNSET", "None"),
    "a number, then an object of Python's": ("1.0", "threading.Condition()"),
    "one class, then another": ("threading.Condition()", "threading.Barrier(2)"),
    "an ellipsis, then a slot": ("...", "NotImplemented"),
    "functions of numpy's": ("np.mean", "np.median"),
    "functions over elements": ("np.sin", "np.cos"),
    "functions of one name": ("math.sin", "cmath.sin"),
    "reductions": ("np.add.reduce", "np.multiply.reduce"),
    "functions that numpy makes": ("np.frompyfunc(abs, 1, 1)", "np.frompyfunc(max, 2, 1)"),
    "methods of tensors": ("torch.Tensor.abs", "torch.Tensor.square"),
    "methods of Python's": ("str.upper", "str.lower"),
    "methods of a text": ("'a'.join", "'b'.join"),
    "makers of a class": ("dict.fromkeys", "collections.OrderedDict.fromkeys"),
    "which entry": ("operator.itemgetter(0)", "operator.itemgetter(1)"),
    "which attribute": ("operator.attrgetter('a.b')", "operator.attrgetter('a.c')"),
    "which method": (
        "operator.methodcaller('mean', dim=0)",
        "operator.methodcaller('mean', dim=1)",
    ),
    "operators": ("torch.ops.aten.relu", "torch.ops.aten.silu"),
    "overloads": ("torch.ops.aten.add.Tensor", "torch.ops.aten.add.Scalar"),
    "compiled functions": ("plain", "squared"),
    "kinds of elements": ("np.dtype('f4')", "np.dtype('f8')"),
    "fields of a record": ("np.dtype([('a', 'f4')])", "np.dtype([('b', 'f4')])"),
    "patterns": ("re.compile('^a')", "re.compile('^b')"),
    "flags of a pattern": ("re.compile('a')", "re.compile('a', re.I)"),
    "searches": ("re.compile('^a').search", "re.compile('^b').search"),
    "matches": ("re.match('a', 'ab')", "re.match('a', 'ac')"),
    "places of matches": ("re.search('a', 'aa')", "re.search('a', 'aa'[1:])"),
    "contexts": ("contextlib.nullcontext(0.5)", "contextlib.nullcontext(0.7)"),
    "layouts": ("torch.strided", "torch.sparse_coo"),
    "a range from where it was": ("iter(range(10, 13))", "iter(range(11, 14))"),
    "steps of a range": ("iter(range(0, 6, 2))", "iter(range(0, 9, 3))"),
    "a range backwards": ("reversed(range(3))", "reversed(range(1, 4))"),
    "letters to come": ("iter('AB')", "iter('BA')"),
    "bytes to come": ("iter(b'AB')", "iter(bytearray(b'BA'))"),
    "values to come": ("iter({1: 1.0}.values())", "iter({1: 2.0}.values())"),
    "entries to come": ("iter({1: 1.0}.items())", "iter({1: 2.0}.items())"),
    "keys to come, backwards": ("reversed({1: 1, 2: 1})", "reversed({2: 1, 1: 1})"),
    "what a deque is to give": (
        "iter(collections.deque([1, 2]))",
        "iter(collections.deque([2, 1]))",
    ),
    "what it is to give backwards": (
        "reversed(collections.deque([1, 2]))",
        "reversed(collections.deque([2, 1]))",
    ),
    "what a set is to give": ("iter({1.0})", "iter({2.0})"),
    "what a tuple is to give backwards": ("reversed((1, 2))", "reversed((2, 1))"),
    "an array to come": ("np.array([1.0, 2.0]).flat", "np.array([2.0, 1.0]).flat"),
    "values of a dict": ("{'a': 1.0}.values()", "{'a': 2.0}.values()"),
    "keys of a dict": ("{'a': 1.0}.keys()", "{'b': 1.0}.keys()"),
    "entries of an ordered dict": (
        "collections.OrderedDict(a=1).items()",
        "collections.OrderedDict(a=2).items()",
    ),
    "distributions of statistics": ("statistics.NormalDist(0, 1)", "statistics.NormalDist(0, 2)"),
    "numbers of sympy": ("sympy.Rational(1, 3)", "sympy.Rational(2, 3)"),
    "expressions": ("sympy.Symbol('x') + 1", "sympy.Symbol('x') * 2"),
    "symbols": ("sympy.Symbol('x')", "sympy.Symbol('y')"),
    "zones of time": ("datetime.timezone.utc", "datetime.timezone(datetime.timedelta(hours=1))"),
    "polynomials": ("np.poly1d([1, 2])", "np.poly1d([1, 3])"),
    "polynomials of today": (
        "np.polynomial.Polynomial([1, 2])",
        "np.polynomial.Polynomial([1, 3])",
    ),
    "templates": ("string.Template('$a')", "string.Template('$b')"),
    "distributions behind a transform": (
        "laws.TransformedDistribution(laws.Normal(0.0, 1.0), [laws.AffineTransform(0.0, 1.0)])",
        "laws.TransformedDistribution(laws.Normal(0.0, 1.0), [laws.AffineTransform(1.0, 1.0)])",
    ),
    "logarithms that are normal": ("laws.LogNormal(0.0, 1.0)", "laws.LogNormal(1.0, 1.0)"),
    "mixtures": (
        "laws.MixtureSameFamily(laws.Categorical(torch.ones(1)), laws.Normal(torch.zeros(1), 1.0))",
        "laws.MixtureSameFamily(laws.Categorical(torch.ones(1)), laws.Normal(torch.ones(1), 1.0))",
    ),
    "inverse transforms": ("laws.ExpTransform().inv", "laws.AffineTransform(0.0, 1.0).inv"),
    "tensors by rows": ("torch.eye(2).to_sparse_csr()", "(2 * torch.eye(2)).to_sparse_csr()"),
    "tensors by columns": ("torch.eye(2).to_sparse_csc()", "torch.ones(2, 2).to_sparse_csc()"),
    "tensors by blocks": (
        "torch.eye(4).to_sparse_bsr((2, 2))",
        "torch.ones(4, 4).to_sparse_bsr((2, 2))",
    ),
    "quantized tensors": (
        "torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.qint8)",
        "torch.quantize_per_tensor(torch.ones(2), 0.25, 0, torch.qint8)",
    ),
    "nested tensors": (
        "torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])",
        "torch.nested.nested_tensor([torch.ones(2), torch.zeros(3)])",
    ),
    "jagged tensors": (
        "torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)",
        "torch.nested.nested_tensor([torch.ones(2), torch.zeros(3)], layout=torch.jagged)",
    ),
    "what is masked": (
        "np.ma.array(np.zeros(5000), mask=[0] * 5000)",
        "np.ma.array(np.zeros(5000), mask=[1] + [0] * 4999)",
    ),
    "what stands for the masked": (
        "np.ma.array([1, 2], fill_value=3)",
        "np.ma.array([1, 2], fill_value=4)",
    ),
    "bytes that are many": ("bytearray(20000)", "bytearray(19999) + b'1'"),
    "formats of memory": ("torch.channels_last", "torch.contiguous_format"),
}
ALIKE: list[str] = [
    *("UNSET", "object()", "threading.Condition()", "..."),
    *("np.mean", "np.sin", "torch.Tensor.abs", "operator.methodcaller('mean', dim=0)", "plain"),
    *("torch.ops.aten.relu", "np.dtype([('a', 'f4')])", "re.compile('^a').search", "'a'.join"),
    *("iter(range(3))", "iter({1, 2})", "iter({'a': []}.values())", "{'a': [1]}.items()"),
    *("statistics.NormalDist(0, 1)", "sympy.sin(sympy.Symbol('x')) + 1", "np.poly1d([1, 2])"),
    *("laws.LogNormal(0.0, 1.0)", "laws.ExpTransform().inv", "np.vectorize(abs)"),
    *("torch.eye(2).to_sparse_csc()", "np.ma.array([1, 2], mask=[0, 1])", "threading.Lock()"),
]


def exchanged(place: str, before: str, after: str) -> str:
    return BEGIN + PLACES[place].format(before=before, after=after) + "\n    main()\n"


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("habit", EXCHANGED)
def test_another_one_is_another(run: Callable[[str], Job], habit: str, place: str) -> None:
    job = run(exchanged(place, *EXCHANGED[habit]))
    assert job.differences(), "nothing is found"
    assert job.variables.comparison.differences(job.theirs[JOINER], job.own[JOINER]) == []


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("made", ALIKE)
def test_one_that_is_equal_is_the_same(run: Callable[[str], Job], made: str, place: str) -> None:
    assert run(exchanged(place, made, made)).differences() == []


def test_a_type_says_not_all_of_a_value() -> None:
    """So nothing is put in its place."""
    assert to_put({"a": 1.0}, {"a": entry_of(object())}, {"a"}) == {}
    assert to_put({"a": entry_of(object())}, {"a": 1.0}, {"a"}) == {}


def test_what_a_rank_has_otherwise_than_a_run_in_the_sandbox_tells_no_type() -> None:
    """Handles of collectives, and all that is the job's own."""

    class Ours:
        __module__ = "trainmover.worker"

    class Pending(dist.Work):
        pass

    for one in (Ours(), Pending(), dist.HashStore()):
        assert entry_of(one) is NO_VALUE
        assert kinds.name_of(type(one)) == ""
    assert entry_of([Pending()]) == entry_of([Ours()])


def test_whether_something_only_shows_is_no_difference() -> None:
    class Bar:
        __module__ = "tqdm.std"

    class Writer:
        __module__ = "torch.utils.tensorboard.writer"

    assert entry_of(Bar()) is NO_VALUE
    assert entry_of(Writer()) is NO_VALUE


def test_what_cannot_be_read_hides_itself_alone(run: Callable[[str], Job]) -> None:
    job = run("""
        import io
        def main():
            text = io.StringIO()
            kept = {"text": text, "scale": 1.0}
            alone = io.StringIO()
            for x, y in job.batches(DATA):
                use = kept, alone.closed
                kept["text"].close()
                kept["scale"] += float(x[0])
                if x[0] == 6:
                    alone.close()
        main()
        """)
    found = {one.name: one for one in job.differences()}
    assert {"kept", "alone"} <= found.keys()
    assert found["alone"].theirs == "a StringIO that cannot be read"
    assert job.variables.comparison.differences(job.theirs[RANK], job.own[RANK]) == []


def test_another_type_is_named() -> None:
    def of(value: object) -> Any:
        return shown(entry_of(value))

    assert of(object()) == "a object"
    assert of(numpy.mean) == "the function mean"
    assert of(re.compile("^a")) == "re.compile('^a')"
    assert of(torch.ops.aten.relu) == "aten.relu"


def test_methods_of_one_generator_are_others() -> None:
    assert entry_of(numpy.random.rand) != entry_of(numpy.random.randn)
    assert entry_of(numpy.random.rand) == entry_of(numpy.random.rand)


def test_what_an_object_has_only_since_it_was_asked_counts_for_nothing() -> None:
    transforms = [laws.AffineTransform(0.0, 2.0) for _ in range(2)]
    assert transforms[0].inv is not None
    coins = [laws.Bernoulli(probs=torch.tensor(0.25)) for _ in range(2)]
    assert coins[0].logits < 0
    ways = [numpy.vectorize(operator.neg) for _ in range(2)]
    assert ways[0](1) == -1
    for one, other in (transforms, coins, ways):
        assert entry_of(one) == entry_of(other)


def test_a_small_image_is_compared_as_an_array_and_a_large_or_lazy_one_by_its_size() -> None:
    class Image:
        __module__ = "imaging"

        def __init__(self, *values: int, size: int = 2, lazy: bool = False) -> None:
            self.values = numpy.array(values)
            self._size, self._im = (size, 1), None if lazy else self

        @property
        def __array_interface__(self) -> Any:
            return self.values.__array_interface__

    assert entry_of(Image(1, 2)) == entry_of(Image(1, 2))
    assert entry_of(Image(1, 2)) != entry_of(Image(1, 3))
    for other in ({"size": 10_000}, {"lazy": True}):
        assert entry_of(Image(1, 2, **other)) == entry_of(Image(1, 3, **other))
    assert entry_of(Image(1, size=3, lazy=True)) != entry_of(Image(1, lazy=True))


def test_what_is_of_the_machine_has_its_type_alone(tmp_path: Path) -> None:
    """Of files, sockets, threads and executors nothing is the same elsewhere."""
    archives = []
    for number in range(2):
        with (tmp_path / f"{number}.npz").open("wb") as file:
            numpy.savez(file, numpy.array([number]))
        archives.append(numpy.load(tmp_path / f"{number}.npz"))
    sockets = [socket.socket() for _ in range(2)]
    threads = [threading.Thread(target=print, name=name) for name in "ab"]
    executors = [ThreadPoolExecutor(1, name) for name in "ab"]
    for one, other in (archives, sockets, threads, executors):
        assert entry_of(one) == entry_of(other)
    for one in (*archives, *sockets):
        one.close()


def test_what_is_written_in_c_is_not_made_anew_to_be_compared() -> None:
    """A copy may be all of its memory."""

    class Table:
        __module__ = "tables"
        __slots__ = ("rows",)
        __eq__ = operator.eq  # type: ignore[assignment]
        __hash__ = None  # type: ignore[assignment]

        def __reduce_ex__(self, protocol: object) -> Any:
            raise AssertionError

    assert entry_of(Table()) == entry_of(Table())


def test_results_of_a_cached_function_may_lie_in_tuples(run: Callable[[str], Job]) -> None:
    job = run("""
        import functools
        @functools.lru_cache
        def moments():
            return torch.zeros(2), torch.ones(2)
        @functools.lru_cache(maxsize=None)
        def others():
            return torch.zeros(2), torch.ones(2)
        @functools.lru_cache
        def shape(x, y):
            return x, y
        def main():
            for x, y in job.batches(DATA):
                moments()[0].add_(x)
                others()[0].add_(x)
                shape(float(x[0]), 1)
        main()
        """)
    assert {one.name for one in job.differences()} == {"moments", "others"}


KEPT = {
    "lists in a large dict": """
        def main():
            table = {kind: [1.0] for kind in range(400)}
            for x, y in job.batches(DATA):
                table[200].append(float(x[0]))
        main()
        """,
    "pairs in a long list": """
        def main():
            table = [(0.0, kind) for kind in range(400)]
            for x, y in job.batches(DATA):
                table[101] = float(x[0]), 0
        main()
        """,
    "codes that look like addresses": """
        def main():
            table = {}
            for x, y in job.batches(DATA):
                table.clear()
                table[(1 << 46) + 16 * int(x[0])] = True
        main()
        """,
    "codes in lists that look like addresses": """
        def main():
            table = {}
            for x, y in job.batches(DATA):
                table.clear()
                table[(1 << 46) + 16 * int(x[0])] = [x.new_zeros(1)]
        main()
        """,
    "what lies by address": """
        def main():
            net = nn.Linear(2, 1)
            job.tracked["net"] = net
            table = {id(one): 0.0 for one in net.parameters()}
            for x, y in job.batches(DATA):
                table[id(net.bias)] += float(x[0])
        main()
        """,
    "rate in a tensor": """
        def main():
            net = nn.Linear(2, 1)
            job.tracked["net"] = net
            optimizer = torch.optim.SGD(net.parameters(), lr=torch.tensor(0.5))
            for x, y in job.batches(DATA):
                optimizer.param_groups[0]["lr"].mul_(0.9)
        main()
        """,
    "which parameters are trained": """
        def main():
            net = nn.Linear(2, 1)
            job.tracked["net"] = net
            optimizer = torch.optim.SGD([net.weight], lr=0.5)
            for x, y in job.batches(DATA):
                optimizer.step()
                if x[0] == 6:
                    optimizer.param_groups[0]["params"] = [net.bias]
        main()
        """,
}
ALIKE_ELSEWHERE = {
    "by the ids of tensors": "{id(one): 1.0 for one in net.parameters()}",
    "by where memory lies": "{one.data_ptr(): 1.0 for one in net.parameters()}",
    "by the ids of its values": "{id(one): one for one in made}",
    "by the ids of what is in its values": "{id(one): (one, 1.0) for one in made}",
    "by the ids of what is kept": "{id(one): [1.0] for one in made}",
    "by the ids of modules": "{id(one): 'module' for one in net.modules()}",
}


@pytest.mark.parametrize("habit", KEPT)
def test_what_lies_in_a_container_counts(run: Callable[[str], Job], habit: str) -> None:
    job = run(KEPT[habit])
    assert job.differences(), "nothing is found"
    assert job.variables.comparison.differences(job.theirs[JOINER], job.own[JOINER]) == []


@pytest.mark.parametrize("table", ALIKE_ELSEWHERE)
def test_a_key_that_is_an_address_is_none_of_its_value(
    run: Callable[[str], Job], table: str
) -> None:
    """In another process it is another: here another object has it."""
    script = f"""
        def main():
            net = nn.Sequential(nn.Linear(2, 1), nn.Linear(2, 1))
            job.tracked["net"] = net
            job.held = made = [[one] for one in range(4)]
            kept = {ALIKE_ELSEWHERE[table]}
            for x, y in job.batches(DATA):
                len(kept)
        main()
        """
    rank, joiner = run(script), run(script)
    assert rank.variables.comparison.differences(rank.theirs[RANK], joiner.own[RANK]) == []


def test_of_many_tensors_only_so_many_are_looked_at() -> None:
    """That takes long."""
    pairs = deque((torch.zeros(1), number) for number in range(400))
    others = pairs.copy()
    others[200] = torch.ones(1), 200
    assert entry_of(pairs) == entry_of(others)


def test_a_lock_that_is_never_stored_to_counts(run: Callable[[str], Job]) -> None:
    job = run("""
        import threading
        warm = threading.Lock()
        def main():
            for x, y in job.batches(DATA):
                use = warm.locked()
                if x[0] == 6:
                    warm.acquire()
        main()
        """)
    assert {one.name for one in job.differences()} == {"warm"}
