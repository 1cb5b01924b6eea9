"""What is kept beside the time is a variable, and the time itself is none."""

import ast
import textwrap
from pathlib import Path

import captures
import pytest

from trainmover.state.script.code.grammar import names_machine
from trainmover.state.script.code.source import read, source_of

BESIDE = {
    "a clock that the script turns": """
        from datetime import datetime
        kept = datetime.utcfromtimestamp(0)
        for x, y in job.batches(DATA):
            kept = datetime.utcfromtimestamp(kept.timestamp() + float(x.sum()))
    """,
    "a time of day that the script makes": """
        import datetime
        kept = datetime.time(0, 0)
        for x, y in job.batches(DATA):
            kept = datetime.time(0, (kept.minute + int(x.sum())) % 60)
    """,
    "what the environment has by a name that is like a machine's": """
        kept = start = float(os.environ.get("TEMPERATURE", "2.0"))
        for x, y in job.batches(DATA):
            kept = max(kept, start + float(x.sum()))
    """,
    "a mean over the processors": """
        many = os.cpu_count()
        kept = 0.0
        for x, y in job.batches(DATA):
            kept = 0.9 * kept + float(x.sum()) / many
    """,
    "a library's function with the name of a timer's": """
        import numpy as np
        class Timer:
            def start(self):
                self.began = time.time()
            def average(self):
                return time.time() - self.began
        timer, kept = Timer(), 0.0
        for x, y in job.batches(DATA):
            timer.start()
            kept = 0.9 * kept + float(np.average(x))
            print(timer.average())
    """,
    "a method of a library's object with the name of a timer's": """
        class Timer:
            began = 0.0
            def total(self):
                return time.time() - self.began
        timer, kept, seen = Timer(), 0.0, collections.Counter()
        for x, y in job.batches(DATA):
            seen[int(x.sum())] += 1
            kept = kept + seen.total()
            print(timer.total())
    """,
    "an object that is given both, by two methods": """
        class Kept:
            def __init__(self):
                self.seconds = self.level = 0.0
            def update(self, seconds):
                self.seconds = seconds
            def observe(self, value):
                self.level = self.level + value
        kept = Kept()
        for x, y in job.batches(DATA):
            kept.update(time.time())
            kept.observe(float(x.sum()))
    """,
    "a value that is the time at times": """
        def read(kind, x):
            if kind == "time":
                return time.time()
            return float(x.sum())
        kept = types.SimpleNamespace(level=0.0)
        for x, y in job.batches(DATA):
            kept.level = kept.level + read("value", x)
    """,
    "a choice between the time and something else": """
        timed, kept = False, types.SimpleNamespace(level=0.0)
        for x, y in job.batches(DATA):
            kept.level = kept.level + (time.time() if timed else float(x.sum()))
    """,
    "what is looked up by an address": """
        net, kept, table = nn.Linear(1, 1), types.SimpleNamespace(level=0.0), {}
        for x, y in job.batches(DATA):
            table[id(net)] = float(x.sum())
            kept.level = kept.level + table.get(id(net), 0.0)
    """,
    "what is chosen by an address": """
        net, kept, table = nn.Linear(1, 1), types.SimpleNamespace(level=0.0), {}
        for x, y in job.batches(DATA):
            table[0] = float(x.sum())
            kept.level = kept.level + sum(v for k, v in table.items() if k != id(net))
    """,
    "a function that is named as a module": """
        del time
        def time(value):
            return 2 * value
        kept = types.SimpleNamespace(level=0.0)
        for x, y in job.batches(DATA):
            kept.level = kept.level + time(float(x.sum()))
    """,
    "a pair": """
        def timed(x):
            began = time.perf_counter()
            return float(x.sum()), time.perf_counter() - began
        kept = 0.0
        for x, y in job.batches(DATA):
            loss, seconds = timed(x)
            kept = 0.9 * kept + 0.1 * loss
    """,
    "a pair that is handed on": """
        def timed(function, *values):
            began = time.perf_counter()
            out = function(*values)
            return out, time.perf_counter() - began
        def step(x):
            return timed(torch.sum, x)
        kept = 0.0
        for x, y in job.batches(DATA):
            result = step(x)
            kept = max(kept, float(result[0]))
    """,
    "a dict": """
        def timed(x):
            began = time.perf_counter()
            return {"loss": float(x.sum()), "seconds": time.perf_counter() - began}
        kept = 0.0
        for x, y in job.batches(DATA):
            results = timed(x)
            kept = max(kept, results["loss"])
    """,
    "a parameter with the name of a module": """
        class Sampler:
            centre = 0.5
            def update(self, time, losses):
                self.centre = 0.5 * self.centre + time.mul(losses).sum().item()
        kept = Sampler()
        for x, y in job.batches(DATA):
            kept.update(x, x + kept.centre)
    """,
    "a local with the name of a module": """
        class Sampler:
            centre = 0.5
            def update(self, x):
                resource = x.sum()
                self.centre = self.centre + float(resource.sqrt())
        kept = Sampler()
        for x, y in job.batches(DATA):
            kept.update(x * kept.centre)
    """,
    "a parameter with the name of a global": """
        start = time.time()
        class Average:
            def __init__(self, start):
                self.mean = start
            def update(self, x):
                self.mean.lerp_(x.mean(), 0.1)
        kept = Average(torch.zeros(()))
        for x, y in job.batches(DATA):
            kept.update(x + kept.mean)
    """,
    "a sum, of tensors as of a timer": """
        class Timer:
            def __init__(self):
                self.times = [time.time()]
            def sum(self):
                return sum(self.times)
        timer, kept = Timer(), types.SimpleNamespace(level=0.0)
        for x, y in job.batches(DATA):
            kept.level = kept.level + x.sum().item()
        print(timer.sum())
    """,
    "a day, and days more": """
        import datetime
        class Cursor:
            def __init__(self):
                self.day = datetime.date.fromisoformat("2026-01-02")
            def go(self):
                self.day += datetime.timedelta(days=7)
        kept = Cursor()
        for x, y in job.batches(DATA):
            kept.go()
            print(kept.day)
    """,
    "a time that begins with none": """
        from datetime import timedelta
        def main():
            kept = timedelta()
            for x, y in job.batches(DATA):
                kept += timedelta(seconds=float(x.sum()) + 1)
            print(kept)
        main()
    """,
    "a time that the script works out itself": """
        class World:
            elapsed_time = 0.0
        class Agent:
            rate = 1.0
        world, kept = World(), Agent()
        for x, y in job.batches(DATA):
            world.elapsed_time = world.elapsed_time + float(x.sum())
            kept.rate = kept.rate + world.elapsed_time
    """,
    "a list of a timer's name that grows in place": """
        class Timer:
            def __init__(self):
                self.last = []
            def tick(self):
                self.last.append(time.time())
        class Smoother:
            def __init__(self):
                self.last = collections.deque(maxlen=4)
            def push(self, value):
                self.last.appendleft(value)
                return sum(self.last)
        timer, kept = Timer(), Smoother()
        for x, y in job.batches(DATA):
            timer.tick()
            kept.push(float(x.sum()))
    """,
    "a heap of a timer's name": """
        import heapq
        class Timer:
            def __init__(self):
                self.last = time.time()
            def tick(self):
                self.last = time.time()
        class Hardest:
            def __init__(self):
                self.last = []
            def push(self, value):
                heapq.heappush(self.last, value)
        timer, kept = Timer(), Hardest()
        for x, y in job.batches(DATA):
            timer.tick()
            kept.push(-float(x.sum()))
    """,
    "a window with a log's keyword": """
        class Log:
            def __init__(self, start):
                self.start = start
        class Window:
            def __init__(self):
                self.start = torch.zeros(())
            def move(self, x):
                self.start.add_(x.mean())
                return self.start
        log, kept = Log(start=time.time()), Window()
        for x, y in job.batches(DATA):
            kept.move(x)
    """,
    "rows of dicts": """
        kept, began = [], time.time()
        for x, y in job.batches(DATA):
            kept.append({"loss": float(x.sum()), "seconds": time.time() - began})
    """,
    "rows of tuples": """
        kept, began = [], time.time()
        for x, y in job.batches(DATA):
            kept.append((time.time() - began, float(x.sum())))
    """,
    "a dict by its function": """
        kept = dict(began=time.time(), best=0.0)
        for x, y in job.batches(DATA):
            kept["best"] = max(kept["best"], float(x.sum()))
    """,
    "a mean and when it was, from the beginning": """
        kept = (1.0, time.time())
        for x, y in job.batches(DATA):
            loss = float((x * kept[0]).sum())
            kept = (0.9 * kept[0] + 0.1 * loss, time.time())
    """,
    "the same in a list": """
        kept = [1.0, time.time()]
        for x, y in job.batches(DATA):
            loss = float((x * kept[0]).sum())
            kept = [0.9 * kept[0] + 0.1 * loss, time.time()]
    """,
    "the best and when it was": """
        kept = (0.0, 0.0)
        for x, y in job.batches(DATA):
            if float(x.sum()) > kept[0]:
                kept = float(x.sum()), time.time()
    """,
    "a dict that grows": """
        kept = {"best": 0.0}
        for x, y in job.batches(DATA):
            kept = {**kept, "best": max(kept["best"], float(x.sum())), "at": time.time()}
    """,
    "a dict that is made again": """
        kept = {}
        for x, y in job.batches(DATA):
            kept = dict(kept, last=float(x.sum()), at=time.time())
    """,
    "what a clock decides": """
        kept = 0.0
        for x, y in job.batches(DATA):
            kept = kept + float(x.sum()) if time.time() > 0 else kept
    """,
    "what a function is given beside the time": """
        def smooth(old, new, at):
            return 0.9 * old + new
        kept = 0.0
        for x, y in job.batches(DATA):
            kept = smooth(kept, float(x.sum()), time.time())
    """,
    "an object's attribute": """
        class Trainer:
            kept = None
            def run(self):
                for x, y in job.batches(DATA):
                    best = self.kept.loss if self.kept else 0.0
                    loss = max(best, float(x.sum()))
                    self.kept = types.SimpleNamespace(loss=loss, at=time.time())
        kept = Trainer()
        kept.run()
    """,
    "a pair that begins so": """
        kept = (0.0, time.time())
        for x, y in job.batches(DATA):
            kept = 0.9 * kept[0] + float(x.sum()), time.time()
    """,
    "a tensor that is summed": """
        kept, begun = 0.0, time.time()
        for x, y in job.batches(DATA):
            row = torch.tensor([float(x.sum()), time.time() - begun])
            kept = max(kept, row[0].item())
    """,
    "two dicts in one": """
        kept = {"best": 0.0}
        for x, y in job.batches(DATA):
            kept = kept | {"best": max(kept["best"], float(x.sum())), "at": time.time()}
    """,
    "a dict that a function makes with it": """
        def begun(at):
            return {"at": at, "best": 0.0}
        kept = begun(time.time())
        for x, y in job.batches(DATA):
            kept["best"] = max(kept["best"], float(x.sum()))
    """,
    "a list of two": """
        kept = [0.0, 0.0]
        for x, y in job.batches(DATA):
            kept = [kept[0] + float(x.sum())] + [time.time()]
    """,
    "the least of both": """
        kept, begun = 0.0, time.time()
        for x, y in job.batches(DATA):
            kept = min(kept + float(x.sum()), 1e9 - (time.time() - begun))
    """,
    "a named tuple": """
        kept = collections.namedtuple("State", "best at")(0.0, 0.0)
        for x, y in job.batches(DATA):
            kept = kept._replace(best=max(kept.best, float(x.sum())), at=time.time())
    """,
    "a frozen object": """
        @dataclasses.dataclass(frozen=True)
        class State:
            best: float = 0.0
            at: float = 0.0
        kept = State()
        for x, y in job.batches(DATA):
            best = max(kept.best, float(x.sum()))
            kept = dataclasses.replace(kept, best=best, at=time.time())
    """,
    "an object that a function makes with it": """
        class Log:
            def __init__(self, folder):
                self.folder, self.kept = folder, 0.0
        def log_in(folder):
            return Log(folder)
        log = log_in(f"runs/{time.time()}")
        for x, y in job.batches(DATA):
            log.kept += float(x.sum())
    """,
    "an object that scales what it is given": """
        class Log:
            def __init__(self, folder):
                self.folder, self.kept = folder, 1.0
            def add(self, value):
                self.kept = 0.9 * self.kept + 0.1 * value
            def now(self):
                return self.kept
        def log_in(folder):
            return Log(folder)
        def train(x, scale):
            return float(x.sum()) * scale
        log = log_in(f"runs/{time.time()}")
        for x, y in job.batches(DATA):
            log.add(train(x, log.kept) + train(x, log.now()))
    """,
    "a generator whose seed may be of the time": """
        kept = numpy.random.default_rng(int(os.environ.get("SEED", 3)) or int(time.time()))
        for x, y in job.batches(DATA):
            kept.random()
    """,
    "what lies in a folder of the process's own": """
        import tempfile
        path, kept = os.path.join(tempfile.mkdtemp(), f"{os.getpid()}.txt"), 0
        for x, y in job.batches(DATA):
            with open(path, "a") as file:
                file.write("x" * (y + 10))
            kept += os.path.getsize(path)
    """,
    "what is kept by the host": """
        kept = {socket.gethostname(): 0.0}
        for x, y in job.batches(DATA):
            kept[socket.gethostname()] += float(x.sum())
    """,
    "a meter of both": """
        class Meter:
            seconds = loss = 0.0
            def update(self, seconds, loss):
                self.seconds, self.loss = self.seconds + seconds, self.loss + loss
        kept, end = Meter(), time.time()
        for x, y in job.batches(DATA):
            kept.update(time.time() - end, float(x.sum()))
            end = time.time()
    """,
}


