# SPDX-License-Identifier: Apache-2.0
"""Runs the user's script in this process, once or several times."""

import gc
import os
import sys
import traceback
import types
from dataclasses import dataclass

import torch.distributed as dist

import trainmover
from trainmover.comm import groups
from trainmover.comm.failures import is_of_device
from trainmover.loops.importer import main_code
from trainmover.sandbox.process.modules import is_own_file
from trainmover.state.class_caches import forget_classes
from trainmover.state.kinds.parallel.hooks import forget_hooks
from trainmover.torch_internals import loaders
from trainmover.worker.caches import forget_groups
from trainmover.worker.keep import compiled
from trainmover.worker.killed_loader import killed_loader
from trainmover.worker.standing import Unwind

_PACKAGE = os.path.join(os.path.dirname(trainmover.__file__), "")


@dataclass(frozen=True)
class Ended:
    """How a run of the script ended.

    code       exit status it asked for
    error      one line, "" unless it raised; `traceback` without our own frames at its top
    where      file and line of the script that it raised at, "" if that is not known
    unwound    by us: the sandbox had seen enough, or the rank moved
    device     it raised since the device under it has failed, not the script
    killed     it raised since a process of a loader was killed: which, and by what; "" if not
    """

    code: int = 0
    error: str = ""
    traceback: str = ""
    where: str = ""
    unwound: bool = False
    device: bool = False
    killed: str = ""


def run_script(argv: list[str], *, module: bool) -> Ended:
    """Run it as `__main__`, as python would. Never raises what the script raises."""
    try:
        with loaders.told_by_signal():
            return _ran(argv, module=module)
    except BaseException as error:  # noqa: BLE001  The script's outermost frame: becomes a fact.
        return Ended(
            code=1,
            error=traceback.format_exception_only(error)[-1].strip(),
            traceback=_trimmed(error),
            where=place_of(traceback.extract_tb(error.__traceback__)),
            device=is_of_device(error),
            killed=killed_loader(error),
        )


def _ran(argv: list[str], *, module: bool) -> Ended:
    sys.argv = list(argv)
    try:
        if not module:
            _find_beside(argv[0])
        code, names = main_code(argv[0], is_module=module, repeats=False)
        sys.argv[0] = str(names["__file__"])
        _run(code, names)
    except Unwind:
        return Ended(unwound=True)
    except SystemExit as exit_:
        return _from_exit(exit_)
    return Ended()


def _find_beside(path: str) -> None:
    """Have modules that lie beside a script found first."""
    folder = os.path.dirname(os.path.abspath(path))
    if sys.path[0] != folder:
        sys.path.insert(0, folder)


def _run(code: types.CodeType, names: dict[str, object]) -> None:
    """Run code as the module `__main__`; afterwards that is what it was."""
    main, before = types.ModuleType("__main__"), sys.modules["__main__"]
    vars(main).update({"__package__": ""} | names)
    sys.modules["__main__"] = main
    try:
        exec(code, vars(main))
    finally:
        sys.modules["__main__"] = before


def _from_exit(exit_: SystemExit) -> Ended:
    """As python does: None is 0, a number is itself, anything else is printed and 1."""
    if exit_.code is None:
        return Ended()
    if isinstance(exit_.code, int):
        return Ended(code=exit_.code & 0xFF)
    print(exit_.code, file=sys.stderr)
    return Ended(code=1)


def _trimmed(error: BaseException) -> str:
    """The traceback without the frames that are ours or runpy's, also of what caused it."""
    exception: traceback.TracebackException | None = traceback.TracebackException.from_exception(
        error
    )
    shown = exception
    while exception is not None:
        frames = [frame for frame in exception.stack if not _is_ours(frame.filename)]
        exception.stack = traceback.StackSummary.from_list(frames)
        exception = exception.__cause__ or exception.__context__
    assert shown is not None
    return "".join(shown.format())


def place_of(stack: traceback.StackSummary) -> str:
    """The innermost line that is the script's own, neither ours nor a library's; "" if none is."""
    for frame in reversed(stack):
        path = frame.filename
        ours = path.startswith(_PACKAGE) or not os.path.isfile(path)
        if not ours and is_own_file(path):
            return f"{os.path.basename(path)} line {frame.lineno}"
    return ""


def _is_ours(filename: str) -> bool:
    runs_it = filename == "<frozen importlib._bootstrap>"
    return runs_it or filename.startswith(os.path.dirname(__file__) + os.sep)


def clean_up(*, last: bool = False) -> None:
    """Groups gone, garbage collected; and unless it was the last one, fit for another run."""
    loaders.end_passes()
    if dist.is_initialized():
        dist.destroy_process_group()
    groups.close()
    if not last:
        forget_hooks()
        forget_groups()
        forget_classes()
        compiled.forget()
    gc.collect()


def flush_output() -> None:
    """Let everything the script has printed be read."""
    sys.stdout.flush()
    sys.stderr.flush()
