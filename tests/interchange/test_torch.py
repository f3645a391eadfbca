"""DLPack with PyTorch, both ways without a copy. PyTorch is no dependency of the tests: its wheels are too large."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp

torch: Any = pytest.importorskip("torch", reason="the tests don't install PyTorch: its wheels are too large")

DTYPES = ("bool", "uint8", "int8", "int64", "uint32", "float16", "bfloat16", "float64", "complex64", "float8_e4m3fn")


def address(x: Any) -> int:
    found: int = np.asarray(x).__array_interface__["data"][0]
    return found


@pytest.mark.parametrize("dtype", DTYPES)
def test_there_and_back_without_a_copy(dtype: str) -> None:
    for x in (fnp.arange(6).reshape(2, 3).astype(dtype), fx.jit(lambda x: x)(fnp.ones(100, dtype))):
        theirs = torch.from_dlpack(x)
        assert str(theirs.dtype) == f"torch.{dtype}"
        assert tuple(theirs.shape) == x.shape
        assert theirs.data_ptr() == address(x)
        again = fnp.from_dlpack(theirs)
        assert again.dtype == x.dtype
        assert address(again) == theirs.data_ptr()
        assert again.tolist() == x.tolist()


def test_tensors_that_lie_crosswise_are_shared() -> None:
    x = torch.arange(6.0).reshape(2, 3).T
    ours = fnp.from_dlpack(x, copy=False)
    assert address(ours) == x.data_ptr()
    assert (ours @ ours.T).tolist() == (x @ x.T).tolist()


def test_what_came_from_torch_is_differentiated() -> None:
    x = fnp.from_dlpack(torch.arange(3.0))
    assert torch.from_dlpack(fx.grad(lambda x: (x**2).sum())(x)).tolist() == [0.0, 2.0, 4.0]


def test_what_torch_keeps_to_itself() -> None:
    for tensor in (torch.ones(3, requires_grad=True), torch.ones(3, dtype=torch.complex64).conj()):
        with pytest.raises(BufferError):
            fnp.from_dlpack(tensor)


def test_tracers_have_no_memory() -> None:
    with pytest.raises(TypeError, match="a NumPy array needs a concrete value"):
        fx.jit(torch.from_dlpack)(fnp.ones(3))


def test_conversions_by_name() -> None:
    assert torch.asarray(fnp.ones(2)).tolist() == [1.0, 1.0]
    assert fnp.asarray(torch.ones(2)).tolist() == [1.0, 1.0]
