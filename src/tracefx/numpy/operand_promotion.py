"""Operand promotion: converts what users pass to operands of one dtype and one shape.

Array functions take arrays, NumPy arrays and Python numbers of any dtypes whose shapes broadcast. Operations take
operands of one dtype whose shapes are equal or empty. A Python number becomes a literal of the promoted dtype, so
no program converts a constant.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias, TypeGuard, final

import numpy as np
from attrs import frozen

from tracefx.bounded_cache import memoize
from tracefx.core import (
    Array,
    ArrayLike,
    DType,
    Literal,
    NDArray,
    Scalar,
    Shape,
    ShapedArray,
    Value,
    as_value,
    dtypes,
    to_numpy,
)
from tracefx.core.kernel_context import call_kernel
from tracefx.core.literal import cache_literals
from tracefx.errors import BroadcastError
from tracefx.ops.casting import convert_host
from tracefx.ops.elementwise.comparison import ne
from tracefx.ops.promotion import promote
from tracefx.ops.structural import broadcast_to, convert
from tracefx.settings import NUMERIC_OPTIONS, X64, RankPromotion

_PYTHON_SCALARS: Final = frozenset({bool, int, float, complex})
OperandType: TypeAlias = ShapedArray | type
"""What promotion depends on: the aval of an array, or the type of a Python number."""


@final
@frozen(eq=False)
class PromotedType:
    """The result of promoting operands: dtype, weak type, broadcast shape, and the aval and Python type of scalars."""

    dtype: DType
    weak: bool
    shape: Shape
    number: ShapedArray
    kind: type[Scalar]


def promote_pair(name: str, x1: ArrayLike, x2: ArrayLike) -> Sequence[Value]:
    """Returns two operands in their promoted dtype, each scalar or of the broadcast shape.

    Raises TypeError (naming the argument) for what is not an array or number, TypePromotionError and BroadcastError.
    """
    if isinstance(x1, Array):
        aval = x1.aval
        if isinstance(x2, Array):
            if aval is x2.aval or aval == x2.aval:
                return x1, x2
            return promote_args(name, x1, x2)
        if (
            _is_python_scalar(x2)
            and not aval.weak_type
            and (scalar_type := _scalar_type_with_array(aval.dtype, type(x2))) is not None
        ):
            return x1, _scalar_literal(x2, *scalar_type)
    elif _is_python_scalar(x1) and isinstance(x2, Array) and not x2.aval.weak_type:
        scalar_type = _scalar_type_with_array(x2.aval.dtype, type(x1))
        if scalar_type is not None:
            return _scalar_literal(x1, *scalar_type), x2
    return promote_args(name, x1, x2)


@memoize(256)
def _scalar_type_with_array(dtype: DType, number: type) -> tuple[type[Scalar], ShapedArray] | None:
    """Returns the literal type of a Python number next to an array of `dtype`, None if the array would be promoted."""
    if dtypes.is_key(dtype) or (number is bool and dtype != dtypes.bool_):  # a bool has a strong type
        return None
    kind = python_scalar_type(dtype)
    return (kind, ShapedArray((), dtype)) if RANK[number] <= RANK[kind] else None


def promote_args(name: str, *args: ArrayLike, inexact: bool = False) -> list[Value]:
    """Returns any number of operands in their promoted dtype, as `promote_pair` does for two.

    With `inexact` they are converted directly to the float dtype in which functions of integers compute: an integer of
    another range may not fit the promoted integer dtype.
    """
    values: list[Value | Scalar] = []
    keys: list[OperandType] = []
    for i, a in enumerate(args):
        if type(a) in _PYTHON_SCALARS:
            values.append(a)  # type: ignore[arg-type]  # a Python scalar, as just tested
            keys.append(type(a))
        else:
            value = as_value(a, f"{name}: x{i + 1}")
            values.append(value)
            keys.append(value.aval)
    options = NUMERIC_OPTIONS.value
    promoted = _promoted_type(name, tuple(keys), X64.value, options.strict_dtypes, inexact)
    if options.rank_promotion != "allow":
        check_ranks(name, [v.aval.shape for v in values if isinstance(v, Array)], options.rank_promotion)
    return [_apply_promotion(v, promoted) for v in values]


def promote_dtypes(name: str, *args: ArrayLike, inexact: bool = False) -> list[Value]:
    """Returns operands in their promoted dtype, each with its own shape; `inexact` as in `promote_args`."""
    first = args[0]
    if isinstance(first, Array) and not (inexact and not dtypes.is_inexact(first.aval.dtype)):
        aval = first.aval
        values: list[Value] = []
        for a in args:
            if not isinstance(a, Array) or a.aval.dtype is not aval.dtype or a.aval.weak_type is not aval.weak_type:
                break
            values.append(a)
        else:
            return values
    dtype, weak = promote([dtype_and_weak_type(a, f"{name}: x{i + 1}") for i, a in enumerate(args)])
    if inexact:
        dtype = inexact_dtype(dtype)
    return [convert_operand(a, dtype, weak) for a in args]


@memoize(4096)
def _promoted_type(name: str, keys: tuple[OperandType, ...], x64: bool, strict: bool, inexact: bool) -> PromotedType:
    """Computes how operands of these types are promoted; cached for the settings, which `promote` reads."""
    types = [
        (key.dtype, key.weak_type) if isinstance(key, ShapedArray) else (dtypes.scalar_dtype(key), key is not bool)
        for key in keys
    ]
    dtype, weak = promote(types)
    if inexact:
        dtype = inexact_dtype(dtype)
    shape = broadcast_operand_shapes(name, *[key.shape for key in keys if isinstance(key, ShapedArray)])
    return PromotedType(dtype, weak, shape, ShapedArray((), dtype, weak), python_scalar_type(dtype))


def _apply_promotion(x: Value | Scalar, promoted: PromotedType) -> Value:
    """Converts and broadcasts one operand to the promoted type; scalars keep their shape."""
    if not isinstance(x, Array):
        return _scalar_literal(x, promoted.kind, promoted.number)
    aval = x.aval
    if aval.dtype != promoted.dtype or aval.weak_type != promoted.weak:
        x = convert_dtype(x, promoted.dtype, promoted.weak)
    return x if not aval.shape or aval.shape == promoted.shape else broadcast_to(x, promoted.shape)


def _scalar_literal(x: Scalar, kind: type[Scalar], aval: ShapedArray) -> Literal:
    """Returns a Python number as a literal; an integer out of the dtype's range wraps around, as in arrays."""
    if kind is int and isinstance(x, int):
        info = dtypes.iinfo(aval.dtype)
        if not info.min <= x <= info.max:
            return Literal(convert_host(to_numpy(as_value(x)), aval.dtype).item(), aval)
    return rounded_literal(x, aval)


