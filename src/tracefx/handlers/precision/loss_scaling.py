"""Loss scales, which keep `float16` gradients within the range of the dtype."""

from __future__ import annotations

import functools
from typing import Final, TypeVar, final

from attrs import evolve, field, frozen

from tracefx.core import Array, ArrayLike, ShapedArray, Value, as_value, dtypes, is_arraylike
from tracefx.core.handler import as_array
from tracefx.ops.elementwise.arithmetic import div, max, mul
from tracefx.ops.elementwise.bitwise import bitwise_and
from tracefx.ops.elementwise.comparison import ge
from tracefx.ops.elementwise.complex import is_finite
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.elementwise.selection import select_with_aval
from tracefx.ops.reductions.reduction import reduce_and
from tracefx.ops.structural import constant_like_aval, convert
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree

T = TypeVar("T")
_SCALE_AVAL: Final = ShapedArray((), dtypes.float32)
_COUNT_AVAL: Final = ShapedArray((), dtypes.int32)


def _as_dtype_of(x: ArrayLike, aval: ShapedArray) -> Array:
    """Converts a number of a loss scale to a strong dtype, so that its type is the same in every step."""
    return convert(as_value(x), aval.dtype)


def _scale_floats(tree: T, scale: ArrayLike, what: str) -> T:
    """Multiplies the inexact leaves of a pytree by a number, in their own dtypes; other leaves are unchanged."""

    def one(leaf: object) -> object:
        if not is_arraylike(leaf):
            raise TypeError(f"{what} must be a tree of arrays, got {leaf!r} in it")
        x = as_value(leaf)
        if not dtypes.is_inexact(x.aval.dtype):
            return leaf
        return mul(x, convert(as_value(scale), x.aval.dtype))

    out: T = trees.map(one, tree)
    return out


@final
@trees.register_dataclass
@frozen(eq=False)
class StaticLossScale:
    """A constant loss scale: a pytree with the methods of `DynamicLossScale`.

    Attributes:
        value: the scale.

    >>> StaticLossScale(1024.0).unscale({"w": 2048.0})
    {'w': Array(2., dtype=float32)}
    """

    value: ArrayLike

    def scale(self, loss: T) -> T:
        """Returns a loss, or a pytree of losses, times the scale.

        Args:
            loss: A floating-point array, or a pytree of such arrays.

        Returns:
            A pytree of the same structure and types.
        """
        return _scale_floats(loss, self.value, "StaticLossScale: the loss")

    def unscale(self, grads: T) -> T:
        """Returns the gradients of a scaled loss divided by the scale.

        Args:
            grads: A pytree of gradients. Leaves that are not floating-point are returned unchanged.

        Returns:
            A pytree of the same structure and types.
        """
        return _scale_floats(grads, div(1.0, _as_dtype_of(self.value, _SCALE_AVAL)), "StaticLossScale: gradients")

    def adjust(self, finite: ArrayLike) -> StaticLossScale:
        """Returns the same scale.

        Args:
            finite: Whether all gradients of this step were finite; it has no effect.

        Returns:
            The scale itself.
        """
        return self


