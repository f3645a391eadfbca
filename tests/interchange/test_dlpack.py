"""DLPack both ways without a copy: NumPy and JAX. (PyTorch: test_torch.py.)"""

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

SHARED = ("bool", "int8", "uint64", "float16", "float32", "complex128")


def address(x: Any) -> int:
    found: int = x.__array_interface__["data"][0]
    return found


@pytest.mark.parametrize("dtype", SHARED)
@pytest.mark.parametrize("size", [3, 40_000])
def test_numpy_takes_our_memory_as_it_lies(dtype: str, size: int) -> None:
    for x in (fnp.arange(size).astype(dtype), fx.jit(lambda x: x + x)(fnp.ones(size, dtype))):
        theirs = np.from_dlpack(x)
        assert theirs.dtype == x.dtype
        assert address(theirs) == address(np.asarray(x))
        assert not theirs.flags.writeable
        np.testing.assert_array_equal(theirs, np.asarray(x))


@pytest.mark.parametrize("dtype", SHARED)
def test_we_take_numpys_memory_as_it_lies(dtype: str) -> None:
    x = np.arange(70).astype(dtype)
    for view in (x, x[1:], x[::2], x[::-1], x.reshape(7, 10).T, x[:0]):
        for copy in (None, False):
            ours = fnp.from_dlpack(view, copy=copy)
            assert (ours.dtype, ours.shape) == (view.dtype, view.shape)
            assert address(np.asarray(ours)) == address(view)
            assert not np.asarray(ours).flags.writeable
            np.testing.assert_array_equal(np.asarray(ours), view)
    assert x.flags.writeable


def test_what_lies_crosswise_is_computed_with() -> None:
    x = np.arange(6.0).reshape(2, 3)
    ours = fnp.from_dlpack(x.T)
    assert fx.jit(lambda x: x + 1)(ours).tolist() == (x.T + 1).tolist()
    assert (ours @ fnp.from_dlpack(x)).tolist() == (x.T @ x).tolist()


def test_memory_of_another_byte_order_is_converted() -> None:
    assert fnp.from_dlpack(np.arange(3).astype(">i4")).tolist() == [0, 1, 2]


@pytest.mark.skipif(not TAKES_COPY_FROM_DLPACK, reason="NumPy 2.0 cannot ask for a copy")
def test_a_copy_is_the_consumers_own() -> None:
    x = fnp.ones(3)
    theirs = np.from_dlpack(x, copy=True)
    theirs[0] = 5.0
    assert x.tolist() == [1.0, 1.0, 1.0]
    assert np.from_dlpack(x, copy=False, device="cpu").tolist() == [1.0, 1.0, 1.0]


def test_a_capsule_without_a_version_shares_memory_too() -> None:
    class Old:
        def __init__(self, x: fx.Array) -> None:
            self.x = x

        def __dlpack__(self, **_: object) -> Any:
            return self.x.__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.x.__dlpack_device__()

    x = fnp.asarray(np.arange(3.0)[1:])
    theirs = np.from_dlpack(Old(x))
    assert theirs.tolist() == x.tolist() == [1.0, 2.0]
    assert address(theirs) == address(np.asarray(x))


def test_memory_outlives_the_array_it_came_from() -> None:
    theirs = np.from_dlpack(fnp.arange(3) + 1)
    ours = fnp.from_dlpack(np.arange(3) + 1)
    assert theirs.tolist() == ours.tolist() == [1, 2, 3]


def test_where_numbers_cannot_go_is_refused() -> None:
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


def test_what_is_traced_is_itself() -> None:
    assert fx.grad(lambda x: (fnp.from_dlpack(x) ** 2).sum())(fnp.ones(2)).tolist() == [2.0, 2.0]


# ------------------------------------------------------------------ JAX


@pytest.mark.parametrize("dtype", [np.bool, np.int16, np.float32, np.complex64, ml_dtypes.bfloat16])
def test_jax_takes_our_memory_and_we_its(dtype: Any) -> None:
    x = fx.jit(lambda x: x * x)(fnp.arange(64).astype(dtype))
    theirs = jnp.from_dlpack(x)
    again = fnp.from_dlpack(theirs)
    assert theirs.dtype == again.dtype == x.dtype
    assert theirs.unsafe_buffer_pointer() == address(np.asarray(x)) == address(np.asarray(again))
    np.testing.assert_array_equal(np.asarray(theirs), np.asarray(x))


def test_jax_takes_small_arrays_and_both_are_the_same_memory_then() -> None:
    x = fnp.asarray(np.arange(3.0))
    theirs = jax.dlpack.from_dlpack(x)
    assert theirs.tolist() == [0.0, 1.0, 2.0]
    is_aligned = address(np.asarray(x)) % 64 == 0
    is_shared = theirs.unsafe_buffer_pointer() == address(np.asarray(x))
    assert is_shared == (is_aligned if ASKS_FOR_READ_ONLY_CAPSULES else True)


def test_arrays_of_jax_are_arguments() -> None:
    theirs: Any = jnp.arange(3.0)
    assert fnp.asarray(theirs).tolist() == [0.0, 1.0, 2.0]
    assert jnp.asarray(fnp.arange(3.0)).tolist() == [0.0, 1.0, 2.0]
    assert jax.jit(lambda x: x * 2)(np.asarray(fnp.arange(3.0))).tolist() == [0.0, 2.0, 4.0]
