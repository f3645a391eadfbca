"""`ShapeDtypeStruct` and other objects with a shape and dtype are accepted where only these are needed."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tracefx import lax


class Duck:
    """An object with a shape and dtype that belongs to no library."""

    shape = (2, 3)
    dtype = np.dtype("float16")


@pytest.mark.parametrize("name", ["zeros_like", "ones_like", "empty_like"])
@pytest.mark.parametrize("keywords", [{}, {"dtype": "int8"}, {"shape": (4,)}], ids=["same", "dtype", "shape"])
def test_like_functions_of_a_shape_dtype_struct(name: str, keywords: dict[str, Any]) -> None:
    struct: Any = jax.ShapeDtypeStruct
    for dtype in ("float32", "bfloat16", "int32", "bool", "complex64"):
        got = getattr(fnp, name)(fx.ShapeDtypeStruct((2, 0, 3), dtype), **keywords)
        expected = getattr(jnp, name)(struct((2, 0, 3), dtype), **keywords)
        assert (got.shape, got.dtype, got.weak_type) == (expected.shape, expected.dtype, expected.weak_type)
        np.testing.assert_array_equal(np.asarray(got), np.asarray(expected))


def test_full_like_of_a_shape_dtype_struct() -> None:
    weak = fx.ShapeDtypeStruct((2,), "float32", weak_type=True)
    assert fnp.full_like(weak, 3).weak_type
    assert lax.full_like(weak, 3).weak_type
    assert not fnp.full_like(weak, 3, dtype="float32").weak_type
    assert fnp.full_like(Duck(), 2.5).tolist() == lax.full_like(Duck(), 2.5).tolist() == [[2.5] * 3] * 2


def test_zeros_like_of_the_result_of_eval_shape() -> None:
    types = fx.eval_shape(lambda x: {"a": x @ x.T, "b": x.sum()}, np.ones((2, 3), np.float32))
    zeros = fx.jit(lambda: fx.tree.map(fnp.zeros_like, types))()
    assert fx.tree.map(fnp.shape, zeros) == fx.tree.map(fnp.shape, types) == {"a": (2, 2), "b": ()}


def test_shape_queries_of_a_shape_and_dtype() -> None:
    assert (fnp.shape(Duck()), fnp.ndim(Duck()), fnp.size(Duck()), fnp.size(Duck(), 1)) == ((2, 3), 2, 6, 3)
    assert str(fx.typeof(Duck())) == "f16[2,3]"
    assert repr(fx.typeof(fx.ShapeDtypeStruct((), "int32", weak_type=True))) == "i32[]*"


@pytest.mark.parametrize("bad", [[1, 2], None, "x", object()])
def test_objects_without_shape_and_dtype_raise(bad: Any) -> None:
    for name in ("zeros_like", "shape") if bad != [1, 2] else ("zeros_like",):  # a list has a shape
        with pytest.raises(TypeError, match=f"{name}: a must be an array or a number"):
            getattr(fnp, name)(bad)


def test_invalid_shape_raises() -> None:
    class Wrong(Duck):
        shape = (2, -1)

    with pytest.raises(ValueError, match="zeros_like: a"):
        fnp.zeros_like(Wrong())
