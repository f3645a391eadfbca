"""The handler whose values are truncated series, and what it does with operations that have a derivative alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Final, TypeAlias, final

from attrs import field, frozen
from typing_extensions import override

from tracefx.control.custom_jvp import CustomJVP, CustomJVPCall
from tracefx.control.custom_vjp import CustomVJP, CustomVJPCall
from tracefx.control.linear_solve import LinearSolve
from tracefx.core.avals import ShapedArray
from tracefx.core.handler import Handler, bind, handling
from tracefx.core.literal import Literal
from tracefx.core.primitive import Differentiable, Primitive, Tangent, Zero, missing
from tracefx.core.values import Value
from tracefx.handlers.taylor.rules import FAMILIES, OWN, Rule
from tracefx.handlers.taylor.series import (
    Series,
    Term,
    as_tangent,
    constant,
    fitted,
    fitted_term,
    minus,
    rates,
    scaled,
    spelled,
)
from tracefx.interpreters.interpreter import Interpreter
from tracefx.interpreters.rules import Rules

Held: TypeAlias = Series | Value
Seen: TypeAlias = dict[Hashable, tuple[Sequence[Series], Sequence[Series]]]
"""Operands and results of operations that have a derivative alone, for one of them that takes the other's again."""


class TaylorRule:
    """A capability: the operation knows its series.

    Without it an operation's derivative is taken, on series of one order less.
    """

    __slots__ = ()

    @abstractmethod
    def series(self, *operands: Series) -> Sequence[Series]:
        """The results from a series for each operand, one of which varies. All are of one order, 2 or more."""
        raise missing(self, "series", "define series(self, *operands)")


@final
@frozen(eq=False)
class Taylor(Interpreter[Series]):
    """Values are series along a curve, up to a power `order` of its parameter.

    A series of order 1 is a value and its tangent, and then operations do what they do under `jvp`. For higher orders
    there are rules; an operation with a derivative and no rule does that, on series of one order less.
    """

    order: int
    seen: Seen | None = field(default=None, repr=False)
    """What was done of one operation's derivative so far, where that is what the handler is for."""

    @property
    @override
    def title(self) -> str:
        return "jet"

    @property
    @override
    def key(self) -> Hashable:
        return self.order

    @property
    @override
    def rules(self) -> Rules[Taylor, Held]:
        return RULES if self.order > 1 else FIRST_ORDER

    @override
    def within(self, handler: Handler) -> Taylor:
        return Taylor(handler, self.order)

    @override
    def aval_of(self, value: Series) -> ShapedArray:
        return value.primal.aval

    @override
    def lift(self, x: Value) -> Series:
        return constant(x, self.order)

    @override
    def unite(self, x: Series, y: Series) -> tuple[Series, Series]:
        """Where one has a coefficient both have."""
        both = [s is not None or t is not None for s, t in zip(x.higher, y.higher, strict=True)]
        return _filled(x, both), _filled(y, both)

    @override
    def bared(self, value: Series) -> Value:
        return value.primal

    # -------------------------------------------------------------- series and values

    def series_of(self, x: Held) -> Series:
        return x if isinstance(x, Series) else constant(x, self.order)

    def held(self, x: Series) -> Held:
        """What doesn't vary is a plain value."""
        return x if x.varies else x.primal


def _filled(x: Series, wanted: Sequence[bool]) -> Series:
    return Series(
        x.primal, tuple([spelled(t, x.primal) if want else t for t, want in zip(x.higher, wanted, strict=True)])
    )


# ------------------------------------------------------------------ operations that have a derivative


def first_order(handler: Taylor, prim: Differentiable, *operands: Held) -> Sequence[Held]:
    """A derivative, as `jvp` takes it."""
    args = [handler.series_of(x) for x in operands]
    tangents = [as_tangent(a.higher[0], a.primal) for a in args]
    outs, out_tangents = prim.jvp([a.primal for a in args], tangents)
    return [out if isinstance(t, Zero) else Series(out, (t,)) for out, t in zip(outs, out_tangents, strict=True)]


def by_derivative(handler: Taylor, prim: object, *operands: Held) -> Sequence[Held]:
    """The derivative along the curve, whose operations are done on series of one order less, and integrated."""
    args = [handler.series_of(x) for x in operands]
    assert isinstance(prim, Primitive)
    assert isinstance(prim, Differentiable)
    seen: Seen = {} if handler.seen is None else handler.seen
    name = (prim, handler.order, *map(_identity, args))
    if name in seen and not prim.effects:
        outs = seen[name][1]
    else:
        outs = _integrated(handler, Taylor(handler.inner, handler.order - 1, seen), prim, args)
        seen[name] = args, outs
    return [handler.held(out) for out in outs]


