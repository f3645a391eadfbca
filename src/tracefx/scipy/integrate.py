"""Numerical integration, with the names of `jax.scipy.integrate`."""

from tracefx.numpy.differences import trapezoid as trapezoid

__all__ = ["trapezoid"]
