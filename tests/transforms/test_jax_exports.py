"""Functions that JAX exported, loaded and called."""

from __future__ import annotations

import dataclasses
import functools
import pickle
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near, assert_same
from tracefx import lax
from tracefx.control.call_stablehlo import CallStableHlo
from tracefx.errors import NotLinearError, ParseError, ShapeError
from tracefx.interop.jax import from_jax
from tracefx.testing.tolerances import DERIVATIVE
from tracefx.typing import ArrayLike

X: Final = np.arange(6, dtype=np.float32).reshape(2, 3) / 4 - 0.5
COUNTS: Final = np.arange(3, dtype=np.int32)


def model(params: Any, x: Any, *, scale: Any) -> Any:
    """Uses containers of all supported kinds, an unused argument, sorting (a function of its own) and an integer."""
    hidden = jnp.sort(jnp.tanh(x @ x.T) * params["w"][0], axis=0)
    return {"hidden": hidden * scale, "counts": (params["counts"] + 1, [None, jnp.where(x > 0, x, 0.0)])}


PARAMS: Final = {"w": [np.float32(1.5)], "counts": COUNTS, "unused": (np.ones(2, np.float32), None)}


def exported_by_jax(f: Callable[..., Any], *args: Any, vjp_order: int = 0, platforms: Any = None) -> bytes:
    return bytes(jax.export.export(jax.jit(f), platforms=platforms)(*args).serialize(vjp_order))


def loaded(f: Callable[..., Any], *args: Any, vjp_order: int = 0) -> fx.Exported[..., Any]:
    return fx.load(exported_by_jax(f, *args, vjp_order=vjp_order))


@functools.cache
def loaded_model(platforms: tuple[str, ...] = ("cpu",)) -> fx.Exported[..., Any]:
    exported = jax.export.export(jax.jit(model), platforms=platforms)(PARAMS, X, scale=2.0)
    return fx.load(bytes(exported.serialize(vjp_order=1)))


# ------------------------------------------------------------------ calls


@pytest.mark.parametrize("platforms", [("cpu",), ("tpu", "cpu", "cuda")], ids=str)
def test_calls_agree_with_jax(platforms: tuple[str, ...]) -> None:
    exported = loaded_model(platforms)
    assert (exported.fun_name, exported.platforms) == ("model", platforms)
    want = model(PARAMS, X, scale=2.0)
    for f in (exported, fx.load(exported.serialize()), pickle.loads(pickle.dumps(exported))):
        for call in (f.call, fx.jit(f.call)):
            got = call(PARAMS, X, scale=2.0)
            assert repr(fx.tree.structure(got)) == repr(jax.tree.structure(want))
            for x, y in zip(fx.tree.leaves(got), jax.tree.leaves(want), strict=True):
                assert_near(x, y)


def test_types_and_trees_agree_with_jax() -> None:
    in_jax = jax.export.deserialize(bytearray(exported_by_jax(lambda p, x: model(p, x, scale=1.0), PARAMS, X)))
    exported = fx.load(bytes(in_jax.serialize()))
    assert repr(exported.in_tree) == repr(in_jax.in_tree)
    assert repr(exported.out_tree) == repr(in_jax.out_tree)
    assert list(map(str, exported.in_avals)) == [a.str_short(short_dtypes=True) for a in in_jax.in_avals]
    assert list(map(str, exported.out_avals)) == [a.str_short(short_dtypes=True) for a in in_jax.out_avals]
    assert exported.mlir_module_serialized == in_jax.mlir_module_serialized
    assert exported.module_kept_var_idx == in_jax.module_kept_var_idx
    assert "stablehlo.tanh" in exported.mlir_module()


def test_calls_in_control_flow_and_of_several_functions() -> None:
    one, other = loaded(lambda x: jnp.sort(jnp.sin(x)), X), loaded(lambda x: jnp.sort(jnp.cos(x))[::-1], X)

    def f(x: Any, first: Any, second: Any, scan: Any) -> Any:
        return scan(lambda c, _: (first(second(c)) + first(c), second(c).sum()), x, None, length=3)

    got = fx.jit(lambda x: f(x, one.call, other.call, lax.scan))(X)
    want = f(X, lambda x: jnp.sort(jnp.sin(x)), lambda x: jnp.sort(jnp.cos(x))[::-1], jax.lax.scan)
    assert_near(got[0], want[0])
    assert_near(got[1], want[1])


