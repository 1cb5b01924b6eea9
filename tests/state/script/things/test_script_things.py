"""What a script keeps where it is no plain variable: in classes, functions, iterators, objects of
others, modules that nobody tracks, the process. It is found; what keeps nothing is left alone."""

import csv
import itertools
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from captures import JOINER, RANK, Job, installed

from trainmover.state.script.values import entry_of

KEPT = {
    "attribute that a tracked object's state forgets, and has the value of another": """
        class Control:
            def __init__(self):
                self.phase, self.worse = 0, 0
            def update(self, x):
                self.worse += 1
            def state_dict(self):
                return {"phase": self.phase}
            def load_state_dict(self, state):
                self.phase = state["phase"]
        def main():
            control = Control()
            job.tracked["control"] = control
            for x, y in job.batches(DATA):
                control.update(x)
        main()
        """,
    "momentum inside of a tracked optimizer": """
        class Around(torch.optim.Optimizer):
            def __init__(self, inside):
                super().__init__(inside.param_groups, {})
                self.inside = inside
                self.param_groups = inside.param_groups
            def step(self):
                for group in self.param_groups:
                    for one in group["params"]:
                        self.state[one]["old"] = one.data.clone()
                self.inside.step()
        def main():
            net = nn.Linear(2, 1)
            optimizer = Around(torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
            job.tracked |= {"net": net, "optimizer": optimizer}
            for x, y in job.batches(DATA):
                net(x).sum().backward()
                optimizer.step()
        main()
        """,
    "momentum around a tracked optimizer": """
        class Around(torch.optim.SGD):
            def __init__(self, inside):
                super().__init__(inside.param_groups[0]["params"], lr=0.1, momentum=0.9)
                self.inside = inside
        def main():
            net = nn.Linear(2, 1)
            inside = torch.optim.SGD(net.parameters(), lr=0.1)
            job.tracked |= {"net": net, "optimizer": inside}
            optimizer = Around(inside)
            for x, y in job.batches(DATA):
                net(x).sum().backward()
                optimizer.step()
        main()
        """,
    "plans of a scheduler": """
        import sched
        def put(value):
            global rate
            rate = value
        rate = 1.0
        def main():
            plan = sched.scheduler(timefunc=lambda: 0, delayfunc=lambda steps: None)
            for x, y in job.batches(DATA):
                plan.enter(1000, 1, put, (float(x[0]),))
        main()
        """,
    "count of a logger of the script's class": """
        import logging
        class Counting(logging.Logger):
            def __init__(self, name, level=0):
                super().__init__(name, level)
                self.warned = 0
            def warning(self, *args):
                self.warned += 1
        logging.setLoggerClass(Counting)
        logging.getLogger("counts warnings")
        logging.setLoggerClass(logging.Logger)
        def main():
            for x, y in job.batches(DATA):
                logging.getLogger("counts warnings").warning(x)
                y * logging.getLogger("counts warnings").warned
        main()
        """,
    "what a setter that was made before has set": """
        from functools import partial
        def main():
            criterion = nn.SmoothL1Loss()
            put = partial(setattr, criterion, "beta")
            for x, y in job.batches(DATA):
                criterion(x, x)
                put(0.1 + float(x.norm()))
        main()
        """,
    "norms by parameter": """
        def main():
            norms = torch.utils.weak.WeakTensorKeyDictionary()
            net = nn.Linear(2, 1)
            job.tracked["net"] = net
            for x, y in job.batches(DATA):
                norms[net.weight] = norms.get(net.weight, 0.0) + float(x.norm())
        main()
        """,
    "attribute of a class": """
        class Trainer:
            count = 0
            def train(self, x):
                Trainer.count += 1
                return x * self.count
        def main():
            trainer = Trainer()
            for x, y in job.batches(DATA):
                trainer.train(x)
        main()
        """,
    "attribute of a class, by a class method": """
        class Schedule:
            warm = 1.0
            @classmethod
            def cool(cls):
                cls.warm *= 0.9
        def main():
            for x, y in job.batches(DATA):
                Schedule.cool()
        main()
        """,
    "counter of instances": """
        class Sample:
            made = 0
            def __init__(self, x):
                Sample.made += 1
                self.x = x * Sample.made
        def main():
            for x, y in job.batches(DATA):
                sample = Sample(x)
        main()
        """,
    "registry of a metaclass": """
        class Counting(type):
            calls = 0
            def __call__(cls, *args):
                Counting.calls += 1
                return super().__call__(*args)
        class Loss(metaclass=Counting):
            pass
        def main():
            for x, y in job.batches(DATA):
                Loss()
        main()
        """,
    "private attribute": """
        class Trainer:
            def __init__(self):
                self.__count = 0
            def train(self, x):
                self.__count += 1
                return x * self.__count
        def main():
            trainer = Trainer()
            for x, y in job.batches(DATA):
                trainer.train(x)
        main()
        """,
    "attribute of a function": """
        def train(x):
            train.count += 1
            return x * train.count
        train.count = 0
        def main():
            for x, y in job.batches(DATA):
                train(x)
        main()
        """,
    "default of a function": """
        def train(x, seen=[]):
            seen.append(float(x[0]))
            return x * sum(seen)
        def main():
            for x, y in job.batches(DATA):
                train(x)
        main()
        """,
    "keyword default": """
        def train(x, *, seen={"sum": 0.0}):
            seen["sum"] += float(x[0])
            return x * seen["sum"]
        def main():
            for x, y in job.batches(DATA):
                train(x)
        main()
        """,
    "closure in a list": """
        def make():
            count = 0
            def train(x):
                nonlocal count
                count += 1
                return x * count
            return train
        def main():
            stages = [make(), make()]
            for x, y in job.batches(DATA):
                for stage in stages:
                    stage(x)
        main()
        """,
    "closure in a hook": """
        def make():
            seen = []
            def hook(module, inputs, output):
                seen.append(float(output.sum()))
                return output * sum(seen)
            return hook
        def main():
            net = nn.Linear(2, 1)
            job.tracked["net"] = net
            net.register_forward_hook(make())
            for x, y in job.batches(DATA):
                net(x)
        main()
        """,
    "partial with a dict": """
        import functools
        def add(table, x):
            table["sum"] = table.get("sum", 0.0) + float(x[0])
            return table["sum"]
        def main():
            train = functools.partial(add, {})
            for x, y in job.batches(DATA):
                train(x)
        main()
        """,
    "bound method in a list": """
        class Clip:
            def __init__(self):
                self.bound = 1.0
            def step(self, x):
                self.bound = 0.9 * self.bound + float(x.sum())
        def main():
            callbacks = [Clip().step]
            for x, y in job.batches(DATA):
                for callback in callbacks:
                    callback(x)
        main()
        """,
    "decorator with an object": """
        class Counted:
            def __init__(self, function):
                self.function, self.calls = function, 0
            def __call__(self, x):
                self.calls += 1
                return self.function(x) * self.calls
        @Counted
        def train(x):
            return x
        def main():
            for x, y in job.batches(DATA):
                train(x)
        main()
        """,
    "function that takes another's place": """
        def soft(x):
            return x
        def hard(x):
            return x * 2
        def main():
            loss = soft
            for x, y in job.batches(DATA):
                if x[0] > 6:
                    loss = hard
                loss(x)
        main()
        """,
    "method that takes another's place": """
        class Trainer:
            def loss(self, x):
                return x
            def other(self, x):
                return x * 2
        def main():
            trainer = Trainer()
            for x, y in job.batches(DATA):
                if x[0] > 6:
                    trainer.loss = trainer.other
                trainer.loss(x)
        main()
        """,
    "loss that takes another's place": """
        def main():
            loss = nn.MSELoss()
            for x, y in job.batches(DATA):
                if x[0] > 6:
                    loss = nn.L1Loss()
                loss(x, x)
        main()
        """,
    "loss of other settings": """
        def main():
            loss = nn.SmoothL1Loss(beta=1.0)
            for x, y in job.batches(DATA):
                if x[0] > 6:
                    loss = nn.SmoothL1Loss(beta=0.5)
                loss(x, x)
        main()
        """,
    "object of another class": """
        class Warm:
            rate = 0.1
        class Main:
            rate = 1.0
        def main():
            phase = Warm()
            for x, y in job.batches(DATA):
                if x[0] > 6:
                    phase = Main()
                step(x * phase.rate)
        main()
        """,
    "object made with other values": """
        class Phase:
            def __init__(self, rate):
                self.rate = rate
        def main():
            phase = Phase(0.1)
            for x, y in job.batches(DATA):
                if x[0] > 6:
                    phase = Phase(1.0)
                step(x * phase.rate)
        main()
        """,
    "generator": """
        def rates():
            rate = 1.0
            while True:
                yield rate
                rate *= 0.9
        def main():
            schedule = rates()
            for x, y in job.batches(DATA):
                step(x * next(schedule))
        main()
        """,
    "generator that loops": """
        def numbers():
            for number in itertools.count():
                yield number
        class Trainer:
            def __init__(self):
                self.numbers = numbers()
            def train(self, x):
                return x * next(self.numbers)
        def main():
            trainer = Trainer()
            for x, y in job.batches(DATA):
                trainer.train(x)
        main()
        """,
    "count of itertools": """
        NUMBERS = itertools.count()
        def train(x):
            return x * next(NUMBERS)
        def main():
            for x, y in job.batches(DATA):
                train(x)
        main()
        """,
    "iterator over a list": """
        def main():
            extra = iter([float(i) for i in range(40)])
            for x, y in job.batches(DATA):
                step(x * next(extra))
        main()
        """,
    "cycle": """
        def main():
            rates = itertools.cycle([0.1, 0.2, 0.3, 0.4, 0.5])
            for x, y in job.batches(DATA):
                step(x * next(rates))
        main()
        """,
    "zip of iterators": """
        def main():
            pairs = zip(range(40), range(40, 80))
            for x, y in job.batches(DATA):
                step(x * next(pairs)[0])
        main()
        """,
    "loader of its own": """
        def main():
            other = iter(torch.utils.data.DataLoader(list(range(40))))
            for x, y in job.batches(DATA):
                step(x * next(other))
        main()
        """,
    "queue": """
        import queue
        def main():
            waiting = queue.Queue()
            for x, y in job.batches(DATA):
                waiting.put(float(x[0]))
                step(x * waiting.qsize())
        main()
        """,
    "hash": """
        import hashlib
        def main():
            seen = hashlib.sha256()
            for x, y in job.batches(DATA):
                seen.update(x.numpy().tobytes())
                step(x * seen.digest()[0])
        main()
        """,
    "context variable": """
        import contextvars
        LEVEL = contextvars.ContextVar("level", default=0)
        def train(x):
            LEVEL.set(LEVEL.get() + 1)
            return x * LEVEL.get()
        def main():
            for x, y in job.batches(DATA):
                train(x)
        main()
        """,
    "weak dictionary": """
        import weakref
        NET = nn.Linear(2, 1)
        CALLS = weakref.WeakKeyDictionary()
        def train(x):
            CALLS[NET] = CALLS.get(NET, 0) + 1
            return x * CALLS[NET]
        def main():
            for x, y in job.batches(DATA):
                train(x)
        main()
        """,
    "file that is read": """
        import pathlib
        def main():
            path = pathlib.Path(__file__).with_name("rates.txt")
            path.write_text("".join(f"{i}\\n" for i in range(40)))
            with path.open() as rates:
                for x, y in job.batches(DATA):
                    step(x * float(rates.readline()))
        main()
        """,
    "list of its own class": """
        class Bank(list):
            def add(self, value):
                self.append(value)
        def main():
            bank = Bank()
            for x, y in job.batches(DATA):
                bank.add(float(x[0]))
                step(x * sum(bank))
        main()
        """,
    "dict of its own class": """
        class Table(dict):
            def __setitem__(self, key, value):
                super().__setitem__(key, value)
        TABLE = Table(sum=0.0)
        def main():
            for x, y in job.batches(DATA):
                TABLE["sum"] += float(x[0])
        main()
        """,
    "user dict": """
        def main():
            table = collections.UserDict(sum=0.0)
            for x, y in job.batches(DATA):
                table["sum"] += float(x[0])
        main()
        """,
    "generators of random numbers in a list": """
        def main():
            dice = [numpy.random.default_rng(i) for i in range(2)]
            for x, y in job.batches(DATA):
                step(x * dice[0].random())
        main()
        """,
    "attribute by a made up name": """
        class State:
            pass
        def main():
            state = State()
            state.seen_0 = 0.0
            for x, y in job.batches(DATA):
                name = f"seen_{0}"
                setattr(state, name, getattr(state, name) + float(x[0]))
        main()
        """,
    "attribute by its dict": """
        class State:
            pass
        def main():
            state = State()
            state.seen = 0.0
            for x, y in job.batches(DATA):
                vars(state)["seen"] += float(x[0])
        main()
        """,
    "global by its dict": """
        seen = 0.0
        def train(x):
            globals()["seen"] += float(x[0])
            return x * seen
        def main():
            for x, y in job.batches(DATA):
                train(x)
        main()
        """,
    "attribute of somebody else's object": """
        def main():
            loss = nn.MSELoss()
            loss.calls = 0
            for x, y in job.batches(DATA):
                loss.calls += 1
                step(x * loss.calls)
        main()
        """,
    "attribute of somebody else's module": """
        numpy.trained = 0
        def train(x):
            numpy.trained += 1
            return x * numpy.trained
        try:
            for x, y in job.batches(DATA):
                train(x)
        finally:
            del numpy.trained
        """,
    "flag of a module of its own": """
        import pathlib, sys
        pathlib.Path(__file__).with_name("flags_of_its_own.py").write_text("LEVEL = 0\\n")
        import flags_of_its_own as flags
        def train(x):
            flags.LEVEL += 1
            return x * flags.LEVEL
        def main():
            for x, y in job.batches(DATA):
                train(x)
        main()
        """,
    "attribute that the set-up stores and a loop in main() changes": """
        state = types.SimpleNamespace()
        class Keeper:
            pass
        keeper = Keeper()
        keeper.mean = 0.0
        def main():
            for x, y in job.batches(DATA):
                keeper.mean = 0.9 * keeper.mean + float(x[0])
        main()
        """,
    "dataset that counts": """
        class Counting(torch.utils.data.Dataset):
            def __init__(self):
                self.drawn = 0
            def __len__(self):
                return 40
            def __getitem__(self, i):
                self.drawn += 1
                return i * self.drawn
        def main():
            loader = torch.utils.data.DataLoader(Counting())
            for x in job.batches(loader):
                step(x)
                len(loader)
        main()
        """,
    "module that nobody tracks": """
        def main():
            other = nn.Linear(2, 1)
            for x, y in job.batches(DATA):
                with torch.no_grad():
                    other.weight += 0.1
                step(other(x))
        main()
        """,
    "module that nobody tracks, in a dict of an object": """
        class Trainer:
            def __init__(self):
                self.nets = {"critic": nn.Linear(2, 1)}
            def train(self, x):
                self.nets["critic"].weight.data.add_(0.1)
        def main():
            trainer = Trainer()
            for x, y in job.batches(DATA):
                trainer.train(x)
        main()
        """,
    "large module that nobody tracks, written past its counters": """
        def main():
            other = nn.Linear(200, 200)
            for x, y in job.batches(DATA):
                other.weight.data.mul_(1.01)
                step(other.weight)
        main()
        """,
    "optimizer that nobody tracks": """
        def main():
            net = nn.Linear(2, 1)
            job.tracked["net"] = net
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
            for x, y in job.batches(DATA):
                net(x).sum().backward()
                optimizer.step()
        main()
        """,
    "schedule that nobody tracks": """
        def main():
            net = nn.Linear(2, 1)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            job.tracked |= {"net": net, "optimizer": optimizer}
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
            for x, y in job.batches(DATA):
                optimizer.step()
                schedule.step()
        main()
        """,
    "parameter apart": """
        def main():
            scale = nn.Parameter(torch.ones(2))
            for x, y in job.batches(DATA):
                with torch.no_grad():
                    scale.mul_(1.1)
                step(x * scale)
        main()
        """,
    "counter of instances, by type(self)": """
        class Sample:
            made = 0
            def __init__(self, x):
                type(self).made += 1
                self.x = x * type(self).made
        def main():
            for x, y in job.batches(DATA):
                sample = Sample(x)
        main()
        """,
    "thread local": """
        import threading
        local = threading.local()
        local.count = 0
        def train(x):
            local.count += 1
            return x * local.count
        def main():
            for x, y in job.batches(DATA):
                train(x)
        main()
        """,
    "what a cache keeps": """
        import functools
        @functools.lru_cache
        def state(name):
            return {"count": 0}
        def main():
            for x, y in job.batches(DATA):
                state("a")["count"] += 1
        main()
        """,
    "what a cache without end keeps": """
        import functools
        @functools.cache
        def target(part):
            return NET.weight.detach().clone()
        NET = nn.Linear(2, 1)
        def main():
            job.tracked["net"] = NET
            for x, y in job.batches(DATA):
                target(int(x[0]))
        main()
        """,
    "tag on a parameter": """
        def main():
            net = nn.Linear(2, 1)
            job.tracked["net"] = net
            net.weight.seen = 0
            for x, y in job.batches(DATA):
                net.weight.seen += 1
        main()
        """,
    "object hung on a module": """
        class Config:
            pass
        def main():
            net = nn.Linear(2, 1)
            job.tracked["net"] = net
            net.config = Config()
            net.config.level = 1.0
            for x, y in job.batches(DATA):
                net.config.level *= 1.1
        main()
        """,
    "forward that is exchanged": """
        def main():
            net = nn.Linear(2, 1)
            job.tracked["net"] = net
            plainly = net.forward
            for x, y in job.batches(DATA):
                if x[0] == 7:
                    net.forward = lambda x: plainly(x) * 2
        main()
        """,
    "layer that is exchanged": """
        def main():
            net = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
            job.tracked["net"] = net
            for x, y in job.batches(DATA):
                if x[0] == 7:
                    net[1] = nn.Tanh()
        main()
        """,
    "layer that is taken out": """
        def main():
            net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
            job.tracked["net"] = net
            for x, y in job.batches(DATA):
                if x[0] == 7:
                    del net[1]
        main()
        """,
    "layer that is put in": """
        def main():
            net = nn.Sequential(nn.Linear(2, 2))
            job.tracked["net"] = net
            for x, y in job.batches(DATA):
                if x[0] == 7:
                    net.append(nn.ReLU())
        main()
        """,
    "layers that change places": """
        def main():
            net = nn.Sequential(nn.Tanh(), nn.ReLU())
            job.tracked["net"] = net
            for x, y in job.batches(DATA):
                if x[0] == 7:
                    net[0], net[1] = net[1], net[0]
        main()
        """,
    "class that is exchanged": """
        class Leaky(nn.ReLU):
            pass
        def main():
            net = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
            job.tracked["net"] = net
            for x, y in job.batches(DATA):
                if x[0] == 7:
                    net[1].__class__ = Leaky
        main()
        """,
    "setting of a library's object that only that reads": """
        def main():
            loss = nn.SmoothL1Loss()
            for number, (x, y) in enumerate(job.batches(DATA)):
                loss(torch.zeros(1), torch.ones(1)).item()
                loss.beta = 1 / (1 + number)
        main()
        """,
    "layer that is made by a late forward": """
        def main():
            head = nn.LazyLinear(2)
            for x, y in job.batches(DATA):
                if x[0] == 7:
                    head(x)
                print(head)
        main()
        """,
    "hook that is taken out": """
        def main():
            net = nn.Linear(2, 1)
            job.tracked["net"] = net
            handle = net.register_forward_hook(lambda module, inputs, output: output * 2)
            for x, y in job.batches(DATA):
                if x[0] == 7:
                    handle.remove()
        main()
        """,
    "function of a library that is exchanged": """
        def main():
            before = nn.functional.relu
            try:
                for x, y in job.batches(DATA):
                    if x[0] == 7:
                        nn.functional.relu = nn.functional.gelu
            finally:
                setattr(nn.functional, "relu", before)
        main()
        """,
    "optimizer of the kind of a tracked one": """
        def main():
            net = nn.Linear(2, 1)
            optimizer = torch.optim.SGD([net.weight], lr=0.1, momentum=0.9)
            job.tracked |= {"net": net, "optimizer": optimizer}
            other = torch.optim.SGD([net.bias], lr=0.1, momentum=0.9)
            for x, y in job.batches(DATA):
                net(x).sum().backward()
                optimizer.step()
                other.step()
        main()
        """,
    "optimizer in the place of a tracked one": """
        def main():
            net = nn.Linear(2, 1)
            optimizer = torch.optim.AdamW(net.parameters())
            job.tracked |= {"net": net, "optimizer": optimizer}
            for x, y in job.batches(DATA):
                if x[0] == 7:
                    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
                optimizer.step()
        main()
        """,
    "method of a generator of random numbers": """
        import random
        draw = random.Random(5).uniform
        def main():
            for x, y in job.batches(DATA):
                step(x * draw(0.8, 1.2))
        main()
        """,
    "engine of quasi-random numbers": """
        def main():
            engine = torch.quasirandom.SobolEngine(2)
            for x, y in job.batches(DATA):
                step(x + engine.draw()[0])
        main()
        """,
    "number of another language": """
        import ctypes
        count = ctypes.c_int(0)
        def main():
            for x, y in job.batches(DATA):
                count.value += 1
        main()
        """,
    "what is done meanwhile": """
        import concurrent.futures
        def main():
            with concurrent.futures.ThreadPoolExecutor() as pool:
                ahead = pool.submit(float, 0)
                for x, y in job.batches(DATA):
                    step(x * ahead.result())
                    ahead = pool.submit(float, x[0])
                    concurrent.futures.wait([ahead])
        main()
        """,
    "what puts samples together": """
        class Collate:
            def __init__(self):
                self.count = 0
            def __call__(self, samples):
                self.count += 1
                return torch.tensor(samples) * self.count
        def main():
            job.loading.append(Collate())
            for x in job.batches(torch.utils.data.DataLoader(
                    [float(i) for i in range(14)], collate_fn=job.loading[0])):
                step(x)
        main()
        """,
    "list of a class below": """
        class Base:
            registry = []
        class Step(Base):
            def run(self, x):
                self.registry.append(float(x[0]))
                return x * sum(self.registry)
        def main():
            step = Step()
            for x, y in job.batches(DATA):
                step.run(x)
        main()
        """,
    "object that a cache gives": """
        import functools
        class State:
            n = 0
        @functools.cache
        def state():
            made = State()
            made.n = 0
            return made
        def main():
            for x, y in job.batches(DATA):
                state().n += 1
        main()
        """,
    "slots in slots": """
        class Inner:
            __slots__ = ("n",)
        class Outer:
            __slots__ = ("inner",)
        def main():
            outer = Outer()
            outer.inner = Inner()
            outer.inner.n = 0
            for x, y in job.batches(DATA):
                outer.inner.n += 1
        main()
        """,
    "tag on a tensor": """
        anchor = torch.zeros(2)
        anchor.n = 0
        def main():
            for x, y in job.batches(DATA):
                anchor.n += 1
                step(anchor + x)
        main()
        """,
    "gradient of a tensor apart": """
        def main():
            scale = torch.ones(2, requires_grad=True)
            for x, y in job.batches(DATA):
                (x * scale).sum().backward()
                step(scale.grad)
        main()
        """,
    "call of a class that is exchanged": """
        class Augment:
            def __call__(self, x):
                return x
        def main():
            augment = Augment()
            for x, y in job.batches(DATA):
                if x[0] == 7:
                    Augment.__call__ = lambda self, x: x * 2
                augment(x)
        main()
        """,
    "hook of all modules": """
        class Counted:
            def __init__(self):
                self.calls = 0
            def __call__(self, module, inputs):
                self.calls += 1
        def main():
            net = nn.Linear(2, 1)
            job.tracked["net"] = net
            handle = nn.modules.module.register_module_forward_pre_hook(Counted())
            for x, y in job.batches(DATA):
                net(x)
            handle.remove()
        main()
        """,
    "dict in an array of objects": """
        def main():
            table = numpy.array([{"n": 0}], dtype=object)
            for x, y in job.batches(DATA):
                table[0]["n"] += 1
        main()
        """,
    "iterator over an array": """
        def main():
            rates = numpy.arange(40.0).flat
            for x, y in job.batches(DATA):
                step(x * next(rates))
        main()
        """,
    "generator that waits": """
        async def rates():
            rate = 1.0
            while True:
                yield rate
                rate *= 0.9
        def main():
            schedule = rates()
            for x, y in job.batches(DATA):
                try:
                    schedule.__anext__().send(None)
                except StopIteration as given:
                    step(x * given.value)
        main()
        """,
    "counter that the state of a tracked object leaves out": """
        class Scheduled:
            def __init__(self, optimizer):
                self.optimizer, self.steps = optimizer, 0
            def step(self):
                self.steps += 1
                self.optimizer.param_groups[0]["lr"] = 0.1 / self.steps
                self.optimizer.step()
            def state_dict(self):
                return self.optimizer.state_dict()
            def load_state_dict(self, state):
                self.optimizer.load_state_dict(state)
        def main():
            net = nn.Linear(2, 1)
            scheduled = Scheduled(torch.optim.SGD(net.parameters(), lr=0.1))
            job.tracked |= {"net": net, "scheduled": scheduled}
            for x, y in job.batches(DATA):
                net(x).sum().backward()
                scheduled.step()
        main()
        """,
    "precision of decimal numbers": """
        import decimal
        def main():
            with decimal.localcontext():
                for x, y in job.batches(DATA):
                    decimal.getcontext().prec -= 1
                    step(x * float(decimal.Decimal(1) / 7))
        main()
        """,
    "list of a dataclass, changed by others": """
        @dataclasses.dataclass
        class Stats:
            seen: list
        def main():
            stats = Stats([])
            add = stats.seen.append
            for x, y in job.batches(DATA):
                add(float(x[0]))
                step(x * sum(stats.seen))
        main()
        """,
    "object beside a large model": """
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.calls = 0
            def forward(self, x):
                self.calls += 1
                return x
        class Trainer:
            def __init__(self):
                self.count = 0
            def train(self, x):
                self.count += 1
                return x * self.count
        def main():
            job.tracked["net"] = nn.Sequential(*(Block() for _ in range(600)))
            trainer = Trainer()
            for x, y in job.batches(DATA):
                trainer.train(x)
        main()
        """,
    "variable of the environment": """
        def main():
            for x, y in job.batches(DATA):
                os.environ["TESTED_LEVEL"] = str(float(x[0]))
        main()
        """,
    "variable of the environment by another name": """
        settings = os.environ
        def main():
            for x, y in job.batches(DATA):
                settings["TESTED_LEVEL"] = str(float(x[0]))
        main()
        """,
    "variable of the environment that a function is given": """
        def note(settings, x):
            settings["TESTED_LEVEL"] = str(float(x[0]))
        def main():
            for x, y in job.batches(DATA):
                note(os.environ, x)
        main()
        """,
    "setting of torch": """
        def main():
            try:
                for x, y in job.batches(DATA):
                    if x[0] > 6:
                        torch.set_default_dtype(torch.float64)
                    step(torch.ones(2) * x)
            finally:
                torch.set_default_dtype(torch.float32)
        main()
        """,
    "denormal numbers that are flushed": """
        def main():
            try:
                for x, y in job.batches(DATA):
                    torch.set_flush_denormal(bool(x[0] > 6))
            finally:
                torch.set_flush_denormal(False)
        main()
        """,
    "way that torch prints": """
        def main():
            kept = dataclasses.asdict(torch._tensor_str.PRINT_OPTS)
            try:
                for x, y in job.batches(DATA):
                    torch.set_printoptions(precision=3 if x[0] > 6 else 5)
            finally:
                torch.set_printoptions(**kept)
        main()
        """,
    "way that decimal rounds": """
        import decimal
        def main():
            with decimal.localcontext():
                for x, y in job.batches(DATA):
                    up = bool(x[0] > 6)
                    decimal.getcontext().rounding = decimal.ROUND_UP if up else decimal.ROUND_DOWN
        main()
        """,
    "flags of decimal": """
        import decimal
        def main():
            with decimal.localcontext():
                for x, y in job.batches(DATA):
                    decimal.getcontext().clear_flags()
                    if x[0] > 6:
                        decimal.Decimal(1) / decimal.Decimal(3)
        main()
        """,
    "dialect of tables": """
        import csv
        def main():
            try:
                for x, y in job.batches(DATA):
                    csv.register_dialect("ours", delimiter=";" if x[0] > 6 else ",")
            finally:
                csv.unregister_dialect("ours")
        main()
        """,
    "whether distributions check": """
        def main():
            try:
                for x, y in job.batches(DATA):
                    torch.distributions.Distribution.set_default_validate_args(bool(x[0] > 6))
            finally:
                torch.distributions.Distribution.set_default_validate_args(True)
        main()
        """,
    "functions that numpy prints with": """
        def main():
            with numpy.printoptions():
                for x, y in job.batches(DATA):
                    short, long = (lambda one: f"{one:.2f}"), (lambda one: f"{one:.9f}")
                    shown = short if x[0] > 6 else None
                    numpy.set_printoptions(formatter=shown and {"float_kind": shown})
        main()
        """,
    "way that numpy prints": """
        def main():
            with numpy.printoptions():
                for x, y in job.batches(DATA):
                    numpy.set_printoptions(precision=3 if x[0] > 6 else 5)
        main()
        """,
    "folder that it goes on from": """
        def main():
            before = os.getcwd()
            try:
                for x, y in job.batches(DATA):
                    if x[0] > 6:
                        os.chdir("/")
            finally:
                os.chdir(before)
        main()
        """,
    "precision of products, in torch's new way": """
        def main():
            before = torch.backends.cuda.matmul.fp32_precision
            try:
                for x, y in job.batches(DATA):
                    if x[0] > 6:
                        torch.backends.cuda.matmul.fp32_precision = "tf32"
            finally:
                torch.backends.cuda.matmul.fp32_precision = before
        main()
        """,
    "count on a thread": """
        import logging, multiprocessing, threading
        def main():
            threading.current_thread().steps = 0
            for x, y in job.batches(DATA):
                threading.current_thread().steps += 1
                step(x * threading.current_thread().steps)
        main()
        """,
    "count on a logger": """
        import logging, multiprocessing, threading
        def main():
            logging.getLogger("train").steps = 0
            for x, y in job.batches(DATA):
                logging.getLogger("train").steps += 1
                step(x * logging.getLogger("train").steps)
        main()
        """,
    "count on the root logger": """
        import logging, multiprocessing, threading
        def main():
            logging.getLogger().steps = 0
            for x, y in job.batches(DATA):
                logging.getLogger().steps += 1
                step(x * logging.getLogger().steps)
        main()
        """,
    "count on a process": """
        import logging, multiprocessing, threading
        def main():
            multiprocessing.current_process().steps = 0
            for x, y in job.batches(DATA):
                multiprocessing.current_process().steps += 1
                step(x * multiprocessing.current_process().steps)
        main()
        """,
    "database in memory": """
        import sqlite3
        def main():
            seen = sqlite3.connect(":memory:")
            seen.row_factory = lambda cursor, row: {"value": row[0]}
            seen.execute("create table losses (value real)")
            for x, y in job.batches(DATA):
                seen.execute("insert into losses values (?)", (float(x[0]),))
                step(x * seen.execute("select max(value) from losses").fetchone()["value"])
        main()
        """,
    "mode of torch's that is entered by hand": """
        from torch.utils.flop_counter import FlopCounterMode
        def main():
            counts = FlopCounterMode(display=False)
            try:
                for x, y in job.batches(DATA):
                    if x[0] == 6:
                        counts.__enter__()
            finally:
                counts.__exit__(None, None, None)
        main()
        """,
    "hook for saved tensors that is entered by hand": """
        def packed(tensor):
            return tensor.bfloat16()
        def main():
            hooks = torch.autograd.graph.saved_tensors_hooks(packed, torch.Tensor.float)
            try:
                for x, y in job.batches(DATA):
                    if x[0] == 6:
                        hooks.__enter__()
            finally:
                hooks.__exit__(None, None, None)
        main()
        """,
    "function of a library's that mock has replaced": """
        from unittest import mock
        def main():
            try:
                for x, y in job.batches(DATA):
                    if x[0] == 6:
                        mock.patch("torch.nn.functional.dropout", lambda one, *_: one).start()
            finally:
                mock.patch.stopall()
        main()
        """,
    "mode that is left on": """
        def main():
            torch.set_grad_enabled(True)
            try:
                for x, y in job.batches(DATA):
                    if x[0] > 6:
                        torch.set_grad_enabled(False)
            finally:
                torch.set_grad_enabled(True)
        main()
        """,
}

