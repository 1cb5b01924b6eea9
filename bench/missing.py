# SPDX-License-Identifier: Apache-2.0
"""Names what this interpreter lacks of trainmover's requirements, torch aside: for `pip download`.

Needs nothing but Python: `python bench/missing.py`.
"""

import tomllib
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def missing() -> list[str]:
    """Return them as pyproject.toml has them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {one.partition(">")[0]: one for one in project["dependencies"]}
    return [one for name, one in named.items() if name != "torch" and not _is_here(name)]


def _is_here(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    print("\n".join(missing()))
