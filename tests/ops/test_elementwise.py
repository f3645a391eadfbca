"""Every elementwise primitive, tested by the properties of `tests.ops.harness`."""

# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tracefx
from tests.closeness import JAX_TOLERANCE, assert_near
from tests.compiling import default_compile_options
from tests.ops.harness import (
    COMPLEXES,
    FLOATS,
    INTS,
    NARROW_INTS,
    SHAPES,
    UINTS,
    Arg,
    Args,
    Record,
    Samples,
    Weak,
    agree_with_jax,
    case_id,
    cases,
    compiled_matches_eager,
    compiled_results,
    edges,
    jvp_matches_finite_differences,
    jvp_matches_jax,
    normal,
    numpy_values,
    pairs,
    results_of_jax,
    rng,
    second_derivatives_match_jax,
    staged_matches_eager,
    transpose_matches_jvp,
    vmap_matches_loop,
)
from tests.transforms.oracle import agree
from tests.versions import DIFFERENTIATES_COMPLEX_MAXIMA
from tracefx.core import dtypes
from tracefx.core.array import Array
from tracefx.core.dtypes import DType, NDArray
from tracefx.ops.elementwise.abs_sign import abs, sign
from tracefx.ops.elementwise.arithmetic import div, max, min, mul, neg, rem, sub
from tracefx.ops.elementwise.bitwise import (
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    shift_left,
    shift_right_arithmetic,
    shift_right_logical,
)
from tracefx.ops.elementwise.comparison import eq, ge, gt, le, lt, ne
from tracefx.ops.elementwise.complex import complex, conj, imag, is_finite, real
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.elementwise.powers import integer_pow, pow, square
from tracefx.ops.elementwise.rounding import RoundingMethod, ceil, floor, round
from tracefx.ops.elementwise.selection import clamp, select, select_n, stop_gradient
from tracefx.ops.elementwise.transcendental import (
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    cbrt,
    cos,
    cosh,
    exp,
    exp2,
    expm1,
    log,
    log1p,
    logistic,
    rsqrt,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
)

NUMBERS: Final = (*FLOATS, *COMPLEXES, *INTS, *UINTS, *NARROW_INTS)
REALS: Final = (*FLOATS, *INTS, *UINTS)
LOGICAL: Final = (dtypes.bool_, *INTS, *UINTS, *NARROW_INTS)
BOOL: Final = (dtypes.bool_,)

Fun = Callable[..., Array]
Oracle = Callable[..., jax.Array]

# ------------------------------------------------------------------ arguments


def python_number(dtype: DType) -> float | None:
    """Returns a Python number whose default dtype is `dtype`, or None."""
    return {dtypes.float32: 1.5, dtypes.int32: 2, dtypes.complex64: 1.5j, dtypes.bool_: True}.get(dtype)  # type: ignore[return-value]  # complex is intended


def within(low: float, high: float) -> Callable[[tuple[int, ...], DType, np.random.Generator], NDArray]:
    """Returns a function that draws arrays of numbers in an open interval; for complex dtypes, both parts."""

    def make(shape: tuple[int, ...], dtype: DType, gen: np.random.Generator) -> NDArray:
        re = gen.uniform(low, high, shape)
        return np.asarray(re + 1j * gen.uniform(low, high, shape) if dtypes.is_complex(dtype) else re).astype(dtype)

    return make


def one_operand(low: float = -2, high: float = 2) -> Samples:
    """Draws arguments in the domain of the primitive, then edge values."""
    make = within(low, high)

    def samples(dtype: DType, gen: np.random.Generator) -> list[Args]:
        draw = make if dtypes.is_inexact(dtype) else normal
        args: list[Args] = [(draw(shape, dtype, gen),) for shape in SHAPES]
        args.append((edges(dtype),))
        if not dtypes.is_bool(dtype):  # booleans are never weak
            args.append((Weak(draw((3,), dtype, gen)),))
        number = python_number(dtype)
        return args if number is None else [*args, (number,)]

    return samples


def weak(x: NDArray) -> Arg:
    """Makes float32 arrays weakly typed; the constants in JAX's rules do not match other weak operands."""
    return Weak(x) if x.dtype == dtypes.float32 else x


