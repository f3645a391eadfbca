"""Special functions beside SciPy's: values to the last digits, derivatives, ends of domains, types."""

from __future__ import annotations

import inspect
import math
from typing import Any, Final

import jax
import jax.scipy.special
import ml_dtypes
import numpy as np
import pytest
import scipy.special

import tracefx as fx
import tracefx.numpy as fnp
from tracefx.core.dtypes import NDArray
from tracefx.scipy import special

DRAWS: Final = np.random.default_rng(3)
COUNT: Final = 60


def even(low: float, high: float) -> NDArray:
    return DRAWS.uniform(low, high, COUNT)


def scaled(low: float, high: float) -> NDArray:
    """As many between 1 and 10 as between 10 and 100."""
    return np.exp(DRAWS.uniform(math.log(low), math.log(high), COUNT))


def whole(low: int, high: int) -> NDArray:
    return DRAWS.integers(low, high, COUNT).astype(float)


# How many ulps a function may be off, and where. Exponentials of large numbers lose what those have before the point.
CASES: Final[dict[str, tuple[float, tuple[NDArray, ...]]]] = {
    "erf": (4, (even(-3, 3),)),
    "erfc": (16, (even(-3, 5),)),
    "erfinv": (8, (even(-0.99, 0.99),)),
    "erfcx": (8, (even(-5, 30),)),
    "dawsn": (16, (even(-20, 20),)),
    "ndtr": (48, (even(-6, 6),)),
    "ndtri": (8, (scaled(1e-20, 0.9),)),
    "log_ndtr": (16, (even(-60, 4),)),
    "owens_t": (32, (even(-3, 3), even(-3, 3))),
    "expi": (16, (even(-20, 30),)),
    "exp1": (16, (scaled(1e-3, 40),)),
    "expn": (32, (whole(0, 12), scaled(1e-2, 40))),
    "sici": (64, (even(0.1, 20),)),
    "fresnel": (8, (even(-12, 12),)),
    "spence": (8, (scaled(1e-3, 100),)),
    "gamma": (16, (even(-5, 30),)),
    "gammaln": (32, (scaled(0.01, 1000),)),
    "factorial": (8, (whole(0, 30),)),
    "comb": (64, (whole(30, 60), whole(0, 30))),
    "poch": (128, (even(0.1, 10), even(0, 8))),
    "beta": (128, (scaled(0.05, 20), scaled(0.05, 20))),
    "betainc": (256, (scaled(0.3, 60), scaled(0.3, 60), even(0.1, 0.9))),
    "gammainc": (256, (scaled(0.1, 60), scaled(0.5, 60))),
    "gammaincc": (256, (scaled(0.1, 60), scaled(0.5, 60))),
    "digamma": (16, (scaled(0.01, 100),)),
    "polygamma": (32, (whole(1, 5), scaled(0.1, 50))),
    "zeta": (16, (scaled(1.1, 15), scaled(0.5, 30))),
    "logit": (4, (even(0, 1),)),
    "expit": (8, (even(-20, 20),)),
    "entr": (4, (scaled(1e-3, 0.9),)),
    "rel_entr": (8, (scaled(0.1, 5), scaled(0.1, 5))),
    "boxcox": (8, (scaled(0.1, 10), even(-2, 2))),
    "boxcox1p": (8, (even(-0.9, 5), even(-2, 2))),
    "xlogy": (4, (even(-3, 3), scaled(1.2, 5))),
    "xlog1py": (4, (even(-3, 3), even(0.1, 5))),
    "i0": (8, (even(-20, 20),)),
    "i1": (16, (even(-20, 20),)),
    "i0e": (8, (even(-20, 20),)),
    "i1e": (16, (even(-20, 20),)),
    "hyp1f1": (128, (even(0.2, 5), even(0.2, 5), even(-10, 10))),
    "hyp2f1": (64, (even(0.2, 3), even(0.2, 3), even(3.2, 8), even(-0.9, 0.9))),
}
BY: Final = {
    **dict.fromkeys(("expn", "polygamma", "zeta"), (1,)),
    **dict.fromkeys(("gammainc", "gammaincc"), (1,)),
    "betainc": (2,),
}
"""At which arguments derivatives are compared, where not at all."""


