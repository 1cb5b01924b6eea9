# SPDX-License-Identifier: Apache-2.0
"""A script of ours, with what trainmover takes of its main thread written to BENCH_DIR.

    own_time.py gpt --steps 200         examples/gpt.py
    own_time.py modules --steps 200     bench/many_modules.py

A line a step: rank, step, our nanoseconds on the main thread by its own clock, our Python calls,
and nanoseconds of all threads of the process, the script's own included. Ours is what lies inside
of a fetch, a step, an update and a report, without the script's function and the loader's `next`.
Calls are counted from the step BENCH_CALLS_FROM on, and there the times mean nothing; which
functions they were lies beside. Under torchrun there is nothing of ours, and only the last number
counts. This file is run from a copy in a folder `site-packages`, as what is installed: or its own
variables would be taken for the script's.
"""

import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType

from bench import many_modules
from examples import gpt
from trainmover.lifeline import die_with

SCRIPTS = {"gpt": gpt.main, "modules": many_modules.main}


def load_clock() -> ModuleType:
    """Return the module of the clock, by a name of trainmover's."""
    path = Path(many_modules.__file__).with_name("own_clock.py")
    spec = importlib.util.spec_from_file_location("trainmover.own_clock", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Run the script under the clock."""
    by_torchrun = "TRAINMOVER_RUN_ID" not in os.environ
    if by_torchrun:
        die_with(os.getppid())  # torchrun's agent leaves its workers behind if it is killed.
    path = Path(os.environ["BENCH_DIR"]) / f"own.{os.getpid()}.steps"
    script = SCRIPTS[sys.argv.pop(1)]
    counted = int(os.environ.get("BENCH_CALLS_FROM", "-1"))
    clock = load_clock().start(path, counted)
    script()
    path.with_suffix(".functions").write_text(json.dumps(clock.functions.most_common()))
    if by_torchrun:
        os._exit(0)  # gloo's threads abort one interpreter in ten that ends beside them.


if __name__ == "__main__":
    main()
