"""Staging: traces a function to a jaxpr."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from attrs import field, frozen

from tracefx.bounded_cache import memoize
from tracefx.core import ShapedArray, Value
from tracefx.core.handler import ROOT, Handler, Origin, call_under
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.primitive import Expandable
from tracefx.errors import RefError
from tracefx.interpreters.recording import Recording, StageTracer, renumber_in_order
from tracefx.interpreters.refs import Ref, ThreadsRefs, TracedRef
from tracefx.settings import X64
from tracefx.source_location import SOURCE


@final
@frozen(eq=False)
class Stage(ThreadsRefs):
    """The handler of staging: records every primitive, whatever its operands, and evaluates nothing."""

    title: str = "jit"
    refs: dict[Ref, TracedRef] = field(factory=dict, init=False, repr=False)
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
    handler, inputs = _start(avals, outer, origins, title)
    outs = call_under(handler, f, *inputs)
    for ref in handler.refs:
        by_itself = " by itself, as those with custom rules are" if title == "jit" else ""
        raise RefError(
            f"{ref.description} is used in a function that is traced for {title}{by_itself}, and cannot close over "
            "references: pass ref[...] as an argument, and return its new contents"
        )
    jaxpr, consts = handler.build(inputs, outs)
    return renumber_in_order(jaxpr) if consts else jaxpr, consts


def _start(
    avals: Sequence[ShapedArray], outer: Handler, origins: Sequence[Origin] | None, title: str
) -> tuple[Stage, list[StageTracer]]:
    """Returns the handler of a new trace, and its inputs."""
    handler = Stage(outer, title)
    names = origins if origins is not None else [None] * len(avals)
    return handler, [handler.input(aval, name) for aval, name in zip(avals, names, strict=True)]


def stage_with_refs(
    f: Callable[..., Sequence[Value]],
    avals: Sequence[ShapedArray],
    outer: Handler,
    origins: Sequence[Origin] | None,
    title: str,
) -> tuple[Jaxpr, list[Value], tuple[Ref, ...], tuple[Ref, ...]]:
    """Traces a function that may use references from outside.

    The arguments are those of `stage`.

    Returns:
        The program, its constants, and the references: those that it only reads, and those that it writes. The program
        has no constvars: it maps `(constants, contents of these references, inputs)` to `(new contents of the
        references that it writes, outputs)`.
    """
    handler, inputs = _start(avals, outer, origins, title)
    outs = call_under(handler, f, *inputs)
    uses = handler.refs
    read = [ref for ref, use in uses.items() if not use.written]
    written = [ref for ref, use in uses.items() if use.written]
    contents = [uses[ref].input for ref in (*read, *written)]
    jaxpr, consts = handler.build([*contents, *inputs], [*[uses[ref].contents for ref in written], *outs])
    jaxpr = renumber_in_order(jaxpr) if consts or uses else jaxpr
    return jaxpr.closed(), consts, tuple(read), tuple(written)


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