def test_functions_that_call_kernels_of_jaxlib() -> None:
    def f(x: Any) -> Any:
        return jnp.linalg.cholesky(x @ x.T + jnp.eye(2))

    exported = loaded(f, X)
    assert_near(exported.call(X), f(X))
    again = jax.export.deserialize(bytearray(fx.export(fx.jit(lambda x: exported.call(x) + 1))(X).to_jax()))
    assert_near(again.call(X), f(X) + 1)


def test_random_keys() -> None:
    def f(key: Any) -> Any:
        return jax.random.split(key), jax.random.bits(key, (3,))

    keys, bits = loaded(f, jax.random.key(3)).call(fx.random.key(3))
    want_keys, want_bits = f(jax.random.key(3))
    assert_same(fx.random.key_data(keys), jax.random.key_data(want_keys))
    assert_same(bits, want_bits)


def test_wide_types() -> None:
    with jax.enable_x64(True):
        exported = loaded(lambda x: (x * 2, jnp.int64(1) << 40), X.astype(np.float64))
    with fx.enable_x64(True):
        doubled, shifted = exported.call(X.astype(np.float64))
    assert doubled.dtype == np.float64
    assert int(shifted) == 1 << 40


def test_vmap_runs_a_loop() -> None:
    exported = loaded(lambda x, y: jnp.sort(x) * y, X[0], 2.0)
    assert_near(fx.vmap(exported.call, (0, None))(X, 3.0), np.sort(X) * 3)
    assert_near(fx.jit(fx.vmap(exported.call, (1, 0), 1))(X.T, X[:, 0]), (np.sort(X) * X[:, :1]).T)


def test_texts_show_the_size_of_the_module() -> None:
    text = str(loaded(jnp.sin, X).jaxpr)
    assert "call_stablehlo" in text
    assert "bytes>" in text
    assert "StableHLO_v" not in text


def test_importing_a_call_of_an_exported_function() -> None:
    in_jax = jax.export.export(jax.jit(lambda x, n: {"y": jnp.sin(x), "n": n + 1}))(X, COUNTS)
    imported: Any = from_jax(in_jax.call)
    got = fx.jit(imported)(X, COUNTS)
    assert_near(got["y"], np.sin(X))
    assert_same(got["n"], COUNTS + 1)
    assert_near(fx.grad(lambda x: imported(x, COUNTS)["y"].sum())(X), np.cos(X), DERIVATIVE)


# ------------------------------------------------------------------ derivatives


@pytest.mark.parametrize("order", [0, 1, 2])
def test_functions_are_differentiable_as_often_as_exported(order: int) -> None:
    f: Callable[..., Any] = loaded(lambda x: jnp.sum(x**3), X, vjp_order=order).call
    for _ in range(order):
        f = _gradient_sum(f)
    assert_near(f(X), [np.sum(X**3), 3 * np.sum(X**2), 6 * np.sum(X)][order], DERIVATIVE)
    with pytest.raises(ValueError, match="exported it without its backward pass, which `exported.serialize.vjp_order="):
        fx.grad(f)(X)


