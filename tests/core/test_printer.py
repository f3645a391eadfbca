"""The text of jaxprs in tracefx's style."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import dedent
from typing import Final

import numpy as np
import pytest
from attrs import frozen
from hypothesis import given
from typing_extensions import override

from tests.core import programs as examples
from tracefx.core import Literal, ShapedArray, from_numpy
from tracefx.core.jaxpr import ClosedJaxpr, Eqn, Jaxpr, Var
from tracefx.core.primitive import Primitive
from tracefx.text.pretty_printer import Break, Doc, Group, Nest, concat, join, render
from tracefx.text.printer import HasJaxParams, format_eqn, format_jaxpr, letters, variable_name

ONE: Final = Literal(1.0, examples.WEAK)


def lines(text: str) -> str:
    return dedent(text).strip("\n")


def doubled() -> Jaxpr:
    p = examples.Program(examples.VECTOR)
    (b,) = p(examples.Add(), *p.invars, *p.invars)
    return p.returns(b)


# ------------------------------------------------------------------ programs


def test_short_program_is_on_one_line() -> None:
    p = examples.Program(examples.VECTOR)
    (b,) = p(examples.Add(), ONE, p.invars[0])
    jaxpr = p.returns(b)
    assert str(jaxpr) == "{ lambda ; a:f32[3]. let b:f32[3] = add 1.0:f32[]* a in (b,) }"
    assert jaxpr.text("jax") == "{ lambda ; a:f32[3]. let b:f32[3] = add 1.0:f32[] a in (b,) }"
    assert repr(jaxpr) == str(jaxpr)


def test_longer_program_is_on_several_lines() -> None:
    p = examples.Program(examples.VECTOR, examples.WEAK, consts=[examples.SCALAR])
    (d,) = p(examples.Add(), p.invars[1], p.invars[0])
    p(examples.Sin(), d)
    (f,) = p(examples.Sin(), p.constvars[0])
    text = lines("""
        { lambda a:f32[]; b:f32[3] c:f32[]*. let
            d:f32[3] = add c b
            _:f32[3] = sin d
            f:f32[] = sin a
          in (d, f, 1.0:f32[]*) }
    """)
    jaxpr = p.returns(d, f, ONE)
    assert str(jaxpr) == text
    closed = ClosedJaxpr(jaxpr, (from_numpy(np.ones((), np.float32)),))
    assert repr(closed) == str(closed) == closed.text() == text
    assert closed.text("jax") == text.replace("*", "").replace("f:f32[] =", "e:f32[] =").replace("d, f", "d, e")


def test_program_without_equations_inputs_and_outputs() -> None:
    empty = Jaxpr((), (), (), ())
    assert str(empty) == "{ lambda ; . let in () }"
    assert empty.text("jax") == "{ lambda ; . let  in () }"


def test_equations_without_operands_or_outputs() -> None:
    p = examples.Program(examples.VECTOR)
    p(examples.Log("hi"), *p.invars)
    p(examples.Split(0))
    assert p.returns().text(width=90) == (
        "{ lambda ; a:f32[3]. let () = 'log to file'[message='hi'] a; () = split[n=0] in () }"
    )
    assert p.returns().text("jax", 200) == "{ lambda ; a:f32[3]. let log to file[message=hi] a; split[n=0]  in () }"


def test_variable_names_by_number() -> None:
    assert [letters(n) for n in (0, 25, 26, 27, 51, 52, 26 * 26 - 1, 26 * 26)] == [
        "a", "z", "ba", "bb", "bz", "ca", "zz", "baa",
    ]  # fmt: skip
    assert len({variable_name(n) for n in range(20_000)}) == 20_000


@pytest.mark.parametrize("word", ["in", "let", "inf", "nan", "nanj"])
def test_variable_names_avoid_reserved_words(word: str) -> None:
    n = 0
    for c in word:
        n = 26 * n + ord(c) - ord("a")
    assert letters(n) == word
    assert variable_name(n) == word + "_"


def test_unused_outputs_with_permuted_numbers_are_named() -> None:
    a, b, c = (Var(i, examples.SCALAR) for i in (0, 2, 1))
    jaxpr = Jaxpr((), (a,), (Eqn(examples.Sin(), (a,), (b,)), Eqn(examples.Sin(), (a,), (c,))), (a,))
    assert str(jaxpr) == lines("""
        { lambda ; a:f32[]. let c:f32[] = sin a; b:f32[] = sin a in (a,) }
    """)


# ------------------------------------------------------------------ bodies


def test_sub_jaxprs_are_indented() -> None:
    p = examples.Program(examples.VECTOR)
    (b,) = p(examples.Call("<lambda>", examples.chain(2)), *p.invars)
    (c,) = p(examples.Switch((doubled(), examples.chain(0))), b)
    jaxpr = p.returns(c)
    assert str(jaxpr) == lines("""
        { lambda ; a:f32[3]. let
            b:f32[3] = jit[
              label='<lambda>'
              jaxpr={ lambda ; a:f32[3]. let
                  b:f32[3] = sin a
                  c:f32[3] = sin b
                in (c,) }
            ] a
            c:f32[3] = cond[
              branches=(
                { lambda ; a:f32[3]. let b:f32[3] = add a a in (b,) }
                { lambda ; a:f32[3]. let in (a,) }
              )
            ] b
          in (c,) }
    """)
    assert jaxpr.text("jax") == lines("""
        { lambda ; a:f32[3]. let
            b:f32[3] = jit[
              name=<lambda>
              jaxpr={ lambda ; a:f32[3]. let
                  c:f32[3] = sin a
                  b:f32[3] = sin c
                in (b,) }
            ] a
            d:f32[3] = cond[
              branches=(
                { lambda ; e:f32[3]. let f:f32[3] = add e e in (f,) }
                { lambda ; g:f32[3]. let  in (g,) }
              )
            ] b
          in (d,) }
    """)


def test_shared_sub_jaxpr_is_printed_once_before_its_uses() -> None:
    inner = doubled()
    p = examples.Program(examples.VECTOR)
    (b,) = p(examples.Call("inner", inner), *p.invars)
    outer = p.returns(b)
    p = examples.Program(examples.VECTOR)
    (b,) = p(examples.Call("f", outer), *p.invars)
    (c,) = p(examples.Call("f", outer), b)
    jaxpr = p.returns(c)
    assert str(jaxpr) == lines("""
        let inner = { lambda ; a:f32[3]. let b:f32[3] = add a a in (b,) } in
        let f = { lambda ; a:f32[3]. let
            b:f32[3] = jit[label='inner' jaxpr=inner] a
          in (b,) } in
        { lambda ; a:f32[3]. let
            b:f32[3] = jit[label='f' jaxpr=f] a
            c:f32[3] = jit[label='f' jaxpr=f] b
          in (c,) }
    """)
    assert jaxpr.text("jax") == lines("""
        let f = { lambda ; a:f32[3]. let
            b:f32[3] = jit[name=inner jaxpr=inner] a
          in (b,) } in
        let inner = { lambda ; c:f32[3]. let d:f32[3] = add c c in (d,) } in
        { lambda ; e:f32[3]. let
            g:f32[3] = jit[name=f jaxpr=f] e
            h:f32[3] = jit[name=f jaxpr=f] g
          in (h,) }
    """)


def test_names_of_shared_sub_jaxprs_are_unique() -> None:
    p = examples.Program(examples.VECTOR)
    x = p.invars[0]
    for label in ("f", "f", "float32", "in", "<lambda>", "é 1", "", "1"):
        body = examples.chain(1, examples.Scale(label))
        (x,) = p(examples.Call(label, body), *p(examples.Call(label, body), x))
    text = str(p.returns(x))
    names = [line.split()[1] for line in text.splitlines() if line.startswith("let ")]
    assert names == ["f", "f1", "float321", "in1", "lambda1", "__1", "jaxpr", "jaxpr1"]


def test_long_sub_jaxpr_is_printed_before_its_use() -> None:
    p = examples.Program(examples.VECTOR)
    (b,) = p(examples.Call("f", examples.chain(11)), *p.invars)
    assert str(p.returns(b)).startswith("let f = { lambda ; a:f32[3]. let\n    b:f32[3] = sin a\n")
    assert str(p.returns(b)).endswith("in\n{ lambda ; a:f32[3]. let b:f32[3] = jit[label='f' jaxpr=f] a in (b,) }")


def test_nested_shared_sub_jaxprs_print_in_linear_size() -> None:
    body = examples.nested_calls(doubled())
    assert len(str(body).splitlines()) < 60 * 6
    assert len(body.text("jax").splitlines()) < 60 * 6


# ------------------------------------------------------------------ parameters


def shown(prim: Primitive) -> str:
    return format_eqn(Eqn(prim, (), (Var(0, examples.SCALAR),))).removeprefix("a:f32[] = ")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        (True, "True"),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (1e300, "1e+300"),
        (-2j, "(-0-2j)"),
        (complex(1, float("nan")), "complex(1.0, nan)"),
        (None, "None"),
        ("a'b\n", '"a\'b\\n"'),
        (b"\x00", "b'\\x00'"),
        ((), "()"),
        ((1,), "(1,)"),
        ((1, (2.0, None)), "(1, (2.0, None))"),
        (frozenset({3, 1}), "frozenset({1, 3})"),
        (np.dtype("float32"), "float32"),
        (np.dtype([("float0", np.void, 0)]), "float0"),
        (examples.Mode.FILL, "Mode.FILL"),
        (examples.Dims((1,), mode=examples.Mode.CLIP), "Dims(lhs=(1,), rhs=(), mode=Mode.CLIP)"),
        (examples.Window(1, -1), "Window(low=1, high=-1)"),
        (examples.VECTOR, "f32[3]"),
        (ONE, "1.0:f32[]*"),
        (examples.Scale(2), "scale[factor=2]"),
        (examples.Sin(), "sin[]"),
        (examples.chain(0), "{ ... }"),
        (lines, "<lines>"),
        (np.float32(1), "<np.float32(1.0)>"),
    ],
)
def test_parameters(value: object, text: str) -> None:
    assert shown(examples.Scale(value)) == f"scale[factor={text}]"


def test_printed_fields() -> None:
    assert shown(examples.Many()) == "many[dims=None mode=Mode.CLIP dtype=None text='']"
    given = examples.Many(window=examples.Window(0, 1), label="unseen")
    assert shown(given) == "many[dims=None mode=Mode.CLIP window=Window(low=0, high=1) dtype=None text='']"


def test_printed_fields_in_jax_style() -> None:
    p = examples.Program(examples.VECTOR)
    p(examples.Many(dtype=examples.I32, label="seen"), *p.invars)
    (line,) = [x for x in p.returns().text("jax", 20).splitlines() if "new_dtype" in x]
    assert line.strip() == "new_dtype=int32"
    assert "text=" not in p.returns().text("jax")


def test_callables_in_jax_style_print_their_unqualified_name() -> None:
    p = examples.Program(examples.VECTOR)
    p(examples.Custom(lambda: None), *p.invars)
    assert "custom[rule=<lambda>] a" in p.returns().text("jax")


def test_jax_params_override_printed_parameters() -> None:
    @frozen(eq=False)
    class Dot(Primitive, HasJaxParams):
        name = "dot_general"
        contract: tuple[int, int]

        @override
        def jax_params(self) -> Mapping[str, object]:
            m, n = self.contract
            return {"precision": None, "dimension_numbers": (([m], [n]), ([], []))}

    jaxpr = Jaxpr((), (), (Eqn(Dot((1, 0)), (), (Var(0, examples.SCALAR),)),), ())
    assert "dot_general[dimension_numbers=(([1], [0]), ([], [])) precision=None] " in jaxpr.text("jax", 200)
    assert "dot_general[contract=(1, 0)]" in str(jaxpr)


def test_long_parameters_are_on_separate_lines() -> None:
    p = examples.Program(examples.VECTOR)
    (b,) = p(examples.Scale(tuple(range(30))), *p.invars)
    assert format_jaxpr(p.returns(b)) == lines(f"""
        {{ lambda ; a:f32[3]. let
            b:f32[3] = scale[
              factor={tuple(range(30))}
            ] a
          in (b,) }}
    """)


# ------------------------------------------------------------------ any program


@given(examples.programs())
def test_text_depends_only_on_the_content(jaxpr: Jaxpr) -> None:
    assert str(jaxpr) == str(jaxpr)
    assert all(line == line.rstrip() for line in str(jaxpr).splitlines())


def test_long_program() -> None:
    assert len(str(examples.chain(5000)).splitlines()) == 5002


@pytest.mark.parametrize("width", [1, 13, 299, 300, 1000, 2999, 3000])
def test_layout_does_not_depend_on_how_wide_the_documents_are(width: int) -> None:
    """Short documents store their text on one line, long ones do not."""

    def document(size: int) -> Doc:
        words = [Group(concat("<", Nest(concat(Break(""), "word")), Break(""), ">")) for _ in range(size // 10)]
        return Group(Nest(join(concat(" ", Break("---")), words)))

    for size in (10, 300, 3000):
        text = render(document(size), width)
        flat = " ---".join(["<word>"] * (size // 10))
        fits = len(flat) <= width
        assert (text == flat) == fits
        assert text.replace("\n", "").replace(" ", "").replace("-", "") == "<word>" * (size // 10)


def test_text_of_shapes() -> None:
    x = Var(0, ShapedArray((2, 0, 5), np.dtype("bool")))
    assert str(Jaxpr((), (x,), (), (x,))) == "{ lambda ; a:bool[2,0,5]. let in (a,) }"
