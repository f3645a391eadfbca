"""The documentation site builds without warnings, documents every public name, and loads no external resources."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from html import unescape
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest
from playwright.sync_api import Browser, sync_playwright

from docs.building.chapters import GUIDES
from docs.building.docstrings import fenced, first_sentence
from docs.building.griffe_extension import linked
from docs.building.reference import missing, reference
from docs.building.site_paths import with_links
from docs.building.sources import find, public
from tests.laws.examples import is_long_profile
from tests.names import names
from tests.pictures.test_browser import CHROMIUM, OPTIONS

PROJECT = Path(__file__).parent.parent


def build_site(folder: Path) -> subprocess.CompletedProcess[str]:
    """Builds the site as `make docs` does, with broken links, anchors and names as errors."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(PROJECT / "src")}
    return subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)


def undocumented(pages: Mapping[str, str]) -> list[str]:
    """Returns the public names without an anchor in any page."""
    ids = {name for text in pages.values() for name in re.findall(r'\bid="([^"]+)"', text)}
    return [entry.path for entry in reference().entries if entry.path not in ids]


def external_urls(text: str) -> list[str]:
    """Returns the external URLs that a page or a style sheet loads."""
    loading = r'<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)="(https?:[^"]*)"'
    return re.findall(loading, text) + re.findall(r"(?:@import|url\()\s*[\"']?(https?:[^)\"']*)", text)


def unrendered(text: str) -> list[str]:
    """Returns the lists, tables and sessions that were rendered as paragraphs."""
    paragraphs = [unescape(each) for each in re.findall(r"<p>(.*?)</p>", text, re.DOTALL)]
    return [each for each in paragraphs if re.search(r"^(- |\| |>>> |```|:::)", each, re.MULTILINE)]


CHECKED_PAGES = (
    *("index", "tour", "moving", "names", "gallery/count", "benchmarks/cpu-2-cores"),
    *("reference/index", "reference/numpy/creating", "reference/tracefx/arrays"),
)
"""Pages with much code, wide tables or long names."""
SEARCHES: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("debug", "nan", "memory", "print"), "debugging.html"),
        **dict.fromkeys(("grad", "vmap", "jit"), "reference/tracefx/transformations.html"),
        "einsum": "reference/numpy/products.html",
        "random": "random.html",
    }
)
"""Words, and the page that the search finds first for each."""


def phone_problems(browser: Browser, site: Path) -> list[str]:
    """Returns the problems on a phone: console errors, network requests, content wider than the screen."""
    problems: list[str] = []
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: problems.append(request.url) if request.url.startswith("http") else None)
    for name in CHECKED_PAGES:
        page.goto((site / f"{name}.html").as_uri())
        overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        problems += [f"{name} is wider than the screen"] if overflow else []
    return problems


def clipped_code(browser: Browser, files: Iterable[Path]) -> list[str]:
    """Returns the code blocks of pages that are wider than their frame on a screen of 1280 pixels."""
    page = browser.new_page(viewport={"width": 1280, "height": 900}, java_script_enabled=False)
    found: list[str] = []
    for file in files:
        page.goto(file.as_uri())
        clipped = page.evaluate(
            "[...document.querySelectorAll('pre, pre > code')].filter(e => e.scrollWidth > e.clientWidth)"
            ".map(e => e.textContent)"
        )
        found += [f"{file.name}: {text}" for text in clipped]
    return found


def first_results(browser: Browser, site: Path, words: Iterable[str]) -> dict[str, str]:
    """Returns the page that the search finds first for each word."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    found: dict[str, str] = {}
    for word in words:
        page.goto(f"{(site / 'tour.html').as_uri()}?q={word}")
        link = page.locator(".md-search-result__item a").first
        found[word] = (link.get_attribute("href") or "").removeprefix(f"{site.as_uri()}/").partition("?")[0]
    return found


def filtered_rows(browser: Browser, file: Path, text: str) -> list[str]:
    """Returns the rows of the tables that a page shows after `text` is typed into its filter."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(file.as_uri())
    assert page.locator("details tbody tr:visible").count() == 0, "tables are folded at first"
    page.locator(".table-filter").press_sequentially(text)
    return page.locator("tbody tr:visible").all_inner_texts()


def check_in_browser(site: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(OPTIONS))
        assert phone_problems(browser, site) == []
        guides = [*site.glob("*.html"), *site.glob("gallery/*.html")]
        assert clipped_code(browser, guides) == []
        assert clipped_code(browser, [site / "reference/testing/checks.html"]) == []
        assert first_results(browser, site, SEARCHES) == SEARCHES
        assert filtered_rows(browser, site / "names.html", "no such name") == []
        assert filtered_rows(browser, site / "names.html", "numpy.matvec") == ["matvec\ttracefx.numpy.matvec"]
        (row,) = filtered_rows(browser, site / "benchmarks" / "cpu-2-cores.html", "ResNet-18, loss and gradient, com")
        assert row.startswith("ResNet-18, loss and gradient, compiled\t")
        browser.close()


