"""MkDocs hooks: adds the generated pages and the pages outside of docs/, and converts links and doctest examples."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, cast

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.building.chapters import GUIDES
from docs.building.docstrings import shown
from docs.building.reference import FOLDER, reference
from docs.building.site_paths import PROJECT, pages_outside_docs, with_links

_SESSION: Final = re.compile(
    r"^(?P<fence>[ ]*```)python(?P<body>[ ]*\n[ ]*>>> .*?^[ ]*```[ ]*$)", re.MULTILINE | re.DOTALL
)
_COUNTERPART: Final = re.compile(r"`(?P<name>tracefx\.[\w.]+)`")
_REFERENCE: Final = reference()
_BOOSTS: Final[Mapping[str, int]] = MappingProxyType(
    {
        **dict.fromkeys([guide for guide in GUIDES.values() if "/" not in guide and guide != "design.md"], 4),
        f"{FOLDER}/tracefx/": 8,
        f"{FOLDER}/numpy/": 2,
        "debugging.md": 32,  # where most searches for a problem should end
    }
)
"""Factors by which pages rank higher in the search, by the beginning of their path."""
_OUTSIDE_DOCS: Final = {on_site: path for path, on_site in pages_outside_docs().items()}


def on_config(config: MkDocsConfig) -> None:
    """Replaces folders in the navigation by the pages that are generated for them."""
    chapters = cast("list[dict[str, object]]", config.nav)  # as in mkdocs.yml
    config.nav = [{title: _pages(below) for title, below in chapter.items()} for chapter in chapters]
    config.watch.append(str(PROJECT / "src" / "tracefx"))


def _pages(below: object) -> object:
    match below:
        case "reference/":
            return list(_REFERENCE.navigation)
        case "benchmarks/":
            return ["benchmarks.md", *[file for file in _OUTSIDE_DOCS if file.startswith("benchmarks/")]]
        case _:
            return below


def on_files(files: Files, config: MkDocsConfig) -> None:
    for file, text in _REFERENCE.pages.items():
        if files.get_file_from_path(file) is None:
            files.append(File.generated(config, file, content=text))
    for file, path in _OUTSIDE_DOCS.items():
        files.append(File.generated(config, file, content=(PROJECT / path).read_text(encoding="utf-8")))


def _page_settings(file: str) -> dict[str, Any]:
    """Returns the settings of a page: its rank in the search, and whether the navigation is shown beside it.

    Tables of names and figures are not searched.
    """
    if file == "index.md":
        return {"hide": ["navigation"]}
    if file == "names.md" or file.startswith("benchmarks/"):
        return {"search": {"exclude": True}}
    return {"search": {"boost": next((boost for prefix, boost in _BOOSTS.items() if file.startswith(prefix)), 1)}}


def _linked_name(name: str, file: str) -> str:
    """Returns a name of tracefx as a link to its entry in the reference, if it has one."""
    return _REFERENCE.links.link(name, file, name) if name in _REFERENCE.links.pages else f"`{name}`"


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    file = page.file.src_uri
    page.meta.update(_page_settings(file))
    if page.file.generated_by is None or file in _OUTSIDE_DOCS:
        markdown = with_links(markdown, _OUTSIDE_DOCS.get(file, f"docs/{file}"))
        markdown += f"\n{_REFERENCE.pages.get(file, '')}"
    if file == "names.md":
        markdown = _COUNTERPART.sub(lambda match: _linked_name(match["name"], file), markdown)
    return _SESSION.sub(lambda match: f"{match['fence']}pycon{shown(match['body'])}", markdown)