def points_of_one(low: float = -2, high: float = 2) -> Samples:
    make = within(low, high)

    def points(dtype: DType, gen: np.random.Generator) -> list[Args]:
        return [(make((2, 3), dtype, gen),), (weak(make((), dtype, gen)),)]

    return points


def two_operands(dtype: DType, gen: np.random.Generator) -> list[Args]:
    def draw(*shape: int) -> NDArray:
        return normal(shape, dtype, gen)

    args: list[Args] = [(draw(*shape), draw(*shape)) for shape in SHAPES]
    args += [(draw(), draw(2, 3)), (draw(2, 3), draw()), pairs(edges(dtype), edges(dtype))]
    if not dtypes.is_bool(dtype):
        args += [(Weak(draw(3)), draw(3)), (Weak(draw(3)), Weak(draw(3)))]
    number = python_number(dtype)
    return args if number is None else [*args, (draw(3), number), (number, draw(3)), (number, number)]


def points_of_two(low: float = -2, high: float = 2) -> Samples:
    make = within(low, high)

    def points(dtype: DType, gen: np.random.Generator) -> list[Args]:
        def draw(*shape: int) -> NDArray:
            return make(shape, dtype, gen)

        return [(draw(2, 3), draw(2, 3)), (draw(), draw(3)), (weak(draw(3)), draw())]

    return points


def unary(
    name: str, function: Fun, oracle: Oracle, low: float = -2, high: float = 2, complex_too: bool = True
) -> Record:
    domain = (*FLOATS, *COMPLEXES) if complex_too else FLOATS
    return Record(name, function, oracle, domain, one_operand(low, high), points_of_one(low, high))


def binary(name: str, function: Fun, oracle: Oracle, domain: tuple[DType, ...], points: Samples | None) -> Record:
    return Record(name, function, oracle, domain, two_operands, points)


ANYWHERE: Final = points_of_two()
POSITIVE: Final = points_of_two(0.3, 2)

# ------------------------------------------------------------------ arithmetic

ARITHMETIC: Final = (
    Record("neg", neg, lax.neg, NUMBERS, one_operand(), points_of_one()),
    binary("add", add, lax.add, NUMBERS, ANYWHERE),
    binary("sub", sub, lax.sub, NUMBERS, ANYWHERE),
    binary("mul", mul, lax.mul, NUMBERS, ANYWHERE),
    binary("div", div, lax.div, NUMBERS, POSITIVE),
    binary("rem", rem, lax.rem, REALS, POSITIVE),
    binary("max", max, lax.max, (*NUMBERS, *BOOL), ANYWHERE),
    binary("min", min, lax.min, (*NUMBERS, *BOOL), ANYWHERE),
    Record("sign", sign, lax.sign, (*FLOATS, *INTS, *UINTS, *NARROW_INTS), one_operand(), points_of_one(0.3, 2)),
    Record("sign complex", sign, lax.sign, COMPLEXES, one_operand()),  # derivative wrongly defined as zero
    Record("abs", abs, lax.abs, (*FLOATS, *COMPLEXES, *INTS), one_operand(), points_of_one(0.3, 2)),
    Record("square", square, lax.square, NUMBERS, one_operand(), points_of_one()),
    *[
        Record(
            f"integer_pow {y}",
            lambda x, y=y: integer_pow(x, y),
            lambda x, y=y: lax.integer_pow(x, y),
            (*FLOATS, *COMPLEXES) if y < 0 else NUMBERS,
            one_operand(),
            points_of_one(0.3, 2),
        )
        for y in (-3, -1, 0, 1, 2, 3, 7)
    ],
)


def bases_and_exponents(dtype: DType, gen: np.random.Generator) -> list[Args]:
    integers = np.array([-2, -1, 0, 1, 2, 3], np.int32)
    return [
        *two_operands(dtype, gen),
        pairs(edges(dtype), integers),
        (edges(dtype), np.uint8(3) * np.ones((), np.uint8)),
    ]


def points_of_pow(dtype: DType, gen: np.random.Generator) -> list[Args]:
    integers = np.array([-2, 0, 3], np.int32)
    base = within(0.3, 2)((3,), dtype, gen)
    return [
        *POSITIVE(dtype, gen),
        (base, integers),
        (base, np.array(0, np.int32)),
        (base[0] * np.ones((), dtype), integers),
    ]


POW: Final = Record("pow", pow, lax.pow, (*FLOATS, *COMPLEXES), bases_and_exponents, points_of_pow)

