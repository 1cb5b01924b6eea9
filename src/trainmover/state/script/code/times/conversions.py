# SPDX-License-Identifier: Apache-2.0
"""What gives plain values in another form: numbers, texts, paths, times, and rows of such.

Only so a time is still one. What is made with a time, or with what says something of the machine,
may hold anything: a deque whose length the environment says, a table that is read from a folder at
home, an event with a loss and when it was.
"""

import ast

from trainmover.state.script.code.syntax import called_name, last_name

_PLAIN = frozenset(
    {"int", "float", "bool", "str", "repr", "bytes", "format", "round", "abs", "sum", "divmod"}
    | {"pow", "len", "hash", "ord", "chr", "hex", "Decimal", "Fraction", "complex"}
)
_ROWS = frozenset(
    {"list", "tuple", "set", "frozenset", "sorted", "reversed", "iter", "next", "enumerate", "zip"}
    | {"map", "filter", "copy", "deepcopy", "array", "asarray", "tensor", "as_tensor", "stack"}
    | {"glob", "iglob"}
)
_NUMBERS = frozenset(
    {"mean", "fmean", "median", "std", "stdev", "pstdev", "var", "variance", "percentile"}
    | {"quantile", "diff", "floor", "ceil", "trunc", "log", "log2", "log10", "sqrt", "exp", "fsum"}
    | {"prod", "isfinite", "isnan", "float32", "float64", "int32", "int64", "total_seconds"}
)
_TEXTS = frozenset(
    {"join", "joinpath", "with_name", "with_suffix", "with_stem", "replace", "sub", "dumps"}
    | {"encode", "decode", "basename", "dirname", "abspath", "realpath", "normpath", "expanduser"}
    | {"expandvars", "splitext", "split", "relpath", "commonpath", "relative_to", "fspath", "quote"}
    | {"Path", "PurePath", "PosixPath", "PurePosixPath", "md5", "sha1", "sha256", "UUID"}
)
_TIMES = frozenset(
    {"timedelta", "strptime", "fromisoformat", "fromtimestamp", "utcfromtimestamp", "mktime"}
    | {"gmtime", "localtime", "strftime", "ctime", "asctime", "struct_time", "timegm", "datetime"}
    | {"combine", "astimezone", "isoformat"}
)
_OF_FIRST = _PLAIN | _ROWS | _NUMBERS
_OF_ANY = _TEXTS | _TIMES
_COUNTS = frozenset({"int", "float", "bool", "len", "hash", "ord", "sum", "complex", "Decimal"}) | {
    *("count", "index", "find", "rfind", "startswith", "endswith", "isdigit", "exists", "Fraction"),
    *("tensor", "as_tensor", "array", "asarray", "float32", "float64", "int32", "int64"),
}
MEASURES = frozenset({"compare", "any", "all", "isinstance"}) | _COUNTS


def converts(call: ast.Call) -> bool:
    """Whether what it gives is what it is given, in another form."""
    name = called_name(call)
    if name == "replace":  # Of a text; a data class is made anew by that name.
        return len(call.args) == 2 and not call.keywords
    return name in _OF_FIRST | _OF_ANY


def converted(call: ast.Call, *, of_library: bool) -> list[ast.expr]:
    """What of that it gives so: not by what it is sorted or rounded. All of these must be of the
    same kind, but for the parts of a text.

    of_library: whether it is Python's own or a library's, and no method of an object
    """
    name, given = called_name(call), call.args
    if name in _OF_ANY:
        return [*given, *(one.value for one in call.keywords)]
    if not of_library:
        return []
    if name == "map":
        return given[1:] if last_name(given[0]) in _OF_FIRST | _OF_ANY else []
    if name == "filter":
        return given[1:]
    return given if name == "zip" else given[:1]


def is_text(call: ast.Call) -> bool:
    """Whether it puts a text or a time together: what has one in it is another on each machine."""
    return called_name(call) in _OF_ANY


def measures(node: ast.AST) -> bool:
    """Whether it makes a number out of a text, or decides by one. What a machine is called differs
    on all machines; but a number that the environment has may be the same on all, and a script
    trains with it: how long a window is, how many hosts there are."""
    return isinstance(node, ast.Compare) or called_name(node) in MEASURES
