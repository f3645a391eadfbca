"""Functions with custom rules: control flow around them, invalid rules, printing."""

# The decorators come from either library, whose type is `Any` here.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_agree, assert_near
from tests.errors import assert_errors, untyped
from tests.interpreters.stacks import CountingHandler
from tracefx.core.handler import current, handling
from tracefx.core.jaxpr import Jaxpr
from tracefx.custom_derivatives import NotLinearError
from tracefx.interpreters.recording import Recording
from tracefx.passes.dce import dce
from tracefx.serialization.digest import executable_key
from tracefx.testing.tolerances import ELEMENTARY

X: Final = np.array([0.5, -1.5, 2.0], np.float32)

# ------------------------------------------------------------------ control flow around custom rules


def both(lib: Any, np_: Any) -> list[Any]:
    @lib.custom_jvp
    def f(x: Any) -> Any:
        return np_.sin(x)

    f.defjvp(lambda primals, tangents: (f(*primals), 3 * tangents[0] * np_.cos(primals[0])))

    @lib.custom_vjp
    def g(x: Any) -> Any:
        return np_.sin(x)

    g.defvjp(lambda x: (g(x), x), lambda x, ct: (5 * ct * np_.cos(x),))
    return [f, g]


def in_a_branch(lib: Any, np_: Any) -> Any:
    x = np_.asarray(X)
    results = []
    for f in both(lib, np_):
        h = partial(_branch, lib, f)
        results += [lib.vmap(h)(x), lib.jit(lib.vmap(lib.grad(h)))(x), lib.vmap(lib.grad(lib.grad(h)))(x)]
    return results


def _branch(lib: Any, f: Any, x: Any) -> Any:
    return lib.lax.cond(x > 0, f, lambda x: 2 * f(x) * x, x)


def in_a_while_loop(lib: Any, np_: Any) -> Any:
    f, g = both(lib, np_)
    x = np_.asarray(X)

    def h(f: Any, x: Any) -> Any:
        return lib.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, f(c[1])), (0, x))[1]

    return h(f, x), h(g, x), lib.jit(lib.vmap(lambda x: lib.jvp(partial(h, f), (x,), (x,))))(x)


def a_fixed_point(lib: Any, np_: Any) -> Any:
    """The fixed-point solver of JAX's documentation, whose backward pass is a fixed-point iteration as well."""

    @partial(lib.custom_vjp, nondiff_argnums=(0,))
    def fixed_point(f: Any, a: Any, start: Any) -> Any:
        def step(pair: Any) -> Any:
            return pair[1], f(a, pair[1])

        return lib.lax.while_loop(lambda pair: np_.abs(pair[0] - pair[1]) > 1e-5, step, (start, f(a, start)))[1]

    def fwd(f: Any, a: Any, start: Any) -> Any:
        x = fixed_point(f, a, start)
        return x, (a, x)

    def bwd(f: Any, res: Any, ct: Any) -> Any:
        a, x = res
        (of_a,) = lib.vjp(lambda a: f(a, x), a)[1](fixed_point(partial(linear, f), (a, x, ct), ct))
        return of_a, np_.zeros_like(x)

    def linear(f: Any, packed: Any, u: Any) -> Any:
        a, x, ct = packed
        return ct + lib.vjp(lambda x: f(a, x), x)[1](u)[0]

    fixed_point.defvjp(fwd, bwd)

    def root(a: Any) -> Any:
        return fixed_point(lambda a, x: 0.5 * (x + a / x), a, a)

    a = np_.array([2.0, 3.0, 4.0])
    return root(a[0]), lib.grad(root)(a[0]), lib.grad(lib.grad(root))(a[0]), lib.jit(lib.vmap(lib.grad(root)))(a)


