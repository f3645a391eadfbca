"""Algebraic simplification: the rules of the package as a pass."""

from __future__ import annotations

from typing import Final

from tracefx.rewriting.algebraic_rules import ALGEBRAIC_RULES
from tracefx.rewriting.closed_jaxprs import J
from tracefx.rewriting.engine import rewrite
from tracefx.rewriting.fast_math_rules import FAST_MATH_RULES
from tracefx.rewriting.rules import RewriteRule
from tracefx.rewriting.shape_rules import SHAPE_RULES

EXACT_RULES: Final[tuple[RewriteRule, ...]] = ALGEBRAIC_RULES + SHAPE_RULES
"""The rules that hold bit for bit."""
_ALL_RULES: Final = EXACT_RULES + FAST_MATH_RULES


def simplify(jaxpr: J, *, fast_math: bool = False) -> J:
    """The program with fewer and simpler operations, in its bodies too: the rules `EXACT_RULES`, applied by `rewrite`.

    Evaluated, the results are the same bit for bit, NaN, infinities and the signs of zeros included (but not the bits
    inside of a NaN). With `fast_math` the rules `FAST_MATH_RULES` apply too, which hold for real numbers: of floats
    they
    change the rounding, and what comes of NaN, infinities and zeros.

    >>> import tracefx as fx
    >>> program = fx.make_jaxpr(lambda x: -(-x.T.T * 1.0).reshape(6).reshape(2, 3))(fx.numpy.ones((2, 3)))
    >>> simplify(program)
    { lambda ; a:f32[2,3]. let in (a,) }
    """
    return rewrite(jaxpr, _ALL_RULES if fast_math else EXACT_RULES)
