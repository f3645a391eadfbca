"""Special functions defined by formulas: laws, accurate values, edge cases, invalid arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.laws.samples.making import Sample, binary_sample, f32, make_sample, unary_sample
from tests.laws.test_operations import values
from tracefx import lax
from tracefx.control.special import bessel, incomplete_beta, incomplete_gamma
from tracefx.testing import check_function, check_primitive, jvp_is_the_derivative, vmap_is_a_loop
from tracefx.testing.tolerances import Ulps

SHAPES: Final = [0.5, 2.25, 30.0]
PLACES: Final = [0.75, 1.5, 28.0]


def last_operand_sample(prim: Any, *parameters: float) -> Sample:
    """Returns a sample of a primitive that is differentiated with respect to its last operand only."""

    def function(x: Any) -> Any:
        return fx.extend.bind1(prim, *[fx.lax.stop_gradient(x * 0 + p) for p in parameters], x)

    function.__name__ = prim.name
    return Sample(prim, ((f32(0.25, 0.5, 0.875),),), function)


SAMPLES: Final = (
    unary_sample(bessel.BesselI0e(), 0.5, -1.25, 9.0),
    unary_sample(bessel.BesselI1e(), 0.5, -1.25, 9.0),
    binary_sample(incomplete_gamma.Igamma(), SHAPES, PLACES),
    binary_sample(incomplete_gamma.Igammac(), SHAPES, PLACES),
    binary_sample(incomplete_gamma.GammaDensity(), SHAPES, PLACES),
    last_operand_sample(incomplete_gamma.IgammaGradA(), 1.5),
    last_operand_sample(incomplete_gamma.RandomGammaGrad(), 1.5),
    last_operand_sample(incomplete_beta.RegularizedIncompleteBeta(), 1.5, 2.5),
    make_sample(incomplete_beta.BetaDensity(), (f32(0.5, 2.25, 30.0), f32(1.5, 0.75, 20.0), f32(0.25, 0.5, 0.625))),
)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.prim.name)
def test_derivative_and_batching_laws(sample: Sample) -> None:
    """Checks only laws with their own rules, since each program of a formula takes long to compile."""
    laws = [jvp_is_the_derivative, vmap_is_a_loop]
    first = values(sample.operands[0])
    if sample.within is None:
        check_primitive(sample.prim, first, laws=laws)
    else:
        check_function(sample.within, *first, laws=laws)


# ------------------------------------------------------------------ values

# Computed with 40 digits: a, x, P, Q, dP/da, and the derivative of a sample.
GAMMA: Final = (
    (0.5, 0.25, 0.5204998778130465, 0.4795001221869535, -0.797947316783223, 0.9080144917641113),
    (1.5, 2.0, 0.7385358700508894, 0.2614641299491106, -0.2774335642087104, 1.284629550671886),
    (0.0009765625, 0.5, 0.999453066606331, 0.000546933393669003, -0.5603456921330562, 473.06710292304257),
    (0.25, 6.0, 0.9998393546741456, 0.00016064532585434747, -0.0009884181923757699, 5.542454473956787),
    (12.0, 3.5, 0.0002889922199303002, 0.9997110077800697, -0.00037548092327127066, 0.5140741829350902),
    (15.0, 15.5, 0.5845928898522083, 0.4154071101477917, -0.10106517576240288, 1.0278519941483373),
    (40.0, 38.0, 0.39408063211889344, 0.6059193678811066, -0.06157565466210136, 0.9786426956404499),
    (256.0, 300.0, 0.9956945172675421, 0.004305482732457914, -0.0007703505116551416, 1.08210167370971),
    (4096.0, 4000.0, 0.06594852822202155, 0.9340514717779784, -0.002011530367731019, 0.9882288187682289),
    (0.125, 0.0078125, 0.5784823528277331, 0.4215176471722669, -2.5856438961845347, 0.28130351809660026),
)
# a, b, x, the function's value.
BETA: Final = (
    (0.5, 0.5, 0.25, 0.3333333333333333),
    (2.0, 3.0, 0.75, 0.94921875),
    (40.0, 60.0, 0.375, 0.3087821967608015),
    (500.0, 250.0, 0.625, 0.008560189447552439),
    (0.0625, 8.0, 0.0009765625, 0.7600093314494176),
    (1000.0, 0.5, 0.9990234375, 0.16220042451468059),
    (3000.0, 4000.0, 0.4375, 0.9342385404934371),
)


CLOSE: Final = Ulps(32, 32)
"""Relative tolerance, also for tiny values: these are series and continued fractions of up to hundreds of terms."""


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_incomplete_gamma_functions(dtype: Any) -> None:
    """Includes large parameters and values close to 1, where JAX loses up to all digits."""
    table = np.array(GAMMA)
    a, x = (fnp.array(c.astype(dtype)) for c in table[:, :2].T)
    results = fx.jit(
        lambda a, x: [f(a, x) for f in (lax.igamma, lax.igammac, lax.igamma_grad_a, lax.random_gamma_grad)]
    )(a, x)
    assert_near(results, table[:, 2:].T, CLOSE)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_incomplete_beta_function(dtype: Any) -> None:
    table = np.array(BETA)
    assert_near(lax.betainc(*[fnp.array(c.astype(dtype)) for c in table[:, :3].T]), table[:, 3], CLOSE)


def test_narrow_floats_are_computed_in_a_wider_dtype() -> None:
    a, x = (fnp.array(c[:4], dtype="bfloat16") for c in np.array(GAMMA)[:, :2].T)
    got = lax.igamma(a, x)
    assert got.dtype == fnp.bfloat16
    assert fnp.array_equal(got, lax.igamma(a.astype("float32"), x.astype("float32")).astype("bfloat16"))


# ------------------------------------------------------------------ edges

INF, NAN = np.inf, np.nan
EDGES: Final[dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]]] = {
    "igamma": (
        lax.igamma,
        [(0, 0.5, 1), (0, 0, NAN), (2, 0, 0), (2, INF, 1), (INF, 2, 0), (INF, INF, NAN), (-1, 1, NAN), (1, -1, NAN)],
    ),
    "igammac": (lax.igammac, [(0, 0.5, 0), (0, 0, NAN), (2, 0, 1), (2, INF, 0), (INF, 2, 1), (NAN, 1, NAN)]),
    "igamma_grad_a": (lax.igamma_grad_a, [(2, 0, 0), (2, INF, 0), (0, 1, NAN), (-1, 1, NAN), (1, NAN, NAN)]),
    "random_gamma_grad": (lax.random_gamma_grad, [(2, 0, 0), (0, 1, NAN), (-1, 1, NAN), (1, NAN, NAN)]),
    "betainc": (
        lax.betainc,
        [
            *((0, 1, 0.5, 1), (1, 0, 0.5, 0), (1, 1, 0, 0), (1, 1, 1, 1), (INF, 1, 0.5, 0), (1, INF, 0.5, 1)),
            *((INF, INF, 0.5, NAN), (0, 0, 0.5, NAN), (-1, 1, 0.5, NAN), (1, 1, 1.5, NAN), (1, 1, -0.5, NAN)),
        ],
    ),
}


@pytest.mark.parametrize("name", EDGES)
def test_edge_cases(name: str) -> None:
    f, rows = EDGES[name]
    table = np.array(rows, np.float32)
    np.testing.assert_array_equal(np.asarray(f(*map(fnp.array, table[:, :-1].T))), table[:, -1])


@pytest.mark.parametrize(
    ("f", "value"),
    [
        (lambda a: lax.igamma_grad_a(a, 1.0), 1.5),
        (lambda a: lax.random_gamma_grad(a, 1.0), 1.5),
        (lambda a: lax.betainc(a, 1.0, 0.5), 1.5),
        (lambda b: lax.betainc(1.0, b, 0.5), 1.5),
        (lambda s: lax.zeta(s, 1.0), 1.5),
    ],
)
def test_differentiating_unsupported_parameters_is_an_error(f: Any, value: float) -> None:
    with pytest.raises(ValueError, match="no derivative with respect to its"):
        fx.grad(f)(value)


def test_integers_are_rejected() -> None:
    with pytest.raises(TypeError, match="igamma takes floats"):
        lax.igamma(np.int32(1), np.int32(2))
