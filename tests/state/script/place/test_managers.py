"""What lies in the managers of `with`s around a fetch, and in no variable, is compared."""

import contextlib
import sys
from pathlib import Path
from typing import Any

import captures
import pytest

from trainmover.state.script.place import managers
from trainmover.state.script.place.stacked import owner_at
from trainmover.state.script.place.withs import around

HEAD = """
    import asyncio, contextlib
    class Settings:
        scale = 1.0
    settings = Settings()
    @contextlib.contextmanager
    def eased(settings):
        before, begun = settings.scale, time.time()
        settings.scale = 0.5 * before
        try:
            yield
        finally:
            settings.scale = before
            print(time.time() - begun)
    @contextlib.asynccontextmanager
    async def eased_later(settings):
        before = settings.scale
        settings.scale = 0.5 * before
        yield
        settings.scale = before
    class Eased:
        def __init__(self, settings):
            self.settings, self.before = settings, settings.scale
        def __enter__(self):
            self.settings.scale = 0.5 * self.before
        def __exit__(self, *error):
            self.settings.scale = self.before
    class EasedThere:
        __slots__ = ("begun", "before", "shown")
        def __enter__(self):
            self.begun, self.before, self.shown = time.time(), settings.scale, len(job.own)
            settings.scale = 0.5 * self.before
            return self
        def __exit__(self, *error):
            self.put_back()
            print(time.time() - self.begun)
        def put_back(self):
            settings.scale = self.before
    class EasedBeside(EasedThere):
        pass
    def put(scale):
        settings.scale = scale
    def putting(scale):
        return lambda: put(scale)
    def chosen():
        return eased(settings)
"""
LOOP = """
    def main():
        batches = iter(job.batches(DATA))
        while len(job.own) < 13:
            with {manager}:
                {begin}
                for _ in range(1):
                    x, y = next(batches)
                    step(x * settings.scale)
            settings.scale = 0.9 * settings.scale + 0.1 * len(job.own)
    main()
"""
KEPT = {
    "a generator's": ("eased(settings)", ""),
    "one of a class": ("Eased(settings)", ""),
    "what its beginning stores": ("EasedThere()", ""),
    "a class made out of it": ("EasedBeside() as it", "del it"),
    "the inner of two": ("torch.no_grad(), eased(settings)", ""),
    "the outer of two": ("eased(settings), torch.no_grad()", ""),
    "one of two": ("eased(settings) if DATA else contextlib.nullcontext()", ""),
    "what a function returns": ("chosen()", ""),
    "a stack that calls": (
        "contextlib.ExitStack()  as stack",
        "stack.callback(put, settings.scale); settings.scale *= 0.5; del stack",
    ),
    "a stack that calls what closes over something": (
        "contextlib.ExitStack() as stack",
        "stack.callback(putting(settings.scale)); settings.scale *= 0.5; del stack",
    ),
    "a stack that has entered one": (
        "contextlib.ExitStack() as stack",
        "stack.enter_context(Eased(settings)); del stack",
    ),
    "a stack that has entered a generator's": (
        "contextlib.ExitStack() as stack",
        "stack.enter_context(eased(settings)); del stack",
    ),
}


@pytest.mark.parametrize("kind", KEPT)
def test_it_counts(tmp_path: Path, kind: str) -> None:
    manager, begin = KEPT[kind]
    job = captures.run_in(tmp_path, HEAD + LOOP.format(manager=manager, begin=begin))
    found = {one.name: one for one in job.differences() if one.name.startswith("with ")}
    assert len(found) == 1
    (line,) = (one.line for one in found.values())
    text = (tmp_path / "train.py").read_text().splitlines()[line - 1]
    assert text.lstrip().startswith("with ")
    assert job.differences(joiner=2, rank=2) == []


def test_it_counts_around_the_function_that_fetches(tmp_path: Path) -> None:
    script = """
    def train(batches):
        x, y = next(batches)
        step(x * settings.scale)
    def main():
        batches = iter(job.batches(DATA))
        while len(job.own) < 13:
            with Eased(settings):
                try:
                    with eased(settings):
                        train(batches)
                except ValueError:
                    pass
            settings.scale = 0.9 * settings.scale + 0.1 * len(job.own)
    main()
    """
    job = captures.run_in(tmp_path, HEAD + script)
    names = {one.name for one in job.differences()}
    assert names > {"with Eased(settings)", "with eased(settings)"}


