"""Selects the residuals that a loop stores for its unknown half, and those that are cheaper to recompute.

A loop stores a residual once per step, and the unknown half reads it back, which costs more than a multiplication. So
residuals that are elementwise arithmetic of other residuals are not stored. For a gate `1 / (1 + exp(-x))` only the
exponential is stored, and for a hyperbolic tangent its value.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from tracefx import ops
from tracefx.control.sow import Plantable
from tracefx.core import Literal, Value
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.jaxpr import Atom, Eqn, Jaxpr, Var
from tracefx.core.primitive import Primitive
from tracefx.interpreters.jaxpr_transforms import UnzippedJaxpr
from tracefx.interpreters.stage import stage
from tracefx.ops.elementwise.comparison import Comparison

CHEAP_PRIMITIVES: Final[tuple[type[Primitive], ...]] = (
    ops.Neg,
    ops.Add,
    ops.Sub,
    ops.Mul,
    ops.Div,
    ops.Max,
    ops.Min,
    ops.Abs,
    ops.Sign,
    ops.Square,
    ops.IntegerPow,
    ops.Clamp,
    ops.SelectN,
    Comparison,
    ops.And,
    ops.Or,
    ops.Xor,
    ops.Not,
    ops.ConvertElementType,
    ops.BroadcastInDim,
    ops.Reshape,
    Plantable,
)
"""Primitives that cost nothing within a fused elementwise kernel."""

MAX_RECOMPUTED_EQNS: Final = 16  # per residual: more cost as much as storing it


def drop_cheap_residuals(split: UnzippedJaxpr, free: Set[int], results: Set[Atom]) -> UnzippedJaxpr:
    """Returns the split without residuals that cheap arithmetic recomputes from the others.

    Passing the known inputs at `free` and the outputs `results` of the known half to the unknown half costs nothing.
    """
    known, n = split.known, split.out_unknown.count(False)
    inputs = known.invars[len(split.consts) :]
    residuals = split.residuals(known.outs[n:], inputs)
    available = {*residuals, *results, *[inputs[i] for i in free]}
    producers: dict[Atom, Eqn] = {
        v: eqn for eqn in known.eqns if isinstance(eqn.prim, CHEAP_PRIMITIVES) for v in eqn.outs
    }
    recomputed: dict[int, Eqn] = {}
    dropped: set[Atom] = set()
    order: dict[Atom, int] = {v: i for i, eqn in enumerate(known.eqns) for v in eqn.outs}
    for v in sorted([r for r in residuals if r in producers and r not in results], key=lambda v: -order[v]):
        available.discard(v)
        steps = _recomputation(v, available, producers)
        producer = producers[v]
        if steps is None and isinstance(producer.prim, Plantable):
            # Store the operand instead of the named value, so that other residuals can be recomputed from it too.
            steps = {id(producer): producer}
            available.update(producer.inputs)
        if steps is None:
            available.add(v)
        else:
            dropped.add(v)
            recomputed.update(steps)
    if not dropped:
        return split
    read = {a for eqn in recomputed.values() for a in eqn.inputs if isinstance(a, Var)}
    recomputed_vars = {v for eqn in recomputed.values() for v in eqn.outs}
    stored = [r for r in residuals if r not in dropped]
    additional: list[Var] = sorted(read - recomputed_vars - set(stored), key=lambda v: v.index)
    stored += additional
    input_index = {v: i for i, v in enumerate(inputs)}
    eqns = [eqn for eqn in known.eqns if id(eqn) in recomputed]
    program = Jaxpr((), tuple([v for v in stored if isinstance(v, Var)]), tuple(eqns), tuple(residuals))
    m = len(stored)

    def run(*args: Value) -> list[Value]:
        return eval_jaxpr(split.unknown, (), [*eval_jaxpr(program, (), args[:m]), *args[m:]])

    unknown_half, consts = stage(run, [*[v.aval for v in stored], *split.unknown.in_avals[len(residuals) :]])
    assert not consts
    forwarded = tuple([input_index.get(v) if isinstance(v, Var) else None for v in stored])
    new_stored = [v for v, index in zip(stored, forwarded, strict=True) if index is None]
    known_half = Jaxpr((), known.invars, known.eqns, (*known.outs[:n], *new_stored))
    return UnzippedJaxpr(known_half, unknown_half, split.consts, split.out_unknown, forwarded)


def _recomputation(atom: Atom, available: Set[Atom], producers: dict[Atom, Eqn]) -> dict[int, Eqn] | None:
    """Returns the equations that recompute a value from available ones, or `None` if they are too many or not cheap."""
    eqns: dict[int, Eqn] = {}
    todo: list[Atom] = [atom]
    while todo:
        a = todo.pop()
        if isinstance(a, Literal) or a in available:
            continue
        eqn = producers.get(a)
        if eqn is None or len(eqns) > MAX_RECOMPUTED_EQNS:
            return None
        if id(eqn) not in eqns:
            eqns[id(eqn)] = eqn
            todo += eqn.inputs
    return eqns
