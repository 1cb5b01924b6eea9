"""Corners of Python's grammar: rewritten code does what the plain code does."""

import random
import sys
import sysconfig
import textwrap
import traceback
from pathlib import Path
from typing import Any

import pytest

from trainmover.errors import Unwind
from trainmover.loops.rewrite import LoopSite, rewrite
from trainmover.loops.turns import set_hooks, set_way_back

SAME = {
    "a docstring and __future__ come first": '''
        """Text of the module."""
        from __future__ import annotations
        def f(x: undefined) -> enumerate(1): return 1
        for x in range(2): trace.append(x)
        trace.append((__doc__, f.__annotations__))
    ''',
    "loops of a class body": """
        class C:
            total = 0
            for i in range(3): total += i
            while total < 9: total += 4
            squares = [abs(i) for i in range(3)]
            rest = list(abs(i) for i in enumerate([-1]) if not isinstance(i, tuple))
            def f(self):
                return [self.__g(i) for i in range(3)]
            def __g(self, __x):
                for __y in range(__x): pass
                return sorted(locals())
            def h(self, a=[abs(i) for i in range(2)]):
                return a
        trace.append(sorted(set(vars(C)) - {"__firstlineno__", "__static_attributes__"}))
        trace += [C.total, C.squares, C.rest, C().f(), C().h()]
    """,
    "super and closures in comprehensions": """
        class A:
            def f(self, i): return i
        class B(A):
            def f(self, i): return [super(B, self).f(j) for j in range(i)]
            def g(self): return [__class__.__name__ for _ in range(len("ab"))]
        trace += [B().f(3), B().g()]
    """,
    "nonlocal, global, del, walrus": """
        n = 0
        def f(data):
            k = 0
            def g():
                nonlocal k
                global n
                for i in range(3):
                    k += i; n += 1
                    del i
                return k
            while (x := g()) < 10: trace.append(x)
            found = [y for z in data if (y := abs(z)) > 1]
            return x, k, n, found, y, any((w := v) > 1 for v in data), w
        trace.append(f([1, -2, 3]))
    """,
    "comprehensions and lambdas in one another": """
        def f(n):
            a = [[abs(i * j) for i in range(j)] for j in [abs(k) for k in range(n)]]
            b = [(lambda: [abs(x) for x in range(i)])() for i in range(n)]
            c = [z for z in (lambda: [abs(x) for x in range(n)])()]
            d = {x: [abs(y) for y in range(x)] for x in [abs(w) for w in range(n)]}
            e = lambda m=[abs(i) for i in range(n)]: [abs(i) for i in m]
            g = [abs(i) for i in range(n) if abs(i) for i in range(i) if i]
            return a, b, c, d, e(), g, [f"{[abs(x) for x in range(i)]}" for i in range(n)]
        trace.append(f(4))
    """,
    "names of locals": """
        def f(n):
            for i in range(n):
                if i == 1: break
            while n: n -= 1
            return sorted(locals())
        def h(n):
            x = [abs(i) for i in range(n)]
            return sorted(k for k, v in locals().items() if v is not None)
        def g(n):
            for i in range(n): return sorted(k for k in locals() if not k.startswith("_tm_"))
        trace += [f(3), g(3), h(3)]
        for i in range(3): pass
        for j in [abs(i) for i in range(3)]: pass
        trace.append(sorted(k for k in globals() if not k.startswith(("_tm_", "__tm__"))))
    """,
    "names of a module, while it is gone through": """
        lr, seed, key, value, found = 0.1, 3, "", None, []
        config = [k for k, v in globals().items() if k[0] != "_" and isinstance(v, int)]
        for key, value in globals().items():
            if isinstance(value, float): found.append(key)
        while seed: seed -= 1
        trace += [config, found, {k: str(v) for k, v in globals().items() if k == "lr"}]
    """,
    "send, throw, close and the value of yield from": """
        def inner():
            got = []
            try:
                while True:
                    try: got.append((yield len(got)))
                    except KeyError as error: got.append(repr(error))
                    if len(got) > 3: return got
            finally: trace.append("inner ends")
        class Own:
            def __init__(self): self.n = 0
            def __iter__(self): trace.append("iter"); return self
            def __next__(self):
                self.n += 1
                if self.n > 2: raise StopIteration("value")
                return self.n
        class Closing(Own):
            def close(self): trace.append("close")
        class Holder:
            def __iter__(self): trace.append("holder"); return Closing()
        def outer(it):
            trace.append((yield from it))
            return "end"
        g = outer(inner())
        trace += [next(g), g.send("a"), g.throw(KeyError("b")), g.send(None)]
        try: g.send("c")
        except StopIteration as end: trace.append(end.value)
        for one in (Own, Closing):
            g = outer(one())
            trace.append(list(g))
            g = outer(one()); next(g); g.close()
        g = outer(Holder()); next(g); del g
        g = outer(inner()); next(g); g.close()
        g = outer([1, 2]); next(g)
        try: g.throw(ValueError("x"))
        except ValueError as error: trace.append(repr(error))
        for bad in (3, None):
            try: list(outer(bad))
            except TypeError as error: trace.append(str(error))
        def two(): return (yield from "ab"), (yield from "cd")
        trace.append(list(two()))
    """,
    "StopIteration in comprehensions": """
        def f():
            it = iter([1, 2])
            try: return [next(it) for _ in range(5)]
            except StopIteration: return "stop", next(it, "none")
        def g():
            it = iter([1])
            try: return list(next(it) for _ in range(5))
            except RuntimeError as error: return str(error)
        trace += [f(), g()]
    """,
    "exceptions in force": """
        import sys
        def f():
            try: 1 / 0
            except ZeroDivisionError:
                for i in range(2):
                    trace.append(sys.exc_info()[0])
                    try: [].pop()
                    except IndexError: trace.append(sys.exc_info()[0])
                    if i: raise
        try: f()
        except ZeroDivisionError as error: trace.append(repr(error.__context__))
        for i in range(2):
            try: raise KeyError(i)
            except KeyError as error: trace.append(error.__context__)
            finally:
                for j in range(2):
                    if j: continue
    """,
    "match, with, if __name__, global target": """
        import contextlib
        def f(values):
            global last
            for last in values:
                match last:
                    case [x, *rest] if [abs(y) for y in rest]: trace.append((x, rest))
                    case {"a": a}: trace.append(a)
                    case int() | str(): continue
                    case _: break
            else: trace.append("else")
        f([[1, 2], [3], {"a": 4}, 5]); trace.append(last)
        with contextlib.suppress(KeyError):
            for i in range(3):
                with contextlib.nullcontext(i) as n: trace.append(n)
                if i: raise KeyError
        if __name__ == "test":
            while len(trace) < 20: trace.append(len(trace))
    """,
    "tests of while": """
        def f():
            while True: return 1
        def g():
            while 0: yield 1
            while 1:
                break
            else: trace.append("never")
            while "": pass
            else: trace.append("else of a constant")
        def h(n):
            while (n
                   and n > 2):
                n -= 1
                if n == 7: continue
            else: return "else", n
        trace += [f(), list(g()), h(9)]
    """,
    "iterables of all kinds": """
        a, b = [1], (2, 3)
        for x in *a, *b: trace.append(x)
        for x.y in (): pass
        d = {}
        for d[abs(-1)] in "ab": trace.append(dict(d))
        for p, (q, *r) in [(1, (2, 3, 4))]: trace.append((p, q, r))
        for x in (z := [1, 2]): trace.append(z)
        class Old:
            def __getitem__(self, i):
                if i > 2: raise IndexError
                return i
        for x in Old(): trace.append(x)
        grown = [1]
        for x in grown:
            if x < 5: grown.append(x + 1)
        trace.append(grown)
        for bad in (1, None, int):
            try:
                for x in bad: pass
            except TypeError as error: trace.append(str(error))
    """,
    "names that are not the builtins": """
        import builtins
        def f(enumerate, zip=lambda *a: a): return enumerate(1), zip(2, 3)
        trace.append(f(lambda x: [x]))
        kept = builtins.map
        try:
            builtins.map = lambda f, x: ("mine", x)
            trace.append(map(abs, (1,)))
        finally: builtins.map = kept
        def map(f, x): return "also mine", x
        trace.append(map(abs, 1))
        enumerate = {"unhashable": []}.get
        trace.append(enumerate("unhashable"))
    """,
    "exec, eval, recursion, decorators": """
        names = {}
        exec("for i in range(3): x = i\\ny = [abs(i) for i in range(3)]", names)
        trace.append((names["x"], names["y"], eval("[abs(i) for i in range(2)]")))
        def walk(tree):
            for one in tree:
                if isinstance(one, list): yield from walk(one)
                else: yield one
        trace.append(list(walk([1, [2, [3, []], 4]])))
        def with_names(*names): return lambda function: (function, names)
        @with_names(*[str(i) for i in range(2)])
        def f(): pass
        trace.append(f[1])
    """,
    "iterators are let go when a loop is left": """
        import weakref
        class It:
            def __iter__(self): return self
            def __next__(self): return 1
        def f():
            for x in (it := It()):
                ref = weakref.ref(it); del it
                break
            trace.append(ref() is None)
            try:
                for x in (it := It()):
                    ref = weakref.ref(it); del it
                    raise KeyError
            except KeyError: trace.append(ref() is None)
            box = [abs(x) for x in range(3)]
            return len(box)
        trace.append(f())
    """,
    "asynchronous code": """
        import asyncio
        async def numbers(n):
            for i in range(n):
                await asyncio.sleep(0)
                yield i
        async def one(i): return i
        async def f():
            async for x in numbers(2): trace.append(x)
            trace.append([x async for x in numbers(3)])
            trace.append([await one(x) for x in range(3)])
            trace.append([x for y in [abs(z) for z in range(3)] async for x in numbers(y)])
            async for x in (await one(y) for y in range(2)): trace.append(x)
            for x in await one([1, 2]): trace.append(await one(x))
            n = 0
            while await one(n) < 2: n += 1
            else: trace.append("else")
        asyncio.run(f())
    """,
}


