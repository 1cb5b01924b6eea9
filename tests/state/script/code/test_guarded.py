"""What is stored where `is_shadow` is asked, and is read as more than a tool, is a variable."""

import ast
from pathlib import Path

import captures
import pytest

from trainmover.state.script.code.times.guarded import read_as_values

READ = {
    "if loss < best.loss: best = 1": {"best"},
    "if loss < best.item(): best = 1": {"best"},
    "seen = writer.file.name": {"writer"},
    "print(writer.add(1))": {"writer"},
    "scale = 1.0 if writer is None else 0.5": {"writer"},
    "if writer: writer.add(1)": set(),
    "if writer and step > 1: writer.add(1)": set(),
    "if writer is not None and not quiet: print(1); writer.file.add(1)": set(),
    "if writer: writer.add(best)": {"best"},
    "if writer: scale = 0.5": {"writer"},
    "if writer: other.add(1)": {"writer"},
    "if writer: writer.add(1)\nelse: scale = 0.5": {"writer"},
    "if best: best.add(1)\nbest = True": {"best"},
    "while writer: writer.add(1)": {"writer"},
    "torch.save(1, writer)": {"writer"},
    "self.writer.file.write(loss)": set(),
    "writer(loss)": {"writer"},
    "writer.add(best)": {"best"},
    "if loss > 0 and not job.is_shadow: writer.add(best.loss)": {"best"},
    "if not job.is_shadow: best += loss": set(),
    "if not job.is_shadow: print(best / 2)": {"best"},
    "if not job.is_shadow: print(best, file=writer)": {"best"},
    "if not job.is_shadow: torch.save(best, writer)": {"best"},
    "if not job.is_shadow: os.remove(writer)": set(),
    "if not job.is_shadow:\n if writer is None: writer = Writer()": set(),
    "if not job.is_shadow:\n if not best: best = True": {"best"},
    "if not job.is_shadow:\n if loss < best: best = loss": {"best"},
    "if not job.is_shadow and not best: best = 1": {"best"},
    "if not job.is_shadow:\n with writer: pass": set(),
}


@pytest.mark.parametrize("source", READ)
def test_what_is_read_as_a_value(source: str) -> None:
    assert read_as_values(ast.parse(source)) & {"best", "writer"} == READ[source]


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


READ_LATER = {
    "a mark that is only asked for": """
        saved = False
        def train_step(x):
            if saved:
                x = x * 2
            return x.sum()
        for x, y in job.batches(DATA):
            train_step(x)
            if x[0] > 5 and not job.is_shadow:
                saved = True
        """,
    "a sum that is printed at the end": """
        def main():
            saved = 0.0
            for x, y in job.batches(DATA):
                if not job.is_shadow:
                    saved += float(x.sum())
            if not job.is_shadow:
                print(saved / len(DATA))
        main()
        """,
    "a number of times, of an object": """
        class Run:
            def __init__(self):
                self.saved = 0
            def save(self, x):
                if not job.is_shadow:
                    self.saved = int(x[0])
            def close(self):
                if not job.is_shadow:
                    print(self.saved)
        run = Run()
        for x, y in job.batches(DATA):
            run.save(x)
        run.close()
        """,
}


@pytest.mark.parametrize("what", READ_LATER)
def test_what_is_stored_by_real_runs_only_counts_as_it_is_read(what: str, tmp_path: Path) -> None:
    job = captures.run_in(tmp_path, READ_LATER[what])
    found = [one.name.rpartition(".")[2] for one in job.differences()]
    assert found == ["saved"]
