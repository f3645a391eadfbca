"""Named axes: through `jit` under `vmap`, through differentiation, nested and shadowed, against JAX."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.lax  # makes `fx.lax` available
import tracefx.numpy as fnp
from tests.comparison import Case, assert_agree

X: Final = np.array([0.5, -1.5, 2.0], np.float32)
M: Final = np.arange(6, dtype=np.float32).reshape(2, 3)

CASES: Final[dict[str, Case]] = {
    "psum": lambda F, N: F.vmap(lambda x: x / F.lax.psum(x, "i"), axis_name="i")(X),
    "psum of a constant": lambda F, N: F.vmap(lambda x: x * F.lax.psum(1, "i"), axis_name="i")(X),
    "psum of what is not mapped": lambda F, N: F.vmap(
        lambda x, y: x + F.lax.psum(y, "i"), in_axes=(0, None), axis_name="i"
    )(X, 2.0),
    "psum of a tree": lambda F, N: F.vmap(lambda x: F.lax.psum(x * 2, "i") - F.lax.pmean(x, "i"), axis_name="i")(X),
    "axis_index": lambda F, N: F.vmap(lambda x: x * F.lax.axis_index("i"), axis_name="i")(X),
    "axis_index alone": lambda F, N: F.vmap(lambda x: F.lax.axis_index("i"), axis_name="i")(X),
    "axis_size": lambda F, N: F.vmap(lambda x: x * F.lax.axis_size("i"), axis_name="i")(X),
    "jit inside": lambda F, N: F.vmap(F.jit(lambda x: x / F.lax.psum(x, "i")), axis_name="i")(X),
    "jit inside, index alone": lambda F, N: F.vmap(F.jit(lambda x: F.lax.axis_index("i")), axis_name="i")(X),
    "jit inside without operands": lambda F, N: F.vmap(
        lambda x: x + F.jit(lambda: F.lax.axis_index("i"))(), axis_name="i"
    )(X),
    "jit inside, operand not mapped": lambda F, N: F.vmap(
        lambda x, y: F.jit(lambda z: F.lax.psum(z, "i"))(y) + x, in_axes=(0, None), axis_name="i"
    )(X, 2.0),
    "jit outside": lambda F, N: F.jit(F.vmap(lambda x: x / F.lax.psum(x, "i"), axis_name="i"))(X),
    "jit twice inside": lambda F, N: F.vmap(F.jit(F.jit(lambda x: F.lax.psum(N.sin(x), "i"))), axis_name="i")(X),
    "grad inside": lambda F, N: F.vmap(F.grad(lambda x: F.lax.psum(N.sin(x), "i") * x), axis_name="i")(X),
    "grad outside": lambda F, N: F.grad(
        lambda x: N.sum(F.vmap(lambda y: F.lax.psum(N.sin(y), "i") * y, axis_name="i")(x))
    )(X),
    "grad of jit inside": lambda F, N: F.vmap(F.grad(F.jit(lambda x: F.lax.psum(N.sin(x), "i") * x)), axis_name="i")(X),
    "jit of grad inside": lambda F, N: F.vmap(F.jit(F.grad(lambda x: F.lax.psum(N.sin(x), "i") * x)), axis_name="i")(X),
    "jvp inside": lambda F, N: F.vmap(lambda x: F.jvp(lambda y: F.lax.pmean(y * y, "i"), (x,), (x,)), axis_name="i")(X),
    "jvp of jit inside": lambda F, N: F.vmap(
        lambda x: F.jvp(F.jit(lambda y: F.lax.pmean(y * y, "i")), (x,), (x,)), axis_name="i"
    )(X),
    "linearize inside": lambda F, N: F.vmap(
        lambda x: F.linearize(lambda y: F.lax.psum(N.sin(y), "i"), x)[1](x), axis_name="i"
    )(X),
    "linearize of jit inside": lambda F, N: F.vmap(
        lambda x: F.linearize(F.jit(lambda y: F.lax.psum(N.sin(y), "i") * F.lax.axis_index("i")), x)[1](x),
        axis_name="i",
    )(X),
    "pull used outside": lambda F, N: F.vmap(
        lambda x: F.vjp(F.jit(lambda y: F.lax.psum(y * x, "i")), x)[1](x), axis_name="i"
    )(X),
    "two axes": lambda F, N: F.vmap(
        F.vmap(lambda x: x - F.lax.psum(x, "i") + 2 * F.lax.psum(x, "j"), axis_name="j"), axis_name="i"
    )(M),
    "both axes at once": lambda F, N: F.vmap(
        F.vmap(lambda x: x / F.lax.psum(x, ("i", "j")), axis_name="j"), axis_name="i"
    )(M),
    "outer axis alone": lambda F, N: F.vmap(F.vmap(lambda x: F.lax.psum(x, "i")), axis_name="i")(M),
    "outer axis alone, jit between": lambda F, N: F.vmap(
        F.jit(F.vmap(F.jit(lambda x: F.lax.psum(x, "i")))), axis_name="i"
    )(M),
    "two axes, jit": lambda F, N: F.vmap(
        F.jit(F.vmap(F.jit(lambda x: x * F.lax.axis_index("i") + F.lax.axis_index("j")), axis_name="j")), axis_name="i"
    )(M),
    "other in_axes": lambda F, N: F.vmap(lambda x: F.lax.psum(x, "i"), in_axes=1, axis_name="i")(M),
    "out_axes None": lambda F, N: F.vmap(lambda x: F.lax.psum(x, "i"), out_axes=None, axis_name="i")(M),
    "normalization": lambda F, N: F.jit(
        F.vmap(lambda x: (x - F.lax.pmean(x, "b")) / F.lax.pmax(N.abs(x), "b"), axis_name="b")
    )(M),
    "hessian": lambda F, N: F.hessian(
        lambda x: N.sum(F.vmap(F.jit(lambda y: F.lax.psum(N.sin(y), "i") * y), axis_name="i")(x))
    )(X),
    "axis_size given": lambda F, N: F.vmap(lambda: F.lax.axis_index("i"), axis_name="i", axis_size=4)(),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_jax(name: str) -> None:
    assert_agree(CASES[name])


UNBOUND: Final[dict[str, Case]] = {
    "eager": lambda F, N: F.lax.psum(X, "nowhere"),
    "index": lambda F, N: F.lax.axis_index("nowhere"),
    "under another name": lambda F, N: F.vmap(lambda x: F.lax.psum(x, "nowhere"), axis_name="i")(X),
    "under no name": lambda F, N: F.vmap(lambda x: F.lax.psum(x, "nowhere"))(X),
    "in jit": lambda F, N: F.jit(lambda x: F.lax.psum(x, "nowhere"))(X),
    "after its vmap": lambda F, N: (F.vmap(lambda x: x, axis_name="nowhere")(X), F.lax.axis_index("nowhere")),
    "in make_jaxpr": lambda F, N: F.make_jaxpr(lambda x: F.lax.psum(x, "nowhere"))(X),
}


@pytest.mark.parametrize("name", UNBOUND)
def test_unbound_axis_name_raises_name_error(name: str) -> None:
    with pytest.raises(NameError, match="nowhere"):
        UNBOUND[name](fx, fnp)


def test_jit_with_named_axis_retraces_per_axis_environment() -> None:
    """A trace under an axis environment is not reused without the axis or with another axis size."""
    f = fx.jit(lambda x: x * fx.lax.axis_size("i"))
    assert np.asarray(fx.vmap(f, axis_name="i")(X)).tolist() == (X * 3).tolist()
    with pytest.raises(NameError):
        f(2.0)
    assert np.asarray(fx.vmap(f, axis_name="i")(X[:2])).tolist() == (X[:2] * 2).tolist()


def test_inner_axis_shadows_outer_axis_of_same_name() -> None:
    def f(x: Any) -> Any:
        return fx.lax.psum(x, "i")

    inner = fx.vmap(f, axis_name="i")
    np.testing.assert_array_equal(np.asarray(fx.vmap(inner, axis_name="i")(M)), np.repeat(M.sum(1)[:, None], 3, 1))
    np.testing.assert_array_equal(
        np.asarray(fx.vmap(fx.jit(inner), axis_name="i")(M)), np.repeat(M.sum(1)[:, None], 3, 1)
    )
