"""`scaled_dot`: contractions of narrow floats with block scales."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from attrs import frozen
from typing_extensions import override

from tracefx.core import Array, ArrayLike, DType, DTypeLike, ShapedArray, Value, as_value, dtypes
from tracefx.core.avals import Dimensions
from tracefx.core.handler import bind1
from tracefx.core.primitive import Batchable, BatchDims, Expandable, MappedAxis, Primitive
from tracefx.ops.contractions.contraction import DotDimensionNumbers, DotGeneral
from tracefx.ops.elementwise.arithmetic import mul
from tracefx.ops.operation import require_arity, run_compiled
from tracefx.ops.static_integers import static_ints
from tracefx.ops.structural import batch_first, broadcast_in_dim, convert, full_like_aval, reshape
from tracefx.text.printer import HasJaxParams


@final
@frozen(eq=False)
class ScaledDot(Primitive, Batchable, Expandable, HasJaxParams):
    """Contracts two arrays multiplied by scales in bfloat16: `dot_general(lhs * lhs_scale, rhs * rhs_scale)`.

    Each scale applies to a block of consecutive elements along a contracting axis.

    Args:
        dimension_numbers: `((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))`, tuples of axes.
        preferred_element_type: The dtype of the result.

    `lhs: i32[n, k], rhs: i32[k, m], lhs_scale: i32[n, j], rhs_scale: i32[i, m] -> f32[n, m]`, where `j` and `i` divide
    `k`. Bound by `lax.scaled_dot`.

    >>> from tracefx import bind, dtypes, numpy, ops
    >>> prim = ops.ScaledDot((((1,), (0,)), ((), ())), dtypes.result_type("float32"))
    >>> x, y = numpy.array([[1.0, 2.0]]), numpy.array([[3.0], [4.0]])
    >>> bind(prim, x, y, numpy.array([[10.0]]), numpy.array([[1.0]]))
    [Array([[110.]], dtype=float32)]
    """

    name = "scaled_dot"
    dimension_numbers: tuple[tuple[Dimensions, Dimensions], tuple[Dimensions, Dimensions]]
    preferred_element_type: DType

    @override
    def jax_params(self) -> Mapping[str, object]:
        return {
            "dimension_numbers": self.dimension_numbers,
            "preferred_element_type": self.preferred_element_type,
        }

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        require_arity(self.name, 4, avals)
        operands, scales = avals[:2], avals[2:]
        for side, x, scale, contracted in zip(("lhs", "rhs"), operands, scales, self.dimension_numbers[0], strict=True):
            if x.ndim != operands[0].ndim or scale.ndim != x.ndim:
                raise TypeError(
                    f"scaled_dot: operands and scales must have the same rank, got {', '.join(map(str, avals))}"
                )
            for d, (n, m) in enumerate(zip(x.shape, scale.shape, strict=True)):
                if n != m if d not in contracted else not m or n % m or n // m < 2:
                    raise TypeError(
                        f"scaled_dot: {side}_scale must have the shape of {side}, but be smaller along contracting "
                        f"axes by an integer factor of at least 2; axis {d} has {m} scales for {n} elements"
                    )
        return [self._dot.out_aval(*[ShapedArray(x.shape, dtypes.bfloat16) for x in operands])]

    @property
    def _dot(self) -> DotGeneral:
        return DotGeneral(self.dimension_numbers, None, self.preferred_element_type)

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return run_compiled(self, args)

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        lhs, rhs, *scales = args
        scaled = [
            mul(convert(x, dtypes.bfloat16), convert(_repeated(scale, x.aval.shape), dtypes.bfloat16))
            for x, scale in zip((lhs, rhs), scales, strict=True)
        ]
        return [bind1(self._dot, *scaled)]

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        (lc, rc), (lb, rb) = [[tuple([d + 1 for d in axes]) for axes in pair] for pair in self.dimension_numbers]
        prim = ScaledDot(((lc, rc), ((0, *lb), (0, *rb))), self.preferred_element_type)
        return [bind1(prim, *[batch_first(x, dim, axis) for x, dim in zip(args, dims, strict=True)])], [0]


def _repeated(scale: Value, shape: tuple[int, ...]) -> Array:
    """Returns each scale repeated for all elements of its block."""
    times = [n // m if m else 1 for n, m in zip(shape, scale.aval.shape, strict=True)]
    between = [size for m, k in zip(scale.aval.shape, times, strict=True) for size in (m, k)]
    return reshape(broadcast_in_dim(scale, between, range(0, len(between), 2)), shape)


def scaled_dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    *,
    lhs_scale: ArrayLike | None = None,
    rhs_scale: ArrayLike | None = None,
    dimension_numbers: DotDimensionNumbers | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Returns the contraction of two arrays, each multiplied by its block scales in bfloat16.

    Args:
        lhs: Array.
        rhs: Array of the same rank.
        lhs_scale: Scales of `lhs`, of the same shape, but with one for each block of two or more elements along
            contracting axes. None, the default, means 1.
        rhs_scale: Scales of `rhs`, likewise. None, the default, means 1.
        dimension_numbers: The axes to contract and to map over, as in `dot_general`. None, the default, means the
            matrix product of the last two axes, mapped over the others.
        preferred_element_type: The dtype of the result and of the accumulation. None, the default, means bfloat16.

    Returns:
        An array, with axes as in `dot_general`.

    Raises:
        TypeError: The shapes don't fit, or the rank is less than two without `dimension_numbers`.

    >>> import numpy as np
    >>> scaled_dot(np.ones((1, 4)), np.ones((4, 1)), lhs_scale=np.array([[1, 2]])).tolist()
    [[6.0]]
    """
    x, y = as_value(lhs, "lhs"), as_value(rhs, "rhs")
    if dimension_numbers is None:
        n = x.aval.ndim
        if n < 2:
            raise TypeError(f"scaled_dot: lhs must have two axes or more, or give dimension_numbers, got {x.aval}")
        dimension_numbers = ((n - 1,), (n - 2,)), (tuple(range(n - 2)), tuple(range(n - 2)))
    pairs = [
        [static_ints("scaled_dot", tuple(axes), "dimension_numbers") for axes in pair] for pair in dimension_numbers
    ]
    (lc, rc), (lb, rb) = pairs
    scale_values = [
        _ones(value.aval, contracted) if scale is None else as_value(scale, name)
        for value, scale, contracted, name in ((x, lhs_scale, lc, "lhs_scale"), (y, rhs_scale, rc, "rhs_scale"))
    ]
    new = dtypes.bfloat16
    if preferred_element_type is not None:
        new = dtypes.as_dtype(preferred_element_type, "preferred_element_type")
    return bind1(ScaledDot(((lc, rc), (lb, rb)), new), x, y, *scale_values)


def _ones(operand: ShapedArray, contracted: Dimensions) -> Array:
    """Returns scales of 1, a single one along contracting axes."""
    shape = tuple([1 if d in contracted else n for d, n in enumerate(operand.shape)])
    return full_like_aval(ShapedArray(shape, dtypes.float8_e8m0fnu), 1.0)