def outcome(code: Any) -> list[Any]:
    names: dict[str, Any] = {"trace": [], "__name__": "test"}
    exec(code, names)
    return names["trace"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", SAME)
def test_rewritten_code_does_what_the_plain_code_does(name: str) -> None:
    source = textwrap.dedent(SAME[name]).strip()
    rewritten = rewrite(source.encode(), "<corner>")
    assert rewritten.reason == ""
    plain = compile(source, "<corner>", "exec")
    assert rewritten.code != plain
    assert outcome(rewritten.code) == outcome(plain)
    assert outcome(rewrite(source.encode(), "<corner>", repeats=False).code) == outcome(plain)


TWO_LOOPS = b"""
def turns(items, leaves, trace):
    for item in items:
        trace.append(item)
        leaves(item)
    number = 0
    while number < 3:
        number += 1
        leaves(number)
    return number
"""


def test_in_live_runs_a_loop_goes_on_behind_an_exception_of_ours() -> None:
    names: dict[str, Any] = {}
    code = rewrite(TWO_LOOPS, "<live>", repeats=False).code
    assert code is not None
    exec(code, names)
    asked, left, trace = [], [], []

    def goes_on(frame: Any, line: int) -> bool:
        asked.append((frame.f_code.co_name, line))
        return line == 3

    def leaves(number: int) -> None:
        if number == 2:
            raise Unwind

    set_hooks(left=left.append)
    set_way_back(goes_on)
    try:
        with pytest.raises(Unwind):
            names["turns"]([1, 2, 3], leaves, trace)
    finally:
        set_hooks()
        set_way_back(None)
    assert asked == [("turns", 3), ("turns", 7)]
    assert (left, trace) == ([3, 7], [1, 2, 3])


def test_which_exceptions_end_a_turn_is_asked_as_one_is_raised() -> None:
    names: dict[str, Any] = {}
    code = rewrite(TWO_LOOPS, "<live>", repeats=False).code
    assert code is not None
    exec(code, names)
    asked = []

    def ends_turn() -> tuple[type[BaseException], ...]:
        asked.append("asked")
        return (KeyError,)

    def leaves(number: int) -> None:
        if number == 2:
            raise KeyError(number) if len(asked) < 2 else ValueError(number)

    set_way_back(lambda frame, line: True, ends_turn)
    try:
        with pytest.raises(ValueError, match="2"):
            names["turns"]([1, 2, 2], leaves, [])
    finally:
        set_way_back(None)
    assert len(asked) == 3


@pytest.mark.parametrize("source", ["", "# nothing\n", '"""Text."""\n', "x = 1\n", "\f\n\n"])
def test_a_module_without_loops_is_compiled_as_it_is(source: str) -> None:
    rewritten = rewrite(source.encode(), "<plain>")
    assert rewritten.code == compile(source, "<plain>", "exec")
    assert rewritten.sites == ()


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("# -*- coding: latin-1 -*-\nfor x in 'é': text = x\n".encode("latin-1"), "é"),
        (b"\xef\xbb\xbffor x in 'a': text = x\n", "a"),
        ("for x in 'ü': text = x\r\n".encode(), "ü"),
    ],
)
def test_a_source_has_its_own_encoding(source: bytes, text: str) -> None:
    names: dict[str, Any] = {}
    code = rewrite(source, "<encoded>").code
    assert code is not None
    exec(code, names)
    assert names["text"] == text


