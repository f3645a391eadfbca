"""Records of `tracefx.numpy`: functions of elements."""

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
    f32,
    grid,
    i32,
    record,
)
from tracefx.testing.tolerances import ELEMENTARY, PROGRAM, ULPS, Ulps

BAD: Final = (call("a"), call(None), call([1.0, 2.0]), call())
"""What no function of one array takes."""
REALS: Final = DTYPES[:-1]
NOTHING: Final = np.zeros((0, 2), np.float32)
PAIRS: Final = np.meshgrid(EDGES, EDGES)


def one(
    name: str, low: float = -2.0, high: float = 2.0, *, complex_too: bool = True, ulps: Ulps | None = None, **kw: Any
) -> Record:
    """A function of numbers from an open interval."""
    calls = [call(grid(2, 3, low=low, high=high)), call(Weak(grid(2, low=low, high=high, seed=1)))]
    if complex_too:
        calls.append(call(c_grid(3, low=low, high=high)))
    kw.setdefault(
        "values",
        (call(EDGES), call(2), call((low + high) / 2), call(True), call(NOTHING), call(StaticArgument(f32(0.5)))),
    )
    return record(name, *calls, refused=BAD, ulps=ulps, **kw)


def two(
    name: str, low: float = -2.0, high: float = 2.0, *, ulps: Ulps | None = None, more: tuple[Call, ...] = (), **kw: Any
) -> Record:
    """A function of pairs of numbers from an open interval."""

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
BITS: Final = (i32(0b1100, 0b1010, -1), i32(0b0110, 2, 3))


def bitwise(name: str, **kw: Any) -> Record:
    refused = (call(f32(1), f32(2)), call(BITS[0], 1.5), call("a", BITS[0]), call(BITS[0], i32(1, 2)))
    values = (call(BITS[0], 3), call(3, BITS[1]), call(True, BITS[0]), call(np.zeros((0,), np.int32), 1))
    return record(name, call(*BITS), call(i32([1], [2]), BITS[1]), values=values, refused=refused, pairs=True, **kw)


def truth(name: str, **kw: Any) -> Record:
    return two(name, derivatives=False, **kw)


RECORDS: Final[tuple[Record, ...]] = (
    # arithmetic
    one("negative"),
    one("positive"),
    one("abs", 0.3, 2.0, complex_too=False, dtypes=REALS, also=["absolute"]),
    record("abs", call(c_grid(3)), ulps=ELEMENTARY, dtypes=["complex64"]),
    one("fabs", 0.3, 2.0, complex_too=False),
    one("sign", 0.3, 2.0, complex_too=False),
    one("square"),
    one("reciprocal", 0.3, 2.0, ulps=ULPS["div"]),
    one("floor", complex_too=False),
    one("ceil", complex_too=False),
    one("trunc", complex_too=False),
    one("rint", derivatives=False),
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
    one("conjugate", also=["conj"]),
    one("real"),
    one("imag"),
    two("add", more=COMPLEX_PAIR),
    two("subtract", more=COMPLEX_PAIR),
    two("multiply", ulps=ULPS["mul"], more=COMPLEX_PAIR),
    two("divide", 0.3, 2.0, ulps=ULPS["div"], more=COMPLEX_PAIR, also=["true_divide"]),
    two("floor_divide", 0.3, 2.0),
    two("remainder", 0.3, 2.0, also=["mod"]),
    two("fmod", 0.3, 2.0),
    two("divmod", 0.3, 2.0),
    two(
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
    two("pow", 0.3, 2.0, ulps=ULPS["pow"]),
    two("maximum"),
    two("minimum"),
    two("hypot", 0.3, 2.0, ulps=ELEMENTARY),
    two("logaddexp", ulps=PROGRAM),
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
    one("exp"),
    one("exp2"),
    one("expm1"),
    one("log", 0.3, 2.0),
    one("log2", 0.3, 2.0, ulps=ELEMENTARY),
    one("log10", 0.3, 2.0, ulps=ELEMENTARY),
    one("log1p", -0.5, 2.0),
    one("sqrt", 0.3, 2.0),
    one("cbrt", 0.3, 2.0, complex_too=False),
    one("sin"),
    one("cos"),
    one("tan", -1.0, 1.0),
    one("sinh"),
    one("cosh"),
    one("tanh"),
    one("arcsin", -0.9, 0.9, ulps=ELEMENTARY, also=["asin"]),
    one("arccos", -0.9, 0.9, ulps=ELEMENTARY, also=["acos"]),
    one("arctan", ulps=ELEMENTARY, also=["atan"]),
    one("arcsinh", ulps=ELEMENTARY, also=["asinh"]),
    one("arccosh", 1.2, 3.0, ulps=ELEMENTARY, also=["acosh"]),
    one("arctanh", -0.9, 0.9, ulps=ULPS["atanh"], also=["atanh"]),
    one("deg2rad", complex_too=False, also=["radians"]),
    one("rad2deg", complex_too=False, also=["degrees"]),
    two("arctan2", 0.3, 2.0, ulps=ELEMENTARY, also=["atan2"]),
    # truth
    one("isnan", derivatives=False),
    one("isinf", derivatives=False),
    one("isfinite", derivatives=False),
    one("isposinf", derivatives=False, complex_too=False),
    one("isneginf", derivatives=False, complex_too=False),
    one("logical_not", derivatives=False),
    *[truth(name) for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")],
    *[truth(name) for name in ("logical_and", "logical_or", "logical_xor")],
    *[bitwise(name) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")],
    bitwise("left_shift", also=["bitwise_left_shift"]),
    bitwise("right_shift", also=["bitwise_right_shift"]),
    two("copysign", 0.3, 2.0),
    two("nextafter", derivatives=False),
    one("signbit", derivatives=False, complex_too=False),
    record(
        "invert",
        call(BITS[0]),
        call(bools(True, False)),
        values=[call(3), call(True)],
        refused=[*BAD, call(f32(1))],
        also=["bitwise_not", "bitwise_invert"],
    ),
)
