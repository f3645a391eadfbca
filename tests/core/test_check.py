"""What `check_jaxpr` refuses, and how it says so."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import dedent
from typing import Final

import numpy as np
import pytest
from attrs import evolve, field, frozen
from hypothesis import given
from typing_extensions import override

from tests.core.programs import (
    F32,
    SCALAR,
    VECTOR,
    WEAK,
    Add,
    Call,
    Log,
    Printing,
    Program,
    Sin,
    Split,
    Switch,
    chain,
    programs,
)
from tracefx.core.avals import ShapedArray
from tracefx.core.effects import NO_EFFECTS, Effects
from tracefx.core.jaxpr import ClosedJaxpr, Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.core.literal import Literal, Scalar
from tracefx.core.primitive import Primitive
from tracefx.core.source_location import SourceLocation, current_provenance
from tracefx.core.values import from_numpy
from tracefx.errors import JaxprTypeError
from tracefx.passes.check import check_jaxpr

A, B, C = (Var(i, VECTOR) for i in range(3))


def refused(jaxpr: Jaxpr | ClosedJaxpr) -> str:
    with pytest.raises(JaxprTypeError) as caught:
        check_jaxpr(jaxpr)
    return str(caught.value)


def first_line(jaxpr: Jaxpr) -> str:
    return refused(jaxpr).splitlines()[0]


@given(programs())
def test_good_programs(jaxpr: Jaxpr) -> None:
    check_jaxpr(jaxpr)


# ------------------------------------------------------------------ variables


def test_unbound() -> None:
    assert first_line(Jaxpr((), (A,), (Eqn(Sin(), (C,), (B,)),), ())) == (
        "equation 0 of 1: operand 0: variable c is used here but bound nowhere before"
    )
    assert refused(Jaxpr((), (A,), (), (A, B))) == "output 1: variable b is used here but bound nowhere before"


def test_used_before_its_equation() -> None:
    eqns = (Eqn(Sin(), (C,), (B,)), Eqn(Sin(), (A,), (C,)))
    assert "operand 0: variable c is used here but bound nowhere before" in first_line(Jaxpr((), (A,), eqns, ()))


def test_negative_numbers_are_no_way_round() -> None:
    minus = Var(-1, VECTOR)
    assert "bound nowhere" in refused(Jaxpr((), (A,), (), (minus,)))
    assert "number -1, in a program of 1 variables" in refused(Jaxpr((), (minus,), (), ()))


@pytest.mark.parametrize(
    ("jaxpr", "what"),
    [
        (Jaxpr((A,), (A,), (), ()), "an input"),
        (Jaxpr((A, A), (), (), ()), "a constant"),
        (Jaxpr((), (A, B), (Eqn(Sin(), (A,), (A,)),), ()), "an output of sin"),
        (Jaxpr((), (B,), (Eqn(Split(2), (B,), (A, A)),), ()), "an output of split"),
    ],
)
def test_bound_twice(jaxpr: Jaxpr, what: str) -> None:
    assert f"{what} binds variable a (number 0), which is bound already" in refused(jaxpr)


def test_numbers_are_dense() -> None:
    jaxpr = Jaxpr((), (A,), (Eqn(Sin(), (A,), (C,)),), ())
    assert first_line(jaxpr) == (
        "equation 0 of 1: an output of sin is variable c, number 2, in a program of 2 variables: "
        "they are numbered from 0 to 1"
    )
    check_jaxpr(Jaxpr((), (B,), (Eqn(Sin(), (B,), (A,)),), (A,)))


# ------------------------------------------------------------------ types


def test_another_type_where_it_is_used() -> None:
    used = Var(0, ShapedArray((4,), F32))
    assert "operand 0: variable a is used as f32[4], but it was bound as f32[3]" in refused(
        Jaxpr((), (A,), (Eqn(Sin(), (used,), (B,)),), ())
    )
    assert refused(Jaxpr((), (Var(0, SCALAR),), (), (Var(0, WEAK),))) == (
        "output 0: variable a is used as f32[]*, but it was bound as f32[]"
    )


def test_another_type_than_the_operation_gives() -> None:
    a, b = Var(0, WEAK), Var(1, SCALAR)
    assert first_line(Jaxpr((), (a,), (Eqn(Sin(), (a,), (b,)),), ())) == (
        "equation 0 of 1: sin gives f32[]*, but variable b is f32[]"
    )


def test_another_number_of_outputs() -> None:
    assert "split has 3 outputs, but 1 variables take them" in refused(
        Jaxpr((), (A,), (Eqn(Split(3), (A,), (B,)),), ())
    )


def test_operands_that_do_not_fit() -> None:
    whole = Var(0, ShapedArray((), np.dtype("int32")))
    jaxpr = Jaxpr((), (whole,), (Eqn(Sin(), (whole,), (Var(1, whole.aval),)),), ())
    assert "sin doesn't take these operands: TypeError: sin needs floats, got i32[]" in refused(jaxpr)
    assert "sin doesn't take these operands: ValueError" in refused(Jaxpr((), (A,), (Eqn(Sin(), (A, A), (B,)),), ()))


def test_an_operation_without_types() -> None:
    class Mystery(Primitive):
        name = "mystery"

    assert "primitive 'mystery' has no abstract_eval rule" in refused(
        Jaxpr((), (A,), (Eqn(Mystery(), (A,), (B,)),), ())
    )


INT8: Final = ShapedArray((), np.dtype("int8"))
BOOL: Final = ShapedArray((), np.dtype("bool"))


@pytest.mark.parametrize(
    ("val", "aval", "problem"),
    [
        (1.5, INT8, "literal 1.5 doesn't fit i8[], which stores it as 1"),
        (2, BOOL, "literal 2 doesn't fit bool[], which stores it as 1"),
        (0.0, VECTOR, "literal 0.0 has the type f32[3], but literals are scalars"),
        (np.float64(0), SCALAR, "literal np.float64(0.0) is a float64; literals hold Python's"),
    ],
)
def test_literals_that_do_not_fit(val: Scalar, aval: ShapedArray, problem: str) -> None:
    literal = Literal(val, aval)
    assert problem in refused(Jaxpr((), (), (), (literal,)))
    assert f"operand 0: {problem}" in refused(Jaxpr((), (), (Eqn(Sin(), (literal,), (Var(0, aval),)),), ()))


@pytest.mark.parametrize(
    ("val", "aval"), [(1, INT8), (True, BOOL), (-128, INT8), (1, SCALAR), (float("nan"), WEAK), (True, INT8)]
)
def test_literals_that_fit(val: Scalar, aval: ShapedArray) -> None:
    check_jaxpr(Jaxpr((), (), (), (Literal(val, aval),)))


def test_constants() -> None:
    jaxpr = Jaxpr((A,), (), (), (A,))
    check_jaxpr(ClosedJaxpr(jaxpr, (from_numpy(np.ones(3, np.float32)),)))
    message = refused(ClosedJaxpr(jaxpr, (from_numpy(np.ones(4, np.float32)),)))
    assert message == "the program's constants have the types [f32[3]], it was given [f32[4]]"
    assert "it was given []" in refused(ClosedJaxpr(jaxpr, ()))


# ------------------------------------------------------------------ bodies


def broken() -> Jaxpr:
    return Jaxpr((), (A,), (Eqn(Sin(), (A,), (B,)), Eqn(Sin(), (C,), (C,))), (B,))


def calling(prim: Primitive) -> Jaxpr:
    return Jaxpr((), (A,), (Eqn(Sin(), (A,), (B,)), Eqn(prim, (B,), (C,))), (C,))


def test_within_a_body() -> None:
    head, rest = refused(calling(Call("f", broken()))).split("\n", 1)
    assert head == (
        "equation 1 of 2: in the body of jit: "
        "equation 1 of 2: operand 0: variable c is used here but bound nowhere before"
    )
    assert rest == dedent("""\
                b:f32[3] = sin a
            --> c:f32[3] = sin c
            b:f32[3] = sin a
        --> c:f32[3] = jit[label='f' jaxpr={ ... }] b""")
    assert "in body 1 of cond: equation 1 of 2: operand 0" in refused(calling(Switch((chain(1), broken()))))


def test_a_body_has_no_constants() -> None:
    body = Jaxpr((A,), (B,), (), (B,))
    assert "the body of jit has 1 constants of its own; they must be inputs" in refused(calling(Call("f", body)))


def test_a_body_is_checked_once_for_all_that_share_it() -> None:
    seen: list[ShapedArray] = []

    class Counted(Primitive):
        name = "counted"

        @override
        def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
            seen.extend(avals)
            return avals

    body = chain(1, Counted())
    for _ in range(60):
        p = Program(VECTOR)
        (x,) = p(Call("f", body), *p(Call("f", body), *p.invars))
        body = p.returns(x)
    seen.clear()
    check_jaxpr(body)
    check_jaxpr(body)
    assert len(seen) == 1


def test_a_bad_program_is_refused_each_time() -> None:
    jaxpr = broken()
    assert refused(jaxpr) == refused(jaxpr)


def test_effects_of_bodies_are_the_operations() -> None:
    @frozen(eq=False)
    class Quiet(Primitive, HasSubjaxprs):
        name = "quiet"
        body: Jaxpr
        declared: Effects = field(default=NO_EFFECTS)

        @property
        @override
        def effects(self) -> Effects:
            return self.declared

        @override
        def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
            return self.body.out_avals

        @override
        def jaxprs(self) -> tuple[Jaxpr, ...]:
            return (self.body,)

        @override
        def with_jaxprs(self, *jaxprs: Jaxpr) -> Quiet:
            return evolve(self, body=jaxprs[0])

    p = Program(VECTOR)
    p(Log("x"), *p.invars)
    body = p.returns(*p.invars)
    assert "the body of quiet has effects that quiet itself doesn't declare: printing" in refused(calling(Quiet(body)))
    check_jaxpr(calling(Quiet(body, frozenset({Printing()}))))


# ------------------------------------------------------------------ messages


@pytest.mark.parametrize(
    ("bad", "shown"),
    [
        (0, ["--> b:f32[3] = add a", "    c:f32[3] = sin b", "    d:f32[3] = sin c", "    ..."]),
        (3, ["    ...", "    c:f32[3] = sin b", "    d:f32[3] = sin c", "--> e:f32[3] = add d",
             "    f:f32[3] = sin e", "    g:f32[3] = sin f"]),
        (5, ["    ...", "    e:f32[3] = sin d", "    f:f32[3] = sin e", "--> g:f32[3] = add f"]),
    ],
)  # fmt: skip
def test_the_neighbours_of_an_equation(bad: int, shown: Sequence[str]) -> None:
    jaxpr = chain(6)
    eqns = tuple([evolve(e, prim=Add()) if i == bad else e for i, e in enumerate(jaxpr.eqns)])
    head, *rest = refused(evolve(jaxpr, eqns=eqns)).splitlines()
    assert head.startswith(f"equation {bad} of 6: add doesn't take these operands: ValueError")
    assert rest == list(shown)


def test_the_line_of_user_code() -> None:
    source = current_provenance()  # this line
    jaxpr = Jaxpr((), (A,), (Eqn(Sin(), (A,), (A,), source=source),), ())
    assert source is not None
    place = source.resolve()
    assert refused(jaxpr).splitlines()[-1] == f"written at {place}: source = current_provenance()  # this line"
    assert place.function == "test_the_line_of_user_code"
    gone = SourceLocation("no such file", 3, "f")
    jaxpr = Jaxpr((), (A,), (Eqn(Sin(), (A,), (A,), source=gone),), ())
    assert refused(jaxpr).splitlines()[-1] == "written at no such file:3 (f)"


def test_a_long_program() -> None:
    check_jaxpr(chain(5000))
