"""What becomes of derivatives and Laplacians, operation by operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from attrs import evolve

from tracefx.core import dtypes
from tracefx.core.avals import Shape
from tracefx.core.handler import bind, bind1, current, handling
from tracefx.core.primitive import Differentiable, MappedAxis, Primitive, Tangent, Zero
from tracefx.core.values import Value
from tracefx.handlers.laplacian.curved import (
    DENSE,
    Curved,
    Held,
    alike,
    as_term,
    by_rows,
    curved,
    dense,
    expanded,
    factor_for,
    in_one_form,
    in_place,
    inner,
    plus,
    scaled,
    times,
    value_of,
)
from tracefx.interpreters.batch import Batch
from tracefx.interpreters.jvp import JVP
from tracefx.ops.arithmetic import Div, Mul, Neg, Sub, mul, neg, sub
from tracefx.ops.basis import (
    BroadcastInDim,
    ConvertElementType,
    ReduceSum,
    Reshape,
    Transpose,
    batch_first,
    filled,
    reduce_sum,
    reshape,
)
from tracefx.ops.elementwise import Add, Elementwise, Smooth, add
from tracefx.ops.reduction import Extremum
from tracefx.ops.selection import SelectN


def still(handler: object, prim: Primitive, *args: Held) -> Sequence[Held]:
    """Results that don't vary, or whose derivative is zero wherever there is one."""
    return bind(prim, *[value_of(a) for a in args])


# ------------------------------------------------------------------ operations within rows

KeepsRows: TypeAlias = (
    Neg | ConvertElementType | ReduceSum | Extremum | BroadcastInDim | Reshape | Transpose | Elementwise | SelectN
)


def keeps_rows(prim: KeepsRows, shape: Shape) -> bool:
    """Whether row `i` of the result is made of row `i` of the operand, of shape `shape`, alone."""
    match prim:
        case ReduceSum() | Extremum():
            return 0 not in prim.axes
        case BroadcastInDim():
            return prim.broadcast_dimensions[0] == 0 and prim.shape[0] == shape[0]
        case Reshape():
            return bool(prim.new_sizes) and prim.new_sizes[0] == shape[0]
        case Transpose():
            return prim.permutation[0] == 0
        case _:
            return True


# ------------------------------------------------------------------ operations with a derivative alone


def locally_linear(handler: object, prim: object, *args: Held) -> Sequence[Held]:
    """Without second derivatives: by the derivative, of all inputs at once, and of the Laplacians."""
    assert isinstance(prim, Differentiable)
    size = _size(args)
    full = _as_rows(prim, args)
    form = DENSE if full is None else (None, True)
    if full is None:
        full = [dense(a) if isinstance(a, Curved) else a for a in args]
    values = [value_of(a) for a in full]
    count = next(a.jacobian.aval.shape[0] for a in full if isinstance(a, Curved))
    batch = Batch(current(), MappedAxis(count))
    with handling(batch):
        outs, pushed = prim.jvp(values, _directions(batch, full))
    jacobians = [_jacobian(batch, t) for t in pushed]
    return _results(size, outs, jacobians, _laplacians(prim, values, full, len(outs)), form)


def _as_rows(prim: Differentiable, args: Sequence[Held]) -> list[Held] | None:
    """The operands as rows, if all are, and stay what they are: the operation does something within each row."""
    if not isinstance(prim, KeepsRows):
        return None
    found: list[Held] = []
    shape: Shape = ()
    for a in args:
        if isinstance(a, Curved):
            rows = by_rows(a)
            if rows is None:
                return None
            found.append(rows)
            shape = rows.shape
        else:
            found.append(a)
    return found if keeps_rows(prim, shape) else None


def second_order(handler: object, prim: object, *args: Held) -> Sequence[Held]:
    """By the derivative's derivative in the direction of each input: it goes for everything that has a derivative."""
    assert isinstance(prim, Differentiable)
    full = [dense(a) if isinstance(a, Curved) else a for a in args]
    size = _size(full)
    values = [value_of(a) for a in full]
    batch = Batch(current(), MappedAxis(size))
    along = JVP(batch)
    with handling(along):
        directions = _directions(batch, full)
        found, slopes = prim.jvp([along.wrap(x, t) for x, t in zip(values, directions, strict=True)], directions)
    outs, jacobians, bends = list[Value](), list[Value | None](), list[Value | None]()
    for out, slope in zip(found, slopes, strict=True):
        outs.append(batch.unwrap(along.unwrap(out)[0])[0])
        first, second = (slope, slope) if isinstance(slope, Zero) else along.unwrap(slope)
        jacobians.append(_jacobian(batch, first))
        bend = _jacobian(batch, second)
        bends.append(None if bend is None else reduce_sum(bend, (0,)))
    laplacians = _laplacians(prim, values, full, len(outs))
    return _results(size, outs, jacobians, [plus(x, y) for x, y in zip(laplacians, bends, strict=True)])


