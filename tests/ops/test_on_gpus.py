"""GPU lowerings that differ from the CPU's because XLA lacks the operation on GPUs; they are run on the CPU and
compared.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final

import jax
import ml_dtypes
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tracefx import lax
from tracefx.core import DType, NDArray, dtypes
from tracefx.ops.contractions.dot_algorithms import gpu_dot_dtypes


def exported(f: Callable[..., Any], *args: NDArray) -> Any:
    with fx.enable_x64():
        return jax.export.deserialize(bytearray(fx.export(fx.jit(f), platforms=["cuda"])(*args).to_jax()))


def run_on_cpu(exported_program: Any, *args: NDArray) -> Any:
    """Runs a program exported for GPUs on the CPU."""
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, dataclasses.replace(exported_program, platforms=("cpu",)).call(*args))


def evaluate(f: Callable[..., Any], *args: NDArray) -> Any:
    """Evaluates the function with NumPy, because XLA's CPU compiler rejects some of these programs."""
    with fx.enable_x64():
        return fx.tree.map(np.asarray, f(*map(fnp.asarray, args)))


def random_integers(shape: tuple[int, ...], dtype: Any, high: int) -> NDArray:
    """Draws integers from `-high` (0 for unsigned dtypes) up to, but excluding, `high`."""
    low = 0 if np.dtype(dtype).kind == "u" else -high
    return np.asarray(np.random.default_rng(len(shape)).integers(low, high, shape)).astype(dtype)


# ------------------------------------------------------------------ convolutions of integers

CONVOLUTIONS: Final[dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]]] = {
    "no_axes": ((2, 3), (5, 3), {"window_strides": (), "padding": ()}),
    "steps": ((2, 3, 9), (4, 3, 2), {"window_strides": (2,), "padding": ((1, 2),)}),
    "cut": ((2, 3, 9), (4, 3, 2), {"window_strides": (1,), "padding": ((-2, 1),)}),
    "dilated": (
        *((3, 2, 7, 9), (4, 2, 3, 2)),
        {"window_strides": (2, 1), "padding": ((1, 2), (0, 1)), "lhs_dilation": (2, 1), "rhs_dilation": (1, 3)},
    ),
    "feature_groups": (
        (2, 4, 5, 5),
        (6, 2, 3, 3),
        {"window_strides": (1, 2), "padding": "SAME", "feature_group_count": 2},
    ),
    "batch_groups": ((4, 3, 5, 5), (6, 3, 3, 2), {"window_strides": (1, 1), "padding": "SAME", "batch_group_count": 2}),
    "other_axes": (
        *((5, 6, 2, 3), (4, 3, 2, 3)),
        {"window_strides": (1, 2), "padding": "VALID", "dimension_numbers": ("HWNC", "OHWI", "NHWC")},
    ),
    "three_axes": ((1, 2, 4, 4, 4), (3, 2, 2, 3, 2), {"window_strides": (1, 1, 1), "padding": "SAME"}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_integer_convolutions_are_lowered_to_dot_products(name: str) -> None:
    lhs, rhs, keywords = CONVOLUTIONS[name]
    # products wrap around modulo 2**32
    x, y = random_integers(lhs, np.int32, 2**30), random_integers(rhs, np.int32, 2**30)

    def f(x: Any, y: Any) -> Any:
        return lax.conv_general_dilated(x, y, **keywords)

    exported_program = exported(f, x, y)
    assert "stablehlo.convolution" not in exported_program.mlir_module()
    np.testing.assert_array_equal(run_on_cpu(exported_program, x, y), evaluate(f, x, y))


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [("int8", None), ("uint8", None), ("int8", "int32"), ("int4", "int32"), ("bool", "int32"), ("int64", None)],
)
def test_integer_convolutions_with_preferred_element_type(dtype: str, wanted: str | None) -> None:
    x, y = [fnp.asarray(random_integers(shape, np.int8, 2), dtype=dtype) for shape in ((2, 3, 6), (4, 3, 2))]
    args = [np.asarray(x), np.asarray(y)]

    def f(x: Any, y: Any) -> Any:
        return lax.conv_general_dilated(x, y, (1,), "SAME", preferred_element_type=wanted)

    got, want = run_on_cpu(exported(f, *args), *args), evaluate(f, *args)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("dtype", "wanted"), [("int8", "float32"), ("float16", "float32"), ("float8_e4m3", None), ("float32", "float64")]
)
def test_other_convolutions_are_lowered_in_a_dtype_of_the_gpu_library(dtype: str, wanted: str | None) -> None:
    kind = dtypes.as_dtype(dtype)
    x, y = [random_integers(shape, np.int8, 3).astype(kind) for shape in ((2, 3, 6), (4, 3, 2))]

    def f(x: Any, y: Any) -> Any:
        return lax.conv_general_dilated(x, y, (1,), "SAME", preferred_element_type=wanted)

    exported_program = exported(f, x, y)
    (line,) = [line for line in exported_program.mlir_module().splitlines() if "stablehlo.convolution" in line]
    wide = "f64" if wanted == "float64" else "f32"
    assert line.count(f"x{wide}>") == 3, line
    assert_near(run_on_cpu(exported_program, x, y), evaluate(f, x, y))


