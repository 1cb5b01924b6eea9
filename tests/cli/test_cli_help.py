"""What a user is told before anything is started: help, examples, exit codes, completion."""

import ast
import os
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import trainmover
from trainmover.cli import exit_codes, verbs
from trainmover.cli.completion import SCRIPTS, commands
from trainmover.cli.examples import EXAMPLES
from trainmover.cli.main import main
from trainmover.errors import JobFailed, PeerLost, ProtocolError, StateMismatch, UserError
from trainmover.launch.signals import STOP_SIGNALS
from trainmover.server.http.endpoints import STOPPED_CODE

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "exit-codes.md"
CLI = Path(trainmover.__file__).parent / "cli"


@pytest.mark.parametrize("verb", sorted(verbs.VERBS))
def test_help_ends_with_examples_that_the_command_takes(verb: str) -> None:
    parser = verbs.parser_of(verb)
    assert 2 <= len(EXAMPLES[verb]) <= 3
    for example in EXAMPLES[verb]:
        program, name, *rest = shlex.split(
            example.removeprefix("source <(").split(">")[0].rstrip(")")
        )
        assert (program, name) == ("trainmover", verb)
        parser.parse_args(rest)
    if verb != "run":  # Its help is torchrun's, and that loads torch: tests/test_docs.py has it.
        assert all(example in parser.format_help() for example in EXAMPLES[verb])


