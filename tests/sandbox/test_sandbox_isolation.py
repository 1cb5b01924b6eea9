"""A run of the script leaves nothing behind that the next run in the same process could see."""

import atexit
import builtins
import gc
import logging
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from trainmover.sandbox.process import remains
from trainmover.sandbox.process.isolation import Isolation
from trainmover.worker.program import run_script

Run = Callable[[str], list[str]]
SEEN: list[Any] = []
"""Scripts put here what their test is to see."""


@pytest.fixture
def isolation(monkeypatch: pytest.MonkeyPatch) -> Iterator[Isolation]:
    monkeypatch.setattr(remains, "GRACE_S", 0.4)
    one = Isolation()
    yield one
    one.put_back()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: Isolation) -> Run:
    """Runs the text of a script in isolation; gives what could not be put back."""
    SEEN.clear()
    monkeypatch.setattr(sys, "seen_by_test", SEEN, raising=False)

    def run(text: str) -> list[str]:
        (tmp_path / "train.py").write_text("import sys; seen = sys.seen_by_test\n" + text)
        isolation.snapshot(str(tmp_path / "train.py"))
        ended = run_script([str(tmp_path / "train.py")], module=False)
        said = isolation.put_back()
        assert ended.error == "", ended.traceback
        return said

    return run


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed modules, which are forgotten behind the test."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for path in folder.glob("*.py"):
        sys.modules.pop(path.stem, None)


CHANGES = {
    "os.environ.pop('HOME', 0); os.environ['TM_X'] = '1'": lambda: dict(os.environ),
    "os.chdir('/')": os.getcwd,
    "os.umask(0)": lambda: (mask := os.umask(0o22), os.umask(mask))[0],
    "sys.path.append('/x')": lambda: list(sys.path),
    "sys.stdout = sys.stderr": lambda: sys.stdout,
    "sys.excepthook = print": lambda: sys.excepthook,
    "sys.setrecursionlimit(5000)": sys.getrecursionlimit,
    "import threading; threading.excepthook = print": lambda: threading.excepthook,
    "import builtins; builtins.print = len; builtins.tm = 1": lambda: dict(vars(builtins)),
    "import warnings; warnings.simplefilter('error')": lambda: list(warnings.filters),
    "import signal; signal.signal(10, print)": lambda: signal.getsignal(10),
    "import signal; signal.setitimer(signal.ITIMER_REAL, 99)": lambda: signal.getitimer(
        signal.ITIMER_REAL
    ),
    "import gc; gc.disable(); gc.set_threshold(5)": lambda: (gc.isenabled(), gc.get_threshold()),
    "import random; random.seed(5)": random.getstate,
    "import numpy; numpy.random.seed(5)": lambda: torch.as_tensor(
        sys.modules["numpy"].random.get_state()[1].astype("int64")
    ).tolist(),
    "import torch; torch.manual_seed(5)": lambda: torch.get_rng_state().tolist(),
    "import torch; torch.set_default_dtype(torch.float64)": torch.get_default_dtype,
    "import torch; torch.set_default_device('meta')": torch.get_default_device,
    "import torch; torch.set_num_threads(3)": torch.get_num_threads,
    "import torch; torch.set_grad_enabled(False)": torch.is_grad_enabled,
    "import torch; torch.backends.cudnn.benchmark = True": lambda: torch.backends.cudnn.benchmark,
    "import torch; torch.set_autocast_enabled('cpu', True)": lambda: torch.is_autocast_enabled(
        "cpu"
    ),
    "import torch; torch.autograd.set_detect_anomaly(True)": torch.is_anomaly_enabled,
    "import torch; torch.set_float32_matmul_precision('medium')": (
        torch.get_float32_matmul_precision
    ),
    "import torch; torch.backends.fp32_precision = 'tf32'": lambda: (
        torch.backends.fp32_precision,
        torch.get_float32_matmul_precision(),
    ),
    "import logging; logging.basicConfig(level=10, force=True)": lambda: (
        logging.root.level,
        list(logging.root.handlers),
    ),
    "import logging; logging.disable(40)": lambda: logging.root.manager.disable,
    "import logging; logging.captureWarnings(True)": lambda: warnings.showwarning,
    "from torch.nn.modules import module; module.register_module_forward_hook(print)": lambda: dict(
        torch.nn.modules.module._global_forward_hooks
    ),
}


