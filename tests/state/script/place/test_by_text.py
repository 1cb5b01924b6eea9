"""Locals that are read by a text alone count as others do."""

from pathlib import Path

import captures
import pytest

READ = {
    "eval": "eval('0.5 * smooth')",
    "eval of a text that is worked out": "eval(formula)",
    "exec": "exec('step(x * smooth)')",
    "of builtins": "builtins.eval(formula)",
    "locals": "locals()['smooth']",
    "vars": "vars()['smooth']",
    "dir": "len(dir())",
    "filled in": "'{smooth}'.format_map(locals())",
    "of a frame": "inspect.currentframe().f_locals['smooth']",
    "of a frame of sys": "sys._getframe().f_locals['smooth']",
    "a table": "table.query('loss < @smooth')",
}
SCRIPT = """
    import builtins, inspect, sys
    class Table:
        def query(self, text):
            return sys._getframe(1).f_locals["smooth"]
    def main():
        table, formula, smooth = Table(), "0.5 * smooth", 1.0
        for x, y in job.batches(DATA):
            value = {read}
            smooth = float(len(job.own))
    main()
"""
NOT_READ = {
    "in the set-up": ("known = eval('1 + 1'), sorted(locals())", "0"),
    "another name": ("", "eval('0.5 * formula.count(str(5))')"),
    "of a model": ("", "table.eval()"),
    "of an object": ("", "vars(table)"),
}


@pytest.mark.parametrize("how", READ)
def test_they_count(tmp_path: Path, how: str) -> None:
    assert "smooth" in captures.names_in(tmp_path, SCRIPT.format(read=READ[how]))


@pytest.mark.parametrize("how", NOT_READ)
def test_what_no_text_reads_later_does_not(tmp_path: Path, how: str) -> None:
    begin, read = NOT_READ[how]
    script = f"""
    class Table:
        def eval(self):
            return self
    def main():
        table, formula, smooth = Table(), "0.5 * smooth", 1.0
        {begin}
        for x, y in job.batches(DATA):
            value = {read}
            smooth = float(len(job.own))
    main()
    """
    assert captures.names_in(tmp_path, script) == []


GLOBALS = {
    "there": ("", "globals()['smooth']"),
    "by a function": ("def weight():\n        return globals()['smooth']", "weight()"),
    "by one that it calls": (
        "def first():\n        return eval(formula)\n    def weight():\n        return first()",
        "weight()",
    ),
    "by a method": (
        "class Plan:\n        def weight(self):\n            return globals()['smooth']",
        "Plan().weight()",
    ),
}


@pytest.mark.parametrize("how", GLOBALS)
def test_globals_that_a_text_reads_count_at_the_top_of_a_file(tmp_path: Path, how: str) -> None:
    begin, read = GLOBALS[how]
    script = f"""
    formula, smooth = "0.5 * smooth", 1.0
    {begin}
    for x, y in job.batches(DATA):
        value = {read}
        smooth = float(len(job.own))
    """
    assert "smooth" in captures.names_in(tmp_path, script)


def test_so_they_do_where_the_function_that_fetches_reads_them(tmp_path: Path) -> None:
    script = """
    smooth, batches = 1.0, iter(job.batches(DATA))
    def trained():
        x, y = next(batches)
        return globals()["smooth"] * x.sum().item()
    while len(job.own) < 13:
        value = trained()
        smooth = float(len(job.own))
    """
    assert "smooth" in captures.names_in(tmp_path, script)


def test_a_registry_that_is_asked_in_the_set_up_makes_nothing_count(tmp_path: Path) -> None:
    script = """
    loss = 1.0
    def build(name):
        return globals()[name]
    made = build("step")
    for x, y in job.batches(DATA):
        loss = float(made(x)) + len(job.own)
    """
    assert captures.names_in(tmp_path, script) == []
