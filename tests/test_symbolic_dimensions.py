"""Symbolic dimensions: arithmetic, comparisons, printing and parsing as in JAX; constraints; soundness of bounds."""

from __future__ import annotations

import copy
import itertools
import operator
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax.core
import jax.export
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.errors import untyped
from tracefx.dimensions.bounds import SymbolicScope
from tracefx.dimensions.symbolic_dimensions import evaluate, max_dim, min_dim
from tracefx.errors import InconclusiveDimensionOperation

_CONSTRAINTS: Final[Sequence[tuple[str, ...]]] = (
    (),
    ("a >= 3",),
    ("a >= b", "b >= 4"),
    ("a*2 >= b + 3", "b <= 8"),
    ("mod(a, 4) == 0",),
    ("a == 2*b",),
    ("a*b == 3*c", "a >= 2"),
    ("max(a, b) <= 9",),
    ("floordiv(a, 2) >= b",),
)


def random_expression(
    rng: random.Random, variables: Sequence[Any], maximum: Callable[..., Any], minimum: Callable[..., Any], depth: int
) -> Any:
    """A random expression of dimension variables; the same one for the variables of both libraries."""

    def build(depth: int) -> Any:
        if depth == 0 or rng.random() < 0.2:
            return variables[rng.randrange(len(variables))] if rng.random() < 0.7 else rng.randrange(-3, 6)
        operation = rng.choice("+-*+-*/%mM*")
        x = build(depth - 1)
        if operation in "/%":
            y = rng.choice([1, 2, 3, 4, -2]) if rng.random() < 0.8 else variables[0]
            return x // y if operation == "/" else x % y
        y = build(depth - 1)
        operations = {"+": operator.add, "-": operator.sub, "*": operator.mul, "m": minimum, "M": maximum}
        return operations[operation](x, y)

    return build(depth)


def outcome(compute: Callable[..., Any], *args: Any) -> Any:
    """The result, or the name of the exception."""
    try:
        return compute(*args)
    except Exception as error:
        return type(error).__name__


@pytest.mark.parametrize("constraints", _CONSTRAINTS, ids=lambda constraints: "; ".join(constraints) or "none")
def test_expressions_and_comparisons_equal_those_of_jax(constraints: tuple[str, ...]) -> None:
    for seed in range(12):
        pairs = []
        libraries: list[Any] = [jax.export, fx]
        for library in libraries:
            variables = library.symbolic_shape("a, b, c", constraints=constraints)
            jax_core: Any = jax.core
            choose = (jax_core.max_dim, jax_core.min_dim) if library is jax.export else (max_dim, min_dim)
            rng = random.Random(seed)
            pairs.append([outcome(random_expression, rng, variables, *choose, depth) for depth in (3, 2)])
        (jax_left, jax_right), (left, right) = pairs
        if "AssertionError" in (jax_left, jax_right):  # a bug of JAX
            continue
        assert [str(left), str(right)] == [str(jax_left), str(jax_right)]
        for compare in (operator.ge, operator.gt, operator.le, operator.lt, operator.eq):
            expected = outcome(compare, jax_left, jax_right)
            actual = outcome(compare, left, right)
            # Where JAX cannot decide, tracefx may.
            assert actual == expected or expected == "InconclusiveDimensionOperation", (left, right, compare)


@pytest.mark.parametrize("constraints", _CONSTRAINTS, ids=lambda constraints: "; ".join(constraints) or "none")
def test_bounds_hold_for_all_sizes(constraints: tuple[str, ...]) -> None:
    scope = SymbolicScope(constraints)
    variables = fx.symbolic_shape("a, b, c", scope=scope)
    values = [
        dict(zip("abc", sizes, strict=True))
        for sizes in itertools.product((1, 2, 3, 4, 5, 8, 12), repeat=3)
        if all(
            (value == 0) if constraint.is_equality else (value >= 0)
            for _, constraint in scope.checked
            for value in [evaluate(constraint.polynomial, dict(zip("abc", sizes, strict=True)))]
        )
    ]
    assert values
    for seed in range(20):
        expression = outcome(random_expression, random.Random(seed), variables, max_dim, min_dim, 3)
        if not fx.is_symbolic_dim(expression):
            continue
        try:
            low, high = scope.bounds(dict(expression.polynomial.terms))
        except InconclusiveDimensionOperation:
            continue
        found = []
        for sizes in values:
            try:
                found.append(evaluate(expression.polynomial, sizes))
            except ZeroDivisionError:
                continue
        assert not found or (low <= min(found) and max(found) <= high), expression


@pytest.mark.parametrize(
    ("text", "like"),
    [
        ("b", None),
        ("(b, 3)", None),
        ("2*b + 1, b - 1, -b + 4*c", None),
        ("b^2*c, floordiv(b, 2), mod(b + 1, 3)", None),
        ("max(b, 3), min(b, c)", None),
        ("_, b, ...", (3, 4, 5, 6)),
        ("...", (2, 3)),
        ("b, _", (None, 3)),
        ("", None),
    ],
)
def test_parsed_shapes_equal_those_of_jax(text: str, like: tuple[int | None, ...] | None) -> None:
    shape = fx.symbolic_shape(text, like=like)
    assert str(shape) == str(jax.export.symbolic_shape(text, like=like))
    scope = SymbolicScope()
    assert fx.symbolic_shape(", ".join(map(str, shape)), scope=scope) == fx.symbolic_shape(text, scope=scope, like=like)


