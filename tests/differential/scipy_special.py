"""Records of `tracefx.scipy.special`, compared with JAX, and with SciPy to a few ulps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import jax.scipy.special  # noqa: F401  # JAX has it as an attribute only then
import numpy as np
import scipy.special

from tests.comparison import JAX_TOLERANCE
from tests.differential.records import INF, NAN, Call, Record, Weak, c64, c_grid, call, f32, grid, i32, reference
from tests.differential.scipy_others import scipy as scipy_record
from tracefx.core import NDArray
from tracefx.testing.tolerances import PROGRAM, SUMMED, Ulps

FINITE: Final = f32(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, NAN)
ENDS: Final = np.append(FINITE, f32(INF, -INF))
PAIRS: Final = [x.ravel() for x in np.meshgrid(ENDS[1:], ENDS[1:])]
COUNT: Final = 16
HALVES: Final = ("bfloat16", "float16")


def uniform(low: float, high: float, seed: int = 0) -> NDArray:
    return grid(COUNT, low=low, high=high, seed=seed)


def log_uniform(low: float, high: float, seed: int = 0) -> NDArray:
    """Log-uniformly distributed numbers."""
    return np.exp(uniform(float(np.log(low)), float(np.log(high)), seed)).astype(np.float32)


def integers_between(low: int, high: int) -> NDArray:
    return np.rint(uniform(low, high, seed=9)).astype(np.float32)


def special(
    name: str,
    *operands: NDArray,
    exact: float,
    zeros: float = 0.0,
    ends: Sequence[NDArray] = (),
    slopes: Sequence[int] | None = None,
    mapped: Sequence[tuple[int, ...]] | None = None,
    by_jax: Sequence[NDArray] | None = None,
    typed: Sequence[Call] | None = None,
    refused: Sequence[Call] = (),
    **kw: Any,
) -> Record:
    """Record of a special function.

    `exact`: the tolerance against SciPy in ulps; `zeros`: absolute tolerance near zeros of the function. `ends`: edge
    cases of the domain. `by_jax`: operands at which JAX is accurate enough, where it is not at `operands`.
    """
    jax_operands = [x[:4] for x in operands] if by_jax is None else by_jax
    all_values = [np.concatenate([x, end]) for x, end in zip(operands, ends, strict=True)] if ends else operands
    special_reference = reference(
        getattr(scipy.special, name),
        Ulps(exact, exact, exact, least=zeros),  # for each function, by the error of its series and continued fractions
        call(*operands),
        values=[call(*all_values)],
        slopes=slopes,
        mapped=mapped,
    )
    if typed is None:
        integer_operands = [i32(1, 2, 3, 1)] * len(operands)
        empty_operands = [np.zeros((0, 2), np.float32)] * len(operands)
        typed = [call(*empty_operands), call(*[Weak(x[:4]) for x in operands]), call(*integer_operands)]
    kw = {"dtypes": ("float16",), "ulps": PROGRAM, "batched": False, **kw}
    calls = [call(*jax_operands)] if jax_operands else []
    refused = [call(*["a"] * len(operands)), *refused]
    return scipy_record("special", name, *calls, typed=typed, refused=refused, reference=special_reference, **kw)


AROUND_ZERO: Final = uniform(-3, 3)
POSITIVE: Final = log_uniform(0.1, 5)
NEITHER: Final = c_grid(COUNT, low=-6, high=6)
"""Complex numbers."""

# Exponentials of large numbers lose the digits before the point, so functions composed of them are less accurate.
OF_NUMBERS: Final = (
    special("erf", AROUND_ZERO, exact=4, zeros=0.01, ends=[ENDS]),
    special("erfc", uniform(-3, 5), exact=16, ends=[ENDS]),
    special("erfinv", uniform(-0.99, 0.99), exact=8, ends=[ENDS]),
    special(
        "erfcinv",
        log_uniform(1e-3, 1.9),
        exact=8,
        ends=[np.append(ENDS, f32(2, 1.5, 1e-20))],
        by_jax=[f32(0.1, 0.5, 1.25, 1.75)],
        of=lambda module: getattr(module, "erfcinv", lambda y: module.erfinv(1 - y)),
    ),
    special("erfcx", uniform(-5, 30), exact=8, ends=[ENDS]),
    special("dawsn", uniform(-20, 20), exact=16, zeros=0.01, ends=[ENDS]),
    special("ndtr", uniform(-6, 6), exact=48, ends=[ENDS]),
    special("ndtri", log_uniform(1e-3, 0.9), exact=8, ends=[np.append(ENDS, f32(1e-20, 1e-10, 1e-6))]),
    special("log_ndtr", uniform(-60, 4), exact=16, ends=[ENDS], by_jax=[f32(-3, -1, 0.5, 2)]),
    special("owens_t", AROUND_ZERO, uniform(-3, 3, 1), exact=32, ends=PAIRS),
    special("expi", uniform(-20, 30), exact=16, ends=[ENDS]),
    special("exp1", log_uniform(1e-3, 40), exact=16, ends=[ENDS], derivatives=False),
    special("expn", integers_between(0, 12), log_uniform(1e-2, 40), exact=32, slopes=[1], derivatives=False),
    special("sici", uniform(0.1, 20), exact=64, zeros=0.01, ends=[ENDS]),
    special("fresnel", uniform(-12, 12), exact=8, ends=[ENDS]),
    special("spence", log_uniform(1e-3, 100), exact=16, zeros=0.01, ends=[FINITE]),
    special("gamma", uniform(-5, 30), exact=16, ends=[ENDS]),
    special("gammaln", log_uniform(0.01, 1000), exact=32, zeros=0.01, ends=[FINITE]),
    special("gammasgn", uniform(-5, 5), exact=0, ends=[ENDS]),
    special("factorial", integers_between(0, 30), exact=8, ends=[ENDS], by_jax=[f32(0.5, 2, 3.25, 5)]),
    special(
        "comb",
        integers_between(30, 60),
        integers_between(0, 30),
        exact=64,
        ends=PAIRS,
        slopes=[],
        by_jax=[f32(6, 7.5, 3, 5), f32(2, 3, 1, 4)],
    ),
    special("poch", uniform(0.1, 10), uniform(0, 8, 1), exact=128),
    special("beta", log_uniform(0.05, 20), log_uniform(0.05, 20, 1), exact=128),
    special("betaln", log_uniform(0.05, 20), log_uniform(0.05, 20, 1), exact=128, zeros=0.01),
    special(
        "betainc", log_uniform(0.3, 60), log_uniform(0.3, 60, 1), uniform(0.1, 0.9), exact=256, slopes=[2], along=[2]
    ),
    *[
        special(
            name,
            log_uniform(0.1, 60),
            log_uniform(0.5, 60, 1),
            exact=256,
            ends=PAIRS,
            slopes=[1],
            along=[1],
            dtypes=HALVES,
        )
        for name in ("gammainc", "gammaincc")
    ],
    special("digamma", log_uniform(0.01, 100), exact=16, zeros=0.25, ends=[ENDS]),
    special(
        "polygamma",
        integers_between(1, 5).astype(np.int32),
        log_uniform(0.1, 50),
        exact=32,
        typed=[call(i32(1, 2), i32(1, 2))],
    ),
    special("zeta", log_uniform(1.1, 15), log_uniform(0.5, 30, 1), exact=16, slopes=[1]),
    special("logit", uniform(0, 1), exact=4, ends=[ENDS]),
    special("expit", uniform(-20, 20), exact=8, ends=[ENDS]),
    special("entr", log_uniform(1e-3, 0.9), exact=4, ends=[ENDS]),
    special("rel_entr", POSITIVE, log_uniform(0.1, 5, 1), exact=16, zeros=0.01, ends=PAIRS),
    special("kl_div", POSITIVE, log_uniform(0.1, 5, 1), exact=32, zeros=0.01, ends=PAIRS),
    special("boxcox", log_uniform(0.1, 10), uniform(-2, 2), exact=8, zeros=0.01, ends=PAIRS),
    special("boxcox1p", uniform(-0.9, 5), uniform(-2, 2, 1), exact=8, zeros=0.01, ends=PAIRS),
    special("xlogy", AROUND_ZERO, log_uniform(1.2, 5), exact=4, zeros=0.01, ends=PAIRS),
    special("xlog1py", AROUND_ZERO, uniform(0.1, 5), exact=4, ends=PAIRS),
    special("i0", uniform(-20, 20), exact=8, ends=[ENDS]),
    special("i1", uniform(-20, 20), exact=16, ends=[ENDS]),
    special("i0e", uniform(-20, 20), exact=8, ends=[ENDS], dtypes=HALVES),
    special("i1e", uniform(-20, 20), exact=16, ends=[ENDS], dtypes=HALVES),
    special("hyp1f1", uniform(0.2, 5), uniform(0.2, 5, 1), uniform(-10, 10), exact=128),
    # JAX's takes half a minute to compile, tracefx's a second.
    special(
        "hyp2f1",
        uniform(0.2, 3),
        uniform(0.2, 3, 1),
        uniform(3.2, 8),
        uniform(-0.9, 0.9),
        exact=64,
        by_jax=[],
        mapped=[(3,), (0, 1, 2, 3)],
    ),
    special("wofz", NEITHER, exact=128),
    special("loggamma", NEITHER, exact=128, zeros=0.25, ends=[c64(1, 0.5, -0.5, NAN)], derivatives=False),
)


def bessels(z: NDArray, v: int) -> NDArray:
    return np.stack([scipy.special.jv(n, z) for n in range(v + 1)])


X: Final = grid(3, 4)
WIDE_RANGE: Final = np.concatenate([f32(0, 1e-6, -3.5), uniform(0, 20), uniform(20, 300)])
DEGREES, ORDERS = i32(0, 1, 2, 5, 5, 12), i32(0, -1, 2, -3, 0, 11)
THETA, PHI = np.linspace(0.1, 3, 6, dtype=np.float32), np.linspace(0, 6, 6, dtype=np.float32)
HARMONIC: Final = call(DEGREES, ORDERS, THETA, PHI, n_max=12)


def harmonic(n: NDArray, m: NDArray, theta: NDArray, phi: NDArray, n_max: int) -> NDArray:
    out: NDArray = scipy.special.sph_harm_y(n, m, theta, phi)
    return out


def over_axes(name: str, *more: Call) -> Record:
    special_reference = reference(
        getattr(scipy.special, name), SUMMED, call(X), call(X, axis=0), values=[call(X, axis=1)]
    )
    refused = [call("a"), call(X, axis=2)]
    kw: Any = {"reference": special_reference, "refused": refused, "dtypes": ("int32", "float16"), "batched": False}
    return scipy_record("special", name, call(X), *more, typed=[call(Weak(X))], ulps=PROGRAM, **kw)


RECORDS_OF_OTHER_FORMS: Final = (
    scipy_record(
        "special",
        "bernoulli",
        # JAX's are accurate to five digits.
        ulps=Ulps(f32=32),
        values=[call(8), call(0), call(1)],
        refused=[call(-1), call("a")],
    ),
    scipy_record(
        "special",
        "bessel_jn",
        typed=[call(f32(0.5, 7.0), v=2)],
        reference=reference(
            bessels,
            Ulps(128, 128, least=1e-2),  # the recurrence loses some digits near zeros
            call(WIDE_RANGE, v=6),
            call(np.float32(2.5), v=2),
            values=[call(WIDE_RANGE, v=6)],
        ),
        refused=[call(f32(1), v=-1), call("a", v=1)],
    ),
    scipy_record(
        "special",
        "multigammaln",
        call(f32(3.5, 2.25), 2),
        typed=[call(Weak(X + 4), 2), call(i32(3), 2)],
        ulps=PROGRAM,
        reference=reference(scipy.special.multigammaln, JAX_TOLERANCE, call(uniform(2, 20), 3)),
        refused=[call("a", 2)],
        dtypes=("float16",),
        batched=False,
    ),
    scipy_record(
        "special",
        "sph_harm_y",
        values=[call(i32(1, 2), i32(0, -1), f32(0.5, 0.25), f32(1, 2), n_max=3)],
        # Terms of the recurrence for Legendre functions cancel.
        reference=reference(harmonic, Ulps(32, 32, least=0.1), HARMONIC, values=[HARMONIC]),
        ulps=PROGRAM,
        derivatives=False,
    ),
    over_axes("logsumexp", call(X, b=X), call(c_grid(3))),
    over_axes("softmax", call(X, axis=(0, 1))),
    over_axes("log_softmax", call(X, axis=(0, 1))),
)
RECORDS: Final[tuple[Record, ...]] = (*OF_NUMBERS, *RECORDS_OF_OTHER_FORMS)
