"""Dead-code elimination (DCE)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar

from tracefx.bounded_cache import memoize_on_object
from tracefx.core.jaxpr import Atom, Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.core.primitive import Primitive
from tracefx.passes.rebuilding import JaxprRebuilder, is_observable, map_subjaxprs, same_objects

X = TypeVar("X")


class Prunable:
    """A capability: the primitive has a rule for removing unused outputs."""

    __slots__ = ()

    @abstractmethod
    def prune(self, used_outs: tuple[bool, ...]) -> tuple[Primitive, tuple[bool, ...], tuple[bool, ...]]:
        """Removes unused outputs, and the operands that are then unused.

        The primitive must keep all used outputs and may keep others. For its own result with all outputs used, it must
        return that same object.

        Args:
            used_outs: For each output, whether it is used.

        Returns:
            The smaller primitive, a mask of the operands that it takes, and a mask of the outputs that it has.
        """
        raise NotImplementedError


def dce(jaxpr: Jaxpr, used_outs: Sequence[bool] | None = None) -> Jaxpr:
    """Removes the equations that do not contribute to the outputs (dead-code elimination), in sub-jaxprs too.

    Equations with observable effects are kept, and so are all inputs and constants. `Prunable` primitives lose unused
    outputs and operands.

    Args:
        jaxpr: The program.
        used_outs: For each output, whether it is kept. None, the default, keeps all.

    Returns:
        The program without these equations, with the outputs that are kept.

    Raises:
        ValueError: If `used_outs` has the wrong length.

    >>> import tracefx as fx
    >>> closed = fx.make_jaxpr(lambda x: (fx.numpy.sin(x), fx.numpy.cos(x)))(1.0)
    >>> dce(closed.jaxpr, [False, True])
    { lambda ; a:f32[]*. let b:f32[]* = cos a in (b,) }
    """
    used = _mask(jaxpr, used_outs)
    return _eliminate(jaxpr, used, 0)[0]


def live_equations(jaxpr: Jaxpr) -> tuple[bool, ...]:
    """Returns for each equation whether `dce` keeps it, apart from unused outputs of `Prunable` primitives."""
    live = {x.index for x in jaxpr.outs if isinstance(x, Var)}
    kept: list[bool] = []
    for eqn in reversed(jaxpr.eqns):
        kept.append(is_observable(eqn.prim) or any(v.index in live for v in eqn.outs))
        if kept[-1]:
            live |= {x.index for x in eqn.inputs if isinstance(x, Var)}
    return tuple(reversed(kept))


def prune(
    jaxpr: Jaxpr, used_outs: Sequence[bool] | None = None, keep: int | None = None
) -> tuple[Jaxpr, tuple[bool, ...]]:
    """Removes dead code like `dce`, and unused inputs.

    Args:
        jaxpr: The program.
        used_outs: For each output, whether it is kept; `None` keeps all.
        keep: The position from which inputs are always kept; `None` for no such inputs. Constants are always kept.

    Returns:
        The smaller program, and a mask of the inputs that it takes.

    >>> import tracefx as fx
    >>> closed = fx.make_jaxpr(lambda x, y: (fx.numpy.sin(x), fx.numpy.cos(y)))(1.0, 2.0)
    >>> prune(closed.jaxpr, [False, True])
    ({ lambda ; a:f32[]*. let b:f32[]* = cos a in (b,) }, (False, True))
    """
    used, droppable = _mask(jaxpr, used_outs), len(jaxpr.invars) if keep is None else keep
    return _eliminate(jaxpr, used, droppable)


def _mask(jaxpr: Jaxpr, used_outs: Sequence[bool] | None) -> tuple[bool, ...]:
    """Returns the mask of used outputs; raises ValueError for a wrong length."""
    used = (True,) * len(jaxpr.outs) if used_outs is None else tuple(map(bool, used_outs))
    if len(used) != len(jaxpr.outs):
        raise ValueError(f"used_outs has {len(used)} entries for a program of {len(jaxpr.outs)} outputs")
    return used


@memoize_on_object
def _eliminate(jaxpr: Jaxpr, used_outs: tuple[bool, ...], droppable: int) -> tuple[Jaxpr, tuple[bool, ...]]:
    outs = _select(jaxpr.outs, used_outs)
    live = {x.index for x in outs if isinstance(x, Var)}
    kept: list[Eqn] = []
    smaller: dict[int, tuple[Primitive, tuple[Atom, ...], tuple[Var, ...]]] = {}
    """The pruned version of an equation, by its index in `kept`."""
    for eqn in reversed(jaxpr.eqns):
        prim, inputs = eqn.prim, eqn.inputs
        for v in eqn.outs:
            if v.index in live:
                break
        else:
            if not is_observable(prim):
                continue
        if isinstance(prim, (Prunable, HasSubjaxprs)):
            pruned, inputs, binders = _without_unused(eqn, tuple([v.index in live for v in eqn.outs]))
            if pruned is not prim or not same_objects(inputs, eqn.inputs) or not same_objects(binders, eqn.outs):
                smaller[len(kept)] = pruned, inputs, binders
        for x in inputs:
            if isinstance(x, Var):
                live.add(x.index)
        kept.append(eqn)
    left_ins = tuple([i >= droppable or v.index in live for i, v in enumerate(jaxpr.invars)])
    whole = len(outs) == len(jaxpr.outs) and len(kept) == len(jaxpr.eqns) and not smaller
    if whole and all(left_ins) and _is_numbered(jaxpr):
        return jaxpr, left_ins
    new = JaxprRebuilder(jaxpr)
    constvars = new.binders(jaxpr.constvars)
    invars = new.binders(_select(jaxpr.invars, left_ins))
    for i in reversed(range(len(kept))):
        eqn = kept[i]
        prim, inputs, binders = smaller.get(i) or (eqn.prim, eqn.inputs, eqn.outs)
        new.add(eqn, prim, new.reads(inputs), binders)
    return new.finish(constvars, invars, outs), left_ins


def _without_unused(eqn: Eqn, used: tuple[bool, ...]) -> tuple[Primitive, tuple[Atom, ...], tuple[Var, ...]]:
    """Returns an equation without its unused outputs: the primitive, its operands and its variables."""
    if isinstance(eqn.prim, Prunable):
        prim, used_ins, kept_outs = eqn.prim.prune(used)
        return prim, tuple(_select(eqn.inputs, used_ins)), tuple(_select(eqn.outs, kept_outs))
    return map_subjaxprs(eqn.prim, dce), eqn.inputs, eqn.outs


def _is_numbered(jaxpr: Jaxpr) -> bool:
    """Whether variables are numbered in the order of their binding."""
    indices = [v.index for v in jaxpr.constvars + jaxpr.invars]
    for eqn in jaxpr.eqns:
        for v in eqn.outs:
            indices.append(v.index)
    return indices == list(range(len(indices)))


def _select(xs: Sequence[X], mask: Sequence[bool]) -> list[X]:
    return [x for x, use in zip(xs, mask, strict=True) if use]
