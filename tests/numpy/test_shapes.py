"""Creation, shapes and joining against `jax.numpy`, eager and staged."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.numpy.agreement import agree, both, check, f32, numbers
from tracefx.core.array import Array

Function = Callable[[Any, Any], Any]

# Each is called with the namespace and an array `f32[2,3,4]`.
OF_AN_ARRAY: Final[tuple[Function, ...]] = (
    lambda m, x: m.reshape(x, (4, 6)),
    lambda m, x: m.reshape(x, -1),
    lambda m, x: m.reshape(x, (2, -1, 2)),
    lambda m, x: m.reshape(x, (4, 6), order="F"),
    lambda m, x: m.reshape(x[:0], (0, 5)),
    lambda m, x: m.ravel(x),
    lambda m, x: m.ravel(x, order="F"),
    lambda m, x: m.transpose(x),
    lambda m, x: m.transpose(x, (1, -1, 0)),
    lambda m, x: m.matrix_transpose(x),
    lambda m, x: m.swapaxes(x, 0, -1),
    lambda m, x: m.moveaxis(x, 0, -1),
    lambda m, x: m.moveaxis(x, (0, 1), (-1, 0)),
    lambda m, x: m.squeeze(x[:1]),
    lambda m, x: m.squeeze(x[:, :1], 1),
    lambda m, x: m.expand_dims(x, 1),
    lambda m, x: m.expand_dims(x, (0, -1)),
    lambda m, x: m.broadcast_to(x, (5, 2, 3, 4)),
    lambda m, x: m.broadcast_arrays(x, x[0, 0], 1.0),
    lambda m, x: m.flip(x),
    lambda m, x: m.flip(x, (0, -1)),
    lambda m, x: m.roll(x, 3),
    lambda m, x: m.roll(x, -1, 1),
    lambda m, x: m.roll(x, (1, 2), (0, 2)),
    lambda m, x: m.tile(x, 2),
    lambda m, x: m.tile(x, (2, 1, 1, 2)),
    lambda m, x: m.tile(x, (2, 0)),
    lambda m, x: m.repeat(x, 2),
    lambda m, x: m.repeat(x, 3, axis=1),
    lambda m, x: m.repeat(x, np.array([1, 0, 2]), axis=1),
    lambda m, x: m.pad(x, 1),
    lambda m, x: m.pad(x, (1, 2), constant_values=7),
    lambda m, x: m.pad(x, ((0, 1), (2, 0), (0, 0))),
    lambda m, x: m.atleast_1d(x[0, 0, 0]),
    lambda m, x: m.atleast_2d(x[0, 0]),
    lambda m, x: m.concatenate([x, x], 1),
    lambda m, x: m.concatenate([x, x[0]], None),
    lambda m, x: m.concatenate([x, m.ones((2, 3, 1), "int32")], -1),
    lambda m, x: m.concatenate([x, x], dtype="float16"),
    lambda m, x: m.concatenate(x),
    lambda m, x: m.stack([x, x]),
    lambda m, x: m.stack([x, x], -1),
    lambda m, x: m.stack([1, 2.5]),
    lambda m, x: m.vstack([x[0, 0], x[1, 0]]),
    lambda m, x: m.hstack([x, x]),
    lambda m, x: m.hstack([x[0, 0], x[0, 1]]),
    lambda m, x: m.append(x, 1.0),
    lambda m, x: m.split(x, 2),
    lambda m, x: m.split(x, [1, 3], -1),
    lambda m, x: m.split(x, 1),
    lambda m, x: m.array_split(x, 3, 2),
    lambda m, x: m.tril(x),
    lambda m, x: m.triu(x, 1),
    lambda m, x: m.diag(x[0, 0]),
    lambda m, x: m.diag(x[0, 0], -1),
    lambda m, x: m.diag(x[0]),
    lambda m, x: m.diag(x[0], 2),
    lambda m, x: m.diagonal(x, -1),
    lambda m, x: m.diagonal(x, 1, 0, 2),
    lambda m, x: m.trace(x[0]),
    lambda m, x: m.zeros_like(x),
    lambda m, x: m.ones_like(x, dtype="int8", shape=(2,)),
    lambda m, x: m.full_like(x, x[0, 0, 0]),
    lambda m, x: m.array([x, x]),
    lambda m, x: m.array([[x[0, 0, 0], 1], [2.5, x[1, 1, 1]]]),
    lambda m, x: m.array(x, dtype="int32", ndmin=5),
    lambda m, x: m.meshgrid(x[0, 0], x[0, :, 0]),
    lambda m, x: m.meshgrid(x[0, 0], x[0, :, 0], indexing="ij", sparse=True),
    lambda m, x: m.linspace(x[0, 0], x[1, 1], 5, axis=1),
    lambda m, x: m.astype(x, "int8"),
    lambda m, x: m.astype(x, bool),
    lambda m, x: x.astype("bfloat16"),
    lambda m, x: x.reshape(6, 4),
    lambda m, x: x.reshape((6, -1)),
    lambda m, x: x.T,
    lambda m, x: x.mT,
    lambda m, x: x.transpose(0, 2, 1),
    lambda m, x: x.flatten(),
    lambda m, x: x.ravel(),
    lambda m, x: x[:1].squeeze(),
    lambda m, x: x.swapaxes(0, 1),
    lambda m, x: x.clip(0, 1),
)


@pytest.mark.parametrize("function", OF_AN_ARRAY, ids=range(len(OF_AN_ARRAY)))
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_a_function_of_an_array(function: Function, dtype: str) -> None:
    x, y = both(numbers(dtype, (2, 3, 4)))
    expected = function(jnp, y)
    check(function(fnp, x), expected)
    check(fx.jit(lambda x: function(fnp, x))(x), expected)


# Each is called with the namespace.
OF_NOTHING: Final[tuple[Callable[[Any], Any], ...]] = (
    lambda m: m.array(1.0),
    lambda m: m.array(1),
    lambda m: m.array(True),
    lambda m: m.array([1.0, 2]),
    lambda m: m.array([]),
    lambda m: m.array([[], []]),
    lambda m: m.array([1, np.float16(2)]),
    lambda m: m.array([True, 1]),
    lambda m: m.array([[1, 2], (3, 4)]),
    lambda m: m.array([np.ones(2), np.zeros(2)]),
    lambda m: m.array(np.float64(1)),
    lambda m: m.array(np.arange(3)),
    lambda m: m.array([1.0], dtype="float64"),
    lambda m: m.array(np.ones(2), dtype="float64"),
    lambda m: m.array(3.7, dtype=int),
    lambda m: m.array([3.7, 2.2], dtype="uint8"),
    lambda m: m.array([1, 0, 2], dtype=bool),
    lambda m: m.array(1, ndmin=2),
    lambda m: m.array([[1], [2, 3]]),
    lambda m: m.array([2**40]),
    lambda m: m.array("text"),
    lambda m: m.array(None),
    lambda m: m.array([None]),
    lambda m: m.array({}),
    lambda m: m.asarray(1j),
    lambda m: m.asarray(range(3)),
    lambda m: m.full((2,), 1.0),
    lambda m: m.full(2, 1, "int8"),
    lambda m: m.full((2, 3), np.arange(3)),
    lambda m: m.full((2,), 300, "int8"),
    lambda m: m.full_like(1.0, 2),
    lambda m: m.zeros_like(1),
    lambda m: m.zeros(()),
    lambda m: m.zeros((0, 2)),
    lambda m: m.zeros((2, 3), "int8"),
    lambda m: m.ones(3, bool),
    lambda m: m.ones([2, np.int64(3)], float),
    lambda m: m.zeros(-1),
    lambda m: m.zeros(2.0),
    lambda m: m.zeros((2, "a")),
    lambda m: m.zeros(None),
    lambda m: m.arange(3),
    lambda m: m.arange(3.5),
    lambda m: m.arange(1, 7, 2),
    lambda m: m.arange(0, 1, 0.1),
    lambda m: m.arange(5, 0, -1),
    lambda m: m.arange(3, dtype=float),
    lambda m: m.arange(3, dtype="int8"),
    lambda m: m.arange(np.float64(3)),
    lambda m: m.arange(0, 1, 0.1, dtype=int),
    lambda m: m.arange(-3),
    lambda m: m.arange(2, 5),
    lambda m: m.arange(3j),
    lambda m: m.arange(0, 3, 0),
    lambda m: m.arange("text"),
    lambda m: m.arange(True),
    lambda m: m.linspace(0, 1, 5),
    lambda m: m.linspace(0, 1, 5, endpoint=False),
    lambda m: m.linspace(0, 10, 5, dtype=int),
    lambda m: m.linspace(0, 1, 1),
    lambda m: m.linspace(0, 1, 0),
    lambda m: m.linspace(0, 1, -1),
    lambda m: m.linspace(0, 1j, 3),
    lambda m: m.linspace(0, 1, 3, dtype="float16"),
    lambda m: m.eye(2),
    lambda m: m.eye(2, 3, 1, int),
    lambda m: m.eye(3, k=-1, dtype=bool),
    lambda m: m.identity(2),
    lambda m: m.tri(3, k=-1),
    lambda m: m.tri(2, 4, 1, dtype="int8"),
)


@pytest.mark.parametrize("function", OF_NOTHING, ids=range(len(OF_NOTHING)))
def test_an_array_from_nothing(function: Callable[[Any], Any]) -> None:
    try:
        expected = function(jnp)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
        arithmetic = isinstance(error, ArithmeticError)
        with pytest.raises((TypeError, ValueError, OverflowError, ZeroDivisionError)) as caught:
            function(fnp)
        assert isinstance(caught.value, ArithmeticError) == arithmetic
    else:
        check(function(fnp), expected)
        check(fx.jit(lambda: function(fnp))(), expected)


def test_foreign_memory_is_copied() -> None:
    host = np.ones(3, np.float32)
    x = fnp.array(host)
    y = fnp.asarray(host)
    host[0] = 5
    assert x.tolist() == y.tolist() == [1, 1, 1]
    assert fnp.asarray(x) is x


def test_an_array_of_another_library() -> None:
    check(fnp.asarray(jnp.arange(3)), jnp.arange(3))  # type: ignore[arg-type]  # by __array__


# ------------------------------------------------------------------ products

PRODUCTS: Final = (
    *(("matmul", a, b) for a, b in [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4))]),
    *(("matmul", a, b) for a, b in [((5, 2, 3), (3, 4)), ((5, 2, 3), (5, 3, 4)), ((2, 3), (5, 3, 4))]),
    *(("matmul", a, b) for a, b in [((6, 1, 2, 3), (5, 3, 4)), ((1, 5, 2, 3), (6, 1, 3, 4)), ((3,), (5, 3, 4))]),
    *(("matmul", a, b) for a, b in [((5, 2, 3), (3,)), ((0, 3), (3, 2)), ((2, 0), (0, 3)), ((1, 2, 3), (1, 3, 2))]),
    *(("matmul", a, b) for a, b in [((), (3,)), ((2, 3), (2, 3)), ((2, 2, 3), (3, 3, 4))]),
    *(("dot", a, b) for a, b in [((), ()), ((), (3,)), ((3,), (3,)), ((2, 3), (3, 4)), ((2, 3), (5, 3, 4))]),
    *(("dot", a, b) for a, b in [((2, 5, 3), (3,)), ((3,), (4,)), ((2, 3), (2, 3))]),
    *(("inner", a, b) for a, b in [((3,), (3,)), ((2, 3), (4, 3)), ((), (3,)), ((2, 3), (2,))]),
    *(("outer", a, b) for a, b in [((3,), (2,)), ((2, 2), (3,)), ((), (3,))]),
    *(("vdot", a, b) for a, b in [((3,), (3,)), ((2, 3), (3, 2)), ((2,), (3,))]),
    *(("tensordot", a, b) for a, b in [((2, 3, 4), (3, 4, 5)), ((2, 3), (2, 3)), ((2, 3), (3, 2))]),
)


@pytest.mark.parametrize(("name", "one", "other"), PRODUCTS)
@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("int32", "float32"), ("int8", "int8"), ("bool", "bool")])
def test_products(name: str, one: tuple[int, ...], other: tuple[int, ...], dtypes: tuple[str, str]) -> None:
    (x1, y1), (x2, y2) = both(numbers(dtypes[0], one, 1)), both(numbers(dtypes[1], other, 2))
    f, g = getattr(fnp, name), getattr(jnp, name)
    agree(lambda: f(x1, x2), lambda: g(y1, y2))
    if dtypes == ("float32", "float32"):
        agree(lambda: fx.jit(f)(x1, x2), lambda: g(y1, y2))


@pytest.mark.parametrize("axes", [0, 1, 2, (0, 1), ([0, 1], [1, 0]), ([1], [-1]), 3, ([0], [0, 1]), (0, 1, 2)])
def test_axes_of_tensordot(axes: Any) -> None:
    (x1, y1), (x2, y2) = both(numbers("float32", (3, 3), 1)), both(numbers("float32", (3, 3), 2))
    agree(lambda: fnp.tensordot(x1, x2, axes), lambda: jnp.tensordot(y1, y2, axes))


def test_the_dtype_of_a_product() -> None:
    (x, y) = both(numbers("int8", (3, 3), 1))
    agree(lambda: fnp.dot(x, x, preferred_element_type="int32"), lambda: jnp.dot(y, y, preferred_element_type="int32"))
    agree(lambda: fnp.matmul(x, 2.0 * x), lambda: jnp.matmul(y, 2.0 * y))


# ------------------------------------------------------------------ printed programs

PROGRAMS: Final[tuple[Function, ...]] = (
    lambda m, x: m.sum(x + m.sin(x) * 3.0),
    lambda m, x: m.ones(1),
    lambda m, x: x.astype("int32"),
    lambda m, x: m.dot(x + 1, x + 1),
    lambda m, x: m.mean(x),
    lambda m, x: x[0],
    lambda m, x: x[-1],
    lambda m, x: x[::-2],
    lambda m, x: x[None],
    lambda m, x: m.max(x, keepdims=True),
    lambda m, x: x**2 + 2**x,
    lambda m, x: m.arange(3) + m.full((3,), 2),
    lambda m, x: m.eye(3),
    lambda m, x: m.logical_not(x),
    lambda m, x: m.concatenate([x, x]).reshape(2, 3).T,
    lambda m, x: m.argmax(x),
    lambda m, x: m.any(x),
    lambda m, x: m.stack([x, x]),
    lambda m, x: m.log10(x) / m.log2(x),
)


@pytest.mark.parametrize("function", PROGRAMS, ids=range(len(PROGRAMS)))
def test_programs_print_as_jaxs(function: Function) -> None:
    x, y = both(f32([1, 2, 3]))
    ours = fx.make_jaxpr(lambda x: function(fnp, x))(x)
    theirs = jax.make_jaxpr(lambda y: function(jnp, y))(y)

    def words(text: str) -> list[str]:
        # Parameters only JAX has: shardings, and the dynamic sizes of a shape.
        for parameter in ("out_sharding=None", "sharding=None", "dimensions=None"):
            text = text.replace(f" {parameter}", "").replace(f"{parameter} ", "")
        # What the type of the result says already, JAX leaves out.
        text = re.sub(r"(broadcast_dimensions=\([\d, ]*\)) shape=\([\d, ]*\)", r"\1", text)
        text = text.replace("[broadcast_dimensions=()]", "")
        return text.split()

    assert words(ours.text(style="jax")) == words(str(theirs))


# ------------------------------------------------------------------ bad input


wrong: Any = fnp  # whose signatures these calls break


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda x: wrong.reshape(x, (4, 2)), TypeError, "6 elements"),
        (lambda x: wrong.reshape(x, (-1, -1)), TypeError, "one -1"),
        (lambda x: wrong.reshape(x, (-1, 4)), TypeError, "whole size"),
        (lambda x: wrong.reshape(x, (1.5, 4)), TypeError, "1.5"),
        (lambda x: wrong.reshape(x, (-2, 3)), ValueError, "negative"),
        (lambda x: wrong.reshape([1, 2], (2,)), TypeError, "reshape: a must be an array"),
        (lambda x: wrong.reshape(x, (6,), order="K"), ValueError, "order"),
        (lambda x: wrong.transpose(x, (0, 0)), ValueError, "twice"),
        (lambda x: wrong.transpose(x, (0,)), ValueError, "each"),
        (lambda x: wrong.transpose(x, (0, 2)), ValueError, "axes 2 is out of bounds"),
        (lambda x: wrong.swapaxes(x, 0, 5), ValueError, "axis2 5"),
        (lambda x: wrong.moveaxis(x, 0, (0, 1)), ValueError, "equally many"),
        (lambda x: wrong.squeeze(x, 0), ValueError, "size 1"),
        (lambda x: wrong.squeeze(x, 3), ValueError, "axis 3"),
        (lambda x: wrong.expand_dims(x, 4), ValueError, "axis 4"),
        (lambda x: wrong.broadcast_to(x, (3, 3)), ValueError, "do not broadcast"),
        (lambda x: wrong.broadcast_to(x, (3,)), ValueError, "does not fit"),
        (lambda x: wrong.concatenate([]), ValueError, "at least one"),
        (lambda x: wrong.concatenate(1), TypeError, "list or tuple"),
        (lambda x: wrong.concatenate([x, [1]]), TypeError, r"arrays\[1\]"),
        (lambda x: wrong.concatenate([1, 2]), ValueError, "scalars"),
        (lambda x: wrong.concatenate([x, fnp.ones((2, 2))]), ValueError, "but for axis 0"),
        (lambda x: wrong.concatenate([x, x], 2), ValueError, "axis 2"),
        (lambda x: wrong.stack([x, x[0]]), ValueError, "one shape"),
        (lambda x: wrong.split(x, 4, 1), ValueError, "equal sections"),
        (lambda x: wrong.split(x, 0), ValueError, "positive"),
        (lambda x: wrong.repeat(x, [1, 2], 1), ValueError, "2 entries"),
        (lambda x: wrong.pad(x, -1), ValueError, "negative"),
        (lambda x: wrong.pad(x, (1, 2, 3)), ValueError, "pad_width"),
        (lambda x: wrong.pad(x, 1, "empty"), ValueError, "'edge', .*got 'empty'"),
        (lambda x: wrong.tril(x[0]), ValueError, "two axes"),
        (lambda x: wrong.diag(x[None]), ValueError, "vector or a matrix"),
        (lambda x: wrong.matrix_transpose(x[0]), ValueError, "two axes"),
        (lambda x: wrong.meshgrid(x), ValueError, r"xi\[0\]"),
        (lambda x: wrong.meshgrid(x[0], indexing="yx"), ValueError, "indexing"),
        (lambda x: wrong.astype(x, "float31"), TypeError, "float31"),
        (lambda x: wrong.ones(2, "float31"), TypeError, "ones: dtype"),
        (lambda x: wrong.array([x, "a"]), TypeError, "'a'"),
        (lambda x: wrong.array([[1], [2, 3]]), ValueError, "equal lengths"),
        (lambda x: wrong.matmul(x, 2), ValueError, "must have axes"),
        (lambda x: wrong.matmul(x, x), TypeError, r"f32\[2,3\] and f32\[2,3\] do not fit"),
        (lambda x: wrong.dot(x, [1, 2, 3]), TypeError, "dot: x2"),
    ],
)
def test_bad_input(call: Callable[[Any], object], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call(fnp.ones((2, 3)))


def test_a_traced_shape_is_explained() -> None:
    def flattened(x: Array) -> Array:
        return x.reshape(fnp.array(x.shape).prod())  # type: ignore[arg-type]  # the mistake in question

    with pytest.raises(TypeError) as caught:
        fx.jit(flattened)(fnp.ones((2, 3)))
    message = str(caught.value)
    line = flattened.__code__.co_firstlineno + 1
    for part in ("i32[]", "reduce_prod", f"{__file__}:{line}", "Shapes are static", "x.shape"):
        assert part in message

    def with_numpy(x: Array) -> Array:
        return x.reshape(int(np.prod(x.shape)))

    assert fx.jit(with_numpy)(fnp.ones((2, 3))).shape == (6,)
