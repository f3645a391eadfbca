"""Linear operators given by their products with vectors, with the names of `jax.scipy.sparse`."""

from tracefx.scipy.sparse import linalg as linalg
