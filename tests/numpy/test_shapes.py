"""Array creation, shape manipulation and joining: copies of foreign memory, printed programs, error messages."""

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
from tests.numpy.agreement import both, check, f32
from tests.versions import HAS_LOG2_PRIMITIVE
from tracefx.core import Array, Literal

Function = Callable[[Any, Any], Any]


def test_foreign_memory_is_copied() -> None:
    host = np.ones(3, np.float32)
    x = fnp.array(host)
    y = fnp.asarray(host)
    host[0] = 5
    assert x.tolist() == y.tolist() == [1, 1, 1]
    assert fnp.asarray(x) is x


def test_asarray_of_a_jax_array() -> None:
    check(fnp.asarray(jnp.arange(3)), jnp.arange(3))  # type: ignore[arg-type]  # through __array__


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
    lambda m, x: m.log10(x),
    *([] if HAS_LOG2_PRIMITIVE else [lambda m, x: m.log10(x) / m.log2(x)]),
)


@pytest.mark.parametrize("function", PROGRAMS, ids=range(len(PROGRAMS)))
def test_programs_print_as_in_jax(function: Function) -> None:
    x, y = both(f32([1, 2, 3]))
    program = fx.make_jaxpr(lambda x: function(fnp, x))(x)
    jax_program = jax.make_jaxpr(lambda y: function(jnp, y))(y)

    def words(text: str) -> list[str]:
        # Parameters that only JAX has: shardings, and the dynamic sizes of a shape.
        for parameter in ("out_sharding=None", "sharding=None", "dimensions=None"):
            text = text.replace(f" {parameter}", "").replace(f"{parameter} ", "")
        # JAX leaves out the shape where the result type shows it.
        text = re.sub(r"(broadcast_dimensions=\([\d, ]*\)) shape=\([\d, ]*\)", r"\1", text)
        text = text.replace("[broadcast_dimensions=()]", "")
        return text.split()

    assert words(program.text(style="jax")) == words(str(jax_program))


# ------------------------------------------------------------------ bad input


