"""Taylor coefficients by nested `jvp`: a slow reference implementation for `jet`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_same
from tracefx import Array
from tracefx.core import float0
from tracefx.handlers import jet
from tracefx.testing.tolerances import DERIVATIVE, Ulps

Lists: TypeAlias = Sequence[Sequence[Any]]


def nested_jvp_series(f: Callable[..., Any], primals: Sequence[Any], series: Lists) -> list[list[Any]]:
    """Returns the derivatives of each output of `f` along the curve given by `primals` and `series`, as in `jet`."""
    order = len(series[0])
    outs = [np.asarray(out) for out in fx.tree.leaves(f(*primals))]
    varying = [i for i, out in enumerate(outs) if out.dtype.kind in "fc"]

    def along_curve(t: Array) -> list[Any]:
        args = []
        for x, terms in zip(primals, series, strict=True):
            for k, term in enumerate(terms, 1):
                x = x if term is None else x + term * (t**k) * (1.0 / math.factorial(k))
            args.append(x)
        derivatives = fx.tree.leaves(f(*args))
        return [derivatives[i] for i in varying]

    columns: list[list[Any]] = [[np.zeros(out.shape, float0) for _ in range(order)] for out in outs]
    for k, derivatives in enumerate(
        directional_derivatives(along_curve, fnp.asarray(np.float64(0.0)), np.float64(1.0), order)
    ):
        for i, each in zip(varying, derivatives, strict=True):
            columns[i][k] = each
    return columns


def directional_derivatives(f: Callable[[Any], Any], x: Any, v: Any, order: int) -> list[Any]:
    """Returns the first `order` derivatives of `f` at `x` in the direction `v`."""
    derivatives = []
    for _ in range(order):
        f = directional_derivative(f, v)
        derivatives.append(f(x))
    return derivatives


def directional_derivative(f: Callable[[Any], Any], v: Any) -> Callable[[Any], Any]:
    return lambda x: fx.jvp(f, (x,), (v,))[1]


def check_series(f: Callable[..., Any], primals: tuple[Any, ...], series: list[Any], formula: Any = None) -> None:
    """Compares the series by `jet` in 64 bits with nested `jvp` of `f`, or of a formula for it."""
    with fx.enable_x64(True):
        (want,) = nested_jvp_series(formula or f, primals, series)
        assert_same_dtype_and_values(jet(f, primals, series)[1], want)


def assert_same_dtype_and_values(got: Any, want: Any, tolerance: Ulps = DERIVATIVE) -> None:
    """Checks that the leaves of both have the same dtypes, and values within a tolerance for nested derivatives."""
    assert_same(fx.tree.leaves(got), fx.tree.map(np.asarray, fx.tree.leaves(want)), tolerance, weak=False)
