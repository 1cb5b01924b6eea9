# SPDX-License-Identifier: Apache-2.0
"""`trainmover check train.py`: what of a script is carried, and do its steps repeat?"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainmover.cli.exit_codes import DONE, FAILED
from trainmover.cli.output import redraw, say, say_json
from trainmover.errors import JobFailed, UserError

_RUN, _STANDBY = "run", "standby"
_WARM_UP_OF_STANDBY = 3
"""Updates that a standby makes before it takes over: as many as a shadow run makes."""
_SHOWN_MAX = 12
_CAPTURE = "capture"


def main(options: argparse.Namespace) -> int:
    """Check a script. Exit status 1 if it is not protected, or if something differs."""
    _refuse_bad_call(options)
    with tempfile.TemporaryDirectory(prefix="trainmover-check-") as folder:
        run = _process(_RUN, options.after, options, Path(folder))
        standby = None
        if Path(folder, _CAPTURE).exists() and not options.no_standby:
            standby = _process(_STANDBY, _WARM_UP_OF_STANDBY, options, Path(folder))
    results = [one for one in (run, standby) if one is not None]
    equal = all(map(_is_equal, results))
    if options.json:
        say_json({"script": options.script, "equal": equal, _RUN: run, _STANDBY: standby})
    else:
        say("\n".join(_lines(run, standby)))
    return DONE if equal else FAILED


def _refuse_bad_call(options: argparse.Namespace) -> None:
    if options.steps < 1 or options.after < 1:
        raise UserError(
            "--steps and --after are at least 1.",
            means="Nothing was checked.",
            do="Leave them as they are, or give larger numbers.",
        )
    if not options.module and not Path(options.script).is_file():
        raise UserError(
            f"There is no script {options.script}.",
            means="Nothing was checked.",
            do="Give the path of a file, or -m and the name of a module.",
        )


def _process(role: str, warm_up: int, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run the script once in a process of its own; returns its result."""
    if sys.stderr.isatty():
        redraw(f"{role}: the first steps of {options.script}", sys.stderr)
    words = [str(folder), role, str(options.steps), str(warm_up), str(int(options.module))]
    command = [sys.executable, "-m", "trainmover.check", *words, options.script]
    output = folder / "output"
    with output.open("wb") as file:
        status = _status_of([*command, *options.arguments], file, options.timeout)
    if sys.stderr.isatty():
        redraw("", sys.stderr)
    result = folder / f"{role}.json"
    if not result.exists():
        raise JobFailed(
            f"The {role} of the script {_how_it_ended(status, options.timeout)}.",
            means="It could not be checked. Its last lines:\n" + _tail(output),
            do="See that the script runs by itself; --timeout gives it more time.",
        )
    found: dict[str, Any] = json.loads(result.read_text())
    if found["error"]:
        say(_tail(output), to=sys.stderr)
    return found


def _status_of(command: Sequence[str], output: Any, timeout_s: float) -> int | None:
    """Return the exit status of a process; None if it did not end in time.

    Processes that it has started end with it: they are a session of their own.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=os.environ | {"PYTHONHASHSEED": "0"},
        start_new_session=True,
    )
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _how_it_ended(status: int | None, timeout_s: float) -> str:
    if status is None:
        return f"has made too few steps in {timeout_s:g} s"
    return f"has ended with status {status}"


def _tail(output: Path) -> str:
    lines = output.read_text(errors="replace").splitlines()[-_SHOWN_MAX:]
    return "\n".join(f"    {line}" for line in lines)


def _is_equal(result: dict[str, Any]) -> bool:
    """Tell whether a process has computed the same numbers again: losses, tensors and chance."""
    again = result["losses"] == result["repeated"]
    wrong = ("error", "missing", "differences", "missed")
    return again and not any(result[name] for name in wrong)


def _lines(run: dict[str, Any], standby: dict[str, Any] | None) -> list[str]:
    loops = ", in ".join(f"{function}() line {line}" for function, line in reversed(run["loops"]))
    lines = [f"loop      {loops or 'none that could be rewritten has an update in it'}"]
    if run["objects"]:
        blocks = run["objects"].get("block", 0)
        count = sum(run["objects"].values()) - blocks
        memory = f"{blocks:,} blocks of memory with {run['memory_bytes']:,} bytes"
        lines.append(f"carried   {count:,} objects, {memory}")
        lines += _opaque_lines(run["opaque"], run["inert_count"])
        lines += _change_lines(run)
    lines += _proof_lines("in place", run)
    return lines if standby is None else lines + _proof_lines("standby", standby)


def _opaque_lines(opaque: list[tuple[str, str]], inert: int) -> list[str]:
    others = f", and {inert} without state" if inert else ""
    if not opaque:
        return [f"opaque    nothing{others}"]
    width = max(len(path) for path, _ in opaque[:_SHOWN_MAX])
    shown = [f"          {path:<{width}}  {kind}" for path, kind in opaque[:_SHOWN_MAX]]
    hidden = len(opaque) - len(shown)
    rest = [f"          and {hidden} more"] if hidden > 0 else []
    title = f"opaque    {len(opaque)} objects, of which each process keeps its own{others}"
    return [title, *shown, *rest]


def _change_lines(run: dict[str, Any]) -> list[str]:
    if not run["changed"]:
        return []
    changed, took_us = (statistics.mean(run[name]) for name in ("changed", "look_us"))
    lines = [f"changes   {changed:.0f} objects a turn, found in {took_us / 1000:.1f} ms (mean)"]
    lines += [f"          not found: {path}: {old}, {new}" for path, old, new in run["missed"]]
    return lines


def _proof_lines(title: str, result: dict[str, Any]) -> list[str]:
    if result["error"]:
        return [f"{title:<10}the script raised {result['error']}"]
    if result["missing"]:
        return [f"{title:<10}the script ended before there was {result['missing']}"]
    losses, repeated = result["losses"], result["repeated"]
    differing = [
        n for n, pair in enumerate(zip(losses, repeated, strict=False)) if len({*pair}) > 1
    ]
    if differing or len(losses) != len(repeated):
        first = differing[0] if differing else min(len(losses), len(repeated))
        lines = [f"{title:<10}the losses differ, from number {first + 1} of {len(losses)} on"]
    else:
        all_equal = not (result["differences"] or result["values"])
        values = "and every value equal" if all_equal else "but not every value"
        lines = [f"{title:<10}{len(losses)} losses again, all equal, {values}"]
    lines += [
        f"          {path}: {first} at first, {second} again"
        for path, first, second in [*result["differences"], *result["values"]][:_SHOWN_MAX]
    ]
    return lines + [f"          {note}" for note in result["notes"][:_SHOWN_MAX]]
