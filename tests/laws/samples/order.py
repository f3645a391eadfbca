"""Samples of sorting and top-k primitives."""

from __future__ import annotations

from typing import Any, Final

from jax import lax

from tests.laws.samples.making import Function, Sample, grid, i32, make_sample
from tracefx.ops.indexing.sorting import Sort
from tracefx.ops.indexing.top_k import ApproxTopK, TopK


def _approximate(p: Any) -> Function:
    function = lax.approx_max_k if p.is_max_k else lax.approx_min_k
    search = p.recall_target, p.reduction_input_size_override, p.aggregate_to_topk
    return lambda x: function(x, p.k, p.reduction_dimension, *search)


SAMPLES: Final[tuple[Sample, ...]] = (
    make_sample(
        Sort(1, True, 1),
        (grid(2, 3),),
        (i32([3, 1, 2], [2, 1, 2]),),
        reference=lambda p: lambda *xs: lax.sort(xs, p.dimension, p.is_stable, p.num_keys),
    ),
    make_sample(Sort(0, True, 2), (i32(2, 1, 2, 1), grid(4), grid(4) + 3)),
    make_sample(Sort(0, False, 1), (grid(3, 2), i32([5, 6], [1, 2], [3, 4]))),
    make_sample(
        TopK(2, 1),
        (grid(2, 3),),
        (i32([3, 1, 2], [2, 1, 2]),),
        reference=lambda p: lambda x: lax.top_k(x, p.k, axis=p.axis),
    ),
    make_sample(TopK(2, 0), (grid(3, 2),)),
    make_sample(ApproxTopK(2, -1, 0.95, True, -1, True), (grid(2, 3),), reference=_approximate),
    make_sample(ApproxTopK(1, 0, 0.5, False, -1, False), (grid(3),)),
)
