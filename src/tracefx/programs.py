"""Programs in hand: read from text, checked, run, simplified.

>>> program = parse_jaxpr("{ lambda ; x:f32[3]. let y:f32[3] = sin x; z:f32[3] = mul y 2.0:f32[] in (z,) }")
>>> check_jaxpr(program)
>>> parse_jaxpr(str(program)) == program
True
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from tracefx.control.call import Call
from tracefx.control.checkpoint import Checkpoint, Name
from tracefx.control.cond import Cond
from tracefx.control.linear_solve import LinearSolve
from tracefx.control.platform import PlatformIndex
from tracefx.control.scan import Scan
from tracefx.control.while_loop import While
from tracefx.core import parser
from tracefx.core.check import check_jaxpr as check_jaxpr
from tracefx.core.digest import executable_key as executable_key
from tracefx.core.jaxpr import ClosedJaxpr as ClosedJaxpr
from tracefx.core.jaxpr import Eqn as Eqn
from tracefx.core.jaxpr import Jaxpr as Jaxpr
from tracefx.core.jaxpr import Var as Var
from tracefx.core.jaxpr import eval_jaxpr as eval_jaxpr
from tracefx.core.literal import Literal as Literal
from tracefx.core.passes import cse as cse
from tracefx.core.passes import dce as dce
from tracefx.core.passes import prune as prune
from tracefx.core.primitive import Primitive
from tracefx.ops.vocabulary import OPERATIONS

_OWN: Final[tuple[type[Primitive], ...]] = (
    *OPERATIONS,
    Call,
    Cond,
    Scan,
    While,
    Checkpoint,
    Name,
    LinearSolve,
    PlatformIndex,
)
VOCABULARY: Final = MappingProxyType({prim.name: prim for prim in _OWN})
"""tracefx's own operations by the names that programs are printed with."""


def parse_jaxpr(text: str, *more: type[Primitive]) -> Jaxpr:
    """The program that `text` shows, as `str` of a jaxpr gives it; `more` are operations beside tracefx's own.

    `parse_jaxpr(str(jaxpr)) == jaxpr` for every program that holds no callable.

    Raises `ParseError`, with the line, the column and what was expected there.
    """
    return parser.parse_jaxpr(text, VOCABULARY if not more else {**VOCABULARY, **{prim.name: prim for prim in more}})
