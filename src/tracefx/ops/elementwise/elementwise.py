"""Base classes of elementwise primitives, and `add`.

Operands have one common shape, except that scalars stand for arrays filled with them; their dtypes are equal. The
functions of `tracefx.lax` also broadcast axes of size 1 (`bind_binary`, `bind_elementwise`), and a Python number takes
the dtype of the other operand.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, final, overload

import numpy as np
from typing_extensions import override

from tracefx.bounded_cache import memoize
from tracefx.core import (
    Array,
    ArrayLike,
    ConcreteArray,
    DType,
    Literal,
    NDArray,
    Shape,
    ShapedArray,
    Value,
    as_value,
    dtypes,
    literal,
    to_numpy,
)
from tracefx.core.handler import bind1
from tracefx.core.kernel_context import KERNEL_CONTEXT, call_kernel, retry_reentrant
from tracefx.core.primitive import Differentiable, MappedAxis, Primitive, Tangent, Transposable, UndefinedPrimal, Zero
from tracefx.core.type_sharding import Spec
from tracefx.core.values import number_aval, unwrap_arraylike
from tracefx.lowering import Builder, IrValue
from tracefx.ops import stablehlo
from tracefx.ops.casting import convert_host
from tracefx.ops.operation import (
    ANY,
    MAX_KERNEL_SIZE,
    Domain,
    HasZeroTangent,
    Operation,
    arity_error,
    run_compiled_if_repeated,
)
from tracefx.ops.sharding_rules import joined_spec
from tracefx.ops.structural import batch_first, broadcast_in_dim, broadcast_to, match_aval, reduce_sum

SIGNED_NARROW: Final = frozenset({dtypes.int2, dtypes.int4})
UNSIGNED_NARROW: Final = frozenset({dtypes.uint2, dtypes.uint4})
NUMBERS: Final = Domain("numbers", lambda d: dtypes.is_integer(d) or dtypes.is_inexact(d))
REALS: Final = Domain("integers or floats", lambda d: dtypes.is_integer(d) or dtypes.is_float(d))
FLOATS: Final = Domain("floats", dtypes.is_float)
INEXACT: Final = Domain("floats or complex numbers", dtypes.is_inexact)
INEXACT_WITH_COMPLEX_FIXUP: Final = Domain(
    "floats or complex numbers", dtypes.is_inexact, kernel_fixups=frozenset({dtypes.complex64, dtypes.complex128})
)
LOGICAL: Final = Domain("booleans or integers", lambda d: dtypes.is_bool(d) or dtypes.is_integer(d))


class UnequalOperandsError(TypeError):
    """The operands of an elementwise primitive have different shapes or dtypes."""


class Elementwise(Operation):
    """An elementwise primitive. The output has the operands' shape and, unless a subclass overrides it, their dtype.

    All operands have one dtype. An operand of rank 0 is combined with all elements of the others.

    >>> from tracefx import bind, numpy, ops
    >>> bind(ops.Add(), numpy.array([1.0, 2.0]), 3.0)
    (Array([4., 5.], dtype=float32),)
    """

    __slots__ = ()
    domain: ClassVar[Domain] = ANY
    hlo: ClassVar[str]
    widens_narrow_ints: ClassVar[bool] = True
    """Whether integers below 8 bits are passed to the kernel as 8-bit ones, so that their results wrap around."""

    compiles_large: ClassVar[bool] = False
    """Whether a compiled program evaluates large arrays, on which the kernel takes much longer."""

    preserves_dtype: ClassVar[bool] = True
    """Whether the output has the operands' dtype, that is, whether `out_dtype` is not overridden."""

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [joined_spec(self, avals)]

    @override
    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.preserves_dtype = cls.out_dtype is Elementwise.out_dtype

    @property
    def ufunc(self) -> np.ufunc | None:
        """The NumPy ufunc that is the kernel, or None. Subclasses set it as a class attribute."""
        return None

    def out_dtype(self, dtype: DType) -> DType:
        """Returns the output's dtype for operands of this dtype.

        Args:
            dtype: The dtype of the operands.
        """
        return dtype

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        assert self.ufunc is not None
        out: NDArray = self.ufunc(*args)
        return out

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        first = avals[0]
        alike = first.dtype in self.domain.plain and avals.count(first) == len(avals)  # the common case
        if alike and (self.preserves_dtype or self.out_dtype(first.dtype) is first.dtype):
            return first
        self.domain.require(self.name, *avals)
        if any(a.dtype != first.dtype for a in avals):
            raise UnequalOperandsError(
                f"{self.name} takes operands of one dtype, got {' and '.join(map(str, avals))}; convert them with "
                "astype, or use the function of tracefx.numpy, which promotes"
            )
        dtype = self.out_dtype(first.dtype)
        weak = all(a.weak_type for a in avals) and not dtypes.is_bool(dtype)
        return ShapedArray(common_shape(self, avals), dtype, weak)

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        # The fast path of eager dispatch: one operand, or two with equal avals, or an array and a scalar of its dtype.
        # It is written without helper functions for speed.
        arity = self.arity
        if len(args) != arity:
            raise arity_error(self.name, arity, len(args))
        x = args[0]
        if type(x) is not ConcreteArray and type(x) is not Literal:
            return self._evaluate_slow_path(args)
        aval = x.aval
        if arity == 1:
            if aval.dtype not in self.domain.plain:
                return self._evaluate_slow_path(args)
            kernel: Callable[..., NDArray] | None = self.ufunc
            if self.compiles_large and aval.size > MAX_KERNEL_SIZE and (outs := self._evaluate_large(args)) is not None:
                return outs
            host = x.host
            if host is None:
                host = x.numpy()
            if kernel is None:
                kernel = self.kernel
            try:
                out = KERNEL_CONTEXT.run(kernel, host)
            except RuntimeError as error:
                out = retry_reentrant(error, kernel, host)
        elif arity == 2:
            y = args[1]
            if type(y) is not ConcreteArray and type(y) is not Literal:
                return self._evaluate_slow_path(args)
            other = y.aval
            if other is not aval and not is_compatible_scalar(other, aval) and other != aval:
                if not is_compatible_scalar(aval, other):
                    return self._evaluate_slow_path(args)
                aval = other
            if aval.dtype not in self.domain.plain:
                return self._evaluate_slow_path(args)
            kernel = self.ufunc
            if kernel is None:
                if (
                    self.compiles_large
                    and aval.size > MAX_KERNEL_SIZE
                    and (outs := self._evaluate_large(args)) is not None
                ):
                    return outs
                kernel = self.kernel
            host, host2 = x.host, y.host
            if host is None:
                host = x.numpy()
            if host2 is None:
                host2 = y.numpy()
            try:
                out = KERNEL_CONTEXT.run(kernel, host, host2)
            except RuntimeError as error:
                out = retry_reentrant(error, kernel, host, host2)
        else:
            return self._evaluate_slow_path(args)
        if not self.preserves_dtype:
            aval = _with_dtype(aval, self.out_dtype(aval.dtype))
        if type(out) is not np.ndarray or out.dtype is not aval.dtype:  # ufuncs return scalars for rank 0
            out = np.asarray(out, aval.dtype)
        return (ConcreteArray(aval, out),)

    @override
    def numpy_kernel(self, *avals: ShapedArray) -> Callable[..., NDArray] | None:
        plain = all(a.dtype in self.domain.plain for a in avals)
        return (self.ufunc or self.kernel) if plain and type(self).evaluate is Elementwise.evaluate else None

    def _evaluate_slow_path(self, args: Sequence[Value]) -> Sequence[Value]:
        aval = self.out_aval(*[a.aval for a in args])
        if self.compiles_large and aval.size > MAX_KERNEL_SIZE and (outs := self._evaluate_large(args)) is not None:
            return outs
        hosts = [to_numpy(a) for a in args]
        if self.widens_narrow_ints:
            hosts = [h.astype(np.int8) if h.dtype in SIGNED_NARROW else h for h in hosts]
            hosts = [h.astype(np.uint8) if h.dtype in UNSIGNED_NARROW else h for h in hosts]
        return [ConcreteArray(aval, convert_host(np.asarray(call_kernel(self.kernel, *hosts)), aval.dtype))]

    def _evaluate_large(self, args: Sequence[Value]) -> Sequence[Value] | None:
        """Evaluates large arrays by a compiled program; returns None if the kernel is to evaluate them.

        The compiled program is used from the second call on, because its results equal those of the kernel.
        """
        return run_compiled_if_repeated(self, args)

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        ranks = [x.aval.ndim - (d is not None) for x, d in zip(args, dims, strict=True)]
        rank = max(ranks)
        batch_dims = {d for d in dims if d is not None}
        if len(batch_dims) == 1 and all(r == (rank if d is not None else 0) for r, d in zip(ranks, dims, strict=True)):
            return bind1(self, *args), batch_dims.pop()
        shape = next(_batch_shape(x, d, axis) for x, d, r in zip(args, dims, ranks, strict=True) if r == rank)
        fronted = [
            x if d is None and r == 0 else _broadcast_scalars(batch_first(x, d, axis), shape)
            for x, d, r in zip(args, dims, ranks, strict=True)
        ]
        return bind1(self, *fronted), 0

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        for x in operands:
            if x.aval is not out and x.aval.shape != out.shape:
                return self.emit_elementwise(
                    builder, out, *[stablehlo.emit_broadcast(builder, x, out.shape) for x in operands]
                )
        return self.emit_elementwise(builder, out, *operands)

    def emit_elementwise(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        """Emits the output from operands that all have its shape.

        Args:
            builder: Emits operations.
            out: The aval of the output.
            *operands: The operands in the module.

        Returns:
            The output in the module.
        """
        return builder.emit(self.hlo, operands, [out])[0]


@memoize(4096)
def _with_dtype(aval: ShapedArray, dtype: DType) -> ShapedArray:
    """Returns the output aval for this output dtype, where `aval` is the common aval of the operands."""
    return ShapedArray(aval.shape, dtype, aval.weak_type and not dtypes.is_bool(dtype))


def is_compatible_scalar(number: ShapedArray, aval: ShapedArray) -> bool:
    """Returns whether a scalar operand of aval `number` leaves the output with the other operand's aval."""
    return number.dtype is aval.dtype and not number.shape and (number.weak_type or not aval.weak_type)


def common_shape(prim: Primitive, avals: Sequence[ShapedArray]) -> Shape:
    """Returns the common shape of the operands that are not scalars; raises `UnequalOperandsError` if there is none."""
    shape: Shape = ()
    for aval in avals:
        if aval.shape and aval.shape != shape:
            if shape:
                raise UnequalOperandsError(
                    f"{prim.name} takes operands of one shape (or scalars), got {' and '.join(map(str, avals))}; "
                    "broadcast them first, or use the function of tracefx.numpy, which broadcasts"
                )
            shape = aval.shape
    return shape


def _batch_shape(x: Value, dim: int | None, axis: MappedAxis) -> Shape:
    """Returns the shape of `x` with its batch axis in front."""
    shape = x.aval.shape
    return (axis.size, *shape) if dim is None else (axis.size, *shape[:dim], *shape[dim + 1 :])


def _broadcast_scalars(x: Array, shape: Shape) -> Array:
    """Broadcasts a batch of scalars to the batched shape of the other operands."""
    return x if x.aval.ndim == len(shape) else broadcast_in_dim(x, shape, (0,))


class NonDifferentiable(Elementwise, HasZeroTangent):
    """An elementwise primitive whose derivative is zero wherever it exists: comparisons, rounding, logic."""

    __slots__ = ()


class Smooth(Elementwise, Differentiable):
    """An elementwise primitive whose tangent is a sum with one term per operand."""

    __slots__ = ()

    @abstractmethod
    def jvp_term(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        """Returns the term of one operand in the output's tangent: its tangent times the partial derivative.

        Args:
            i: The number of the operand.
            tangent: Its tangent.
            out: The output.
            *primals: All operands.
        """
        raise NotImplementedError

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        out = bind1(self, *primals)
        aval = out.aval.tangent()
        total: Tangent | None = None
        for i, t in enumerate(tangents):
            if not isinstance(t, Zero):
                term = match_aval(self.jvp_term(i, t, out, *primals), aval)
                total = term if total is None else add_tangents(total, term)
        return [out], [Zero(aval) if total is None else total]


# ------------------------------------------------------------------ add, here because `Smooth` adds tangents


@final
class Add(Elementwise, Differentiable, Transposable):
    """The sum, elementwise: `x + y`; integers wrap around.

    `x: f32[...], y: f32[...] -> f32[...]`, numbers. Bound by `lax.add`.
    """

    name = "add"
    arity = 2
    domain = NUMBERS
    hlo = "stablehlo.add"
    ufunc = np.add

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        out = bind1(self, *primals)
        x, y = [match_aval(t, out.aval.tangent()) for t in tangents]
        return [out], [add_tangents(x, y)]

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        return [unbroadcast(cts[0], x.aval) if isinstance(x, UndefinedPrimal) else None for x in args]


ADD: Final = Add()


def add(x: ArrayLike, y: ArrayLike) -> Array:
    """Returns `x + y`, elementwise; integers wrap around.

    Args:
        x: Array or number.
        y: Array or number of the same dtype. Scalars and axes of size 1 are broadcast; a Python number takes the dtype
            of the other operand.

    Returns:
        An array of the broadcast shape and the common dtype.

    Raises:
        TypeError: The dtypes differ, the shapes don't broadcast, or the operands are booleans.

    >>> add(np.arange(3), 1)
    Array([1, 2, 3], dtype=int32)
    """
    return bind_binary(ADD, x, y)


@overload
def add_tangents(x: Value, y: Tangent) -> Value: ...
@overload
def add_tangents(x: Tangent, y: Tangent) -> Tangent: ...
def add_tangents(x: Tangent, y: Tangent) -> Tangent:
    """Returns the sum of two tangents or cotangents with equal avals.

    Args:
        x: A tangent or cotangent: a value or a `Zero`.
        y: Another one, of the same aval.

    Returns:
        The sum; a `Zero` if both are.

    >>> from tracefx.core.primitive import Zero
    >>> from tracefx.core.values import as_value
    >>> x = as_value(2.0)
    >>> add_tangents(x, Zero(x.aval)) is x
    True
    """
    if isinstance(x, Zero):
        return y
    return x if isinstance(y, Zero) else bind1(ADD, x, y)


def unbroadcast(ct: Tangent, aval: ShapedArray) -> Tangent:
    """Returns the cotangent of an operand that was broadcast: the sum of `ct` if the operand was a scalar."""
    if ct.aval is aval:
        return ct
    if isinstance(ct, Zero) or ct.aval.shape == aval.shape:
        return match_aval(ct, aval)
    return match_aval(reduce_sum(ct, range(ct.aval.ndim)), aval)


# ------------------------------------------------------------------ arguments


_PYTHON: Final = frozenset({bool, int, float, complex})


def bind_binary(prim: Primitive, x: ArrayLike, y: ArrayLike) -> Array:
    """Binds a primitive with two operands, after applying `operands` and, where shapes differ, `broadcast_operands`."""
    if type(y) in _PYTHON:
        if not isinstance(x, Array):
            return bind1(prim, *operands(x, y))
        y = as_weak_literal(y, x.aval.dtype)
    elif type(x) in _PYTHON:
        if not isinstance(y, Array):
            return bind1(prim, *operands(x, y))
        x = as_weak_literal(x, y.aval.dtype)
    try:
        return bind1(prim, x, y)
    except UnequalOperandsError:  # rare, so it is not checked before every call
        return bind1(prim, *broadcast_operands(prim, x, y))


def bind_elementwise(prim: Primitive, *args: ArrayLike) -> Array:
    """Binds an elementwise primitive with any number of operands; axes of size 1 are broadcast."""
    try:
        return bind1(prim, *operands(*args))
    except UnequalOperandsError:
        return bind1(prim, *broadcast_operands(prim, *args))


def broadcast_operands(prim: Primitive, *args: ArrayLike) -> list[Value]:
    """Returns the operands broadcast along axes of size 1 to their common shape; scalars stay scalars.

    Numbers of subclasses of Python's, for example members of an `IntEnum`, take the dtype of the arrays.

    Raises:
        TypeError: Ranks or sizes differ.
    """
    values = operands(*[unwrap_arraylike(a) for a in args])
    shapes = [v.aval.shape for v in values if v.aval.shape]
    got = " and ".join(str(v.aval) for v in values)
    if len({len(s) for s in shapes}) > 1:
        raise TypeError(
            f"{prim.name}: arrays must have the same number of axes, got {got}; reshape them, or use the function of "
            "tracefx.numpy, which adds axes"
        )
    shape = []
    for axis, sizes in enumerate(zip(*shapes, strict=True)):
        wide = {n for n in sizes if n != 1}
        if len(wide) > 1:
            raise TypeError(f"{prim.name}: shapes do not broadcast, got {got}: their sizes along axis {axis} differ")
        shape.append(wide.pop() if wide else 1)
    return [v if v.aval.shape in ((), tuple(shape)) else broadcast_to(v, tuple(shape)) for v in values]


def operands(*args: ArrayLike) -> list[Value]:
    """Returns the arguments as values; Python numbers take the dtype of the first array if its kind allows."""
    kinds = [type(a) in _PYTHON for a in args]
    if True not in kinds or False not in kinds:
        return [as_value(a) for a in args]
    values = [None if python else as_value(a) for a, python in zip(args, kinds, strict=True)]
    dtype = next(v.aval.dtype for v in values if v is not None)
    return [as_weak_literal(a, dtype) if v is None else v for a, v in zip(args, values, strict=True)]


def as_weak_literal(x: ArrayLike, dtype: DType) -> Value:
    """Returns a Python number as a weakly typed literal of `dtype`, or of its default dtype if the kinds don't fit."""
    if dtypes.kind(dtype) not in _KINDS_FOR[type(x)]:
        return as_value(x)
    return literal.cached_literal(x, number_aval(dtype))  # type: ignore[arg-type]  # else the lookup above fails


_K = dtypes.DTypeKind
_KINDS_FOR: Final[Mapping[type, tuple[dtypes.DTypeKind, ...]]] = {
    bool: (_K.BOOL,),
    int: (_K.SIGNED, _K.UNSIGNED, _K.FLOAT, _K.COMPLEX),
    float: (_K.FLOAT, _K.COMPLEX),
    complex: (_K.COMPLEX,),
}
"""The dtype kinds that a Python number of each type can be converted to."""
