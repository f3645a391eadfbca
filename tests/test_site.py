"""The documentation site builds without a warning, has every public name, and loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from html import unescape
from pathlib import Path

from playwright.sync_api import sync_playwright

from docs.building.chapters import GUIDES
from docs.building.docstrings import fenced, first_sentence
from docs.building.places import with_links
from docs.building.reference import missing, reference
from docs.building.sources import find, public
from docs.building.texts import linked
from tests.names import names
from tests.pictures.test_browser import CHROMIUM, OPTIONS

PROJECT = Path(__file__).parent.parent


def built(there: Path) -> subprocess.CompletedProcess[str]:
    """The site, built as `make docs` does: links, anchors and names that lead nowhere are errors."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(there)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(PROJECT / "src")}
    return subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)


def without_a_place(pages: Mapping[str, str]) -> list[str]:
    """The public names that no page has an anchor for."""
    ids = {name for text in pages.values() for name in re.findall(r'\bid="([^"]+)"', text)}
    return [entry.path for entry in reference().entries if entry.path not in ids]


def from_elsewhere(text: str) -> list[str]:
    """The addresses that a page or a style sheet makes a browser load."""
    loading = r'<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)="(https?:[^"]*)"'
    return re.findall(loading, text) + re.findall(r"(?:@import|url\()\s*[\"']?(https?:[^)\"']*)", text)


def left_over(text: str) -> list[str]:
    """Lists, tables and sessions that Markdown took for running text."""
    paragraphs = [unescape(each) for each in re.findall(r"<p>(.*?)</p>", text, re.DOTALL)]
    return [each for each in paragraphs if re.search(r"^(- |\| |>>> |```|:::)", each, re.MULTILINE)]


LOOKED_AT = (
    *("index", "tour", "moving", "names", "gallery/count", "benchmarks/cpu-2-cores"),
    *("reference/index", "reference/numpy/creating", "reference/tracefx/arrays"),
)
"""Pages with much code, with wide tables and with long names."""


def wrong_on_a_phone(site: Path) -> list[str]:
    """What Chromium says of pages that are opened from the disk, as wide as a phone."""
    wrong: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(OPTIONS))
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("request", lambda asked: wrong.append(asked.url) if asked.url.startswith("http") else None)
        for name in LOOKED_AT:
            page.goto((site / f"{name}.html").as_uri())
            beyond = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            wrong += [f"{name} is wider than the screen"] if beyond else []
        page.click("label.md-header__button[for=__search]")
        page.locator(".md-search__input").press_sequentially("einsum")
        page.wait_for_selector(".md-search-result__item a[href*='numpy/products.html']")
        browser.close()
    return wrong


def test_the_site(tmp_path: Path) -> None:
    """One test, since building takes a while."""
    process = built(tmp_path)
    assert (process.returncode, process.stdout + process.stderr) == (0, "")
    files = [file for file in sorted(tmp_path.rglob("*")) if file.suffix in (".html", ".css")]
    texts = {file.relative_to(tmp_path).as_posix(): file.read_text(encoding="utf-8") for file in files}
    pages = {file: text for file, text in texts.items() if file.endswith(".html")}
    assert without_a_place(pages) == []
    assert {file: found for file, text in texts.items() if (found := from_elsewhere(text))} == {}
    assert {file: found for file, text in pages.items() if (found := left_over(text))} == {}
    if CHROMIUM is not None:  # where there is none, tests/pictures say so
        assert wrong_on_a_phone(tmp_path) == []


def test_what_is_wrong_with_a_page_is_found() -> None:
    assert len(without_a_place({"page.html": '<a id="tracefx.grad"></a>'})) == len(reference().entries) - 1
    assert from_elsewhere('<script async src="https://e.org/a.js"><a href="https://e.org">') == ["https://e.org/a.js"]
    assert from_elsewhere("@font-face { src: url(https://e.org/a.woff) }") == ["https://e.org/a.woff"]
    assert left_over("<p>Text:\n- one\n- two</p>") == ["Text:\n- one\n- two"]


def test_every_counterpart_of_a_name_of_jax_is_in_the_reference() -> None:
    """What is public is found here by other means than those that make the pages."""
    rows = [row for listed in names().values() for row in listed]
    same = [name for row in rows if row.here == (name := f"tracefx{row.jax.removeprefix('jax')}")]
    assert len(same) > 1000
    assert missing(same, reference()) == []


def test_pages_with_a_guide_are_there() -> None:
    assert {f"reference/{page}" for page in GUIDES} - set(reference().pages) == set()


def test_sessions_become_code() -> None:
    text = "It adds.\n\n>>> add(1, 2)\n3\n\nMore.\n\n    >>> add(\n    ...     1, 1)\n    2"
    assert fenced(text) == (
        "It adds.\n\n```pycon\n>>> add(1, 2)\n3\n```\n\nMore.\n\n    ```pycon\n    >>> add(\n    ...     1, 1)\n    2\n"
        "    ```\n"
    )
    assert fenced(">>> f()  # doctest: +ELLIPSIS\nx\n<BLANKLINE>\ny") == "```pycon\n>>> f()\nx\n\ny\n```\n"
    assert fenced("```python\n>>> 1\n```") == "```python\n>>> 1\n```"


def test_names_in_texts_are_links() -> None:
    text = "As `sum` of `x`, or `numpy.prod`.\n\n```pycon\n>>> `sum`\n```\n[`sum`][there] ``sum``"
    assert linked(text, {"sum": "a.sum", "numpy.prod": "a.prod", "x": "a.x"}, {"x"}) == (
        "As [`sum`][a.sum] of `x`, or [`numpy.prod`][a.prod].\n\n```pycon\n>>> `sum`\n```\n[`sum`][there] ``sum``"
    )


def test_what_a_docstring_begins_with() -> None:
    assert first_sentence("The sum\nof `x`. More.\n\nMuch more.") == "The sum of `x`."
    assert first_sentence("No dot\n\nMore.") == "No dot"


def test_links_lead_where_the_files_are_on_the_site() -> None:
    assert with_links("[a](../../CONTRIBUTING.md#x) `[b](c)`", "docs/gallery/log.md") == (
        "[a](../contributing.md#x) `[b](c)`"
    )
    assert with_links("[d](docs/design.md) [e](https://e.org) [f](#f)", "CONTRIBUTING.md") == (
        "[d](design.md) [e](https://e.org) [f](#f)"
    )
    assert with_links("[tests](../tests/laws) [`tests/laws`](../tests/laws)", "docs/laws.md") == (
        "tests (`tests/laws`) `tests/laws`"
    )
    assert (
        with_links("[t](../benchmarks/results/cpu-2-cores.md)", "docs/benchmarks.md")
        == "[t](benchmarks/cpu-2-cores.md)"
    )


def test_names_are_found_where_they_are_defined() -> None:
    assert find("tracefx", "grad").path == "tracefx.transforms.gradients.grad"
    assert (
        find("tracefx.numpy", "einsum").path == "tracefx.numpy.einstein_summation.einsum"
    )  # whatever modules it comes through
    assert find("tracefx.handlers", "log").docstring.startswith("`fun`")
    assert find("tracefx.numpy", "acos").same_as == "arccos"
    assert find("tracefx", "numpy").is_module
    assert "Interpreter" in public("tracefx.extend")
    assert "annotations" not in public("tracefx.extend")


def test_a_name_without_a_place_is_found() -> None:
    assert missing(["tracefx.grad", "tracefx.gard"], reference()) == ["tracefx.gard"]
