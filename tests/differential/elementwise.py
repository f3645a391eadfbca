"""Records of `tracefx.numpy`: elementwise functions."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

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
    cast,
    f32,
    grid,
    i32,
    record,
)
from tracefx.testing.tolerances import ELEMENTARY, PROGRAM, ULPS, Ulps

BAD: Final = (call("a"), call(None), call([1.0, 2.0]), call())
"""Calls that every unary function refuses."""
REALS: Final = DTYPES[:-1]
NOTHING: Final = np.zeros((0, 2), np.float32)
PAIRS: Final = np.meshgrid(EDGES, EDGES)


def unary(
    name: str, low: float = -2.0, high: float = 2.0, *, complex_too: bool = True, ulps: Ulps | None = None, **kw: Any
) -> Record:
    """Record of a unary function on an open interval."""
    calls = [call(grid(2, 3, low=low, high=high)), call(Weak(grid(2, low=low, high=high, seed=1)))]
    if complex_too:
        calls.append(call(c_grid(3, low=low, high=high)))
    kw.setdefault(
        "values",
        (call(EDGES), call(2), call((low + high) / 2), call(True), call(NOTHING), call(StaticArgument(f32(0.5)))),
    )
    return record(name, *calls, refused=BAD, ulps=ulps, **kw)


def binary(
    name: str, low: float = -2.0, high: float = 2.0, *, ulps: Ulps | None = None, more: tuple[Call, ...] = (), **kw: Any
) -> Record:
    """Record of a binary function on an open interval."""

    def draw(*shape: int, seed: int = 0) -> Any:
        return grid(*shape, low=low, high=high, seed=seed)

    calls = (
        call(draw(2, 3), draw(2, 3, seed=1)),
        call(draw(3, 1), draw(2, seed=1)),
        call(Weak(draw()), draw(2, seed=1)),
        call(draw(2), 1.5),
        *more,
    )
    values = (
        call(*PAIRS),
        call(2, draw(2)),
        call(True, draw(2)),
        call(2, 3),
        call(2.0, 3),
        call(draw(2), StaticArgument(np.ones(2))),
        call(i32(1, 2), 2),
        call(i32(1, 2), 0.5),
        call(i32(1, 2), Weak(f32(0.5))),
        call(bools(True, False), 2),
        call(NOTHING, f32(1, 2)),
        call(draw(1), draw(2)),
    )
    refused = (
        call("a", 1.0),
        call(draw(2), "a"),
        call(draw(2), None),
        call(draw(2), draw(3)),
        call([1.0], draw(2)),
        call(draw(2)),
    )
    return record(name, *calls, values=values, refused=refused, pairs=True, ulps=ulps, **kw)


COMPLEX_PAIR: Final = (call(c_grid(3), c_grid(3, seed=2)), call(c_grid(3), f32(1.5, -0.5, 0.25)))
EXPONENTS: Final = (2, 3, 1, 0, -1, 0.5, -0.5, 2.0, True, 1j)
POWERS: Final = [cast(f32(0, 0.5, 1, 1.5), dtype) for dtype in ("int32", "bool", "bfloat16", *DTYPES)]
BITS: Final = (i32(0b1100, 0b1010, -1), i32(0b0110, 2, 3))


def bitwise(name: str, **kw: Any) -> Record:
    refused = (call(f32(1), f32(2)), call(BITS[0], 1.5), call("a", BITS[0]), call(BITS[0], i32(1, 2)))
    values = (call(BITS[0], 3), call(3, BITS[1]), call(True, BITS[0]), call(np.zeros((0,), np.int32), 1))
    return record(name, call(*BITS), call(i32([1], [2]), BITS[1]), values=values, refused=refused, pairs=True, **kw)


def weak(number: complex) -> Weak:
    """A weakly typed scalar array."""
    return Weak(np.asarray(number, {int: np.int32, float: np.float32, complex: np.complex64}[type(number)]))


def logical(name: str, **kw: Any) -> Record:
    return binary(name, derivatives=False, **kw)


RECORDS: Final[tuple[Record, ...]] = (
    # arithmetic
    unary("negative"),
    unary("positive"),
    unary("abs", 0.3, 2.0, complex_too=False, dtypes=REALS, also=["absolute"]),
    record("abs", call(c_grid(3)), ulps=ELEMENTARY, dtypes=["complex64"]),
    unary("fabs", 0.3, 2.0, complex_too=False),
    unary("sign", 0.3, 2.0, complex_too=False),
    unary("square"),
    unary("reciprocal", 0.3, 2.0, ulps=ULPS["div"]),
    unary("floor", complex_too=False),
    unary("ceil", complex_too=False),
    unary("trunc", complex_too=False),
    unary("rint", derivatives=False),
    record(
        "round",
        call(grid(2, 3)),
        call(grid(2, 3), 1),
        call(grid(2), decimals=2),
        call(c_grid(3), 1),
        values=[call(EDGES), call(EDGES, 3), call(f32(15, 25, -449), -1), call(2), call(2.5)],
        refused=[*BAD, call(f32(1), 1.5), call(f32(1), "a")],
        ulps=ULPS["div"],
        also=["around"],
    ),
    unary("conjugate", also=["conj"]),
    unary("real"),
    unary("imag"),
    binary("add", more=COMPLEX_PAIR),
    binary("subtract", more=COMPLEX_PAIR),
    binary("multiply", ulps=ULPS["mul"], more=COMPLEX_PAIR),
    binary("divide", 0.3, 2.0, ulps=ULPS["div"], more=COMPLEX_PAIR, also=["true_divide"]),
    binary("floor_divide", 0.3, 2.0),
    binary("remainder", 0.3, 2.0, also=["mod"]),
    binary("fmod", 0.3, 2.0),
    binary("divmod", 0.3, 2.0),
    binary(
        "power",
        0.3,
        2.0,
        ulps=ULPS["pow"],
        more=(
            *COMPLEX_PAIR,
            call(f32(0.5, -1.5), 2),
            call(f32(0.5, -1.5), -3),
            call(f32(0.5, 1.5), 0.5),
            call(2.0, grid(2)),
            call(grid(3), i32(3, 2, 0)),
        ),
    ),
    record(
        "power of numbers",
        values=[call(x, to) for x in (2, -3, 2.5, True, 1 + 2j, *POWERS[:3]) for to in EXPONENTS],
        typed=[
            *[call(*pair) for x in POWERS for to in EXPONENTS for pair in ((x, to), (to, x))],
            *[call(*pair) for x in POWERS for to in (2, 2.0, 1j) for pair in ((x, weak(to)), (weak(to), x))],
            *[call(x, y[::-1]) for x in POWERS for y in POWERS],
        ],
        via=lambda m: m.numpy.power,
        ulps=ULPS["pow"],
    ),
    binary("pow", 0.3, 2.0, ulps=ULPS["pow"]),
    binary("maximum"),
    binary("minimum"),
    binary("hypot", 0.3, 2.0, ulps=ELEMENTARY),
    binary("logaddexp", ulps=PROGRAM),
    record(
        "clip",
        call(grid(2, 3), f32(-1, -0.5, 0), f32(0.5, 1, 1.5)),
        call(grid(2, 3), -1.0, 1.0),
        call(grid(2), min=0.1),
        call(grid(2), max=f32([0.5], [1.0])),
        call(Weak(grid(2)), 0.1),
        values=[
            call(EDGES, -1, 1),
            call(grid(2)),
            call(i32(1, 5), 2, 3),
            call(i32(1, 5), 0.5, 3),
            call(2.0, 3, 4),
            call(f32(1, 2), 3, 0),
            call(f32(1, np.nan), np.nan, 0),
        ],
        refused=[call("a", 0, 1), call(c64(1), 0, 1), call(f32(1, 2), f32(1, 2, 3)), call(f32(1), "a"), call(None)],
    ),
    record(
        "where",
        call(bools(True, False, True), grid(3), grid(3, seed=1)),
        call(bools([True], [False]), grid(3), 1.0),
        call(grid(3), grid(3, seed=1), Weak(grid(3))),
        call(True, c_grid(2), grid(2)),
        call(bools([True], [False]), size=2, fill_value=-1),
        values=[
            call(EDGES, EDGES, 0.0),
            call(i32(0, 2), size=1),
            call(i32(0, 2), 1, 2),
            call(i32(0, 2), 1.0, 2),
            call(bools(), f32(), f32()),
            call(True, 1, 2.5),
        ],
        refused=[
            call(bools(True), "a", 1.0),
            call(bools(True), 1.0, None),
            call(bools(True, False), f32(1, 2, 3), 1.0),
            call("a", 1, 2),
        ],
    ),
    # exponentials and trigonometry
    unary("exp"),
    unary("exp2"),
    unary("expm1"),
    unary("log", 0.3, 2.0),
    unary("log2", 0.3, 2.0, ulps=ELEMENTARY),
    unary("log10", 0.3, 2.0, ulps=ELEMENTARY),
    unary("log1p", -0.5, 2.0),
    unary("sqrt", 0.3, 2.0),
    unary("cbrt", 0.3, 2.0, complex_too=False),
    unary("sin"),
    unary("cos"),
    unary("tan", -1.0, 1.0),
    unary("sinh"),
    unary("cosh"),
    unary("tanh"),
    unary("arcsin", -0.9, 0.9, ulps=ELEMENTARY, also=["asin"]),
    unary("arccos", -0.9, 0.9, ulps=ELEMENTARY, also=["acos"]),
    unary("arctan", ulps=ELEMENTARY, also=["atan"]),
    unary("arcsinh", ulps=ELEMENTARY, also=["asinh"]),
    unary("arccosh", 1.2, 3.0, ulps=ELEMENTARY, also=["acosh"]),
    unary("arctanh", -0.9, 0.9, ulps=ULPS["atanh"], also=["atanh"]),
    unary("deg2rad", complex_too=False, also=["radians"]),
    unary("rad2deg", complex_too=False, also=["degrees"]),
    binary("arctan2", 0.3, 2.0, ulps=ELEMENTARY, also=["atan2"]),
    # logic
    unary("isnan", derivatives=False),
    unary("isinf", derivatives=False),
    unary("isfinite", derivatives=False),
    unary("isposinf", derivatives=False, complex_too=False),
    unary("isneginf", derivatives=False, complex_too=False),
    unary("logical_not", derivatives=False),
    *[logical(name) for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")],
    *[logical(name) for name in ("logical_and", "logical_or", "logical_xor")],
    *[bitwise(name) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")],
    bitwise("left_shift", also=["bitwise_left_shift"]),
    bitwise("right_shift", also=["bitwise_right_shift"]),
    binary("copysign", 0.3, 2.0),
    binary("nextafter", derivatives=False),
    unary("signbit", derivatives=False, complex_too=False),
    record(
        "invert",
        call(BITS[0]),
        call(bools(True, False)),
        values=[call(3), call(True)],
        refused=[*BAD, call(f32(1))],
        also=["bitwise_not", "bitwise_invert"],
    ),
)