# ------------------------------------------------------------------ transcendental functions

TRANSCENDENTAL: Final = (
    unary("exp", exp, lax.exp),
    unary("exp2", exp2, lax.exp2),
    unary("expm1", expm1, lax.expm1),
    unary("log", log, lax.log, 0.1, 3),
    unary("log1p", log1p, lax.log1p, -0.5, 3),
    unary("logistic", logistic, lax.logistic),
    unary("sin", sin, lax.sin, -4, 4),
    unary("cos", cos, lax.cos, -4, 4),
    unary("tan", tan, lax.tan, -1, 1),
    unary("asin", asin, lax.asin, -0.8, 0.8),
    unary("acos", acos, lax.acos, -0.8, 0.8),
    unary("atan", atan, lax.atan, -0.8, 0.8),
    unary("sinh", sinh, lax.sinh),
    unary("cosh", cosh, lax.cosh),
    unary("tanh", tanh, lax.tanh),
    unary("asinh", asinh, lax.asinh),
    unary("acosh", acosh, lax.acosh, 1.2, 3),
    unary("atanh", atanh, lax.atanh, -0.8, 0.8),
    unary("sqrt", sqrt, lax.sqrt, 0.1, 3),
    unary("rsqrt", rsqrt, lax.rsqrt, 0.1, 3),
    unary("cbrt", cbrt, lax.cbrt, 0.1, 3, complex_too=False),
)

# ------------------------------------------------------------------ rounding, complex numbers

PART_DTYPES: Final = (dtypes.float32, dtypes.float64)
ROUNDING_AND_PARTS: Final = (
    unary("floor", floor, lax.floor, 0.1, 0.9, complex_too=False),
    unary("ceil", ceil, lax.ceil, 0.1, 0.9, complex_too=False),
    unary("round away", round, lax.round, 0.1, 0.4, complex_too=False),
    unary(
        "round even",
        lambda x: round(x, RoundingMethod.TO_NEAREST_EVEN),
        lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
        0.1,
        0.4,
        complex_too=False,
    ),
    unary("is_finite", is_finite, lax.is_finite, complex_too=False),
    Record("real", real, lax.real, COMPLEXES, one_operand(), points_of_one()),
    Record("imag", imag, lax.imag, COMPLEXES, one_operand(), points_of_one()),
    Record("conj", conj, lax.conj, (*PART_DTYPES, *COMPLEXES), one_operand(), points_of_one()),
    binary("complex", complex, lax.complex, PART_DTYPES, ANYWHERE),
)

# ------------------------------------------------------------------ comparisons, logic, shifts


def shifts(dtype: DType, gen: np.random.Generator) -> list[Args]:
    bits = dtypes.itemsize_bits(dtype)
    amounts = np.array([n for n in (0, 1, 3, bits - 1, bits, bits + 1, -1) if n < 2 ** (bits - 1)])
    amounts = amounts[amounts >= 0] if not dtypes.is_signed(dtype) else amounts
    values = np.concatenate([edges(dtype), normal((3,), dtype, gen)])
    return [pairs(values, amounts.astype(dtype)), *two_operands(dtype, gen)]


ORDERED: Final = (*FLOATS, *INTS, *UINTS, *NARROW_INTS, *BOOL)
PREDICATES: Final = (
    binary("eq", eq, lax.eq, (*ORDERED, *COMPLEXES), ANYWHERE),
    binary("ne", ne, lax.ne, (*ORDERED, *COMPLEXES), ANYWHERE),
    binary("lt", lt, lax.lt, ORDERED, ANYWHERE),
    binary("le", le, lax.le, ORDERED, ANYWHERE),
    binary("gt", gt, lax.gt, ORDERED, ANYWHERE),
    binary("ge", ge, lax.ge, ORDERED, ANYWHERE),
    binary("and", bitwise_and, lax.bitwise_and, LOGICAL, None),
    binary("or", bitwise_or, lax.bitwise_or, LOGICAL, None),
    binary("xor", bitwise_xor, lax.bitwise_xor, LOGICAL, None),
    Record("not", bitwise_not, lax.bitwise_not, LOGICAL, one_operand()),
    *[
        Record(name, function, oracle, (*INTS, *UINTS, *NARROW_INTS), shifts)
        for name, function, oracle in (
            ("shift_left", shift_left, lax.shift_left),
            ("shift_right_logical", shift_right_logical, lax.shift_right_logical),
            ("shift_right_arithmetic", shift_right_arithmetic, lax.shift_right_arithmetic),
        )
    ],
)

