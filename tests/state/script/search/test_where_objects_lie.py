"""Objects of the script's own, and generators of random numbers, in all that may hold one: there
from the beginning, or put in while it trains."""

from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import captures
import pytest
from captures import Job
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

from trainmover.state.script.search.frames import Search
from trainmover.state.script.things.libraries import stored_in
from trainmover.state.script.things.things import is_closed

MADE = """
    import asyncio, contextlib, contextvars, enum, functools, queue, random, typing, weakref
    class Meter:
        def __init__(self):
            self.total = 0.0
        def add(self, value):
            self.total += value
    class Slim:
        __slots__ = ("total",)
        def __init__(self):
            self.total = 0.0
        def add(self, value):
            self.total += value
    class Table(dict):
        def __missing__(self, name):
            self[name] = Meter()
            return self[name]
    class Pair(typing.NamedTuple):
        loss: object
        norm: object
    class Row(tuple):
        pass
    class Name(enum.Enum):
        LOSS = 1
    class Registry(type):
        def __init__(cls, *rest):
            super().__init__(*rest)
            cls.made = {}
    class Hub(metaclass=Registry):
        @classmethod
        def get(cls):
            if "hub" not in cls.made:
                cls.made["hub"] = Meter()
            return cls.made["hub"]
    kept = Meter()
"""
FROM_THE_BEGINNING = {
    "a dict by a tuple": ("{('loss', 1): Meter()}", "held['loss', 1]"),
    "a dict by a member of an enum": ("{Name.LOSS: Meter()}", "held[Name.LOSS]"),
    "a dict by nothing": ("{1.5: Meter(), None: Meter()}", "held[None]"),
    "an ordered dict": ("collections.OrderedDict(a=Meter())", "held['a']"),
    "a dict with a default": ("collections.defaultdict(Meter, a=Meter())", "held['a']"),
    "a counter": ("collections.Counter(a=Meter())", "held['a']"),
    "a chain of dicts": ("collections.ChainMap({'a': Meter()})", "held['a']"),
    "a dict that cannot be written": ("types.MappingProxyType({'a': Meter()})", "held['a']"),
    "a dict of references": ("weakref.WeakValueDictionary(a=kept)", "held['a']"),
    "a reference": ("weakref.ref(kept)", "held()"),
    "a tuple with names": ("Pair(Meter(), Meter())", "held.loss"),
    "a tuple of one's own": ("Row((Meter(),))", "held[0]"),
    "an array": ("numpy.array([Meter()], dtype=object)", "held[0]"),
    "a namespace": ("types.SimpleNamespace(meter=Meter())", "held.meter"),
    "an error": ("ValueError(Meter())", "held.args[0]"),
    "a generator": ("(one for _ in range(50) for one in [kept])", "next(held)"),
    "the key of a dict": ("{Meter(): 1}", "next(iter(held))"),
    "containers in containers": ("{'a': [{'b': Meter()}]}", "held['a'][0]['b']"),
    "a stack of contexts": (
        "contextlib.ExitStack()\nheld.callback(Meter().add)",
        "held._exit_callbacks[0][1].__wrapped__.__self__",
    ),
}
LATER = {
    "a dict": ("{}", "held.setdefault('a', Meter())"),
    "a dict in a dict": ("{'meters': {}}", "held['meters'].setdefault('a', Meter())"),
    "a list": ("[]", "(held.append(Meter()) if not held else None, held[0])[1]"),
    "a dict that had something": ("{'a': 1}", "held.setdefault('b', Meter())"),
    "a dict with a default": ("collections.defaultdict(Meter)", "held['a']"),
    "a dict of one's own": ("Table()", "held['a']"),
    "a dict of a library": ("collections.UserDict()", "held.setdefault('a', Meter())"),
    "a namespace": ("types.SimpleNamespace(all={})", "held.all.setdefault('a', Meter())"),
    "a class, by its metaclass": ("Hub", "held.get()"),
    "objects with slots": ("{}", "held.setdefault('a', Slim())"),
}
DRAWS = {
    "a dict by a tuple": ("{('a', 1): random.Random(0)}", "held['a', 1]"),
    "a set": ("{random.Random(0)}", "next(iter(held))"),
    "a tuple with names": ("Pair(random.Random(0), 1)", "held.loss"),
    "a dict of a library": ("collections.UserDict(a=random.Random(0))", "held['a']"),
    "an array": ("numpy.array([random.Random(0)], dtype=object)", "held[0]"),
    "an object with slots": ("Slim()\nheld.total = random.Random(0)", "held.total"),
    "a dict, later": ("{}", "held.setdefault('a', random.Random(0))"),
    "a list, later": (
        "[]",
        "(held.append(random.Random(0)) if not held else None, held[0])[1]",
    ),
}
USED = """
    def main():
        held = {made}
        for x, y in job.batches(DATA):
            one = {one}
            one.add(float(x.sum()))
            step(x * one.total)
            del one
    main()
"""
DRAWN = """
    def main():
        held = {made}
        for x, y in job.batches(DATA):
            step(x * {one}.random())
    main()
"""
ATTRIBUTE = """
    class Logger:
        def __init__(self):
            held = {made}
            self.held = held
        def log(self, value):
            held = self.held
            one = {one}
            one.add(value)
            return one.total
    def main():
        logger = Logger()
        for x, y in job.batches(DATA):
            step(x * logger.log(float(x.sum())))
    main()
"""
OTHERS = {
    "attributes of attributes": """
        class Node:
            def __init__(self, below):
                self.total, self.below = 0.0, Node(below - 1) if below else None
        def main():
            node = Node(20)
            for x, y in job.batches(DATA):
                node.below.below.below.below.below.below.below.total += float(x.sum())
                step(x * node.below.below.below.below.below.below.below.total)
        main()
        """,
    "beside a tree of many objects": """
        class Node:
            def __init__(self, below):
                self.visits, self.below = 0, [Node(below - 1) for _ in range(4 * (below > 0))]
        def main():
            a_tree, meter = Node(5), Meter()
            for x, y in job.batches(DATA):
                meter.add(float(x.sum()))
                step(x * meter.total * a_tree.visits)
        main()
        """,
    "a function by the type of its argument": """
        def made():
            meter = Meter()
            @functools.singledispatch
            def scale(x):
                return 1.0
            @scale.register
            def _(x: torch.Tensor):
                meter.add(1.0)
                return meter.total
            return scale
        def main():
            scale = made()
            for x, y in job.batches(DATA):
                step(x * scale(x))
        main()
        """,
    "the factory of a field": """
        def made():
            numbers = itertools.count()
            @dataclasses.dataclass
            class Numbered:
                number: int = dataclasses.field(default_factory=lambda: next(numbers))
            return Numbered
        def main():
            numbered = made()
            for x, y in job.batches(DATA):
                step(x * numbered().number)
        main()
        """,
    "an attribute of a thread's own, made later": """
        import threading
        own = threading.local()
        def counted():
            own.count = getattr(own, "count", 0) + 1
            return own.count
        def main():
            for x, y in job.batches(DATA):
                step(x * counted())
        main()
        """,
    "a meter in one of many objects": """
        class Holder:
            def __init__(self):
                self.meter = Meter()
        def main():
            holders = [Holder() for _ in range(70)]
            for x, y in job.batches(DATA):
                holders[3].meter.add(float(x.sum()))
                step(x * holders[3].meter.total)
        main()
        """,
    "chance in one of many objects": """
        class World:
            def __init__(self, seed):
                self.chance = random.Random(seed)
        def main():
            worlds = [World(seed) for seed in range(70)]
            for x, y in job.batches(DATA):
                step(x * worlds[3].chance.random())
        main()
        """,
    "one of many that draw": """
        def main():
            chances = {seed: random.Random(seed) for seed in range(70)}
            for x, y in job.batches(DATA):
                step(x * chances[3].random())
        main()
        """,
    "a default": """
        def draw(chance=random.Random(0)):
            return chance.random()
        def main():
            for x, y in job.batches(DATA):
                step(x * draw())
        main()
        """,
    "an attribute of a partial": """
        def main():
            draw = functools.partial(print)
            draw.count = 0
            for x, y in job.batches(DATA):
                draw.count += 1
                step(x * draw.count)
        main()
        """,
    "a function that numpy calls": """
        import ctypes, numpy
        def averaged():
            last = [0.0]
            def smooth(value):
                last[0] = 0.9 * last[0] + value
                return last[0]
            return smooth
        def main():
            smooth = averaged()
            draw = numpy.frompyfunc(smooth, 1, 1)
            del smooth
            for x, y in job.batches(DATA):
                step(x * draw(1.0))
        main()
        """,
    "a key that compares": """
        import ctypes, numpy
        def averaged():
            last = [0.0]
            def smooth(value):
                last[0] = 0.9 * last[0] + value
                return last[0]
            return smooth
        def main():
            smooth = averaged()
            draw = functools.cmp_to_key(lambda one, other, smooth=smooth: smooth(one - other))
            del smooth
            for x, y in job.batches(DATA):
                step(x * sorted([1.0, 2.0], key=draw)[0])
        main()
        """,
    "a function that C calls": """
        import ctypes, numpy
        def averaged():
            last = [0.0]
            def smooth(value):
                last[0] = 0.9 * last[0] + value
                return last[0]
            return smooth
        def main():
            smooth = averaged()
            draw = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(smooth)
            del smooth
            for x, y in job.batches(DATA):
                step(x * draw(1.0))
        main()
        """,
    "a hook of a parameter": """
        class Damped(Meter):
            def __call__(self, gradient):
                self.add(1.0)
                return gradient / self.total
        def main():
            net = nn.Linear(2, 1)
            job.tracked["net"] = net
            net.weight.register_hook(Damped())
            for x, y in job.batches(DATA):
                net(x).sum().backward()
        main()
        """,
    "a hook behind a parameter's gradient": """
        class Counted(Meter):
            def __call__(self, parameter):
                self.add(1.0)
                parameter.grad /= self.total
        def main():
            net = nn.Linear(2, 1)
            job.tracked["net"] = net
            net.weight.register_post_accumulate_grad_hook(Counted())
            for x, y in job.batches(DATA):
                net(x).sum().backward()
        main()
        """,
    "an attribute of a parameter": """
        def main():
            net = nn.Linear(2, 1)
            job.tracked["net"] = net
            net.weight.meter = Meter()
            for x, y in job.batches(DATA):
                net.weight.meter.add(float(x.sum()))
                step(x * net.weight.meter.total)
        main()
        """,
    "a coroutine": """
        class Next:
            def __init__(self, value):
                self.value = value
            def __await__(self):
                yield self.value
        async def count():
            done = 0
            while True:
                done += 1
                await Next(done)
        def main():
            counted = count()
            for x, y in job.batches(DATA):
                step(x * counted.send(None))
        main()
        """,
    "another task": """
        async def smooth(given, smoothed):
            mean = 0.0
            while True:
                value = await given.get()
                mean = 0.9 * mean + value
                smoothed.put_nowait(mean)
        async def main():
            given, smoothed = asyncio.Queue(), asyncio.Queue()
            task = asyncio.create_task(smooth(given, smoothed))
            for x, y in job.batches(DATA):
                given.put_nowait(float(x.sum()))
                step(x * await smoothed.get())
            task.cancel()
        asyncio.run(main())
        """,
}


