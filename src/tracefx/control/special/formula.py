"""Elementwise primitives on floats that are defined by a formula of other primitives, and loops for such formulas."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

from typing_extensions import override

from tracefx.bounded_cache import memoize
from tracefx.control.while_loop import BOOL_AVAL, While
from tracefx.core import Array, DType, ShapedArray, Value, dtypes
from tracefx.core.handler import CURRENT, bind
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.primitive import Expandable
from tracefx.interpreters.stage import stage
from tracefx.lowering import Builder, IrValue
from tracefx.ops.elementwise.bitwise import bitwise_and
from tracefx.ops.elementwise.comparison import lt
from tracefx.ops.elementwise.elementwise import FLOATS, Smooth, add
from tracefx.ops.operation import CompiledOperation
from tracefx.ops.reductions.reduction import reduce_or
from tracefx.ops.structural import broadcast_to, convert


class ElementwiseFormula(CompiledOperation, Smooth, Expandable):
    """A floating-point function given by a formula, compiled as one function. Narrow floats are computed as f32."""

    __slots__ = ()
    domain = FLOATS

    @abstractmethod
    def formula(self, *operands: Array) -> Array:
        """Computes the function of operands of one shape and dtype, `f32` or `f64`."""
        raise NotImplementedError

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        out = self.out_aval(*[a.aval for a in args])
        wide = compute_dtype(out.dtype)
        value = self.formula(*[broadcast_to(convert(a, wide), out.shape) for a in args])
        return [convert(value, out.dtype, out.weak_type)]

    @override
    def emit_elementwise(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        return builder.call(self.name, _formula_jaxpr(self, tuple([x.aval for x in operands])), operands)[0]


@memoize(1024)
def _formula_jaxpr(prim: Expandable, avals: tuple[ShapedArray, ...]) -> Jaxpr:
    """Returns the expansion of a primitive for operands with these avals; it closes over no arrays."""
    jaxpr, consts = stage(prim.expand, avals)
    assert not consts
    return jaxpr


def compute_dtype(dtype: DType) -> DType:
    """Returns the dtype that functions of operands of `dtype` are computed in."""
    return dtypes.float64 if dtype == dtypes.float64 else dtypes.float32


def iterate_while(
    changing: Callable[..., Array], step: Callable[..., Sequence[Value]], limit: int, carry: Sequence[Value]
) -> Sequence[Value]:
    """Runs a loop from `carry` on, and returns the final carry.

    Args:
        changing: a function of the carry that returns a boolean array; the loop ends when no element is true. It may
            close over values.
        step: a function `step(count, *carry)` that returns the next carry, where `count: f32[]` is the number of
            previous steps. It may close over values.
        limit: the maximal number of steps.
        carry: the initial carry.
    """
    n = dtypes.float32.type(0)
    avals = [ShapedArray((), dtypes.float32), BOOL_AVAL, *[c.aval for c in carry]]

    def condition(count: Value, continuing: Value, *state: Value) -> Sequence[Value]:
        return [bitwise_and(lt(count, float(limit)), continuing)]

    def body(count: Value, continuing: Value, *state: Value) -> Sequence[Value]:
        new_carry = step(count, *state)
        test = changing(*new_carry)
        return [add(count, 1.0), reduce_or(test, range(test.ndim)), *new_carry]

    continuing, cond_consts = stage(condition, avals)
    assert not cond_consts
    body_jaxpr, body_consts = stage(body, avals, CURRENT.get())
    op = While(body_jaxpr.closed(), len(body_consts), continuing, 0)
    return bind(op, *body_consts, n, True, *carry)[2:]


def count_like(like: Array, count: Value) -> Array:
    """Converts a number of steps to the dtype of an array."""
    return convert(count, like.dtype)
