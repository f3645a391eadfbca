"""`LaplacianArray`, a value with its Jacobian and Laplacian, and the arithmetic that the rules use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias, final

from attrs import evolve, field, frozen

from tracefx.core import DType, Shape, ShapedArray, Value, dtypes
from tracefx.core.primitive import Tangent, Zero
from tracefx.ops.elementwise.arithmetic import mul
from tracefx.ops.elementwise.comparison import eq
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.elementwise.selection import select_with_aval
from tracefx.ops.shape.array_creation import broadcasted_iota
from tracefx.ops.shape.slicing import pad
from tracefx.ops.structural import (
    broadcast_in_dim,
    broadcast_to,
    constant_like_aval,
    convert,
    move_axis,
    reduce_sum,
    reshape,
)
from tracefx.pytrees import trees


@final
@trees.register_dataclass
@frozen(eq=False)
class LaplacianArray:
    """A value `f32[*s]`, its derivatives by `size` inputs and its Laplacian, the sum of its second derivatives.

    The Jacobian has one of three layouts:

    - dense: `f32[size, *s]`;
    - diagonal: element `i` of the flattened array depends on input `diagonal_offset + i` only, and `jacobian` is that
      one derivative, `f32[*s]`;
    - block diagonal: each row along the first axis depends on its own `b` inputs only, the same number for each row,
      and `jacobian` has the derivatives by these, `f32[b, *s]`.

    Attributes:
        value: the value.
        jacobian: its derivatives.
        laplacian: its Laplacian; None if it is known to be zero.
        size: the number of inputs.
        diagonal_offset: the first input of a diagonal Jacobian; None for the other layouts.
        is_block_diagonal: whether the Jacobian is block diagonal.
        has_inputs_last: whether a dense Jacobian has the inputs as its last axis, `f32[*s, size]`, as in loops, which
            slice values along the first axis.
    """

    value: Value
    jacobian: Value
    laplacian: Value | None
    size: int = field(metadata={"static": True})
    diagonal_offset: int | None = field(default=None, metadata={"static": True})
    is_block_diagonal: bool = field(default=False, metadata={"static": True})
    has_inputs_last: bool = field(default=False, metadata={"static": True})

    @property
    def shape(self) -> Shape:
        """The shape of the value."""
        return self.value.aval.shape

    @property
    def layout(self) -> tuple[int | None, bool]:
        """The layout of the Jacobian, except for `has_inputs_last`."""
        return self.diagonal_offset, self.is_block_diagonal


LaplacianOrValue: TypeAlias = LaplacianArray | Value


DENSE_LAYOUT: Final = (None, False)


def laplacian_array(
    value: Value, jacobian: Value, laplacian: Value | None, size: int, form: tuple[int | None, bool] = DENSE_LAYOUT
) -> LaplacianArray:
    """Returns a `LaplacianArray` with derivatives in the dtype of the value."""
    dtype = value.aval.dtype
    lap = None if laplacian is None else convert_to(laplacian, dtype)
    return LaplacianArray(value, convert_to(jacobian, dtype), lap, size, *form)


def convert_to(x: Value, dtype: DType) -> Value:
    return x if x.aval.dtype is dtype else convert(x, dtype, x.aval.weak_type)


def primal_of(x: LaplacianOrValue) -> Value:
    return x.value if isinstance(x, LaplacianArray) else x


def constant_laplacian_array(x: Value, size: int) -> LaplacianArray:
    """Returns a value that does not depend on the inputs."""
    return LaplacianArray(x, constant_like_aval(ShapedArray((size, *x.aval.shape), x.aval.dtype), 0), None, size)


def seed_laplacian_array(x: Value, start: int, size: int) -> LaplacianArray:
    """Returns an input array, whose elements are the inputs from number `start` on."""
    return LaplacianArray(x, constant_like_aval(x.aval.tangent(), 1), None, size, start)


# ------------------------------------------------------------------ layouts


def to_dense(x: LaplacianArray) -> LaplacianArray:
    """Returns the same array with a dense Jacobian."""
    if x.is_block_diagonal:
        return evolve(x, jacobian=expand_block_diagonal(x.jacobian), is_block_diagonal=False)
    if x.diagonal_offset is None:
        return x
    shape = (x.size, *x.shape)
    indices = reshape(broadcasted_iota(dtypes.int32, (x.value.aval.size,), 0), x.shape)
    own = eq(broadcast_to(add(indices, x.diagonal_offset), shape), broadcasted_iota(dtypes.int32, shape, 0))
    return evolve(x, jacobian=_mask_jacobian(own, broadcast_to(x.jacobian, shape)), diagonal_offset=None)


def to_block_diagonal(x: LaplacianArray) -> LaplacianArray | None:
    """Returns the same array with a block diagonal Jacobian, or None if it has no such form."""
    if x.is_block_diagonal:
        return x
    shape = x.shape
    if x.diagonal_offset != 0 or len(shape) < 2 or x.value.aval.size != x.size or not x.size:
        return None
    count = x.size // shape[0]
    indices = reshape(broadcasted_iota(dtypes.int32, (count,), 0), shape[1:])
    full = (count, *shape)
    own = eq(broadcast_to(indices, full), broadcasted_iota(dtypes.int32, full, 0))
    return evolve(
        x, jacobian=_mask_jacobian(own, broadcast_to(x.jacobian, full)), diagonal_offset=None, is_block_diagonal=True
    )


def expand_block_diagonal(jac: Value) -> Value:
    """Converts block diagonal derivatives `f32[b, n, ...]`, with `n` rows, to dense ones, `f32[n * b, ...]`."""
    b, n, *others = jac.aval.shape
    full = (n, b, n, *others)
    own = eq(broadcasted_iota(dtypes.int32, full, 0), broadcasted_iota(dtypes.int32, full, 2))
    return reshape(_mask_jacobian(own, broadcast_to(jac, full)), (n * b, n, *others))


def embed_diagonal_blocks(x: Value, axis: int, among: bool = False) -> Value:
    """Adds an axis to `x` at `axis` and puts row `x[i]` at `[i, ..., i, ...]`, with zeros elsewhere.

    With `among`, does the inverse: extracts the elements with equal indices on axes 0 and `axis`.
    """
    if among:
        shape = x.aval.shape
        own = eq(broadcasted_iota(dtypes.int32, shape, 0), broadcasted_iota(dtypes.int32, shape, axis))
        return reduce_sum(_mask_jacobian(own, x), (axis,))
    shape = (*x.aval.shape[:axis], x.aval.shape[0], *x.aval.shape[axis:])
    full = broadcast_in_dim(x, shape, [d for d in range(len(shape)) if d != axis])
    own = eq(broadcasted_iota(dtypes.int32, shape, 0), broadcasted_iota(dtypes.int32, shape, axis))
    return _mask_jacobian(own, full)


def _mask_jacobian(own: Value, slopes: Value) -> Value:
    return select_with_aval(own, slopes, 0, slopes.aval)


def inputs_first(x: LaplacianArray) -> LaplacianArray:
    return evolve(x, jacobian=move_axis(x.jacobian, len(x.shape), 0), has_inputs_last=False) if x.has_inputs_last else x


def inputs_last(x: LaplacianArray) -> LaplacianArray:
    """Returns the form that goes through loops: dense, with the inputs as the last axis."""
    if x.has_inputs_last:
        return x
    x = to_dense(x)
    return evolve(x, jacobian=move_axis(x.jacobian, 0, len(x.shape)), has_inputs_last=True)


def broadcast_scalar(x: LaplacianOrValue, shape: Shape) -> LaplacianOrValue:
    """Broadcasts a scalar operand of an elementwise operation to a shape."""
    if not isinstance(x, LaplacianArray) or x.shape == shape:
        return x
    full = to_dense(x)
    lap = None if full.laplacian is None else broadcast_to(full.laplacian, shape)
    jac = broadcast_in_dim(full.jacobian, (x.size, *shape), (0,))
    return LaplacianArray(broadcast_to(full.value, shape), jac, lap, x.size)


def to_common_layout(x: LaplacianArray, y: LaplacianArray) -> tuple[LaplacianArray, LaplacianArray]:
    """Returns both with Jacobians in one layout."""
    x, y = all_to_common_layout([x, y])
    return x, y


def all_to_common_layout(xs: Sequence[LaplacianArray]) -> list[LaplacianArray]:
    """Returns all with Jacobians in one layout: block diagonal if possible, otherwise dense."""
    if len({(x.layout, x.shape) for x in xs}) == 1:
        return list(xs)
    rows = [to_block_diagonal(x) for x in xs]
    available = [x for x in rows if x is not None]
    return available if len(available) == len(xs) and len({x.shape for x in xs}) == 1 else [to_dense(x) for x in xs]


def pad_inputs(x: Value, start: int, size: int) -> Value:
    """Returns derivatives `f32[n, *s]` by the inputs from `start` on as `f32[size, *s]`, padded with zeros."""
    shape = x.aval.shape
    after = size - start - shape[0]
    return pad(x, 0, [(start, after, 0), *[(0, 0, 0)] * (len(shape) - 1)]) if start or after else x


# ------------------------------------------------------------------ arithmetic


def broadcast_factor(x: Value, y: LaplacianArray) -> Value:
    """Broadcasts a factor (a scalar or one number per element) to the Jacobian of `y`."""
    return (
        x
        if y.diagonal_offset is not None or not x.aval.shape
        else broadcast_to(x, (y.jacobian.aval.shape[0], *x.aval.shape))
    )


def scale_jacobian(factor: Value, x: LaplacianArray) -> Value:
    """Returns a factor (a scalar or one number per element) times the Jacobian of `x`, in its layout."""
    return mul(broadcast_factor(factor, x), x.jacobian)


def jacobian_inner_product(x: LaplacianArray, y: LaplacianArray) -> Value:
    """Returns the sum over inputs of the products of derivatives; both Jacobians must have one layout."""
    products = mul(x.jacobian, y.jacobian)
    return products if x.diagonal_offset is not None else reduce_sum(products, (0,))


def add_or_zero(x: Value | None, y: Value | None) -> Value | None:
    if x is None:
        return y
    return x if y is None else add(x, y)


def mul_or_zero(x: Value, y: Value | None) -> Value | None:
    return None if y is None else mul(x, y)


def tangent_or_none(t: Tangent) -> Value | None:
    return None if isinstance(t, Zero) else t