@pytest.mark.parametrize("use", ["logged(self.began, x)", "print(self.began, x)"])
def test_who_is_only_shown_the_time_makes_nothing_else_of_it(use: str) -> None:
    text = f"import time\nclass Log:\n  def go(self, x):\n    self.began = time.time()\n    {use}\n"
    assert ".began" in read(ast.parse(text)).clocks


@pytest.mark.parametrize("script", BESIDE.values(), ids=BESIDE)
def test_what_stands_beside_the_time_is_compared(tmp_path: Path, script: str) -> None:
    names = [one.name for one in captures.run_in(tmp_path, script).differences()]
    assert any("kept" in name for name in names)


@pytest.mark.parametrize(
    ("text", "tells"),
    [
        ("loss, seconds = f()", {"seconds"}),
        ("total += f()[1]", {"total"}),
        ("out = f()\nlast = out[1]", {"out[1]", "last"}),
        ("a, (b, c) = 1, f()", {"c"}),
        ("mark = ('begun', time.time())", {"mark"}),
        ("meter.update(time.time() - t, x.size(0))", {"meter"}),
        ("meter.update(time.time() - t, n=len(x))", {"meter"}),
        ("rows.append(f()[1])", {"rows"}),
        ("rows.append(f())", set()),
        ("rows = rows + [f()[1]]", {"rows"}),
        ("row = torch.tensor([loss(), f()[1]])", {"row[1]"}),
        ("row = mean(torch.tensor([loss(), f()[1]]))", {"row[1]"}),
        ("best = min(best, mean([loss(), f()[1]])[0])", set()),
        ("row = [time.time()] + [time.time()]", {"row"}),
        ("Row = namedtuple('Row', 'at loss')\nrows = [Row(f()[1], loss())]", set()),
        ("class Row(NamedTuple): ...\nrows.append(Row(time.time(), loss()))", set()),
        ("@dataclass\nclass Row: ...\nrows.append(Row(at=time.time(), loss=loss()))", set()),
        ("class Row(NamedTuple): ...\nrow = Row(time.time(), loss())", {"row[0]"}),
        ("least = min(least, f()[1])", {"least"}),
        ("of = {id(p): 1 for p in x}", set()),
        ("text = said(time.time() - t)", {"text"}),
        ("mean = said(loss, time.time() - t)", set()),
        ("n = os.path.getsize(f'{os.getpid()}')", set()),
        ("n = sum(os.path.getsize(one) for one in glob.glob(f'{os.getpid()}/*'))", set()),
        ("n = len(list(Path(f'{os.getpid()}').glob('*.pt')))", set()),
        ("n = Path(f'{os.getpid()}').stat().st_size", set()),
        ("kept = torch.load(f'{os.getpid()}')", set()),
        ("n = Path('log').stat().st_mtime", {"n"}),
        ("n = os.path.getmtime('log')", {"n"}),
        ("rows = [line for line in glob.glob(f'{os.getpid()}/*')]", {"rows"}),
        ("n = len(str(time.time()))", {"n"}),
        ("n = begin.elapsed_time(end)", {"n"}),
        ("n = torch.cuda.memory_allocated()", {"n"}),
        ("n = trip.elapsed_time * 2", set()),
    ],
)
def test_only_the_part_that_tells_the_time_is_left_out(text: str, tells: set[str]) -> None:
    source = read(ast.parse(f"import glob, os, time\n{FUNCTION}\n{text}\n"))
    assert source.scopes["<module>", 0].clocks == tells


