# SPDX-License-Identifier: Apache-2.0
"""What `make docs` does beside mkdocs.

Files of the repository that pages link to become part of the site, tables of flags are made from
the parsers of the commands, and no page may load anything from another host.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from flags import table_of_flags
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]

LINK = re.compile(r"\]\(([^)#:\s]+)(#[^)\s]*)?\)")
FLAGS = re.compile(r"^<!-- flags of (\w+) -->$", re.MULTILINE)
ELSEWHERE = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"?(?:https?:)?//[^>]*>")


def on_files(files: Files, config: Any) -> Files:
    """Adds the files beside the pages that are linked: maps, examples, results."""
    taken = set()
    left = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]
    while left:
        path = left.pop()
        if path in taken or path == ROOT / "README.md":
            continue
        taken.add(path)
        if not path.is_relative_to(ROOT / "docs"):
            where = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, where, abs_src_path=str(path)))
        if path.suffix == ".md":
            links = (path.parent / match[1] for match in LINK.finditer(path.read_text()))
            left += [link.resolve() for link in links if link.is_file()]
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links as they are in the repository become links of the site. A search finds the guide, and
    not the results of benches, which have its words in every line."""
    if page.file.src_uri.startswith("bench/results/"):
        page.meta["search"] = {"exclude": True}
    ours = not page.file.generated_by
    folder = posixpath.dirname(posixpath.join("docs" if ours else "", page.file.src_uri))
    here = posixpath.dirname(page.file.src_uri)

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[1]))
        target = "index.md" if target == "README.md" else target.removeprefix("docs/")
        if files.get_file_from_path(target) is None:
            return match[0]
        return f"]({posixpath.relpath(target, here or '.')}{match[2] or ''})"

    return FLAGS.sub(lambda found: table_of_flags(found[1]), LINK.sub(link, markdown))


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Refuse a page that would load something from another host."""
    found = [tag for tag in ELSEWHERE.findall(output) if 'rel="canonical"' not in tag]
    if found:
        raise PluginError(f"{page.file.src_uri} loads from another host: {found[0]}")
    return output
