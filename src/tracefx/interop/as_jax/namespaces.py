"""Which names of tracefx the modules of JAX have: the public module of the same name, and further names."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, final

from attrs import frozen

from tracefx.bounded_cache import memoize
from tracefx.lazy_stubs import exports


@final
@frozen
class Namespace:
    """The contents of a module of JAX.

    Args:
        base: The module of tracefx whose names it has; None for no module.
        names: Further names, which take precedence: where each is defined, as `module:name`.
        primitives: Whether it has the primitives, under names such as `sin_p`.
    """

    base: str | None
    names: Mapping[str, str]
    primitives: bool = False


def _namespace(*entries: str, base: str | None = None, primitives: bool = False) -> Namespace:
    """Returns a namespace; an entry is a module and its names, `name` or `name_in_jax=name`."""
    names: dict[str, str] = {}
    for entry in entries:
        module, *listed = entry.split()
        module = module.replace("~", "tracefx.interop.as_jax.")
        for each in listed:
            name, _, source = each.partition("=")
            names[name] = f"{module}:{source or name}"
    return Namespace(base, MappingProxyType(names), primitives)


_CONFIGURATION: Final = (
    "~config check_tracer_leaks checking_leaks=check_tracer_leaks config debug_infs debug_key_reuse debug_nans "
    "default_matmul_precision default_prng_impl enable_checks enable_custom_prng explain_cache_misses legacy_prng_key "
    "log_compiles no_tracing numpy_dtype_promotion numpy_rank_promotion softmax_custom_jvp threefry_partitionable "
    "transfer_guard transfer_guard_device_to_device=transfer_guard transfer_guard_device_to_host=transfer_guard "
    "transfer_guard_host_to_device=transfer_guard"
)
_TREES: Final = "tracefx.tree_util"
_CORE: Final = _namespace(
    "tracefx.core.handler Tracer ensure_compile_time_eval eval_context=ensure_compile_time_eval",
    "tracefx.core.effects Effect Effects",
    "tracefx.core.values get_aval",
    "tracefx.errors JaxprTypeError",
    "tracefx.passes.check check_jaxpr",
    "tracefx.interpreters.refs typeof",
    "~primitive Primitive",
    "~jaxprs Atom ClosedJaxpr DropVar Jaxpr JaxprEqn Literal Var eval_jaxpr gensym jaxpr_as_fun jaxprs_in_params "
    "new_jaxpr_eqn=JaxprEqn subjaxprs",
    "~functions AbstractValue DebugInfo ShapedArray concrete_or_error find_top_trace full_lower get_opaque_trace_state "
    "is_concrete mapped_aval no_effects nonempty_axis_env_DO_NOT_USE=nonempty_axis_env raise_to_shaped safe_map "
    "safe_zip trace_state_clean unmapped_aval unsafe_get_axis_names_DO_NOT_USE=unsafe_get_axis_names valid_jaxtype",
    "~functions physical_aval=raise_to_shaped pytype_aval_mappings=registered_types",
    "tracefx.dimensions.symbolic_dimensions is_symbolic_dim max_dim min_dim",
    "tracefx.errors InconclusiveDimensionOperation",
)
_LINEAR_UTIL: Final = _namespace(
    "~linear_util Store StoreException WrappedFun merge_linear_aux transformation transformation2=transformation "
    "transformation_with_aux transformation_with_aux2=transformation_with_aux wrap_init",
)
_AD: Final = _namespace(
    "tracefx.interpreters.jvp JVPTracer",
    "tracefx.core.rule_arguments UndefinedPrimal Zero",
    "~primitive defjvp deflinear deflinear2 instantiate_zeros is_undefined_primal primitive_jvps primitive_transposes",
    "~functions add_jaxvals zeros_like_aval",
)
_BATCHING: Final = _namespace(
    "tracefx.interpreters.batch BatchTracer",
    "~primitive AxisData axis_primitive_batchers bdim_at_front defbroadcasting defvectorized fancy_primitive_batchers "
    "moveaxis not_mapped=NOT_MAPPED primitive_batchers",
)
_MLIR: Final = _namespace("~primitive lower_fun register_lowering")
_PARTIAL_EVAL: Final = _namespace(
    "tracefx.core.handler DynamicJaxprTracer=Tracer JaxprTracer=Tracer",
    "~partial_evaluation PartialVal convert_constvars_jaxpr dce_jaxpr trace_to_jaxpr_dynamic trace_to_jaxpr_nounits",
)
_API_UTIL: Final = _namespace(
    "~functions debug_info flatten_axes safe_map safe_zip",
    "~linear_util flatten_fun flatten_fun_nokwargs",
    "tracefx.core.values shaped_abstractify=get_aval",
)
_SOURCE_INFO: Final = _namespace("~functions register_exclusion summarize user_context")
_CHECKIFY: Final = _namespace(
    "tracefx.handlers Error ErrorCategory=ErrorKind JaxRuntimeError=CheckError all_checks automatic_checks check "
    "check_error checkify debug_check div_checks float_checks index_checks nan_checks user_checks",
)
_SPARSE: Final = _namespace("tracefx.sparse.base JAXSparse=SparseArray", base="tracefx.sparse")
_PJIT: Final = _namespace("tracefx.transforms.jit pjit=jit", primitives=True)

_ONLY_IN_TRACEFX: Final = frozenset(
    {
        "tracefx.extend",
        "tracefx.handlers",
        "tracefx.ops",
        "tracefx.pictures",
        "tracefx.programs",
        "tracefx.rewriting",
        "tracefx.sparse",
    }
)
"""Public modules of tracefx that are no counterparts of a module of JAX with the same name."""
ADDITIONS: Final[Mapping[str, Namespace]] = MappingProxyType(
    {
        "jax": _namespace(
            _CONFIGURATION,
            "~functions __version__ __version_info__ clear_caches copy_to_host_async live_arrays",
            "~jaxprs make_jaxpr",
            "tracefx.settings enable_x64",
            "tracefx.transforms.devices host_count=process_count host_id=process_index host_ids=process_indices",
            base="tracefx",
        ),
        "jax.version": _namespace("~functions __version__ __version_info__"),
        "jax.core": _CORE,
        "jax.export": _namespace(
            "tracefx Exported SymbolicScope default_export_platform=default_backend deserialize=load export "
            "is_symbolic_dim symbolic_args_specs symbolic_dim_bounds symbolic_shape"
        ),
        "jax.extend": _namespace(),
        "jax.extend.core": _CORE,
        "jax.extend.core.primitives": _namespace(primitives=True),
        "jax.extend.linear_util": _LINEAR_UTIL,
        "jax.extend.source_info_util": _SOURCE_INFO,
        "jax.extend.backend": _namespace("tracefx.transforms.devices get_backend=default_backend"),
        "jax.custom_derivatives": _namespace(base="tracefx.custom_derivatives", primitives=True),
        "jax.numpy": _namespace(
            "numpy ndim shape",  # of any object, None for example
            "tracefx.numpy __array_api_version__ __array_namespace_info__",
            base="tracefx.numpy",
        ),
        "jax.ops": _namespace("tracefx.ops segment_max segment_min segment_prod segment_sum"),
        "jax.scipy": _namespace(base="tracefx.scipy"),
        "jax.errors": _namespace(
            "tracefx.errors ConcretizationTypeError=ConcretizationError UnexpectedTracerError=EscapedTracerError "
            "JaxRuntimeError=ExecutionError NonConcreteBooleanIndexError=MaskIndexError",
            base="tracefx.errors",
        ),
        "jax.lax": _namespace(base="tracefx.lax", primitives=True),
        "jax.lax.linalg": _namespace(base="tracefx.lax.linalg", primitives=True),
        "jax.interpreters": _namespace(),
        "jax.interpreters.ad": _AD,
        "jax.interpreters.batching": _BATCHING,
        "jax.interpreters.mlir": _MLIR,
        "jax.interpreters.partial_eval": _PARTIAL_EVAL,
        "jax.interpreters.xla": _namespace(
            "tracefx.core.values abstractify=get_aval",
            "~functions canonicalize_dtype_handlers=registered_types pytype_aval_mappings=registered_types",
        ),
        "jax.linear_util": _LINEAR_UTIL,
        "jax.api_util": _API_UTIL,
        "jax.tree_util": _namespace(base=_TREES),
        "jax.sharding": _namespace(base="tracefx.sharding"),
        "jax.stages": _namespace(
            "tracefx.transforms.jit Wrapped=Jitted",
            "tracefx.transforms.stages Compiled=CompiledCall Lowered=LoweredCall Traced=TracedCall",
        ),
        "jax.monitoring": _namespace(
            "~functions record_event record_event_duration_secs=record_event record_event_time_span=record_event "
            "record_scalar=record_event"
        ),
        "jax.dlpack": _namespace("tracefx.numpy from_dlpack"),
        "jax.test_util": _namespace("tracefx.testing.jax_check_grads check_grads"),
        "jax.util": _namespace("~functions safe_map safe_zip unzip2 wraps"),
        "jax.lib": _namespace(),
        "jax.lib.xla_bridge": _namespace("tracefx.transforms.devices get_backend=default_backend"),
        "jax.experimental": _namespace("tracefx enable_x64 io_callback pure_callback"),
        "jax.experimental.checkify": _CHECKIFY,
        "jax.experimental.hijax": _namespace(
            "~hijax HiPrimitive aval_method aval_property register_hitype",
            "~functions control_flow_allowed_effects",
            "~primitive instantiate_zeros is_undefined_primal",
            "tracefx.core.rule_arguments Zero",
        ),
        "jax.experimental.jet": _namespace("tracefx jet"),
        "jax.experimental.layout": _namespace("tracefx.core.layouts Format Layout"),
        "jax.experimental.mesh_utils": _namespace("~functions create_device_mesh"),
        "jax.experimental.multihost_utils": _namespace(
            "~functions broadcast_one_to_all process_allgather reached_preemption_sync_point sync_global_devices"
        ),
        "jax.experimental.ode": _namespace("tracefx.scipy.integrate odeint"),
        "jax.experimental.pjit": _PJIT,
        "jax.experimental.shard_map": _namespace("tracefx shard_map"),
        "jax.experimental.sparse": _SPARSE,
        "jax.experimental.sparse.bcoo": _SPARSE,
        "jax.experimental.sparse.bcsr": _SPARSE,
        "jax._src": _namespace(),
        "jax._src.ad_util": _namespace("tracefx.core.rule_arguments Zero", primitives=True),
        "jax._src.api_util": _API_UTIL,
        "jax._src.checkify": _CHECKIFY,
        "jax._src.config": _namespace("~config config"),
        "jax._src.core": _CORE,
        "jax._src.dispatch": _namespace("~functions wait_for_tokens"),
        "jax._src.distributed": _namespace("~functions global_state"),
        "jax._src.dtypes": _namespace(
            "tracefx.errors TypePromotionError",
            "tracefx.numpy finfo iinfo",
            "tracefx.core.dtypes DType",
            "~functions supports_inf",
            base="tracefx.dtypes",
        ),
        "jax._src.effects": _namespace(
            "~functions control_flow_allowed_effects lowerable_effects=control_flow_allowed_effects "
            "remat_allowed_effects=control_flow_allowed_effects "
            "custom_derivatives_allowed_effects=control_flow_allowed_effects",
            "tracefx.core.effects Effect",
        ),
        "jax._src.flatten_util": _namespace(base="tracefx.flatten_util"),
        "jax._src.interpreters": _namespace(),
        "jax._src.interpreters.ad": _AD,
        "jax._src.interpreters.batching": _BATCHING,
        "jax._src.interpreters.mlir": _MLIR,
        "jax._src.interpreters.partial_eval": _PARTIAL_EVAL,
        "jax._src.lax": _namespace(),
        "jax._src.lax.lax": _namespace(base="tracefx.lax", primitives=True),
        "jax._src.lax.control_flow": _namespace(base="tracefx.lax", primitives=True),
        "jax._src.linear_util": _LINEAR_UTIL,
        "jax._src.numpy": _namespace(base="tracefx.numpy"),
        "jax._src.pjit": _PJIT,
        "jax._src.random": _namespace(base="tracefx.random"),
        # jaxlib imports this module for its own arrays.
        "jax._src.sharding_impls": _namespace(base="tracefx_real_jax._src.sharding_impls"),
        "jax._src.source_info_util": _SOURCE_INFO,
        "jax._src.state": _namespace(),
        "jax._src.state.types": _namespace("tracefx.core.avals AbstractRef=RefType"),
        "jax._src.traceback_util": _namespace("~functions api_boundary include_frame register_exclusion"),
        "jax._src.tree_util": _namespace("~functions _registry=node_types prefix_errors", base=_TREES),
        "jax._src.typing": _namespace("tracefx Array", "~functions Shape", base="tracefx.typing"),
        "jax._src.xla_bridge": _namespace("~functions _backends=started_platforms"),
        "jax._src.util": _namespace("~functions safe_map safe_zip unzip2 wraps"),
    }
)


@memoize(limit=1024)
def namespace(module: str) -> Namespace | None:
    """Returns the contents of a module of JAX, or None if tracefx has no counterpart.

    Args:
        module: The name. The module of the same name in tracefx is a counterpart if it is public.
    """
    found = ADDITIONS.get(module)
    if found is not None or not module.startswith("jax.") or module.startswith("jax._src."):
        return found
    own = "tracefx" + module.removeprefix("jax")
    package, _, name = own.rpartition(".")
    above = namespace(module.rpartition(".")[0])
    if above is None or above.base != package or own in _ONLY_IN_TRACEFX:
        return None
    folders = getattr(importlib.import_module(package), "__path__", [])
    listed = exports(package) if any(Path(folder, "__init__.pyi").is_file() for folder in folders) else {}
    is_module = listed.get(name) == package or (name in listed and own in sys.modules)
    return Namespace(own, MappingProxyType({})) if is_module else None


def submodules(module: str) -> list[str]:
    """Returns the names of the modules within a module of JAX that have additions."""
    return [each.rpartition(".")[2] for each in ADDITIONS if each.rpartition(".")[0] == module]


RUN_FROM_JAX: Final = ("jax.example_libraries",)
"""Packages of JAX that are written in terms of its public modules, as other libraries are: they are run unchanged."""

_PALLAS: Final = "kernels in Pallas are compiled by JAX only; tracefx.ffi calls kernels of other compilers"
_TRACE: Final = "a handler (tracefx.extend.Interpreter) replaces a Trace and its tracers"
_MLIR_REASON: Final = "lowerings are made of operations: mlir.lower_fun(function)"
_HIJAX: Final = "types of higher order are JAX's own"
UNSUPPORTED_MODULES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "jax.experimental.pallas": _PALLAS,
        "jax.experimental.mosaic": _PALLAS,
        "jax.experimental.hijax": _HIJAX,
        "jax.experimental.sparse.linalg": "tracefx.scipy.sparse.linalg has iterative solvers",
        "jax.experimental.jax2tf": "tracefx.export writes StableHLO",
        "jax.experimental.array_serialization": "np.asarray(x) can be saved by NumPy",
        "jax.experimental.colocated_python": "it runs Python on the hosts of other processes",
        "jax.experimental.custom_partitioning": "use shard_map",
        "jax.experimental.host_callback": "use jax.pure_callback or jax.experimental.io_callback",
        "jax.extend.ifrt_programs": "programs are run by tracefx",
        "jax._src.ad_checkpoint": "use jax.checkpoint",
        "jax._src.compiler": "programs are compiled by tracefx",
        "jax._src.earray": _HIJAX,
        "jax.interpreters.pxla": "arrays are sharded by tracefx",
        "jax._src.literals": "NumPy arrays have their dtypes",
        "jax._src.state": "references are tracefx.ref.Ref, and their avals tracefx.ref.RefType",
        "jax._src.xla_bridge": "devices are started by tracefx",
    }
)
"""Modules of JAX without a counterpart, with the reason. They and their names can be imported; using one raises."""

UNSUPPORTED_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "jax.experimental.checkify.Out": "checkify returns a pair",
        "jax.experimental.checkify.JaxException": "errors of checks are tracefx.errors.CheckError",
        "jax.experimental.cur_qdd": _HIJAX,
        **dict.fromkeys(
            [f"jax.experimental.sparse.{name}" for name in ("COO", "CSR", "CSC")],
            "use BCOO and BCSR, their generalizations",
        ),
        "jax._src.dtypes.ExtendedDType": "the dtypes of keys are NumPy dtypes",
        "jax.core.Trace": _TRACE,
        "jax.core.TraceTag": _TRACE,
        "jax.core.set_current_trace": _TRACE,
        "jax.core.take_current_trace": _TRACE,
        "jax.core.CallPrimitive": _TRACE,
        "jax.interpreters.mlir.LoweringRuleContext": _MLIR_REASON,
        "jax.interpreters.mlir.emit_python_callback": _MLIR_REASON,
        "jax.interpreters.mlir.ir": _MLIR_REASON,
        "jax.interpreters.ad.jvp": "use jax.jvp",
        "jax.monitoring.register_event_listener": "tracefx records no events",
        "jax.stages.ArgInfo": "arguments are described by ShapeDtypeStruct",
        "jax.sharding.AbstractMesh": "meshes have devices",
        "jax.sharding.auto_axes": "all axes are automatic",
        "jax.sharding.reshard": "use jax.lax.with_sharding_constraint",
    }
)
"""Names of JAX without a counterpart, with the reason. They can be imported; using one raises."""

_SAME_AS: Final = (
    ("jax.extend.core", "jax.core"),
    ("jax._src.core", "jax.core"),
    ("jax._src.interpreters", "jax.interpreters"),
    ("jax._src.checkify", "jax.experimental.checkify"),
)


def reason_unsupported(name: str) -> str | None:
    """Returns why tracefx does not have a name or module of JAX; None if it is not known to JAX.

    Args:
        name: The full name.
    """
    for private, public in _SAME_AS:
        if name.startswith(f"{private}."):
            return reason_unsupported(public + name.removeprefix(private))
    if name in UNSUPPORTED_NAMES:
        return UNSUPPORTED_NAMES[name]
    modules = (module for module in UNSUPPORTED_MODULES if f"{name}.".startswith(f"{module}."))
    module = next(modules, None)
    return None if module is None else UNSUPPORTED_MODULES[module]
