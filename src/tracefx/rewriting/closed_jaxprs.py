"""Applies passes to a `Jaxpr` or a `ClosedJaxpr` alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tracefx.core.jaxpr import ClosedJaxpr, Jaxpr

J = TypeVar("J", Jaxpr, ClosedJaxpr)
"""`Jaxpr` or `ClosedJaxpr`: a pass returns the type that it is given."""


def map_jaxpr(program: J, transform: Callable[[Jaxpr], Jaxpr]) -> J:
    """Applies a pass to a jaxpr and keeps its constants; returns the same object if the pass changes nothing."""
    if isinstance(program, ClosedJaxpr):
        new = transform(program.jaxpr)
        return program if new is program.jaxpr else ClosedJaxpr(new, program.consts)
    if not isinstance(program, Jaxpr):
        raise TypeError(f"expected a program, as make_jaxpr(f)(*args) gives, got {program!r}")
    return transform(program)
