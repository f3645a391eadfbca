"""Maps files of the project to paths on the site, and converts the links between them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

PROJECT: Final = Path(__file__).parent.parent.parent

_BESIDE: Final[Mapping[str, str]] = MappingProxyType(
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


def guests() -> dict[str, str]:
    """Returns the pages outside of docs/: paths in the project to paths on the site."""
    results = sorted((PROJECT / RESULTS).glob("*.md"))
    found = {path: place for path, place in _BESIDE.items() if path != "README.md"}
    return found | {f"{RESULTS}/{file.name}": f"benchmarks/{file.name}" for file in results}


def place(path: str) -> str | None:
    """Returns the path on the site of a file of the project, or None if it is not on the site."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return _BESIDE.get(path) or guests().get(path)


def with_links(markdown: str, path: str) -> str:
    """Returns the text of a project file with its links converted for the site.

    A link to a file that is not on the site becomes its text and the path of the file.
    """
    here = posixpath.dirname(place(path) or path)

    def led(match: re.Match[str]) -> str:
        target, text = match["target"], match["text"]
        if target is None or re.match(r"[a-z]+:|#", target):
            return match[0]
        file, hash_, anchor = target.partition("#")
        meant = posixpath.normpath(posixpath.join(posixpath.dirname(path), file))
        there = place(meant)
        if there is None:
            return text if meant in text else f"{text} (`{meant}`)"
        return f"[{text}]({posixpath.relpath(there, here or '.')}{hash_}{anchor})"

    return _CODE_OR_LINK.sub(led, markdown)
