"""Bounds of operations on whole arrays: indexing, sums, products, sorting, selection and branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from attrs import evolve

import tracefx.numpy as fnp
from tracefx import ops
from tracefx.control.cond import Cond
from tracefx.control.sow import Sow
from tracefx.core import Array, Shape, as_value, dtypes
from tracefx.core.handler import as_array, bind, bind1
from tracefx.core.primitive import Primitive
from tracefx.handlers.intervals.elementwise import FUNCTION_ULPS, Results, interval_product, is_float_interval
from tracefx.handlers.intervals.interval import (
    ComparisonInterval,
    Interval,
    IntervalOrValue,
    as_interval,
    full_range,
    hull,
    round_outward,
    select_interval,
)
from tracefx.interpreters.interpreter import Interpreter
from tracefx.ops.contractions.contraction import Precision
from tracefx.ops.indexing.top_k import TopKOperation
from tracefx.ops.reductions.reduction import ArgExtremum
from tracefx.pytrees import trees

IntervalInterpreter: TypeAlias = Interpreter[Interval | ComparisonInterval]


def gather_interval(handler: object, op: Primitive, operand: IntervalOrValue, *indices: IntervalOrValue) -> Results:
    """Bounds of indexing operations, whose indices must be concrete or at least not intervals."""
    x, concrete = as_interval(operand), _concrete_indices(op, indices)
    return [Interval(bind1(op, x.lo, *concrete), bind1(op, x.hi, *concrete))]


def dynamic_update_slice_interval(
    handler: object, op: Primitive, operand: IntervalOrValue, update: IntervalOrValue, *indices: IntervalOrValue
) -> Results:
    x, y, concrete = as_interval(operand), as_interval(update), _concrete_indices(op, indices)
    return [Interval(bind1(op, x.lo, y.lo, *concrete), bind1(op, x.hi, y.hi, *concrete))]


def scatter_interval(
    handler: object, op: Primitive, operand: IntervalOrValue, indices: IntervalOrValue, update: IntervalOrValue
) -> Results:
    x, y, concrete = as_interval(operand), as_interval(update), _concrete_indices(op, [indices])
    return [Interval(bind1(op, x.lo, *concrete, y.lo), bind1(op, x.hi, *concrete, y.hi))]


def scatter_add_interval(
    handler: object, op: ops.ScatterAdd, operand: IntervalOrValue, indices: IntervalOrValue, update: IntervalOrValue
) -> Results:
    x, y, concrete = as_interval(operand), as_interval(update), _concrete_indices(op, [indices])

    def sums(a: Array, b: Array) -> Array:
        return bind1(op, a, *concrete, b)

    return [_round_sum_outward(sums(x.lo, y.lo), sums(x.hi, y.hi), sums(x.magnitude, y.magnitude), y.lo.size + 1)]


def scatter_sub_interval(
    handler: object, op: ops.ScatterSub, operand: IntervalOrValue, indices: IntervalOrValue, update: IntervalOrValue
) -> Results:
    y = as_interval(update)
    scatter_add = ops.ScatterAdd(op.dimension_numbers, op.indices_are_sorted, op.unique_indices, op.mode)
    return scatter_add_interval(handler, scatter_add, operand, indices, Interval(-y.hi, -y.lo))


def _concrete_indices(op: Primitive, indices: Sequence[IntervalOrValue]) -> list[Array]:
    for index in indices:
        if not isinstance(index, Array):
            raise TypeError(
                f"bounds: the indices of {op.name} are in an interval, so nothing is known of the elements; compute "
                "them from arguments that are not intervals"
            )
    return [as_array(i) for i in indices if isinstance(i, Array)]


def multi_result_interval(handler: object, op: Primitive, *operands: IntervalOrValue) -> Sequence[IntervalOrValue]:
    """Bounds of monotone operations with several results and without rounding."""
    xs = list(map(as_interval, operands))
    lows, highs = bind(op, *[x.lo for x in xs]), bind(op, *[x.hi for x in xs])
    return [Interval(as_array(lo), as_array(hi)) for lo, hi in zip(lows, highs, strict=True)]


# ------------------------------------------------------------------ sums and products


def _round_sum_outward(lo: Array, hi: Array, size: Array, terms: int) -> Interval:
    """Widens sums of `terms` terms, added in any order; `size` is the sum of their absolute values."""
    if not dtypes.is_inexact(lo.aval.dtype):
        return Interval(lo, hi)
    eps = float(dtypes.finfo(lo.aval.dtype).eps)
    return round_outward(lo, hi, FUNCTION_ULPS, size * (eps * max(terms, 1)))


def sum_interval(
    handler: object, op: ops.ReduceSum | ops.CumSum | ops.ReduceWindowSum, operand: IntervalOrValue
) -> Results:
    x = as_interval(operand)
    if isinstance(op, ops.ReduceWindowSum):
        terms = op.windows.size
    else:
        axes = op.axes if isinstance(op, ops.ReduceSum) else (op.axis,)
        terms = int(np.prod([x.lo.shape[a] for a in axes]))
    lo, hi = bind1(op, x.lo), bind1(op, x.hi)
    if is_float_interval(x):
        return [_round_sum_outward(lo, hi, bind1(op, x.magnitude), terms)]
    rough = bind1(op, fnp.asarray(x.magnitude, "float32"))
    fits = rough <= float(dtypes.iinfo(lo.aval.dtype).max) * 0.99
    return [select_interval(fits, Interval(lo, hi), full_range(lo.aval))]


def reduce_prod_interval(handler: object, op: ops.ReduceProd, operand: IntervalOrValue) -> Results:
    """Multiplies the two halves of the elements, repeatedly."""
    x = as_interval(operand)
    remaining = [a for a in range(x.lo.ndim) if a not in op.axes]
    n = int(np.prod([x.lo.shape[a] for a in op.axes]))
    order = ops.Transpose((*op.axes, *remaining))
    flat = ops.Reshape((n, *[x.lo.shape[a] for a in remaining]))
    out = Interval(*[bind1(flat, bind1(order, part)) for part in x])
    while n > 1:
        half = n // 2
        first, second = [Interval(out.lo[i : i + half], out.hi[i : i + half]) for i in (0, half)]
        pairs = interval_product(first, second)
        if n % 2:
            pairs = Interval(*[fnp.concatenate([p, o[-1:]]) for p, o in zip(pairs, out, strict=True)])
        out, n = pairs, n - half
    if n == 0:
        one = bind1(op, x.lo)
        return [Interval(one, one)]
    return [Interval(out.lo[0], out.hi[0])]


def contraction_interval(
    handler: object, op: ops.DotGeneral | ops.ConvGeneralDilated, left: IntervalOrValue, right: IntervalOrValue
) -> Results:
    """Computes with midpoints and radii, at the cost of three ordinary contractions.

    Source: Rump, Fast and parallel interval arithmetic (1999). The rounding error of the midpoints is bounded by that
    of a sum of products in any order.
    """
    op = evolve(op, precision=(Precision.HIGHEST, Precision.HIGHEST))
    x, y = as_interval(left), as_interval(right)
    terms = _num_terms(op, x.lo.shape, y.lo.shape)
    if not (is_float_interval(x) and is_float_interval(y)):
        raise TypeError(f"bounds: {op.name} of integers in intervals is not supported; convert them to floats first")
    (a, r), (b, s) = _midpoint_and_radius(x), _midpoint_and_radius(y)
    middle, size = bind1(op, a, b), bind1(op, abs(a), abs(b))
    radius = bind1(op, abs(a), s) + bind1(op, r, abs(b) + s)
    info = [dtypes.finfo(z.aval.dtype) for z in (x.lo, y.lo, middle)]
    eps, tiny = max(float(i.eps) for i in info), max(float(i.tiny) for i in info)
    off = (size + radius) * (eps * (terms + 4)) + tiny * (terms + 1)
    return [round_outward(middle - radius, middle + radius, FUNCTION_ULPS, off)]


def _num_terms(op: ops.DotGeneral | ops.ConvGeneralDilated, left: Shape, right: Shape) -> int:
    """Returns the number of products that are summed for each element of the result."""
    if isinstance(op, ops.DotGeneral):
        (contracting, _), _ = op.dimension_numbers
        return int(np.prod([left[a] for a in contracting]))
    _, kernel, _ = op.dimension_numbers
    return int(np.prod([right[a] for a in kernel[1:]]))


def _midpoint_and_radius(x: Interval) -> tuple[Array, Array]:
    """Returns the midpoint and the distance to the farther end, rounded up."""
    middle = x.lo * 0.5 + x.hi * 0.5
    return middle, round_outward(middle, fnp.maximum(x.hi - middle, middle - x.lo), 4.0).hi


def argextremum_interval(handler: object, op: ArgExtremum, operand: IntervalOrValue) -> Results:
    """The index of an extremum may be anywhere along the axis."""
    out = bind1(op, as_interval(operand).lo)
    axis = op.axes[0]
    last = as_interval(operand).lo.shape[axis] - 1
    return [Interval(fnp.zeros_like(out), fnp.full_like(out, last))]


# ------------------------------------------------------------------ order


def sort_interval(handler: object, op: ops.Sort, *operands: IntervalOrValue) -> Sequence[IntervalOrValue]:
    """The sorted first key has bounds; of the other operands only the range along the axis is known."""
    if len(operands) == 1 or all(isinstance(x, Array) for x in operands[: op.num_keys]):
        return multi_result_interval(handler, op, *operands)
    first, *others = operands
    (key,) = multi_result_interval(handler, evolve(op, num_keys=1), first)
    axis = op.dimension

    def any_of(x: Interval) -> Interval:
        ends = fnp.min(x.lo, axis, keepdims=True), fnp.max(x.hi, axis, keepdims=True)
        return Interval(*[fnp.broadcast_to(end, x.lo.shape) for end in ends])

    return [key, *[any_of(as_interval(x)) for x in others]]


def top_k_interval(handler: object, op: TopKOperation, operand: IntervalOrValue) -> Sequence[IntervalOrValue]:
    """The largest elements have bounds; their indices may be anywhere along the axis."""
    x = as_interval(operand)
    (lo, positions), (hi, _) = bind(op, x.lo), bind(op, x.hi)
    last = x.lo.shape[op.resolve_axis(x.lo.ndim)] - 1
    positions_array = as_array(positions)
    return [
        Interval(as_array(lo), as_array(hi)),
        Interval(fnp.zeros_like(positions_array), fnp.full_like(positions_array, last)),
    ]


# ------------------------------------------------------------------ selection


def select_n_interval(handler: object, op: ops.SelectN, index: IntervalOrValue, *cases: IntervalOrValue) -> Results:
    xs = list(map(as_interval, cases))
    if isinstance(index, Array):
        return [Interval(bind1(op, index, *[x.lo for x in xs]), bind1(op, index, *[x.hi for x in xs]))]
    if isinstance(index, ComparisonInterval):
        return [_hull_of_cases(Interval(index.lo, index.hi), _refine_by_comparison(index, *xs))]
    return [_hull_of_cases(index, xs)]


def _refine_by_comparison(comparison: ComparisonInterval, otherwise: Interval, then: Interval) -> list[Interval]:
    """Narrows the cases by the comparison that selects them: `where(x > 0, x, 0)` is not negative."""
    small, large = comparison.small, comparison.large
    if then is large:
        then = Interval(fnp.maximum(then.lo, small.lo), fnp.maximum(then.hi, small.lo))
    elif then is small:
        then = Interval(fnp.minimum(then.lo, large.hi), fnp.minimum(then.hi, large.hi))
    if otherwise is large:
        otherwise = Interval(fnp.minimum(otherwise.lo, small.hi), fnp.minimum(otherwise.hi, small.hi))
    elif otherwise is small:
        otherwise = Interval(fnp.maximum(otherwise.lo, large.lo), fnp.maximum(otherwise.hi, large.lo))
    return [otherwise, then]


def _hull_of_cases(index: Interval, cases: Sequence[Interval]) -> Interval:
    """Returns the hull of the cases that the index may select."""
    selected = Interval(*[fnp.clip(fnp.asarray(w, "int32"), 0, len(cases) - 1) for w in index])
    out: Interval | None = None
    for i, case in enumerate(cases):
        possible = selected.contains(i)
        out = (
            case
            if out is None
            else select_interval(possible, select_interval(selected.lo < i, hull(out, case), case), out)
        )
    assert out is not None
    return out


def cond_interval(
    handler: IntervalInterpreter, op: Cond, index: IntervalOrValue, *operands: IntervalOrValue
) -> Sequence[IntervalOrValue]:
    """Runs all branches where the index is uncertain and returns the hulls of their results."""
    wrapped = [handler.wrap(x) for x in operands]
    if isinstance(index, Array):
        return [handler.unwrap(x) for x in op.transform_bodies(handler, [index, *wrapped])]
    results = [[handler.unwrap(x) for x in handler.interpret(branch, wrapped)] for branch in op.branches]
    return [_hull_of_cases(as_interval(index), list(map(as_interval, outs))) for outs in zip(*results, strict=True)]


def sow_interval(handler: object, op: Sow, *operands: IntervalOrValue) -> Sequence[IntervalOrValue]:
    """Sows the interval as a pytree."""
    leaves = [as_interval(x) if isinstance(x, (Interval, ComparisonInterval)) else as_array(x) for x in operands]
    arrays, tree = trees.flatten(leaves[0] if op.tree is None else op.tree.unflatten(leaves))
    return bind(evolve(op, tree=tree), *[as_value(a) for a in arrays])
