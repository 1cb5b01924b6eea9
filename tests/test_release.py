"""What `make release` refuses."""

import re
from pathlib import Path

import pytest

from tools.release import (
    READ,
    build_problems,
    disagreements,
    project_version,
    top_of_changelog,
    tree_problems,
    wheel_problems,
)

ROOT = Path(__file__).resolve().parents[1]
AGREED = {
    "pyproject.toml": '[tool.x]\nversion = "9.9.9"\n[project]\nname = "t"\nversion = "0.2.0"\n',
    "src/trainmover/version.py": 'VERSION = "0.2.0"\n',
    "CHANGELOG.md": "# Changelog\n\n## 0.2.0 (2027-01-31)\n\n## 0.1.0 (2026-11-30)\n",
    "CITATION.cff": 'cff-version: 1.2.0\nversion: 0.2.0\ndate-released: "2027-01-31"\n',
    "README.md": "pip install trainmover==0.2.0\n",
}


def test_this_tree_agrees_about_its_version() -> None:
    assert disagreements({name: (ROOT / name).read_text() for name in READ}) == []


def test_files_that_agree_are_a_release() -> None:
    assert disagreements(AGREED) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        ("src/trainmover/version.py", "0.2.0", "0.1.0", "version.py: VERSION is not 0.2.0"),
        ("CHANGELOG.md", "0.2.0", "0.3.0", "the first heading is 0.3.0, not 0.2.0"),
        ("CHANGELOG.md", "## ", "", "the first heading is none, not 0.2.0"),
        ("CHANGELOG.md", "2027-01-31", "unreleased", "0.2.0 has no date: (unreleased)"),
        ("CHANGELOG.md", "2027-01-31", "2027-02-01", "date-released is not 2027-02-01"),
        ("CITATION.cff", "\nversion: 0.2.0", "\nversion: 0.1.0", "the version is not 0.2.0"),
        ("CITATION.cff", "2027-01-31", "2026-11-30", "date-released is not 2027-01-31"),
        ("README.md", "0.2.0", "0.1.0", "README.md: names version 0.1.0, not 0.2.0"),
    ],
)
def test_a_disagreement_is_named(name: str, old: str, new: str, expected: str) -> None:
    (problem,) = disagreements(AGREED | {name: AGREED[name].replace(old, new)})
    assert expected in problem


def test_the_version_is_that_of_the_project_table() -> None:
    assert project_version(AGREED["pyproject.toml"]) == "0.2.0"
    with pytest.raises(ValueError, match="no version"):
        project_version("[project]\nname = 't'\n")


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("## 1.0.0 (2027-01-01)", ("1.0.0", "2027-01-01")),
        ("## 1.0.0", ("1.0.0", "")),
        ("## Next", ("", "")),
        ("", ("", "")),
    ],
)
def test_the_top_of_the_changelog(heading: str, expected: tuple[str, str]) -> None:
    assert top_of_changelog(f"# Changelog\n\n{heading}\n") == expected


def test_a_changed_tree_is_refused() -> None:
    (problem,) = tree_problems(" M a\n?? b\n M c\n M d\n", "1" * 40, "", "v1.0.0")
    assert re.match(r"the tree has changes: a, b, c and 1 more\.", problem)


def test_a_tag_of_another_commit_is_refused() -> None:
    assert tree_problems("", "1" * 40, "1" * 40, "v1.0.0") == []
    (problem,) = tree_problems("", "1" * 40, "2" * 40, "v1.0.0")
    assert problem == "v1.0.0 is a tag of 222222222222. Raise the version."


def test_a_release_is_a_source_distribution_and_a_wheel() -> None:
    wheel, source = "trainmover-1.0.0-cp311-cp311-linux_x86_64.whl", "trainmover-1.0.0.tar.gz"
    assert build_problems([wheel, source], "1.0.0") == []
    assert build_problems([wheel], "1.0.0") == ["no trainmover-1.0.0.tar.gz was built"]
    assert build_problems([source], "1.0.0") == ["no wheel of 1.0.0 was built"]
    assert len(build_problems([wheel, source], "1.0.1")) == 2


def test_a_wheel_of_another_version_or_without_a_licence_is_refused() -> None:
    metadata = "Version: 1.0.0\nLicense-Expression: Apache-2.0\nLicense-File: LICENSE\n\nVersion: 2"
    assert wheel_problems(metadata, "1.0.0") == []
    assert wheel_problems(metadata, "2") == ["the wheel's METADATA has no `Version: 2`"]
    assert len(wheel_problems("Version: 1.0.0\n", "1.0.0")) == 2