untyped: Any = fnp  # without a signature, so that type checkers accept the invalid calls


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda x: untyped.reshape(x, (4, 2)), TypeError, "6 elements"),
        (lambda x: untyped.reshape(x, (-1, -1)), TypeError, "only one size may be -1"),
        (lambda x: untyped.reshape(x, (-1, 4)), TypeError, "whole size"),
        (lambda x: untyped.reshape(x, (1.5, 4)), TypeError, "1.5"),
        (lambda x: untyped.reshape(x, (-2, 3)), ValueError, "negative"),
        (lambda x: untyped.reshape([1, 2], (2,)), TypeError, "reshape: a must be an array"),
        (lambda x: untyped.reshape(x, (6,), order="K"), ValueError, "order"),
        (lambda x: untyped.transpose(x, (0, 0)), ValueError, "twice"),
        (lambda x: untyped.transpose(x, (0,)), ValueError, "each"),
        (lambda x: untyped.transpose(x, (0, 2)), ValueError, "axes 2 is out of bounds"),
        (lambda x: untyped.swapaxes(x, 0, 5), ValueError, "axis2 5"),
        (lambda x: untyped.moveaxis(x, 0, (0, 1)), ValueError, "equally many"),
        (lambda x: untyped.squeeze(x, 0), ValueError, "size 1"),
        (lambda x: untyped.squeeze(x, 3), ValueError, "axis 3"),
        (lambda x: untyped.expand_dims(x, 4), ValueError, "axis 4"),
        (lambda x: untyped.broadcast_to(x, (3, 3)), ValueError, "cannot be broadcast to the shape"),
        (lambda x: untyped.broadcast_to(x, (3,)), ValueError, "cannot be broadcast to the shape"),
        (lambda x: untyped.concatenate([]), ValueError, "at least one"),
        (lambda x: untyped.concatenate(1), TypeError, "list or tuple"),
        (lambda x: untyped.concatenate([x, [1]]), TypeError, r"arrays\[1\]"),
        (lambda x: untyped.concatenate([1, 2]), ValueError, "scalars"),
        (lambda x: untyped.concatenate([x, fnp.ones((2, 2))]), ValueError, "but for axis 0"),
        (lambda x: untyped.concatenate([x, x], 2), ValueError, "axis 2"),
        (lambda x: untyped.concatenate(x, x), TypeError, r"concatenate takes the arrays as one sequence, conc"),
        (lambda x: untyped.stack(x, x), TypeError, r"stack takes the arrays as one sequence, stack\(\[x, y\]\)"),
        (lambda x: untyped.stack([x, x[0]]), ValueError, "one shape"),
        (lambda x: untyped.split(x, 4, 1), ValueError, "equal sections"),
        (lambda x: untyped.split(x, 0), ValueError, "positive"),
        (lambda x: untyped.repeat(x, [1, 2], 1), ValueError, "2 entries"),
        (lambda x: untyped.pad(x, -1), ValueError, "negative"),
        (lambda x: untyped.pad(x, (1, 2, 3)), ValueError, "pad_width"),
        (lambda x: untyped.pad(x, 1, "median"), ValueError, "'edge', .*got 'median'"),
        (lambda x: untyped.tril(x[0]), ValueError, "two axes"),
        (lambda x: untyped.diag(x[None]), ValueError, "vector or a matrix"),
        (lambda x: untyped.matrix_transpose(x[0]), ValueError, "two axes"),
        (lambda x: untyped.meshgrid(x), ValueError, r"xi\[0\]"),
        (lambda x: untyped.meshgrid(x[0], indexing="yx"), ValueError, "indexing"),
        (lambda x: untyped.astype(x, "float31"), TypeError, "float31"),
        (lambda x: untyped.ones(2, "float31"), TypeError, "ones: dtype"),
        (lambda x: untyped.array([x, "a"]), TypeError, "'a'"),
        (lambda x: untyped.array([[1], [2, 3]]), ValueError, "equal lengths"),
        (lambda x: untyped.matmul(x, 2), ValueError, "must have axes"),
        (lambda x: untyped.matmul(x, x), TypeError, r"f32\[2,3\] and f32\[2,3\] do not fit"),
        (lambda x: untyped.dot(x, [1, 2, 3]), TypeError, "dot: x2"),
    ],
)
def test_invalid_arguments_raise(call: Callable[[Any], object], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call(fnp.ones((2, 3)))


def test_traced_shape_error_names_source_and_remedy() -> None:
    def flattened(x: Array) -> Array:
        return x.reshape(fnp.array(x.shape).prod())  # type: ignore[arg-type]  # tested

    with pytest.raises(TypeError) as caught:
        fx.jit(flattened)(fnp.ones((2, 3)))
    message = str(caught.value)
    line = flattened.__code__.co_firstlineno + 1
    for part in ("i32[]", "reduce_prod", f"{__file__}:{line}", "Shapes are static", "x.shape"):
        assert part in message

    def with_numpy(x: Array) -> Array:
        return x.reshape(int(np.prod(x.shape)))

    assert fx.jit(with_numpy)(fnp.ones((2, 3))).shape == (6,)


def test_shape_functions_take_nested_sequences() -> None:
    assert (fnp.shape(np.array(["a", "b"])), fnp.ndim(np.array("a")), fnp.size(np.array(["a"]))) == ((2,), 0, 1)
    assert (fnp.size([1, 2]), fnp.size([[1, 2]], 1), fnp.ndim([[1]]), fnp.shape([[1], [2]])) == (2, 2, 2, (2, 1))
    pairs: Any = (([1, 2], [1, 2]), ([1, 2], [1, 3]), ([1, 2], [1, 2, 3]), ([1, 2], np.array([1, 2])))
    for one, other in pairs:
        assert bool(fnp.array_equal(one, other)) == bool(jnp.array_equal(one, other))
        assert bool(fnp.array_equiv(one, [other])) == bool(np.array_equiv(one, [other]))
    got, want = fx.nn.one_hot([[0], [2]], 3), jax.nn.one_hot([[0], [2]], 3)
    assert (got.shape, got.tolist()) == (want.shape, want.tolist())


def test_traced_diagonal_offset() -> None:
    for name in ("eye", "tri"):
        create, jax_create = getattr(fnp, name), getattr(jnp, name)
        for k in (-5, -1, 0, 2, 7):
            got = fx.jit(lambda k, f=create: f(3, 4, k=k, dtype="int8"))(k)
            assert got.dtype == np.int8
            assert got.tolist() == jax_create(3, 4, k=k).tolist()
        got = fx.vmap(lambda k, f=create: f(3, k=k))(fnp.arange(-1, 2))
        assert got.tolist() == jax.vmap(lambda k, f=jax_create: f(3, k=k))(jnp.arange(-1, 2)).tolist()
        with pytest.raises(TypeError, match="integer scalar"):
            fx.jit(lambda k, f=create: f(3, k=k))(1.5)
    x = np.arange(24.0).reshape(2, 3, 4)
    for k in (-1, 0, 2):
        got = fx.jit(lambda k: fnp.trace(x, k, 1, 2))(k)
        assert got.tolist() == jax.jit(lambda k: jnp.trace(x, k, 1, 2))(k).tolist()


def test_take_along_axis_modes() -> None:
    x, indices = np.arange(12.0).reshape(3, 4), np.array([[1, 0], [2, 3], [0, 0]])
    want = np.take_along_axis(x, indices, 1).tolist()
    for mode in ("promise_in_bounds", fx.lax.GatherScatterMode.PROMISE_IN_BOUNDS, fx.lax.GatherScatterMode.CLIP):
        assert fnp.take_along_axis(x, indices, 1, mode=mode).tolist() == want
        assert fx.jit(lambda x, m=mode: fnp.take_along_axis(x, indices, 1, mode=m))(x).tolist() == want


def test_fill_value_of_a_diagonal_matrix_has_the_type_of_its_elements() -> None:
    jaxpr = fx.make_jaxpr(fnp.diag)(np.ones(3, np.float32))
    literals = [x for eqn in jaxpr.eqns for x in eqn.inputs if isinstance(x, Literal) and x.aval.dtype == np.float32]
    assert [(type(x.val), x.val) for x in literals] == [(float, 0.0)]
