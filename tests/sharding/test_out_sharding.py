"""The argument `out_sharding` and the types of mesh axes: results have the shardings that they have in JAX."""

# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final

import jax
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from docs.building.sources import SOURCE
from tests.comparison import assert_near
from tests.errors import untyped
from tests.sharding.both import JAX, TRACEFX, Library, X
from tracefx.testing.tolerances import SUMMED

OUT_SHARDING: Final[dict[str, Callable[[Library, Any], Any]]] = {
    "array": lambda lib, s: lib.np.array(X, out_sharding=s),
    "zeros": lambda lib, s: lib.np.zeros((8, 4), out_sharding=s),
    "full_like": lambda lib, s: lib.np.full_like(X, 2.0, out_sharding=s),
    "broadcast_to": lambda lib, s: lib.np.broadcast_to(X[0], (8, 4), out_sharding=s),
    "reshape": lambda lib, s: lib.np.reshape(X, (8, 4), out_sharding=s),
    "x.reshape": lambda lib, s: lib.np.asarray(X).reshape(8, 4, out_sharding=s),
    "x.at.get": lambda lib, s: lib.np.asarray(X).at[np.arange(8)].get(out_sharding=s),
    "matmul": lambda lib, s: lib.np.matmul(X, np.eye(4, dtype=np.float32), out_sharding=s),
    "einsum": lambda lib, s: lib.np.einsum("ij,jk->ik", X, np.eye(4, dtype=np.float32), out_sharding=s),
    "lax.dot_general": lambda lib, s: lib.lax.dot_general(X, X.T @ X, (((1,), (0,)), ((), ())), out_sharding=s),
    "random.normal": lambda lib, s: lib.m.random.normal(lib.m.random.key(3), (8, 4), out_sharding=s),
    "initializers.ones": lambda lib, s: lib.m.nn.initializers.ones(lib.m.random.key(3), (8, 4), np.float32, s),
    "initializers.normal": lambda lib, s: lib.m.nn.initializers.normal()(lib.m.random.key(3), (8, 4), np.float32, s),
}


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("name", OUT_SHARDING)
def test_out_sharding_agrees_with_jax(name: str, jitted: bool) -> None:
    def shards(lib: Library, sharding: Any) -> list[tuple[int, Any]]:
        call: Any = lambda: OUT_SHARDING[name](lib, sharding)  # noqa: E731
        with lib.m.set_mesh(sharding.mesh):
            out = (lib.m.jit(call) if jitted else call)()
        return [(shard.device.id, np.asarray(shard.data)) for shard in out.addressable_shards]

    explicit = jax.make_mesh((4, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    actual = shards(TRACEFX, fx.NamedSharding(TRACEFX.mesh, fx.P("x", "y")))
    expected = dict(shards(JAX, jax.NamedSharding(explicit, jax.P("x", "y"))))
    assert len(actual) == len(expected) == 8
    for device, shard in actual:
        assert_near(shard, expected[device], SUMMED)


def test_out_sharding_takes_specs_of_the_mesh_in_use() -> None:
    with fx.set_mesh(TRACEFX.mesh):
        out = fx.random.uniform(fx.random.key(0), (8,), out_sharding=fx.P("x"))
    assert out.sharding == fx.NamedSharding(TRACEFX.mesh, fx.P("x"))
    assert fnp.zeros(3, out_sharding=None).shape == (3,)


def test_out_sharding_by_position() -> None:
    with fx.set_mesh(TRACEFX.mesh):
        out = fx.lax.reduce(X.T, np.float32(0.0), fx.lax.add, (0,), fx.P("x"))
    assert out.sharding == fx.NamedSharding(TRACEFX.mesh, fx.P("x"))
    assert fx.lax.reduce(X, np.float32(0.0), fx.lax.add, (0,), None).shape == (4,)
    with pytest.raises(TypeError, match="multiple values for argument 'out_sharding'"):
        untyped(fx.lax.reduce)(X, np.float32(0.0), fx.lax.add, (0,), None, out_sharding=None)
    with pytest.raises(TypeError, match="positional arguments? but"):
        untyped(fnp.zeros)(3, None, fx.P("x"))


def test_functions_that_only_declare_out_sharding_are_called_by_their_public_names() -> None:
    """A function that declares `out_sharding` ignores it: its entry point interprets it."""
    calls = [
        node
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and any(each.arg == "out_sharding" for each in node.keywords)
    ]
    names = {ast.unparse(node.func) for node in calls}
    known = {"fnp.zeros", "fnp.ones", "_RESHAPE.value", "functools.partial", "call"}
    known |= {"auto_axes", "jax.sharding.auto_axes"}
    assert names <= known, names


def test_invalid_out_shardings_name_the_function() -> None:
    zeros: Any = fnp.zeros
    with pytest.raises(ValueError, match=r"zeros: out_sharding: P\('x'\) names axes of a mesh, but no mesh is set"):
        zeros(8, out_sharding=fx.P("x"))
    with pytest.raises(
        TypeError, match="zeros: out_sharding must be a NamedSharding, a PartitionSpec or None, got 'x'"
    ):
        zeros(8, out_sharding="x")
    with pytest.raises(ValueError, match=r"zeros: out_sharding, f32\[3\], can't have the sharding"):
        zeros(3, out_sharding=fx.NamedSharding(TRACEFX.mesh, fx.P("x")))
    with pytest.raises(ValueError, match=r"x.at\[...\].set: out_sharding"):
        fnp.ones(3).at[0].set(0.0, out_sharding=fx.P("x"))


def test_axis_types() -> None:
    axis_type = fx.sharding.AxisType
    assert [t.name for t in axis_type] == [t.name for t in jax.sharding.AxisType]
    for types in ((axis_type.Auto,) * 2, None):
        mesh = fx.make_mesh((4, 2), ("x", "y"), types)
        jax_types: Any = None if types is None else tuple([jax.sharding.AxisType[t.name] for t in types])
        expected = jax.make_mesh((4, 2), ("x", "y"), jax_types)
        assert [t.name for t in mesh.axis_types] == [t.name for t in expected.axis_types]
    assert fx.Mesh(fx.devices()[:2], "x", axis_type.Auto).axis_types == (axis_type.Auto,)
    explicit = fx.make_mesh((4, 2), ("x", "y"), (axis_type.Explicit, axis_type.Auto))
    assert (explicit.explicit_axes, explicit.auto_axes) == (("x",), ("y",))
    with pytest.raises(TypeError, match="axis_types must be of type AxisType, got 'Explicit'"):
        fx.make_mesh((4,), ("x",), ("Explicit",))  # type: ignore[arg-type]  # what is refused
    with pytest.raises(ValueError, match="1 axis_types"):
        fx.make_mesh((4, 2), ("x", "y"), (axis_type.Auto,))
