"""Functions and classes that a script makes while it trains are told by what they are made of."""

from pathlib import Path

import captures
import pytest

MADE = {
    "a class by type": 'kept = type("Kept", (), {"rate": 0.1 * number})',
    "a class with a method that has another default": """
                def rate(self, by=number):
                    return by
                kept = type("Kept", (), {"rate": rate})""",
    "an enumeration": 'kept = enum.Enum("Kept", {"RATE": number})',
    "a named tuple with other defaults": 'kept = namedtuple("Kept", "rate", defaults=[number])',
    "a dataclass with another default": 'kept = make_dataclass("Kept", [("rate", int, number)])',
    "a dataset of torch's": "kept = TensorDataset(torch.full((2,), 1.0 * {number}))",
    "a choice of samples": "kept = Subset(DATA, [0, {number} % 3])",
    "a loader over one": "kept = DataLoader(Subset(DATA, [{number} % 3]))",
    "parts of data": "kept = ConcatDataset([Subset(DATA, [{number} % 3])])",
    "a sampler": "kept = SubsetRandomSampler([{number} % 3])",
    "a text with a tuple": 'kept = eval(f"lambda x: x in (1, {number})")',
    "a text with a set": 'kept = eval(f"lambda x: x in {{1, {number}}}")',
    "a text with a function in a function": 'kept = eval(f"lambda: lambda: {number}")',
    "an own object with another function": "kept = Rule(lambda x, by=number: x * by)",
    "one with functions and weights": "kept = Rule(((max, 0.1 * number), (min, 1.0)))",
    "one with a table of functions": 'kept = Rule({"low": lambda x, by=number: x * by})',
    "one with a partial": "kept = Rule(functools.partial(pow, number))",
    "one with a method of another": "kept = Rule(Rule(number).rated)",
    "one with a method of a library's object": "kept = Rule(Normal(0.0, 1.0 + number).log_prob)",
    "one with a distribution": "kept = Rule(Normal(0.0, 1.0 + number))",
    "one with a module of the script's": "kept = Rule(Clipped((0.1 * number, 1.0)))",
    "one with a module of torch's": "kept = Rule(nn.Threshold(0.1 * number, 0.0))",
    "one with slots": "kept = Slotted(lambda x, by=number: x * by)",
    "one set up again where it lies": "kept = kept or Rule(0); kept.__init__((0, number))",
    "a module with a tuple": "kept = Clipped((0.1 * number, 1.0))",
    "a module with a function": "kept = Clipped(lambda x, by=number: x * by)",
    "a module of torch's with a function": """
                kept = nn.TripletMarginWithDistanceLoss(
                    distance_function=lambda x, y, by=number: by * (x - y))""",
    "a dataclass that works out more": "kept = Target(0.5 * number)",
    "an exception with an attribute": "kept = Surprise((0.5 * number, 1.0))",
    "a method of a distribution": "kept = Normal(0.0, 1.0 + number).log_prob",
    "a method of a large tensor": "kept = torch.full((100,), 1.0 * number).mul",
    "a method of a frozen set": "kept = frozenset(range(number)).__contains__",
    "a method of an own object": "kept = Rule(number).rated",
    "a function bound to a number": "kept = types.MethodType(max, number)",
    "a call of a method with arguments": 'kept = operator.methodcaller("mul", number)',
    "a context with a value": "kept = contextlib.nullcontext(number)",
    "one with such a context": "kept = Rule(contextlib.nullcontext(number))",
    "one with a call of a method": 'kept = Rule(operator.methodcaller("mul", number))',
    "a text with an attribute": "kept = Text('rule', rate=number)",
    "a number with an attribute": "kept = Count(1, rate=number)",
    "a list with an attribute": "kept = Row([1], rate=number)",
    "a tuple with an attribute": "kept = Pair((1, 2), rate=number)",
    "a dict with an attribute": "kept = Table({'a': 1}, rate=number)",
    "an own partial": "kept = Part(pow, number)",
    "an own dataset": "kept = Rows(0.1 * number)",
    "an own sampler": "kept = Order([number % 3])",
    "an own distribution": "kept = Wide(0.0, 1.0 + number)",
    "an own transform": "kept = torch.distributions.AffineTransform(0.0, 1.0 + number)",
    "one with a transform": "kept = Rule(torch.distributions.AffineTransform(0.0, 1.0 + number))",
    "a pattern's method": "kept = re.compile(str(number)).match",
    "one with a pattern's method": "kept = Rule(re.compile(str(number)).match)",
    "a descriptor's method": "kept = Rule.__dict__['rated'].__get__(Rule(number))",
    "one with a class": 'kept = Rule(type("Kept", (), {"rate": number}))',
    "one with a cached function": "kept = Rule(functools.lru_cache(lambda x, by=number: x * by))",
    "a cached function": "kept = functools.lru_cache(lambda x, by=number: x * by)",
    "a function that wraps another": "kept = wrapping(lambda x, by=number: x * by)",
    "an own context manager": "kept = Within(number)",
    "a weak reference's kin": "kept = types.SimpleNamespace(rule=lambda x, by=number: x * by)",
    "a namedtuple with a function": "kept = Named(lambda x, by=number: x * by)",
    "a vectorized function": "kept = numpy.vectorize(lambda x, by=number: x * by)",
    "a polynomial": "kept = numpy.polynomial.Polynomial([1.0, number])",
    "a random variable's method": "kept = numpy.poly1d([1.0, number])",
    "a module in a list": "kept = [Clipped((0.1 * number, 1.0))]",
    "a sequence of modules": "kept = nn.Sequential(nn.Threshold(0.1 * number, 0.0))",
    "a compose": "kept = Compose([lambda x, by=number: x * by])",
    "a mapping proxy": 'kept = types.MappingProxyType({"rule": lambda x, by=number: x * by})',
}
SCRIPT = """
        import contextlib, enum, functools, operator, re, types, typing
        import numpy
        from collections import namedtuple
        from dataclasses import InitVar, dataclass, make_dataclass
        from torch.utils.data import ConcatDataset, DataLoader, Subset
        from torch.utils.data import Dataset, Sampler, SubsetRandomSampler, TensorDataset
        from torch.distributions import Normal
        class Rule:
            def __init__(self, shape):
                self.shape = shape
            def rated(self, x):
                return x * self.shape
        class Slotted:
            __slots__ = ("shape",)
            def __init__(self, shape):
                self.shape = shape
        class Clipped(nn.Module):
            def __init__(self, edges):
                super().__init__()
                self.edges = edges
        @dataclass
        class Target:
            middle: InitVar[float]
            def __post_init__(self, middle):
                self.edges = (middle, 2 * middle)
        class Surprise(Exception):
            def __init__(self, between):
                super().__init__("none of what was expected")
                self.between = between
        class Rated:
            def __new__(cls, value, rate):
                return super().__new__(cls, value)
            def __init__(self, value, rate):
                self.rate = rate
                if isinstance(self, list | dict):
                    super().__init__(value)
        class Text(Rated, str): pass
        class Count(Rated, int): pass
        class Row(Rated, list): pass
        class Pair(Rated, tuple): pass
        class Table(Rated, dict): pass
        class Part(functools.partial): pass
        class Wide(Normal): pass
        class Named(typing.NamedTuple):
            rule: object
        class Rows(Dataset):
            def __init__(self, scale):
                self.scale = scale
        class Order(Sampler):
            def __init__(self, order):
                self.order = order
        class Within:
            def __init__(self, rate):
                self.rate = rate
            def __enter__(self): pass
            def __exit__(self, *error): pass
        class Compose:
            def __init__(self, parts):
                self.parts = parts
        def wrapping(function):
            @functools.wraps(function)
            def inner(x):
                return function(x)
            return inner
        kept = None
        def main():
            global kept
            for number, (x, y) in enumerate(job.batches(DATA)):
                {line}
        main()
        """


@pytest.mark.parametrize("name", MADE)
def test_what_it_is_made_of_counts(name: str, tmp_path: Path) -> None:
    given = "{number}" if "eval(" in MADE[name] else "number"
    line = MADE[name].replace("{number}", given)
    assert told_in(tmp_path, line)


@pytest.mark.parametrize("name", MADE)
def test_made_of_the_same_it_is_the_same(name: str, tmp_path: Path) -> None:
    line = MADE[name].replace("{number}", "3").replace("number", "3")
    assert not told_in(tmp_path, line)


def told_in(tmp_path: Path, line: str) -> list[str]:
    """By `kept`, by what lies in it, or by what the function closes over."""
    names = captures.names_in(tmp_path, SCRIPT.format(line=line))
    return [one for one in names if one.startswith(("kept", "function"))]