def named_axes(lib: Any, np_: Any) -> Any:
    @lib.custom_jvp
    def f(x: Any) -> Any:
        return x / lib.lax.psum(x, "i")

    f.defjvp(lambda p, t: (f(*p), t[0] * lib.lax.psum(p[0], "i")))

    @lib.custom_vjp
    def g(x: Any) -> Any:
        return x * lib.lax.axis_index("i")

    g.defvjp(lambda x: (g(x), None), lambda _, ct: (ct * lib.lax.axis_index("i") * 10,))
    x = np_.asarray(X)
    mapped = partial(lib.vmap, axis_name="i")
    return [
        results
        for h in (f, g)
        for results in (
            mapped(h)(x),
            mapped(lib.grad(h))(x),
            lib.jit(mapped(lib.grad(h)))(x),
            mapped(lib.grad(lib.jit(h)))(x),
            mapped(lambda _, h=h: h(x[0]))(x),
            mapped(lambda _, h=h: lib.jit(h)(x[0]))(x),
        )
    ]


def rematerialized(lib: Any, np_: Any) -> Any:
    x = np_.asarray(X)
    return [
        lib.vmap(lib.grad(d(lib.checkpoint(lambda x, f=f: f(f(x)) * x))))(x)
        for f in both(lib, np_)
        for d in (lambda f: f, lib.grad)
    ]


def other_axes(lib: Any, np_: Any) -> Any:
    m = np_.arange(6.0).reshape(2, 3)
    return [
        results
        for f in both(lib, np_)
        for results in (
            lib.vmap(f, 1, 1)(m),
            lib.vmap(lib.jit(lib.grad(lambda x, f=f: np_.sum(lib.jit(f)(x)))), 1, 0)(m),
            lib.vmap(lib.vmap(lib.grad(f)), 1, 1)(m),
        )
    ]


def unused_outputs(lib: Any, np_: Any) -> Any:
    @lib.custom_vjp
    def g(x: Any) -> Any:
        return np_.sin(x), np_.cos(x), np_.sum(x)

    g.defvjp(lambda x: (g(x), x), lambda x, ct: (ct[0] * 2 + ct[1] * x + ct[2],))
    x = np_.asarray(X)
    return (
        lib.grad(lambda x: np_.sum(g(x)[0]))(x),
        lib.jit(lib.grad(lambda x: np_.sum(lib.jit(g)(x)[1])))(x),
        lib.grad(lambda x: lib.jit(lambda x: g(x)[2])(x))(x),
        lib.grad(lambda x: np_.sum(lib.lax.scan(lambda c, _: (g(c)[0], None), x, None, length=2)[0]))(x),
    )


def linear_functions(lib: Any, np_: Any) -> Any:
    @lib.custom_jvp
    def f(x: Any) -> Any:
        return 3.0 * x

    f.defjvp(lambda primals, tangents: (f(*primals), f(*tangents)))
    x = np_.asarray(X)
    return (
        lib.linear_transpose(f, x)(x),
        lib.linear_transpose(lib.jit(f), x)(x),
        lib.jit(lib.grad(lambda x: np_.sum(lib.jit(f)(x) * x)))(x),
    )


@pytest.mark.parametrize(
    "case",
    [
        *(in_a_branch, in_a_while_loop, a_fixed_point, named_axes, rematerialized, other_axes),
        *(unused_outputs, linear_functions),
    ],
    ids=lambda case: case.__name__,
)
def test_custom_rules_agree_with_jax(case: Callable[[Any, Any], Any]) -> None:
    assert_agree(case)


def test_linear_transpose_with_a_call_that_is_linear_in_one_argument() -> None:
    """The inner call has one result that is linear in the transposed argument and one that isn't."""
    pair = fx.jit(lambda a, t: (fnp.sin(a), fnp.cos(a) * t))

    @fx.custom_jvp
    def f(a: Any, t: Any) -> Any:
        sine, scaled = pair(a, t)
        return sine * scaled

    f.defjvp(lambda primals, tangents: (f(*primals), f(primals[0], tangents[1])))
    for g in (f, fx.jit(f)):
        (ct,) = fx.linear_transpose(lambda t, g=g: g(fnp.asarray(X), t), fnp.asarray(X))(fnp.asarray(X))
        assert_near(ct, X * np.sin(X) * np.cos(X))


