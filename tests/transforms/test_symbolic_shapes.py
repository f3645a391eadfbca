"""Functions that `export` and `jit` trace for symbolic shapes: types, values, JAX, errors, derivatives."""

from __future__ import annotations

import functools
import pickle
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.errors import untyped
from tracefx.errors import InconclusiveDimensionOperation, ParseError, ShapeError
from tracefx.programs import parse_jaxpr
from tracefx.testing.tolerances import DERIVATIVE

_SIZES: Final = (
    {"b": 2, "n": 3, "h": 5, "t": 4, "w": 6, "c": 3},
    {"b": 5, "n": 7, "h": 8, "t": 7, "w": 9, "c": 4},
)


class Program(NamedTuple):
    """A function of a library, its NumPy and the arguments, and the shapes of the arguments."""

    f: Callable[..., Any]
    shapes: tuple[str, ...]


def _program(f: Callable[..., Any], *shapes: str) -> Program:
    return Program(f, shapes)


def _softmax(lib: Any, np_: Any, x: Any) -> Any:
    return lib.nn.softmax(x)


def _layer_norm(lib: Any, np_: Any, x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / np_.sqrt(x.var(-1, keepdims=True) + 1e-5)


def _grad_of_scan(lib: Any, np_: Any, x: Any) -> Any:
    def loss(y: Any) -> Any:
        return lib.lax.scan(lambda c, r: (np_.tanh(c + r), None), np_.zeros(3), y)[0].sum()

    return lib.grad(loss)(x)


def _convolution(padding: str, strides: tuple[int, int] = (1, 1)) -> Callable[..., Any]:
    numbers = ("NHWC", "HWIO", "NHWC")
    return lambda lib, _, x, w: lib.lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=numbers)


def _rbg_key(lib: Any) -> Any:
    return lib.random.key(0, impl="rbg")


