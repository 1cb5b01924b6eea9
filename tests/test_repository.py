"""The repository besides its code: results, workflows, licences, data of a release."""

import json
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench/results"
BYTES_MAX = 11_000_000
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
    data = {page.with_suffix(".json") for page in pages}
    assert results - pages - data - linked_from(sorted(pages)) == set()


def test_a_result_is_claims_on_one_line() -> None:
    results = [path for path in tracked() if path.is_relative_to(RESULTS)]
    for path in (path for path in results if path.suffix == ".json"):
        document = json.loads(path.read_text())
        assert set(document) == {"bench", "claims", "setting"}, path
        assert path.read_text() == json.dumps(document, sort_keys=True) + "\n", path


def test_the_repository_stays_small() -> None:
    assert sum(path.lstat().st_size for path in tracked()) <= BYTES_MAX