@pytest.mark.parametrize("index", [0, 1])
def test_custom_rules_in_a_scan_agree_with_the_unrolled_loop(index: int) -> None:
    f = both(fx, fnp)[index]
    x, ys = fnp.asarray(X), fnp.arange(1.0, 4.0)

    def scanned(x: Any) -> Any:
        carry, out = fx.lax.scan(lambda c, y: (f(c * y), f(y) * c), x, ys)
        return carry + out.sum()

    def unrolled(x: Any) -> Any:
        total = 0.0
        for y in ys:
            x, total = f(x * y), total + f(y) * x
        return x + total

    def derivatives(f: Any) -> list[Any]:
        first, second = fx.grad(f), fx.grad(fx.grad(f))
        pushed = fx.vmap(lambda x: fx.jvp(f, (x,), (x,)))
        return [fx.vmap(f)(x), fx.jit(fx.vmap(first))(x), fx.vmap(second)(x), *pushed(x), fx.vmap(fx.jacfwd(first))(x)]

    assert_near(derivatives(scanned), derivatives(unrolled))


# ------------------------------------------------------------------ custom_vjp with a nonlinear backward pass


def clipping() -> Any:
    @fx.custom_vjp
    def clipped(x: Any) -> Any:
        return x * 1.0

    clipped.defvjp(lambda x: (x * 1.0, None), lambda _, ct: (fnp.clip(ct, -1.0, 1.0),))
    return clipped


def test_clipping_backward_pass_works_in_reverse_and_forward_over_reverse() -> None:
    clipped = clipping()

    def f(x: Any) -> Any:
        return clipped(fnp.sin(x)) * x

    x = fnp.asarray(np.array([0.3, 3.0], np.float32))
    gradient = fx.vmap(fx.grad(f))
    cut = np.clip(np.asarray(x), -1, 1)
    assert_near(gradient(x), cut * np.cos(x) + np.sin(x), ELEMENTARY)
    slope = np.where(np.abs(x) < 1, np.cos(x), 0.0) - cut * np.sin(x) + np.cos(x)
    assert_near(fx.jvp(gradient, (x,), (fnp.ones(2),))[1], slope, ELEMENTARY)
    assert_near(np.diag(fx.hessian(lambda x: fx.vmap(f)(x).sum())(x)), slope, ELEMENTARY)
    assert_near(fx.vmap(fx.grad(fx.jit(fx.grad(f))))(x), slope, ELEMENTARY)


@pytest.mark.parametrize(
    "mode",
    [
        lambda f: fx.jvp(f, (1.0,), (1.0,)),
        lambda f: fx.jit(lambda x: fx.jvp(f, (x,), (x,)))(1.0),
        lambda f: fx.jacfwd(f)(fnp.ones(2)),
        lambda f: fx.linearize(f, 1.0)[1](1.0),
        lambda f: fx.grad(lambda x: fx.jvp(f, (x,), (x,))[1])(1.0),
    ],
)
def test_forward_mode_rejects_a_nonlinear_backward_pass(mode: Callable[[Any], Any]) -> None:
    with pytest.raises(NotLinearError, match=r"clipped.*not linear.*Reverse mode"):
        mode(clipping())


def test_forward_mode_rejects_a_backward_pass_that_branches_on_cotangents() -> None:
    @fx.custom_vjp
    def f(x: Any) -> Any:
        return x * 1.0

    f.defvjp(lambda x: (f(x), None), lambda _, ct: (ct if ct > 0 else 2 * ct,))
    assert float(fx.grad(lambda x: -f(x))(1.0)) == -2.0
    with pytest.raises(NotLinearError, match="depends on the values of its cotangents"):
        fx.jvp(f, (1.0,), (1.0,))


