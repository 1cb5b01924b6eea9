"""Caches of a script's functions: the same to who calls them, and their entries can be reached."""

import functools
import subprocess
import sys
import textwrap
from pathlib import Path

PROGRAM = """
import functools, sys
from trainmover.graph.caches import keep_entries_in_python
from trainmover.graph.script import Script

keep_entries_in_python(Script(lambda path: path == __file__))
calls = []

@functools.lru_cache(maxsize=2)
def double(x, *, by=2):
    calls.append(x)
    return by * x

@functools.lru_cache
def plain(x):
    return [x]

@functools.cache
def every(x):
    return {x}

class Table:
    @functools.lru_cache(typed=True)
    def row(self, x):
        return type(x)

assert [double(1), double(2), double(1), double(3), double(2)] == [2, 4, 2, 6, 4]
assert calls == [1, 2, 3, 2]
assert double.cache_info()[:2] == (1, 4)
assert double.cache_parameters() == {"maxsize": 2, "typed": False}
assert plain(1) is plain(1)
assert every(1) is every(1) and every.__name__ == "every"
table = Table()
assert (table.row(1), table.row(1.0)) == (int, float)
double.cache_clear()
assert double(1) == 2 and calls[-1] == 1
assert double.__closure__ is not None, "its entries lie in C"

from trainmover.installed import is_installed
assert type(is_installed.__globals__["_real_folder"]).__name__ == "_lru_cache_wrapper"

"""


def test_a_script_s_caches_work_as_those_in_c(tmp_path: Path) -> None:
    path = f"{tmp_path}/program.py"
    with open(path, "w") as file:
        file.write(textwrap.dedent(PROGRAM))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert functools.lru_cache.__module__ == "functools"
