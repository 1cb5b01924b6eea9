"""What is made with a time or with a place is no clock itself, nor is an attribute that has the
name of one; the ordinary uses of the time are free."""

import ast
from pathlib import Path

import captures
import pytest

from trainmover.state.script.code.source import read

KEPT = {
    "a window as long as the environment says": """
        kept = collections.deque(maxlen=int(os.environ.get("LOG_WINDOW", "8")))
        for x, y in job.batches(DATA):
            kept.append(float(x.sum()))
    """,
    "a list as long as there are hosts": """
        kept = [0.0] * len(os.environ.get("HOSTLIST", "a,b").split(","))
        for x, y in job.batches(DATA):
            kept[0] = kept[0] + float(x.sum())
    """,
    "entries for each host": """
        kept = [0.0 for host in os.environ.get("HOSTLIST", "a,b").split(",")]
        for x, y in job.batches(DATA):
            kept[0] = kept[0] + float(x.sum())
    """,
    "a mean over so many as the environment says": """
        many = int(os.environ.get("LOG_WINDOW", "8"))
        kept = 0.0
        for x, y in job.batches(DATA):
            kept = kept + float(x.sum()) / many
    """,
    "the same by a function": """
        def number(text):
            return int(text)
        many = number(os.environ.get("LOG_WINDOW", "8"))
        kept = 0.0
        for x, y in job.batches(DATA):
            kept = kept + float(x.sum()) / many
    """,
    "a table that a function reads at home": """
        def known(file):
            if not os.path.exists(file):
                return [1.0]
            return json.loads(open(file).read())
        kept = known(os.path.join(os.environ.get("HOME", "/tmp"), "no", "weights.json"))
        for x, y in job.batches(DATA):
            kept.append(float(x.sum()))
    """,
    "a tensor that a library reads at home": """
        import tempfile
        def weights_from(file):
            return torch.load(file) if os.path.exists(file) else torch.ones(2)
        kept = weights_from(os.path.join(tempfile.gettempdir(), "no", "weights.pt"))
        def step(x):
            kept[0] = 0.7 * kept[0] + float(x.sum())
        for x, y in job.batches(DATA):
            step(x)
    """,
    "an object with a loss and when it was": """
        class Event:
            def __init__(self, loss, at):
                self.loss, self.at = loss, at
        class History:
            def __init__(self):
                self.kept = []
            def note(self, loss):
                self.kept.append(Event(loss, time.time()))
        history = History()
        for x, y in job.batches(DATA):
            history.note(float(x.sum()))
    """,
    "a list that is changed by a loop's name, beside a throttle's": """
        class Throttle:
            def __init__(self):
                self.last = time.time()
            def is_due(self):
                self.last = time.time()
        class Anchor:
            def __init__(self, values):
                self.last = [one.clone() for one in values]
            def move(self, x):
                for old in self.last:
                    old.lerp_(x.sum(), 0.2)
        throttle, kept = Throttle(), Anchor([torch.zeros(())])
        for x, y in job.batches(DATA):
            kept.move(x)
            throttle.is_due()
    """,
    "a tensor that is changed in a row, beside a stopwatch's": """
        class Stopwatch:
            def __init__(self):
                self.mean, self.began = 0.0, time.perf_counter()
            def lap(self):
                now = time.perf_counter()
                self.mean = 0.9 * self.mean + 0.1 * (now - self.began)
                self.began = now
        class Centre:
            def __init__(self):
                self.mean = torch.zeros(())
            def update(self, x):
                self.mean.mul_(0.9).add_(0.1 * x.sum())
        watch, kept = Stopwatch(), Centre()
        for x, y in job.batches(DATA):
            kept.update(x)
            watch.lap()
    """,
    "a list that another name changes, beside a timer's": """
        class Timer:
            def tick(self):
                self.last = time.time()
        class Window:
            def __init__(self):
                self.last = []
            def add(self, value):
                rows = self.last
                rows.append(value)
        timer, kept = Timer(), Window()
        for x, y in job.batches(DATA):
            timer.tick()
            kept.add(float(x.sum()))
    """,
    "a list that a function changes, beside a timer's": """
        def push(rows, value):
            rows.append(value)
        class Timer:
            def tick(self):
                self.last = time.time()
        class Window:
            def __init__(self):
                self.last = []
            def add(self, value):
                push(self.last, value)
        timer, kept = Timer(), Window()
        for x, y in job.batches(DATA):
            timer.tick()
            kept.add(float(x.sum()))
    """,
    "noise, beside a timer's": """
        class Timer:
            def tick(self):
                self.last = time.time()
        class Noise:
            def __init__(self):
                self.last = torch.zeros(2)
            def draw(self):
                self.last.normal_()
        timer, kept = Timer(), Noise()
        for x, y in job.batches(DATA):
            timer.tick()
            kept.draw()
    """,
    "a data class's field, beside a timer's": """
        @dataclasses.dataclass
        class Kept:
            last: list
        class Timer:
            def tick(self):
                self.last = time.time()
        timer, kept = Timer(), Kept([])
        def add(rows, value):
            rows += [value]
        for x, y in job.batches(DATA):
            timer.tick()
            add(kept.last, float(x.sum()))
    """,
    "losses behind the time of the start": """
        kept = [time.time()]
        for x, y in job.batches(DATA):
            kept.append(float(x.sum()))
    """,
    "losses behind it, by a function": """
        kept = [time.time()]
        def note(rows, value):
            rows.append(value)
        for x, y in job.batches(DATA):
            note(kept, float(x.sum()))
    """,
    "losses behind it, by another name": """
        rows = [time.time()]
        kept = rows
        for x, y in job.batches(DATA):
            kept.append(float(x.sum()))
    """,
    "losses behind it, by a method that has a name": """
        rows_kept = [time.time()]
        kept = rows_kept.append
        for x, y in job.batches(DATA):
            kept(float(x.sum()))
    """,
    "one of the tensors that a function changes": """
        kept = torch.tensor(time.time())
        for x, y in job.batches(DATA):
            torch._foreach_lerp_([kept], [x.sum()], 0.9)
    """,
    "a global that a function stores to": """
        kept = time.time()
        def step(x):
            global kept
            kept = float(x.sum())
        for x, y in job.batches(DATA):
            step(x)
    """,
    "what a loop ends with": """
        kept = time.time()
        for x, y in job.batches(DATA):
            scale = 1.0 if kept < 9.0 else 2.0
            for kept in [scale * float(x.sum())]:
                pass
    """,
    "an attribute that is stored by its name": """
        class Timer:
            def tick(self):
                self.last = time.time()
        class Kept:
            def __init__(self):
                self.last = 0.0
        timer, kept = Timer(), Kept()
        for x, y in job.batches(DATA):
            timer.tick()
            setattr(kept, "last", float(x.sum()))
    """,
    "a choice by a setting": """
        kept, seed = 0.0, int(os.environ.get("SEED", "3")) or time.time()
        for x, y in job.batches(DATA):
            kept = kept + seed * float(x.sum())
    """,
    "a list by a name that a function has for itself": """
        def times():
            last = time.time()
            return last
        last = kept = [0.0]
        for x, y in job.batches(DATA):
            kept[0] = kept[0] + float(x.sum())
            times()
    """,
}


