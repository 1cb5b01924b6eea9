"""Which attributes may be read before they are written again, from where the script stands."""

import ast
import textwrap

import pytest

from trainmover.state.script.code import source
from trainmover.state.script.code.carried import carried_attributes
from trainmover.state.script.code.source import read, temporary_in

METER = """
class Meter:
    def __init__(self):
        self.total = 0.0

    def reset(self):
        self.total = 0.0

    def update(self, value):
        self.total += value

def evaluate(meter, rows):
    meter.reset()
    for row in rows:
        meter.update(row)
    return meter.total

def named(meter, rows):
    meter.reset()
    for row in rows: meter.update(row)  # inside
"""


def carried(text: str, mark: str = "") -> set[str]:
    """mark: the script stands at the lines that end with it"""
    text = METER + textwrap.dedent(text)
    lines = enumerate(text.splitlines(), 1)
    at = frozenset(number for number, line in lines if mark and line.endswith(mark))
    assert at or not mark
    return {*carried_attributes((ast.parse(text),), (at,) if mark else None)}


DEAD = {
    "reset before the loop that fills it": """
        meter = Meter()
        while True:
            for x in batches:  # here
                step(x)
            evaluate(meter, rows)
            named(meter, rows)
    """,
    "what the loop that fetches has as its target": """
        while True:
            for trainer.scale, (trainer.total, y) in batches:  # here
                step(trainer.scale, trainer.total, y)
    """,
    "what a `with` in it has as its target": """
        for x in batches:  # here
            with record() as trainer.scale:
                step(x, trainer.scale)
    """,
    "written behind the fetch": """
        while True:
            x = next(batches)  # here
            trainer.scale = rate(x)
            step(trainer.scale)
    """,
    "reset through the name of an argument": """
        def begin(meter):
            meter.reset()

        meter = Meter()
        for x in batches:  # here
            begin(meter)
            meter.update(x)
            begin(meter=meter)
            meter.update(x)
    """,
    "of an object in an object": """
        class Trainer:
            def round(self, x):
                self.meter.reset()
                self.meter.update(x)

        trainer = Trainer()
        for x in batches:  # here
            trainer.round(x)
    """,
}


@pytest.mark.parametrize("text", DEAD.values(), ids=DEAD.keys())
def test_what_is_written_before_it_is_read_is_worth_nothing_here(text: str) -> None:
    assert not carried(text, "# here") & {"total", "scale"}