# ------------------------------------------------------------------ selection

ANY: Final = (*FLOATS, *COMPLEXES, *INTS, *UINTS, *NARROW_INTS, *BOOL)


def booleans_and_two(dtype: DType, gen: np.random.Generator) -> list[Args]:
    def draw(*shape: int) -> NDArray:
        return normal(shape, dtype, gen)

    def mask(*shape: int) -> NDArray:
        return normal(shape, dtypes.bool_, gen)

    args: list[Args] = [(mask(*shape), draw(*shape), draw(*shape)) for shape in SHAPES]
    subnormal = np.full(3, 1e-40 if dtypes.is_inexact(dtype) else 1).astype(dtype)
    args += [(mask(), draw(2, 3), draw(2, 3)), (True, draw(3), draw(3))]
    args.append((mask(edges(dtype).size), edges(dtype), edges(dtype)[::-1]))
    if dtypes.is_bool(dtype):
        return args
    subnormal = np.full(3, 1e-40 if dtypes.is_inexact(dtype) else 1).astype(dtype)
    return [*args, (mask(3), subnormal, Weak(draw(3))), (mask(3), Weak(draw(3)), Weak(draw(3)))]


def integers_and_three(dtype: DType, gen: np.random.Generator) -> list[Args]:
    def draw(*shape: int) -> NDArray:
        return normal(shape, dtype, gen)

    which = gen.integers(-1, 5, (2, 3)).astype(np.int32)
    return [
        (which, draw(2, 3), draw(2, 3), draw(2, 3)),
        (which[0], draw(3), draw(3), draw(3)),
        (np.array(2, np.int32), draw(3), draw(3), draw(3)),
        (1, draw(2), draw(2), draw(2)),
        (np.array(1, np.uint8), draw(), draw(), draw()),
    ]


def bounds(dtype: DType, gen: np.random.Generator) -> list[Args]:
    def draw(*shape: int) -> NDArray:
        return normal(shape, dtype, gen)

    low, x, high = [a.ravel() for a in np.meshgrid(edges(dtype), edges(dtype), edges(dtype))]
    args: list[Args] = [(draw(*shape), draw(*shape), draw(*shape)) for shape in SHAPES]
    args += [
        (draw(), draw(2, 3), draw()),
        (draw(3), draw(3), draw()),
        (low, x, high),
    ]
    number = python_number(dtype)
    return args if number is None else [*args, (number, draw(3), number), (number, number, number)]


def in_order(args: Args) -> Args:
    """Sorts the bounds, so that the lower one is below the upper one."""
    low, x, high = map(numpy_values, args)
    return np.asarray(np.minimum(low, high)), x, np.asarray(np.maximum(low, high))


SELECTION: Final = (
    Record(
        "select_n bool",
        select_n,
        lax.select_n,
        ANY,
        booleans_and_two,
        lambda d, g: booleans_and_two(d, g)[: len(SHAPES) + 2],
    ),
    Record("select_n int", select_n, lax.select_n, ANY, integers_and_three, integers_and_three),
    Record("select_n one", select_n, lax.select_n, ANY, lambda d, g: [a[:2] for a in booleans_and_two(d, g)]),
    Record("select", select, lax.select, FLOATS, lambda d, g: booleans_and_two(d, g)[:5]),
    Record("clamp", clamp, lax.clamp, ORDERED, bounds, lambda d, g: [in_order(a) for a in bounds(d, g)[: len(SHAPES)]]),
    Record("stop_gradient", stop_gradient, lambda x: lax.stop_gradient(jnp.asarray(x)), ANY, one_operand()),
)

RECORDS: Final = (*ARITHMETIC, POW, *TRANSCENDENTAL, *ROUNDING_AND_PARTS, *PREDICATES, *SELECTION)

# ------------------------------------------------------------------ properties

