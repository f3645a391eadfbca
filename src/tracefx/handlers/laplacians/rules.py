"""Laplacian rules for families of primitives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from attrs import evolve

from tracefx.core import Shape, Value, dtypes
from tracefx.core.handler import bind, bind1, current, handling
from tracefx.core.primitive import Differentiable, MappedAxis, Primitive, Tangent, Zero
from tracefx.handlers.laplacians.laplacian_array import (
    DENSE_LAYOUT,
    LaplacianArray,
    LaplacianOrValue,
    add_or_zero,
    all_to_common_layout,
    broadcast_factor,
    broadcast_scalar,
    jacobian_inner_product,
    laplacian_array,
    mul_or_zero,
    pad_inputs,
    primal_of,
    scale_jacobian,
    tangent_or_none,
    to_block_diagonal,
    to_common_layout,
    to_dense,
)
from tracefx.interpreters.batch import Batch
from tracefx.interpreters.jvp import JVP
from tracefx.ops.elementwise.arithmetic import Div, Mul, Neg, Sub, mul, neg, sub
from tracefx.ops.elementwise.elementwise import Add, Elementwise, Smooth, add
from tracefx.ops.elementwise.selection import SelectN
from tracefx.ops.reductions.reduction import ReduceExtremum
from tracefx.ops.structural import (
    BroadcastInDim,
    ConvertElementType,
    ReduceSum,
    Reshape,
    Transpose,
    batch_first,
    constant_like_aval,
    reduce_sum,
    reshape,
)


def zero_derivative_laplacian(handler: object, prim: Primitive, *args: LaplacianOrValue) -> Sequence[LaplacianOrValue]:
    """Results that do not depend on the inputs, or whose derivative is zero almost everywhere."""
    return bind(prim, *[primal_of(a) for a in args])


# ------------------------------------------------------------------ block diagonal Jacobians

RowPreserving: TypeAlias = (
    Neg | ConvertElementType | ReduceSum | ReduceExtremum | BroadcastInDim | Reshape | Transpose | Elementwise | SelectN
)


def preserves_rows(prim: RowPreserving, shape: Shape) -> bool:
    """Returns whether row `i` of the result depends only on row `i` of an operand of shape `shape`."""
    match prim:
        case ReduceSum() | ReduceExtremum():
            return 0 not in prim.axes
        case BroadcastInDim():
            return prim.broadcast_dimensions[0] == 0 and prim.shape[0] == shape[0]
        case Reshape():
            return bool(prim.new_sizes) and prim.new_sizes[0] == shape[0]
        case Transpose():
            return prim.permutation[0] == 0
        case _:
            return True


# ------------------------------------------------------------------ operations that have a JVP rule only


def locally_linear_laplacian(handler: object, prim: object, *args: LaplacianOrValue) -> Sequence[LaplacianOrValue]:
    """For operations without second derivatives: applies the JVP to all inputs' directions and to the Laplacians."""
    assert isinstance(prim, Differentiable)
    size = _num_inputs(args)
    full = _all_to_block_diagonal(prim, args)
    form = DENSE_LAYOUT if full is None else (None, True)
    if full is None:
        full = [to_dense(a) if isinstance(a, LaplacianArray) else a for a in args]
    values = [primal_of(a) for a in full]
    count = next(a.jacobian.aval.shape[0] for a in full if isinstance(a, LaplacianArray))
    batch = Batch(current(), MappedAxis(count))
    with handling(batch):
        outs, pushed = prim.jvp(values, _directions(batch, full))
    jacobians = [_unbatch_tangent(batch, t) for t in pushed]
    return _make_results(size, outs, jacobians, _push_laplacians(prim, values, full, len(outs)), form)


def _all_to_block_diagonal(prim: Differentiable, args: Sequence[LaplacianOrValue]) -> list[LaplacianOrValue] | None:
    """Returns the operands with block diagonal Jacobians, if all have this form and the operation preserves rows."""
    if not isinstance(prim, RowPreserving):
        return None
    converted: list[LaplacianOrValue] = []
    shape: Shape = ()
    for a in args:
        if isinstance(a, LaplacianArray):
            rows = to_block_diagonal(a)
            if rows is None:
                return None
            converted.append(rows)
            shape = rows.shape
        else:
            converted.append(a)
    return converted if preserves_rows(prim, shape) else None