def test_forward_mode_rejects_a_backward_pass_that_adds_a_constant() -> None:
    @fx.custom_vjp
    def f(x: Any) -> Any:
        return x * 1.0

    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct + x,))
    assert float(fx.grad(f)(2.0)) == 3.0
    with pytest.raises(NotLinearError, match="adds a constant to its cotangents"):
        fx.jvp(f, (1.0,), (1.0,))
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (0.0 + ct + fnp.zeros(()),))
    assert float(fx.jvp(f, (1.0,), (2.0,))[1]) == 2.0


def test_forward_mode_allows_python_control_flow_on_residuals() -> None:
    @fx.custom_vjp
    def f(x: Any) -> Any:
        return x * 1.0

    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct if x > 0 else 2 * ct,))
    assert [float(fx.jvp(f, (x,), (1.0,))[1]) for x in (1.0, -1.0)] == [1.0, 2.0]


# ------------------------------------------------------------------ invalid rules and calls


def test_missing_rules_are_reported() -> None:
    f: Any = fx.custom_jvp(lambda x: x)
    g: Any = fx.custom_vjp(fnp.sin)
    h: Any = fx.custom_batching.custom_vmap(fnp.sin)
    assert_errors(
        (lambda: f(1.0), AttributeError, r"custom_jvp of <lambda>.*defjvp"),
        (lambda: g(1.0), AttributeError, r"custom_vjp of sin.*defvjp"),
        (lambda: h(1.0), AttributeError, r"custom_vmap of sin.*def_vmap"),
    )


OUT: Final = {"a": fnp.ones(2), "b": fnp.ones(2)}
WRONG_JVP_RULES: Final[dict[str, Callable[..., Any]]] = {
    r"must return a pair \(output, tangent of the output\), got one array": lambda p, t: 3.0,
    r"(?s)They differ at the root:.*keys 'a', 'b'.*keys 'a'": lambda p, t: ({"a": p[0]}, {"a": p[0]}),
    r"(?s)leaf.*\['b'\] *f32\[2\] *f32\[3\]": lambda p, t: ({"a": p[0], "b": fnp.ones(3)}, OUT),
    r"(?s)tangent needed.*tangent given.*\['a'\] *f32\[2\] *i32\[2\]": lambda p, t: (
        OUT,
        {"a": fnp.arange(2), "b": p[0]},
    ),
    r"(?s)the tangent of its output.*keys 'a', 'b'.*tuple of length 2": lambda p, t: (OUT, (p[0], p[0])),
}
"""Rules for a function that returns a dict `{"a": x, "b": x}`, by their errors."""


@pytest.mark.parametrize("message", WRONG_JVP_RULES)
def test_jvp_rule_outputs_must_match_the_function(message: str) -> None:
    """The rule's outputs are compared with the function's where both are traced."""
    f: Any = fx.custom_jvp(lambda x: {"a": x, "b": x})
    f.__name__ = f._name = "f"
    f.defjvp(WRONG_JVP_RULES[message])
    with pytest.raises(TypeError, match=message):
        fx.jvp(fx.jit(lambda x: f(x)), (fnp.ones(2),), (fnp.ones(2),))


def with_vjp(fwd: Callable[..., Any], bwd: Callable[..., Any]) -> Any:
    f: Any = fx.custom_vjp(lambda x, d: x * d["w"])
    f.defvjp(fwd, bwd)
    return lambda: fx.grad(fx.jit(lambda x: f(x, {"w": x}).sum()))(fnp.ones(2))


def multiplied(x: Any, d: Any) -> Any:
    return x * d["w"], None


WRONG_VJP_RULES: Final[dict[str, tuple[Callable[..., Any], Callable[..., Any]]]] = {
    r"must return a pair \(output, residuals\)": (lambda x, d: x, lambda r, ct: (ct, None)),
    r"(?s)f32\[2\] *f32\[3\]": (lambda x, d: (fnp.ones(3), None), lambda r, ct: (ct, None)),
    r"a tuple with one cotangent for each of": (multiplied, lambda r, ct: (ct,)),
    r"tuple with one cotangent for each of": (multiplied, lambda r, ct: ct),
    r"(?s)They differ at \[1\]:.*'w'.*'v'": (multiplied, lambda r, ct: (ct, {"v": ct})),
    r"(?s)\[1\]\['w'\].*argument  : f32\[2\]\n  cotangent : f32\[3\]": (
        multiplied,
        lambda r, ct: (ct, {"w": fnp.ones(3)}),
    ),
}


