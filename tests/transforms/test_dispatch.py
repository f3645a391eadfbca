"""Dispatch of compiled calls: NumPy arguments, unused arguments, and the fast path."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import attrs
import numpy as np
import pytest
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tests.errors import untyped
from tracefx.core import ConcreteArray
from tracefx.transforms.fast_path import MAX_RECENT

Host = np.ndarray[Any, np.dtype[Any]]


def test_numpy_argument_can_be_overwritten_after_the_call() -> None:
    @fx.jit
    def long(x: Any) -> Any:
        for _ in range(20):
            x = fnp.sin(x @ x)
        return x

    host = np.full((300, 300), 0.01, np.float32)
    expected = np.asarray(long(host.copy()))
    out = long(host)
    host[:] = 5  # the program may still be running
    np.testing.assert_array_equal(np.asarray(out), expected)


@pytest.mark.parametrize(
    "host",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
        np.arange(24, dtype=np.float32).reshape(4, 6)[::2, 1::2],
        np.arange(6, dtype=np.float64).reshape(2, 3),
        np.arange(6, dtype=np.int64).reshape(2, 3),
        np.array(2.5, np.float32),
        np.zeros((0, 3), np.float32),
        np.array([True, False]),
    ],
    ids=lambda host: f"{host.dtype.str}{list(host.shape)}{'F' if host.flags.fnc else ''}",
)
def test_numpy_arguments_of_all_dtypes_and_layouts(host: Host) -> None:
    double = fx.jit(lambda x: fnp.logical_not(x) if x.dtype == bool else x + x)
    expected = np.logical_not(host) if host.dtype == bool else host + host
    for argument in (host, fnp.asarray(host), host):
        out = double(argument)
        assert out.dtype == fnp.asarray(host).dtype
        np.testing.assert_array_equal(np.asarray(out), expected)


def test_enable_x64_changes_dtype_of_numpy_arguments() -> None:
    double = fx.jit(lambda x: x + x)
    host = np.array([1.0, 1e-9])
    assert double(host).dtype == np.float32
    with fx.enable_x64():
        assert double(host).dtype == np.float64
        np.testing.assert_array_equal(np.asarray(double(host)), host + host)
    assert double(host).dtype == np.float32


def test_numpy_argument_returned_as_output_is_copied() -> None:
    host = np.arange(3, dtype=np.float32)
    same, twice = fx.jit(lambda x: (x, x + x))(host)
    host[:] = 9
    assert same.tolist() == [0, 1, 2]
    assert twice.tolist() == [0, 2, 4]


def test_array_returned_as_output_is_not_copied() -> None:
    x = fnp.arange(3)
    same, _ = fx.jit(lambda x: (x, x + x))(x)
    assert np.shares_memory(np.asarray(same), np.asarray(x))


@pytest.mark.parametrize("used", [(), (0,), (1,), (2,), (0, 1), (1, 2), (0, 2)])
@pytest.mark.parametrize("keep_unused", [False, True])
def test_unused_arguments(used: tuple[int, ...], keep_unused: bool) -> None:
    f = fx.jit(lambda *args: sum([args[i] * 2 for i in used], fnp.zeros(())), keep_unused=keep_unused)
    numbers = [1.0, 10.0, 100.0]
    for args in (numbers, list(fnp.asarray(numbers)), list(np.array(numbers, np.float32))):
        assert float(f(*args)) == sum([2 * 10.0**i for i in used])


def test_donation_does_not_overwrite_numpy_memory() -> None:
    host = np.arange(4, dtype=np.float32)
    x = fnp.asarray(host)  # has no device buffer yet
    add = fx.jit(lambda x: x + 1, donate_argnums=0)
    assert add(host).tolist() == add(x).tolist() == [1, 2, 3, 4]
    assert host.tolist() == [0, 1, 2, 3]
    assert x.is_deleted()


def test_equal_types_share_one_trace() -> None:
    traced = []

    @fx.jit
    def f(x: Any) -> Any:
        traced.append(x)
        return x * 2

    y = f(np.ones(3, np.float32))
    f(f(f(y)))
    f(fnp.ones(3))
    f(fnp.ones(3) + fnp.ones(3))
    assert len(traced) == 1


def test_fast_path_checks_all_conditions() -> None:
    """Changes, one at a time, each condition that the fast path of a cached call checks."""
    weights = fnp.asarray([1.0, 2.0, 3.0])
    f = fx.jit(lambda x, y: {"sum": x + weights * y})
    x, y = fnp.asarray([1.0, 1.0, 1.0]), fnp.asarray([2.0, 2.0, 2.0])
    for _ in range(3):
        assert f(x, y)["sum"].tolist() == [3, 5, 7]
    assert f(fnp.asarray([0.0, 0.0, 0.0]), y)["sum"].tolist() == [2, 4, 6]  # still a host buffer
    assert f(x, fnp.asarray(2.0))["sum"].tolist() == [3, 5, 7]
    assert f(x, y=y)["sum"].tolist() == [3, 5, 7]
    assert f(x, np.full(3, 2, np.float32))["sum"].tolist() == [3, 5, 7]
    assert fx.vmap(f)(fnp.stack([x, x]), fnp.stack([y, y]))["sum"].tolist() == [[3, 5, 7]] * 2
    with fx.disable_jit():
        assert f(x, y)["sum"].tolist() == [3, 5, 7]
    with pytest.raises(TypeError, match="missing"):
        untyped(f)(x)
    for _ in range(2):
        assert f(x, y)["sum"].tolist() == [3, 5, 7]


def test_fast_path_takes_any_way_of_passing_arguments() -> None:
    f: Any = fx.jit(lambda x, n=1, *, tree=None, flag=False: x * n + (tree or {"a": 1.0})["a"] - flag, static_argnums=1)
    g: Any = fx.jit(lambda x, n=1, *, tree=None, flag=False: x * n + (tree or {"a": 1.0})["a"] - flag)
    x, one = fnp.asarray([1.0, 2.0]), fnp.asarray(1.0)
    other = fnp.asarray(3.0)
    for _ in range(3):
        assert f(x, 2).tolist() == f(x, n=2).tolist() == f(n=2, x=x).tolist() == f(x, True + 1).tolist() == [3, 5]
        assert f(x, 3).tolist() == [4, 7]
        assert f(x, 2, tree={"a": other}).tolist() == f(x, 2, tree={"a": 3.0}).tolist() == [5, 7]
        assert f(x, 2, flag=one).tolist() == g(x, n=2, flag=one).tolist() == g(x, 2, flag=True).tolist() == [2, 4]
        assert g(x, other, tree={"a": other}).tolist() == g(x, 3, tree={"a": other}).tolist() == [6, 9]
        assert g(x=x).tolist() == f(x=x).tolist() == g(x).tolist() == [2, 3]
        assert g(x, *[2], tree={"a": one, "b": None}).tolist() == [3, 5]


def test_fast_path_takes_many_arguments() -> None:
    f: Any = fx.jit(lambda *xs: sum(xs))
    for n in (1, 2, 63, 64, 65, 100):
        xs = [fnp.asarray(float(i)) for i in range(n)]
        for _ in range(3):
            assert f(*xs) == f(*xs[:-1], n - 1.0) == n * (n - 1) / 2


def test_static_arguments_whose_hash_may_change_are_compared_by_value() -> None:
    class Mutable:
        def __init__(self, value: int) -> None:
            self.value = value

        @override
        def __hash__(self) -> int:
            return hash(self.value)

        @override
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Mutable) and self.value == other.value

    f: Any = fx.jit(lambda x, c: x * c.value, static_argnums=1)
    c = Mutable(2)
    assert [f(1.0, c), f(1.0, c), f(1.0, Mutable(2))] == [2, 2, 2]
    c.value = 5
    assert [f(1.0, c), f(1.0, c), f(1.0, Mutable(2))] == [5, 5, 2]


def test_jitted_functions_are_freed_without_garbage_collection() -> None:
    """No reference cycle keeps a program and its constants; the attribute `__call__` alone keeps working."""
    weights = fnp.arange(3.0)
    f = fx.jit(lambda x: x * weights)
    for _ in range(3):
        f(2.0)
    call, deleted = f.__call__, weakref.ref(f)
    gc.disable()
    try:
        del f
        assert deleted() is None
    finally:
        gc.enable()
    assert call(2.0).tolist() == [0, 2, 4]
    assert call(fnp.asarray([1.0, 1.0, 2.0])).tolist() == [0, 1, 4]
    with pytest.raises(TypeError, match="missing"):
        untyped(call)()


@pytest.mark.parametrize("tree", [False, True])
def test_fast_path_respects_enable_x64(tree: bool) -> None:
    f: Any = fx.jit(lambda x: (x["x"] if tree else x) + fnp.zeros(3))
    x = fnp.asarray([1, 2, 3], dtype=np.int32)
    for _ in range(2):
        for x64, dtype in ((False, np.float32), (True, np.float64)):
            with fx.enable_x64(x64):
                for _ in range(2):
                    assert f({"x": x} if tree else x).dtype == dtype


def test_alternating_tree_structures_are_traced_once_each() -> None:
    traced = []

    @fx.jit
    def f(tree: dict[str, Any]) -> Any:
        traced.append(sorted(tree))
        return sum(tree.values())

    x = fnp.asarray([1.0, 2.0])
    for _ in range(3):
        assert f({"a": x}).tolist() == [1, 2]
        assert f({"a": x, "b": x}).tolist() == [2, 4]
        assert f({"a": 1}).tolist() == 1
    assert len(traced) == 3
    f.clear_cache()
    assert f({"a": x}).tolist() == [1, 2]
    assert len(traced) == 4


# ------------------------------------------------------------------ the fast path agrees with the slow path


class Half(float):
    """A subclass of float."""


class Words(np.ndarray):
    """A subclass of NumPy's arrays."""


