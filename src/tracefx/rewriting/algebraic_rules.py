"""Rules of arithmetic, logic and choice that hold bit for bit, for NaN, infinities and zeros of both signs too."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from tracefx.control.cond import Cond
from tracefx.core import dtypes
from tracefx.core.dtypes import DType
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import bind1
from tracefx.core.literal import Literal, Scalar
from tracefx.core.primitive import Primitive
from tracefx.core.values import Value, to_numpy
from tracefx.ops.elementwise.abs_sign import Abs
from tracefx.ops.elementwise.arithmetic import Div, Max, Min, Mul, Neg, Sub, mul, neg, sub
from tracefx.ops.elementwise.bitwise import And, Not, Or, Xor
from tracefx.ops.elementwise.comparison import Eq, Ge, Gt, Le, Lt, Ne
from tracefx.ops.elementwise.complex import Complex, Conj, Imag, Real
from tracefx.ops.elementwise.elementwise import Add, add
from tracefx.ops.elementwise.powers import IntegerPow
from tracefx.ops.elementwise.rounding import Ceil, Floor, Round
from tracefx.ops.elementwise.selection import SelectN, StopGradient, select_n
from tracefx.ops.structural import BroadcastInDim, constant_like_aval
from tracefx.rewriting.rules import Replacement, RewriteRule, rule
from tracefx.rewriting.terms import Apply, Term

# ------------------------------------------------------------------ what rules ask


def splat(x: Term) -> Literal | None:
    """The number that every element of a term is, if it is written in the program."""
    match x:
        case Literal():
            return x
        case Apply(BroadcastInDim(), (Literal() as number,)):
            return number
        case _:
            pass
    return None


def splat_value(x: Term) -> Scalar | None:
    """The same as a Python number."""
    found = splat(x)
    if found is None:
        return None
    value: Scalar = found.numpy().item()
    return value


def commuted_operands(term: Apply) -> Iterator[tuple[Term, Term]]:
    """Both orders of the operands of an operation to which their order doesn't matter."""
    x, y = term.operands
    yield x, y
    yield y, x


def first_of_type(term: Apply, *results: Value) -> Value | None:
    """The first result of the term's type."""
    return next((x for x in results if x.aval == term.aval), None)


def is_same_term(x: Term, y: Term) -> bool:
    """Whether two terms are the same value."""
    return x is y or (type(x) is Literal and x == y)


def has_exact_arithmetic(dtype: DType) -> bool:
    """Whether numbers are exact: integers and truth values."""
    return dtypes.is_integer(dtype) or dtypes.is_bool(dtype)


def evaluate_literals(prim: Primitive, *numbers: Literal) -> Literal:
    """The number that an operation gives for numbers."""
    (out,) = prim.evaluate(numbers)
    return Literal(to_numpy(out).item(), out.aval)


# ------------------------------------------------------------------ numbers that change nothing


def _is_additive_identity(n: Scalar, dtype: DType) -> bool:
    """Of floats it is -0.0 that changes no number, since -0.0 + 0.0 is 0.0."""
    if dtypes.is_float(dtype):
        return isinstance(n, float) and n == 0 and math.copysign(1.0, n) < 0
    return dtypes.is_integer(dtype) and n == 0


@rule(Add)
def add_identity(term: Apply) -> Replacement:
    for x, y in commuted_operands(term):
        n = splat_value(y)
        if n is not None and _is_additive_identity(n, y.aval.dtype) and x.aval == term.aval:
            return x
    return None


@rule(Sub)
def subtract_zero(term: Apply) -> Replacement:
    x, y = term.operands
    n = splat_value(y)
    if n is None or n != 0 or x.aval != term.aval:
        return None
    if dtypes.is_integer(x.aval.dtype):
        return x
    return x if isinstance(n, float) and math.copysign(1.0, n) > 0 else None


@rule(Mul)
def multiply_by_one(term: Apply) -> Replacement:
    for x, y in commuted_operands(term):
        if splat_value(y) == 1 and not dtypes.is_complex(y.aval.dtype) and x.aval == term.aval:
            return x
    return None


@rule(Div)
def divide_by_one(term: Apply) -> Replacement:
    x, y = term.operands
    return x if splat_value(y) == 1 and not dtypes.is_complex(y.aval.dtype) and x.aval == term.aval else None


