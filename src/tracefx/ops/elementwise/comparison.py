"""Elementwise comparisons of two operands of one dtype. The result is boolean; a NaN is unequal to everything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, final

import numpy as np
from typing_extensions import override

from tracefx.core import Array, ArrayLike, DType, ShapedArray, Value, dtypes
from tracefx.core.key_data import key_data_aval
from tracefx.lowering import Builder, IrValue
from tracefx.ops import stablehlo
from tracefx.ops.elementwise.elementwise import NonDifferentiable, bind_binary
from tracefx.ops.monoids import AND, OR
from tracefx.ops.operation import ANY, Domain, run_compiled

ORDERED: Final = Domain(
    "booleans, integers or floats", lambda d: dtypes.is_bool(d) or dtypes.is_integer(d) or dtypes.is_float(d)
)


class Comparison(NonDifferentiable):
    """An elementwise comparison, with a boolean output.

    Comparisons with NaN are False, but `x != y` is True.

    >>> from tracefx import bind, numpy, ops
    >>> bind(ops.Lt(), numpy.array([1.0, 2.0]), 2.0)
    (Array([ True, False], dtype=bool),)
    """

    __slots__ = ()
    arity = 2
    direction: ClassVar[str]

    @override
    def out_dtype(self, dtype: DType) -> DType:
        return dtypes.bool_

    @override
    def _evaluate_slow_path(self, args: Sequence[Value]) -> Sequence[Value]:
        if any(dtypes.is_key(x.aval.dtype) for x in args):  # no ufunc takes keys
            return run_compiled(self, args)
        return super()._evaluate_slow_path(args)

    @override
    def emit_elementwise(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        x, y = operands
        if not dtypes.is_key(x.aval.dtype):
            return stablehlo.emit_compare(builder, self.direction, x, y)
        # Keys are equal where all their words are.
        words = key_data_aval(x.aval)
        alike = stablehlo.emit_compare(
            builder, self.direction, *[builder.retype_keys(each, words) for each in operands]
        )
        return (AND if self.direction == "EQ" else OR).emit_reduce(builder, alike, (words.ndim - 1,))


@final
class Eq(Comparison):
    """Equality, elementwise: `x == y`.

    `x: f32[...], y: f32[...] -> bool[...]`, any dtype, random keys included. Bound by `lax.eq`.
    """

    name = "eq"
    direction = "EQ"
    domain = ANY
    ufunc = np.equal


@final
class Ne(Comparison):
    """Inequality, elementwise: `x != y`.

    `x: f32[...], y: f32[...] -> bool[...]`, any dtype, random keys included. Bound by `lax.ne`.
    """

    name = "ne"
    direction = "NE"
    domain = ANY
    ufunc = np.not_equal


@final
class Lt(Comparison):
    """Whether `x` is less, elementwise: `x < y`.

    `x: f32[...], y: f32[...] -> bool[...]`, booleans, integers or floats. Bound by `lax.lt`.
    """

    name = "lt"
    direction = "LT"
    domain = ORDERED
    ufunc = np.less


@final
class Le(Comparison):
    """Whether `x` is less or equal, elementwise: `x <= y`.

    `x: f32[...], y: f32[...] -> bool[...]`, booleans, integers or floats. Bound by `lax.le`.
    """

    name = "le"
    direction = "LE"
    domain = ORDERED
    ufunc = np.less_equal


@final
class Gt(Comparison):
    """Whether `x` is greater, elementwise: `x > y`.

    `x: f32[...], y: f32[...] -> bool[...]`, booleans, integers or floats. Bound by `lax.gt`.
    """

    name = "gt"
    direction = "GT"
    domain = ORDERED
    ufunc = np.greater


@final
class Ge(Comparison):
    """Whether `x` is greater or equal, elementwise: `x >= y`.

    `x: f32[...], y: f32[...] -> bool[...]`, booleans, integers or floats. Bound by `lax.ge`.
    """

    name = "ge"
    direction = "GE"
    domain = ORDERED
    ufunc = np.greater_equal


EQ: Final = Eq()
NE: Final = Ne()
LT: Final = Lt()
LE: Final = Le()
GT: Final = Gt()
GE: Final = Ge()


def eq(x: ArrayLike, y: ArrayLike) -> Array:
    """Returns `x == y`, elementwise.

    Args:
        x: Array or number of any dtype, random keys included.
        y: Array or number of the same dtype. Scalars and axes of size 1 are broadcast.

    Returns:
        A boolean array of the broadcast shape.

    Raises:
        TypeError: The dtypes differ or the shapes don't broadcast.

    >>> eq(np.arange(3), 1).tolist()
    [False, True, False]
    """
    return bind_binary(EQ, x, y)


def ne(x: ArrayLike, y: ArrayLike) -> Array:
    """Returns `x != y`, elementwise.

    Args:
        x: Array or number of any dtype, random keys included.
        y: Array or number of the same dtype. Scalars and axes of size 1 are broadcast.

    Returns:
        A boolean array of the broadcast shape.

    Raises:
        TypeError: The dtypes differ or the shapes don't broadcast.

    >>> ne(np.arange(3), 1).tolist()
    [True, False, True]
    """
    return bind_binary(NE, x, y)


def lt(x: ArrayLike, y: ArrayLike) -> Array:
    """Returns `x < y`, elementwise.

    Args:
        x: Array or number; not complex, as complex numbers have no order.
        y: Array or number of the same dtype. Scalars and axes of size 1 are broadcast.

    Returns:
        A boolean array of the broadcast shape.

    Raises:
        TypeError: The dtypes differ, the shapes don't broadcast, or the operands are complex.

    >>> lt(np.arange(3), 1).tolist()
    [True, False, False]
    """
    return bind_binary(LT, x, y)


def le(x: ArrayLike, y: ArrayLike) -> Array:
    """Returns `x <= y`, elementwise.

    Args:
        x: Array or number; not complex, as complex numbers have no order.
        y: Array or number of the same dtype. Scalars and axes of size 1 are broadcast.

    Returns:
        A boolean array of the broadcast shape.

    Raises:
        TypeError: The dtypes differ, the shapes don't broadcast, or the operands are complex.

    >>> le(np.arange(3), 1).tolist()
    [True, True, False]
    """
    return bind_binary(LE, x, y)


def gt(x: ArrayLike, y: ArrayLike) -> Array:
    """Returns `x > y`, elementwise.

    Args:
        x: Array or number; not complex, as complex numbers have no order.
        y: Array or number of the same dtype. Scalars and axes of size 1 are broadcast.

    Returns:
        A boolean array of the broadcast shape.

    Raises:
        TypeError: The dtypes differ, the shapes don't broadcast, or the operands are complex.

    >>> gt(np.arange(3), 1).tolist()
    [False, False, True]
    """
    return bind_binary(GT, x, y)


def ge(x: ArrayLike, y: ArrayLike) -> Array:
    """Returns `x >= y`, elementwise.

    Args:
        x: Array or number; not complex, as complex numbers have no order.
        y: Array or number of the same dtype. Scalars and axes of size 1 are broadcast.

    Returns:
        A boolean array of the broadcast shape.

    Raises:
        TypeError: The dtypes differ, the shapes don't broadcast, or the operands are complex.

    >>> ge(np.arange(3), 1).tolist()
    [False, True, True]
    """
    return bind_binary(GE, x, y)