def second_derivative_laplacian(handler: object, prim: object, *args: LaplacianOrValue) -> Sequence[LaplacianOrValue]:
    """For any differentiable operation: differentiates its JVP once more in the direction of each input."""
    assert isinstance(prim, Differentiable)
    full = [to_dense(a) if isinstance(a, LaplacianArray) else a for a in args]
    size = _num_inputs(full)
    values = [primal_of(a) for a in full]
    batch = Batch(current(), MappedAxis(size))
    along = JVP(batch)
    with handling(along):
        directions = _directions(batch, full)
        duals, slopes = prim.jvp([along.wrap(x, t) for x, t in zip(values, directions, strict=True)], directions)
    outs, jacobians, curvatures = list[Value](), list[Value | None](), list[Value | None]()
    for out, slope in zip(duals, slopes, strict=True):
        outs.append(batch.unwrap(along.unwrap(out)[0])[0])
        first, second = (slope, slope) if isinstance(slope, Zero) else along.unwrap(slope)
        jacobians.append(_unbatch_tangent(batch, first))
        second_sum = _unbatch_tangent(batch, second)
        curvatures.append(None if second_sum is None else reduce_sum(second_sum, (0,)))
    laplacians = _push_laplacians(prim, values, full, len(outs))
    return _make_results(
        size, outs, jacobians, [add_or_zero(x, y) for x, y in zip(laplacians, curvatures, strict=True)]
    )


def _num_inputs(args: Sequence[LaplacianOrValue]) -> int:
    return next(a.size for a in args if isinstance(a, LaplacianArray))


def _directions(batch: Batch, args: Sequence[LaplacianOrValue]) -> list[Tangent]:
    return [batch.wrap(a.jacobian, 0) if isinstance(a, LaplacianArray) else Zero(a.aval.tangent()) for a in args]


def _unbatch_tangent(batch: Batch, t: Tangent) -> Value | None:
    """Returns a tangent from a batch of directions, with the batch axis first."""
    if isinstance(t, Zero):
        return None
    x, dim = batch.unwrap(t)
    return batch_first(x, dim, batch.axis)


def _push_laplacians(
    prim: Differentiable, values: Sequence[Value], args: Sequence[LaplacianOrValue], count: int
) -> list[Value | None]:
    """Returns the JVP in the direction of the operands' Laplacians."""
    if all(not isinstance(a, LaplacianArray) or a.laplacian is None for a in args):
        return [None] * count
    directions: list[Tangent] = [
        Zero(x.aval.tangent()) if not isinstance(a, LaplacianArray) or a.laplacian is None else a.laplacian
        for a, x in zip(args, values, strict=True)
    ]
    return [tangent_or_none(t) for t in prim.jvp(values, directions)[1]]


def _make_results(
    size: int,
    outs: Sequence[Value],
    jacobians: Sequence[Value | None],
    laplacians: Sequence[Value | None],
    form: tuple[int | None, bool] = DENSE_LAYOUT,
) -> list[LaplacianOrValue]:
    return [
        out if jac is None else laplacian_array(out, jac, lap, size, form)
        for out, jac, lap in zip(outs, jacobians, laplacians, strict=True)
    ]


# ------------------------------------------------------------------ elementwise operations


def elementwise_laplacian(handler: object, prim: Smooth, *args: LaplacianOrValue) -> Sequence[LaplacianOrValue]:
    """For a function `g(x, y, ...)`: uses the first and second partial derivatives of `g`, each shaped like the result.

    A function with complex operands and real results has no such derivatives and takes the general rule.
    """
    values = [primal_of(a) for a in args]
    aval = prim.out_aval(*[x.aval for x in values])
    if not dtypes.is_complex(aval.dtype) and any(dtypes.is_complex(x.aval.dtype) for x in values):
        return second_derivative_laplacian(handler, prim, *args)
    full = [broadcast_scalar(a, aval.shape) for a in args]
    varying = [i for i, a in enumerate(full) if isinstance(a, LaplacianArray)]
    values = [primal_of(a) for a in full]
    first, second = _partial_derivatives(prim, values, varying)
    slopes = {i: t for i, t in first.items() if t is not None}
    if not slopes:
        return bind(prim, *values)
    operands = dict(zip(varying, all_to_common_layout([a for a in full if isinstance(a, LaplacianArray)]), strict=True))
    jac: Value | None = None
    lap: Value | None = None
    for i, slope in slopes.items():
        jac = add_or_zero(jac, scale_jacobian(slope, operands[i]))
        lap = add_or_zero(lap, mul_or_zero(slope, operands[i].laplacian))
    for (i, j), second_derivative in second.items():
        if second_derivative is not None:
            factor = second_derivative if i == j else mul(second_derivative, 2.0)
            lap = add_or_zero(lap, mul(factor, jacobian_inner_product(operands[i], operands[j])))
    assert jac is not None
    some = operands[varying[0]]
    return [laplacian_array(bind1(prim, *values), jac, lap, some.size, some.layout)]