def unaligned(x: Host) -> Host:
    memory = np.zeros(x.nbytes + 1, np.uint8)
    copy = memory[1:].view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy


def described(out: Any) -> tuple[object, ...]:
    """Everything that a caller sees of an array, with the bits of the elements."""
    return (type(out), out.dtype, out.shape, out.weak_type, np.asarray(out).tobytes(), out.committed)


F32: Final = np.arange(6, dtype=np.float32).reshape(2, 3)
LEAVES: Final[Mapping[str, Any]] = {
    "float": 0.1,
    "another float": 7.25,
    "zero": 0.0,
    "minus zero": -0.0,
    "nan": math.nan,
    "another nan": -math.nan,
    "infinity": math.inf,
    "int": 3,
    "int like the float": 1,
    "float like the int": 1.0,
    "bool like the int": True,
    "complex": 1 + 2j,
    "complex zero": complex(-0.0, 0.0),
    "another complex zero": complex(0.0, -0.0),
    "np.float32": np.float32(0.1),
    "np.float32 minus zero": np.float32(-0.0),
    "np.float64": np.float64(0.1),
    "np.float16": np.float16(0.1),
    "np.bool": np.True_,
    "np.int8": np.int8(1),
    "np.int64": np.int64(1),
    "zero-dimensional": np.array(0.1, np.float32),
    "subclass of float": Half(0.1),
    "subclass of ndarray": F32.view(Words),
    "float32": F32,
    "float64": F32.astype(np.float64),
    "int64": F32.astype(np.int64),
    "Fortran": np.asfortranarray(F32),
    "strided": np.repeat(F32, 2, 1)[:, ::2],
    "reversed": F32[::-1],
    "broadcast": np.broadcast_to(np.float32(2), (2, 3)),
    "unaligned": unaligned(F32),
}


