"""Named values that handlers collect or replace (`sow`).

A sown value is an operand of two primitives. `Plantable` is the identity on each of its leaves, which a handler can
replace. `Sow` takes all leaves and has no outputs; a handler collects its operands. So collecting is an effect: it is
never removed as dead code and never repeated by rematerialization, while the value itself may be recomputed. Both
compile to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias, final
from typing import Literal as OneOf

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.bounded_cache import memoize_on_object
from tracefx.core import ShapedArray, Value
from tracefx.core.effects import Effects, SowEffect
from tracefx.core.handler import bind
from tracefx.core.jaxpr import HasSubjaxprs, Jaxpr
from tracefx.core.primitive import (
    Batchable,
    BatchDims,
    Differentiable,
    Expandable,
    MappedAxis,
    Primitive,
    Tangent,
    Transposable,
    UndefinedPrimal,
    Zero,
)
from tracefx.lowering import Builder, IrValue, Lowerable
from tracefx.ops.annotations.identity import Identity
from tracefx.ops.structural import move_axis
from tracefx.passes.rebuilding import JaxprRebuilder, map_subjaxprs
from tracefx.pytrees.trees import TreeDef

SowMode: TypeAlias = OneOf["strict", "clobber", "append"]

IN_BATCHED_COND: Final = (
    "it is in a branch of a cond whose index is batched, so that vmap computes all branches for all batch "
    "elements: collect inside vmap, vmap(reap(f))"
)
IN_BATCHED_WHILE: Final = (
    "it is in a while_loop whose condition is batched, so that vmap continues for all batch elements until the "
    "last is done: collect inside vmap, vmap(reap(f))"
)
IN_CHECKPOINTED_LOOP: Final = (
    "it is in a loop with a bound or checkpoint=, which reverse mode runs in chunks: collect inside grad, "
    "grad(reap(f), has_aux=True)"
)


@frozen(eq=False)
class _Labelled(Primitive):
    """Base of primitives on the leaves of a named value.

    Args:
        tag: The group of the value; handlers collect or replace the values of one tag.
        label: The name of the value.
        mode: What happens if a name occurs several times, as in `sow`. `"strict"` by default.
        tree: The structure of the value, a pytree; by default, `None`: the value is one array.
    """

    tag: str = field(metadata={"erased": True})
    label: str = field(metadata={"print": "name", "erased": True})
    mode: SowMode = field(default="strict", metadata={"hide_default": True, "erased": True})
    tree: TreeDef | None = field(default=None, metadata={"hide_default": True, "erased": True})

    @property
    @override
    def profile_name(self) -> str:
        return f"{self.name}({self.label})"


@final
@frozen(eq=False)
class Plantable(Identity, _Labelled, Expandable, Differentiable, Transposable, Batchable):
    """The identity on a leaf of a named value, which a handler can replace.

    Args:
        leaf: The number of the leaf. 0 by default.
        derivative: Whether the operand is a tangent or cotangent of the leaf. False by default.
    """

    name = "plantable"
    arity = 1
    leaf: int = field(default=0, metadata={"hide_default": True, "erased": True})
    derivative: bool = field(default=False, metadata={"hide_default": True, "erased": True})

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        return args

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        return bind(self, *primals), self._pushed(tangents)

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        return self._pushed(cts)

    def _pushed(self, tangents: Sequence[Tangent]) -> Sequence[Tangent]:
        """Binds the primitive on a nonzero tangent or cotangent.

        A replacement value is a constant, so a handler that replaces the leaf must be able to make its tangent zero.
        """
        (tangent,) = tangents
        return tangents if isinstance(tangent, Zero) else bind(evolve(self, derivative=True), tangent)

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        return bind(self, *_move_batch_axes_first(args, dims)), [None if d is None else 0 for d in dims]


@final
@frozen(eq=False)
class Sow(_Labelled, Differentiable, Batchable, Lowerable):
    """Has no outputs: its operands are for handlers to collect.

    Args:
        uncollectable: Why handlers must not collect them here: the collected values would not be those of the program.
            By default, `None`: they may.
    """

    name = "sow"
    uncollectable: str | None = field(default=None, metadata={"hide_default": True, "erased": True})

    @property
    @override
    def effects(self) -> Effects:
        return frozenset({SowEffect(tag=self.tag)})

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return ()

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return ()

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        return bind(self, *primals), ()

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        return bind(self, *_move_batch_axes_first(args, dims)), ()

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        return ()


def _move_batch_axes_first(args: Sequence[Value], dims: BatchDims) -> list[Value]:
    return [move_axis(x, d, 0) if d else x for x, d in zip(args, dims, strict=True)]


# ------------------------------------------------------------------ sown values of jaxprs


@memoize_on_object
def sown_names(jaxpr: Jaxpr, tag: str) -> Mapping[str, SowMode]:
    """Returns the names of sown values in a jaxpr and its sub-jaxprs, with their modes."""
    modes: dict[str, SowMode] = {}
    for eqn in jaxpr.eqns:
        prim = eqn.prim
        if isinstance(prim, _Labelled) and prim.tag == tag:
            modes[prim.label] = prim.mode
        elif isinstance(prim, HasSubjaxprs):
            for body in prim.jaxprs():
                modes.update(sown_names(body, tag))
    return MappingProxyType(modes)


@memoize_on_object
def mark_uncollectable(jaxpr: Jaxpr, why: str) -> Jaxpr:
    """Returns the jaxpr with each `Sow` marked as uncollectable for the reason `why`."""
    if not any(isinstance(effect, SowEffect) for effect in jaxpr.effects):
        return jaxpr
    new = JaxprRebuilder(jaxpr)
    constvars, invars = new.binders(jaxpr.constvars), new.binders(jaxpr.invars)
    for eqn in jaxpr.eqns:
        prim = map_subjaxprs(eqn.prim, lambda body: mark_uncollectable(body, why))
        if isinstance(prim, Sow):
            prim = evolve(prim, uncollectable=why)
        new.add(eqn, prim, new.reads(eqn.inputs), eqn.outs)
    return new.finish(constvars, invars, jaxpr.outs)
