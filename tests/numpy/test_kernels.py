"""Law: a handwritten NumPy kernel computes what the function that it replaces computes when it is compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.compiling import compile_with_fallback
from tracefx.core import DType, dtypes
from tracefx.core.handler import ROOT
from tracefx.numpy.kernels import KERNELS
from tracefx.testing.tolerances import ELEMENTARY, EXACT, SUMMED, Ulps
from tracefx.transforms.eager_calls import NumpyKernel
from tracefx.transforms.kernel_replay import Kernel

Vector: TypeAlias = npt.NDArray[Any]
Call: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional arguments, of which NumPy arrays are operands, and options."""

TOLERANCES: Final[Mapping[str, Ulps]] = {
    "convolve": SUMMED,
    "correlate": SUMMED,
    "divmod": ELEMENTARY,
    "floor_divide": ELEMENTARY,
    "logaddexp": ELEMENTARY,
    "logaddexp2": ELEMENTARY,
    "percentile": ELEMENTARY,
    "quantile": ELEMENTARY,
    "sinc": ELEMENTARY,
    "trace": SUMMED,
}
"""The kernels that may differ in the last bits."""


def edge_values(dtype: DType) -> Vector:
    """Returns extreme and ordinary numbers of a dtype, NaN, infinities and both zeros."""
    if dtype.kind == "b":
        return np.array([True, False, False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return np.array([0, 1, 7, 12, info.max, info.max - 1, info.min, info.min + 1], dtype)
    return np.array([1.5, -0.0, np.nan, -np.inf, 0.0, -2.5, 3.0, np.inf, 2.5, -0.75, 3e4, 1e-3], dtype)


def ordinary_values(dtype: DType) -> Vector:
    """Returns numbers of a dtype that are small enough to compute with."""
    values = np.array([3, 1, 7, 2, 2, 0, 5, 9])
    return values.astype(dtype) if dtype.kind in "iub" else (values / 4 - 1).astype(dtype)


def unary(dtype: DType) -> Iterator[Call]:
    """Yields calls with one array: a vector, a matrix, no elements, one element, no axes."""
    x = edge_values(dtype)
    for operand in (x, x[:4].reshape(2, 2), x[:0], x[:1], x[:1].reshape(())):
        yield (operand,), {}


def binary(dtype: DType) -> Iterator[Call]:
    """Yields calls with all pairs of edge values, with numbers, and with no elements."""
    x = edge_values(dtype)
    yield (x[:, None], x[None, :]), {}
    yield (np.repeat(x, x.size), np.tile(x, x.size)), {}
    yield (x, 2), {}
    yield (3, x), {}
    yield (x, True), {}
    if dtype.kind == "f":
        for number in (0.75, -0.0, float("nan"), float("inf")):
            yield (x, number), {}
            yield (number, x), {}
    yield (x[:0], x[:0]), {}
    yield (x[:1], x[1:2].reshape(())), {}


def ldexp(dtype: DType) -> Iterator[Call]:
    """Yields numbers with exponents that overflow, underflow and neither."""
    exponents = np.array([0, 1, -1, 100, -100, 127, 2000, -2000, 24, -149, -24, 3], np.int32)
    if dtype.kind == "f":
        yield (edge_values(dtype), exponents), {}
        yield (edge_values(dtype), 3), {}
    elif dtype.kind == "i":
        yield (np.ones(8, np.float32), ordinary_values(dtype)), {}


def vectors(*modes: str) -> Callable[[DType], Iterator[Call]]:
    """Returns a generator of calls with two vectors of different sizes."""

    def calls(dtype: DType) -> Iterator[Call]:
        x = ordinary_values(dtype)
        for mode in modes:
            yield (x, x[:3]), {"mode": mode}
            yield (x[:3], x, mode), {}
        yield (x[:1], x[:1]), {}

    return calls


def diagonals(*axes: Any) -> Callable[[DType], Iterator[Call]]:
    """Returns a generator of calls with a matrix and, if there are `axes`, with a stack of matrices."""

    def calls(dtype: DType) -> Iterator[Call]:
        x = ordinary_values(dtype)
        for k in (0, 1, -1, 2, -3):
            yield (x.reshape(2, 4), k), {}
            yield (x[:4].reshape(2, 2),), {}
            yield (x[:0].reshape(0, 3), k), {}
            if axes:
                yield (x.reshape(2, 2, 2), k, *axes), {}

    return calls


def searches(dtype: DType) -> Iterator[Call]:
    """Yields sorted vectors and the elements to search for."""
    x = np.sort(edge_values(dtype))
    for side in ("left", "right"):
        yield (x, edge_values(dtype), side), {}
        yield (x, edge_values(dtype).reshape(2, -1)), {"side": side}
        yield (x[:1], x[:1].reshape(()), side), {}
        yield (x, 2, side), {}
        yield (ordinary_values(dtype)[:1], ordinary_values(np.dtype(np.float32)), side), {}


def bins(dtype: DType) -> Iterator[Call]:
    """Yields elements and the edges of bins, in ascending and descending order."""
    x, edges = edge_values(dtype), np.unique(ordinary_values(dtype))
    for right in (False, True):
        yield (x, edges, right), {}
        yield (x.reshape(2, -1), edges[::-1].copy()), {"right": right}
        yield (x, np.repeat(edges[:1], 3), right), {}


def takes(dtype: DType) -> Iterator[Call]:
    """Yields arrays with indices inside their bounds."""
    x = np.resize(edge_values(dtype), 12)
    yield (x, np.array([0, -1, 3, 3], np.int32)), {}
    yield (x.reshape(3, 4), np.array([[0, -1], [1, 1]], np.int8), 0), {}
    yield (x.reshape(3, 4), np.array([], np.int32)), {"axis": 1}
    yield (x.reshape(3, 4), np.array([2], np.uint8), -1), {}


def takes_along_axes(dtype: DType) -> Iterator[Call]:
    """Yields arrays with indices inside their bounds, as many as there are elements along the other axes."""
    x = np.resize(edge_values(dtype), 12)
    yield (x, np.array([0, -1, 3, 3], np.int32), 0), {}
    yield (x.reshape(3, 4), np.array([[0, -1], [1, 1], [2, 0]], np.int8)), {}
    yield (x.reshape(3, 4), np.array([[0, -1, 2, 1]], np.int32)), {"axis": -2}
    yield (x.reshape(3, 4), np.array([[0], [1]], np.int32)), {"axis": 0}
    yield (x.reshape(3, 4), np.array([5, 11], np.int32), None), {}


def triples(dtype: DType) -> Iterator[Call]:
    """Yields vectors of three components."""
    x = ordinary_values(dtype)
    yield (x[:3], x[3:6]), {}
    yield (x[:6].reshape(2, 3), x[2:].reshape(2, 3)), {}
    yield (x[:6].reshape(3, 2), x[2:].reshape(3, 2)), {"axis": 0}
    yield (x[:2], x[3:6]), {}


def sized(dtype: DType) -> Iterator[Call]:
    """Yields arrays with more and with fewer nonzero elements than asked for."""
    x = edge_values(dtype)
    for size in (0, 2, 30):
        yield (x,), {"size": size}
        yield (x[:4].reshape(2, 2),), {"size": size}
        yield (x[:0],), {"size": size}


def along_axes(dtype: DType) -> Iterator[Call]:
    """Yields arrays to be ordered, with ties, along each axis."""
    for x in (edge_values(dtype), np.tile(ordinary_values(dtype), 2)):
        yield (x,), {}
        yield (x.reshape(2, -1), 0), {}
        yield (x.reshape(2, -1),), {"axis": None}
        yield (x[:0],), {}


def medians(dtype: DType) -> Iterator[Call]:
    """Yields vectors of odd and even sizes, with and without NaN."""
    x = edge_values(dtype)
    for line in (x, x[:1], x[:2], x[3:7], x[3:8], ordinary_values(dtype), ordinary_values(dtype)[:5]):
        yield (line,), {}


def quantiles(whole: int) -> Callable[[DType], Iterator[Call]]:
    """Returns a generator of vectors and fractions of `whole`, some of them outside of [0, 1]."""

    def calls(dtype: DType) -> Iterator[Call]:
        for (line,), _ in medians(dtype):
            for q in (0.0, 0.3, 0.5, 1.0, -0.5, 1.5, np.nan, np.inf, -np.inf):
                yield (line, q * whole), {}

    return calls


def reductions(dtype: DType) -> Iterator[Call]:
    """Yields arrays of which some, all or no elements are NaN, and axes."""
    x = edge_values(dtype)
    for operand in (x, np.full(4, np.nan, dtype), x[[1, 4]], x[[4, 1]], x[:1]):
        yield (operand,), {}
    yield (x.reshape(2, -1), 0), {}
    yield (x.reshape(2, -1),), {"axis": (-1, 0)}


def bits(dtype: DType) -> Iterator[Call]:
    """Yields integers and the order of their bits."""
    x = np.resize(edge_values(dtype), 12)
    for order in ("big", "little"):
        yield (x, None, order), {}
        yield (x.reshape(2, 6), 1), {"bitorder": order}
        yield (x.reshape(2, 6), 0), {"bitorder": order}
    yield (x[:0],), {}


def bits_with_count(dtype: DType) -> Iterator[Call]:
    """Yields integers with the number of bits to return."""
    x = np.resize(edge_values(dtype), 6)
    for count in (None, 0, 3, 100, -5):
        yield (x, None, count), {}
        yield (x.reshape(2, 3), 1, count, "little"), {}
        yield (x.reshape(2, 3), 0), {"count": count}


CALLS: Final[Mapping[str, Callable[[DType], Iterator[Call]]]] = {
    **dict.fromkeys(("frexp", "modf", "sign", "sinc"), unary),
    **dict.fromkeys(("copysign", "divmod", "floor_divide", "gcd", "heaviside", "lcm", "remainder"), binary),
    **dict.fromkeys(("logaddexp", "logaddexp2"), binary),
    **dict.fromkeys(("nanmax", "nanmin"), reductions),
    "argsort": along_axes,
    "convolve": vectors("full", "same", "valid"),
    "correlate": vectors("full", "same", "valid"),
    "cross": triples,
    "diag": diagonals(),
    "diagonal": diagonals(2, 0),
    "digitize": bins,
    "ldexp": ldexp,
    "median": medians,
    "nonzero": sized,
    "packbits": bits,
    "percentile": quantiles(100),
    "quantile": quantiles(1),
    "searchsorted": searches,
    "take": takes,
    "take_along_axis": takes_along_axes,
    "trace": diagonals(2, 0),
    "unpackbits": bits_with_count,
}


def evaluate(f: Callable[..., Any], calls: Sequence[Call], operands: Sequence[Any]) -> list[Any]:
    """Returns the results of `calls`, with `operands` in place of all NumPy arrays."""
    rest = iter(operands)
    return [f(*[next(rest) if isinstance(x, np.ndarray) else x for x in args], **options) for args, options in calls]


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_computes_what_the_compiled_function_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f, tolerance = getattr(fnp, name), TOLERANCES.get(name, EXACT)
    kernels: list[object] = []
    of_call = NumpyKernel.of_call

    def recorded(self: NumpyKernel, *args: Any) -> Kernel | None:
        kernels.append(kernel := of_call(self, *args))
        return kernel

    monkeypatch.setattr(NumpyKernel, "of_call", recorded)
    ROOT.eager_cache.clear()
    calls = [call for dtype in sorted(KERNELS[name].dtypes, key=dtypes.name) for call in CALLS[name](dtype)]
    operands = [fnp.array(x, dtype=x.dtype) for args, _ in calls for x in args if isinstance(x, np.ndarray)]
    compiled = compile_with_fallback(fx.jit, lambda *xs: evaluate(f, calls, xs))
    wanted = compiled(*operands)
    for call, got, want in zip(calls, evaluate(f, calls, operands), wanted, strict=True):
        for x, y in zip(fx.tree.leaves(got), fx.tree.leaves(want), strict=True):
            assert x.aval == y.aval, call
            assert x.numpy().shape == x.shape, call
            assert x.numpy().dtype == x.dtype, call
            assert_near(x, y, tolerance, f"{name} of {call}")
            if x.dtype.kind == "f":
                is_zero = np.asarray(y) == 0
                assert (np.signbit(x) == np.signbit(y))[is_zero].all(), call
    assert any(kernel is not None for kernel in kernels)
