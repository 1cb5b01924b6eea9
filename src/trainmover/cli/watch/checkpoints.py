# SPDX-License-Identifier: Apache-2.0
"""`trainmover checkpoints DIR`: what a folder of checkpoints holds, and whether it is whole."""

import argparse
import subprocess
import sys
from pathlib import Path

from trainmover.cli.output import say, say_json
from trainmover.errors import JobFailed, UserError
from trainmover.escaping import one_line
from trainmover.protocol.checkpoint import published_name
from trainmover.protocol.messages import Checkpoint
from trainmover.server.checkpoints.check import newest_whole, verified


def main(options: argparse.Namespace) -> int:
    """0: there is one that a job can go on from."""
    if not options.folder.is_dir():
        raise UserError(
            f"There is no folder {options.folder}.",
            means="There is nothing to show.",
            do="Give the folder that --checkpoint named.",
        )
    if options.export is not None:
        return _export(options.folder, options.export, as_json=options.json)
    found = list(verified(options.folder))
    if options.json:
        say_json([_as_json(name, one) for name, one in found])
    else:
        lines = [one_line(_line(name, one)) for name, one in found]
        say("\n".join(lines) or "There are no checkpoints.")
    return 0 if any(isinstance(one, Checkpoint) for _, one in found) else 1


def _line(name: str, one: Checkpoint | str) -> str:
    if isinstance(one, str):
        return f"{name}  cannot be used: {one}"
    ranks = one.machines * one.nproc
    return f"{name}  whole: run {one.run_id}, {ranks} ranks, {one.bytes / 1e6:.1f} MB"


def _as_json(name: str, one: Checkpoint | str) -> dict[str, object]:
    if isinstance(one, str):
        return {"name": name, "whole": False, "why": one}
    return {"name": name, "whole": True, "step": one.step, "run": one.run_id, "bytes": one.bytes}


def _export(folder: Path, out: Path, *, as_json: bool) -> int:
    found, damaged = newest_whole(folder)
    if found is None:
        raise UserError(
            "\n".join([f"There is no checkpoint in {folder} that is whole.", *damaged]),
            means="Nothing was written.",
            do="Give the folder that --checkpoint named.",
        )
    if out.exists():
        raise UserError(
            f"{out} exists already.", means="Nothing was written.", do="Give another name."
        )
    command = [sys.executable, "-P", "-m", "trainmover.state.export"]
    command += [str(folder), published_name(found.step), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise JobFailed(
            f"Step {found.step} could not be written to {out}.",
            means="What is there is of no use.",
            do=f"It said: {done.stderr.strip().splitlines()[-1:]}",
        )
    ranks = found.machines * found.nproc
    alike = int(done.stdout)
    if as_json:
        say_json({"step": found.step, "folder": str(out), "ranks": ranks, "alike": alike})
    else:
        say(f"step {found.step} is in {out}; {alike} of {ranks} ranks hold the same")
    return 0
