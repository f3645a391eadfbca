"""The public passes that simplify and inline, and the pipeline of all optimization passes."""

from __future__ import annotations

from typing import Final

from tracefx.control.inlining import InlineOptions, inline_calls
from tracefx.passes.cse import cse
from tracefx.passes.dce import dce
from tracefx.rewriting.algebraic_rules import ALGEBRAIC_RULES
from tracefx.rewriting.closed_jaxprs import J, map_jaxpr
from tracefx.rewriting.constant_folding import fold_constants
from tracefx.rewriting.engine import rewrite
from tracefx.rewriting.fast_math_rules import FAST_MATH_RULES
from tracefx.rewriting.hoisting import hoist_loop_invariants
from tracefx.rewriting.rules import RewriteRule
from tracefx.rewriting.shape_rules import SHAPE_RULES

_ROUNDS: Final = 8


def optimize(jaxpr: J, *, fast_math: bool = False) -> J:
    """Applies all passes: `inline`, `simplify`, `fold_constants`, `cse`, `hoist_loop_invariants` and `dce`.

    The passes are repeated, at most 8 times, until none changes anything. Evaluated operation by operation, the
    optimized program gives the same results bit for bit, unless `fast_math` is set.

    XLA performs most of these optimizations on compiled programs. They pay off before a program is differentiated,
    batched, printed or compared, and for programs that are evaluated operation by operation.

    Args:
        jaxpr: a `Jaxpr` or `ClosedJaxpr`.
        fast_math: whether to allow rules that hold for real numbers but not for floats (see `simplify`).

    Returns:
        The optimized program, of the same type as `jaxpr`; the same object if no pass changes anything.

    >>> import tracefx as fx
    >>> optimize(fx.make_jaxpr(fx.jit(lambda x: (x * (2.0 - 1.0), x + 0)))(1))
    { lambda ; a:i32[]*. let b:f32[]* = convert_element_type[new_dtype=float32 weak_type=True] a in (b, a) }
    """
    for _ in range(_ROUNDS):
        new = inline(jaxpr)
        new = simplify(new, fast_math=fast_math)
        new = fold_constants(new)
        new = map_jaxpr(new, cse)
        new = hoist_loop_invariants(new)
        new = map_jaxpr(new, dce)
        if new is jaxpr:
            break
        jaxpr = new
    return jaxpr


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


EXACT_RULES: Final[tuple[RewriteRule, ...]] = ALGEBRAIC_RULES + SHAPE_RULES
"""Rules that preserve results bit for bit."""
_ALL_RULES: Final = EXACT_RULES + FAST_MATH_RULES


def simplify(jaxpr: J, *, fast_math: bool = False) -> J:
    """Simplifies a jaxpr and its sub-jaxprs by applying `EXACT_RULES` with `rewrite`.

    Eager evaluation of the simplified program gives the same results bit for bit, including NaN, infinities and the
    signs of zeros (but not the payload bits of a NaN).

    Args:
        jaxpr: a `Jaxpr` or `ClosedJaxpr`.
        fast_math: whether to apply `FAST_MATH_RULES` as well. They hold for real numbers; for floats they change the
            rounding and the treatment of NaN, infinities and zeros.

    Returns:
        The simplified program, of the same type as `jaxpr`; the same object if no rule applies.

    >>> import tracefx as fx
    >>> program = fx.make_jaxpr(lambda x: -(-x.T.T * 1.0).reshape(6).reshape(2, 3))(fx.numpy.ones((2, 3)))
    >>> simplify(program)
    { lambda ; a:f32[2,3]. let in (a,) }
    """
    return rewrite(jaxpr, _ALL_RULES if fast_math else EXACT_RULES)
