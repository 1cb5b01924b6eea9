"""`make audit`: known vulnerabilities of the packages that the lock files name.

pip-audit asks the Python index and npm its registry. Exit status 1 if a vulnerability is known; 0
if none is, and where a database cannot be asked. That is no clean bill, and said in a sentence.
"""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ("requirements.lock", "requirements-docs.lock")
LIMIT_S = 300


@dataclass
class Audit:
    """Packages of one lock file.

    known    a line for each vulnerability
    why_not  "" if a database has answered
    """

    judged: int = 0
    unjudged: int = 0
    known: list[str] = field(default_factory=list)
    why_not: str = ""


def main() -> int:
    audits = {name: of_python(_run(*_pip_audit(name))) for name in LOCKS}
    npm = ("npm", "--prefix", "web", "audit", "--package-lock-only", "--json")
    audits["web/package-lock.json"] = of_npm(_run(*npm))
    for name, audit in audits.items():
        print(in_words(name, audit))
    return 1 if any(audit.known for audit in audits.values()) else 0


def in_words(name: str, audit: Audit) -> str:
    if audit.why_not:
        return f"{name}: not judged. {audit.why_not} Run make audit where it can be asked."
    lines = [f"{name}: {len(audit.known)} known vulnerabilities in {audit.judged} packages."]
    if audit.unjudged:
        lines.append(f"  {audit.unjudged} more are unknown to the database: they are not judged.")
    return "\n".join([*lines, *(f"  {line}" for line in audit.known)])


def of_python(said: str) -> Audit:
    """Read the JSON of pip-audit; anything else is why there is none."""
    try:
        packages = json.loads(said)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return Audit(why_not=f"pip-audit could not ask its database ({_last_line(said)}).")
    judged = [one for one in packages if "vulns" in one]
    known = [
        f"{one['name']} {one['version']}: {each['id']}, fixed in {each['fix_versions'] or 'none'}"
        for one in judged
        for each in one["vulns"]
    ]
    if packages and not judged:
        why = f"pip-audit's database knows none of the {len(packages)} packages at their versions."
        return Audit(unjudged=len(packages), why_not=why)
    return Audit(len(judged), len(packages) - len(judged), known)


def of_npm(said: str) -> Audit:
    """Read the JSON of npm audit; anything else is why there is none."""
    try:
        document = json.loads(said)
        packages = document["metadata"]["dependencies"]["total"]
        found = document["vulnerabilities"]
    except (ValueError, KeyError, TypeError):
        why = _message(said) or _last_line(said)
        return Audit(why_not=f"npm could not ask its database ({why}).")
    known = [f"{name}: {one['severity']}, {one['range']}" for name, one in found.items()]
    return Audit(packages, 0, known)


def _message(said: str) -> str:
    try:
        return str(json.loads(said)["message"])
    except (ValueError, KeyError, TypeError):
        return ""


def _last_line(said: str) -> str:
    return (said.strip().splitlines() or ["it said nothing"])[-1]


def _pip_audit(lock: str) -> tuple[str, ...]:
    flags = ("--disable-pip", "--no-deps", "--progress-spinner", "off", "--format", "json")
    return (sys.executable, "-m", "pip_audit", "-r", lock, *flags)


def _run(*command: str) -> str:
    """What it says: the document if it has one, else its complaint."""
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stdout.strip() or done.stderr


if __name__ == "__main__":
    sys.exit(main())