def made(places: dict[str, tuple[str, str]], script: str) -> dict[str, str]:
    indented = {
        name: (made.replace("\n", "\n" + 8 * " "), one) for name, (made, one) in places.items()
    }
    return {name: script.format(made=text, one=one) for name, (text, one) in indented.items()}


SCRIPTS = {
    **{f"{name}, from the beginning": s for name, s in made(FROM_THE_BEGINNING, USED).items()},
    **{f"{name}, later": s for name, s in made(LATER, USED).items()},
    **{f"{name} in an attribute, later": s for name, s in made(LATER, ATTRIBUTE).items()},
    **{f"chance in {name}": s for name, s in made(DRAWS, DRAWN).items()},
    **OTHERS,
}


@pytest.mark.parametrize("place", SCRIPTS)
def test_what_is_kept_there_is_named(run: Callable[[str], Job], place: str) -> None:
    found = run(dedent(MADE) + dedent(SCRIPTS[place])).differences()
    assert found, "nothing is found"
    assert all(one.file == "train.py" and one.line > 0 for one in found), found


RING = """
    class Seen:
        def __init__(self, value):
            self.value = value
    def main():
        meters = collections.defaultdict(list)
        last = collections.deque(maxlen=3)
        for x, y in job.batches(DATA):
            meters["loss"].append(float(x.sum()))
            {keeps}
            step(x)
    main()
"""


