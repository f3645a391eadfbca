"""Cumulative reductions."""

# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import numpy as np
import pytest
from jax import lax as jax_lax

import tracefx as fx
from tests.closeness import assert_near
from tests.ops.harness import Args, Record, Weak, case_id, cases, edges, normal
from tests.ops.suite import check_batching, check_derivatives, check_raises, check_values, small_integers
from tracefx import lax
from tracefx.core import dtypes
from tracefx.core.dtypes import DType
from tracefx.core.values import to_numpy
from tracefx.testing.tolerances import ELEMENTARY, Ulps

EXTREMES: Final = ("cummax", "cummin")


def record(name: str, axis: int, reverse: bool) -> Record:
    function, jax_function = getattr(lax, name), getattr(jax_lax, name)

    def samples(dtype: DType, gen: np.random.Generator) -> list[Args]:
        args: list[Args] = [
            (small_integers((3, 5), dtype, gen),),
            (small_integers((2, 0, 3), dtype, gen),),
            (Weak(small_integers((1, 4), dtype, gen)),),
        ]
        if name == "cumlogsumexp":
            return args
        if not dtypes.is_complex(dtype) and (name in EXTREMES or dtypes.is_integer(dtype)):
            args.append((gen.permutation(np.concatenate([edges(dtype)] * 2))[None].repeat(2, 0),))
        return args

    def points(dtype: DType, gen: np.random.Generator) -> list[Args]:
        return [(normal((3, n), dtype, gen),) for n in (2, 5)]

    domain: tuple[DType, ...] = (dtypes.bfloat16, dtypes.float32, dtypes.float64)
    if name != "cumlogsumexp":
        domain = (*domain, dtypes.int4, dtypes.int32, dtypes.complex64)
    return Record(
        f"{name} {axis} {reverse}", lambda x: function(x, axis, reverse), lambda x: jax_function(x, axis, reverse),
        domain, samples, points,
    )  # fmt: skip


RECORDS: Final = [
    record(name, axis, reverse)
    for name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
    for axis, reverse in ((1, False), (0, True))
]


@pytest.mark.parametrize(("record", "dtype"), [c for c in cases(RECORDS) if c[1] != dtypes.float64], ids=case_id)
def test_values(record: Record, dtype: DType) -> None:
    check_values(record, dtype)


@pytest.mark.parametrize(("record", "dtype"), [c for c in cases(RECORDS) if c[1] == dtypes.float32], ids=case_id)
def test_vmap(record: Record, dtype: DType) -> None:
    check_batching(record, dtype)


@pytest.mark.parametrize(
    ("record", "dtype"),
    [(r, dtypes.bfloat16 if r.name.endswith("True") else dtypes.float64) for r in RECORDS],
    ids=case_id,
)
def test_derivatives(record: Record, dtype: DType) -> None:
    check_derivatives(record, dtype)


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cumlogsumexp"])
def test_narrow_floats_are_rounded_once(name: str) -> None:
    f = getattr(lax, name)
    x = (1 + np.linspace(-0.01, 0.01, 1000)).astype(dtypes.bfloat16)
    want = to_numpy(f(x.astype(np.float32)))
    for got in (f(x), fx.jit(f)(x)):
        assert_near(to_numpy(got), want, Ulps(narrow=1))  # one rounding at the end


def test_gradient_of_cumprod_with_zeros() -> None:
    x = np.array([2.0, 0.0, 3.0, 0.0, 5.0], np.float32)
    for weights in np.eye(5, dtype=np.float32):
        got = fx.grad(lambda x, w=weights: lax.reduce_sum(lax.mul(lax.cumprod(x), w), (0,)))(x)
        want = jax.grad(lambda x, w=weights: (jax_lax.cumprod(x) * w).sum())(x)
        np.testing.assert_array_equal(to_numpy(got), want)


def test_second_derivative_of_cumlogsumexp_of_equal_elements() -> None:
    """The softmax weights of equal elements must be differentiated too."""
    got = fx.hessian(lambda x: lax.cumlogsumexp(x)[2])(np.zeros(3, np.float32))
    assert_near(np.asarray(got), np.eye(3) / 3 - 1 / 9, ELEMENTARY)


def test_derivative_of_cumlogsumexp_after_infinities() -> None:
    x = np.array([-np.inf, -np.inf, 0.0, 0.0], np.float32)
    got = fx.grad(lambda x: lax.cumlogsumexp(x)[3])(x)
    assert got.tolist() == [0.0, 0.0, 0.5, 0.5]


def test_programs_print_as_in_jax() -> None:
    x = np.ones((2, 3), np.float32)

    def program(lax: Any) -> Callable[[Any], Any]:
        return lambda x: [getattr(lax, n)(x, axis=1, reverse=r) for n, r in (("cumsum", True), ("cumlogsumexp", False))]

    assert fx.make_jaxpr(program(lax))(x).jaxpr.text(style="jax") == str(jax.make_jaxpr(program(jax_lax))(x))


X: Final = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("error", "words", "call"),
    [
        (ValueError, "cumsum axis f32[2,3] 2", lambda: lax.cumsum(X, 2)),
        (ValueError, "cummax axis -1", lambda: lax.cummax(X, -1)),
        (TypeError, "cumprod axis 1.5", lambda: lax.cumprod(X, 1.5)),  # type: ignore[arg-type]  # tested
        (TypeError, "cumsum numbers bool", lambda: lax.cumsum(X > 0)),
        (TypeError, "cumlogsumexp floats i32", lambda: lax.cumlogsumexp(np.arange(3))),
    ],
)
def test_invalid_arguments_raise(error: type[Exception], words: str, call: Callable[[], object]) -> None:
    check_raises(error, words, call)