@pytest.mark.parametrize("message", WRONG_VJP_RULES)
def test_vjp_rule_outputs_must_match_the_function(message: str) -> None:
    with pytest.raises(ValueError if "cotangent :" in message else TypeError, match=message):
        with_vjp(*WRONG_VJP_RULES[message])()


def test_vjp_rules_may_return_none_and_lists() -> None:
    ones = fnp.ones(2)
    assert with_vjp(multiplied, lambda r, ct: (ones, None))().tolist() == [1.0, 1.0]
    assert with_vjp(multiplied, lambda r, ct: [ones, {"w": ones}])().tolist() == [2.0, 2.0]


def test_calls_that_match_no_signature_are_rejected() -> None:
    @fx.custom_jvp
    def f(x: Any, *, scale: Any = 2.0) -> Any:
        return x * scale

    f.defjvp(lambda p, t: (f(*p), t[0]))
    assert float(f(3.0)) == 6.0
    g = fx.custom_jvp(lambda n, x: x, nondiff_argnums=0)
    h = fx.custom_jvp(lambda x, y: x * y)
    h.defjvps(None)
    assert_errors(
        (lambda: f(1.0, scale=3.0), TypeError, "custom_jvp of f: scale can be passed by keyword only"),
        (lambda: untyped(f)(), TypeError, "custom_jvp of f: missing a required argument: 'x'"),
        (lambda: f("x"), TypeError, r"custom_jvp of f: arguments\[0\] must be an array"),
        (lambda: fx.custom_jvp(f.fun, nondiff_argnums=(3,)), ValueError, "nondiff_argnums names argument 3"),
        (lambda: fx.custom_jvp(f.fun, nondiff_argnames="y"), ValueError, "nondiff_argnames names 'y'"),
        (lambda: g.defjvps(None), TypeError, "use defjvp with nondiff_argnums"),
        (lambda: untyped(fx.custom_vjp)(3), TypeError, "custom_vjp takes a function, got 3"),
        (lambda: fx.grad(h)(1.0, 2.0), TypeError, "1 rules, but it is called with 2 arguments"),
    )


def test_methods_are_bound_and_names_are_preserved() -> None:
    class Scale:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @partial(fx.custom_jvp, nondiff_argnums=0)
        def scaled(self, x: Any) -> Any:
            """Scaled."""
            return self.factor * x

    Scale.scaled.defjvp(lambda self, p, t: (self.scaled(*p), 7.0 * self.factor * t[0]))
    assert Scale.scaled.__doc__ == "Scaled."
    assert Scale.scaled.__name__ == "scaled"
    assert float(fx.grad(Scale(2.0).scaled)(3.0)) == 14.0
    assert fx.vmap(fx.grad(Scale(2.0).scaled))(fnp.asarray(X)).tolist() == [14.0] * 3


# ------------------------------------------------------------------ jaxprs


def test_handler_sees_the_call_and_its_operations() -> None:
    f, g = both(fx, fnp)
    with handling(CountingHandler(current())) as count:
        f(1.0)
        g(1.0)
    assert count.seen == {"custom_jvp_call": 1, "custom_vjp_call": 1, "sin": 2}
    with handling(CountingHandler(current())) as count:
        fx.grad(f)(1.0)
    assert count.seen["cos"] == 1


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("closing", [False, True])
def test_jaxprs_print_as_in_jax(index: int, closing: bool) -> None:
    def text(lib: Any, np_: Any) -> Any:
        f = both(lib, np_)[index]
        table = np_.arange(3.0)
        if not closing:
            return lib.make_jaxpr(lambda x: f(x) * 2.0)(np_.float32(1.0))

        @lib.custom_jvp
        def h(x: Any) -> Any:
            return np_.sin(x) * table

        h.defjvp(lambda p, t: (h(*p), t[0] * table))
        return lib.make_jaxpr(h)(table)

    assert text(fx, fnp).text("jax") == re.sub(r"0x[0-9a-f]+", "", str(text(jax, jnp)))


