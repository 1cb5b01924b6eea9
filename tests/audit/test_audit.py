"""The audit of dependencies: what is known, what is unknown, and when nobody could be asked."""

import json
import re

import pytest
from audit import LOCKS, ROOT, in_words, of_npm, of_python

VULNERABLE = {
    "dependencies": [
        {"name": "h11", "version": "0.14", "vulns": [{"id": "CVE-1", "fix_versions": ["0.16"]}]},
        {"name": "rich", "version": "15.0.0", "vulns": []},
        {"name": "ours", "skip_reason": "not found"},
    ]
}


def test_what_is_known_of_python_packages_is_told() -> None:
    audit = of_python(json.dumps(VULNERABLE))
    assert in_words("lock", audit) == (
        "lock: 1 known vulnerabilities in 2 packages.\n"
        "  1 more are unknown to the database: they are not judged.\n"
        "  h11 0.14: CVE-1, fixed in ['0.16']"
    )


@pytest.mark.parametrize(
    "said", ["", "ERROR: connection refused", json.dumps({"dependencies": [{"name": "a"}]}), "[]"]
)
def test_where_no_database_answers_it_is_no_clean_bill(said: str) -> None:
    audit = of_python(said)
    assert audit.known == []
    assert in_words("lock", audit).startswith("lock: not judged. ")


def test_npm_is_read_too() -> None:
    found = {"metadata": {"dependencies": {"total": 9}}, "vulnerabilities": {}}
    said = in_words("web", of_npm(json.dumps(found)))
    assert said == "web: 0 known vulnerabilities in 9 packages."
    found["vulnerabilities"] = {"vite": {"severity": "high", "range": "<6"}}
    assert of_npm(json.dumps(found)).known == ["vite: high, <6"]
    refused = json.dumps({"message": "405 Method Not Allowed", "statusCode": 405})
    assert "(405 Method Not Allowed)" in in_words("web", of_npm(refused))
    assert of_npm("").why_not


def test_locks_have_the_versions_of_the_constraints_and_hashes() -> None:
    """`make lock` writes them anew after a change."""
    locked: dict[str, str] = {}
    for name in LOCKS:
        for entry in re.split(r"\n(?=\S)", (ROOT / name).read_text()):
            if found := re.match(r"([\w.-]+)==([^\s;]+)", entry):
                assert "--hash=sha256:" in entry, entry
                locked[_normal(found[1])] = found[2]
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M))
    assert pinned.pop("torch")  # Each of its indexes has a build of its own.
    assert locked == {_normal(name): version for name, version in pinned.items()}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
