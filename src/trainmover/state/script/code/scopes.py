# SPDX-License-Identifier: Apache-2.0
"""A file of a script, function by function, and what its source says of its variables."""

import ast
from dataclasses import dataclass, field

from trainmover.state.script.code import grammar
from trainmover.state.script.code.functions import Functions
from trainmover.state.script.code.handed import Parts
from trainmover.state.script.code.read_by_name import ReadBy
from trainmover.state.script.code.syntax import Function

Key = tuple[str, int]
"""Of a scope: its name, and the first line of its code object; a module's is 0."""
MODULE: Key = ("<module>", 0)


@dataclass
class Scope:
    """One function, or the top of a file.

    clocks   names in it that tell the time or the machine
    apart    those of them that hold nothing else, whatever they are
    fed      those of these that are objects to which the time, and nothing else, is given
    there    names that are given times, and count by being there, or by how many they hold
    counts   first targets of `for` over enumerate(...): they count, whatever else they may equal
    given    targets of `for` over job.batches(...) and its kin: they follow the place that is kept
    lines    of the last store to each name
    own      parameters
    """

    clocks: set[str] = field(default_factory=set)
    apart: set[str] = field(default_factory=set)
    fed: set[str] = field(default_factory=set)
    there: set[str] = field(default_factory=set)
    counts: set[str] = field(default_factory=set)
    given: set[str] = field(default_factory=set)
    lines: dict[str, int] = field(default_factory=dict)
    own: set[str] = field(default_factory=set)


UNKNOWN = Scope()


@dataclass
class Source:
    """Of one file, or of several together.

    attributes  that are stored to after the set-up, with the line of the last store
    by_class    those that methods store on their own object, by name of the class
    noted       those of them that others than the methods that begin or give a pass store
    by_others   those that are stored on any other object
    hung        the same, at any time
    temporary   attributes that are written before they are read, of several files together
    changed     names and attributes of containers that are changed in place
    handed      attributes that leave their object, so that others may change what they hold, with
                the line (`handed`); of several files also those whose parts do
    given       parts of attributes that are given to functions, of any file
    functions   of the file, with what they change of what they are given
    globals     that functions store to
    again       names that are stored more than once: in a loop, twice, or by a function inside
    read        names that functions read and do not store: the file's globals, and names around
    clocks      attributes and parts that tell the time or the machine: ".t0", "stats['time']"
    apart       those of them that hold nothing else, whatever they are
    fed         those of these that are objects to which the time, and nothing else, is given
    there       attributes that are given times, and count by being there, or by how many they hold
    keeps       by class: attributes in which its objects keep what they are given
    guarded     those of attributes that are stored only where `job.is_shadow` is asked
    by_real     names and attributes that are stored there, and are read: no run in the sandbox
                makes them
    values      names and attributes that are read as values, and not only as tools (`guarded`)
    told        attributes that are given such a value, each with the classes whose methods give it
                to their own object; "" where it is given from elsewhere
    untold      the same of other values, also of what is changed in place; what they are reset to
                is none
    holders     attributes, each with the classes that store it to their own object at any time, or
                declare it; "" of other objects
    telling     functions that return the time or the machine, and nothing else
    asked       attributes that are read of any other object than the method's own
    loaded      attributes that are read, of any object
    read_by     what functions and methods read, by their names
    dynamic     line that stores attributes by names that only the run knows; 0: none
    written     classes and functions, with their lines
    foreign     attributes of imported modules that are stored to, with the line: "torch.nn.relu"
    patches     attributes of imported modules and of what is in them that are stored to at any time
    rebuilds    line that puts another layer into a module, or a hook, or takes one out; 0: none
    hooks       line that puts a hook somewhere, or takes one away; 0: none
    exchanges   line that may do so, as far as can be seen from it; 0: none
    environ     variables of the environment that are set after the set-up, with the line; "*": any
    settings    calls that change what is in force for the whole process after the set-up, with the
                line: SETTERS, or PREFIX where it is stored to
    targets     attributes, globals and containers that loops store to: they show how far an
                iterator is
    stays       attributes that are never temporary: Python's own, those stored to by their name
    tree        of the file; None of several together
    """

    scopes: dict[Key, Scope] = field(default_factory=dict)
    attributes: dict[str, int] = field(default_factory=dict)
    by_class: dict[str, set[str]] = field(default_factory=dict)
    noted: set[str] = field(default_factory=set)
    by_others: set[str] = field(default_factory=set)
    hung: set[str] = field(default_factory=set)
    temporary: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    handed: dict[str, int] = field(default_factory=dict)
    given: Parts = field(default_factory=dict)
    functions: Functions = field(default_factory=Functions)
    globals: set[str] = field(default_factory=set)
    again: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    clocks: set[str] = field(default_factory=set)
    apart: set[str] = field(default_factory=set)
    fed: set[str] = field(default_factory=set)
    there: set[str] = field(default_factory=set)
    keeps: dict[str, set[str]] = field(default_factory=dict)
    guarded: set[str] = field(default_factory=set)
    by_real: set[str] = field(default_factory=set)
    values: set[str] = field(default_factory=set)
    told: dict[str, set[str]] = field(default_factory=dict)
    untold: dict[str, set[str]] = field(default_factory=dict)
    holders: dict[str, set[str]] = field(default_factory=dict)
    telling: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    loaded: set[str] = field(default_factory=set)
    read_by: ReadBy = field(default_factory=dict)
    dynamic: int = 0
    written: dict[str, int] = field(default_factory=dict)
    foreign: dict[str, int] = field(default_factory=dict)
    patches: set[str] = field(default_factory=set)
    rebuilds: int = 0
    hooks: int = 0
    exchanges: int = 0
    environ: dict[str, int] = field(default_factory=dict)
    settings: dict[str, int] = field(default_factory=dict)
    targets: set[str] = field(default_factory=set)
    stays: set[str] = field(default_factory=set)
    tree: ast.Module | None = None


class File:
    """What lies in one file.

    imports    names, with what they stand for in full
    modules    that are imported, each by its first name
    functions  all that are written in it, with the class of each; "": none
    bodies     of the top and of each function: its key, its class, and what lies in it and in no
               function in it
    """

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.imports = dict(grammar.imports(tree))
        self.modules = {name.partition(".")[0] for name in self.imports.values()} - {""}
        self.functions = list(grammar.functions(tree, ""))
        self.bodies: list[tuple[Key, str, list[ast.AST]]] = [(MODULE, "", list(grammar.own(tree)))]
        for node, owner in self.functions:
            self.bodies.append((scope_key(node), owner, list(grammar.own(node))))

    def dotted(self, node: ast.AST) -> str:
        """The full name of what is called, as far as imports tell: "time.perf_counter"; "" of an
        attribute of what is none."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        if parts and node.id not in self.imports:
            return ""
        return ".".join([self.imports.get(node.id, node.id), *reversed(parts)])


def scope_key(node: Function) -> Key:
    """As the code object of the function has it."""
    return node.name, min([node.lineno, *(one.lineno for one in node.decorator_list)])
