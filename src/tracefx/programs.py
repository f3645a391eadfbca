"""Programs in hand: read from text, checked, run, simplified. (`tracefx.rewriting` rewrites and compares them.)

>>> program = parse_jaxpr("{ lambda ; x:f32[3]. let y:f32[3] = sin x; z:f32[3] = mul y 2.0:f32[] in (z,) }")
>>> check_jaxpr(program)
>>> parse_jaxpr(str(program)) == program
True
"""

from __future__ import annotations

from tracefx import serialization
from tracefx.control.vocabulary import VOCABULARY as VOCABULARY
from tracefx.control.vocabulary import vocabulary
from tracefx.core.evaluation import eval_jaxpr as eval_jaxpr
from tracefx.core.jaxpr import ClosedJaxpr as ClosedJaxpr
from tracefx.core.jaxpr import Eqn as Eqn
from tracefx.core.jaxpr import Jaxpr as Jaxpr
from tracefx.core.jaxpr import Var as Var
from tracefx.core.literal import Literal as Literal
from tracefx.core.primitive import Primitive
from tracefx.passes.check import check_jaxpr as check_jaxpr
from tracefx.passes.dce import cse as cse
from tracefx.passes.dce import dce as dce
from tracefx.passes.dce import prune as prune
from tracefx.serialization.digest import executable_key as executable_key
from tracefx.text import parser


def parse_jaxpr(text: str, *more: type[Primitive]) -> Jaxpr:
    """The program that `text` shows, as `str` of a jaxpr gives it; `more` are operations beside tracefx's own.

    `parse_jaxpr(str(jaxpr)) == jaxpr` for every program that holds no callable.

    Raises `ParseError`, with the line, the column and what was expected there.
    """
    return parser.parse_jaxpr(text, vocabulary(more))


def serialize(closed: ClosedJaxpr, *, provenance: bool = False) -> bytes:
    """The program with its constants as bytes, for `deserialize` in any process: no pickle, nothing of this machine.

    Programs that several equations share are written once. With `provenance` the equations keep the file, line,
    function and `named_scope`s that they were written in. These are left out otherwise, since they tell about the
    machine and make the bytes depend on it. docs/serialization.md describes the format.

    Raises SerializationError, a TypeError that shows the equation, for programs that hold functions (callbacks, rules
    of `custom_jvp` and the like, policies of `checkpoint`), and JaxprTypeError for one that is not well formed.

    >>> import tracefx as fx
    >>> closed = fx.make_jaxpr(lambda x: 2.0 * x)(1.0)
    >>> deserialize(serialize(closed)) == closed
    True
    """
    return serialization.serialize(closed, VOCABULARY, provenance)


def deserialize(data: bytes | bytearray | memoryview, *more: type[Primitive]) -> ClosedJaxpr:
    """The program that `serialize` wrote; `more` are operations beside tracefx's own, known by their names.

    `deserialize(serialize(closed)) == closed`. Bytes from anywhere will do: nothing in them is called, time and memory
    are bounded by their number, and the program is checked.

    Raises ParseError, which says what is wrong at which byte, for bytes that are no program, or no well-formed one.
    """
    return serialization.deserialize(data, vocabulary(more))