def _identity(x: Series) -> Hashable:
    return tuple([t if isinstance(t, Literal) else id(t) for t in x.terms])


def _integrated(handler: Taylor, lower: Taylor, prim: Differentiable, args: Sequence[Series]) -> Sequence[Series]:
    def shortened(x: Series) -> Value:
        return lower.wrap(lower.held(Series(x.primal, x.higher[:-1])))

    def rate(x: Series) -> Tangent:
        if not x.varies:
            return as_tangent(None, x.primal)
        first, *rest = rates(x.terms)[1:]
        return lower.wrap(lower.held(Series(spelled(first, x.primal), tuple(rest))))

    with handling(lower):
        outs, tangents = prim.jvp([shortened(a) for a in args], [rate(a) for a in args])
    found: list[Series] = []
    for out, t in zip(outs, tangents, strict=True):
        primal = lower.series_of(lower.unwrap(out)).primal
        terms: list[Term] = [None] * handler.order
        if not isinstance(t, Zero):
            slope = lower.series_of(lower.unwrap(t)).terms
            terms = [scaled(s, 1.0 / k) for k, s in enumerate(slope, 1)]
        found.append(fitted([primal, *terms], primal))
    return found


# ------------------------------------------------------------------ equations


def solved(handler: Taylor, prim: LinearSolve, *operands: Held) -> Sequence[Held]:
    """The solution of `A x = b`, order by order: `A_0 x_k` is what is left of `b_k` by the coefficients before."""
    args = [handler.series_of(x) for x in operands]
    n = prim.num_consts
    consts, sides = args[:n], args[n:]
    size = len(sides)
    outs = bind(prim, *[a.primal for a in args])
    moving = any(a.varies for a in consts)
    solution: list[list[Term]] = [[x] for x in outs[:size]]
    for k in range(1, handler.order + 1):
        left = [side.terms[k] for side in sides]
        if moving:
            known = [Series(terms[0], (*terms[1:], *[None] * (handler.order + 1 - k))) for terms in solution]  # type: ignore[arg-type]  # the first is a value
            held = [handler.wrap(handler.held(x)) for x in (*consts, *known)]
            moved = [handler.series_of(handler.unwrap(y)) for y in handler.run(prim.matvec, held)]
            left = [minus(b, y.terms[k]) for b, y in zip(left, moved, strict=True)]
        if all(b is None for b in left):
            found: Sequence[Term] = [None] * size
        else:
            values = [fitted_term(spelled(b, s.primal), s.primal.aval) for b, s in zip(left, sides, strict=True)]
            found = bind(prim, *[c.primal for c in consts], *values)[:size]
        for terms, x in zip(solution, found, strict=True):
            terms.append(x)
    results = [fitted(terms, out) for terms, out in zip(solution, outs[:size], strict=True)]
    return [*[handler.held(x) for x in results], *outs[size:]]


# ------------------------------------------------------------------ the tables


def by_series(rule: Rule) -> Callable[..., Sequence[Held]]:
    def handled(handler: Taylor, prim: Primitive, *operands: Held) -> Sequence[Held]:
        found = rule(prim, *[handler.series_of(x) for x in operands])
        if found is None:
            return by_derivative(handler, prim, *operands)
        return [handler.held(x) for x in found]

    return handled


def by_itself(handler: Taylor, prim: TaylorRule, *operands: Held) -> Sequence[Held]:
    found = prim.series(*[handler.series_of(x) for x in operands])
    return [handler.held(fitted(x.terms, x.primal)) for x in found]


def _table() -> Rules[Taylor, Held]:
    rules = Rules[Taylor, Held]()
    for prim, rule in OWN.items():
        rules = rules.on(prim, by_series(rule))
    for family, rule in FAMILIES.items():
        rules = rules.family(family, by_series(rule))
    for prim in (CustomJVP, CustomJVPCall, CustomVJP, CustomVJPCall):
        rules = rules.on(prim, by_derivative)
    rules = rules.on(LinearSolve, solved)
    return rules.capable(TaylorRule, by_itself).family(Differentiable, by_derivative)


RULES: Final = _table()
FIRST_ORDER: Final = Rules[Taylor, Held]().capable(Differentiable, first_order)
