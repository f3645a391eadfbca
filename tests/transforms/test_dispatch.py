"""What compiled calls do with their arguments' memory, and with arguments that the program doesn't need."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp

Host = np.ndarray[Any, np.dtype[Any]]


def test_a_numpy_argument_is_the_callers_again() -> None:
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
def test_numpy_arguments_of_every_kind(host: Host) -> None:
    double = fx.jit(lambda x: fnp.logical_not(x) if x.dtype == bool else x + x)
    expected = np.logical_not(host) if host.dtype == bool else host + host
    for given in (host, fnp.asarray(host), host):
        out = double(given)
        assert out.dtype == fnp.asarray(host).dtype
        np.testing.assert_array_equal(np.asarray(out), expected)


def test_the_setting_is_part_of_the_type_of_a_numpy_argument() -> None:
    double = fx.jit(lambda x: x + x)
    host = np.array([1.0, 1e-9])
    assert double(host).dtype == np.float32
    with fx.enable_x64():
        assert double(host).dtype == np.float64
        np.testing.assert_array_equal(np.asarray(double(host)), host + host)
    assert double(host).dtype == np.float32


def test_an_argument_that_is_an_output_is_copied_if_it_is_numpys() -> None:
    host = np.arange(3, dtype=np.float32)
    same, twice = fx.jit(lambda x: (x, x + x))(host)
    host[:] = 9
    assert same.tolist() == [0, 1, 2]
    assert twice.tolist() == [0, 2, 4]


def test_an_array_that_is_an_output_is_not_copied() -> None:
    x = fnp.arange(3)
    same, _ = fx.jit(lambda x: (x, x + x))(x)
    assert same is x


@pytest.mark.parametrize("used", [(), (0,), (1,), (2,), (0, 1), (1, 2), (0, 2)])
@pytest.mark.parametrize("keep_unused", [False, True])
def test_arguments_that_are_not_used(used: tuple[int, ...], keep_unused: bool) -> None:
    f = fx.jit(lambda *args: sum([args[i] * 2 for i in used], fnp.zeros(())), keep_unused=keep_unused)
    numbers = [1.0, 10.0, 100.0]
    for args in (numbers, list(fnp.asarray(numbers)), list(np.array(numbers, np.float32))):
        assert float(f(*args)) == sum([2 * 10.0**i for i in used])


def test_what_numpy_owns_is_not_given_away() -> None:
    host = np.arange(4, dtype=np.float32)
    x = fnp.asarray(host)  # has no buffer yet, so there is nothing to give away
    add = fx.jit(lambda x: x + 1, donate_argnums=0)
    assert add(host).tolist() == add(x).tolist() == [1, 2, 3, 4]
    assert host.tolist() == x.tolist() == [0, 1, 2, 3]


def test_types_that_are_equal_but_not_one_object_find_one_program() -> None:
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