LIVE = {
    "what the guard of a case asks": """
        for x in batches:  # here
            step(x)
            match x:
                case 1 if trainer.total > 2:
                    trainer.total = 1
                case _:
                    trainer.total = 3
    """,
    "what a case compares with": """
        for x in batches:  # here
            step(x)
            match x:
                case trainer.total:
                    trainer.total = 1
                case _:
                    trainer.total = 3
    """,
    "the default of a function that is made in the loop": """
        for x in batches:  # here
            def loss(given, *, by=trainer.total):
                return given * by
            trainer.total = 3
            step(loss(x))
    """,
    "what a decorator is given in the loop": """
        for x in batches:  # here
            @scaled(trainer.total)
            def loss(given):
                return given
            trainer.total = 3
            step(loss(x))
    """,
    "what a class in the loop is made out of": """
        for x in batches:  # here
            class Loss(Base, by=trainer.total):
                pass
            trainer.total = 3
            step(Loss(x))
    """,
    "what the loop that fetches has as its target is read behind it": """
        while True:
            for trainer.total in batches:  # here
                step(x)
            step(trainer.total)
    """,
    "what a loop of no round may have as its target": """
        for x in batches:  # here
            for trainer.total in rows:
                pass
            step(trainer.total)
    """,
    "a comprehension has the name for others": """
        for x in batches:  # here
            meter = meters[0]
            meter.total = x
            step(sum(meter.total for meter in meters))
    """,
    "a lambda has": """
        for x in batches:  # here
            meter = meters[0]
            meter.total = x
            step(max(meters, key=lambda meter: meter.total))
    """,
    "a comprehension calls with others": """
        def mean(meter):
            return meter.total
        for x in batches:  # here
            meter = meters[0]
            meter.total = x
            step([mean(meter) for meter in meters])
    """,
    "a lambda is called later": """
        def begin(meter):
            meter.total = 0
            meter.show = lambda: meter.total
        for x in batches:  # here
            step(meter.show())
            meter.total = x
    """,
    "what is called may give it another object": """
        class Ring:
            def advance(self):
                if self.full:
                    self.meter = self.others.pop()
        for x in batches:  # here
            ring.meter.total = x
            ring.advance()
            step(ring.meter.total)
    """,
    "it returns before": """
        class Ring:
            def advance(self):
                if not self.full:
                    return
                self.meter = self.others.pop()
        for x in batches:  # here
            ring.meter.total = x
            ring.advance()
            step(ring.meter.total)
    """,
    "it calls what does": """
        class Ring:
            def advance(self):
                self.turn()
            def turn(self):
                if self.full: setattr(self, "meter", self.others.pop())
        for x in batches:  # here
            ring.meter.total = x
            ring.advance()
            step(ring.meter.total)
    """,
    "a global has another": """
        def advance():
            global meter
            if full: meter = meters.pop()
        for x in batches:  # here
            meter.total = x
            advance()
            step(meter.total)
    """,
    "a property gives another": """
        class Team:
            @property
            def active(self):
                return self.meters[self.turn]
        for x in batches:  # here
            team.active.total = x
            team.turn = 1 - team.turn
            step(team.active.total)
    """,
    "a method that calls that of its base": """
        class Slow(torch.optim.SGD):
            def step(self):
                self.total += 1
                return super().step()
        for x in batches:  # here
            train(x)
    """,
    "methods that only call each other": """
        class Slow(torch.optim.SGD):
            def advance(self):
                self.total += 1
                return self.go_on()
            def go_on(self):
                return self.advance()
        for x in batches:  # here
            train(x)
    """,
    "functions that call each other": """
        def first(meter):
            second(meter)
        def second(meter):
            if rows: first(meter)
            print(meter.total)
        for x in batches:  # here
            first(meter)
            meter.total = x
    """,
    "filled by the loop under way": """
        meter = Meter()
        for epoch in epochs:
            meter.reset()
            for x in batches:  # here
                meter.update(x)
    """,
    "another of its class is reset": """
        first, second = Meter(), Meter()
        for x in batches:  # here
            first.reset()
            second.update(x)
    """,
    "another has its name by then": """
        meter = Meter()
        for x in batches:  # here
            meter.reset()
            meter = other(meter)
            meter.update(x)
    """,
    "another each round": """
        for x in batches:  # here
            for meter in meters:
                meter.reset()
            for meter in meters:
                meter.update(x)
    """,
    "written before the fetch": """
        while True:
            trainer.total = rate()
            x = next(batches)  # here
            step(trainer.total)
    """,
    "written before the call that fetches": """
        def fetch_and_step():
            x = next(batches)  # here
            step(trainer.total)

        while True:
            trainer.total = rate()
            fetch_and_step()  # here
    """,
    "written before the loop, read behind it": """
        while True:
            trainer.total = rate()
            for x in batches:  # here
                step(x)
            print(trainer.total)
    """,
    "tested by the loop under way": """
        while trainer.total:
            x = next(batches)  # here
            trainer.total = step(x)
    """,
    "of a generator, which stands where it has given": """
        def rounds(meter):
            meter.reset()
            for x in batches:
                meter.update(x)
                yield x

        for x in rounds(meter):
            y = next(others)  # here
    """,
    "of a generator, which reads behind where it has given": """
        def rounds(meter):
            while True:
                meter.total = measured()
                yield 1
                print(meter.total)

        for n in rounds(meter):
            y = next(others)  # here
    """,
    "of what another thread runs": """
        import threading

        def fill():
            meter.reset()
            for x in rows:
                meter.update(x)

        for x in batches:  # here
            step(x)
    """,
    "of what is handed to others": """
        def fill():
            meter.reset()
            for x in rows:
                meter.update(x)

        register(fill)
        for x in batches:  # here
            step(x)
    """,
    "written on one way only": """
        for x in batches:  # here
            if x:
                meter.reset()
            meter.update(x)
    """,
    "written by a function that may return before": """
        def begin(meter, x):
            if not x:
                return
            meter.reset()

        for x in batches:  # here
            begin(meter, x)
            meter.update(x)
    """,
    "written if something else holds": """
        for x in batches:  # here
            x and meter.reset()
            meter.update(x)
    """,
    "written in a choice": """
        for x in batches:  # here
            meter.reset() if x else None
            meter.update(x)
    """,
    "written as often as there is something": """
        for x in batches:  # here
            [meter.reset() for _ in x]
            meter.update(x)
    """,
    "written by a lambda": """
        for x in batches:  # here
            do(lambda: meter.reset())
            meter.update(x)
    """,
    "written in one case": """
        for x in batches:  # here
            match x:
                case 0:
                    meter.reset()
                case 1 | 2:
                    pass
            meter.update(x)
    """,
    "written unless something is raised": """
        for x in batches:  # here
            with contextlib.suppress(ValueError):
                check(x)
                meter.reset()
            meter.update(x)
    """,
    "written unless a loop is left": """
        for x in batches:  # here
            for one in x:
                break
            else:
                meter.reset()
            meter.update(x)
    """,
    "written if a decorator calls it": """
        def seldom(function):
            def inner(*given):
                if given[1]:
                    function(*given)
            return inner

        @seldom
        def begin(meter, x):
            meter.reset()

        for x in batches:  # here
            begin(meter, x)
            meter.update(x)
    """,
    "read with all others": """
        for x in batches:  # here
            print(vars(meter))
            meter.total = x
    """,
    "read with all others, by its class": """
        class Told(Meter):
            def __repr__(self):
                return str(self.__dict__)

            def set(self, value):
                self.total = value

        for x in batches:  # here
            meter.set(x)
    """,
    "read by a function of its name": """
        total_of = operator.attrgetter("total")
        for x in batches:  # here
            print(total_of(meter))
            meter.total = x
    """,
    "of what has no name": """
        for x in batches:  # here
            meters[0].reset()
            meters[1].update(x)
    """,
    "asked for in a pattern": """
        for x in batches:  # here
            match meter:
                case Meter(total=scale): step(scale * x)
            meter.total = x
    """,
    "asked for in a pattern, by its place": """
        for x in batches:  # here
            match meter:
                case Meter(scale): step(scale * x)
            meter.total = x
    """,
    "asked for in a format": """
        for x in batches:  # here
            print("{0.total:.3f}".format(meter))
            meter.total = x
    """,
    "asked for past what the class says": """
        for x in batches:  # here
            print(object.__getattribute__(meter, "total"))
            meter.total = x
    """,
    "asked for by a name that is made up": """
        for x in batches:  # here
            print(getattr(meter, f"to{kind}"))
            meter.total = x
    """,
    "of a field that is replaced beside it": """
        for x in batches:  # here
            meter = replace(meter, count=1)
            meter.total = x
    """,
    "written at the end of a chain of comparisons": """
        for x in batches:  # here
            zero(1) < x < zero(meter)
            print(meter.total)
            meter.total = x

        def zero(meter):
            meter.total = 0
    """,
    "written behind where a generator has given": """
        def rounds(meter):
            yield 1
            meter.reset()

        for x in batches:  # here
            next(rounds(meter))
            print(meter.total)
            meter.total = x
    """,
    "written as a context ends": """
        @contextmanager
        def counted(meter):
            yield
            meter.reset()

        for x in batches:  # here
            with counted(meter):
                print(meter.total)
            meter.total = x
    """,
    "written to another that has the argument's name": """
        def begin(meter):
            meter = other
            meter.total = 0

        for x in batches:  # here
            begin(meter)
            print(meter.total)
            meter.total = x
    """,
    "written by a method in whose place another is": """
        def begin(meter):
            meter.total = 0

        trainer.begin = lambda meter: None
        for x in batches:  # here
            trainer.begin(meter)
            print(meter.total)
            meter.total = x
    """,
}