@cache_literals
def rounded_literal(x: Scalar, aval: ShapedArray) -> Literal:
    """Returns a literal whose number has the type and the precision of its dtype, so that printed programs show it."""
    if isinstance(x, complex):
        return Literal(call_kernel(aval.dtype.type, x).item(), aval)
    number = python_scalar_type(aval.dtype)(x)  # ml_dtypes converts only integers of 64 bits
    # Rounding is the slow step, and small whole numbers are exact in most dtypes.
    if not -256 <= x <= 256 or x != int(x) or aval.dtype.itemsize == 1:
        number = call_kernel(aval.dtype.type, number).item()
    return Literal(number, aval)


def python_scalar_type(dtype: DType) -> type[Scalar]:
    """Returns the Python number type of the elements of a dtype."""
    kind = dtypes.kind(dtype)
    if kind is dtypes.DTypeKind.COMPLEX:
        return complex
    if kind is dtypes.DTypeKind.FLOAT:
        return float
    return bool if kind is dtypes.DTypeKind.BOOL else int


def check_ranks(name: str, shapes: Sequence[Shape], mode: RankPromotion) -> None:
    """Warns of operands of different ranks, scalars excepted, or raises a BroadcastError if the mode is `"raise"`."""
    if len({len(shape) for shape in shapes if shape}) < 2:
        return
    message = f"{name}: {', '.join(map(str, shapes))} have different ranks, and jax_numpy_rank_promotion={mode!r}"
    if mode == "raise":
        raise BroadcastError(f"{message}: reshape them to the same rank")
    warnings.warn(message, stacklevel=3)


def broadcast_operand_shapes(name: str, *shapes: Shape) -> Shape:
    """Returns the shape to which operands of these shapes broadcast, with axes aligned at the end.

    Raises BroadcastError where two sizes differ and neither is 1.
    """
    rank = max(map(len, shapes), default=0)
    sizes = [1] * rank
    for shape in shapes:
        for i, n in enumerate(shape, rank - len(shape)):
            if n != 1:
                if sizes[i] not in (1, n):
                    raise BroadcastError(
                        f"{name}: shapes {', '.join(map(str, shapes))} do not broadcast together: sizes {sizes[i]} and "
                        f"{n} differ at axis {i - rank}; sizes must be equal or 1, aligned at the last axis"
                    )
                sizes[i] = n
    return tuple(sizes)


def require_real(name: str, x: Value) -> Value:
    """Returns an operand; raises TypeError if it is complex."""
    if dtypes.is_complex(x.aval.dtype):
        raise TypeError(f"{name} is not defined for complex numbers, got {x.aval}; use their real part or abs")
    return x


