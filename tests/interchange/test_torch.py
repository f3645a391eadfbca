"""Zero-copy DLPack exchange with PyTorch, which is not a test dependency because its wheels are too large."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp

torch: Any = pytest.importorskip("torch", reason="the tests don't install PyTorch: its wheels are too large")

DTYPES = ("bool", "uint8", "int8", "int64", "uint32", "float16", "bfloat16", "float64", "complex64", "float8_e4m3fn")


def address(x: Any) -> int:
    pointer: int = np.asarray(x).__array_interface__["data"][0]
    return pointer


@pytest.mark.parametrize("dtype", DTYPES)
def test_round_trip_shares_memory(dtype: str) -> None:
    for x in (fnp.arange(6).reshape(2, 3).astype(dtype), fx.jit(lambda x: x)(fnp.ones(100, dtype))):
        tensor_ = torch.from_dlpack(x)
        assert str(tensor_.dtype) == f"torch.{dtype}"
        assert tuple(tensor_.shape) == x.shape
        assert tensor_.data_ptr() == address(x)
        restored = fnp.from_dlpack(tensor_)
        assert restored.dtype == x.dtype
        assert address(restored) == tensor_.data_ptr()
        assert restored.tolist() == x.tolist()


def test_from_dlpack_of_a_transposed_tensor_shares_memory() -> None:
    x = torch.arange(6.0).reshape(2, 3).T
    imported = fnp.from_dlpack(x, copy=False)
    assert address(imported) == x.data_ptr()
    assert (imported @ imported.T).tolist() == (x @ x.T).tolist()


def test_gradient_of_an_array_from_torch() -> None:
    x = fnp.from_dlpack(torch.arange(3.0))
    assert torch.from_dlpack(fx.grad(lambda x: (x**2).sum())(x)).tolist() == [0.0, 2.0, 4.0]


def test_from_dlpack_of_unsupported_tensors_raises() -> None:
    for tensor in (torch.ones(3, requires_grad=True), torch.ones(3, dtype=torch.complex64).conj()):
        with pytest.raises(BufferError):
            fnp.from_dlpack(tensor)


def test_torch_from_dlpack_of_a_tracer_raises() -> None:
    with pytest.raises(TypeError, match="a NumPy array needs a concrete value"):
        fx.jit(torch.from_dlpack)(fnp.ones(3))


def test_asarray_in_both_directions() -> None:
    assert torch.asarray(fnp.ones(2)).tolist() == [1.0, 1.0]
    assert fnp.asarray(torch.ones(2)).tolist() == [1.0, 1.0]
