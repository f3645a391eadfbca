"""Maps files of the project to paths on the site, and converts the links between them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

PROJECT: Final = Path(__file__).parent.parent.parent

_ROOT_PAGES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "README.md": "index.md",
        "CONTRIBUTING.md": "contributing.md",
        "CHANGELOG.md": "changelog.md",
    }
)
"""Pages of the site that are not in docs/, with their paths on the site."""
RESULTS: Final = "benchmarks/results"

_CODE: Final = r"^[ ]*```.*?^[ ]*```[ ]*$|`[^`\n]*`"
_LINK: Final = r"\[(?P<text>(?:[^\[\]]|`[^`]*`)*)\]\((?P<target>[^)\s]+)\)"
_CODE_OR_LINK: Final = re.compile(f"{_LINK}|{_CODE}", re.MULTILINE | re.DOTALL)


def pages_outside_docs() -> dict[str, str]:
    """Returns the pages outside of docs/: paths in the project to paths on the site."""
    results = sorted((PROJECT / RESULTS).glob("*.md"))
    return dict(_ROOT_PAGES) | {f"{RESULTS}/{file.name}": f"benchmarks/{file.name}" for file in results}


def site_path(path: str) -> str | None:
    """Returns the path on the site of a file of the project, or None if it is not on the site."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return pages_outside_docs().get(path)


def with_links(markdown: str, path: str) -> str:
    """Returns the text of a project file with its links converted for the site.

    A link to a file that is not on the site becomes its text and the path of the file.
    """
    here = posixpath.dirname(site_path(path) or path)

    def convert_link(match: re.Match[str]) -> str:
        target, text = match["target"], match["text"]
        if target is None or re.match(r"[a-z]+:|#", target):
            return match[0]
        file, hash_, anchor = target.partition("#")
        linked_file = posixpath.normpath(posixpath.join(posixpath.dirname(path), file))
        linked_path = site_path(linked_file)
        if linked_path is None:
            return text if linked_file in text else f"{text} (`{linked_file}`)"
        return f"[{text}]({posixpath.relpath(linked_path, here or '.')}{hash_}{anchor})"

    return _CODE_OR_LINK.sub(convert_link, markdown)
