"""The structural primitives that the rules of all other primitives are built from.

`reshape`, `transpose`, `broadcast_in_dim`, `reduce_sum` and `convert_element_type`. Summation and broadcasting are each
other's transpose, and every rule that broadcasts, moves an axis or adapts a shape or dtype uses them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, final, overload

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.bounded_cache import memoize
from tracefx.core import Array, ArrayLike, DType, Literal, NDArray, Shape, ShapedArray, Value, as_value, dtypes
from tracefx.core.avals import NOT_VARYING
from tracefx.core.handler import as_array, bind1
from tracefx.core.host_memory import require_memory
from tracefx.core.literal import cached_literal
from tracefx.core.primitive import Differentiable, MappedAxis, Tangent, UndefinedPrimal, Zero
from tracefx.core.type_sharding import Spec
from tracefx.errors import ShapeError
from tracefx.lowering import Builder, DenseI64Array, IrValue
from tracefx.ops import stablehlo
from tracefx.ops.annotations.reshard import with_type_of
from tracefx.ops.casting import cast, cast_to_integers, convert_host, convert_wide_number
from tracefx.ops.monoids import ADD
from tracefx.ops.operation import (
    DataMovement,
    Domain,
    HasPullback,
    LinearOperation,
    Operation,
    UnaryOperation,
    memoize_aval,
    refuse_keys,
    require_axes,
    specialize_reduce,
    static_shape,
)
from tracefx.ops.sharding_rules import reshaped_spec, without_axes
from tracefx.ops.static_integers import static_ints
from tracefx.text.printer import HasJaxParams

NUMPY_NATIVE_DTYPES: Final = frozenset({dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64})
"""The most common dtypes, which NumPy's reductions preserve on every platform."""


# ------------------------------------------------------------------ convert_element_type


@final
@frozen(eq=False)
class ConvertElementType(Operation, Differentiable, HasPullback):
    """Converts elements to another dtype, or changes only the weak type.

    Floats are truncated towards 0 and clamped to the range of an integer dtype; integers wrap around.

    Args:
        new_dtype: The dtype of the result.
        weak_type: Whether the dtype of the result is weak; False by default.

    `x: f32[...] -> i8[...]`, any dtypes but random keys. Bound by `lax.convert_element_type`.

    >>> from tracefx import bind, dtypes, ops
    >>> bind(ops.ConvertElementType(dtypes.result_type("int32")), 2.5)
    [Array(2, dtype=int32)]
    """

    name = "convert_element_type"
    new_dtype: DType
    weak_type: bool = False

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [avals[0].spec]

    @override
    @memoize_aval("new_dtype", "weak_type")
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        (x,) = avals
        if dtypes.is_key(x.dtype) or dtypes.is_key(self.new_dtype):
            refuse_keys(self.name, x.dtype if dtypes.is_key(x.dtype) else self.new_dtype)
        return ShapedArray(x.shape, self.new_dtype, self.weak_type)

    @override
    def numpy_kernel(self, *avals: ShapedArray) -> Callable[..., NDArray]:
        (x,), dtype = avals, self.new_dtype
        widens = dtypes.itemsize_bits(x.dtype) >= 8 and (dtype in NUMPY_NATIVE_DTYPES and not dtypes.is_integer(dtype))
        if dtype in (dtypes.int32, dtypes.int64) and x.dtype in (dtypes.float32, dtypes.float64):
            least = int(dtypes.iinfo(dtype).min)
            return functools.partial(cast_to_integers, dtype, least) if x.size else self.kernel
        if (dtypes.is_bool(x.dtype) and dtypes.itemsize_bits(dtype) >= 8) or (
            widens and not dtypes.is_complex(x.dtype)
        ):
            return lambda x: x.astype(dtype)
        return self.kernel

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        return cast(args[0], self.new_dtype)

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        out = bind1(self, *primals)
        if not dtypes.is_inexact(self.new_dtype):
            return [out], [Zero(out.aval.tangent())]
        (tangent,) = tangents
        assert not isinstance(tangent, Zero)  # some tangent is not, and it is the only one
        return [out], [bind1(self, tangent)]

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        (x,) = args
        return [match_aval(ct, x.aval)]

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        return bind1(self, *args), dims[0]

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        (x,) = operands
        old, new = x.aval.dtype, self.new_dtype
        if old == new:
            return x
        if dtypes.is_complex(old) and not dtypes.is_complex(new):
            old = dtypes.real_dtype(old)
            (x,) = builder.emit("stablehlo.real", [x], [ShapedArray(x.aval.shape, old)])
        if dtypes.is_bool(new):
            return stablehlo.emit_compare(builder, "NE", x, stablehlo.emit_full(builder, 0, x.aval))
        return builder.emit("stablehlo.convert", [x], [out])[0]