INNOCENT = {
    "plans of a scheduler for some time of the clock": """
        import sched
        import time
        def main():
            plan = sched.scheduler()
            for x, y in job.batches(DATA):
                if plan.empty():
                    plan.enter(1000, 1, print, ("beat",))
        main()
        """,
    "objects that have methods of each other": """
        class Part:
            def __init__(self, whole):
                self.whole, self.calls = whole, [whole.one, whole.two, whole.three, self.one]
            def one(self, x):
                return x
        class Whole(Part):
            def __init__(self):
                super().__init__(self)
                self.parts = [Part(self), Part(self)]
                self.mine = self.one, self.two, self.parts[0].one
            def two(self, x):
                return x
            three = two
        def main():
            for x, y in job.batches(DATA):
                whole = Whole()
                for call in whole.calls:
                    call(x)
        main()
        """,
    "a database in a file": """
        import sqlite3
        def main():
            seen = sqlite3.connect(__file__ + ".db")
            seen.execute("create table if not exists losses (value real)")
            for x, y in job.batches(DATA):
                seen.execute("insert into losses values (?)", (float(x[0]),))
                step(x)
            seen.close()
            os.remove(__file__ + ".db")
        main()
        """,
    "a database in memory that stays as it is": """
        import sqlite3
        def main():
            rates = sqlite3.connect(":memory:")
            rates.execute("create table rates (value real)")
            rates.execute("insert into rates values (0.1)")
            for x, y in job.batches(DATA):
                step(x * rates.execute("select value from rates").fetchone()[0])
        main()
        """,
    "weights of a tracked module, in a tracked optimizer": """
        def main():
            net = nn.Linear(2, 1)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
            job.tracked |= {"net": net, "optimizer": optimizer}
            for x, y in job.batches(DATA):
                net(x).sum().backward()
                optimizer.step()
        main()
        """,
    "what a tracked schedule has, under a name that is stored to elsewhere": """
        class Values:
            best = 0.0
        values = Values()
        def main():
            net = nn.Linear(2, 1)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
            job.tracked |= {"net": net, "optimizer": optimizer, "plateau": plateau}
            for x, y in job.batches(DATA):
                plateau.step(-x.sum().item())
                values.best = 1.0
        main()
        """,
    "a container that is tracked, and is longer by now": """
        class Meter:
            total = 0.0
        class Meters(collections.OrderedDict):
            def state_dict(self):
                return {name: {"total": one.total} for name, one in self.items()}
            def load_state_dict(self, state):
                raise AssertionError
        meters = Meters()
        job.tracked["meters"] = meters
        for x, y in job.batches(DATA):
            meters.setdefault(f"of {len(job.own) // 4}", Meter()).total += x.sum().item()
        """,
    "frozen teacher": """
        def main():
            teacher = nn.Linear(200, 200).eval()
            for x, y in job.batches(DATA):
                step(teacher.weight)
        main()
        """,
    "losses, locks, pools and logs": """
        import concurrent.futures, logging, threading
        log, lock = logging.getLogger("tested"), threading.Lock()
        def main():
            loss = nn.CrossEntropyLoss(weight=torch.ones(3))
            with concurrent.futures.ThreadPoolExecutor() as pool:
                for x, y in job.batches(DATA):
                    with lock:
                        pool.submit(step, x).result()
                        log.info("%s", x)
        main()
        """,
    "log that is written": """
        import pathlib
        def main():
            with pathlib.Path(__file__).with_name("log.txt").open("w") as log:
                for x, y in job.batches(DATA):
                    log.write(f"{x}")
        main()
        """,
    "config that answers to any name": """
        class Config:
            def __getattr__(self, name):
                raise KeyError(name)
            def __eq__(self, other):
                raise AssertionError("nobody asks")
            __hash__ = None
        def main():
            config = Config()
            for x, y in job.batches(DATA):
                step(x)
                repr(type(config))
        main()
        """,
    "class that cannot be looked at": """
        class Odd:
            @property
            def __dict__(self):
                raise RuntimeError("not for you")
            @property
            def __class__(self):
                raise RuntimeError("nor this")
        def main():
            odd = Odd()
            for x, y in job.batches(DATA):
                step(x)
                id(odd)
        main()
        """,
    "class that says nothing of its module": """
        class Odd:
            __module__ = property(lambda self: 1 / 0)
        def main():
            odd = Odd()
            for x, y in job.batches(DATA):
                step(x)
                id(odd)
        main()
        """,
    "dead proxy": """
        import weakref
        class Thing:
            pass
        def main():
            thing = Thing()
            proxy = weakref.proxy(thing)
            del thing
            for x, y in job.batches(DATA):
                step(x)
                id(proxy)
        main()
        """,
    "functions that stay": """
        import functools
        def scale(by, x):
            return x * by
        def main():
            double, stages = functools.partial(scale, 2), [step, torch.relu, len]
            for x, y in job.batches(DATA):
                double(stages[1](x))
        main()
        """,
    "setting of torch in the set-up": """
        def prepare():
            torch.set_num_threads(torch.get_num_threads())
        def main():
            prepare()
            for x, y in job.batches(DATA):
                step(x)
        main()
        """,
    "averages that are tracked": """
        def main():
            net = nn.Linear(2, 1)
            optimizer = torch.optim.AdamW(net.parameters())
            schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
            average = torch.optim.swa_utils.AveragedModel(net)
            job.tracked |= {"net": net, "optimizer": optimizer, "schedule": schedule}
            job.tracked |= {"average": average}
            for x, y in job.batches(DATA):
                net(x).sum().backward()
                optimizer.step()
                schedule.step()
                average.update_parameters(net)
        main()
        """,
    "tracked object whose state is in a dict of a class": """
        class Schedule:
            def __init__(self):
                self.event, self.cycle = 0, 0
            def state_dict(self):
                return collections.OrderedDict(event=self.event, cycle=self.cycle)
            def load_state_dict(self, state):
                pass
        def main():
            schedule = Schedule()
            job.tracked["schedule"] = schedule
            for x, y in job.batches(DATA):
                schedule.event += 1
                schedule.cycle += len(job.own) // 4
        main()
        """,
    "tracked object whose state has other names": """
        class Progress:
            def __init__(self):
                self.steps_made, self.recent = 0, collections.deque(maxlen=3)
            def state_dict(self):
                return {"n": self.steps_made, "last": list(self.recent)}
            def load_state_dict(self, state):
                pass
        def main():
            progress = Progress()
            job.tracked["progress"] = progress
            for x, y in job.batches(DATA):
                progress.steps_made += 1
                step(x)
        main()
        """,
    "module that was never set up": """
        class Broken(nn.Module):
            def __init__(self):
                pass
        def main():
            broken = Broken()
            for x, y in job.batches(DATA):
                step(x)
                id(broken)
        main()
        """,
    "optimizer around a tracked one": """
        class Around(torch.optim.Optimizer):
            def __init__(self, inside):
                super().__init__(inside.param_groups[0]["params"], {"lr": 0.1})
                self.inside = inside
            def step(self):
                self.inside.step()
        def main():
            net = nn.Linear(2, 1)
            inside = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
            job.tracked |= {"net": net, "optimizer": inside}
            optimizer = Around(inside)
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
            job.tracked["schedule"] = schedule
            for x, y in job.batches(DATA):
                net(x).sum().backward()
                optimizer.step()
                schedule.step()
        main()
        """,
    "optimizer in a tracked one whose state_dict has its state": """
        class Around(torch.optim.Optimizer):
            def __init__(self, inside):
                super().__init__(inside.param_groups, {})
                self.inside = inside
                self.param_groups = inside.param_groups
            def step(self):
                self.inside.step()
            def state_dict(self):
                return self.inside.state_dict()
        def main():
            net = nn.Linear(2, 1)
            optimizer = Around(torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
            job.tracked |= {"net": net, "optimizer": optimizer}
            for x, y in job.batches(DATA):
                net(x).sum().backward()
                optimizer.step()
        main()
        """,
    "optimizer in a tracked one whose state is its own": """
        class Around(torch.optim.Optimizer):
            def __init__(self, inside):
                self.inside = inside
            def step(self):
                self.inside.step()
            @property
            def state(self):
                return self.inside.state
            @property
            def param_groups(self):
                return self.inside.param_groups
        def main():
            net = nn.Linear(2, 1)
            optimizer = Around(torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
            job.tracked |= {"net": net, "optimizer": optimizer}
            for x, y in job.batches(DATA):
                net(x).sum().backward()
                optimizer.step()
        main()
        """,
    "averages that a tracked object gives as its state": """
        class Average:
            def __init__(self):
                self.shadow = {"x": torch.zeros(2)}
            def update(self, x):
                self.shadow["x"] = 0.9 * self.shadow["x"] + x
            def state_dict(self):
                return self.shadow
        def main():
            average = Average()
            job.tracked["average"] = average
            for x, y in job.batches(DATA):
                average.update(x)
        main()
        """,
    "list whose parts a tracked object gives as its state": """
        class Averages:
            def __init__(self):
                self.shadows = [torch.zeros(2), torch.ones(2)]
            def update(self, x):
                self.shadows[0] = 0.9 * self.shadows[0] + x
            def state_dict(self):
                return {str(place): one for place, one in enumerate(self.shadows)}
            def load_state_dict(self, state):
                self.shadows = [state[str(place)] for place in range(2)]
        def main():
            averages = Averages()
            job.tracked["averages"] = averages
            for x, y in job.batches(DATA):
                averages.update(x)
        main()
        """,
    "parameters of a tracked module": """
        def main():
            net = nn.Linear(2, 1)
            job.tracked["net"] = net
            params = [one for one in net.parameters() if one.requires_grad]
            for x, y in job.batches(DATA):
                with torch.no_grad():
                    for one in params:
                        one.add_(0.1)
        main()
        """,
}


