"""Tests of `tests/comparison.py`, and of the tolerances that tests use.

Tests take their tolerances from the shared table; exceptions, and wider ones than in JAX's tests, have reasons.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.internal_test_util.lax_test_util import lax_ops
from jax._src.public_test_util import default_gradient_tolerance, default_tolerance

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import (
    JAX_TOLERANCE,
    JAX_TRANSFORM_TOLERANCE,
    assert_agree,
    assert_calls_agree,
    assert_near,
    assert_programs_agree,
    assert_same,
    difference,
)
from tracefx.core import dtypes
from tracefx.core.handler import Tracer
from tracefx.errors import ConcretizationError
from tracefx.testing.tolerances import (
    DERIVATIVE,
    ELEMENTARY,
    EXACT,
    FINITE_DIFFERENCES,
    FINITE_DIFFERENCES_32_BITS,
    SECOND_DERIVATIVE,
    SUMMED,
    Ulps,
    ulps_of,
)

TESTS: Final = Path(__file__).parent

# ------------------------------------------------------------------ tolerances in test sources

LITERAL_TOLERANCE: Final = re.compile(
    r"\b[ra]tol\b|\b(assert_allclose|assert_(array_)?almost_equal|assert_approx_equal|approx)\("
    r"|\b(np|numpy|math|jnp|jax\.numpy)\.(allclose|isclose)\(|<=?\s*[\d.]+e-\d"
)
"""Matches a tolerance that is not from the table."""

EXCEPTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "an argument of the function under test": (
        r".*",
        r"\bcall\(|\blax\.Tolerance\(|\.matrix_rank\(|\bfnp\.(is|all)close\(",
    ),
    "the text of an error message": (r"ops/test_accuracy\.py", r"match="),
    "positions on a page, in pixels": (r"pictures/.*", r"\bapprox\(.*\babs=1(\.0)?\)$"),
    "counts of operations, which XLA adds up in 32 bits": (r"handlers/test_count_xla\.py", r"\brel=FLOAT32\b"),
    "costs of scalar operations, which XLA omits": (r"handlers/test_count_xla\.py", r"\brel=0\.015\b"),
    "GPUs may multiply 32-bit floats with lower precision": (r"gpu/test_devices\.py", r"\(out, .* @ .*, rtol=1e-2\)$"),
    "GPUs have their own elementary functions": (r"gpu/test_devices\.py", r"\(got, want, rtol=1e-5\)$"),
    "an argument of JAX's function": (r"interop/test_as_jax\.py", r"\bcheck_grads\("),
    "an option of the solver under test": (r"scipy/test_integrate\.py", r"\b(solve|ours|odeint)\("),
    "the memory that XLA needs beside the model's": (
        r"control/test_memory_budget\.py",
        r"\bapprox\(budget, rel=0\.1\)",
    ),
    "an error that a function estimates": (r"scipy/test_linalg\.py", r"0 < float\(error\) < 1e-12"),
}
"""Exceptions: each reason, with patterns for the files and lines that it covers."""


def sources() -> Iterator[tuple[str, list[str]]]:
    for path in sorted(TESTS.rglob("*.py")):
        if path != Path(__file__):
            yield path.relative_to(TESTS).as_posix(), path.read_text().splitlines()


def reasons_for(name: str, line: str) -> list[str]:
    """Returns the reasons that cover a line."""
    return [reason for reason, (path, text) in EXCEPTIONS.items() if re.fullmatch(path, name) and re.search(text, line)]


def literal_tolerances(name: str, lines: list[str]) -> list[str]:
    """Returns the lines with tolerances outside the table that no reason covers."""
    return [
        f"{name}:{i}: {line.strip()}"
        for i, line in enumerate(lines, 1)
        if LITERAL_TOLERANCE.search(line) and not reasons_for(name, line)
    ]


def test_tolerances_are_from_the_table() -> None:
    found = [each for name, lines in sources() for each in literal_tolerances(name, lines)]
    assert not found, "compare by assert_near of tests/comparison.py, or give a reason in EXCEPTIONS:\n" + "\n".join(
        found
    )


def test_every_reason_is_used() -> None:
    used = {
        reason
        for name, lines in sources()
        for line in lines
        if LITERAL_TOLERANCE.search(line)
        for reason in reasons_for(name, line)
    }
    assert used == {*EXCEPTIONS}


@pytest.mark.parametrize(
    "line",
    [
        "np.testing.assert_allclose(got, want)",
        "assert_near(got, want, rtol=1e-3)",
        "assert np.allclose(got, want)",
        "assert x == pytest.approx(3.0)",
        "assert abs(got - want).max() < 1e-5",
        "assert error <= 2.5e-3",
    ],
)
def test_literal_tolerance_is_detected(line: str) -> None:
    assert literal_tolerances("handlers/test_taylor.py", ["x = 1", f"    {line}"]) == [
        f"handlers/test_taylor.py:2: {line}"
    ]


# ------------------------------------------------------------------ other numbers of ulps

UNITS: Final = re.compile(r"\bUlps\((?=[^)])")
UNCHECKED_FILES: Final = ("comparison.py", "laws/", "typing/", "differential/test_table.py")
"""Files that define or test tolerances, which are not checked."""


def unexplained(name: str, lines: list[str]) -> list[str]:
    """Returns the lines with `Ulps(...)` that have no comment on or before them, and no docstring after them."""
    return [
        f"{name}:{i + 1}: {line.strip()}"
        for i, line in enumerate(lines)
        if UNITS.search(line)
        and "#" not in line
        and not lines[max(i - 1, 0)].lstrip().startswith("#")
        and not "".join(lines[i + 1 : i + 2]).lstrip().startswith('"""')
    ]


