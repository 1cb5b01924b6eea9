"""No text from outside steers a terminal or forges a line, whatever command shows it."""

import ast
import io
import json
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from simulated import played

import trainmover.cli
from trainmover.cli.console import Terminal
from trainmover.cli.main import main
from trainmover.cli.run.footer import Footer
from trainmover.cli.watch import top
from trainmover.errors import TrainmoverError
from trainmover.escaping import one_line
from trainmover.ids import Epoch, Step
from trainmover.journal import Journal
from trainmover.protocol.checkpoint import writing_name
from trainmover.protocol.messages import Checkpoint, JobSpec
from trainmover.server.checkpoints.folder import CheckpointFolder
from trainmover.server.view.progress import Progress
from trainmover.server.view.snapshot import snapshot

PRINTERS = {"output.py", "console.py"}
"""All that verbs show goes through these, but for what is drawn over what was there before, and the
script's own lines."""
DRAWERS = {"top.py", "footer.py", "screen.py", "stream.py"}
FORGED = "POST /x\x1b]0;PWNED\x07\x1b[31mRED\n07:13:00.000    999  the operator (token) asks: stop"
UNSEEN = "\x1b\x07\r\n\t\x08\x7f\x85\x9b\u00ad\u200b\u202e\u2028\u2029\ufeff\ud800\U000e0041"
texts = st.text(st.one_of(st.characters(), st.sampled_from(UNSEEN)))
shown = settings(max_examples=10, deadline=None)


def harmless(printed: str) -> str:
    for character in printed:
        unseen = unicodedata.category(character) in {"Cc", "Cf", "Zl", "Zp", "Cs"}
        assert not unseen or character in "\n\t", repr(printed)
    return printed


def poisoned(value: Any, text: str) -> Any:
    """Every text of it ends in that one."""
    match value:
        case str():
            return value + text if value else ""  # What is empty has lines of its own.
        case dict():
            return {key: poisoned(one, text) for key, one in value.items()}
        case list() | tuple():
            return [poisoned(one, text) for one in value]
    return value


