"""`Taylor`, the handler whose values are truncated power series, and its rules for general primitives."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar, Final, TypeAlias, cast, final

from typing_extensions import override

from tracefx.control.custom_jvp import CustomJVP, CustomJVPCall
from tracefx.control.custom_vjp import CustomVJP, CustomVJPCall
from tracefx.control.linear_solve import LinearSolve
from tracefx.core import Literal, ShapedArray, Value
from tracefx.core.equality import strict_key
from tracefx.core.handler import bind, handling
from tracefx.core.primitive import Differentiable, Primitive, Tangent, Zero, missing_rule_error
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
"""The operands and results of primitives without series rules, because a derivative may bind the same one again."""
_MEMO: Final = "memo"
"""The note of a run that interprets the JVP rule of an operation: the `DerivativeMemo` of the operations so far."""


class TaylorRule:
    """A capability of primitives: they compute the series of their results.

    Without it the primitive's JVP rule is interpreted on series of one order less.
    """

    __slots__ = ()

    @abstractmethod
    def series(self, *operands: Series) -> Sequence[Series]:
        """Returns the series of the results.

        Args:
            *operands: The series of the operands, of the same order, at least 2; at least one of them varies.

        Returns:
            One series of this order for each result.

        Raises:
            MissingRuleError: The class does not define the method.
        """
        raise missing_rule_error(self, "series", "define series(self, *operands)")


@final
class Taylor(Interpreter[Series]):
    """Values are power series of a curve's parameter, truncated at the power `order`.

    At order 1 a series is a primal and a tangent, and operations use their JVP rules. At higher orders primitives have
    series rules; those with only a JVP rule apply it to series of one order less.
    """

    title: ClassVar[str] = "jet"
    order: int

    @property
    @override
    def rules(self) -> Rules[Taylor, SeriesOrValue]:
        return RULES if self.order > 1 else FIRST_ORDER_RULES

    @override
    def aval_of(self, value: Series) -> ShapedArray:
        return value.primal.aval

    @override
    def lift(self, x: Value) -> Series:
        return constant_series(x, self.order)

    @override
    def unify(self, x: Series, y: Series) -> tuple[Series, Series]:
        """Returns both with the same coefficients present."""
        both = [s is not None or t is not None for s, t in zip(x.higher, y.higher, strict=True)]
        return _instantiate_where(x, both), _instantiate_where(y, both)

    @override
    def strip(self, value: Series) -> Value:
        return value.primal

    # -------------------------------------------------------------- series and values

    def as_series(self, x: SeriesOrValue) -> Series:
        """Returns a value as a series.

        Args:
            x: A series, or a plain value.

        Returns:
            The series; that of a plain value is constant.
        """
        return x if isinstance(x, Series) else constant_series(x, self.order)

    def unlift(self, x: Series) -> SeriesOrValue:
        """Returns a series as a plain value if it is constant.

        Args:
            x: The series.

        Returns:
            The value of a constant, or the series itself.
        """
        return x if x.varies else x.primal


def _instantiate_where(x: Series, present: Sequence[bool]) -> Series:
    return Series(
        x.primal,
        tuple(
            [
                instantiate_term(t, x.primal) if is_present else t
                for t, is_present in zip(x.higher, present, strict=True)
            ]
        ),
    )


# ------------------------------------------------------------------ operations with a JVP rule


def first_order_taylor(handler: Taylor, prim: Differentiable, *operands: SeriesOrValue) -> Sequence[SeriesOrValue]:
    """Applies the JVP rule to series of order 1."""
    args = [handler.as_series(x) for x in operands]
    tangents = [term_to_tangent(a.higher[0], a.primal) for a in args]
    outs, out_tangents = prim.jvp([a.primal for a in args], tangents)
    return [out if isinstance(t, Zero) else Series(out, (t,)) for out, t in zip(outs, out_tangents, strict=True)]


def derivative_taylor(handler: Taylor, prim: Differentiable, *operands: SeriesOrValue) -> Sequence[SeriesOrValue]:
    """Interprets the JVP rule along the curve on series of one order less, and integrates the result."""
    args = [handler.as_series(x) for x in operands]
    memo = cast(DerivativeMemo, handler.run.notes.get(_MEMO, {}))
    key = (prim, handler.order, *map(_series_key, args))
    if key in memo and isinstance(prim, Primitive) and not prim.effects:
        outs = memo[key][1]
    else:
        lower = Taylor(handler.order - 1).start(handler.inner)
        lower.run.notes[_MEMO] = memo
        outs = _integrate_derivative(handler, lower, prim, args)
        memo[key] = args, outs
    return [handler.unlift(out) for out in outs]


def _series_key(x: Series) -> Hashable:
    return tuple([strict_key(t) if isinstance(t, Literal) else id(t) for t in x.terms])


def _integrate_derivative(
    handler: Taylor, lower: Taylor, prim: Differentiable, args: Sequence[Series]
) -> Sequence[Series]:
    def shortened(x: Series) -> Value:
        return lower.wrap(lower.unlift(Series(x.primal, x.higher[:-1])))

    def scaled_derivative(x: Series) -> Tangent:
        if not x.varies:
            return term_to_tangent(None, x.primal)
        first, *rest = euler_derivative(x.terms)[1:]
        return lower.wrap(lower.unlift(Series(instantiate_term(first, x.primal), tuple(rest))))

    with handling(lower.frame):
        outs, tangents = prim.jvp([shortened(a) for a in args], [scaled_derivative(a) for a in args])
    results: list[Series] = []
    for out, t in zip(outs, tangents, strict=True):
        primal = lower.as_series(lower.unwrap(out)).primal
        terms: list[Coefficient] = [None] * handler.order
        if not isinstance(t, Zero):
            derivative = lower.as_series(lower.unwrap(t)).terms
            terms = [scale_term(s, 1.0 / k) for k, s in enumerate(derivative, 1)]
        results.append(cast_series([primal, *terms], primal))
    return results


# ------------------------------------------------------------------ linear equations


def linear_solve_taylor(handler: Taylor, prim: LinearSolve, *operands: SeriesOrValue) -> Sequence[SeriesOrValue]:
    """Solves `A x = b` order by order: `A_0 x_k` is `b_k` minus the products with lower coefficients of `x`."""
    args = [handler.as_series(x) for x in operands]
    n = prim.num_consts
    consts, sides = args[:n], args[n:]
    size = len(sides)
    outs = bind(prim, *[a.primal for a in args])
    varies = any(a.varies for a in consts)
    solution: list[list[Coefficient]] = [[x] for x in outs[:size]]
    for k in range(1, handler.order + 1):
        rhs = [side.terms[k] for side in sides]
        if varies:
            unknown: list[Coefficient] = [None] * (handler.order + 1 - k)
            known = [Series(x, (*terms[1:], *unknown)) for x, terms in zip(outs, solution, strict=False)]
            # `known` has the coefficients of x so far; their product with A up to order k is to be subtracted.
            wrapped = [handler.wrap(handler.unlift(x)) for x in (*consts, *known)]
            products = [handler.as_series(handler.unwrap(y)) for y in handler.interpret(prim.matvec, wrapped)]
            rhs = [sub_terms(b, y.terms[k]) for b, y in zip(rhs, products, strict=True)]
        if all(b is None for b in rhs):
            new_terms: Sequence[Coefficient] = [None] * size
        else:
            values = [cast_term(instantiate_term(b, s.primal), s.primal.aval) for b, s in zip(rhs, sides, strict=True)]
            new_terms = bind(prim, *[c.primal for c in consts], *values)[:size]
        for terms, x in zip(solution, new_terms, strict=True):
            terms.append(x)
    results = [cast_series(terms, out) for terms, out in zip(solution, outs[:size], strict=True)]
    return [*[handler.unlift(x) for x in results], *outs[size:]]


# ------------------------------------------------------------------ the tables of rules


def lift_series_rule(rule: TaylorSeriesRule) -> Callable[..., Sequence[SeriesOrValue]]:
    """Returns a handler rule made of a series rule; if that returns None, the JVP rule is used."""

    def handled(handler: Taylor, prim: Differentiable, *operands: SeriesOrValue) -> Sequence[SeriesOrValue]:
        results = rule(prim, *[handler.as_series(x) for x in operands])
        if results is None:
            return derivative_taylor(handler, prim, *operands)
        return [handler.unlift(x) for x in results]

    return handled


def own_rule_taylor(handler: Taylor, prim: TaylorRule, *operands: SeriesOrValue) -> Sequence[SeriesOrValue]:
    results = prim.series(*[handler.as_series(x) for x in operands])
    return [handler.unlift(cast_series(x.terms, x.primal)) for x in results]


def _build_rules() -> Rules[Taylor, SeriesOrValue]:
    rules = Rules[Taylor, SeriesOrValue]()
    for prim, rule in TAYLOR_RULES.items():
        rules = rules.on(prim, lift_series_rule(rule))
    for family, rule in TAYLOR_FAMILY_RULES.items():
        rules = rules.family(family, lift_series_rule(rule))
    rules = rules.on(CustomJVP, derivative_taylor).on(CustomJVPCall, derivative_taylor)
    rules = rules.on(CustomVJP, derivative_taylor).on(CustomVJPCall, derivative_taylor)
    rules = rules.on(LinearSolve, linear_solve_taylor)
    return rules.capable(TaylorRule, own_rule_taylor).family(Differentiable, derivative_taylor)


RULES: Final = _build_rules()
FIRST_ORDER_RULES: Final = Rules[Taylor, SeriesOrValue]().capable(Differentiable, first_order_taylor)
