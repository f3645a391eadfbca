"""Dot products with `preferred_element_type`: eager, compiled and JAX's results agree for all dtype pairs that JAX
takes.
"""

# mypy: untyped-calls-exclude="jax, ml_dtypes"

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.compiling import compile_with_fallback
from tests.versions import PAIRS_MULTIPLIED_IN_32_BITS
from tracefx import lax
from tracefx.core import Array, NDArray, dtypes
from tracefx.ops.casting import cast

jax.config.update("jax_explicit_x64_dtypes", "allow")

NAMES: Final = (
    *("bool", "int4", "int8", "int16", "int32", "int64", "uint4", "uint8", "uint16", "uint32", "uint64"),
    *("float8_e4m3fn", "float8_e5m2", "bfloat16", "float16", "float32", "float64", "complex64", "complex128"),
)
ORDER_DEPENDENT: Final = frozenset({"float32", "float64", "complex64", "complex128"})
"""Result dtypes in which sums depend on the order of their terms. In other dtypes, sums of these operands are rounded
to the same value in any order.
"""


def operand(dtype: str, seed: int, *shape: int) -> NDArray:
    """Draws numbers, fractional where possible, whose products are positive and fit every dtype."""
    rng = np.random.default_rng(seed)
    numbers: NDArray = rng.uniform(0.0, 1.3, shape)
    if dtype.startswith("complex"):
        numbers = numbers + 1j * rng.uniform(-0.2, 0.2, shape)
    elif "int" in dtype:
        numbers = rng.integers(0, 2, shape)
    return cast(np.asarray(numbers), dtypes.as_dtype(dtype))


def large(dtype: str, seed: int, *shape: int) -> NDArray:
    """Draws numbers that use all digits of the dtype."""
    info = dtypes.iinfo(dtypes.as_dtype(dtype))
    top = int(info.max)
    numbers = np.random.default_rng(seed).integers(top // 2, top, shape, dtype=np.uint64)
    return numbers.astype(dtypes.as_dtype(dtype))


def same_products(got: Any, want: Any, new: str, rounded: str | None = None) -> bool:
    """Returns whether two products in the dtype `new` are equal; `rounded` is the dtype whose rounding errors are
    allowed.
    """
    x, y = np.asarray(got), np.asarray(want)
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    if new not in ORDER_DEPENDENT:
        return x.tobytes() == y.tobytes()
    ulps = 4 * float(dtypes.finfo(dtypes.real_dtype(x.dtype if rounded is None else dtypes.as_dtype(rounded))).eps)
    return bool((np.abs(x - y) <= ulps * np.abs(y)).all())


def jax_products(names: Sequence[str], operands: Sequence[jax.Array]) -> tuple[list[str], list[Any]]:
    """Returns JAX's products in these dtypes, and those of the dtypes that JAX and XLA support."""

    def products(x: jax.Array, y: jax.Array) -> list[jax.Array]:
        return [jax.lax.dot(x, y, preferred_element_type=new) for new in names]

    try:
        return [*names], jax.jit(products)(*operands)
    except (TypeError, ValueError, jax.errors.JaxRuntimeError):
        if len(names) == 1:
            return [], []
    half = len(names) // 2
    (first, outs), (second, others) = [jax_products(part, operands) for part in (names[:half], names[half:])]
    return first + second, outs + others


def mismatches(operand_dtype: str, operands: tuple[NDArray, NDArray]) -> tuple[list[str], int]:
    """Returns the result dtypes for which eager, compiled and JAX's products differ, and the number of
    dtypes compared.
    """

    def product(x: Array, y: Array, new: str) -> Array:
        return lax.dot(x, y, preferred_element_type=new)

    compared, wanted = jax_products(NAMES, [jnp.asarray(x, x.dtype) for x in operands])
    a, b = [fnp.array(x, dtype=x.dtype) for x in operands]
    compiled = compile_with_fallback(fx.jit, lambda x, y: [product(x, y, new) for new in compared])(a, b)
    bad = []
    for new, want, staged in zip(compared, wanted, compiled, strict=True):
        got = product(a, b, new)
        rounded = "float32" if (operand_dtype, new) in PAIRS_MULTIPLIED_IN_32_BITS else new
        if not same_products(got, staged, new, rounded):
            bad.append(f"{operand_dtype} to {new}: evaluated {got}, compiled {staged}")
        if not same_products(staged, want, new):
            bad.append(f"{operand_dtype} to {new}: compiled {staged}, JAX's {want}")
    return bad, len(compared)


@pytest.mark.parametrize("operand_dtype", NAMES)
def test_all_dtype_pairs(operand_dtype: str) -> None:
    bad, count = mismatches(operand_dtype, (operand(operand_dtype, 0, 3, 5), operand(operand_dtype, 1, 5, 2)))
    assert not bad
    assert count


@pytest.mark.parametrize("operand_dtype", ["int16", "uint16", "int8", "uint8"])
def test_integers_wider_than_the_float_mantissa(operand_dtype: str) -> None:
    bad, _ = mismatches(operand_dtype, (large(operand_dtype, 0, 3, 5), large(operand_dtype, 1, 5, 2)))
    assert not bad


def test_fractions_are_truncated_after_multiplication() -> None:
    x, y = fnp.array([[0.5, 1.5]]), fnp.array([[2.0], [3.0]])
    products: dict[str, Callable[[], Array]] = {
        "dot": lambda: lax.dot(x, y, preferred_element_type="int32"),
        "dot_general": lambda: lax.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type="int32"),
        "matmul": lambda: fnp.matmul(x, y, preferred_element_type="int32"),
        "einsum": lambda: fnp.einsum("ij,jk", x, y, preferred_element_type="int32"),
        "tensordot": lambda: fnp.tensordot(x, y, 1, preferred_element_type="int32"),
        "vdot": lambda: fnp.vdot(x, y, preferred_element_type="int32"),
    }
    for name, product in products.items():
        for result in (product(), fx.jit(product)()):
            assert (str(result.dtype), result.item()) == ("int32", 5), name


def test_imaginary_parts_contribute_to_real_products() -> None:
    x = fnp.array([[2j]])
    assert lax.dot(x, x, preferred_element_type="float32").item() == -4.0
