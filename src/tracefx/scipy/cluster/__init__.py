"""Clustering functions, with the names of `jax.scipy.cluster`."""

from tracefx.scipy.cluster import vq as vq