@pytest.mark.parametrize("habit", KEPT)
def test_what_lasts_is_named(run: Callable[[str], Job], habit: str) -> None:
    job = run(KEPT[habit])
    found = job.differences()
    assert found, "nothing is found"
    assert all(one.file.endswith(".py") and one.line > 0 for one in found), found
    assert job.variables.comparison.differences(job.theirs[JOINER], job.own[JOINER]) == []


@pytest.mark.parametrize("habit", INNOCENT)
def test_what_does_not_is_left_alone(run: Callable[[str], Job], habit: str) -> None:
    job = run(INNOCENT[habit])
    found = job.variables.comparison.differences(
        job.theirs[RANK], job.own[JOINER], at_boundary=False
    )
    assert found == []


def test_weights_that_only_a_tracked_optimizer_has_are_compared(run: Callable[[str], Job]) -> None:
    found = run("""
        def main():
            net = nn.Linear(2, 1)
            masters = [one.detach().clone().requires_grad_() for one in net.parameters()]
            optimizer = torch.optim.SGD(masters, lr=0.1)
            del masters
            job.tracked |= {"net": net, "optimizer": optimizer}
            for x, y in job.batches(DATA):
                for one in optimizer.param_groups[0]["params"]:
                    one.grad = torch.ones_like(one)
                optimizer.step()
        main()
    """).differences()
    assert "optimizer" in {one.name for one in found}


