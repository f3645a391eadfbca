"""Methods of universal functions (`reduce`, `accumulate`, `at`, `outer`, `reduceat`) and `vectorize`, against JAX."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude=jax

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_agree, assert_same
from tests.errors import assert_errors
from tracefx.testing.tolerances import ELEMENTARY

jax.config.update("jax_explicit_x64_dtypes", "allow")

BINARY: Final = (
    *("add", "subtract", "multiply", "maximum", "minimum", "logaddexp2", "bitwise_and", "bitwise_xor"),
    *("logical_and", "logical_xor"),
)
X: Final = np.array([[3, 1, 2], [7, 5, 4]], np.int32)
MASK: Final = np.array([[True, False, True], [False, True, True]])


def operand(name: str) -> Any:
    return X.astype(np.float32) / 4 if name.startswith("logadd") else X


def call_jax(call: Callable[..., Any]) -> Any:
    return call(jnp)


@pytest.mark.parametrize("name", BINARY)
def test_methods_of_binary_ufuncs(name: str) -> None:
    x = operand(name)
    indices = np.array([0, 1, 0])
    calls: list[Callable[[Any], Any]] = [
        lambda f: f.reduce(x),
        lambda f: f.reduce(x, axis=-1, keepdims=True),
        lambda f: f.reduce(x, axis=None),
        lambda f: f.accumulate(x, axis=1),
        lambda f: f.at(x, 1, x[0], inplace=False),
        lambda f: f.at(x[:, 0], indices, x[0], inplace=False),
        lambda f: f.outer(x, x[0]),
        lambda f: f.reduceat(x, np.array([0, 2]), axis=1),
    ]
    if not name.startswith("log"):  # JAX takes no initial value for these
        calls.append(lambda f: f.reduce(x, 1, initial=2, where=MASK))
    ufunc, jax_ufunc = getattr(fnp, name), getattr(jnp, name)
    assert (ufunc.nin, ufunc.nout, ufunc.nargs) == (jax_ufunc.nin, jax_ufunc.nout, jax_ufunc.nargs)
    assert ufunc.identity == jax_ufunc.identity
    assert_same([call(ufunc) for call in calls], jax.jit(lambda: [call(jax_ufunc) for call in calls])(), ELEMENTARY)


def test_axes_of_ufunc_methods() -> None:
    calls: list[Callable[[Any], Any]] = [
        lambda N: [getattr(N, name).accumulate(X, axis=None) for name in ("add", "multiply")],
        lambda N: [getattr(N, name).accumulate(X, axis=np.int32(1)) for name in ("add", "subtract")],
        lambda N: [getattr(N, name).reduce(X, axis=np.int64(-1)) for name in ("add", "subtract")],
        lambda N: N.subtract.reduceat(X, np.array([0, 1]), axis=np.int32(-1)),
    ]
    assert_agree(lambda F, N: [call(N) for call in calls])
    assert fnp.maximum.accumulate(X, axis=None).tolist() == [3, 3, 3, 7, 7, 7]  # JAX raises ValueError


def test_transformations_of_ufunc_methods() -> None:
    f = fnp.frompyfunc(lambda x, y: x * y + x, 2, 1)
    g = jnp.frompyfunc(lambda x, y: x * y + x, 2, 1)
    x = np.array([1.0, 2.0, 3.0], np.float32)
    assert_same(fx.jit(fx.grad(f.reduce))(x), jax.grad(g.reduce)(x), ELEMENTARY)
    assert_same(fx.vmap(f.accumulate)(np.stack([x, x])), jax.vmap(g.accumulate)(np.stack([x, x])), ELEMENTARY)
    assert_same(f.reduce(x, initial=2.0), g.reduce(x, initial=2.0), ELEMENTARY)


@pytest.mark.parametrize("name", ["bitwise_or", "logaddexp2", "maximum", "subtract"])
def test_indices_out_of_bounds(name: str) -> None:
    """`at` drops updates, and the segments of `reduceat` begin with NaN."""
    x = operand(name)[0]
    indices: list[Any] = [7, -9, np.array([7, 1, -9, 1])]
    assert_agree(lambda F, N: [getattr(N, name).at(x, i, N.asarray(x)[0], inplace=False) for i in indices])
    if name != "bitwise_or":
        assert_agree(lambda F, N: getattr(N, name).reduceat(x.astype(np.float32), np.array([1, 9])))


def test_numbers_as_operands_of_at_keep_the_dtype() -> None:
    assert_agree(lambda F, N: N.bitwise_or.at(X.astype(np.uint8), np.array([1, 1]), 4, inplace=False))


def test_at_of_a_unary_ufunc() -> None:
    assert fnp.negative.at(X, (0, [1, 2]), inplace=False).tolist() == [[3, -1, -2], [7, 5, 4]]
    assert isinstance(fnp.negative, fnp.ufunc)


def test_ufuncs_are_python_functions() -> None:
    add: object = fnp.add
    assert inspect.isfunction(add)
    assert [isinstance(each, fnp.ufunc) for each in (add, fnp.sin)] == [True, False]
    assert pickle.loads(pickle.dumps(fnp.add)) is fnp.add


def untyped(x: object) -> Any:
    """Returns `x` typed as Any, so that type checkers accept an invalid argument."""
    return x


def test_invalid_arguments_of_ufunc_methods_raise() -> None:
    assert_errors(
        (lambda: fnp.add.at(X, 0, 1), NotImplementedError, "arrays are immutable; pass inplace=False"),
        (lambda: fnp.add.at(X, 0, inplace=False), TypeError, "add takes 2 arrays, so b must be given"),
        (lambda: fnp.maximum.reduce(X, where=MASK), ValueError, "has no identity, so where needs initial"),
        (lambda: fnp.add.reduce(X, where=X), ValueError, "where must be bools"),
        (lambda: fnp.subtract.reduce(np.zeros(0)), ValueError, "has no elements, and subtract has no identity"),
        (lambda: fnp.add.accumulate(X, axis=untyped((0,))), TypeError, "axis must be an integer"),
        (lambda: fnp.add.reduceat(X, np.array([0]), axis=untyped(None)), ValueError, "axis must be one integer"),
        (lambda: fnp.add.reduceat(X, 0), ValueError, "a vector of indices"),
        (lambda: fnp.add.reduceat(X[:0], np.array([0])), IndexError, "axis 0 of .* has no elements"),
        (lambda: fnp.add.reduce(X, out=untyped(X)), NotImplementedError, "out must be None"),
        (lambda: fnp.frompyfunc(abs, 1, 1).reduce(X), ValueError, "needs a function with two operands and one result"),
        (lambda: fnp.frompyfunc(divmod, 2, 2).outer(X, X), ValueError, "gives 2"),
        (lambda: fnp.frompyfunc(abs, 1, 1)(X, X), TypeError, "takes 1 arrays, got 2"),
    )


def test_frompyfunc_results_compare_by_their_arguments() -> None:
    assert fnp.frompyfunc(abs, 1, 1) == fnp.frompyfunc(abs, 1, 1)
    assert hash(fnp.frompyfunc(abs, 1, 1)) == hash(fnp.frompyfunc(abs, 1, 1))
    assert fnp.frompyfunc(abs, 1, 1) != fnp.frompyfunc(abs, 1, 1, identity=0)
    assert repr(fnp.frompyfunc(abs, 1, 1)) == "<tracefx.numpy.ufunc 'abs'>"
    assert not isinstance(3, fnp.ufunc)
    made = untyped(fnp.frompyfunc(abs, 1, 1))
    for name in ("nin", "nout", "nargs", "identity", "reduce"):
        with pytest.raises(AttributeError, match=f"<tracefx.numpy.ufunc .abs.>: the attribute .{name}. is read-only"):
            setattr(made, name, None)
    assert pickle.loads(pickle.dumps(made)) == made


# ------------------------------------------------------------------ vectorize

A: Final = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
VECTORIZED: Final[tuple[Callable[[Any], Any], ...]] = (
    lambda m: m.vectorize(lambda x, y: x * y + 1)(A, A[0, :1]),
    lambda m: m.vectorize(lambda x: (x, x + 1))(A),
    lambda m: m.vectorize(lambda x, y: m.dot(x, y), signature="(n),(n)->()")(A, A[0, 0]),
    lambda m: m.vectorize(m.dot, signature="(m,n),(n)->(m)")(A, np.ones((5, 1, 4), np.float32)),
    lambda m: m.vectorize(m.dot, signature="(m,n),(n)->(m)")(A[:1], np.ones((5, 1, 4), np.float32)),
    lambda m: m.vectorize(lambda x: (x.sum(), x), signature="(n)->(),(n)")(A),
    lambda m: m.vectorize(lambda x, n: x**n, excluded={1})(A, 2),
    lambda m: m.vectorize(lambda x, *, n: x * n, excluded={"n"})(A, n=2.0),
    lambda m: m.vectorize(lambda x, y=None: x if y is None else x + y)(A, None),
    lambda m: m.vectorize(lambda a, x, b: a + x.sum() + b, excluded=(0, 2), signature="(n)->()")(1.0, A, 2.0),
    lambda m: m.vectorize(lambda x: x * 2)(np.ones((1, 1), np.float32)),
    lambda m: m.apply_along_axis(lambda v: m.cumsum(v)[:2], 1, A),
    lambda m: m.apply_along_axis(lambda v, a, b=1.0: v.sum() * a + b, -1, A, 2.0, b=3.0),
    lambda m: m.apply_over_axes(m.sum, A, [0, 2]),
    lambda m: m.apply_over_axes(lambda x, i: m.flip(x, i), A, (0, 1)),
)


@pytest.mark.parametrize("call", VECTORIZED)
def test_vectorize_matches_jax(call: Callable[[Any], Any]) -> None:
    assert_same(call(fnp), call(jnp), ELEMENTARY)


def test_transformations_of_vectorized_functions() -> None:
    f = fnp.vectorize(lambda x, y: fnp.dot(x, y), signature="(n),(n)->()")
    g = jnp.vectorize(lambda x, y: jnp.dot(x, y), signature="(n),(n)->()")
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert_same(
        fx.jit(fx.grad(lambda y: fnp.sum(weights * f(A, y))))(A[0, 0]),
        jax.grad(lambda y: jnp.sum(weights * g(A, y)))(A[0, 0]),
        ELEMENTARY,
    )


INVALID: Final[tuple[tuple[Callable[[Any], Any], type[Exception]], ...]] = (
    (lambda m: m.vectorize(abs, excluded={1.5}), TypeError),
    (lambda m: m.vectorize(abs, excluded={-1}), ValueError),
    (lambda m: m.vectorize(abs, signature="(n->()")(A), ValueError),
    (lambda m: m.vectorize(m.dot, signature="(n),(n)->()")(A), TypeError),
    (lambda m: m.vectorize(m.dot, signature="(n),(n)->()")(A, np.ones(3)), ValueError),
    (lambda m: m.vectorize(m.dot, signature="(n),(n)->()")(A, 1.0), ValueError),
    (lambda m: m.vectorize(lambda x: x, signature="(n)->()")(A), ValueError),
    (lambda m: m.vectorize(lambda x: x, signature="(n)->(n),(n)")(A), TypeError),
    (lambda m: m.vectorize(lambda x: x, signature="(n)->(n)")(None), ValueError),
    (lambda m: m.vectorize(lambda x, y: x)(A, np.ones(5)), ValueError),
    (lambda m: m.apply_along_axis(lambda x: x, 3, A), ValueError),
    (lambda m: m.apply_over_axes(lambda x, i: x.sum(), A, [0]), ValueError),
)


@pytest.mark.parametrize(("call", "error"), INVALID)
def test_vectorize_raises_where_jax_does(call: Callable[[Any], Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        call(jnp)
    with pytest.raises(error):
        call(fnp)


def test_vectorize_signature_may_contain_spaces() -> None:
    f = fnp.vectorize(fnp.dot, signature=" (m, n), ( n ) -> (m) ")
    assert f(A, A[0, 0]).shape == (2, 3)
