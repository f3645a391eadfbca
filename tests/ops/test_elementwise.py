"""Every elementwise primitive, tested by the properties of `tests.ops.harness`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import numpy as np
import pytest

import tracefx as fx
from tests.comparison import JAX_TOLERANCE, JAX_TRANSFORM_TOLERANCE, assert_agree, assert_calls_agree, assert_near
from tests.laws.samples import SAMPLES, Sample, jax_function
from tests.ops.harness import (
    COMPLEXES,
    FLOATS,
    INTS,
    NARROW_INTS,
    PRECISE,
    SHAPES,
    UINTS,
    Arg,
    Args,
    Record,
    Samples,
    Weak,
    applied,
    cases,
    edges,
    normal,
    numpy_values,
    pairs,
    property_tests,
)
from tests.versions import DIFFERENTIATES_COMPLEX_MAXIMA
from tracefx.core import dtypes
from tracefx.core.dtypes import DType, NDArray
from tracefx.core.handler import bind1
from tracefx.ops.elementwise.elementwise import Elementwise

NUMBERS: Final = (*FLOATS, *COMPLEXES, *INTS, *UINTS, *NARROW_INTS)
REALS: Final = (*FLOATS, *INTS, *UINTS)
LOGICAL: Final = (dtypes.bool_, *INTS, *UINTS, *NARROW_INTS)
BOOL: Final = (dtypes.bool_,)

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


def record(name: str, domain: tuple[DType, ...], samples: Samples, points: Samples | None = None) -> Record:
    """Returns the record of the primitive that is the first word of `name`."""
    return Record(name, applied(name.split()[0]), domain, samples, points)


def unary(name: str, low: float = -2, high: float = 2, domain: tuple[DType, ...] = (*FLOATS, *COMPLEXES)) -> Record:
    return record(name, domain, one_operand(low, high), points_of_one(low, high))


def binary(name: str, domain: tuple[DType, ...], points: Samples | None = None) -> Record:
    return record(name, domain, two_operands, points)


ANYWHERE: Final = points_of_two()
POSITIVE: Final = points_of_two(0.3, 2)

# ------------------------------------------------------------------ arithmetic

ARITHMETIC: Final = (
    record("neg", NUMBERS, one_operand(), points_of_one()),
    binary("add", NUMBERS, ANYWHERE),
    binary("sub", NUMBERS, ANYWHERE),
    binary("mul", NUMBERS, ANYWHERE),
    binary("div", NUMBERS, POSITIVE),
    binary("rem", REALS, POSITIVE),
    binary("max", (*NUMBERS, *BOOL), ANYWHERE),
    binary("min", (*NUMBERS, *BOOL), ANYWHERE),
    record("sign", (*FLOATS, *INTS, *UINTS, *NARROW_INTS), one_operand(), points_of_one(0.3, 2)),
    record("sign complex", COMPLEXES, one_operand()),  # derivative wrongly defined as zero
    record("abs", (*FLOATS, *COMPLEXES, *INTS), one_operand(), points_of_one(0.3, 2)),
    record("square", NUMBERS, one_operand(), points_of_one()),
    *[
        Record(
            f"integer_pow {y}",
            applied("integer_pow", y),
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


POW: Final = record("pow", (*FLOATS, *COMPLEXES), bases_and_exponents, points_of_pow)

# ------------------------------------------------------------------ transcendental functions


def elementary(name: str, sample: Sample, interval: tuple[float, float]) -> Record:
    """Returns the record of the primitive of a `function_sample`."""

    def call(lax: object, x: Any) -> Any:
        return bind1(sample.prim, x) if lax is fx.lax else jax_function(sample.prim)(x)

    assert isinstance(sample.prim, Elementwise)
    domain = (*FLOATS, *COMPLEXES) if sample.prim.domain.accepts(dtypes.complex64) else FLOATS
    return Record(name, call, domain, one_operand(*interval), points_of_one(*interval))


TRANSCENDENTAL: Final = [
    elementary(name, sample, sample.interval)
    for name, samples in SAMPLES.items()
    for sample in samples
    if sample.interval is not None
]

# ------------------------------------------------------------------ rounding, complex numbers

PART_DTYPES: Final = (dtypes.float32, dtypes.float64)
ROUNDING_AND_PARTS: Final = (
    unary("floor", 0.1, 0.9, FLOATS),
    unary("ceil", 0.1, 0.9, FLOATS),
    unary("round away", 0.1, 0.4, FLOATS),
    Record(
        "round even",
        lambda lax, x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
        FLOATS,
        one_operand(0.1, 0.4),
        points_of_one(0.1, 0.4),
    ),
    unary("is_finite", domain=FLOATS),
    unary("real", domain=COMPLEXES),
    unary("imag", domain=COMPLEXES),
    unary("conj", domain=(*PART_DTYPES, *COMPLEXES)),
    binary("complex", PART_DTYPES, ANYWHERE),
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
    *[binary(name, (*ORDERED, *COMPLEXES), ANYWHERE) for name in ("eq", "ne")],
    *[binary(name, ORDERED, ANYWHERE) for name in ("lt", "le", "gt", "ge")],
    *[binary(f"bitwise_{name}", LOGICAL) for name in ("and", "or", "xor")],
    record("bitwise_not", LOGICAL, one_operand()),
    *[
        record(f"shift_{name}", (*INTS, *UINTS, *NARROW_INTS), shifts)
        for name in ("left", "right_logical", "right_arithmetic")
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
    record("select_n bool", ANY, booleans_and_two, lambda d, g: booleans_and_two(d, g)[: len(SHAPES) + 2]),
    record("select_n int", ANY, integers_and_three, integers_and_three),
    record("select_n one", ANY, lambda d, g: [a[:2] for a in booleans_and_two(d, g)]),
    record("select", FLOATS, lambda d, g: booleans_and_two(d, g)[:5]),
    record("clamp", ORDERED, bounds, lambda d, g: [in_order(a) for a in bounds(d, g)[: len(SHAPES)]]),
    record("stop_gradient", ANY, one_operand()),
)

RECORDS: Final = (*ARITHMETIC, POW, *TRANSCENDENTAL, *ROUNDING_AND_PARTS, *PREDICATES, *SELECTION)

# ------------------------------------------------------------------ properties

COMPILED: Final = (*BOOL, dtypes.int4, dtypes.int32, dtypes.uint8, dtypes.bfloat16, dtypes.float32, dtypes.complex64)


def compiled(dtype: DType, samples: list[Args]) -> list[Args]:
    """Returns the samples to compile: all of float32, and those with edge values of other dtypes."""
    with_edges = [args for args in samples if numpy_values(args[0]).size > 6]  # other arrays have shapes in SHAPES
    return (samples if dtype == dtypes.float32 else with_edges or samples) if dtype in COMPILED else []


DIFFERENTIATED: Final = (dtypes.bfloat16, dtypes.float32, *PRECISE)
test_values, test_vmap, test_derivatives = property_tests(
    cases(RECORDS, lambda dtype: dtype != dtypes.complex128),  # complex128 is compared along with the tangents
    derivatives=cases(RECORDS, lambda dtype: dtype in DIFFERENTIATED),
    compiled=compiled,
    not_differentiated_by_jax=()
    if DIFFERENTIATES_COMPLEX_MAXIMA
    else cases([r for r in RECORDS if r.name in ("max", "min")], dtypes.is_complex),
)

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


@pytest.mark.parametrize(("lhs_shape", "rhs_shape"), BROADCAST_SHAPES)
def test_axes_of_size_1_broadcast(lhs_shape: tuple[int, ...], rhs_shape: tuple[int, ...]) -> None:
    calls: list[tuple[str, NDArray, NDArray]] = []
    for kind, names in BINARY.items():
        dtype = np.dtype(np.float32 if kind == "floats" else np.int32)
        x = (np.arange(np.prod(lhs_shape)).reshape(lhs_shape) + 1).astype(dtype)
        y = (np.arange(np.prod(rhs_shape)).reshape(rhs_shape) + 2).astype(dtype)
        calls += [(name, x, y) for name in names]
    assert_calls_agree(
        lambda name, x, y: getattr(fx.lax, name)(x, y),
        lambda name, x, y: getattr(jax.lax, name)(x, y),
        calls,
        JAX_TRANSFORM_TOLERANCE,
    )


def test_axes_of_size_1_broadcast_in_special_functions() -> None:
    x, y = np.full((3, 1), 1.5, np.float32), np.linspace(1.2, 2, 4, dtype=np.float32).reshape(1, 4)
    first = np.full((3, 1), 2.0, np.float32)
    names = ("igamma", "igammac", "zeta", "polygamma")
    assert_agree(lambda fx, fnp: [getattr(fx.lax, name)(first, y) for name in names], JAX_TOLERANCE)
    assert_agree(lambda fx, fnp: fx.lax.betainc(x, y, x * 0.2), JAX_TOLERANCE)


def test_axes_of_size_1_broadcast_under_transformations() -> None:
    x, y = np.arange(12, dtype=np.float32).reshape(3, 4), np.arange(3, dtype=np.float32).reshape(3, 1) + 1
    assert_agree(lambda fx, fnp: fx.jit(fx.lax.mul)(x, y))
    assert_agree(lambda fx, fnp: fx.grad(lambda x, y: fx.lax.mul(x, y).sum(), (0, 1))(x, y))
    assert_agree(lambda fx, fnp: fx.jit(fx.grad(lambda x, y: fx.lax.atan2(x, y).sum(), (0, 1)))(x, y))
    assert_agree(lambda fx, fnp: fx.jvp(fx.lax.div, (x, y), (x, y)))
    assert_agree(lambda fx, fnp: fx.vmap(fx.lax.sub, (0, None))(np.stack([x, 2 * x]), y))
    assert_agree(lambda fx, fnp: fx.vmap(fx.lax.sub, (None, 2), 1)(x, np.stack([y, 2 * y], 2)))
    program = fx.make_jaxpr(fx.lax.add)(x, y)
    assert [e.prim.name for e in program.eqns] == ["broadcast_in_dim", "add"]


def test_operands_that_do_not_broadcast_raise() -> None:
    wide = np.ones((3, 4), np.float32)
    for shape, words in (((2, 1), r"axis 0 differ"), ((4,), "same number of axes"), ((1, 1, 4), "number of axes")):
        with pytest.raises(TypeError, match=words):
            fx.lax.add(wide, np.ones(shape, np.float32))
        with pytest.raises(TypeError):
            jax.lax.add(wide, np.ones(shape, np.float32))


@pytest.mark.parametrize("dtype", [dtypes.float8_e4m3fnuz, dtypes.float8_e5m2fnuz], ids=dtypes.name)
def test_negative_numbers_are_rounded_in_dtypes_without_negative_zero(dtype: DType) -> None:
    x, y = np.array([-3, 3, -1.5, -0.0, -0.25, 1], np.float32).astype(dtype), np.array(2).astype(dtype)
    assert_agree(lambda fx, fnp: (fx.lax.round(x), fnp.floor_divide(x, y)), None)


LARGE: Final = np.linspace(-0.9, 3, 70_000, dtype=np.float32)


@pytest.mark.parametrize("name", ["exp", "exp2", "expm1", "log1p", "logistic", "sinh", "cosh", "tanh", "asinh"])
def test_large_arrays_are_compiled_from_the_first_call_on(name: str) -> None:
    function: Callable[[Any], Any] = getattr(fx.lax, name)
    x = fx.numpy.asarray(LARGE)
    first, second, compiled = function(x), function(x), fx.jit(function)(x)
    np.testing.assert_array_equal(np.asarray(first), np.asarray(second))
    np.testing.assert_array_equal(np.asarray(first), np.asarray(compiled))
    assert_near(first[:100], function(x[:100]))


def test_large_complex_and_half_precision_arrays_take_the_kernel() -> None:
    for dtype in (np.complex64, np.float16):
        x = LARGE.astype(dtype)
        out = fx.lax.exp(fx.numpy.asarray(x))
        assert out.dtype == dtype
        np.testing.assert_array_equal(np.asarray(out)[:100], np.asarray(fx.lax.exp(fx.numpy.asarray(x[:100]))))
