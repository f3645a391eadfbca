"""The base of tracefx's own first-order operations: one output, a NumPy kernel."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from operator import attrgetter
from typing import Any, ClassVar, Final, NoReturn, TypeVar, final

import numpy as np
from attrs import field, frozen
from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.avals import ShapedArray
from tracefx.core.backend import BACKEND
from tracefx.core.dtypes import DType, NDArray
from tracefx.core.handler import bind1
from tracefx.core.jaxpr import Eqn, Jaxpr, Var
from tracefx.core.kernel_context import call_kernel
from tracefx.core.primitive import (
    Batchable,
    Differentiable,
    MappedAxis,
    Primitive,
    Tangent,
    Transposable,
    UndefinedPrimal,
    Zero,
)
from tracefx.core.values import ConcreteArray, Value, from_numpy, to_numpy
from tracefx.lowering import Builder, IrValue, Lowerable
from tracefx.ops.static_integers import AxisError, ShapeError, concretize

VARIADIC: Final = -1


class HasNumpyKernel:
    """A capability: some operands are evaluated by a function of NumPy's arrays."""

    __slots__ = ()

    @abstractmethod
    def numpy_kernel(self, *avals: ShapedArray) -> Callable[..., Any] | None:
        """The function for operands of these types; it gives one array, or as many as the operation gives, but for
        their dtypes. None if `evaluate` has another way.
        """
        raise NotImplementedError


class Operation(Primitive, Batchable, Lowerable, HasNumpyKernel):
    """An operation with one output: its rules speak of that output alone."""

    __slots__ = ()
    arity: ClassVar[int] = 1
    """How many operands it takes, or `VARIADIC`."""

    @abstractmethod
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        """The output's type; raises where the operands don't fit."""
        raise NotImplementedError

    @abstractmethod
    def kernel(self, *args: NDArray) -> NDArray:
        """The output, by NumPy. Operands fit already."""
        raise NotImplementedError

    @abstractmethod
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        """The output for a whole batch and the place of its batch axis."""
        raise NotImplementedError

    @abstractmethod
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        """The output, in StableHLO."""
        raise NotImplementedError

    @override
    def impl(self, *args: NDArray) -> Sequence[NDArray]:
        return [np.asarray(call_kernel(self.kernel, *args))]

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        if len(avals) != self.arity != VARIADIC:
            raise arity_error(self.name, self.arity, len(avals))
        return [self.out_aval(*avals)]

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        arity = self.arity
        if len(args) != arity != VARIADIC:
            raise arity_error(self.name, arity, len(args))
        if arity == 1:  # written out, as every call counts
            x = args[0]
            aval = self.out_aval(x.aval)
            out = call_kernel(self.kernel, x.numpy() if type(x) is ConcreteArray else to_numpy(x))
        else:
            aval = self.out_aval(*[a.aval for a in args])
            out = call_kernel(self.kernel, *[to_numpy(a) for a in args])
        if type(out) is not np.ndarray or out.dtype is not aval.dtype:
            out = np.asarray(out, aval.dtype)
        return [ConcreteArray(aval, out)]

    @override
    def numpy_kernel(self, *avals: ShapedArray) -> Callable[..., NDArray] | None:
        return self.kernel if type(self).evaluate is Operation.evaluate else None

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        out, dim = self.batched(axis, args, dims)
        return [out], [dim]

    @override
    @final
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        return self.lower_with_avals(builder, [self.out_aval(*[o.aval for o in operands])], operands)

    @override
    @final
    def lower_with_avals(
        self, builder: Builder, outs: Sequence[ShapedArray], operands: Sequence[IrValue]
    ) -> Sequence[IrValue]:
        (out,) = outs
        if dtypes.is_key(out.dtype) and isinstance(self, DataMovement):
            return builder.emit_per_key_word(self, outs, operands)
        return [self.emit(builder, out, *operands)]


class DataMovement:
    """A capability: the elements are moved about and nothing is computed of them, so that they may be random keys."""

    __slots__ = ()


def arity_error(name: str, takes: int, given: int) -> TypeError:
    """The error for a wrong number of operands."""
    return TypeError(f"{name} takes {takes} operand{'' if takes == 1 else 's'}, got {given}")


A = TypeVar("A", bound=Callable[..., ShapedArray])


def memoize_aval(*fields: str) -> Callable[[A], A]:
    """Decorates an `out_aval` that reads these fields: what it finds is found again without all its checks."""
    parameters = attrgetter(*fields)

    def decorate(out_aval: A) -> A:
        known: dict[Hashable, ShapedArray] = {}

        @functools.wraps(out_aval)
        def found(self: Operation, *avals: ShapedArray) -> ShapedArray:
            key = (type(self), parameters(self), avals)
            aval = known.get(key)
            if aval is None:
                aval = out_aval(self, *avals)
                if len(known) >= _MEMO_SIZE:
                    known.clear()
                known[key] = aval
            return aval

        return found  # type: ignore[return-value]  # takes and gives what `out_aval` does

    return decorate


_MEMO_SIZE: Final = 4096


