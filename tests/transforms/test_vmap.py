"""`vmap`, against JAX and against a loop."""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
from tests.comparison import Case, assert_agree

X: Final = np.array([0.5, -1.5, 2.0], np.float32)
M: Final = np.arange(6, dtype=np.float32).reshape(2, 3)
T: Final = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

CASES: Final[dict[str, Case]] = {
    "axis 0": lambda F, N: F.vmap(lambda x: N.sin(x) * 2)(M),
    "axis 1": lambda F, N: F.vmap(lambda x: x * X[:2], in_axes=1)(M),
    "negative axis": lambda F, N: F.vmap(lambda x: N.sum(x, axis=0), in_axes=-1)(T),
    "negative in a tuple": lambda F, N: F.vmap(lambda x, y: x @ y, in_axes=(-2, 0))(T, np.ones((3, 4), np.float32)),
    "None": lambda F, N: F.vmap(lambda x, y: x + y, in_axes=(0, None))(M, X),
    "None first": lambda F, N: F.vmap(lambda x, y: x + y, in_axes=(None, 1))(2.0, M),
    "list of axes": lambda F, N: F.vmap(lambda x, y: x + y, in_axes=[0, None])(M, X),
    "prefix": lambda F, N: F.vmap(lambda p, y: p["a"] * p["b"] + y, in_axes=({"a": 0, "b": None}, 0))(
        {"a": M, "b": X}, M
    ),
    "prefix of a subtree": lambda F, N: F.vmap(lambda p, y: p["a"] * p["b"] + y, in_axes=(1, 0))(
        {"a": M, "b": M}, np.ones(3, np.float32)
    ),
    "tuple in tuple": lambda F, N: F.vmap(lambda p: p[0] + p[1], in_axes=((0, 1),))((M, M.T)),
    "None in a tree": lambda F, N: F.vmap(lambda p: p[0] * 2)((M, None)),
    "out_axes 1": lambda F, N: F.vmap(lambda x: x * 2, out_axes=1)(M),
    "out_axes -1": lambda F, N: F.vmap(lambda x: x * 2, out_axes=-1)(T),
    "out_axes prefix": lambda F, N: F.vmap(lambda x: {"a": x, "b": (x * 2, x.sum())}, out_axes={"a": 1, "b": 0})(M),
    "out_axes tuple": lambda F, N: F.vmap(lambda x: (x, x * 2), out_axes=(0, 1))(M),
    "out_axes list": lambda F, N: F.vmap(lambda x: [x, x * 2], out_axes=[0, 1])(M),
    "out_axes None": lambda F, N: F.vmap(lambda x, y: (x, y * 2), in_axes=(0, None), out_axes=(0, None))(M, X),
    "output not batched": lambda F, N: F.vmap(lambda x: (x, N.asarray(X)))(M),
    "output not batched, at -1": lambda F, N: F.vmap(lambda x: N.asarray(X), out_axes=-1)(M),
    "output not batched, at 1": lambda F, N: F.vmap(lambda x: N.asarray(X), out_axes=1)(M),
    "number out": lambda F, N: F.vmap(lambda x: 3.0)(M),
    "int out": lambda F, N: F.vmap(lambda x: 3)(M),
    "axis_size": lambda F, N: F.vmap(lambda: N.asarray(2.0), axis_size=3)(),
    "axis_size beside a mapped argument": lambda F, N: F.vmap(lambda x: x * 2, axis_size=2)(M),
    "in_axes None with axis_size": lambda F, N: F.vmap(lambda x: x * 2, in_axes=None, axis_size=2)(X),
    "keyword": lambda F, N: F.vmap(lambda x, *, k: x * k)(M, k=np.ones(2, np.float32)),
    "keyword tree": lambda F, N: F.vmap(lambda x, *, k: x * k["a"], in_axes=1)(M, k={"a": X}),
    "only keywords": lambda F, N: F.vmap(lambda *, k: k * 2)(k=M),
    "positional by keyword": lambda F, N: F.vmap(lambda x: x * 2)(x=M),
    "nested": lambda F, N: F.vmap(F.vmap(lambda x, y: x * y, in_axes=(0, None)), in_axes=(None, 0))(X, M),
    "nested, other axes": lambda F, N: F.vmap(
        F.vmap(lambda x: x @ X[:2], in_axes=1, out_axes=0), in_axes=2, out_axes=1
    )(T),
    "thrice": lambda F, N: F.vmap(F.vmap(F.vmap(lambda x: N.sin(x))))(T),
    "a function for all": lambda F, N: F.vmap(lambda f, x: f(x), in_axes=(None, 0))(N.sin, M),
    "sizes for all": lambda F, N: F.vmap(lambda x, n: N.sin(x).reshape(n, -1), in_axes=(0, None))(T, 6),
    "words for all": lambda F, N: F.vmap(F.lax.conv, (0, 0, None, None))(
        np.ones((2, 1, 1, 4, 4), np.float32), np.ones((2, 1, 1, 2, 2), np.float32), (1, 1), "VALID"
    ),
    "outer product": lambda F, N: F.vmap(lambda x: F.vmap(lambda y: x * y)(X))(X),
    "closure over an array": lambda F, N: F.vmap(lambda x: x @ M.T)(M),
    "reductions": lambda F, N: F.vmap(lambda m: (N.sum(m, 0), N.max(m, 1), N.argmax(m), N.prod(m)))(T),
    "matmul": lambda F, N: F.vmap(lambda m, v: (m @ v, m @ m.T))(T, np.ones((2, 4), np.float32)),
    "where": lambda F, N: F.vmap(lambda x, y: N.where(x > y, x, y))(M, M[::-1]),
    "reshape": lambda F, N: F.vmap(lambda m: m.reshape(4, 3).T.ravel(), in_axes=2)(T.transpose(1, 2, 0)),
    "concatenate": lambda F, N: F.vmap(lambda x, y: N.concatenate([x, y, N.asarray(X)]), in_axes=(0, None))(M, X),
    "stack": lambda F, N: F.vmap(lambda x: N.stack([x, N.asarray(X)], 1))(M),
    "integers": lambda F, N: F.vmap(lambda i: i // 2 + 1)(np.arange(5, dtype=np.int32)),
    "bools": lambda F, N: F.vmap(lambda b: ~b)(np.array([True, False])),
    "grad": lambda F, N: F.vmap(F.grad(lambda x: N.sum(N.sin(x) * x)))(M),
    "grad, shared weights": lambda F, N: F.vmap(F.grad(lambda w, x: N.sum(N.tanh(w @ x))), in_axes=(None, 0))(
        M, T[0].T
    ),
    "grad of": lambda F, N: F.grad(lambda m: N.sum(F.vmap(lambda x: N.sum(x) ** 2)(m)))(M),
    "jvp of": lambda F, N: F.jvp(F.vmap(N.sin), (M,), (M,)),
    "of jvp": lambda F, N: F.vmap(lambda x, t: F.jvp(N.sin, (x,), (t,)))(M, M),
    "of jit": lambda F, N: F.vmap(F.jit(lambda x, y: N.sin(x) * y), in_axes=(0, None))(M, X),
    "of jit, other axes": lambda F, N: F.vmap(F.jit(lambda x: (x * X[:2], X[0] * 2)), in_axes=1, out_axes=(1, 0))(M),
    "jit of": lambda F, N: F.jit(F.vmap(lambda x, y: N.sin(x) * y, in_axes=(0, None)))(M, X),
    "of vjp": lambda F, N: F.vmap(lambda x: F.vjp(N.sin, x)[1](x))(M),
    "of linearize": lambda F, N: F.vmap(lambda x: F.linearize(N.sin, x)[1](x))(M),
    "of jit of grad of jit": lambda F, N: F.vmap(F.jit(F.grad(F.jit(lambda x: N.sum(x * x * x)))))(M),
    "size one": lambda F, N: F.vmap(lambda x: x * 2)(np.ones((1, 3), np.float32)),
    "size zero": lambda F, N: F.vmap(lambda x: x * 2)(np.ones((0, 3), np.float32)),
    "batch of a scalar": lambda F, N: F.vmap(lambda x: x + 1)(X),
    "weak type": lambda F, N: F.vmap(lambda x, y: y * 2, in_axes=(0, None))(X, 2.0),
    "argument unused": lambda F, N: F.vmap(lambda x: N.asarray(M))(X),
    "indexing": lambda F, N: F.vmap(lambda m: (m[0], m[..., 1], m[:, None, ::2]))(T),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_jax(name: str) -> None:
    assert_agree(CASES[name])


def test_vmapped_function_is_called_once_with_unbatched_shapes() -> None:
    shapes = []

    def f(x: Any) -> Any:
        shapes.append((x.shape, x.ndim, x.size, len(x)))
        return x

    fx.vmap(f)(M)
    assert shapes == [((3,), 1, 3, 3)]


def test_out_axes_none_for_batched_output_is_refused() -> None:
    with pytest.raises(ValueError, match="out_axes is None for an output that differs between batch elements"):
        fx.vmap(lambda x: x, out_axes=None)(M)


def test_python_control_flow_on_batched_values_is_refused() -> None:
    with pytest.raises(TypeError, match=rf"made by vmap at {__file__}:\d+ .* is batched: under vmap it has one"):
        fx.vmap(lambda x: x if x > 0 else -x)(X)


def test_python_control_flow_on_unbatched_values() -> None:
    assert_agree(lambda F, N: F.vmap(lambda x, y: x if y > 0 else -x, in_axes=(0, None))(X, N.asarray(2.0)))


def test_message_for_a_scalar_keyword_argument_gives_advice_that_works() -> None:
    def scale(x: Any, factor: Any = 1.0) -> Any:
        return x * factor

    x = np.arange(3, dtype=np.float32)
    with pytest.raises(ValueError, match=r"`factor` of scale, f32.* has no axis 0 .* by functools.partial, or pass it"):
        fx.vmap(scale)(x, factor=2.0)
    np.testing.assert_array_equal(fx.vmap(functools.partial(scale, factor=2.0))(x), x * 2)
    np.testing.assert_array_equal(fx.vmap(scale, in_axes=(0, None))(x, 2.0), x * 2)
