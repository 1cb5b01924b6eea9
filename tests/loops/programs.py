"""Random programs of nested loops, whose every move leaves a mark in a trace."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

MOST_MARKS = 400


class Full(BaseException):
    """The trace is long enough."""


class Oops(Exception):
    """Raised by programs on purpose."""


class World:
    """What a program calls; `trace` has all that happened, in order."""

    def __init__(self) -> None:
        self.trace: list[Any] = []
        self.counts: dict[int, int] = {}

    def mark(self, value: Any) -> Any:
        self.trace.append(value)
        if len(self.trace) >= MOST_MARKS:
            raise Full
        return value

    def maybe(self, number: int, period: int) -> bool:
        """True at each call of this number that the period divides."""
        self.counts[number] = self.counts.get(number, 0) + 1
        self.mark(("maybe", number))
        return self.counts[number] % period == 0

    def items(self, number: int, count: int) -> Iterator[int]:
        """A generator whose end leaves a mark, whenever that is."""
        try:
            for item in range(count):
                self.mark(("item", number, item))
                got = yield item
                if got is not None:
                    self.mark(("sent", number, got))
        except GeneratorExit:
            self.trace.append(("closed", number))
            raise
        finally:
            self.trace.append(("finally", number))

    @contextmanager
    def block(self, number: int) -> Iterator[None]:
        self.mark(("enter", number))
        try:
            yield
        finally:
            self.trace.append(("exit", number))

    def oops(self, number: int) -> None:
        self.mark(("oops", number))
        raise Oops(number)

    def names(self) -> dict[str, Any]:
        return {
            "mark": self.mark,
            "maybe": self.maybe,
            "items": self.items,
            "block": self.block,
            "oops": self.oops,
            "Oops": Oops,
        }


class Writer:
    """Text of one random program: a function `main`, with or without yields."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.number = 0
        self.lines: list[str] = []
        self.yields = self.chance.random() < 0.3

    def program(self) -> str:
        self.lines = ["def main():"]
        self.block(1, 0)
        self.lines += ["    return mark('end')"]
        if not self.yields:
            return "\n".join(self.lines)
        drive = "def drive():\n    g = run()\n    x = None\n    while True:\n        try:\n"
        drive += "            x = g.send(None if x is None or maybe(0, 2) else x)\n"
        drive += "        except StopIteration as end:\n            return end.value\n"
        drive += "        mark(('got', x))\n        if maybe(-1, 9):\n            g.close()\n"
        text = "\n".join(self.lines).replace("def main", "def run") + "\n    yield 0\n"
        return text + drive + "def main():\n    return drive()\n"

    def next(self) -> int:
        self.number += 1
        return self.number

    def add(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def block(self, depth: int, loops: int) -> None:
        for _ in range(self.chance.randint(1, 3)):
            self.statement(depth, loops)

    def iterable(self) -> str:
        number, count = self.next(), self.chance.randint(0, 4)
        plain = f"items({number}, {count})"
        wrapped = [
            plain,
            plain,
            f"range({count})",
            f"[*range({count})]",
            f"enumerate({plain}, {number})",
            f"zip({plain}, items({self.next()}, {self.chance.randint(0, 4)}), strict=False)",
            f"map(mark, {plain})",
            f"(mark(('gen', y)) for y in {plain})",
            f"(mark(('flat', y, z)) for y in {plain} for z in range(2) if z)",
            f"[mark(('list', y)) for y in {plain}]",
            f"{{mark(('set', y)) for y in {plain}}}",
            f"[mark(y) for y in [mark(z) for z in {plain}]]",
        ]
        return self.chance.choice(wrapped)

    def statement(self, depth: int, loops: int) -> None:
        chance, number = self.chance, self.next()
        kinds = ["mark", "mark", "if", "for", "while", "try", "with", "raise", "list"]
        kinds += ["break", "continue", "return"] if loops else []
        kinds += ["yield", "yield from"] if self.yields else []
        kind = chance.choice(kinds if depth < 6 else ["mark"])
        if kind == "for":
            self.add(depth, f"for x{number} in {self.iterable()}:")
            self.add(depth + 1, f"mark(('turn', {number}, x{number}))")
            self.block(depth + 1, loops + 1)
            self.orelse(depth, loops, number)
        elif kind == "while":
            test = f"maybe({number}, {chance.randint(2, 5)})"
            self.add(
                depth, f"while {chance.choice([f'not {test}', f'not {test} or False', 'True'])}:"
            )
            self.add(depth + 1, f"if maybe({number + 1000}, 4): break")
            self.block(depth + 1, loops + 1)
            self.orelse(depth, loops, number)
        elif kind == "if":
            self.add(depth, f"if maybe({number}, 2):")
            self.block(depth + 1, loops)
        elif kind == "with":
            self.add(depth, f"with block({number}):")
            self.block(depth + 1, loops)
        elif kind == "try":
            self.add(depth, "try:")
            self.block(depth + 1, loops)
            how = chance.choice(["except Oops as error:", "except Exception:", "finally:"])
            self.add(depth, how)
            self.add(depth + 1, f"mark(('handler', {number}))")
            if how != "finally:":
                self.block(depth + 1, loops)
        elif kind == "raise":
            self.add(depth, f"if maybe({number}, 3): oops({number})")
        elif kind == "list":
            self.add(depth, f"mark(list({self.iterable()}))")
        elif kind in ("break", "continue"):
            self.add(depth, f"if maybe({number}, 2): {kind}")
        elif kind == "return":
            self.add(depth, f"if maybe({number}, 3): return mark(('return', {number}))")
        elif kind == "yield":
            self.add(depth, f"mark((yield {number}))")
        elif kind == "yield from":
            self.add(depth, f"mark((yield from {self.iterable()}))")
        else:
            self.add(depth, f"mark({number})")

    def orelse(self, depth: int, loops: int, number: int) -> None:
        if self.chance.random() < 0.4:
            self.add(depth, "else:")
            self.add(depth + 1, f"mark(('else', {number}))")
            self.block(depth + 1, loops)


def run(code: Any, prepare: Callable[[dict[str, Any]], None] = lambda names: None) -> list[Any]:
    """Run the program and return its trace; what it returns or raises is the last mark."""
    world = World()
    names: dict[str, Any] = world.names()
    exec(code, names)
    prepare(names)
    try:
        end: Any = names["main"]()
    except (Oops, Full, RuntimeError) as error:
        end = type(error), str(error), lines_of(error)
    except AttributeError as error:  # 'send' to what has none: the message names the type.
        end = type(error), lines_of(error)
    return [*world.trace, ("result", end)]


def lines_of(error: BaseException) -> list[tuple[str, int | None]]:
    """Return functions and lines of a traceback, as far as they lie in a program."""
    found = []
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<program>":
            found.append((trace.tb_frame.f_code.co_name, trace.tb_lineno))
        trace = trace.tb_next
    return found
