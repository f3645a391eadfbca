"""Objects that `call_hi_primitive` applies keep their rules, or become the operations that they stand for."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude="jax"

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
from tests.closeness import assert_near
from tests.compiling import compile_with_fallback
from tests.interop.hi_primitives import Tripled, TripledByJvp, TripledByVjp
from tests.versions import WRITES_SEARCHES_AS_HI_PRIMITIVES
from tracefx.interop.jax import from_jax

Function = Callable[..., Any]
X: Final = np.array([[0.5, -1.0, 2.0], [0.25, 3.0, -0.75]], np.float32)


def same(got: Any, want: Any) -> None:
    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert_near(ours, theirs)


# ------------------------------------------------------------------ objects with rules


@pytest.mark.parametrize("kind", [TripledByJvp, TripledByVjp])
def test_rules_are_those_of_the_object(kind: type[Tripled]) -> None:
    f = from_jax(lambda x: kind(jax.typeof(x))(x) * x)
    same(f(X), 3 * X * X)
    same(fx.jit(f)(X), 3 * X * X)
    same(fx.vmap(f, 1, 1)(X), 3 * X * X)
    same(fx.grad(lambda x: f(x).sum())(X), 8 * X)
    same(fx.jit(fx.vmap(fx.grad(lambda x: f(x).sum())))(X), 8 * X)
    same(fx.jvp(f, [X], [np.ones_like(X)])[1], 8 * X)


def test_a_batch_is_that_of_the_object() -> None:
    f = from_jax(jax.vmap(lambda x: TripledByJvp(jax.typeof(x))(x)))
    same(fx.grad(lambda x: f(x).sum())(X), 5 * np.ones_like(X))


def test_programs_show_the_class() -> None:
    program = fx.make_jaxpr(from_jax(lambda x: TripledByJvp(jax.typeof(x))(x)))(X)
    assert "name='TripledByJvp'" in str(program)


def test_a_missing_rule_is_said_by_jax() -> None:
    f = from_jax(lambda x: Tripled(jax.typeof(x))(x))
    same(f(X), 3 * X)
    with pytest.raises(NotImplementedError, match="jvp"):
        fx.jvp(f, [X], [X])


# ------------------------------------------------------------------ objects of JAX


def test_searches_are_imported_in_place() -> None:
    def f(x: Any) -> Any:
        return jnp.searchsorted(jnp.sort(x[0]), x[1]), jnp.nonzero(x > 0, size=4)

    assert ("SearchSorted" in str(jax.make_jaxpr(f)(X))) == WRITES_SEARCHES_AS_HI_PRIMITIVES
    assert "jax_primitive" not in str(fx.make_jaxpr(from_jax(f))(X))
    same(from_jax(f)(X), f(X))


def test_parts_of_floats_have_jaxs_derivatives() -> None:
    def f(x: Any) -> Any:
        mantissa, exponent = jnp.frexp(x)
        return jnp.ldexp(mantissa**2, exponent + 1).sum()

    slope = jax.grad(f)(X)
    same(fx.grad(from_jax(f))(X), slope)
    same(fx.jit(fx.vmap(fx.grad(from_jax(f))))(X), slope)


def test_roots_have_implicit_derivatives() -> None:
    def newton(f: Function, x: Any) -> Any:
        return lax.fori_loop(0, 20, lambda _, x: x - f(x) / (2 * x), x)

    def root(a: Any) -> Any:
        return lax.custom_root(lambda x: x**2 - a, a, newton, lambda g, y: y / g(jnp.ones_like(y)))

    a = np.float32(3)
    for f in (root, jax.grad(root)):
        same(from_jax(f)(a), compile_with_fallback(jax.jit, f)(a))
    same(fx.grad(from_jax(root))(a), jax.grad(root)(a))
    same(fx.jvp(from_jax(root), [a], [a])[1], jax.jvp(root, [a], [a])[1])
    same(fx.vmap(fx.grad(from_jax(root)))(abs(X[0])), jax.vmap(jax.grad(root))(abs(X[0])))


# ------------------------------------------------------------------ what JAX writes so on demand


@contextmanager
def _set(name: str) -> Iterator[None]:
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
    with _set(setting):
        assert "hi_primitive" in str(jax.make_jaxpr(f)(X)) or "Traced[" in str(jax.make_jaxpr(f)(X))
        imported = from_jax(f)
        assert f"{name}[" in str(fx.make_jaxpr(imported)(X))
        slope = jax.grad(lambda x: f(x).sum())(X)
        same(imported(X), f(X))
        same(fx.grad(lambda x: imported(x).sum())(X), slope)
        same(fx.jit(fx.vmap(fx.grad(lambda x: imported(x).sum())))(X), slope)
        same(from_jax(jax.vmap(jax.grad(lambda x: f(x).sum())))(X), slope)


def test_checkpoints_become_checkpoints() -> None:
    @jax.checkpoint
    def f(x: Any) -> Any:
        return jnp.sin(checkpoint_name(jnp.sin(x), "inner"))

    with _set("jax_remat3"):
        imported = from_jax(f)
        shown = str(fx.make_jaxpr(imported)(X))
        assert "checkpoint[" in shown or "remat2[" in shown
        assert "inner" in shown
        same(imported(X), f(X))
        same(fx.grad(lambda x: imported(x).sum())(X), jax.grad(lambda x: f(x).sum())(X))
