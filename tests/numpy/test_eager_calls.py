"""The eager cache of `tracefx.numpy`: the evaluation of a call on concrete arrays is planned once per cache key."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import difference
from tests.compiling import compile_with_fallback
from tests.errors import untyped
from tracefx.core import Array, ArrayLike, ConcreteArray, ShapedArray, dtypes
from tracefx.numpy.padding import pad_by_mode
from tracefx.transforms.eager_calls import MAX_REPLAY_SIZE, NumpyKernel, eager_cached
from tracefx.transforms.kernel_replay import Kernel

Call = Callable[..., Any]

ZEROS = np.array([0.0, -0.0, 0.0, -0.0], np.float32)
MIXED = np.array([[1.5, -0.0, np.nan, -np.inf], [0.0, -2.5, 3.0, np.inf]], np.float32)
PLAIN = np.array([[0.5, -1.5, 2.0], [3.25, 0.25, -4.0], [1.0, 2.0, 8.0]], np.float32)
WHOLE = np.array([[3, -1, 2], [7, 0, -2]], np.int32)
EMPTY = np.zeros((0, 3), np.float32)

CALLS: dict[str, Call] = {
    "sum": lambda x: fnp.sum(x, 0),
    "sum of all": lambda x: x.sum(),
    "prod": lambda x: fnp.prod(x, -1, keepdims=True),
    "max": lambda x: fnp.max(x, initial=-1.0),
    "min": lambda x: fnp.min(x, -1, initial=1.0),
    "any": lambda x: fnp.any(x, 0),
    "count_nonzero": lambda x: fnp.count_nonzero(x),
    "mean": lambda x: fnp.mean(x, 0),
    "var": lambda x: fnp.var(x, 0, ddof=1),
    "nansum": lambda x: fnp.nansum(x, 0),
    "nanmax": lambda x: fnp.nanmax(x, -1),
    "nanmean": lambda x: fnp.nanmean(x),
    "nanstd": lambda x: fnp.nanstd(x),
    "cumsum": lambda x: fnp.cumsum(x, -1),
    "sort": lambda x: fnp.sort(x),
    "argsort": lambda x: fnp.argsort(x, 0),
    "median": lambda x: fnp.median(x.ravel()),
    "percentile": lambda x: fnp.percentile(x.ravel(), 30.0),
    "transpose": lambda x: x.T,
    "flip": lambda x: fnp.flip(x, 0),
    "stack": lambda x: fnp.stack([x, x], 1),
    "split": lambda x: fnp.array_split(x, 2, -1),
    "pad": lambda x: fnp.pad(x, 1, constant_values=2.0),
    "roll": lambda x: fnp.roll(x, 1, -1),
    "tile": lambda x: fnp.tile(x, (2, 1)),
    "astype": lambda x: x.astype("int32"),
    "maximum": lambda x: fnp.maximum(x, 0.0),
    "minimum": lambda x: fnp.minimum(-0.0, x),
    "clip": lambda x: fnp.clip(x, -0.5, 0.0),
    "power": lambda x: fnp.power(fnp.abs(x), 0.5),
    "divmod": lambda x: fnp.divmod(x, 0.75),
    "round": lambda x: fnp.round(x, 1),
    "isclose": lambda x: fnp.isclose(x, x[::-1]),
    "nan_to_num": lambda x: fnp.nan_to_num(x, nan=1.0),
    "sinc": lambda x: fnp.sinc(x),
    "searchsorted": lambda x: fnp.searchsorted(fnp.sort(x.ravel()), x),
    "digitize": lambda x: fnp.digitize(x, fnp.array([2.0, 1.0, -1.0])),
    "isin": lambda x: fnp.isin(x, x[:1]),
    "outer": lambda x: fnp.outer(x, x),
    "dot": lambda x: fnp.dot(x, x.T),
    "einsum": lambda x: fnp.einsum("ij,kj->ik", x, x),
    "trace": lambda x: fnp.trace(x),
    "tril": lambda x: fnp.tril(x),
    "norm": lambda x: fnp.linalg.norm(x),
    "cov": lambda x: fnp.cov(x),
    "nonzero": lambda x: fnp.nonzero(x, size=5),
    "take": lambda x: fnp.take(x, fnp.array([0, -1, 9]), 0),
    "gradient": lambda x: fnp.gradient(x, axis=-1),
    "trapezoid": lambda x: fnp.trapezoid(x),
    "meshgrid": lambda x: fnp.meshgrid(x[0], x[1]),
}


def attempt(f: Call, *args: object) -> Any:
    try:
        return f(*args)
    except (TypeError, ValueError, LookupError, ArithmeticError) as error:
        return type(error)


def same_outcome(got: Any, first: Any) -> bool:
    return got is first if isinstance(first, type) or isinstance(got, type) else not difference(got, first)


@pytest.mark.parametrize("name", CALLS)
def test_cached_calls_repeat_the_result_and_have_the_traced_types(name: str) -> None:
    call = CALLS[name]
    for host in (MIXED, PLAIN, WHOLE, ZEROS.reshape(2, 2), EMPTY, PLAIN.astype(np.float16), PLAIN > 0):
        x = fnp.asarray(host)
        first, second, third = [attempt(call, x) for _ in range(3)]
        assert same_outcome(second, first), (name, host.dtype)
        assert same_outcome(third, first), (name, host.dtype)
        if isinstance(first, type):
            continue
        shapes = fx.tree.leaves(fx.eval_shape(call, x))
        assert [(s.shape, s.dtype, s.weak_type) for s in shapes] == [
            (a.shape, a.dtype, a.weak_type) for a in fx.tree.leaves(first)
        ]


LARGE: dict[str, Call] = {
    "where": lambda x: fnp.where(x > 0, x, x[::-1]),
    "where with a number": lambda x: fnp.where(x > 0, x, -0.0),
    "select": lambda x: fx.lax.select(x > 0, x, -x),
    "maximum": lambda x: fnp.maximum(x, x[::-1]),
    "maximum with a number": lambda x: fnp.maximum(x, 0.0),
    "minimum": lambda x: fnp.minimum(-x, x[::-1]),
    "clamp": lambda x: fx.lax.clamp(-0.0, x, 2.0),
    "clip": lambda x: fnp.clip(x, -2.0, 0.0),
    "relu": fx.nn.relu,
    "isclose": lambda x: fnp.isclose(x, x[::-1]),
    "allclose": lambda x: fnp.allclose(x, x, equal_nan=True),
    "nan_to_num": lambda x: fnp.nan_to_num(x, nan=-0.0),
    "sign": fnp.sign,
    "remainder": lambda x: fnp.remainder(x, 0.75),
    "floor_divide": lambda x: fnp.floor_divide(x, 0.75),
    "divmod": lambda x: fnp.divmod(x, x[::-1]),
    "var": fnp.var,
    "std": lambda x: fnp.std(x, 1),
    "norm": lambda x: fnp.linalg.norm(x, axis=0),
    "vector_norm": lambda x: fnp.linalg.vector_norm(x, ord=3),
    "logaddexp": lambda x: fnp.logaddexp(x, x[::-1]),
    "logaddexp2": lambda x: fnp.logaddexp2(x, 0.5),
}


@pytest.mark.parametrize("name", LARGE)
def test_calls_with_large_arrays_are_compiled_and_repeat_the_result(name: str) -> None:
    x = fnp.asarray(np.tile(MIXED, (MAX_REPLAY_SIZE // 4, 1)))
    first, second = [LARGE[name](x) for _ in range(2)]
    assert not difference(first, second)
    assert not difference(second, fx.jit(LARGE[name])(x))
    assert all(a.buffer is not None for a in fx.tree.leaves(second))


@pytest.mark.parametrize("dtype", dtypes.ALL_DTYPES, ids=dtypes.name)
def test_large_arrays_of_all_dtypes_give_the_results_of_small_ones(dtype: dtypes.DType) -> None:
    def calls(x: Array) -> list[Any]:
        mask, y = fnp.arange(x.size) % 4 == 1, x[::-1]
        functions = [lambda: fx.lax.select(mask, x, y), lambda: fnp.where(mask, x, 1), lambda: fx.lax.max(x, y)]
        functions += [lambda: fx.lax.clamp(x, y, x), lambda: fnp.clip(x, 1, y), lambda: fnp.isclose(x, y)]
        return [attempt(lambda _, f=f: f(), x) for f in functions]

    numbers = np.array([0, 1, 2, 1]).astype(np.float32)
    host = np.zeros(4, dtype) if dtype == dtypes.float0 else numbers.astype(dtype)
    expected = calls(fnp.asarray(host))
    x = fnp.asarray(np.tile(host, MAX_REPLAY_SIZE // 2))
    for _ in range(3):
        for got, want in zip(calls(x), expected, strict=True):
            assert same_outcome(got if isinstance(got, type) else got[:4], want)


def test_calls_with_large_arrays_are_not_compiled_where_jit_is_disabled() -> None:
    x = fnp.asarray(np.tile(MIXED, (MAX_REPLAY_SIZE // 4, 1)))
    with fx.disable_jit():
        out = fnp.linalg.norm(x)
    assert isinstance(out, ConcreteArray)
    assert out.buffer is None


CACHED: dict[Call, Call] = {
    fnp.sum: lambda f, x: f(x, 0),
    fnp.max: lambda f, x: f(x, axis=1),
    fnp.mean: lambda f, x: f(x, 0, keepdims=True),
    fnp.std: lambda f, x: f(x),
    fnp.nanmax: lambda f, x: f(x, 0),
    fnp.cumsum: lambda f, x: f(x, 1),
    fnp.maximum: lambda f, x: f(x, 0.5),
    fnp.clip: lambda f, x: f(x, 0.5, 1.0),
    fnp.isclose: lambda f, x: f(x, x),
    fnp.sort: lambda f, x: f(x),
    fnp.median: lambda f, x: f(x[0]),
    fnp.percentile: lambda f, x: f(x[0], 30.0),
    fnp.cov: lambda f, x: f(x),
    fnp.concatenate: lambda f, x: f([x, x], 1),
    fnp.stack: lambda f, x: f((x, x)),
    fnp.split: lambda f, x: f(x, 3),
    pad_by_mode: lambda f, x: f(x, ((1, 2), (0, 1)), "constant"),
    fnp.einsum: lambda f, x: f("ij,jk->ik", x, x),
    fnp.cross: lambda f, x: f(x, x),
    fnp.gradient: lambda f, x: f(x[0]),
    fnp.take: lambda f, x: f(x, fnp.array([0, 2]), 1),
    fnp.eye: lambda f, _: f(3),
    fnp.linspace: lambda f, _: f(0.0, 1.0, 5),
    fnp.fft.fft: lambda f, x: f(x),
    fnp.linalg.solve: lambda f, x: f(x, x),
    fnp.linalg.eigh: lambda f, x: f(x),
}


@pytest.mark.parametrize("f", CACHED, ids=lambda f: f.__name__)
def test_cache_hit_skips_the_function_body(f: Any) -> None:
    x, body = fnp.asarray(PLAIN @ PLAIN.T), f.__wrapped__
    while hasattr(body, "__wrapped__"):
        body = body.__wrapped__
    entered: list[CodeType] = []
    for _ in range(2):
        CACHED[f](f, x)
    sys.setprofile(lambda frame, event, arg: entered.append(frame.f_code))
    try:
        CACHED[f](f, x)
    finally:
        sys.setprofile(None)
    assert entered
    assert body.__code__ not in entered


def test_signs_of_zeros_match_compiled_programs() -> None:
    x = fnp.asarray(ZEROS)
    calls: list[Call] = [
        lambda x: fnp.max(x),
        lambda x: fnp.min(x),
        lambda x: fnp.max(x.reshape(2, 2), 1),
        lambda x: fnp.maximum(x, -0.0),
        lambda x: fnp.minimum(x, 0.0),
        lambda x: fnp.clip(x, -0.0, 0.0),
        lambda x: fnp.sort(x),
        lambda x: fnp.ptp(x),
        lambda x: fnp.nanmin(x),
    ]
    _, evaluated = [[call(x) for call in calls] for _ in range(2)]
    wanted = compile_with_fallback(fx.jit, lambda x: [call(x) for call in calls])(x)
    for got, want in zip(evaluated, wanted, strict=True):
        assert np.signbit(got).tolist() == np.signbit(want).tolist()


def test_cache_key_contains_the_types_of_python_numbers() -> None:
    x = fnp.asarray(WHOLE)
    for _ in range(3):
        assert fnp.maximum(x, 1).dtype == np.int32
        assert fnp.maximum(x, 1.0).dtype == np.float32
        assert fnp.maximum(x, True).dtype == np.int32
        assert fnp.sum(x, 1).shape == (2,)
        with pytest.raises(TypeError):
            untyped(fnp.sum)(x, 1.0)


@pytest.mark.parametrize("second", [1, True, "1", None, int, fnp.asarray(1), fnp.asarray([1.0]), 1.0])
def test_recent_calls_are_told_apart(second: Any) -> None:
    bodies: list[object] = []

    @eager_cached
    def describe(x: Array, n: object = "absent") -> Array:
        bodies.append(n)
        return fnp.add(x, float(len(repr(n)))) if not isinstance(n, Array) else fnp.add(x, n)

    def expected(x: Any, n: Any) -> Any:
        return np.asarray(x) + (np.asarray(n) if isinstance(n, Array) else float(len(repr(n))))

    x, short = fnp.asarray(ZEROS), fnp.asarray(ZEROS[:1])
    for _ in range(4):  # the first call has no plan, the second makes it, the others repeat it
        assert describe(x).tolist() == expected(x, "absent").tolist()
        for n in (second, 2, False, "two", float, fnp.asarray(2), fnp.asarray([2.5])):
            assert describe(x, n).tolist() == expected(x, n).tolist()
            assert describe(short, n).tolist() == expected(short, n).tolist()
    count = len(bodies)
    describe(x, second)
    assert len(bodies) == count


def test_recent_calls_depend_on_settings_and_handlers() -> None:
    x = fnp.asarray(WHOLE)
    for _ in range(3):
        assert fnp.mean(x, 0).dtype == np.float32
    with fx.enable_x64():
        assert fnp.mean(x, 0).dtype == np.float64
    with fx.disable_jit():
        assert fnp.mean(x, 0).dtype == np.float32
    assert str(fx.make_jaxpr(lambda: fnp.mean(x, 0))()).count("reduce_sum") == 1
    assert fnp.mean(x, 0).dtype == np.float32


def test_cache_key_distinguishes_signs_of_zeros() -> None:
    x = fnp.asarray(PLAIN)
    for _ in range(3):
        assert not np.signbit(fnp.pad(x, 1, constant_values=0.0)[0, 0])
        assert np.signbit(fnp.pad(x, 1, constant_values=-0.0)[0, 0])


def test_cache_key_contains_the_x64_setting() -> None:
    x = fnp.asarray(WHOLE)
    for _ in range(3):
        assert fnp.sum(x).dtype == np.int32
        assert fnp.linspace(0, 1, 3).dtype == np.float32
        with fx.enable_x64():
            assert fnp.sum(x).dtype == np.int64
            assert fnp.linspace(0, 1, 3).dtype == np.float64


def test_out_of_range_python_numbers_wrap_around_as_under_jit() -> None:
    x = fnp.asarray(np.array([1, 2], np.int8))
    wanted = compile_with_fallback(fx.jit, lambda x: fnp.maximum(x, 300))(x)
    for _ in range(3):
        assert not difference(fnp.maximum(x, 300), wanted)


def test_repeated_calls_raise_the_same_errors() -> None:
    x = fnp.asarray(PLAIN)
    for _ in range(3):
        with pytest.raises(ValueError, match="axis"):
            fnp.sum(x, 2)
        with pytest.raises(ValueError, match="no elements"):
            fnp.max(fnp.asarray(EMPTY))


def test_array_keyword_arguments_bypass_the_cache() -> None:
    x = fnp.asarray(PLAIN)
    for _ in range(3):
        assert fnp.sum(x, where=x > 0).item() == 17.0
        assert fnp.mean(x, 0, where=x > 10).shape == (3,)


def test_traced_calls_record_the_primitives() -> None:
    text = str(fx.make_jaxpr(lambda x: fnp.nan_to_num(fnp.mean(x, 0)))(fnp.asarray(PLAIN)))
    assert "reduce_sum" in text
    assert "select_n" in text


def test_jvp_interprets_the_primitives_of_a_cached_function() -> None:
    x = fnp.asarray(PLAIN)
    fnp.mean(x, 0), fnp.mean(x, 0)
    _, tangent = fx.jvp(lambda x: fnp.mean(x, 0), (x,), (x,))
    assert not difference(tangent, fnp.mean(x, 0))


def test_numpy_kernel_gets_the_types_and_may_decline() -> None:
    seen: list[tuple[object, ...]] = []

    def build(x: ShapedArray, y: ShapedArray, *, times: int) -> Kernel | None:
        seen.append((x, y, times))
        return None if times != 1 else lambda x, y: x + y

    @eager_cached(numbers=2, kernel=NumpyKernel(build, frozenset({dtypes.float32})))
    def plus(x: ArrayLike, y: ArrayLike, *, times: int = 1) -> Array:
        return fnp.add(x, y) * times

    x, number = fnp.asarray(PLAIN), ShapedArray((), dtypes.float32, weak_type=True)
    for _ in range(2):
        assert not difference(plus(x, x), x + x)
        assert not difference(plus(x, 2.0), x + 2.0)
        assert not difference(plus(x, x, times=2), (x + x) * 2)
        assert not difference(plus(fnp.asarray(WHOLE), 2), fnp.asarray(WHOLE) + 2)
        assert not difference(plus(fnp.asarray(WHOLE), 2.0), fnp.asarray(WHOLE) + 2.0)
    assert seen == [(x.aval, x.aval, 1), (x.aval, number, 1), (x.aval, x.aval, 2)]


def test_kernel_with_another_result_dtype_is_not_used() -> None:
    @eager_cached(kernel=NumpyKernel(lambda _: lambda x: x.astype(np.float64), frozenset({dtypes.float32})))
    def twice(x: ArrayLike) -> Array:
        return fnp.add(x, x)

    x = fnp.asarray(PLAIN)
    for _ in range(2):
        assert not difference(twice(x), x + x)


def test_sequences_of_arrays_are_one_argument() -> None:
    traced: list[int] = []

    @eager_cached
    def joined(xs: list[Array], axis: int = 0) -> Array:
        traced.append(len(xs))
        return fnp.concatenate(xs, axis)

    x = fnp.asarray(PLAIN)
    for _ in range(4):
        assert joined([x, x], 1).shape == (3, 6)
        assert joined([x, x, x], 1).shape == (3, 9)
    assert traced == [2, 3, 2, 3]  # the first calls, and the traces at the second ones


def test_compiled_functions_take_numpy_arrays_and_static_arguments() -> None:
    @eager_cached(compiled=True)
    def scaled(x: ArrayLike, times: int = 2, *, plus: float = 0.0) -> Array:
        for _ in range(20):
            x = fnp.multiply(x, times) / times
        return fnp.multiply(x, times) + plus

    x = fnp.asarray(PLAIN)
    for argument in (x, PLAIN):
        assert not difference(scaled(argument), x * 2)
        assert not difference(scaled(argument, 3, plus=1.0), x * 3 + 1.0)
    assert scaled(2.0).item() == 4.0
    with fx.disable_jit():
        assert not difference(scaled(x), x * 2)


def test_compiled_functions_are_inlined_in_traces_and_differentiable() -> None:
    @eager_cached(compiled=True)
    def squared(x: Array, *, times: int) -> Array:
        return x * x * times

    x = fnp.asarray(PLAIN)
    text = str(fx.make_jaxpr(lambda x: squared(x, times=3))(x))
    assert "jit" not in text
    _, tangent = fx.jvp(lambda x: squared(x, times=3), (x,), (x,))
    assert not difference(tangent, x * x * 6)


def test_numbers_of_all_values_share_a_plan() -> None:
    traced: list[object] = []

    @eager_cached(numbers=2)
    def plus(x: ArrayLike, y: ArrayLike) -> Array:
        traced.append(y)
        return fnp.add(x, y)

    x = fnp.asarray(PLAIN)
    for number in (1.0, 2.0, 3.0, math.nan, -0.0):
        assert not difference(plus(x, number), x + number)
    assert len(traced) == 2
    for number in (1, 2, 2**31 - 1):
        assert not difference(plus(x, number), x + number)
    assert len(traced) == 4


def test_compiled_plans_take_numbers_of_any_value() -> None:
    host = np.linspace(-2, 2, MAX_REPLAY_SIZE + 1).astype(np.float32)
    mask, x = fnp.asarray(host > 0), fnp.asarray(host)
    for number in [0.0, -0.0, math.nan, 2.5, -0.0, 0.0, 0.0, 1e300] * 3:
        with np.errstate(over="ignore"):
            expected = np.where(host > 0, host, np.float32(number))
        out = np.asarray(fnp.where(mask, x, number))
        np.testing.assert_array_equal(out.view(np.int32), expected.view(np.int32))
    for low in [-1, 0, -1, 1] * 2:
        np.testing.assert_array_equal(np.asarray(fnp.clip(x, low, 1)), np.clip(host, low, 1))


def test_numbers_are_rounded_once() -> None:
    @eager_cached(numbers=2)
    def plus(x: ArrayLike, y: ArrayLike) -> Array:
        return fnp.add(x, y)

    x, number = fnp.zeros(1, "float16"), 1 + 2.0**-11 + 2.0**-30  # rounds to 1 in float32, up in float16
    for _ in range(3):
        assert plus(x, number).item() == np.float16(number)


def test_cached_results_do_not_share_donated_memory() -> None:
    first, second = fnp.eye(3), fnp.eye(3)
    third = fnp.eye(3)
    changed = fx.jit(lambda x: x + 1, donate_argnums=0)(second)
    assert not difference(first, third)
    assert changed.shape == (3, 3)


def test_replays_do_not_share_constants() -> None:
    @eager_cached
    def with_ones(x: Array) -> tuple[Array, Array]:
        ones = fnp.ones(3)
        return ones, x + ones

    results = [with_ones(fnp.asarray(PLAIN[0])) for _ in range(4)]
    assert not np.shares_memory(np.asarray(results[2][0]), np.asarray(results[3][0]))
    assert not difference(results[2], results[0])


def test_replays_leave_broadcasts_to_numpy() -> None:
    @eager_cached
    def outer_and_broadcast(x: Array, y: Array) -> tuple[Array, Array, Array]:
        rows, columns = fnp.broadcast_to(y, (3, 3)), fnp.broadcast_to(x[:, None], (3, 3))
        return rows * columns, fnp.where(rows > columns, rows, 0.0), rows

    x, y = fnp.asarray(PLAIN[0]), fnp.asarray(PLAIN[1])
    want = fx.jit(lambda x, y: outer_and_broadcast(x, y))(x, y)
    for _ in range(3):
        assert not difference(outer_and_broadcast(x, y), want)