def _gradient_sum(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: fnp.sum(fx.grad(f)(x))


def test_derivatives_of_programs_with_integers() -> None:
    exported = loaded_model()

    def loss(x: Any, call: Any) -> Any:
        out = call(PARAMS, x, scale=2.0)
        return (out["hidden"] ** 2).sum() + out["counts"][1][1].sum()

    want = jax.grad(loss)(X, model)
    for f in (exported, fx.load(exported.serialize())):
        assert f.has_vjp()
        for gradient in (fx.grad(loss), fx.jit(fx.grad(loss), static_argnums=1)):
            assert_near(gradient(X, f.call), want, DERIVATIVE)
    batch = np.stack([X, 2 * X])
    got = fx.vmap(lambda x: fx.grad(loss)(x, exported.call))(batch)
    assert_near(got, jax.vmap(lambda x: jax.grad(loss)(x, model))(batch), DERIVATIVE)


def test_backward_passes_are_exported_functions() -> None:
    def f(x: Any, n: Any) -> Any:
        return jnp.sin(x) * 2, n + 1

    in_jax = jax.export.export(jax.jit(f))(X, COUNTS).vjp()
    zeros = np.zeros(3, fx.dtypes.float0)
    want = in_jax.call(X, COUNTS, X, zeros)
    for backward in (fx.load(bytes(in_jax.serialize())), loaded(f, X, COUNTS, vjp_order=1).vjp()):
        got = backward.call(X, COUNTS, X, zeros)
        assert_near(got[0], want[0], DERIVATIVE)
        assert got[1].dtype == fx.dtypes.float0
        assert got[1].shape == (3,)


def test_functions_without_a_backward_pass() -> None:
    exported = loaded(jnp.sin, X)
    assert not exported.has_vjp()
    with pytest.raises(ValueError, match="sin cannot be differentiated: JAX exported it without its backward pass"):
        exported.vjp()


def test_forward_mode_raises() -> None:
    with pytest.raises(NotLinearError, match="forward-mode differentiation of sin transposes its backward pass"):
        fx.jvp(loaded(jnp.sin, X, vjp_order=1).call, (X,), (X,))


# ------------------------------------------------------------------ symbolic shapes


def products(x: Any, y: Any) -> Any:
    return jnp.sort(x @ y), jnp.linalg.qr(x.T @ x + jnp.eye(x.shape[1]))[1], x.sum(0), 2 * x.shape[0]


@functools.cache
def loaded_products() -> fx.Exported[..., Any]:
    b, n = jax.export.symbolic_shape("b, n")
    args = jax.ShapeDtypeStruct((b, n), "float32"), jax.ShapeDtypeStruct((n, 2 * n), "float32")
    data = exported_by_jax(products, *args, vjp_order=1, platforms=("cpu", "tpu"))
    return fx.load(data)


def arguments(b: int, n: int) -> tuple[Any, Any]:
    numbers = np.random.default_rng(b).normal(size=(b + 2 * n, n)).astype(np.float32)
    return numbers[:b], numbers[b:].T


@pytest.mark.parametrize(("b", "n"), [(1, 1), (4, 3), (2, 5)])
def test_symbolic_shapes(b: int, n: int) -> None:
    exported = loaded_products()
    assert str(exported.out_avals) == "(f32[b,2*n], f32[n,n], f32[n], i32[])"
    x, y = arguments(b, n)
    want = products(x, y)
    for f in (exported, fx.load(exported.serialize())):
        for call in (f.call, fx.jit(f.call)):
            for got, expected in zip(call(x, y), want, strict=True):
                assert_near(got, expected, DERIVATIVE)
    gradient = fx.grad(lambda x: fnp.sum(exported.call(x, y)[0] ** 2))(x)
    assert_near(gradient, jax.grad(lambda x: jnp.sum(products(x, y)[0] ** 2))(x), DERIVATIVE)


def test_shapes_that_do_not_match_raise() -> None:
    x, y = arguments(4, 3)
    with pytest.raises(ShapeError, match=r"size 5 of args\[1\] along axis 1, which is not 2\*n = 6"):
        loaded_products().call(x, y[:, :5])
    with pytest.raises(TypeError, match=r"products was exported for args\[0\] of type f32\[b,n\], but called with f32"):
        loaded_products().call(x[0], y)


@pytest.mark.parametrize("platforms", [None, ["cuda", "cpu"]], ids=str)
def test_symbolic_exports_that_call_loaded_functions(platforms: Any) -> None:
    exported = loaded_products()
    b, n = fx.symbolic_shape("b, n")
    args = fx.ShapeDtypeStruct((b, n), "float32"), fx.ShapeDtypeStruct((n, 2 * n), "float32")

    def f(x: ArrayLike, y: ArrayLike) -> Any:
        product, *_, size = exported.call(x, y)
        return product + 1, size

    if platforms:
        with pytest.raises(ValueError, match="products was exported for cpu, tpu, but it is called on cuda"):
            fx.export(fx.jit(f), platforms=platforms)(*args)
        platforms = ["tpu", "cpu"]
    again = fx.export(fx.jit(f), platforms=platforms)(*args)
    in_jax = jax.export.deserialize(bytearray(again.to_jax()))
    x, y = arguments(4, 3)
    for call in (again.call, in_jax.call):
        product, size = call(x, y)
        assert_near(product, np.sort(x @ y) + 1)
        assert int(size) == 8


# ------------------------------------------------------------------ errors


def test_a_call_on_another_platform_raises() -> None:
    exported = fx.load(exported_by_jax(jnp.sin, X, platforms=["cuda"]))
    with pytest.raises(ValueError, match="sin was exported for cuda, but it is called on cpu"):
        exported.call(X)
    (eqn,) = exported.jaxpr.eqns
    assert isinstance(eqn.prim, CallStableHlo)
    with pytest.raises(ValueError, match="sin was exported for cuda, but it is called on cpu"):
        fx.extend.bind(eqn.prim, fnp.asarray(X))


@dataclasses.dataclass(frozen=True)
class Effect:
    """A class that JAX writes as an effect."""


class Pair(NamedTuple):
    left: Any
    right: Any


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nr_devices": 4}, "load of sin: JAX exported it for 4 devices, and only functions of one device"),
        ({"calling_convention_version": 11}, "it has version 11 of JAX's calling convention; the versions 9 to 10"),
        (
            {"disabled_safety_checks": (jax.export.DisabledSafetyCheck.platform(),)},
            "load of sin: it was exported without the check of platforms",
        ),
        (
            {"ordered_effects": (Effect(),)},
            "load of sin: it has effects of JAX, which are not supported: .*Effect",
        ),
    ],
    ids=["devices", "convention", "platforms", "effects"],
)
def test_unsupported_contents_raise(changes: dict[str, Any], message: str) -> None:
    exported = dataclasses.replace(jax.export.export(jax.jit(jnp.sin))(X), **changes)
    with pytest.raises(NotImplementedError, match=message):
        fx.load(bytes(exported.serialize()))


