"""Tests take their tolerances from the one table; what is not in it, or wider than in JAX's own tests, says why."""

# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from jax._src.internal_test_util.lax_test_util import lax_ops
from jax._src.public_test_util import default_gradient_tolerance, default_tolerance

from tests.closeness import JAX_TOLERANCE, JAX_TRANSFORM_TOLERANCE, assert_near
from tracefx.core import dtypes
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

# ------------------------------------------------------------------ how tests compare

OWN: Final = re.compile(
    r"\b[ra]tol\b|\b(assert_allclose|assert_(array_)?almost_equal|assert_approx_equal|approx)\("
    r"|\b(np|numpy|math|jnp|jax\.numpy)\.(allclose|isclose)\(|<=?\s*[\d.]+e-\d"
)
"""A tolerance of its own."""

KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "an argument of the function under test": (
        r".*",
        r"\bcall\(|\blax\.Tolerance\(|\.matrix_rank\(|\bfnp\.(is|all)close\(",
    ),
    "words of an error": (r"ops/test_accuracy\.py", r"match="),
    "places on a page, in pixels": (r"pictures/.*", r"\bapprox\(.*\babs=1(\.0)?\)$"),
    "counts of operations, which XLA adds up in 32 bits": (r"handlers/test_count_xla\.py", r"\brel=FLOAT32\b"),
    "and in which it leaves single numbers out": (r"handlers/test_count_xla\.py", r"\brel=0\.015\b"),
    "on GPUs products of 32 bits may be of fewer": (r"gpu/test_devices\.py", r"\(out, .* @ .*, rtol=1e-2\)$"),
    "and functions are the platform's own": (r"gpu/test_devices\.py", r"\(got, want, rtol=1e-5\)$"),
    "an error that a function estimates": (r"scipy/test_linalg\.py", r"0 < float\(error\) < 1e-12"),
}
"""Where tolerances of their own stand, for each reason: in which files, on which lines."""


def sources() -> Iterator[tuple[str, list[str]]]:
    for path in sorted(TESTS.rglob("*.py")):
        if path != Path(__file__):
            yield path.relative_to(TESTS).as_posix(), path.read_text().splitlines()


def kinds_of(name: str, line: str) -> list[str]:
    """The reasons that hold for a line."""
    return [why for why, (place, text) in KINDS.items() if re.fullmatch(place, name) and re.search(text, line)]


def loose(name: str, lines: list[str]) -> list[str]:
    """Lines with tolerances of their own, for which no reason is known."""
    return [
        f"{name}:{i}: {line.strip()}"
        for i, line in enumerate(lines, 1)
        if OWN.search(line) and not kinds_of(name, line)
    ]


def test_tolerances_are_those_of_the_table() -> None:
    found = [each for name, lines in sources() for each in loose(name, lines)]
    assert not found, "compare by assert_near of tests/closeness.py, or give a reason in KINDS:\n" + "\n".join(found)


def test_every_reason_has_its_lines() -> None:
    used = {why for name, lines in sources() for line in lines if OWN.search(line) for why in kinds_of(name, line)}
    assert used == {*KINDS}


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
def test_a_tolerance_of_its_own_is_found(line: str) -> None:
    assert loose("handlers/test_taylor.py", ["x = 1", f"    {line}"]) == [f"handlers/test_taylor.py:2: {line}"]


# ------------------------------------------------------------------ numbers that are not in the table

UNITS: Final = re.compile(r"\bUlps\((?=[^)])")
ABOUT_THEM: Final = ("closeness.py", "laws/", "typing/", "differential/test_table.py")
"""Where tolerances are named or are what is tested."""


def unexplained(name: str, lines: list[str]) -> list[str]:
    """Units in the last place without a remark: on the line, before it, or in the words behind it."""
    return [
        f"{name}:{i + 1}: {line.strip()}"
        for i, line in enumerate(lines)
        if UNITS.search(line)
        and "#" not in line
        and not lines[max(i - 1, 0)].lstrip().startswith("#")
        and not "".join(lines[i + 1 : i + 2]).lstrip().startswith('"""')
    ]


