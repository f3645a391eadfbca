"""Signal processing, with the names of `jax.scipy.signal`: convolutions, correlations, spectra and detrending."""

from tracefx.lazy_stubs import attach as _attach

__getattr__, __dir__ = _attach(__name__)
