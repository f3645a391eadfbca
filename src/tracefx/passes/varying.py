"""Inference of types with varying mesh axes (vma): the manual mesh axes over which a value varies between devices.

`abstract_eval` speaks of shapes and dtypes. What varies is inferred here, for all primitives: a result varies over the
mesh axes of all operands, unless the primitive has a rule of its own (`HasVmaRule`) or sub-jaxprs whose types tell
(`HasTypedBodies`).
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, Self, TypeAlias, final

from attrs import evolve, frozen

from tracefx.core import Literal, ShapedArray
from tracefx.core.avals import MeshAxes, join_vma, without_vma
from tracefx.core.bounded_cache import MemoKey
from tracefx.core.jaxpr import Atom, Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.core.primitive import Primitive

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
        if not isinstance(prim, HasSubjaxprs):
            avals = without_vma(avals)
        return prim, [aval.with_vma(vma) for aval in prim.abstract_eval(*avals)]

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
        if aval.vma:
            return TYPES.apply(prim, avals)[1]
    return prim.abstract_eval(*avals)
