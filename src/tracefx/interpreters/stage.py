"""Staging: the whole of a function becomes a jaxpr."""

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
    """Every operation is recorded, whatever its operands; the handler outside is never asked to compute."""

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
    """Trace a function of values: its jaxpr, and the values it closed over.

    `outer` is the handler whose tracers the function may close over; messages call the tracing by its `title`. `along`
    says of the inputs along which axes of a mesh they may differ; unsaid, it is all that are checked.
    """
    handler = Stage(outer, title)
    names = origins if origins is not None else [None] * len(avals)
    if along is None:
        along = [frozenset(handler.checked)] * len(avals)
    inputs = [handler.input(*each) for each in zip(avals, names, along, strict=True)]
    token = CURRENT.set(handler)
    try:
        outs = f(*inputs)
    finally:
        CURRENT.reset(token)
    jaxpr, consts = handler.build(inputs, outs)
    return renumber_in_order(jaxpr) if consts else jaxpr, consts
