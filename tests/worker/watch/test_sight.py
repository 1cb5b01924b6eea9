"""Where a thread stands, seen from another one."""

import ast
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch.utils.data import DataLoader

from trainmover.comm.private import PrivateGroup
from trainmover.comm.shim import ShimGroup
from trainmover.worker.data.batches import Batches
from trainmover.worker.member import Member
from trainmover.worker.standing import GuardedStanding
from trainmover.worker.watch import sight
from trainmover.worker.watch.sight import look


@contextmanager
def standing_in(call: Callable[[threading.Event, threading.Event], Any]) -> Iterator[int]:
    """A thread inside `call(reached, go_on)`; its number."""
    reached, go_on = threading.Event(), threading.Event()
    thread = threading.Thread(target=call, args=(reached, go_on), daemon=True)
    thread.start()
    assert reached.wait(10)
    try:
        yield thread.ident or 0
    finally:
        go_on.set()
        thread.join(10)


def in_script(reached: threading.Event, go_on: threading.Event) -> None:
    reached.set()
    go_on.wait()


class Waits:
    """A handle that is waited for."""

    def __init__(self, reached: threading.Event, go_on: threading.Event) -> None:
        self.reached, self.go_on = reached, go_on

    def wait(self) -> None:
        self.reached.set()
        self.go_on.wait()


def in_group(reached: threading.Event, go_on: threading.Event) -> None:
    watch = SimpleNamespace(released=False, start=lambda request: Waits(reached, go_on))
    member: Any = SimpleNamespace(name="gate", watch=watch, seat=0, size=2, private=True, place="")
    registry: Any = SimpleNamespace(draining=False)
    PrivateGroup(member, registry).all_reduce(None)  # type: ignore[arg-type]


def in_runtime(reached: threading.Event, go_on: threading.Event) -> None:
    class Changed(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            reached.set()
            standing.exit = go_on.wait()
            return True

    standing = GuardedStanding()
    standing.changed = Changed()
    standing.await_exit()


def in_step(reached: threading.Event, go_on: threading.Event) -> None:
    def compute() -> None:
        reached.set()
        go_on.wait()

    runtime: Any = SimpleNamespace(in_step=True)
    Member.run_step(runtime, compute, (), {})


@pytest.mark.parametrize(
    ("call", "where"),
    [(in_script, "script"), (in_group, "call"), (in_runtime, "runtime"), (in_step, "script")],
)
def test_the_innermost_frame_of_ours_tells(call: Callable[..., Any], where: str) -> None:
    with standing_in(call) as thread:
        sight = look(thread)
    assert sight.where == where
    assert sight.place.startswith("test_sight.py line ")


def test_a_call_is_named() -> None:
    with standing_in(in_group) as thread:
        sight = look(thread)
    assert (sight.call, sight.group) == ("the gate", "private/gate")


@pytest.mark.parametrize(("op", "group"), [("allreduce", "0"), ("recv", "")])
def test_a_call_of_the_script_counts_in_its_group_unless_it_is_a_message(
    op: str, group: str
) -> None:
    def call(reached: threading.Event, go_on: threading.Event) -> None:
        def waits(*args: Any) -> None:
            in_script(reached, go_on)

        member = SimpleNamespace(
            name="world", place="0", private=False,
            watch=SimpleNamespace(prompt=SimpleNamespace(direct={op: waits})),
        )  # fmt: skip
        registry = SimpleNamespace(calls=0, on_call=None, draining=False, tap=None)
        shim: Any = SimpleNamespace(_member=member, _groups=registry)
        getattr(ShimGroup, op)(shim)

    with standing_in(call) as thread:
        sight = look(thread)
    assert (sight.call, sight.group) == (f"{op} of group world", group)


def test_a_loader_that_gives_nothing_stands_at_a_fetch() -> None:
    def fetch(reached: threading.Event, go_on: threading.Event) -> None:
        def give_nothing(samples: list[int]) -> list[int]:
            reached.set()
            go_on.wait()
            return samples

        next(Batches(DataLoader([1, 2], collate_fn=give_nothing), 1, None))

    with standing_in(fetch) as thread:
        assert look(thread).where == "fetch"


def test_a_thread_that_is_gone_stands_nowhere() -> None:
    assert look(12345).where == "runtime"


WAITS = {"wait", "wait_for", "until", "acquire", "join", "sleep", "select", "recv"}


@pytest.mark.parametrize("path", sorted(sight._CALLS_SCRIPT))
def test_nothing_of_ours_waits_where_the_script_would_be_blamed_for_it(path: str) -> None:
    calls = [
        node.func
        for node in ast.walk(ast.parse(Path(path).read_text()))
        if isinstance(node, ast.Call)
    ]
    waiting = [
        f"{ast.unparse(func)} in line {func.lineno}"
        for func in calls
        if isinstance(func, ast.Attribute)
        and func.attr in WAITS
        and not isinstance(func.value, ast.Constant)
        and ast.unparse(func.value) != "os.path"
    ]
    assert waiting == []
