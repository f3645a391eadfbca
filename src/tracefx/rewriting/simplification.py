"""Algebraic simplification: a pass that applies the built-in rewrite rules."""

from __future__ import annotations

from typing import Final

from tracefx.rewriting.algebraic_rules import ALGEBRAIC_RULES
from tracefx.rewriting.closed_jaxprs import J
from tracefx.rewriting.engine import rewrite
from tracefx.rewriting.fast_math_rules import FAST_MATH_RULES
from tracefx.rewriting.rules import RewriteRule
from tracefx.rewriting.shape_rules import SHAPE_RULES

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