@pytest.mark.parametrize("x64", [False, True], ids=["x32", "x64"])
def test_fast_path_agrees_with_slow_path_for_any_leaves(x64: bool) -> None:
    def f(x: Any, tree: Any) -> Any:
        return fnp.stack([tree["y"], tree["y"]]) if tree["y"].dtype == fx.random.key(0).dtype else x + tree["y"]

    one: Any = fnp.asarray(np.float32(1))
    with fx.enable_x64(x64):
        fast = fx.jit(f)
        fast_flat = fx.jit(lambda x, y: f(x, {"y": y}))
        for _ in range(2):
            for leaf in (*LEAVES.values(), fnp.asarray(F32), fx.jit(lambda: 0.1)(), fx.random.key(1)):
                expected = fx.jit(lambda x, tree: f(x, tree))(one, {"y": leaf})
                for out in (fast(one, {"y": leaf}), fast_flat(one, leaf), fast_flat(one, y=leaf)):
                    if expected.dtype == fx.random.key(0).dtype:
                        assert repr(out) == repr(expected)
                    else:
                        assert described(out) == described(expected)


@pytest.mark.parametrize("name", ["float32", "Fortran", "strided", "unaligned", "float64", "zero-dimensional"])
def test_fast_path_copies_numpy_arguments(name: str) -> None:
    f = fx.jit(lambda x: [x + 1, x])
    x: Any = LEAVES[name].copy() if name != "unaligned" else unaligned(F32)
    for _ in range(3):
        expected = x.copy()
        increased, same = f(x)
        x[...] = 100
        np.testing.assert_array_equal(np.asarray(same), expected)
        np.testing.assert_array_equal(np.asarray(increased), expected + 1)
        x[...] = expected


