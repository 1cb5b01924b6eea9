"""Of a time it is compared whether it is there, where something is decided by that, never what time
it is.
"""

import ast
import textwrap
from pathlib import Path

import captures
import pytest

from trainmover.state.script.code.source import read
from trainmover.state.script.fold.there import entry_of
from trainmover.state.script.putting import to_put
from trainmover.state.script.values import same, shown

LOOP = """
since, last, rate = None, None, 1.0
alarms = []
def weigh(began):
    return 1.0 if began is None else 0.5
class Watch:
    def __init__(self):
        self.begun = None
    @property
    def is_on(self):
        return self.begun is not None
watch = Watch()
def main():
    global since, last, rate, n
    for n, (x, y) in enumerate(job.batches(DATA)):
        step(x)
        {line}
main()
"""
DECIDES = {
    "rate = 0.5 if since is None else 1.0": "since",
    "if since: rate = 0.5": "since",
    "if not since and n > 3: rate = 0.5": "since",
    "rate = 0.7 * (since and 0.5 or 1.0)": "since",
    "print(weigh(since)); rate = weigh(since)": "since",
    "other = since; rate = 0.5 if other is None else 1.0": "since",
    "hard = since is not None; print(hard)": "since",
}
SHOWN = [
    "if since is not None: print(time.time() - since)",
    "if since is None: since = time.time()",
    "since = since or time.time()",
    "text = f'{since is None}'",
    "took = time.time() - since if since else 0.0; print(took)",
    "assert since is not None or n < 7",
    "if since is None or time.time() - since > 10: print(n); since = time.time()",
    "if time.time() - n > 10: since = None",
]


def _job(line: str, folder: Path) -> captures.Job:
    return captures.run_in(folder, LOOP.format(line=line))


@pytest.mark.parametrize("line", DECIDES)
def test_a_time_that_only_the_rank_has(line: str, tmp_path: Path) -> None:
    line = f"since = time.time() if n > 6 else None\n        {line}"
    found = {one.name: one for one in _job(line, tmp_path).differences()}
    assert (found["since"].theirs, found["since"].own) == ("a time", "None")


@pytest.mark.parametrize("line", DECIDES)
def test_a_time_that_both_have(line: str, tmp_path: Path) -> None:
    line = f"since = time.time() if n > 1 else None\n        {line}"
    assert "since" not in {one.name for one in _job(line, tmp_path).differences()}


@pytest.mark.parametrize("line", SHOWN)
def test_whether_there_is_one_is_only_shown(line: str, tmp_path: Path) -> None:
    line = f"since = time.time() if n > 6 else None\n        {line}"
    assert "since" not in {one.name for one in _job(line, tmp_path).differences()}


@pytest.mark.parametrize(
    "line",
    [
        "if alarms: rate = 0.5",
        "rate = 1.0 / (1.0 + sum(1 for _ in alarms))",
        "for _ in alarms: rate *= 0.9",
        "rate = 1.0 / (1.0 + len(alarms[-5:]))",
        "rate = 1.0 / (1.0 + len([one for one in alarms]))",
    ],
)
def test_how_many_times_there_are(line: str, tmp_path: Path) -> None:
    begun = f"if n in (1, 7): alarms.append(time.time())\n        {line}"
    found = {one.name: one for one in _job(begun, tmp_path).differences()}
    assert (found["alarms"].theirs, found["alarms"].own) == ("a list of 2", "a list of 1")
    both = f"if n == 1: alarms.append(time.time())\n        {line}"
    assert "alarms" not in {one.name for one in _job(both, tmp_path).differences()}


def test_an_attribute_of_an_object_of_the_scripts(tmp_path: Path) -> None:
    line = "if n == 6: watch.begun = time.time()\n        rate = 0.5 if watch.is_on else 1.0"
    found = {one.name: one for one in _job(line, tmp_path).differences()}
    assert found["watch.begun"].theirs == "a time"


def test_a_name_in_a_generator(tmp_path: Path) -> None:
    text = """
    def rates():
        rate, since = 1.0, None
        while True:
            n = yield rate
            rate = 1.0 if since is None else 0.5
            if n == {at}:
                since = time.time()
    made = rates()
    next(made)
    for n, (x, y) in enumerate(job.batches(DATA)):
        step(x)
        made.send(n)
    """
    other = captures.run_in(tmp_path, text.format(at=10)).differences()
    assert "made" in {one.name for one in other}
    same_one = captures.run_in(tmp_path, text.format(at=1)).differences()
    assert {one.name for one in same_one} <= {"n", "rate", "x", "y", "the place in a loop"} | {
        one.name for one in other
    }


def test_entries_of_times() -> None:
    assert same(entry_of(1.5), entry_of(2.5))
    assert same(entry_of([1.5]), entry_of([2.5]))
    assert not same(entry_of(1.5), entry_of(None))
    assert not same(entry_of(0.0), entry_of(2.5))
    assert not same(entry_of([1.5]), entry_of([None]))
    assert shown(entry_of({1.5})) == "a set of 1"
    assert not same(entry_of({"a": [1.5]}), entry_of({"a": []}))


def test_no_time_is_put() -> None:
    assert to_put({"a": entry_of(1.5)}, {"a": entry_of(None)}, {"a"}) == {}


def test_a_flag_that_the_time_decides_is_none() -> None:
    text = textwrap.dedent("""
        import time
        last = time.time()
        while True:
            late = time.time() - last > 10
            if late:
                total = 0
                last = time.time()
    """)
    assert not read(ast.parse(text)).scopes["<module>", 0].there
