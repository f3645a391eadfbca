"""Dispatch of compiled calls: NumPy arguments, unused arguments, and the fast path."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp

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
        f(x)  # type: ignore[call-arg]
    for _ in range(2):
        assert f(x, y)["sum"].tolist() == [3, 5, 7]


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
