"""NumPy arrays and numbers as arguments of compiled programs, whose memory calls reuse when a program has finished."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.subprocesses import output_of, refusing

Host = np.ndarray[Any, np.dtype[Any]]


def slow(x: Any, y: Any) -> Any:
    """A function that runs for milliseconds, and reads its second argument at the end."""
    for _ in range(8):
        x = fnp.tanh(x @ x)
    return fnp.sum(x) * 0 + y


MATRIX: Final = np.full((200, 200), 0.01, np.float32)


@pytest.mark.parametrize("calls", [1, 2, 3, 6])
def test_unfinished_calls_keep_their_arguments(calls: int) -> None:
    f = fx.jit(slow)
    x = fnp.asarray(MATRIX)
    f(x, np.zeros(8, np.float32)).block_until_ready()
    host = np.zeros(8, np.float32)
    for _ in range(3):
        outs = []
        for i in range(calls):
            host[:] = i
            outs.append(f(x, host))
        for i, out in enumerate(outs):
            np.testing.assert_array_equal(np.asarray(out), np.full(8, i, np.float32))


def test_unfinished_calls_keep_their_numbers() -> None:
    f = fx.jit(slow)
    x = fnp.asarray(MATRIX)
    f(x, 0.5)
    assert [float(out) for out in [f(x, i + 0.5) for i in range(6)]] == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]


@pytest.mark.parametrize("drop", [lambda out: out.delete(), fx.jit(lambda x: x + 1, donate_argnums=0)])
def test_result_may_be_deleted_while_the_program_runs(drop: Any) -> None:
    f = fx.jit(slow)
    x = fnp.asarray(MATRIX)
    for i in range(6):
        out = f(x, np.full(8, i, np.float32))
        other = f(x, np.full(8, i + 10, np.float32))
        drop(out)
        np.testing.assert_array_equal(np.asarray(other), np.full(8, i + 10, np.float32))


def test_donating_program_reads_other_numpy_arguments() -> None:
    f = fx.jit(lambda state, x: (state + x, x[0]), donate_argnums=0)
    state, host = fnp.zeros(4), np.zeros(4, np.float32)
    for i in range(10):
        host[:] = i
        state, first = f(state, host)
        assert float(first) == i
    assert state.tolist() == [45.0] * 4


def test_threads_do_not_share_memory() -> None:
    f = fx.jit(lambda x, y: x * 2 + y)

    def run(i: int) -> bool:
        host = np.full(8, i, np.float32)
        return all(np.asarray(f(host, float(i))).tolist() == [3.0 * i] * 8 for _ in range(200))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run, range(16)))


def test_function_that_its_own_callback_calls() -> None:
    f = fx.jit(lambda x: fx.pure_callback(inner, fx.ShapeDtypeStruct((3,), np.float32), x) + x)

    def inner(x: Any) -> Host:
        return np.asarray(f(np.asarray(x) - 1)) if x[0] > 0 else np.zeros(3, np.float32)

    for i in (2, 3, 3):
        assert f(np.full(3, i, np.float32)).tolist() == [i * (i + 1) / 2] * 3


@pytest.mark.parametrize(
    "x", [0.1, 3, True, 2 + 3j, math.inf, -math.inf, math.nan, -0.0, 1e300, -1e300, 1e-300, 2**31 - 1]
)
def test_numbers_are_converted_as_by_asarray(x: complex) -> None:
    f = fx.jit(lambda x: fnp.asarray(x)[None])
    expected = np.asarray(fnp.asarray(x))
    for _ in range(4):
        out = np.asarray(f(x))
        assert out.dtype == expected.dtype
        assert out.tobytes() == expected.tobytes()


def test_number_out_of_bounds_is_an_error_on_the_fast_path() -> None:
    f = fx.jit(lambda x: x + 1)
    for _ in range(3):
        assert int(f(1)) == 2
        with pytest.raises(OverflowError, match="2147483648 out of bounds"):
            f(2**31)


@pytest.mark.parametrize(
    "host",
    [
        np.float16(1.5),
        np.arange(3).astype(ml_dtypes.bfloat16),
        np.arange(3).astype(ml_dtypes.int4),
        np.arange(3).astype(ml_dtypes.float8_e4m3fn),
        np.array([1 + 2j, 3], np.complex64),
        np.zeros((0, 3), np.float32),
        np.arange(24, dtype=np.int16).reshape(4, 6)[::2, ::3],
        np.arange(100_000, dtype=np.float32),
    ],
    ids=lambda host: f"{host.dtype}{list(host.shape)}",
)
def test_numpy_values_of_all_dtypes(host: Host) -> None:
    f = fx.jit(lambda x: x[None])
    for _ in range(4):
        out = np.asarray(f(host))
        assert out.dtype == host.dtype
        assert out[0].tobytes() == host.tobytes()


def test_numpy_records_of_random_keys() -> None:
    keys = np.zeros(3, fx.random.key(0).dtype)
    keys["fry"][:, 1] = [1, 2, 3]
    bits = fx.jit(fx.vmap(fx.random.bits))
    expected = [fx.random.bits(fx.random.key(i)).tolist() for i in (1, 2, 3)]
    for _ in range(4):
        assert bits(keys).tolist() == expected


def test_calls_do_not_import_jax() -> None:
    program = """
import numpy as np
import tracefx as fx

def slow(x, y):
    for _ in range(8):
        x = fx.numpy.tanh(x @ x)
    return fx.numpy.sum(x) * 0 + y

f, x = fx.jit(slow), np.full((200, 200), 0.01, np.float32)
for i in range(5):
    out = f(x, np.full(8, i, np.float32)), f(x, float(i))
print(out[0].tolist()[:1], float(out[1]), tried)
"""
    assert output_of(refusing({"jax"}) + program) == "[4.0] 4.0 []\n"
