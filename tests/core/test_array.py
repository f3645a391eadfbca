"""`Array` as users hold it: what it says, converts to and answers, concrete and traced."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.closeness import assert_near
from tracefx.core.dtypes import NDArray
from tracefx.testing.tolerances import ELEMENTARY

jax.config.update("jax_explicit_x64_dtypes", "allow")  # type: ignore[no-untyped-call]  # jax leaves it untyped
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    "dtype", ["bool", "int4", "uint8", "int64", "bfloat16", "float8_e4m3fn", "float16", "complex128"]
)
def test_what_an_array_says_of_itself(dtype: str) -> None:
    ours, want = fnp.ones((2, 3), dtype), jnp.ones((2, 3), dtype)
    for name in ("shape", "dtype", "ndim", "size", "itemsize", "nbytes", "weak_type"):
        assert getattr(ours, name) == getattr(want, name), name
    assert len(ours) == 2
    assert ours.T.shape == ours.mT.shape == (3, 2)


@pytest.mark.parametrize("value", [True, 3, -2.5, 1 + 2j], ids=str)
def test_python_numbers_are_weak_and_come_back(value: complex) -> None:
    ours, want = fnp.asarray(value), jnp.asarray(value)
    assert (ours.dtype, ours.weak_type) == (want.dtype, want.weak_type)
    assert ours.item() == value
    assert type(ours.item()) is type(value)
    assert repr(ours) == repr(want)


def test_conversions_to_python() -> None:
    x = fnp.asarray(X)
    assert x.tolist() == X.tolist()
    assert x.item(1, 2) == 5.0
    assert float(x[1, 0]) == 3.0
    assert complex(x[0, 1]) == 1 + 0j
    assert ["a", "b", "c"][fnp.array(1)] == "b"
    assert operator.index(fnp.array(7, "uint8")) == 7
    assert f"{x[0, 1]:.2f}|{x[0]}" == "1.00|[0. 1. 2.]"
    assert [row.tolist() for row in x] == X.tolist()
    assert bool(fnp.array(0.0)) is False


@pytest.mark.parametrize(
    ("f", "error", "message"),
    [
        (lambda x: operator.index(x[0, 0]), TypeError, r"only integer arrays without axes.*got f32\[\]"),
        (lambda x: operator.index(fnp.array([1])), TypeError, r"got i32\[1\]"),
        (lambda x: bool(x), ValueError, "truth value"),
        (lambda x: len(x[0, 0]), TypeError, r"len\(\) of an array without axes"),
        (lambda x: list(x[0, 0]), TypeError, "iteration over an array without axes"),
        (lambda x: hash(x), TypeError, "unhashable"),
        (lambda x: operator.setitem(x, 0, 1), TypeError, r"x\.at\[i\]\.set\(y\)"),
        (lambda x: operator.add(x, [1, 2, 3]), TypeError, "unsupported operand"),
        (lambda x: x + "a", TypeError, "unsupported operand"),
        (lambda x: x @ object(), TypeError, "unsupported operand"),
    ],
)
def test_what_an_array_refuses(f: Callable[[fx.Array], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        f(fnp.asarray(X))


Operator = Callable[[Any, Any], Any]
BINARY: dict[str, Operator] = {
    **{op.__name__: op for op in (operator.add, operator.sub, operator.mul, operator.truediv, operator.pow)},
    **{op.__name__: op for op in (operator.floordiv, operator.mod, divmod, operator.eq, operator.ne)},
    **{op.__name__: op for op in (operator.lt, operator.le, operator.gt, operator.ge)},
}
LOGICAL: dict[str, Operator] = {
    op.__name__: op for op in (operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift)
}
OTHERS = {"array": X[0] + 1, "number": 2, "float": 2.5, "numpy scalar": np.float32(1.5)}
INTEGERS = {"array": np.array([1, 2, 3], np.int32), "number": 2, "numpy scalar": np.int32(1)}


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("op", BINARY)
def test_operators_and_their_reflections(op: str, other: str, traced: bool) -> None:
    agree(BINARY[op], X + 1, OTHERS[other], traced)


@pytest.mark.parametrize("other", INTEGERS)
@pytest.mark.parametrize("op", LOGICAL)
def test_logical_operators_and_their_reflections(op: str, other: str) -> None:
    agree(LOGICAL[op], np.array([5, 6, 7], np.int32), INTEGERS[other], traced=False)


def agree(op: Operator, x: NDArray, y: object, traced: bool) -> None:
    """The operator gives JAX's result, whichever side the array is on."""
    for swapped in (False, True):

        def apply(x: object, y: object, swapped: bool = swapped) -> object:
            return op(y, x) if swapped else op(x, y)

        ours = fx.jit(apply)(x, y) if traced else apply(fnp.asarray(x), y)
        want = apply(jnp.asarray(x), y)
        for got, expected in zip(fx.tree.leaves(ours), jax.tree.leaves(want), strict=True):
            assert isinstance(got, fx.Array)
            assert (got.shape, got.dtype, got.weak_type) == (expected.shape, expected.dtype, expected.weak_type)
            assert_near(got, expected, ELEMENTARY)


