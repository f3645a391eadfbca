"""Conversion of arrays from and to files, buffers, text and other libraries, and the text form of arrays."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude=jax

from __future__ import annotations

import io
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp

jax.config.update("jax_explicit_x64_dtypes", "allow")


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "float64", "complex64", "bfloat16"])
def test_save_and_load_round_trip(dtype: str) -> None:
    x = fnp.arange(6).reshape(2, 3).astype(dtype)
    file = io.BytesIO()
    fnp.save(file, x)
    file.seek(0)
    loaded = fnp.load(file)
    assert loaded.dtype == x.dtype
    assert (loaded == x).all()


def test_savez_saves_arrays_by_name() -> None:
    file = io.BytesIO()
    fnp.savez(file, a=fnp.ones(2), b=fnp.zeros(3))
    file.seek(0)
    loaded = fnp.load(file)
    assert [loaded["a"].tolist(), loaded["b"].tolist()] == [[1.0, 1.0], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.frombuffer(b"\x01\x00\x02\x00", "int16"),
        lambda m: m.frombuffer(np.arange(3.0)),
        lambda m: m.frombuffer(np.arange(4, dtype="float32").tobytes(), "float32", 2, 4),
        lambda m: m.fromstring("1 2", sep=" "),
        lambda m: m.fromstring("1,2,3", "int32", 2, sep=","),
        lambda m: m.fromfunction(lambda i, j: 10 * i + j, (2, 3)),
        lambda m: m.fromfunction(lambda i: i, 3, dtype=int),
        lambda m: m.fromfunction(lambda: m.ones(2), ()),
        lambda m: m.fromfunction(lambda i, j: m.stack([i, j]), (2, 1), dtype="int8"),
    ],
)
def test_buffer_string_and_function_creation_match_jax(call: Any) -> None:
    got, expected = call(fnp), call(jnp)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(got), np.asarray(expected))


def test_fromfunction_passes_keyword_arguments() -> None:
    assert fnp.fromfunction(lambda i, by: i * by, 3, by=2.0).tolist() == [0.0, 2.0, 4.0]


@pytest.mark.parametrize("name", ["fromfile", "fromiter"])
def test_fromfile_and_fromiter_are_not_implemented(name: str) -> None:
    with pytest.raises(NotImplementedError):
        getattr(jnp, name)("file")
    with pytest.raises(NotImplementedError, match=f"{name} .* use numpy.{name}|numpy.{name}, then"):
        getattr(fnp, name)("file")


def test_frombuffer_of_incomplete_elements_raises() -> None:
    with pytest.raises(ValueError, match="multiple of element size"):
        fnp.frombuffer(b"abc", "int16")


# ------------------------------------------------------------------ DLPack


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float64", "complex64"])
def test_dlpack_from_numpy(dtype: str) -> None:
    x = np.arange(6).reshape(2, 3).astype(dtype)
    out = fnp.from_dlpack(x)
    assert out.dtype == x.dtype
    np.testing.assert_array_equal(np.asarray(out), x)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_dlpack_from_jax_and_back_without_a_copy(dtype: Any) -> None:
    x = jnp.arange(64, dtype=dtype)
    out = fnp.from_dlpack(x)
    assert out.dtype == x.dtype
    restored = jnp.from_dlpack(out)
    assert restored.unsafe_buffer_pointer() == x.unsafe_buffer_pointer()


def test_from_dlpack_of_a_tracefx_array_returns_it() -> None:
    x = fnp.arange(3)
    assert fnp.from_dlpack(x) is x
    copied = fnp.from_dlpack(x, copy=True)
    assert copied is not x
    assert (copied == x).all()


def test_from_dlpack_with_copy() -> None:
    x = np.arange(3.0)
    out = fnp.from_dlpack(x, copy=True)
    x[0] = 5.0
    assert out.tolist() == [0.0, 1.0, 2.0]


def test_from_dlpack_of_strided_memory_onto_a_device_copies_or_raises() -> None:
    x = np.arange(64.0)[::2]
    device, *_ = fx.devices()
    assert fnp.from_dlpack(x, device=device).tolist() == x.tolist()
    with pytest.raises(BufferError, match="cannot be shared without a copy"):
        fnp.from_dlpack(x, device=device, copy=False)


def test_arrays_from_dlpack_work_under_jit_and_grad() -> None:
    x = fnp.from_dlpack(np.arange(3.0, dtype=np.float32))
    assert fx.jit(fx.grad(lambda x: fnp.sum(x**2)))(x).tolist() == [0.0, 2.0, 4.0]


# ------------------------------------------------------------------ text


def test_array_repr_and_array_str() -> None:
    x = fnp.array([1 / 3, 2e-8])
    assert fnp.array_repr(x, precision=2, suppress_small=True) == "Array([0.33, 0.  ], dtype=float32)"
    assert fnp.array_str(x, precision=2, suppress_small=True) == "[0.33 0.  ]"
    assert fnp.array_str(x) == jnp.array_str(np.asarray(x))
    assert fnp.array_repr(fnp.ones((2, 2))) == "Array([[1., 1.],\n       [1., 1.]], dtype=float32)"


def test_printoptions_apply_to_arrays() -> None:
    with fnp.printoptions(precision=2):
        assert fnp.get_printoptions()["precision"] == 2
        assert repr(fnp.array([1 / 3])) == "Array([0.33], dtype=float32)"


def test_array_str_of_a_tracer_raises() -> None:
    with pytest.raises(TypeError):
        fx.jit(lambda x: fnp.array_str(x))(1.0)