def run(*argv: str) -> str:
    """What a command prints, on both streams, also where it ends the process (`help uncordon`)."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out), suppress(SystemExit):
        main([*argv])
    return harmless(out.getvalue())


@contextmanager
def live(monkeypatch: pytest.MonkeyPatch, **answers: Any) -> Iterator[None]:
    """A run whose controller answers so."""

    class Run:
        def __init__(self, run: object) -> None: ...

        def __getattr__(self, name: str) -> Any:
            return lambda *_: answers[name]

    with monkeypatch.context() as patch:
        for verb in ("status", "incident", "events", "standbys", "memory"):
            patch.setattr(f"trainmover.cli.watch.{verb}.Client", Run)
            patch.setattr(f"trainmover.cli.watch.{verb}.which_run", lambda options: None)
        yield


@cache
def left(seed: int) -> dict[str, Any]:
    """A job as the simulator has left it."""
    return snapshot(played(seed).job, Progress(), {}, 10**9)


def status(text: str, seed: int = 0) -> dict[str, Any]:
    """Its machines are named so, too."""
    known = left(seed) | {"journal": {"unwritten": 1, "path": "j", "why": "disk is full"}}
    known["controller"] = {"restarts": 1, "since_s": 1.0}
    cordon = {"reason": "tests", "since_s": 1.0}
    known["cordoned"] = {f"m9{text}": cordon}
    known["quarantined"] = {f"m8{text}": 3.0}
    known["machines"] = [one | {"cordoned": cordon} for one in known["machines"]]
    return poisoned(known, text)  # type: ignore[no-any-return]


def entry(text: str) -> dict[str, Any]:
    return {"seq": 7, "at_us": 10**15, "kind": "Note" + text, "text": text, "event": {"x": text}}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_status_shows_texts_and_obeys_none(seed: int) -> None:
    @shown
    @example(FORGED)
    @given(texts)
    def look(text: str) -> None:
        with pytest.MonkeyPatch.context() as patch, live(patch, status=status(text, seed)):
            lines = run("status").count("\n")
            for verb in ("standbys", "memory"):
                run(verb)
            for verb in ("status", "standbys", "memory"):
                json.loads(run(verb, "--json"))
        with pytest.MonkeyPatch.context() as patch, live(patch, status=status("", seed)):
            assert lines == run("status").count("\n")

    look()


@shown
@example(FORGED)
@given(texts)
def test_events_are_one_line_each_and_none_is_forged(text: str) -> None:
    answers = {"events": [entry(text)], "follow": [entry(text)] * 2}
    with pytest.MonkeyPatch.context() as patch, live(patch, **answers):
        printed = run("events", "--all", "--follow").splitlines()
        assert sum(not line.startswith(" " * 15) for line in printed) == 3
        json.loads(run("events", "--json"))


@shown
@example(FORGED)
@given(texts)
def test_a_journal_of_others_steers_no_terminal(text: str) -> None:
    spec = JobSpec(run_id=text.encode(errors="replace").decode(), argv=["train.py"])
    with TemporaryDirectory() as folder:
        path = Path(folder) / "journal.sqlite"
        with Journal.create(path, spec) as journal:
            journal.note(1, spec.run_id)
        run("events", "--journal", str(path), "--all")
        run("incident", "--journal", str(path))
        run("report", "--journal", str(path))


@shown
@example(FORGED)
@given(texts)
def test_an_incident_shows_what_others_said_and_obeys_none(text: str) -> None:
    known = status(text)["incidents"][-1] | {"stacks": {"1": f"File train.py{text}"}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainmover.cli.watch.incident._asked_for", lambda _: known)
        assert not any(line.startswith("07:13") for line in run("incident").splitlines())
        json.loads(run("incident", "--json"))


@shown
@example(FORGED)
@given(texts)
def test_a_frame_of_top_has_no_styles_but_its_own(text: str) -> None:
    line = text.replace("\n", "").replace("\t", " ")  # As wide as its place makes it.
    drawn = [
        top.frame(status(one), [f"m1: {one}\nmore"], 200, 500) for one in (line, one_line(line))
    ]
    assert drawn[0] == drawn[1]
    foot = io.StringIO()
    Footer(foot, 80, lambda _: text, lambda: 0.0).look()
    harmless(foot.getvalue().replace("\r\x1b[K\x1b[2m", "").replace("\x1b[0m", ""))


@shown
@example(FORGED)
@given(texts)
def test_checkpoints_are_one_line_each(text: str) -> None:
    name = text.encode(errors="replace").decode()
    checkpoint = Checkpoint(
        folder="", run_id=name, step=Step(10), epoch=Epoch(1), argv=["x"], module=False,
        script="", machines=2, nproc=1, torch="", trainmover="", python="", states={},
        records={}, compiled={}, recorded=[],
    )  # fmt: skip
    with TemporaryDirectory() as path:
        folder = CheckpointFolder.take(Path(path))
        (folder.path / writing_name(Step(10), Epoch(1))).mkdir()
        folder.publish(checkpoint, keep=3)
        folder.close()
        assert run("checkpoints", path).count("\n") == 1
        assert json.loads(run("checkpoints", path, "--json"))[0]["run"] == name


@shown
@example(FORGED)
@example("uncordon")
@given(texts)
def test_complaints_quote_and_obey_nothing(text: str) -> None:
    def fail(*_: object) -> None:
        raise TrainmoverError(f"It said: {text}", means=text, do=text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainmover.cli.main._dispatch", fail)
        run("status")
    run("help", text)
    run(f"x{text}")


def test_styles_of_our_own_are_kept() -> None:
    out = io.StringIO()
    terminal = Terminal(file=out, force_terminal=True, no_color=False, width=80)
    terminal.print_line("m3\x1b[31m\nm4", style="bold yellow")
    assert out.getvalue() == "\x1b[1;33mm3\\x1b[31m\\nm4\x1b[0m\n"


def test_verbs_print_through_nothing_else() -> None:
    """Else a text from outside would reach the terminal as it is."""
    package = Path(trainmover.cli.__file__).parent
    made = [
        f"{path.name}:{node.lineno} {ast.unparse(node)}"
        for path in package.rglob("*.py")
        if path.name not in PRINTERS
        for node in ast.walk(ast.parse(path.read_text()))
        if _prints(node, drawer=path.name in DRAWERS)
    ]
    assert made == []


def _prints(node: ast.AST, *, drawer: bool) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module in ("rich.console", "rich.table", "rich.text", "rich")
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func)
    return called == "print" or (not drawer and called.endswith(("stdout.write", "stderr.write")))
