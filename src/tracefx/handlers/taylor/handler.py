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
from tracefx.core.primitive import Differentiable, Primitive, Tangent, Zero, missing_rule_error
from tracefx.core.values import Value
from tracefx.handlers.taylor.rules import TAYLOR_FAMILY_RULES, TAYLOR_RULES, TaylorSeriesRule
from tracefx.handlers.taylor.series import (
    Coefficient,
    Series,
    cast_series,
    cast_term,
    constant_series,
    euler_derivative,
    instantiate_term,
    scale_term,
    sub_terms,
    term_to_tangent,
)
from tracefx.interpreters.interpreter import Interpreter
from tracefx.interpreters.rules import Rules

SeriesOrValue: TypeAlias = Series | Value
DerivativeMemo: TypeAlias = dict[Hashable, tuple[Sequence[Series], Sequence[Series]]]
"""Operands and results of operations that have a derivative alone, for one of them that takes the other's again."""


class TaylorRule:
    """A capability: the operation knows its series.

    Without it an operation's derivative is taken, on series of one order less.
    """

    __slots__ = ()

    @abstractmethod
    def series(self, *operands: Series) -> Sequence[Series]:
        """The results from a series for each operand, one of which varies. All are of one order, 2 or more."""
        raise missing_rule_error(self, "series", "define series(self, *operands)")


@final
@frozen(eq=False)
class Taylor(Interpreter[Series]):
    """Values are series along a curve, up to a power `order` of its parameter.

    A series of order 1 is a value and its tangent, and then operations do what they do under `jvp`. For higher orders
    there are rules; an operation with a derivative and no rule does that, on series of one order less.
    """

    order: int
    derivative_memo: DerivativeMemo | None = field(default=None, repr=False)
    """What was done of one operation's derivative so far, where that is what the handler is for."""

    @property
    @override
    def title(self) -> str:
        return "jet"

    @property
    @override
    def cache_key(self) -> Hashable:
        return self.order

    @property
    @override
    def rules(self) -> Rules[Taylor, SeriesOrValue]:
        return RULES if self.order > 1 else FIRST_ORDER_RULES

    @override
    def with_inner(self, handler: Handler) -> Taylor:
        return Taylor(handler, self.order)

    @override
    def aval_of(self, value: Series) -> ShapedArray:
        return value.primal.aval

    @override
    def lift(self, x: Value) -> Series:
        return constant_series(x, self.order)

    @override
    def unify(self, x: Series, y: Series) -> tuple[Series, Series]:
        """Where one has a coefficient both have."""
        both = [s is not None or t is not None for s, t in zip(x.higher, y.higher, strict=True)]
        return _instantiate_where(x, both), _instantiate_where(y, both)

    @override
    def strip(self, value: Series) -> Value:
        return value.primal

    # -------------------------------------------------------------- series and values

    def as_series(self, x: SeriesOrValue) -> Series:
        return x if isinstance(x, Series) else constant_series(x, self.order)

    def unlift(self, x: Series) -> SeriesOrValue:
        """What doesn't vary is a plain value."""
        return x if x.varies else x.primal


def _instantiate_where(x: Series, wanted: Sequence[bool]) -> Series:
    return Series(
        x.primal,
        tuple([instantiate_term(t, x.primal) if want else t for t, want in zip(x.higher, wanted, strict=True)]),
    )


# ------------------------------------------------------------------ operations that have a derivative


def first_order_taylor(handler: Taylor, prim: Differentiable, *operands: SeriesOrValue) -> Sequence[SeriesOrValue]:
    """A derivative, as `jvp` takes it."""
    args = [handler.as_series(x) for x in operands]
    tangents = [term_to_tangent(a.higher[0], a.primal) for a in args]
    outs, out_tangents = prim.jvp([a.primal for a in args], tangents)
    return [out if isinstance(t, Zero) else Series(out, (t,)) for out, t in zip(outs, out_tangents, strict=True)]


def derivative_taylor(handler: Taylor, prim: object, *operands: SeriesOrValue) -> Sequence[SeriesOrValue]:
    """The derivative along the curve, whose operations are done on series of one order less, and integrated."""
    args = [handler.as_series(x) for x in operands]
    assert isinstance(prim, Primitive)
    assert isinstance(prim, Differentiable)
    seen: DerivativeMemo = {} if handler.derivative_memo is None else handler.derivative_memo
    name = (prim, handler.order, *map(_series_key, args))
    if name in seen and not prim.effects:
        outs = seen[name][1]
    else:
        outs = _integrate_derivative(handler, Taylor(handler.inner, handler.order - 1, seen), prim, args)
        seen[name] = args, outs
    return [handler.unlift(out) for out in outs]


