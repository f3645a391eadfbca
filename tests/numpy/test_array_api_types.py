"""Result dtypes and shapes that the array API standard requires, for concrete and for traced arguments."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracefx as fx
import tracefx.numpy as fnp
from tests.laws.examples import limit_examples

SIGNED: Final = ("int8", "int16", "int32", "int64")
UNSIGNED: Final = ("uint8", "uint16", "uint32", "uint64")
FLOATS: Final = ("float32", "float64")
COMPLEX: Final = ("complex64", "complex128")
INTEGERS: Final = (*SIGNED, *UNSIGNED)
REAL: Final = (*INTEGERS, *FLOATS)
INEXACT: Final = (*FLOATS, *COMPLEX)
NUMERIC: Final = (*REAL, *COMPLEX)
ALL: Final = ("bool", *NUMERIC)
PARTS: Final = {"complex64": "float32", "complex128": "float64"}

# Functions of one array whose results have the dtype of the argument, by the dtypes that they accept.
SAME_DTYPE: Final[dict[tuple[str, ...], tuple[str, ...]]] = {
    INEXACT: (
        *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "expm1", "log", "log1p", "log2"),
        *("log10", "mean", "reciprocal", "sin", "sinh", "sqrt", "tan", "tanh"),
    ),
    NUMERIC: ("conj", "diff", "negative", "positive", "round", "sign", "square"),
    REAL: ("ceil", "floor", "max", "min", "sort", "trunc"),
    FLOATS: ("std", "var"),
    ("bool", *INTEGERS): ("bitwise_invert",),
    ALL: ("empty_like", "expand_dims", "flip", "ones_like", "unique_values", "zeros_like"),
}
BOOLEAN: Final[dict[tuple[str, ...], tuple[str, ...]]] = {
    NUMERIC: ("isfinite", "isinf", "isnan"),
    FLOATS: ("signbit",),
    ("bool",): ("logical_not",),
    ALL: ("all", "any"),
}
SUMS: Final = ("cumulative_prod", "cumulative_sum", "prod", "sum")
INDICES: Final = {"argmax": REAL, "argmin": REAL, "argsort": REAL, "count_nonzero": ALL, "nonzero": ALL}
PAIRS: Final[dict[tuple[str, ...], tuple[str, ...]]] = {
    NUMERIC: ("add", "multiply", "pow", "subtract", "vecdot", "matmul", "tensordot"),
    INEXACT: ("divide",),
    REAL: ("floor_divide", "maximum", "minimum", "remainder"),
    FLOATS: ("atan2", "copysign", "hypot", "logaddexp", "nextafter"),
    ("bool", *INTEGERS): ("bitwise_and", "bitwise_or", "bitwise_xor"),
    INTEGERS: ("bitwise_left_shift", "bitwise_right_shift"),
}
BOOLEAN_PAIRS: Final[dict[tuple[str, ...], tuple[str, ...]]] = {
    ALL: ("equal", "not_equal"),
    REAL: ("greater", "greater_equal", "less", "less_equal"),
    ("bool",): ("logical_and", "logical_or", "logical_xor"),
}


def cases(table: dict[tuple[str, ...], tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(name, dtype) for accepted_dtypes, names in table.items() for name in names for dtype in accepted_dtypes]


def promoted_dtype(a: str, b: str) -> str | None:
    """Returns the promoted dtype of the standard's table, or None where the standard leaves it undefined."""
    for rank in (SIGNED, UNSIGNED, FLOATS, COMPLEX):
        if a in rank and b in rank:
            return max(a, b, key=rank.index)
    if {a, b} <= {*INTEGERS}:
        signed, other = (a, b) if a in SIGNED else (b, a)
        wide = UNSIGNED.index(other) + 1
        return SIGNED[max(SIGNED.index(signed), wide)] if wide < len(SIGNED) else None
    if {a, b} <= {*INEXACT}:
        return "complex128" if {a, b} & {"float64", "complex128"} else "complex64"
    return a if a == b else None


def type_names(f: Callable[..., Any], *args: Any) -> set[str]:
    """Returns the names of the result dtypes, after checking that abstract evaluation predicts the same types."""
    out = f(*args)
    traced = fx.eval_shape(f, *args) if f not in (fnp.unique_values, fnp.nonzero) else out
    leaves = out if isinstance(out, tuple) else (out,)
    predicted = traced if isinstance(traced, tuple) else (traced,)
    assert [(x.shape, x.dtype) for x in leaves] == [(x.shape, x.dtype) for x in predicted]
    return {x.dtype.name for x in leaves}


def some(dtype: str, *shape: int) -> Any:
    return fnp.ones(shape or (2,), dtype)


@pytest.mark.parametrize(("name", "dtype"), cases(SAME_DTYPE))
def test_functions_that_preserve_the_dtype(name: str, dtype: str) -> None:
    with fx.enable_x64(True):
        assert type_names(getattr(fnp, name), some(dtype)) == {dtype}


