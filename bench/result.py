# SPDX-License-Identifier: Apache-2.0
"""Claims and the dated files that hold them."""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
"""Results that a document links. `tests/test_repository.py` refuses any other file here."""
TEMPORARY = RESULTS / "tmp"
"""Looks and raw data, which git ignores. Raw data is attached to a release."""


@dataclass(frozen=True)
class Claim:
    """claim: a name; value: measured; most: the largest value with which it holds."""

    claim: str
    value: float
    unit: str
    most: float

    @property
    def holds(self) -> bool:
        return self.value <= self.most

    def as_json(self) -> dict[str, Any]:
        return {
            "claim": self.claim,
            "value": round(self.value, 4),
            "unit": self.unit,
            "expected": f"<= {self.most:.4g}",
            "holds": self.holds,
        }


@dataclass(frozen=True)
class Setting:
    """Where and when a bench ran. loads: 1-minute load averages, our own processes included."""

    date: str
    commit: str
    processor: str
    cores: int
    python: str
    torch: str
    loads: list[float]


class _Smoke(argparse.Action):
    """A smoke run is a quick one, and smaller where the bench knows how."""

    def __call__(self, _parser: Any, namespace: Any, _values: Any, _option: Any = None) -> None:
        namespace.quick = namespace.smoke = True


def parser(name: str, doc: str | None, *, quick: str) -> argparse.ArgumentParser:
    """Return a bench's command line with the flags that all of them have.

    quick: help of --quick. With --smoke both `quick` and `smoke` are true.
    """
    made = argparse.ArgumentParser(prog=f"python -m bench.{name}", description=doc)
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    made.add_argument("--json", action="store_true", help="one JSON object as the last line")
    made.add_argument("--quick", action="store_true", help=quick)
    made.add_argument(
        "--smoke", action=_Smoke, nargs=0, default=False, help="seconds: does the bench still run?"
    )
    return made


def setting(loads: list[float]) -> Setting:
    """This machine, now."""
    return Setting(
        date=time.strftime("%Y-%m-%d %H:%M"),
        commit=_commit(),
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)),
        python=platform.python_version(),
        torch=version("torch"),
        loads=[round(load, 1) for load in loads],
    )


def write(
    name: str,
    claims: list[Claim],
    table: list[str],
    where: Setting,
    raw: Any,
    *,
    quick: bool,
) -> Path:
    """Write <date>-<name>.md, and JSON and raw data into TEMPORARY; return the Markdown's path.

    quick  a look, not a result: all of it goes into TEMPORARY
    """
    TEMPORARY.mkdir(parents=True, exist_ok=True)
    folder = TEMPORARY if quick else RESULTS
    stem = folder / f"{where.date.replace(' ', '-').replace(':', '')}-{name}"
    said = [claim.as_json() for claim in claims]
    document = {"bench": name, "claims": said, "setting": asdict(where)}
    (TEMPORARY / f"{stem.name}.json").write_text(json.dumps(document, sort_keys=True) + "\n")
    (TEMPORARY / f"{stem.name}-raw.json").write_text(json.dumps(raw, indent=1) + "\n")
    lines = [f"# {name}, {where.date}", "", *table, "", "| claim | value | expected | holds |"]
    lines += ["|---|---|---|---|"]
    for claim in said:
        value = f"{claim['value']} {claim['unit']}"
        holds = "yes" if claim["holds"] else "NO"
        lines.append(f"| {claim['claim']} | {value} | {claim['expected']} | {holds} |")
    lines += ["", f"{where.processor}, {where.cores} cores, Python {where.python}, torch "]
    lines[-1] += f"{where.torch}; commit {where.commit}; load {min(where.loads)}-{max(where.loads)}"
    stem.with_suffix(".md").write_text("\n".join(lines) + "\n")
    return stem.with_suffix(".md")


def say(
    name: str, claims: list[Claim], text: list[str], *, as_json: bool, skipped: str = ""
) -> int:
    """Print the result; exit status 0 if every claim holds. The JSON is the last line.

    skipped: why this machine cannot run the bench, or a part of it
    """
    if skipped:
        text = [*text, f"Skipped: {skipped}"]
    if as_json:
        document = {"bench": name, "claims": [claim.as_json() for claim in claims]}
        print("\n".join(text), file=sys.stderr)
        print(json.dumps(document | ({"skipped": skipped} if skipped else {})))
    else:
        print("\n".join(text))
        for claim in claims:
            holds = "holds" if claim.holds else "DOES NOT HOLD"
            expected = f"expected <= {claim.most:.4g}"
            print(f"{claim.claim}: {claim.value:.4g} {claim.unit}, {expected}: {holds}")
    return 0 if all(claim.holds for claim in claims) else 1


def _commit() -> str:
    if shutil.which("git") is None:
        return "none"
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(command, cwd=RESULTS.parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "none"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