class CompiledOperation(Operation):
    """An operation without a good kernel in NumPy: evaluated, it is compiled, once for all operands of one type."""

    __slots__ = ()

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        (out,) = self.evaluate([from_numpy(x, x.dtype) for x in args])
        return to_numpy(out)

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return run_compiled(self, args)


def run_compiled(prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
    """The outputs of an operation compiled as a program of its own."""
    return BACKEND.value.run(_one_equation_jaxpr(prim, tuple([a.aval for a in args])), args, prim.name)


@functools.lru_cache(maxsize=4096)
def _one_equation_jaxpr(prim: Primitive, avals: tuple[ShapedArray, ...]) -> Jaxpr:
    """The program of one equation; it keeps its executable."""
    inputs = tuple([Var(i, aval) for i, aval in enumerate(avals)])
    outs = tuple([Var(len(avals) + i, aval) for i, aval in enumerate(prim.abstract_eval(*avals))])
    return Jaxpr((), inputs, (Eqn(prim, inputs, outs),), outs)


class LinearOperation(Operation, Differentiable, Transposable):
    """An operation linear in all of its operands together: its derivative is itself."""

    __slots__ = ()

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        out = bind1(self, *primals)
        if out.aval.tangent().dtype == dtypes.float0:
            return [out], [Zero(out.aval.tangent())]
        return [out], [bind1(self, *[self.instantiate(t) for t in tangents])]

    def instantiate(self, tangent: Tangent) -> Value:
        """An operation of one operand never sees a `Zero`; those of several say how they make zeros."""
        assert not isinstance(tangent, Zero)
        return tangent

    @abstractmethod
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        """Cotangents of the `UndefinedPrimal` operands from that of the output."""
        raise NotImplementedError

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        (ct,) = cts
        assert not isinstance(ct, Zero)  # the backward pass leaves out equations all of whose cotangents are zero
        return self.pullback(ct, *args)


@final
@frozen
class Domain:
    """Which dtypes an operation takes, and what to call them."""

    what: str
    accepts: Callable[[DType], bool]
    keys: bool = field(default=False, kw_only=True)
    """Whether random keys, which are no numbers, are taken too."""
    kernel_fixups: frozenset[DType] = field(default=frozenset(), kw_only=True)
    """The dtypes for which a kernel mends what NumPy's function gives."""
    plain: frozenset[DType] = field(init=False, repr=False)
    """The dtypes accepted whose elements NumPy stores as XLA does, one or more bytes each, and has the function for."""

    def __attrs_post_init__(self) -> None:
        stored = [d for d in dtypes.ALL_DTYPES if self.accepts(d) and dtypes.itemsize_bits(d) >= 8]
        plain = frozenset(stored) - self.kernel_fixups
        object.__setattr__(self, "plain", plain)

    def takes(self, dtype: DType) -> bool:
        return self.accepts(dtype) and (self.keys or not dtypes.is_key(dtype))

    def require(self, name: str, *avals: ShapedArray) -> None:
        """`TypeError` unless every operand's dtype is in the domain."""
        for i, aval in enumerate(avals):
            if aval.dtype not in self.plain and not self.takes(aval.dtype):
                raise TypeError(f"{name} takes {self.what}, but operand {i} is {aval}; convert it first with astype")


def refuse_keys(name: str, dtype: DType) -> NoReturn:
    """The error for random keys where an operation takes numbers of any dtype."""
    raise TypeError(
        f"{name} takes numbers, but {dtypes.name(dtype)} is the dtype of random keys: draw numbers from them with "
        "tracefx.random, or look at their words with tracefx.random.key_data"
    )


ANY_NUMBERS: Final = Domain("numbers of any dtype", lambda dtype: True)
ANY: Final = Domain("any dtype", lambda dtype: True, keys=True)


def require_axes(name: str, axes: Sequence[int], ndim: int) -> None:
    """`AxisError` unless `axes` are different axes of an array with `ndim` of them, counted from 0."""
    for a in axes:
        if not 0 <= a < ndim:
            break
    else:
        if len(axes) < 2 or len(set(axes)) == len(axes):
            return
    raise AxisError(f"{name}: axes {tuple(axes)} must be different axes of an operand that has {ndim}")


def static_shape(name: str, shape: Sequence[int], argument: str = "shape") -> tuple[int, ...]:
    """`shape` as a tuple of ints; a tracer or a non-integer in it is a `TypeError`, a negative size a `ValueError`."""
    if type(shape) is tuple:
        for n in shape:
            if type(n) is not int or n < 0:
                break
        else:
            return shape
    sizes = []
    for n in concretize(shape):
        try:
            sizes.append(n.__index__())
        except (TypeError, AttributeError) as error:
            raise TypeError(
                f"{name}: {argument} must be made of integers known when the program is traced, got {n!r} in "
                f"{shape!r}. {getattr(error, 'detail', '')}Shapes are static: compute them with numpy or Python "
                "integers (x.shape is one), or mark the argument they come from in static_argnums"
            ) from error
        if sizes[-1] < 0:
            raise ShapeError(f"{name}: {argument} {tuple(shape)!r} has a negative size")
    return tuple(sizes)