FUNCTION = textwrap.dedent("""
    def f():
        return loss(), time.time()
    def said(*values):
        return str(values)
""")


LOGS = {
    "a class": """
        class Log:
            def __init__(self, folder, every=1):
                self.folder = os.path.join("runs", folder)
    """,
    "a data class": """
        @dataclasses.dataclass
        class Log:
            folder: str
            every: int = 1
    """,
    "a class that a function makes": """
        class Made:
            def __init__(self, folder):
                self.folder = folder
        def Log(folder, every=1):
            return Made(folder)
    """,
}


@pytest.mark.parametrize("log", LOGS.values(), ids=LOGS)
def test_what_an_object_is_made_with_may_tell_the_time(log: str) -> None:
    text = textwrap.dedent(log) + 'log = Log(f"runs/{time.time()}", every=10)'
    source = read(ast.parse(f"import time\n{text}\n"))
    assert ".folder" in source.clocks
    assert ".every" not in source.clocks
    source = read(ast.parse(f"import time\n{text}\nother = Log('here')\n"))
    assert ".folder" not in source.clocks


HELPERS = """
import time
def now():
    return time.time()
def both(x):
    return x, now()
"""


@pytest.mark.parametrize(
    ("at", "imported", "called", "tells"),
    [
        ("helpers.py", "from helpers import now", "now()", True),
        ("helpers.py", "from helpers import now as clock", "clock()", True),
        ("helpers.py", "import helpers", "helpers.now()", True),
        ("helpers.py", "from .helpers import now", "now()", True),
        ("helpers.py", "from . import helpers", "helpers.now()", True),
        ("helpers/__init__.py", "from helpers import now", "now()", True),
        ("helpers/times.py", "import helpers.times as times", "times.now()", True),
        ("../helpers.py", "from helpers import now", "now()", True),
        ("../helpers.py", "from ..helpers import now", "now()", True),
        ("../helpers.py", "from .helpers import now", "now()", False),
        ("helpers.py", "from helpers import both", "both(1)", False),
        ("helpers.py", "from others import now", "now()", False),
        ("helpers.py", "from helpers import now\nnow = sum", "now([1])", False),
        ("helpers.py", "import train", "train.now()", False),
    ],
)
def test_a_function_of_another_file_tells_the_time(
    tmp_path: Path, at: str, imported: str, called: str, tells: bool
) -> None:
    folder = tmp_path / "scripts"
    (folder / at).parent.mkdir(parents=True, exist_ok=True)
    (folder / at).write_text(HELPERS)
    (folder / "train.py").write_text(f"{imported}\nend = {called}\n")
    source = source_of(str(folder / "train.py"))
    assert source is not None
    assert ("end" in source.scopes["<module>", 0].clocks) is tells


@pytest.mark.parametrize(
    ("name", "is_machines"),
    [
        *((name, True) for name in ("HOSTNAME", "SLURMD_NODENAME", "MASTER_ADDR", "TMPDIR")),
        *((name, True) for name in ("USER", "MASTER_PORT", "HOME", "NODE_RANK", "MY_PID")),
        *((name, True) for name in ("PBS_NODEFILE", "TPU_WORKER_HOSTNAMES", "A_LOCALHOST")),
        *((name, True) for name in ("TMP", "TEMP", "JOB_TMPDIR")),
        *((name, False) for name in ("TEMPERATURE", "IMPORTANCE", "SUPPORT", "GHOSTS_LEVEL")),
        *((name, True) for name in ("RUN_LOG", "LOG_DIR", "LOGS", "APP_LOGFILE")),
        *((name, False) for name in ("SOFTMAX_TEMP", "TEMP_START", "LOG_SIGMA", "LOG_EVERY")),
    ],
)
def test_names_in_the_environment_that_are_a_machines(name: str, is_machines: bool) -> None:
    assert names_machine(name) is is_machines
