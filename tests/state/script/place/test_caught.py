"""Where an exception may be caught, a local that is stored before that keeps its old value: so it
counts, whatever catches. What passes every error on leaves no old value."""

import textwrap
from pathlib import Path

import captures
import pytest

HEAD = """
    import contextlib, threading
    from contextlib import suppress as quiet
    class Spike(Exception):
        pass
    class Tolerant:
        def __enter__(self):
            return self
        def __exit__(self, kind, error, trace):
            return kind is Spike
    class Strict:
        def __init__(self, net=None):
            self.net = net
        def __enter__(self):
            return self
        def __exit__(self, *error):
            step(DATA[0][0])
            return False
    @contextlib.contextmanager
    def tolerant():
        try:
            yield
        except Spike:
            pass
    @contextlib.contextmanager
    def strict():
        try:
            with torch.no_grad():
                yield
        except ValueError as error:
            raise Spike from error
        finally:
            step(DATA[0][0])
    @contextlib.contextmanager
    def around():
        with tolerant(), strict():
            yield
    def chosen(keeps):
        return Tolerant() if keeps else contextlib.nullcontext()
    def passing():
        return strict()
    lock, kept = threading.Lock(), Tolerant()
    class Net(nn.Linear):
        @contextlib.contextmanager
        def no_sync(self):
            yield
        def lenient(self):
            return tolerant()
    net = Net(2, 1)
    def spiky(x):
        if len(job.own) % 5:
            raise Spike
        return x.sum().item() + len(job.own)
    ctx = torch.no_grad()
    many, by_name = [ctx, kept], {"none": ctx, "kept": kept}
    makers, passes, by_kind = [strict, tolerant], [ctx, lock], {"strict": Strict}
    net.of = [kept]
"""
KEEP = [
    *("Tolerant()", "kept", "tolerant()", "around()", "quiet(Spike)", "contextlib.suppress(Spike)"),
    *(
        "many[1]",
        "by_name['kept']",
        "makers[y % 2]()",
        "next(iter(many))",
        "many.copy()[0]",
        "by_name.get('kept')",
    ),
    *("getattr(net, 'lenient')()", "(lambda: kept)()", "net.of[0]"),
    *("chosen(1)", "net.lenient()", "Strict() if lock else Tolerant()", "strict(), Tolerant()"),
]
PASS = [
    *(
        "Strict()",
        "strict()",
        "passing()",
        "torch.no_grad()",
        "torch.autocast('cpu')",
        "ctx",
        "lock",
    ),
    *("open(os.devnull) as file", "net.no_sync()", "net.no_sync() if lock else ctx", "own"),
    *("passes[0]", "by_kind['strict'](net)", "[ctx, lock][0]"),
    *("contextlib.nullcontext()", "torch.profiler.record_function('x')", "strict(), Strict(net)"),
]


def with_in(folder: Path, manager: str) -> list[str]:
    script = f"""
    def main():
        good = 1.0
        own = net.no_sync() if len(DATA) > 3 else contextlib.nullcontext()
        for x, y in job.batches(DATA):
            own = net.no_sync() if len(DATA) > 3 else contextlib.nullcontext()
            try:
                pass
            finally:
                with {manager}:
                    value = x.sum()
                    good = float(len(job.own))
            step(x * good)
    main()
    """
    return names_in(folder, script)


def names_in(folder: Path, script: str) -> list[str]:
    return captures.names_in(folder, HEAD + script)


@pytest.mark.parametrize("manager", KEEP)
def test_what_is_stored_in_a_with_counts_whose_manager_may_keep_an_error(
    tmp_path: Path, manager: str
) -> None:
    assert with_in(tmp_path, manager) == ["good"]


@pytest.mark.parametrize("manager", PASS)
def test_and_not_where_it_passes_every_error_on(tmp_path: Path, manager: str) -> None:
    assert with_in(tmp_path, manager) == []


@pytest.mark.parametrize(("enters", "names"), [("Tolerant()", ["good"]), ("ctx", [])])
def test_a_stack_keeps_what_those_keep_that_enter_it(
    tmp_path: Path, enters: str, names: list[str]
) -> None:
    script = f"""
    def main():
        good = 1.0
        for x, y in job.batches(DATA):
            with contextlib.ExitStack() as stack:
                stack.enter_context({enters})
                value = x.sum()
                good = float(len(job.own))
            step(x * good)
    main()
    """
    assert names_in(tmp_path, script) == names


