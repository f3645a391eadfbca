"""`check_jaxpr`: rejected jaxprs and their error messages."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import dedent
from typing import Final

import numpy as np
import pytest
from attrs import evolve, field, frozen
from hypothesis import given
from typing_extensions import override

from tests.core import programs as examples
from tracefx.core import Literal, Scalar, ShapedArray, from_numpy
from tracefx.core.effects import NO_EFFECTS, Effects
from tracefx.core.jaxpr import ClosedJaxpr, Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.core.primitive import Primitive
from tracefx.errors import JaxprTypeError
from tracefx.passes.check import check_jaxpr
from tracefx.source_location import SourceLocation, current_provenance

A, B, C = (Var(i, examples.VECTOR) for i in range(3))


def error_message(jaxpr: Jaxpr | ClosedJaxpr) -> str:
    with pytest.raises(JaxprTypeError) as caught:
        check_jaxpr(jaxpr)
    return str(caught.value)


def first_line(jaxpr: Jaxpr) -> str:
    return error_message(jaxpr).splitlines()[0]


@given(examples.programs())
def test_valid_programs(jaxpr: Jaxpr) -> None:
    check_jaxpr(jaxpr)


# ------------------------------------------------------------------ variables


def test_unbound_variable() -> None:
    assert first_line(Jaxpr((), (A,), (Eqn(examples.Sin(), (C,), (B,)),), ())) == (
        "equation 0 of 1: operand 0: variable c is used here but bound nowhere before"
    )
    assert error_message(Jaxpr((), (A,), (), (A, B))) == "output 1: variable b is used here but bound nowhere before"


def test_variable_used_before_its_equation() -> None:
    eqns = (Eqn(examples.Sin(), (C,), (B,)), Eqn(examples.Sin(), (A,), (C,)))
    assert "operand 0: variable c is used here but bound nowhere before" in first_line(Jaxpr((), (A,), eqns, ()))


def test_negative_variable_numbers() -> None:
    minus = Var(-1, examples.VECTOR)
    assert "bound nowhere" in error_message(Jaxpr((), (A,), (), (minus,)))
    assert "number -1, in a program of 1 variables" in error_message(Jaxpr((), (minus,), (), ()))


@pytest.mark.parametrize(
    ("jaxpr", "what"),
    [
        (Jaxpr((A,), (A,), (), ()), "an input"),
        (Jaxpr((A, A), (), (), ()), "a constant"),
        (Jaxpr((), (A, B), (Eqn(examples.Sin(), (A,), (A,)),), ()), "an output of sin"),
        (Jaxpr((), (B,), (Eqn(examples.Split(2), (B,), (A, A)),), ()), "an output of split"),
    ],
)
def test_variable_bound_twice(jaxpr: Jaxpr, what: str) -> None:
    assert f"{what} binds variable a (number 0), which is bound already" in error_message(jaxpr)


def test_variable_numbers_are_dense() -> None:
    jaxpr = Jaxpr((), (A,), (Eqn(examples.Sin(), (A,), (C,)),), ())
    assert first_line(jaxpr) == (
        "equation 0 of 1: an output of sin is variable c, number 2, in a program of 2 variables: "
        "they are numbered from 0 to 1"
    )
    check_jaxpr(Jaxpr((), (B,), (Eqn(examples.Sin(), (B,), (A,)),), (A,)))


# ------------------------------------------------------------------ types


def test_type_of_a_use_differs_from_the_binder() -> None:
    used = Var(0, ShapedArray((4,), examples.F32))
    assert "operand 0: variable a is used as f32[4], but it was bound as f32[3]" in error_message(
        Jaxpr((), (A,), (Eqn(examples.Sin(), (used,), (B,)),), ())
    )
    assert error_message(Jaxpr((), (Var(0, examples.SCALAR),), (), (Var(0, examples.WEAK),))) == (
        "output 0: variable a is used as f32[]*, but it was bound as f32[]"
    )


def test_type_of_an_output_differs_from_the_primitive() -> None:
    a, b = Var(0, examples.WEAK), Var(1, examples.SCALAR)
    assert first_line(Jaxpr((), (a,), (Eqn(examples.Sin(), (a,), (b,)),), ())) == (
        "equation 0 of 1: sin gives f32[]*, but variable b is f32[]"
    )


def test_wrong_number_of_outputs() -> None:
    assert "split has 3 outputs, but 1 variables take them" in error_message(
        Jaxpr((), (A,), (Eqn(examples.Split(3), (A,), (B,)),), ())
    )


def test_invalid_operands() -> None:
    whole = Var(0, ShapedArray((), np.dtype("int32")))
    jaxpr = Jaxpr((), (whole,), (Eqn(examples.Sin(), (whole,), (Var(1, whole.aval),)),), ())
    assert "sin doesn't take these operands: TypeError: sin needs floats, got i32[]" in error_message(jaxpr)
    assert "sin doesn't take these operands: ValueError" in error_message(
        Jaxpr((), (A,), (Eqn(examples.Sin(), (A, A), (B,)),), ())
    )


def test_primitive_without_abstract_eval() -> None:
    class Mystery(Primitive):
        name = "mystery"

    assert "primitive 'mystery' has no abstract_eval rule" in error_message(
        Jaxpr((), (A,), (Eqn(Mystery(), (A,), (B,)),), ())
    )


INT8: Final = ShapedArray((), np.dtype("int8"))
BOOL: Final = ShapedArray((), np.dtype("bool"))


@pytest.mark.parametrize(
    ("val", "aval", "problem"),
    [
        (1.5, INT8, "literal 1.5 doesn't fit i8[], which stores it as 1"),
        (2, BOOL, "literal 2 doesn't fit bool[], which stores it as 1"),
        (0.0, examples.VECTOR, "literal 0.0 has the type f32[3], but literals are scalars"),
        (np.float64(0), examples.SCALAR, "literal np.float64(0.0) is a float64; literals hold Python's"),
    ],
)
def test_invalid_literals(val: Scalar, aval: ShapedArray, problem: str) -> None:
    literal = Literal(val, aval)
    assert problem in error_message(Jaxpr((), (), (), (literal,)))
    assert f"operand 0: {problem}" in error_message(
        Jaxpr((), (), (Eqn(examples.Sin(), (literal,), (Var(0, aval),)),), ())
    )


@pytest.mark.parametrize(
    ("val", "aval"),
    [(1, INT8), (True, BOOL), (-128, INT8), (1, examples.SCALAR), (float("nan"), examples.WEAK), (True, INT8)],
)
def test_valid_literals(val: Scalar, aval: ShapedArray) -> None:
    check_jaxpr(Jaxpr((), (), (), (Literal(val, aval),)))


def test_constants() -> None:
    jaxpr = Jaxpr((A,), (), (), (A,))
    check_jaxpr(ClosedJaxpr(jaxpr, (from_numpy(np.ones(3, np.float32)),)))
    message = error_message(ClosedJaxpr(jaxpr, (from_numpy(np.ones(4, np.float32)),)))
    assert message == "the program's constants have the types [f32[3]], it was given [f32[4]]"
    assert "it was given []" in error_message(ClosedJaxpr(jaxpr, ()))


# ------------------------------------------------------------------ bodies


def ill_typed_body() -> Jaxpr:
    return Jaxpr((), (A,), (Eqn(examples.Sin(), (A,), (B,)), Eqn(examples.Sin(), (C,), (C,))), (B,))


def program_with(prim: Primitive) -> Jaxpr:
    return Jaxpr((), (A,), (Eqn(examples.Sin(), (A,), (B,)), Eqn(prim, (B,), (C,))), (C,))


def test_errors_in_sub_jaxprs() -> None:
    head, rest = error_message(program_with(examples.Call("f", ill_typed_body()))).split("\n", 1)
    assert head == (
        "equation 1 of 2: in the body of jit: "
        "equation 1 of 2: operand 0: variable c is used here but bound nowhere before"
    )
    assert rest == dedent("""\
                b:f32[3] = sin a
            --> c:f32[3] = sin c
            b:f32[3] = sin a
        --> c:f32[3] = jit[label='f' jaxpr={ ... }] b""")
    assert "in body 1 of cond: equation 1 of 2: operand 0" in error_message(
        program_with(examples.Switch((examples.chain(1), ill_typed_body())))
    )


def test_sub_jaxpr_has_no_constants() -> None:
    body = Jaxpr((A,), (B,), (), (B,))
    assert "the body of jit has 1 constants of its own; they must be inputs" in error_message(
        program_with(examples.Call("f", body))
    )


def test_shared_sub_jaxpr_is_checked_once() -> None:
    checked_avals: list[ShapedArray] = []

    class Counted(Primitive):
        name = "counted"

        @override
        def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
            checked_avals.extend(avals)
            return avals

    body = examples.nested_calls(examples.chain(1, Counted()))
    checked_avals.clear()
    check_jaxpr(body)
    check_jaxpr(body)
    assert len(checked_avals) == 1


def test_invalid_program_raises_every_time() -> None:
    jaxpr = ill_typed_body()
    assert error_message(jaxpr) == error_message(jaxpr)


def test_primitive_has_the_effects_of_its_sub_jaxprs() -> None:
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

    p = examples.Program(examples.VECTOR)
    p(examples.Log("x"), *p.invars)
    body = p.returns(*p.invars)
    assert "the body of quiet has effects that quiet itself doesn't declare: printing" in error_message(
        program_with(Quiet(body))
    )
    check_jaxpr(program_with(Quiet(body, frozenset({examples.Printing()}))))


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
def test_message_shows_neighbouring_equations(bad: int, shown: Sequence[str]) -> None:
    jaxpr = examples.chain(6)
    eqns = tuple([evolve(e, prim=examples.Add()) if i == bad else e for i, e in enumerate(jaxpr.eqns)])
    head, *rest = error_message(evolve(jaxpr, eqns=eqns)).splitlines()
    assert head.startswith(f"equation {bad} of 6: add doesn't take these operands: ValueError")
    assert rest == list(shown)


def test_message_shows_the_user_line() -> None:
    source = current_provenance()  # this line
    jaxpr = Jaxpr((), (A,), (Eqn(examples.Sin(), (A,), (A,), source=source),), ())
    assert source is not None
    location = source.resolve()
    assert error_message(jaxpr).splitlines()[-1] == f"written at {location}: source = current_provenance()  # this line"
    assert location.function == "test_message_shows_the_user_line"
    missing_file = SourceLocation("no such file", 3, "f")
    jaxpr = Jaxpr((), (A,), (Eqn(examples.Sin(), (A,), (A,), source=missing_file),), ())
    assert error_message(jaxpr).splitlines()[-1] == "written at no such file:3 (f)"


def test_long_program() -> None:
    check_jaxpr(examples.chain(5000))
