"""Bounds of operations on whole arrays: sums, products, choices, branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast

import numpy as np
from attrs import evolve

import tracefx.numpy as fnp
from tracefx.control.cond import Cond
from tracefx.control.sow import Sow
from tracefx.core import dtypes
from tracefx.core.array import Array
from tracefx.core.avals import Shape
from tracefx.core.handler import as_array, bind, bind1
from tracefx.core.literal import Literal
from tracefx.core.primitive import Primitive
from tracefx.core.values import as_value
from tracefx.handlers.intervals.elementwise import FUNCTION_ULPS, interval_product, is_float_interval
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
from tracefx.ops.contractions.contraction import DotGeneral, Precision
from tracefx.ops.contractions.convolution import ConvGeneralDilated
from tracefx.ops.elementwise.selection import SelectN
from tracefx.ops.indexing.gather_scatter_add import ScatterAdd
from tracefx.ops.indexing.scatter import ScatterSub
from tracefx.ops.indexing.sorting import Sort
from tracefx.ops.indexing.top_k import TopKOperation
from tracefx.ops.reductions.cumulative import CumSum
from tracefx.ops.reductions.reduction import ReduceProd
from tracefx.ops.reductions.window_reduction import ReduceWindowSum
from tracefx.ops.structural import ReduceSum, Reshape, Transpose
from tracefx.pytrees import trees

IntervalInterpreter: TypeAlias = Interpreter[Interval | ComparisonInterval]


def gather_interval(
    handler: object, op: Primitive, operand: IntervalOrValue, *places: IntervalOrValue
) -> list[IntervalOrValue]:
    """Operations that take elements from places: the places must be known."""
    x, known = as_interval(operand), _concrete_indices(op, places)
    return [Interval(bind1(op, x.lo, *known), bind1(op, x.hi, *known))]


def dynamic_update_slice_interval(
    handler: object, op: Primitive, operand: IntervalOrValue, update: IntervalOrValue, *places: IntervalOrValue
) -> list[IntervalOrValue]:
    x, y, known = as_interval(operand), as_interval(update), _concrete_indices(op, places)
    return [Interval(bind1(op, x.lo, y.lo, *known), bind1(op, x.hi, y.hi, *known))]


def scatter_interval(
    handler: object, op: Primitive, operand: IntervalOrValue, places: IntervalOrValue, update: IntervalOrValue
) -> list[IntervalOrValue]:
    x, y, known = as_interval(operand), as_interval(update), _concrete_indices(op, [places])
    return [Interval(bind1(op, x.lo, *known, y.lo), bind1(op, x.hi, *known, y.hi))]


def scatter_add_interval(
    handler: object, op: ScatterAdd, operand: IntervalOrValue, places: IntervalOrValue, update: IntervalOrValue
) -> list[IntervalOrValue]:
    x, y, known = as_interval(operand), as_interval(update), _concrete_indices(op, [places])

    def sums(a: Array, b: Array) -> Array:
        return bind1(op, a, *known, b)

    return [_round_sum_outward(sums(x.lo, y.lo), sums(x.hi, y.hi), sums(x.magnitude, y.magnitude), y.lo.size + 1)]


def scatter_sub_interval(
    handler: object, op: ScatterSub, operand: IntervalOrValue, places: IntervalOrValue, update: IntervalOrValue
) -> list[IntervalOrValue]:
    y = as_interval(update)
    adding = ScatterAdd(op.dimension_numbers, op.indices_are_sorted, op.unique_indices, op.mode)
    return scatter_add_interval(handler, adding, operand, places, Interval(-y.hi, -y.lo))


def _concrete_indices(op: Primitive, places: Sequence[IntervalOrValue]) -> list[Array]:
    for place in places:
        if not isinstance(place, (Array, Literal)):
            raise TypeError(
                f"bounds: {op.name} takes elements from places that lie in an interval, so nothing would be known of "
                "them; compute the indices from arguments that are no intervals"
            )
    return [as_array(p) for p in places if isinstance(p, (Array, Literal))]


def multi_result_interval(handler: object, op: Primitive, *operands: IntervalOrValue) -> Sequence[IntervalOrValue]:
    """Operations with several outputs that round nothing."""
    xs = list(map(as_interval, operands))
    lows, highs = bind(op, *[x.lo for x in xs]), bind(op, *[x.hi for x in xs])
    return [Interval(as_array(lo), as_array(hi)) for lo, hi in zip(lows, highs, strict=True)]


# ------------------------------------------------------------------ sums and products


def _round_sum_outward(lo: Array, hi: Array, size: Array, terms: int) -> Interval:
    """Sums of so many terms, in any order; `size` is that of the absolute values."""
    if not dtypes.is_inexact(lo.aval.dtype):
        return Interval(lo, hi)
    eps = float(dtypes.finfo(lo.aval.dtype).eps)
    return round_outward(lo, hi, FUNCTION_ULPS, size * (eps * max(terms, 1)))


def sum_interval(
    handler: object, op: ReduceSum | CumSum | ReduceWindowSum, operand: IntervalOrValue
) -> list[IntervalOrValue]:
    x = as_interval(operand)
    if isinstance(op, ReduceWindowSum):
        terms = op.windows.size
    else:
        axes = op.axes if isinstance(op, ReduceSum) else (op.axis,)
        terms = int(np.prod([x.lo.shape[a] for a in axes]))
    lo, hi = bind1(op, x.lo), bind1(op, x.hi)
    if is_float_interval(x):
        return [_round_sum_outward(lo, hi, bind1(op, x.magnitude), terms)]
    rough = bind1(op, fnp.asarray(x.magnitude, "float32"))
    fits = rough <= float(dtypes.iinfo(lo.aval.dtype).max) * 0.99
    return [select_interval(fits, Interval(lo, hi), full_range(lo.aval))]


def reduce_prod_interval(handler: object, op: ReduceProd, operand: IntervalOrValue) -> list[IntervalOrValue]:
    """By halves: the first half of the elements times the second."""
    x = as_interval(operand)
    kept = [a for a in range(x.lo.ndim) if a not in op.axes]
    n = int(np.prod([x.lo.shape[a] for a in op.axes]))
    order = Transpose((*op.axes, *kept))
    flat = Reshape((n, *[x.lo.shape[a] for a in kept]))
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
    handler: object, op: DotGeneral | ConvGeneralDilated, left: IntervalOrValue, right: IntervalOrValue
) -> list[IntervalOrValue]:
    """By middle and radius: as fast as three ordinary products.

    Rump, Fast and parallel interval arithmetic (1999). The rounding of the middle is bounded by that of a sum of
    products in any order.
    """
    op = evolve(op, precision=(Precision.HIGHEST, Precision.HIGHEST))
    x, y = as_interval(left), as_interval(right)
    terms = _num_terms(op, x.lo.shape, y.lo.shape)
    if not (is_float_interval(x) and is_float_interval(y)):
        raise TypeError(f"bounds: {op.name} of integers that lie in intervals; convert them to floats first")
    (a, r), (b, s) = _midpoint_and_radius(x), _midpoint_and_radius(y)
    middle, size = bind1(op, a, b), bind1(op, abs(a), abs(b))
    radius = bind1(op, abs(a), s) + bind1(op, r, abs(b) + s)
    info = [dtypes.finfo(z.aval.dtype) for z in (x.lo, y.lo, middle)]
    eps, tiny = max(float(i.eps) for i in info), max(float(i.tiny) for i in info)
    off = (size + radius) * (eps * (terms + 4)) + tiny * (terms + 1)
    return [round_outward(middle - radius, middle + radius, FUNCTION_ULPS, off)]


def _num_terms(op: DotGeneral | ConvGeneralDilated, left: Shape, right: Shape) -> int:
    """How many products a number of the result is the sum of."""
    if isinstance(op, DotGeneral):
        (contracting, _), _ = op.dimension_numbers
        return int(np.prod([left[a] for a in contracting]))
    _, kernel, _ = op.dimension_numbers
    return int(np.prod([right[a] for a in kernel[1:]]))


def _midpoint_and_radius(x: Interval) -> tuple[Array, Array]:
    """The middle, and the distance to the farther end."""
    middle = x.lo * 0.5 + x.hi * 0.5
    return middle, round_outward(middle, fnp.maximum(x.hi - middle, middle - x.lo), 4.0).hi


def found(handler: object, op: Primitive, operand: IntervalOrValue) -> list[IntervalOrValue]:
    """Where an extreme is: anywhere along the axis."""
    out = bind1(op, as_interval(operand).lo)
    axis: int = op.axes[0]  # type: ignore[attr-defined]  # what finds places has one
    last = as_interval(operand).lo.shape[axis] - 1
    return [Interval(fnp.zeros_like(out), fnp.full_like(out, last))]


# ------------------------------------------------------------------ order


def sort_interval(handler: object, op: Sort, *operands: IntervalOrValue) -> Sequence[IntervalOrValue]:
    """What comes first, second and so on of a key has bounds; which of the others goes with it is anyone's guess."""
    if len(operands) == 1 or all(isinstance(x, (Array, Literal)) for x in operands[: op.num_keys]):
        return multi_result_interval(handler, op, *operands)
    first, *others = operands
    (key,) = multi_result_interval(handler, evolve(op, num_keys=1), first)
    axis = op.dimension

    def any_of(x: Interval) -> Interval:
        ends = fnp.min(x.lo, axis, keepdims=True), fnp.max(x.hi, axis, keepdims=True)
        return Interval(*[fnp.broadcast_to(end, x.lo.shape) for end in ends])

    return [key, *[any_of(as_interval(x)) for x in others]]