def convert_element_type(operand: ArrayLike, new_dtype: dtypes.DTypeLike) -> Array:
    """Returns `operand` with its elements converted to `new_dtype`.

    Floats outside the range of an integer dtype saturate and NaN becomes 0; integers wrap around; complex numbers lose
    their imaginary parts in real dtypes.

    Args:
        operand: Array or number.
        new_dtype: A dtype, a scalar type or the name of a dtype.

    Returns:
        An array of the same shape. `operand` itself if it has this dtype and is not weakly typed.

    Raises:
        TypeError: `new_dtype` is not a dtype, or either dtype is that of random keys.
        OverflowError: A Python integer of more than 64 bits does not fit `new_dtype`.

    >>> convert_element_type(2.7, "int32")
    Array(2, dtype=int32)
    """
    dtype = dtypes.as_dtype(new_dtype, "new_dtype")
    if type(operand) is int or isinstance(operand, np.generic):
        wide = convert_wide_number(operand, dtype)
        if wide is not None:
            return wide
    return convert(as_value(operand), dtype)


def convert(x: Value, dtype: DType, weak_type: bool = False) -> Array:
    """Returns `x` with another dtype or weak type, or `x` itself if it already has both."""
    if x.aval.dtype == dtype and x.aval.weak_type == weak_type:
        return as_array(x)
    return bind1(_convert(dtype, weak_type), x)


_convert: Final = memoize(1024)(ConvertElementType)


def widen_indices(x: Value) -> Value:
    """Returns integer indices as at least 32 bits, so that sizes of axes are in the range of their dtype."""
    return convert(x, dtypes.int32) if dtypes.itemsize_bits(x.aval.dtype) < 32 else x


@overload
def match_aval(x: Value, aval: ShapedArray) -> Value: ...
@overload
def match_aval(x: Tangent, aval: ShapedArray) -> Tangent: ...
def match_aval(x: Tangent, aval: ShapedArray) -> Tangent:
    """Returns a tangent or cotangent with the shape, dtype and weak type of an aval: broadcasts it, then converts it.

    Args:
        x: A tangent or cotangent: a value or a `Zero`.
        aval: The aval.

    Returns:
        The converted tangent; a `Zero` of this aval for a `Zero`.

    >>> from tracefx.core.avals import ShapedArray
    >>> from tracefx.core.values import as_value
    >>> match_aval(as_value(2.0), ShapedArray((3,), np.dtype("float32")))
    Array([2., 2., 2.], dtype=float32)
    """
    if x.aval is aval or isinstance(x, Zero) or x.aval == aval:
        return x
    if x.aval.shape != aval.shape:
        x = broadcast_to(x, aval.shape)
    return convert_value(x, aval.dtype, aval.weak_type)


@overload
def convert_value(x: Literal, dtype: DType, weak_type: bool) -> Literal: ...
@overload
def convert_value(x: Value, dtype: DType, weak_type: bool) -> Value: ...
def convert_value(x: Value, dtype: DType, weak_type: bool) -> Value:
    """Like `convert`, but converts a literal to a literal without binding a primitive."""
    if isinstance(x, Literal):
        if x.aval.dtype == dtype and x.aval.weak_type == weak_type:
            return x
        return Literal(convert_host(x.numpy(), dtype).item(), ShapedArray((), dtype, weak_type))
    return convert(x, dtype, weak_type)


