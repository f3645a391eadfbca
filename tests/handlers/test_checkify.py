"""`checkify` compared with JAX's: which errors are detected, in eager evaluation and in compiled programs."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from attrs import frozen
from jax.experimental import checkify as jax_checkify
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.laws.examples import sampled
from tracefx import lax
from tracefx.errors import MissingRuleError
from tracefx.extend import HasSubjaxprs, Jaxpr, NDArray, Primitive, ShapedArray, bind
from tracefx.handlers import ErrorKind, all_checks, check, checkify, div_checks, float_checks, nan_checks, user_checks

jax.config.update("jax_explicit_x64_dtypes", "allow")

F = Callable[..., Any]


@frozen
class Library:
    """The library that a program uses: tracefx or JAX."""

    np: Any
    lax: Any
    check: Any
    vmap: Any
    grad: Any


OURS = Library(fnp, lax, check, fx.vmap, fx.grad)
JAX = Library(jnp, jax.lax, jax_checkify.check, jax.vmap, jax.grad)
JAX_KINDS = {
    ErrorKind.USER: jax_checkify.user_checks,
    ErrorKind.NAN: jax_checkify.nan_checks,
    ErrorKind.DIVISION: jax_checkify.div_checks,
    ErrorKind.INDEX: jax_checkify.index_checks,
}


@frozen
class Program:
    """A program with several lists of arguments, some of which cause an error."""

    name: str
    of: Callable[[Library], F]
    calls: tuple[tuple[Any, ...], ...]


def f32(*xs: Any) -> Any:
    return np.asarray(xs, np.float32)


def i32(*xs: Any) -> Any:
    return np.asarray(xs, np.int32)


INF = np.float32(np.inf)
NAN = np.float32(np.nan)
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def taking(mode: str | None, m: Library) -> F:
    return lambda x, i: m.np.take(x, i, axis=0, mode=mode)


def updating(name: str, m: Library) -> F:
    return lambda x, i: getattr(x.at[i], name)(1.0)


PROGRAMS = [
    Program("sin", lambda m: m.np.sin, ((f32(1, 2),), (f32(1, INF),))),
    Program("log", lambda m: m.np.log, ((f32(1, 2),), (f32(1, -1),), (f32(0),))),
    Program("log1p", lambda m: m.np.log1p, ((f32(1),), (f32(-2),))),
    Program("sqrt", lambda m: m.np.sqrt, ((f32(1, 0),), (f32(-1, 1),))),
    Program("arcsin", lambda m: m.np.arcsin, ((f32(1),), (f32(2),))),
    Program("arccosh", lambda m: m.np.arccosh, ((f32(1),), (f32(0.5),))),
    Program("arctanh", lambda m: m.np.arctanh, ((f32(0.5),), (f32(2),))),
    Program("exp", lambda m: m.np.exp, ((f32(1000),), (f32(NAN),))),
    Program("tanh", lambda m: m.np.tanh, ((f32(INF),), (f32(NAN),))),
    Program("add", lambda m: m.np.add, ((f32(1), f32(INF)), (f32(-INF), f32(INF)), (f32(NAN), f32(1)))),
    Program("subtract", lambda m: m.np.subtract, ((f32(1), f32(INF)), (f32(INF), f32(INF)))),
    Program("multiply", lambda m: m.np.multiply, ((f32(2), f32(INF)), (f32(0), f32(INF)))),
    Program("divide", lambda m: m.np.divide, ((f32(1, 2), f32(1, 2)), (f32(0), f32(0)), (f32(1), f32(0)))),
    Program("integers divided", lambda m: m.lax.div, ((i32(1), i32(2)), (i32(1, 2), i32(1, 0)))),
    Program("remainder", lambda m: m.lax.rem, ((f32(3), f32(2)), (f32(3), f32(0)))),
    Program("power", lambda m: m.np.power, ((f32(2), f32(0.5)), (f32(-2), f32(0.5)))),
    Program("integer_pow", lambda m: lambda x: x**-2, ((f32(2),), (f32(0),), (f32(NAN),))),
    Program("sum", lambda m: m.np.sum, ((f32(1, 2),), (f32(INF, -INF),), (np.zeros((0, 3), np.float32),))),
    Program("prod", lambda m: m.np.prod, ((f32(1, 2),), (f32(INF, 0),))),
    Program("cumsum", lambda m: m.np.cumsum, ((f32(1, 2),), (f32(INF, -INF, 1),))),
    Program("dot", lambda m: m.np.dot, ((f32(1, 2), f32(3, 4)), (f32(0, 2), f32(INF, 4)))),
    Program("fft", lambda m: lambda x: m.np.fft.fft(x).real, ((f32(1, 2),), (f32(INF, 1),))),
    Program("bfloat16", lambda m: m.np.log, tuple([(x.astype(ml_dtypes.bfloat16),) for x in (f32(1), f32(-1))])),
    Program("complex", lambda m: m.np.multiply, tuple([(np.complex64(1j), np.complex64(y)) for y in (2j, INF)])),
    # Data movement, ordering and selection propagate NaN and report no error.
    Program("negative", lambda m: m.np.negative, ((f32(NAN),),)),
    Program("maximum", lambda m: m.np.maximum, ((f32(NAN), f32(1)),)),
    Program("max", lambda m: m.np.max, ((f32(NAN, 1),),)),
    Program("floor", lambda m: m.np.floor, ((f32(NAN),),)),
    Program("moved", lambda m: lambda x: m.np.reshape(m.np.concatenate([x, x])[::-1].T, (-1, 2)), ((f32(NAN, 1),),)),
    Program("selected", lambda m: lambda x: m.np.where(m.np.isnan(x), 0, x), ((f32(NAN, 1),),)),
    Program("safe log", lambda m: lambda x: m.np.where(x > 0, m.np.log(m.np.where(x > 0, x, 1)), 0), ((f32(-1, 1),),)),
    Program("sum of the selected", lambda m: lambda x: m.np.sum(m.np.where(x == x, x, 0)), ((f32(NAN, 1),),)),
    # indices
    Program("static index", lambda m: lambda x: x[3], ((f32(1, 2, 3, 4),), (f32(1, 2),))),
    Program("static index from the end", lambda m: lambda x: x[-3], ((f32(1, 2, 3),), (f32(1, 2),))),
    Program("static index beside a slice", lambda m: lambda x: x[1:, 4], ((np.zeros((2, 5), np.float32),), (X,))),
    Program("index", lambda m: lambda x, i: x[i], tuple([(X, np.int32(i)) for i in (0, 2, -3, 3, -4)])),
    Program("indices", lambda m: lambda x, i: x[i], ((X, i32(0, 2)), (X, i32(0, 3)), (X, i32(-4, 0)))),
    Program("two indices", lambda m: lambda x, i, j: x[i, j], ((X, i32(0), i32(3)), (X, i32(0), i32(4)))),
    Program("no indices", lambda m: lambda x, i: x[i], ((X, np.zeros(0, np.int32)),)),
    Program("dynamic_slice", lambda m: lambda x, i, j: m.lax.dynamic_slice(x, (i, j), (2, 2)),
            tuple([(X, np.int32(i), np.int32(j)) for i, j in ((0, 0), (1, 2), (2, 0), (0, 3))])),
    Program("dynamic_update_slice", lambda m: lambda x, y, i: m.lax.dynamic_update_slice(x, y, (i, 0)),
            tuple([(X, np.ones((2, 2), np.float32), np.int32(i)) for i in (0, 1, 2)])),
    *[Program(f"take, {mode}", functools.partial(taking, mode), ((X, i32(0, 2)), (X, i32(0, 3))))
      for mode in ("fill", None)],
    Program("take, clip", functools.partial(taking, "clip"), ((X, i32(0, 3)),)),
    *[Program(f"at {name}", functools.partial(updating, name), ((X, i32(0, 2)), (X, i32(0, 3)), (X, i32(-5))))
      for name in ("set", "add", "multiply", "min", "max")],
    Program("at set, drop", lambda m: lambda x, i: x.at[i].set(1.0, mode="drop"), ((X, i32(3)),)),
    # checks and control flow
    Program("check", lambda m: lambda x: m.check(x > 0, "{}", x), ((np.float32(1),), (np.float32(-1),))),
    Program("scan", lambda m: lambda xs: m.lax.scan(lambda c, x: (c + x, m.np.log(x)), np.float32(0), xs),
            ((f32(1, 2),), (f32(1, -2),), (f32(),))),
    Program("check in a scan",
            lambda m: lambda xs: m.lax.scan(lambda c, x: (m.check(x > 0, "{}", x), (c + x, c))[1], np.float32(0), xs),
            ((f32(1, 2),), (f32(1, -2),))),
    Program("cond", lambda m: lambda x: m.lax.cond(x > 0, lambda x: m.np.log(x - 2), lambda x: m.np.sqrt(x), x),
            tuple([(np.float32(x),) for x in (3, 1, 0, -1)])),
    Program("switch with an index in a branch",
            lambda m: lambda i, x: m.lax.switch(i, [lambda x: x[i + 2], lambda x: x[0] / x[1], lambda x: x[1]], x),
            tuple([(np.int32(i), x) for i in (0, 1, 2) for x in (f32(1, 2), f32(1, 0))])),
    Program("while",
            lambda m: lambda x: m.lax.while_loop(lambda c: c[1] < 3, lambda c: (m.np.log(c[0]), c[1] + 1), (x, 0))[0],
            ((np.float32(1e30),), (np.float32(2),))),
    Program("condition of while", lambda m: lambda x: m.lax.while_loop(lambda x: m.np.log(x) > -1, lambda x: x - 1, x),
            ((np.float32(0.1),), (np.float32(2.5),))),
    Program("fori_loop", lambda m: lambda n, x: m.lax.fori_loop(0, n, lambda i, s: s + x[i], np.float32(0)),
            ((np.int32(3), f32(1, 2, 3)), (np.int32(4), f32(1, 2, 3)))),
    Program("derivative", lambda m: m.grad(m.np.sqrt), ((np.float32(1),), (np.float32(0),), (np.float32(-1),))),
    Program("batch", lambda m: m.vmap(m.np.log), ((f32(1, 2),), (f32(1, -2),))),
    Program("batch of indices", lambda m: m.vmap(lambda x, i: x[i]), ((X, i32(0, 1, 3)), (X, i32(0, 4, 0)))),
    Program("batch of checks", lambda m: m.vmap(lambda x: (m.check(x > 0, "{}", x), x)[1]),
            ((f32(1, 2),), (f32(1, -2),))),
]  # fmt: skip

IDS = [p.name for p in PROGRAMS]


def has_error(program: F, kinds: frozenset[ErrorKind], args: tuple[Any, ...]) -> bool:
    return checkify(program, kinds)(*args)[0].get() is not None


@pytest.mark.parametrize(
    ("program", "kind"), sampled(itertools.product(PROGRAMS, ErrorKind), 3), ids=lambda each: each.name
)
def test_checkify_detects_the_errors_that_jax_does(program: Program, kind: ErrorKind) -> None:
    kinds = frozenset({kind})
    if "check" in program.name and kind is not ErrorKind.USER:
        kinds |= user_checks  # JAX drops these checks unless they are enabled
    jax_kinds = frozenset().union(*[JAX_KINDS[k] for k in kinds])
    for args in program.calls:
        error, _ = jax_checkify.checkify(program.of(JAX), jax_kinds)(*map(jnp.asarray, args))
        assert has_error(program.of(OURS), kinds, tuple(map(fnp.asarray, args))) == (error.get() is not None), args


@pytest.mark.parametrize("program", PROGRAMS, ids=IDS)
def test_compiled_programs_detect_the_errors_of_eager_evaluation(program: Program) -> None:
    f = program.of(OURS)
    for args in program.calls:
        values = tuple(map(fnp.asarray, args))
        error, out = checkify(f, all_checks)(*values)
        for g in (fx.jit(checkify(f, all_checks)), checkify(fx.jit(f), all_checks)):
            jit_error, jit_out = g(*values)
            assert (jit_error.get() is None) == (error.get() is None)
            assert_near(out, jit_out)


def test_checkify_returns_the_output_of_the_function() -> None:
    def f(x: Any, scale: float = 1.0) -> dict[str, Any]:
        return {"y": fnp.log(x) * scale, "n": 3}

    error, out = checkify(f, all_checks)(f32(1, -2), scale=2.0)
    assert out["n"] == 3
    np.testing.assert_array_equal(out["y"], f(fnp.asarray(f32(1, -2)), 2.0)["y"])
    assert error.get() is not None
    assert checkify(f).__name__ == "f"


# ------------------------------------------------------------------ matrices and user primitives

SINGULAR = np.zeros((2, 2), np.float32)
NAN_MATRIX = np.full((2, 2), NAN)
REGULAR = np.array([[2, 1], [1, 3]], np.float32)
BAD_MATRICES: dict[str, tuple[Any, ...]] = {
    **{f"linalg.{name}": (SINGULAR,) for name in ("inv", "cond")},
    **{f"linalg.{name}": (NAN_MATRIX,) for name in ("eigh", "det", "slogdet", "pinv", "norm", "matrix_rank")},
    "linalg.solve": (SINGULAR, f32(1, 2)),
    "linalg.lstsq": (NAN_MATRIX, f32(1, 2)),
    "scipy.linalg.solve": (SINGULAR, f32(1, 2)),
    "scipy.linalg.inv": (SINGULAR,),
    **{f"scipy.linalg.{name}": (NAN_MATRIX,) for name in ("lu", "polar", "sqrtm", "expm", "det", "eigh")},
    "scipy.special.i0e": (f32(NAN),),
    "scipy.special.gammainc": (f32(-1), f32(1)),
    "scipy.special.betainc": (f32(-1), f32(1), f32(0.5)),
}
UNCHECKED_IN_JAX: dict[str, tuple[Any, ...]] = {
    **{f"linalg.{name}": (NAN_MATRIX,) for name in ("qr", "svd", "svdvals", "eig", "eigvals")},
    "linalg.cholesky": (-REGULAR,),
    "scipy.linalg.cho_factor": (-REGULAR,),
    **{f"scipy.linalg.{name}": (NAN_MATRIX,) for name in ("schur", "hessenberg", "lu_factor", "qr", "svd")},
    "scipy.linalg.solve_triangular": (SINGULAR, f32(1, 2)),
}


def named(module: Any, scipy: Any, path: str) -> F:
    f = operator.attrgetter(path.removeprefix("scipy."))(scipy if path.startswith("scipy.") else module)
    return lambda *args: f(*args)


@pytest.mark.parametrize("path", [*BAD_MATRICES, *UNCHECKED_IN_JAX])
def test_results_of_matrix_functions_are_checked(path: str) -> None:
    """JAX checks solves by `custom_linear_solve`, but no factorizations."""
    args = {**BAD_MATRICES, **UNCHECKED_IN_JAX}[path]
    f = named(fnp, fx.scipy, path)
    jax_error, _ = jax_checkify.checkify(named(jnp, jax.scipy, path), jax_checkify.float_checks)(*args)
    assert (jax_error.get() is not None) == (path in BAD_MATRICES)
    for g in (checkify(f, float_checks), fx.jit(checkify(f, float_checks)), checkify(fx.jit(f), float_checks)):
        assert g(*args)[0].get() is not None
    if "linalg" in path:
        finite = (REGULAR, *args[1:])
        assert not has_error(f, float_checks, finite)


def test_results_of_user_primitives_are_checked() -> None:
    class Undefined(Primitive):
        name = "undefined"

        @override
        def impl(self, *args: NDArray) -> Sequence[NDArray]:
            return [np.full_like(args[0], np.nan), args[0].astype(np.int32)]

        @override
        def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
            return [avals[0], ShapedArray(avals[0].shape, np.dtype(np.int32))]

    f = lambda x: bind(Undefined(), x)[1]  # noqa: E731
    error, _ = checkify(f, nan_checks)(f32(1, 2))
    assert str(error.get()).startswith("undefined gave NaN, at [0] of f32[2], in ")
    assert not has_error(f, div_checks, (f32(1, 2),))


def test_a_primitive_with_bodies_and_without_a_rule_is_an_error() -> None:
    class Twice(Primitive, HasSubjaxprs):
        name = "twice"

        @override
        def jaxprs(self) -> tuple[Jaxpr, ...]:
            return ()

        @override
        def with_jaxprs(self, *jaxprs: Jaxpr) -> Twice:
            return self

    for kinds in (div_checks, nan_checks):
        with pytest.raises(MissingRuleError, match="checkify"):
            checkify(lambda x: bind(Twice(), x), kinds)(1.0)


# ------------------------------------------------------------------ differences from JAX


def test_integer_remainder_by_zero_is_a_division_error() -> None:
    """JAX checks the divisors of division only."""
    assert has_error(lax.rem, div_checks, (i32(3), i32(0)))
    assert not has_error(lax.rem, div_checks, (f32(3), f32(0)))
    assert has_error(lax.rem, nan_checks, (f32(3), f32(0)))


def test_scatter_add_is_checked_for_nan() -> None:
    """JAX checks their results together with the indices."""
    x = fnp.asarray(f32(NAN))
    assert has_error(lambda x: x.at[0].add(x[0]), nan_checks, (x,))
    assert not has_error(lambda x: x.at[0].set(x[0]), all_checks, (x,))
