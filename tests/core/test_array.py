"""`Array`: attributes, conversions, operators and errors, for concrete and traced values."""

from __future__ import annotations

import copy
import enum
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
from tests.comparison import assert_near
from tracefx.core import NDArray
from tracefx.testing.tolerances import ELEMENTARY

jax.config.update("jax_explicit_x64_dtypes", "allow")
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    "dtype", ["bool", "int4", "uint8", "int64", "bfloat16", "float8_e4m3fn", "float16", "complex128"]
)
def test_attributes(dtype: str) -> None:
    array, want = fnp.ones((2, 3), dtype), jnp.ones((2, 3), dtype)
    for name in ("shape", "dtype", "ndim", "size", "itemsize", "nbytes", "weak_type"):
        assert getattr(array, name) == getattr(want, name), name
    assert len(array) == 2
    assert array.T.shape == array.mT.shape == (3, 2)


@pytest.mark.parametrize("value", [True, 3, -2.5, 1 + 2j], ids=str)
def test_python_scalars_are_weak_and_convert_back(value: complex) -> None:
    array, want = fnp.asarray(value), jnp.asarray(value)
    assert (array.dtype, array.weak_type) == (want.dtype, want.weak_type)
    assert array.item() == value
    assert type(array.item()) is type(value)
    assert repr(array) == repr(want)


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
        (lambda x: operator.index(x[0, 0]), TypeError, r"only zero-dimensional integer arrays.*got f32\[\]"),
        (lambda x: operator.index(fnp.array([1])), TypeError, r"got i32\[1\]"),
        (lambda x: bool(x), ValueError, "truth value"),
        (lambda x: float(x[:1, 0]), TypeError, r"`float\(\)` needs a zero-dimensional array, got f32\[1\]"),
        (lambda x: int(x), TypeError, r"`int\(\)` needs a zero-dimensional array"),
        (lambda x: complex(x[0]), TypeError, r"`complex\(\)` needs a zero-dimensional array"),
        (lambda x: len(x[0, 0]), TypeError, r"len\(\) of a zero-dimensional array"),
        (lambda x: list(x[0, 0]), TypeError, "iteration over a zero-dimensional array"),
        (lambda x: hash(x), TypeError, "unhashable"),
        (lambda x: operator.setitem(x, 0, 1), TypeError, r"x\.at\[i\]\.set\(y\)"),
        (lambda x: operator.add(x, [1, 2, 3]), TypeError, "unsupported operand"),
        (lambda x: x == [1.0, 2.0], TypeError, "unsupported operand of an array: a list; convert it"),
        (lambda x: x != (), TypeError, "unsupported operand of an array: a tuple; convert it"),
        (lambda x: x == {}, TypeError, "unsupported operand of an array: a dict; convert it"),
        (lambda x: x + "a", TypeError, "unsupported operand"),
        (lambda x: x @ object(), TypeError, "unsupported operand"),
    ],
)
def test_unsupported_operations_raise(f: Callable[[fx.Array], object], error: type[Exception], message: str) -> None:
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
def test_arithmetic_operators_and_their_reflections(op: str, other: str, traced: bool) -> None:
    agree(BINARY[op], X + 1, OTHERS[other], traced)


@pytest.mark.parametrize("other", INTEGERS)
@pytest.mark.parametrize("op", LOGICAL)
def test_logical_operators_and_their_reflections(op: str, other: str) -> None:
    agree(LOGICAL[op], np.array([5, 6, 7], np.int32), INTEGERS[other], traced=False)


def agree(op: Operator, x: NDArray, y: object, traced: bool) -> None:
    """Asserts that an operator agrees with JAX, with the array as left and as right operand."""
    for swapped in (False, True):

        def apply(x: object, y: object, swapped: bool = swapped) -> object:
            return op(y, x) if swapped else op(x, y)

        array = fx.jit(apply)(x, y) if traced else apply(fnp.asarray(x), y)
        want = apply(jnp.asarray(x), y)
        for got, expected in zip(fx.tree.leaves(array), jax.tree.leaves(want), strict=True):
            assert isinstance(got, fx.Array)
            assert (got.shape, got.dtype, got.weak_type) == (expected.shape, expected.dtype, expected.weak_type)
            assert_near(got, expected, ELEMENTARY)


def test_unary_operators() -> None:
    x, want = fnp.asarray(X - 2.5), jnp.asarray(X - 2.5)
    for op in (operator.neg, operator.pos, abs, round):
        np.testing.assert_array_equal(np.asarray(op(x)), np.asarray(op(want)))
    np.testing.assert_array_equal(np.asarray(~fnp.arange(3)), ~np.arange(3))


def test_writable_memory_is_copied() -> None:
    mine = X.copy()
    x = fnp.asarray(mine)
    mine[:] = -1
    assert x.tolist() == X.tolist()
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(x)[0] = 1