def test_donated_numbers_are_not_overwritten() -> None:
    f = fx.jit(lambda x: x + 1, donate_argnums=0)
    g = fx.jit(lambda x: x)
    number: Any = 0.625
    for _ in range(3):
        assert float(f(number)) == 1.625
        assert float(g(number)) == 0.625


def test_numbers_out_of_bounds_are_rejected_on_the_fast_path() -> None:
    f = fx.jit(lambda x: x + 1)
    for _ in range(2):
        assert int(f(7)) == 8
        with pytest.raises(OverflowError, match="int32"):
            f(1 << 40)


def test_byte_swapped_arrays_are_rejected_on_the_fast_path() -> None:
    f = fx.jit(lambda x: x + 1)
    for _ in range(3):
        f(F32)
        with pytest.raises(TypeError, match="byte order"):
            f(F32.astype(F32.dtype.newbyteorder()))


@attrs.define(eq=False)
class Config:
    """A mutable static argument, whose hash changes with it."""

    scale: float

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self.scale == other.scale

    @override
    def __hash__(self) -> int:
        return hash(self.scale)


def test_mutated_static_argument_is_traced_again() -> None:
    f = fx.jit(lambda x, config: x * config.scale, static_argnums=1)
    config = Config(2.0)
    x = fnp.asarray([1.0, 2.0])
    for scale in (2.0, 3.0, 2.0):
        config.scale = scale
        for _ in range(2):
            assert f(x, config).tolist() == [scale, 2 * scale]


def test_static_arguments_are_compared_strictly_on_the_fast_path() -> None:
    f = fx.jit(lambda x, n, *, m=None: (x, repr(n), repr(m))[0] * 0 + len(repr((n, m))), static_argnames=("n", "m"))
    values: list[Any] = [1, True, 1.0, 0.0, -0.0, math.nan, (1,), (True,), (1.0,), None, "1", b"1", f, int, Half(1)]
    x = fnp.asarray(0.0)
    for _ in range(2):
        for n in values:
            assert float(f(x, n)) == float(f(x, n=n)) == len(repr((n, None)))
            assert float(f(x, 0, m=n)) == len(repr((0, n)))
    with pytest.raises(ValueError, match="must be hashable"):
        f(x, [1])


def test_keyword_arguments_are_matched_by_name() -> None:
    f = fx.jit(lambda **numbers: sum([10**i * numbers[k] for i, k in enumerate(sorted(numbers))]))
    x, y = fnp.asarray(1), fnp.asarray(2)
    for _ in range(3):
        assert int(f(a=x, b=y)) == int(f(b=y, a=x)) == 21
        assert int(f(a=x, c=y)) == 21
        assert int(f(a=y, b=x)) == 12
        assert int(f(a=x)) == 1