def top_k_interval(handler: object, op: TopKOperation, operand: IntervalOrValue) -> Sequence[IntervalOrValue]:
    """They are found anywhere along the axis."""
    x = as_interval(operand)
    (lo, places), (hi, _) = bind(op, x.lo), bind(op, x.hi)
    last = x.lo.shape[op.resolve_axis(x.lo.ndim)] - 1
    found = as_array(places)
    return [Interval(as_array(lo), as_array(hi)), Interval(fnp.zeros_like(found), fnp.full_like(found, last))]


# ------------------------------------------------------------------ choices


def select_n_interval(
    handler: object, op: SelectN, which: IntervalOrValue, *cases: IntervalOrValue
) -> list[IntervalOrValue]:
    xs = list(map(as_interval, cases))
    if isinstance(which, (Array, Literal)):
        return [Interval(bind1(op, which, *[x.lo for x in xs]), bind1(op, which, *[x.hi for x in xs]))]
    if isinstance(which, ComparisonInterval):
        return [_hull_of_cases(Interval(which.lo, which.hi), _refine_by_comparison(which, *xs))]
    return [_hull_of_cases(which, xs)]


def _refine_by_comparison(which: ComparisonInterval, otherwise: Interval, then: Interval) -> list[Interval]:
    """The cases, as far as the comparison bounds one of them where it is chosen: `where(x > 0, x, 0)` is positive."""
    small, large = which.small, which.large
    if then is large:
        then = Interval(fnp.maximum(then.lo, small.lo), fnp.maximum(then.hi, small.lo))
    elif then is small:
        then = Interval(fnp.minimum(then.lo, large.hi), fnp.minimum(then.hi, large.hi))
    if otherwise is large:
        otherwise = Interval(fnp.minimum(otherwise.lo, small.hi), fnp.minimum(otherwise.hi, small.hi))
    elif otherwise is small:
        otherwise = Interval(fnp.maximum(otherwise.lo, large.lo), fnp.maximum(otherwise.hi, large.lo))
    return [otherwise, then]