@pytest.mark.parametrize("script", KEPT.values(), ids=KEPT)
def test_what_is_made_with_it_or_named_like_it_is_compared(tmp_path: Path, script: str) -> None:
    names = [one.name for one in captures.run_in(tmp_path, script).differences()]
    assert any("kept" in name for name in names)


FREE = {
    "when it began, and when the last step was": """
        t0 = last = time.time()
        for x, y in job.batches(DATA):
            now = time.time()
            took, last = now - last, now
            print(f"{took:.1f} of {now - t0:.1f}")
    """,
    "a deque of step times": """
        times, end = collections.deque(maxlen=5), time.perf_counter()
        for x, y in job.batches(DATA):
            times.append(time.perf_counter() - end)
            end = time.perf_counter()
            print(sum(times) / len(times))
    """,
    "the last of a list of times": """
        times = []
        for x, y in job.batches(DATA):
            times.append(time.time())
            times = times[-3:]
    """,
    "meters, one of them of the time": """
        class AverageMeter:
            def __init__(self):
                self.val = self.sum = self.avg = 0.0
            def update(self, val, n=1):
                self.val = val
                self.sum += val * n
                self.avg = self.sum / 5
        batch_time, end = AverageMeter(), time.time()
        for x, y in job.batches(DATA):
            batch_time.update(time.time() - end, x.size(0))
            end = time.time()
    """,
    "such a meter of a trainer's": """
        class AverageMeter:
            def __init__(self):
                self.val = self.sum = 0.0
            def update(self, val, n=1):
                self.val = val
                self.sum += val * n
        class Trainer:
            def __init__(self):
                self.batch_time = AverageMeter()
                self.end = time.time()
            def run(self):
                for x, y in job.batches(DATA):
                    self.batch_time.update(time.time() - self.end, x.size(0))
                    self.end = time.time()
        Trainer().run()
    """,
    "a throttle, and a list of another's by its attribute's name": """
        class Throttle:
            def __init__(self):
                self.last = time.time()
            def is_due(self):
                now = time.time()
                if now - self.last < 1e-9:
                    return False
                self.last = now
                return True
        class Anchor:
            def __init__(self, values):
                self.last = [one.clone() for one in values]
        throttle, anchor = Throttle(), Anchor([torch.zeros(())])
        for x, y in job.batches(DATA):
            if throttle.is_due():
                print(anchor.last)
    """,
    "a stopwatch, and a fixed mean by its attribute's name": """
        class Stopwatch:
            def __init__(self):
                self.mean, self.began = 0.0, time.perf_counter()
            def lap(self):
                now = time.perf_counter()
                self.mean = 0.9 * self.mean + 0.1 * (now - self.began)
                self.began = now
        class Centre:
            def __init__(self, mean):
                self.mean = mean
        watch, centre = Stopwatch(), Centre(torch.zeros(()))
        for x, y in job.batches(DATA):
            watch.lap()
            print(centre.mean)
    """,
    "a run's name, formatted by a function": """
        def said(seconds):
            minutes, rest = divmod(seconds, 60)
            text = f"{int(minutes)} m {rest:.6f} s"
            return text
        for x, y in job.batches(DATA):
            name = f"run-{said(time.time())}"
            line = " ".join([name, str(round(time.time(), 9))])
    """,
    "how fast it is": """
        rate, end, tokens = 0.0, time.time(), 0
        for x, y in job.batches(DATA):
            took, end = time.time() - end, time.time()
            rate = 0.9 * rate + 0.1 * x.numel() / max(took, 1e-9)
    """,
    "a global by a function": """
        last = 0.0
        def log(x):
            global last
            now = time.time()
            if now - last > 1e-9:
                last = now
        for x, y in job.batches(DATA):
            log(x)
    """,
    "a clock by another name": """
        now = lambda: time.perf_counter()
        last = now()
        for x, y in job.batches(DATA):
            last = now()
    """,
    "a folder of the time of the run, and a file in it": """
        from datetime import datetime
        from pathlib import Path
        for x, y in job.batches(DATA):
            folder = os.path.join("runs", datetime.now().strftime("%Y-%m-%d %f"))
            file = Path(folder) / "log.txt"
    """,
    "a time that is given or asked for": """
        class Timer:
            def __init__(self):
                self.last = 0.0
            def tick(self, now=None):
                now = now or time.time()
                self.last = now
        timer = Timer()
        for x, y in job.batches(DATA):
            timer.tick()
    """,
    "seconds as a tensor": """
        seconds, end = torch.zeros(()), time.time()
        for x, y in job.batches(DATA):
            seconds = torch.tensor(time.time() - end)
            end = time.time()
    """,
    "a state that others stamp": """
        class State:
            def __init__(self):
                self.stamp = 0.0
        state = State()
        for x, y in job.batches(DATA):
            state.stamp = time.time()
    """,
}


