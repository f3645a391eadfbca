"""The public pass that inlines calls."""

from __future__ import annotations

from tracefx.control.inlining import InlineOptions, inline_calls
from tracefx.rewriting.closed_jaxprs import J, map_jaxpr


def inline(jaxpr: J, *, max_eqns: int | None = None, checkpoints: bool = False, custom_rules: bool = False) -> J:
    """Replaces calls by the equations of the jaxprs that they call, in sub-jaxprs too.

    Args:
        jaxpr: a `Jaxpr` or `ClosedJaxpr`.
        max_eqns: inline only bodies of at most this many equations, counted after inlining inside them; None inlines
            bodies of any length.
        checkpoints: whether to inline checkpointed functions too. They stay by default, because without the call a
            backward pass would save the residuals that it should recompute.
        custom_rules: whether to inline functions with user-defined rules (`custom_jvp`, `custom_vjp`, `custom_vmap`)
            too. They stay by default, because inlining drops the rules.

    Returns:
        The program with calls inlined, of the same type as `jaxpr`; the same object if there is nothing to inline.

    >>> import tracefx as fx
    >>> inline(fx.make_jaxpr(fx.jit(lambda x: fx.lax.sin(x)))(1.0))
    { lambda ; a:f32[]*. let b:f32[]* = sin a in (b,) }
    """
    return map_jaxpr(jaxpr, lambda j: inline_calls(j, InlineOptions(max_eqns, checkpoints, custom_rules)))
