"""NumPy's functions over tracefx arrays, with the names and the dtype rules of `jax.numpy`."""

from tracefx.lazy_stubs import attach as _attach

__getattr__, __dir__ = _attach(
    __name__,
    take_out_sharding=(
        *("arange", "bincount", "broadcast_to", "dot", "einsum", "empty", "full", "full_like", "histogram"),
        *("matmul", "ones", "ones_like", "percentile", "ravel", "repeat", "reshape", "tensordot", "zeros"),
        "zeros_like",
    ),
)
