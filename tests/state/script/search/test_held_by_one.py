"""What nothing holds but a method, a cell, a mode of torch or a handler of signals is found."""

from pathlib import Path

import captures
import pytest

KEPT = {
    "a list by two of its methods": """
        def pair():
            kept = [0]
            return kept.append, kept.pop
        push, pop = pair()
        def main():
            for number, (x, y) in enumerate(job.batches(DATA)):
                pop()
                push(number)
        main()
        """,
    "a dict by two of its methods": """
        def pair():
            kept = {}
            return kept.get, kept.__setitem__
        read, write = pair()
        def main():
            for number, (x, y) in enumerate(job.batches(DATA)):
                write("mean", number + read("mean", 0))
        main()
        """,
    "a tensor by its methods": """
        def pair():
            kept = torch.zeros(1)
            return kept.add_, kept.item
        add, read = pair()
        def main():
            for x, y in job.batches(DATA):
                add(float(x.sum()))
        main()
        """,
    "a list that a function is bound to": """
        import types
        def bump(kept):
            kept[0] += 1
        turn = types.MethodType(bump, [0])
        def main():
            for x, y in job.batches(DATA):
                turn()
        main()
        """,
    "a cell": """
        import types
        kept = types.CellType(0)
        def main():
            for number, (x, y) in enumerate(job.batches(DATA)):
                kept.cell_contents = number
        main()
        """,
    "a keyword's default": """
        kept = None
        def make(number):
            def rate(*, by=number):
                return by
            return rate
        def main():
            global kept
            for number, (x, y) in enumerate(job.batches(DATA)):
                kept = make(number)
        main()
        """,
    "a mode that was entered by hand": """
        from torch.overrides import TorchFunctionMode
        class Counts(TorchFunctionMode):
            def __init__(self):
                super().__init__()
                self.seen = 0
            def __torch_function__(self, function, types, args=(), kwargs=None):
                self.seen += 1
                return function(*args, **(kwargs or {}))
        def enter():
            Counts().__enter__()
        enter()
        def main():
            for x, y in job.batches(DATA):
                x + 1
        try:
            main()
        finally:
            torch.overrides._get_current_function_mode_stack()[-1].__exit__(None, None, None)
        """,
    "what is called at numpy's errors": """
        class Counts:
            count = 0
            def __call__(self, kind, flag):
                self.count += 1
        before = numpy.seterr(divide="call")
        numpy.seterrcall(Counts())
        def main():
            for x, y in job.batches(DATA):
                numpy.float64(1) / numpy.float64(0)
        try:
            main()
        finally:
            numpy.seterrcall(None), numpy.seterr(**before)
        """,
    "a handler of a signal": """
        import signal
        def handler():
            count = [0]
            def handle(number, frame):
                count[0] += 1
            return handle
        signal.signal(signal.SIGUSR2, handler())
        def main():
            for x, y in job.batches(DATA):
                signal.raise_signal(signal.SIGUSR2)
        main()
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)
        """,
}


@pytest.mark.parametrize("name", KEPT)
def test_it_counts(name: str, tmp_path: Path) -> None:
    assert {*captures.names_in(tmp_path, KEPT[name])} - {"number"}


def test_a_method_of_what_stays_is_none(tmp_path: Path) -> None:
    script = """
        def pair():
            kept = [0]
            return kept.index, kept.count
        find, count = pair()
        def main():
            for x, y in job.batches(DATA):
                find(0)
        main()
        """
    assert captures.names_in(tmp_path, script) == []