@pytest.mark.parametrize("keeps", ["pass", "last.append(Seen(y))"])
def test_it_is_searched_anew_only_for_objects_that_are_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps: str
) -> None:
    found: list[object] = []
    layout = Search.layout
    monkeypatch.setattr(Search, "layout", lambda *given: found.append(given) or layout(*given))
    captures.run_in(tmp_path, RING.format(keeps=keeps))
    assert len(found) <= 4, "each time the deque is longer"


LIBRARY = """
import time
from collections import deque

class Counts:
    def __init__(self):
        self.count, self.every, self.recent, self.began = 0, 2, deque(maxlen=2), None
        self.newest, self.by_name, self.spent = None, {}, 0.0
    def use(self):
        self.count += 1
    def note(self, value):
        self.newest = value
    def use_by(self, name):
        self.by_name[name] = self.by_name.get(name, 0) + 1
    def spend(self):
        self.spent += time.time()
    def keep(self, value):
        self.recent.append(value)
    def look(self):
        return self.count, self.recent, self.every
    def start(self):
        self.began = time.time()
    _step = 0
    def go(self):
        self._step += 1
    @property
    def step(self):
        return self._step

class Slim:
    __slots__ = ("count",)
    def __init__(self):
        self.count = 0
    def use(self):
        self.count += 1

class Inner:
    def __init__(self):
        self.counts, self.slim, self.steps, self.last = Counts(), Slim(), 0, None
        self.told = {}
    def tell(self, value):
        self.told["newest"] = value

class Outer:
    def __init__(self, *parts):
        self.inner, self.by_name, self.parts, self.late = Inner(), {"a": [Counts()]}, parts, []
    def use_inner(self):
        self.inner.counts.use()
    def use_slim(self):
        self.inner.slim.use()
    def use_named(self):
        self.by_name["a"][0].use()
    def use_late(self):
        if not self.late:
            self.late.append(Counts())
        self.late[0].use()
    def advance(self):
        self.inner.steps += 1
    def note(self, value):
        self.inner.last = value
    def copy(self, other):
        self.inner.last = other.last
    def renew(self):
        self.inner = Inner()
        self.inner.steps += 1

class Private:
    __slots__ = ("__count",)
    def __init__(self):
        self.__count = 0
    def use(self):
        self.__count += 1

class SlimOuter:
    __slots__ = ("counts",)
    def __init__(self):
        self.counts = Counts()
    def use(self):
        self.counts.use()

class Settings(dict):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__

class History(list):
    pass

class Node:
    def __init__(self, value):
        self.put(value)
    def put(self, value):
        self._value = value

class Config:
    def __init__(self, **content):
        self.__dict__["_content"] = {}
        for name, value in content.items():
            setattr(self, name, value)
    def __getattr__(self, name):
        one = self._content[name]
        return one._value if type(one) is Node else one
    def __setattr__(self, name, value):
        self._content[name] = value if type(value) is Config else Node(value)
"""
USES = """
    from a_library import *
    class Owner:
        pass
    def main():
        by_name, owner = dict(), Owner()
        {place} = {made}
        for number, (x, y) in enumerate(job.batches(DATA)):
            step(x), print({place})
            {used}
    main()
"""
PLACES = ["held", "owner.held", "by_name['held']"]
COUNTED = {
    "a count": ("Counts()", "{held}.use()", "count"),
    "a deque": ("Counts()", "{held}.keep(number)", "recent"),
    "a count in a slot": ("Slim()", "{held}.use()", "count"),
    "a count in a private slot": ("Private()", "{held}.use()", "_Private__count"),
    "a count in an object inside": ("Outer()", "{held}.use_inner()", "inner.counts.count"),
    "a count by name inside": (
        "Outer()",
        "{held}.inner.counts.use_by('a')",
        "inner.counts.by_name",
    ),
    "a count in a slot inside": ("Outer()", "{held}.use_slim()", "inner.slim.count"),
    "a count in a list in a dict": ("Outer()", "{held}.use_named()", "by_name['a'][0].count"),
    "a count in a list that was empty": ("Outer()", "{held}.use_late()", "late[0].count"),
    "a count that its owner stores": ("Outer()", "{held}.advance()", "inner.steps"),
    "a count in what a slot holds": ("SlimOuter()", "{held}.use()", "counts.count"),
    "a dict by attributes": ("Settings()", "{held}.seen = number", ""),
    "a list of a class": ("History()", "{held}.append(number)", ""),
    "a table of objects": ("Config()", "{held}.seen = number", "seen._value"),
    "tables of tables": (
        "Config(a=Config(seen=0, rest=0))",
        "{held}.a.seen = number",
        "a.seen._value",
    ),
}


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with captures.installed(tmp_path, monkeypatch, "a_library", LIBRARY):
        yield