def leaves(x: Any) -> list[Any]:
    return list(x) if isinstance(x, tuple) else [x]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_values_are_scipys(dtype: Any) -> None:
    given = {name: [x.astype(dtype) for x in args] for name, (_, args) in CASES.items()}
    found = fx.jit(lambda all: {name: getattr(special, name)(*args) for name, args in all.items()})(
        {name: [fnp.array(x, dtype=dtype) for x in args] for name, args in given.items()}
    )
    wrong = []
    for name, (ulps, _) in CASES.items():
        want = getattr(scipy.special, name)(*[x.astype(np.float64) for x in given[name]])
        for got, right in zip(leaves(found[name]), leaves(want), strict=True):
            assert got.dtype == dtype
            # What is close to a zero of the function is as exact as its neighbours are.
            scale = np.maximum(np.abs(right), 1e-2 * min(1.0, float(np.abs(right).max())) if name in ZEROS else 0)
            off = np.abs(np.asarray(got, np.float64) - right) / scale / float(np.finfo(dtype).eps)
            off[np.abs(right) < 1e-30] = 0  # which 32 bits can't hold in full
            if not off.max() <= ulps:
                worst = int(np.nanargmax(off))
                wrong.append((name, float(off[worst]), [float(x[worst]) for x in given[name]]))
    assert not wrong, wrong


ZEROS: Final = frozenset({"erf", "sici", "gammaln", "dawsn", "spence", "xlogy", "rel_entr", "boxcox", "boxcox1p"})


def test_derivatives_are_those_of_scipys_values() -> None:
    step = 1e-5

    def slopes(all: Any) -> Any:
        found = {}
        for name, args in all.items():
            for i in BY.get(name, range(len(args))):
                if name in ("comb", "ndtri"):
                    continue  # SciPy's are products of whole numbers; moved from 1e-20 there is no value

                def along(x: Any, name: str = name, args: Any = args, i: int = i) -> Any:
                    return getattr(special, name)(*args[:i], x, *args[i + 1 :])

                found[f"{name} {i}"] = fx.jvp(along, (args[i],), (fnp.ones_like(args[i]),))[1]
        return found

    given = {name: args for name, (_, args) in CASES.items()}
    found = fx.jit(slopes)({name: [fnp.array(x[:20], dtype="float64") for x in args] for name, args in given.items()})
    wrong = []
    for what, got in found.items():
        name, i = what.split()
        f = getattr(scipy.special, name)
        args = [x[:20] for x in given[name]]

        def moved(by: float, f: Any = f, args: Any = args, i: int = int(i)) -> list[NDArray]:
            return leaves(f(*[x + by if j == i else x for j, x in enumerate(args)]))

        pairs = [moved(k * step) for k in (-2, -1, 1, 2)]
        for g, a, b, c, d in zip(leaves(got), *pairs, strict=True):
            want = (a - 8 * b + 8 * c - d) / (12 * step)
            noise = (np.abs(a) + np.abs(d)) * 1e-10 / step
            if not np.all(np.abs(np.asarray(g) - want) <= 1e-6 * np.abs(want) + noise):
                worst = int(np.argmax(np.abs(np.asarray(g) - want)))
                wrong.append((what, float(np.asarray(g)[worst]), float(want[worst]), [float(x[worst]) for x in args]))
    assert wrong == []


# ------------------------------------------------------------------ complex numbers, several orders


def agree(got: Any, want: Any, ulps: float) -> None:
    out = np.asarray(got)
    off = np.abs(out - want) / np.abs(want) / float(np.finfo(out.dtype).eps)
    assert np.nanmax(off) <= ulps, (np.nanmax(off), int(np.nanargmax(off)))
    assert np.array_equal(np.isnan(out), np.isnan(want))


@pytest.mark.parametrize("dtype", [np.complex128, np.complex64])
def test_functions_of_complex_numbers(dtype: Any) -> None:
    z = (3 * DRAWS.normal(size=COUNT) + 3j * DRAWS.normal(size=COUNT)).astype(dtype)
    z[:5] = z[:5].real
    given = fnp.array(z, dtype=dtype)
    agree(special.wofz(given), scipy.special.wofz(z.astype(np.complex128)), 128)
    away = z[(np.abs(z - 1) > 0.5) & (np.abs(z - 2) > 0.5)]
    agree(special.loggamma(fnp.array(away, dtype=dtype)), scipy.special.loggamma(away.astype(np.complex128)), 128)


