"""Inference of the mesh axes in types: the manual ones over which a value varies, and its sharding over explicit ones.

`abstract_eval` speaks of shapes and dtypes. The rest is inferred here, for all primitives. A result varies over the
mesh axes of all operands (vma), unless the primitive has a rule of its own (`HasVmaRule`) or sub-jaxprs whose types
tell (`HasTypedBodies`). It is sharded as the primitive's method `sharding_rule` says.
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, Self, TypeAlias, final

from attrs import evolve, frozen

from tracefx.bounded_cache import MemoKey
from tracefx.core import Literal, ShapedArray, show_avals
from tracefx.core.avals import MeshAxes, join_vma, without_mesh_axes
from tracefx.core.jaxpr import Atom, Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.core.named_sharding import NamedSharding, type_sharding
from tracefx.core.partition_spec import entry_axis_names
from tracefx.core.primitive import Primitive
from tracefx.errors import ShardingTypeError

VmaRule: TypeAlias = Callable[[Primitive, MeshAxes], MeshAxes]
"""Maps a primitive, and the mesh axes over which its operands vary, to those over which its results vary."""
Retype: TypeAlias = Callable[[Jaxpr, Sequence[ShapedArray]], Jaxpr]
"""Returns a jaxpr for inputs of other types, which differ in their varying mesh axes only."""


class HasVmaRule:
    """A capability: the results do not simply vary over the mesh axes over which the operands vary.

    >>> from tracefx.ops import PSum
    >>> prim = PSum(("data",), (2,))
    >>> isinstance(prim, HasVmaRule), prim.vma(frozenset({"data", "model"}))
    (True, frozenset({'model'}))
    """

    __slots__ = ()
    is_vma_cast: ClassVar[bool] = False
    """Whether the primitive is the identity except for the type."""

    @abstractmethod
    def vma(self, operands: MeshAxes) -> MeshAxes:
        """Returns the mesh axes over which the results vary.

        Args:
            operands: The mesh axes over which the operands vary.
        """
        raise NotImplementedError


class HasTypedBodies(HasSubjaxprs):
    """A capability: the sub-jaxprs have the types of the operands, varying mesh axes included, and so have the results.

    Operands may vary over fewer mesh axes than the inputs of the sub-jaxprs.
    """

    __slots__ = ()

    def with_operand_types(self, avals: Sequence[ShapedArray], retype: Retype) -> Self:
        """Returns the primitive with sub-jaxprs for operands that vary over other mesh axes.

        By default each sub-jaxpr takes all the operands.

        Args:
            avals: The avals of the operands.
            retype: Returns a sub-jaxpr with the types inferred for inputs of given avals.
        """
        old = self.jaxprs()
        new = [retype(body, avals) for body in old]
        return self if all(map(operator.is_, old, new)) else self.with_jaxprs(*new)


def _with_shardings(
    prim: Primitive, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], shardings: Sequence[NamedSharding]
) -> Sequence[ShapedArray]:
    """Returns the types of results with the shardings that the primitive's rule gives for those of the operands."""
    if any(sharding.mesh != shardings[0].mesh for sharding in shardings):
        raise ShardingTypeError(
            f"{prim.name} takes operands that are sharded over one mesh, got {show_avals(avals)} over "
            f"{' and '.join([str(sharding.mesh) for sharding in shardings])}"
        )
    results = []
    for spec, out in zip(prim.sharding_rule(avals, outs), outs, strict=True):
        names = [name for entry in spec for name in entry_axis_names(entry)]
        if len(set(names)) < len(names):
            shown = ",".join([f"{n}@{entry}" if entry else str(n) for n, entry in zip(out.shape, spec, strict=True)])
            raise ShardingTypeError(
                f"{prim.name} of {show_avals(avals)} would have a result that is sharded twice over a mesh axis, "
                f"[{shown}]: pass out_sharding=, or reshard an operand with tracefx.sharding.reshard"
            )
        own = out.explicit_sharding
        mesh = shardings[0].mesh if own is None else own.mesh
        results.append(out.with_explicit_sharding(type_sharding(mesh, spec, out.ndim)))
    return results