def test_arguments_in_a_tuple_are_not_taken_for_positional_ones() -> None:
    f = fx.jit(lambda *args: len(args) + 0 * sum(fx.tree.leaves(args)))
    x = fnp.asarray(1)
    calls: list[tuple[Any, ...]] = [((x, x), ()), (x, x), ([x], x), (x, None, x), ((x,), (x,)), (x, {"a": x})]
    for _ in range(3):
        for args in calls:
            assert int(f(*args)) == len(args)


def test_more_signatures_in_turn_than_the_fast_path_remembers() -> None:
    traced = []

    @fx.jit
    def f(x: Any) -> Any:
        traced.append(x)
        return x + 1

    for _ in range(3):
        for size in range(MAX_RECENT + 3):
            assert f(fnp.zeros(size)).shape == (size,)
    assert len(traced) == MAX_RECENT + 3
    assert len(f._recent) == MAX_RECENT


def test_fast_path_rejects_deleted_arrays_and_leaked_tracers() -> None:
    leaked: list[Any] = []
    f = fx.jit(lambda x: x + 1)
    x = fnp.asarray([1.0, 2.0])
    f(x)
    f(x)
    fx.jit(leaked.append)(x)
    with pytest.raises(fx.errors.EscapedTracerError):
        f(leaked[0])
    x.delete()
    with pytest.raises(fx.errors.DeletedArrayError):
        f(x)


def test_the_fast_path_keeps_constants_that_are_deleted() -> None:
    constant = fnp.asarray([1.0, 2.0])
    f = fx.jit(lambda x: x + constant)
    x = fnp.asarray([1.0, 2.0])
    f(x)
    f(x)
    constant.delete()
    assert np.array_equal(f(x), [2.0, 4.0])


def test_unused_constants_and_arguments_are_not_transferred() -> None:
    unused = fnp.asarray(np.ones(3, np.float32))
    f = fx.jit(lambda x, y: (unused.shape[0] + x, 0 * unused)[0])
    x, y = fnp.asarray(1.0), fnp.asarray(np.ones(4, np.float32))
    for _ in range(3):
        assert float(f(x, y)) == 4
        assert float(f(x, np.ones(4, np.float32))) == 4
        assert f(x, y).shape == ()
    assert isinstance(y, ConcreteArray)
    assert y.buffer is None


def test_compiled_call_agrees_with_jitted_one() -> None:
    f = fx.jit(lambda x, n, tree: {"out": x * n + tree["y"]}, static_argnums=1)
    x = fnp.asarray([1.0, 2.0])
    compiled = f.lower(x, 3, {"y": 1.0}).compile()
    for _ in range(3):
        assert compiled(x, 3, {"y": 0.5})["out"].tolist() == f(x, 3, {"y": 0.5})["out"].tolist() == [3.5, 6.5]
        assert compiled(np.array([0, 1], np.float32), 3, {"y": -0.0})["out"].tolist() == [0, 3]
        for wrong in [(x, 4, {"y": 1.0}), (x, 3, {"y": 1}), (x, 3, {"z": 1.0}), (x[:1], 3, {"y": 1.0})]:
            with pytest.raises(TypeError, match="other arguments"):
                compiled(*wrong)
        with pytest.raises(TypeError, match="cannot be transformed"):
            fx.vmap(lambda x: compiled(x, 3, {"y": 1.0}))(fnp.stack([x, x]))
        with fx.enable_x64(), pytest.raises(TypeError, match="enable_x64"):
            compiled(x, 3, {"y": fnp.asarray(1.0)})


def test_fast_path_in_threads() -> None:
    """Threads call one function with signatures that replace each other."""
    f = fx.jit(lambda x, n: x * n, static_argnames="n")
    arrays = [fnp.ones(size) for size in range(1, MAX_RECENT + 2)]

    def work(seed: int) -> bool:
        results = [f(arrays[(seed + i) % len(arrays)], n=i % 3) for i in range(200)]
        return all(out.tolist() == [i % 3] * arrays[(seed + i) % len(arrays)].shape[0] for i, out in enumerate(results))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))
