"""What our processes print of exceptions steers no terminal; nothing else prints texts raw."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import trainmover

HOSTILE = "\\x1b]0;PWNED\\x07\\x1b[31mRED\\r\\u202e\\u2028\\x9b2J"
PACKAGE = Path(trainmover.__file__).parent
OF_THE_SCRIPT = {"worker/program.py"}
"""What a script gives to `sys.exit`: Python, too, prints it as it is."""
NO_TEXT_FROM_OUTSIDE = {
    "agent/notice.py",  # It is quoted by repr.
    "agent/run.py",  # The name of a machine, which has no such characters.
    "descriptors.py",
    "health/__main__.py",  # JSON, for the agent.
    "launch/controller/process.py",
    "server/store.py",  # A number, for whoever started it.
    "state/export.py",  # For the command, which shows it.
}


def printed(act: str) -> str:
    """What a process of ours leaves on stderr."""
    code = f"""
import asyncio, threading
from trainmover.tracebacks import escape_tracebacks
escape_tracebacks()
def fail():
    raise ValueError("{HOSTILE}")
{act}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    return done.stderr.decode()


@pytest.mark.parametrize(
    "act",
    [
        "fail()",
        "thread = threading.Thread(target=fail); thread.start(); thread.join()",
        "async def main():\n    asyncio.get_running_loop().call_soon(fail)\n"
        "    await asyncio.sleep(0.1)\nasyncio.run(main())",
    ],
)
def test_a_traceback_is_printed_and_quotes(act: str) -> None:
    said = printed(act)
    assert "Traceback (most recent call last)" in said
    assert r"\x1b]0;PWNED\x07\x1b[31mRED\r\u202e\u2028\x9b2J" in said
    assert not [one for one in said if one != "\n" and not one.isprintable()]


def test_nothing_is_printed_as_it_is() -> None:
    """Verbs have a test of their own: `tests/cli/test_cli_escaping.py`."""
    raw = [
        f"{name}:{node.lineno} {ast.unparse(node)[:60]}"
        for path in PACKAGE.rglob("*.py")
        if (name := str(path.relative_to(PACKAGE))) not in OF_THE_SCRIPT | NO_TEXT_FROM_OUTSIDE
        and not name.startswith("cli/")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and _prints_raw(node)
    ]
    assert raw == []


def _prints_raw(call: ast.Call) -> bool:
    called = ast.unparse(call.func)
    if called in ("traceback.print_exc", "traceback.print_exception", "traceback.print_stack"):
        return True
    if called != "print" and not called.endswith(("stderr.write", "stdout.write")):
        return False
    return not any(word in ast.unparse(call) for word in ("escape(", "one_line("))
