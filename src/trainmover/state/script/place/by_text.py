# SPDX-License-Identifier: Apache-2.0
"""What a code object reads by a text, where no instruction names it: `eval("0.9 * mean")`,
`locals()["mean"]`, `frame.f_locals`, `table.query("loss < @mean")`.

The top of a file has its locals read so as well by functions of the file that ask for `globals()`,
or evaluate a text.
"""

import ast
import dis
import re
from collections.abc import Iterator, Sequence, Set
from functools import lru_cache
from types import CodeType

from trainmover.state.script.code.grammar import functions
from trainmover.state.script.code.source import tree_of
from trainmover.state.script.code.syntax import walk

_EVALUATE = frozenset({"eval", "exec"})
_OF_GLOBALS = _EVALUATE | {"globals"}
_OF_FRAMES = frozenset({"f_locals", "currentframe", "_getframe"})
_IF_GIVEN_NOTHING = frozenset({"vars", "dir"})
_OF_TABLES = frozenset({"query", "eval"})
_BUILTINS = frozenset({"builtins", "__builtins__"})
_NAMED_IN_TABLES = re.compile(r"@(\w+)")
_OF_BUILTINS = _EVALUATE | {"locals"}
_BETWEEN = frozenset({"PRECALL", "PUSH_NULL", "CACHE", "NOP", "EXTENDED_ARG"})
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_NAMES = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})


def read_by_text(
    code: CodeType, instructions: Sequence[dis.Instruction]
) -> Iterator[tuple[int, Set[str] | None]]:
    """Numbers of instructions, each with the names that are read there; None: any."""
    is_top = code.co_name == "<module>"
    readers = readers_of_globals(code.co_filename) if is_top else frozenset[str]()
    of_all = {"locals", *(["globals"] if is_top else [])}
    for number, one in enumerate(instructions):
        name = one.argval
        if one.opname in _NAMES:
            if name in _EVALUATE:
                yield number, _named_in(instructions, number)
            elif name in of_all or name in readers or _asks_for_all(instructions, number):
                yield number, None
        elif one.opname in _ATTRIBUTES:
            of_builtins = name in _OF_BUILTINS and _is_of_builtins(instructions, number)
            if name in _OF_FRAMES or f".{name}" in readers or of_builtins:
                yield number, None
            elif name in _OF_TABLES:
                yield number, _named_in_tables(code)


def asks_for_globals(code: CodeType, instructions: Sequence[dis.Instruction]) -> Iterator[int]:
    """Numbers of instructions from which on globals of the file may be read by a text."""
    readers = readers_of_globals(code.co_filename)
    for number, one in enumerate(instructions):
        by_name = one.opname in _NAMES and (one.argval in _OF_GLOBALS or one.argval in readers)
        if by_name or (one.opname in _ATTRIBUTES and f".{one.argval}" in readers):
            yield number


@lru_cache(maxsize=64)
def readers_of_globals(path: str) -> frozenset[str]:
    """Functions of a file that read its globals by a text, or name one that does: `weight`; and
    methods: `.weight`."""
    tree = tree_of(path)
    if tree is None:
        return frozenset()
    named: dict[str, set[str]] = {}
    for node, owner in functions(tree, ""):
        known = named.setdefault(f".{node.name}" if owner else node.name, set())
        known |= {one.id for one in walk(node) if isinstance(one, ast.Name)}
        known |= {f".{one.attr}" for one in walk(node) if isinstance(one, ast.Attribute)}
    found, before = {name for name, used in named.items() if used & _OF_GLOBALS}, set[str]()
    while found != before:
        before = found
        found = found | {name for name, used in named.items() if used & found}
    return frozenset(found)


def _named_in(instructions: Sequence[dis.Instruction], number: int) -> set[str] | None:
    """In a text that stands there; None: it is worked out."""
    coming = (one for one in instructions[number + 1 :] if one.opname not in _BETWEEN)
    text, call = next(coming, None), next(coming, None)
    is_one = text is not None and text.opname == "LOAD_CONST" and type(text.argval) is str
    if not is_one or text is None or call is None or (call.opname, call.arg) != ("CALL", 1):
        return None
    return set(re.findall(r"\w+", text.argval))


def _named_in_tables(code: CodeType) -> set[str]:
    texts = (one for one in code.co_consts if type(one) is str)
    return {name for text in texts for name in _NAMED_IN_TABLES.findall(text)}


def _asks_for_all(instructions: Sequence[dis.Instruction], number: int) -> bool:
    """Whether it is given nothing: `vars()`."""
    if instructions[number].argval not in _IF_GIVEN_NOTHING:
        return False
    call = next((one for one in instructions[number + 1 :] if one.opname not in _BETWEEN), None)
    return call is not None and (call.opname, call.arg) == ("CALL", 0)


def _is_of_builtins(instructions: Sequence[dis.Instruction], number: int) -> bool:
    owner = instructions[number - 1] if number else None
    return owner is not None and owner.opname in _NAMES and owner.argval in _BUILTINS
