"""The stub that mypy and readers see says what the library has."""

import ast
import subprocess
import sys
from pathlib import Path

STUB = Path(__file__).resolve().parents[2] / "src" / "trainmover" / "_native.pyi"


def facts(text: str) -> set[str]:
    """Every class, attribute and signature, without prose and types of containers."""
    found = set()

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                bases = [ast.unparse(base) for base in node.bases]
                found.add(f"{prefix}class {node.name}({bases})")
                visit(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef):
                arguments = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
                defaults = [ast.unparse(default) for default in node.args.defaults]
                found.add(f"{prefix}{node.name}({arguments}, {defaults})")
            elif isinstance(node, ast.AnnAssign):
                found.add(f"{prefix}{ast.unparse(node.target)}")

    visit(ast.parse(text).body, "")
    return found


def test_the_stub_is_complete_and_true(tmp_path: Path) -> None:
    made = tmp_path / "made.pyi"
    command = [
        sys.executable,
        "-m",
        "nanobind.stubgen",
        "-m",
        "trainmover._native",
        "-o",
        str(made),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert read_by_both(STUB.read_text()) == read_by_both(made.read_text())


def read_by_both(text: str) -> set[str]:
    """Facts, without functions and methods that are written for CPython itself: `stubgen` finds no
    signature of theirs. `tests/loops` calls them all."""
    by_hand = ("Loop.", "Turns.", "iterate(", "left(")
    return {fact for fact in facts(text) if not fact.startswith(by_hand)}