# ------------------------------------------------------------------ reshape


@final
@frozen(eq=False)
class Reshape(LinearOperation, DataMovement):
    """Gives an array another shape of the same size; elements keep their row-major order.

    Args:
        new_sizes: The shape of the result.

    `x: f32[n, m] -> f32[*new_sizes]`, any dtype. Bound by `lax.reshape`.
    """

    name = "reshape"
    new_sizes: Shape

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [reshaped_spec(self, avals[0], self.new_sizes)]

    @override
    @memoize_aval("new_sizes")
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        (x,) = avals
        if math.prod(self.new_sizes) != x.size:
            raise TypeError(
                f"reshape of {x} to {self.new_sizes}: {x.size} elements do not make {math.prod(self.new_sizes)}"
            )
        return x.update(shape=self.new_sizes)

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        return args[0].reshape(self.new_sizes)

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        return [reshape(ct, args[0].aval.shape)]

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        x = batch_first(args[0], dims[0], axis)
        return reshape(x, (axis.size, *self.new_sizes)), 0

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        return builder.emit("stablehlo.reshape", operands, [out])[0]


def reshape(operand: ArrayLike, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None) -> Array:
    """Returns `operand` with the shape `new_sizes`; elements keep their row-major order.

    Args:
        operand: Array or number.
        new_sizes: The new shape, static integers whose product is the size of `operand`. No entry may be -1.
        dimensions: A permutation of the axes, applied before reshaping. None means no transposition.

    Returns:
        An array of shape `new_sizes`.

    Raises:
        TypeError: The sizes are not static integers, or their product is not the size of `operand`.

    >>> reshape(np.arange(6), (2, 3)).shape
    (2, 3)
    """
    x = as_value(operand) if dimensions is None else transpose(operand, dimensions)
    sizes = static_shape("reshape", new_sizes, "new_sizes")
    return as_array(x) if x.aval.shape == sizes else bind1(_reshape(sizes), x)


_reshape: Final = memoize(4096)(Reshape)


# ------------------------------------------------------------------ transpose


@final
@frozen(eq=False)
class Transpose(UnaryOperation, LinearOperation, DataMovement):
    """Permutes the axes of an array: axis `i` of the result is axis `permutation[i]` of the operand.

    Args:
        permutation: A permutation of the axes.

    `x: f32[n, m, k] -> f32[m, k, n]` with `permutation=(1, 2, 0)`; any dtype. Bound by `lax.transpose`.
    """

    name = "transpose"
    permutation: tuple[int, ...]

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [tuple([avals[0].spec[i] for i in self.permutation])]

    @override
    @memoize_aval("permutation")
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        (x,) = avals
        if sorted(self.permutation) != list(range(x.ndim)):
            raise TypeError(f"transpose: permutation {self.permutation} must name each axis of {x} once")
        return x.update(shape=tuple([x.shape[i] for i in self.permutation]))

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        return args[0].transpose(self.permutation)

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        inverse = sorted(range(len(self.permutation)), key=self.permutation.__getitem__)
        return [transpose(ct, inverse)]

    @override
    def batch_operand(self, axis: MappedAxis, x: Value, dim: int) -> tuple[Value, int | None]:
        return transpose(x, (dim, *[i + (i >= dim) for i in self.permutation])), 0

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        return builder.emit("stablehlo.transpose", operands, [out], {"permutation": DenseI64Array(self.permutation)})[0]