def counted(
    tmp_path: Path, place: str, made: str, used: str, library: str = "a_library"
) -> list[str]:
    """Names of what is found, the loop's own count apart."""
    used = used.format(held=place)
    uses = USES.replace("a_library", library).format(place=place, made=made, used=used)
    return [name for name in names_beside(tmp_path, uses) if name != "number"]


def names_beside(tmp_path: Path, text: str) -> list[str]:
    """Names of what is found, where the library is not in the script's folder."""
    script = tmp_path / "script"
    script.mkdir()
    return captures.names_in(script, text)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", COUNTED)
def test_what_a_library_counts_is_named(tmp_path: Path, place: str, name: str) -> None:
    made, used, attribute = COUNTED[name]
    [found] = counted(tmp_path, place, made, used)
    assert found.startswith(place.partition("[")[0])
    assert found.endswith(attribute)


@pytest.mark.parametrize("module", ["tqdm.std", "wandb.sdk.wandb_run", "a_library.loggers.csv"])
def test_what_only_shows_keeps_nothing_that_counts(module: str) -> None:
    assert is_closed(type("Counts", (), {"__module__": "a_library.counts"}))
    assert not is_closed(type("Counts", (), {"__module__": module}))


def test_what_averages_models_counts_its_steps() -> None:
    """It is torch's, and lies on top of it as a library does."""
    assert is_closed(PeriodicModelAverager)
    assert "step" in stored_in(PeriodicModelAverager)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("used", "found"),
    [
        ("{held}.use(), print({held}.recent)", []),
        ("{held}.use(), print({held}.count)", ["count"]),
        ("{held}.go(), print({held}.step)", ["_step"]),
    ],
    ids=["not", "asked", "property"],
)
def test_what_a_bar_counts_is_compared_where_the_script_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, used: str, found: list[str]
) -> None:
    with captures.installed(tmp_path, monkeypatch, "enlighten", LIBRARY):
        names = counted(tmp_path, place, "Counts()", used, "enlighten")
    assert [name.rpartition(".")[2] for name in names] == found


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("made", "used"),
    [
        ("Counts()", "{held}.start()"),
        ("Counts()", "{held}.look()"),
        ("Outer()", "{held}.inner.counts.spend()"),
        ("Outer()", "{held}.inner.tell(number)"),
        ("Outer()", "{held}.note(number)"),
        ("Outer()", "{held}.copy(types.SimpleNamespace(last=number))"),
    ],
)
def test_what_it_does_not_count_is_not(tmp_path: Path, made: str, used: str) -> None:
    """The time, what only its constructor stores, and inside of it what is not made of itself."""
    assert counted(tmp_path, "held", made, used) == []


