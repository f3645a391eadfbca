"""Counterparts of the names and parameters of JAX that tracefx lacks, for error messages and pages."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

_CONFIGURATION: Final = (
    "no global options that change programs: arguments of the functions, the settings `enable_x64`, `disable_jit`, "
    "`log_compiles`, `compilation_cache` in `with` blocks or the environment, and handlers such as `checkify` for "
    "`jax_debug_nans`; `tracefx.interop.as_jax` has `jax.config`"
)
_NAN_CHECKS: Final = "`tracefx.handlers`: `checkify(f, errors=float_checks)` or `explain(f)`"
COUNTERPARTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "tracefx.Shard": "`tracefx.sharding.Shard`",
        "tracefx.ad": "`tracefx.custom_derivatives`",
        "tracefx.auto_pcast": "`tracefx.shard_map` infers what varies between devices",
        "tracefx.config": _CONFIGURATION,
        "tracefx.copy_to_host_async": "`tracefx.device_get`",
        "tracefx.custom_remat": "`tracefx.checkpoint` with a policy",
        "tracefx.debug_infs": "`tracefx.handlers.explain(f)(x).first(lambda op: op.has_inf)`",
        "tracefx.debug_key_reuse": "`tracefx.handlers.check_key_reuse`",
        "tracefx.debug_nans": _NAN_CHECKS,
        "tracefx.default_matmul_precision": "the argument `precision` of functions such as `tracefx.numpy.matmul`",
        "tracefx.default_prng_impl": "`tracefx.random.key(seed, impl=...)`",
        "tracefx.experimental": "`tracefx.handlers` with `checkify`, `tracefx.jet`, `tracefx.shard_map`, ...",
        "tracefx.explain_cache_misses": "`jit(f).trace(x).lower().compile()` compiles explicitly",
        "tracefx.fwd_and_bwd": "`tracefx.vjp`, whose function is a pytree",
        "tracefx.host_count": "`tracefx.process_count`",
        "tracefx.host_id": "`tracefx.process_index`",
        "tracefx.host_ids": "`tracefx.process_indices`",
        "tracefx.memory": "each device has one memory space",
        "tracefx.no_execution": "`tracefx.eval_shape` and `tracefx.make_jaxpr` execute nothing",
        "tracefx.no_tracing": "`jit(f).lower(x).compile()` returns a function that never traces again",
        "tracefx.numpy_dtype_promotion": "dtypes are promoted as by JAX's `standard`, always",
        "tracefx.numpy_rank_promotion": "operands of different ranks are broadcast, always",
        "tracefx.print_environment_info": "`tracefx.__version__`",
        "tracefx.random.Key": "arrays with a key dtype: `tracefx.random.key`",
        "tracefx.sharding.no_collectives": "`jit(f).lower(x).compile().collectives()` lists the collectives",
        "tracefx.remove_size_one_mesh_axis_from_type": "`tracefx.shard_map` infers what varies between devices",
    }
)
"""Names of JAX that tracefx does not have, with what replaces them."""

_Restriction: TypeAlias = tuple[tuple[object, ...], str]
"""The values of a parameter that have a meaning, the default first, and what replaces the others."""
_REDUCE_AXES: Final[Mapping[str, _Restriction]] = {
    "reduce_axes": (((), []), "the gradients of a `shard_map` are sums over the mesh axes along which it is replicated")
}
_IN_NZS: Final[Mapping[str, _Restriction]] = {
    "in_nzs": ((None,), "close over the arguments that are not differentiated")
}
_CUSTOM_GRADIENT: Final[Mapping[str, _Restriction]] = {
    "with_logs": ((False,), "`tracefx.debug.callback` in the backward pass receives its values"),
    "remat": ((False,), "`tracefx.checkpoint` with a policy that names the saved values"),
    "with_accums": ((None,), "backward passes return cotangents"),
}
_NEW_REF: Final[Mapping[str, _Restriction]] = {
    "memory_space": ((None,), "each device has one memory space"),
    "kind": ((None,), "references are computed again like other values"),
    "pin": ((False,), "XLA places references"),
}
_UFUNC_PARAMETERS: Final[Mapping[str, _Restriction]] = {
    "out": ((None,), "arrays are immutable, and results are new arrays"),
    "where": ((None,), "`tracefx.numpy.where` selects elements of results"),
}
_METHOD: Final[Mapping[str, _Restriction]] = {"method": (("exact",), "samples have the exact distribution")}
_UFUNCS: Final = (
    *("add", "bitwise_and", "bitwise_or", "bitwise_xor", "logaddexp", "logaddexp2", "logical_and", "logical_or"),
    *("logical_xor", "maximum", "minimum", "multiply", "negative", "subtract"),
)
PARAMETERS: Final[Mapping[str, Mapping[str, _Restriction]]] = MappingProxyType(
    {
        **dict.fromkeys([f"tracefx.{name}" for name in ("grad", "value_and_grad", "linear_transpose")], _REDUCE_AXES),
        "tracefx.vjp": {
            **_REDUCE_AXES,
            "saveable_args": ((True,), "the function that `vjp` returns is a pytree, whose leaves are the residuals"),
            **_IN_NZS,
        },
        "tracefx.linearize": _IN_NZS,
        **dict.fromkeys(("tracefx.custom_gradient", "tracefx.custom_derivatives.custom_gradient"), _CUSTOM_GRADIENT),
        **dict.fromkeys(("tracefx.new_ref", "tracefx.ref.new_ref"), _NEW_REF),
        **dict.fromkeys([f"tracefx.numpy.{name}" for name in _UFUNCS], _UFUNC_PARAMETERS),
        "tracefx.vmap": {"sum_match": ((False,), "sum the outputs of the batched function")},
        **dict.fromkeys(
            [f"tracefx.random.{name}" for name in ("beta", "chisquare", "gamma", "loggamma", "poisson")], _METHOD
        ),
        "tracefx.lax.scan": {"_split_transpose": ((False, True), "")},
    }
)
"""Parameters of JAX's functions of which only some values have a meaning here: these, and what replaces the others."""
