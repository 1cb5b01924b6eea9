"""What is stored where `is_shadow` is asked, and is read as a value elsewhere, is a variable."""

import ast
from pathlib import Path

import captures
import pytest

from trainmover.state.script.code.guarded import read_elsewhere

READ = {
    "if loss < best.loss: best = 1": {"best"},
    "if loss < best.item(): best = 1": {"best"},
    "seen = writer.file.name": {"writer"},
    "print(writer.add(1))": {"writer"},
    "scale = 1.0 if writer is None else 0.5": set(),
    "if writer: writer.add(1)": set(),
    "self.writer.file.write(loss)": set(),
    "writer(loss)": {"writer"},
    "writer.add(best)": {"best"},
    "if loss > 0 and not job.is_shadow: writer.add(best.loss)": set(),
}


@pytest.mark.parametrize("source", READ)
def test_what_is_read_as_a_value(source: str) -> None:
    assert read_elsewhere(ast.parse(source)) & {"best", "writer"} == READ[source]


@pytest.mark.parametrize("kept", ["Best(loss)", "torch.tensor(loss)"])
def test_the_best_so_far_that_is_more_than_a_number_counts(kept: str, tmp_path: Path) -> None:
    read = "loss" if kept.startswith("Best") else "item()"
    job = captures.run_in(
        tmp_path,
        f"""
        Best = collections.namedtuple("Best", "loss")
        class Run:
            def __init__(self):
                self.best = {kept.replace("loss", "1e9")}
        def main():
            run = Run()
            for x, y in job.batches(DATA):
                loss = -float(x.sum())
                if loss < run.best.{read} and not job.is_shadow:
                    run.best = {kept}
        main()
        """,
    )
    assert [one.name.rpartition(".")[2] for one in job.differences()][:1] in (["best"], ["loss"])
