"""Rules for arithmetic, logic and selection that hold bit for bit, also for NaN, infinities and signed zeros."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from tracefx import ops
from tracefx.control.cond import Cond
from tracefx.core import DType, Literal, Scalar, Value, dtypes, to_numpy
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import bind1
from tracefx.core.primitive import Primitive
from tracefx.ops.elementwise.arithmetic import mul, neg, sub
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.elementwise.selection import select_n
from tracefx.ops.structural import constant_like_aval
from tracefx.rewriting.rules import Replacement, RewriteRule, rule
from tracefx.rewriting.terms import Apply, Term

# ------------------------------------------------------------------ helpers


def splat(x: Term) -> Literal | None:
    """Returns the literal that all elements of a term equal; None if the term is no literal or broadcast literal."""
    match x:
        case Literal():
            return x
        case Apply(ops.BroadcastInDim(), (Literal() as number,)):
            return number
        case _:
            return None


def splat_value(x: Term) -> Scalar | None:
    """Returns the scalar that all elements of a term equal, as a Python number, or None (see `splat`)."""
    number = splat(x)
    if number is None:
        return None
    value: Scalar = number.numpy().item()
    return value


def commuted_operands(term: Apply) -> Iterator[tuple[Term, Term]]:
    """Yields both orders of the operands of a commutative operation."""
    x, y = term.operands
    yield x, y
    yield y, x


def first_of_type(term: Apply, *results: Value) -> Value | None:
    """Returns the first result that has the term's shape, dtype and weak type; None if no result has."""
    return next((x for x in results if x.aval == term.aval), None)


def is_same_term(x: Term, y: Term) -> bool:
    """Whether two terms are the same value: one object, or equal literals."""
    return x is y or (type(x) is Literal and type(y) is Literal and bool(x == y))


def has_exact_arithmetic(dtype: DType) -> bool:
    """Whether arithmetic is exact: the dtype is an integer type or bool."""
    return dtypes.is_integer(dtype) or dtypes.is_bool(dtype)


def evaluate_literals(prim: Primitive, *numbers: Literal) -> Literal:
    """Evaluates an operation on literals."""
    (out,) = prim.evaluate(numbers)
    return Literal(to_numpy(out).item(), out.aval)


def combine_constants(term: Apply) -> Replacement:
    """Rewrites `(x + 1) + 2` as `x + 3`, for any commutative and associative operation."""
    for x, y in commuted_operands(term):
        outer = splat(y)
        if outer is not None and isinstance(x, Apply) and type(x.prim) is type(term.prim):
            for operand, z in commuted_operands(x):
                inner = splat(z)
                if inner is not None and splat(operand) is None:
                    return first_of_type(term, bind1(term.prim, operand, evaluate_literals(term.prim, inner, outer)))
    return None


# ------------------------------------------------------------------ identity elements


def _is_additive_identity(n: Scalar, dtype: DType) -> bool:
    """Whether `x + n` is `x` for all `x`. For floats only -0.0 is an identity, since -0.0 + 0.0 is 0.0."""
    if dtypes.is_float(dtype):
        return isinstance(n, float) and n == 0 and math.copysign(1.0, n) < 0
    return dtypes.is_integer(dtype) and n == 0


@rule(ops.Add)
def add_identity(term: Apply) -> Replacement:
    for x, y in commuted_operands(term):
        n = splat_value(y)
        if n is not None and _is_additive_identity(n, y.aval.dtype) and x.aval == term.aval:
            return x
    return None


@rule(ops.Sub)
def subtract_zero(term: Apply) -> Replacement:
    x, y = term.operands
    n = splat_value(y)
    if n is None or n != 0 or x.aval != term.aval:
        return None
    if dtypes.is_integer(x.aval.dtype):
        return x
    return x if isinstance(n, float) and math.copysign(1.0, n) > 0 else None


@rule(ops.Mul)
def multiply_by_one(term: Apply) -> Replacement:
    for x, y in commuted_operands(term):
        if splat_value(y) == 1 and not dtypes.is_complex(y.aval.dtype) and x.aval == term.aval:
            return x
    return None


@rule(ops.Div)
def divide_by_one(term: Apply) -> Replacement:
    x, y = term.operands
    return x if splat_value(y) == 1 and not dtypes.is_complex(y.aval.dtype) and x.aval == term.aval else None


@rule(ops.Mul, ops.Div)
def multiply_by_minus_one(term: Apply) -> Replacement:
    x, y = term.operands
    for a, b in [(x, y), (y, x)] if isinstance(term.prim, ops.Mul) else [(x, y)]:
        if splat_value(b) == -1 and not dtypes.is_complex(b.aval.dtype) and a.aval == term.aval:
            return neg(a)
    return None


@rule(ops.Max, ops.Min)
def max_min_with_bound(term: Apply) -> Replacement:
    """Drops a bound that never applies: infinities for floats, the smallest or largest value for integers."""
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
        if n == (low if isinstance(term.prim, ops.Max) else high):
            return x
    return None


@rule(ops.IntegerPow)
def power_of_one(term: Apply) -> Replacement:
    match term:
        case Apply(ops.IntegerPow(1), (x,)):
            return first_of_type(term, x)
        case _:
            return None


# ------------------------------------------------------------------ integers and bools


@rule(ops.Mul)
def multiply_integers_by_zero(term: Apply) -> Replacement:
    for _, y in commuted_operands(term):
        if dtypes.is_integer(y.aval.dtype) and splat_value(y) == 0:
            return constant_like_aval(term.aval, 0)
    return None