# ------------------------------------------------------------------ products

F8: Final = dtypes.float8_e4m3fn
PRODUCTS: Final[tuple[tuple[DType, DType, tuple[DType, DType]], ...]] = (
    (dtypes.int8, dtypes.int32, (dtypes.int8, dtypes.int32)),
    (dtypes.int32, dtypes.float32, (dtypes.float32, dtypes.float32)),
    (dtypes.bool_, dtypes.bfloat16, (dtypes.float32, dtypes.float32)),
    (dtypes.bfloat16, dtypes.float32, (dtypes.bfloat16, dtypes.float32)),
    (dtypes.float16, dtypes.float16, (dtypes.float16, dtypes.float16)),
    (dtypes.float32, dtypes.float64, (dtypes.float64, dtypes.float64)),
    (dtypes.float32, dtypes.int32, (dtypes.float32, dtypes.float32)),
    (dtypes.float32, dtypes.complex64, (dtypes.complex64, dtypes.complex64)),
    (dtypes.complex64, dtypes.float32, (dtypes.complex64, dtypes.complex64)),
    (F8, F8, (F8, F8)),
    (F8, dtypes.float32, (F8, dtypes.float32)),
    (F8, dtypes.int32, (F8, dtypes.float32)),
    (dtypes.float4_e2m1fn, dtypes.float32, (dtypes.bfloat16, dtypes.float32)),
)


@pytest.mark.parametrize(("operand", "out", "want"), PRODUCTS, ids=str)
def test_dot_products_are_computed_in_dtypes_that_gpus_support(
    operand: DType, out: DType, want: tuple[DType, DType]
) -> None:
    assert gpu_dot_dtypes(operand, out) == want
    x = random_integers((2, 3), np.int8, 2).astype(operand)

    def f(x: Any) -> Any:
        return lax.dot(x, x.T, preferred_element_type=out)

    got, expected = run_on_cpu(exported(f, x), x), evaluate(f, x)
    assert got.dtype == out
    assert_near(got, expected)


# ------------------------------------------------------------------ dtypes narrower than a byte

NARROW: Final = ("int4", "uint4", "float4_e2m1fn")
NARROW_FUNCTIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "sort": fnp.sort,
    "argsort": fnp.argsort,
    "argmax": fnp.argmax,
    "of_pairs": lambda x: lax.sort((x, x[::-1]), num_keys=2),
}


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", NARROW_FUNCTIONS)
def test_sorting_of_narrow_dtypes(name: str, dtype: str) -> None:
    kind = dtypes.as_dtype(dtype)
    x = np.asarray([[3, 0, 2, 1], [1, 2, 3, 0]]).astype(kind) * np.asarray(1 if dtype == "uint4" else -1).astype(kind)
    got, want = run_on_cpu(exported(NARROW_FUNCTIONS[name], x), x), evaluate(NARROW_FUNCTIONS[name], x)
    for a, b in zip(jax.tree.leaves(got), fx.tree.leaves(want), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [
        *[(dtype, wanted) for dtype in ("int2", "int4", "uint4") for wanted in (None, "float32", "int32")],
        *[("float4_e2m1fn", wanted) for wanted in (None, "float32")],
    ],
)
def test_products_of_narrow_dtypes_on_the_cpu(dtype: str, wanted: str | None) -> None:
    x = np.asarray([[[1, 0, 1], [0, 1, 1]]]).astype(dtypes.as_dtype(dtype))

    def f(x: Any) -> Any:
        both = lax.conv(x, x[:, :, :2], (1,), "SAME", preferred_element_type=wanted)
        return lax.dot(x[0], x[0].T, preferred_element_type=wanted), both

    for got, want in zip(fx.jit(f)(x), f(fnp.asarray(x)), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


def test_approx_max_k_of_narrow_dtypes() -> None:
    x = np.asarray([3, 0, 2, 1, 6]).astype(ml_dtypes.float4_e2m1fn)
    for result in (
        run_on_cpu(exported(lambda x: lax.approx_max_k(x, 2), x), x),
        evaluate(lambda x: lax.approx_max_k(x, 2), x),
    ):
        values, indices = result
        assert values.dtype == x.dtype
        assert values.tolist() == [6, 3]
        assert indices.tolist() == [4, 0]