def _size(args: Sequence[Held]) -> int:
    return next(a.size for a in args if isinstance(a, Curved))


def _directions(batch: Batch, args: Sequence[Held]) -> list[Tangent]:
    return [batch.wrap(a.jacobian, 0) if isinstance(a, Curved) else Zero(a.aval.tangent()) for a in args]


def _jacobian(batch: Batch, t: Tangent) -> Value | None:
    """What came of a batch of directions, these first."""
    if isinstance(t, Zero):
        return None
    x, dim = batch.unwrap(t)
    return batch_first(x, dim, batch.axis)


def _laplacians(prim: Differentiable, values: Sequence[Value], args: Sequence[Held], count: int) -> list[Value | None]:
    """The derivative in the direction of the operands' Laplacians."""
    if all(not isinstance(a, Curved) or a.laplacian is None for a in args):
        return [None] * count
    given: list[Tangent] = [
        Zero(x.aval.tangent()) if not isinstance(a, Curved) or a.laplacian is None else a.laplacian
        for a, x in zip(args, values, strict=True)
    ]
    return [as_term(t) for t in prim.jvp(values, given)[1]]


def _results(
    size: int,
    outs: Sequence[Value],
    jacobians: Sequence[Value | None],
    laplacians: Sequence[Value | None],
    form: tuple[int | None, bool] = DENSE,
) -> list[Held]:
    return [
        out if jac is None else curved(out, jac, lap, size, form)
        for out, jac, lap in zip(outs, jacobians, laplacians, strict=True)
    ]


# ------------------------------------------------------------------ element by element


def elementwise(handler: object, prim: Smooth, *args: Held) -> Sequence[Held]:
    """`g(x, y, ...)`: by the first and second partial derivatives of `g`, each an array like the result.

    A function of complex numbers with real results has no such derivatives by its operands as they are.
    """
    values = [value_of(a) for a in args]
    aval = prim.out_aval(*[x.aval for x in values])
    if not dtypes.is_complex(aval.dtype) and any(dtypes.is_complex(x.aval.dtype) for x in values):
        return second_order(handler, prim, *args)
    full = [expanded(a, aval.shape) for a in args]
    moving = [i for i, a in enumerate(full) if isinstance(a, Curved)]
    values = [value_of(a) for a in full]
    first, second = _partials(prim, values, moving)
    slopes = {i: t for i, t in first.items() if t is not None}
    if not slopes:
        return bind(prim, *values)
    operands = dict(zip(moving, in_one_form([a for a in full if isinstance(a, Curved)]), strict=True))
    jac: Value | None = None
    lap: Value | None = None
    for i, slope in slopes.items():
        jac = plus(jac, scaled(slope, operands[i]))
        lap = plus(lap, times(slope, operands[i].laplacian))
    for (i, j), bend in second.items():
        if bend is not None:
            factor = bend if i == j else mul(bend, 2.0)
            lap = plus(lap, mul(factor, inner(operands[i], operands[j])))
    assert jac is not None
    some = operands[moving[0]]
    return [curved(bind1(prim, *values), jac, lap, some.size, some.form)]


def _partials(
    prim: Smooth, values: Sequence[Value], moving: Sequence[int]
) -> tuple[dict[int, Value | None], dict[tuple[int, int], Value | None]]:
    """The partial derivatives by the operands that vary, and those of each of these by the operands from it on."""
    first: dict[int, Value | None] = {}
    second: dict[tuple[int, int], Value | None] = {}
    ones = [filled(x.aval.tangent(), 1) for x in values]
    zeros = [Zero(x.aval.tangent()) for x in values]
    for j in moving:
        along = JVP(current())
        duals = [along.wrap(x, ones[k]) if k == j else x for k, x in enumerate(values)]
        for i in moving:
            if i > j:
                break
            with handling(along):
                _, (slope,) = prim.jvp(duals, [ones[k] if k == i else zeros[k] for k in range(len(values))])
            t, bend = (slope, slope) if isinstance(slope, Zero) else along.unwrap(slope)
            first[i] = as_term(t)
            second[i, j] = as_term(bend)
    return first, second


def added(handler: object, prim: Add, x: Held, y: Held) -> Sequence[Held]:
    return [_sum(prim, x, y, lambda t: t)]


def subtracted(handler: object, prim: Sub, x: Held, y: Held) -> Sequence[Held]:
    return [_sum(prim, x, y, neg)]


