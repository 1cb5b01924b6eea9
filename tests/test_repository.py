"""The repository besides its code: results, workflows, licences, data of a release."""

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools import licence_lines

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench/results"
BYTES_MAX = 11_000_000
GITHUB = ROOT / ".github"
WORKFLOWS = sorted(GITHUB.glob("workflows/*.yml"))
CITATION = ROOT / "CITATION.cff"
SCHEMAS = {
    "github-workflows": WORKFLOWS,
    "github-issue-forms": sorted(
        {*GITHUB.glob("ISSUE_TEMPLATE/*.yml")} - {GITHUB / "ISSUE_TEMPLATE/config.yml"}
    ),
    "github-issue-config": [GITHUB / "ISSUE_TEMPLATE/config.yml"],
    "dependabot": [GITHUB / "dependabot.yml"],
    "citation-file-format": [CITATION],
}
MAJOR = re.compile(r"[\w./-]+@(release/)?v\d+")
in_a_checkout = pytest.mark.skipif(not GITHUB.exists(), reason="an sdist has no .github")
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


@cache
def tracked() -> list[Path]:
    """Return the files that git tracks; the test is skipped outside a checkout."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
    except FileNotFoundError:
        pytest.skip("git is not installed")
    if listed.returncode:
        pytest.skip("not a git checkout")
    paths = (ROOT / name for name in listed.stdout.decode().split("\0") if name)
    return [path for path in paths if path.exists()]


def linked_from(pages: list[Path]) -> set[Path]:
    """Return the files that Markdown pages link."""
    return {
        (page.parent / target).resolve()
        for page in pages
        for target in LINK.findall(page.read_text())
    }


def test_each_committed_result_is_linked_by_a_document() -> None:
    results = {path for path in tracked() if path.is_relative_to(RESULTS)}
    documents = [path for path in tracked() if path.suffix == ".md" and path not in results]
    pages = linked_from(documents) & results
    assert results - pages == set()


def test_the_repository_stays_small() -> None:
    assert sum(path.lstat().st_size for path in tracked()) <= BYTES_MAX


def verbs(makefile: str) -> set[str]:
    """Return the targets that a Makefile defines."""
    lines = re.findall(r"^([a-z][\w -]*):(?!=)", makefile, re.MULTILINE)
    return {target for line in lines for target in line.split()}


def verbs_run(workflow: dict[str, Any]) -> set[str]:
    """Return the targets of `make` that a workflow's steps run."""
    commands = "\n".join(step.get("run", "") for step in steps(workflow))
    lines = re.findall(r"(?:^|[;&|]\s*)make ([^\n;&|]*)", commands, re.MULTILINE)
    return {word for line in lines for word in re.sub(r"\w+=(\"[^\"]*\"|\S*)", "", line).split()}


def steps(workflow: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the steps of each job, and each job that is a workflow of its own."""
    for job in workflow["jobs"].values():
        yield from job.get("steps", [job])


def test_verbs_are_found_in_commands_and_in_a_makefile() -> None:
    run = 'make setup\nmake wheels PYTHON="python3.11 python3.13"; make -s x && cmake nothing'
    assert verbs_run({"jobs": {"a": {"steps": [{"run": run}]}}}) == {"setup", "wheels", "-s", "x"}
    assert verbs("A := b\nx y: z\n\tmake q\ntest-all: x\n.PHONY: n\n") == {"x", "y", "test-all"}


@in_a_checkout
@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_verbs_of_the_makefile(path: Path) -> None:
    unknown = verbs_run(yaml.safe_load(path.read_text())) - verbs((ROOT / "Makefile").read_text())
    assert unknown == set(), f"{path.name} runs `make {' '.join(unknown)}`, which does not exist"


@in_a_checkout
@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_by_major_version(path: Path) -> None:
    used = [step["uses"] for step in steps(yaml.safe_load(path.read_text())) if "uses" in step]
    others = [name for name in used if not name.startswith("./")]
    assert [name for name in others if not MAJOR.fullmatch(name)] == []


@in_a_checkout
@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_each_job_has_a_time_limit(path: Path) -> None:
    jobs = yaml.safe_load(path.read_text())["jobs"]
    assert [n for n, job in jobs.items() if "steps" in job and "timeout-minutes" not in job] == []


@in_a_checkout
@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_for_github_have_their_form(schema: str) -> None:
    """A key that GitHub does not know is found here. Schemas come with check-jsonschema."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    done = subprocess.run([*command, *SCHEMAS[schema]], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@in_a_checkout
@pytest.mark.skipif(not shutil.which("actionlint"), reason="actionlint is not installed")
def test_actionlint_finds_nothing() -> None:
    """Run where there is one; .github/workflows/lint.yml runs it at each change."""
    done = subprocess.run(["actionlint", *WORKFLOWS], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@in_a_checkout
def test_the_matrix_is_what_the_project_promises() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    matrix = yaml.safe_load((GITHUB / "workflows/tests.yml").read_text())["jobs"]["fast"]
    matrix = matrix["strategy"]["matrix"]
    named = {one.rpartition(" ")[2] for one in project["classifiers"] if ":: Python :: 3." in one}
    assert set(matrix["python"]) == named
    (torch,) = (one for one in project["dependencies"] if one.startswith("torch"))
    first, end = (int(minor) for minor in re.findall(r"2\.(\d+)", torch))
    assert matrix["torch"] == [f"2.{minor}.0" for minor in range(first, end)]


@in_a_checkout
def test_hooks_run_what_make_check_runs() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert [hook["id"] for hook in hooks] == ["ruff", "ruff-format", "mypy"]
    assert {hook["entry"].split()[0] for hook in hooks} == {".venv/bin/ruff", ".venv/bin/mypy"}


@pytest.mark.parametrize(
    ("suffix", "text", "expected"),
    [
        (".py", '"""A."""\n', '# SPDX-License-Identifier: Apache-2.0\n"""A."""\n'),
        (".py", "", "# SPDX-License-Identifier: Apache-2.0\n"),
        (".sh", "#!/bin/sh\nx\n", "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\nx\n"),
        (".hpp", "#pragma once\n", "// SPDX-License-Identifier: Apache-2.0\n#pragma once\n"),
        (".css", "a {}\n", "/* SPDX-License-Identifier: Apache-2.0 */\na {}\n"),
    ],
)
def test_the_licence_comes_first_and_once(suffix: str, text: str, expected: str) -> None:
    assert licence_lines.with_licence(text, suffix) == expected
    assert licence_lines.with_licence(expected, suffix) == expected


def test_each_source_file_names_its_licence() -> None:
    assert len(licence_lines.sources()) > 900
    assert licence_lines.main([]) == 0
