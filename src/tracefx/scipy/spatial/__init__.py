"""Spatial transformations, with the names of `jax.scipy.spatial`."""

from tracefx.scipy.spatial import transform as transform
