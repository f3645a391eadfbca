"""`einsum` against `jax.numpy`; closeness and equality of arrays."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude=jax

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_calls_agree, assert_near, assert_same
from tests.errors import assert_errors
from tests.numpy.agreement import both, check, f32, numbers

# Subscripts with the shapes of the operands.
CASES: Final = (
    ("ij,jk", (2, 3), (3, 4)),
    ("ba,cb", (3, 2), (4, 3)),
    ("iij->ji", (3, 3, 2)),
    ("iii", (2, 2, 2)),
    ("ij->ji", (2, 3)),
    ("ij", (2, 3)),
    ("ba", (2, 3)),
    ("i,j", (3,), (2,)),
    ("i,i->i", (3,), (3,)),
    (",ij->ij", (), (2, 3)),
    ("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)),
    ("...ij,...jk->...ik", (5, 2, 3), (5, 3, 4)),
    ("...ij,jk", (5, 2, 3), (3, 4)),
    ("...i,...i", (2, 1, 3), (4, 3)),
    ("i...->...", (2, 3, 4)),
    ("ijk,il->jl", (2, 3, 4), (2, 5)),
    ("ij,ij->", (2, 3), (2, 3)),
    ("ij,jk,kl,lm->im", (2, 3), (3, 4), (4, 5), (5, 2)),
    ("i,j,k->kji", (2,), (3,), (4,)),
    ("ij,ij,ij->i", (2, 3), (2, 3), (2, 3)),
    ("ij,j->ij", (2, 1), (3,)),
    ("ij,jk->ik", (2, 1), (3, 4)),
    ("ij -> j", (2, 0)),
    # invalid
    ("ij,jk->ik", (2, 3), (4, 5)),
    ("ij->ijk", (2, 3)),
    ("ij->ii", (2, 3)),
    ("i,i", (2,), (3,)),
    ("i", (2, 3)),
)


def test_einsum() -> None:
    calls = [(subscripts, *[numbers("float32", n, i) for i, n in enumerate(shapes)]) for subscripts, *shapes in CASES]
    assert_calls_agree(fnp.einsum, jnp.einsum, calls, error_classes=False)


WITH_AXIS_LISTS: Final[tuple[tuple[Any, ...], ...]] = (
    ((2, 3), [0, 1], (3, 4), [1, 2], [0, 2]),
    ((2, 3), [0, 1], (3, 4), [1, 2]),
    ((2, 3), [7, 3], (3, 4), [3, -1]),
    ((3, 3), [0, 0]),
    ((3, 3), [5, 5], [5]),
    ((2, 3), [1, 0]),
    ((2, 3), [0, 1], []),
    ((5, 2, 3), [..., 0, 1], (3, 4), [1, 2], [..., 0, 2]),
    ((5, 2, 3), [..., 0], (5, 2, 3), [..., 0]),
    ((), [], (2,), [0], [0]),
    # invalid
    ((2, 3), [0, 1], (4, 5), [1, 2]),
    ((2, 3), [0], [0]),
)


def test_einsum_with_axis_lists() -> None:
    calls = [[numbers("float32", a) if isinstance(a, tuple) else a for a in args] for args in WITH_AXIS_LISTS]
    assert_calls_agree(fnp.einsum, jnp.einsum, calls, error_classes=False)


def test_result_dtypes_of_einsum() -> None:
    for dtype in ("int8", "bfloat16", "complex64"):
        (x, a), (y, b) = both(numbers(dtype, (2, 3))), both(numbers("int8", (3, 2), 1))
        check(fnp.einsum("ij,jk", x, y), jnp.einsum("ij,jk", a, b))
        check(fnp.einsum("ij->i", x), jnp.einsum("ij->i", a))
        if dtype == "int8":
            options: Any = {"preferred_element_type": "float32"}
            check(fnp.einsum("ij,jk,kl->il", x, y, x, **options), jnp.einsum("ij,jk,kl->il", a, b, a, **options))
            check(fnp.einsum("ij->i", x, **options), jnp.einsum("ij->i", a, **options))
    check(fnp.einsum("i,->i", fnp.ones(2), 2), jnp.einsum("i,->i", jnp.ones(2), 2))


@pytest.mark.parametrize("optimize", [True, False, None, "optimal", "greedy", [(1, 2), (0, 1)], [(0, 1, 2)]])
def test_einsum_optimize_argument(optimize: Any) -> None:
    xs = [numbers("float32", shape, i) for i, shape in enumerate([(2, 3), (3, 40), (40, 5)])]
    out = fnp.einsum("ij,jk,kl->il", *xs, optimize=optimize)
    assert_near(out, np.einsum("ij,jk,kl->il", *xs))


def test_einsum_chooses_small_intermediate_products() -> None:
    text = str(fx.make_jaxpr(lambda *xs: fnp.einsum("ij,jk,kl->il", *xs))(*map(np.ones, [(99, 98), (98, 97), (97, 2)])))
    assert "f32[98,2]" in text
    assert "f32[99,97]" not in text


def test_invalid_arguments_of_einsum_raise() -> None:
    untyped_einsum: Any = fnp.einsum
    assert_errors(
        (lambda: untyped_einsum(f32([1])), TypeError, "takes subscripts .a string such as"),
        (lambda: untyped_einsum(f32([1]), "i"), TypeError, "takes subscripts .a string such as"),
        (lambda: untyped_einsum(f32([1]), [0], f32([1])), TypeError, "takes subscripts .a string such as"),
        (lambda: untyped_einsum(f32([1]), [0], [2]), ValueError, "which no operand has"),
        (lambda: untyped_einsum(f32([1]), [0.5]), TypeError, "an axis"),
        (lambda: untyped_einsum("i", f32([1]), out=f32([1])), NotImplementedError, "out must be None"),
        (lambda: untyped_einsum("i"), ValueError, "at least one operand"),
        (lambda: untyped_einsum("i,i", [1], [2]), TypeError, "must be an array"),
        (lambda: untyped_einsum("i,i", f32([1]), f32([1]), optimize="fast"), ValueError, "optimize must be"),
        (
            lambda: untyped_einsum("i,i", f32([1]), f32([1]), optimize=[(0, 5)]),
            ValueError,
            "different remaining operands",
        ),
        (lambda: untyped_einsum("i1", f32([[1]])), ValueError, "must consist of letters"),
        (lambda: untyped_einsum("i,i", f32([1, 2, 3]), f32([1, 2])), ValueError, "'i' in 'i,i' has sizes 3 and 2"),
    )


NEAR: Final = f32([1, 1.00001, 1.1, np.nan, np.inf, -np.inf, 0, 1e-9])


@pytest.mark.parametrize("equal_nan", [False, True])
def test_isclose_allclose_and_array_equal(equal_nan: bool) -> None:
    (x, a), (y, b) = both(np.repeat(NEAR, 8)), both(np.tile(NEAR, 8))
    check(fnp.isclose(x, y, equal_nan=equal_nan), jnp.isclose(a, b, equal_nan=equal_nan))
    check(fnp.isclose(x, 1, 0.2, 0.1), jnp.isclose(a, 1, 0.2, 0.1))
    check(fnp.allclose(x, x, equal_nan=equal_nan), jnp.allclose(a, a, equal_nan=equal_nan))
    check(fnp.array_equal(x, x, equal_nan), jnp.array_equal(a, a, equal_nan))
    check(fnp.array_equal(x, y[:2]), jnp.array_equal(a, b[:2]))
    for dtype in ("bool", "int8", "complex64", "bfloat16"):
        (x, a), (y, b) = both(numbers(dtype, (5,))), both(numbers(dtype, (5,), 1))
        check(fnp.isclose(x, y), jnp.isclose(a, b))
        check(fnp.array_equal(x, x), jnp.array_equal(a, a))


@pytest.mark.parametrize(
    "subscripts",
    ["ij->i", "ij->", "ij->ji", "...i->...", "ii->i", "ij,jk", "ij,jk->k", "ij,ij->ij", "i,j", "i,i,i->", "i,->"],
)
@pytest.mark.parametrize("preferred", [None, "int32", "float32"])
def test_einsum_of_bools_matches_jax(subscripts: str, preferred: str | None) -> None:
    rng = np.random.default_rng(0)
    terms = subscripts.partition("->")[0].split(",")
    for _ in range(3):
        arrays = [rng.random((3,) * len(t.replace("...", "z"))) > 0.6 for t in terms]
        got = fnp.einsum(subscripts, *arrays, preferred_element_type=preferred)
        want = jnp.einsum(subscripts, *arrays, preferred_element_type=preferred)
        assert (got.dtype, got.tolist()) == (want.dtype, want.tolist())


def test_einsum_accumulates_in_preferred_element_type() -> None:
    x = np.full((2, 3), 100, np.int8)
    assert fnp.einsum("ij->i", x, preferred_element_type="int32").tolist() == [300, 300]
    assert fnp.einsum("ij,jk->k", x, np.ones((3, 2), np.int8), preferred_element_type="int32").tolist() == [600, 600]


def test_einsum_with_another_dot_general() -> None:
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((3, 2), np.float32)

    def results(F: Any, N: Any) -> Any:
        calls: list[Any] = []

        def negative(*args: Any, **kwargs: Any) -> Any:
            calls.append((args[2:], sorted(kwargs)))
            return -F.lax.dot_general(*args, **kwargs)

        f: Any = lambda x: N.einsum("ij,jk->ik", x, y, _dot_general=negative)  # noqa: E731
        same = N.einsum("ij,jk->ik", x, y, _dot_general=F.lax.dot_general)
        of_rows: Any = lambda row: f(row[None])  # noqa: E731
        return [f(x), F.jit(f)(x), F.vmap(of_rows)(x), same], calls[0]

    (got, call), (expected, jax_call) = results(fx, fnp), results(jax, jnp)
    assert_same(got, expected)
    assert [*map(repr, call[0][0])] == [*map(repr, jax_call[0][0])]
    assert {"preferred_element_type"} <= {*call[1]} & {*jax_call[1]}