def test_dlpack_shares_memory() -> None:
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
    for copied in (copy.copy(x), copy.deepcopy(x), x.copy(), fnp.array(x)):
        assert copied is not x
        assert copied.aval == x.aval
        assert copied.tolist() == x.tolist()


def test_scalar_types_convert_to_dtypes_and_create_arrays() -> None:
    for name in ("bool_", "int8", "uint32", "bfloat16", "float16", "float64", "complex64"):
        array, want = getattr(fnp, name), getattr(jnp, name)
        assert np.dtype(want) == array
        assert array != fnp.float32
        assert (array(1).dtype, array(1).weak_type) == (want(1).dtype, want(1).weak_type)
        assert fnp.zeros(2, array).dtype == np.dtype(want)


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
def test_overflow_to_infinity_without_a_warning(make: Callable[[], fx.Array]) -> None:
    assert np.isposinf(np.asarray(make())).all()


class Holder:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __jax_array__(self) -> Any:
        return self.value


def test_objects_with_jax_array_method() -> None:
    x = np.arange(3, dtype=np.float32)
    array: Any = Holder(fnp.array(x))
    jax_array: Any = Holder(jnp.array(x))
    cases: list[Callable[[Any, Any], Any]] = [
        lambda m, p: m.numpy.ones(3) + p,
        lambda m, p: p * m.numpy.ones(3),
        lambda m, p: m.numpy.ones(3) < p,
        lambda m, p: m.numpy.ones(3) == p,
        lambda m, p: m.numpy.ones((3, 3)) @ p,
        lambda m, p: m.numpy.asarray(p),
        lambda m, p: m.numpy.array([p, p]),
        lambda m, p: m.numpy.stack([p, p]),
        lambda m, p: m.numpy.concatenate([p, p]),
        lambda m, p: m.numpy.zeros_like(p),
        lambda m, p: m.lax.convert_element_type(p, int),
        lambda m, p: m.jit(lambda y: y + p)(x),
        lambda m, p: m.grad(lambda y: (y * p).sum())(x),
    ]
    for case in cases:
        got, want = case(fx, array), case(jax, jax_array)
        assert (got.shape, got.dtype, got.weak_type) == (want.shape, want.dtype, want.weak_type)
        np.testing.assert_array_equal(got, want)
    assert fnp.shape(array) == (3,)
    assert fnp.sin(array).shape == (3,)  # JAX raises here
    with pytest.raises(TypeError, match="must be an array or a number"):
        fx.jit(lambda y: y)(array)  # as in JAX


class Small(enum.IntEnum):
    ONE = 1
    TWO = 2


class Part(float, enum.Enum):
    HALF = 0.5
    MORE = 1.5


class Count(int):
    pass


def test_enum_members_are_scalars() -> None:
    cases: list[Callable[[Any], Any]] = [
        lambda m: m.numpy.ones(3, "int8") + Small.ONE,
        lambda m: Small.TWO * m.numpy.ones(3),
        lambda m: m.numpy.ones(3, "bfloat16") * Part.HALF,
        lambda m: Part.HALF * m.numpy.ones(3),
        lambda m: m.numpy.ones(3) ** Small.TWO,
        lambda m: m.numpy.array([1, 2]) == Small.ONE,
        lambda m: m.numpy.asarray(Small.ONE),
        lambda m: m.numpy.asarray(Part.HALF),
        lambda m: m.numpy.array([Small.ONE, Small.TWO]),
        lambda m: m.numpy.array([Part.HALF, 1]),
        lambda m: m.numpy.asarray(Small.ONE, dtype="int8"),
        lambda m: m.numpy.where(True, Small.ONE, 1.0),
        lambda m: m.numpy.full(2, Part.HALF),
        lambda m: m.numpy.arange(Small.TWO),
        lambda m: m.numpy.result_type(Small.ONE),
        lambda m: m.lax.add(m.numpy.ones(3, int), Small.ONE),
        lambda m: m.lax.mul(m.numpy.ones(3), Part.HALF),
        lambda m: m.jit(lambda x: x + 1)(Small.ONE),
        lambda m: m.grad(lambda x: x * x)(Part.HALF),
        lambda m: m.lax.fori_loop(0, Small.TWO, lambda i, x: x + Small.ONE, 0),
        lambda m: m.lax.switch(Small.ONE, [lambda: 1, lambda: 2]),
        lambda m: m.lax.cond(Small.ONE, lambda: 1, lambda: 2),
        lambda m: m.numpy.ones(3).at[Small.ONE].set(Small.TWO),
        lambda m: m.numpy.ones(3) + Count(3),
        lambda m: m.numpy.maximum(Small.ONE, Small.TWO),
    ]
    for case in cases:
        got, want = case(fx), case(jax)
        if not isinstance(want, jax.Array):
            assert got == want
            continue
        assert (got.shape, got.dtype, got.weak_type) == (want.shape, want.dtype, want.weak_type)
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
    assert (fx.lax.add(fnp.ones(2, "int8"), Small.ONE) == 2).all()


