"""Zero-copy DLPack exchange with NumPy and JAX. (PyTorch: test_torch.py.)"""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude=jax

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.versions import ASKS_FOR_READ_ONLY_CAPSULES, TAKES_COPY_FROM_DLPACK
from tracefx.errors import TracerArrayConversionError

jax.config.update("jax_explicit_x64_dtypes", "allow")

SHARED_DTYPES = ("bool", "int8", "uint64", "float16", "float32", "complex128")


def address(x: Any) -> int:
    pointer: int = x.__array_interface__["data"][0]
    return pointer


@pytest.mark.parametrize("dtype", SHARED_DTYPES)
@pytest.mark.parametrize("size", [3, 40_000])
def test_numpy_from_dlpack_shares_memory(dtype: str, size: int) -> None:
    for x in (fnp.arange(size).astype(dtype), fx.jit(lambda x: x + x)(fnp.ones(size, dtype))):
        exported = np.from_dlpack(x)
        assert exported.dtype == x.dtype
        assert address(exported) == address(np.asarray(x))
        assert not exported.flags.writeable
        np.testing.assert_array_equal(exported, np.asarray(x))


@pytest.mark.parametrize("dtype", SHARED_DTYPES)
def test_from_dlpack_of_numpy_views_shares_memory(dtype: str) -> None:
    x = np.arange(70).astype(dtype)
    for view in (x, x[1:], x[::2], x[::-1], x.reshape(7, 10).T, x[:0]):
        for copy in (None, False):
            imported = fnp.from_dlpack(view, copy=copy)
            assert (imported.dtype, imported.shape) == (view.dtype, view.shape)
            assert address(np.asarray(imported)) == address(view)
            assert not np.asarray(imported).flags.writeable
            np.testing.assert_array_equal(np.asarray(imported), view)
    assert x.flags.writeable


def test_from_dlpack_of_a_transposed_array() -> None:
    x = np.arange(6.0).reshape(2, 3)
    imported = fnp.from_dlpack(x.T)
    assert fx.jit(lambda x: x + 1)(imported).tolist() == (x.T + 1).tolist()
    assert (imported @ fnp.from_dlpack(x)).tolist() == (x.T @ x).tolist()


def test_from_dlpack_converts_byte_order() -> None:
    assert fnp.from_dlpack(np.arange(3).astype(">i4")).tolist() == [0, 1, 2]


@pytest.mark.skipif(not TAKES_COPY_FROM_DLPACK, reason="NumPy 2.0 cannot ask for a copy")
def test_dlpack_copy_is_writable() -> None:
    x = fnp.ones(3)
    exported = np.from_dlpack(x, copy=True)
    exported[0] = 5.0
    assert x.tolist() == [1.0, 1.0, 1.0]
    assert np.from_dlpack(x, copy=False, device="cpu").tolist() == [1.0, 1.0, 1.0]


def test_unversioned_capsule_shares_memory() -> None:
    class Old:
        def __init__(self, x: fx.Array) -> None:
            self.x = x

        def __dlpack__(self, **_: object) -> Any:
            return self.x.__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.x.__dlpack_device__()

    x = fnp.asarray(np.arange(3.0)[1:])
    exported = np.from_dlpack(Old(x))
    assert exported.tolist() == x.tolist() == [1.0, 2.0]
    assert address(exported) == address(np.asarray(x))


def test_shared_memory_outlives_its_array() -> None:
    exported = np.from_dlpack(fnp.arange(3) + 1)
    imported = fnp.from_dlpack(np.arange(3) + 1)
    assert exported.tolist() == imported.tolist() == [1, 2, 3]


def test_unsupported_device_stream_and_dtype_raise() -> None:
    x = fnp.ones(3)
    with pytest.raises(BufferError, match=r"in host memory, .* can't be exported to \(2, 0\)"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(ValueError, match="stream must be None; got 7"):
        x.__dlpack__(stream=7)
    with pytest.raises(BufferError, match="convert it to a dtype of 8 bits or more"):
        x.astype("int4").__dlpack__(max_version=(1, 0))


def test_keys_and_tracers_are_not_exported() -> None:
    with pytest.raises(TypeError, match="are not numbers"):
        np.from_dlpack(fx.random.key(0))
    with pytest.raises(TracerArrayConversionError, match="no derivative"):
        fx.grad(lambda x: np.from_dlpack(x).sum())(1.0)


def test_from_dlpack_of_a_tracer_returns_it() -> None:
    assert fx.grad(lambda x: (fnp.from_dlpack(x) ** 2).sum())(fnp.ones(2)).tolist() == [2.0, 2.0]


# ------------------------------------------------------------------ JAX


@pytest.mark.parametrize("dtype", [np.bool, np.int16, np.float32, np.complex64, ml_dtypes.bfloat16])
def test_dlpack_round_trip_with_jax_shares_memory(dtype: Any) -> None:
    x = fx.jit(lambda x: x * x)(fnp.arange(64).astype(dtype))
    exported = jnp.from_dlpack(x)
    again = fnp.from_dlpack(exported)
    assert exported.dtype == again.dtype == x.dtype
    assert exported.unsafe_buffer_pointer() == address(np.asarray(x)) == address(np.asarray(again))
    np.testing.assert_array_equal(np.asarray(exported), np.asarray(x))


def test_jax_shares_aligned_memory_of_small_arrays() -> None:
    x = fnp.asarray(np.arange(3.0))
    exported = jax.dlpack.from_dlpack(x)
    assert exported.tolist() == [0.0, 1.0, 2.0]
    is_aligned = address(np.asarray(x)) % 64 == 0
    is_shared = exported.unsafe_buffer_pointer() == address(np.asarray(x))
    assert is_shared == (is_aligned if ASKS_FOR_READ_ONLY_CAPSULES else True)


def test_conversion_from_and_to_jax_arrays() -> None:
    exported: Any = jnp.arange(3.0)
    assert fnp.asarray(exported).tolist() == [0.0, 1.0, 2.0]
    assert jnp.asarray(fnp.arange(3.0)).tolist() == [0.0, 1.0, 2.0]
    assert jax.jit(lambda x: x * 2)(np.asarray(fnp.arange(3.0))).tolist() == [0.0, 2.0, 4.0]
