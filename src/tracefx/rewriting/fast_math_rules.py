"""Rules that hold for real numbers but only approximately for floats: rounding, NaN and infinities may differ."""

from __future__ import annotations

from typing import Final

from tracefx.core import Literal, dtypes
from tracefx.core.handler import bind1
from tracefx.core.primitive import Primitive
from tracefx.ops.elementwise.abs_sign import ABS
from tracefx.ops.elementwise.arithmetic import DIV, Div, Mul, Neg, Sub, div, mul, sub
from tracefx.ops.elementwise.elementwise import Add
from tracefx.ops.elementwise.powers import Square
from tracefx.ops.elementwise.transcendental import Exp, Log, Sqrt
from tracefx.ops.structural import constant_like_aval
from tracefx.rewriting.algebraic_rules import (
    combine_constants,
    commuted_operands,
    evaluate_literals,
    first_of_type,
    is_same_term,
    splat,
    splat_value,
)
from tracefx.rewriting.rules import Replacement, RewriteRule, rule
from tracefx.rewriting.terms import Apply, Term


def _is_inexact(x: Term) -> bool:
    return dtypes.is_inexact(x.aval.dtype)


@rule(Add, Sub)
def add_zero(term: Apply) -> Replacement:
    """`x + 0.0` becomes `x`. Inexact: for `x = -0.0` the sum is 0.0."""
    x, y = term.operands
    if splat_value(y) == 0 and x.aval == term.aval:
        return x
    return y if isinstance(term.prim, Add) and splat_value(x) == 0 and y.aval == term.aval else None


@rule(Mul)
def multiply_by_zero(term: Apply) -> Replacement:
    """`x * 0.0` becomes 0. Inexact: the product is NaN if `x` is NaN or infinite, and -0.0 if `x` is negative."""
    return constant_like_aval(term.aval, 0) if any(splat_value(y) == 0 for y in term.operands) else None


@rule(Mul)
def multiply_complex_by_one(term: Apply) -> Replacement:
    for x, y in commuted_operands(term):
        if splat_value(y) == 1 and x.aval == term.aval:
            return x
    return None


@rule(Sub)
def equal_numbers_cancel(term: Apply) -> Replacement:
    """`x - x` becomes 0. Inexact: the difference is NaN if `x` is NaN or infinite."""
    x, y = term.operands
    return constant_like_aval(term.aval, 0) if is_same_term(x, y) else None


@rule(Div)
def divide_by_itself(term: Apply) -> Replacement:
    """`x / x` becomes 1. Inexact: the quotient is NaN if `x` is 0, NaN or infinite."""
    x, y = term.operands
    return constant_like_aval(term.aval, 1) if is_same_term(x, y) and _is_inexact(x) else None


@rule(Add, Mul)
def reassociate_constants(term: Apply) -> Replacement:
    """`(x * 3) * 0.1` becomes `x * 0.3`, up to rounding."""
    return combine_constants(term)


@rule(Div)
def divide_by_a_number(term: Apply) -> Replacement:
    """`x / 3` becomes `x * (1 / 3)`, up to rounding."""
    x, y = term.operands
    number = splat(y)
    if number is None or not _is_inexact(y) or splat(x) is not None:
        return None
    return first_of_type(term, mul(x, evaluate_literals(DIV, Literal(1, number.aval), number)))


@rule(Neg)
def negative_of_a_difference(term: Apply) -> Replacement:
    """`-(x - y)` becomes `y - x`. Inexact: `-(x - x)` is -0.0."""
    match term:
        case Apply(Neg(), (Apply(Sub(), (x, y)),)):
            return first_of_type(term, sub(y, x))
        case _:
            return None


def _inverse(outer: type[Primitive], inner: type[Primitive], term: Apply) -> Replacement:
    match term:
        case Apply(prim, (Apply(inner_prim, (x,)),)) if isinstance(prim, outer) and isinstance(inner_prim, inner):
            return first_of_type(term, x)
        case _:
            return None


@rule(Log)
def log_of_exp(term: Apply) -> Replacement:
    """`log(exp(x))` becomes `x`. Inexact: `exp` overflows."""
    (x,) = term.operands
    return None if dtypes.is_complex(x.aval.dtype) else _inverse(Log, Exp, term)


@rule(Exp)
def exp_of_log(term: Apply) -> Replacement:
    """`exp(log(x))` becomes `x`. Inexact: negative numbers have no real logarithm."""
    return _inverse(Exp, Log, term)


@rule(Sqrt)
def root_of_square(term: Apply) -> Replacement:
    """`sqrt(square(x))` becomes `abs(x)`. Inexact: `square` overflows."""
    match term:
        case Apply(Sqrt(), (Apply(Square(), (x,)),)) if dtypes.is_float(x.aval.dtype):
            return first_of_type(term, bind1(ABS, x))
        case _:
            return None


@rule(Mul)
def multiply_by_a_quotient(term: Apply) -> Replacement:
    """`x * (1 / y)` becomes `x / y`, up to rounding."""
    for x, y in commuted_operands(term):
        match y:
            case Apply(Div(), (one, z)) if splat_value(one) == 1 and _is_inexact(z):
                return first_of_type(term, div(x, z))
    return None


FAST_MATH_RULES: Final[tuple[RewriteRule, ...]] = (
    add_zero,
    multiply_by_zero,
    multiply_complex_by_one,
    equal_numbers_cancel,
    divide_by_itself,
    reassociate_constants,
    divide_by_a_number,
    multiply_by_a_quotient,
    negative_of_a_difference,
    log_of_exp,
    exp_of_log,
    root_of_square,
)
"""Rules of real arithmetic that are inexact for floats."""
