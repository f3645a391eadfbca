"""`finfo`, `iinfo`, `isdtype`, `issubdtype`, `result_type` and scalar types, against `jax.numpy`."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude=jax

from __future__ import annotations

import copy
import pickle
from typing import Any, Final

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.errors import untyped

jax.config.update("jax_explicit_x64_dtypes", "allow")

ABSTRACT: Final = (
    *("generic", "number", "inexact", "floating"),
    *("complexfloating", "integer", "signedinteger", "unsignedinteger"),
)
NAMES: Final = ("bool", "int4", "uint8", "int32", "bfloat16", "float8_e4m3fn", "float64", "complex64")


def test_finfo_and_iinfo_match_jax() -> None:
    for name in ("bfloat16", "float32", "float64", "complex64"):
        assert float(fnp.finfo(name).eps) == float(ml_dtypes.finfo(name).eps)  # type: ignore[no-untyped-call]  # ml_dtypes leaves it unannotated
    assert fnp.finfo(fnp.ones(2)).bits == fnp.finfo(fnp.float32).bits == fnp.finfo(np.float32).bits == 32
    assert fnp.iinfo("int4").max == 7
    assert fnp.iinfo(fnp.arange(2)).max == 2**31 - 1
    with pytest.raises(TypeError, match="finfo describes float and complex dtypes, got int32"):
        fnp.finfo("int32")
    with pytest.raises(TypeError, match="iinfo describes integer dtypes, got float32"):
        fnp.iinfo(fnp.ones(2))


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64", "complex64", "float8_e4m3fn"])
def test_limits_of_floats_are_floats_of_their_dtype(name: str) -> None:
    ours: Any = fnp.finfo(name)
    theirs: Any = jnp.finfo(name)  # type: ignore[no-untyped-call]  # jax leaves it unannotated
    for limit in ("eps", "epsneg", "max", "min", "smallest_normal", "smallest_subnormal", "tiny", "resolution"):
        value, expected = getattr(ours, limit), getattr(theirs, limit)
        assert isinstance(value, float)  # the array API specifies it
        assert float(value) == float(expected)
        copied: Any = pickle.loads(pickle.dumps(value))
        assert (copied, copied.dtype, copied.itemsize) == (value, expected.dtype, expected.itemsize)
    for count in ("bits", "nmant", "nexp", "iexp", "machep", "negep", "minexp", "maxexp", "precision"):
        assert getattr(ours, count) == getattr(theirs, count)
    assert ours.dtype == theirs.dtype
    with pytest.raises(AttributeError):
        _ = ours.eps.no_such_attribute
    with fx.enable_x64(), jax.enable_x64(True):
        narrow, jax_narrow = fnp.ones(2, "bfloat16"), jnp.ones(2, "bfloat16")
        if name != "float8_e4m3fn":  # does not promote
            assert (narrow * ours.eps).dtype == (jax_narrow * theirs.eps).dtype
        assert fnp.asarray(ours.max).dtype == jnp.asarray(theirs.max).dtype
        assert not fnp.asarray(ours.max).weak_type


@pytest.mark.parametrize("name", NAMES)
def test_isdtype_and_issubdtype_match_jax(name: str) -> None:
    for kind in ABSTRACT:
        assert getattr(fnp, kind) is getattr(jnp, kind)
        assert fnp.issubdtype(name, getattr(fnp, kind)) == jnp.issubdtype(name, getattr(jnp, kind))
    for other in NAMES:
        assert fnp.issubdtype(name, other) == jnp.issubdtype(name, other)
    words = "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric"
    kinds: Any = (*words, "float32", ("bool", "real floating"))
    for kind in kinds:
        assert fnp.isdtype(name, kind) == jnp.isdtype(name, kind)
        assert fnp.isdtype(fnp.zeros(2, name), kind) == fnp.isdtype(name, kind)


def test_kinds_of_python_types() -> None:
    pythons: Any = (int, float, complex, bool, None)
    for one in pythons:
        for kind in ABSTRACT:
            assert fnp.issubdtype(one, getattr(fnp, kind)) == jnp.issubdtype(one, getattr(jnp, kind))
        for other in (*NAMES, *pythons):
            assert fnp.issubdtype(one, other) == jnp.issubdtype(one, other)
            assert fnp.issubdtype(other, one) == jnp.issubdtype(other, one)
    bad: Any = [1]
    with pytest.raises(TypeError, match="issubdtype: arg1"):
        fnp.issubdtype(bad, float)


def test_issubdtype_of_abstract_kinds() -> None:
    for lower in ABSTRACT:
        for upper in ABSTRACT:
            assert fnp.issubdtype(getattr(fnp, lower), getattr(fnp, upper)) == np.issubdtype(
                getattr(np, lower), getattr(np, upper)
            )
    with pytest.raises(ValueError, match="kind must be a dtype or of 'bool'"):
        fnp.isdtype("int8", "whole")


def test_dtype_promotion_matches_jax() -> None:
    cases: Any = [("int8", int), ("int8", "uint8"), ("float64", "int32"), (int, "float32"), ("bfloat16", "float16")]
    for a, b in cases:
        assert fnp.promote_types(a, b) == jnp.promote_types(a, b)
    x = np.ones(2, np.float32)
    for args in (("int8", 2), (fnp.int8, 2.5), (x, "int64"), (x, np.int32(2)), (2, 3), ("bfloat16", x), (int, "int8")):
        mixed: Any = args
        assert fnp.result_type(*mixed) == jnp.result_type(*mixed)
    with fx.enable_x64(True):
        assert fnp.result_type("float64", 1) == np.float64


def test_scalar_types_are_classes() -> None:
    for name in ("float32", "bfloat16", "int8", "complex64", "bool_"):
        scalar_type, jax_scalar_type = getattr(fnp, name), getattr(jnp, name)
        assert (scalar_type.__name__, scalar_type.__qualname__) == (
            jax_scalar_type.__name__,
            jax_scalar_type.__qualname__,
        )
        assert isinstance(scalar_type, type)
        for x in (1, 1.0, True, np.float32(1), np.int8(1), np.bool_(True)):
            assert isinstance(x, scalar_type) == isinstance(x, jax_scalar_type), (name, x)
        assert not isinstance(scalar_type(1), scalar_type)
        assert isinstance(1, int | scalar_type)
        assert pickle.loads(pickle.dumps(scalar_type)) is scalar_type
        assert copy.deepcopy(scalar_type) is scalar_type


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int4", "uint8", "complex64", "bool_"])
def test_scalar_types_are_elements_of_sets(name: str) -> None:
    scalar_type, jax_scalar_type = getattr(fnp, name), getattr(jnp, name)
    kind = scalar_type.dtype.type
    assert hash(scalar_type) == hash(jax_scalar_type)
    assert kind in {scalar_type}
    assert scalar_type in {kind}


@pytest.mark.parametrize(
    "other",
    [
        "a, b",
        "f4,f4",
        "i4, (",
        "",
        "nonsense",
        "a",
        b"f4",
        None,
        3,
        [1],
        {"a": 1},
        ("f4", 2),
        object(),
        list,
        Exception,
    ],
    ids=lambda other: type(other).__name__,
)
def test_scalar_types_differ_from_other_objects(other: object) -> None:
    assert (fnp.float32 == other) is False
    assert (other == fnp.float32) is False
    assert fnp.float32 != other
    assert other not in (fnp.float32, fnp.float64)


def test_scalar_types_equal_names_of_their_dtype() -> None:
    for other in (np.float32, np.dtype("float32"), "float32", "f4", "single"):
        assert fnp.float32 == other
        assert other == fnp.float32
        assert fnp.float64 != other
    assert fnp.float64 in (float,)
    assert fnp.float32 != np.float64
    assert (fnp.float32 == fnp.ones(2)) is False


def test_lax_dtype_matches_jax() -> None:
    for x in (np.float32, float, int, "bfloat16", np.dtype("int8"), 3, 2.5, np.ones(2), True):
        assert fx.lax.dtype(x) == jax.lax.dtype(x)
    assert fx.lax.dtype(fnp.float16) == np.float16
    invalid: tuple[tuple[type[Exception], Any], ...] = ((ValueError, None), (TypeError, [1.0]), (TypeError, object()))
    libraries: Any = (fx, jax)
    for error, bad in invalid:
        for library in libraries:
            with pytest.raises(error):
                library.lax.dtype(bad)


def test_issubdtype_of_dtypes_that_only_numpy_has() -> None:
    for one, other in (
        (np.float32, object), (object, object), (float, object), (object, np.floating), (str, np.floating),
        (np.str_, np.character), (np.dtype("U3"), np.character), ("O", object), (np.datetime64, np.generic),
        (np.float32, str), (jnp.bfloat16, object),
    ):  # fmt: skip
        assert fnp.issubdtype(one, other) == jnp.issubdtype(one, other), (one, other)
    with pytest.raises(TypeError, match="is not a dtype"):
        untyped(fnp.issubdtype)(1, fnp.floating)


def test_none_means_the_default_float() -> None:
    for args in ((None,), (None, 3), (None, None), (np.float16, None), (np.int8, None)):
        assert fnp.result_type(*args) == jnp.result_type(*args)
    assert fnp.promote_types(None, "float32") == jnp.promote_types(np.float64, "float32")
    assert fx.dtypes.canonicalize_dtype(None) == jax.dtypes.canonicalize_dtype(np.float64)