def _series_key(x: Series) -> Hashable:
    return tuple([t if isinstance(t, Literal) else id(t) for t in x.terms])


def _integrate_derivative(
    handler: Taylor, lower: Taylor, prim: Differentiable, args: Sequence[Series]
) -> Sequence[Series]:
    def shortened(x: Series) -> Value:
        return lower.wrap(lower.unlift(Series(x.primal, x.higher[:-1])))

    def rate(x: Series) -> Tangent:
        if not x.varies:
            return term_to_tangent(None, x.primal)
        first, *rest = euler_derivative(x.terms)[1:]
        return lower.wrap(lower.unlift(Series(instantiate_term(first, x.primal), tuple(rest))))

    with handling(lower):
        outs, tangents = prim.jvp([shortened(a) for a in args], [rate(a) for a in args])
    found: list[Series] = []
    for out, t in zip(outs, tangents, strict=True):
        primal = lower.as_series(lower.unwrap(out)).primal
        terms: list[Coefficient] = [None] * handler.order
        if not isinstance(t, Zero):
            slope = lower.as_series(lower.unwrap(t)).terms
            terms = [scale_term(s, 1.0 / k) for k, s in enumerate(slope, 1)]
        found.append(cast_series([primal, *terms], primal))
    return found


# ------------------------------------------------------------------ equations


def linear_solve_taylor(handler: Taylor, prim: LinearSolve, *operands: SeriesOrValue) -> Sequence[SeriesOrValue]:
    """The solution of `A x = b`, order by order: `A_0 x_k` is what is left of `b_k` by the coefficients before."""
    args = [handler.as_series(x) for x in operands]
    n = prim.num_consts
    consts, sides = args[:n], args[n:]
    size = len(sides)
    outs = bind(prim, *[a.primal for a in args])
    moving = any(a.varies for a in consts)
    solution: list[list[Coefficient]] = [[x] for x in outs[:size]]
    for k in range(1, handler.order + 1):
        left = [side.terms[k] for side in sides]
        if moving:
            known = [Series(terms[0], (*terms[1:], *[None] * (handler.order + 1 - k))) for terms in solution]  # type: ignore[arg-type]  # the first is a value
            held = [handler.wrap(handler.unlift(x)) for x in (*consts, *known)]
            moved = [handler.as_series(handler.unwrap(y)) for y in handler.run(prim.matvec, held)]
            left = [sub_terms(b, y.terms[k]) for b, y in zip(left, moved, strict=True)]
        if all(b is None for b in left):
            found: Sequence[Coefficient] = [None] * size
        else:
            values = [cast_term(instantiate_term(b, s.primal), s.primal.aval) for b, s in zip(left, sides, strict=True)]
            found = bind(prim, *[c.primal for c in consts], *values)[:size]
        for terms, x in zip(solution, found, strict=True):
            terms.append(x)
    results = [cast_series(terms, out) for terms, out in zip(solution, outs[:size], strict=True)]
    return [*[handler.unlift(x) for x in results], *outs[size:]]


# ------------------------------------------------------------------ the tables


def lift_series_rule(rule: TaylorSeriesRule) -> Callable[..., Sequence[SeriesOrValue]]:
    def handled(handler: Taylor, prim: Primitive, *operands: SeriesOrValue) -> Sequence[SeriesOrValue]:
        found = rule(prim, *[handler.as_series(x) for x in operands])
        if found is None:
            return derivative_taylor(handler, prim, *operands)
        return [handler.unlift(x) for x in found]

    return handled


def own_rule_taylor(handler: Taylor, prim: TaylorRule, *operands: SeriesOrValue) -> Sequence[SeriesOrValue]:
    found = prim.series(*[handler.as_series(x) for x in operands])
    return [handler.unlift(cast_series(x.terms, x.primal)) for x in found]


def _build_rules() -> Rules[Taylor, SeriesOrValue]:
    rules = Rules[Taylor, SeriesOrValue]()
    for prim, rule in TAYLOR_RULES.items():
        rules = rules.on(prim, lift_series_rule(rule))
    for family, rule in TAYLOR_FAMILY_RULES.items():
        rules = rules.family(family, lift_series_rule(rule))
    for prim in (CustomJVP, CustomJVPCall, CustomVJP, CustomVJPCall):
        rules = rules.on(prim, derivative_taylor)
    rules = rules.on(LinearSolve, linear_solve_taylor)
    return rules.capable(TaylorRule, own_rule_taylor).family(Differentiable, derivative_taylor)


RULES: Final = _build_rules()
FIRST_ORDER_RULES: Final = Rules[Taylor, SeriesOrValue]().capable(Differentiable, first_order_taylor)
