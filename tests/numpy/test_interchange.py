"""Arrays from elsewhere, and to elsewhere: files, memory, text, other libraries; how arrays are shown."""

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
def test_what_is_saved_is_loaded(dtype: str) -> None:
    x = fnp.arange(6).reshape(2, 3).astype(dtype)
    file = io.BytesIO()
    fnp.save(file, x)
    file.seek(0)
    loaded = fnp.load(file)
    assert loaded.dtype == x.dtype
    assert (loaded == x).all()


def test_several_arrays_are_saved_by_name() -> None:
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
def test_made_as_in_jax(call: Any) -> None:
    ours, theirs = call(fnp), call(jnp)
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


def test_further_arguments_reach_the_function() -> None:
    assert fnp.fromfunction(lambda i, by: i * by, 3, by=2.0).tolist() == [0.0, 2.0, 4.0]


@pytest.mark.parametrize("name", ["fromfile", "fromiter"])
def test_what_reads_while_tracing_is_refused(name: str) -> None:
    with pytest.raises(NotImplementedError):
        getattr(jnp, name)("file")
    with pytest.raises(NotImplementedError, match=f"{name} .* use numpy.{name}|numpy.{name}, then"):
        getattr(fnp, name)("file")


def test_bytes_that_are_no_whole_numbers_are_refused() -> None:
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
    again = jnp.from_dlpack(out)
    assert again.unsafe_buffer_pointer() == x.unsafe_buffer_pointer()


def test_dlpack_of_an_array_of_ours_is_that_array() -> None:
    x = fnp.arange(3)
    assert fnp.from_dlpack(x) is x
    copied = fnp.from_dlpack(x, copy=True)
    assert copied is not x
    assert (copied == x).all()


def test_a_copy_is_asked_for() -> None:
    x = np.arange(3.0)
    out = fnp.from_dlpack(x, copy=True)
    x[0] = 5.0
    assert out.tolist() == [0.0, 1.0, 2.0]


def test_memory_that_xla_cannot_use_is_copied_onto_a_device_unless_that_is_refused() -> None:
    x = np.arange(64.0)[::2]
    device, *_ = fx.devices()
    assert fnp.from_dlpack(x, device=device).tolist() == x.tolist()
    with pytest.raises(BufferError, match="cannot be shared without a copy"):
        fnp.from_dlpack(x, device=device, copy=False)


def test_what_came_by_dlpack_is_computed_with() -> None:
    x = fnp.from_dlpack(np.arange(3.0, dtype=np.float32))
    assert fx.jit(fx.grad(lambda x: fnp.sum(x**2)))(x).tolist() == [0.0, 2.0, 4.0]


# ------------------------------------------------------------------ text


def test_arrays_as_text() -> None:
    x = fnp.array([1 / 3, 2e-8])
    assert fnp.array_repr(x, precision=2, suppress_small=True) == "Array([0.33, 0.  ], dtype=float32)"
    assert fnp.array_str(x, precision=2, suppress_small=True) == "[0.33 0.  ]"
    assert fnp.array_str(x) == jnp.array_str(np.asarray(x))
    assert fnp.array_repr(fnp.ones((2, 2))) == "Array([[1., 1.],\n       [1., 1.]], dtype=float32)"


def test_numpys_options_say_how() -> None:
    with fnp.printoptions(precision=2):
        assert fnp.get_printoptions()["precision"] == 2
        assert repr(fnp.array([1 / 3])) == "Array([0.33], dtype=float32)"


def test_what_is_traced_has_no_text_of_numbers() -> None:
    with pytest.raises(TypeError):
        fx.jit(lambda x: fnp.array_str(x))(1.0)