def test_other_numbers_of_ulps_have_a_comment() -> None:
    found = [
        each for name, lines in sources() if not name.startswith(UNCHECKED_FILES) for each in unexplained(name, lines)
    ]
    assert not found, "say in a remark where the number comes from:\n" + "\n".join(found)


def test_number_of_ulps_without_a_comment_is_detected() -> None:
    without_comment, with_comment = "near = Ulps(f32=300)", ["# It is added up 300 times.", "near = Ulps(f32=300)"]
    assert unexplained("x.py", ["", without_comment, ""]) == [f"x.py:2: {without_comment}"]
    assert not unexplained("x.py", with_comment)
    assert not unexplained("x.py", [f"{without_comment}  # 300 additions"])
    assert not unexplained("x.py", [without_comment, '"""Of 300 additions."""'])


# ------------------------------------------------------------------ comparison with the tolerances of JAX's tests

WIDER: Final[Mapping[str, str]] = {
    "atanh complex128": "XLA subtracts logarithms",
    "log1p complex64": "XLA's real part cancels on the circle around -1, where JAX's tests don't go",
    "log1p complex128": "as of complex64",
    "pow complex64": "XLA goes by exp and log: the error grows with the exponent, which JAX's tests keep small",
    "pow complex128": "as of complex64",
}
"""Operations with wider tolerances than in JAX's tests, with the reasons."""


def units(tolerance: float, dtype: Any) -> float:
    """Converts JAX's tolerance to ulps of 1. Near 1 it counts twice: as absolute and as relative tolerance."""
    return 2 * tolerance / float(dtypes.finfo(dtypes.real_dtype(np.dtype(dtype))).eps)


def test_tolerances_of_operations_are_tighter_than_in_jax_tests() -> None:
    wider = set()
    for op in lax_ops():
        own = {np.dtype(d): x for d, x in op.tol.items()} if isinstance(op.tol, dict) else {}
        for dtype in inexact_dtypes(op.dtypes):
            jax_tolerance = op.tol if isinstance(op.tol, float) else own.get(dtype, default_tolerance()[dtype])
            if ulps_of(op.op).of(dtype) > units(jax_tolerance, dtype):
                wider.add(f"{op.op} {dtype}")
    assert wider == {*WIDER}


def inexact_dtypes(listed: Iterable[Any]) -> list[dtypes.DType]:
    """Returns the inexact dtypes of an operation, with those of 64 bits, which JAX lists only if x64 is enabled."""
    narrow = {np.dtype(d) for d in listed if dtypes.is_inexact(np.dtype(d)) and np.dtype(d) in default_tolerance()}
    wide = {{"float32": dtypes.float64, "complex64": dtypes.complex128}.get(d.name, d) for d in narrow}
    return sorted(narrow | wide, key=str)


# The tolerances of sums, whose order is unspecified, in JAX's tests of reductions (lax_numpy_reducers_test.py).
SUM_TOLERANCES: Final[Mapping[str, float]] = {"bfloat16": 3e-2, "float16": 1e-2, "float32": 1e-3, "float64": 1e-5}


@pytest.mark.parametrize("dtype", SUM_TOLERANCES)
def test_tolerances_of_sums_are_tighter_than_in_jax_tests(dtype: str) -> None:
    assert SUMMED.of(np.dtype(dtype)) < units(SUM_TOLERANCES[dtype], dtype)


@pytest.mark.parametrize("tolerance", [EXACT, ELEMENTARY, SUMMED, JAX_TOLERANCE], ids=repr)
def test_tolerances_in_32_bits_are_tighter_than_the_default_of_jax_tests(tolerance: Ulps) -> None:
    assert tolerance.f32 < units(default_tolerance()[np.dtype("float32")], "float32")


