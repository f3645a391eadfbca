"""Sorting, searching and sets with data-dependent shapes, against NumPy, and cases that the JAX
comparison leaves out.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tracefx.errors import ConcretizationError
from tracefx.testing.tolerances import ELEMENTARY

RNG: Final = np.random.default_rng(0)
INTS: Final = RNG.integers(0, 5, (3, 4)).astype(np.int32)
FLOATS: Final = np.array([3, np.nan, 1, 3, np.inf, np.nan, 1, -np.inf], np.float32)
COMPLEX: Final = np.array([1j, 1, 1j, 2 + 1j, 1], np.complex64)
NONE: Final = np.zeros(0, np.float32)
OTHER: Final = np.array([3, 7, 0, 3], np.int32)
ALL: Final = (INTS, FLOATS, COMPLEX, NONE, np.array(True))


def agree(got: Any, want: Any) -> None:
    if isinstance(want, tuple | list):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            agree(g, w)
        return
    assert isinstance(got, fx.Array)
    np.testing.assert_array_equal(np.asarray(got), want)


CALLS: Final[dict[str, list[tuple[Any, ...]]]] = {
    "unique": [(x,) for x in ALL],
    "unique_values": [(x,) for x in ALL],
    "unique_counts": [(x,) for x in ALL],
    "unique_inverse": [(x,) for x in ALL],
    "unique_all": [(x,) for x in ALL],
    "union1d": [(INTS, OTHER), (FLOATS, FLOATS[:3]), (NONE, OTHER)],
    "intersect1d": [(INTS, OTHER), (FLOATS, FLOATS[:3]), (NONE, OTHER), (COMPLEX, COMPLEX[:1])],
    "setdiff1d": [(INTS, OTHER), (FLOATS, FLOATS[:3]), (OTHER, NONE), (np.arange(5)[::-1], OTHER, True)],
    "setxor1d": [(INTS, OTHER), (FLOATS, FLOATS[:3]), (NONE, OTHER), (np.arange(5), np.array([7, 2]), True)],
    "nonzero": [(INTS,), (FLOATS,), (NONE,), (COMPLEX,)],
    "flatnonzero": [(INTS,), (FLOATS,)],
    "argwhere": [(INTS,), (np.array(3),), (NONE,)],
    "extract": [(INTS > 2, INTS), (INTS % 2, INTS)],
    "compress": [([True, False, True], INTS, 0), (np.array([0, 1]), INTS, 1), (np.array([0, 1, 1]), INTS)],
    "bincount": [(OTHER,), (OTHER, np.array([0.5, 1, 2, 4])), (NONE.astype(np.int32),), (OTHER, None, 10)],
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_with_data_dependent_shapes_match_numpy(name: str) -> None:
    for args in CALLS[name]:
        arrays = [np.asarray(a) if isinstance(a, list) else a for a in args]
        with np.errstate(all="ignore"):
            want = getattr(np, name)(*args)
        got = getattr(fnp, name)(*arrays)
        agree(got, np.sort(want) if name == "unique_values" else want)  # NumPy's order is unspecified


@pytest.mark.parametrize("equal_nan", [True, False])
def test_unique_along_axes(equal_nan: bool) -> None:
    rows = np.array([[1, 2], [0, 2], [1, 2], [0, 1]], np.float32)
    with_nan = np.array([[np.nan, 1], [np.nan, 1], [0, 1]], np.float32)
    for x, axis in ((rows, 0), (rows.T, 1), (INTS, None), (FLOATS, None)):
        for flags in ((False, False, False), (True, True, True)):
            want = np.unique(x, *flags, axis=axis, equal_nan=equal_nan)
            agree(fnp.unique(x, *flags, axis=axis, equal_nan=equal_nan), want)
    assert fnp.unique(with_nan, axis=0, equal_nan=equal_nan).shape == (2 if equal_nan else 3, 2)


def test_intersect1d_with_indices() -> None:
    for x, y in ((INTS, OTHER), (OTHER, INTS), (FLOATS, FLOATS[::-1]), (NONE, NONE)):
        agree(fnp.intersect1d(x, y, return_indices=True), np.intersect1d(x, y, return_indices=True))


@pytest.mark.parametrize("name", [name for name in CALLS if name != "bincount"])
def test_data_dependent_shapes_of_tracers_need_size(name: str) -> None:
    args = [np.asarray(a, np.int32) for a in CALLS[name][0][:2]]
    f = getattr(fnp, name)
    with pytest.raises(ConcretizationError, match="shape of the result depends on the elements .* pass size="):
        fx.jit(f)(*args)
    with pytest.raises(ConcretizationError, match="shape of the result depends on the elements .* pass size="):
        fx.vmap(f)(*[np.stack([a, a]) for a in args])


def test_bincount_of_a_tracer_needs_length() -> None:
    with pytest.raises(ConcretizationError, match="pass length="):
        fx.jit(fnp.bincount)(OTHER)


def test_derivatives_of_functions_with_data_dependent_shapes() -> None:
    x = np.array([3, 1, 3, 2], np.float32)
    agree(fx.grad(lambda x: (fnp.unique(x) * fnp.arange(3)).sum())(x), np.array([2, 0, 0, 1], np.float32))
    agree(fx.grad(lambda x: x[fnp.nonzero(x > 1)[0]].sum())(x), np.array([1, 0, 1, 1], np.float32))


# ------------------------------------------------------------------ searching

SORTED: Final = np.sort(np.round(RNG.normal(size=100), 1)).astype(np.float32)
QUERIES: Final = np.concatenate([SORTED[::9], RNG.normal(size=5).astype(np.float32), [np.nan, np.inf]]).astype(
    np.float32
)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("method", ["scan", "scan_unrolled", "sort", "compare_all"])
def test_searchsorted_methods_agree(method: str, side: Any) -> None:
    def search(x: Any, v: Any) -> Any:
        return fnp.searchsorted(x, v, side, method=method)

    want = np.searchsorted(SORTED, QUERIES, side)
    agree(fx.jit(search)(SORTED, QUERIES), want)
    both = np.stack([SORTED, SORTED + 0.5])
    wanted = np.stack([want, np.searchsorted(both[1], QUERIES, side)])
    agree(fx.jit(fx.vmap(search, (0, None)))(both, QUERIES), wanted)
    agree(fx.jit(fx.vmap(search, (None, 1), 1))(SORTED, QUERIES[:18].reshape(2, 9)), want[:18].reshape(2, 9))


def test_vmap_of_searching_in_short_arrays() -> None:
    edges = np.sort(RNG.normal(size=(3, 5)), 1).astype(np.float32)
    x = RNG.normal(size=(3, 4)).astype(np.float32)
    want = np.stack([np.searchsorted(e, v) for e, v in zip(edges, x, strict=True)])
    agree(fx.vmap(fnp.searchsorted)(edges, x), want)
    agree(fx.vmap(fnp.digitize)(x, edges[:, ::-1]), np.stack([np.digitize(v, e[::-1]) for e, v in zip(edges, x)]))  # noqa: B905
    heights = RNG.normal(size=(3, 5)).astype(np.float32)
    lines = [np.interp(v, e, h).astype(np.float32) for v, e, h in zip(x, edges, heights, strict=True)]
    assert_near(fx.vmap(fnp.interp)(x, edges, heights), lines)
    counts, _ = fx.vmap(fnp.histogram)(x, edges)
    agree(counts, np.stack([np.histogram(v, e)[0] for v, e in zip(x, edges, strict=True)]))


def test_isin_of_large_sets() -> None:
    many, some = np.arange(0, 3000, 3, dtype=np.int32), np.array([[0, 1], [2997, 3000]], np.int32)
    for method in ("auto", "binary_search", "sort"):
        agree(fx.jit(lambda x, y, method=method: fnp.isin(x, y, method=method))(some, many), np.isin(some, many))


# ------------------------------------------------------------------ where JAX is wrong


@pytest.mark.parametrize("method", ["linear", "lower", "higher", "nearest", "midpoint", "inverted_cdf"])
def test_quantiles_of_infinities(method: Any) -> None:
    x = np.array([-np.inf, 1, np.inf], np.float32)
    for q, want in ((0.0, -np.inf), (0.5, 1), (1.0, np.inf)):
        agree(fnp.quantile(x, q, method=method), np.float32(want))
        agree(fnp.quantile(x, fnp.float32(q), method=method), np.float32(want))
        agree(fnp.nanquantile(x, q, method=method), np.float32(want))


@pytest.mark.parametrize("name", ["median", "quantile", "percentile"])
def test_concrete_quantiles_are_traced_as_slices(name: str) -> None:
    f = getattr(fnp, name)
    fractions: list[Any] = [[]] if name == "median" else [[0.3], [np.array([0.25, 0.5], np.float32)]]
    for q in fractions:
        printed = str(fx.make_jaxpr(lambda x, q=q: f(x, *q))(FLOATS[:3]))
        assert "sort" in printed
        assert "floor" not in printed
    printed = str(fx.make_jaxpr(lambda x: f(x, *fractions[0]))(FLOATS[:3]))
    assert "gather" not in printed


def test_quantiles_in_64_bits() -> None:
    x = fnp.array(np.arange(3.0) / 3, dtype="float64")
    assert_near(fnp.quantile(x, 0.25), np.quantile(np.asarray(x), 0.25), ELEMENTARY)


def test_interp_between_close_points() -> None:
    x = np.array([0, 1e-20], np.float32)
    assert fnp.interp(np.float32(0.5e-20), x, np.array([0, 1], np.float32)) == 0.5


def test_partition_with_the_least_integer() -> None:
    x = np.array([5, -(2**31), 3], np.int32)
    agree(fnp.partition(x, 0)[0], np.int32(-(2**31)))
    assert fnp.argpartition(x, 0)[0] == 1
