"""The families of operations that work element by element.

Operands have one shape, or none: a scalar stands for an array full of it. dtypes must agree. The functions of
`tracefx.lax` broadcast axes of size 1 (`bind_binary`, `bind_elementwise`) and give a Python number the dtype of the
array beside it.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, final

import numpy as np
from typing_extensions import override

from tracefx.core import dtypes, literal
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import Shape, ShapedArray
from tracefx.core.dtypes import DType, NDArray
from tracefx.core.handler import bind1
from tracefx.core.kernel_context import KERNEL_CONTEXT, call_kernel, retry_reentrant
from tracefx.core.literal import Literal
from tracefx.core.primitive import Differentiable, MappedAxis, Primitive, Tangent, Transposable, UndefinedPrimal, Zero
from tracefx.core.values import ConcreteArray, Value, as_value, to_numpy, unwrap_arraylike
from tracefx.lowering import Builder, IrValue
from tracefx.ops import stablehlo
from tracefx.ops.casting import convert_host
from tracefx.ops.operation import ANY, Domain, Operation, arity_error
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
    """The operands of an elementwise operation have different shapes or dtypes."""


class Elementwise(Operation):
    """Operands and one output of their common shape and, unless a subclass says otherwise, dtype."""

    __slots__ = ()
    domain: ClassVar[Domain] = ANY
    hlo: ClassVar[str]
    widens_narrow_ints: ClassVar[bool] = True
    """Whether integers below 8 bits reach the kernel as 8-bit ones, their results wrapping around."""

    preserves_dtype: ClassVar[bool] = True
    """Whether the output has the operands' dtype: whether `out_dtype` is the one that is defined here."""

    @override
    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.preserves_dtype = cls.out_dtype is Elementwise.out_dtype

    @property
    def ufunc(self) -> np.ufunc | None:
        """The kernel, where NumPy has just the one: a class attribute of the members that say so."""
        return None

    def out_dtype(self, dtype: DType) -> DType:
        """The output's dtype, given that of the operands."""
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
        # An operand or two of one type, or an array and a number of its dtype: what most programs are made of. Every
        # call counts here, so all is written out.
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
            kernel = self.ufunc or self.kernel
            host = x.host
            if host is None:
                host = x.numpy()
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
            kernel = self.ufunc or self.kernel
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
        if type(out) is not np.ndarray or out.dtype is not aval.dtype:  # ufuncs give scalars where there are no axes
            out = np.asarray(out, aval.dtype)
        return (ConcreteArray(aval, out),)

    @override
    def numpy_kernel(self, *avals: ShapedArray) -> Callable[..., NDArray] | None:
        plain = all(a.dtype in self.domain.plain for a in avals)
        return (self.ufunc or self.kernel) if plain and type(self).evaluate is Elementwise.evaluate else None

    def _evaluate_slow_path(self, args: Sequence[Value]) -> Sequence[Value]:
        aval = self.out_aval(*[a.aval for a in args])
        hosts = [to_numpy(a) for a in args]
        if self.widens_narrow_ints:
            hosts = [h.astype(np.int8) if h.dtype in SIGNED_NARROW else h for h in hosts]
            hosts = [h.astype(np.uint8) if h.dtype in UNSIGNED_NARROW else h for h in hosts]
        return [ConcreteArray(aval, convert_host(np.asarray(call_kernel(self.kernel, *hosts)), aval.dtype))]

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        ranks = [x.aval.ndim - (d is not None) for x, d in zip(args, dims, strict=True)]
        rank = max(ranks)
        places = {d for d in dims if d is not None}
        if len(places) == 1 and all(r == (rank if d is not None else 0) for r, d in zip(ranks, dims, strict=True)):
            return bind1(self, *args), places.pop()
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
        """The output, in StableHLO, from operands that all have its shape."""
        return builder.emit(self.hlo, operands, [out])[0]


@functools.lru_cache(maxsize=4096)
def _with_dtype(aval: ShapedArray, dtype: DType) -> ShapedArray:
    """The type of an output of this dtype, for operands of which those with axes have the type `aval`."""
    return ShapedArray(aval.shape, dtype, aval.weak_type and not dtypes.is_bool(dtype))


def is_compatible_scalar(number: ShapedArray, aval: ShapedArray) -> bool:
    """Whether an operand of type `number`, without axes, beside one of type `aval` leaves the output that type."""
    return number.dtype is aval.dtype and not number.shape and (number.weak_type or not aval.weak_type)


def common_shape(prim: Primitive, avals: Sequence[ShapedArray]) -> Shape:
    """The one shape of the operands that have axes."""
    shape: Shape = ()
    for aval in avals:
        if aval.shape and aval.shape != shape:
            if shape:
                raise UnequalOperandsError(
                    f"{prim.name} takes operands of one shape (or without axes), got {' and '.join(map(str, avals))}; "
                    "broadcast them first, or use the function of tracefx.numpy, which broadcasts"
                )
            shape = aval.shape
    return shape


