"""Linear systems that are known by their products alone, with the names of `jax.scipy.sparse`."""

from tracefx.scipy.sparse import linalg as linalg
