"""Runs the user's script in this process, once or several times."""

import gc
import os
import runpy
import sys
import traceback
from dataclasses import dataclass

import torch.distributed as dist

from trainmover.comm import groups
from trainmover.worker.member import Unwind


@dataclass(frozen=True)
class Ended:
    """How a run of the script ended.

    code       exit status it asked for
    error      one line, "" unless it raised; `traceback` without our own frames at its top
    unwound    by us: the sandbox had seen enough, or the rank moved
    """

    code: int = 0
    error: str = ""
    traceback: str = ""
    unwound: bool = False


def run_script(argv: list[str], *, module: bool) -> Ended:
    """Run it as `__main__`, as python would. Never raises what the script raises."""
    sys.argv = list(argv)
    try:
        if module:
            runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
        else:
            _run_file(argv[0])
    except Unwind:
        return Ended(unwound=True)
    except SystemExit as exit_:
        return _from_exit(exit_)
    except BaseException as error:  # noqa: BLE001  The script's outermost frame: becomes a fact.
        last = traceback.format_exception_only(error)[-1].strip()
        return Ended(code=1, error=last, traceback=_trimmed(error))
    return Ended()


def _run_file(path: str) -> None:
    folder = os.path.dirname(os.path.abspath(path))
    if sys.path[0] != folder:
        sys.path.insert(0, folder)
    runpy.run_path(path, run_name="__main__")


def _from_exit(exit_: SystemExit) -> Ended:
    """As python does: None is 0, a number is itself, anything else is printed and 1."""
    if exit_.code is None:
        return Ended()
    if isinstance(exit_.code, int):
        return Ended(code=exit_.code & 0xFF)
    print(exit_.code, file=sys.stderr)
    return Ended(code=1)


def _trimmed(error: BaseException) -> str:
    """The traceback from the script's first frame on; all of it if there is none."""
    tb = error.__traceback__
    while tb is not None and _is_ours(tb.tb_frame.f_code.co_filename):
        tb = tb.tb_next
    return "".join(traceback.format_exception(type(error), error, tb or error.__traceback__))


def _is_ours(filename: str) -> bool:
    return filename in ("<frozen runpy>", runpy.__file__, __file__)


def clean_up() -> None:
    """Make the process fit for another run: groups gone, garbage collected, stay warm."""
    if dist.is_initialized():
        dist.destroy_process_group()
    groups.close()
    gc.collect()