def program(f: Any) -> Jaxpr:
    return fx.make_jaxpr(f)(fnp.asarray(X)).jaxpr


def test_rules_affect_jaxpr_equality_but_not_the_executable_key() -> None:
    f, g = both(fx, fnp), both(fx, fnp)
    for a, b in zip(f, g, strict=True):
        first, second = program(a), program(b)
        assert first == program(a)
        assert hash(first) == hash(program(a))
        assert first != second
        assert executable_key(first) is not None
        assert executable_key(first) == executable_key(second)


def test_dce_removes_unused_outputs() -> None:
    @fx.custom_jvp
    def f(x: Any) -> Any:
        return fnp.sin(x), fnp.cos(x)

    f.defjvp(lambda p, t: (f(*p), (t[0], 2 * t[0])))
    pruned = dce(program(lambda x: f(x)[1]))
    (eqn,) = pruned.eqns
    assert [e.prim.name for e in eqn.prim.jaxprs()[0].eqns] == ["cos"]  # type: ignore[attr-defined]  # a primitive with sub-jaxprs
    _, tangent = fx.jvp(lambda x: fx.eval_jaxpr(pruned, (), [x])[0], (fnp.asarray(X),), (fnp.asarray(X),))
    np.testing.assert_array_equal(tangent, 2 * X)
    assert not dce(program(lambda x: (f(x), x)[1])).eqns


def test_equations_of_a_rule_have_the_source_location_of_the_rule() -> None:
    """The source location is the line in the rule, not the line of the call."""
    f = both(fx, fnp)[0]
    jaxpr = program(fx.grad(lambda x: f(x).sum()))
    functions = {e.prim.name: e.source.resolve().function for e in jaxpr.eqns if e.source is not None}
    assert "both" in functions["cos"]


def test_jaxpr_keeps_no_reference_to_its_trace() -> None:
    def recordings() -> int:
        gc.collect()
        return sum(isinstance(o, Recording) for o in gc.get_objects())

    before = recordings()
    x = fnp.asarray(X)
    jaxprs = [
        jaxpr
        for f in both(fx, fnp)
        for jaxpr in (
            fx.make_jaxpr(fx.vmap(f))(x),
            fx.make_jaxpr(fx.vmap(fx.grad(f)))(x),
            fx.make_jaxpr(lambda x, f=f: fx.jvp(fx.vmap(fx.jit(f)), (x,), (x,)))(x),
        )
    ]
    assert len(jaxprs) == 6
    assert recordings() == before


def test_cotangent_none_is_zeros_for_earlier_backward_passes() -> None:
    """A backward pass that does not depend on its cotangent is called if a later one returns None."""

    def gradients(lib: Any) -> list[float]:
        @lib.custom_vjp
        def seven(x: Any) -> Any:
            return 1.0 * x

        seven.defvjp(lambda x: (1.0 * x, None), lambda res, ct: (0 * ct + 7.0,))

        @lib.custom_vjp
        def blocked(x: Any) -> Any:
            return 1.0 * x

        blocked.defvjp(lambda x: (1.0 * x, None), lambda res, ct: (None,))

        def f(x: Any) -> Any:
            return blocked(seven(x)) + 2 * x

        looped = partial(lib.lax.scan, lambda c, _: (f(c), None), xs=None, length=2)
        functions = [f, lib.jit(f), lib.checkpoint(f), lambda x: looped(x)[0], lambda x: (seven(x), 2 * x)[1]]
        return [float(lib.grad(g)(1.0)) for g in functions]

    assert gradients(fx) == gradients(jax) == [9, 9, 9, 25, 2]
