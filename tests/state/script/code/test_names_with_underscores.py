"""A name with two underscores is a variable like others, if the script stores to it."""

from pathlib import Path

import captures
import pytest

KEPT = {
    "local": """
        def main():
            __mean = 1.0
            for x, y in job.batches(DATA):
                __mean = 0.9 * __mean + float(x.sum())
        main()
    """,
    "global": """
        __mean = 1.0
        def note(x):
            global __mean
            __mean = 0.9 * __mean + float(x.sum())
        def main():
            for x, y in job.batches(DATA):
                note(x)
        main()
    """,
    "global with underscores around": """
        __mean__ = 1.0
        for x, y in job.batches(DATA):
            __mean__ = 0.9 * __mean__ + float(x.sum())
    """,
    "attribute of a class": """
        class Run:
            __mean__ = 1.0
        def main():
            for x, y in job.batches(DATA):
                Run.__mean__ = 0.9 * Run.__mean__ + float(x.sum())
        main()
    """,
}


@pytest.mark.parametrize("where", KEPT)
def test_it_is_compared(where: str, tmp_path: Path) -> None:
    job = captures.run_in(tmp_path, KEPT[where])
    assert [one.name.rpartition(".")[2].strip("_") for one in job.differences()] == ["mean"]