@pytest.mark.parametrize(
    "source", [b"for", b"x = '\0'", b"\xff = 1", b"def f():\nreturn", b"(" * 5000]
)
def test_a_source_that_cannot_be_read_has_a_reason(source: bytes) -> None:
    rewritten = rewrite(source, "<broken>")
    assert rewritten.code is None
    assert rewritten.reason


def test_what_only_the_rewritten_code_cannot_be_is_used_as_it_is() -> None:
    """CPython nests 20 blocks; a rewritten loop takes three."""
    lines = ["    " * depth + f"for a{depth} in (1,):" for depth in range(12)]
    source = "\n".join([*lines, "    " * 12 + "x = a0"])
    rewritten = rewrite(source.encode(), "<deep>")
    assert "nested" in rewritten.reason
    assert rewritten.code == compile(source, "<deep>", "exec")


def test_sites_name_function_lines_and_kind() -> None:
    source = textwrap.dedent("""
        def f():
            for x in range(
                3
            ):
                while x:
                    x -= 1
                else:
                    x = 5
        class C:
            for i in range(3): pass
            async def g(self):
                for y in ():
                    def h():
                        return [abs(z) for z in (yield from y)]
        for x in ():
            pass
    """)
    code, sites, reason = rewrite(source.encode(), "<sites>")
    assert reason == ""
    assert sites == (
        LoopSite("f", 3, 9, "for", "_tm_1"),
        LoopSite("f", 6, 7, "while", "_tm_2"),
        LoopSite("C.g", 13, 15, "for", "_tm_3"),
        LoopSite("C.g.<locals>.h", 15, 15, "comprehension", "_tm_4"),
        LoopSite("C.g.<locals>.h", 15, 15, "yield from", "_tm_5"),
        LoopSite("<module>", 16, 17, "for", "_tm_6"),
    )
    assert code is not None
    known = {one.co_qualname: one for one in _codes(code)}
    assert all(site.variable in _names(known[site.function]) for site in sites)


