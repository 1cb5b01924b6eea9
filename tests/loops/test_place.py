"""The loops that are under way, as frames tell."""

import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

from trainmover.loops.place import active_loops, current_loop, register, registered_paths, sites_of
from trainmover.loops.rewrite import rewrite

PATH = "<place>"


@pytest.fixture(autouse=True)
def no_sites() -> Iterator[None]:
    yield
    register(PATH, ())


def places(source: str, calls: str = "main()") -> list[list[Any]]:
    """Run a source that calls `probe`; return (function, line, turns) of all loops at each call."""
    found: list[list[Any]] = []

    def probe(value: Any = None) -> Any:
        frame = sys._getframe(1)
        loops = active_loops(frame)
        assert current_loop(frame) is (loops[-1].loop if loops else None)
        found.append([(one.function, one.line, one.loop.turn_count) for one in loops])
        return value

    rewritten = rewrite(textwrap.dedent(source).encode(), PATH)
    assert rewritten.code is not None
    register(PATH, rewritten.sites)
    names: dict[str, Any] = {"probe": probe}
    exec(rewritten.code, names)
    exec(calls, names)
    return found


def test_loops_of_all_frames_are_found_in_order() -> None:
    assert places("""
        def main():
            for epoch in range(2):
                for batch in "ab":
                    step(batch)
                probe()
            probe()
        def step(batch):
            n = 0
            while n < 1:
                probe()
                n += 1
    """) == [
        [("main", 3, 1), ("main", 4, 1), ("step", 10, 1)],
        [("main", 3, 1), ("main", 4, 2), ("step", 10, 1)],
        [("main", 3, 1)],
        [("main", 3, 2), ("main", 4, 1), ("step", 10, 1)],
        [("main", 3, 2), ("main", 4, 2), ("step", 10, 1)],
        [("main", 3, 2)],
        [],
    ]


def test_a_loop_is_under_way_while_its_iterator_is_asked() -> None:
    assert places("""
        def items(n):
            for i in range(n):
                yield probe(i)
        def main():
            for x in (
                items(
                    1
                )
            ): pass
    """) == [[("main", 6, 0), ("items", 3, 1)]]


def test_a_loop_is_not_under_way_in_its_header_before_it_begins() -> None:
    """Neither the first time, nor when it was left by a break before."""
    assert places("""
        def main():
            for i in range(2):
                for x in probe("ab"):
                    break
                else:
                    probe()
    """) == [[("main", 3, 1)], [("main", 3, 2)]]


def test_an_else_and_what_follows_is_outside() -> None:
    assert places("""
        def main():
            for x in "a": probe()
            else:
                probe()
            while probe(): probe()
            else: probe()
    """) == [[("main", 3, 1)], [], [("main", 6, 1)], []]


def test_blocks_and_handlers_are_inside() -> None:
    assert (
        places("""
        import contextlib
        def main():
            for x in "a":
                with contextlib.ExitStack() as stack:
                    stack.callback(probe)
                    try:
                        raise KeyError
                    except KeyError:
                        probe()
                    finally:
                        probe()
                match x:
                    case "a" if probe(True): pass
    """)
        == [[("main", 4, 1)]] * 4
    )


def test_one_line_loops_and_two_on_one_line() -> None:
    assert places("""
        def main():
            for x in "a": probe(); [probe(y) for y in "b"]; list(probe(z) for z in "c")
            a, b = [probe(x) for x in "d"], [probe(x) for x in "e"]
        while True: probe(); break
    """) == [
        [("<module>", 5, 1)],
        [("main", 3, 1)],
        [("main", 3, 1), ("main", 3, 1)],
        [("main", 3, 1), ("main.<locals>.<genexpr>", 3, 1)],
        [("main", 4, 1)],
        [("main", 4, 1)],
    ]


def test_generators_and_what_they_delegate_to() -> None:
    assert places("""
        def inner():
            while True:
                yield probe()
                return
        class Items:
            def __iter__(self): return self
            def __next__(self):
                probe()
                raise StopIteration
        def outer():
            yield from inner()
            yield from Items(); probe()
            yield from (probe(x) for x in "a")
        def main():
            for x in outer():
                pass
    """) == [
        [("main", 16, 0), ("inner", 3, 1)],
        [("main", 16, 1), ("outer", 13, 0)],
        [("main", 16, 1)],
        [("main", 16, 1), ("outer.<locals>.<genexpr>", 14, 1)],
    ]


def test_loops_of_a_module_and_of_functions_of_one_name() -> None:
    assert places(
        """
        for i in range(1):
            for f in (lambda: [probe(x) for x in "a"], probe):
                f()
        class C:
            @property
            def p(self):
                for x in "a": probe()
            @p.setter
            def p(self, value):
                for x in "ab":
                    probe()
        """,
        "C().p; C().p = 1",
    ) == [
        [("<module>", 2, 1), ("<module>", 3, 1), ("<lambda>", 3, 1)],
        [("<module>", 2, 1), ("<module>", 3, 2)],
        [("C.p", 8, 1)],
        [("C.p", 11, 1)],
        [("C.p", 11, 2)],
    ]


def test_a_thread_has_a_place_of_its_own() -> None:
    found = places("""
        import threading
        def other():
            for x in "ab": probe()
        def main():
            for y in "c":
                thread = threading.Thread(target=other); thread.start(); thread.join()
                probe()
    """)
    assert found == [[("other", 4, 1)], [("other", 4, 2)], [("main", 6, 1)]]


def test_frames_of_other_code_have_no_loops() -> None:
    assert active_loops(sys._getframe()) == []
    assert current_loop(None) is None


def test_sites_are_listed_by_file() -> None:
    places("def main():\n    for x in (): pass\n")
    assert PATH in registered_paths()
    assert [(site.function, site.line, site.kind) for site in sites_of(PATH)] == [
        ("main", 2, "for")
    ]
    assert sites_of("<unknown>") == ()
