# SPDX-License-Identifier: Apache-2.0
"""Process of `trainmover check`: runs the script once, as the run or as a standby.

    python -m trainmover.check FOLDER ROLE TURNS WARM_UP MODULE SCRIPT [ARGUMENT ...]

The environment names the rank, as torchrun's does. FOLDER takes what a run leaves for the standby
(`capture`, `after`, `losses`), and the result of this process as `ROLE.json`. MODULE is 1 if SCRIPT
is the name of a module.
"""

import json
import os
import socket
import sys
import tempfile
import traceback
import types
from pathlib import Path
from typing import Any

import torch
import torch.utils.data

from trainmover.check.result import Result, result_of
from trainmover.check.session import Finished, Handover, Session
from trainmover.graph.caches import keep_entries_in_python
from trainmover.graph.layout import carry
from trainmover.graph.script import Script
from trainmover.graph.wire import from_bytes, to_bytes
from trainmover.loops.importer import LoopFinder, main_code
from trainmover.loops.turns import set_hooks
from trainmover.sandbox.process.modules import is_own_file
from trainmover.sandbox.process.overlay import Overlay
from trainmover.tracebacks import print_exception

RUN, STANDBY = "run", "standby"
_SEED_OF_STANDBY = 20_260_101
"""A standby begins with other random numbers than the run: it must not need the same."""


def main(argv: list[str]) -> None:
    """Run the script under check, and write the result."""
    folder, role = Path(argv[0]), argv[1]
    turns, warm_up, is_module = int(argv[2]), int(argv[3]), argv[4] == "1"
    _load_in_this_process()
    carry("trainmover.worker.api", "trainmover.worker.data")  # No job keeps the place in the data.
    if role == STANDBY:
        torch.manual_seed(_SEED_OF_STANDBY)
        _be_another_machine(folder)
    main_module = types.ModuleType("__main__")
    sys.modules["__main__"] = main_module
    script = Script(is_own_file)
    keep_entries_in_python(script)
    session = _session(folder, role, script, vars(main_module), turns, warm_up)
    overlay = Overlay()
    overlay.begin()
    try:
        error = _run(session, main_module, argv[5:], is_module)
    finally:
        overlay.end()
    result = result_of(session, error)
    (folder / f"{role}.json").write_text(json.dumps(result.as_dict()))
    if role == RUN and session.captured is not None and session.after is not None:
        _leave(folder, session, result)
    sys.stdout.flush()
    os._exit(0)  # Threads and loaders of the script need not end well.


def _session(
    folder: Path, role: str, script: Script, names: dict[str, Any], turns: int, warm_up: int
) -> Session:
    taken = None
    if role == STANDBY:
        captured = from_bytes((folder / "capture").read_bytes())
        after = from_bytes((folder / "after").read_bytes())
        taken = Handover(captured, after, json.loads((folder / "losses").read_text()))
    return Session(script, names, warm_up=warm_up, turns=turns, taken=taken)


def _leave(folder: Path, session: Session, result: Result) -> None:
    """Leave for a standby what it restores, and what it must come to."""
    assert session.captured is not None
    assert session.after is not None
    (folder / "capture").write_bytes(to_bytes(session.captured))
    (folder / "after").write_bytes(to_bytes(session.after))
    (folder / "losses").write_text(json.dumps(result.losses))


def _run(session: Session, module: types.ModuleType, argv: list[str], is_module: bool) -> str:
    """Run the script until the session has seen enough; returns what it raised, "" if nothing."""
    finder = LoopFinder()
    finder.install()
    set_hooks(begin=session.loop_begins, turn=session.turn)
    stop = session.begin()
    try:
        folder = os.getcwd() if is_module else os.path.dirname(os.path.abspath(argv[0]))
        sys.path[0] = folder
        code, names = main_code(argv[0], is_module=is_module)
        vars(module).update(names)
        sys.argv = [str(names["__file__"]), *argv[1:]]
        exec(code, vars(module))
    except Finished:
        return ""
    except SystemExit as error:
        return "" if not error.code else f"SystemExit: {error.code}"
    except BaseException as error:  # noqa: BLE001  The script's outermost frame.
        print_exception(error)
        return traceback.format_exception_only(error)[-1].strip()
    finally:
        stop()
        set_hooks()
        finder.remove()
    return ""


def _be_another_machine(folder: Path) -> None:
    """Seem to be another machine, as a standby is: its name and folder must stay its own."""
    name, temporary = "standby-of-check", folder / "temporary"
    temporary.mkdir()
    os.environ.update(HOSTNAME=name, TMPDIR=str(temporary))
    tempfile.tempdir = str(temporary)
    socket.gethostname = lambda: name


def _load_in_this_process() -> None:
    """Have data loaders load their batches here: loader processes cannot be looked into."""
    none: Any = property(lambda self: 0, lambda self, number: None)
    torch.utils.data.DataLoader.num_workers = none


if __name__ == "__main__":
    main(sys.argv[1:])