def test_it_counts_where_it_is_asynchronous(tmp_path: Path) -> None:
    script = """
    async def main():
        batches = iter(job.batches(DATA))
        while len(job.own) < 13:
            async with eased_later(settings):
                x, y = next(batches)
                step(x * settings.scale)
            settings.scale = 0.9 * settings.scale + 0.1 * len(job.own)
    asyncio.run(main())
    """
    job = captures.run_in(tmp_path, HEAD + script)
    assert "with eased_later(settings)" in {one.name for one in job.differences()}


def test_it_counts_where_it_decorates_the_function_that_fetches(tmp_path: Path) -> None:
    script = """
    @torch.no_grad()
    @eased(settings)
    @torch.enable_grad()
    def train(batches):
        x, y = next(batches)
        step(x * settings.scale)
    def main():
        batches = iter(job.batches(DATA))
        while len(job.own) < 13:
            train(batches)
            settings.scale = 0.9 * settings.scale + 0.1 * len(job.own)
    main()
    """
    job = captures.run_in(tmp_path, HEAD + script)
    assert "with what decorates it (1)" in {one.name for one in job.differences()}
    assert job.differences(joiner=2, rank=2) == []


def test_two_of_one_text_are_told_apart(tmp_path: Path) -> None:
    script = """
    def main():
        batches = iter(job.batches(DATA))
        with eased(settings):
            while len(job.own) < 13:
                with eased(settings):
                    x, y = next(batches)
                    step(x)
                settings.scale = 0.1 * len(job.own)
    main()
    """
    job = captures.run_in(tmp_path, HEAD + script)
    names = {one.name for one in job.differences() if one.name.startswith("with ")}
    assert names == {"with eased(settings), in it"}


STAYS = {
    "the time": """
        class Timer:
            def __enter__(self):
                self.begun = time.time()
            def __exit__(self, *error):
                print(time.time() - self.begun)
        @contextlib.contextmanager
        def timed(name):
            begun = time.perf_counter()
            yield
            print(name, time.perf_counter() - begun)
        def around():
            return Timer(), timed("step")
    """,
    "what nothing reads as it ends": """
        class Seen:
            def __init__(self, number):
                self.number = number
            def __enter__(self):
                return self
            def __exit__(self, *error):
                self.number = None
        @contextlib.contextmanager
        def shown(number):
            print(number)
            yield
            print("end")
        def around():
            return Seen(len(job.own)), shown(len(job.own))
    """,
    "a library's": """
        def around():
            return torch.no_grad(), torch.autograd.profiler.record_function(f"{len(job.own)}")
    """,
}


@pytest.mark.parametrize("kind", STAYS)
def test_what_says_nothing_of_the_script_s_does_not(tmp_path: Path, kind: str) -> None:
    loop = """
        def main():
            batches = iter(job.batches(DATA))
            while len(job.own) < 13:
                with around()[0], around()[1]:
                    x, y = next(batches)
                    step(x)
        main()
    """
    job = captures.run_in(tmp_path, "        import contextlib\n" + STAYS[kind] + loop)
    assert job.differences() == []


def test_the_owner_of_what_ends_a_with_is_read_from_the_stack() -> None:
    class Own:
        def __enter__(self) -> "Own":
            return self

        def __exit__(self, *error: object) -> None:
            pass

    def read() -> list[Any]:
        frame = sys._getframe(1)
        return [owner_at(frame, one.level) for one in around(frame.f_code, frame.f_lasti)]

    outer, inner, null = Own(), Own(), contextlib.nullcontext()
    with outer, null:
        for _ in range(2):
            try:
                with inner:
                    assert read() == [outer, null, inner]
                assert read() == [outer, null]
            finally:
                assert read() == [outer, null]
    assert read() == []


def test_one_that_cannot_be_read_is_another_in_each_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(managers, "owner_at", lambda *_: None)
    processes = iter(range(1000))
    monkeypatch.setattr(managers.os, "getpid", lambda: next(processes))
    script = HEAD + LOOP.format(manager="eased(settings), torch.no_grad()", begin="")
    job = captures.run_in(tmp_path, script.replace("+ 0.1 * len(job.own)", "+ 0.1"))
    assert "with eased(settings)" in {one.name for one in job.differences()}
    assert "with torch.no_grad()" not in {one.name for one in job.differences()}
