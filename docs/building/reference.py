"""Generates the reference pages from the public names; mkdocstrings renders the entries, one directive per name."""

from __future__ import annotations

import ast
import functools
import importlib
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias, final

from attrs import field, frozen

from docs.building.chapters import CHAPTERS, GUIDES, TYPES, WITH_INHERITED, Chapter, Page
from docs.building.docstrings import fenced, first_sentence
from docs.building.sources import Found, find, home, is_there, public, read

DOCS: Final = Path(__file__).parent.parent
FOLDER: Final = "reference"
LONGEST_VALUE: Final = 60

TYPES_TITLE: Final = "Types in signatures"
TYPES_FILE: Final = f"{FOLDER}/types.md"

MORE: Final = Page("More")
"""Names that no other page contains."""

NavItem: TypeAlias = "str | Mapping[str, str | Sequence[NavItem]]"


@final
@frozen
class Entry:
    """A public name and its definition."""

    module: str
    name: str
    found: Found

    @property
    def has_own_part(self) -> bool:
        """Whether the name has an entry of its own; other names are rows of a table."""
        return bool(self.found.docstring) or self.found.is_type_alias or self.found.is_callable

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"


@final
@frozen
class NameLinks:
    """The pages and entries of all public names."""

    canonical_names: Mapping[str, str]
    """The public name that documents a definition, by the path of the definition."""
    pages: Mapping[str, str]
    """The page of each public name."""
    identifiers: Mapping[str, str]
    """The mkdocstrings identifiers of the public names that have an entry of their own."""

    def link(self, path: str, file: str, shown: str) -> str:
        """Returns a Markdown link from the page `file` to a public name."""
        if path in self.identifiers:
            return f"[`{shown}`][{self.identifiers[path]}]"
        there = posixpath.relpath(self.pages[path], posixpath.dirname(file))
        return f"[`{shown}`]({there}#{path})"


@final
@frozen
class Reference:
    """All reference pages, their navigation, and the index of names."""

    pages: Mapping[str, str]
    navigation: Sequence[NavItem]
    entries: Sequence[Entry] = field(repr=False)
    links: NameLinks

    def names_of(self, module: str) -> dict[str, str]:
        """Returns the mkdocstrings identifiers of the names below a module, such as `numpy.sum` below the root."""
        prefix = f"{module}."
        return {
            path.removeprefix(prefix): identifier
            for path, identifier in self.links.identifiers.items()
            if path.startswith(prefix)
        }


def entries(module: str) -> list[Entry]:
    """Returns the public names of a module that are not modules."""
    here = home(module)
    found = [Entry(module, name, find(here, name)) for name in public(here)]
    return [entry for entry in found if not entry.found.is_module]


def subjects(chapter: Chapter) -> dict[Page, list[Entry]]:
    """Returns the names on each page of a chapter; names without a page are on the page `MORE`."""
    found: dict[Page, list[Entry]] = {page: [] for page in [*chapter.pages, MORE]}
    for entry in entries(chapter.module):
        found[_page(chapter, entry)].append(entry)
    for page, about in found.items():
        about.sort(key=lambda entry: _sort_key(page, entry))
    return {page: about for page, about in found.items() if about}


@functools.cache
def reference() -> Reference:
    """Generates all reference pages."""
    here = {chapter: subjects(chapter) for chapter in CHAPTERS if is_there(chapter.module)}
    here = {chapter: pages for chapter, pages in here.items() if pages}
    homes: dict[str, str] = {}
    files: dict[str, str] = {}
    everything: list[Entry] = []
    for chapter, pages in here.items():
        for page, about in pages.items():
            for entry in about:
                homes.setdefault(entry.found.path, entry.path)
                files[entry.path] = _file(chapter, page)
                everything.append(entry)
    parts = {e.path: _identifier(e) for e in everything if e.has_own_part and homes[e.found.path] == e.path}
    links = NameLinks(homes, files, parts)
    made = {f"{FOLDER}/index.md": _overview(list(here))}
    navigation: list[NavItem] = [f"{FOLDER}/index.md"]
    for chapter, pages in here.items():
        made |= {_file(chapter, page): _text(chapter, page, about, links) for page, about in pages.items()}
        if chapter.pages:
            made[_index(chapter)] = _contents(chapter, pages, links)
            below = [{page.title: _file(chapter, page)} for page in pages]
            navigation.append({chapter.folder: [_index(chapter), *below]})
        else:
            navigation.append({chapter.folder: _index(chapter)})
    made[TYPES_FILE] = _types()
    return Reference(made, [*navigation, {TYPES_TITLE: TYPES_FILE}], everything, links)


def _index(chapter: Chapter) -> str:
    """Returns the path of the first page of a chapter, or of its only one."""
    return f"{FOLDER}/{chapter.folder}/index.md" if chapter.pages else f"{FOLDER}/{chapter.folder}.md"


def _file(chapter: Chapter, page: Page) -> str:
    return f"{FOLDER}/{chapter.folder}/{page.file}" if chapter.pages else _index(chapter)


def _title(module: str) -> str:
    return f"# `{module}`\n\n{fenced(read(home(module)).docstring)}\n\n"


def _text(chapter: Chapter, page: Page, about: Sequence[Entry], links: NameLinks) -> str:
    module = about[0].module
    if module == chapter.module and chapter.pages:
        title = f"# {page.title}\n\nNames of `{module}`.\n\n"
    else:
        title = _title(module)
    file = _file(chapter, page)
    return title + _guide(file) + _body(about, links, file)