def test_units_that_are_not_in_the_table_say_why() -> None:
    found = [each for name, lines in sources() if not name.startswith(ABOUT_THEM) for each in unexplained(name, lines)]
    assert not found, "say in a remark where the number comes from:\n" + "\n".join(found)


def test_a_number_without_a_remark_is_found() -> None:
    bare, said = "near = Ulps(f32=300)", ["# It is added up 300 times.", "near = Ulps(f32=300)"]
    assert unexplained("x.py", ["", bare, ""]) == [f"x.py:2: {bare}"]
    assert not unexplained("x.py", said)
    assert not unexplained("x.py", [f"{bare}  # 300 additions"])
    assert not unexplained("x.py", [bare, '"""Of 300 additions."""'])


# ------------------------------------------------------------------ beside JAX's own

WIDER: Final[Mapping[str, str]] = {
    "atanh complex128": "XLA subtracts logarithms",
    "log1p complex64": "XLA's real part cancels on the circle around -1, where JAX's tests don't go",
    "log1p complex128": "as of complex64",
    "pow complex64": "XLA goes by exp and log: the error grows with the exponent, which JAX's tests keep small",
    "pow complex128": "as of complex64",
}
"""Operations that may be further from NumPy's than JAX's own tests let them be."""


def units(tolerance: float, dtype: Any) -> float:
    """What JAX allows a number around 1, for which it counts the tolerance twice: absolute and relative."""
    return 2 * tolerance / float(dtypes.finfo(dtypes.real_dtype(np.dtype(dtype))).eps)


def test_operations_are_nearer_than_JAX_asks_of_its_own() -> None:
    wider = set()
    for op in lax_ops():
        own = {np.dtype(d): x for d, x in op.tol.items()} if isinstance(op.tol, dict) else {}
        for dtype in floats(op.dtypes):
            theirs = op.tol if isinstance(op.tol, float) else own.get(dtype, default_tolerance()[dtype])
            if ulps_of(op.op).of(dtype) > units(theirs, dtype):
                wider.add(f"{op.op} {dtype}")
    assert wider == {*WIDER}


def floats(given: Iterable[Any]) -> list[dtypes.DType]:
    """Floats and complex numbers of an operation, those of 64 bits too, which JAX lists when it is told to."""
    narrow = {np.dtype(d) for d in given if dtypes.is_inexact(np.dtype(d)) and np.dtype(d) in default_tolerance()}
    wide = {{"float32": dtypes.float64, "complex64": dtypes.complex128}.get(d.name, d) for d in narrow}
    return sorted(narrow | wide, key=str)


# What JAX's tests of reductions (lax_numpy_reducers_test.py) ask of sums, which may be taken in any order.
OF_SUMS: Final[Mapping[str, float]] = {"bfloat16": 3e-2, "float16": 1e-2, "float32": 1e-3, "float64": 1e-5}


@pytest.mark.parametrize("dtype", OF_SUMS)
def test_sums_are_nearer_than_JAX_asks_of_its_own(dtype: str) -> None:
    assert SUMMED.of(np.dtype(dtype)) < units(OF_SUMS[dtype], dtype)


@pytest.mark.parametrize("tolerance", [EXACT, ELEMENTARY, SUMMED, JAX_TOLERANCE], ids=repr)
def test_functions_of_32_bits_are_nearer_than_JAX_asks_where_it_says_nothing(tolerance: Ulps) -> None:
    assert tolerance.f32 < units(default_tolerance()[np.dtype("float32")], "float32")


@pytest.mark.parametrize(
    "tolerance", [DERIVATIVE, SECOND_DERIVATIVE, JAX_TRANSFORM_TOLERANCE, FINITE_DIFFERENCES], ids=repr
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_derivatives_are_nearer_than_JAX_asks_of_its_own(tolerance: Ulps, dtype: str) -> None:
    assert tolerance.of(np.dtype(dtype)) < units(default_gradient_tolerance[np.dtype(dtype)], dtype)
    # JAX has differences of 32 bits with those tolerances too.
    assert FINITE_DIFFERENCES_32_BITS.f32 < units(default_gradient_tolerance[np.dtype("float32")], "float32")


# ------------------------------------------------------------------ the comparison


def test_what_is_further_apart_is_told_with_its_place() -> None:
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