@pytest.mark.skipif(not is_long_profile(), reason="`make slow` builds the site, which takes half a minute")
def test_site(tmp_path: Path) -> None:
    """Checks everything that needs the built site, since a build is slow."""
    process = build_site(tmp_path)
    assert (process.returncode, process.stdout + process.stderr) == (0, "")
    files = [file for file in sorted(tmp_path.rglob("*")) if file.suffix in (".html", ".css")]
    texts = {file.relative_to(tmp_path).as_posix(): file.read_text(encoding="utf-8") for file in files}
    pages = {file: text for file, text in texts.items() if file.endswith(".html")}
    assert undocumented(pages) == []
    assert {file: found for file, text in texts.items() if (found := external_urls(text))} == {}
    assert {file: found for file, text in pages.items() if (found := unrendered(text))} == {}
    if CHROMIUM is not None:  # tests/pictures report a missing browser
        check_in_browser(tmp_path)


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"[\w./-]+\.md", (PROJECT / "mkdocs.yml").read_text(encoding="utf-8")))
    pages = {file.relative_to(PROJECT / "docs").as_posix() for file in (PROJECT / "docs").rglob("*.md")}
    assert pages - listed == {"reference/index.md", "benchmarks.md"}  # which the folders in the navigation stand for
    copied = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
    assert listed - pages == copied.keys()
    assert all((PROJECT / file).exists() for file in copied.values())


def test_page_checks_detect_problems() -> None:
    assert len(undocumented({"page.html": '<a id="tracefx.grad"></a>'})) == len(reference().entries) - 1
    assert external_urls('<script async src="https://e.org/a.js"><a href="https://e.org">') == ["https://e.org/a.js"]
    assert external_urls("@font-face { src: url(https://e.org/a.woff) }") == ["https://e.org/a.woff"]
    assert unrendered("<p>Text:\n- one\n- two</p>") == ["Text:\n- one\n- two"]


def test_reference_has_every_counterpart_of_a_jax_name() -> None:
    """Finds the public names independently of the code that generates the pages."""
    rows = [row for listed in names().values() for row in listed]
    same = [name for row in rows if row.here == (name := f"tracefx{row.jax.removeprefix('jax')}")]
    same.remove("tracefx.ad_checkpoint.checkpoint_policies")  # a module, which has its own chapter
    assert len(same) > 1000
    assert missing(same, reference()) == []


def test_pages_with_a_guide_exist() -> None:
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


def test_first_sentence_of_a_docstring() -> None:
    assert first_sentence("The sum\nof `x`. More.\n\nMuch more.") == "The sum of `x`."
    assert first_sentence("No dot\n\nMore.") == "No dot"


def test_links_are_rewritten_for_the_site() -> None:
    assert with_links("[a](../../CONTRIBUTING.md#x) `[b](c)`", "docs/gallery/log.md") == (
        "[a](../contributing.md#x) `[b](c)`"
    )
    assert with_links("[d](docs/design.md) [e](https://e.org) [f](#f)", "CONTRIBUTING.md") == (
        "[d](design.md) [e](https://e.org) [f](#f)"
    )
    assert with_links("![picture](docs/assets/p.png) [tour](docs/tour.md)", "README.md") == (
        "![picture](assets/p.png) [tour](tour.md)"
    )
    assert with_links("[tests](../tests/laws) [`tests/laws`](../tests/laws)", "docs/laws.md") == (
        "tests (`tests/laws`) `tests/laws`"
    )
    assert (
        with_links("[t](../benchmarks/results/cpu-2-cores.md)", "docs/benchmarks.md")
        == "[t](benchmarks/cpu-2-cores.md)"
    )


def test_names_resolve_to_their_definitions() -> None:
    assert find("tracefx", "grad").path == "tracefx.transforms.gradients.grad"
    assert find("tracefx.numpy", "einsum").path == "tracefx.numpy.einstein_summation.einsum"  # re-exports do not matter
    assert find("tracefx.handlers", "log").docstring.startswith("Returns `fun`")
    assert find("tracefx.numpy", "acos").same_as == "arccos"
    assert find("tracefx", "numpy").is_module
    assert "Interpreter" in public("tracefx.extend")
    assert "annotations" not in public("tracefx.extend")


def test_undocumented_name_is_detected() -> None:
    assert missing(["tracefx.grad", "tracefx.gard"], reference()) == ["tracefx.gard"]