def require_broadcastable(what: str, shape: Shape, target: Shape, target_name: str) -> None:
    """Raises BroadcastError unless an array of the shape `shape` broadcasts to `target`, with axes aligned at the end.

    A message calls the array `what` and the target `target_name`.
    """
    rank = len(shape)
    if rank > len(target) or any(n not in (1, m) for n, m in zip(shape, target[len(target) - rank :], strict=True)):
        raise BroadcastError(
            f"{what} of shape {shape} cannot be broadcast to {target_name} {target}: aligned at the last axis, each "
            "size must be 1 or the same as there"
        )


def reject_out(name: str, out: object) -> None:
    """Raises NotImplementedError unless `out`, NumPy's argument for an output array, is None."""
    if out is not None:
        raise NotImplementedError(f"{name}: out must be None, since arrays are immutable; use the function's result")


def as_operand(x: ArrayLike, what: str) -> Value:
    """Returns `x` as a value; raises a TypeError that names it `what` unless it is an array or a number."""
    return as_value(x, what)


def to_inexact(x: ArrayLike, what: str) -> Value:
    """Returns `x` as a value of a float or complex dtype: integers and bools become the default float."""
    if isinstance(x, Array) and dtypes.is_inexact(x.aval.dtype):  # fast path
        return x
    value = as_value(x, what)
    dtype = value.aval.dtype
    return value if dtypes.is_inexact(dtype) else convert_dtype(value, inexact_dtype(dtype), value.aval.weak_type)


def to_numeric(x: ArrayLike, what: str) -> Value:
    """Returns `x` as a value of any dtype but bool, which becomes the default integer."""
    if isinstance(x, Array) and x.aval.dtype != dtypes.bool_:  # fast path
        return x
    value = as_value(x, what)
    return convert_dtype(value, dtypes.default_int(), False) if value.aval.dtype == dtypes.bool_ else value


def promote_args_inexact(name: str, *args: ArrayLike) -> list[Value]:
    """Returns promoted operands of a float or complex dtype: integers and bools become floats."""
    return promote_args(name, *args, inexact=True)


def promote_args_numeric(name: str, *args: ArrayLike) -> list[Value]:
    """Returns promoted operands; bools become the default integer."""
    values = promote_args(name, *args)
    if values[0].aval.dtype != dtypes.bool_:
        return values
    return [convert_dtype(v, dtypes.default_int(), False) for v in values]


def inexact_dtype(dtype: DType) -> DType:
    """Returns the dtype in which real-valued functions compute on operands of `dtype`."""
    if dtypes.is_inexact(dtype):
        return dtype
    return dtypes.float64 if dtypes.itemsize_bits(dtype) == 64 else dtypes.default_float()


def convert_dtype(x: Value, dtype: DType, weak: bool = False) -> Value:
    """Returns `x` with another dtype and weak type. Literals stay literals; nonzero complex numbers become True."""
    if dtypes.is_bool(dtype) and dtypes.is_complex(x.aval.dtype):
        if isinstance(x, Literal):
            return Literal(bool(x.val), ShapedArray((), dtype, weak))
        return ne(x, Literal(0j, ShapedArray((), x.aval.dtype)))
    if not isinstance(x, Literal):
        return convert(x, dtype, weak)
    aval = x.aval
    if aval.dtype == dtype and aval.weak_type == weak:
        return x
    scalar: Scalar = convert_host(x.numpy(), dtype).item()
    return Literal(scalar, ShapedArray((), dtype, weak))


def convert_ndarray(x: NDArray, dtype: DType) -> NDArray:
    """Converts a NumPy array as `convert_dtype` converts a value."""
    return np.asarray(x != 0) if dtypes.is_bool(dtype) and np.iscomplexobj(x) else convert_host(x, dtype)


def convert_operand(x: ArrayLike, dtype: DType, weak: bool = False, what: str = "argument") -> Value:
    """Returns `x` as a value of `dtype`. A Python number is converted directly, not through a default dtype."""
    kind = python_scalar_type(dtype)
    if _is_python_scalar(x) and RANK[type(x)] <= RANK[kind]:
        return _scalar_literal(x, kind, ShapedArray((), dtype, weak))
    return convert_dtype(as_value(x, what), dtype, weak)


def _is_python_scalar(x: object) -> TypeGuard[Scalar]:
    """Whether `x` is a Python number, not one of a subclass."""
    return type(x) in _PYTHON_SCALARS


RANK: Final[Mapping[type, int]] = MappingProxyType({bool: 0, int: 1, float: 2, complex: 3})


def dtype_and_weak_type(x: ArrayLike, what: str) -> tuple[DType, bool]:
    """Returns the dtype and weak type that `x` has as an array."""
    if _is_python_scalar(x):
        return dtypes.scalar_dtype(type(x)), type(x) is not bool
    if isinstance(x, np.ndarray | np.generic):
        return dtypes.canonicalize(dtypes.as_dtype(x.dtype, f"the dtype of {what}")), False
    aval = as_value(x, what).aval
    return aval.dtype, aval.weak_type