def transpose(operand: ArrayLike, permutation: Sequence[int]) -> Array:
    """Returns `operand` with its axes permuted: axis `i` of the result is axis `permutation[i]` of the operand.

    Args:
        operand: Array.
        permutation: Each axis of `operand` exactly once, as non-negative static integers.

    Returns:
        An array whose shape is that of `operand`, permuted. `operand` itself for the identity.

    Raises:
        TypeError: `permutation` is not a permutation of the axes.

    >>> transpose(np.zeros((2, 3, 5)), (2, 0, 1)).shape
    (5, 2, 3)
    """
    x = as_value(operand)
    order = static_ints("transpose", permutation, "permutation")
    return as_array(x) if order == tuple(range(x.aval.ndim)) else bind1(_transpose(order), x)


_transpose: Final = memoize(4096)(Transpose)


def move_axis(x: Value, source: int, target: int) -> Array:
    """Returns `x` with its axis `source` moved to position `target`; the other axes keep their order."""
    order = [i for i in range(x.aval.ndim) if i != source]
    order.insert(target, source)
    return transpose(x, order)


def batch_first(x: Value, dim: int | None, axis: MappedAxis) -> Array:
    """Returns an operand with its batch axis in front.

    Args:
        x: The operand of a batching rule.
        dim: The position of its batch axis. If it is None, `x` is broadcast along a new one.
        axis: The batch axis.

    Returns:
        An array whose first axis is the batch axis.

    >>> from tracefx.core.primitive import MappedAxis
    >>> from tracefx.core.values import as_value
    >>> batch_first(as_value(np.ones((3, 2))), 1, MappedAxis(2)).shape
    (2, 3)
    >>> batch_first(as_value(1.0), None, MappedAxis(2))
    Array([1., 1.], dtype=float32, weak_type=True)
    """
    if dim is None:
        out = broadcast_in_dim(x, (axis.size, *x.aval.shape), range(1, x.aval.ndim + 1))
        return out if axis.explicit is None else as_array(with_type_of(out, axis.add_to(x.aval, 0)))
    return move_axis(x, dim, 0)


# ------------------------------------------------------------------ broadcast_in_dim


@final
@frozen(eq=False)
class BroadcastInDim(LinearOperation, HasJaxParams, DataMovement):
    """Repeats an array along new axes and along axes of size 1.

    Args:
        shape: The shape of the result.
        broadcast_dimensions: For each axis of the operand, the axis of the result that it becomes, in increasing order.

    `x: f32[n, m] -> f32[n, k, m]` with `broadcast_dimensions=(0, 2)`; any dtype. Bound by `lax.broadcast_in_dim`.
    """

    name = "broadcast_in_dim"
    shape: Shape
    broadcast_dimensions: tuple[int, ...]

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        along = dict(zip(self.broadcast_dimensions, avals[0].spec, strict=True))
        return [tuple([along.get(axis) for axis in range(len(self.shape))])]

    @override
    @memoize_aval("shape", "broadcast_dimensions")
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        (x,) = avals
        dims = self.broadcast_dimensions
        if len(dims) != x.ndim:
            raise TypeError(f"broadcast_in_dim: broadcast_dimensions {dims} must have one entry for each axis of {x}")
        if dims and (list(dims) != sorted(set(dims)) or dims[0] < 0 or dims[-1] >= len(self.shape)):
            raise TypeError(
                f"broadcast_in_dim: broadcast_dimensions {dims} must increase and be axes of shape {self.shape}"
            )
        if dims and any(n not in (1, self.shape[d]) for n, d in zip(x.shape, dims, strict=True)):
            raise ShapeError(
                f"broadcast_in_dim: {x} does not fit {self.shape} at axes {dims}; sizes must agree or be 1"
            )
        return x.update(shape=self.shape)

    @override
    def jax_params(self) -> Mapping[str, object]:
        return {"broadcast_dimensions": self.broadcast_dimensions} if self.broadcast_dimensions else {}

    @override
    def numpy_kernel(self, *avals: ShapedArray) -> Callable[..., NDArray]:
        (x,), shape = avals, self.shape
        return (lambda x: x.reshape(shape)) if x.size == self.out_aval(x).size else self.kernel

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        (x,) = args
        require_memory(self.name, self.shape, x.dtype)
        if (
            x.dtype.kind in _BUFFER_KINDS and x.flags.c_contiguous
        ):  # the same view as `np.broadcast_to`, in an eighth of the time
            strides = [0] * len(self.shape)
            for d, n, stride in zip(self.broadcast_dimensions, x.shape, x.strides, strict=True):
                if n != 1:
                    strides[d] = stride
            return np.ndarray(self.shape, x.dtype, x, 0, strides)
        sizes = [1] * len(self.shape)
        for n, d in zip(x.shape, self.broadcast_dimensions, strict=True):
            sizes[d] = n
        return np.broadcast_to(x.reshape(sizes), self.shape)

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        shape = args[0].aval.shape
        kept = [d for d, n in zip(self.broadcast_dimensions, shape, strict=True) if n == self.shape[d]]
        total = reduce_sum(ct, [d for d in range(len(self.shape)) if d not in kept])
        return [reshape(total, shape)]

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        x = batch_first(args[0], dims[0], axis)
        placed = (0, *[d + 1 for d in self.broadcast_dimensions])
        return broadcast_in_dim(x, (axis.size, *self.shape), placed), 0

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        return stablehlo.emit_broadcast(builder, operands[0], self.shape, self.broadcast_dimensions)


