"""Primitives of JAX that tracefx does not support, with the reasons that error messages give."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_REFERENCES: Final = "it reads or writes a mutable reference of JAX; tracefx has references of its own, tracefx.new_ref"
_DEVICES: Final = "tracefx has no such communication between devices"
_SPARSE: Final = (
    "it is a kernel for sparse arrays of jax.experimental.sparse; use BCOO or BCSR, or convert to dense arrays first"
)
_KERNEL: Final = "it is a library kernel for one type of device"
_TOKEN: Final = "it orders effects by tokens, which programs of tracefx do without"
_LINEAR: Final = "JAX binds it only inside its own transformations"
_INNER: Final = "it uses values of JAX that are no arrays"

UNSUPPORTED: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                *("accum_grad_in_ref", "addupdate", "core_map", "empty_ref", "free_ref", "freeze", "get", "new_ref"),
                *("run_state", "swap", "pin", "unpin"),
            ),
            _REFERENCES,
        ),
        **dict.fromkeys(
            (
                *("all_gather_done", "all_gather_reduced", "all_gather_reduced_start", "all_gather_start"),
                *("all_to_all_done", "all_to_all_start", "pbroadcast_done", "pbroadcast_start", "ppermute_done"),
                *("ppermute_start", "precv", "preduced", "psend", "psum_done", "psum_invariant_start", "psum_start"),
                *("ragged_all_to_all", "reduce_scatter_done", "reduce_scatter_start", "reduced_vary_cast"),
                *("reduced_vary_cast_p", "vary_unreduced_cast", "unreduced_pmax", "unreduced_pmin"),
                *("unreduced_psum", "unreduced_psum_start", "unreduced_reduce_scatter"),
                *("unreduced_reduce_scatter_start", "vary_unreduced_cast_p"),
            ),
            _DEVICES,
        ),
        **dict.fromkeys(("inspect_sharding", "pbroadcast", "pbroadcast_dynamic"), _DEVICES),
        **dict.fromkeys(
            (
                *("coo_fromdense", "coo_matmat", "coo_matvec", "coo_spmm", "coo_spmv", "coo_todense"),
                *("csr_fromdense", "csr_matmat", "csr_matvec", "csr_spmm", "csr_spmv", "csr_todense", "spsolve"),
            ),
            _SPARSE,
        ),
        **dict.fromkeys(
            (
                *("cudnn_fusion", "dot_product_attention_bwd", "dot_product_attention_bwd_wrapper"),
                *("dot_product_attention_fp8_bwd", "dot_product_attention_fp8_bwd_wrapper"),
                *("dot_product_attention_fp8_fwd", "dot_product_attention_fp8_fwd_wrapper"),
                *("dot_product_attention_fwd", "dot_product_attention_fwd_wrapper", "pallas_call"),
                *("scaled_matmul", "scaled_matmul_wrapper"),
            ),
            _KERNEL,
        ),
        **dict.fromkeys(("after_all", "create_token"), _TOKEN),
        **dict.fromkeys(
            (
                *("call_hi_primitive_linearized", "create_linear", "custom_jvp_call_jaxpr", "custom_lin"),
                *("remat_opt", "select_and_scatter", "stage", "tie", "unreachable", "zeros_like"),
                "broadcast_to",
            ),
            _LINEAR,
        ),
        **dict.fromkeys(
            (
                *("box_get", "box_set", "from_edtype", "log_extend", "log_read", "new_box", "new_log", "to_edtype"),
                *("dim_as_value", "dimension_size", "shape_assertion"),
            ),
            _INNER,
        ),
        **dict.fromkeys(
            ("philox2x32", "philox4x32", "threefry4x32"), "tracefx does not have this random number generator"
        ),
        "check": "turn the checks into values with jax.experimental.checkify.checkify(f) first",
        "rng_uniform": "its random numbers are unspecified and depend on the platform; draw with jax.random instead",
    }
)
"""Reasons by name of JAX's primitive."""
