"""Every bench still runs: a few seconds of each, whatever its figures are."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import result

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "bench").rglob("*.py"))
NAMES = [
    found for path in SOURCES for found in re.findall(r'parser\("(\w+)", __', path.read_text())
]
"""Benches: what takes its command line from `bench.result`."""


def test_every_bench_has_a_smoke_run() -> None:
    run = set(re.findall(r"-m bench\.(\w+)", (ROOT / "Makefile").read_text()))
    assert run == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_bench_runs(name: str) -> None:
    command = [sys.executable, "-m", f"bench.{name}", "--smoke", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=170)
    lines = done.stdout.splitlines()
    assert lines, done.stderr[-4000:]
    document: dict[str, Any] = json.loads(lines[-1])
    assert document["bench"].partition("-")[0] == name
    assert document["claims"] or document["skipped"]
    assert done.returncode == (not all(claim["holds"] for claim in document["claims"]))


def test_a_smoke_run_is_a_quick_one() -> None:
    parser = result.parser("x", "doc", quick="a look")
    sizes = [vars(parser.parse_args(flags)) for flags in ([], ["--quick"], ["--smoke"])]
    assert [(size["quick"], size["smoke"]) for size in sizes] == [
        (False, False),
        (True, False),
        (True, True),
    ]


def test_what_was_skipped_is_said_and_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert result.say("x", [], ["text"], as_json=True, skipped="no GPU") == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"bench": "x", "claims": [], "skipped": "no GPU"}
    assert err == "text\nSkipped: no GPU\n"