_BUFFER_KINDS: Final = "biufc"
"""The dtype kinds whose NumPy arrays support the buffer protocol."""


def broadcast_in_dim(operand: ArrayLike, shape: Sequence[int], broadcast_dimensions: Sequence[int]) -> Array:
    """Returns `operand` broadcast to `shape`, with its axis `i` at axis `broadcast_dimensions[i]` of the result.

    Args:
        operand: Array or number of rank `k`.
        shape: The shape of the result, as static integers.
        broadcast_dimensions: `k` increasing axes of `shape`. Axis `i` of `operand` must have size 1 or
            `shape[broadcast_dimensions[i]]`.

    Returns:
        An array of shape `shape`.

    Raises:
        TypeError: `broadcast_dimensions` does not have one increasing entry per axis, or sizes don't fit.

    >>> broadcast_in_dim(np.arange(3), (2, 3), (1,)).tolist()
    [[0, 1, 2], [0, 1, 2]]
    """
    x = as_value(operand)
    sizes = static_shape("broadcast_in_dim", shape)
    dims = static_ints("broadcast_in_dim", broadcast_dimensions, "broadcast_dimensions")
    if x.aval.shape == sizes and dims == tuple(range(len(sizes))):
        return as_array(x)
    return bind1(_broadcast_in_dim(sizes, dims), x)


_broadcast_in_dim: Final = memoize(4096)(BroadcastInDim)


def broadcast_to(x: ArrayLike, shape: Shape) -> Array:
    """Returns `x` broadcast to `shape`, with trailing axes aligned as in NumPy."""
    value = as_value(x)
    if value.aval.shape == shape:
        return as_array(value)
    return broadcast_in_dim(value, shape, tuple(range(len(shape) - value.aval.ndim, len(shape))))


def full_like_aval(aval: ShapedArray, fill: bool | int | float | complex) -> Array:
    """Returns an array with the shape, dtype and weak type of `aval`, filled with `fill`."""
    return as_array(constant_like_aval(aval, fill))


def constant_like_aval(aval: ShapedArray, fill: bool | int | float | complex) -> Value:
    """Returns a value of the type `aval` filled with `fill`; a literal if it is a scalar."""
    if not aval.shape:
        return cached_literal(fill, aval.with_vma(NOT_VARYING))
    out = broadcast_in_dim(cached_literal(fill, ShapedArray((), aval.dtype, aval.weak_type)), aval.shape, ())
    return out if aval.explicit_sharding is None else with_type_of(out, aval)


