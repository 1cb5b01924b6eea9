"""Every torchrun flag means what it means there, or is refused with a sentence."""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from host_tools import environment
from torch.distributed.run import get_args_parser

from trainmover.cli.run import torchruns
from trainmover.cli.run.flags import parse
from trainmover.cli.run.parser import HONOURED, REFUSED, WITHOUT_EFFECT, known_flags, parser
from trainmover.cli.run.torchruns import torchruns_parser
from trainmover.errors import UserError
from trainmover.launch.checkpoints import CheckpointOptions
from trainmover.launch.run_job import RunOptions
from trainmover.protocol.messages import LogSpec


@pytest.fixture(autouse=True)
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")


def options(*flags: str) -> RunOptions:
    return parse([*flags, "train.py", "--lr", "1"]).options


def test_every_flag_of_this_torchrun_has_its_place_in_the_table() -> None:
    known = {action.dest for action in get_args_parser()._actions} - {"help"}
    assert known <= HONOURED | WITHOUT_EFFECT.keys() | REFUSED.keys()


def test_every_flag_we_honour_can_be_given() -> None:
    assert {action.dest for action in parser()._actions} >= HONOURED


def test_its_parser_is_had_without_torch() -> None:
    """A run keeps in memory what it has imported."""
    program = "import sys, trainmover.launch.supervise; from trainmover.cli.run.flags import parse"
    program += "; parse(['--machines', '2', '--nproc-per-node', '2', 'train.py'])"
    program += "; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], env=environment(), check=False)
    assert done.returncode == 0


def test_its_parser_is_the_one_that_torchrun_has() -> None:
    def seen(parser: argparse.ArgumentParser) -> list[dict[str, object]]:
        """Its actions; what was made twice by name."""
        return [
            vars(action)
            | {"class": type(action).__name__, "container": None}
            | {"type": getattr(action.type, "__name__", None)}
            for action in parser._actions
        ]

    assert seen(torchruns_parser()) == seen(get_args_parser())
    assert torchruns_parser().format_help() == get_args_parser().format_help()


def test_what_torchrun_s_parser_uses_besides_is_had_from_its_module(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = "def get_args_parser():\n    return [planted, len(ArgumentParser().prog) > 0]\n"
    (tmp_path / "run.py").write_text(source)
    kept = torchruns._file
    monkeypatch.setattr("torch.distributed.run.planted", 7, raising=False)
    monkeypatch.setattr(
        torchruns,
        "_file",
        lambda module: tmp_path / "run.py" if module.endswith("distributed.run") else kept(module),
    )
    assert torchruns_parser() == [7, True]


def test_defaults() -> None:
    made = options()
    assert made.argv == ["train.py", "--lr", "1"]
    assert (made.machines, made.standbys, made.nproc, made.restarts_max) == (1, 0, 1, 3)
    assert made.log == LogSpec()
    assert made.worker == ()
    assert (made.record, made.readiness, made.wait_s) == ("moments", "held", 0)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--record", "some"], "--record some is not a way to keep a record"),
        (["--readiness", "hot"], "--readiness hot is not a state"),
        (["--wait-for-machine", "-1"], "--wait-for-machine must be at least 0"),
        (["--patience", "5"], "--patience 5 is shorter than the controller needs"),
        (["--patience", "nan"], "--patience nan is shorter than the controller needs"),
        (["--fingerprint-every", "-1"], "--fingerprint-every must be at least 0"),
        (["--snapshots", "0"], "--snapshots 0 does not say when to keep snapshots"),
        (["--snapshots", "often"], "--snapshots often does not say when to keep snapshots"),
        (["--on-nan", "pray"], "--on-nan pray is nothing that can be done"),
        (["--no-standby", "pray"], "--no-standby pray is nothing that can be done"),
        (["--no-standby", "checkpoint"], "--no-standby checkpoint needs a folder"),
        (["--false-alarms", "0"], "--false-alarms 0 is no number of alarms in a week"),
        (["--false-alarms", "1e9"], "--false-alarms 1e+09 is no number of alarms in a week"),
        (["--health", "pray"], "--health pray is nothing that can be done"),
        (["--stragglers", "pray"], "--stragglers pray is nothing that can be done"),
        (["--on-divergence", "pray"], "--on-divergence pray is nothing that can be done"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(flags: list[str], words: str) -> None:
    with pytest.raises(UserError) as error:
        options(*flags)
    assert words in str(error.value)
    assert "Nothing was started." in str(error.value)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--nnodes", "3", "--nproc-per-node", "2"], {"machines": 3, "nproc": 2}),
        (["--nnodes=2:2"], {"machines": 2}),
        (["--machines", "4", "--standbys", "1"], {"machines": 4, "standbys": 1}),
        (["--nnodes", "2", "--machines", "2", "--standby=2"], {"machines": 2, "standbys": 2}),
        (["--max-restarts", "0", "--role", "actor"], {"restarts_max": 0, "role": "actor"}),
        (["--shutdown-timeout", "9", "--run-id", "x"], {"shutdown_s": 9, "run_id": "x"}),
        (["--record", "full", "--readiness", "warm"], {"record": "full", "readiness": "warm"}),
        (["--wait-for-machine", "60"], {"wait_s": 60}),
        (["--no-standby", "checkpoint", "--resume", "/kept"], {"no_standby": "checkpoint"}),
        (["--snapshots", "auto"], {"snapshot_every": None}),
        (["--snapshots", "off"], {"snapshot_every": 0}),
        (["--snapshots", "20"], {"snapshot_every": 20}),
        (["--state-bandwidth", "500MB/s"], {"state_bandwidth": 500_000_000}),
        (["--state-bandwidth", "1.5GiB/s"], {"state_bandwidth": 3 * 2**29}),
        (["--state-bandwidth", "10Gbit/s"], {"state_bandwidth": 1_250_000_000}),
        (
            ["--on-divergence", "replace", "--fingerprint-every", "50"],
            {"on_divergence": "replace", "fingerprint_every": 50},
        ),
        (["--on-nan", "stop", "--no-watch"], {"on_nan": "stop", "watch": False}),
        (["--stragglers", "act"], {"stragglers": "act"}),
        (["--health", "act"], {"health": "act"}),
        ([], {"health": "off"}),
        ([], {"stragglers": "watch"}),
        (["--false-alarms", "0.5"], {"false_alarms": 0.5, "watch": True}),
        (["--standalone", "--monitor-interval", "5"], {"machines": 1}),
    ],
)
def test_what_is_honoured(flags: list[str], expected: dict[str, Any]) -> None:
    made = options(*flags)
    assert {name: getattr(made, name) for name in expected} == expected


