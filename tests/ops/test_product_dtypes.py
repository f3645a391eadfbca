"""Products that are asked for in another dtype than that of the operands: evaluated they are what is compiled, and
JAX's, for all pairs of dtypes that JAX takes."""

# mypy: untyped-calls-exclude="jax, ml_dtypes"

from __future__ import annotations

from collections.abc import Callable
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
from tracefx.core import dtypes
from tracefx.core.array import Array
from tracefx.core.dtypes import NDArray
from tracefx.ops.casting import cast

jax.config.update("jax_explicit_x64_dtypes", "allow")

NAMES: Final = (
    *("bool", "int4", "int8", "int16", "int32", "int64", "uint4", "uint8", "uint16", "uint32", "uint64"),
    *("float8_e4m3fn", "float8_e5m2", "bfloat16", "float16", "float32", "float64", "complex64", "complex128"),
)
SUMMED: Final = frozenset({"float32", "float64", "complex64", "complex128"})
"""In which sums depend on the order of their terms; in the others they are rounded to few digits, of these operands to
the same."""


def operand(dtype: str, seed: int, *shape: int) -> NDArray:
    """Numbers with fractions where there are such, the products of which are positive and fit every dtype."""
    rng = np.random.default_rng(seed)
    numbers: NDArray = rng.uniform(0.0, 1.3, shape)
    if dtype.startswith("complex"):
        numbers = numbers + 1j * rng.uniform(-0.2, 0.2, shape)
    elif "int" in dtype:
        numbers = rng.integers(0, 2, shape)
    return cast(np.asarray(numbers), dtypes.as_dtype(dtype))


def large(dtype: str, seed: int, *shape: int) -> NDArray:
    """Numbers with all digits that the dtype has."""
    info = dtypes.iinfo(dtypes.as_dtype(dtype))
    top = int(info.max)
    numbers = np.random.default_rng(seed).integers(top // 2, top, shape, dtype=np.uint64)
    return numbers.astype(dtypes.as_dtype(dtype))


def same(got: Any, want: Any, new: str, rounded: str | None = None) -> bool:
    """Whether two products in the dtype `new` are equal; `rounded`: the dtype whose rounding errors sums may have."""
    x, y = np.asarray(got), np.asarray(want)
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    if new not in SUMMED:
        return x.tobytes() == y.tobytes()
    ulps = 4 * float(dtypes.finfo(dtypes.real_dtype(x.dtype if rounded is None else dtypes.as_dtype(rounded))).eps)
    return bool((np.abs(x - y) <= ulps * np.abs(y)).all())


def differing(given: str, operands: tuple[NDArray, NDArray]) -> tuple[list[str], int]:
    """The dtypes asked for of which the evaluated product is not the compiled one or JAX's, and how many there are."""

    def ours(x: Array, y: Array, new: str) -> Array:
        return lax.dot(x, y, preferred_element_type=new)

    theirs = [jnp.asarray(x, x.dtype) for x in operands]
    taken: list[str] = []
    wanted: list[Any] = []
    for new in NAMES:
        try:
            wanted.append(jax.jit(lambda x, y, new=new: jax.lax.dot(x, y, preferred_element_type=new))(*theirs))
            taken.append(new)
        except (TypeError, ValueError, jax.errors.JaxRuntimeError):  # not all pairs are JAX's, nor XLA's
            pass
    a, b = [fnp.array(x, dtype=x.dtype) for x in operands]
    found = compile_with_fallback(fx.jit, lambda x, y: [ours(x, y, new) for new in taken])(a, b)
    bad = []
    for new, want, staged in zip(taken, wanted, found, strict=True):
        got = ours(a, b, new)
        rounded = "float32" if (given, new) in PAIRS_MULTIPLIED_IN_32_BITS else new
        if not same(got, staged, new, rounded):
            bad.append(f"{given} to {new}: evaluated {got}, compiled {staged}")
        if not same(staged, want, new):
            bad.append(f"{given} to {new}: compiled {staged}, JAX's {want}")
    return bad, len(taken)


@pytest.mark.parametrize("given", NAMES)
def test_all_pairs(given: str) -> None:
    bad, count = differing(given, (operand(given, 0, 3, 5), operand(given, 1, 5, 2)))
    assert not bad
    assert count


@pytest.mark.parametrize("given", ["int16", "uint16", "int8", "uint8"])
def test_integers_with_more_digits_than_the_float(given: str) -> None:
    bad, _ = differing(given, (large(given, 0, 3, 5), large(given, 1, 5, 2)))
    assert not bad


def test_fractions_are_multiplied_before_they_are_cut_off() -> None:
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
        for found in (product(), fx.jit(product)()):
            assert (str(found.dtype), found.item()) == ("int32", 5), name


def test_the_imaginary_parts_count() -> None:
    x = fnp.array([[2j]])
    assert lax.dot(x, x, preferred_element_type="float32").item() == -4.0
