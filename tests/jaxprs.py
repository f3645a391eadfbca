"""Reads the equations of jaxprs, including those of their sub-jaxprs."""

from __future__ import annotations

from collections.abc import Iterator

from tracefx.extend import Eqn, HasSubjaxprs, Jaxpr


def all_equations(jaxpr: Jaxpr) -> Iterator[Eqn]:
    """Yields all equations in order, each followed by those of its sub-jaxprs."""
    for eqn in jaxpr.eqns:
        yield eqn
        if isinstance(eqn.prim, HasSubjaxprs):
            for body in eqn.prim.jaxprs():
                yield from all_equations(body)


def primitive_names(jaxpr: Jaxpr) -> list[str]:
    """Returns the names of the primitives of all equations."""
    return [eqn.prim.name for eqn in all_equations(jaxpr)]
