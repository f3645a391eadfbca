"""The device computes what the CPU computes: recorded functions, products, decompositions, random bits.

On a GPU all records run, elsewhere a sample.

Results agree within the tolerances of the table, which assume that float32 products are computed in float32. GPUs since
2020 round the operands to TF32 (11 bits of precision) unless `precision` is "highest"; `make test-gpu` turns that off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near, difference
from tests.differential.records import TRACEFX, Call, Record, arrays
from tests.differential.table import RECORDS
from tracefx import lax
from tracefx.core.device import Device
from tracefx.testing.tolerances import PROGRAM, SUMMED

STEP: Final = 40
"""Without a GPU, one in this many records runs."""
ON_GPU: Final = fx.devices()[0].platform == "gpu"
RUNNABLE: Final = [record for record in RECORDS if not record.is_plain and record.calls][:: 1 if ON_GPU else STEP]


@pytest.mark.parametrize("record", RUNNABLE, ids=lambda record: record.name)
def test_functions(record: Record, target: Device, host: Device) -> None:
    f = record.via(TRACEFX)
    calls = [call for call in (*record.calls, *record.values) if _is_valid_call(f, call)]
    operands = [arrays(TRACEFX, call) for call in calls]

    def run_all(xss: list[Any]) -> list[Any]:
        return [fx.tree.leaves(call.of(f, xs)) for call, xs in zip(calls, xss, strict=True)]

    program = fx.jit(run_all)
    with fx.default_device(host):
        want = program(operands)
    got = program(operands)
    for call, g, w in zip(calls, got, want, strict=True):
        assert difference(g, w, record.ulps) == "", f"{record.name} of {call}"


def _is_valid_call(f: Callable[..., Any], call: Call) -> bool:
    try:
        fx.eval_shape(lambda: call.of(f, arrays(TRACEFX, call)))
    except (TypeError, ValueError, NotImplementedError):
        return False  # the table records invalid calls too
    return True


def both(host: Device, f: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
    """Returns the results of `f` on the device under test and on the host."""
    program = fx.jit(f)
    with fx.default_device(host):
        want = program(*args)
    return program(*args), want


def drawn(*shape: int, dtype: str = "float32", seed: int = 0) -> fx.Array:
    return fnp.asarray(np.random.default_rng(seed).standard_normal(shape).astype(np.float32)).astype(dtype)


# ------------------------------------------------------------------ products

NARROW: Final = ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")


@pytest.mark.parametrize("dtype", [*NARROW, "float32", "int8"])
def test_products(dtype: str, target: Device, host: Device) -> None:
    a, b = drawn(48, 64, dtype=dtype), drawn(64, 32, dtype=dtype, seed=1)
    result = "int32" if dtype == "int8" else "float32"
    got, want = both(host, lambda a, b: lax.dot(a, b, precision="highest", preferred_element_type=result), a, b)
    assert got.device is target
    # The products are exact in float32, since the factors have few bits. Sums differ by their order.
    assert_near(got, want, SUMMED)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_convolutions(dtype: str, target: Device, host: Device) -> None:
    images, kernels = drawn(2, 4, 9, 9, dtype=dtype), drawn(8, 4, 3, 3, dtype=dtype, seed=1)
    got, want = both(host, lambda x, k: lax.conv(x, k, (1, 1), "SAME", precision="highest"), images, kernels)
    assert got.device is target
    assert_near(got, want, SUMMED)


@pytest.mark.parametrize("shape", [(64,), (3, 45)], ids=str)
def test_fourier_transforms(shape: tuple[int, ...], target: Device, host: Device) -> None:
    x = drawn(*shape)
    got, want = both(host, lambda x: (fnp.fft.fft(x), fnp.fft.irfft(fnp.fft.rfft(x), x.shape[-1])), x)
    assert got[0].device is target
    assert_near(got[0], want[0], PROGRAM)
    assert_near(got[1], x, PROGRAM)


# ------------------------------------------------------------------ decompositions, by their residuals


def test_decompositions(target: Device) -> None:
    a = drawn(2, 12, 12) + 4 * fnp.eye(12)
    spd = fnp.matmul(a, a.mT, precision="highest")

    @fx.jit
    def residuals(a: fx.Array, spd: fx.Array) -> list[fx.Array]:
        def times(*factors: fx.Array) -> fx.Array:
            out = factors[0]
            for x in factors[1:]:
                out = fnp.matmul(out, x, precision="highest")
            return out

        q, r = fnp.linalg.qr(a)
        u, s, vt = fnp.linalg.svd(a)
        w, v = fnp.linalg.eigh(spd)
        lower = fnp.linalg.cholesky(spd)
        p, low, up = fx.scipy.linalg.lu(a)
        return [
            times(q, r) - a,
            times(u * s[:, None], vt) - a,
            times(v * w[:, None], v.mT) - spd,
            times(lower, lower.mT) - spd,
            times(p, low, up) - a,
            times(a, fnp.linalg.solve(a, fnp.broadcast_to(fnp.eye(12), a.shape))) - fnp.eye(12),
        ]

    norms = residuals(a, spd)
    assert {x.device for x in norms} == {target}
    for x, size in zip(norms, (a, a, spd, spd, a, fnp.eye(12)), strict=True):
        assert float(fnp.max(fnp.abs(x))) <= 64 * float(np.finfo(np.float32).eps) * float(fnp.max(fnp.abs(size)))


# ------------------------------------------------------------------ random bits


@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg"])
def test_random_bits(implementation: str, target: Device, host: Device) -> None:
    def bits(key: fx.Array) -> list[fx.Array]:
        first, second = fx.random.split(key)
        return [fx.random.bits(first, (33,), "uint32"), fx.random.key_data(fx.random.fold_in(second, 5))]

    key = fx.random.key(11, impl=implementation)
    got, want = both(host, bits, key)
    assert got[0].device is target
    if implementation == "threefry2x32":
        assert all(np.array_equal(g, w) for g, w in zip(got, want, strict=True))
    else:  # XLA's generator, which may differ by platform
        assert got[0].shape == want[0].shape
        assert len(np.unique(np.asarray(got[0]))) == 33


# ------------------------------------------------------------------ memory statistics


def test_memory_stats(target: Device) -> None:
    stats: Any = target
    norms = stats.memory_stats()
    if ON_GPU:
        assert norms["bytes_limit"] >= norms["bytes_in_use"] > 0
    else:
        assert norms is None