@pytest.mark.parametrize(("name", "dtype"), cases(BOOLEAN))
def test_predicates_return_bool(name: str, dtype: str) -> None:
    assert type_names(getattr(fnp, name), some(dtype)) == {"bool"}


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("name", ["abs", "imag", "real"])
def test_real_valued_functions_of_complex_numbers(name: str, dtype: str) -> None:
    assert type_names(getattr(fnp, name), some(dtype)) == {PARTS[dtype]}


@pytest.mark.parametrize("dtype", NUMERIC)
@pytest.mark.parametrize("name", SUMS)
def test_sums_of_small_integers_have_the_default_dtype(name: str, dtype: str) -> None:
    with fx.enable_x64(True):
        wide = "int64" if dtype in SIGNED else "uint64" if dtype in UNSIGNED else dtype
        assert type_names(getattr(fnp, name), some(dtype)) == {wide}
        assert type_names(lambda x: getattr(fnp, name)(x, dtype=dtype), some(dtype)) == {dtype}
        assert type_names(fnp.linalg.trace, some(dtype, 2, 2)) == {wide}


@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n, accepted_dtypes in INDICES.items() for d in accepted_dtypes])
def test_index_results_have_the_index_dtype(name: str, dtype: str) -> None:
    for x64, index in ((False, "int32"), (True, "int64")):
        with fx.enable_x64(x64):
            assert type_names(getattr(fnp, name), some(dtype)) == {index}


@pytest.mark.parametrize("table", [PAIRS, BOOLEAN_PAIRS], ids=["numbers", "truth"])
def test_binary_functions_promote_as_the_standard(table: dict[tuple[str, ...], tuple[str, ...]]) -> None:
    with fx.enable_x64(True):
        for accepted_dtypes, names in table.items():
            for a, b in itertools.combinations_with_replacement(accepted_dtypes, 2):
                if (both := promoted_dtype(a, b)) is None:
                    continue
                name = names[(accepted_dtypes.index(a) + accepted_dtypes.index(b)) % len(names)]
                f = getattr(fnp, name)
                x, y = (some(d, 2, 2) if name in ("matmul", "tensordot") else some(d) for d in (a, b))
                want = "bool" if table is BOOLEAN_PAIRS else both
                assert f(x, y).dtype == f(y, x).dtype == want, (name, a, b)
                assert fx.eval_shape(f, x, y).dtype == want, (name, a, b)


@pytest.mark.parametrize("dtype", ALL)
def test_python_numbers_take_the_dtype_of_the_array_on_either_side(dtype: str) -> None:
    numbers: list[Any] = [True] if dtype == "bool" else [1, *([1.5] * (dtype in INEXACT)), *([1j] * (dtype in COMPLEX))]
    with fx.enable_x64(True):
        for accepted_dtypes, names in PAIRS.items():
            for name, number in itertools.product(names, numbers):
                if dtype in accepted_dtypes and name not in ("vecdot", "matmul", "tensordot"):
                    f = getattr(fnp, name)
                    assert f(some(dtype), number).dtype == f(number, some(dtype)).dtype == dtype, (name, number)
        for number in numbers:
            assert fnp.where(fnp.asarray([True, False]), some(dtype), number).dtype == dtype
            assert fnp.result_type(number, dtype) == dtype


# ------------------------------------------------------------------ shapes


@limit_examples(30)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.data())
def test_reductions_drop_their_axes_or_keep_them_with_size_one(sizes: list[int], data: st.DataObject) -> None:
    axes = data.draw(st.lists(st.sampled_from(range(len(sizes))), unique=True))
    signed = tuple(a - len(sizes) if data.draw(st.booleans()) else a for a in axes)
    x = fnp.zeros(sizes)
    for f in (fnp.sum, fnp.prod, fnp.mean, fnp.any, fnp.all, fnp.std):
        assert f(x, axis=signed).shape == tuple(n for a, n in enumerate(sizes) if a not in axes)
        with_keepdims = f(x, axis=signed, keepdims=True)
        assert with_keepdims.shape == tuple(1 if a in axes else n for a, n in enumerate(sizes))


@limit_examples(30)
@given(st.lists(st.integers(1, 3), max_size=3), st.lists(st.integers(1, 3), max_size=3), st.data())
def test_tensordot_drops_the_contracted_axes(left: list[int], right: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, min(len(left), len(right))))
    first = data.draw(st.permutations(range(len(left))))[:count]
    second = data.draw(st.permutations(range(len(right))))[:count]
    for i, j in zip(first, second, strict=True):
        right[j] = left[i]
    got = fnp.tensordot(fnp.ones(left), fnp.ones(right), axes=(tuple(first), tuple(second)))
    rest = [n for i, n in enumerate(left) if i not in first] + [n for j, n in enumerate(right) if j not in second]
    assert got.shape == tuple(rest)
    assert np.all(np.asarray(got) == np.prod([left[i] for i in first]))