def _codes(code: Any) -> Any:
    yield code
    for one in code.co_consts:
        if hasattr(one, "co_consts"):
            yield from _codes(one)


def _names(code: Any) -> Any:
    return code.co_varnames + code.co_cellvars + code.co_names


def test_tracebacks_have_the_same_lines() -> None:
    source = textwrap.dedent("""
        def boom(x):
            raise KeyError(x)
        def gen():
            yield 1
            boom(2)
        def body():
            for x in (
                1,
                2,
            ):
                if x == 2:
                    boom(
                        x,
                    )
        def header():
            for x in (
                gen(
                )
            ):
                pass
        def test_of_while():
            n = 0
            while (
                n < 2
                or boom(n)
            ):
                n += 1
        def listed():
            return [
                boom(x)
                for x in range(3)
            ]
        def generated():
            return list(
                boom(x) for x in gen()
            )
        def delegated():
            yield from (
                gen()
            )
        def not_iterable():
            for x in (
                3
            ):
                pass
    """)
    names: dict[str, Any] = {}
    exec(compile(source, "<lines>", "exec"), names)
    new: dict[str, Any] = {}
    exec(rewrite(source.encode(), "<lines>").code, new)  # type: ignore[arg-type]
    for name in ("body", "header", "test_of_while", "listed", "generated", "not_iterable"):
        assert _lines(new[name]) == _lines(names[name]), name
    assert _lines(lambda: list(new["delegated"]())) == _lines(lambda: list(names["delegated"]()))


