"""Jaxprs as values: they are parsed, checked, evaluated, simplified and serialized.

See `tracefx.rewriting` for rewriting and comparing them.

>>> program = parse_jaxpr("{ lambda ; x:f32[3]. let y:f32[3] = sin x; z:f32[3] = mul y 2.0:f32[] in (z,) }")
>>> check_jaxpr(program)
>>> parse_jaxpr(str(program)) == program
True
"""

from __future__ import annotations

from tracefx import serialization
from tracefx.control.custom_jvp import CustomJVP
from tracefx.control.vocabulary import VOCABULARY, vocabulary
from tracefx.core import Literal
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.jaxpr import ClosedJaxpr, Eqn, Jaxpr, Var
from tracefx.core.primitive import Primitive
from tracefx.filtered_tracebacks import make_entry_points
from tracefx.passes.check import check_jaxpr
from tracefx.passes.cse import cse
from tracefx.passes.dce import dce, prune
from tracefx.serialization.digest import executable_key
from tracefx.text import parser
from tracefx.transforms.exporting import ProgramStripper

__all__ = [
    "VOCABULARY",
    "ClosedJaxpr",
    "Eqn",
    "Jaxpr",
    "Literal",
    "Var",
    "check_jaxpr",
    "cse",
    "dce",
    "deserialize",
    "eval_jaxpr",
    "executable_key",
    "parse_jaxpr",
    "prune",
    "serialize",
]


def parse_jaxpr(text: str, *more: type[Primitive]) -> Jaxpr:
    """Parses the text of a jaxpr.

    `parse_jaxpr(str(jaxpr)) == jaxpr` for every jaxpr without callables.

    Args:
        text: The text, in the format of `str(jaxpr)`.
        *more: Primitive classes beside those of tracefx.

    Returns:
        The jaxpr.

    Raises:
        ParseError: If the text is not a jaxpr. The message has the line, the column, and what was expected there.

    >>> print(parse_jaxpr("{ lambda ; x:f32[]. let y:f32[] = sin x in (y,) }"))
    { lambda ; a:f32[]. let b:f32[] = sin a in (b,) }
    """
    return parser.parse_jaxpr(text, vocabulary(more))


def serialize(closed: ClosedJaxpr, *, provenance: bool = False) -> bytes:
    """Returns a program and its constants as bytes, for `deserialize` in any process.

    The format contains neither pickles nor anything specific to the machine; docs/serialization.md describes it. A
    jaxpr that several equations share is written once.

    Args:
        closed: The program, as returned by `make_jaxpr`.
        provenance: Whether equations keep their source locations (file, line, function) and `named_scope`s. False by
            default: these reveal details of the machine, and make the bytes depend on it.

    Returns:
        The bytes.

    Raises:
        SerializationError: If the program contains Python functions: callbacks, user-defined rules of `custom_jvp` and
            the like, policies of `checkpoint`. It is a TypeError, and shows the equation.
        JaxprTypeError: If the program is not well formed.

    >>> import tracefx as fx
    >>> closed = fx.make_jaxpr(lambda x: 2.0 * x)(1.0)
    >>> deserialize(serialize(closed)) == closed
    True
    """
    if isinstance(closed, ClosedJaxpr):
        named = ProgramStripper(drop_rules=False, provenance=True).strip_jaxpr(closed.jaxpr)
        closed = ClosedJaxpr(named, closed.consts)
    return serialization.serialize(closed, VOCABULARY, provenance)


def deserialize(data: bytes | bytearray | memoryview, *more: type[Primitive]) -> ClosedJaxpr:
    """Returns the program that `serialize` wrote.

    The bytes may be from an untrusted source: no code in them is executed, time and memory are bounded by their number,
    and the program is checked. `deserialize(serialize(closed)) == closed`.

    Args:
        data: The bytes.
        *more: Primitive classes beside those of tracefx; they are found by their names.

    Returns:
        The program.

    Raises:
        ParseError: If the bytes are not a well-formed program. It is a ValueError, and says what is wrong at which
            byte.

    >>> import tracefx as fx
    >>> print(deserialize(serialize(fx.make_jaxpr(lambda x: -x)(1.0))))
    { lambda ; a:f32[]*. let b:f32[]* = neg a in (b,) }
    """
    return serialization.deserialize(data, vocabulary((CustomJVP, *more)))


make_entry_points(globals())
