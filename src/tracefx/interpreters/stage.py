"""Staging: traces a function to a jaxpr."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from attrs import frozen

from tracefx.core.avals import ShapedArray
from tracefx.core.bounded_cache import memoize
from tracefx.core.handler import ROOT, Handler, Origin, call_under
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.primitive import Expandable
from tracefx.core.settings import X64
from tracefx.core.source_location import SOURCE
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
) -> tuple[Jaxpr, list[Value]]:
    """Traces a function of values. Returns its jaxpr and the values of its constants, which it closes over.

    Args:
        f: a function of values that returns a sequence of values.
        avals: the type of each input.
        outer: the handler whose tracers the function may close over.
        origins: for each input, where it comes from, for messages; unknown by default.
        title: the name of the trace in messages.
    """
    handler = Stage(outer, title)
    names = origins if origins is not None else [None] * len(avals)
    inputs = [handler.input(aval, name) for aval, name in zip(avals, names, strict=True)]
    outs = call_under(handler, f, *inputs)
    jaxpr, consts = handler.build(inputs, outs)
    return renumber_in_order(jaxpr) if consts else jaxpr, consts


def stage_expansion(prim: Expandable, avals: tuple[ShapedArray, ...]) -> tuple[Jaxpr, list[Value]]:
    """Returns the expansion of a primitive as a jaxpr, and its constants, which are the first inputs.

    Equal primitives have the same jaxpr.
    """
    return _stage_expansion(prim, avals, X64.value)


@memoize(1024)
def _stage_expansion(prim: Expandable, avals: tuple[ShapedArray, ...], x64: bool) -> tuple[Jaxpr, list[Value]]:
    """Like `stage_expansion`. `x64` must be the current setting: it is part of the cache key."""
    assert x64 == X64.value
    token = SOURCE.set(None)
    try:
        jaxpr, consts = stage(prim.expand, avals)
    finally:
        SOURCE.reset(token)
    return jaxpr.closed(), consts