def test_what_only_a_tracked_object_holds_is_named_where_that_is_tracked(
    run: Callable[[str], Job], tmp_path: Path
) -> None:
    """No variable is called as it is."""
    found = run("""
        class Mixed:
            def __init__(self, net):
                masters = [one.detach().clone().requires_grad_() for one in net.parameters()]
                self.inner = torch.optim.SGD(masters, lr=0.1)
            def step(self):
                for one in self.inner.param_groups[0]["params"]:
                    one.grad = torch.ones_like(one)
                self.inner.step()
            def state_dict(self):
                return self.inner.state_dict()
        def track(**objects):
            job.tracked |= objects
        def main():
            net = nn.Linear(2, 1)
            mixed = Mixed(net)
            track(
                net=net,
                optimizer=mixed)
            for x, y in job.batches(DATA):
                mixed.step()
        main()
    """).differences()
    [line] = {one.line for one in found if one.name == "optimizer.inner"}
    assert "optimizer=mixed" in (tmp_path / "train.py").read_text().splitlines()[line - 1]


@pytest.mark.parametrize(
    ("script", "are_read"),
    [(INNOCENT["setting of torch in the set-up"], False), (KEPT["mode that is left on"], True)],
)
def test_settings_are_read_only_where_the_script_goes_on_to_set_them(
    run: Callable[[str], Job], script: str, are_read: bool
) -> None:
    """Once a step is too often for what is set once."""
    assert bool(run(script).variables.settings()) is are_read


