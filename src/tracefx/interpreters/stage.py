"""Staging: traces a function to a jaxpr."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from attrs import frozen

from tracefx.core.avals import Axes, ShapedArray
from tracefx.core.handler import CURRENT, ROOT, Handler, Origin
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.values import Value
from tracefx.interpreters.recording import Recording, renumber_in_order


@final
@frozen(eq=False)
class Stage(Recording):
    """The handler of staging: records every primitive, whatever its operands, and evaluates nothing."""

    title: str = "jit"
    evaluates = False

    bind = Recording.record


def stage(
    f: Callable[..., Sequence[Value]],
    avals: Sequence[ShapedArray],
    outer: Handler = ROOT,
    origins: Sequence[Origin] | None = None,
    title: str = "jit",
    along: Sequence[Axes] | None = None,
) -> tuple[Jaxpr, list[Value]]:
    """Traces a function of values. Returns its jaxpr and the values of its constants, which it closes over.

    Args:
        f: a function of values that returns a sequence of values.
        avals: the shape and dtype of each input.
        outer: the handler whose tracers the function may close over.
        origins: for each input, where it comes from, for messages; unknown by default.
        title: the name of the trace in messages.
        along: the mesh axes along which each input varies; by default, all checked axes.
    """
    handler = Stage(outer, title)
    names = origins if origins is not None else [None] * len(avals)
    if along is None:
        along = [frozenset(handler.checked)] * len(avals)
    inputs = [handler.input(*spec) for spec in zip(avals, names, along, strict=True)]
    token = CURRENT.set(handler)
    try:
        outs = f(*inputs)
    finally:
        CURRENT.reset(token)
    jaxpr, consts = handler.build(inputs, outs)
    return renumber_in_order(jaxpr) if consts else jaxpr, consts
