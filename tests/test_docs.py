"""What users can type or meet is in the docs, and what the docs say exists."""

import argparse
import re
import shlex
from pathlib import Path

import pytest

from docs.flags import parser_of, table_of_flags
from trainmover import errors
from trainmover.cli.run.parser import ours
from trainmover.cli.verbs import VERBS

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "docs"
README = (ROOT / "README.md").read_text()
REFERENCE = {page.name: page.read_text() for page in sorted((SITE / "reference").glob("*.md"))}
PAGES = [*ROOT.glob("*.md"), *SITE.rglob("*.md"), *(ROOT / "deploy").glob("*.md")]
PAGE = re.MULTILINE | re.DOTALL
TABLE = "<!-- flags of {} -->"
"""Where docs/build.py puts a command's flags, as its parser has them."""


def flags_of_run() -> set[str]:
    """The long flags of ours that `trainmover run --help` shows."""
    run = parser_of("run")
    shown = [action for action in run._actions if action.help != argparse.SUPPRESS]
    return {action.option_strings[0] for action in shown if action.dest in ours(run)}


def test_every_flag_of_run_is_in_its_page() -> None:
    page = REFERENCE["run.md"]
    assert {flag for flag in flags_of_run() if not re.search(rf"`{flag}\b", page)} == set()


@pytest.mark.parametrize("verb", sorted(set(VERBS) - {"run"}))
def test_a_command_has_a_section_with_its_flags(verb: str) -> None:
    section = f"## trainmover {verb}\n"
    (page,) = (page for page in REFERENCE.values() if section in page)
    told = page.partition(section)[2].partition("\n## ")[0]
    assert TABLE.format(verb) in told.splitlines()


@pytest.mark.parametrize("name", sorted(REFERENCE))
def test_a_page_has_sections_of_commands_only_that_there_are(name: str) -> None:
    assert set(re.findall(r"^## trainmover (\S+)", REFERENCE[name], re.MULTILINE)) <= set(VERBS)
    assert set(re.findall(TABLE.format(r"(\S+)"), REFERENCE[name])) <= set(VERBS)


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_a_command_has_a_summary(verb: str) -> None:
    assert VERBS[verb].summary


def test_every_error_is_in_the_reference_and_on_the_tree() -> None:
    leaves = errors.TrainmoverError.__subclasses__()
    page = REFERENCE["exit-codes.md"]
    assert {e.__name__ for e in leaves if f"`{e.__name__}`" not in page} == set()
    assert {e.__name__ for e in leaves if e.__name__ not in (errors.__doc__ or "")} == set()


def shown_commands() -> list[str]:
    """Each command line in a block of code of a page, up to what the shell does with it."""
    found = []
    for page in [README, *(path.read_text() for path in sorted(SITE.rglob("*.md")))]:
        blocks = re.findall(r"^```.*?^```$|^    .*?$", page, PAGE)
        typed = r"^\s*(?:\$ |until )?(?:\w+=\S+ )*trainmover ([a-z][^\n#;>|&]*)"
        found += re.findall(typed, "\n".join(blocks), re.MULTILINE)
    lines = {line.strip().removesuffix("...").removesuffix(" 2") for line in found}
    return sorted(line for line in lines if "[" not in line)  # a pattern, not a command


def test_command_lines_of_the_pages_are_understood() -> None:
    assert len(shown_commands()) > 30
    for line in shown_commands():
        verb, *arguments = shlex.split(line)
        assert verb == "help" or parser_of(verb).parse_args(arguments), line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_python_of_a_page_is_python(page: Path) -> None:
    for block in re.findall(r"^```python[^\n]*\n(.*?)^```$", page.read_text(), PAGE):
        compile(block, page.name, "exec")


def test_the_table_of_a_command_has_its_flags() -> None:
    table = table_of_flags("move")
    assert "| `MACHINE` | name of the machine, as trainmover status shows it |" in table
    assert "| `--reason TEXT` | kept with the incident |" in table
    assert "--run-id" not in table


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"^      - (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = {path.relative_to(SITE).as_posix() for path in SITE.rglob("*.md")}
    beside = {path.name for path in ROOT.glob("*.md")} - {"README.md"}
    assert sorted(listed) == sorted(pages | beside)


def test_verbs_of_the_makefile_are_in_contributing() -> None:
    verbs = set(re.findall(r"^#   make (\w+)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert {verb for verb in verbs - {"clean"} if f"make {verb}" not in text} == set()
    assert {"demo", "test", "check", "fix", "soak", "setup", "docs"} <= verbs