@rule(Mul, Div)
def multiply_by_minus_one(term: Apply) -> Replacement:
    x, y = term.operands
    for a, b in [(x, y), (y, x)] if isinstance(term.prim, Mul) else [(x, y)]:
        if splat_value(b) == -1 and not dtypes.is_complex(b.aval.dtype) and a.aval == term.aval:
            return neg(a)
    return None


@rule(Max, Min)
def max_min_with_bound(term: Apply) -> Replacement:
    """What nothing is less than, or greater than: infinities, of integers the last ones."""
    for x, y in commuted_operands(term):
        n, dtype = splat_value(y), y.aval.dtype
        if n is None or dtypes.is_complex(dtype) or x.aval != term.aval:
            continue
        if dtypes.is_float(dtype):
            low, high = -math.inf, math.inf
        elif dtypes.is_bool(dtype):
            low, high = 0, 1
        else:
            low, high = int(dtypes.iinfo(dtype).min), int(dtypes.iinfo(dtype).max)
        if n == (low if isinstance(term.prim, Max) else high):
            return x
    return None


@rule(IntegerPow)
def power_of_one(term: Apply) -> Replacement:
    match term:
        case Apply(IntegerPow(1), (x,)):
            return first_of_type(term, x)
        case _:
            pass
    return None


# ------------------------------------------------------------------ integers and truth values


@rule(Mul)
def multiply_integers_by_zero(term: Apply) -> Replacement:
    for _, y in commuted_operands(term):
        if dtypes.is_integer(y.aval.dtype) and splat_value(y) == 0:
            return constant_like_aval(term.aval, 0)
    return None


@rule(Sub, Xor)
def equal_integers_cancel(term: Apply) -> Replacement:
    x, y = term.operands
    return constant_like_aval(term.aval, 0) if is_same_term(x, y) and has_exact_arithmetic(x.aval.dtype) else None


def _all_ones(dtype: DType) -> int:
    if dtypes.is_bool(dtype):
        return 1
    return -1 if dtypes.is_signed(dtype) else int(dtypes.iinfo(dtype).max)


@rule(And, Or, Xor)
def bitwise_with_constant(term: Apply) -> Replacement:
    for x, y in commuted_operands(term):
        n, dtype = splat_value(y), y.aval.dtype
        if n is None:
            continue
        keeps, decides = (_all_ones(dtype), 0) if isinstance(term.prim, And) else (0, _all_ones(dtype))
        if n == keeps and x.aval == term.aval:
            return x
        if n == decides and not isinstance(term.prim, Xor):
            return constant_like_aval(term.aval, bool(n) if dtypes.is_bool(dtype) else n)
    return None


@rule(And, Or, Max, Min)
def idempotent_binary(term: Apply) -> Replacement:
    x, y = term.operands
    return first_of_type(term, x, y) if is_same_term(x, y) else None


@rule(Add, Mul, And, Or, Xor)
def reassociate_integer_constants(term: Apply) -> Replacement:
    """`(x + 1) + 2` is `x + 3`; integers wrap around, so it doesn't matter where."""
    for x, y in commuted_operands(term):
        outer = splat(y)
        if outer is None or not has_exact_arithmetic(outer.aval.dtype):
            continue
        if isinstance(x, Apply) and type(x.prim) is type(term.prim):
            for rest, z in commuted_operands(x):
                inner = splat(z)
                if inner is not None and splat(rest) is None:
                    return first_of_type(term, bind1(term.prim, rest, evaluate_literals(term.prim, inner, outer)))
    return None


# ------------------------------------------------------------------ done and undone


@rule(Neg)
def cancel_double_negation(term: Apply) -> Replacement:
    match term:
        case Apply(Neg(), (Apply(Neg(), (x,)),)):
            return x
        case _:
            pass
    return None


@rule(Not)
def cancel_double_not(term: Apply) -> Replacement:
    match term:
        case Apply(Not(), (Apply(Not(), (x,)),)):
            return x
        case _:
            pass
    return None


@rule(Conj)
def cancel_double_conjugate(term: Apply) -> Replacement:
    match term:
        case Apply(Conj(), (Apply(Conj(), (x,)),)):
            return first_of_type(term, x)
        case _:
            pass
    return None


