"""Samples of window reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from jax import lax
from jax._src.lax import windowed_reductions

from tests.laws.samples.making import Function, Sample, grid, i32, make_sample
from tracefx.ops.reductions.select_and_scatter import SelectAndGatherAdd, SelectAndScatterAdd, SelectComparator
from tracefx.ops.reductions.window_reduction import ReduceWindowMax, ReduceWindowMin, ReduceWindowSum


def _windows(p: Any) -> tuple[Any, ...]:
    return p.window_dimensions, p.window_strides, p.padding, p.base_dilation, p.window_dilation


def _reduced(function: Function) -> Callable[[Any], Function]:
    return lambda p: lambda x: function(x, *_windows(p))


def _compared(p: Any) -> Any:
    return lax.ge_p if p.select_prim is SelectComparator.GE else lax.le_p


def _gathered(p: Any) -> Function:
    return lambda t, x: windowed_reductions._select_and_gather_add(t, x, _compared(p), *_windows(p))


def _scattered(p: Any) -> Function:
    windows = p.window_dimensions, p.window_strides, p.padding
    return lambda t, x: windowed_reductions._select_and_scatter_add(t, x, _compared(p), *windows)


PLAIN: Final = (2, 2), (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1)
STRIDED: Final = (2, 2), (2, 1), ((1, 0), (0, 1)), (1, 1), (1, 1)
DILATED: Final = (2, 2), (1, 2), ((0, 1), (1, 1)), (2, 1), (1, 2)

SAMPLES: Final[tuple[Sample, ...]] = (
    make_sample(
        ReduceWindowSum(*STRIDED),
        (grid(3, 4),),
        (i32([1, 2, 3], [4, 5, 6]),),
        reference=_reduced(windowed_reductions._reduce_window_sum),
    ),
    make_sample(ReduceWindowSum(*DILATED), (grid(2, 3),)),
    make_sample(
        ReduceWindowMax(*STRIDED),
        (grid(3, 4),),
        (i32([1, 2, 3], [4, 5, 6]),),
        reference=_reduced(windowed_reductions._reduce_window_max),
    ),
    make_sample(ReduceWindowMax(*DILATED), (grid(2, 3),)),
    make_sample(ReduceWindowMin(*PLAIN), (grid(3, 3),), reference=_reduced(windowed_reductions._reduce_window_min)),
    make_sample(SelectAndGatherAdd(SelectComparator.GE, *STRIDED), (grid(3, 4) * 3, grid(3, 4)), reference=_gathered),
    make_sample(SelectAndGatherAdd(SelectComparator.LE, *DILATED), (grid(2, 3) * 3, grid(2, 3))),
    make_sample(
        SelectAndScatterAdd(SelectComparator.GE, *STRIDED[:3]), (grid(2, 4) * 3, grid(3, 4)), reference=_scattered
    ),
    make_sample(SelectAndScatterAdd(SelectComparator.LE, *PLAIN[:3]), (grid(2, 2), grid(3, 3))),
)