def _hull_of_cases(which: Interval, cases: Sequence[Interval]) -> Interval:
    """Around those of the cases that an index may choose."""
    places = Interval(*[fnp.clip(fnp.asarray(w, "int32"), 0, len(cases) - 1) for w in which])
    out: Interval | None = None
    for i, case in enumerate(cases):
        possible = places.contains(i)
        out = (
            case
            if out is None
            else select_interval(possible, select_interval(places.lo < i, hull(out, case), case), out)
        )
    assert out is not None
    return out


def cond_interval(
    handler: IntervalInterpreter, op: Cond, index: IntervalOrValue, *operands: IntervalOrValue
) -> Sequence[IntervalOrValue]:
    """Where the condition is undecided all branches are taken, and what they give is what any may."""
    wrapped = [handler.wrap(x) for x in operands]
    if isinstance(index, (Array, Literal)):
        return [handler.unwrap(x) for x in op.transform_bodies(handler, [index, *wrapped])]
    results = [[handler.unwrap(x) for x in handler.run(branch, wrapped)] for branch in op.branches]
    return [_hull_of_cases(as_interval(index), list(map(as_interval, outs))) for outs in zip(*results, strict=True)]


def sow_interval(handler: object, op: Sow, *operands: IntervalOrValue) -> Sequence[IntervalOrValue]:
    """What is sown is the interval."""
    leaves = [as_interval(x) if isinstance(x, (Interval, ComparisonInterval)) else as_array(x) for x in operands]
    arrays, tree = trees.flatten(leaves[0] if op.tree is None else op.tree.unflatten(leaves))
    return bind(evolve(op, tree=tree), *[as_value(cast(Array, a)) for a in arrays])