@rule(ops.Sub, ops.Xor)
def equal_integers_cancel(term: Apply) -> Replacement:
    x, y = term.operands
    return constant_like_aval(term.aval, 0) if is_same_term(x, y) and has_exact_arithmetic(x.aval.dtype) else None


def _all_ones(dtype: DType) -> int:
    if dtypes.is_bool(dtype):
        return 1
    return -1 if dtypes.is_signed(dtype) else int(dtypes.iinfo(dtype).max)


@rule(ops.And, ops.Or, ops.Xor)
def bitwise_with_constant(term: Apply) -> Replacement:
    for x, y in commuted_operands(term):
        n, dtype = splat_value(y), y.aval.dtype
        if n is None:
            continue
        identity, absorbing = (_all_ones(dtype), 0) if isinstance(term.prim, ops.And) else (0, _all_ones(dtype))
        if n == identity and x.aval == term.aval:
            return x
        if n == absorbing and not isinstance(term.prim, ops.Xor):
            return constant_like_aval(term.aval, bool(n) if dtypes.is_bool(dtype) else n)
    return None


@rule(ops.And, ops.Or, ops.Max, ops.Min)
def idempotent_binary(term: Apply) -> Replacement:
    x, y = term.operands
    return first_of_type(term, x, y) if is_same_term(x, y) else None


@rule(ops.Add, ops.Mul, ops.And, ops.Or, ops.Xor)
def reassociate_integer_constants(term: Apply) -> Replacement:
    """`(x + 1) + 2` is `x + 3`: exact for integers, since they wrap around."""
    return combine_constants(term) if has_exact_arithmetic(term.aval.dtype) else None


# ------------------------------------------------------------------ operations that cancel


@rule(ops.Neg, ops.Not, ops.Conj)
def cancel_involution(term: Apply) -> Replacement:
    """Cancels two nested negations, complements or conjugations."""
    (x,) = term.operands
    return first_of_type(term, *x.operands) if isinstance(x, Apply) and type(x.prim) is type(term.prim) else None


@rule(ops.Real, ops.Imag)
def real_imag_of_complex(term: Apply) -> Replacement:
    match term:
        case Apply(ops.Real(), (Apply(ops.Complex(), (x, _)),)) | Apply(ops.Imag(), (Apply(ops.Complex(), (_, x)),)):
            return first_of_type(term, x)
        case _:
            return None


@rule(ops.Complex)
def complex_of_real_imag(term: Apply) -> Replacement:
    match term:
        case Apply(ops.Complex(), (Apply(ops.Real(), (x,)), Apply(ops.Imag(), (y,)))) if x is y:
            return first_of_type(term, x)
        case _:
            return None


@rule(ops.Floor, ops.Ceil, ops.Round, ops.Abs, ops.StopGradient)
def idempotent_unary(term: Apply) -> Replacement:
    """Drops the outer of two nested rounding operations, of `abs(abs(x))` and of nested `stop_gradient`s."""
    (x,) = term.operands
    if not isinstance(x, Apply):
        return None
    roundings = (ops.Floor, ops.Ceil, ops.Round)
    redundant = isinstance(x.prim, roundings) if isinstance(term.prim, roundings) else type(x.prim) is type(term.prim)
    return first_of_type(term, x) if redundant else None


@rule(ops.Add)
def add_the_negative(term: Apply) -> Replacement:
    for x, y in commuted_operands(term):
        match y:
            case Apply(ops.Neg(), (z,)):
                return first_of_type(term, sub(x, z))
            case _:
                pass
    return None


@rule(ops.Sub)
def subtract_the_negative(term: Apply) -> Replacement:
    match term.operands:
        case (x, Apply(ops.Neg(), (z,))):
            return first_of_type(term, add(x, z))
        case _:
            return None


@rule(ops.Mul)
def multiply_negatives(term: Apply) -> Replacement:
    match term.operands:
        case (Apply(ops.Neg(), (x,)), Apply(ops.Neg(), (y,))):
            return first_of_type(term, mul(x, y))
        case _:
            return None


# ------------------------------------------------------------------ comparisons and selection


@rule(ops.Eq, ops.Ne, ops.Lt, ops.Le, ops.Gt, ops.Ge)
def compare_with_itself(term: Apply) -> Replacement:
    """Compares a value with itself. Floats only with `<` and `>`: a NaN does not equal itself, nor is it less."""
    x, y = term.operands
    if not is_same_term(x, y):
        return None
    if isinstance(term.prim, (ops.Lt, ops.Gt)):
        return None if dtypes.is_complex(x.aval.dtype) else constant_like_aval(term.aval, False)
    if not has_exact_arithmetic(x.aval.dtype):
        return None
    return constant_like_aval(term.aval, not isinstance(term.prim, ops.Ne))


@rule(ops.SelectN)
def select_known_predicate(term: Apply) -> Replacement:
    predicate, *cases = term.operands
    n = splat_value(predicate)
    if isinstance(n, int):
        chosen = cases[min(max(int(n), 0), len(cases) - 1)]
        return first_of_type(term, chosen)
    if all(is_same_term(x, cases[0]) for x in cases):
        return first_of_type(term, cases[0])
    return None


@rule(ops.SelectN)
def select_negated_predicate(term: Apply) -> Replacement:
    match term.operands:
        case (Apply(ops.Not(), (predicate,)), x, y) if dtypes.is_bool(predicate.aval.dtype):
            return first_of_type(term, select_n(predicate, y, x))
        case _:
            return None


@rule(Cond)
def cond_known_index(term: Apply) -> Replacement:
    """Replaces a `cond` by one of its branches where all are equal or the index is a literal."""
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
    cancel_involution,
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
"""Rules for arithmetic, logic and selection that are exact bit for bit."""