def test_only_what_the_script_sets_is_read(
    run: Callable[[str], Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hosts may have other folders, and other defaults of what no script of theirs touches."""
    monkeypatch.chdir(".")
    job = run("""
        def main():
            for x, y in job.batches(DATA):
                os.chdir(("/", "/usr")[int(x[0]) % 2])
                torch.set_num_threads(1)
        main()
        """)
    assert [*job.variables.settings()] == ["torch's number of threads", "the current folder"]


def test_the_environment_of_the_machine_is_no_variable(
    run: Callable[[str], Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = run("""
        def main():
            for x, y in job.batches(DATA):
                for name in ("TESTED_HOST", "TESTED_LEVEL"):
                    os.environ[name] = str(float(x[0]))
        main()
        """)
    found = [one.name for one in job.differences()]
    assert found == ["os.environ['TESTED_LEVEL']"]
    monkeypatch.delenv("TESTED_HOST")


KEPT_ITERATORS = {
    "numpy.ndindex(9, 9)": "",
    "numpy.ndenumerate(numpy.arange(40))": "",
    "numpy.nditer(numpy.arange(40))": "",
    "numpy.broadcast(numpy.arange(40), 1)": "",
    "itertools.chain([1], range(40))": "import itertools",
    "itertools.cycle([1, 2, 3, 4, 5, 6, 7, 8, 9])": "import itertools",
    "itertools.islice(range(90), 80)": "import itertools",
    "itertools.product(range(9), range(9))": "import itertools",
    "itertools.accumulate(range(1, 40))": "import itertools",
    "itertools.groupby(range(40))": "import itertools",
    "zip(range(40), range(40))": "",
    "map(float, range(40))": "",
    "filter(None, range(1, 40))": "",
    "csv.DictReader(['a,b'] + ['1,2'] * 40)": "import csv",
    "shlex.shlex('a b c d e f g h i j k l m n o p q r')": "import shlex",
    "codecs.getreader('utf8')(io.BytesIO(b'a\\n' * 40))": "import codecs, io",
    "fileinput.input(__file__)": "import fileinput",
    "Own(range(40))": "",
}


@pytest.mark.parametrize("kept", KEPT_ITERATORS)
@pytest.mark.parametrize("where", ["views.grid", "grid"])
def test_an_iterator_that_is_kept_is_told_by_where_it_stands(
    run: Callable[[str], Job], kept: str, where: str
) -> None:
    job = run(f"""
        {KEPT_ITERATORS[kept]}
        class Own:
            __slots__ = ("grid",)
            def __init__(self, rows):
                self.grid = iter(rows)
            def __iter__(self):
                return self
            def __next__(self):
                return next(self.grid)
        class Views:
            def __init__(self):
                self.grid = {kept}
        views, grid = Views(), {kept}
        def turned(x):
            return next({where})
        for x, y in job.batches(DATA):
            turned(x)
        """)
    assert {one.name.rpartition(".")[2].partition("[")[0] for one in job.differences()} == {"grid"}


FILES = {
    "gzip.GzipFile(fileobj=io.BytesIO(gzip.compress(bytes(400))))": "gzip",
    "bz2.BZ2File(io.BytesIO(bz2.compress(bytes(400))))": "bz2",
    "lzma.LZMAFile(io.BytesIO(lzma.compress(bytes(400))))": "lzma",
    "io.TextIOWrapper(gzip.GzipFile(fileobj=io.BytesIO(gzip.compress(b'a' * 400))))": "gzip",
    "io.BufferedReader(bz2.BZ2File(io.BytesIO(bz2.compress(bytes(400)))))": "bz2",
    "zipfile.ZipFile(io.BytesIO(PACKED)).open('a')": "zipfile",
    "tarfile.open(fileobj=io.BytesIO(TAR)).extractfile('a')": "tarfile",
    "tempfile.NamedTemporaryFile('rb')": "tempfile",
    "io.BytesIO(bytes(400))": "io",
    "io.StringIO('a' * 400)": "io",
    "open(__file__, 'rb')": "io",
}


@pytest.mark.parametrize("kept", FILES)
def test_a_file_is_told_by_how_far_it_is_read(run: Callable[[str], Job], kept: str) -> None:
    text = f"""
        import io, tarfile, zipfile
        import {FILES[kept]}
        memory = io.BytesIO()
        with zipfile.ZipFile(memory, "w") as whole:
            whole.writestr("a", bytes(400))
        PACKED, memory = memory.getvalue(), io.BytesIO()
        with tarfile.open(fileobj=memory, mode="w") as whole:
            told = tarfile.TarInfo("a")
            told.size = 400
            whole.addfile(told, io.BytesIO(bytes(400)))
        TAR = memory.getvalue()
        stream = {kept}
        def levels(x):
            return stream.read(2), getattr(stream, "file", stream).seek(int(x[0]))
        for x, y in job.batches(DATA):
            levels(x)
        """
    assert "stream" in {one.name for one in run(text).differences()}


def test_an_archive_is_told_by_how_far_it_is_read(run: Callable[[str], Job]) -> None:
    job = run("""
        import io, tarfile
        memory = io.BytesIO()
        with tarfile.open(fileobj=memory, mode="w") as whole:
            for number in range(40):
                whole.addfile(tarfile.TarInfo(f"{number}"))
        kept = tarfile.open(fileobj=io.BytesIO(memory.getvalue()))
        def drawn():
            return kept.next()
        for x, y in job.batches(DATA):
            drawn()
        """)
    assert "kept" in {one.name for one in job.differences()}


TOY_PEEKABLE = """
class Peekable:
    def __init__(self, rows):
        self.rows = iter(rows)
    def __iter__(self):
        return self
    def __next__(self):
        return next(self.rows)
"""


def test_an_iterator_of_a_library_is_told_by_what_it_draws_from(
    run: Callable[[str], Job],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path_factory.mktemp("elsewhere")
    with installed(folder, monkeypatch, "toy_peekable", TOY_PEEKABLE):
        job = run("""
            from toy_peekable import Peekable
            class Views:
                def __init__(self):
                    self.grid = Peekable(range(40))
            views = Views()
            for x, y in job.batches(DATA):
                next(views.grid)
            """)
    assert "views.grid" in {one.name for one in job.differences()}


@pytest.mark.parametrize(
    "plan",
    [csv.reader(["1,2"]), re.finditer("1", "1"), iter(int, 1), itertools.pairwise([1, 2])],
    ids=["a table", "matches", "calls", "pairs"],
)
def test_what_cannot_be_read_is_another_in_each_process(
    monkeypatch: pytest.MonkeyPatch, plan: object
) -> None:
    """So it is refused, also by one that was forked from the same."""
    own = entry_of(plan)
    assert entry_of(plan) == own
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert entry_of(plan)[0] != own[0]


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that a script sets is left."""
    for name in ("TESTED_LEVEL", "TESTED_HOST"):
        monkeypatch.setenv(name, "")
        os.environ.pop(name)
