"""Special functions that the comparison with SciPy leaves out: arguments at which SciPy is inaccurate, and error
messages.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import pytest
import scipy.special

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.errors import assert_errors
from tracefx.scipy import special
from tracefx.testing.tolerances import ELEMENTARY, PROGRAM, SECOND_DERIVATIVE, Ulps

NEAR_SINGULARITY: Final = Ulps(2**14)
"""For `hyp2f1` near 1, where terms cancel."""


def test_hyp2f1_near_one() -> None:
    """References come from 40-digit arithmetic, with `c - a - b` integral, nearly integral, and neither. JAX is
    inaccurate at most.
    """
    rows = np.array(NEAR_ONE)
    got = special.hyp2f1(*[fnp.array(x, dtype="float64") for x in rows[:, :4].T])
    assert_near(got, rows[:, 4], NEAR_SINGULARITY)
    assert np.isnan(special.hyp2f1(0.5, 0.5, 2.5, 1.5))
    at_one = fnp.array(1.0, dtype="float64")
    assert_near(special.hyp2f1(0.5, 0.25, 2.5, at_one), scipy.special.hyp2f1(0.5, 0.25, 2.5, 1.0), NEAR_SINGULARITY)


@pytest.mark.parametrize("name", ["i1", "i1e"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_second_derivatives_of_bessel_functions_near_zero(name: str, dtype: str) -> None:
    """JAX's are 0 up to the machine epsilon."""
    x = np.array([1e-30, -1e-20, 1e-9, 1e-5, -1e-3, 0.01, 0.05, -0.06, 0.065, 0.08, 0.3, -1.0], dtype)
    second = fx.jit(fx.vmap(fx.grad(fx.grad(getattr(special, name)))))
    size = np.abs(x.astype(np.float64))
    value, slope, curvature = scipy.special.iv(1, size), scipy.special.ivp(1, size), scipy.special.ivp(1, size, 2)
    expected = curvature if name == "i1" else np.exp(-size) * (curvature - 2 * slope + value)
    assert_near(second(x), (np.sign(x) * expected).astype(dtype), SECOND_DERIVATIVE)
    assert second(x[:1] * 0) == 0


# a, b, c, x and the value of the function
NEAR_ONE: Final = (
    (0.5, 0.75, 1.25, 0.99, 2.7207196587222806),
    (0.5, 0.75, 2.25, 0.96875, 1.3394126025028747),
    (0.5, 0.75, 4.25, 0.9990234375, 1.1270820505098484),
    (1.5, 1.75, 1.25, 0.99609375, 72895.34226268531),
    (2.5, 0.75, 3.25, 0.9999990463256836, 20.486813688619147),
    (0.5, 0.75, 1.252, 0.99, 2.712184210770237),
    (1.0357291929622867, 2.927288808261318, 1.9607692035238877, 0.9999974047715656, 81997251309.98322),
    (0.3, 0.4, 1.6, 0.95, 1.1311258544016212),
    (0.5, 0.75, 1.5, -100.0, 0.19905461229596325),
    (0.5, 0.5, 2.0, -10000.0, 0.06355520758682869),
)


def test_gamma_beyond_the_range_of_the_dtype() -> None:
    for dtype in ("float32", "float64"):
        x = np.array([30.5, 34.5, 36.5, 50.0, 100.0, 170.5, 171.5, 180.0, 250.0, 1e4, -36.5, -50.5, -100.5, -190.5])
        with np.errstate(over="ignore"):
            want = scipy.special.gamma(x).astype(dtype)
        assert_near(special.gamma(fnp.array(x, dtype=dtype)), want, PROGRAM)
    assert not fnp.isnan(special.gamma(fnp.arange(0.25, 300.0, 0.5))).any()


def test_comb_factorial_sph_harm_zeta_and_bernoulli() -> None:
    assert special.comb(5, 3, repetition=True) == 35
    np.testing.assert_array_equal(np.asarray(special.factorial(np.arange(11))), [math.factorial(n) for n in range(11)])
    assert fx.jit(lambda n: special.sph_harm_y(n, 0, 0.5, 0.5, n_max=3))(2).dtype == fnp.complex64
    x = fnp.array([-2.5, -1.0, 0.5, 1.0, 3.0, np.inf], dtype="float64")
    assert_near(special.zeta(x), scipy.special.zeta(np.asarray(x)), Ulps(64))  # a sum of many terms
    assert_near(special.bernoulli(60)[:60], scipy.special.bernoulli(60)[:60], Ulps(f32=2))  # one rounding of each


def test_invalid_arguments_raise() -> None:
    assert_errors(
        (lambda: special.factorial(3, exact=True), NotImplementedError, "exact=True"),
        (lambda: special.bernoulli(-1), ValueError, "n must not be negative"),
        (lambda: special.log_ndtr(1.0, 31), ValueError, "between 0 and 30"),
        (lambda: special.bessel_jn(1.0, v=-1), ValueError, "v must not be negative"),
        (lambda: fx.jit(lambda n: special.sph_harm_y(n, 0, 0.5, 0.5))(2), TypeError, "n_max must be given"),
        (lambda: special.expi(1j), TypeError, "expi is not defined for complex numbers"),
    )


def test_16_bit_floats_are_computed_in_float32() -> None:
    half = fnp.array([0.25, 0.75], dtype="bfloat16")
    assert special.ndtri(half).dtype == fnp.bfloat16
    assert fnp.array_equal(special.ndtri(half), special.ndtri(half.astype("float32")).astype("bfloat16"))


def test_derivative_of_expn() -> None:
    """Order 0 is a closed form, not an integral."""
    n, x = fnp.array([0.0, 1.0], dtype="float64"), fnp.array(0.5, dtype="float64")
    _, slope = fx.jvp(lambda x: special.expn(n, x), (x,), (fnp.ones_like(x),))
    assert_near(slope, np.array([-math.exp(-0.5) * 3 * 2, -scipy.special.expn(0, 0.5)]), ELEMENTARY)


@pytest.mark.parametrize("theta", [-4.0, -2.0, -0.7, 0.0, 0.7, 2.0, 4.0, 6.0])
def test_spherical_harmonics_at_any_polar_angle(theta: float) -> None:
    degrees = [(n, m) for n in range(4) for m in range(-n, n + 1)]
    n, m = (fnp.array(each) for each in zip(*degrees, strict=True))
    with fx.enable_x64(True):
        got = special.sph_harm_y(n, m, np.float64(theta), np.float64(0.3))
    want = scipy.special.sph_harm_y(np.asarray(n), np.asarray(m), theta, 0.3)
    assert_near(got, want, PROGRAM)
