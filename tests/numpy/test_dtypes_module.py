"""`tracefx.dtypes` compared with `jax.dtypes`."""

from __future__ import annotations

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tracefx import dtypes
from tracefx.lazy_stubs import exports

jax.config.update("jax_explicit_x64_dtypes", "allow")
DTYPES = ("float64", "int64", "uint64", "complex128", "bfloat16", "bool", "int4", float, int, bool, complex, np.float32)


def test_names_match_jax() -> None:
    public = {name for name in dir(jax.dtypes) if not name.startswith("_")}
    assert public - {"extended", "prng_key"} <= set(exports("tracefx.dtypes")) <= public
    assert dtypes.float0 == jax.dtypes.float0
    assert dtypes.bfloat16 is jax.dtypes.bfloat16
    assert inspect.unwrap(dtypes.finfo) is inspect.unwrap(fnp.finfo)
    assert inspect.unwrap(dtypes.iinfo) is inspect.unwrap(fnp.iinfo)
    assert inspect.unwrap(dtypes.issubdtype) is inspect.unwrap(fnp.issubdtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_canonical_dtypes_match_jax(dtype: Any) -> None:
    assert dtypes.canonicalize_dtype(dtype) == jax.dtypes.canonicalize_dtype(dtype)
    with fx.enable_x64(), jax.enable_x64(True):
        assert dtypes.canonicalize_dtype(dtype) == jax.dtypes.canonicalize_dtype(dtype)
        assert dtypes.itemsize_bits(dtype) == jax.dtypes.itemsize_bits(dtype)
    assert dtypes.scalar_type_of(dtype) is jax.dtypes.scalar_type_of(dtype)


@pytest.mark.parametrize(
    "args", [(1, 2.5), ("int8", 1), (np.ones(2), 1.0), (1,), (True,), (float,), ("float64",), ("bfloat16", "float16")]
)
def test_promoted_dtypes_match_jax(args: Any) -> None:
    assert dtypes.result_type(*args) == jax.dtypes.result_type(*args)
    assert dtypes.result_type(*args, return_weak_type_flag=True) == jax.dtypes.result_type(
        *args, return_weak_type_flag=True
    )


def test_scalar_types_of_arrays() -> None:
    for x in (3, 2.5, True, 1j, np.ones(2), np.float64(2)):
        assert dtypes.scalar_type_of(x) is jax.dtypes.scalar_type_of(x)
    assert dtypes.scalar_type_of(fnp.ones(2, "bfloat16")) is jax.dtypes.scalar_type_of(jnp.ones(2, "bfloat16"))


def test_invalid_dtype_raises() -> None:
    for f in (dtypes.canonicalize_dtype, dtypes.itemsize_bits, dtypes.scalar_type_of):
        with pytest.raises(TypeError, match="not a dtype that arrays can have"):
            f("x")
    with pytest.raises(ValueError, match="at least one"):
        dtypes.result_type()
    with pytest.raises(dtypes.TypePromotionError):
        dtypes.result_type("int4", "int8")
