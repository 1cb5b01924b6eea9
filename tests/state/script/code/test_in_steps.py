"""Which names steps may store to, by the source."""

import ast
import textwrap

import pytest

from trainmover.state.script.code.in_steps import steps_in, stored_in_steps


def names(*texts: str) -> set[str]:
    return {*stored_in_steps(steps_in([ast.parse(textwrap.dedent(text)) for text in texts]))}


@pytest.mark.parametrize(
    ("body", "stored"),
    [
        ("trainer.aux = 1", {"aux"}),
        ("trainer.aux += 1", {"aux"}),
        ("del trainer.aux", {"aux"}),
        ("SEEN.append(1)", {"SEEN"}),
        ("SEEN[0] = 1", {"SEEN"}),
        ("global SEEN; SEEN = 1", {"SEEN"}),
        ('setattr(trainer, "aux", 1)', {"aux"}),
        ('vars(trainer)["aux"] = 1', {"aux"}),
        ("trainer.__dict__.update(aux=1)", {"aux", "__dict__"}),
        ("trainer.seen.clear()", {"seen"}),
        ("flip()", {"turn"}),
        ("trainer.note(1)", {"noted"}),
        ("each(flip)", {"turn"}),
        ("local = trainer.aux", set()),
    ],
)
@pytest.mark.parametrize("marked", ["@job.step\n", "", "@tm.job.step()\n"])
def test_what_a_step_stores_to(body: str, stored: set[str], marked: str) -> None:
    text = f"{marked}def train(x):\n    {body}\n"
    text += "" if marked else "run = job.step(train)\n"
    helpers = """
    def flip():
        global turn
        turn = not turn
    class Trainer:
        def note(self, x):
            self.noted = x
        def elsewhere(self):
            self.best = 1
    """
    assert names(text, helpers) == stored


def test_what_nobody_calls_by_name_runs_in_steps_too() -> None:
    text = """
    def hook(module, given, made):
        ACTS.append(made)
    model.register_forward_hook(hook)
    other.register_hook(lambda grad: NORMS.append(grad))
    class Net(nn.Module):
        def forward(self, x):
            self.last = x
    def evaluate():
        trainer.best = 1
    """
    assert names(text) == {"ACTS", "NORMS", "last"}


@pytest.mark.parametrize(
    ("body", "method"),
    [
        ("meter += x", "__iadd__"),
        ("y = meter * x", "__mul__"),
        ("y = x - meter", "__rsub__"),
        ("meter[0] = x", "__setitem__"),
        ("del meter[0]", "__delitem__"),
        ("meter.last = x", "__setattr__"),
        ("if meter > x: pass", "__gt__"),
        ("if x in meter: pass", "__contains__"),
        ("y = meter[0]", "__getitem__"),
        ("for y in meter: pass", "__iter__"),
        ("y = [one for one in meter]", "__next__"),
        ("y = 1 if meter else 2", "__bool__"),
        ("while meter: break", "__len__"),
        ("Meter(x)", "__init__"),
        ("y = float(meter)", "__float__"),
        ("with meter: pass", "__exit__"),
    ],
)
def test_what_syntax_calls_runs_in_steps_too(body: str, method: str) -> None:
    text = f"""
    class Meter:
        def {method}(self, *given):
            self.aux = 1
    @job.step
    def train(x):
        {body}
    """
    other = text.replace("@job.step", "")
    assert "aux" in names(text)
    assert "aux" not in names(other, "@job.step\ndef run(x):\n    x.backward()\n")


@pytest.mark.parametrize(
    ("bases", "calls", "is_one"),
    [
        ("(logging.Handler)", "", True),
        ("(Own)", "", True),
        ("", "", False),
        ("(ABC)", "", False),
        ("(logging.Handler)", "handler.emit(1)", False),
    ],
)
def test_what_a_library_calls_may_run_in_steps(bases: str, calls: str, *, is_one: bool) -> None:
    text = f"""
    class Own(logging.Handler): ...
    class Counting{bases}:
        def emit(self, record):
            self.aux = 1
    @job.step
    def train(x): ...
    {calls}
    """
    assert ("aux" in names(text)) is is_one


@pytest.mark.parametrize("base", ["", "(Dataset)"])
def test_what_a_dataset_reads_is_the_fetch_s(base: str) -> None:
    text = f"""
    class Data{base}:
        def __getitem__(self, index):
            self.seen = index
    @job.step
    def train(x):
        x[0]
    """
    assert ("seen" in names(text)) == (not base)


@pytest.mark.parametrize(
    ("calls", "is_one"),
    [
        ("RULES['a'](x)", True),
        ("criterion(x)", True),
        ("(yield)(x)", True),
        ("getattr(rules, f'on_{kind}')(x)", True),
        ("getattr(rules, kind)(x)", True),
        ("getattr(rules, f'off_{kind}')(x)", False),
        ("plain(x)", False),
        ("x.backward(), print(x)", False),
    ],
)
def test_what_has_no_name_may_be_any_function_that_is_a_value(calls: str, *, is_one: bool) -> None:
    text = f"""
    def on_rule(x):
        global level
        level = x
    def plain(x): ...
    RULES = dict([("a", on_rule)])
    @job.step
    def train(x):
        {calls}
    """
    assert ("level" in names(text)) is is_one


def test_an_option_is_no_such_function() -> None:
    text = """
    def padded(items):
        global longest
        longest = len(items)
    loader = DataLoader(data, collate_fn=padded)
    @job.step
    def train(x):
        model(x)
    """
    assert "longest" not in names(text)


def test_a_function_that_a_registry_keeps_is_one() -> None:
    text = """
    @rules.register("soft")
    def softened(x):
        global level
        level = x
    @job.step
    def train(x):
        rules.of("soft")(x)
    """
    assert "level" in names(text)


@pytest.mark.parametrize(
    "marked",
    [
        "train = job.step(make())",
        "train = job.step(partial(step, 3))",
        "trainer.run = job.step(functools.partial(make(), 3))",
    ],
)
def test_a_step_may_be_made(marked: str) -> None:
    text = f"""
    def make():
        def inner(x):
            WINDOW.append(x)
        return inner
    def step(n, x):
        WINDOW.append(x)
    {marked}
    """
    assert "WINDOW" in names(text)


@pytest.mark.parametrize(
    ("body", "stored"),
    [
        ("for name, seen in rates.items(): seen.append(x)", "rates"),
        ("seen = trainer.rates['a']; seen[0] += x", "rates"),
        ("first = rates; second = first; second.clear()", "rates"),
        ("fill(rates, x)", "rates"),
        ("fill(x=1, table=trainer.rates)", "rates"),
        ("by_way(rates)", "rates"),
        ("heapq.heappush(rates, x)", "rates"),
        ("bisect.insort(trainer.rates, x)", "rates"),
        ("np.add.at(rates, x, 1)", "rates"),
        ("random.shuffle(rates)", "rates"),
        ("setattr(rates, kind, x)", "rates"),
        ("rates.__setattr__(kind, x)", "rates"),
    ],
)
def test_another_name_is_the_same(body: str, stored: str) -> None:
    text = f"""
    def fill(table, x):
        table.append(x)
    def by_way(them):
        fill(them, 1)
    @job.step
    def train(x, kind):
        {body}
    """
    assert stored in names(text)
    assert stored not in names(text.replace(body, "fit(rates)"))
