"""Algebraic simplification: the rules of the package as a pass."""

from __future__ import annotations

from typing import Final

from tracefx.rewriting.closed import J
from tracefx.rewriting.engine import rewrite
from tracefx.rewriting.fast_math import FAST_MATH
from tracefx.rewriting.identities import IDENTITIES
from tracefx.rewriting.layouts import LAYOUTS
from tracefx.rewriting.rules import Rule

EXACT: Final[tuple[Rule, ...]] = IDENTITIES + LAYOUTS
"""The rules that hold bit for bit."""
_ALL: Final = EXACT + FAST_MATH


def simplify(jaxpr: J, *, fast_math: bool = False) -> J:
    """The program with fewer and simpler operations, in its bodies too: the rules `EXACT`, applied by `rewrite`.

    Evaluated, the results are the same bit for bit, NaN, infinities and the signs of zeros included (but not the bits
    inside of a NaN). With `fast_math` the rules `FAST_MATH` apply too, which hold for real numbers: of floats they
    change the rounding, and what comes of NaN, infinities and zeros.

    >>> import tracefx as fx
    >>> program = fx.make_jaxpr(lambda x: -(-x.T.T * 1.0).reshape(6).reshape(2, 3))(fx.numpy.ones((2, 3)))
    >>> simplify(program)
    { lambda ; a:f32[2,3]. let in (a,) }
    """
    return rewrite(jaxpr, _ALL if fast_math else EXACT)
