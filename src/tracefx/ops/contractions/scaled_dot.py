"""Contractions of narrow floats that share their exponents: `scaled_dot`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from attrs import frozen
from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import DType, DTypeLike
from tracefx.core.handler import bind1
from tracefx.core.primitive import Batchable, Expandable, MappedAxis, Primitive
from tracefx.core.values import Value, as_value
from tracefx.ops.contractions.contraction import Dimensions, DotDimensionNumbers, DotGeneral
from tracefx.ops.elementwise.arithmetic import mul
from tracefx.ops.operation import arity_error, run_compiled
from tracefx.ops.static_integers import static_ints
from tracefx.ops.structural import batch_first, broadcast_in_dim, convert, full_like_aval, reshape
from tracefx.text.printer import HasJaxParams


@final
@frozen(eq=False)
class ScaledDot(Primitive, Batchable, Expandable, HasJaxParams):
    """Operands are `lhs`, `rhs`, and the scales of each, of which several elements along a contracted axis have one."""

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
        if len(avals) != 4:
            raise arity_error(self.name, 4, len(avals))
        operands, scales = avals[:2], avals[2:]
        for side, x, scale, contracted in zip(("lhs", "rhs"), operands, scales, self.dimension_numbers[0], strict=True):
            if x.ndim != operands[0].ndim or scale.ndim != x.ndim:
                raise TypeError(
                    "scaled_dot: operands and scales must have the same number of axes, got "
                    f"{', '.join(map(str, avals))}"
                )
            for d, (n, m) in enumerate(zip(x.shape, scale.shape, strict=True)):
                if n != m if d not in contracted else not m or n % m or n // m < 2:
                    raise TypeError(
                        f"scaled_dot: {side}_scale must be as large as {side}, and along contracted axes smaller by a "
                        f"whole factor of at least 2, but axis {d} has {m} scales for {n} elements"
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
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        (lc, rc), (lb, rb) = [[tuple([d + 1 for d in axes]) for axes in pair] for pair in self.dimension_numbers]
        prim = ScaledDot(((lc, rc), ((0, *lb), (0, *rb))), self.preferred_element_type)
        return [bind1(prim, *[batch_first(x, dim, axis) for x, dim in zip(args, dims, strict=True)])], [0]


def _repeated(scale: Value, shape: tuple[int, ...]) -> Array:
    """Each scale as often as there are elements that have it."""
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
    """The contraction of two arrays, each times its scales, in bfloat16.

    Scales have the shape of their array, but along contracted axes one for two or more elements in a row. Without
    `dimension_numbers` it is the matrix product of the last two axes, mapped over the others. The result is
    `bfloat16`, or `preferred_element_type`, in which it is summed too.

    Raises TypeError where shapes don't fit, and for arrays of fewer than two axes without `dimension_numbers`.

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
    given = [
        _ones(value.aval, contracted) if scale is None else as_value(scale, name)
        for value, scale, contracted, name in ((x, lhs_scale, lc, "lhs_scale"), (y, rhs_scale, rc, "rhs_scale"))
    ]
    new = dtypes.bfloat16
    if preferred_element_type is not None:
        new = dtypes.as_dtype(preferred_element_type, "preferred_element_type")
    return bind1(ScaledDot(((lc, rc), (lb, rb)), new), x, y, *given)


def _ones(operand: ShapedArray, contracted: Dimensions) -> Array:
    """One scale for all that is summed."""
    shape = tuple([1 if d in contracted else n for d, n in enumerate(operand.shape)])
    return full_like_aval(ShapedArray(shape, dtypes.float8_e8m0fnu), 1.0)