@pytest.mark.parametrize(
    "tolerance", [DERIVATIVE, SECOND_DERIVATIVE, JAX_TRANSFORM_TOLERANCE, FINITE_DIFFERENCES], ids=repr
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tolerances_of_derivatives_are_tighter_than_in_jax_tests(tolerance: Ulps, dtype: str) -> None:
    assert tolerance.of(np.dtype(dtype)) < units(default_gradient_tolerance[np.dtype(dtype)], dtype)
    # JAX uses the same tolerances for finite differences in 32 bits.
    assert FINITE_DIFFERENCES_32_BITS.f32 < units(default_gradient_tolerance[np.dtype("float32")], "float32")


# ------------------------------------------------------------------ differences

ONE: Final = np.float32(1)
DIFFERENCES: Final[Mapping[str, tuple[Any, Any, str]]] = {
    "container": ([1], (1,), r"\[1\] in place of \(1,\)"),
    "length": ([1], [1, 2], r"\[1\] in place of \[1, 2\]"),
    "keys": ({"a": 1}, {"b": 1}, r"in place of \{'b': 1\}"),
    "nested value": ({"a": [1, 2]}, {"a": [1, 3]}, "output a 1: 2 in place of 3"),
    "Python type": (1, 1.0, r"1 in place of 1\.0"),
    "array of NumPy": (ONE, jnp.float32(1), "is no array"),
    "shape": (np.zeros(2), np.zeros(3), r"float64\[2\] in place of float64\[3\]"),
    "dtype": (ONE, np.float64(1), r"float32\[\] in place of float64\[\]"),
    "type only": (fnp.zeros(2), jax.ShapeDtypeStruct((2,), np.int32), r"float32\[2\] in place of int32\[2\]"),
    "weak type": (fnp.asarray(1.0), jnp.float32(1), "weak_type True"),
    "sign of zero": (np.float32(0.0), np.float32(-0.0), r"0\.0 in place of -0\.0"),
    "last bit": (np.nextafter(ONE, np.float32(2)), ONE, "allowed 0"),
    "key": (fx.random.key(0), jax.random.key(1), "in place of"),
    "error in place of a value": (KeyError("x"), 1, "KeyError: 'x' in place of 1"),
    "value in place of an error": (1, KeyError("x"), "1 in place of KeyError"),
    "error class": (KeyError("x"), TypeError("y"), "KeyError: 'x' in place of TypeError: y"),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_difference_is_described(name: str) -> None:
    got, want, description = DIFFERENCES[name]
    assert re.search(description, difference(got, want))
    assert difference(want, want) == ""


def test_values_of_both_libraries_are_equal() -> None:
    """NaNs are equal, weak booleans of JAX are no difference, and errors are compared by their built-in class."""
    values = {"nan": np.array([np.nan, 1 - 0j]), "bool": np.array([True]), "int4": np.array([1], dtypes.int4)}
    assert_same(
        [fx.tree.map(fnp.asarray, values), fx.random.key(3), None, ConcretizationError("x"), float("nan")],
        [jax.tree.map(jnp.asarray, values), jax.random.key(3), None, TypeError("y"), float("nan")],
    )
    assert_same(fnp.asarray(1) < 2, jnp.asarray(1) < 2)
    assert_same(fnp.ones(2), jax.ShapeDtypeStruct((2,), np.float32))


def test_agreement_of_cases_that_may_raise() -> None:
    def case(m: Any, np_: Any) -> object:
        return m.grad(np_.sin)(np.ones(2, np.float32))

    assert_agree(case, may_raise=True)
    with pytest.raises(TypeError, match="scalar"):
        assert_agree(case)
    with pytest.raises(AssertionError, match="broken: "):
        assert_agree(lambda m, np_: np_.ones(2) if m is fx else case(m, np_), what="broken", may_raise=True)


def test_agreement_of_calls() -> None:
    x = np.array([1.0, 2.0], np.float32)
    assert_calls_agree(fnp.power, jnp.power, [(x, 2), (2, x), (x, x), (x, "text"), (x, x[:0])])
    with pytest.raises(AssertionError, match="allowed"):
        assert_calls_agree(fnp.sin, jnp.cos, [(x,)])
    assert_calls_agree(fnp.sin, jnp.cos, [(x,)], types_only=True)
    assert_calls_agree(fnp.concatenate, jnp.concatenate, [([x, x], {"axis": 0}), ([x, x], {"axis": 5})], compiled=True)


def test_agreement_of_programs() -> None:
    x = np.array([1.0, 2.0], np.float32)
    assert_programs_agree([lambda np, x: np.sin(x) @ x, lambda np, x: x[5:], lambda np, x: np.dot(x, x[:1])], x)
    with pytest.raises(AssertionError, match="compiled"):
        assert_programs_agree([lambda np, x: x + (np is fnp and isinstance(x, Tracer))], x)


def test_assert_near_reports_the_worst_element() -> None:
    x = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    y = x.copy()
    y[1, 0] = np.nextafter(np.nextafter(y[1, 0], np.float32(9)), np.float32(9))
    assert_near(y, x, Ulps(f32=2))
    with pytest.raises(
        AssertionError, match=r"rows: 3\.000000476837158 in place of 3\.0 at \(1, 0\): 2 ulps, allowed 1"
    ):
        assert_near(y, x, Ulps(f32=1), "rows")
    with pytest.raises(AssertionError, match=r"shape \(2,\) in place of \(2, 2\)"):
        assert_near(x[0], x)
    with pytest.raises(AssertionError, match="allowed 0"):
        assert_near(np.array([1, 2]), np.array([1, 3]))
