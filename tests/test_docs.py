"""What users can type or meet is in the README, and what the README says exists."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from trainmover import errors
from trainmover.cli.verbs import VERBS

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
PAGES = [path for path in sorted(ROOT.glob("*.md")) if path.is_file()]


def flags_of(verb: str) -> set[str]:
    """The long flags that `trainmover VERB --help` shows; for `run` those in its own group."""
    command = [sys.executable, "-m", "trainmover.cli.main", verb, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    shown = done.stdout.partition("\nexamples:")[0]
    ours = shown.rpartition("\ntrainmover:")[2]
    return set(re.findall(r"--[a-z][a-z-]+", ours)) - {"--help", "--nnodes", "--standby"}


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_a_command_and_its_flags_are_in_the_readme(verb: str) -> None:
    assert f"trainmover {verb}" in README
    missing = {flag for flag in flags_of(verb) if not re.search(rf"{flag}\b", README)}
    assert missing == set()


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_a_command_has_a_summary(verb: str) -> None:
    assert importlib.import_module(VERBS[verb]).SUMMARY


def test_every_error_is_in_the_readme_and_on_the_tree() -> None:
    leaves = errors.TrainmoverError.__subclasses__()
    assert {e.__name__ for e in leaves if f"`{e.__name__}`" not in README} == set()
    assert {e.__name__ for e in leaves if e.__name__ not in (errors.__doc__ or "")} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (ROOT / target).exists()] == []


def test_verbs_of_the_makefile_are_in_contributing() -> None:
    verbs = set(re.findall(r"^#   make (\w+)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert {verb for verb in verbs - {"clean"} if f"make {verb}" not in text} == set()
    assert {"demo", "test", "check", "fix", "soak", "setup"} <= verbs
