# SPDX-License-Identifier: Apache-2.0
"""The line that names the licence, first in each source file: `make fix` inserts it where it lacks.

    python tools/licence_lines.py [--fix]

A file that begins with `#!` has it second. Tests and generated files have none.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LICENCE = "SPDX-License-Identifier: Apache-2.0"
FOLDERS = ("src", "native", "bench", "examples", "docs", "tools", "web/src")
FILES = ("web/vite.config.js",)
COMMENTS = {
    ".py": "# {}",
    ".sh": "# {}",
    ".cpp": "// {}",
    ".hpp": "// {}",
    ".c": "// {}",
    ".js": "// {}",
    ".jsx": "// {}",
    ".css": "/* {} */",
}
BUILT = ROOT / "src/trainmover/server/http/pages"


def sources() -> list[Path]:
    """Return the files that need the line."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    found += [ROOT / name for name in FILES]
    return sorted(p for p in found if p.suffix in COMMENTS and not p.is_relative_to(BUILT))


def with_licence(text: str, suffix: str) -> str:
    """Return a source file's text with the line, as it is where the line is there."""
    line = COMMENTS[suffix].format(LICENCE) + "\n"
    first, rest = "", text
    if text.startswith("#!"):
        first, _, rest = text.partition("\n")
        first += "\n"
    return text if rest.startswith(line) else first + line + rest


def main(argv: Sequence[str]) -> int:
    """Return 0 if each source file has the line, or has got it."""
    lacking = [p for p in sources() if with_licence(p.read_text(), p.suffix) != p.read_text()]
    if "--fix" not in argv:
        for path in lacking:
            print(f"{path.relative_to(ROOT)}: the first line is not the licence. Run make fix.")
        return 1 if lacking else 0
    for path in lacking:
        path.write_text(with_licence(path.read_text(), path.suffix))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