def _contents(chapter: Chapter, pages: Mapping[Page, Sequence[Entry]], links: NameLinks) -> str:
    text = _title(chapter.module) + _guide(_index(chapter))
    for page, about in pages.items():
        links_of_page = [links.link(entry.path, _index(chapter), entry.name) for entry in about]
        if all(isinstance(entry.found.statement, ast.ClassDef) for entry in about):
            summaries = [_cell(first_sentence(entry.found.docstring)) for entry in about]
            rows = [f"| {link} | {summary} |" for link, summary in zip(links_of_page, summaries, strict=True)]
            listed = "\n".join(["| class | |", "| --- | --- |", *rows])
        else:
            listed = " · ".join(links_of_page)
        text += f"## [{page.title}]({page.file})\n\n{listed}\n\n"
    return text


def _guide(file: str) -> str:
    """Returns a link to the guide that belongs to a reference page, if there is one."""
    guide = GUIDES.get(file.removeprefix(f"{FOLDER}/"))
    if guide is None:
        return ""
    title = (DOCS / guide).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
    return f"*In the guide:* [{title}]({posixpath.relpath(guide, posixpath.dirname(file))})\n\n"


def _page(chapter: Chapter, entry: Entry) -> Page:
    module = entry.found.module
    named = [page for page in chapter.pages if entry.name in page.names]
    foreign = [page for page in chapter.pages if "external" in page.modules and not module.startswith("tracefx")]
    by_module = [
        page for page in chapter.pages if any(f".{module_suffix}." in f".{module}." for module_suffix in page.modules)
    ]
    return next(iter([*named, *foreign, *by_module, MORE]))


def _sort_key(page: Page, entry: Entry) -> tuple[int, bool]:
    """The sort key of a name on a page: the position of its module in `page.modules`, and functions before classes."""
    positions = [i for i, suffix in enumerate(page.modules) if f".{suffix}." in f".{entry.found.module}."]
    return min(positions, default=len(page.modules)), isinstance(entry.found.statement, ast.ClassDef)


def _overview(chapters: Sequence[Chapter]) -> str:
    """Returns the table of modules for the overview page."""
    rows: list[str] = []
    for chapter in chapters:
        about = (
            first_sentence(read(home(chapter.module)).docstring)
            .removeprefix(f"`{chapter.module}`: ")
            .removeprefix("tracefx: ")
        )
        file = posixpath.relpath(_index(chapter), FOLDER)
        rows.append(f"| [`{chapter.module}`]({file}) | {_cell(about[:1].upper() + about[1:])} |")
    return "\n".join(["| module | |", "| --- | --- |", *rows, ""])


def _types() -> str:
    text = f"# {TYPES_TITLE}\n\nTypes that appear in signatures and are not public under these names.\n\n"
    return text + "\n".join([f"::: {path}\n" for path in TYPES])


# ------------------------------------------------------------------ a page


def _body(about: Sequence[Entry], links: NameLinks, file: str) -> str:
    parts: list[str] = []
    for entry in about:
        if entry.path in links.identifiers:
            identifier = links.identifiers[entry.path]
            anchor = f'<a id="{entry.path}"></a>\n\n' if identifier != entry.path else ""
            options = "    options:\n      inherited_members: true\n" if entry.found.path in WITH_INHERITED else ""
            parts.append(f"{anchor}::: {identifier}\n{options}")
    rows = [
        f'| <a id="{entry.path}"></a>`{entry.name}` | {_table_cell(entry, links, file)} |'
        for entry in about
        if entry.path not in links.identifiers
    ]
    if rows:
        title = "## Other names and values" if parts else "## Names"
        parts.append("\n".join([f"{title}\n", "| name | |", "| --- | --- |", *rows, ""]))
    return "\n".join(parts)


def _identifier(entry: Entry) -> str:
    """Returns the mkdocstrings identifier: the public name, or the definition if a module shadows that name."""
    hidden = is_there(f"{home(entry.module)}.{entry.name}")
    return entry.found.path if hidden else entry.path


def _table_cell(entry: Entry, links: NameLinks, file: str) -> str:
    """Returns the table cell of a name: its alias target or its value."""
    found = entry.found
    other = links.canonical_names[found.path]
    if other == entry.path and found.same_as is not None:
        other = links.canonical_names.get(find(found.module, found.same_as).path, other)
    if other != entry.path:
        return f"the same as {links.link(other, file, other)}"
    return _value(entry)


def _value(entry: Entry) -> str:
    value = getattr(importlib.import_module(home(entry.module)), entry.name)
    shown = repr(value)
    if isinstance(value, type):
        return f"the class `{value.__module__}.{value.__qualname__}`"
    if len(shown) <= LONGEST_VALUE and " at 0x" not in shown:
        return f"`{_cell(shown)}`"
    return _cell(first_sentence(value.__doc__ or ""))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def missing(names: Iterable[str], made: Reference) -> list[str]:
    """Returns the names in `names` that are on no page."""
    there = {entry.path for entry in made.entries} | {chapter.module for chapter in CHAPTERS}
    there |= {f"{entry.path}.{member}" for entry in made.entries for member in entry.found.members}
    return [name for name in names if name not in there]
