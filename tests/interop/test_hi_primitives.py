"""Imported hijax primitives (`call_hi_primitive`): they keep their rules, or are replaced by their expansion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name

import tracefx as fx
from tests.comparison import assert_near
from tests.compiling import compile_with_fallback
from tests.interop.hi_primitives import Tripled, TripledByJvp, TripledByVjp
from tests.versions import WRITES_SEARCHES_AS_HI_PRIMITIVES
from tracefx.interop.jax import from_jax

Function = Callable[..., Any]
X: Final = np.array([[0.5, -1.0, 2.0], [0.25, 3.0, -0.75]], np.float32)


# ------------------------------------------------------------------ primitives with rules


@pytest.mark.parametrize("primitive_class", [TripledByJvp, TripledByVjp])
def test_derivative_rules_are_kept(primitive_class: type[Tripled]) -> None:
    f = from_jax(lambda x: primitive_class(jax.typeof(x))(x) * x)
    assert_near(f(X), 3 * X * X)
    assert_near(fx.jit(f)(X), 3 * X * X)
    assert_near(fx.vmap(f, 1, 1)(X), 3 * X * X)
    assert_near(fx.grad(lambda x: f(x).sum())(X), 8 * X)
    assert_near(fx.jit(fx.vmap(fx.grad(lambda x: f(x).sum())))(X), 8 * X)
    assert_near(fx.jvp(f, [X], [np.ones_like(X)])[1], 8 * X)


def test_batching_rule_is_kept() -> None:
    f = from_jax(jax.vmap(lambda x: TripledByJvp(jax.typeof(x))(x)))
    assert_near(fx.grad(lambda x: f(x).sum())(X), 5 * np.ones_like(X))


def test_printed_programs_show_the_class() -> None:
    program = fx.make_jaxpr(from_jax(lambda x: TripledByJvp(jax.typeof(x))(x)))(X)
    assert "name='TripledByJvp'" in str(program)


def test_missing_rule_raises_the_error_of_jax() -> None:
    f = from_jax(lambda x: Tripled(jax.typeof(x))(x))
    assert_near(f(X), 3 * X)
    with pytest.raises(NotImplementedError, match="jvp"):
        fx.jvp(f, [X], [X])


# ------------------------------------------------------------------ hijax primitives of JAX


def test_searchsorted_is_expanded() -> None:
    def f(x: Any) -> Any:
        return jnp.searchsorted(jnp.sort(x[0]), x[1]), jnp.nonzero(x > 0, size=4)

    assert ("SearchSorted" in str(jax.make_jaxpr(f)(X))) == WRITES_SEARCHES_AS_HI_PRIMITIVES
    assert "jax_primitive" not in str(fx.make_jaxpr(from_jax(f))(X))
    assert_near(from_jax(f)(X), f(X))


def test_derivatives_of_frexp_and_ldexp_match_jax() -> None:
    def f(x: Any) -> Any:
        mantissa, exponent = jnp.frexp(x)
        return jnp.ldexp(mantissa**2, exponent + 1).sum()

    gradient = jax.grad(f)(X)
    assert_near(fx.grad(from_jax(f))(X), gradient)
    assert_near(fx.jit(fx.vmap(fx.grad(from_jax(f))))(X), gradient)


def test_derivatives_of_custom_root_match_jax() -> None:
    def newton(f: Function, x: Any) -> Any:
        return lax.fori_loop(0, 20, lambda _, x: x - f(x) / (2 * x), x)

    def root(a: Any) -> Any:
        return lax.custom_root(lambda x: x**2 - a, a, newton, lambda g, y: y / g(jnp.ones_like(y)))

    a = np.float32(3)
    for f in (root, jax.grad(root)):
        assert_near(from_jax(f)(a), compile_with_fallback(jax.jit, f)(a))
    assert_near(fx.grad(from_jax(root))(a), jax.grad(root)(a))
    assert_near(fx.jvp(from_jax(root), [a], [a])[1], jax.jvp(root, [a], [a])[1])
    assert_near(fx.vmap(fx.grad(from_jax(root)))(abs(X[0])), jax.vmap(jax.grad(root))(abs(X[0])))


# ------------------------------------------------------------------ JAX settings that emit hijax primitives


@contextmanager
def _enable_setting(name: str) -> Iterator[None]:
    if not hasattr(jax.config, name):
        pytest.skip(f"the installed JAX has no setting {name}")
    jax.config.update(name, True)
    try:
        yield
    finally:
        jax.config.update(name, False)


def _cubed(x: Any, scale: Any = 1.0) -> Any:
    @jax.custom_jvp
    def cubed(x: Any) -> Any:
        return scale * x**3

    cubed.defjvp(lambda xs, ts: (cubed(*xs), 7 * ts[0]))
    return cubed(x)


def _doubled(x: Any, scale: Any = 2.0) -> Any:
    @jax.custom_vjp
    def doubled(x: Any) -> Any:
        return scale * x

    doubled.defvjp(lambda x: (doubled(x), jnp.sin(x)), lambda sine, ct: (5 * sine * ct,))
    return doubled(x)


@pytest.mark.parametrize(
    ("setting", "f", "name"),
    [("jax_custom_jvp3", _cubed, "custom_jvp_call"), ("jax_custom_vjp3", _doubled, "custom_vjp_call")],
)
def test_user_defined_derivatives_become_custom_calls(setting: str, f: Function, name: str) -> None:
    with _enable_setting(setting):
        assert "hi_primitive" in str(jax.make_jaxpr(f)(X)) or "Traced[" in str(jax.make_jaxpr(f)(X))
        imported = from_jax(f)
        assert f"{name}[" in str(fx.make_jaxpr(imported)(X))
        gradient = jax.grad(lambda x: f(x).sum())(X)
        assert_near(imported(X), f(X))
        assert_near(fx.grad(lambda x: imported(x).sum())(X), gradient)
        assert_near(fx.jit(fx.vmap(fx.grad(lambda x: imported(x).sum())))(X), gradient)
        assert_near(from_jax(jax.vmap(jax.grad(lambda x: f(x).sum())))(X), gradient)


def test_remat3_becomes_checkpoint() -> None:
    @jax.checkpoint
    def f(x: Any) -> Any:
        return jnp.sin(checkpoint_name(jnp.sin(x), "inner"))

    with _enable_setting("jax_remat3"):
        imported = from_jax(f)
        text = str(fx.make_jaxpr(imported)(X))
        assert "checkpoint[" in text or "remat2[" in text
        assert "inner" in text
        assert_near(imported(X), f(X))
        assert_near(fx.grad(lambda x: imported(x).sum())(X), jax.grad(lambda x: f(x).sum())(X))
