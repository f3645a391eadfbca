"""Special functions, with the names and arguments of `jax.scipy.special`.

Arguments broadcast together and are promoted as in `tracefx.numpy`; floats narrower than float32 are computed in
float32. Functions of real numbers raise TypeError for complex ones. Derivatives are computed from differential
equations and recurrences of the functions, so they are as accurate as the functions.
"""

from __future__ import annotations

from tracefx.scipy.special.bessel_functions import bessel_jn, i0, i0e, i1, i1e
from tracefx.scipy.special.error_functions import (
    dawsn,
    erf,
    erfc,
    erfcx,
    erfinv,
    log_ndtr,
    ndtr,
    ndtri,
    owens_t,
    wofz,
)
from tracefx.scipy.special.gammas import (
    beta,
    betainc,
    betaln,
    comb,
    digamma,
    factorial,
    gamma,
    gammainc,
    gammaincc,
    gammaln,
    gammasgn,
    loggamma,
    multigammaln,
    poch,
    polygamma,
)
from tracefx.scipy.special.hypergeometric import hyp1f1, hyp2f1
from tracefx.scipy.special.integrals import exp1, expi, expn, fresnel, sici, spence
from tracefx.scipy.special.logistic_and_entropy import (
    boxcox,
    boxcox1p,
    entr,
    expit,
    kl_div,
    log_softmax,
    logit,
    logsumexp,
    rel_entr,
    softmax,
    xlog1py,
    xlogy,
)
from tracefx.scipy.special.spherical_harmonics import sph_harm_y
from tracefx.scipy.special.zetas import bernoulli, zeta

__all__ = [
    "bernoulli",
    "bessel_jn",
    "beta",
    "betainc",
    "betaln",
    "boxcox",
    "boxcox1p",
    "comb",
    "dawsn",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp1",
    "expi",
    "expit",
    "expn",
    "factorial",
    "fresnel",
    "gamma",
    "gammainc",
    "gammaincc",
    "gammaln",
    "gammasgn",
    "hyp1f1",
    "hyp2f1",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "kl_div",
    "log_ndtr",
    "log_softmax",
    "loggamma",
    "logit",
    "logsumexp",
    "multigammaln",
    "ndtr",
    "ndtri",
    "owens_t",
    "poch",
    "polygamma",
    "rel_entr",
    "sici",
    "softmax",
    "spence",
    "sph_harm_y",
    "wofz",
    "xlog1py",
    "xlogy",
    "zeta",
]
