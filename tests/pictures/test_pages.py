"""`show` and `Page`: accepted and rejected arguments, steps, escaping of user text, and saving."""

from __future__ import annotations

import html
import re
import webbrowser
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, final

import pytest
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tests.pictures.examples import LOSS_ARGS, array, long_chain, loss, normalise
from tracefx import Array
from tracefx.core.jaxpr import Jaxpr
from tracefx.pictures import Page, show
from tracefx.pictures.compiler_text import hlo_lines, stablehlo_lines
from tracefx.pictures.stages import STAGE_NAMES, build_stages

EMPTY = frozenset({"meta", "input", "link", "br", "hr", "img"})


@final
class Elements(HTMLParser):
    """Parses the elements of a page; asserts that end tags match start tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.names: list[str] = []
        self.texts: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(page)
        self.close()

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs
        if tag not in EMPTY:
            self.opened.append(tag)

    @override
    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)

    @override
    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag, tag

    @override
    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def titles(subject: Any, *args: Any, **options: Any) -> list[str]:
    return [stage.title for stage in build_stages(subject, args, {}, **options)[1]]


def test_pages_are_self_contained() -> None:
    page = show(loss, *LOSS_ARGS, steps="all")
    assert set(re.findall(r"https?://[^\"' ]+", page.html)) <= {"http://www.w3.org/2000/svg"}
    elements = Elements(page.html)
    assert elements.opened == []
    assert not {"link", "img", "iframe", "object"} & set(elements.names)
    assert "src" not in dict(elements.attributes)
    assert "default-src 'none'" in page.html
    assert page.title == "loss"


def test_user_text_is_escaped() -> None:
    evil = '</script><script>alert("1")</script>'

    def f(x: Array, key: str) -> Array:
        with fx.named_scope(evil):
            return fnp.sin(x)  # </script><script>alert(2)</script> {{style}}

    f.__name__ = evil
    page = show(partial(f, key=evil), {evil: array(3)}[evil], title=f"<img src=x onerror=alert(3)> {evil} {{{{data}}}}")
    elements = Elements(page.html)
    assert elements.names.count("script") == 2
    assert "img" not in elements.names
    assert elements.opened == []
    text = "".join(elements.texts)
    assert "alert(2)" in text
    assert "{{style}}" in text
    assert "{{data}}" in text
    assert page.html.count("\n  --ground:") == 1
    framed = Elements(page._repr_html_())
    assert framed.names == ["iframe"]
    assert dict(framed.attributes)["srcdoc"] == page.html


def test_argument_names_are_escaped() -> None:
    page = show(lambda tree: tree["<b>&"], {"<b>&": array(3)})
    assert "tree['&lt;b&gt;&amp;']" in page.html
    assert Elements(page.html).opened == []


def test_save_and_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = show(fnp.sin, array(3))
    assert page.save(tmp_path / "sin.html") == tmp_path / "sin.html"
    assert (tmp_path / "sin.html").read_text(encoding="utf-8") == page.html
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = page.open()
    assert opened == [path.as_uri()]
    assert path.read_text(encoding="utf-8") == page.html
    pattern = r"Page\('sin', [\d.]+ kB\): \.save\(path\) writes it, \.open\(\) shows it in a browser"
    assert re.fullmatch(pattern, repr(page))
    assert page == Page(page.title, page.html)


def test_programs_have_notebook_representations() -> None:
    def wave(x: Array) -> Array:
        return fnp.sin(x).sum()

    closed = fx.make_jaxpr(fx.hessian(wave))(array(3))
    traced = fx.jit(fnp.sin).trace(array(3))
    lowered = traced.lower()
    for program, expected in (
        (closed, "<u>sin</u>"),
        (closed.jaxpr, "<u>sin</u>"),
        (traced, "<u>sin</u>"),
        (lowered, "stablehlo.sine"),
        (lowered.compile(), "ROOT"),
    ):
        html = program._repr_html_()
        assert html is not None
        elements = Elements(html)
        assert elements.names == ["iframe"]
        assert ("sandbox", "allow-scripts") in elements.attributes
        inner = dict(elements.attributes)["srcdoc"]
        assert inner is not None
        assert expected in "".join(Elements(inner).texts if "<" not in expected else [inner])


def test_notebooks_show_short_jaxprs_as_text() -> None:
    closed = fx.make_jaxpr(lambda x: fnp.sin(x) * 2.0)(array(3))
    assert closed._repr_html_() is None
    assert closed.jaxpr._repr_html_() is None


def test_show_accepts_lowered_and_compiled_calls() -> None:
    lowered = fx.jit(loss).lower(*LOSS_ARGS)
    assert show(lowered).title == "loss"
    assert show(lowered).html == show(loss, *LOSS_ARGS, steps="stablehlo").html
    assert show(lowered.compile()).html == show(loss, *LOSS_ARGS, steps="compiled").html
    for given in (lowered, lowered.compile()):
        with pytest.raises(TypeError, match=r"show: <loss .*> takes no arguments and steps"):
            show(given, *LOSS_ARGS)
        with pytest.raises(TypeError, match="takes no arguments and steps"):
            show(given, steps="grad")


def test_equations_that_the_compiler_drops_are_marked() -> None:
    def square_mean(x: Array) -> Array:
        return fnp.mean(fnp.tanh(x) ** 2)

    page = show(square_mean, array(4), steps=["program", "grad"])
    marked = re.findall(r'<div class="r k-\w+ dead".*?</div>', page.html)
    assert re.findall(r"<u>(\w+)</u>", "".join(marked)) == ["integer_pow", "reduce_sum", "div"]
    assert all("dropped by the compiler: no output depends on it" in row for row in marked)


def test_show_accepts_functions_and_programs() -> None:
    closed = fx.make_jaxpr(loss)(*LOSS_ARGS)
    of_program, of_jaxpr = show(closed), show(closed.jaxpr)
    assert of_program.html == of_jaxpr.html
    assert show(fx.jit(loss).trace(*LOSS_ARGS)).title == "loss"
    assert "params[0][1]" in show(loss, *LOSS_ARGS).html
    assert "params[0][1]" in show(fx.jit(loss), *LOSS_ARGS).html

    def keyed(x: Array, *, times: int) -> Array:
        return x * times

    assert "times" in show(keyed, array(3), times=array(dtype="int32")).html
    static = fx.jit(keyed, static_argnames="times")
    assert "3.0" in show(static, array(3), times=3).html


def test_steps_are_derived_from_each_other() -> None:
    assert titles(loss, *LOSS_ARGS, steps=STAGE_NAMES) == ["loss", "grad", "simplified", "StableHLO", "compiled"]
    stages = {stage.title: stage for stage in build_stages(loss, LOSS_ARGS, {}, STAGE_NAMES)[1]}
    program, gradient, simplified = [stages[name].program for name in ("loss", "grad", "simplified")]
    assert program is not None
    assert gradient is not None
    assert simplified is not None
    assert program.count < simplified.count < gradient.count
    assert [len(d.body.outs) for d in (program, gradient, simplified)] == [1, 4, 4]
    for name in ("StableHLO", "compiled"):
        locations = [line.location for line in stages[name].text if line.location is not None]
        assert {location.file for location in locations} == {loss.__code__.co_filename}
        assert len(locations) > 50
        assert "loc(" not in "".join([line.text for line in stages[name].text])
        assert "metadata=" not in "".join([line.text for line in stages[name].text])
    assert titles(fnp.sin, array(3), steps=["program", fx.jit, fx.vmap]) == ["sin", "jit", "vmap"]
    assert titles(loss, *LOSS_ARGS, steps=["grad"]) == ["grad"]


def test_steps_all_selects_applicable_steps() -> None:
    assert titles(lambda x: x.sum(), array(3), steps=["all"])[1] == "grad"
    assert "grad" not in titles(lambda x: x, array(3), steps=["all"])
    assert "grad" not in titles(lambda x: x.sum(), array(3, dtype="int32"), steps=["all"])
    assert "grad" not in titles(fx.make_jaxpr(lambda x: x.sum())(array(3)), steps=["all"])


def test_invalid_arguments_are_rejected() -> None:
    closed = fx.make_jaxpr(fnp.sin)(1.0)
    anything: Any = 3
    with pytest.raises(TypeError, match="show takes a function with arguments or a program, .* got 3 of type int"):
        show(anything)
    with pytest.raises(TypeError, match="a program takes no arguments, got 1 in addition"):
        show(closed, 1.0)
    with pytest.raises(TypeError, match="the step 'grad' transforms functions, but what is shown is a program"):
        show(closed, steps="grad")
    with pytest.raises(ValueError, match="there is no step 'hlo'; there are 'program', 'grad', 'simplified'"):
        show(fnp.sin, 1.0, steps="hlo")
    with pytest.raises(TypeError, match="argument"):
        show(normalise, "x")


def test_program_without_equations() -> None:
    assert Elements(show(lambda x: x, array(3)).html).opened == []
    assert Elements(show(Jaxpr((), (), (), ())).html).opened == []


def test_page_size_of_a_large_program() -> None:
    program = fx.make_jaxpr(fx.grad(partial(long_chain, steps=150)))(array(8))
    size = len(show(program).html)
    assert size < 700 * len(program.eqns) + 60_000


def test_source_locations_in_stablehlo() -> None:
    text = (
        'module {\n  %0 = a loc(#loc3)\n  %1 = b loc(unknown)\n  %2 = c(%x loc("n")) loc(#loc9)\n} loc(#loc)\n'
        '#loc = loc(unknown)\n#loc1 = loc("dir/a (1).py":12:4)\n#loc2 = loc("inner"(#loc1))\n'
        '#loc3 = loc("outer"(#loc2))\n'
    )
    lines = stablehlo_lines(text)
    assert [line.text for line in lines] == ["module {", "  %0 = a", "  %1 = b", '  %2 = c(%x loc("n"))', "}"]
    assert [line.location and (line.location.file, line.location.line) for line in lines] == [
        *(None, ("dir/a (1).py", 12), None, None, None)
    ]


def test_source_locations_in_hlo() -> None:
    text = (
        'HloModule m\n\nFileNames\n1 "a.py"\n\nFunctionNames\n1 "f"\n\nFileLocations\n'
        "4 {file_name_id=1 function_name_id=1 line=7 end_line=7 column=0 end_column=0}\n\nStackFrames\n"
        "2 {file_location_id=4 parent_frame_id=1}\n\n\nENTRY %main {\n"
        '  %a = f32[] add(%b, %c), metadata={op_name="f" stack_frame_id=2}\n  %d = f32[] sine(%a)\n}\n'
    )
    lines = hlo_lines(text)
    assert [line.text for line in lines if line.text] == [
        *("HloModule m", "ENTRY %main {", "  %a = f32[] add(%b, %c)", "  %d = f32[] sine(%a)", "}")
    ]
    assert [(line.location.file, line.location.line) for line in lines if line.location] == [("a.py", 7)]


def test_page_shows_totals() -> None:
    text = html.unescape(show(lambda x: x @ x, array(100, 100)).html)
    assert "<dt>flop</dt><dd>2.00 M</dd>" in text
    assert "<dt>peak memory</dt><dd>80.0 kB</dd>" in text