def test_non_native_byte_order() -> None:
    for dtype in ("int16", "float32", "uint8", "bool", "float64"):
        x = np.arange(3).astype(dtype)
        for wrap in (lambda f: f, fx.jit, fx.vmap):
            got = np.asarray(wrap(lambda y: y.byteswap())(fnp.array(x, dtype=dtype)))
            np.testing.assert_array_equal(got, np.asarray(jnp.array(x, dtype=dtype).byteswap()))
    np.testing.assert_array_equal(fnp.array([1 + 2j]).byteswap().byteswap(), [1 + 2j])


def test_empty_arrays_show_their_shape() -> None:
    for shape in ((0,), (0, 5), (5, 0), (2, 0, 3)):
        for dtype in ("float32", "bfloat16", "int8", "bool", "complex64"):
            assert repr(fnp.zeros(shape, dtype)) == repr(jnp.zeros(shape, dtype))


def test_masked_arrays_raise() -> None:
    masked = np.ma.array(np.ones((2, 2)), mask=[[False, True], [False, False]])
    x = fnp.ones((2, 2))
    calls: list[Callable[[], object]] = [
        lambda: fnp.sin(masked), lambda: x + masked, lambda: masked + x, lambda: fnp.asarray(masked),
        lambda: fnp.array([masked, masked]), lambda: fnp.asarray(masked, dtype="float16"),
        lambda: fx.jit(lambda y: y)(masked),
        lambda: fx.grad(lambda y: y.sum())(masked), lambda: fx.vmap(lambda y: y)(masked), lambda: fx.device_put(masked),
        lambda: fx.lax.add(masked, masked), lambda: fnp.asarray(masked, copy=False), lambda: x[masked > 0],
        lambda: x.at[0].set(np.ma.array([1.0, 2.0], mask=[False, True])), lambda: fnp.sin(np.ma.array(1.0)),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ValueError, match="masked arrays"):
            call()


def test_integers_beyond_the_default_dtype() -> None:
    for number, dtype in (
        (2**100, "float32"), (2**40, "float32"), (2**40, "int64"), (2**40, "int32"), (2**63, "uint64"),
        (-(2**63) - 1, "float64"), (2**100, "complex64"), (2**100, "bool"), (2**40, "uint8"),
        (np.int64(2**40), "float32"),
    ):  # fmt: skip
        got, want = fx.lax.convert_element_type(number, dtype), jax.lax.convert_element_type(number, dtype)
        assert (got.dtype, got.weak_type) == (want.dtype, want.weak_type)
        np.testing.assert_array_equal(got, want)
    calls: list[Callable[[Any], object]] = [
        lambda m: m.lax.convert_element_type(2**100, "int32"),
        lambda m: m.lax.convert_element_type(2**2000, "float32"),
        lambda m: m.numpy.asarray(10**30),
        lambda m: m.numpy.asarray(2**31),
        lambda m: m.numpy.asarray(10**30, dtype="int64"),
        lambda m: m.numpy.asarray(300, dtype="int8"),
    ]
    for call in calls:
        for library in (fx, jax):
            with pytest.raises(OverflowError):
                call(library)
    with pytest.raises(OverflowError, match=r"out of bounds for int32.*such as int64 or float32"):
        fnp.asarray(10**30)
    np.testing.assert_array_equal(fnp.asarray([10**30, 1.5]), jnp.asarray([10**30, 1.5]))


def test_zeros_of_float0() -> None:
    float0 = fx.dtypes.float0
    for got in (
        fnp.zeros(3, float0),
        fnp.ones(3, float0),
        fnp.full(3, 0, float0),
        fx.jit(lambda: fnp.zeros(3, float0))(),
    ):
        assert (got.shape, got.dtype) == ((3,), float0)
    assert fnp.zeros_like(fnp.ones(3), dtype=float0).dtype == float0
    assert fx.lax.full((2,), 0, float0).shape == (2,)
    _, slope = fx.jvp(lambda x: x, (fnp.arange(3),), (fnp.zeros(3, float0),))
    assert slope.dtype == float0


def test_jax_tracers_raise() -> None:
    """Their attribute `__jax_array__` is None."""
    calls: list[Callable[[Any], Any]] = [fnp.sin, fx.lax.neg, lambda x: fnp.add(x, 1)]
    for call in calls:
        with pytest.raises(TypeError, match="must be an array or a number"):
            jax.grad(call)(1.0)
