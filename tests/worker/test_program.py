"""A script is run as python would run it, as often as needed, and its end becomes a value."""

import multiprocessing
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch.distributed as dist

from trainmover.loops.turns import Retry
from trainmover.torch_internals import loaders
from trainmover.worker.program import Ended, clean_up, run_script
from trainmover.worker.standing import Unwind

Run = Callable[..., Ended]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs the text of a script; what a script does to sys is undone."""
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    modules = set(sys.modules)

    def run(text: str, *arguments: str, folder: str = "") -> Ended:
        path = tmp_path / folder / "train.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return run_script([str(path), *arguments], module=False)

    yield run
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def test_a_script_that_ends_is_code_0(run: Run) -> None:
    assert run("x = 1") == Ended()


POSITION = """
import sys
from trainmover.loops.place import active_loops
for number, letter in enumerate(iter("abc")):
    if letter == "b":
        [active] = active_loops(sys._getframe())
        sys.exit(10 * active.loop.turn_count + active.loop.iterator.index)
"""


def test_how_far_a_loop_of_a_script_is_can_be_read(run: Run) -> None:
    assert run(POSITION) == Ended(code=22)


@pytest.mark.parametrize("name", ["own_run", "own_pack"])
def test_a_module_runs_as_python_would_run_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / ("own_pack/__main__.py" if name == "own_pack" else "own_run.py")
    path.parent.mkdir(exist_ok=True)
    (tmp_path / "own_pack").mkdir(exist_ok=True)
    (tmp_path / "own_pack" / "__init__.py").touch()
    path.write_text(f"import sys\nassert sys.argv[1:] == ['x']\n{POSITION}")
    monkeypatch.syspath_prepend(tmp_path)
    main = sys.modules["__main__"]
    assert run_script([name, "x"], module=True) == Ended(code=22)
    assert sys.modules["__main__"] is main


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("sys.exit()", 0),
        ("sys.exit(None)", 0),
        ("sys.exit(0)", 0),
        ("sys.exit(3)", 3),
        ("sys.exit(-1)", 255),
        ("sys.exit(256)", 0),
        ("sys.exit(True)", 1),
        ("sys.exit('no data')", 1),
        ("sys.exit((1, 2))", 1),
        ("raise SystemExit(4)", 4),
        ("exit(5)", 5),
    ],
)
def test_every_form_of_exit(run: Run, call: str, code: int) -> None:
    assert run(f"import sys; {call}") == Ended(code=code)


@pytest.mark.parametrize(
    ("error", "device"),
    [
        ("AcceleratorError('CUDA error: uncorrectable ECC error encountered')", True),
        ("AcceleratorError('CUDA error: unspecified launch failure')", True),
        ("AcceleratorError('CUDA error: device-side assert triggered')", False),
        ("AcceleratorError('CUDA error: an illegal memory access was encountered')", False),
        ("OutOfMemoryError('CUDA out of memory. Tried to allocate 2.00 MiB.')", False),
    ],
)
def test_a_device_that_fails_is_told_from_a_script_that_does(
    run: Run, error: str, device: bool
) -> None:
    ended = run(f"import torch; raise torch.{error}")
    assert (ended.code, ended.device) == (1, device)


def test_a_message_of_exit_goes_to_stderr(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run("import sys; sys.exit('no data')")
    assert capsys.readouterr().err == "no data\n"


def test_a_script_that_raises_gives_error_and_traceback(run: Run) -> None:
    ended = run("def f():\n    raise ValueError('no')\n\nf()\n")
    assert (ended.code, ended.error, ended.unwound) == (1, "ValueError: no", False)
    assert ended.traceback.startswith("Traceback (most recent call last):")
    assert ended.traceback.endswith("ValueError: no\n")


@pytest.mark.parametrize("folder", ["", "runpy_jobs"])
def test_the_traceback_begins_in_the_script(run: Run, folder: str) -> None:
    lines = run("def f():\n    raise ValueError('no')\n\nf()\n", folder=folder).traceback.split(
        "\n"
    )
    assert lines[1].endswith('train.py", line 4, in <module>')
    assert "program.py" not in "".join(lines)
    assert "<frozen runpy>" not in "".join(lines)


def test_an_error_without_a_frame_of_the_script_keeps_its_traceback(run: Run) -> None:
    ended = run("1 +")
    assert ended.error == "SyntaxError: invalid syntax"
    assert "train.py" in ended.traceback


def test_a_script_that_is_not_there_is_an_error() -> None:
    ended = run_script(["/nowhere/train.py"], module=False)
    assert ended.code == 1
    assert ended.error.startswith("FileNotFoundError")


@pytest.mark.parametrize("raised", ["KeyboardInterrupt", "GeneratorExit"])
def test_nothing_that_a_script_raises_gets_out(run: Run, raised: str) -> None:
    assert run(f"raise {raised}").error == raised


def test_an_unwound_script_has_no_code_and_no_error(run: Run) -> None:
    text = (
        "from trainmover.worker.standing import Unwind\n"
        "try:\n    raise Unwind\nexcept Exception:\n    print('swallowed')\n"
    )
    assert run(text) == Ended(unwound=True)


def test_what_unwinds_is_no_exception_that_a_script_catches() -> None:
    assert not issubclass(Unwind, Exception)
    assert not issubclass(Retry, Exception)


def test_a_script_is_main_with_its_arguments(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run("import sys\nif __name__ == '__main__': print(sys.argv[1:], __file__)", "--lr", "3e-4")
    shown = capsys.readouterr().out
    assert shown.startswith("['--lr', '3e-4']")
    assert shown.strip().endswith("train.py")


def test_a_script_finds_modules_beside_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "beside_the_script.py").write_text("value = 4")
    assert run("import sys, beside_the_script as b; sys.exit(b.value)").code == 4


def test_each_run_starts_from_nothing(run: Run) -> None:
    text = "import sys\nassert 'seen' not in globals()\nseen = True\n"
    assert [run(text), run(text)] == [Ended(), Ended()]


def test_a_module_is_run_as_main(run: Run, tmp_path: Path) -> None:
    package = tmp_path / "job_in_a_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "train.py").write_text("import sys\nassert __name__ == '__main__'\nsys.exit(6)")
    sys.path.insert(0, str(tmp_path))
    assert run_script(["job_in_a_package.train"], module=True).code == 6


def test_the_traceback_of_a_module_begins_in_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "job_that_raises.py").write_text("raise ValueError('no')")
    sys.path.insert(0, str(tmp_path))
    ended = run_script(["job_that_raises"], module=True)
    assert ended.traceback.split("\n")[1].endswith('job_that_raises.py", line 1, in <module>')


def test_clean_up_leaves_no_group_and_can_be_repeated() -> None:
    clean_up(), clean_up()
    assert not dist.is_initialized()


LEAVES_A_PASS = """
import torch.utils.data
from {module} import {loader}
batches = iter({loader}(list(range(64)), 4, num_workers=1))
next(batches)
def keeps_the_globals(): return batches
"""


@pytest.mark.parametrize(
    ("module", "loader"),
    [
        ("torch.utils.data", "DataLoader"),
        ("torchdata.stateful_dataloader", "StatefulDataLoader"),
    ],
)
def test_processes_of_a_loader_that_is_left_end_at_once(
    run: Run, module: str, loader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[multiprocessing.Process] = []
    monkeypatch.setattr(multiprocessing.Process, "terminate", killed.append)
    assert run(LEAVES_A_PASS.format(module=module, loader=loader)) == Ended()
    assert multiprocessing.active_children()
    clean_up()
    assert not multiprocessing.active_children()
    assert not killed  # torch does so when it has waited for five seconds.


KILLS_LOADER = """
import os, signal
from torch.utils.data import DataLoader
passes = iter(DataLoader(range(1000), num_workers=2))
next(passes)
os.kill(passes._workers[1].pid, signal.{name})
list(passes)
"""


@pytest.mark.parametrize(("name", "is_lost"), [("SIGKILL", True), ("SIGABRT", False)])
def test_a_loader_process_that_was_killed_is_no_fault_of_the_script(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str, is_lost: bool
) -> None:
    with monkeypatch.context() as patch:
        checks = loaders.signal_handling._error_if_any_worker_fails
        patch.setattr(loaders.signal_handling, "_error_if_any_worker_fails", checks)
        loaders.watch_processes()
        ended = run(KILLS_LOADER.format(name=name))
    assert ended.error
    assert ended.killed.endswith(" was killed") is is_lost
    clean_up()


def test_a_loader_that_dies_after_the_script_is_noted_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. ")

    signals = loaders.signal_handling
    monkeypatch.setattr(signals, "_error_if_any_worker_fails", fails)
    loaders.watch_processes()
    with loaders.told_by_signal(), pytest.raises(RuntimeError, match="pid 7"):
        signals._error_if_any_worker_fails()
    loaders.end_passes()
    signals._error_if_any_worker_fails()
    assert loaders.killed_process() == 7
    loaders.end_passes()
