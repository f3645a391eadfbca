"""Passes over programs with and without their constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tracefx.core.jaxpr import ClosedJaxpr, Jaxpr

J = TypeVar("J", Jaxpr, ClosedJaxpr)
"""A program, with its constants or without."""


def map_jaxpr(program: J, change: Callable[[Jaxpr], Jaxpr]) -> J:
    """A pass over a program, which keeps its constants; the very same program if nothing changes."""
    if isinstance(program, ClosedJaxpr):
        new = change(program.jaxpr)
        return program if new is program.jaxpr else ClosedJaxpr(new, program.consts)
    if not isinstance(program, Jaxpr):
        raise TypeError(f"expected a program, as make_jaxpr(f)(*args) gives, got {program!r}")
    return change(program)