def test_the_help_of_run_is_shown() -> None:
    """With torchrun's options, which only a process of its own shows."""
    said = subprocess.run(
        [sys.executable, "-m", "trainmover", "run", "--help"], capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    assert "--snapshots STEPS" in said.stdout
    assert "in 1 % of the time" in " ".join(said.stdout.split())


@pytest.mark.parametrize("verb", sorted(verbs.VERBS))
def test_a_mistyped_flag_waits_for_nothing_that_only_the_command_needs(verb: str) -> None:
    heavy = {"httpx", "torch", "numpy", "rich", "starlette", "sqlite3", "asyncio"}
    heavy |= {f"trainmover.{room}" for room in ("controller", "server", "journal")}
    code = "import sys; from trainmover.cli.main import main; status = main(sys.argv[1:]); "
    code += f"print(status, sorted({heavy!r} & sys.modules.keys()))"
    said = subprocess.run(
        [sys.executable, "-c", code, verb, "--jsom"], capture_output=True, text=True, check=False
    )
    assert said.stdout == "2 []\n", said.stderr


def test_no_example_is_of_a_command_that_there_is_not() -> None:
    assert EXAMPLES.keys() == verbs.VERBS.keys()


def test_a_mistyped_flag_is_refused_before_anything_heavy_is_loaded() -> None:
    """It is the first thing that many type."""
    code = "import sys; from trainmover.cli.main import main; main(['run', '--machnes', '2']); "
    heavy = ["torch", "matplotlib", "httpx", "sqlite3", "trainmover.journal", "trainmover.server"]
    code += f"sys.exit(' '.join(name for name in {heavy} if name in sys.modules) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Did you mean --machines?" in done.stderr


@pytest.mark.parametrize("verb", sorted(verbs.VERBS))
def test_no_command_loads_torch_or_draws_before_it_is_asked_to(verb: str) -> None:
    assert {"torch", "matplotlib"} & at_module_level(CLI.parent / f"{place(verb)}.py") == set()


def place(verb: str) -> str:
    return verbs.VERBS[verb].module.removeprefix("trainmover.").replace(".", "/")


def at_module_level(path: Path) -> set[str]:
    nodes = ast.parse(path.read_text()).body
    plain = (alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names)
    return {name.partition(".")[0] for name in plain} | {
        (node.module or "").partition(".")[0] for node in nodes if isinstance(node, ast.ImportFrom)
    }


# --- exit codes ---


def test_the_table_is_in_the_reference_and_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    rows = dict(re.findall(r"^\| `?(\w+)`? \| (.*) \|$", PAGE.read_text(), re.MULTILINE))
    assert {code: rows.get(code) for code in exit_codes.MEANINGS} == exit_codes.MEANINGS
    assert main(["help", "exit-codes"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n  {code} " in shown for code in exit_codes.MEANINGS)


def raised(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> int:
    def fail(argv: list[str]) -> int:
        raise error

    monkeypatch.setattr("trainmover.cli.version.main", fail)
    return main(["version"])


def test_every_way_to_end_has_the_status_that_the_table_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    why = {"means": "It was not.", "do": "Nothing."}
    assert raised(UserError("It is wrong.", **why), monkeypatch) == exit_codes.WRONG_CALL
    for kind in (PeerLost, ProtocolError, StateMismatch):
        assert raised(kind("It failed.", **why), monkeypatch) == exit_codes.FAILED
    assert raised(JobFailed("It failed.", means="So."), monkeypatch) == exit_codes.FAILED
    assert raised(JobFailed("It failed.", means="So.", code=7), monkeypatch) == 7
    assert raised(KeyboardInterrupt(), monkeypatch) == exit_codes.INTERRUPTED


def test_signals_end_a_run_with_what_the_table_says() -> None:
    named = {signal.name: str(code) for signal, code in STOP_SIGNALS.items()}
    assert {
        name: name in exit_codes.MEANINGS[code] for name, code in named.items()
    } == dict.fromkeys(named, True)
    assert STOPPED_CODE == exit_codes.TERMINATED


@pytest.mark.parametrize("path", sorted(CLI.rglob("*.py")), ids=lambda path: path.stem)
def test_no_command_returns_a_number_that_the_table_lacks(path: Path) -> None:
    mains = [
        node for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name == "main"
    ]  # fmt: skip
    for node in (node for function in mains for node in ast.walk(function)):
        if isinstance(node, ast.Return) and node.value is not None:
            numbers = [n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant)]
            told = {str(number) for number in numbers if type(number) is int}
            assert told <= exit_codes.MEANINGS.keys()


def test_help_on_a_command_is_its_own_and_on_nothing_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["help", "version"])
    assert "usage: trainmover version" in capsys.readouterr().out
    assert main(["help", "exit-code"]) == 2
    assert "Did you mean exit-codes?" in capsys.readouterr().err


# --- words ---

OURS = re.compile(r"\b(rung|epoch|gate|cut|diverged)\b")
"""Words that mean something else to who trains models, or nothing."""


@pytest.mark.parametrize("path", sorted(CLI.rglob("*.py")), ids=lambda path: path.stem)
def test_what_a_command_says_is_in_the_words_of_the_field(path: Path) -> None:
    tree = ast.parse(path.read_text())
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    said = [
        node.value for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts
    ]  # fmt: skip
    sentences = [one for one in said if " " in one.strip()]
    assert [one for one in sentences if OURS.search(one)] == []


# --- completion ---


def completed(line: str) -> set[str]:
    """What bash offers behind it."""
    words = [*line.split(), *([""] if line.endswith(" ") else [])]
    quoted = " ".join(shlex.quote(word) for word in words)
    script = f"{SCRIPTS['bash'](commands())}\nCOMP_WORDS=({quoted})\nCOMP_CWORD={len(words) - 1}\n"
    script += '_trainmover; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("trainmover st", {"status", "standbys", "stop"}),
        ("trainmover trace --wh", {"--whole"}),
        ("trainmover run --mach", {"--machines"}),
        ("trainmover run --snapshot-copies ", {"1", "2"}),
        ("trainmover run --comm ", {"gloo", "native"}),
        ("trainmover run --stragglers ", {"act", "off", "watch"}),
        ("trainmover run --health ", {"act", "off", "watch"}),
        ("trainmover completion ", {"bash", "fish", "zsh"} | {"-h", "--help"}),
    ],
)
def test_bash_completes_commands_flags_and_values(line: str, offered: set[str]) -> None:
    assert completed(line) == offered


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish here")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("trainmover mov", {"move"}),
        ("trainmover run --snapshot-copies ", {"1", "2"}),
        ("trainmover trace --wh", {"--whole"}),
        ("trainmover completion ", {"bash", "fish", "zsh"}),
    ],
)
def test_fish_completes_them(line: str, offered: set[str]) -> None:
    script = f"{SCRIPTS['fish'](commands())}\ncomplete -C '{line}'"
    done = subprocess.run(["fish", "-N", "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert {offer.split("\t")[0] for offer in done.stdout.splitlines()} == offered


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh here")
@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("trainmover mov", "trainmover move "),
        ("trainmover trace --wh", "trainmover trace --whole "),
        ("trainmover completion z", "trainmover completion zsh "),
    ],
)
def test_zsh_completes_them(tmp_path: Path, line: str, shown: str) -> None:
    """As somebody types it, at a terminal."""
    (tmp_path / "_trainmover").write_text(SCRIPTS["zsh"](commands()))
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="dumb", PS1="", HOME=str(tmp_path))
        os.execlp("zsh", "zsh", "-f", "-i")
    try:
        begin = f"autoload -Uz compinit; compinit -D -u; source {tmp_path}/_trainmover; echo o''n\r"
        os.write(terminal, begin.encode())
        read_until(terminal, "\non\r")
        os.write(terminal, f"{line}\t".encode())
        read_until(terminal, shown)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def read_until(terminal: int, text: str) -> None:
    """Fails after a minute of nothing."""
    seen = ""
    while text not in seen:
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, seen
        seen += os.read(terminal, 65536).decode()


@pytest.mark.parametrize("shell", sorted(SCRIPTS))
def test_a_script_names_every_command_and_flag(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for one in commands():
        assert one.name in script
        for flag in one.flags:
            assert any(name.lstrip("-") in script for name in flag.names)
    if (found := shutil.which(shell)) is not None:
        subprocess.run([found, "-n"], input=script, text=True, check=True)


def test_another_shell_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err
