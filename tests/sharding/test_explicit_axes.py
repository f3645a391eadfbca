"""Shardings in types, over explicit mesh axes: programs beside JAX, and what has no counterpart there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, final

import numpy as np
import pytest
from attrs import frozen
from jax._src.core import ShardingTypeError as JaxShardingTypeError

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.sharding.both import JAX, TRACEFX, Library
from tracefx import P
from tracefx.errors import ShardingTypeError
from tracefx.sharding import AbstractMesh, AxisType, auto_axes, get_abstract_mesh, reshard, use_abstract_mesh


@final
@frozen(eq=False)
class Operands:
    """Arrays of one library on a mesh with the explicit axes x and y, of the sizes 2 and 4."""

    lib: Library
    x: Any
    """f32[8@x,4]"""
    y: Any
    """f32[8,4@y]"""
    z: Any
    """f32[8@x,3,4]"""
    v: Any
    """f32[8@x]"""

    @property
    def m(self) -> Any:
        return self.lib.m

    @property
    def np(self) -> Any:
        return self.lib.np

    @property
    def lax(self) -> Any:
        return self.lib.lax

    @property
    def P(self) -> Any:  # the name of the class
        return self.lib.P

    @property
    def reshard(self) -> Any:
        return self.lib.m.sharding.reshard


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return (np.arange(np.prod(shape)) % 7).reshape(shape).astype(np.float32)


def explicit_mesh(lib: Library) -> Any:
    return lib.m.make_mesh((2, 4), ("x", "y"), (lib.m.sharding.AxisType.Explicit,) * 2)


def manual_over_x(e: Operands, f: Callable[[Any], Any], out_specs: Any = None) -> Any:
    """Maps a function over the shards of f32[8@x,4@y] along x only."""
    specs = e.P("x") if out_specs is None else out_specs
    return e.m.shard_map(f, in_specs=e.P("x"), out_specs=specs, axis_names={"x"})(e.x + e.y)


PROGRAMS: Final[Mapping[str, Callable[[Operands], Any]]] = {
    "sin": lambda e: e.np.sin(e.x),
    "add merge": lambda e: e.x + e.y,
    "add replicated": lambda e: e.x + e.np.ones((8, 4)),
    "add scalar": lambda e: e.x + 1,
    "add row": lambda e: e.x + e.np.ones((4,)),
    "add twice": lambda e: e.x + e.reshard(e.x, e.P(None, "x")),
    "astype": lambda e: e.x.astype("int32"),
    "where": lambda e: e.np.where(e.x > 0, e.x, 0),
    "sum all": lambda e: e.x.sum(),
    "sum 0": lambda e: e.x.sum(0),
    "argmax 1": lambda e: e.x.argmax(1),
    "cumsum sharded": lambda e: e.np.cumsum(e.x, 0),
    "cumsum": lambda e: e.np.cumsum(e.x, 1),
    "sort sharded": lambda e: e.np.sort(e.x, 0),
    "sort": lambda e: e.np.sort(e.x, 1),
    "top_k": lambda e: e.lax.top_k(e.x, 2),
    "top_k sharded": lambda e: e.lax.top_k(e.x.T, 2),
    "T": lambda e: e.x.T,
    "reshape split major": lambda e: e.x.reshape(4, 2, 4),
    "reshape split bad": lambda e: e.reshard(e.x, e.P("y")).reshape(2, 4, 4),
    "reshape merge": lambda e: e.x.reshape(32),
    "reshape merge minor": lambda e: e.y.reshape(32),
    "reshape merge both": lambda e: (e.x + e.y).reshape(32),
    "reshape 1": lambda e: e.x.reshape(8, 1, 4),
    "reshape other": lambda e: e.y.reshape(4, 2, 4),
    "broadcast_to out": lambda e: e.np.broadcast_to(e.np.ones(8), (8, 8), out_sharding=e.P("x")),
    "concat": lambda e: e.np.concatenate([e.x, e.x]),
    "concat conflict": lambda e: e.np.concatenate([e.x, e.y]),
    "stack": lambda e: e.np.stack([e.x, e.x]),
    "split": lambda e: e.np.split(e.x, 2),
    "split 1": lambda e: e.np.split(e.x, 2, 1),
    "slice bad": lambda e: e.lax.slice(e.x, (0, 0), (3, 4)),
    "slice other": lambda e: e.lax.slice(e.x, (0, 1), (8, 3)),
    "index colon": lambda e: e.x[:, 1:3],
    "pad": lambda e: e.np.pad(e.x, ((0, 0), (1, 1))),
    "dot": lambda e: e.x @ e.np.ones((4, 3)),
    "dot two": lambda e: e.x @ e.y.T,
    "dot contracting both": lambda e: e.x.T @ e.x,
    "dot contracting one": lambda e: e.x.T @ e.np.ones((8, 3)),
    "dot twice": lambda e: e.x @ e.x.T,
    "dot mismatch": lambda e: e.y @ e.reshard(e.np.ones((4, 4)), e.P("x")),
    "dot out": lambda e: e.np.matmul(e.x.T, e.x, out_sharding=e.P("y")),
    "einsum": lambda e: e.np.einsum("ab,cb->ac", e.x, e.np.ones((3, 4))),
    "batched matmul": lambda e: e.np.matmul(e.z, e.np.swapaxes(e.z, 1, 2)),
    "outer twice": lambda e: e.np.outer(e.v, e.v),
    "gather out": lambda e: e.x.at[e.np.array([0, 1])].get(out_sharding=e.P()),
    "take_along": lambda e: e.np.take_along_axis(e.x, e.x.argmax(1, keepdims=True), axis=1),
    "set col": lambda e: e.x.at[:, 0].set(1.0),
    "dynamic_slice": lambda e: e.lax.dynamic_slice(e.x, (0, 1), (8, 2)),
    "dynamic_slice sharded": lambda e: e.lax.dynamic_slice(e.x, (0, 1), (4, 2)),
    "dynamic_update_slice": lambda e: e.lax.dynamic_update_slice(e.x, e.x[:, :1], (0, 2)),
    "dynamic_update_slice conflict": lambda e: e.lax.dynamic_update_slice(e.x, e.np.ones((8, 1)), (0, 2)),
    "conv": lambda e: e.lax.conv(e.x.reshape(8, 1, 2, 2), e.np.ones((3, 1, 2, 2)), (1, 1), "SAME"),
    "fft": lambda e: e.np.fft.fft(e.x),
    "reduce": lambda e: e.lax.reduce((e.x, e.y), (0.0, 0.0), lambda a, b: (a[0] + b[0] * 2, a[1] + b[1]), (1,)),
    "reduce_window": lambda e: e.lax.reduce_window(e.x, 0.0, lambda a, b: a + b * 2, (1, 2), (1, 1), "VALID"),
    "reduce_window sharded": lambda e: e.lax.reduce_window(e.x, 0.0, lambda a, b: a + b * 2, (2, 1), (1, 1), "VALID"),
    "pure_callback": lambda e: e.m.pure_callback(lambda a: a, e.m.ShapeDtypeStruct((8, 4), "float32"), e.x),
    "rng_bit_generator": lambda e: e.lax.rng_bit_generator(e.reshard(e.np.ones(4, "uint32"), e.P("x")), (8,)),
    "zeros out": lambda e: e.np.zeros((8, 2), out_sharding=e.P("x")),
    "normal out": lambda e: e.m.random.uniform(e.m.random.key(0), (8, 4), out_sharding=e.P("x", "y")),
    "softmax 0": lambda e: e.m.nn.softmax(e.x, 0),
    "one_hot": lambda e: e.m.nn.one_hot(e.v.astype("int32"), 3),
    "reshard": lambda e: e.reshard(e.x, e.P("y")),
    "reshard P()": lambda e: e.reshard(e.x, e.P()),
    "auto_axes": lambda e: e.m.sharding.auto_axes(lambda a: a[0], out_sharding=e.P())(e.x),
    "auto_axes call": lambda e: e.m.sharding.auto_axes(lambda a: a.T @ a)(e.x, out_sharding=e.P("y")),
    "auto_axes none": lambda e: e.m.sharding.auto_axes(lambda a: a)(e.x),
    "smap": lambda e: e.m.smap(lambda a: a * 2, in_axes=0, out_axes=0, axis_name="x")(e.x),
    "smap decorator": lambda e: e.m.smap(in_axes=0, out_axes=0, axis_name="x")(lambda a: a * 2)(e.x),
    "smap infer": lambda e: e.m.smap(lambda a: a * 2, out_axes=0, axis_name="x")(e.x),
    "shard_map": lambda e: e.m.shard_map(lambda a: e.lax.psum(a, "x"), in_specs=e.P("x"), out_specs=e.P())(e.x),
    "shard_map infer": lambda e: e.m.shard_map(lambda a: a * 2, out_specs=e.P("x"))(e.x),
    "shard_map conflict": lambda e: e.m.shard_map(lambda a: a, in_specs=e.P("y"), out_specs=e.P("y"))(e.x),
    "shard_map partial": lambda e: e.m.shard_map(
        lambda a: a + e.np.sin(a), in_specs=e.P("x"), out_specs=e.P("x"), axis_names={"x"}
    )(e.x + e.y),
    "manual psum": lambda e: manual_over_x(e, lambda a: e.lax.psum(a * 2, "x"), e.P()),
    "manual all_gather": lambda e: manual_over_x(e, lambda a: e.lax.all_gather(a, "x", tiled=True)),
    "manual all_gather sharded": lambda e: manual_over_x(e, lambda a: e.lax.all_gather(a, "x", axis=1, tiled=True)),
    "manual ppermute": lambda e: manual_over_x(e, lambda a: e.lax.ppermute(a, "x", [(0, 1), (1, 0)])),
    "manual all_to_all": lambda e: manual_over_x(e, lambda a: e.lax.all_to_all(a, "x", 0, 0, tiled=True)),
    "triangular_solve": lambda e: e.lax.linalg.triangular_solve(e.np.eye(4), e.x.T, left_side=True),
    "triangular_solve sharded": lambda e: e.lax.linalg.triangular_solve(e.np.eye(8), e.x, left_side=True),
    "triangular_solve right": lambda e: e.lax.linalg.triangular_solve(e.np.eye(4), e.x, left_side=False),
    "solve": lambda e: e.np.linalg.solve(e.np.eye(4), e.x.T),
    "full_like": lambda e: e.lax.full_like(e.x, 2),
    "jacfwd": lambda e: e.m.jacfwd(lambda a: a * 2)(e.v),
    "grad sin": lambda e: e.m.grad(lambda a: e.np.sin(a).sum())(e.x),
    "grad dot": lambda e: e.m.grad(lambda a, w: ((a @ w) ** 2).sum(), (0, 1))(e.x, e.np.ones((4, 3))),
    "grad dot sharded w": lambda e: e.m.grad(lambda a, w: (e.np.sin(a @ w)).sum(), (0, 1))(
        e.x, e.reshard(e.np.ones((4, 4)), e.P(None, "y"))
    ),
    "grad reshape": lambda e: e.m.grad(lambda a: (a.reshape(32) ** 2).sum())(e.x),
    "grad max": lambda e: e.m.grad(lambda a: a.max(1).sum())(e.x),
    "grad slice": lambda e: e.m.grad(lambda a: (a[:, 1:3] ** 2).sum())(e.x),
    "grad gather": lambda e: e.m.grad(lambda a: a[:, e.np.array([0, 0])].sum())(e.x),
    "grad gather out": lambda e: e.m.grad(lambda a: a.at[e.np.array([0, 0])].get(out_sharding=e.P()).sum())(e.x),
    "grad reshard": lambda e: e.m.grad(lambda a: (e.reshard(a, e.P("y")) ** 2).sum())(e.x),
    "grad dot out": lambda e: e.m.grad(lambda a: (e.np.matmul(a.T, a, out_sharding=e.P("y")) ** 2).sum())(e.x),
    "grad scan": lambda e: e.m.grad(
        lambda a: e.lax.scan(lambda c, _: (e.np.tanh(c * 2), c.sum()), a, None, length=3)[1].sum()
    )(e.x),
    "grad checkpoint": lambda e: e.m.grad(lambda a: e.m.checkpoint(lambda b: e.np.sin(e.np.sin(b)))(a).sum())(e.x),
    "grad shard_map": lambda e: e.m.grad(
        lambda a: e.m.shard_map(e.np.sin, in_specs=e.P("x"), out_specs=e.P("x"))(a).sum()
    )(e.x),
    "vjp": lambda e: e.m.vjp(lambda a: e.np.sin(a) @ e.np.ones((4, 2)), e.x)[1](e.reshard(e.np.ones((8, 2)), e.P("x"))),
    "vmap": lambda e: e.m.vmap(lambda a: a.sum())(e.x),
    "vmap in 1": lambda e: e.m.vmap(lambda a: a.sum(), in_axes=1)(e.x),
    "vmap out 1": lambda e: e.m.vmap(lambda a: a * 2, out_axes=1)(e.x),
    "vmap dot": lambda e: e.m.vmap(lambda a: a @ e.np.ones((4, 3)))(e.x),
    "vmap conflict": lambda e: e.m.vmap(lambda a, b: a * b)(e.x, e.np.ones((8, 4))),
    "vmap constant": lambda e: e.m.vmap(lambda a: e.np.zeros(3))(e.x),
    "vmap iota": lambda e: e.m.vmap(lambda a: a + e.np.arange(4.0))(e.x),
    "vmap sort": lambda e: e.m.vmap(e.np.sort)(e.x),
    "vmap dyn index": lambda e: e.m.vmap(lambda a, i: a[i])(e.x, e.v.astype("int32")),
    "vmap scan": lambda e: e.m.vmap(lambda a: e.lax.scan(lambda c, _: (c + a, None), e.np.zeros(4), None, length=3)[0])(
        e.x
    ),
    "vmap while": lambda e: e.m.vmap(lambda a: e.lax.while_loop(lambda c: c.sum() < 50, lambda c: c * 2, a))(e.x + 1),
    "vmap cond": lambda e: e.m.vmap(lambda a: e.lax.cond(a[0] > 1, e.np.sin, e.np.cos, a))(e.x),
    "vmap inner sharded": lambda e: e.m.vmap(lambda a: a.sum(0), in_axes=1)(e.z),
    "scan": lambda e: e.lax.scan(lambda c, _: (e.np.tanh(c), c.sum()), e.x, None, length=3),
    "scan xs": lambda e: e.lax.scan(lambda c, r: (c + r.sum(), r * 2), 0.0, e.x.T),
    "scan xs sharded": lambda e: e.lax.scan(lambda c, r: (c + r.sum(), r * 2), 0.0, e.x),
    "scan mismatch": lambda e: e.lax.scan(lambda c, _: (c + e.x, None), e.np.zeros((8, 4)), None, length=3),
    "cond mismatch": lambda e: e.lax.cond(True, lambda a: a * 2, lambda a: e.np.zeros((8, 4)), e.x),
    "vmap keys": lambda e: e.m.vmap(lambda k: e.m.random.uniform(k, (2,)))(
        e.reshard(e.m.random.split(e.m.random.key(0), 8), e.P("x"))
    ),
}
"""Programs by name."""


def run(lib: Library, program: Callable[[Operands], Any]) -> tuple[list[str], list[np.ndarray[Any, Any]]] | None:
    """Returns the types and values of the results under `jit`; None if the program is refused."""
    mesh = explicit_mesh(lib)
    specs = ("x",), (None, "y"), ("x",), ("x",)
    with lib.m.set_mesh(mesh):
        operands = [
            lib.m.device_put(a, lib.m.NamedSharding(mesh, lib.P(*spec)))
            for a, spec in zip((numbers(8, 4), numbers(8, 4), numbers(8, 3, 4), numbers(8) % 3), specs, strict=True)
        ]
        try:
            outs = lib.m.tree.leaves(lib.m.jit(lambda *args: program(Operands(lib, *args)))(*operands))
        except (ValueError, TypeError, JaxShardingTypeError):
            return None
    types = [lib.m.typeof(out).str_short(short_dtypes=True).partition("(")[0] for out in outs]
    shards = [str(out.sharding.shard_shape(out.shape)) for out in outs]
    return [*types, *shards], [np.asarray(out) for out in outs]


@pytest.mark.parametrize("name", PROGRAMS)
def test_types_and_values_match_jax(name: str) -> None:
    got, want = run(TRACEFX, PROGRAMS[name]), run(JAX, PROGRAMS[name])
    assert (got is None) == (want is None)
    if got is not None and want is not None:
        assert got[0] == want[0]
        for a, b in zip(got[1], want[1], strict=True):
            assert_near(a, b)


MESH: Final = explicit_mesh(TRACEFX)
X: Final = fx.device_put(numbers(8, 4), fx.NamedSharding(MESH, P("x")))


def test_types() -> None:
    aval = fx.typeof(X)
    assert str(aval) == "f32[8@x,4]"
    assert aval.sharding.spec == P("x", None)
    assert aval.sharding.mesh == MESH.abstract_mesh == AbstractMesh((2, 4), ("x", "y"), AxisType.Explicit)
    assert aval == fx.typeof(X * 1.0) != fx.typeof(fnp.ones((8, 4)))
    assert hash(aval) == hash(fx.typeof(X * 1.0))
    assert fx.typeof(fx.device_put(X, fx.NamedSharding(MESH, P(("x", "y"))))).str_short(True) == "f32[8@(x,y),4]"
    automatic = MESH.update_axis_types({"x": AxisType.Auto, "y": AxisType.Auto})
    assert str(fx.typeof(fx.device_put(X, fx.NamedSharding(automatic, P("x"))))) == "f32[8,4]"


def same_over_abstract_mesh(lib: Library, mesh: Any, x: Any) -> list[bool]:
    sharding = lib.m.typeof(x).sharding
    over_x, over_y = [lib.m.NamedSharding(mesh.abstract_mesh, lib.P(name, None)) for name in ("x", "y")]
    return [
        isinstance(sharding, lib.m.NamedSharding),
        sharding == over_x,
        hash(sharding) == hash(over_x),
        sharding == over_y,
        sharding == lib.m.NamedSharding(mesh, over_x.spec),
        sharding.is_equivalent_to(lib.m.NamedSharding(mesh.abstract_mesh, lib.P("x")), 2),
        sharding.is_equivalent_to(over_y, 2),
        sharding.is_fully_replicated,
    ]


def sizes(lib: Library, mesh: Any, x: Any) -> list[Any]:
    sharding = lib.m.typeof(x).sharding
    return [sharding.shard_shape(x.shape), sharding.num_devices, tuple(sharding.spec), sharding.mesh.axis_names]


def used_as_argument(lib: Library, mesh: Any, x: Any) -> list[Any]:
    """Passes the sharding of a type as a target; returns the types of the results."""
    sharding = lib.m.typeof(x).sharding
    replicated = numbers(8, 4)
    with lib.m.set_mesh(mesh):
        outs = [
            lib.m.sharding.reshard(replicated, sharding),
            lib.np.zeros((8, 4), out_sharding=sharding),
            lib.np.matmul(x, lib.np.ones((4, 4)), out_sharding=sharding),
            lib.m.jit(lambda a: lib.m.sharding.reshard(a, sharding) * 2)(replicated),
            lib.m.jit(lambda a: a * 2, out_shardings=sharding)(replicated),
            lib.m.sharding.auto_axes(lambda a: a * 2, out_sharding=sharding)(x),
        ]
    struct = lib.m.ShapeDtypeStruct((8, 4), "float32", sharding=sharding)
    out = lib.m.eval_shape(lambda a: a.T, struct)
    return [lib.m.typeof(each).str_short(True).partition("(")[0] for each in outs] + [tuple(out.sharding.spec)]


@pytest.mark.parametrize("read", [same_over_abstract_mesh, sizes, used_as_argument])
def test_the_sharding_of_a_type_is_one_over_the_abstract_mesh(read: Callable[[Library, Any, Any], list[Any]]) -> None:
    results = []
    for lib in (TRACEFX, JAX):
        mesh = explicit_mesh(lib)
        results.append(read(lib, mesh, lib.m.device_put(numbers(8, 4), lib.m.NamedSharding(mesh, lib.P("x")))))
    assert results[0] == results[1]


def test_the_sharding_of_a_type_has_no_devices() -> None:
    sharding = fx.typeof(X).sharding
    with pytest.raises(ValueError, match="has no devices, since its mesh is abstract"):
        _ = sharding.device_set
    with pytest.raises(ValueError, match="has no devices: call it inside of"):
        fx.device_put(numbers(8, 4), sharding)
    with fx.set_mesh(MESH):
        assert fx.device_put(numbers(8, 4), sharding).sharding == fx.NamedSharding(MESH, sharding.spec)
    struct = fx.ShapeDtypeStruct((8, 4), "float32", sharding=sharding)
    assert fx.eval_shape(lambda a: a.T, struct).sharding == sharding.update(spec=(None, "x"))
    with fx.set_mesh(MESH):
        compiled = fx.jit(lambda a: a.T).lower(struct).compile()
    assert compiled.input_shardings == ((fx.NamedSharding(MESH, sharding.spec),), {})


def test_mixed_mesh() -> None:
    mesh = MESH.update_axis_types({"y": AxisType.Auto})
    x = fx.device_put(numbers(8, 4), fx.NamedSharding(mesh, P("x", "y")))
    assert str(fx.typeof(x)) == "f32[8@x,4]"
    out = fx.jit(lambda x: fnp.sin(x) + 1.0)(x)
    assert str(fx.typeof(out)) == "f32[8@x,4]"
    assert_near(out, np.sin(numbers(8, 4)) + 1.0)


def test_programs_can_be_printed_parsed_and_serialized() -> None:
    closed = fx.make_jaxpr(lambda x: reshard(fnp.sin(x), fx.NamedSharding(MESH, P(None, "y"))).sum(1))(X)
    text = str(closed)
    assert "c:f32[8,4@y] = reshard[" in text
    with fx.set_mesh(MESH):
        assert fx.parse_jaxpr(text) == closed.jaxpr
    with pytest.raises(fx.errors.ParseError, match="'x' must be explicit axes of the mesh in use"):
        fx.parse_jaxpr(text)
    assert fx.programs.deserialize(fx.programs.serialize(closed)) == closed
    fx.programs.check_jaxpr(closed)


def test_abstract_mesh() -> None:
    mesh = AbstractMesh((2,), "x", AxisType.Explicit)
    with use_abstract_mesh(mesh):
        assert get_abstract_mesh() == mesh
        program = fx.make_jaxpr(lambda: reshard(fnp.ones((4, 4)), P("x")) * 2.0)()
        assert str(program.jaxpr.out_avals[0]) == "f32[4@x,4]"
    assert get_abstract_mesh().empty


def test_gradients_outside_of_a_mesh_context() -> None:
    gradient = fx.grad(lambda x: fnp.sin(x).sum())(X)
    assert str(fx.typeof(gradient)) == "f32[8@x,4]"
    assert_near(gradient, np.cos(numbers(8, 4)))


def test_errors_say_what_to_do() -> None:
    with pytest.raises(ShardingTypeError, match=r"dot_general of f32\[4,8@x\], f32\[8@x,4\].*out_sharding=.*reshard"):
        X.T @ X
    with pytest.raises(ShardingTypeError, match=r"cumsum takes an operand that is not sharded along axis 0"):
        fnp.cumsum(X, 0)
    with pytest.raises(ShardingTypeError, match=r"result that is sharded twice over a mesh axis, \[8@x,8@x\]"):
        X @ X.T
    with pytest.raises(TypeError, match="pass out_sharding"):
        auto_axes(fnp.sin)(X)
    with fx.set_mesh(MESH), pytest.raises(ShardingTypeError, match="checks the sharding of the type"):
        fx.lax.with_sharding_constraint(X, P("y"))
    with pytest.raises(ShardingTypeError, match="slices of xs must be on all devices"):
        fx.lax.scan(lambda c, x: (c, x), 0.0, X)
    with pytest.raises(ShardingTypeError, match="closes over a value of type"):
        fx.shard_map(lambda a: a + X[:4], mesh=MESH, in_specs=P("x"), out_specs=P("x"))(X)


def test_arguments_get_the_shardings_of_in_shardings() -> None:
    types = []

    @fx.jit(in_shardings=fx.NamedSharding(MESH, P("x")))
    def f(x: fx.Array) -> fx.Array:
        types.append(str(fx.typeof(x)))
        return x * 2.0

    assert str(fx.typeof(f(fnp.asarray(numbers(8, 4))))) == "f32[8@x,4]"
    assert types == ["f32[8@x,4]"]
