"""Operations on floats, element by element, that are defined by a formula in other operations; and loops for it."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Sequence

from typing_extensions import override

from tracefx.control.while_loop import BOOL_AVAL, While
from tracefx.core import dtypes
from tracefx.core.array import Array
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import DType
from tracefx.core.handler import CURRENT, bind
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.primitive import Expandable
from tracefx.core.values import Value
from tracefx.interpreters.stage import stage
from tracefx.lowering import Builder, IrValue
from tracefx.ops.elementwise.bitwise import bitwise_and
from tracefx.ops.elementwise.comparison import lt
from tracefx.ops.elementwise.elementwise import FLOATS, Smooth, add
from tracefx.ops.operation import CompiledOperation
from tracefx.ops.reductions.reduction import reduce_or
from tracefx.ops.structural import broadcast_to, convert


class ElementwiseFormula(CompiledOperation, Smooth, Expandable):
    """A function of floats that a formula gives, which compiled programs call. Narrow floats are computed as f32."""

    __slots__ = ()
    domain = FLOATS

    @abstractmethod
    def formula(self, *operands: Array) -> Array:
        """The function of operands of one shape and dtype, `f32` or `f64`."""
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


@functools.lru_cache(maxsize=1024)
def _formula_jaxpr(prim: Expandable, avals: tuple[ShapedArray, ...]) -> Jaxpr:
    """An operation's expansion for operands of these types: all that it closes over is numbers."""
    jaxpr, consts = stage(prim.expand, avals)
    assert not consts
    return jaxpr


def compute_dtype(dtype: DType) -> DType:
    """The dtype that functions of this one are computed in."""
    return dtypes.float64 if dtype == dtypes.float64 else dtypes.float32


def iterate_while(
    changing: Callable[..., Array], step: Callable[..., Sequence[Value]], limit: int, carry: Sequence[Value]
) -> Sequence[Value]:
    """Steps of a loop from `carry` on, each told how many came before it, as an `f32`.

    The loop ends when `changing` holds for no element of what a step gave, and after `limit` steps at the latest. Both
    functions may close over values.
    """
    n = dtypes.float32.type(0)
    avals = [ShapedArray((), dtypes.float32), BOOL_AVAL, *[c.aval for c in carry]]

    def condition(count: Value, going: Value, *state: Value) -> Sequence[Value]:
        return [bitwise_and(lt(count, float(limit)), going)]

    def body(count: Value, going: Value, *state: Value) -> Sequence[Value]:
        after = step(count, *state)
        test = changing(*after)
        return [add(count, 1.0), reduce_or(test, range(test.ndim)), *after]

    going, asked = stage(condition, avals)
    assert not asked
    stepping, held = stage(body, avals, CURRENT.get())
    op = While(stepping.closed(), len(held), going, 0)
    return bind(op, *held, n, True, *carry)[2:]


def count_like(like: Array, count: Value) -> Array:
    """How many steps came before, in the dtype of an array."""
    return convert(count, like.dtype)