@pytest.mark.parametrize("text", LIVE.values(), ids=LIVE.keys())
def test_what_may_be_read_before_it_is_written_is_carried(text: str) -> None:
    assert "total" in carried(text, "# here")


def test_in_the_loop_that_fetches_itself_it_counts() -> None:
    text = """
        meter = Meter()
        while True:
            named(meter, batches)  # inside
    """
    assert "total" in carried(text, "# inside")


@pytest.mark.parametrize("name", LIVE)
def test_where_the_script_stands_may_be_unknown(name: str) -> None:
    """Then it may stand anywhere: more is carried, never less."""
    assert "total" in carried(LIVE[name])


@pytest.mark.parametrize(
    ("asks", "is_carried"),
    [
        ("getattr(meter, name)", True),
        ("getattr(meter, 'mean_' + name)", False),
        ("getattr(optim, name)", False),
        ("getattr(meter, 'best')", False),
    ],
)
def test_what_is_read_by_no_name_may_be_read_by_one_that_is_made_up(
    asks: str, is_carried: bool
) -> None:
    text = f"""
        from torch import optim
        for x in batches:  # here
            print({asks})
            meter.last = x
    """
    assert ("last" in carried(text, "# here")) is is_carried


MAIN = """
for x in batches:  # here
    step(state)
    state.best = x
"""


def test_what_one_file_stores_another_may_read() -> None:
    main, other = ast.parse(MAIN), ast.parse("def step(state):\n    return state.best\n")
    nowhere = frozenset[int]()
    assert "best" not in carried_attributes((main,), (frozenset({2}),))
    assert "best" in carried_attributes((main, other), (frozenset({2}), nowhere))
    assert "best" in carried_attributes((other, main))


def test_what_another_file_reads_is_followed_there() -> None:
    main = ast.parse(MAIN.replace("    step(state)\n", "") + "    step(state)\n")
    other = ast.parse("def step(state):\n    return state.best\n")
    assert "best" not in carried_attributes((main, other), (frozenset({2}), frozenset()))


def test_of_many_functions_none_is_too_many() -> None:
    chain = "".join(f"def f{n}(state):\n    return f{n + 1}(state)\n" for n in range(2000))
    ring = "".join(f"def g{n}(state):\n    return g{(n + 1) % 600}(state)\n" for n in range(600))
    last = ast.parse("def f2000(state):\n    return state.best\n")
    main = ast.parse(f"{MAIN.replace('step', 'f0')}    g0(state)\n")
    files = main, ast.parse(chain), ast.parse(ring), last
    assert "best" in carried_attributes(files)
    sources = [read(one) for one in files]
    assert "best" not in temporary_in(sources)
    assert "best" in temporary_in([sources[0]])


def test_of_too_many_each_file_is_followed_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "FUNCTIONS_MAX", 0)
    state = "for x in batches:\n    state.best = x\n    print(state.best)\n"
    main, other = read(ast.parse(state)), read(ast.parse("def f(state):\n    return state.best\n"))
    assert "best" in temporary_in([main])
    assert "best" not in temporary_in([main, other])
    assert "best" not in temporary_in([other, main], (frozenset(), frozenset({1})))