@final
@trees.register_dataclass
@frozen(eq=False)
class DynamicLossScale:
    """A loss scale that shrinks after non-finite gradients and grows after a long run of finite ones.

    After a step with non-finite gradients it is divided by `factor`, but not below `minimum`; after `period`
    consecutive steps with finite gradients it is multiplied by `factor`. It is a pytree of two arrays, `value` and
    `steps`, that compiled functions and loops can take and return.

    Attributes:
        value: the scale, `f32[]`.
        steps: the number of consecutive steps with finite gradients, `i32[]`.
        period: the number of finite steps before the scale grows.
        factor: the factor of every change.
        minimum: the smallest scale.

    Raises:
        ValueError: if `period` is below 1 or `factor` is not greater than 1.

    >>> scale = DynamicLossScale(2.0**15, period=2)
    >>> scale.adjust(False).value, scale.adjust(True).adjust(True).value
    (Array(16384., dtype=float32), Array(65536., dtype=float32))
    """

    value: ArrayLike = 2.0**15
    steps: ArrayLike = 0
    period: int = field(default=2000, kw_only=True, metadata={"static": True})
    factor: float = field(default=2.0, kw_only=True, metadata={"static": True})
    minimum: float = field(default=1.0, kw_only=True, metadata={"static": True})

    def __attrs_post_init__(self) -> None:
        if type(self.period) is not int or self.period < 1:
            raise ValueError(f"DynamicLossScale: period must be a positive integer, got {self.period!r}")
        if not self.factor > 1:
            raise ValueError(f"DynamicLossScale: factor must be greater than 1, got {self.factor!r}")

    def scale(self, loss: T) -> T:
        """Returns a loss, or a pytree of losses, times the scale.

        Args:
            loss: A floating-point array, or a pytree of such arrays.

        Returns:
            A pytree of the same structure and types.
        """
        return _scale_floats(loss, self.value, "DynamicLossScale: the loss")

    def unscale(self, grads: T) -> T:
        """Returns the gradients of a scaled loss divided by the scale.

        Args:
            grads: A pytree of gradients. Leaves that are not floating-point are returned unchanged.

        Returns:
            A pytree of the same structure and types.
        """
        return _scale_floats(grads, div(1.0, _as_dtype_of(self.value, _SCALE_AVAL)), "DynamicLossScale: gradients")

    def adjust(self, finite: ArrayLike) -> DynamicLossScale:
        """Returns the scale for the next step.

        Args:
            finite: whether all gradients of this step were finite, a `bool[]`.

        Returns:
            A new scale of the same structure, so that it can be a carry of `scan`.
        """
        is_finite_step = _boolean_scalar(finite, "DynamicLossScale.adjust: finite")
        value, steps = _as_dtype_of(self.value, _SCALE_AVAL), add(_as_dtype_of(self.steps, _COUNT_AVAL), 1)
        due = ge(steps, self.period)
        larger = mul(value, self.factor)
        grown = select_with_aval(bitwise_and(due, is_finite(larger)), larger, value, _SCALE_AVAL)
        smaller = max(div(value, self.factor), self.minimum)
        new_steps = select_with_aval(
            bitwise_and(is_finite_step, select_with_aval(due, False, True, due.aval)), steps, 0, _COUNT_AVAL
        )
        return evolve(self, value=select_with_aval(is_finite_step, grown, smaller, _SCALE_AVAL), steps=new_steps)


def _boolean_scalar(x: ArrayLike, what: str) -> Value:
    value = as_value(x)
    if value.aval.shape or not dtypes.is_bool(value.aval.dtype):
        raise TypeError(f"{what} must be a boolean scalar, got {x!r}")
    return value


def all_finite(tree: PyTree) -> Array:
    """Returns whether all numbers in a pytree of real arrays are finite.

    Args:
        tree: a pytree of arrays. Integers and booleans count as finite.

    Returns:
        A `bool[]`.

    Raises:
        TypeError: if a leaf is complex or not an array.

    >>> bool(all_finite({"w": [1.0, 2.0], "b": float("nan")}))
    False
    """
    conditions: list[Value] = []
    for leaf in trees.leaves(tree):
        if not is_arraylike(leaf):
            raise TypeError(f"all_finite takes a tree of arrays, got {leaf!r} in it")
        x = as_value(leaf)
        if dtypes.is_float(x.aval.dtype):
            conditions.append(reduce_and(is_finite(x), range(x.aval.ndim)))
        elif dtypes.is_complex(x.aval.dtype):
            raise TypeError(f"all_finite takes numbers that are not complex, got {x.aval}; take their abs")
    return as_array(functools.reduce(bitwise_and, conditions, constant_like_aval(ShapedArray((), dtypes.bool_), True)))


def select_tree(pred: ArrayLike, on_true: T, on_false: T) -> T:
    """Returns `on_true` if `pred` is true, otherwise `on_false`, without branching.

    `select_tree(finite, new, old)` undoes a training step with non-finite gradients.

    Args:
        pred: a `bool[]`.
        on_true: a pytree of arrays.
        on_false: a pytree of arrays of the same shapes and dtypes.

    Returns:
        A pytree like both.

    Raises:
        TypeError: if `pred` is not a boolean scalar, or leaves differ in shape or dtype.

    >>> select_tree(True, {"w": 1.0}, {"w": 2.0})
    {'w': Array(1., dtype=float32, weak_type=True)}
    """
    condition = _boolean_scalar(pred, "select_tree: pred")

    def one(x: ArrayLike, y: ArrayLike) -> Array:
        a, b = as_value(x), as_value(y)
        if (a.aval.shape, a.aval.dtype) != (b.aval.shape, b.aval.dtype):
            raise TypeError(f"select_tree: on_true has {a.aval} where on_false has {b.aval}")
        weak = a.aval.weak_type and b.aval.weak_type
        aval = ShapedArray(a.aval.shape, a.aval.dtype, weak)
        return select_with_aval(condition, convert(a, aval.dtype, weak), convert(b, aval.dtype, weak), aval)

    out: T = trees.map(one, on_true, on_false)
    return out