def _lines(function: Any) -> list[tuple[str, int | None]]:
    with pytest.raises((KeyError, TypeError)) as caught:
        function()
    frames = traceback.extract_tb(caught.value.__traceback__)
    return [(frame.name, frame.lineno) for frame in frames if frame.filename == "<lines>"]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="syntax of Python 3.12")
def test_type_parameters_are_left_alone() -> None:
    source = textwrap.dedent("""
        type Pairs[T] = list[tuple[T, T]]
        class Box[T]:
            def get[S](self, n: S, d=[abs(i) for i in range(2)]) -> T:
                for i in range(n): trace.append((i, d))
        Box().get(2)
        trace.append(f"{", ".join([str(i) for i in range(3)])}")
    """)
    rewritten = rewrite(source.encode(), "<typed>")
    assert rewritten.reason == ""
    assert outcome(rewritten.code) == outcome(compile(source, "<typed>", "exec"))


def _sample(folder: Path, count: int, seed: int) -> list[Path]:
    files = sorted(path for path in folder.rglob("*.py") if "lib2to3" not in path.parts)
    chosen = random.Random(seed).sample(files, min(len(files), 4 * count))
    return [path for path in chosen if path.stat().st_size < 40_000][:count]


@pytest.mark.parametrize(
    ("name", "package"), [("stdlib", ""), ("purelib", ""), ("purelib", "torch")]
)
def test_code_of_others_can_be_rewritten(name: str, package: str) -> None:
    for path in _sample(Path(sysconfig.get_path(name)) / package, 40, seed=1):
        source = path.read_bytes()
        try:
            compile(source, str(path), "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            continue
        assert rewrite(source, str(path)).reason == "", path


def _rewritten_module(path: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "rewritten", "__package__": "", "__file__": path}
    code = rewrite(Path(path).read_bytes(), path).code
    assert code is not None
    exec(code, names)
    return names


def test_modules_of_the_standard_library_work_rewritten() -> None:
    import difflib
    import fnmatch
    import heapq
    import shlex
    import statistics
    import string
    import tokenize

    new = _rewritten_module(heapq.__file__)
    numbers = random.Random(3).sample(range(1000), 50)
    assert [*new["merge"](sorted(numbers), [5, 7])] == [*heapq.merge(sorted(numbers), [5, 7])]
    assert new["nsmallest"](7, iter(numbers), key=lambda x: -x) == sorted(numbers)[:-8:-1]
    new = _rewritten_module(difflib.__file__)
    texts = ["one", "two", "three"], ["two", "three", "fore"]
    assert [*new["ndiff"](*texts)] == [*difflib.ndiff(*texts)]
    assert new["HtmlDiff"]().make_table(*texts).count("<tr>") == 4
    assert _rewritten_module(textwrap.__file__)["wrap"]("a b c " * 20, 9) == textwrap.wrap(
        "a b c " * 20, 9
    )
    assert _rewritten_module(shlex.__file__)["split"]("a 'b c' d\\ e") == shlex.split(
        "a 'b c' d\\ e"
    )
    assert _rewritten_module(statistics.__file__)["quantiles"](numbers) == statistics.quantiles(
        numbers
    )
    assert _rewritten_module(fnmatch.__file__)["translate"]("a*[b-c]?") == fnmatch.translate(
        "a*[b-c]?"
    )
    assert _rewritten_module(string.__file__)["Formatter"]().format("{0:>{1}}", "a", 4) == "   a"
    lines = Path(__file__).read_bytes().splitlines(keepends=True)
    tokens = [*_rewritten_module(tokenize.__file__)["tokenize"](iter(lines).__next__)]
    assert [tuple(one) for one in tokens] == [
        tuple(one) for one in tokenize.tokenize(iter(lines).__next__)
    ]
