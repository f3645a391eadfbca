"""Elementwise selection (`select_n`, `select`, `clamp`), and `stop_gradient`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

import numpy as np
from typing_extensions import override

from tracefx.core import Array, ArrayLike, ConcreteArray, Literal, NDArray, ShapedArray, Value, dtypes
from tracefx.core.handler import bind1
from tracefx.core.named_sharding import Spec
from tracefx.core.primitive import Differentiable, MappedAxis, Tangent, Transposable, UndefinedPrimal, Zero
from tracefx.lowering import Builder, IrValue
from tracefx.ops import stablehlo
from tracefx.ops.elementwise.bitwise import bitwise_and
from tracefx.ops.elementwise.comparison import ORDERED, gt, lt
from tracefx.ops.elementwise.elementwise import Elementwise, NonDifferentiable, Smooth, operands
from tracefx.ops.monoids import MAXIMUM, MINIMUM
from tracefx.ops.operation import (
    MAX_KERNEL_SIZE,
    VARIADIC,
    DataMovement,
    HasPullback,
    Operation,
    run_compiled_if_repeated,
)
from tracefx.ops.sharding_rules import joined_spec
from tracefx.ops.structural import (
    batch_first,
    broadcast_in_dim,
    broadcast_to,
    constant_like_aval,
    instantiate,
    match_aval,
)

# ------------------------------------------------------------------ select_n


@final
class SelectN(Operation, Differentiable, HasPullback, DataMovement):
    """Selects each element from one of several cases: `cases[which[i]][i]`; False is the first case, True the second.

    `which: bool[...], *cases: f32[...] -> f32[...]`; `which` is boolean (with two cases) or an integer, and may have
    rank 0. The cases have one shape and any dtype. Bound by `lax.select_n` and `lax.select`.

    >>> from tracefx import bind, numpy, ops
    >>> bind(ops.SelectN(), numpy.array([False, True]), numpy.array([1, 2]), numpy.array([3, 4]))
    [Array([1, 4], dtype=int32)]
    """

    name = "select_n"
    arity = VARIADIC

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [joined_spec(self, avals)]

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        which, *cases = avals
        if not cases:
            raise ValueError("select_n takes at least one case after `which`")
        if not dtypes.is_bool(which.dtype) and not dtypes.is_integer(which.dtype):
            raise TypeError(f"select_n: which must be boolean or integer, got {which}")
        if dtypes.is_bool(which.dtype) and len(cases) > 2:
            raise TypeError(f"select_n: a boolean which chooses between two cases, got {len(cases)}; pass integers")
        first = cases[0]
        if any(c.shape != first.shape or c.dtype != first.dtype for c in cases):
            raise TypeError(
                f"select_n: cases must have one shape and dtype, got {' and '.join(map(str, cases))}; "
                "tracefx.numpy.where broadcasts and promotes"
            )
        if which.shape and which.shape != first.shape:
            raise TypeError(f"select_n: which must have the shape of the cases or no axes, got {which} for {first}")
        return ShapedArray(first.shape, first.dtype, all(c.weak_type for c in cases))

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        if len(args) == 3:  # the fast path: a mask and two arrays with equal avals
            which, off, on = args
            if on.aval.size > MAX_KERNEL_SIZE and (outs := run_compiled_if_repeated(self, args)) is not None:
                return outs
            if which.aval.shape == off.aval.shape and (off.aval is on.aval or off.aval == on.aval):
                out = select_eagerly(which, on, off)
                if out is not None:
                    return [out]
        return Operation.evaluate(self, args)

    @override
    def numpy_kernel(self, *avals: ShapedArray) -> Callable[..., NDArray]:
        if len(avals) == 3 and dtypes.is_bool(avals[0].dtype):
            return _select_kernel
        return self.kernel

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        which, *cases = args
        if dtypes.is_bool(which.dtype) and len(cases) == 2:
            return np.where(which, cases[1], cases[0])
        out = cases[-1]
        for i in range(len(cases) - 2, -1, -1):
            out = np.where(which <= i, cases[i], out)
        return out

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        out = bind1(self, *primals)
        aval = out.aval.tangent()
        cases = [instantiate(match_aval(t if not isinstance(t, Zero) else Zero(aval), aval)) for t in tangents[1:]]
        return [out], [bind1(self, primals[0], *cases)]

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        which, *cases = args
        assert not isinstance(which, UndefinedPrimal)
        zeros = constant_like_aval(ct.aval, 0)
        case_cts: list[Tangent | None] = []
        for i, case in enumerate(cases):
            if not isinstance(case, UndefinedPrimal):
                case_cts.append(None)
                continue
            picked = bind1(self, which, *[ct if j == i else zeros for j in range(len(cases))])
            case_cts.append(match_aval(picked, case.aval))
        return [None, *case_cts]

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        which, *cases = args
        which_dim, *case_dims = dims
        rank = cases[0].aval.ndim - (case_dims[0] is not None)
        if len(set(dims)) == 1 and which.aval.ndim == rank + 1:
            return bind1(self, *args), which_dim
        if which_dim is None and which.aval.ndim == 0 and len(set(case_dims)) == 1:
            return bind1(self, *args), case_dims[0]
        fronted = [batch_first(c, d, axis) for c, d in zip(cases, case_dims, strict=True)]
        if which_dim is not None or which.aval.ndim > 0:
            which = batch_first(which, which_dim, axis)
            if which.aval.ndim == 1 and rank > 0:
                which = broadcast_in_dim(which, fronted[0].aval.shape, (0,))
        return bind1(self, which, *fronted), 0

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        which, *cases = operands
        if dtypes.is_bool(which.aval.dtype) and len(cases) == 2:
            return builder.emit("stablehlo.select", [which, cases[1], cases[0]], [out])[0]
        picked = cases[-1]
        for i in range(len(cases) - 2, -1, -1):
            bound = stablehlo.emit_full(builder, i, which.aval)
            mask = stablehlo.emit_compare(builder, "LE", which, bound)
            (picked,) = builder.emit("stablehlo.select", [mask, cases[i], picked], [out])
        return picked


SELECT_N: Final = SelectN()


def select_n(which: ArrayLike, *cases: ArrayLike) -> Array:
    """Returns each element of `cases[k]` where `which` is `k`.

    Args:
        which: Booleans, for at most two cases (False selects case 0, True case 1), or integers; of the shape of the
            cases, or a scalar. Integers out of range select the nearest case.
        *cases: Arrays of one shape and dtype, at least one.

    Returns:
        An array of the shape and dtype of the cases.

    Raises:
        TypeError: The cases differ in shape or dtype, or `which` does not fit them.
        ValueError: There are no cases.

    >>> select_n(np.array([0, 2, 1]), np.array([1, 2, 3]), np.array([10, 20, 30]), np.array([-1, -2, -3])).tolist()
    [1, -2, 30]
    """
    if len(cases) == 2 and isinstance(cases[0], Array) and isinstance(cases[1], Array):
        return bind1(SELECT_N, which, cases[0], cases[1])
    return bind1(SELECT_N, which, *operands(*cases))


def select(pred: ArrayLike, on_true: ArrayLike, on_false: ArrayLike) -> Array:
    """Returns `on_true` where `pred` is true, else `on_false`.

    Args:
        pred: Booleans, of the shape of the cases or a scalar.
        on_true: Array.
        on_false: Array of the same shape and dtype.

    Returns:
        An array of the shape and dtype of the cases.

    Raises:
        TypeError: Shapes or dtypes don't fit. `tracefx.numpy.where` broadcasts and promotes.

    >>> select(np.array([True, False]), np.array([1, 2]), np.array([10, 20])).tolist()
    [1, 20]
    """
    return select_n(pred, on_false, on_true)


def _select_kernel(which: NDArray, off: NDArray, on: NDArray) -> NDArray:
    return np.where(which, on, off)


def select_eagerly(pred: Value, on_true: Value, on_false: Value) -> ConcreteArray | None:
    """Selects between concrete values with NumPy, broadcasting scalars; returns None if the fast path doesn't apply.

    It does not apply to large arrays, on which `np.where` takes five times as long as a compiled program.

    The caller ensures that operands with axes have one shape, and that the cases have one dtype and weak type.
    """
    if (
        (type(pred) is not ConcreteArray and type(pred) is not Literal)
        or (type(on_true) is not ConcreteArray and type(on_true) is not Literal)
        or (type(on_false) is not ConcreteArray and type(on_false) is not Literal)
    ):
        return None
    which, on, off = pred.aval, on_true.aval, on_false.aval
    aval = on if on.shape else off
    if which.dtype != dtypes.bool_ or (off.shape and off.shape != aval.shape):
        return None
    if which.shape != aval.shape and which.shape:
        if aval.shape:
            return None
        aval = aval.update(shape=which.shape)
    if aval.size > MAX_KERNEL_SIZE:
        return None
    return ConcreteArray(aval, np.where(pred.numpy(), on_true.numpy(), on_false.numpy()))


def select_with_aval(pred: Value, on_true: Value | float, on_false: Value | float, aval: ShapedArray) -> Array:
    """Like `select`, for rules: numbers and scalar cases are broadcast to the shape and dtype of `aval`."""
    return bind1(SELECT_N, pred, _fill_or_broadcast(on_false, aval), _fill_or_broadcast(on_true, aval))


def _fill_or_broadcast(x: Value | float, aval: ShapedArray) -> Value:
    """Returns `x` with the shape of `aval`. Scalars stay literals; an array would become an input of each program."""
    if isinstance(x, int | float):
        return constant_like_aval(aval, x)
    return x if x.aval.shape == aval.shape else broadcast_to(x, aval.shape)


# ------------------------------------------------------------------ clamp


@final
class Clamp(Smooth):
    """The nearest number between two bounds, elementwise: `min(max(x, low), high)`.

    `low: f32[...], x: f32[...], high: f32[...] -> f32[...]`, booleans, integers or floats. A bound may have rank 0.
    Bound by `lax.clamp`.
    """

    name = "clamp"
    arity = 3
    domain = ORDERED
    hlo = "stablehlo.clamp"
    compiles_large = True

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        low, x, high = avals
        for argument, bound in (("min", low), ("max", high)):
            if bound.shape and bound.shape != x.shape:
                raise TypeError(f"clamp: {argument} must have the shape of x or no axes, got {bound} for {x}")
        return Elementwise.out_aval(self, *avals)

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        low, x, high = args
        if dims[1] is None:  # only the bounds may be scalars
            x, dims = batch_first(x, None, axis), (dims[0], 0, dims[2])
        return Smooth.batched(self, axis, (low, x, high), dims)

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        low, x, high = args
        return MINIMUM.combine(MAXIMUM.combine(x, low), high)

    @override
    def emit_elementwise(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        if not dtypes.is_bool(out.dtype):
            return super().emit_elementwise(builder, out, *operands)
        low, x, high = operands  # XLA's clamp does not support booleans
        return builder.emit("stablehlo.minimum", [*builder.emit("stablehlo.maximum", [x, low], [out]), high], [out])[0]

    @override
    def jvp_term(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        low, x, high = primals
        if i == 0:
            active = bitwise_and(gt(low, x), lt(low, high))
        elif i == 1:
            active = bitwise_and(gt(x, low), lt(x, high))
        else:
            active = lt(high, x)
        return select_with_aval(active, tangent, 0, out.aval.tangent())


CLAMP: Final = Clamp()


def clamp(min: ArrayLike, x: ArrayLike, max: ArrayLike) -> Array:
    """Returns `x` limited to the range from `min` to `max`, elementwise.

    Args:
        min: Lower bounds, of the shape of `x` or a scalar.
        x: Array or number; not complex.
        max: Upper bounds, of the shape of `x` or a scalar.

    Returns:
        An array of the shape and dtype of `x`: `max` where `min > max`, NaN where any operand is NaN.

    Raises:
        TypeError: The dtypes differ or are complex, or the bounds have another shape.

    >>> clamp(0, np.array([-1, 1, 5]), 3).tolist()
    [0, 1, 3]
    """
    return bind1(CLAMP, *operands(min, x, max))


# ------------------------------------------------------------------ stop_gradient


@final
class StopGradient(NonDifferentiable, Transposable):
    """The identity, with a derivative of zero. Its transpose is the identity.

    `x: f32[...] -> f32[...]`, any dtype. Bound by `lax.stop_gradient`.
    """

    name = "stop_gradient"

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        return args[0]

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        return list(cts)

    @override
    def emit_elementwise(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        return operands[0]


STOP_GRADIENT: Final = StopGradient()


def stop_gradient(x: ArrayLike) -> Array:
    """Returns `x`, with a derivative of zero.

    >>> stop_gradient(2.0)
    Array(2., dtype=float32, weak_type=True)
    """
    return bind1(STOP_GRADIENT, x)
