"""Doctor: what it says of a machine, as values; and this one, really."""

import json
import socket
from pathlib import Path

import pytest

from trainmover.cli.doctor import doctor, verdicts
from trainmover.cli.doctor.verdicts import Finding, State
from trainmover.cli.main import main

GB, MB = verdicts.GB, verdicts.MB
pytestmark = pytest.mark.usefixtures("own_home")


@pytest.mark.parametrize(
    ("finding", "state"),
    [
        (verdicts.python((3, 11, 7)), State.WELL),
        (verdicts.python((3, 10, 0)), State.BROKEN),
        (verdicts.python((4, 0, 0)), State.WELL),
        (verdicts.package("torch", "<2.14,>=2.11", "2.13.0+cpu"), State.WELL),
        (verdicts.package("torch", "<2.14,>=2.11", "2.14.0"), State.BROKEN),
        (verdicts.package("torch", "<2.14,>=2.11", "2.9"), State.BROKEN),
        (verdicts.package("torch", "<2.14,>=2.11", ""), State.BROKEN),
        (verdicts.torch_loads("", 2.0), State.WELL),
        (verdicts.torch_loads("ImportError: libtorch.so", 2.0), State.BROKEN),
        (verdicts.native(True, "", ""), State.WELL),
        (verdicts.native(False, "/usr/bin/c++", ""), State.WARN),
        (verdicts.shared_memory(GB, ""), State.WELL),
        (verdicts.shared_memory(MB, ""), State.WARN),
        (verdicts.shared_memory(None, "Function not implemented"), State.BROKEN),
        (verdicts.files(65536, 65536), State.WELL),
        (verdicts.files(1024, 65536), State.WELL),
        (verdicts.files(1024, 1024), State.WARN),
        (verdicts.files(64, 64), State.BROKEN),
        (verdicts.memory(8 * GB), State.WELL),
        (verdicts.memory(GB), State.WARN),
        (verdicts.memory(100 * MB), State.BROKEN),
        (verdicts.disk("journal", "/d", 8 * GB), State.WELL),
        (verdicts.disk("journal", "/d", 100 * MB), State.WARN),
        (verdicts.disk("journal", "/d", 0), State.BROKEN),
        (verdicts.disk("journal", "/d", None, "read-only"), State.BROKEN),
        (verdicts.clock(0.01, -9.0), State.WELL),
        (verdicts.clock(-3600.0, -9.0), State.WARN),
        (verdicts.clock(0.0, 9.0), State.WARN),
        (verdicts.loopback(""), State.WELL),
        (verdicts.loopback("Network is unreachable"), State.BROKEN),
        (verdicts.controller("10.0.0.5:7070", "10.0.0.6", 1.0, ""), State.WELL),
        (verdicts.controller("10.0.0.5:7070", "127.0.0.1", 1.0, ""), State.WARN),
        (verdicts.controller("10.0.0.5:7070", "", 0.0, "timed out"), State.BROKEN),
    ],
    ids=lambda value: value.of if isinstance(value, Finding) else str(value),
)
def test_what_is_not_well_comes_with_what_to_do(finding: Finding, state: State) -> None:
    assert finding.state is state
    assert bool(finding.do) is (state is not State.WELL)
    assert finding.found


def test_the_end_says_whether_a_job_would_run() -> None:
    well, bad = verdicts.memory(8 * GB), verdicts.memory(0)
    assert verdicts.lines({"machine": [well]})[-1] == "all is well"
    assert "1 could be better" in verdicts.lines({"machine": [well, verdicts.memory(GB)]})[-1]
    said = verdicts.lines({"machine": [well, bad]})
    assert said[-1].startswith("1 broken")
    assert any(line.strip() == f"-> {bad.do}" for line in said)


def test_this_machine_can_run_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        argv = ["doctor", "--quick", "--journal", str(tmp_path / "run.db")]
        assert main([*argv, "--connect", f"127.0.0.1:{port}"]) == 0
    out = capsys.readouterr().out
    for of in ("Python", "torch", "native", "shared", "file desc", "memory", "journal", "clock"):
        assert f" {of}" in out
    assert f"127.0.0.1:{port} answers" in out


def test_what_is_broken_makes_it_1_and_json_says_what(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert main(["doctor", "--quick", "--json", "--connect", f"127.0.0.1:{port}"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["broken"]
    (bad,) = [one for one in told["network"] if one["state"] == "broken"]
    assert (bad["of"], bool(bad["do"])) == ("controller", True)


def test_a_torch_that_does_not_load_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_LOAD", "import torch_that_there_is_not")
    found = [one for one in doctor.installation(load=True) if one.of == "torch loads"]
    assert [one.state for one in found] == [State.BROKEN]
    assert "torch_that_there_is_not" in found[0].found


@pytest.mark.parametrize("given", ["10.0.0.5", "host:", ":70", "host:99999"])
def test_what_is_no_address_is_said(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--connect", given]) == 2
    assert "is no address" in capsys.readouterr().err