@pytest.mark.turns(8)
@pytest.mark.parametrize("change", CHANGES)
def test_a_setting_is_put_back(run: Run, change: str) -> None:
    read = CHANGES[change]
    before = read()
    assert run(f"import os\n{change}") == []
    assert read() == before


def test_the_start_method_of_multiprocessing_may_be_chosen_in_each_run(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    context: Any = multiprocessing.context._default_context
    monkeypatch.setattr(context, "_actual_context", None)  # Other tests may have chosen one.
    text = "import multiprocessing as m; m.set_start_method('spawn')"
    assert [run(text), run(text)] == [[], []]


def test_output_that_was_redirected_below_python_comes_back(run: Run, tmp_path: Path) -> None:
    before = os.fstat(1)
    run(f"import os; os.dup2(os.open('{tmp_path}/out', os.O_CREAT | os.O_WRONLY), 1)")
    assert os.path.samestat(os.fstat(1), before)


def test_output_that_was_closed_below_python_comes_back(run: Run) -> None:
    before = os.fstat(1)
    run("import os; os.close(1)")
    assert os.path.samestat(os.fstat(1), before)


def test_an_alarm_is_off_before_its_handler_is_gone(run: Run) -> None:
    """Without a handler the next one would end this process. What is imported while it rings on
    changes nothing of that."""
    run(
        "import signal, sys; signal.signal(signal.SIGALRM, lambda *_: None)\n"
        "signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)\n"
        "sys.modules.pop('colorsys', None); import colorsys"
    )
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


PATCHES = {
    "by its name": "import torch\ntorch.optim.AdamW.step = lambda self: None",
    "by a name of its own": (
        "from torch.optim import AdamW as Optimizer\nOptimizer.step = lambda self: None"
    ),
    "by setattr": "import torch\nsetattr(torch.optim.AdamW, 'step', lambda self: None)",
    "in a function": (
        "import torch.optim as optim\n"
        "def patch():\n    optim.AdamW.step = lambda self: None\npatch()"
    ),
    "in a module of its own": "import patching",
    "what was inherited": "import torch\ntorch.optim.AdamW.zero_grad = lambda self: None",
    "what was loaded before": "import torch\ntorch.sum = lambda *_: None",
    "what it is the first to load": (
        "import colorsys; seen.append(colorsys.hls_to_rgb)\ncolorsys.hls_to_rgb = None"
    ),
}


@pytest.mark.parametrize("patch", PATCHES)
def test_what_it_patches_is_as_it_was(run: Run, tmp_path: Path, patch: str) -> None:
    (tmp_path / "patching.py").write_text(PATCHES["by its name"])
    sys.modules.pop("colorsys", None)
    before = dict(vars(torch.optim.AdamW)), torch.sum
    assert run(PATCHES[patch]) == []
    assert (dict(vars(torch.optim.AdamW)), torch.sum) == before
    assert all(one is sys.modules["colorsys"].hls_to_rgb for one in SEEN)


def test_the_main_module_and_what_it_held_are_gone(run: Run) -> None:
    main = sys.modules["__main__"]
    run("class Thing: pass\nthing = Thing()\nimport weakref; seen.append(weakref.ref(thing))")
    assert sys.modules["__main__"] is main
    gone: weakref.ref[Any] = SEEN[0]
    assert gone() is None


def test_modules_beside_the_script_are_loaded_anew_and_installed_ones_are_not(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "tm_beside.py").write_text("count = [0]")
    text = "import tm_beside, csv\ntm_beside.count[0] += 1\nseen.append((tm_beside.count[0], csv))"
    run(text), run(text)
    assert [count for count, _ in SEEN] == [1, 1]
    assert SEEN[0][1] is SEEN[1][1]
    assert "tm_beside" not in sys.modules


def test_a_compiler_may_import_while_tensors_are_fake(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "wave", raising=False)
    run(
        "from torch._subclasses.fake_tensor import FakeTensorMode\nimport sys\n"
        "with FakeTensorMode():\n    import wave\nsys.seen_by_test.append(wave)"
    )
    assert [module.__name__ for module in SEEN] == ["wave"]


def test_what_an_installed_module_sets_as_it_is_imported_stays(
    run: Run, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TM_OWN", raising=False)
    (site / "tm_installed.py").write_text(
        "import os, atexit, tm_in_turn\nos.environ['TM_LIBRARY'] = '1'\natexit.register(print)"
    )
    (site / "tm_in_turn.py").write_text("import sys; sys.path.append('/in-turn')")
    noted = atexit._ncallbacks()
    run("import os; os.environ['TM_OWN'] = '1'; sys.path.append('/own'); import tm_installed")
    assert os.environ.pop("TM_LIBRARY") == "1"
    assert "TM_OWN" not in os.environ
    assert "/in-turn" in sys.path
    assert "/own" not in sys.path
    assert atexit._ncallbacks() == noted + 1
    atexit.unregister(print)


LIBRARY = """
import functools
from collections import OrderedDict, deque

class Shared:
    state = {}
    first = None
    def __init__(self): self.__dict__ = self.state
    @classmethod
    def begin(cls, rank): cls.first = cls.other = rank

class Single(type):
    made = {}
    def __call__(cls, *args):
        return Single.made.setdefault(cls, super().__call__(*args))

class One(metaclass=Single):
    def __init__(self, rank): self.rank = rank

class Held:
    rank = None
    def begin(self, rank): self.rank = rank

class Aside(dict):
    def keys(self): raise AssertionError
    __iter__ = values = items = clear = update = keys

@functools.cache
def asked(): return RANK

def once(rank): once.rank = rank
once.rank = None

def begin(rank):
    global RANK, OTHER
    RANK = OTHER = rank

RANK = None
HELD = Held()
NAMED = {"inner": {"ranks": []}}
ENTRIES, MET, LAST, ORDERED = ["one"], {1}, deque([1]), OrderedDict(one=1)
ASIDE = Aside(one=1)
"""
KEEPS = {
    "in a dict that all objects share": "lib.Shared().rank = rank",
    "in a class": "lib.Shared.begin(rank)",
    "as the only object of its class": "lib.One(rank)",
    "in a module": "lib.begin(rank)",
    "in a function": "lib.once(rank)",
    "in an object of its own": "lib.HELD.begin(rank)",
    "deep in containers": "lib.NAMED['inner']['ranks'].append(rank)",
    "in a list": "lib.ENTRIES[:] = [rank]",
    "in a set": "lib.MET.add(rank)",
    "in a queue": "lib.LAST.append(rank)",
    "in a dict that has an order": "lib.ORDERED[rank] = rank; lib.ORDERED.pop('one')",
    "in a dict of its own kind": "dict.update(lib.ASIDE, one=2, two=rank)",
    "in a cache": "lib.begin(rank); lib.asked()",
}
ASKED = """
import tm_library as lib
seen.append((
    vars(lib.Shared()).copy(), vars(lib.Shared).get("first"), hasattr(lib.Shared, "other"),
    [*lib.Single.made], lib.RANK, hasattr(lib, "OTHER"), lib.once.rank, lib.HELD.rank,
    str(lib.NAMED), [*lib.ENTRIES], {*lib.MET}, [*lib.LAST], [*lib.ORDERED.items()],
    sorted(dict.items(lib.ASIDE)), lib.asked.cache_info().currsize,
))
"""


@pytest.mark.parametrize("keeps", KEEPS)
def test_what_a_library_keeps_of_a_run_is_not_there_in_the_next(
    run: Run, site: Path, keeps: str
) -> None:
    (site / "tm_library.py").write_text(LIBRARY)
    for rank in (0, 1):
        run(f"{ASKED}\nrank = {rank}\n{KEEPS[keeps]}")
    run(ASKED)
    assert SEEN[0] == SEEN[1] == SEEN[2]


def test_what_an_import_gives_another_library_stays(run: Run, site: Path) -> None:
    """Also where the run has stored to the same places before."""
    (site / "tm_library.py").write_text(LIBRARY)
    (site / "tm_plugin.py").write_text(
        "import tm_library as lib\nlib.Shared.state['plugin'] = 1; lib.ENTRIES.append('plugin')\n"
        "lib.MET.discard(1); lib.PLUGIN = True; lib.asked()"
    )
    kept = "lib.Shared.state['rank'] = 0; lib.ENTRIES.append(0); lib.begin(3); "
    look = (
        "seen.append((lib.Shared.state.copy(), [*lib.ENTRIES], {*lib.MET}, lib.PLUGIN, lib.RANK))"
    )
    run(f"import tm_library as lib; {kept}import tm_plugin; {kept}")
    run(f"import tm_library as lib, tm_plugin; {look}")
    [seen] = SEEN
    assert seen == ({"plugin": 1}, ["one", "plugin"], set(), True, None)


def test_a_part_of_a_library_that_a_run_has_loaded_stays_in_it(run: Run, site: Path) -> None:
    (site / "tm_package").mkdir()
    (site / "tm_package" / "__init__.py").touch()
    (site / "tm_package" / "late.py").write_text("RANK = None")
    run("import tm_package\nimport tm_package.late as late; late.RANK = 3")
    run("import tm_package\nimport tm_package.late\nseen.append(tm_package.late.RANK)")
    assert SEEN == [None]
    for name in ("tm_package", "tm_package.late"):
        del sys.modules[name]


def test_a_file_of_a_handler_is_complete_and_closed(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    text = f"import logging; logging.basicConfig(filename='{path}', level=20, force=True)\n"
    assert run(text + "logging.info('one'); logging.getLogger('tm.new').setLevel(50)") == []
    assert path.read_text() == "INFO:root:one\n"
    assert logging.getLogger("tm.new").level == logging.NOTSET
    logging.info("two")
    assert path.read_text() == "INFO:root:one\n"


EXITS = """
import atexit
from trainmover.sandbox.process.isolation import Isolation

class Script:
    def __init__(self, name):
        self.name = name
    def ends(self):
        print(self.name)

isolation = Isolation()
for name in ("first", "second"):
    isolation.snapshot()
    atexit.register(Script(name).ends)
    atexit.register(print, name)
    isolation.put_back() if name == "first" else None
"""


@pytest.mark.turns(8)
def test_exit_calls_of_a_run_are_taken_back_and_those_of_the_last_are_made() -> None:
    ended = subprocess.run([sys.executable, "-c", EXITS], capture_output=True, check=True)
    assert ended.stdout == b"second\nsecond\n"


def test_a_process_left_behind_is_ended_and_told(run: Run) -> None:
    said = run("import subprocess; seen.append(subprocess.Popen(['sleep', '1000']).pid)")
    assert said == [f"it left process {SEEN[0]} (sleep 1000), which was ended"]
    assert not psutil.pid_exists(SEEN[0]) or psutil.Process(SEEN[0]).status() == "zombie"


def test_a_process_that_was_there_before_is_left_alone(run: Run) -> None:
    with subprocess.Popen(["sleep", "1000"]) as mine:
        assert run("") == []
        assert mine.poll() is None
        mine.kill()


def test_a_thread_left_behind_is_told_and_not_waited_for(run: Run) -> None:
    text = "import threading; e = threading.Event(); seen.append(e)\n"
    said = run(text + "threading.Thread(target=lambda: e.wait(), name='mine').start()")
    assert said == ["it left thread 'mine', which still runs"]
    [thread] = [t for t in threading.enumerate() if t.name == "mine"]
    assert thread.daemon
    SEEN[0].set()
    thread.join()


def test_a_file_left_open_for_writing_is_told(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    said = run(f"seen.append(open('{path}', 'w')); seen.append(open('{path}'))")
    assert said == [f"it left {path} open for writing"]
    SEEN[0].close(), SEEN[1].close()


def test_workers_of_a_loader_end_by_themselves(run: Run) -> None:
    text = (
        "from torch.utils.data import DataLoader\n"
        "it = iter(DataLoader(range(100), num_workers=1)); next(it)\n"
    )
    assert run(text) == []


ASKS = {
    "an entry": "import os; RANK = os.environ['RANK']",
    "an entry or none": "import os; RANK = os.environ.get('RANK')",
    "a function of os": "import os; RANK = os.getenv('GROUP_RANK', '0')",
    "whether it is there": "import os; RANKED = 'RANK' in os.environ",
    "the first of some": "import os; RANKS = [os.getenv(one) for one in ('SLURM_PROCID', 'RANK')]",
    "a module that it imports": "import tm_in_turn",
}
ASKS_NOT = {
    "all there are": "import os; ALL = dict(os.environ)",
    "a copy": "import os; ALL = os.environ.copy()",
    "entries": "import os; OWN = [one for one in os.environ.items() if one[0].startswith('TM')]",
    "another": "import os; RANK = os.environ.get('LOCAL_RANK')",
    "a function that is called later": "import os\ndef rank(): return os.environ['RANK']",
}


@pytest.mark.parametrize("asks", [*ASKS, *ASKS_NOT])
def test_a_library_that_asks_for_the_rank_as_it_is_imported_may_know_it_for_ever(
    run: Run, isolation: Isolation, site: Path, monkeypatch: pytest.MonkeyPatch, asks: str
) -> None:
    for name in ("RANK", "GROUP_RANK", "LOCAL_RANK"):
        monkeypatch.setenv(name, "3")
    for number in range(9):
        monkeypatch.setenv(f"TM_{number}", "")
    (site / "tm_asks.py").write_text((ASKS | ASKS_NOT)[asks])
    (site / "tm_in_turn.py").write_text("import os; RANK = os.environ['RANK']")
    run("import tm_asks")
    assert isolation.known_rank.other_than(3) == ""
    assert bool(isolation.known_rank.other_than(1)) == (asks in ASKS)


def test_what_the_script_asks_itself_is_asked_anew(
    run: Run, isolation: Isolation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "tm_own.py").write_text("import os; RANK = os.environ['RANK']")
    run("import os, tm_own; RANK = os.environ['RANK']")
    assert isolation.known_rank.other_than(1) == ""


def test_what_its_objects_do_as_they_go_leaves_the_job_s_files(
    isolation: Isolation, tmp_path: Path
) -> None:
    """In a shadow run, whose lock and summary are the rank's."""
    script, lock, summary = (tmp_path / name for name in ("train.py", "lock", "summary"))
    script.write_text(
        f"""
import os
class Lock:
    def __init__(self):
        open({str(lock)!r}, "w").write("of the run")
    def __del__(self):
        open({str(summary)!r}, "w").write("of the run")
        os.remove({str(lock)!r})
lock = Lock()
lock.itself = lock
"""
    )
    for path in (lock, summary):
        path.write_text("of the job")
    isolation.snapshot(str(script))
    isolation.overlay.begin()
    ended = run_script([str(script)], module=False)
    assert isolation.put_back() == []
    assert ended.error == ""
    assert lock.read_text() == summary.read_text() == "of the job"
