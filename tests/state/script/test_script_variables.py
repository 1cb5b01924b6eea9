"""What a script keeps in its own variables is found, and what it does not keep is left alone."""

import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from captures import JOINER, PRELUDE, RANK, Job, run_in

from trainmover.state.script import handles
from trainmover.state.script.code.source import source_of
from trainmover.state.script.comparison import sentence
from trainmover.state.script.values import NO_VALUE, entry_of, handle_entry, known_as
from trainmover.state.script.variables import Variables

KEPT = {
    "an average that is another object each step": """
        class Average:
            def __init__(self, value=0.0):
                self._value = value
            def plus(self, x):
                return Average(0.9 * self._value + x)
        def main():
            average = Average()
            for x, y in job.batches(DATA):
                average = average.plus(float(x.sum()))
        main()
        """,
    "one with a tuple": """
        class State:
            def __init__(self, losses=()):
                self.losses = losses
        def main():
            state = State()
            for x, y in job.batches(DATA):
                state = State((*state.losses, float(x.sum()))[-3:])
        main()
        """,
    "one with a tensor, in an attribute": """
        class Mean:
            def __init__(self, value):
                self.value = value
        trainer = types.SimpleNamespace(mean=Mean(torch.zeros(2)))
        def main():
            for x, y in job.batches(DATA):
                trainer.mean = Mean(trainer.mean.value + x)
        main()
        """,
    "one with places for its attributes, in another": """
        class Inner:
            __slots__ = ("_value",)
            def __init__(self, value):
                self._value = value
        class Outer:
            def __init__(self, inner):
                self.inner = inner
        def main():
            outer = Outer(Inner(0.0))
            for x, y in job.batches(DATA):
                outer = Outer(Inner(outer.inner._value + float(x.sum())))
        main()
        """,
    "what is set in a context of its own": """
        import contextvars
        scale = contextvars.ContextVar("scale", default=0.0)
        context = contextvars.copy_context()
        def one(x):
            scale.set(scale.get() + float(x.sum()))
        for x, y in job.batches(DATA):
            context.run(one, x)
        """,
    "a number that a cache has of some moment": """
        import functools
        total = 0.0
        @functools.lru_cache
        def base(period):
            return total
        def one(x):
            global total
            total = float(x.sum())
            step(x * base(int(total) // 8))
            total = 0.0
        for x, y in job.batches(DATA):
            one(x)
        """,
    "a number that a cache has drawn": """
        import functools, random
        @functools.cache
        def gain_of(index):
            return random.uniform(0.5, 1.5)
        for number, (x, y) in enumerate(job.batches(DATA)):
            step(x * gain_of(number))
        """,
    "a number that a cache has by a function that draws": """
        import functools
        def drawn():
            return float(torch.empty(1).uniform_())
        @functools.lru_cache
        def gain_of(index):
            return drawn()
        for number, (x, y) in enumerate(job.batches(DATA)):
            step(x * gain_of(number))
        """,
    "a number that a cache has of what the top of the script stores in its loop": """
        import functools
        level = 1.0
        @functools.cache
        def gain_of(index):
            return level
        for number, (x, y) in enumerate(job.batches(DATA)):
            step(x * gain_of(number // 3))
            level = float(x.sum())
        level = 1.0
        """,
    "a number that a cache has of what is stored around it": """
        import functools
        def main():
            level = 1.0
            @functools.cache
            def gain_of(index):
                return level
            def one(x):
                nonlocal level
                level = 2 + float(x.sum())
                step(x * gain_of(int(level) // 8))
                level = 1.0
            for x, y in job.batches(DATA):
                one(x)
        main()
        """,
    "a property that one of its methods draws": """
        import functools
        class Margin:
            def _drawn(self):
                return torch.rand(()).item()
            @functools.cached_property
            def width(self):
                return self._drawn()
        margin = Margin()
        for number, (x, y) in enumerate(job.batches(DATA)):
            if number > 5:
                step(x * margin.width)
        """,
    "a property of how many steps a job has made": """
        import functools
        class Ramp:
            def __init__(self, run):
                self.run = run
            @functools.cached_property
            def begun(self):
                return self.run.steps
        class Run:
            @property
            def steps(self):
                return seen.count
        class seen:
            count = 0
        ramp = Ramp(Run())
        for number, (x, y) in enumerate(job.batches(DATA)):
            seen.count += 1
            if number > 5:
                step(x * ramp.begun)
        """,
    "an object of a cache that draws as it is made": """
        import functools
        class Gain:
            def __init__(self):
                self.value = torch.rand(()).item()
        @functools.cache
        def gain_of(index):
            return Gain().value
        for number, (x, y) in enumerate(job.batches(DATA)):
            step(x * gain_of(number))
        """,
    "weights of a layer that a cache has made": """
        import functools
        @functools.cache
        def direction(index):
            return nn.Linear(2, 1).weight.detach()
        for number, (x, y) in enumerate(job.batches(DATA)):
            step(x * direction(number))
        """,
    "how often a cache was asked": """
        import functools
        @functools.cache
        def half(index):
            return index / 2
        for number, (x, y) in enumerate(job.batches(DATA)):
            step(x * half(number // 3) * half.cache_info().misses)
        """,
    "a property that is drawn late": """
        import functools
        class Margin:
            @functools.cached_property
            def width(self):
                return torch.rand(()).item()
        margin = Margin()
        for number, (x, y) in enumerate(job.batches(DATA)):
            if number > 5:
                step(x * margin.width)
        """,
    "what a handler of the log counts": """
        import logging
        class Counting(logging.Handler):
            count = 0
            def emit(self, record):
                self.count += 1
        logging.getLogger("captured").addHandler(Counting())
        for x, y in job.batches(DATA):
            logging.getLogger("captured").warning("one")
        logging.getLogger("captured").handlers.clear()
        """,
    "what a filter of a handler counts": """
        import logging
        class Counting(logging.Filter):
            count = 0
            def filter(self, record):
                self.count += 1
                return False
        def main():
            handler = logging.StreamHandler()
            handler.addFilter(Counting())
            logging.getLogger("captured").addHandler(handler)
        main()
        for x, y in job.batches(DATA):
            logging.getLogger("captured").warning("one")
        logging.getLogger("captured").handlers.clear()
        """,
    "a layer that draws from some moment on": """
        teacher = nn.Sequential(nn.Linear(2, 2), nn.Dropout()).eval()
        for number, (x, y) in enumerate(job.batches(DATA)):
            if number == 5:
                teacher[1].train()
            teacher(x)
        """,
    "a layer without parameters that does": """
        layer = nn.Dropout().eval()
        for number, (x, y) in enumerate(job.batches(DATA)):
            if number == 5:
                layer.train()
            layer(x)
        """,
    "a property that is kept from some moment": """
        import functools
        class Trainer:
            loss = 0.0
            @functools.cached_property
            def first(self):
                return self.loss
            def train(self, x):
                self.loss = float(x.sum())
                if self.loss > 8:
                    step(x * self.first)
                self.loss = 0.0
        trainer = Trainer()
        for x, y in job.batches(DATA):
            trainer.train(x)
        """,
    "a target beside a star": """
        def main():
            for it, *batch in enumerate(job.batches(DATA)):
                rate = 0.1 / (it + 1)
        main()
        """,
    "what a manager of the script's may skip": """
        class Quiet:
            def __enter__(self):
                return self
            def __exit__(self, *raised):
                return True
        class Trainer:
            scale = 1.0
            def fit(self):
                for x, y in job.batches(DATA):
                    with Quiet():
                        if x.sum() > 8:
                            raise LookupError
                        self.scale = float(x.sum())
                    step(x * self.scale)
        Trainer().fit()
        """,
    "what a try around it may skip": """
        class Trainer:
            scale = 1.0
            def fit(self):
                for x, y in job.batches(DATA):
                    try:
                        if x.sum() > 8:
                            raise LookupError
                        self.scale = float(x.sum())
                    finally:
                        step(x * self.scale)
                        continue
        Trainer().fit()
        """,
    "what nobody may draw from a generator": """
        class Trainer:
            scale = 1.0
            def work(self, x):
                self.scale = float(x.sum())
                yield
            def fit(self):
                for x, y in job.batches(DATA):
                    work = self.work(x)
                    if x.sum() <= 8:
                        next(work)
                    step(x * self.scale)
        Trainer().fit()
        """,
    "a meter whose sum is called like a timer's": """
        class Timer:
            def __init__(self):
                self.total, self.start = 0.0, time.time()
            def lap(self):
                self.total += time.time() - self.start
        class Meter:
            def __init__(self):
                self.total = 0.0
            def add(self, value):
                self.total += value
        timer, meter = Timer(), Meter()
        for x, y in job.batches(DATA):
            timer.lap()
            meter.add(float(x.sum()))
            rate = 0.1 / (1 + meter.total)
        """,
    "a name that once was a time": """
        def main():
            last = time.time()
            print(time.time() - last)
            last = 0.0
            for x, y in job.batches(DATA):
                last = 0.9 * last + float(x.sum())
        main()
        """,
    "what a function gives that is called like a timer's": """
        class Timer:
            def now(self):
                return time.time()
        class Level:
            def now(self):
                return 2.0
        def main():
            strength = 1.0
            for x, y in job.batches(DATA):
                strength = 0.9 * strength + Level().now()
        main()
        """,
    "best where the file is written": """
        def main():
            best = 99.0
            for x, y in job.batches(DATA):
                loss = 1 / (1 + float(x.sum()))
                if loss < best and not job.is_shadow:
                    best = loss
        main()
        """,
    "enumerate": """
        def main():
            for it, (x, y) in enumerate(job.batches(DATA)):
                lr = 0.1 / (it + 1)
        main()
        """,
    "enumerate that equals the data": """
        def main():
            for it, i in enumerate(job.batches(range(14))):
                lr = 0.1 / (it + 1)
        main()
        """,
    "zip with count": """
        def main():
            for (x, y), it in zip(job.batches(DATA), itertools.count()):
                step(x * it)
        main()
        """,
    "range around next": """
        def main():
            batches = job.batches(DATA)
            for it in range(14):
                x, y = next(batches)
        main()
        """,
    "while counter": """
        def main():
            batches, it = job.batches(DATA), 0
            while it < 14:
                x, y = next(batches)
                it += 1
        main()
        """,
    "deque of norms": """
        def main():
            norms = collections.deque(maxlen=4)
            for x, y in job.batches(DATA):
                norms.append(float(x.norm()))
                clip = max(norms)
        main()
        """,
    "best": """
        def main():
            best = 0.0
            for x, y in job.batches(DATA):
                value = step(x).item()
                if value > best:
                    best = value
        main()
        """,
    "running mean": """
        running = 0.0
        for x, y in job.batches(DATA):
            running = 0.9 * running + 0.1 * step(x).item()
        """,
    "running tensor": """
        running = torch.zeros(())
        for x, y in job.batches(DATA):
            running += step(x)
        print(running)
        """,
    "global counter": """
        count = 0
        def train(x):
            global count
            count += 1
            return x * count
        def main():
            for x, y in job.batches(DATA):
                train(x)
        main()
        """,
    "nonlocal counter": """
        def main():
            count = 0
            def train(x):
                nonlocal count
                count += 1
                return x * count
            for x, y in job.batches(DATA):
                train(x)
        main()
        """,
    "counter in a factory": """
        def make():
            count = 0
            def train(x):
                nonlocal count
                count += 1
                return x * count
            return train
        def main():
            train = make()
            for x, y in job.batches(DATA):
                train(x)
        main()
        """,
    "prefetched batch": """
        def main():
            batches = job.batches(DATA)
            ahead = next(batches)
            for x in batches:
                step(ahead[0])
                ahead = x
        main()
        """,
    "dataclass": """
        @dataclasses.dataclass
        class Stats:
            seen: int = 0
            total: float = 0.0
        def main():
            stats = Stats()
            for x, y in job.batches(DATA):
                stats.seen += 1
                stats.total += step(x).item()
        main()
        """,
    "trainer": """
        class Trainer:
            def __init__(self):
                self.count = 0
                self.losses = []
            def train(self):
                for x, y in job.batches(DATA):
                    self.train_step(x)
            def train_step(self, x):
                self.loss = step(x) * self.count
                self.losses.append(self.loss.item())
                self.count += 1
        Trainer().train()
        """,
    "calls of a module": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.calls = 0
            def forward(self, x):
                self.calls += 1
                return x * self.calls
        def main():
            net = nn.Sequential(Net())
            for x, y in job.batches(DATA):
                net(x)
        main()
        """,
    "meters in a dict": """
        class Meter:
            def __init__(self):
                self.total = 0.0
            def update(self, value):
                self.total += value
        def main():
            meters = {"loss": Meter(), "time": Meter()}
            for x, y in job.batches(DATA):
                meters["loss"].update(step(x).item())
                meters["time"].update(time.time())
        main()
        """,
    "object that is made later": """
        class Best:
            def __init__(self, value):
                self.value = value
            def take(self, value):
                self.value = max(self.value, value)
        def main():
            best = None
            for x, y in job.batches(DATA):
                if best is None:
                    best = Best(0.0)
                best.take(step(x).item())
        main()
        """,
    "namespace": """
        state = types.SimpleNamespace(count=0)
        def train(x):
            state.count += 1
            return x * state.count
        def main():
            for x, y in job.batches(DATA):
                train(x)
        main()
        """,
    "global dict": """
        STATE = {"count": 0}
        def train(x):
            STATE["count"] += 1
        def main():
            for x, y in job.batches(DATA):
                train(x)
        main()
        """,
    "slots": """
        @dataclasses.dataclass(slots=True)
        class Stats:
            seen: int = 0
        def main():
            stats = Stats()
            for x, y in job.batches(DATA):
                stats.seen += 1
        main()
        """,
    "enumeration": """
        import enum
        class Phase(enum.Enum):
            WARM, LATER = 1, 2
        def main():
            phase = Phase.WARM
            for i in job.batches(range(14)):
                if phase is Phase.WARM and i > 6:
                    phase = Phase.LATER
        main()
        """,
    "numpy array": """
        def main():
            hits = numpy.zeros(3)
            for x, y in job.batches(DATA):
                hits[y] += 1
        main()
        """,
    "own generator around the batches": """
        def numbered(batches):
            number = 0
            for batch in batches:
                number += 1
                yield number, batch
        def main():
            for number, (x, y) in numbered(job.batches(DATA)):
                step(x * number)
        main()
        """,
}

GENERATORS = {
    "of numpy, at the top": """
        chance = numpy.random.default_rng(7)
        def train(x):
            return step(x) + chance.normal()
        for x, y in job.batches(DATA):
            train(x)
        """,
    "of torch, in a function": """
        def main():
            noise = torch.Generator().manual_seed(3)
            for x, y in job.batches(DATA):
                step(x + torch.rand((2,), generator=noise))
        main()
        """,
    "of Python, closed over": """
        import random
        def main():
            dice = random.Random(3)
            def train(x):
                return step(x) * dice.random()
            for x, y in job.batches(DATA):
                train(x)
        main()
        """,
    "of an object of the script": """
        class Augment:
            def __init__(self):
                self.chance = numpy.random.RandomState(5)
            def __call__(self, x):
                return x + self.chance.rand()
        def main():
            augment = Augment()
            for x, y in job.batches(DATA):
                step(augment(x))
        main()
        """,
}

COLLECTING = {
    "comprehension": """
        losses = [step(x) for x, y in job.batches(DATA)]
        """,
    "comprehension in a function, over a generator": """
        def some(batches):
            for batch in batches:
                yield batch
        def main():
            return {step(x) for x, y in some(job.batches(DATA))}
        main()
        """,
    "loop in what a comprehension calls": """
        def train(x, y):
            return step(x)
        table = {i: train(*batch) for i, batch in enumerate(job.batches(DATA))}
        """,
    "steps drawn by hand": """
        batches = job.batches(DATA)
        losses = [step(next(batches)[0]) for _ in range(14)]
        """,
    "sum of a generator expression": """
        def main():
            return sum(step(x) for x, y in job.batches(DATA))
        main()
        """,
    "list of a generator": """
        def losses():
            for x, y in job.batches(DATA):
                yield step(x)
        print(list(losses()))
        """,
}

INNOCENT = {
    "a cache of what follows from what is given": """
        import functools, math
        TABLE, BASE = [1, 2, 3], 0.1
        def wave(part):
            return math.cos(part) * BASE * TABLE[part % 3]
        class Schedule:
            def __init__(self):
                self.base = 0.1
            @functools.lru_cache(None)
            def rate(self, part):
                return self.base / (1 + wave(part))
        schedule = Schedule()
        def main():
            for x, y in job.batches(DATA):
                step(x * schedule.rate(int(x.sum())))
        main()
        """,
    "a cache of what methods of an object follow from, that stays": """
        from trainmover.state.kinds.values import Attributes
        import functools, math
        class Meter:
            def __init__(self):
                self.total = 0.0
            def cos(self):
                return self.total
        class Waves:
            def __init__(self):
                self.base = 0.1
            def at(self, part):
                return math.cos(part) * self.base
        waves, meter = Waves(), Meter()
        job.tracked["meter"] = Attributes(meter, ("total",))
        @functools.cache
        def wave(part):
            return waves.at(part) + math.cos(part)
        def main():
            for x, y in job.batches(DATA):
                step(x * wave(int(x.sum())))
                meter.total += float(x[0])
        main()
        """,
    "what a manager of the script's lets pass": """
        class Timed:
            def __enter__(self):
                return self
            def __exit__(self, *raised):
                return False
        class Trainer:
            scale = 1.0
            def fit(self):
                for x, y in job.batches(DATA):
                    with Timed():
                        self.scale = float(x.sum())
                    step(x * self.scale)
        Trainer().fit()
        """,
    "timer beside a meter": """
        class Timer:
            def __init__(self):
                self.total, self.start = 0.0, time.time()
            def lap(self):
                self.total += time.time() - self.start
        class Meter:
            def __init__(self):
                self.total = 0.0
            def add(self, value):
                self.total += value
        def main():
            timer = Timer()
            for x, y in job.batches(DATA):
                meter = Meter()
                timer.lap()
                meter.add(float(x.sum()))
        main()
        """,
    "a writer, and its last file, of a real run": """
        def main():
            writer, last = None, ""
            for x, y in job.batches(DATA):
                if not job.is_shadow:
                    last = f"at-{float(x.sum())}"
                    writer = types.SimpleNamespace(name=last)
                if writer is not None:
                    writer.name.upper()
        main()
        """,
    "batches drawn for one step": """
        def main():
            batches = job.batches(DATA + DATA)
            while True:
                step([next(batches) for _ in range(2)][0][0])
                if len(job.theirs) > 13:
                    break
        main()
        """,
    "top-level names of one step": """
        class Batch:
            def __init__(self, rows):
                self.rows = numpy.array(rows)
        for x, y in job.batches(DATA):
            batch = Batch(x)
            numpy.add(batch.rows, 1, out=batch.rows)
            with open(os.devnull) as log:
                log.read()
            if len(job.theirs) % 4 == 0:
                job.variables._layouts.clear()
        """,
    "top-level name of a batch that a function gives to what it changes": """
        def collate(rows):
            x = rows.clone()
            x[:1] += 1
            return x
        x, y = DATA[0]
        for x, y in job.batches(DATA):
            step(collate(x))
        """,
    "comprehension beside the loop": """
        def main():
            for x, y in job.batches(DATA):
                parts = [step(one) for one in x]
        main()
        """,
    "loop over a generator expression": """
        def main():
            for loss in (step(x) for x, y in job.batches(DATA)):
                pass
        main()
        """,
    "generator that is asked by hand": """
        def main():
            losses = (step(x) for x, y in job.batches(DATA))
            while next(losses, None) is not None:
                pass
        main()
        """,
    "left over": """
        def main():
            for x, y in job.batches(DATA):
                loss = step(x)
                out = [loss.item()]
                text = f"loss {loss}"
        main()
        """,
    "left over at the top": """
        for x, y in job.batches(DATA):
            loss = step(x)
            print("loss", loss.item())
        """,
    "time": """
        def main():
            begun = time.time()
            last, took = time.perf_counter(), 0.0
            for x, y in job.batches(DATA):
                step(x)
                now = time.perf_counter()
                took += now - last
                last = now
                if took > 1e6:
                    print(took, begun)
        main()
        """,
    "meter of times": """
        class Meter:
            def __init__(self, name):
                self.name = name
                self.reset()
            def reset(self):
                self.value = self.sum = 0.0
                self.count = 0
            def update(self, value, n=1):
                self.value = value
                self.sum += value * n
                self.count += n
        class Progress:
            def __init__(self, meters):
                self.meters = meters
        def main():
            batch_time = Meter("time")
            progress = Progress([batch_time])
            end = time.time()
            for x, y in job.batches(DATA):
                step(x)
                batch_time.update(time.time() - end)
                end = time.time()
                print(len(progress.meters))
        main()
        """,
    "timer class": """
        class Timer:
            def __init__(self):
                self.start = time.time()
                self.laps = []
            def lap(self):
                now = time.time()
                self.laps.append(now - self.start)
                self.start = now
        def main():
            timer = Timer()
            for x, y in job.batches(DATA):
                timer.lap()
        main()
        """,
    "arguments": """
        def main():
            parser = argparse.ArgumentParser()
            parser.add_argument("--lr", type=float, default=0.1)
            args = parser.parse_args([])
            scale = lambda x: x * args.lr
            for x, y in job.batches(DATA):
                scale(x)
        main()
        """,
    "machine": """
        def main():
            host, pid = socket.gethostname(), os.getpid()
            where = f"{host}-{pid}"
            for x, y in job.batches(DATA):
                print(where)
        main()
        """,
    "step's own attributes": """
        class Trainer:
            def __init__(self):
                self.loss = None
            def forward(self, x):
                self.out = x * 2
            def backward(self):
                self.loss = self.out.sum()
            def optimize(self, x):
                self.forward_once(x)
                self.backward()
            def forward_once(self, x):
                self.out = x * 2
        def main():
            trainer = Trainer()
            for x, y in job.batches(DATA):
                trainer.optimize(x)
                print(trainer.loss)
        main()
        """,
    "passes over the data": """
        def main():
            for epoch in range(2):
                total = 0.0
                for x, y in job.batches(DATA):
                    loss = step(x)
        main()
        """,
    "a wrapper of a library": """
        def main():
            for (x, y), in zip(job.batches(DATA)):
                loss = step(x)
        main()
        """,
    "tracked progress": """
        class Progress:
            batches, total = 0, 0.0
        def main():
            progress = Progress()
            job.tracked["progress"] = progress
            for x, y in job.batches(DATA):
                progress.batches += 1
        main()
        """,
    "a generator that counts elements": """
        def sized(batches):
            for x, y in batches:
                yield x, float(x.norm())
        def main():
            for x, norm in sized(job.batches(DATA)):
                step(x / norm)
        main()
        """,
    "names that are no text": """
        def main():
            name = b"a\\xff".decode("utf-8", "surrogateescape")
            names, large = [name, 1 << 70], {1 << 80, name}
            for x, y in job.batches(DATA):
                print(len(name), len(names), len(large))
        main()
        """,
    "methods of the process's own generators": """
        import random
        import numpy
        class Policy:
            choice, draw = "none", random.random
        def main():
            policy, normal = Policy(), numpy.random.normal
            for x, y in job.batches(DATA):
                policy.choice = random.choice(["none", "flip"])
                step(x * policy.draw() * normal() * torch.rand(()))
                policy.choice = "none"
        main()
        """,
    "numbers in the batch": """
        def main():
            for x, y in job.batches(DATA):
                step(x * y)
        main()
        """,
    "a sampler's range": """
        def main():
            for i in job.batches(range(14)):
                step(DATA[i][0])
        main()
        """,
}


@pytest.mark.parametrize("habit", KEPT)
def test_what_lasts_from_step_to_step_is_named(run: Callable[[str], Job], habit: str) -> None:
    job = run(KEPT[habit])
    found = job.differences()
    assert found
    assert all(one.file == "train.py" and one.line > 0 for one in found), found
    assert job.variables.comparison.differences(job.theirs[JOINER], job.own[JOINER]) == []


@pytest.mark.parametrize("habit", INNOCENT)
def test_what_does_not_is_left_alone(run: Callable[[str], Job], habit: str) -> None:
    job = run(INNOCENT[habit])
    found = job.variables.comparison.differences(
        job.theirs[RANK], job.own[JOINER], at_boundary=False
    )
    assert found == []


def test_the_sentence_says_where_it_is_stored_and_both_values(run: Callable[[str], Job]) -> None:
    job = run(KEPT["while counter"])
    [found] = job.differences()
    line = len(PRELUDE.splitlines()) + 6
    text = f"`it` (train.py line {line}) is {RANK} on the rank and {JOINER} here"
    assert str(found) == text
    assert sentence(2, [found] * 5).endswith(f"{text}; {text}; {text}; and 2 more")


@pytest.mark.parametrize("name", ["api_token", "password", "secret_2", "self.key", "authToken"])
def test_a_secret_is_compared_and_never_shown(run: Callable[[str], Job], name: str) -> None:
    variable = name.replace("self.", "")
    job = run(f"""
        {variable} = ""
        for x, y in job.batches(DATA):
            {variable} += "hunter"
        """)
    [found] = job.differences()
    assert variable in str(found)
    for data in (*job.theirs, str(found).encode()):
        assert b"hunter" not in data


def test_what_is_read_only_after_the_loop_counts_at_its_end(run: Callable[[str], Job]) -> None:
    job = run("""
        def main():
            for x, y in job.batches(DATA):
                loss = step(x).item()
            print(loss)
        main()
        """)
    theirs, own = job.theirs[RANK], job.own[JOINER]
    assert job.variables.comparison.differences(theirs, own) == []
    [found] = job.variables.comparison.differences(theirs, own, ended=True)
    assert found.name == "loss"


def test_another_function_of_the_script_is_no_place_to_join(run: Callable[[str], Job]) -> None:
    job = run("""
        def look(batches):
            return next(batches)
        def main():
            batches = job.batches(DATA)
            look(batches)
            for x, y in batches:
                step(x)
        main()
        """)
    [found] = job.variables.comparison.differences(job.theirs[RANK], job.own[0])
    assert "`the fetch` (train.py) is in main at line" in str(found)


def test_a_new_iterator_may_have_a_line_of_its_own(run: Callable[[str], Job]) -> None:
    job = run("""
        def main():
            batches, seen = iter(()), 0
            for _ in range(8):
                try:
                    x, y = next(batches)
                except StopIteration:
                    batches = job.batches(DATA[:4])
                    x, y = next(batches)
                step(x)
        main()
        """)
    found = job.variables.comparison.differences(job.theirs[2], job.own[0])
    assert [one.name for one in found] == ["_"]


def test_a_capture_keeps_no_tensor_of_the_script_alive(run: Callable[[str], Job]) -> None:
    job = run("""
        import weakref
        alive = []
        def main():
            out = gone = None
            for x, y in job.batches(DATA):
                if gone is not None:
                    out = None
                    alive.append(gone() is not None)
                out = x * 2
                gone = weakref.ref(out)
        main()
        job.alive = alive
        """)
    assert job.alive == [False] * len(job.alive)  # type: ignore[attr-defined]


def test_locals_that_the_script_asked_for_stay_its_own(run: Callable[[str], Job]) -> None:
    job = run("""
        def main():
            rate = 0.5
            settings = locals()
            for x, y in job.batches(DATA):
                step(x)
            job.rate = settings["rate"]
        main()
        """)
    assert job.rate == 0.5  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", COLLECTING)
def test_values_that_no_variable_holds_yet_are_named(run: Callable[[str], Job], name: str) -> None:
    job = run(COLLECTING[name])
    [found] = job.differences()
    assert found.name == "what is collected"
    assert found.file == "train.py"
    assert found.line > 0


@pytest.mark.parametrize("name", GENERATORS)
def test_a_generator_that_nobody_tracks_is_named(run: Callable[[str], Job], name: str) -> None:
    [found] = run(GENERATORS[name]).differences()
    assert found.theirs == found.own
    assert found.theirs.startswith("a ")


@pytest.mark.parametrize("where", ["tracked", "of_loops"])
def test_one_that_goes_with_the_rank_is_not(run: Callable[[str], Job], where: str) -> None:
    job = run(
        f"""
        noise = torch.Generator().manual_seed(3)
        job.{where}["noise"] = noise
        for x, y in job.batches(DATA):
            step(x + torch.rand((2,), generator=noise))
        """
    )
    assert job.differences() == []


class Peers:
    """A handle, known in all processes by its name."""

    def __init__(self, name: str) -> None:
        self.name = name


HOLDS_PEERS = """
class Holder:
    def __init__(self):
        self.peers = None
    def hold(self, peers):
        self.peers = peers
holder, of_all = Holder(), None
def train(given):
    global of_all
    mine = in_cell = None
    outside = None
    def uses():
        return in_cell
    for x, y in job.batches(DATA):
        step(x)
        print(mine, uses(), of_all, holder.peers, outside)
        if {when}:
            mine = in_cell = of_all = peers("b")
            holder.hold(peers("a"))
            outside = -100
train(None)
"""


class Taking(Job):
    """One that is given what the rank had, at one of its fetches."""

    rank = b""

    def fetch(self, batches: Iterator[Any]) -> Any:
        if len(self.own) == JOINER:
            own = {known_as(handle_entry(name)): Peers(name) for name in "abc"}
            self.variables.give(self.rank, own | {-100: -100})
        return super().fetch(batches)


def test_handles_are_stored_where_the_rank_has_its_own(tmp_path: Path) -> None:
    """In locals, cells, globals and attributes."""
    handles.learn(Peers, lambda peers: (peers.name, f"peers {peers.name}"))

    def run(job: Job, when: str) -> None:
        path = tmp_path / "train.py"
        path.write_text(PRELUDE + HOLDS_PEERS.format(when=when))
        runpy.run_path(str(path), {"job": job, "peers": Peers, "print": lambda *_: None})

    rank = Job(lambda file: file.startswith(str(tmp_path)))
    run(rank, "x[0] == 1")
    joiner = Taking(lambda file: file.startswith(str(tmp_path)))
    joiner.rank = rank.theirs[RANK]
    run(joiner, "False")
    names = {
        one.name for one in rank.variables.comparison.differences(rank.theirs[RANK], joiner.own[0])
    }
    assert names == {"mine", "in_cell", "of_all", "holder.peers", "outside"}
    found = rank.variables.comparison.differences(rank.theirs[RANK], joiner.own[JOINER])
    assert found == []


def test_a_handle_that_is_gone_is_no_value() -> None:
    handles.learn(Peers, lambda peers: ("" if peers.name == "gone" else peers.name, "peers"))
    assert entry_of(Peers("gone")) is NO_VALUE
    assert entry_of(Peers("a")) == [known_as(handle_entry("a")), "peers"]
    assert entry_of({"x": Peers("a")}) != entry_of({"x": Peers("b")})


FRAMES = """
import sys

def step():
    return frames(sys._getframe())

def drawn():
    while True:
        yield step()

def main():
    return [next(source), step(), deeper(), next(source)]

def deeper():
    return step()

source = drawn()
"""


def test_frames_are_the_same_however_often_they_are_looked_for(tmp_path: Path) -> None:
    """Whoever calls the outermost one is not looked at again; a generator is called by others."""
    path = tmp_path / "train.py"
    path.write_text(FRAMES)
    variables = Variables(dict[str, object]().items, lambda file: file == str(path))
    names = runpy.run_path(str(path), {"frames": variables.frames})

    def found(frames: list[Any]) -> list[str]:
        return [frame.f_code.co_name for frame in frames]

    for _ in range(2):
        assert found(next(names["source"])) == ["drawn", "step"]
        main = [["drawn", "step"], ["step"], ["deeper", "step"], ["drawn", "step"]]
        assert list(map(found, names["main"]())) == [["main", *one] for one in main]
        assert found(names["deeper"]()) == ["deeper", "step"]


LATE = """
    seen, turns = [], 0
    def train_step(x):
        global turns
        turns += 1
        {first}
    for x in job.batches(range(20)):
        train_step(x)
    print(seen, turns)
"""


def begun(run: Callable[[str], Job], first: str, joiner: int) -> list[str]:
    """What the step before the rank's last fetch began, where the joiner stands so many fetches
    behind its own first one."""
    job = run(LATE.format(first=first))
    history = [job.theirs[0], job.theirs[JOINER], job.theirs[RANK - 1], job.theirs[RANK]]
    return [one.name for one in job.variables.comparison.begun(history, job.own[joiner])]


def test_what_a_step_is_the_first_to_change_is_looked_for(run: Callable[[str], Job]) -> None:
    first = f"seen.append(x) if x >= {RANK - 1} else None"
    assert begun(run, first, joiner=JOINER) == ["seen"]
    assert begun(run, first, joiner=RANK) == []


def test_what_has_been_changed_before_is_not(run: Callable[[str], Job]) -> None:
    assert begun(run, "seen.append(x)", joiner=JOINER) == []
    assert begun(run, "None", joiner=JOINER) == []


def test_what_one_of_its_first_steps_changed_and_the_passed_over_one_changes_again_is_named(
    run: Callable[[str], Job],
) -> None:
    """Whoever has made the first steps has another value than the source at first; each rank its
    own."""
    every = f"seen[:] = [{{rank}}, x] if x % {RANK - 1} == 0 else seen"
    assert begun(run, every.format(rank=0), joiner=JOINER) == ["seen"]
    assert begun(run, every.format(rank=0), joiner=RANK) == []
    job = run(LATE.format(first=every.format(rank=0)))
    history = [job.theirs[0], job.theirs[JOINER], job.theirs[RANK - 1], job.theirs[RANK]]
    source_of.cache_clear()
    lost = run(LATE.format(first=every.format(rank=1)))
    assert [one.name for one in job.variables.comparison.begun(history, lost.own[JOINER])] == [
        "seen"
    ]


def test_what_lines_behind_the_passed_over_step_have_made_here_is_not(
    run: Callable[[str], Job],
) -> None:
    """A meter that begins anew in each pass is nothing on all ranks, and then each rank's own."""
    job = run(LATE.format(first=f"seen.append(x) if x >= {RANK - 1} else None"))
    history = [job.theirs[0], job.theirs[JOINER], job.theirs[RANK - 1], job.theirs[RANK]]
    mine = job.own[JOINER]
    (key,) = (key for key in msgspec.msgpack.decode(mine)[1] if key.endswith("seen"))
    begun_by = job.variables.comparison.begun
    assert [one.name for one in begun_by(history, mine)] == ["seen"]
    assert begun_by(history, mine, made_here={key}) == []


def test_where_the_source_has_not_come_to_a_fetch_nothing_is_known(
    run: Callable[[str], Job],
) -> None:
    job = run(LATE.format(first="seen.append(x)"))
    assert (
        job.variables.comparison.begun([job.theirs[0], job.theirs[0], b"", b""], job.own[JOINER])
        == []
    )


LEFT = """
def main():
    rank, best, passes = {rank}, 9.0, 0
    for number in range(2):
        total = 0.0
        for x, y in job.batches(DATA[:4]):
            total += float(x[0])
        best = min(best, {best})
        passes += 1
        print(rank, best, passes, total)
main()
"""


def test_behind_a_loop_what_its_lines_have_changed_must_be_the_source_s(
    run: Callable[[str], Job],
) -> None:
    """What is another on each rank and stays may be."""
    source = run(LEFT.format(rank=0, best=0.5))
    history = [source.theirs[0], source.theirs[0], source.theirs[3], source.theirs[5]]
    assert source.variables.comparison.left(history, source.own[5], asked=True) == []
    for rank, best, names in [(1, 0.5, []), (0, 0.25, ["best"])]:
        source_of.cache_clear()
        own = run(LEFT.format(rank=rank, best=best)).own[5]
        found = source.variables.comparison.left(history, own, asked=False)
        assert [one.name for one in found] == names


def test_an_attribute_that_cannot_be_sent_does_not_go_with_what_is_tracked(tmp_path: Path) -> None:
    run = run_in(
        tmp_path,
        """
        class Counting(torch.optim.SGD):
            def __init__(self, layer):
                super().__init__(layer.parameters(), lr=0.1)
                self.layer, self.count, self.by_layer = layer, 0, {}
            def step(self):
                self.count += 1
                self.by_layer[self.layer] = self.count
        optimizer = Counting(nn.Linear(2, 1))
        job.tracked |= {"net": optimizer.layer, "optimizer": optimizer}
        job.variables.stored_on(optimizer)
        for x, y in job.batches(DATA):
            optimizer.step()
        """,
    )
    found = run.variables.comparison.differences(run.theirs[11], run.own[3], at_boundary=False)
    assert {one.name for one in found} == {"optimizer.by_layer"}
