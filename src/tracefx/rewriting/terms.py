"""Terms: the values of a jaxpr as an expression graph that rewrite rules inspect with `match`.

    match term:
        case Apply(Neg(), (Apply(Neg(), (x,)),)):
            ...

Terms are tracers: operators and all functions of `tracefx.lax` and `tracefx.numpy` accept them and return new terms.
So a rule writes the replacement of a term like any other traced function.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, TypeAlias, final

from attrs import frozen
from typing_extensions import override

from tracefx.core import ConcreteArray, Literal, ShapedArray, Value
from tracefx.core.equality import strict_key
from tracefx.core.handler import ROOT, Handler, Tracer, bind_expansion, escaped_tracer_error
from tracefx.core.jaxpr import Var
from tracefx.core.primitive import Expandable, Primitive
from tracefx.errors import RewriteError
from tracefx.interpreters.callables import HasCallables
from tracefx.passes.varying import infer_types
from tracefx.source_location import Provenance, equation_location
from tracefx.text.printer import variable_name


@final
class OperationNode:
    """The application of a primitive to operands: an equation without variable names. Its outputs are its `terms`.

    A plain class for speed, as tracers are: rewriting makes one for every equation.
    """

    __slots__ = ("alias", "operands", "prim", "results", "source", "terms")

    def __init__(
        self,
        handler: RewriteHandler,
        prim: Primitive,
        operands: tuple[Term, ...],
        avals: Sequence[ShapedArray],
        source: Provenance | None,
    ) -> None:
        self.prim = prim
        self.operands = operands
        self.source = source
        self.terms = tuple([Apply(handler, self, i, aval) for i, aval in enumerate(avals)])
        self.results: Sequence[Term] | None = None
        """The replacements of the outputs, once no rule applies any more."""
        self.alias: OperationNode | None = None
        """The equal, earlier node that replaces this one, which a rule created."""

    @property
    def key(self) -> tuple[Primitive, tuple[Hashable, ...]]:
        """A key that is equal for equal operations on the same operands."""
        return self.prim, tuple([strict_key(x) if type(x) is Literal else id(x) for x in self.operands])


@final
class Apply(Tracer):
    """An output of an operation: output number `out` of `prim` applied to `operands`.

    A rewrite rule gets such terms, and matches them by `prim` and `operands`; operands are terms, too. Functions of
    `tracefx.numpy` and `tracefx.lax` can be applied to them.

    >>> from tracefx import make_jaxpr, numpy as fnp
    >>> from tracefx.ops import Exp, Log
    >>> from tracefx.rewriting import rewrite, rule
    >>> @rule(Log)
    ... def log_of_exp(term):
    ...     match term:
    ...         case Apply(Log(), (Apply(Exp(), (x,)),)):
    ...             return x
    >>> rewrite(make_jaxpr(lambda x: fnp.log(fnp.exp(x)))(1.0), [log_of_exp])
    { lambda ; a:f32[]*. let in (a,) }
    """

    __slots__ = ("application", "aval", "handler", "operands", "out", "prim")
    __match_args__ = ("prim", "operands")
    aval: ShapedArray
    handler: RewriteHandler
    prim: Primitive
    operands: tuple[Term, ...]

    def __init__(self, handler: RewriteHandler, application: OperationNode, out: int, aval: ShapedArray) -> None:
        self.handler = handler
        self.application = application
        self.prim = application.prim
        self.operands = application.operands
        self.out = out
        self.aval = aval

    @property
    @override
    def origin(self) -> Provenance | None:
        return self.application.source

    @property
    def outputs(self) -> tuple[Apply, ...]:
        """All outputs of the operation, in order."""
        return self.application.terms

    @override
    def __repr__(self) -> str:
        return format_term(self)


@final
class InputTerm(Tracer):
    """An input or a constant of the jaxpr: only its shape and dtype are known."""

    __slots__ = ("aval", "binder", "handler")
    aval: ShapedArray
    handler: RewriteHandler
    origin = None

    def __init__(self, handler: RewriteHandler, binder: Var) -> None:
        self.handler = handler
        self.binder = binder
        self.aval = binder.aval

    @override
    def __repr__(self) -> str:
        return format_term(self)


Term: TypeAlias = Apply | InputTerm | Literal
"""A value in a jaxpr. Two terms are the same value if they are the same object (`x is y`) or equal literals."""


@final
@frozen(eq=False)
class RewriteHandler(Handler):
    """The handler under which rules run: operations become terms, nothing is computed."""

    title = "rewriting"

    inner = ROOT

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        if type(prim).abstract_eval is Primitive.abstract_eval:
            if isinstance(prim, HasCallables):
                prim, args = prim.stage_callables(self, args)
            elif isinstance(prim, Expandable):
                return bind_expansion(self, prim, args)
        observable_effects = [e for e in prim.effects if e.observable]
        if observable_effects:
            raise RewriteError(
                f"a rule cannot add effects to a program, but {prim.name} has "
                f"{', '.join(sorted(map(str, observable_effects)))}"
            )
        operands = tuple([self.term(x, f"an operand of {prim.name}") for x in args])
        avals = infer_types(prim, [x.aval for x in operands])
        return OperationNode(self, prim, operands, avals, equation_location()).terms

    def term(self, x: Value, where: str) -> Term:
        """Converts a value to a term of this program; `where` describes its use in error messages."""
        if isinstance(x, (Apply, InputTerm)) and x.handler is self:
            return x
        if isinstance(x, Literal):
            return x
        if isinstance(x, ConcreteArray):
            if not x.aval.shape:
                return Literal(x.numpy().item(), x.aval)
            raise RewriteError(
                f"an array of type {x.aval} is {where}, but rules cannot add array constants to a program: create "
                "the array from scalars, with tracefx.lax.full or broadcast_in_dim"
            )
        assert isinstance(x, Tracer)
        raise escaped_tracer_error(x, self, f"as {where}")


_PRINT_DEPTH: Final = 3


def format_term(x: Term, depth: int = _PRINT_DEPTH) -> str:
    """Formats a term for messages: its expression, down to `depth` operations."""
    if isinstance(x, Literal):
        return str(x)
    if isinstance(x, InputTerm):
        return f"{variable_name(x.binder.index)}:{x.aval!r}"
    if depth == 0:
        return f"{x.prim.name}(...)"
    output_index = f"[{x.out}]" if len(x.outputs) > 1 else ""
    return f"{x.prim.name}({', '.join([format_term(y, depth - 1) for y in x.operands])}){output_index}"