def test_unary_operators() -> None:
    x, want = fnp.asarray(X - 2.5), jnp.asarray(X - 2.5)
    for op in (operator.neg, operator.pos, abs, round):
        np.testing.assert_array_equal(np.asarray(op(x)), np.asarray(op(want)))
    np.testing.assert_array_equal(np.asarray(~fnp.arange(3)), ~np.arange(3))


def test_memory_that_the_caller_can_write_is_copied() -> None:
    mine = X.copy()
    x = fnp.asarray(mine)
    mine[:] = -1
    assert x.tolist() == X.tolist()
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(x)[0] = 1


def test_dlpack_shares_the_numbers() -> None:
    x = fnp.asarray(X)
    assert x.__dlpack_device__() == (1, 0)
    np.testing.assert_array_equal(np.from_dlpack(x), X)
    np.testing.assert_array_equal(np.from_dlpack(fx.jit(lambda x: x * 2)(x)), X * 2)


@pytest.mark.parametrize("weak", [False, True])
def test_copies_and_pickles(weak: bool) -> None:
    x = fx.jit(lambda x: x)(2.5) if weak else fnp.asarray(X, "bfloat16")
    again = pickle.loads(pickle.dumps(x))
    assert again.aval == x.aval
    assert again.tolist() == x.tolist()
    for made in (copy.copy(x), copy.deepcopy(x), x.copy(), fnp.array(x)):
        assert made is not x
        assert made.aval == x.aval
        assert made.tolist() == x.tolist()


def test_scalar_types_name_dtypes_and_make_arrays() -> None:
    for name in ("bool_", "int8", "uint32", "bfloat16", "float16", "float64", "complex64"):
        ours, want = getattr(fnp, name), getattr(jnp, name)
        assert np.dtype(want) == ours
        assert ours != fnp.float32
        assert (ours(1).dtype, ours(1).weak_type) == (want(1).dtype, want(1).weak_type)
        assert fnp.zeros(2, ours).dtype == np.dtype(want)


HUGE: dict[str, Callable[[], fx.Array]] = {
    "a number beside an array": lambda: fnp.ones(1) * 1e300,
    "in tracefx.lax": lambda: fx.lax.mul(fnp.ones(1), 1e300),
    "under jit": lambda: fx.jit(lambda x: x * 1e300)(fnp.ones(1)),
    "a NumPy scalar": lambda: fnp.ones(1) * np.float64(1e300),
    "a NumPy array": lambda: fnp.asarray(np.array([1e300])),
    "a list": lambda: fnp.asarray([1e300]),
    "in full": lambda: fnp.full(1, np.float64(1e300)),
    "half precision": lambda: fnp.asarray([1e6], "float16"),
    "a tangent": lambda: fx.jvp(lambda x: x * 2, (fnp.ones(1),), (np.array([1e300]),))[1],
}


@pytest.mark.parametrize("make", HUGE.values(), ids=HUGE)
def test_numbers_too_large_for_their_dtype_are_infinite_without_a_warning(make: Callable[[], fx.Array]) -> None:
    assert np.isposinf(np.asarray(make())).all()
