"""Type promotion, compared with JAX, for weak and strong types, with and without x64."""

# Some functions of jax are unannotated.
# mypy: untyped-calls-exclude=jax

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax._src import dtypes as jax_dtypes
from jax._src.lax.lax import _convert_element_type

from tracefx.core import DType, dtypes
from tracefx.errors import TypePromotionError
from tracefx.ops.promotion import promote, promote_types
from tracefx.settings import enable_x64

jax.config.update("jax_explicit_x64_dtypes", "allow")

Type: TypeAlias = tuple[DType, bool]

STRONG: Final = tuple((dtype, False) for dtype in dtypes.ALL_DTYPES if dtype != dtypes.float0)
WEAK: Final = tuple((dtype, True) for dtype, _ in STRONG)
# Types from different parts of the promotion lattice, for tests of triples.
CORNERS: Final = tuple(
    (dtypes.from_short_name(name.removeprefix("weak ")), name.startswith("weak "))
    for name in (
        *("bool", "u8", "u32", "u64", "i8", "i32", "i64", "i4", "f8_e4m3fn", "bf16", "f16", "f32", "c64"),
        *("weak bool", "weak i32", "weak u64", "weak f32", "weak f64", "weak c64"),
    )
)


@pytest.fixture(scope="module")
def arrays() -> dict[Type, jax.Array]:
    """An array of each type: JAX narrows dtypes that are not those of its arrays."""
    with jax.enable_x64(True):
        return {
            (dtype, weak): _convert_element_type(jnp.zeros((), dtype), dtype, weak_type=weak)
            for dtype, weak in STRONG + WEAK
        }


def tracefx_promotion(types: Sequence[Type]) -> Type | None:
    try:
        return promote(types)
    except TypePromotionError:
        return None


def jax_promotion(types: Iterable[Type], arrays: dict[Type, jax.Array]) -> Type | None:
    try:
        dtype, weak = jax_dtypes.lattice_result_type(*(arrays[each] for each in types))
    except jax_dtypes.TypePromotionError:
        return None
    return dtype, bool(weak)


def test_jax_arrays_have_the_expected_types(arrays: dict[Type, jax.Array]) -> None:
    for (dtype, weak), array in arrays.items():
        assert (array.dtype, array.weak_type) == (dtype, weak)


@pytest.mark.parametrize("x64", [False, True])
def test_pairs(x64: bool, arrays: dict[Type, jax.Array]) -> None:
    with enable_x64(x64), jax.enable_x64(x64):
        for pair in itertools.product(STRONG + WEAK, repeat=2):
            assert tracefx_promotion(pair) == jax_promotion(pair, arrays), pair


@pytest.mark.parametrize("x64", [False, True])
def test_triples(x64: bool, arrays: dict[Type, jax.Array]) -> None:
    with enable_x64(x64), jax.enable_x64(x64):
        for triple in itertools.product(CORNERS, repeat=3):
            assert tracefx_promotion(triple) == jax_promotion(triple, arrays), triple


def test_single_type_stays_weak_unless_bool(arrays: dict[Type, jax.Array]) -> None:
    for each in STRONG + WEAK:
        assert tracefx_promotion([each]) == jax_promotion([each], arrays), each
        assert tracefx_promotion([each] * 3) == jax_promotion([each] * 3, arrays), each


def test_promote_types_is_promotion_of_strong_types() -> None:
    for (a, _), (b, _) in itertools.product(STRONG, repeat=2):
        expected = tracefx_promotion([(a, False), (b, False)])
        if expected is None:
            with pytest.raises(TypePromotionError):
                promote_types(a, b)
        else:
            assert promote_types(a, b) == expected[0]


def test_x64_affects_only_dtypes_that_no_operand_has() -> None:
    assert promote_types(dtypes.uint32, dtypes.int8) == dtypes.int32
    assert promote_types(dtypes.float64, dtypes.float32) == dtypes.float64
    assert promote([(dtypes.uint64, False), (dtypes.int64, False)]) == (dtypes.float32, True)
    with enable_x64():
        assert promote_types(dtypes.uint32, dtypes.int8) == dtypes.int64
        assert promote([(dtypes.uint64, False), (dtypes.int64, False)]) == (dtypes.float64, True)
    assert promote_types(dtypes.uint32, dtypes.int8) == dtypes.int32


@pytest.mark.parametrize("base", [TypeError, ValueError])
def test_promotion_error_is_a_type_and_value_error_with_a_suggestion(base: type[Exception]) -> None:
    with pytest.raises(base, match=r"float8_e4m3fn and bfloat16 .*x\.astype\('bfloat16'\)"):
        promote_types(dtypes.float8_e4m3fn, dtypes.bfloat16)
    with pytest.raises(base, match=r"weak float32 and int4 .*x\.astype\('float32'\)"):
        promote([(dtypes.float32, True), (dtypes.int4, False)])
    with pytest.raises(base, match=r"int4 and uint4 .*x\.astype\('float32'\)"):
        promote_types(dtypes.int4, dtypes.uint4)


def test_float0_promotes_only_with_itself() -> None:
    assert promote_types(dtypes.float0, np.dtype([("float0", np.void, 0)])) == dtypes.float0
    assert promote([(dtypes.float0, False)]) == (dtypes.float0, False)
    with pytest.raises(TypePromotionError, match=r"float0 and float32 .*leave this operand out"):
        promote_types(dtypes.float0, dtypes.float32)


def test_unsupported_dtype_raises() -> None:
    with pytest.raises(TypeError, match="complex32"):
        promote_types(np.dtype(ml_dtypes.complex32), dtypes.float32)


def test_no_operands() -> None:
    with pytest.raises(ValueError, match="at least one"):
        promote([])