@rule(Real, Imag)
def real_imag_of_complex(term: Apply) -> Replacement:
    match term:
        case Apply(Real(), (Apply(Complex(), (x, _)),)) | Apply(Imag(), (Apply(Complex(), (_, x)),)):
            return first_of_type(term, x)
        case _:
            pass
    return None


@rule(Complex)
def complex_of_real_imag(term: Apply) -> Replacement:
    match term:
        case Apply(Complex(), (Apply(Real(), (x,)), Apply(Imag(), (y,)))) if x is y:
            return first_of_type(term, x)
        case _:
            pass
    return None


@rule(Floor, Ceil, Round, Abs, StopGradient)
def idempotent_unary(term: Apply) -> Replacement:
    """Rounding what is whole, the size of a size."""
    (x,) = term.operands
    if not isinstance(x, Apply):
        return None
    whole = (Floor, Ceil, Round)
    again = isinstance(x.prim, whole) if isinstance(term.prim, whole) else type(x.prim) is type(term.prim)
    return first_of_type(term, x) if again else None


@rule(Add)
def add_the_negative(term: Apply) -> Replacement:
    for x, y in commuted_operands(term):
        match y:
            case Apply(Neg(), (z,)):
                return first_of_type(term, sub(x, z))
            case _:
                pass
    return None


@rule(Sub)
def subtract_the_negative(term: Apply) -> Replacement:
    match term.operands:
        case (x, Apply(Neg(), (z,))):
            return first_of_type(term, add(x, z))
        case _:
            pass
    return None


@rule(Mul)
def multiply_negatives(term: Apply) -> Replacement:
    match term.operands:
        case (Apply(Neg(), (x,)), Apply(Neg(), (y,))):
            return first_of_type(term, mul(x, y))
        case _:
            pass
    return None


# ------------------------------------------------------------------ comparisons and choices


@rule(Eq, Ne, Lt, Le, Gt, Ge)
def compare_with_itself(term: Apply) -> Replacement:
    """A NaN is not equal to itself, but not less than itself either."""
    x, y = term.operands
    if not is_same_term(x, y):
        return None
    if isinstance(term.prim, (Lt, Gt)):
        return None if dtypes.is_complex(x.aval.dtype) else constant_like_aval(term.aval, False)
    if not has_exact_arithmetic(x.aval.dtype):
        return None
    return constant_like_aval(term.aval, not isinstance(term.prim, Ne))


@rule(SelectN)
def select_known_predicate(term: Apply) -> Replacement:
    which, *cases = term.operands
    n = splat_value(which)
    if n is not None:
        assert isinstance(n, int)
        chosen = cases[min(max(int(n), 0), len(cases) - 1)]
        return first_of_type(term, chosen)
    if all(is_same_term(x, cases[0]) for x in cases):
        return first_of_type(term, cases[0])
    return None


@rule(SelectN)
def select_negated_predicate(term: Apply) -> Replacement:
    match term.operands:
        case (Apply(Not(), (which,)), x, y) if dtypes.is_bool(which.aval.dtype):
            return first_of_type(term, select_n(which, y, x))
        case _:
            pass
    return None


@rule(Cond)
def cond_known_index(term: Apply) -> Replacement:
    """Branches that are alike are one; where the index is a number, the others go."""
    match term:
        case Apply(Cond(branches), (index, *operands)):
            if isinstance(index, Literal):
                branch = branches[min(max(int(index.numpy()), 0), len(branches) - 1)]
            elif all(each == branches[0] for each in branches[1:]):
                branch = branches[0]
            else:
                return None
            return None if term.prim.effects else eval_jaxpr(branch, (), operands)
        case _:
            pass
    return None


ALGEBRAIC_RULES: Final[tuple[RewriteRule, ...]] = (
    add_identity,
    subtract_zero,
    multiply_by_one,
    divide_by_one,
    multiply_by_minus_one,
    max_min_with_bound,
    power_of_one,
    multiply_integers_by_zero,
    equal_integers_cancel,
    bitwise_with_constant,
    idempotent_binary,
    reassociate_integer_constants,
    cancel_double_negation,
    cancel_double_not,
    cancel_double_conjugate,
    real_imag_of_complex,
    complex_of_real_imag,
    idempotent_unary,
    add_the_negative,
    subtract_the_negative,
    multiply_negatives,
    compare_with_itself,
    select_known_predicate,
    select_negated_predicate,
    cond_known_index,
)
"""Arithmetic, logic and choice, exactly."""