COMPILED: Final = (*BOOL, dtypes.int4, dtypes.int32, dtypes.uint8, dtypes.bfloat16, dtypes.float32, dtypes.complex64)
DIFFERENTIATED: Final = (dtypes.bfloat16, dtypes.float32, dtypes.float64, dtypes.complex128)
# complex128 values are compared along with the tangents.
all_cases = pytest.mark.parametrize(
    ("record", "dtype"), [(r, d) for r, d in cases(RECORDS) if d != dtypes.complex128], ids=case_id
)
compiled_cases = pytest.mark.parametrize(
    ("record", "dtype"), [(r, d) for r, d in cases(RECORDS) if d in COMPILED], ids=case_id
)
differentiable_cases = pytest.mark.parametrize(
    ("record", "dtype"),
    [(r, d) for r, d in cases(RECORDS) if r.points is not None and d in DIFFERENTIATED],
    ids=case_id,
)
float64_cases = pytest.mark.parametrize(
    ("record", "dtype"),
    [(r, d) for r, d in cases(RECORDS) if r.points is not None and d in (dtypes.float64, dtypes.complex128)],
    ids=case_id,
)


Result = TypeVar("Result")


@functools.lru_cache(maxsize=4)
def wanted(record: Record) -> Mapping[DType, Sequence[jax.Array]]:
    """Returns JAX's results for the samples of every dtype, computed by one program because compilation dominates the
    time.
    """
    samples_by_dtype = {d: samples(record, d) for d in record.dtypes if d != dtypes.complex128}
    return by_dtype(
        samples_by_dtype, results_of_jax(record, [args for each in samples_by_dtype.values() for args in each])
    )


@functools.lru_cache(maxsize=4)
def compiled(record: Record) -> Mapping[DType, Sequence[Array]]:
    """Returns tracefx's results for the samples of every dtype, computed by one program compiled with
    default options.
    """
    samples_by_dtype = {d: samples(record, d) for d in record.dtypes if d in COMPILED}
    with default_compile_options():
        return by_dtype(
            samples_by_dtype, compiled_results(record, [args for each in samples_by_dtype.values() for args in each])
        )


def by_dtype(
    samples_by_dtype: Mapping[DType, Sequence[Args]], results: Sequence[Result]
) -> Mapping[DType, Sequence[Result]]:
    """Splits the results for the samples of all dtypes."""
    rest = iter(results)
    return {dtype: list(itertools.islice(rest, len(each))) for dtype, each in samples_by_dtype.items()}


def samples(record: Record, dtype: DType) -> list[Args]:
    return record.samples(dtype, rng(record.name, dtype))


@all_cases
def test_values_and_types_match_jax(record: Record, dtype: DType) -> None:
    agree_with_jax(record, samples(record, dtype), wanted(record)[dtype])


@compiled_cases
def test_compiled_matches_eager(record: Record, dtype: DType) -> None:
    results = compiled(record)[dtype]
    with default_compile_options():
        compiled_matches_eager(record, samples(record, dtype), results)


@all_cases
def test_traced_matches_eager(record: Record, dtype: DType) -> None:
    for args in samples(record, dtype):
        staged_matches_eager(record, args)


@all_cases
def test_vmap_matches_loop(record: Record, dtype: DType) -> None:
    batch = [record.samples(dtype, rng(record.name, dtype, i)) for i in range(3)]
    for elements in zip(*batch, strict=True):
        vmap_matches_loop(record, elements)


CASES_JAX_DIFFERENTIATES: Final = [
    (r, d)
    for r, d in cases(RECORDS)
    if r.points is not None
    and d in DIFFERENTIATED
    and (DIFFERENTIATES_COMPLEX_MAXIMA or r.name not in ("max", "min") or not dtypes.is_complex(d))
]
cases_jax_differentiates = pytest.mark.parametrize(("record", "dtype"), CASES_JAX_DIFFERENTIATES, ids=case_id)
float64_cases_jax_differentiates = pytest.mark.parametrize(
    ("record", "dtype"),
    [(r, d) for r, d in CASES_JAX_DIFFERENTIATES if d in (dtypes.float64, dtypes.complex128)],
    ids=case_id,
)


def points(record: Record, dtype: DType) -> list[Args]:
    assert record.points is not None
    return record.points(dtype, rng(record.name, dtype, "points"))


@cases_jax_differentiates
def test_jvp_matches_jax(record: Record, dtype: DType) -> None:
    jvp_matches_jax(record, points(record, dtype))


@float64_cases
def test_jvp_matches_finite_differences(record: Record, dtype: DType) -> None:
    for args in points(record, dtype):
        jvp_matches_finite_differences(record, args)