@pytest.mark.parametrize(
    ("text", "like", "message"),
    [
        ("b +", None, "dimension 0: expected a dimension variable or a number, at the end"),
        ("b, 3 4", None, "dimension 2: expected ',', at '4', position 4"),
        ("(b", None, r"expected '\)'"),
        ("b)", None, "expected the end"),
        ("_", None, "a placeholder needs like="),
        ("..., _", (3,), "expected the end"),
        ("_, _", (3,), "has only 1 axes"),
        ("_", (None,), "gives no size"),
        ("4", (3,), "the size 4 differs from 3"),
        ("b^c", None, "expected a number"),
        ("b^1000", None, "the exponent 1000 is larger than 64"),
        ("floordiv(b)", None, "expected ','"),
        ("b $ c", None, r"expected ',', at '\$'"),
    ],
)
def test_unparsable_shapes(text: str, like: tuple[int | None, ...] | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fx.symbolic_shape(text, like=like)


def test_invalid_arguments() -> None:
    scope = SymbolicScope()
    with pytest.raises(ValueError, match="give either scope= or constraints="):
        fx.symbolic_shape("b", scope=scope, constraints=("b >= 2",))
    with pytest.raises(ValueError, match="must be a string or None, got 3"):
        untyped(fx.symbolic_shape)(3)
    with pytest.raises(ValueError, match="must be a sequence of strings, got 'b >= 2'"):
        untyped(SymbolicScope)("b >= 2")


@pytest.mark.parametrize(
    ("constraints", "error", "message"),
    [
        (("b > 2",), ValueError, "has none of ==, >= and <="),
        (("b >= ",), ValueError, "must compare two expressions|expected"),
        (("b + c == 4",), ValueError, "the left side of the equality .* must be a product"),
        (("b == 3", "b == 4"), ValueError, "cannot be satisfied"),
        (("b <= 0",), ValueError, "contradict"),
        (("b >= 5", "b <= 4"), ValueError, "contradict"),
    ],
)
def test_invalid_constraints(constraints: tuple[str, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        SymbolicScope(constraints)


def test_inconclusive_comparison_names_the_constraints() -> None:
    (b,) = fx.symbolic_shape("b", constraints=("b >= 2",))
    assert b >= 2
    with pytest.raises(InconclusiveDimensionOperation, match=r"b < 3 .* inconclusive.* under the constraints b >= 2"):
        operator.lt(b, 3)


def test_dimensions_of_different_scopes_cannot_be_combined() -> None:
    (a,), (b,) = fx.symbolic_shape("a"), fx.symbolic_shape("a")
    assert a != b
    for combine in (operator.add, operator.mul, operator.ge, operator.floordiv, max_dim):
        with pytest.raises(ValueError, match="of different scopes"):
            combine(a, b)


def test_a_dimension_has_no_integer_value() -> None:
    (b,) = fx.symbolic_shape("b")
    for use in (int, float, range, operator.index, [0].__mul__):
        with pytest.raises(InconclusiveDimensionOperation, match="the symbolic dimension b is used where a constant"):
            untyped(use)(b)


def test_hashing_copying_and_formatting() -> None:
    b, c = fx.symbolic_shape("b, c")
    assert hash(2 * b + c) == hash(c + b + b)
    assert len({2 * b + c, c + b + b, b}) == 2
    assert copy.deepcopy(b) is b
    assert f"{2 * b:>5}" == "  2*b"
    assert (b + 1) ** 2 == b * b + 2 * b + 1
    assert b**0 == 1
    assert divmod(7 * b + 3, 7) == (b, 3)
    with pytest.raises(ValueError, match="no negative powers"):
        b ** (-1)


def test_arithmetic_with_arrays_and_floats_gives_arrays() -> None:
    def f(x: fx.Array) -> list[Any]:
        n = x.shape[0]
        return [n * x, x - n, n / 2, n * 0.5, 2.0**n, fnp.asarray(n), fnp.array([1, 2]) // n, n % fnp.asarray(3)]

    (b,) = fx.symbolic_shape("b")
    exported = fx.export(fx.jit(f))(fx.ShapeDtypeStruct((b,), "float32"))
    x = fnp.arange(5.0)
    for actual, expected in zip(exported.call(x), f(x), strict=True):
        assert_near(actual, expected)
        assert fnp.asarray(actual).dtype == fnp.asarray(expected).dtype


def test_comparisons_take_bounded_time() -> None:
    variables = ", ".join([f"v{i}" for i in range(10)])
    constraints = [f"v{i} + v{j} >= v{(i + j) % 10} + {i}" for i in range(10) for j in range(i)]
    shape = fx.symbolic_shape(variables, constraints=constraints)
    with pytest.raises(InconclusiveDimensionOperation):
        operator.ge(sum(shape[1:], shape[0]), 1000)