def instantiate(t: Tangent) -> Value:
    """Returns a tangent as a value: zeros for a `Zero`.

    Args:
        t: A tangent or cotangent: a value or a `Zero`.

    Returns:
        The value.

    >>> from tracefx.core.primitive import Zero
    >>> from tracefx.core.values import as_value
    >>> instantiate(Zero(as_value(2.0).aval))
    Literal(val=0, aval=f32[]*)
    """
    return constant_like_aval(t.aval, 0) if isinstance(t, Zero) else t


# ------------------------------------------------------------------ reduce_sum


@final
@frozen(eq=False)
class ReduceSum(UnaryOperation, LinearOperation):
    """Sums over axes. Its transpose is `BroadcastInDim`.

    Args:
        axes: The axes to sum over; the result does not have them.

    `x: f32[n, m, k] -> f32[m]` with `axes=(0, 2)`; numbers. Bound by `lax.reduce_sum`.

    >>> from tracefx import bind, numpy, ops
    >>> bind(ops.ReduceSum((1,)), numpy.array([[1, 2], [3, 4]]))
    [Array([3, 7], dtype=int32)]
    """

    name = "reduce_sum"
    axes: tuple[int, ...]

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [without_axes(avals[0].spec, self.axes)]

    @override
    @memoize_aval("axes")
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        (x,) = avals
        require_axes("reduce_sum", self.axes, x.ndim)
        _SUMMABLE.require("reduce_sum", x)
        return x.update(shape=tuple([n for i, n in enumerate(x.shape) if i not in self.axes]))

    @override
    def numpy_kernel(self, *avals: ShapedArray) -> Callable[..., NDArray]:
        (x,) = avals
        if x.dtype not in NUMPY_NATIVE_DTYPES or self.out_aval(x).size == x.size:
            return self.kernel
        return specialize_reduce(np.add.reduce, self.axes, x.ndim)

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        (x,) = args
        narrow = dtypes.is_float(x.dtype) and x.dtype.itemsize < 4
        total = np.asarray(np.add.reduce(x, self.axes, np.float32 if narrow else x.dtype))
        if total.size == x.size:  # the sum of one -0.0 is -0.0, but NumPy returns 0.0
            return x.reshape(total.shape)
        return total.astype(x.dtype) if narrow else total

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        shape = args[0].aval.shape
        return [broadcast_in_dim(ct, shape, [i for i in range(len(shape)) if i not in self.axes])]

    @override
    def batch_operand(self, axis: MappedAxis, x: Value, dim: int) -> tuple[Value, int | None]:
        axes = [i + (i >= dim) for i in self.axes]
        return reduce_sum(x, axes), dim - sum(a < dim for a in axes)

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        (x,) = operands
        if not dtypes.is_float(out.dtype) or out.dtype.itemsize > 1:
            return ADD.emit_reduce(builder, x, self.axes)
        # XLA accumulates wider floats in float32, but would round 8-bit floats after every addition.
        (wide,) = builder.emit("stablehlo.convert", [x], [x.aval.update(dtype=dtypes.float32)])
        return builder.emit("stablehlo.convert", [ADD.emit_reduce(builder, wide, self.axes)], [out])[0]


_SUMMABLE: Final = Domain("numbers", lambda d: not dtypes.is_bool(d))


_reduce_sum: Final = memoize(4096)(ReduceSum)


def reduce_sum(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Returns the sum of `operand` over `axes`.

    Args:
        operand: Array of numbers (not booleans).
        axes: Distinct non-negative axes. With none, `operand` is returned.

    Returns:
        An array without these axes, of the same dtype. Narrow floats are accumulated in float32.

    Raises:
        AxisError: An axis is out of range or repeated.
        TypeError: `operand` is boolean.

    >>> reduce_sum(np.ones((2, 3)), (1,))
    Array([3., 3.], dtype=float32)
    """
    if axes:
        return bind1(_reduce_sum(static_ints("reduce_sum", axes, "axes")), operand)
    x = as_array(operand)
    _SUMMABLE.require("reduce_sum", x.aval)
    return x