def _batch_shape(x: Value, dim: int | None, axis: MappedAxis) -> Shape:
    shape = x.aval.shape
    return (axis.size, *shape) if dim is None else (axis.size, *shape[:dim], *shape[dim + 1 :])


def _broadcast_scalars(x: Array, shape: Shape) -> Array:
    """A batch of scalars among batches of arrays is repeated over the arrays' axes."""
    return x if x.aval.ndim == len(shape) else broadcast_in_dim(x, shape, (0,))


class NonDifferentiable(Elementwise, Differentiable):
    """A derivative of zero wherever there is one: comparisons, rounding, logic."""

    __slots__ = ()

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        out = bind1(self, *primals)
        return [out], [Zero(out.aval.tangent())]


class Smooth(Elementwise, Differentiable):
    """The tangent is a sum with one term an operand."""

    __slots__ = ()

    @abstractmethod
    def jvp_term(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        """The term of operand `i`: its tangent times the partial derivative."""
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


# ------------------------------------------------------------------ add: the tangents of all others are added


@final
class Add(Elementwise, Differentiable, Transposable):
    __slots__ = ()
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
    """`x + y`, elementwise.

    >>> add(np.arange(3), 1)
    Array([1, 2, 3], dtype=int32)
    """
    return bind_binary(ADD, x, y)


def add_tangents(x: Tangent, y: Tangent) -> Tangent:
    """The sum of two tangents or cotangents of one type."""
    if isinstance(x, Zero):
        return y
    return x if isinstance(y, Zero) else bind1(ADD, x, y)


def unbroadcast(ct: Tangent, aval: ShapedArray) -> Tangent:
    """The cotangent of an operand that stood for a full array: summed where it was a scalar."""
    if ct.aval is aval:
        return ct
    if isinstance(ct, Zero) or ct.aval.shape == aval.shape:
        return match_aval(ct, aval)
    return match_aval(reduce_sum(ct, range(ct.aval.ndim)), aval)


# ------------------------------------------------------------------ arguments


_PYTHON: Final = frozenset({bool, int, float, complex})


def bind_binary(prim: Primitive, x: ArrayLike, y: ArrayLike) -> Array:
    """Apply an operation of two operands to arguments of a function, `operands` of it."""
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
    except UnequalOperandsError:  # rare, so the check is not repeated before every call
        return bind1(prim, *broadcast_operands(prim, x, y))


def bind_elementwise(prim: Primitive, *args: ArrayLike) -> Array:
    """Apply an elementwise operation to the arguments of a function, broadcasting axes of size 1."""
    try:
        return bind1(prim, *operands(*args))
    except UnequalOperandsError:
        return bind1(prim, *broadcast_operands(prim, *args))


def broadcast_operands(prim: Primitive, *args: ArrayLike) -> list[Value]:
    """Operands of equal rank, or without axes, broadcast along axes of size 1 to their common shape.

    Numbers of subclasses of Python's, such as members of an `IntEnum`, take the dtype of the arrays.

    Raises `TypeError` if ranks or sizes differ.
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
            raise TypeError(f"{prim.name}: shapes do not broadcast, got {got}, whose sizes of axis {axis} differ")
        shape.append(wide.pop() if wide else 1)
    return [v if v.aval.shape in ((), tuple(shape)) else broadcast_to(v, tuple(shape)) for v in values]


def operands(*args: ArrayLike) -> list[Value]:
    """Arguments as values; a Python number among arrays takes the dtype of the first, where it can be of it."""
    kinds = [type(a) in _PYTHON for a in args]
    if True not in kinds or False not in kinds:
        return [as_value(a) for a in args]
    values = [None if python else as_value(a) for a, python in zip(args, kinds, strict=True)]
    dtype = next(v.aval.dtype for v in values if v is not None)
    return [as_weak_literal(a, dtype) if v is None else v for a, v in zip(args, values, strict=True)]


def as_weak_literal(x: ArrayLike, dtype: DType) -> Value:
    """A Python number as a weakly typed literal of `dtype`, or of its own dtype where it can't be of that one."""
    if dtypes.kind(dtype) not in _KINDS_FOR[type(x)]:
        return as_value(x)
    return literal.cached_literal(x, _type_of_numbers(dtype))  # type: ignore[arg-type]  # or the line above had failed


@functools.cache
def _type_of_numbers(dtype: DType) -> ShapedArray:
    return ShapedArray((), dtype, not dtypes.is_bool(dtype))


_K = dtypes.DTypeKind
_KINDS_FOR: Final[Mapping[type, tuple[dtypes.DTypeKind, ...]]] = {
    bool: (_K.BOOL,),
    int: (_K.SIGNED, _K.UNSIGNED, _K.FLOAT, _K.COMPLEX),
    float: (_K.FLOAT, _K.COMPLEX),
    complex: (_K.COMPLEX,),
}