@pytest.mark.parametrize("script", FREE.values(), ids=FREE)
def test_what_only_tells_the_time_is_free(tmp_path: Path, script: str) -> None:
    assert not captures.names_in(tmp_path, script)


@pytest.mark.parametrize(
    ("text", "tells"),
    [
        ("a = deque([1], maxlen=os.getpid())", False),
        ("a = Event(time.time())", False),
        ("a = load(os.environ['HOME'])", False),
        ("a = np.zeros(os.getpid())", False),
        ("a = [0] * os.getpid()", False),
        ("a = [0 for _ in range(os.getpid())]", False),
        ("a = [one for one in times() if one]", True),
        ("a = {one: 0 for one in times()}", False),
        ("a = int(os.environ['LOG_WINDOW'])", False),
        ("a = int(os.getpid())", True),
        ("a = os.environ['HOME'] + '/log'", True),
        ("a = os.environ['USER'] == 'me'", False),
        ("a = time.time() > 5", True),
        ("a = math.floor(time.time())", True),
        ("a = os.path.join(os.environ['HOME'], 'log')", True),
        ("a = Path(os.environ['HOME'])", True),
        ("a = build([1, time.time()])\nb = a[1]", False),
        ("a = sorted(losses, key=lambda one: one + time.time())", False),
        ("a = list(filter(lambda one: time.time() > one, losses))", False),
        ("a = list(zip(losses, times()))", False),
        ("a = list(map(str, times()))", True),
        ("a = list(map(build, times()))", False),
        ("a = round(time.time(), digits)", True),
        ("a = losses.round(time.time())", False),
        ("a = losses.replace('time', str(time.time()))", True),
        ("a = dataclasses.replace(losses, at=time.time())", False),
        ("a = given(time.time())", True),
        ("a = made(time.time())", False),
        ("a = loaded(f'{os.getpid()}')", False),
    ],
)
def test_only_other_forms_of_plain_values_are_clocks(text: str, tells: bool) -> None:
    source = read(ast.parse(f"import math, os, time\n{FUNCTIONS}\n{text}\n"))
    clocks = source.scopes["<module>", 0].clocks
    assert ("a" in clocks) is tells
    assert "a[1]" not in clocks


FUNCTIONS = """
def times():
    return [time.time()]
def given(at):
    later = at + 5
    return later
def made(at):
    return Table(at)
def loaded(file):
    return [float(line) for line in open(file)]
"""
