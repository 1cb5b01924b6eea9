# SPDX-License-Identifier: Apache-2.0
"""Check that the tree is ready for a release, build it, and name the tag: `make release`.

    python tools/release.py [--tests "make check docs test-all"] [--out dist] [--tag]

A release is refused where the tree has changes, where pyproject.toml, the package, CHANGELOG.md,
CITATION.cff and README.md do not agree about version and date, where the tag exists on another
commit, or where a test fails. The tag is only made with --tag; pushing it publishes the release
(.github/workflows/release.yml).
"""

import argparse
import re
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
READ = ("pyproject.toml", "src/trainmover/version.py", "CHANGELOG.md", "CITATION.cff", "README.md")
TESTS = "make check docs test-all"
HEADING = re.compile(r"^## (\d+\.\d+\.\d+)(?: \((.*)\))?$", re.MULTILINE)
DATE = re.compile(r"\d{4}-\d\d-\d\d")
README_VERSION = re.compile(r"trainmover(?:==|-|@v?)(\d+\.\d+\.\d+)")


def project_version(pyproject: str) -> str:
    """Return the version of the `[project]` table. Raises ValueError if there is none."""
    found = re.search(r'^\[project\]$.*?^version = "([^"]+)"$', pyproject, re.DOTALL | re.MULTILINE)
    if found is None:
        raise ValueError("pyproject.toml: [project] has no version")
    return found[1]


def top_of_changelog(changelog: str) -> tuple[str, str]:
    """Return version and date of the first heading; "" for what it does not name."""
    found = HEADING.search(changelog)
    return (found[1], found[2] or "") if found else ("", "")


def disagreements(texts: Mapping[str, str]) -> list[str]:
    """Return what the files of READ, given by name, do not agree about."""
    version = project_version(texts["pyproject.toml"])
    problems = []
    if f'VERSION = "{version}"' not in texts["src/trainmover/version.py"]:
        problems.append(f"src/trainmover/version.py: VERSION is not {version}")
    newest, date = top_of_changelog(texts["CHANGELOG.md"])
    if newest != version:
        problems.append(f"CHANGELOG.md: the first heading is {newest or 'none'}, not {version}")
    elif not DATE.fullmatch(date):
        problems.append(f"CHANGELOG.md: the heading of {version} has no date: ({date})")
    citation = texts["CITATION.cff"]
    if not re.search(rf"^version: {re.escape(version)}$", citation, re.MULTILINE):
        problems.append(f"CITATION.cff: the version is not {version}")
    if DATE.fullmatch(date) and f'date-released: "{date}"' not in citation:
        problems.append(f"CITATION.cff: date-released is not {date}, as in CHANGELOG.md")
    for other in set(README_VERSION.findall(texts["README.md"])) - {version}:
        problems.append(f"README.md: names version {other}, not {version}")
    return problems


def tree_problems(status: str, head: str, tagged: str, tag: str) -> list[str]:
    """Return why this commit cannot be tagged.

    status: of `git status --porcelain`; head, tagged: commits, tagged "" where no such tag exists
    """
    problems = []
    if changed := [line[3:] for line in status.splitlines()]:
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        problems.append(f"the tree has changes: {', '.join(changed[:3])}{more}. Commit them.")
    if tagged and tagged != head:
        problems.append(f"{tag} is a tag of {tagged[:12]}. Raise the version.")
    return problems


def build_problems(names: Sequence[str], version: str) -> list[str]:
    """Return which files a release lacks among those that were built."""
    problems = []
    if f"trainmover-{version}.tar.gz" not in names:
        problems.append(f"no trainmover-{version}.tar.gz was built")
    if not any(name.startswith(f"trainmover-{version}-") for name in names):
        problems.append(f"no wheel of {version} was built")
    return problems


def wheel_problems(metadata: str, version: str) -> list[str]:
    """Return what a wheel's METADATA lacks."""
    headers = metadata.partition("\n\n")[0].splitlines()
    wanted = (f"Version: {version}", "License-Expression: Apache-2.0", "License-File: LICENSE")
    return [f"the wheel's METADATA has no `{line}`" for line in wanted if line not in headers]


def main(argv: Sequence[str]) -> int:
    """Return 0 if a release can be tagged, else 1."""
    options = parser().parse_args(argv)
    texts = {name: (ROOT / name).read_text() for name in READ}
    version = project_version(texts["pyproject.toml"])
    tag = f"v{version}"
    tagged = git("rev-parse", "--verify", "--quiet", f"{tag}^{{commit}}", check=False)
    head = git("rev-parse", "HEAD")
    problems = disagreements(texts)
    problems += tree_problems(git("status", "--porcelain"), head, tagged, tag)
    if problems:
        return refuse(version, problems)
    if options.tests and subprocess.run(shlex.split(options.tests), cwd=ROOT).returncode:
        return refuse(version, [f"`{options.tests}` fails"])
    if problems := build(options.out, version):
        return refuse(version, problems)
    make = ["git", "tag", "-a", tag, "-m", f"trainmover {version}"]
    if tagged:
        print(f"{tag} is the tag of this commit.")
    elif options.tag:
        subprocess.run(make, cwd=ROOT, check=True)
        print(f"Tagged. Publish it: git push origin {tag}")
    else:
        print(f"Ready. Tag and publish it: {shlex.join(make)} && git push origin {tag}")
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        "tools/release.py", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--tests", default=TESTS, help=f'command that must pass; "{TESTS}"')
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder; dist")
    parser.add_argument("--tag", action="store_true", help="make the tag, too")
    return parser


def build(out: Path, version: str) -> list[str]:
    """Build the source distribution, and a wheel from it. Return what is wrong with them."""
    for old in out.glob("trainmover-*"):
        old.unlink()
    command = [sys.executable, "-m", "build", "--no-isolation", "--skip-dependency-check"]
    if subprocess.run([*command, "--outdir", str(out), str(ROOT)]).returncode:
        return ["the build fails"]
    problems = build_problems([path.name for path in out.iterdir()], version)
    for wheel in out.glob(f"trainmover-{version}-*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            metadata = archive.read(f"trainmover-{version}.dist-info/METADATA").decode()
        problems += wheel_problems(metadata, version)
    return problems


def git(*arguments: str, check: bool = True) -> str:
    """Return what git prints."""
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, check=check, stdout=subprocess.PIPE, text=True
    )
    return done.stdout.rstrip()


def refuse(version: str, problems: Sequence[str]) -> int:
    """Print why there is no release. Return the exit status."""
    print(f"No release of {version}:", *(f"- {problem}" for problem in problems), sep="\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
