"""`tracefx.scipy.optimize` compared with `jax.scipy.optimize`, iteration by iteration."""

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
from tests.comparison import assert_near
from tests.errors import untyped
from tests.versions import ULPS_OF_50_STEPS
from tracefx.scipy.optimize import OptimizeResults, minimize
from tracefx.scipy.optimize.bfgs import vector_norm
from tracefx.testing.tolerances import DERIVATIVE, ELEMENTARY, Ulps

LBFGS: Final = "l-bfgs-experimental-do-not-rely-on-this"
METHODS: Final = ("BFGS", LBFGS)
MANY_STEPS: Final = Ulps(2.0**23, ULPS_OF_50_STEPS, least=1.0, relative_to_max=True)
"""Tolerance after up to 50 iterations, each of which amplifies earlier rounding errors; Rosenbrock's valley has a
condition number of 2,500.
"""


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
        offset = z - np_.asarray(np.array([1 + 2j, 3 - 1j], z.dtype), dtype=z.dtype)
        return np_.sum(np_.abs(offset) ** 2) + np_.abs(offset[0] - offset[1]) ** 4

    return f


CASES: Final = (
    Case("BFGS", himmelblau, (92.0, 0.001), "float32"),
    Case("BFGS", rosenbrock, (-1.2, 1.0, 0.5, 2.0, 3.0)),
    Case(LBFGS, himmelblau, (92.0, 0.001), "float32", (("maxcor", 2),)),
    Case(LBFGS, rosenbrock, (-1.2, 1.0, 0.5, 2.0, 3.0)),
    Case(LBFGS, complex_bowl, (0.5, 1j), "complex64", (("norm", 2),)),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.f.__name__}-{c.method[:6]}-{c.dtype}")
def test_iterations_match_jax(case: Case) -> None:
    options = dict(case.options)
    start = np.array(case.start, case.dtype)
    got = minimize(case.f(fnp), fnp.array(start, dtype=case.dtype), method=case.method, options=options)
    with jax.enable_x64(case.dtype == "float64"):
        want = jax_optimize.minimize(case.f(jnp), jnp.asarray(start), method=case.method, options=options)
    for name in ("success", "status", "nfev", "njev", "nit"):
        assert int(getattr(got, name)) == int(getattr(want, name)), name
    for name in ("x", "fun", "jac", "hess_inv"):
        actual, expected = getattr(got, name), getattr(want, name)
        assert (actual is None) == (expected is None)
        if actual is not None:
            assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
            assert_near(actual, expected, MANY_STEPS, name)


def bowl(x: Any, center: Any) -> Any:
    return fnp.sum((x - center) ** 2) + fnp.sum((x - center) ** 4)


@pytest.mark.parametrize("method", METHODS)
def test_transformations_of_minimize(method: str) -> None:
    def minimizer(center: Any) -> Any:
        return minimize(bowl, fnp.zeros(2), (center,), method=method, options={"gtol": 1e-6}).x

    points = np.array([[1.0, 2.0], [-0.5, 0.25], [0.0, 0.0]], np.float32)
    if method == "BFGS":
        got, tangent = fx.jit(lambda center: fx.jvp(minimizer, (center,), (fnp.ones_like(center),)))(points[0])
        assert_near(got, points[0])
        assert_near(tangent, np.ones(2), DERIVATIVE)
    else:
        assert_near(fx.jit(fx.vmap(minimizer))(points), points, DERIVATIVE)


@pytest.mark.parametrize("method", METHODS)
def test_maxiter_stops_the_iteration(method: str) -> None:
    out = minimize(rosenbrock(fnp), fnp.array([-1.2, 1.0]), method=method, options={"maxiter": 2})
    assert isinstance(out, OptimizeResults)
    assert not out.success
    assert out.status == 1
    assert out.nit <= 3


@pytest.mark.parametrize(("option", "status"), [("maxfun", 2), ("maxgrad", 3)])
def test_maxfun_and_maxgrad_stop_the_iteration(option: str, status: int) -> None:
    out = minimize(rosenbrock(fnp), fnp.array([-1.2, 1.0]), method=LBFGS, options={option: 3})
    assert out.status == status


@pytest.mark.parametrize("norm", [np.inf, -np.inf, 0, 1, 2, 3])
def test_vector_norm_matches_numpy(norm: float) -> None:
    v = np.array([3.0, -4.0, 0.0, 1.0])
    assert_near(vector_norm(fnp.array(v), norm), np.linalg.norm(v, norm), ELEMENTARY)


def test_invalid_arguments_of_minimize_raise() -> None:
    f = himmelblau(fnp)
    with pytest.raises(ValueError, match="method must be 'BFGS'"):
        minimize(f, fnp.zeros(2), method="Newton")
    with pytest.raises(TypeError, match="args must be a tuple"):
        untyped(minimize)(f, fnp.zeros(2), args=1.0, method="BFGS")
    with pytest.raises(ValueError, match="x0 must be a vector"):
        minimize(f, fnp.zeros((2, 1)), method="BFGS")
    with pytest.raises(TypeError, match="other"):
        minimize(f, fnp.zeros(2), method="BFGS", options={"other": 1})
    with pytest.raises(ValueError, match="max_steps"):
        fx.grad(lambda center: minimize(bowl, fnp.zeros(2), (center,), method="BFGS").fun)(1.0)