def test_derivatives_of_functions_of_complex_numbers() -> None:
    z = np.array([1.5 + 0.5j, -2.25 + 1j, 0.25 - 3j])
    for name in ("wofz", "loggamma"):
        f = getattr(special, name)
        _, slope = fx.jvp(f, (fnp.array(z, dtype=z.dtype),), (fnp.ones(3, z.dtype),))
        g = getattr(scipy.special, name)
        np.testing.assert_allclose(np.asarray(slope), (g(z + 1e-5) - g(z - 1e-5)) / 2e-5, rtol=1e-7)


def test_bessel_functions_of_many_orders() -> None:
    """JAX's are wrong beyond about 25."""
    z = np.concatenate([[0, 1e-6, -3.5], even(0, 20), even(20, 300)])
    got = special.bessel_jn(fnp.array(z, dtype="float64"), v=6)
    want = np.stack([scipy.special.jv(n, z) for n in range(7)])
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-12, atol=1e-14)
    slope = fx.jvp(lambda z: special.bessel_jn(z, v=2), (fnp.array(2.5),), (fnp.array(1.0),))[1]
    np.testing.assert_allclose(np.asarray(slope), [scipy.special.jvp(n, 2.5) for n in range(3)], rtol=1e-6)
    with pytest.raises(ValueError, match="v must not be negative"):
        special.bessel_jn(1.0, v=-1)


def test_spherical_harmonics() -> None:
    n, m = np.array([0, 1, 2, 5, 5, 12]), np.array([0, -1, 2, -3, 0, 11])
    theta, phi = np.linspace(0.1, 3, 6), np.linspace(0, 6, 6)
    got = special.sph_harm_y(n, m, fnp.array(theta, dtype="float64"), fnp.array(phi, dtype="float64"))
    np.testing.assert_allclose(np.asarray(got), scipy.special.sph_harm_y(n, m, theta, phi), rtol=1e-12, atol=1e-15)
    with pytest.raises(TypeError, match="n_max must be given"):
        fx.jit(lambda n: special.sph_harm_y(n, 0, 0.5, 0.5))(2)
    assert fx.jit(lambda n: special.sph_harm_y(n, 0, 0.5, 0.5, n_max=3))(2).dtype == fnp.complex64


def test_gauss_function_near_one() -> None:
    """From 40-digit arithmetic, where `c - a - b` is whole, nearly whole, and neither. JAX is wrong at most of them."""
    rows = np.array(NEAR_ONE)
    got = special.hyp2f1(*[fnp.array(x, dtype="float64") for x in rows[:, :4].T])
    np.testing.assert_allclose(np.asarray(got), rows[:, 4], rtol=1e-11)
    assert np.isnan(special.hyp2f1(0.5, 0.5, 2.5, 1.5))
    np.testing.assert_allclose(
        np.asarray(special.hyp2f1(0.5, 0.25, 2.5, 1.0)), scipy.special.hyp2f1(0.5, 0.25, 2.5, 1), rtol=2e-6
    )


# a, b, c, x, the function.
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


def test_small_functions() -> None:
    assert special.multigammaln(fnp.array(3.5), 2) == pytest.approx(scipy.special.multigammaln(3.5, 2), rel=1e-6)
    assert special.comb(60, 30) == pytest.approx(math.comb(60, 30), rel=1e-5)
    assert special.comb(5, 3, repetition=True) == 35
    np.testing.assert_array_equal(np.asarray(special.factorial(np.arange(11))), [math.factorial(n) for n in range(11)])
    with pytest.raises(NotImplementedError, match="exact=True"):
        special.factorial(3, exact=True)
    want = scipy.special.bernoulli(60)
    np.testing.assert_allclose(np.asarray(special.bernoulli(60), np.float64)[:60], want[:60], rtol=3e-7, atol=0)
    with pytest.raises(ValueError, match="n must not be negative"):
        special.bernoulli(-1)
    with pytest.raises(ValueError, match="between 0 and 30"):
        special.log_ndtr(1.0, 31)
    x = np.array([-2.5, -1.0, 0.5, 1.0, 3.0, np.inf])
    np.testing.assert_allclose(np.asarray(special.zeta(fnp.array(x))), scipy.special.zeta(x), rtol=1e-5)


# ------------------------------------------------------------------ ends of domains, types

