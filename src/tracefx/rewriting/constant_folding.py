"""Constant folding: evaluates equations whose operands are all known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from tracefx.bounded_cache import memoize_on_object
from tracefx.control.callback import CallbackPrimitive
from tracefx.control.checkpoint import CheckpointName
from tracefx.control.platform import PlatformIndex
from tracefx.control.sow import Plantable
from tracefx.core import ConcreteArray, Literal, Value, dtypes
from tracefx.core.handler import ROOT, call_under
from tracefx.core.jaxpr import Atom, ClosedJaxpr, Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.core.primitive import Primitive
from tracefx.interpreters.callables import HasCallables
from tracefx.ops.annotations.optimization_barrier import OptimizationBarrier
from tracefx.ops.operation import CompiledOperation
from tracefx.ops.shape.array_creation import Iota
from tracefx.ops.structural import BroadcastInDim
from tracefx.passes.dce import dce
from tracefx.passes.rebuilding import map_subjaxprs, renumber
from tracefx.rewriting.closed_jaxprs import J, map_jaxpr

MAX_SIZE: Final = 1024

_NEVER_FOLDED: Final = (
    HasSubjaxprs,
    CallbackPrimitive,
    HasCallables,
    CompiledOperation,
    CheckpointName,
    OptimizationBarrier,
    Plantable,
    PlatformIndex,
)
"""Primitives that are never folded: calls of user code, operations that are slow to evaluate eagerly, and markers."""
_COMPACT: Final = (BroadcastInDim, Iota)
"""Primitives that represent a large constant more compactly than its elements would."""


def fold_constants(jaxpr: J, *, max_size: int = MAX_SIZE) -> J:
    """Evaluates equations that depend on literals alone, in sub-jaxprs too; scalar results become literals.

    In a `ClosedJaxpr`, equations that depend on its constants are evaluated as well: scalar results become literals,
    array results become constants, and unused constants are dropped. Equations with effects or sub-jaxprs are not
    folded. The folded values are those of eager evaluation; compiled, an operation may round differently.

    Args:
        jaxpr: a `Jaxpr` or `ClosedJaxpr`.
        max_size: the largest number of elements of a result to evaluate; equations with larger results stay.

    Returns:
        The folded program, of the same type as `jaxpr`; the same object if there is nothing to fold.

    >>> import tracefx as fx
    >>> fold_constants(fx.make_jaxpr(lambda x: x * fx.lax.add(1.0, 2.0))(1.0))
    { lambda ; a:f32[]*. let b:f32[]* = mul a 3.0:f32[]* in (b,) }
    """
    if isinstance(jaxpr, ClosedJaxpr):
        folded, consts = _ConstantFolder(jaxpr.jaxpr, jaxpr.consts, max_size).run()
        return jaxpr if folded is jaxpr.jaxpr else ClosedJaxpr(folded, consts)
    return map_jaxpr(jaxpr, lambda j: _fold_memoized(j, max_size))


@memoize_on_object
def _fold_memoized(jaxpr: Jaxpr, max_size: int) -> Jaxpr:
    return _ConstantFolder(jaxpr, None, max_size).run()[0]


@final
class _ConstantFolder:
    def __init__(self, jaxpr: Jaxpr, consts: Sequence[Value] | None, max_size: int) -> None:
        self.jaxpr = jaxpr
        self.max_size = max_size
        self.closed = consts is not None
        self.consts = () if consts is None else tuple(consts)
        self.known: dict[int, Value] = {}
        """The known values by index of their variable; scalars are literals."""
        self.substituted = False
        for v, x in zip(jaxpr.constvars, self.consts, strict=self.closed):
            if isinstance(x, (ConcreteArray, Literal)):
                self.known[v.index] = _as_literal(x)

    def run(self) -> tuple[Jaxpr, tuple[Value, ...]]:
        return call_under(ROOT, self.folded)

    def folded(self) -> tuple[Jaxpr, tuple[Value, ...]]:
        jaxpr, eqns = self.jaxpr, []
        binders: dict[int, Var] = {}
        for eqn in jaxpr.eqns:
            prim = map_subjaxprs(eqn.prim, lambda body: _fold_memoized(body, self.max_size))
            outs = self.evaluated(prim, eqn)
            if outs is not None:
                self.known.update(zip([v.index for v in eqn.outs], map(_as_literal, outs), strict=True))
                if all(isinstance(self.known[v.index], Literal) for v in eqn.outs):
                    self.substituted = True
                    continue
                if self.closed and not isinstance(prim, _COMPACT):
                    binders.update({v.index: v for v in eqn.outs})
                    continue
            inputs = tuple(map(self.read, eqn.inputs))
            same = prim is eqn.prim and all(x is y for x, y in zip(inputs, eqn.inputs, strict=True))
            self.substituted |= not same
            eqns.append(eqn if same else Eqn(prim, inputs, eqn.outs, eqn.source))
        results = tuple(map(self.read, jaxpr.outs))
        self.substituted |= any(x is not y for x, y in zip(results, jaxpr.outs, strict=True))
        if not self.substituted and not binders:
            return jaxpr, self.consts
        used = {x.index for eqn in eqns for x in eqn.inputs if isinstance(x, Var)}
        used |= {x.index for x in results if isinstance(x, Var)}
        pairs = list(zip(jaxpr.constvars, self.consts, strict=False))
        if self.closed:
            pairs = [(v, x) for v, x in pairs if v.index in used]
            pairs += [(v, self.known[i]) for i, v in binders.items() if i in used]
        constvars = tuple([v for v, _ in pairs]) if self.closed else jaxpr.constvars
        new = dce(renumber(Jaxpr(constvars, jaxpr.invars, tuple(eqns), results)))
        return new, tuple([x for _, x in pairs])

    def read(self, x: Atom) -> Atom:
        if isinstance(x, Literal):
            return x
        value = self.known.get(x.index)
        return value if isinstance(value, Literal) else x

    def evaluated(self, prim: Primitive, eqn: Eqn) -> Sequence[Value] | None:
        """Returns the outputs of an equation if it can be folded; None if it stays."""
        if isinstance(prim, _NEVER_FOLDED) or not all(
            isinstance(x, Literal) or x.index in self.known for x in eqn.inputs
        ):
            return None
        if prim.effects or any(v.aval.size > self.max_size or v.aval.dtype == dtypes.float0 for v in eqn.outs):
            return None
        operands = [x if isinstance(x, Literal) else self.known[x.index] for x in eqn.inputs]
        try:
            outs = prim.evaluate(operands)
        except (ArithmeticError, NotImplementedError, TypeError, ValueError):  # left to fail when the program runs
            return None
        fits = [v.aval for v in eqn.outs] == [x.aval for x in outs]
        return outs if fits and all(isinstance(x, (ConcreteArray, Literal)) for x in outs) else None


def _as_literal(x: Value) -> Value:
    if isinstance(x, ConcreteArray) and not x.aval.shape and x.aval.dtype != dtypes.float0:
        return Literal(x.numpy().item(), x.aval)
    return x
