"""Values under names, for handlers that collect or replace them.

A value that is sown goes through two operations. `Plantable` is a leaf of it, where a handler puts another in its
place. `Sow` takes all leaves and gives nothing: there a handler collects them. So what is collected is never dropped,
and never happens again where a program is computed again, while the value stays one that may be. Compiled, neither is
anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias, final
from typing import Literal as OneOf

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.core.avals import ShapedArray
from tracefx.core.effects import Effects, SowEffect
from tracefx.core.handler import bind
from tracefx.core.jaxpr import HasSubjaxprs, Jaxpr
from tracefx.core.primitive import (
    Batchable,
    Differentiable,
    Expandable,
    MappedAxis,
    Primitive,
    Tangent,
    Transposable,
    UndefinedPrimal,
    Zero,
)
from tracefx.core.values import Value
from tracefx.lowering import Builder, IrValue, Lowerable
from tracefx.ops.annotations.identity import Identity
from tracefx.ops.structural import move_axis
from tracefx.passes.dce import JaxprRebuilder, map_subjaxprs
from tracefx.pytrees.trees import TreeDef

SowMode: TypeAlias = OneOf["strict", "clobber", "append"]

IN_BATCHED_COND: Final = (
    "it is in a branch of a cond whose index differs along the batch, so that vmap computes all branches for all "
    "elements: collect inside of vmap, vmap(reap(f))"
)
IN_BATCHED_WHILE: Final = (
    "it is in a while_loop whose condition differs along the batch, so that vmap goes on for all elements until the "
    "last is done: collect inside of vmap, vmap(reap(f))"
)
IN_CHECKPOINTED_LOOP: Final = (
    "it is in a loop with a bound or checkpoint=, which reverse mode runs in pieces: collect inside of grad, "
    "grad(reap(f), has_aux=True)"
)


@frozen(eq=False)
class _Labelled(Primitive):
    """An operation on the leaves of a value, which is a tree of the structure `tree`, or an array without one."""

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
    """The operand itself, the leaf number `leaf` of a value that has the name.

    `derivative` marks tangents and cotangents of it.
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
        """What is planted depends on nothing, so a tangent must go where a handler can make it zero."""
        (tangent,) = tangents
        return tangents if isinstance(tangent, Zero) else bind(evolve(self, derivative=True), tangent)

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        return bind(self, *_move_batch_axes_first(args, dims)), [None if d is None else 0 for d in dims]


@final
@frozen(eq=False)
class Sow(_Labelled, Differentiable, Batchable, Lowerable):
    """Gives nothing: the operands are for handlers to collect.

    `unclear` says why what a handler would collect here is not what the program means, if so.
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
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        return bind(self, *_move_batch_axes_first(args, dims)), ()

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        return ()


def _move_batch_axes_first(args: Sequence[Value], dims: Sequence[int | None]) -> list[Value]:
    return [move_axis(x, d, 0) if d else x for x, d in zip(args, dims, strict=True)]


# ------------------------------------------------------------------ what programs sow


def sown_names(jaxpr: Jaxpr, tag: str) -> Mapping[str, SowMode]:
    """The names that a program has values under, in its bodies too."""
    return jaxpr.memo.get(("sown", tag), lambda: _sown_names(jaxpr, tag))


def _sown_names(jaxpr: Jaxpr, tag: str) -> Mapping[str, SowMode]:
    found: dict[str, SowMode] = {}
    for eqn in jaxpr.eqns:
        prim = eqn.prim
        if isinstance(prim, _Labelled) and prim.tag == tag:
            found[prim.label] = prim.mode
        elif isinstance(prim, HasSubjaxprs):
            for body in prim.jaxprs():
                found.update(sown_names(body, tag))
    return MappingProxyType(found)


def mark_uncollectable(jaxpr: Jaxpr, why: str) -> Jaxpr:
    """The program, in which what is sown is not to be collected."""
    if not any(isinstance(effect, SowEffect) for effect in jaxpr.effects):
        return jaxpr
    return jaxpr.memo.get(("unclear", why), lambda: _mark_uncollectable(jaxpr, why))


def _mark_uncollectable(jaxpr: Jaxpr, why: str) -> Jaxpr:
    new = JaxprRebuilder(jaxpr)
    constvars, invars = new.binders(jaxpr.constvars), new.binders(jaxpr.invars)
    for eqn in jaxpr.eqns:
        prim = map_subjaxprs(eqn.prim, lambda body: mark_uncollectable(body, why))
        if isinstance(prim, Sow):
            prim = evolve(prim, uncollectable=why)
        new.add(eqn, prim, new.reads(eqn.inputs), eqn.outs)
    return new.finish(constvars, invars, jaxpr.outs)