CAUGHT = {
    "by a try around the loop": """
    def main():
        good, batches = 1.0, iter(job.batches(DATA))
        while len(job.own) < 13:
            try:
                for x, y in batches:
                    value = spiky(x)
                    good = value
            except Spike:
                step(x * good)
    """,
    "behind a loop in the try": """
    def main():
        good = 1.0
        for x, y in job.batches(DATA):
            try:
                value = spiky(x)
                good = value
                for one in range(2):
                    step(x)
            except Spike:
                step(x * good)
    """,
    "in a with in the try": """
    def main():
        good, batches = 1.0, iter(job.batches(DATA))
        while len(job.own) < 13:
            try:
                with torch.no_grad():
                    x, y = next(batches)
                    value = spiky(x)
                    good = value
            except Spike:
                step(x * good)
    """,
    "in the function that is called": """
    def fetched(batches):
        try:
            x, y = next(batches)
            return spiky(x)
        finally:
            step(DATA[0][0])
    def main():
        good, batches = 1.0, job.batches(DATA)
        while len(job.own) < 13:
            try:
                good = fetched(batches)
            except Spike:
                step(DATA[0][0] * good)
    """,
    "by the caller, and read in a finally": """
    class Kept:
        best = 0.0
    def several(batches):
        good = float(len(job.own) // 5)
        try:
            for x, y in batches:
                value = spiky(x)
                good = value
        finally:
            Kept.best = good
    def main():
        batches = iter(job.batches(DATA))
        while len(job.own) < 13:
            try:
                several(batches)
            except Spike:
                step(DATA[0][0] * Kept.best)
    """,
    "at the top of the file": """
    good = 1.0
    for x, y in job.batches(DATA):
        try:
            value = spiky(x)
            good = value
            for one in range(2):
                step(x)
        except Spike:
            step(x * good)
    def main():
        pass
    """,
}


@pytest.mark.parametrize("place", CAUGHT)
def test_it_counts_where_it_is_caught(tmp_path: Path, place: str) -> None:
    assert "good" in names_in(tmp_path, CAUGHT[place].rstrip() + "\n    main()\n")


BY_LIBRARY = """
import calm
def main():
    good, batches = 1.0, iter(job.batches(DATA))
    def several():
        kept = float(len(job.own) // 5)
        try:
            for x, y in batches:
                value = spiky(x)
                kept = value
        finally:
            nonlocal good
            good = kept
    while len(job.own) < 13:
        calm.CALL(several)
        step(DATA[0][0] * good)
main()
"""


@pytest.mark.parametrize(("call", "names"), [("kept", ["kept"]), ("raised", [])])
def test_it_counts_where_a_library_between_catches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, names: list[str]
) -> None:
    library = """
def kept(function):
    try:
        return function()
    except Exception as error:
        return error
def raised(function):
    try:
        return function()
    except Exception as error:
        raise RuntimeError from error
"""
    with captures.installed(tmp_path, monkeypatch, "calm", library):
        script = BY_LIBRARY.replace("CALL", call)
        script = script if names else script.replace("spiky(x)", "float(step(x))")
        found = names_in(tmp_path, textwrap.indent(script, "    "))
    assert [one for one in found if one == "kept"] == names


ENDS = {
    "a finally around it all": """
        try:
            for x, y in job.batches(DATA):
                loss = spiky(x) if y > 8 else float(len(job.own))
        finally:
            print(loss)
    """,
    "what is raised again": """
        try:
            for x, y in job.batches(DATA):
                loss = spiky(x) if y > 8 else float(len(job.own))
        except Spike:
            print(loss)
            raise
    """,
    "a key that is pressed": """
        try:
            for x, y in job.batches(DATA):
                loss = spiky(x) if y > 8 else float(len(job.own))
        except KeyboardInterrupt:
            print(loss)
    """,
    "what is stored before anything can raise": """
        for x, y in job.batches(DATA):
            try:
                loss = None
                loss = spiky(x) if y > 8 else float(len(job.own))
            except Spike:
                print(loss)
    """,
    "what goes on with the next round": """
        for x, y in job.batches(DATA):
            try:
                loss = spiky(x) if y > 8 else float(len(job.own))
            except Spike:
                continue
            step(x * loss)
    """,
}


@pytest.mark.parametrize("place", ENDS)
def test_nothing_counts_for_where_the_script_ends_or_stores_it_anew(
    tmp_path: Path, place: str
) -> None:
    script = f"    def main():\n        loss = 1.0\n{ENDS[place]}\n    main()\n"
    assert names_in(tmp_path, script) == []


FAILS = {
    "and ends": "except Exception: print(loss)",
    "and raises": "except RuntimeError:\n            print(loss)\n            raise",
}


@pytest.mark.parametrize("called", ["main()", "torch.no_grad()(main)()"])
@pytest.mark.parametrize("how", FAILS)
def test_what_a_script_says_as_it_fails_is_no_variable(
    how: str, called: str, tmp_path: Path
) -> None:
    source = f"""
    def main():
        loss = None
        try:
            for x, y in job.batches(DATA):
                loss = x.sum()
        {FAILS[how]}
    {called}
    """
    assert "loss" not in names_in(tmp_path, source)
