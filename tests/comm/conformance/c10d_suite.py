"""PyTorch's own tests of a process group, run on stock gloo or on ours.

    python c10d_suite.py [--comm NAME] [--size N] stock|plain|watched [REGEX]

torch ships the class it tests every backend with. The name of each test that passed goes to
standard output, one a line, the rest to standard error; the exit status says whether any failed.
Processes are forked from this one, so torch is imported once.

    stock    torch's own gloo: makes the list that the others are held against
    plain    the groups of `import trainmover.comm.install`
    watched  the same, and every call has a handle that could be drained
"""

import argparse
import os
import re
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from typing import Any

TEST_TIMEOUT_S = 90


def prepare_environment(folder: str, options: argparse.Namespace) -> None:
    """What the class reads from the environment when it is imported and when it runs."""
    for part in ("barrier", "test_dir"):
        Path(folder, part).mkdir()
    os.environ.update(
        BACKEND="gloo",
        WORLD_SIZE=str(options.size),
        TRAINMOVER_COMM=options.comm,
        TEMP_DIR=folder,
        MASTER_ADDR="127.0.0.1",
        OMP_NUM_THREADS="1",
    )


def choose(kind: str) -> None:
    """Decide whose process groups the tests get."""
    if kind == "stock":
        return
    import trainmover.comm.install  # noqa: F401
    from trainmover.comm import groups

    groups.watching = kind == "watched"


def suite_class() -> type[unittest.TestCase]:
    """torch's tests, forked."""
    import torch
    from torch.testing._internal import common_distributed
    from torch.testing._internal.distributed import distributed_test

    torch.set_num_threads(1)
    common_distributed.TIMEOUT_DEFAULT = TEST_TIMEOUT_S
    if not profiler_sees_ends_elsewhere():
        distributed_test.PROFILING_SUPPORTED_BACKENDS.clear()
        distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.clear()
    forked = torch.multiprocessing.get_context("fork").Process

    class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):  # type: ignore[misc,name-defined]
        def setUp(self) -> None:
            super().setUp()
            self._start_processes(forked)

        @property
        def init_method(self) -> str:
            return f"file://{self.file_name}"

    return Suite


def profiler_sees_ends_elsewhere() -> bool:
    """Whether a record shows that ends in another thread than it began in: not with torch 2.11, so
    that calls of the native communicator are no part of a profile there."""
    import torch

    autograd: Any = torch.autograd
    with torch.autograd.profiler.profile() as profile:
        record = autograd._record_function_with_args_enter("a call")
        thread = threading.Thread(target=autograd._record_function_with_args_exit, args=[record])
        thread.start()
        thread.join()
    return any(event.name == "a call" for event in profile.function_events)


class Names(unittest.TestResult):
    """Prints as it goes."""

    def addSuccess(self, test: unittest.TestCase) -> None:
        print(test._testMethodName, flush=True)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        print(f"skipped {test._testMethodName}: {reason[:70]}", file=sys.stderr)

    def _failed(self, test: unittest.TestCase, error: Any) -> None:
        lines = str(error[1]).strip().splitlines() or [repr(error[0])]
        print(f"FAILED {test._testMethodName}: {lines[-1][:200]}", file=sys.stderr, flush=True)

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        super().addError(test, err)
        self._failed(test, err)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addFailure(test, err)
        self._failed(test, err)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["stock", "plain", "watched"])
    parser.add_argument("wanted", nargs="?", default="")
    parser.add_argument("--comm", default="gloo")
    parser.add_argument("--size", type=int, default=4)
    return parser.parse_args()


def main(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder  # torch's tests leave files of theirs behind.
        prepare_environment(folder, options)
        choose(options.kind)
        cases = suite_class()
        names = [
            n for n in sorted(dir(cases)) if n.startswith("test_") and re.search(options.wanted, n)
        ]
        result = Names()
        unittest.TestSuite(cases(name) for name in names).run(result)
    print(f"ran {result.testsRun}, skipped {len(result.skipped)}", file=sys.stderr)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(parsed()))
