"""The parser: text round trips, and errors for invalid text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
import pytest
from attrs import field, frozen
from hypothesis import example, given
from hypothesis import strategies as st

from tests.core.programs import (
    SCALAR,
    VECTOR,
    VOCABULARY,
    WEAK,
    Add,
    Call,
    Custom,
    Dims,
    Many,
    Mode,
    Program,
    Scale,
    Sin,
    Window,
    chain,
    permuted_programs,
    programs,
)
from tracefx.core import Literal
from tracefx.core.jaxpr import Eqn, Jaxpr, Var
from tracefx.core.primitive import Primitive
from tracefx.errors import ParseError
from tracefx.passes.check import check_jaxpr
from tracefx.pytrees.trees import structure
from tracefx.text.parser import MAX_PARSE_DEPTH, parse_jaxpr


def parse(text: str) -> Jaxpr:
    return parse_jaxpr(text, VOCABULARY)


# ------------------------------------------------------------------ round trips


@given(programs())
def test_round_trip(jaxpr: Jaxpr) -> None:
    again = parse(str(jaxpr))
    assert again == jaxpr
    assert str(again) == str(jaxpr)


@given(programs(), st.integers(10, 60))
def test_round_trip_at_any_width(jaxpr: Jaxpr, width: int) -> None:
    assert parse(jaxpr.text(width=width)) == jaxpr


@given(permuted_programs())
def test_round_trip_with_permuted_variable_numbers(jaxpr: Jaxpr) -> None:
    check_jaxpr(jaxpr)
    assert parse(str(jaxpr)) == jaxpr


def test_variable_names_avoid_reserved_words() -> None:
    jaxpr = chain(9000)
    assert "in_:f32[3]" in str(jaxpr)
    assert "nan_:f32[3]" in str(jaxpr)
    assert parse(str(jaxpr)) == jaxpr


def test_shared_sub_jaxpr_is_parsed_as_one_object() -> None:
    body = chain(2)
    p = Program(VECTOR)
    (x,) = p(Call("f", body), *p(Call("f", body), *p.invars))
    first, second = parse(str(p.returns(x))).eqns
    assert isinstance(first.prim, Call)
    assert isinstance(second.prim, Call)
    assert first.prim.jaxpr is second.prim.jaxpr


def test_variables_may_have_any_name() -> None:
    jaxpr = parse("""
      { lambda weight:f32[]; x:f32[3] unused:f32[].
        let y1:f32[3] = add x weight ; _:f32[3] = sin y1
        in (y1, x) }
    """)
    assert jaxpr.text(width=100) == (
        "{ lambda a:f32[]; b:f32[3] c:f32[]. let d:f32[3] = add b a; _:f32[3] = sin d in (d, b) }"
    )


def test_parse_types() -> None:
    (x, y) = parse("{ lambda ; x:bf16[2,0]* y:f8_e4m3fn[]. let in () }").in_avals
    assert (x.shape, x.dtype.name, x.weak_type) == ((2, 0), "bfloat16", True)
    assert (y.shape, y.dtype.name, y.weak_type) == ((), "float8_e4m3fn", False)


@pytest.mark.parametrize(
    "value",
    [
        *(-0.0, math.nan, -math.nan, math.inf, -math.inf, 5e-324, 1e22, 10**5000, -(2**70)),
        *(complex(-0.0, 1), complex(0.0, -0.0), complex(math.inf, math.nan), 1e300 - 1e-300j, 12 + 3j, -12j),
        *(frozenset("a"), frozenset({"ab", ("c",), None}), frozenset({frozenset({1}), frozenset[object]()})),
        *(frozenset({chain(1)}), frozenset({Sin(), Scale(chain(20))}), frozenset({-0.0, math.nan})),
        *("", "'", '"', "\\'\"\n\r\t\x00\u2028\U0001f600", "\ud800\udc00", b"\x00\xff'\"\\"),
        *((), ((),), ((1,), (True,), (1.0,)), (None, "None"), frozenset({1, 2}), frozenset[int]()),
        *(np.dtype("bool"), np.dtype("int8"), VECTOR, WEAK, Literal(True, WEAK), Literal(math.nan, SCALAR)),
        *map(structure, (0, None, (), [], {}, (1,), [(1, None)], {"b": [1, 2], "a": {}}, {2: 1, True: 3, -5: ((),)})),
        *(Sin(), Scale((1, Scale(2))), (chain(1), 1, chain(0)), (chain(1), chain(1))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_parse_parameters(value: object) -> None:
    p = Program(VECTOR)
    p(Scale(value), *p.invars)
    assert parse(str(p.returns())) == p.returns()


def test_parse_parameters_with_classes_from_annotations() -> None:
    many = Many(
        dims=Dims((1, 2), (3,), Mode.FILL), mode=Mode.FILL, window=Window(1, 2), windows=(Window(0, 0), Dims(()))
    )
    p = Program(VECTOR)
    p(many, *p.invars)
    assert parse(str(p.returns())) == p.returns()


def test_parse_fields_by_their_printed_name() -> None:
    @frozen(eq=False)
    class Named(Primitive):
        name = "named"
        _inner: int = field(metadata={"print": "shown"})

    jaxpr = Jaxpr((), (), (Eqn(Named(3), (), (Var(0, SCALAR),)),), ())
    assert "named[shown=3]" in str(jaxpr)
    assert parse_jaxpr(str(jaxpr), {"named": Named}) == jaxpr


# ------------------------------------------------------------------ invalid text

GOOD: Final = "{ lambda a:f32[]; b:f32[3]. let c:f32[3] = scale[factor=(1, 2.0)] b in (c, 1.0:f32[]) }"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: expected '{' where a program begins, found the end of the text"),
        ("{ x", "line 1, column 3: expected 'lambda' after '{', found 'x'"),
        ("{ lambda ; a. let in () }", "line 1, column 13: expected ':' and a type after variable 'a', found '.'"),
        ("{ lambda ; a:f32. let in () }", "column 17: expected '[' and a shape after 'f32', found '.'"),
        ("{ lambda ; a:f33[]. let in () }", "column 14: 'f33' names no dtype; the short names are bool"),
        ("{ lambda ; a:f32['x']. let in () }", "column 18: expected a dimension, found"),
        ("{ lambda ; a:f32[-1]. let in () }", "column 18: expected a dimension, found '-1'"),
        ("{ lambda ; a:f32[2 3]. let in () }", "column 20: expected ',' or ']' after a dimension, found '3'"),
        ("{ lambda ; a:f32[] a:f32[]. let in () }", "column 20: variable 'a' is bound already"),
        ("{ lambda ; .\nlet\n  a:f32[] = sin b\nin () }", "line 3, column 17: variable 'b' is bound nowhere before"),
        ("{ lambda ; . let in (a) }", "variable 'a' is bound nowhere before"),
        ("{ lambda ; _:f32[]. let in (_,) }", "variable '_' is bound nowhere before"),
        ("{ lambda ; . let a:f32[] sin in () }", "column 30: expected ':' and a type after variable 'sin', found 'in'"),
        ("{ lambda ; . let = sin in () }", "column 18: expected 'in' or an output's variable, found '='"),
        ("{ lambda ; . let () sin in () }", "column 21: expected '=' after the outputs, found 'sin'"),
        ("{ lambda ; . let in (300:i8[]) }", "column 25: 300 is not a literal of type i8[]: "),
        ("{ lambda ; . let in (1j:f32[]) }", "1j is not a literal of type f32[]"),
        ("{ lambda ; . let in (1:) }", "expected a type such as f32[3], found ')'"),
        ("{ lambda ; . let in (1) }", "expected ':' and a type after a literal, found ')'"),
        ("{ lambda ; . let in () ", "expected '}' where a program ends, found the end of the text"),
        ("{ lambda ; . let in () } x", "column 26: expected the end of the text, found 'x'"),
        ("let f = { lambda ; . let in () } { lambda ; . let in () }", "expected 'in' after a shared body, found '{'"),
        (
            "let f = { lambda ; . let in () } in let f = { lambda ; . let in () } in",
            "column 41: a body named 'f' exists already",
        ),
    ],
)
def test_error_messages(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ("sin a", "column 32: variable 'a' is bound nowhere before"),
        ("cosh", "column 28: no primitive is named 'cosh'; there are add, cond, cus"),
        ("3", "column 28: expected an operation, found '3'"),
        ("scale", "column 28: Scale needs factor"),
        ("scale[]", "column 28: Scale needs factor"),
        ("scale[fact=1]", "column 34: Scale has no field 'fact'; its fields are factor"),
        ("scale[factor=1 factor=1]", "column 43: 'factor' is given twice"),
        ("scale[factor 1]", "column 41: expected '=' after 'factor', found '1'"),
        ("scale[factor=]", "column 41: expected a value, found ']'"),
        ("scale[factor=(1 2)]", "column 44: expected ',' or ')' after a value, found"),
        ("scale[factor=f]", "column 41: 'f' is not a value: no dtype and no shared body"),
        ("scale[factor=<f>]", "column 41: <f> is a value without a text form"),
        ("scale[factor='x]", 'column 41: "\'" is a string without an end'),
        ("scale[factor=b'ā']", "bytes hold characters up to \\xff"),
        ("scale[factor=0x]", "is not part of a program"),
        ("scale[factor=1 ? ]", "'?' is not part of a program"),
        ("scale[factor=complex(1)]", "a complex number has two parts, not 1"),
        ("scale[factor=PyTreeDef]", "column 50: expected '(' after 'PyTreeDef', found"),
        ("scale[factor=PyTreeDef(1)]", "column 51: expected a structure: *, None, a"),
        ("scale[factor=PyTreeDef({(: *})]", "column 52: expected '}' or a key, found"),
        ("scale[factor=PyTreeDef({1 *})]", "column 54: expected ':' after a key, fou"),
        ("scale[factor=PyTreeDef({1: *, 'a': *})]", "this is not a pytree structure"),
        ("scale[factor=Mode.CLIP]", "no class called 'Mode' is named in the annotat"),
        ("many[mode=Mode.NONE]", "column 43: Mode has no member 'NONE'"),
        ("many[mode=Mode(1)]", "write a member of Mode as Mode.NAME"),
        ("many[dims=Dims(x=1)]", "Dims has no field 'x'; its fields are lhs, rhs, mode"),
        ("many[dims=Dims()]", "column 38: Dims needs lhs"),
        ("many[window=Window(low=1)]", "column 40: Window needs high"),
    ],
)
def test_error_messages_about_operations(operation: str, message: str) -> None:
    test_error_messages(f"{{ lambda ; . let a:f32[] = {operation} in () }}", message)


def test_error_shows_the_position() -> None:
    with pytest.raises(ParseError) as caught:
        parse("{ lambda ; .\nlet\n  a:f32[] = sin b\nin () }")
    assert str(caught.value).splitlines()[1:] == ["      a:f32[] = sin b", "    " + " " * 16 + "^"]
    with pytest.raises(ParseError) as caught:
        parse(" " * 10_000 + "?" + " " * 10_000)
    assert len(str(caught.value)) < 400
    assert str(caught.value).splitlines()[1].index("?") == str(caught.value).splitlines()[2].index("^")


def test_integers_beyond_the_digit_limit_of_python() -> None:
    with pytest.raises(ParseError, match="a number of 5000 digits is too long"):
        parse(GOOD.replace("(1,", "(" + "1" * 5000 + ","))
    with pytest.raises(ParseError, match="a number of 5000 digits is too long"):
        parse(GOOD.replace("[3]", "[" + "3" * 5000 + "]"))


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000,
        "{ lambda ; . let a:f32[] = scale[factor=" * 100_000,
        "{ lambda ; . let a:f32[] = scale[factor=" + "(" * 100_000,
        "{ lambda ; . let a:f32[] = scale[factor=" + "frozenset(" * 100_000,
        "{ lambda ; . let a:f32[] = " + "scale[factor=scale[factor=" * 100_000,
    ],
    ids=["parentheses", "programs", "tuples", "sets", "operations"],
)
def test_nesting_depth_limit(text: str) -> None:
    with pytest.raises(ParseError, match="expected '{'|nested more than"):
        parse(text)


def test_nesting_depth_below_the_limit() -> None:
    value: object = ()
    for _ in range(MAX_PARSE_DEPTH - 2):
        value = (value,)
    p = Program(VECTOR)
    p(Scale(value), *p.invars)
    assert str(parse(str(p.returns()))) == str(p.returns())


def nested(count: int) -> Jaxpr:
    """Returns nested calls."""
    body = chain(1)
    for i in range(count):
        p = Program(VECTOR)
        (x,) = p(Sin(), *p.invars)
        body = p.returns(*p(Call(f"f{i % 3}", body), x))
    return body


@pytest.mark.parametrize("count", [11, 12, 13, 60, 80])
def test_deeply_nested_programs(count: int) -> None:
    program = nested(count)
    assert parse(str(program)) == program
    assert str(program).count("let f") == count // 13  # some of them are named
    assert max(map(len, str(program).splitlines())) < 200


def test_parse_sets_in_current_and_old_syntax() -> None:
    text = str(program_with_scale(frozenset({"a", "b"})))
    assert "factor=frozenset({'a', 'b'})" in text
    assert parse(text.replace("({'a', 'b'})", "('a', 'b')")) == program_with_scale(frozenset({"a", "b"}))
    assert "factor=frozenset()" in str(program_with_scale(frozenset()))
    for broken in ("frozenset({1)", "frozenset({1}", "frozenset({1} 2)", "frozenset({", "frozenset({1 2})"):
        with pytest.raises(ParseError):
            parse(text.replace("frozenset({'a', 'b'})", broken))


def program_with_scale(value: object) -> Jaxpr:
    p = Program(VECTOR)
    p(Scale(value), *p.invars)
    return p.returns()


def test_constructor_that_raises() -> None:
    @frozen(eq=False)
    class Picky(Primitive):
        name = "picky"
        n: int

        def __attrs_post_init__(self) -> None:
            raise KeyError(self.n)

    with pytest.raises(ParseError, match="column 28: Picky rejects its fields: KeyError: 3"):
        parse_jaxpr("{ lambda ; . let a:f32[] = picky[n=3] in () }", {"picky": Picky})


def test_callables_cannot_be_parsed() -> None:
    p = Program(VECTOR)
    p(Custom(lambda: None), *p.invars)
    with pytest.raises(ParseError, match="<test_callables.*<lambda>> is a value without a text form"):
        parse(str(p.returns()))


def test_tree_structures_with_classes_cannot_be_parsed() -> None:
    with pytest.raises(ParseError, match=r"<PyTreeDef\(CustomNode.* is a value without a text form"):
        parse(str(program_with_scale(structure(Window(1, 2)))))


WORDS: Final = ["PyTreeDef(", "*", *GOOD.split(" "), *"()[]=<'", "a", "in", "let", "nan", "None", "Dims(", "(1+2j)"]


@given(st.lists(st.sampled_from(WORDS) | st.text(max_size=3), max_size=25).map(" ".join) | st.text())
@example(GOOD)
def test_random_text_parses_or_raises_parse_error(text: str) -> None:
    try:
        jaxpr = parse(text)
    except ParseError:
        return
    assert parse(str(jaxpr)) == jaxpr


@given(st.integers(0, len(GOOD)), st.integers(0, 10), st.text(max_size=2))
def test_damaged_text_parses_or_raises_parse_error(start: int, length: int, inserted: str) -> None:
    text = GOOD[:start] + inserted + GOOD[start + length :]
    try:
        jaxpr = parse(text)
    except ParseError:
        return
    assert parse(str(jaxpr)) == jaxpr


def test_primitive_missing_from_the_vocabulary() -> None:
    nothing: Mapping[str, type[Primitive]] = {}
    with pytest.raises(ParseError, match="no primitive is named 'add'; there are none"):
        parse_jaxpr("{ lambda ; a:f32[]. let b:f32[] = add a a in (b,) }", nothing)
    assert parse_jaxpr("{ lambda ; a:f32[]. let b:f32[] = add a a in (b,) }", {"add": Add}).eqns