_RETYPED: Final = MemoKey[Jaxpr]("jaxpr for inputs that vary over other mesh axes")


@final
@frozen
class VmaInference:
    """Infers the types of the results of primitives, and of all values in a jaxpr, from those of operands and inputs.

    Args:
        rule: The rule for primitives without typed sub-jaxprs.
    """

    rule: VmaRule

    def apply(self, prim: Primitive, avals: Sequence[ShapedArray]) -> tuple[Primitive, Sequence[ShapedArray]]:
        """Returns the primitive, its sub-jaxprs typed for operands of the given types, and the types of its results."""
        if isinstance(prim, HasTypedBodies):
            typed: Primitive = prim.with_operand_types(avals, self.retype)
            return typed, typed.abstract_eval(*avals)
        vma = self.rule(prim, join_vma(avals))
        plain = avals if isinstance(prim, HasSubjaxprs) else without_mesh_axes(avals)
        outs = [aval.with_vma(vma) for aval in prim.abstract_eval(*plain)]
        shardings = [aval.explicit_sharding for aval in avals if aval.explicit_sharding is not None]
        return prim, _with_shardings(prim, avals, outs, shardings) if shardings and outs else outs

    def retype(self, jaxpr: Jaxpr, avals: Sequence[ShapedArray]) -> Jaxpr:
        """Returns a jaxpr with the types inferred for inputs that vary over the mesh axes of `avals`. Cached."""
        axes = tuple([aval.vma for aval in avals])
        if self is TYPES and axes == tuple([v.aval.vma for v in (*jaxpr.constvars, *jaxpr.invars)]):
            return jaxpr
        return jaxpr.memo.get(_RETYPED, (self.rule, axes), lambda: self._retype(jaxpr, axes))

    def _retype(self, jaxpr: Jaxpr, axes: Sequence[MeshAxes]) -> Jaxpr:
        variables: dict[int, Var] = {}

        def bind(v: Var, vma: MeshAxes) -> Var:
            new = variables[v.index] = v if v.aval.vma == vma else Var(v.index, v.aval.with_vma(vma))
            return new

        def read(atom: Atom) -> Atom:
            return atom if isinstance(atom, Literal) else variables[atom.index]

        inputs = [bind(v, vma) for v, vma in zip((*jaxpr.constvars, *jaxpr.invars), axes, strict=True)]
        eqns: list[Eqn] = []
        for eqn in jaxpr.eqns:
            prim, operands = eqn.prim, tuple(map(read, eqn.inputs))
            avals = [x.aval for x in operands]
            if isinstance(prim, HasTypedBodies):
                prim, results = self.apply(prim, avals)
                out_axes = [aval.vma for aval in results]
            else:
                out_axes = [self.rule(prim, join_vma(avals))] * len(eqn.outs)
            outs = tuple([bind(v, vma) for v, vma in zip(eqn.outs, out_axes, strict=True)])
            eqns.append(Eqn(prim, operands, outs, eqn.source))
        n = len(jaxpr.constvars)
        return evolve(
            jaxpr,
            constvars=tuple(inputs[:n]),
            invars=tuple(inputs[n:]),
            eqns=tuple(eqns),
            outs=tuple(map(read, jaxpr.outs)),
        )


def _declared(prim: Primitive, operands: MeshAxes) -> MeshAxes:
    if isinstance(prim, HasVmaRule):
        return prim.vma(operands)
    if isinstance(prim, HasSubjaxprs):
        return operands.union(*[join_vma(body.out_avals) for body in prim.jaxprs()])
    return operands


TYPES: Final = VmaInference(_declared)
"""The inference of the types in programs."""


def infer_types(prim: Primitive, avals: Sequence[ShapedArray]) -> Sequence[ShapedArray]:
    """Returns the types of the results of a primitive for operands of the given types."""
    for aval in avals:  # a loop, not `any`: rules of interpreters call this for every operation
        if aval.vma or aval.explicit_sharding is not None:
            return TYPES.apply(prim, avals)[1]
    return prim.abstract_eval(*avals)
