"""`jet` through every kind of program, under every transformation, and of user-defined primitives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.handlers.series_oracle import assert_same_dtype_and_values, check_series, nested_jvp_series
from tests.primitives import SameTypes
from tracefx import extend, lax
from tracefx.handlers import Series, TaylorRule, derivatives, jet
from tracefx.handlers.taylor.series import make_series, series_exp, series_product
from tracefx.testing import check_interpretation
from tracefx.testing.tolerances import ELEMENTARY

X = np.array([0.3, 0.7])
V = np.array([1.0, -0.5])
ORDER = 4

# ------------------------------------------------------------------ programs


def scanned(x: Any) -> Any:
    c, ys = lax.scan(lambda c, a: (fnp.sin(c * a) + x * 0.1, c * c), x, fnp.arange(1.0, 4.0))
    return c + ys.sum(0)


def constant_carry(x: Any) -> Any:
    """The carry is constant in the first step and varies from the second step on."""
    return lax.scan(lambda c, _: (c * fnp.exp(-x) + x, None), fnp.zeros_like(x), None, length=4)[0]


def branching(x: Any) -> Any:
    return lax.cond(fnp.sum(x) > 0, lambda x: fnp.sin(x) * x, lambda x: x * 2.0, x)


def constant_branch(x: Any) -> Any:
    return lax.cond(fnp.sum(x) > 0, fnp.ones_like, fnp.exp, x) * x


def other_branch(x: Any) -> Any:
    return lax.switch(fnp.argmax(x), [fnp.ones_like, lambda x: fnp.sqrt(x + 2), fnp.exp], x)


def while_loop(x: Any) -> Any:
    return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, fnp.tanh(c[1]) * x), (0, x))[1]


def while_by_value(x: Any) -> Any:
    return lax.while_loop(lambda c: fnp.sum(c) < 10, lambda c: c * 2 + x, x)


def counted(x: Any) -> Any:
    return lax.fori_loop(0, 4, lambda i, c: c * fnp.cos(x) + i, fnp.ones_like(x))


@fx.jit
def compiled(x: Any) -> Any:
    return fnp.exp(x) * fnp.sin(x)


@fx.checkpoint
def checkpointed(x: Any) -> Any:
    return fnp.exp(x) * fnp.sin(x)


@fx.custom_jvp
def with_custom_jvp(x: Any) -> Any:
    """Has a custom derivative that is larger than the true one."""
    return fnp.sin(x)


@with_custom_jvp.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return with_custom_jvp(x), 3 * fnp.cos(x) * t


@fx.custom_vjp
def double(x: Any) -> Any:
    return fnp.sin(x)


double.defvjp(lambda x: (double(x), x), lambda x, ct: (2 * fnp.cos(x) * ct,))


def equation(x: Any) -> Any:
    a = fnp.stack([fnp.stack([2 + x[0] * x[0], x[1]]), fnp.stack([fnp.sin(x[0]), 3.0 + x[1]])])

    def solve(_: Any, b: Any) -> Any:
        (p, q), (r, s) = a
        return lax.stop_gradient(fnp.stack([s * b[0] - q * b[1], p * b[1] - r * b[0]]) / (p * s - q * r))

    return lax.custom_linear_solve(lambda v: a @ v, x * x, solve, solve)


def side_of_equation(x: Any) -> Any:
    a = fnp.asarray(np.array([[2.0, 1.0], [0.5, 3.0]]))
    inverse = fnp.asarray(np.array([[6.0, -2.0], [-1.0, 4.0]]) / 11)
    return lax.custom_linear_solve(lambda v: a @ v, fnp.exp(x), lambda _, b: inverse @ b)


def gradient(x: Any) -> Any:
    return fx.grad(lambda x: fnp.sum(fnp.exp(x) * fnp.sin(x)))(x)


def contractions(x: Any) -> Any:
    return fnp.outer(x, x * x) @ fnp.tanh(x) + (x @ x) * x


def through_integers(x: Any) -> Any:
    return lax.cond(x[0] > 0, lambda x: (4 * fnp.tanh(x)).astype(np.int32).astype(x.dtype), lambda x: fnp.sin(x), x) + x


def several(x: Any) -> Any:
    return {"a": fnp.sin(x), "b": (x > 0.5, fnp.prod(x), fnp.ones(3))}


PROGRAMS: list[Callable[[Any], Any]] = [
    scanned,
    constant_carry,
    branching,
    constant_branch,
    other_branch,
    while_loop,
    while_by_value,
    counted,
    compiled,
    checkpointed,
    with_custom_jvp,
    double,
    lambda x: fx.jit(with_custom_jvp)(x) * x,
    lambda x: fx.jit(double)(x) * x,
    lambda x: lax.scan(lambda c, _: (with_custom_jvp(c), double(c)), x, None, length=3),
    equation,
    side_of_equation,
    lambda x: fx.jit(equation)(x),
    gradient,
    contractions,
    through_integers,
    several,
]


def series_of(f: Callable[[Any], Any], order: int = ORDER) -> Callable[[Any], Any]:
    return lambda x: jet(f, (x,), ([V, *[None] * (order - 1)],))


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("wrap", [lambda f: f, fx.jit], ids=["eager", "jit"])
def test_jet_matches_nested_jvp_through_control_flow(f: Callable[[Any], Any], wrap: Any) -> None:
    with fx.enable_x64(True):
        (want,) = [nested_jvp_series(f, (X,), [[V, None, None, None]])]
        out, got = wrap(series_of(f))(X)
        assert_same_dtype_and_values(out, f(X))
        lists: list[Any] = fx.tree.leaves(got, is_leaf=lambda x: isinstance(x, list))
        assert [len(terms) for terms in lists] == [ORDER] * len(want)
        assert_same_dtype_and_values(lists, want)


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("wrap", [lambda f: f, fx.jit], ids=["eager", "jit"])
def test_jet_of_order_one_is_jvp(f: Callable[[Any], Any], wrap: Any) -> None:
    with fx.enable_x64(True):
        out, got = wrap(series_of(f, 1))(X)
        want_out, want = wrap(lambda x: fx.jvp(f, (x,), (V,)))(X)
        for a, b in zip(fx.tree.leaves((out, got)), fx.tree.leaves((want_out, want)), strict=True):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_jet_keeps_loops_and_calls() -> None:
    """A loop stays one loop, with one additional carry per order."""
    text = str(fx.make_jaxpr(series_of(scanned, 6))(X))
    assert text.count("scan[") == 1
    assert str(fx.make_jaxpr(series_of(compiled, 6))(X)).count("jit[") == 1


# ------------------------------------------------------------------ transformations


def smooth(x: Any) -> Any:
    return fnp.sin(x) * fnp.exp(x) + x**3


def third(x: Any) -> Any:
    return jet(smooth, (x,), ([fnp.ones_like(x), None, None],))[1][2]


def test_grad_of_jet_is_the_next_derivative() -> None:
    with fx.enable_x64(True):
        got = fx.grad(lambda x: third(x).sum())(X)
        assert_same_dtype_and_values(got, derivatives(smooth, 4)(X)[4])


def test_jvp_of_jet_is_the_next_derivative() -> None:
    with fx.enable_x64(True):
        assert_same_dtype_and_values(fx.jvp(third, (X,), (np.ones(2),))[1], derivatives(smooth, 4)(X)[4])


def test_jet_of_grad_is_grad_of_jet() -> None:
    with fx.enable_x64(True):

        def energy(x: Any) -> Any:
            return fnp.sum(fnp.tanh(x[:1] * x) * fnp.exp(x))

        one = jet(fx.grad(energy), (X,), ([V, None, None],))[1][2]
        other = fx.grad(lambda x: jet(energy, (x,), ([V, None, None],))[1][2])(X)
        assert_same_dtype_and_values(one, other)


def test_nested_jet() -> None:
    with fx.enable_x64(True):
        _, (_, got) = jet(lambda x: derivatives(smooth, 2)(x)[2], (X,), ([np.ones(2), None],))
        assert_same_dtype_and_values(got, derivatives(smooth, 4)(X)[4])


def test_jet_commutes_with_vmap() -> None:
    with fx.enable_x64(True):
        xs = np.linspace(-1.0, 1.0, 6).reshape(3, 2)
        vs = xs[::-1] * 2
        want = jet(smooth, (xs,), ([vs, xs, None],))
        for got in (
            fx.vmap(lambda x, v: jet(smooth, (x,), ([v, x, None],)))(xs, vs),
            jet(fx.vmap(smooth), (xs,), ([vs, xs, None],)),
            fx.jit(fx.vmap(lambda x, v: jet(smooth, (x,), ([v, x, None],)), in_axes=1, out_axes=1))(xs, vs),
        ):
            assert_same_dtype_and_values(got, want)


def test_vmap_of_jet_through_loops_and_collectives() -> None:
    with fx.enable_x64(True):
        xs = np.linspace(-1.0, 1.0, 6).reshape(3, 2)

        def f(x: Any) -> Any:
            return while_by_value(abs(x) + 1) - lax.pmean(fnp.exp(x), "i")

        def mapped_f(xs: Any) -> Any:
            return fx.vmap(f, axis_name="i")(xs)

        _, got = fx.vmap(lambda x: jet(f, (x,), ([V, None, None],)), axis_name="i")(xs)
        _, want = jet(mapped_f, (xs,), ([np.broadcast_to(V, xs.shape), None, None],))
        assert_same_dtype_and_values(got, want)


def test_jet_obeys_the_handler_laws() -> None:
    report = check_interpretation(lambda f: derivatives(f, 2), smooth, X, transparent=False)
    assert {"restores_context", "propagates_exceptions", "does_not_leak_tracers", "interprets_bodies"} <= set(
        report.passed
    )


# ------------------------------------------------------------------ user-defined primitives


class Slope(SameTypes, extend.Differentiable):
    """A primitive whose derivative uses the primitive itself and a given function."""

    @override
    def impl(self, *args: Any) -> Any:
        return [self.f(args[0])]

    @override
    def jvp(self, primals: Any, tangents: Any) -> Any:
        out = extend.bind1(self, *primals)
        return [out], [self.slope(primals[0]) * tangents[0]]

    def f(self, x: Any) -> Any:
        raise NotImplementedError

    def slope(self, x: extend.Value) -> Any:
        raise NotImplementedError


class Sine(Slope):
    name = "my_sine"
    calls = 0

    @override
    def f(self, x: Any) -> Any:
        Sine.calls += 1
        return np.sin(x)

    @override
    def slope(self, x: extend.Value) -> Any:
        return extend.bind1(Cosine(), x)


class Cosine(Slope):
    name = "my_cosine"

    @override
    def f(self, x: Any) -> Any:
        return np.cos(x)

    @override
    def slope(self, x: extend.Value) -> Any:
        return -extend.bind1(Sine(), x)


def test_primitive_with_only_a_jvp_rule_has_series() -> None:
    formula = lambda x: fnp.sin(fnp.exp(x))  # noqa: E731
    check_series(lambda x: extend.bind1(Sine(), fnp.exp(x)), (X,), [[V, X, None, V]], formula)


def test_work_for_mutually_recursive_derivatives_grows_linearly() -> None:
    counts = []
    for order in (4, 8, 16):
        Sine.calls = 0
        jet(lambda x: extend.bind1(Sine(), x), (np.float32(0.5),), ([1.0, *[None] * (order - 1)],))
        counts.append(Sine.calls)
    assert counts[2] <= 2 * counts[1] <= 4 * counts[0]


class Gauss(SameTypes, TaylorRule):
    """`exp(-x**2)`, with a series rule and no JVP rule."""

    name = "gauss"

    @override
    def impl(self, *args: Any) -> Any:
        return [np.exp(-(args[0] ** 2))]

    @override
    def series(self, *operands: Series) -> Any:
        (x,) = operands
        first = extend.bind1(self, x.primal)
        inside = [None if t is None else fnp.negative(t) for t in series_product(x.terms, x.terms)]
        return [make_series(series_exp(inside, first))]


def test_primitive_with_a_series_rule() -> None:
    check_series(lambda x: extend.bind1(Gauss(), x), (X,), [[V, None, X, None]], lambda x: fnp.exp(-x * x))


class Halves(extend.Primitive, extend.Expandable):
    name = "halves"

    @override
    def expand(self, *args: extend.Value) -> Any:
        (x,) = args
        return [fnp.sin(x) * 0.5, fnp.square(x)]


def test_expandable_primitive_has_series() -> None:
    _, (got, _) = jet(lambda x: extend.bind(Halves(), x), (0.5,), ([1.0, None],))
    assert_near(fnp.stack(got), [0.5 * math.cos(0.5), -0.5 * math.sin(0.5)], ELEMENTARY)


class Opaque(extend.Primitive):
    name = "opaque"

    @override
    def impl(self, *args: Any) -> Any:
        return args


def test_missing_rule_error_names_the_primitive() -> None:
    with pytest.raises(extend.MissingRuleError, match=r"'opaque' has no jet rule"):
        jet(lambda x: extend.bind1(Opaque(), x), (1.0,), ([1.0, None],))
    with pytest.raises(extend.MissingRuleError, match=r"'opaque' has no jet rule"):
        jet(lambda x: extend.bind1(Opaque(), x), (1.0,), ([1.0],))