@differentiable_cases
def test_transpose_is_adjoint_of_jvp(record: Record, dtype: DType) -> None:
    for args in points(record, dtype):
        transpose_matches_jvp(record, args)


@float64_cases_jax_differentiates
def test_second_derivatives_match_jax(record: Record, dtype: DType) -> None:
    second_derivatives_match_jax(record, points(record, dtype))


BROADCAST_SHAPES: Final[tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]] = (
    ((3, 4), (3, 1)),
    ((1, 4), (3, 4)),
    ((3, 1), (1, 4)),
    ((3, 0), (3, 1)),
    ((1,), (0,)),
    ((2, 1, 2), (1, 3, 1)),
)
BINARY: Final = {
    "floats": (
        *("add", "sub", "mul", "div", "rem", "max", "min", "pow", "atan2", "nextafter", "complex"),
        *("eq", "ne", "lt", "le", "gt", "ge"),
    ),
    "integers": (
        *("bitwise_and", "bitwise_or", "bitwise_xor", "mulhi"),
        *("shift_left", "shift_right_logical", "shift_right_arithmetic"),
    ),
}


def binary_call(name: str, x: NDArray, y: NDArray) -> Callable[[Any, Any], object]:
    return lambda fx, fnp: getattr(fx.lax, name)(fnp.array(x), fnp.array(y))


@pytest.mark.parametrize(("lhs_shape", "rhs_shape"), BROADCAST_SHAPES)
def test_axes_of_size_1_broadcast(lhs_shape: tuple[int, ...], rhs_shape: tuple[int, ...]) -> None:
    for kind, names in BINARY.items():
        dtype = np.dtype(np.float32 if kind == "floats" else np.int32)
        x = (np.arange(np.prod(lhs_shape)).reshape(lhs_shape) + 1).astype(dtype)
        y = (np.arange(np.prod(rhs_shape)).reshape(rhs_shape) + 2).astype(dtype)
        for name in names:
            agree(binary_call(name, x, y))


def test_axes_of_size_1_broadcast_in_special_functions() -> None:
    x, y = np.full((3, 1), 1.5, np.float32), np.linspace(1.2, 2, 4, dtype=np.float32).reshape(1, 4)
    for name in ("igamma", "igammac", "zeta", "polygamma"):
        first = np.full((3, 1), 2.0, np.float32)
        got = getattr(tracefx.lax, name)(first, y)
        assert_near(got, getattr(lax, name)(first, y), JAX_TOLERANCE)
    assert_near(tracefx.lax.betainc(x, y, x * 0.2), lax.betainc(x, y, x * 0.2), JAX_TOLERANCE)


def test_axes_of_size_1_broadcast_under_transformations() -> None:
    x, y = np.arange(12, dtype=np.float32).reshape(3, 4), np.arange(3, dtype=np.float32).reshape(3, 1) + 1
    agree(lambda fx, fnp: fx.jit(fx.lax.mul)(x, y))
    agree(lambda fx, fnp: fx.grad(lambda x, y: fx.lax.mul(x, y).sum(), (0, 1))(x, y))
    agree(lambda fx, fnp: fx.jit(fx.grad(lambda x, y: fx.lax.atan2(x, y).sum(), (0, 1)))(x, y))
    agree(lambda fx, fnp: fx.jvp(fx.lax.div, (x, y), (x, y)))
    agree(lambda fx, fnp: fx.vmap(fx.lax.sub, (0, None))(np.stack([x, 2 * x]), y))
    agree(lambda fx, fnp: fx.vmap(fx.lax.sub, (None, 2), 1)(x, np.stack([y, 2 * y], 2)))
    program = tracefx.make_jaxpr(tracefx.lax.add)(x, y)
    assert [e.prim.name for e in program.eqns] == ["broadcast_in_dim", "add"]


def test_operands_that_do_not_broadcast_raise() -> None:
    wide = np.ones((3, 4), np.float32)
    for shape, words in (((2, 1), r"axis 0 differ"), ((4,), "same number of axes"), ((1, 1, 4), "number of axes")):
        with pytest.raises(TypeError, match=words):
            tracefx.lax.add(wide, np.ones(shape, np.float32))
        with pytest.raises(TypeError):
            lax.add(wide, np.ones(shape, np.float32))