KEPT_BY_BOTH = """
    from a_library import *
    def main():
        parts = [Counts()]
        held = Outer(parts)
        its = held.inner.counts
        for number, (x, y) in enumerate(job.batches(DATA)):
            step(x), print(held, its, parts)
            its.note(number), parts[0].note(number)
    main()
"""


@pytest.mark.usefixtures("library")
def test_what_the_script_holds_too_is_compared_as_its_own(tmp_path: Path) -> None:
    found = names_beside(tmp_path, KEPT_BY_BOTH)
    assert found == ["number", "its.newest", "parts[0].newest"]


RENEWED = """
    from a_library import *
    def main():
        held, other = Outer(), Outer()
        for x, y in job.batches(DATA):
            step(x), print(held, other)
            held.renew()
            if x[0] == 6:
                other = Outer()
    main()
"""


@pytest.mark.usefixtures("library")
def test_what_a_library_makes_anew_is_looked_for_anew(tmp_path: Path) -> None:
    assert names_beside(tmp_path, RENEWED) == []


LOADED = """
    from torchdata.stateful_dataloader import StatefulDataLoader
    def main():
        loader, held = StatefulDataLoader(range(40)), []
        for x in job.batches(loader):
            step(x), print(loader, held)
    main()
"""


def test_where_a_loader_of_a_library_stands_is_known_otherwise(run: Callable[[str], Job]) -> None:
    assert run(LOADED).differences() == []