def _sum(prim: Primitive, x: Held, y: Held, sign: Callable[[Value], Value]) -> Curved:
    out = bind1(prim, value_of(x), value_of(y))
    x, y = expanded(x, out.aval.shape), expanded(y, out.aval.shape)
    if isinstance(x, Curved) and isinstance(y, Curved):
        x, y = alike(x, y)
        other = None if y.laplacian is None else sign(y.laplacian)
        return curved(out, add(x.jacobian, sign(y.jacobian)), plus(x.laplacian, other), x.size, x.form)
    if isinstance(x, Curved):
        return curved(out, x.jacobian, x.laplacian, x.size, x.form)
    assert isinstance(y, Curved)
    return curved(out, sign(y.jacobian), None if y.laplacian is None else sign(y.laplacian), y.size, y.form)


def multiplied(handler: object, prim: Mul, x: Held, y: Held) -> Sequence[Held]:
    out = bind1(prim, value_of(x), value_of(y))
    same = x is y
    x, y = expanded(x, out.aval.shape), expanded(y, out.aval.shape)
    if not isinstance(x, Curved):
        assert isinstance(y, Curved)
        x, y = y, x
    if not isinstance(y, Curved):
        return [curved(out, scaled(y, x), times(y, x.laplacian), x.size, x.form)]
    if same:
        twice = mul(x.value, 2.0)
        lap = plus(times(twice, x.laplacian), mul(inner(x, x), 2.0))
        return [curved(out, scaled(twice, x), lap, x.size, x.form)]
    x, y = alike(x, y)
    lap = plus(plus(times(y.value, x.laplacian), times(x.value, y.laplacian)), mul(inner(x, y), 2.0))
    return [curved(out, add(scaled(y.value, x), scaled(x.value, y)), lap, x.size, x.form)]


def divided(handler: object, prim: Div, x: Held, y: Held) -> Sequence[Held]:
    """The quotient `q` is what gives `x` when multiplied by `y`, and so are its derivatives: one sum over inputs."""
    out = bind1(prim, value_of(x), value_of(y))
    x, y = expanded(x, out.aval.shape), expanded(y, out.aval.shape)
    if not isinstance(y, Curved):
        assert isinstance(x, Curved)
        lap = None if x.laplacian is None else bind1(prim, x.laplacian, y)
        return [curved(out, bind1(prim, x.jacobian, factor_for(y, x)), lap, x.size, x.form)]
    if isinstance(x, Curved):
        x, y = alike(x, y)
        rise, left = sub(x.jacobian, scaled(out, y)), x.laplacian
    else:
        rise, left = neg(scaled(out, y)), None
    jac = bind1(prim, rise, factor_for(y.value, y))
    cross = mul(inner(evolve(y, jacobian=jac), y), 2.0)
    taken = plus(times(out, y.laplacian), cross)
    assert taken is not None
    lap = neg(taken) if left is None else sub(left, taken)
    return [curved(out, jac, bind1(prim, lap, y.value), y.size, y.form)]


# ------------------------------------------------------------------ where elements stay what they are


def in_order(handler: object, prim: Primitive, x: Held) -> Sequence[Held]:
    """Linear, and each element of the result comes of the one at its place: so does what it depends on."""
    assert isinstance(x, Curved)
    if x.start is None and (not x.rows or isinstance(prim, Reshape)):
        return locally_linear(handler, prim, x)
    lap = None if x.laplacian is None else bind1(prim, x.laplacian)
    return [curved(bind1(prim, x.value), bind1(prim, x.jacobian), lap, x.size, x.form)]


def placewise(handler: object, prim: Primitive, *args: Held) -> Sequence[Held]:
    """Element by element, without second derivatives: what depends on one input each does so afterwards."""
    moving = [a for a in args if isinstance(a, Curved)]
    first = moving[0]
    if first.start is None or any((a.form, a.shape) != (first.form, first.shape) for a in moving):
        return locally_linear(handler, prim, *args)
    assert isinstance(prim, Differentiable)
    values = [value_of(a) for a in args]
    slopes: list[Tangent] = [a.jacobian if isinstance(a, Curved) else Zero(a.aval.tangent()) for a in args]
    outs, (slope,) = prim.jvp(values, slopes)
    if isinstance(slope, Zero) or outs[0].aval.shape != first.shape:
        return locally_linear(handler, prim, *args)
    (lap,) = _laplacians(prim, values, args, 1)
    return [curved(outs[0], slope, lap, first.size, first.form)]


def converted(handler: object, prim: ConvertElementType, x: Held) -> Sequence[Held]:
    return (in_order if dtypes.is_inexact(prim.new_dtype) else still)(handler, prim, x)


def summed(handler: object, prim: ReduceSum, x: Held) -> Sequence[Held]:
    """Of elements that depend on one input each, all summed, the derivatives are these, side by side."""
    assert isinstance(x, Curved)
    if x.start is None or len(prim.axes) < len(x.shape):
        return locally_linear(handler, prim, x)
    jac = in_place(reshape(x.jacobian, (x.value.aval.size,)), x.start, x.size)
    lap = None if x.laplacian is None else bind1(prim, x.laplacian)
    return [curved(bind1(prim, x.value), jac, lap, x.size)]
