"""Primitives that other libraries have given JAX do here what they do there, by the rules that they have there."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude="jax"

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
from tests.closeness import assert_near
from tracefx.errors import MissingRuleError
from tracefx.interop.jax import from_jax
from tracefx.testing.tolerances import ELEMENTARY

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what it imports, and JAX will rename
    import equinox as eqx

X: Final = np.array([[0.5, -1.0, 2.0], [0.25, 3.0, -0.75]], np.float32)


def cubes() -> Callable[..., Any]:
    """Cubes, and what is positive, by primitives as libraries define theirs; their rules can be told apart."""
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
    ad.deflinear2(thrice, lambda ct, x: [5 * ct])  # which is no transpose of it, and so is known again
    batching.defvectorized(thrice)
    return lambda x: tuple(cube.bind(x, by=2.0))


def test_it_does_what_its_implementation_does() -> None:
    ours = from_jax(cubes())
    for f in (ours, fx.jit(ours)):
        cubed, positive = f(X)
        assert_near(cubed, 2 * X**3, ELEMENTARY)
        assert positive.tolist() == (X > 0).tolist()
    program = str(fx.make_jaxpr(ours)(X))
    assert "jax_primitive[ name='test_cube' parameters=<{'by': 2.0}> ]" in " ".join(program.split())


def test_its_derivatives_are_by_its_rules() -> None:
    ours = from_jax(cubes())
    (_, _), (moved, _) = fx.jvp(ours, (X,), (np.ones_like(X),))
    assert_near(moved, 6 * X**2, ELEMENTARY)
    slopes = fx.jit(fx.grad(lambda x: ours(x)[0].sum()))(X)
    assert_near(slopes, 10 * X**2, ELEMENTARY)
    second = fx.grad(lambda x: fx.grad(lambda x: ours(x)[0].sum())(x).sum())(X)
    assert_near(second, 20 * X, ELEMENTARY)


def test_its_batches_are_by_its_rules() -> None:
    ours = from_jax(cubes())
    cubed, positive = fx.vmap(ours, out_axes=(0, None))(X)
    assert_near(cubed, 2 * (10 * X) ** 3, ELEMENTARY)
    assert positive.tolist() == (X > 0).any(0).tolist()  # the same for all of the batch, as the rule says


def test_equal_ones_are_one() -> None:
    f = cubes()
    program = fx.make_jaxpr(from_jax(lambda x: (f(x), f(x))))(X)
    one, other = program.eqns
    assert one.prim == other.prim
    assert len(fx.rewriting.optimize(program).eqns) == 1


def test_one_that_jax_cannot_trace_is_refused() -> None:
    opaque = Primitive("test_opaque")
    opaque.def_impl(lambda x: float(x))
    opaque.def_abstract_eval(lambda x: x)
    with pytest.raises(MissingRuleError, match="'test_opaque'.*JAX can't trace"):
        from_jax(lambda x: opaque.bind(x))(np.float32(1))
    f = from_jax(lambda x: opaque.bind(x), rules={"test_opaque": lambda x: 2 * x})
    assert float(f(np.float32(1))) == 2.0


def test_errors_of_equinox_are_raised() -> None:
    f = from_jax(lambda x: eqx.error_if(2 * x, x.sum() > 10, "much too large"))
    assert f(X).tolist() == (2 * X).tolist()
    assert fx.grad(lambda x: f(x).sum())(X).tolist() == np.full((2, 3), 2.0).tolist()
    with pytest.raises(RuntimeError, match="much too large"):
        fx.jit(f)(10 * X)


def test_loops_of_equinox_are_differentiated() -> None:
    def looped(x: Any) -> Any:
        def step(carry: Any) -> Any:
            y, n = carry
            return jax.numpy.sin(y), n + 1

        out, _ = eqx.internal.while_loop(lambda c: c[1] < 3, step, (x, 0), kind="checkpointed", max_steps=5)
        return out.sum()

    assert_near(fx.jit(fx.grad(from_jax(looped)))(X), jax.jit(jax.grad(looped))(X), ELEMENTARY)