def _partial_derivatives(
    prim: Smooth, values: Sequence[Value], varying: Sequence[int]
) -> tuple[dict[int, Value | None], dict[tuple[int, int], Value | None]]:
    """Returns the first partial derivatives by the varying operands, and the second ones by pairs `i <= j`."""
    first: dict[int, Value | None] = {}
    second: dict[tuple[int, int], Value | None] = {}
    ones = [constant_like_aval(x.aval.tangent(), 1) for x in values]
    zeros = [Zero(x.aval.tangent()) for x in values]
    for j in varying:
        along = JVP(current())
        duals = [along.wrap(x, ones[k]) if k == j else x for k, x in enumerate(values)]
        for i in varying:
            if i > j:
                break
            with handling(along):
                _, (slope,) = prim.jvp(duals, [ones[k] if k == i else zeros[k] for k in range(len(values))])
            t, second_derivative = (slope, slope) if isinstance(slope, Zero) else along.unwrap(slope)
            first[i] = tangent_or_none(t)
            second[i, j] = tangent_or_none(second_derivative)
    return first, second


def add_laplacian(handler: object, prim: Add, x: LaplacianOrValue, y: LaplacianOrValue) -> Sequence[LaplacianOrValue]:
    return [_add_with_sign(prim, x, y, lambda t: t)]


def sub_laplacian(handler: object, prim: Sub, x: LaplacianOrValue, y: LaplacianOrValue) -> Sequence[LaplacianOrValue]:
    return [_add_with_sign(prim, x, y, neg)]


def _add_with_sign(
    prim: Primitive, x: LaplacianOrValue, y: LaplacianOrValue, sign: Callable[[Value], Value]
) -> LaplacianArray:
    out = bind1(prim, primal_of(x), primal_of(y))
    x, y = broadcast_scalar(x, out.aval.shape), broadcast_scalar(y, out.aval.shape)
    if isinstance(x, LaplacianArray) and isinstance(y, LaplacianArray):
        x, y = to_common_layout(x, y)
        other = None if y.laplacian is None else sign(y.laplacian)
        return laplacian_array(
            out, add(x.jacobian, sign(y.jacobian)), add_or_zero(x.laplacian, other), x.size, x.layout
        )
    if isinstance(x, LaplacianArray):
        return laplacian_array(out, x.jacobian, x.laplacian, x.size, x.layout)
    assert isinstance(y, LaplacianArray)
    return laplacian_array(out, sign(y.jacobian), None if y.laplacian is None else sign(y.laplacian), y.size, y.layout)


def mul_laplacian(handler: object, prim: Mul, x: LaplacianOrValue, y: LaplacianOrValue) -> Sequence[LaplacianOrValue]:
    out = bind1(prim, primal_of(x), primal_of(y))
    same = x is y
    x, y = broadcast_scalar(x, out.aval.shape), broadcast_scalar(y, out.aval.shape)
    if not isinstance(x, LaplacianArray):
        assert isinstance(y, LaplacianArray)
        x, y = y, x
    if not isinstance(y, LaplacianArray):
        return [laplacian_array(out, scale_jacobian(y, x), mul_or_zero(y, x.laplacian), x.size, x.layout)]
    if same:
        twice = mul(x.value, 2.0)
        lap = add_or_zero(mul_or_zero(twice, x.laplacian), mul(jacobian_inner_product(x, x), 2.0))
        return [laplacian_array(out, scale_jacobian(twice, x), lap, x.size, x.layout)]
    x, y = to_common_layout(x, y)
    lap = add_or_zero(
        add_or_zero(mul_or_zero(y.value, x.laplacian), mul_or_zero(x.value, y.laplacian)),
        mul(jacobian_inner_product(x, y), 2.0),
    )
    return [laplacian_array(out, add(scale_jacobian(y.value, x), scale_jacobian(x.value, y)), lap, x.size, x.layout)]