ENDS: Final = np.array([0.0, 1.0, -1.0, 0.5, -0.5, np.inf, -np.inf, np.nan])
OF_ONE: Final = (
    *("erfcx", "dawsn", "ndtr", "ndtri", "log_ndtr", "expi", "exp1", "fresnel", "sici", "gamma", "gammasgn", "entr"),
    *("loggamma", "digamma", "factorial", "logit", "expit", "i0", "i1", "i0e", "i1e"),
)
OF_TWO: Final = (
    "xlogy",
    "xlog1py",
    "rel_entr",
    "kl_div",
    "boxcox",
    "boxcox1p",
    "comb",
    "owens_t",
    "gammainc",
    "gammaincc",
)


def test_ends_are_scipys() -> None:
    """JAX has NaN at several."""
    pairs = np.stack(np.meshgrid(ENDS, ENDS)).reshape(2, -1)
    found = fx.jit(
        lambda x, a, b: (
            {name: getattr(special, name)(x) for name in OF_ONE},
            {name: getattr(special, name)(a, b) for name in OF_TWO},
        )
    )(*[fnp.array(v, dtype="float32") for v in (ENDS, *pairs)])
    for each, args in zip(found, ((ENDS,), tuple(pairs)), strict=True):
        for name, got in each.items():
            for g, want in zip(leaves(got), leaves(getattr(scipy.special, name)(*args)), strict=True):
                np.testing.assert_allclose(np.asarray(g), want, rtol=1e-5, err_msg=name)


def test_types() -> None:
    """Arguments promote as those of arithmetic do; 16 bits are computed as 32."""
    assert special.ndtri(0.25).weak_type
    assert special.ndtri(0.25).dtype == fnp.float32
    half = fnp.array([0.25, 0.75], dtype="bfloat16")
    assert special.ndtri(half).dtype == fnp.bfloat16
    assert fnp.array_equal(special.ndtri(half), special.ndtri(half.astype("float32")).astype("bfloat16"))
    assert special.betaln(fnp.array([1, 2]), fnp.array([[3.0]], dtype="float64")).shape == (1, 2)
    assert special.erfcx(np.arange(3)).dtype == fnp.float32
    with pytest.raises(TypeError, match="expi is not defined for complex numbers"):
        special.expi(1j)


def test_vmap_and_gradients() -> None:
    x = fnp.array([0.25, 0.5, 0.75])
    for f in (special.ndtri, special.expi, special.erfcx, special.gamma):
        np.testing.assert_array_equal(np.asarray(fx.vmap(f)(x)), np.asarray(f(x)))
        first = fx.vmap(fx.grad(f))(x)
        second = fx.vmap(fx.grad(fx.grad(f)))(x)
        np.testing.assert_allclose(np.asarray(fx.grad(lambda x, f=f: f(x).sum())(x)), np.asarray(first), rtol=1e-6)
        assert np.all(np.isfinite(np.asarray(second)))


WIDENED: Final = frozenset(
    {"sph_harm_y", "bernoulli", "bessel_jn", "logsumexp", "softmax", "log_softmax", "multigammaln"}
)


@pytest.mark.parametrize("given", [np.array([1, 2], "int32"), np.array([0.5, 0.25], ml_dtypes.bfloat16), 0.5], ids=str)
def test_types_are_jaxs(given: Any) -> None:
    """Without computing anything."""
    wrong = []
    for name in sorted(set(special.__all__) - WIDENED):
        ours, jaxs = getattr(special, name), getattr(jax.scipy.special, name)
        count = len([p for p in inspect.signature(jaxs).parameters.values() if p.kind is not p.KEYWORD_ONLY])
        count -= name in ("log_ndtr", "factorial")
        given_here = [given] * count
        try:
            want = jax.eval_shape(jaxs, *given_here)
        except (TypeError, ValueError):
            continue  # JAX can't
        got = fx.eval_shape(ours, *given_here)
        types = [[(x.dtype.name, x.shape) for x in leaves(out)] for out in (got, want)]
        if types[0] != types[1] and name != "owens_t":  # whose 16 bits become 32 in JAX
            wrong.append((name, *types))
        if any(x.weak_type != isinstance(given, float) for x in leaves(got)):  # JAX's lose it in some
            wrong.append((name, "weak type"))
    assert not wrong, wrong


def test_signatures_are_jaxs() -> None:
    for name in special.__all__:
        ours, jaxs = (inspect.signature(getattr(m, name)).parameters.values() for m in (special, jax.scipy.special))
        assert [(p.name, p.default) for p in ours] == [(p.name, p.default) for p in jaxs], name
