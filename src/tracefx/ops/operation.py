"""`Operation`, the base class of tracefx's first-order primitives: one output and a NumPy kernel."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import attrgetter
from typing import Any, ClassVar, Concatenate, Final, NoReturn, ParamSpec, TypeVar, cast, final

import numpy as np
from attrs import field, frozen
from typing_extensions import override

from tracefx.bounded_cache import BoundedCache
from tracefx.core import ConcreteArray, DType, NDArray, ShapedArray, Value, dtypes, from_numpy, to_numpy
from tracefx.core.backend import BACKEND
from tracefx.core.handler import bind, bind1
from tracefx.core.jaxpr import Jaxpr, single_eqn_jaxpr
from tracefx.core.kernel_context import call_kernel
from tracefx.core.primitive import (
    Batchable,
    BatchDims,
    Differentiable,
    MappedAxis,
    Primitive,
    Tangent,
    Transposable,
    UndefinedPrimal,
    Zero,
)
from tracefx.dimensions.symbolic_dimensions import is_symbolic_dim
from tracefx.errors import AxisError, ConcretizationError, ShapeError
from tracefx.lowering import Builder, IrValue, Lowerable
from tracefx.ops.static_integers import concretize

VARIADIC: Final = -1


class HasNumpyKernel:
    """Capability: for some operands, one function of NumPy arrays evaluates the primitive."""

    __slots__ = ()

    @abstractmethod
    def numpy_kernel(self, *avals: ShapedArray) -> Callable[..., Any] | None:
        """Returns the NumPy function that evaluates operands with these avals, or None if `evaluate` has another way.

        The function takes the operands as NumPy arrays and returns one array, or as many as the primitive has outputs.
        The caller converts them to the output dtypes.
        """
        raise NotImplementedError


class Operation(Primitive, Batchable, Lowerable, HasNumpyKernel):
    """A primitive with one output. Its rules take and return that output alone, not a sequence."""

    __slots__ = ()
    arity: ClassVar[int] = 1
    """The number of operands, or `VARIADIC`."""

    @abstractmethod
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        """Returns the output's aval.

        Args:
            *avals: The avals of the operands.

        Raises:
            TypeError: If the number or dtypes of the operands are not accepted.
            ValueError: If their shapes are not accepted.
        """
        raise NotImplementedError

    @abstractmethod
    def kernel(self, *args: NDArray) -> NDArray:
        """Computes the output with NumPy, from operands that `out_aval` has accepted.

        Args:
            *args: The operands as NumPy arrays, which must not be written to.

        Returns:
            The output.
        """
        raise NotImplementedError

    @abstractmethod
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Value, int | None]:
        """Returns the output for the whole batch, and the position of its batch axis (None if it is not batched).

        Args:
            axis: The size and name of the batch axis.
            args: The operands.
            dims: For each operand, the position of its batch axis; `None` if it is not batched.
        """
        raise NotImplementedError

    @abstractmethod
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        """Emits StableHLO operations that compute the output.

        Args:
            builder: Emits operations.
            out: The aval of the output.
            *operands: The operands in the module.

        Returns:
            The output in the module.
        """
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
        if arity == 1:  # a special case for speed: eager dispatch is a hot path
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
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
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


class UnaryOperation(Operation):
    """An operation with one operand."""

    __slots__ = ()

    @abstractmethod
    def batch_operand(self, axis: MappedAxis, x: Value, dim: int) -> tuple[Value, int | None]:
        """Returns the output for the whole batch, and the position of its batch axis (None if it is not batched).

        Args:
            axis: The size and name of the batch axis.
            x: The operand.
            dim: The position of its batch axis.
        """
        raise NotImplementedError

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Value, int | None]:
        (x,), (dim,) = args, dims
        assert dim is not None
        return self.batch_operand(axis, x, dim)


class DataMovement:
    """Capability: a primitive that moves elements without computing with them, so they may be random keys.

    >>> from tracefx import bind, numpy, ops
    >>> bind(ops.Transpose((1, 0)), numpy.array([[1, 2], [3, 4]]))[0].tolist()
    [[1, 3], [2, 4]]
    """

    __slots__ = ()


def arity_error(name: str, expected: int, actual: int) -> TypeError:
    """Returns the error for a wrong number of operands."""
    return TypeError(f"{name} takes {expected} operand{'' if expected == 1 else 's'}, got {actual}")


def require_arity(name: str, expected: int, operands: Sequence[object]) -> None:
    """Raises TypeError if a primitive has a wrong number of operands."""
    if len(operands) != expected:
        raise arity_error(name, expected, len(operands))


P = ParamSpec("P")
S = TypeVar("S", bound=Primitive)


def memoize_aval(
    *fields: str,
) -> Callable[[Callable[Concatenate[S, P], ShapedArray]], Callable[Concatenate[S, P], ShapedArray]]:
    """Returns a decorator that memoizes an `out_aval` by the operands' avals and by these fields of the primitive.

    `fields` must name every field that the decorated method reads.
    """
    parameters = attrgetter(*fields)

    def decorate(out_aval: Callable[Concatenate[S, P], ShapedArray]) -> Callable[Concatenate[S, P], ShapedArray]:
        cache = BoundedCache[Hashable, ShapedArray](4096)

        @functools.wraps(out_aval)
        def found(self: S, /, *avals: P.args, **kwargs: P.kwargs) -> ShapedArray:
            key = (type(self), parameters(self), avals)
            aval = cache.get(key)
            if aval is None:
                aval = cache.insert(key, out_aval(self, *avals, **kwargs))
            return aval

        return found

    return decorate


class CompiledOperation(Operation):
    """A primitive without a good NumPy kernel: eager evaluation compiles it, once per tuple of operand avals."""

    __slots__ = ()

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        (out,) = self.evaluate([from_numpy(x, x.dtype) for x in args])
        return to_numpy(out)

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return run_compiled(self, args)


def run_compiled(prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
    """Compiles the primitive as a program of one equation and returns its outputs for `args`."""
    key = prim, tuple([a.aval for a in args])
    jaxpr = SINGLE_OPERATIONS.get(key) or SINGLE_OPERATIONS.insert(key, single_eqn_jaxpr(*key))
    return BACKEND.value.run(jaxpr, args, prim.name)


def run_compiled_if_repeated(prim: Primitive, args: Sequence[Value]) -> Sequence[Value] | None:
    """Like `run_compiled`, but returns None for the first operands with their avals, which may also be the last.

    It is for primitives with a NumPy kernel that returns the same results, but is slower on arrays of more than
    `MAX_KERNEL_SIZE` elements. For operands of dtype `float0`, which XLA does not have, it returns None too.
    """
    key = prim, tuple([a.aval for a in args])
    if key in SINGLE_OPERATIONS:
        return run_compiled(prim, args)
    if any(aval.dtype == dtypes.float0 for aval in key[1]):
        return None
    SINGLE_OPERATIONS.insert(key, single_eqn_jaxpr(*key))
    return None


MAX_KERNEL_SIZE: Final = 1 << 16
"""The number of elements up to which a call of a compiled program takes longer than a NumPy kernel."""
SINGLE_OPERATIONS: Final = BoundedCache[tuple[Primitive, tuple[ShapedArray, ...]], Jaxpr](4096)
"""The jaxprs of `run_compiled`. The executable of each is cached with it."""


class HasZeroTangent(Primitive, Differentiable):
    """A primitive with one output whose derivative is zero wherever it exists."""

    __slots__ = ()

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        out = bind1(self, *primals)
        return [out], [Zero(out.aval.tangent())]


class HasPushforward(Differentiable):
    """Capability: a primitive with one operand is differentiable."""

    __slots__ = ()

    @abstractmethod
    def pushforward(self, x: Value, t: Value) -> tuple[Sequence[Value], Sequence[Tangent]]:
        """Returns the results and their tangents.

        Args:
            x: The operand.
            t: Its tangent, which is never a symbolic `Zero`: primitives are differentiated at some other tangent.
        """
        raise NotImplementedError

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        (x,), (t,) = primals, tangents
        assert not isinstance(t, Zero)
        return self.pushforward(x, t)


class UnaryLinear(Primitive, HasPushforward):
    """A primitive that is linear in its one operand: its JVP applies the primitive itself to the tangent."""

    __slots__ = ()

    @override
    def pushforward(self, x: Value, t: Value) -> tuple[Sequence[Value], Sequence[Tangent]]:
        return bind(self, x), bind(self, t)


class HasPullback(Transposable):
    """Capability: a primitive with one output can be transposed."""

    __slots__ = ()

    @abstractmethod
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        """Returns the cotangents of the `UndefinedPrimal` operands, given the cotangent of the output.

        Args:
            ct: The cotangent of the output, which is never a symbolic `Zero`: the backward pass skips such equations.
            *args: The operands: an `UndefinedPrimal` for each one that is transposed, the value of each other one.
        """
        raise NotImplementedError

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        (ct,) = cts
        assert not isinstance(ct, Zero)
        return self.pullback(ct, *args)


class LinearOperation(Operation, Differentiable, HasPullback):
    """A primitive that is jointly linear in all operands: its JVP applies the primitive itself to the tangents."""

    __slots__ = ()

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        out = bind1(self, *primals)
        if out.aval.tangent().dtype == dtypes.float0:
            return [out], [Zero(out.aval.tangent())]
        return [out], [bind1(self, *[self.instantiate(t) for t in tangents])]

    def instantiate(self, tangent: Tangent) -> Value:
        """Returns the tangent as a value.

        A primitive with one operand is never differentiated at a `Zero`; one with several overrides this to make zeros.

        Args:
            tangent: The tangent.
        """
        assert not isinstance(tangent, Zero)
        return tangent


@final
@frozen
class Domain:
    """The set of dtypes that a primitive accepts, and its description for error messages."""

    what: str
    accepts: Callable[[DType], bool]
    keys: bool = field(default=False, kw_only=True)
    """Whether random keys, which are not numbers, are accepted too."""
    kernel_fixups: frozenset[DType] = field(default=frozenset(), kw_only=True)
    """The dtypes for which the kernel corrects results of NumPy's ufunc."""
    plain: frozenset[DType] = field(init=False, repr=False)
    """Accepted dtypes whose elements take whole bytes, as in XLA, and for which NumPy's ufunc needs no correction."""

    def __attrs_post_init__(self) -> None:
        stored = [d for d in dtypes.ALL_DTYPES if self.accepts(d) and dtypes.itemsize_bits(d) >= 8]
        plain = frozenset(stored) - self.kernel_fixups
        object.__setattr__(self, "plain", plain)

    def takes(self, dtype: DType) -> bool:
        """Returns whether the domain contains a dtype.

        Args:
            dtype: The dtype.
        """
        return self.accepts(dtype) and (self.keys or not dtypes.is_key(dtype))

    def require(self, name: str, *avals: ShapedArray) -> None:
        """Checks that the dtype of every operand is in the domain.

        Args:
            name: The name of the primitive, for the message.
            *avals: The avals of the operands.

        Raises:
            TypeError: If the dtype of an operand is not in the domain.
        """
        for i, aval in enumerate(avals):
            if aval.dtype not in self.plain and not self.takes(aval.dtype):
                raise TypeError(f"{name} takes {self.what}, but operand {i} is {aval}; convert it first with astype")