def div_laplacian(handler: object, prim: Div, x: LaplacianOrValue, y: LaplacianOrValue) -> Sequence[LaplacianOrValue]:
    """From `q * y = x`: `q' = (x' - q y') / y` and `lap q = (lap x - q lap y - 2 q' . y') / y`, one sum over inputs."""
    out = bind1(prim, primal_of(x), primal_of(y))
    x, y = broadcast_scalar(x, out.aval.shape), broadcast_scalar(y, out.aval.shape)
    if not isinstance(y, LaplacianArray):
        assert isinstance(x, LaplacianArray)
        lap = None if x.laplacian is None else bind1(prim, x.laplacian, y)
        return [laplacian_array(out, bind1(prim, x.jacobian, broadcast_factor(y, x)), lap, x.size, x.layout)]
    if isinstance(x, LaplacianArray):
        x, y = to_common_layout(x, y)
        numerator, x_laplacian = sub(x.jacobian, scale_jacobian(out, y)), x.laplacian
    else:
        numerator, x_laplacian = neg(scale_jacobian(out, y)), None
    jac = bind1(prim, numerator, broadcast_factor(y.value, y))
    cross = mul(jacobian_inner_product(evolve(y, jacobian=jac), y), 2.0)
    subtracted = add_or_zero(mul_or_zero(out, y.laplacian), cross)
    assert subtracted is not None
    lap = neg(subtracted) if x_laplacian is None else sub(x_laplacian, subtracted)
    return [laplacian_array(out, jac, bind1(prim, lap, y.value), y.size, y.layout)]


# ------------------------------------------------------------------ operations that keep the layout


def order_preserving_laplacian(handler: object, prim: Primitive, x: LaplacianArray) -> Sequence[LaplacianOrValue]:
    """For linear operations that keep the order of the elements: a diagonal Jacobian stays diagonal."""
    if x.diagonal_offset is None and (not x.is_block_diagonal or isinstance(prim, Reshape)):
        return locally_linear_laplacian(handler, prim, x)
    lap = None if x.laplacian is None else bind1(prim, x.laplacian)
    return [laplacian_array(bind1(prim, x.value), bind1(prim, x.jacobian), lap, x.size, x.layout)]


def linear_elementwise_laplacian(
    handler: object, prim: Primitive, *args: LaplacianOrValue
) -> Sequence[LaplacianOrValue]:
    """For elementwise operations without second derivatives: a diagonal Jacobian stays diagonal."""
    varying = [a for a in args if isinstance(a, LaplacianArray)]
    first = varying[0]
    if first.diagonal_offset is None or any((a.layout, a.shape) != (first.layout, first.shape) for a in varying):
        return locally_linear_laplacian(handler, prim, *args)
    assert isinstance(prim, Differentiable)
    values = [primal_of(a) for a in args]
    slopes: list[Tangent] = [a.jacobian if isinstance(a, LaplacianArray) else Zero(a.aval.tangent()) for a in args]
    outs, (slope,) = prim.jvp(values, slopes)
    if isinstance(slope, Zero) or outs[0].aval.shape != first.shape:
        return locally_linear_laplacian(handler, prim, *args)
    (lap,) = _push_laplacians(prim, values, args, 1)
    return [laplacian_array(outs[0], slope, lap, first.size, first.layout)]


def convert_element_type_laplacian(
    handler: object, prim: ConvertElementType, x: LaplacianArray
) -> Sequence[LaplacianOrValue]:
    return (order_preserving_laplacian if dtypes.is_inexact(prim.new_dtype) else zero_derivative_laplacian)(
        handler, prim, x
    )


def reduce_sum_laplacian(handler: object, prim: ReduceSum, x: LaplacianArray) -> Sequence[LaplacianOrValue]:
    """Sums all elements of an array with a diagonal Jacobian: the derivatives are its diagonal."""
    if x.diagonal_offset is None or len(prim.axes) < len(x.shape):
        return locally_linear_laplacian(handler, prim, x)
    jac = pad_inputs(reshape(x.jacobian, (x.value.aval.size,)), x.diagonal_offset, x.size)
    lap = None if x.laplacian is None else bind1(prim, x.laplacian)
    return [laplacian_array(bind1(prim, x.value), jac, lap, x.size)]
