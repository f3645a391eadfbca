"""`axis_index` in functions called inside `pmap` and `shard_map`: jitted, checkpointed, in loops, nested."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tracefx import P, lax

X: Final = np.arange(8.0, dtype=np.float32).reshape(8, 1)


def index(x: Any) -> Any:
    return x + lax.axis_index("i")


CALLS: Final[dict[str, Callable[[Any], Any]]] = {
    "inline": index,
    "jit": fx.jit(index),
    "checkpoint": fx.checkpoint(index),
    "jit in jit": fx.jit(lambda x: fx.jit(index)(x) * 1),
    "the same function twice": lambda x: fx.jit(index)(x) + fx.jit(index)(x) - index(x),
    "jit in a loop": lambda x: lax.scan(lambda c, _: (fx.jit(index)(c), None), x, None, length=1)[0],
    "loop in jit": fx.jit(lambda x: lax.scan(lambda c, _: (index(c), None), x, None, length=1)[0]),
    "jit in a branch": lambda x: lax.cond(x[0] >= 0, fx.jit(index), lambda x: x, x),
}


@pytest.mark.parametrize("name", CALLS)
def test_axis_index_in_called_functions(name: str) -> None:
    f = CALLS[name]
    want = X + np.arange(8).reshape(8, 1)
    np.testing.assert_array_equal(fx.pmap(f, axis_name="i")(X), want)
    gradient = fx.pmap(fx.grad(lambda x: (f(x) ** 2).sum()), axis_name="i")
    np.testing.assert_array_equal(gradient(X), 2 * want)


def index_along_both(x: Any) -> Any:
    return x * 0 + 10 * lax.axis_index("i") + lax.axis_index("j")


def test_axis_index_along_two_axes() -> None:
    mesh, parts = fx.make_mesh((4, 2), ("i", "j")), P(("i", "j"))
    f = fx.jit(fx.shard_map(fx.jit(index_along_both), mesh=mesh, in_specs=parts, out_specs=parts))
    assert np.asarray(f(X)).ravel().tolist() == [0, 1, 10, 11, 20, 21, 30, 31]


def test_axis_index_of_outer_axes_in_nested_shard_map() -> None:
    mesh = fx.make_mesh((4, 2), ("i", "j"))

    def along(axis: str) -> Callable[[Any], Any]:
        return fx.shard_map(mesh=mesh, in_specs=P(axis), out_specs=P(axis), axis_names={axis}, check_vma=False)

    f = fx.jit(along("i")(lambda x: along("j")(fx.jit(index_along_both))(x)))
    assert np.asarray(f(X)).ravel().tolist() == [0, 1, 10, 11, 20, 21, 30, 31]


def test_one_function_under_two_meshes_with_the_same_axis_names() -> None:
    f = fx.jit(lambda x: lax.psum(x, "j") + lax.axis_index("i"))
    parts = P(("i", "j"))
    meshes = [fx.make_mesh(shape, ("i", "j")) for shape in ((4, 2), (2, 4))]
    mapped = [fx.shard_map(f, mesh=mesh, in_specs=parts, out_specs=parts) for mesh in meshes]
    for got, mesh in zip(fx.jit(lambda x: [g(x) for g in mapped])(X), meshes, strict=True):
        rows = X.reshape(mesh.shape["i"], -1)
        want = rows.sum(axis=1, keepdims=True) + np.arange(len(rows))[:, None] + np.zeros_like(rows)
        np.testing.assert_array_equal(np.asarray(got).ravel(), want.ravel())


def test_axis_index_is_a_parameter_only_where_used() -> None:
    f = fx.jit(fx.pmap(lambda x: fx.jit(fnp.sin)(x) + fx.jit(index)(x), axis_name="i")).lower(X).as_text()
    assert "@sin(%arg0: tensor<1xf32>) -> tensor<1xf32>" in f
    assert "@index(%arg0: tensor<1xf32>, %arg1: tensor<1xi32>) -> tensor<1xf32>" in f