def test_checkpoints() -> None:
    made = options("--checkpoint", "kept", "--checkpoint-every", "7", "--resume", "old").checkpoints
    assert made == CheckpointOptions(folder=Path("kept"), every=7, keep=3, resume=Path("old"))
    with pytest.raises(UserError, match="--keep-checkpoints must be at least 1"):
        options("--keep-checkpoints", "0")


def test_a_module_needs_no_file() -> None:
    made = parse(["-m", "some.module", "-x"]).options
    assert (made.module, made.argv) == (True, ["some.module", "-x"])


def given(name: str) -> list[str]:
    """A command line on which a flag has another value than its default."""
    (action,) = [action for action in parser()._actions if action.dest == name]
    flag = action.option_strings[0]
    if action.nargs == 0:
        return [flag]
    value = (list(action.choices) or [""])[-1] if action.choices else "7"
    return [f"{flag}={value}"]


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_refused_says_why(name: str) -> None:
    with pytest.raises(UserError) as caught:
        options(*given(name))
    assert REFUSED[name] in caught.value.happened


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--nnodes", "1:4"], "not a number"),
        (["--nnodes", "2", "--machines", "3"], "contradict"),
        (["--machines", "0"], "at least 1"),
        (["--standbys", "-1"], "at least 0"),
        (["--nproc-per-node", "zero"], "cannot be used"),
        (["--nproc-per-node", "0"], "at least 1"),
        (["--redirects", "9"], "which streams"),
        (["--local-ranks-filter", "a"], "list of numbers"),
        (["--api-port", "http"], "invalid int"),
        (["--api-port", "65536"], "not a port"),
        (["--api-port", "-1"], "not a port"),
        (["--shutdown-timeout", "-1"], "at least 0"),
        (["--state-bandwidth", "fast"], "is not a rate"),
        (["--state-bandwidth", "10KB/s"], "less than 1MB/s"),
        (["--comm", "nccl"], "no communicator"),
        (["--frobnicate"], "no script"),
    ],
)
def test_what_cannot_be_meant_is_a_user_error(flags: list[str], said: str) -> None:
    with pytest.raises(UserError, match=r"(?i)" + said):
        options(*flags) if flags != ["--frobnicate"] else parse(["nothing.py"])


