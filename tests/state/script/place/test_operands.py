"""What a statement has read before the call in it that fetches is compared, as it was then."""

import ast
from collections.abc import Callable
from pathlib import Path

import pytest
from captures import Job

from trainmover.state.script.place.operands import read_before

STATEMENTS = {
    "mean = 0.9 * mean + step(FETCH)": {"mean", "step"},
    "mean += step(FETCH)": {"mean", "step"},
    "self.best = min(self.best, test(model, FETCH), later)": {"min", "self.best", "test", "model"},
    "table[a.b] = put(FETCH)": {"put"},
    "table[key] += FETCH": {"table[key]"},
    "self.all.append(FETCH)": {"self.all.append"},
    "for x.y, z in pairs(c, FETCH): print(d)": {"pairs", "c"},
    "while mean < FETCH: print(d)": {"mean"},
    "with open(name) as file, FETCH: pass": {"open", "name"},
    "value = [a for b in c] + FETCH": set(),
    "x, y = FETCH": set(),
}


@pytest.mark.parametrize("text", STATEMENTS)
def test_what_is_read_before_is_known(tmp_path: Path, text: str) -> None:
    path, first = tmp_path / "train.py", "def go(a):\n    "
    path.write_text(f"{first}{text.replace('FETCH', 'next(it)')}\n    after\n")
    begin = 4 + text.index("FETCH")
    found = {ast.unparse(one) for one in read_before(str(path), (2, 2, begin, begin + 8))}
    assert found == STATEMENTS[text]


def test_no_call_has_read_nothing(tmp_path: Path) -> None:
    assert read_before(str(tmp_path / "train.py"), None) == ()
    assert read_before(str(tmp_path / "train.py"), (1, 1, 0, 4)) == ()


HABITS = {
    "a mean": """
        def main():
            it, mean = iter(job.batches(DATA)), 1.0
            while len(job.own) < 13:
                mean = 0.9 * mean + float(step(next(it)[0]))
                step(torch.tensor(mean))
        main()
        """,
    "a sum": """
        def main():
            it, total = iter(job.batches(DATA)), 0.0
            while len(job.own) < 13:
                total += float(step(next(it)[0]))
                step(torch.tensor(total))
        main()
        """,
    "the best, while it is evaluated": """
        def evaluate(batches):
            return max(float(step(x)) for x in [x for x, _ in batches])
        def main():
            best, done = 100.0, iter(range(20))
            while len(job.own) < 13:
                best = min(best, -next(done), evaluate(job.batches(DATA[:2])))
                step(torch.tensor(best))
        main()
        """,
    "what a generator was sent": """
        def averaged():
            mean = 0.0
            while True:
                mean = 0.9 * mean + (yield mean)
        def main():
            average = averaged()
            next(average)
            for x, y in job.batches(DATA):
                step(x * average.send(float(x[0])))
        main()
        """,
}


@pytest.mark.parametrize("habit", HABITS)
def test_it_is_compared(run: Callable[[str], Job], habit: str) -> None:
    found = run(HABITS[habit]).differences()
    assert found, "nothing is found"
    assert all(one.line > 0 for one in found), found


def test_what_is_kept_by_the_job_is_compared_as_it_was_when_it_was_read(
    run: Callable[[str], Job],
) -> None:
    job = run("""
        class Kept:
            mean = 1.0
        kept = Kept()
        job.tracked["kept"] = kept
        def main():
            it = iter(job.batches(DATA))
            while len(job.own) < 13:
                kept.mean = 0.9 * kept.mean + float(step(next(it)[0]))
        main()
        """)
    assert "before the fetch: kept.mean" in {one.name for one in job.differences()}


def test_a_time_that_was_read_is_none(run: Callable[[str], Job]) -> None:
    job = run("""
        class Clock:
            begun = 0.0
        def main():
            it, clock = iter(job.batches(DATA)), Clock()
            while len(job.own) < 13:
                clock.begun = begun = time.perf_counter()
                print(time.perf_counter() - begun - clock.begun, step(next(it)[0]))
        main()
        """)
    assert job.differences() == []