def test_custom_nodes_raise() -> None:
    jax.export.register_namedtuple_serialization(Pair, serialized_name="tests.Pair")
    data = exported_by_jax(lambda p: p.left, Pair(1.0, 2.0))
    with pytest.raises(NotImplementedError, match="nodes of type tests.Pair, which JAX's format gives by a name"):
        fx.load(data)


@functools.cache
def small_export() -> bytes:
    return exported_by_jax(lambda p: {"a": p[0] + 1, "b": [None, p[1]]}, (X, COUNTS), vjp_order=1)


@given(st.data())
def test_damaged_bytes_load_or_raise_parse_error(data: st.DataObject) -> None:
    content = bytearray(small_export())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    del content[data.draw(st.integers(4, len(content))) :]
    try:
        fx.load(bytes(content))
    except (ValueError, NotImplementedError):
        return


def test_damaged_modules_raise_when_called() -> None:
    exported = fx.load(small_export().replace(b"ML\xefR", b"ML\xefS"))
    with pytest.raises(ParseError, match="the StableHLO module of <lambda> cannot be read"):
        exported.mlir_module()
    with pytest.raises(ValueError, match="StableHLO"):
        exported.call((X, COUNTS))


def test_inconsistent_contents_raise_parse_error() -> None:
    exported = jax.export.export(jax.jit(jnp.sin))(X)
    other = jax.export.export(jax.jit(jnp.add))(X, X)
    for changes, message in (
        ({"in_tree": other.in_tree}, "the arguments have 2 leaves, but the program has 1"),
        ({"in_tree": jax.tree.structure([0])}, "is not a structure of arguments: a tuple, and a dict with names"),
        ({"module_kept_var_idx": (1,)}, "the inputs that the module takes, .1., are not some of 1 in their order"),
        ({"platforms": ("abacus",)}, "load of sin: platforms .*abacus"),
    ):
        with pytest.raises(ValueError, match=message):
            fx.load(bytes(dataclasses.replace(exported, **changes).serialize()))