def test_only_the_script_is_missing_from_an_empty_line() -> None:
    with pytest.raises(UserError, match=r"required: training_script\.\n"):
        parse(["--machines", "2"])


def test_an_environment_variable_of_torchrun_counts_like_its_flag(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PET_NNODES", "2")
    monkeypatch.setenv("PET_MAX_RESTARTS", "9")
    assert (options().machines, options().restarts_max) == (2, 9)
    monkeypatch.setenv("PET_RDZV_BACKEND", "c10d")
    with pytest.raises(UserError, match="PET_RDZV_BACKEND is not supported"):
        options()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--redirects", "3"], LogSpec(log_dir="/l", redirects={0: 3, 1: 3})),
        (["--tee", "0:1,1:2"], LogSpec(log_dir="/l", tee={0: 1, 1: 2})),
        (["--local-ranks-filter", "1"], LogSpec(log_dir="/l", show=[1, 3])),
        (
            ["--tee", "3", "--local-ranks-filter", "0"],
            LogSpec(log_dir="/l", tee={0: 3}, redirects={1: 3}, show=[0, 2]),
        ),
    ],
)
def test_streams(flags: list[str], expected: LogSpec) -> None:
    sized = ["--machines", "2", "--nproc-per-node", "2", "--log-dir", "/l"]
    assert options(*sized, *flags).log == expected


def test_streams_without_a_directory_get_one() -> None:
    log_dir = options("--tee", "1").log.log_dir
    assert log_dir is not None
    Path(log_dir).rmdir()


def test_what_is_looked_at_without_torch_knows_torchrun_s_flags() -> None:
    """Names, short ones, and whether a value follows."""
    ours = known_flags()._option_string_actions
    for action in get_args_parser()._actions:
        for name in action.option_strings:
            assert (ours[name].nargs == 0) == (action.nargs == 0), name


def of_python(source: str) -> subprocess.CompletedProcess[str]:
    """What comes of it in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, env=environment()
    )


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        (["--machins", "2", "train.py"], "--machines"),
        (["--nproc_pre_node=2", "train.py"], "--nproc_per_node"),
        (["--standbys", "1", "--rezume", "kept", "train.py"], "--resume"),
    ],
)
def test_a_mistyped_flag_is_told_before_torch_is_loaded(argv: list[str], meant: str) -> None:
    source = (
        "import sys\n"
        "from trainmover.cli.main import main\n"
        f"status = main(['run', *{argv!r}])\n"
        "heavy = {'torch', 'asyncio', 'httpx', 'rich'} & set(sys.modules)\n"
        "print(status, heavy or 'light')\n"
    )
    done = of_python(source)
    assert done.returncode == 0
    assert done.stdout == "2 light\n"
    assert f"Did you mean {meant}?" in done.stderr
    assert len(done.stderr.splitlines()) == 3


def test_without_torch_run_says_so(tmp_path: Path) -> None:
    source = (
        "import importlib.util, sys\n"
        "found = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *a: None if name == 'torch' else found(name, *a)\n"
        "from trainmover.cli.main import main\n"
        "sys.exit(main(['run', '-m', 'train']))\n"
    )
    done = of_python(source)
    assert done.returncode == 2
    assert done.stderr.startswith("trainmover: There is no torch in this Python.\n")
    assert len(done.stderr.splitlines()) == 3


def test_resume_auto_is_a_word_and_needs_a_folder() -> None:
    made = options("--checkpoint", "kept", "--resume", "auto").checkpoints
    assert (made.folder, made.resume, made.again) == (Path("kept"), None, True)
    with pytest.raises(UserError, match="needs a folder in which to look"):
        options("--resume", "auto")


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        (
            "import torch",
            ["--machines", "2", "--lr", "1", "--standbys=1"],
            "what comes after {script} goes to the script: --machines, --standbys=1. "
            "If trainmover is meant: trainmover run --machines 2 --standbys=1 {script}",
        ),
        ("p.add_argument('--machines')", ["--machines", "2"], ""),
        ("p.add_argument('--run_dir')", ["--run-dir", "here"], ""),
        ("import torch", ["--lr", "1", "machines"], ""),
        (
            "import torch",
            ["--json"],
            "what comes after {script} goes to the script: --json. "
            "If trainmover is meant: trainmover run --json {script}",
        ),
    ],
)
def test_flags_behind_the_script_that_it_does_not_know_are_told_of(
    text: str, arguments: list[str], said: str, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(text)
    told = parse([str(script), *arguments])
    assert told.slip == said.format(script=script)
    assert told.options.argv == [str(script), *arguments]