def refuse_keys(name: str, dtype: DType) -> NoReturn:
    """Raises the error for random keys as operands of a primitive that takes numbers of any dtype."""
    raise TypeError(
        f"{name} takes numbers, but {dtypes.name(dtype)} is the dtype of random keys: draw numbers from them with "
        "tracefx.random, or get their words with tracefx.random.key_data"
    )


ANY_NUMBERS: Final = Domain("numbers of any dtype", lambda dtype: True)
ANY: Final = Domain("any dtype", lambda dtype: True, keys=True)


def require_axes(name: str, axes: Sequence[int], ndim: int) -> None:
    """Raises `AxisError` unless `axes` are distinct non-negative axes of an array of rank `ndim`."""
    for a in axes:
        if not 0 <= a < ndim:
            break
    else:
        if len(axes) < 2 or len(set(axes)) == len(axes):
            return
    raise AxisError(f"{name}: axes {tuple(axes)} must be distinct, non-negative axes of an operand of rank {ndim}")


def static_shape(name: str, shape: object, argument: str = "shape") -> tuple[int, ...]:
    """Returns `shape` as a tuple of Python integers.

    Raises:
        TypeError: A size is traced or not an integer.
        ShapeError: A size is negative. It is a ValueError and a TypeError.
    """
    if type(shape) is tuple:
        for n in shape:
            if type(n) is not int or n < 0:
                break
        else:
            return shape
    if not isinstance(shape, Iterable):
        raise TypeError(
            f"{name}: {argument} must be a sequence of integers, got {shape!r} of type {type(shape).__name__}"
        )
    sizes: list[int] = []
    for n in concretize(shape):
        if is_symbolic_dim(n):
            sizes.append(cast(int, n))
            continue
        try:
            sizes.append(n.__index__())
        except ConcretizationError as error:
            raise ConcretizationError(
                f"{name}: {argument} must consist of concrete integers, got {shape!r}, but {error.detail} Shapes are "
                "static: compute them with numpy or Python integers, such as those of x.shape, or make the argument "
                "they come from static, with static_argnums",
                error.detail,
            ) from error
        except (TypeError, AttributeError) as error:
            raise TypeError(
                f"{name}: {argument} must consist of integers, got {n!r} of type {type(n).__name__} in {shape!r}"
            ) from error
        if sizes[-1] < 0:
            raise ShapeError(f"{name}: {argument} {shape!r} has a negative size")
    return tuple(sizes)


def specialize_reduce(fold: Callable[..., NDArray], axes: tuple[int, ...], ndim: int) -> Callable[..., NDArray]:
    """Returns a fast function that reduces arrays of rank `ndim` over `axes` with `fold`, the `reduce` of a ufunc."""
    axis = axes[0] if len(axes) == 1 else None if len(axes) == ndim else axes
    if axis == 0:  # the default of `ufunc.reduce`
        return fold
    return lambda x: fold(x, axis)
