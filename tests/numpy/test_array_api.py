"""The array API standard apart from its functions: namespace inspection, devices, versions, copies, dtypes.

The functions are compared with NumPy and JAX in tests/differential, their parameters in tests/test_signatures.py; the
standard's special cases are in test_special_cases.py.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp

# The functions of version 2024.12, with their keyword arguments.
DTYPES: Final = {
    "bool": ["bool"],
    "signed integer": ["int8", "int16", "int32", "int64"],
    "unsigned integer": ["uint8", "uint16", "uint32", "uint64"],
    "real floating": ["float32", "float64"],
    "complex floating": ["complex64", "complex128"],
}


def test_constants_and_dtypes_exist() -> None:
    assert (fnp.e, fnp.pi, fnp.inf, fnp.newaxis) == (np.e, np.pi, np.inf, None)
    assert np.isnan(fnp.nan)
    for names in DTYPES.values():
        assert [np.dtype(getattr(fnp, name)).name for name in names] == names


# ------------------------------------------------------------------ inspection


def test_array_namespace_info() -> None:
    info = fnp.__array_namespace_info__()
    assert fnp.__array_api_version__ == "2024.12"
    assert set(info.capabilities()) == {"boolean indexing", "data-dependent shapes", "max dimensions"}
    assert info.default_device() in info.devices()
    assert {kind: dtype.name for kind, dtype in info.default_dtypes(device=info.default_device()).items()} == {
        "real floating": "float32",
        "complex floating": "complex64",
        "integral": "int32",
        "indexing": "int32",
    }
    with fx.enable_x64(True):
        assert {dtype.name for dtype in info.default_dtypes().values()} == {"float64", "complex128", "int64"}


def test_dtypes_by_kind() -> None:
    info = fnp.__array_namespace_info__()
    for kind, names in DTYPES.items():
        assert list(info.dtypes(kind=kind)) == names
        assert list(info.dtypes(kind=(kind, "bool"))) == (["bool", *names] if kind != "bool" else names)
    assert set(info.dtypes(kind="integral")) == {*DTYPES["signed integer"], *DTYPES["unsigned integer"]}
    assert set(info.dtypes()) == {name for names in DTYPES.values() for name in names}
    assert set(info.dtypes(kind="numeric")) == set(info.dtypes()) - {"bool"}
    with pytest.raises(ValueError, match="kind must be of 'bool', .* got 'strings'"):
        info.dtypes(kind="strings")


def test_array_namespace_method() -> None:
    x = fnp.ones(2)
    for version in (None, "2021.12", "2024.12"):
        assert x.__array_namespace__(api_version=version) is fnp
    with pytest.raises(ValueError, match="version '2020.01' of the array API is not supported"):
        x.__array_namespace__(api_version="2020.01")


# ------------------------------------------------------------------ devices

MAKERS: Final = (
    lambda **where: fnp.arange(3, **where),
    lambda **where: fnp.asarray([1.0], **where),
    lambda **where: fnp.array([1.0], **where),
    lambda **where: fnp.empty(2, **where),
    lambda **where: fnp.empty_like(fnp.ones(2), **where),
    lambda **where: fnp.eye(2, **where),
    lambda **where: fnp.full(2, 1.5, **where),
    lambda **where: fnp.full_like(fnp.ones(2), 1.5, **where),
    lambda **where: fnp.linspace(0, 1, 3, **where),
    lambda **where: fnp.ones(2, **where),
    lambda **where: fnp.ones_like(fnp.ones(2), **where),
    lambda **where: fnp.zeros(2, **where),
    lambda **where: fnp.zeros_like(fnp.ones(2), **where),
    lambda **where: fnp.astype(fnp.ones(2), "int32", **where),
    lambda **where: fnp.ones(2).astype("int32", **where),
    lambda **where: fnp.from_dlpack(np.ones(2), **where),
)


@pytest.mark.parametrize("create", MAKERS, ids=range(len(MAKERS)))
def test_creation_functions_take_a_device(create: Any) -> None:
    device, *_ = fx.devices()
    for where in (device, None):
        array_ = create(device=where)
        assert array_.device is device
        assert array_.tolist() == create().tolist()


@pytest.mark.parametrize("create", MAKERS[:-1], ids=range(len(MAKERS) - 1))
def test_invalid_device_raises(create: Any) -> None:
    what = r"device must be one of tracefx.devices\(\), a sharding or None, got 'somewhere'"
    with pytest.raises(TypeError, match=what):
        create(device="somewhere")


def test_device_attributes_and_to_device() -> None:
    device, *_ = fx.devices()
    x = fnp.ones(2)
    assert (x.device, x.devices(), x.platform()) == (device, {device}, "cpu")
    assert x.to_device(device).tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match="streams are not supported, so stream must be None; got 3"):
        x.to_device(device, stream=3)


def test_traced_array_has_no_device_and_array_api_code_still_runs() -> None:
    @fx.jit
    def f(x: Any) -> Any:
        assert (x.device, x.devices(), x.platform()) == (None, set(), "cpu")
        return x.to_device(fx.devices()[0]) + fnp.ones(2, device=x.device)

    assert f(np.ones(2, np.float32)).tolist() == [2.0, 2.0]


# ------------------------------------------------------------------ copies


def test_copy_argument_of_asarray() -> None:
    numbers = np.ones(2)
    shared = fnp.asarray(numbers, copy=False)
    numbers[0] = 5.0
    assert shared.tolist() == [5.0, 1.0]
    x = fnp.ones(2)
    assert fnp.asarray(x, copy=False) is x
    numbers = np.ones(2)
    copied = fnp.asarray(numbers, copy=True)
    numbers[0] = 5.0
    assert copied.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("create", [lambda: fnp.asarray([1.0], copy=False), lambda: fnp.asarray(1.0, copy=False)])
def test_copy_false_raises_where_a_copy_is_needed(create: Any) -> None:
    with pytest.raises(ValueError, match="copy=False, but the elements of a .* must be copied"):
        create()


def test_copy_false_raises_where_a_conversion_is_needed() -> None:
    with pytest.raises(ValueError, match="copy=False, but i32.2. requires a copy to another dtype"):
        fnp.asarray(np.ones(2), "int32", copy=False)


def test_tobytes() -> None:
    x = np.arange(6, dtype=np.int16).reshape(2, 3)
    assert fnp.asarray(x).tobytes() == x.astype(np.int16).tobytes()
    assert fnp.asarray(x).tobytes("F") == x.tobytes("F")


def test_in_place_operators_return_new_arrays() -> None:
    x = y = fnp.ones(2)
    x += 1
    x *= 3.0
    x -= np.float32(2)
    assert (x.tolist(), y.tolist()) == ([4.0, 4.0], [1.0, 1.0])


# ------------------------------------------------------------------ dtype promotion, large integers, truth values


@pytest.mark.parametrize("x64", [False, True])
def test_scalar_types_promote_like_dtype_names(x64: bool) -> None:
    """No scalar type is weak, though `fnp.float64 == float`."""
    named = [name for names in DTYPES.values() for name in names]
    with fx.enable_x64(x64):
        for a, b in itertools.product(named, named):
            both = getattr(fnp, a), getattr(fnp, b)
            assert fnp.result_type(*both) == fnp.result_type(a, b) == fnp.promote_types(a, b)
            assert fnp.result_type(fnp.zeros(2, a), both[1]) == fnp.result_type(a, b)
        assert fnp.result_type(fnp.float32, float) == "float32"


@pytest.mark.parametrize("k", [2, 3, -2, 2**31, -(2**31) - 1, 2**70])
@pytest.mark.parametrize("wrap", [lambda f: f, fx.jit], ids=["eager", "compiled"])
def test_diagonal_offset_may_be_any_integer(k: int, wrap: Any) -> None:
    x = np.arange(1, 7).reshape(2, 3)
    near = max(-3, min(k, 4))
    assert np.array_equal(wrap(lambda: fnp.eye(2, 3, k))(), np.eye(2, 3, near))
    assert np.array_equal(wrap(lambda: fnp.tri(2, 3, k))(), np.tri(2, 3, near))
    assert np.array_equal(wrap(lambda y: fnp.tril(y, k))(fnp.asarray(x)), np.tril(x, near))
    assert np.array_equal(wrap(lambda y: fnp.triu(y, k))(fnp.asarray(x)), np.triu(x, near))


def test_expand_dims_defaults_to_axis_0() -> None:
    assert fnp.expand_dims(fnp.ones(3)).shape == (1, 3)


@pytest.mark.parametrize("wrap", [lambda f: f, fx.jit], ids=["eager", "compiled"])
def test_nonzero_complex_values_convert_to_true(wrap: Any) -> None:
    x = np.array([1j, 0, 1, -2j, complex(0.0, np.nan), complex(-0.0, -0.0)], np.complex64)
    truth = [True, False, True, True, True, False]
    for f in (lambda z: z.astype(bool), lambda z: fnp.astype(z, bool), lambda z: fnp.asarray(z, bool), fnp.logical_or):
        args = (fnp.asarray(x), False) if f is fnp.logical_or else (fnp.asarray(x),)
        assert wrap(f)(*args).tolist() == truth
    for name in ("all", "any"):
        for part in (x, x[:1], x[1:2], x[3:5], x[:0]):
            assert wrap(getattr(fnp, name))(fnp.asarray(part)).tolist() == bool(getattr(np, name)(part))
    assert wrap(fnp.count_nonzero)(fnp.asarray(x)).tolist() == 4


def test_creation_converts_nonzero_complex_values_to_true() -> None:
    assert fnp.asarray([1j, 0], bool).tolist() == [True, False]
    assert fnp.asarray([np.array([1j, 0]), np.array([0, 2])], bool).tolist() == [[True, False], [False, True]]
    assert fnp.asarray(np.array([1j, 0]), bool).tolist() == [True, False]
    assert fnp.full(2, 1j, dtype=bool).tolist() == [True, True]
    assert fnp.all(1j)
