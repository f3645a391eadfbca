"""Imported primitives that other libraries define with JAX: evaluated and transformed by their JAX rules."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import numpy as np
import pytest
from jax.extend.core import Primitive
from jax.interpreters import ad, batching

import tracefx as fx
from tests.comparison import assert_near
from tracefx.errors import MissingRuleError
from tracefx.interop.jax import from_jax
from tracefx.testing.tolerances import ELEMENTARY

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # JAX deprecation warnings of imported modules
    import equinox as eqx

X: Final = np.array([[0.5, -1.0, 2.0], [0.25, 3.0, -0.75]], np.float32)


def make_cubes() -> Callable[..., Any]:
    """A function of two custom JAX primitives: cubes, and a positive mask. Each rule has its own distinct factor."""
    cube, thrice = Primitive("test_cube"), Primitive("test_thrice")
    cube.multiple_results = True
    cube.def_impl(lambda x, *, by: [by * x**3, x > 0])
    cube.def_abstract_eval(lambda x, *, by: [x, x.update(dtype=np.dtype(bool), weak_type=False)])
    thrice.def_impl(lambda x: 3 * x)
    thrice.def_abstract_eval(lambda x: x)

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], *, by: float) -> Any:
        (x,), (t,) = primals, tangents
        cubed, positive = cube.bind(x, by=by)
        return [cubed, positive], [
            thrice.bind(t) * by * x**2,
            ad.Zero(jax.core.ShapedArray(x.shape, jax.dtypes.float0)),
        ]

    def batch(operands: Sequence[Any], dims: Sequence[int], *, by: float) -> Any:
        (x,), (dim,) = operands, dims
        cubed, positive = cube.bind(10 * x, by=by)
        return [cubed, positive.any(dim)], [dim, None]

    ad.primitive_jvps[cube] = jvp
    batching.primitive_batchers[cube] = batch
    ad.deflinear2(thrice, lambda ct, x: [5 * ct])  # not the true transpose, so that the rule can be recognized
    batching.defvectorized(thrice)
    return lambda x: tuple(cube.bind(x, by=2.0))


def test_evaluation_uses_the_implementation() -> None:
    imported = from_jax(make_cubes())
    for f in (imported, fx.jit(imported)):
        cubed, positive = f(X)
        assert_near(cubed, 2 * X**3, ELEMENTARY)
        assert positive.tolist() == (X > 0).tolist()
    program = str(fx.make_jaxpr(imported)(X))
    assert "jax_primitive[ name='test_cube' parameters=<{'by': 2.0}> ]" in " ".join(program.split())


def test_derivatives_use_the_jvp_and_transpose_rules() -> None:
    imported = from_jax(make_cubes())
    (_, _), (tangent, _) = fx.jvp(imported, (X,), (np.ones_like(X),))
    assert_near(tangent, 6 * X**2, ELEMENTARY)
    gradient = fx.jit(fx.grad(lambda x: imported(x)[0].sum()))(X)
    assert_near(gradient, 10 * X**2, ELEMENTARY)
    second_derivative = fx.grad(lambda x: fx.grad(lambda x: imported(x)[0].sum())(x).sum())(X)
    assert_near(second_derivative, 20 * X, ELEMENTARY)


def test_vmap_uses_the_batching_rule() -> None:
    imported = from_jax(make_cubes())
    cubed, positive = fx.vmap(imported, out_axes=(0, None))(X)
    assert_near(cubed, 2 * (10 * X) ** 3, ELEMENTARY)
    assert positive.tolist() == (X > 0).any(0).tolist()  # the batching rule reduces over the batch


def test_equal_primitives_are_merged_by_cse() -> None:
    f = make_cubes()
    program = fx.make_jaxpr(from_jax(lambda x: (f(x), f(x))))(X)
    one, other = program.eqns
    assert one.prim == other.prim
    assert len(fx.rewriting.optimize(program).eqns) == 1


def test_primitive_without_traceable_implementation_is_rejected() -> None:
    opaque = Primitive("test_opaque")
    opaque.def_impl(lambda x: float(x))
    opaque.def_abstract_eval(lambda x: x)
    with pytest.raises(MissingRuleError, match="'test_opaque'.*JAX can't trace"):
        from_jax(lambda x: opaque.bind(x))(np.float32(1))
    f = from_jax(lambda x: opaque.bind(x), rules={"test_opaque": lambda x: 2 * x})
    assert float(f(np.float32(1))) == 2.0


def test_equinox_error_if() -> None:
    f = from_jax(lambda x: eqx.error_if(2 * x, x.sum() > 10, "much too large"))
    assert f(X).tolist() == (2 * X).tolist()
    assert fx.grad(lambda x: f(x).sum())(X).tolist() == np.full((2, 3), 2.0).tolist()
    with pytest.raises(RuntimeError, match="much too large"):
        fx.jit(f)(10 * X)


def test_gradient_of_equinox_while_loop() -> None:
    def looped(x: Any) -> Any:
        def step(carry: Any) -> Any:
            y, n = carry
            return jax.numpy.sin(y), n + 1

        out, _ = eqx.internal.while_loop(lambda c: c[1] < 3, step, (x, 0), kind="checkpointed", max_steps=5)
        return out.sum()

    assert_near(fx.jit(fx.grad(from_jax(looped)))(X), jax.jit(jax.grad(looped))(X), ELEMENTARY)
