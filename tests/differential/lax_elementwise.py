"""Records of `tracefx.lax`: elementwise primitives, which do not promote."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

import tracefx.lax
from tests.differential.records import (
    DTYPES,
    EDGES,
    Call,
    Record,
    StaticArgument,
    Weak,
    bools,
    c64,
    c_grid,
    call,
    f32,
    grid,
    i32,
    record,
    via_newer,
)
from tests.laws.samples import SAMPLES
from tracefx.core import dtypes
from tracefx.ops.elementwise.elementwise import Elementwise
from tracefx.testing.tolerances import ELEMENTARY, PROGRAM

lax: Final = partial(record, module="lax")
NOTHING: Final = np.zeros((0, 2), np.float32)
REALS: Final = DTYPES[:-1]
BITS: Final = (i32(0b1100, 0b1010, -1), i32(0b0110, 2, 3))
COMPLEX_PAIR: Final = (call(c_grid(3), c_grid(3, seed=2)),)


def unary(name: str, low: float = -2.0, high: float = 2.0, *, complex_too: bool = True, **kw: Any) -> Record:
    """Record of a unary primitive on an open interval."""
    calls = [call(grid(2, 3, low=low, high=high)), call(Weak(grid(2, low=low, high=high, seed=1)))]
    if complex_too:
        calls.append(call(c_grid(3, low=low, high=high)))
    refused = (call("a"), call(None), call([1.0, 2.0]), call())
    values = (call(EDGES), call((low + high) / 2), call(NOTHING))
    return lax(name, *calls, values=values, refused=refused, **kw)


def binary(name: str, low: float = -2.0, high: float = 2.0, *more: Call, **kw: Any) -> Record:
    """Record of a binary primitive on an open interval."""

    def draw(*shape: int, seed: int = 0) -> Any:
        return grid(*shape, low=low, high=high, seed=seed)

    calls = (call(draw(2, 3), draw(2, 3, seed=1)), call(Weak(draw(2)), draw(2, seed=1)), call(draw(2), 1.5), *more)
    values = (
        call(*np.meshgrid(EDGES, EDGES)),
        call(i32(1, 2), 2),
        call(NOTHING, NOTHING),
        call(2.0, 3.0),
        call(draw(), draw(2)),
    )
    refused = (
        call("a", 1.0),
        call(draw(2), None),
        call(draw(2), draw(3)),
        call(draw(2, 1), draw(1, 2)),
        call([1.0], draw(1)),
        call(draw(2)),
    )
    return lax(name, *calls, values=values, refused=refused, **kw)


def bitwise(name: str) -> Record:
    refused = (call(f32(1), f32(2)), call("a", BITS[0]), call(BITS[0], i32(1, 2)))
    values = (call(BITS[0], 3), call(np.zeros((0,), np.int32), 1))
    return lax(name, call(*BITS), call(i32(1, 2), i32(2)[0]), values=values, refused=refused)


def ternary_refusals(x: Any) -> tuple[Call, ...]:
    return (call("a", x, x), call(x, x, None), call(x, x, grid(5)), call(x, x))


COMPLEX: Final = (c_grid(3), c_grid(3, seed=2))


def one_minus_square(x: Any) -> Any:
    """What `jax.lax.one_minus_square` computes."""
    negated = jax.lax.neg(x)
    return (1 - negated) * (1 + negated)


def log2_of_inexact(x: Any) -> Any:
    """What `jax.lax.log2` computes."""
    if not jnp.issubdtype(jnp.result_type(x), jnp.inexact):
        raise TypeError(x)
    return jax.lax.log(x) * (1 / np.log(2).item())


def polynomial_by_horner(x: Any, coeffs: Any, unroll: int | None = None) -> Any:
    """What `jax.lax.polynomial` computes."""
    at = jnp.asarray(x)
    if at.dtype == bool or len({np.ndim(each) for each in (at, *coeffs)} - {0}) > 1:
        raise TypeError(x)
    if jnp.iscomplexobj(at) < any(isinstance(c, complex) for c in coeffs):
        raise TypeError(coeffs)
    is_inexact = jnp.issubdtype(at.dtype, jnp.inexact)
    terms = [c if isinstance(c, float) and is_inexact else jnp.asarray(c, at.dtype) for c in coeffs]
    *lower, value = terms if len(terms) > 1 else [*terms, jnp.zeros_like(at)]
    for c in reversed(lower):
        value = value * at + c
    return value


RECORDS: Final[tuple[Record, ...]] = (
    unary("neg"),
    unary("sign", 0.3, 2.0, complex_too=False),
    unary("abs", 0.3, 2.0, complex_too=False, dtypes=REALS),
    lax("abs", call(c_grid(3)), ulps=ELEMENTARY, dtypes=()),
    unary("square"),
    unary("one_minus_square", ulps=ELEMENTARY, via=via_newer("lax", "one_minus_square", one_minus_square)),
    unary("log2", 0.3, 3.0, ulps=ELEMENTARY, via=via_newer("lax", "log2", log2_of_inexact)),
    lax(
        "polynomial",
        call(grid(2, 3), [0.5, grid(2, 1), grid()]),
        call(grid(3), (grid(3, seed=1),)),
        call(Weak(grid(2)), list(grid(10, seed=1)), unroll=3),
        call(c_grid(3), [1j, 2.0, 0.5]),
        values=[call(2.0, [1.0, 2.0]), call(i32(1, 2), [1, 2, 3]), call(EDGES, [0.5, 2.0]), call(grid(2), [])],
        refused=[
            call("a", [1.0]),
            call(grid(2), [grid(2, 2), 1.0]),
            call(1.0, [1j, 2]),
            call(1.0),
            call(grid(2), [grid(3)]),
        ],
        ulps=PROGRAM,
        dtypes=REALS,
        via=via_newer("lax", "polynomial", polynomial_by_horner),
    ),
    unary("floor", complex_too=False),
    unary("ceil", complex_too=False),
    lax(
        "round",
        call(grid(2, 3)),
        call(grid(3), 1),
        values=[call(EDGES), call(2.5), call(EDGES, 1)],
        refused=[call("a"), call(None), call(c64(1)), call(i32(1)), call(f32(1), "a")],
    ),
    lax(
        "round",
        call(grid(2, 3)),
        call(grid(3) * 2),
        dtypes=(),
        via=lambda m: lambda x: m.lax.round(x, m.lax.RoundingMethod.TO_NEAREST_EVEN),
    ),
    *[
        unary(name, *sample.interval, complex_too=sample.prim.domain.accepts(dtypes.complex64))
        for name, samples in SAMPLES.items()
        for sample in samples
        if hasattr(tracefx.lax, name) and sample.interval is not None and isinstance(sample.prim, Elementwise)
    ],
    unary("erf", complex_too=False),
    unary("erfc", complex_too=False, ulps=ELEMENTARY),
    unary("erf_inv", -0.9, 0.9, complex_too=False),
    unary("lgamma", 0.3, 3.0, complex_too=False, ulps=PROGRAM),
    unary("digamma", 0.3, 3.0, complex_too=False, ulps=PROGRAM),
    lax(
        "polygamma",
        call(1.0, grid(3, low=0.5, high=3.0)),
        call(2.0, grid(2, low=0.5, high=3.0)),
        values=[call(f32(1, 2), f32(0.5, 2))],
        refused=[call("a", f32(1)), call(f32(1), f32(1, 2)), call(1.0)],
        dtypes=("int32", "float64", "complex64"),
        ulps=PROGRAM,
        types_only=True,
    ),
    unary("bessel_i0e", complex_too=False, ulps=PROGRAM, types_only=True),
    unary("bessel_i1e", complex_too=False, ulps=PROGRAM, types_only=True),
    *[
        lax(
            name,
            call(grid(2, 3, low=0.5, high=3.0), grid(2, 3, low=0.5, high=3.0, seed=1)),
            values=[call(f32(0.5, 1, 30), 2.0), call(1.0, 2.0), call(NOTHING, NOTHING)],
            refused=[call("a", f32(1)), call(1.0), call(i32(1), i32(2))],
            derivatives=False,  # JAX implements few of them
            dtypes=("bfloat16",),  # JAX fails for 64 bits
            ulps=PROGRAM,
            types_only=name in ("igamma", "igammac"),
        )
        for name in ("igamma", "igammac", "igamma_grad_a", "zeta")
    ],
    lax(
        "betainc",
        call(StaticArgument(np.float32(1.5)), StaticArgument(np.float32(0.75)), grid(2, 3, low=0.1, high=0.9)),
        values=[call(f32(0.5, 2), f32(3, 0.25), f32(0.25, 0.5)), call(1.0, 2.0, 0.25)],
        refused=[call("a", f32(1), f32(1)), call(1.0, 2.0)],
        dtypes=(),
        ulps=PROGRAM,
        types_only=True,
    ),
    lax("real", call(c_grid(3)), values=[call(1j)], refused=[call(f32(1)), call("a")]),
    lax("imag", call(c_grid(3)), values=[call(1j)], refused=[call(f32(1)), call("a")]),
    lax("conj", call(c_grid(3)), call(grid(3)), refused=[call(i32(1)), call("a")]),
    lax(
        "complex",
        call(grid(3), grid(3, seed=1)),
        call(grid(2), 1.5),
        values=[call(EDGES, EDGES)],
        refused=[call(i32(1), i32(1)), call(f32(1), f32(1, 2)), call(c64(1), f32(1)), call("a", f32(1))],
    ),
    unary("is_finite", complex_too=False),
    lax("bitwise_not", call(BITS[0]), call(bools(True, False)), refused=[call(f32(1)), call("a")]),
    lax("population_count", call(BITS[0]), refused=[call(f32(1)), call("a")]),
    lax("clz", call(BITS[1]), refused=[call(f32(1)), call("a")]),
    binary("add", -2.0, 2.0, *COMPLEX_PAIR),
    binary("sub", -2.0, 2.0, *COMPLEX_PAIR),
    binary("mul", -2.0, 2.0, *COMPLEX_PAIR),
    binary("div", 0.3, 2.0, *COMPLEX_PAIR),
    binary("rem", 0.3, 2.0),
    binary("max"),
    binary("min"),
    binary("atan2", 0.3, 2.0),
    binary("nextafter", derivatives=False),
    binary("pow", 0.3, 2.0, call(grid(3, low=0.3), i32(1, 2, 3)), *COMPLEX_PAIR),
    lax(
        "integer_pow",
        call(grid(3, low=0.3), 3),
        call(grid(2, low=0.3), -2),
        call(c_grid(2), 2),
        call(grid(2), 0),
        call(grid(2), 1),
        values=[call(EDGES, 3), call(EDGES, -1), call(i32(2, -3), 4), call(2.0, 5)],
        refused=[call("a", 2), call(f32(1), 0.5), call(i32(2), -1), call(f32(1), "a")],
    ),
    *[binary(name, derivatives=False) for name in ("eq", "ne", "lt", "le", "gt", "ge")],
    *[
        bitwise(name)
        for name in (
            "bitwise_and",
            "bitwise_or",
            "bitwise_xor",
            "shift_left",
            "shift_right_logical",
            "shift_right_arithmetic",
        )
    ],
    lax(
        "select",
        call(bools(True, False, True), grid(3), grid(3, seed=1)),
        call(True, grid(2), grid(2, seed=1)),
        call(bools(True, False), *[c[:2] for c in COMPLEX]),
        values=[call(bools(True), f32(1), 2.0), call(bools(), f32(), f32())],
        refused=[*ternary_refusals(bools(True)), call(bools(True), f32(1), f32(1, 2)), call(f32(1), f32(1), f32(1))],
    ),
    lax(
        "select_n",
        call(bools(True, False, True), grid(3), grid(3, seed=1)),
        call(i32(2, 0), grid(2), grid(2, seed=1), grid(2, seed=2)),
        call(i32(1)[0], grid(2), grid(2, seed=1)),
        values=[call(bools(True), i32(1), i32(2)), call(i32(0), f32(1))],
        refused=[
            call(bools(True)),
            call(bools(True), f32(1), f32(1), f32(1)),
            call(f32(1), f32(1), f32(1)),
            call(bools(True), f32(1), i32(1)),
            call(bools(True), f32(1), f32(1, 2)),
            call("a", f32(1), f32(1)),
        ],
    ),
    lax(
        "clamp",
        call(grid(3) - 1, grid(3, seed=1), grid(3) + 1),
        call(-1.0, grid(2, 3), 0.5),
        call(f32(-1)[0], grid(3), f32(1)[0]),
        values=[call(-1.0, EDGES, 1.0), call(0, i32(-5, 5), 3), call(f32(3), f32(1), f32(0)), call(0.0, NOTHING, 1.0)],
        refused=[
            call(0.0, "a", 1.0),
            call(f32(1, 2), f32(1), 1.0),
            call(c64(1), c64(1), c64(1)),
            call(i32(0), f32(1), f32(1)),
            call(0.0, f32(1)),
        ],
        dtypes=REALS,  # JAX clamps complex numbers
    ),
    lax(
        "convert_element_type",
        call(grid(3), "float64"),
        call(grid(3), "bfloat16"),
        call(grid(3), "complex64"),
        call(Weak(grid(3)), "float32"),
        call(c_grid(2), "complex64"),
        values=[
            call(f32(1.5, -2.5, 300), "int8"),
            call(f32(0, 2), bool),
            call(EDGES[:10], "int32"),
            call(2.5, int),
            call(i32(-1, 300), "uint8"),
            call(c64(1 + 2j), "float32"),
        ],
        refused=[call("a", "int8"), call(f32(1), "other"), call(f32(1))],
    ),
    lax(
        "bitcast_convert_type",
        call(grid(3), "int32"),
        call(i32(1, -1), "float32"),
        call(grid(2, 2), "int16"),
        call(np.ones((3, 2), np.int16), "int32"),
        values=[call(EDGES, "uint32"), call(2.5, "int32"), call(2, "float32"), call(2.5, "float32")],
        refused=[
            call("a", "int8"),
            call(f32(1), "other"),
            call(np.ones((3,), np.int16), "int32"),
            call(c64(1), "float32"),
        ],
        dtypes=("uint32", "bfloat16", "complex64"),
    ),
    lax(
        "reduce_precision",
        call(grid(3), 5, 10),
        call(grid(3), 8, 7),
        values=[call(EDGES, 5, 10), call(f32(70000.0), 5, 10), call(2.3, 4, 3)],
        refused=[
            call("a", 5, 10),
            call(i32(1), 5, 10),
            call(f32(1), 0, 10),
            call(f32(1), 5, -1),
            call(f32(1), 5.5, 10),
        ],
        dtypes=("bfloat16", "float64", "complex64", "int32"),
    ),
    lax(
        "stop_gradient",
        call(grid(3)),
        call({"a": grid(2), "b": [grid(3), 1.5]}["b"]),
        values=[call(2.0), call(i32(1))],
    ),
    lax(
        "optimization_barrier",
        call((grid(3), i32(1, 2))),
        call(grid(2)),
        values=[call((1.0, 2)), call(())],
        refused=[call("a")],
    ),
)
