"""Pages in a browser: headless Chromium, offline."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import pytest
from playwright.sync_api import Browser, Locator, Page, sync_playwright

import tracefx as fx
from tests.laws.examples import is_long_profile
from tests.pictures.examples import LOSS_ARGS, array, long_chain, loss
from tracefx.pictures import show

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.skipif(not is_long_profile(), reason="`make slow` opens pages in Chromium, which takes ten seconds"),
    pytest.mark.skipif(
        CHROMIUM is None, reason="there is no Chromium here; Debian and Ubuntu have it by: apt-get install chromium"
    ),
]

OPTIONS: Final = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-default-apps", "--no-first-run", "--disable-sync", "--disable-dev-shm-usage"),
)
Theme: TypeAlias = Literal["light", "dark"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        instance = playwright.chromium.launch(executable_path=CHROMIUM, args=list(OPTIONS))
        yield instance
        instance.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    large = fx.make_jaxpr(fx.grad(partial(long_chain, steps=286)))(array(8))
    assert len(large.eqns) > 2000
    pages_by_name = {
        "program": show(loss, *LOSS_ARGS),
        "steps": show(loss, *LOSS_ARGS, steps=("program", "grad", "simplified", "stablehlo")),
        "large": show(large),
    }
    (folder / "notebook.html").write_text(
        f"<!doctype html><style>body {{ background: red }}</style>{pages_by_name['program']._repr_html_()}",
        encoding="utf-8",
    )
    return {"notebook": folder / "notebook.html"} | {
        name: page.save(folder / f"{name}.html") for name, page in pages_by_name.items()
    }


@pytest.fixture
def visit(browser: Browser, pages: dict[str, Path]) -> Iterator[Any]:
    """Opens pages; asserts at the end that they made no network requests and logged no errors."""
    contexts = []
    messages: list[str] = []
    requested_urls: list[str] = []

    def open_page(name: str, width: int = 1440, height: int = 900, theme: Theme = "light", touch: bool = False) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=theme, has_touch=touch, offline=True
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("request", lambda request: requested_urls.append(request.url))
        page.set_default_timeout(20_000)
        page.goto(pages[name].as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert messages == []
    assert [url for url in requested_urls if not url.startswith(("file:", "about:"))] == []


def row(page: Page, op: str, step: int = 0) -> Locator:
    """The row of the first equation with this primitive."""
    return page.locator(f'.step[data-pane="{step}"] .code .r[id]:has(u:text-is("{op}"))').first


def source(page: Page, text: str) -> Locator:
    return page.locator(".source .r.p").filter(has_text=text).first


def classes(locator: Locator) -> set[str]:
    return set((locator.get_attribute("class") or "").split())


def test_hover_highlights_lines_variables_and_sources(visit: Any) -> None:
    page = visit("steps")
    tanh, source_line = row(page, "tanh"), source(page, "fnp.tanh(h * 1.1)")
    tanh.locator("u").hover()
    assert "on" in classes(tanh)
    assert "same" in classes(source_line)
    assert "same" in classes(row(page, "tanh", 1))
    assert "from" in page.locator(".told").inner_text()
    stablehlo = page.locator('.step[data-pane="3"] .r.same')
    assert "stablehlo.tanh" in " ".join(stablehlo.all_text_contents())
    source(page, "fnp.maximum(x @ w + b, 0.0)").hover()
    assert {"on", "same"} <= classes(source(page, "fnp.maximum(x @ w + b, 0.0)"))
    assert "same" in classes(row(page, "max"))
    assert "same" not in classes(tanh)
    name = row(page, "max").locator("code > b").first
    name.hover()
    key = name.get_attribute("data-v")
    assert classes(name) == {"def"}
    uses = page.locator(f'b.use[data-v="{key}"]')
    assert uses.count() == page.locator(f'[data-pane="0"] b[data-v="{key}"]').count() - 1 > 0
    assert "made in line 4" in page.locator(".told").inner_text()


def test_click_pins_and_escape_unpins(visit: Any) -> None:
    page = visit("steps")
    tanh = row(page, "tanh")
    tanh.locator("u").click()
    page.mouse.move(5, 5)
    assert {"pin"} <= classes(tanh)
    details = page.locator(".told").inner_text()
    assert "runs 5 times" in details
    assert "transcendental 1.28 k" in details
    page.keyboard.press("Escape")
    assert "pin" not in classes(tanh)
    assert page.locator(".told").is_hidden()
    source(page, "nn.log_softmax").click()
    for step in range(4):
        box = page.locator(f'.step[data-pane="{step}"] .r.same').first.bounding_box()
        assert box is not None
        assert 150 < box["y"] < 860


def test_bodies_can_be_folded(visit: Any) -> None:
    page = visit("program")
    tanh, scan = row(page, "tanh"), row(page, "scan")
    assert tanh.is_visible()
    scan.locator(".t").click()
    assert tanh.is_hidden()
    scan.locator("u").click()  # pins the row and does not unfold it
    assert tanh.is_hidden()
    page.keyboard.press("Escape")
    page.keyboard.press("e")
    assert row(page, "integer_pow").is_hidden()
    page.keyboard.press("e")
    assert tanh.is_visible()


def test_keyboard_navigation(visit: Any) -> None:
    page = visit("program")
    for _ in range(3):
        page.keyboard.press("j")
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.id") == "e0-1"
    assert "on" in classes(page.locator("#e0-1"))
    row(page, "scan").focus()
    page.keyboard.press("h")
    assert row(page, "tanh").is_hidden()
    page.keyboard.press("l")
    page.keyboard.press("Enter")
    assert "pin" in classes(row(page, "scan"))
    page.keyboard.press("?")
    assert page.locator(".help").is_visible()
    page.keyboard.press("Escape")
    assert page.locator(".help").is_hidden()


def test_search_unfolds_matches(visit: Any) -> None:
    page = visit("program")
    page.keyboard.press("e")
    page.keyboard.press("/")
    page.keyboard.type("tanh f32[8,32]")
    assert page.locator(".search output").inner_text() == "1 found"
    assert row(page, "tanh").is_hidden()
    page.keyboard.press("Enter")
    assert row(page, "tanh").is_visible()
    assert {"hit", "now"} <= classes(row(page, "tanh"))
    page.keyboard.press("Escape")
    assert page.locator(".hit").count() == 0


def count_overlaps(page: Page) -> int:
    """The number of pairs of overlapping nodes in the same graph; nested nodes do not count."""
    count = page.evaluate(
        """() => {
            const groups = new Map();
            for (const node of document.querySelectorAll(".graph .node")) {
                const box = node.querySelector("rect").getBoundingClientRect();
                const at = node.parentElement;
                (groups.get(at) || groups.set(at, []).get(at)).push(box);
            }
            let count = 0;
            for (const boxes of groups.values())
                for (let i = 0; i < boxes.length; i++)
                    for (let j = 0; j < i; j++) {
                        const a = boxes[i], b = boxes[j];
                        if (a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom) count++;
                    }
            return count;
        }"""
    )
    assert isinstance(count, int)
    return count


def node(page: Page, label: str) -> Locator:
    return page.locator(f'.graph .node > text.title:text-is("{label}")').first.locator("xpath=..")


def transform(page: Page) -> str:
    return page.locator(".graph svg > g").first.get_attribute("transform") or ""


def test_graphs_have_no_overlaps_and_are_linked(visit: Any) -> None:
    page = visit("program")
    page.keyboard.press("g")
    assert node(page, "dot_general").is_visible()
    page.get_by_role("button", name="close all").click()
    closed = page.locator(".graph .node").count()
    assert node(page, "tanh").count() == 0
    assert count_overlaps(page) == 0
    page.get_by_role("button", name="open all").click()
    assert page.locator(".graph .node").count() > closed + 10
    assert count_overlaps(page) == 0
    page.get_by_role("button", name="fit to window").click()
    node(page, "scan").locator("[data-open]").first.click()
    assert node(page, "tanh").count() == 0
    node(page, "scan").locator("[data-open]").first.click()
    assert count_overlaps(page) == 0
    # Outer and inner edges go down: each starts above its end.
    upwards = page.evaluate(
        """() => [...document.querySelectorAll(".graph .wire")].filter((wire) => {
            let y = -1e9;
            const ends = (wire.getAttribute("d").match(/[MV,]-?[\\d.]+(?=[MVC ]|$)/g) || []);
            for (const step of wire.getAttribute("d").split("M").slice(1)) {
                y = Number(step.split(",")[1].split(/[VC]/)[0]);
                for (const end of step.match(/V(-?[\\d.]+)/g) || []) {
                    if (Number(end.slice(1)) < y - 0.01) return true;
                    y = Number(end.slice(1));
                }
            }
            return ends.length === 0;
        }).length"""
    )
    assert upwards == 0
    node(page, "reduce_max").hover()
    assert "same" in classes(source(page, "nn.log_softmax"))
    node(page, "reduce_max").click()
    page.keyboard.press("g")
    assert "pin" in classes(row(page, "reduce_max"))


def test_graphs_pan_and_zoom(visit: Any) -> None:
    page = visit("program")
    page.keyboard.press("g")
    before = transform(page)
    page.mouse.move(1000, 700)
    page.mouse.wheel(0, -300)
    nearer = transform(page)
    assert float(nearer.split("scale(")[1][:-1]) > float(before.split("scale(")[1][:-1])
    page.mouse.move(500, 800)
    page.mouse.down()
    page.mouse.move(560, 760, steps=4)
    page.mouse.up()
    moved = [float(x) for x in transform(page).split("(")[1].split(")")[0].split(",")]
    start = [float(x) for x in nearer.split("(")[1].split(")")[0].split(",")]
    assert moved == pytest.approx([start[0] + 60, start[1] - 40], abs=1)
    assert page.locator(".told").is_hidden()  # dragging does not pin
    page.keyboard.press("0")
    page.keyboard.press("+")
    assert transform(page) != nearer


def test_pinned_line_is_scrolled_into_view_in_the_graph(visit: Any) -> None:
    page = visit("steps")
    page.locator('.step[data-pane="1"] [data-view="graph"]').click()
    page.locator('.step[data-pane="1"]').get_by_role("button", name="close all").click()
    row(page, "tanh").locator("u").click()
    tanh = node(page, "tanh")
    assert "same" in classes(tanh)
    box = tanh.bounding_box()
    assert box is not None
    assert 0 < box["y"] < 900


def test_panes_are_side_by_side_or_in_tabs(visit: Any) -> None:
    wide = visit("steps", 2000)
    assert [pane.is_visible() for pane in wide.locator(".pane").all()] == [True] * 5
    wide.locator('.tab[data-pane="2"]').click()
    assert [pane.is_visible() for pane in wide.locator(".pane").all()] == [True, True, True, False, True]
    wide.keyboard.press("s")
    assert wide.locator(".source").is_hidden()
    narrow = visit("steps", 390, 844, "dark", touch=True)
    assert [pane.is_visible() for pane in narrow.locator(".pane").all()] == [False, True, False, False, False]
    narrow.locator('.tab[data-pane="3"]').click()
    assert [pane.is_visible() for pane in narrow.locator(".pane").all()] == [False, False, False, False, True]
    narrow.locator('.tab[data-pane="0"]').click()
    row(narrow, "max").locator("u").tap()
    assert "pin" in classes(row(narrow, "max"))
    narrow.locator(".told a", has_text="examples.py").click()
    assert source(narrow, "fnp.maximum").is_visible()


@pytest.mark.parametrize("width", [320, 390])
def test_no_horizontal_scrolling_on_phones(visit: Any, width: int) -> None:
    page = visit("steps", width, 844)
    for tab in page.locator(".tab").all():
        tab.click()
        sizes = page.evaluate(
            """() => [...document.querySelectorAll("html, .rows, .pane > header")]
                .filter((e) => e.clientWidth).map((e) => e.scrollWidth - e.clientWidth)"""
        )
        assert max(sizes) <= 0


COLOURS: Final = ".code .r :is(u, i, s, em, q), .n, .totals dt, .told span, .p :is(b, q, i)"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_contrast(visit: Any, theme: Theme) -> None:
    """WCAG AA: a contrast of at least 4.5 to 1 for text of this size, on every background."""
    page = visit("program", theme=theme)
    row(page, "max").locator("u").click()
    ratios = page.evaluate(
        """(selector) => {
            const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
            const light = (colour, under) => {
                canvas.fillStyle = under; canvas.fillRect(0, 0, 1, 1);
                canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
                const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((v) => v / 255)
                    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
            };
            const ground = (e) => {
                for (; e; e = e.parentElement) {
                    const colour = getComputedStyle(e).backgroundColor;
                    if (!colour.endsWith(", 0)")) return colour;
                }
            };
            const found = {};
            for (const e of document.querySelectorAll(selector)) {
                const under = ground(e), a = light(getComputedStyle(e).color, under), b = light(under, under);
                const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
                const what = e.tagName + " " + getComputedStyle(e).color + " on " + under;
                found[what] = Math.round(ratio * 100) / 100;
            }
            return found;
        }""",
        COLOURS,
    )
    assert len(ratios) > 12
    assert {name: ratio for name, ratio in ratios.items() if ratio < 4.5} == {}


def background_color(page: Page) -> str:
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert isinstance(colour, str)
    return colour


def test_color_theme_follows_system_or_choice(visit: Any) -> None:
    light, dark = visit("program"), visit("program", theme="dark")
    white, black = background_color(light), background_color(dark)
    assert white != black
    light.keyboard.press("t")
    assert background_color(light) == black
    light.get_by_role("button", name="light or dark").click()
    assert background_color(light) == white


def test_print_shows_all_lines(visit: Any) -> None:
    page = visit("program")
    page.keyboard.press("e")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert row(page, "tanh").is_visible()
    assert page.locator(".tools").is_hidden()
    assert page.evaluate("document.documentElement.scrollHeight") > 1100


def test_inputs_of_bodies_show_outer_variables(visit: Any) -> None:
    page = visit("program")
    body = page.locator('.f:has(> summary u:text-is("scan")) > .in > .h b').first
    body.hover()
    operand = row(page, "scan").locator("code > b").last
    assert classes(operand) == {"use"}
    assert f"outside {operand.inner_text()}" in page.locator(".told").inner_text()
    link = page.locator(".h a", has_text="as in line").first
    link.click()
    first = row(page, "jit(normalise)")
    assert "pin" in classes(first)
    assert page.evaluate("document.activeElement.id") == first.get_attribute("id")


def test_memory_curve_links_to_lines(visit: Any) -> None:
    page = visit("program")
    curve = page.locator(".time").bounding_box()
    top = page.locator(".time .top").bounding_box()
    assert curve is not None
    assert top is not None
    page.mouse.click(top["x"] + top["width"] / 2, curve["y"] + 10)
    assert classes(page.locator(".r.pin")) >= {"peak", "pin"}
    assert page.locator(".r.pin").bounding_box()["y"] < 860
    details = page.locator(".told code").inner_text()
    assert "= " in details
    assert details.count("[") == details.count("]")


def test_page_without_javascript(browser: Browser, pages: dict[str, Path]) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(pages["program"].as_uri())
    assert row(page, "dot_general").is_visible()
    page.locator(".f > summary").first.click()
    assert row(page, "integer_pow").is_hidden()
    context.close()


def test_large_programs(visit: Any) -> None:
    page = visit("large")
    assert page.locator(".code .r[id]").count() > 2000
    page.keyboard.press("g")
    assert page.locator(".graph .node.e").count() > 2000
    page.keyboard.press("g")
    row(page, "sin").locator("u").hover()
    assert "on" in classes(row(page, "sin"))


def test_notebook_shows_the_page_in_a_frame(visit: Any) -> None:
    page = visit("notebook")
    frame = page.frame_locator("iframe")
    scan = frame.locator('.code .r[id]:has(u:text-is("scan"))')
    scan.locator(".t").click()
    assert frame.locator('.code .r[id]:has(u:text-is("tanh"))').is_hidden()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 0, 0)"
