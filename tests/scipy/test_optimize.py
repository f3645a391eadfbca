"""`tracefx.scipy.optimize` beside `jax.scipy.optimize`: the same way to the same place, step by step."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import jax.scipy.optimize as jax_optimize
import numpy as np
import pytest
from attrs import frozen

import tracefx as fx
import tracefx.numpy as fnp
from tests.closeness import assert_near
from tests.versions import ULPS_OF_50_STEPS
from tracefx.scipy.optimize import OptimizeResults, minimize
from tracefx.scipy.optimize.bfgs import vector_norm
from tracefx.testing.tolerances import DERIVATIVE, ELEMENTARY, Ulps

LBFGS: Final = "l-bfgs-experimental-do-not-rely-on-this"
METHODS: Final = ("BFGS", LBFGS)
MANY_STEPS: Final = Ulps(2.0**23, ULPS_OF_50_STEPS, least=1.0, relative_to_max=True)
"""Each of up to 50 steps magnifies what the ones before rounded, in Rosenbrock's valley by its condition of 2,500."""


@frozen
class Case:
    method: str
    f: Callable[[Any], Callable[[Any], Any]]
    start: tuple[complex, ...]
    dtype: str = "float64"
    options: tuple[tuple[str, Any], ...] = ()


def himmelblau(np_: Any) -> Callable[[Any], Any]:
    return lambda x: (x[0] ** 2 + x[1] - 11.0) ** 2 + (x[0] + x[1] ** 2 - 7.0) ** 2


def rosenbrock(np_: Any) -> Callable[[Any], Any]:
    return lambda x: np_.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def complex_bowl(np_: Any) -> Callable[[Any], Any]:
    def f(z: Any) -> Any:
        away = z - np_.asarray(np.array([1 + 2j, 3 - 1j], z.dtype), dtype=z.dtype)
        return np_.sum(np_.abs(away) ** 2) + np_.abs(away[0] - away[1]) ** 4

    return f


CASES: Final = (
    Case("BFGS", himmelblau, (92.0, 0.001), "float32"),
    Case("BFGS", rosenbrock, (-1.2, 1.0, 0.5, 2.0, 3.0)),
    Case(LBFGS, himmelblau, (92.0, 0.001), "float32", (("maxcor", 2),)),
    Case(LBFGS, rosenbrock, (-1.2, 1.0, 0.5, 2.0, 3.0)),
    Case(LBFGS, complex_bowl, (0.5, 1j), "complex64", (("norm", 2),)),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.f.__name__}-{c.method[:6]}-{c.dtype}")
def test_the_way_is_jaxs(case: Case) -> None:
    options = dict(case.options)
    start = np.array(case.start, case.dtype)
    got = minimize(case.f(fnp), fnp.array(start, dtype=case.dtype), method=case.method, options=options)
    with jax.enable_x64(case.dtype == "float64"):
        want = jax_optimize.minimize(case.f(jnp), jnp.asarray(start), method=case.method, options=options)
    for name in ("success", "status", "nfev", "njev", "nit"):
        assert int(getattr(got, name)) == int(getattr(want, name)), name
    for name in ("x", "fun", "jac", "hess_inv"):
        mine, theirs = getattr(got, name), getattr(want, name)
        assert (mine is None) == (theirs is None)
        if mine is not None:
            assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
            assert_near(mine, theirs, MANY_STEPS, name)


def bowl(x: Any, at: Any) -> Any:
    return fnp.sum((x - at) ** 2) + fnp.sum((x - at) ** 4)


@pytest.mark.parametrize("method", METHODS)
def test_it_is_compiled_batched_and_has_tangents(method: str) -> None:
    def least(at: Any) -> Any:
        return minimize(bowl, fnp.zeros(2), (at,), method=method, options={"gtol": 1e-6}).x

    points = np.array([[1.0, 2.0], [-0.5, 0.25], [0.0, 0.0]], np.float32)
    if method == "BFGS":
        found, moved = fx.jit(lambda at: fx.jvp(least, (at,), (fnp.ones_like(at),)))(points[0])
        assert_near(found, points[0])
        assert_near(moved, np.ones(2), DERIVATIVE)
    else:
        assert_near(fx.jit(fx.vmap(least))(points), points, DERIVATIVE)


@pytest.mark.parametrize("method", METHODS)
def test_it_stops_after_so_many_steps(method: str) -> None:
    out = minimize(rosenbrock(fnp), fnp.array([-1.2, 1.0]), method=method, options={"maxiter": 2})
    assert isinstance(out, OptimizeResults)
    assert not out.success
    assert out.status == 1
    assert out.nit <= 3


@pytest.mark.parametrize(("option", "status"), [("maxfun", 2), ("maxgrad", 3)])
def test_it_stops_after_so_many_evaluations(option: str, status: int) -> None:
    out = minimize(rosenbrock(fnp), fnp.array([-1.2, 1.0]), method=LBFGS, options={option: 3})
    assert out.status == status


@pytest.mark.parametrize("norm", [np.inf, -np.inf, 0, 1, 2, 3])
def test_norms_of_gradients(norm: float) -> None:
    v = np.array([3.0, -4.0, 0.0, 1.0])
    assert_near(vector_norm(fnp.array(v), norm), np.linalg.norm(v, norm), ELEMENTARY)


def test_what_cannot_be_minimized_is_refused() -> None:
    f = himmelblau(fnp)
    with pytest.raises(ValueError, match="method must be 'BFGS'"):
        minimize(f, fnp.zeros(2), method="Newton")
    with pytest.raises(TypeError, match="args must be a tuple"):
        minimize(f, fnp.zeros(2), args=1.0, method="BFGS")  # type: ignore[arg-type]  # that is the test
    with pytest.raises(ValueError, match="x0 must be a vector"):
        minimize(f, fnp.zeros((2, 1)), method="BFGS")
    with pytest.raises(TypeError, match="other"):
        minimize(f, fnp.zeros(2), method="BFGS", options={"other": 1})
    with pytest.raises(ValueError, match="max_steps"):
        fx.grad(lambda at: minimize(bowl, fnp.zeros(2), (at,), method="BFGS").fun)(1.0)
