"""Functions of SciPy with their expected outcomes; run as a program with SCIPY_ARRAY_API=1, prints the actual ones."""

from __future__ import annotations

import sys
from typing import Final

import numpy as np
import scipy.cluster.vq
import scipy.fft
import scipy.integrate
import scipy.linalg
import scipy.ndimage
import scipy.optimize
import scipy.signal
import scipy.special
import scipy.stats
from scipy.spatial.transform import Rotation

import tracefx as fx
from tests.interchange.outcomes import ASSIGNS, BRANCHES, COMPILED, PURE, SELECTS, Call, Outcome, report

X: Final = np.random.default_rng(0).uniform(0.2, 0.9, 16)

CALLS: Final[dict[str, tuple[Call, Outcome]]] = {
    "special.softmax": (scipy.special.softmax, PURE),
    "special.xlogy": (lambda x: scipy.special.xlogy(x, x + 1), PURE),
    "stats.skew": (scipy.stats.skew, PURE),
    "stats.kurtosis": (scipy.stats.kurtosis, PURE),
    "stats.moment": (lambda x: scipy.stats.moment(x, 3), PURE),
    "stats.gmean": (scipy.stats.gmean, PURE),
    "stats.sem": (scipy.stats.sem, PURE),
    "stats.circmean": (scipy.stats.circmean, PURE),
    "stats.kstat": (lambda x: scipy.stats.kstat(x, 3), PURE),
    "stats.zmap": (lambda x: scipy.stats.zmap(x, 2 * x), PURE),
    "fft.fft": (scipy.fft.fft, PURE),
    "fft.rfft": (scipy.fft.rfft, PURE),
    "fft.ifft": (scipy.fft.ifft, PURE),
    "fft.fftshift": (scipy.fft.fftshift, PURE),
    "signal.fftconvolve": (lambda x: scipy.signal.fftconvolve(x, x[:4]), PURE),
    "signal.freqz": (lambda x: scipy.signal.freqz(x, worN=8), PURE),
    "integrate.trapezoid": (scipy.integrate.trapezoid, PURE),
    "integrate.cumulative_trapezoid": (scipy.integrate.cumulative_trapezoid, PURE),
    "optimize.rosen": (scipy.optimize.rosen, PURE),
    "spatial.transform.Rotation": (lambda x: Rotation.from_quat(x.reshape(4, 4)).as_matrix(), PURE),
    "stats.hmean": (scipy.stats.hmean, BRANCHES),
    "stats.rankdata": (lambda x: scipy.stats.rankdata(x) * x, SELECTS),
    "special.gammaln": (scipy.special.gammaln, PURE),
    "special.expit": (scipy.special.expit, PURE),
    "stats.entropy": (scipy.stats.entropy, PURE),
    "stats.ttest_1samp": (lambda x: tuple(scipy.stats.ttest_1samp(x, 0.5)), PURE),
    "fft.dct": (scipy.fft.dct, COMPILED),
    "signal.medfilt": (scipy.signal.medfilt, COMPILED),
    "signal.lfilter": (lambda x: scipy.signal.lfilter(x[:2], x[2:4], x), COMPILED),
    "linalg.inv": (lambda x: scipy.linalg.inv(x.reshape(4, 4)), COMPILED),
    "ndimage.gaussian_filter": (lambda x: scipy.ndimage.gaussian_filter(x, 1.0), COMPILED),
    "special.logsumexp": (scipy.special.logsumexp, ASSIGNS),
    "stats.zscore": (scipy.stats.zscore, ASSIGNS),
    "stats.pearsonr": (lambda x: tuple(scipy.stats.pearsonr(x, x**2)), ASSIGNS),
    "stats.variation": (scipy.stats.variation, PURE),
    "signal.hilbert": (scipy.signal.hilbert, ASSIGNS),
    "cluster.vq.whiten": (lambda x: scipy.cluster.vq.whiten(x.reshape(4, 4)), ASSIGNS),
    "optimize.rosen_der": (scipy.optimize.rosen_der, ASSIGNS),
}

if __name__ == "__main__":
    with fx.enable_x64():
        sys.stdout.write(report(CALLS, X))