_PROGRAMS: Final[Mapping[str, Program]] = {
    "multiply": _program(lambda lib, np_, x: x * 2, "b, 3"),
    "flatten": _program(lambda lib, np_, x: x.reshape(-1), "b, 3"),
    "reshape": _program(lambda lib, np_, x: np_.reshape(x, (-1, 3, 2)), "b, 6"),
    "reshape to a product": _program(lambda lib, np_, x: x.reshape(x.shape[0] * 3), "b, 3"),
    "mean": _program(lambda lib, np_, x: x.mean(axis=0), "b, 3"),
    "variance": _program(lambda lib, np_, x: x.var(), "b, 3"),
    "zeros": _program(lambda lib, np_, x: np_.zeros((x.shape[0], 2)) + x[:, :2], "b, 3"),
    "arange": _program(lambda lib, np_, x: np_.arange(x.shape[0]) + x[:, 0], "b, 3"),
    "arange with bounds": _program(lambda lib, np_, x: np_.arange(1, 2 * x.shape[0], 3, dtype="int32"), "b, 3"),
    "linspace": _program(lambda lib, np_, x: np_.linspace(0.0, x[0, 0], 5), "b, 3"),
    "slices": _program(lambda lib, np_, x: [x[1:], x[:-1], x[:, -1], x[-1], x[::2], x[::-1], x[1::-2]], "b, n"),
    "index arrays": _program(lambda lib, np_, x: x[np_.array([0, -1])], "b, 3"),
    "updates": _program(lambda lib, np_, x: [x.at[0].set(1.0), x.at[1:].add(1.0), x.at[-1, ::2].set(0.0)], "b, n"),
    "matmul": _program(lambda lib, np_, x: x @ x.T, "b, n"),
    "einsum": _program(lambda lib, np_, x, y: np_.einsum("...ij,...jk->...ik", x, y), "b, n, 4", "b, 4, c"),
    "concatenate and stack": _program(lambda lib, np_, x: [np_.concatenate([x, x]), np_.stack([x, x], 1)], "b, 3"),
    "pad": _program(lambda lib, np_, x: np_.pad(x, ((1, 2), (0, 0))), "b, 3"),
    "cumulative sum": _program(lambda lib, np_, x: [np_.cumsum(x, 0), np_.cumsum(x, 1)], "b, 3"),
    "cumulative product": _program(lambda lib, np_, x: np_.cumprod(x, 0), "b, 3"),
    "sort": _program(lambda lib, np_, x: [np_.sort(x, 0), np_.argsort(x, 0), np_.median(x, axis=1)], "b, 3"),
    "extremes": _program(lambda lib, np_, x: [np_.argmax(x, 0), x.max(), np_.prod(x, axis=0)], "b, 3"),
    "softmax": _program(_softmax, "b, n"),
    "layer norm": _program(_layer_norm, "b, n"),
    "size as a value": _program(
        lambda lib, np_, x: [x * x.shape[0], x.shape[0] * 2 + np_.array(x.shape[1]), x.sum() / x.size], "b, n"
    ),
    "division of sizes": _program(lambda lib, np_, x: x.shape[0] // 2 + x.shape[0] % 2 + x[0, 0], "b, 3"),
    "broadcast": _program(lambda lib, np_, x: np_.broadcast_to(x, (2, *x.shape)), "b, 3"),
    "tile and repeat": _program(lambda lib, np_, x: [np_.tile(x, (2, 1)), np_.repeat(x, 2, axis=0)], "b, 3"),
    "square": _program(lambda lib, np_, x: [np_.tril(x), np_.eye(x.shape[0]) + x, np_.trace(x)], "b, b"),
    "halves": _program(lambda lib, np_, x: np_.split(x, 2), "2*b, 3"),
    "roll": _program(lambda lib, np_, x: [np_.roll(x, 1, axis=0), np_.diff(x, axis=0)], "b, 3"),
    "take along axis": _program(lambda lib, np_, x: np_.take_along_axis(x, np_.argsort(x, axis=1), axis=1), "b, n"),
    "perceptron": _program(lambda lib, np_, x, w, v: np_.maximum(x @ w, 0) @ v, "b, 4", "4, h", "h, 2"),
    "scan": _program(lambda lib, np_, x: lib.lax.scan(lambda c, y: (c + y.sum(), c), 0.0, x), "b, 3"),
    "reverse scan": _program(lambda lib, np_, x: lib.lax.scan(lambda c, y: (c + y, c), 0.0, x, reverse=True), "b"),
    "fori loop": _program(
        lambda lib, np_, x: lib.lax.fori_loop(0, x.shape[0], lambda i, c: c + x[i], np_.zeros(3)), "b, 3"
    ),
    "cond": _program(lambda lib, np_, x: lib.lax.cond(x.sum() > 0, lambda y: y * 2, lambda y: y, x), "b, 3"),
    "map": _program(lambda lib, np_, x: lib.lax.map(np_.sin, x), "b, 3"),
    "dynamic slices": _program(
        lambda lib, np_, x: [
            lib.lax.dynamic_slice(x, (1, 0), (x.shape[0] - 1, 2)),
            lib.lax.dynamic_update_slice(x, np_.ones((1, 3)), (1, 0)),
        ],
        "b, 3",
    ),
    "convolution, batch": _program(_convolution("SAME"), "b, 8, 8, 2", "3, 3, 2, 4"),
    "convolution, same": _program(_convolution("SAME"), "b, h, w, 2", "3, 3, 2, 4"),
    "convolution, strides": _program(_convolution("SAME", (2, 2)), "b, h, w, 2", "3, 3, 2, 4"),
    "windows": _program(
        lambda lib, np_, x: lib.lax.reduce_window(x, -np.inf, lib.lax.max, (1, 2), (1, 2), "VALID"), "b, 4"
    ),
    "attention": _program(
        lambda lib, np_, q, k, v: lib.nn.dot_product_attention(q, k, v, is_causal=True), *["b, t, 2, 4"] * 3
    ),
    "vmap": _program(lambda lib, np_, x: lib.vmap(lambda r: np_.dot(r, r))(x), "b, n"),
    "grad": _program(lambda lib, np_, x: lib.grad(lambda y: np_.mean(np_.tanh(y) @ np_.ones((3, 2))))(x), "b, 3"),
    "grad of scan": _program(_grad_of_scan, "b, 3"),
    "jit": _program(lambda lib, np_, x: lib.jit(lambda y: y + 1)(x), "b, 3"),
    "top_k": _program(lambda lib, np_, x: lib.lax.top_k(x, 2), "b, 3"),
    "cholesky": _program(
        lambda lib, np_, x: np_.linalg.cholesky(np_.einsum("bij,bkj->bik", x, x) + np_.eye(3) * 5), "b, 3, 3"
    ),
    "random": _program(lambda lib, np_, x: x + lib.random.uniform(lib.random.key(0), x.shape), "b, 3"),
    "random bits of rbg": _program(lambda lib, np_, x: x + lib.random.uniform(_rbg_key(lib), x.shape), "b, n"),
    "fft": _program(lambda lib, np_, x: np_.fft.fft(x).real, "b, 4"),
    "triangles": _program(lambda lib, np_, x: [np_.triu(x), np_.tril(x, -2), np_.triu(x, 1)], "b, n"),
    "quantiles": _program(
        lambda lib, np_, x: [np_.median(x, axis=1), np_.quantile(x, np_.array([0.3, 1.0]), axis=0)], "b, n"
    ),
    "singular values": _program(lambda lib, np_, x: np_.linalg.svd(x, full_matrices=False)[1], "b, n"),
    "scan of rows": _program(lambda lib, np_, x: lib.lax.scan(lambda c, y: (c + y, c), x[0], x), "b, n"),
    "grad of a scan of rows": _program(
        lambda lib, np_, x: lib.grad(lambda y: lib.lax.scan(lambda c, z: (c * z, c), y[0], y)[0].sum())(x), "b, n"
    ),
}


def export_for(f: Callable[..., Any], *shapes: str, constraints: tuple[str, ...] = ()) -> fx.Exported[..., Any]:
    """A function of arrays exported for symbolic shapes of one scope, in float32."""
    scope = fx.SymbolicScope(constraints)
    types = [fx.ShapeDtypeStruct(fx.symbolic_shape(shape, scope=scope), "float32") for shape in shapes]
    return fx.export(fx.jit(f))(*types)


def arrays_for(shapes: tuple[str, ...], sizes: Mapping[str, int], seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [
        rng.standard_normal([eval(part, {}, dict(sizes)) for part in shape.split(",")]).astype(np.float32)
        for shape in shapes
    ]


@pytest.mark.parametrize("name", _PROGRAMS)
def test_programs_of_symbolic_shapes(name: str) -> None:
    f, shapes = _PROGRAMS[name]
    exported = export_for(lambda *xs: f(fx, fnp, *xs), *shapes)
    scope = jax.export.SymbolicScope()
    types = [jax.ShapeDtypeStruct(jax.export.symbolic_shape(s, scope=scope), np.float32) for s in shapes]
    by_jax = jax.export.export(jax.jit(lambda *xs: f(jax, jnp, *xs)))(*types)
    assert [(str(a.shape), a.dtype) for a in exported.out_avals] == [(str(a.shape), a.dtype) for a in by_jax.out_avals]
    loaded, in_jax = fx.load(exported.serialize()), jax.export.deserialize(bytearray(exported.to_jax()))
    for sizes in _SIZES:
        xs = arrays_for(shapes, sizes)
        expected = by_jax.call(*xs)
        assert_near(exported.call(*xs), expected, DERIVATIVE)
        if sizes is _SIZES[0]:
            assert_near(loaded.call(*xs), expected, DERIVATIVE)
            assert_near(in_jax.call(*xs), expected, DERIVATIVE)


@pytest.mark.parametrize("name", _PROGRAMS)
def test_texts_of_symbolic_programs_are_parsed(name: str) -> None:
    f, shapes = _PROGRAMS[name]
    text = str(export_for(lambda *xs: f(fx, fnp, *xs), *shapes).jaxpr)
    assert str(parse_jaxpr(text)) == text


def test_sizes_in_texts() -> None:
    scalar, vector = "f32[floordiv(n, 2) + 1,max(b, n) - 1]", "f32[b^2,8]"
    parsed = parse_jaxpr(f"{{ lambda ; a:{scalar} b:{vector}. let  in (a, b) }}")
    assert str(parsed.in_avals) == f"({scalar}, {vector})"
    for size, problem in (
        ("b b", "expected a dimension, found 'b b': the symbolic shape 'b b', dimension 1: expected ','"),
        ("-1", "expected a dimension, found '-1'"),
        ("2 + 3", "expected a dimension, found '2 . 3'"),
        ("", "expected a dimension, found ''"),
        ("'b'", "expected a dimension, found"),
    ):
        with pytest.raises(ParseError, match=problem):
            parse_jaxpr(f"{{ lambda ; a:f32[3,{size},4]. let  in (a) }}")


_DERIVATIVES: Final[Mapping[str, Callable[[Any, Any, Any], Any]]] = MappingProxyType(
    {
        "cumprod": lambda lib, np_, x: np_.cumprod(x, axis=0),
        "reverse cumprod": lambda lib, np_, x: lib.lax.cumprod(x, 1, reverse=True),
        "cummax": lambda lib, np_, x: lib.lax.cummax(x, 0),
        "cummin": lambda lib, np_, x: lib.lax.cummin(x, 1),
        "cumlogsumexp": lambda lib, np_, x: lib.lax.cumlogsumexp(x, 0),
        "prod": lambda lib, np_, x: np_.prod(x, axis=1),
        "prod of all": lambda lib, np_, x: np_.prod(x),
        "overlapping slices": lambda lib, np_, x: x[1:].sum() * x[:-1].sum() * x[2:],
    }
)
"""Functions that JAX differentiates along axes of known sizes only."""


@pytest.mark.parametrize("name", _DERIVATIVES)
def test_derivatives_along_symbolic_axes(name: str) -> None:
    f = _DERIVATIVES[name]

    def gradient(lib: Any, np_: Any, x: Any) -> Any:
        return lib.grad(lambda y: np_.sum(f(lib, np_, y) ** 2))(x)

    def curvature(lib: Any, np_: Any, x: Any) -> Any:
        return lib.grad(lambda y: np_.sum(gradient(lib, np_, y)))(x)

    for derivative in (gradient, curvature) if name in ("cumprod", "prod") else (gradient,):
        exported = export_for(functools.partial(derivative, fx, fnp), "b, n")
        in_jax = jax.export.deserialize(bytearray(exported.to_jax()))
        for b, n in ((1, 4), (5, 1), (6, 7)):
            (x,) = arrays_for(("b, n",), {"b": b, "n": n})
            expected = derivative(jax, jnp, x)
            assert_near(exported.call(x), expected, DERIVATIVE)
            assert_near(in_jax.call(x), expected, DERIVATIVE)


def test_exporting_traces_once() -> None:
    traces = []

    def f(x: fx.Array) -> fx.Array:
        traces.append(x.shape)
        return fnp.sum(x, axis=0)

    exported = export_for(f, "b, 3")
    for n in (1, 2, 5):
        assert_near(exported.call(np.ones((n, 3), np.float32)), np.full(3, n, np.float32), DERIVATIVE)
    assert len(traces) == 1
    assert repr(exported) == "<f exported for cpu: (f32[b,3]) -> (f32[3])>"


def test_loaded_functions_equal_the_exported() -> None:
    exported = export_for(lambda x, y: (x[:, None] * y, x.shape[0]), "b", "2*b + c", constraints=("c >= 2",))
    loaded = fx.load(exported.serialize())
    assert loaded.serialize() == exported.serialize()
    assert str(loaded.in_avals) == str(exported.in_avals)
    assert str(loaded.jaxpr) == str(exported.jaxpr)
    assert pickle.loads(pickle.dumps(exported)).serialize() == exported.serialize()
    with pytest.raises(ShapeError, match="the constraint c >= 2"):
        loaded.call(np.ones(3, np.float32), np.ones(7, np.float32))


@pytest.mark.parametrize(
    ("shapes", "constraints", "called", "message"),
    [
        (("b, 3",), (), ((2, 4),), r"exported for args\[0\] of type f32\[b,3\], but called with f32\[2,4\]"),
        (("b, 3",), (), ((2,),), r"of type f32\[b,3\], but called with f32\[2\]"),
        (("b, b",), (), ((2, 3),), r"size 3 of args\[0\] along axis 1, which is not b = 2"),
        (("b", "b"), (), ((2,), (3,)), r"size 3 of args\[1\] along axis 0, which is not b = 2 \(b = 2, from b = 2"),
        (("2*b",), (), ((3,),), "size 3 .* which is not 2\\*b for an integer b >= 1"),
        (("b - 2",), (), ((0,),), None),
        (("b",), (), ((0,),), "size 0 .* which is not b for an integer b >= 1"),
        (("b, 2*b + c",), (), ((2, 4),), "size 4 .* not c \\+ 2\\*b for an integer c >= 1"),
        (("b",), ("b >= 4",), ((3,),), "sizes that do not satisfy the constraint b >= 4"),
        (("b",), ("mod(b, 4) == 0",), ((6,),), "the constraint mod\\(b, 4\\) == 0"),
        (("b",), ("b <= 4",), ((5,),), "the constraint b <= 4"),
    ],
)
def test_calls_with_shapes_that_do_not_match(
    shapes: tuple[str, ...], constraints: tuple[str, ...], called: tuple[tuple[int, ...], ...], message: str | None
) -> None:
    exported = export_for(lambda *xs: [x + 1 for x in xs], *shapes, constraints=constraints)
    in_jax = jax.export.deserialize(bytearray(exported.to_jax()))
    xs = [np.ones(shape, np.float32) for shape in called]
    if message is None:
        assert_near(exported.call(*xs), [x + 1 for x in xs], DERIVATIVE)
        return
    with pytest.raises((TypeError, ShapeError), match=message):
        exported.call(*xs)
    with pytest.raises(ValueError, match="."):
        in_jax.call(*xs)


def test_variables_must_be_computable_from_shapes() -> None:
    with pytest.raises(ValueError, match="the dimension variables a, b cannot be computed from the shapes"):
        export_for(lambda x: x, "a*b")
    with pytest.raises(ValueError, match="the dimension variables b cannot be computed"):
        export_for(lambda x: x, "b^2")
    assert export_for(lambda x: x.sum(), "a, a + 2*b").call(np.ones((2, 6), np.float32)) == 12


def test_shapes_of_one_export_have_one_scope() -> None:
    (a,), (b,) = fx.symbolic_shape("a"), fx.symbolic_shape("b")
    with pytest.raises(ValueError, match="of different scopes"):
        fx.export(fx.jit(lambda x, y: (x, y)))(
            fx.ShapeDtypeStruct((a,), "float32"), fx.ShapeDtypeStruct((b,), "float32")
        )


def test_python_control_flow_on_sizes() -> None:
    def f(x: fx.Array) -> fx.Array:
        return x[:4] if x.shape[0] >= 4 else x

    with pytest.raises(InconclusiveDimensionOperation, match="the comparison b >= 4 of symbolic dimensions"):
        export_for(f, "b")
    assert str(export_for(f, "b", constraints=("b >= 4",)).out_avals) == "(f32[4],)"


def test_calls_can_be_transformed() -> None:
    exported = export_for(lambda x: fnp.mean(fnp.sin(x), axis=-1), "b, n")
    x = fnp.arange(12.0).reshape(3, 4)

    def loss(f: Callable[[fx.Array], Any], x: fx.Array) -> Any:
        return fnp.sum(f(x) ** 2)

    def direct(x: fx.Array) -> fx.Array:
        return fnp.mean(fnp.sin(x), axis=-1)

    assert_near(fx.grad(lambda x: loss(exported.call, x))(x), fx.grad(lambda x: loss(direct, x))(x), DERIVATIVE)
    assert_near(fx.jit(exported.call)(x), direct(x), DERIVATIVE)
    batch = fnp.stack([x, x + 1])
    assert_near(fx.vmap(exported.call)(batch), fx.vmap(direct)(batch), DERIVATIVE)
    backward = exported.vjp()
    assert str(backward.in_avals) == "(f32[b,n], f32[b])"
    (ct,) = backward.call(x, fnp.ones(3))
    assert_near(ct, fnp.cos(x) / 4, DERIVATIVE)


def test_exported_functions_can_be_called_in_symbolic_programs() -> None:
    inner = export_for(lambda x: fnp.concatenate([x, x]), "2*b")
    outer = export_for(lambda x: inner.call(fnp.concatenate([x, x])), "c")
    assert str(outer.out_avals) == "(f32[4*c],)"
    assert_near(outer.call(np.ones(3, np.float32)), np.ones(12, np.float32), DERIVATIVE)
    with pytest.raises((ShapeError, InconclusiveDimensionOperation)):
        export_for(inner.call, "c")


def test_jax_differentiates_symbolic_exports() -> None:
    exported = export_for(lambda x: fnp.sum(fnp.sin(x)), "b")
    in_jax = jax.export.deserialize(bytearray(exported.to_jax(vjp_order=1)))
    x = np.arange(4, dtype=np.float32)
    assert_near(jax.grad(in_jax.call)(x), np.cos(x), DERIVATIVE)


def test_several_platforms() -> None:
    (b,) = fx.symbolic_shape("b")
    exported = fx.export(fx.jit(lambda x: fnp.cumsum(x)), platforms=["cpu", "tpu"])(
        fx.ShapeDtypeStruct((b,), "float32")
    )
    in_jax = jax.export.deserialize(bytearray(exported.to_jax()))
    for n in (1, 4):
        assert_near(in_jax.call(np.ones(n, np.float32)), np.arange(1, n + 1, dtype=np.float32), DERIVATIVE)


def test_constants_and_unused_arguments() -> None:
    table = np.arange(3, dtype=np.float32)
    exported = export_for(lambda x, y: fnp.zeros(y.shape[0])[:, None] + table, "a", "b")
    in_jax = jax.export.deserialize(bytearray(exported.to_jax()))
    xs = [np.ones(2, np.float32), np.ones(4, np.float32)]
    for call in (exported.call, in_jax.call):
        assert_near(untyped(call)(*xs), np.broadcast_to(table, (4, 3)), DERIVATIVE)


def test_symbolic_args_specs_equal_those_of_jax() -> None:
    args = ({"w": np.zeros((3, 4), np.float32), "v": np.zeros(4)}, np.zeros((2, 3), np.int32))
    for specs in (None, "...", ("...", "b, _"), [{"w": "3, n", "v": "n"}, None], ({"w": "_, 4", "v": None}, "b, ...")):
        expected = jax.export.symbolic_args_specs(args, specs)
        actual: Any = fx.symbolic_args_specs(args, specs)
        assert str(jax.tree.map(lambda t: t.shape, expected)) == str(fx.tree.map(lambda t: t.shape, actual))
    with pytest.raises(ValueError, match="symbolic_args_specs: shapes_specs must have the structure of args"):
        fx.symbolic_args_specs(args, ("b", "b", "b"))


def test_damaged_dimensions_are_rejected() -> None:
    data = export_for(lambda x: x.reshape(-1) * x.shape[0], "bbb, 3", constraints=("bbb >= 2",)).serialize()
    for old, new in (
        (b"bbb >= 2", b"bbb ++ 2"),
        (b"3*bbb", b"3*bb$"),
        (b"3*bbb", b"3 * 2"),
        (b"bbb >= 2", b"bbb <= 0"),
    ):
        broken = re.sub(re.escape(old), new.replace(b"\\", b"\\\\"), data)
        assert broken != data
        with pytest.raises(ParseError):
            fx.load(broken)


def test_symbolic_shapes_outside_of_export() -> None:
    b, n = fx.symbolic_shape("b, n")
    assert str(fx.eval_shape(lambda x: x @ x.T, fx.ShapeDtypeStruct((b, n), "float32")).shape) == "(b, b)"
    with pytest.raises(InconclusiveDimensionOperation, match="symbolic dimension"):
        fnp.zeros((b,))


# ------------------------------------------------------------------ jit(f, shapes=...)


@pytest.mark.parametrize("name", _PROGRAMS)
def test_jit_traces_programs_once(name: str) -> None:
    f, shapes = _PROGRAMS[name]
    traces = []

    def counted(*xs: Any) -> Any:
        traces.append(xs)
        return f(fx, fnp, *xs)

    jitted = fx.jit(counted, shapes=shapes)
    for sizes in _SIZES:
        xs = arrays_for(shapes, sizes)
        assert_near(jitted(*xs), fx.jit(lambda *xs: f(fx, fnp, *xs))(*xs), DERIVATIVE)
    assert len(traces) == 1


def test_jit_with_symbolic_shapes_is_transformed() -> None:
    traces = []

    @fx.jit(static_argnums=2, shapes=("b, n", None))
    def f(x: Any, y: Any, power: int, *, scale: Any) -> Any:
        traces.append((x.shape, y["bias"].shape, scale.shape, power))
        return fnp.mean(fnp.tanh(x * scale) ** power, axis=0) + y["bias"]

    def reference(x: Any, y: Any, power: int, *, scale: Any) -> Any:
        return jnp.mean(jnp.tanh(x * scale) ** power, axis=0) + y["bias"]

    y = {"bias": np.float32(0.5)}
    for b, n in ((1, 1), (2, 3), (5, 4)):
        x, scale = arrays_for(("b, n", "1"), {"b": b, "n": n})
        assert_near(f(x, y, 2, scale=scale), reference(x, y, 2, scale=scale), DERIVATIVE)
        assert_near(
            fx.grad(lambda x, scale=scale: fnp.sum(f(x, y, 2, scale=scale)))(x),
            jax.grad(lambda x, scale=scale: jnp.sum(reference(x, y, 2, scale=scale)))(x),
            DERIVATIVE,
        )
        batch = np.stack([x, 2 * x])
        assert_near(
            fx.vmap(lambda x, scale=scale: f(x, y, 2, scale=scale))(batch),
            jax.vmap(lambda x, scale=scale: reference(x, y, 2, scale=scale))(batch),
            DERIVATIVE,
        )
    assert [(str(x), *others) for x, *others in traces] == [("(b, n)", (), (1,), 2)]
    assert f.explain_retrace(np.ones((9, 8), "f"), y, 2, scale=np.ones(1, "f")) == "f has a trace for these arguments"
    assert "was f32[1] and is f32[2]" in f.explain_retrace(np.ones((9, 2), "f"), y, 2, scale=np.ones(2, "f"))
    f(np.ones((5, 4), np.float32), y, 3, scale=np.ones(1, np.float32))
    assert len(traces) == 2
    exported = fx.export(fx.jit(lambda x: f(x, y, 2, scale=np.ones(1, np.float32))))(
        fx.ShapeDtypeStruct(fx.symbolic_shape("r, 2"), "float32")
    )
    assert str(exported.out_avals) == "(f32[2],)"


def test_jit_takes_constraints_with_symbolic_types() -> None:
    def first(x: Any) -> Any:
        return x[:4] if x.shape[0] >= 4 else x

    with pytest.raises(InconclusiveDimensionOperation, match="b >= 4"):
        fx.jit(first, shapes="b")(np.ones(5))
    types = fx.symbolic_args_specs((np.ones(1, np.float32),), ("b",), constraints=("b >= 4",))
    jitted = fx.jit(first, shapes=types)
    assert jitted(np.arange(6.0)).tolist() == jitted(np.arange(5.0)).tolist() == [0, 1, 2, 3]
    with pytest.raises(ShapeError, match=r"first was traced for .* f32\[b\].*do not satisfy the constraint b >= 4"):
        jitted(np.ones(3))


@pytest.mark.parametrize(
    ("shapes", "error", "message"),
    [
        (("b, n", "n"), ShapeError, "the size 5 of the argument `y` of f along axis 0, which is not n = 4"),
        (("b, n", "b, n"), ValueError, r"jit of f: shapes: 'b, n' has 2 axes, but the argument is of type f32\[5\]"),
        (("2*b, _", None), ShapeError, "which is not 2\\*b for an integer b >= 1"),
        (("b +, n", None), ValueError, "b \\+"),
        ((3, None), TypeError, "jit of f: shapes must be strings such as 'b, _', ShapeDtypeStruct or None, got 3"),
        ((None, None, "b"), ValueError, "jit of f: shapes"),
    ],
)
def test_shapes_of_jit_that_do_not_fit(shapes: Any, error: type[Exception], message: str) -> None:
    @fx.jit(shapes=shapes)
    def f(x: Any, y: Any) -> Any:
        return fnp.sum(x) + fnp.sum(y)

    with pytest.raises(error, match=message):
        f(np.ones((3, 4), np.float32), np.ones(5, np.float32))
