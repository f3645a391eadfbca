"""The public names of JAX and their counterparts in tracefx, which `docs/names.md` lists.

`python -m tests.names` writes the page.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Final, final

import jax
import jax.extend
import jax.scipy.stats
from attrs import frozen
from jax.extend.core import Primitive as JaxPrimitive

import tracefx
from tracefx.control.vocabulary import VOCABULARY
from tracefx.core.primitive import Primitive
from tracefx.jax_counterparts import COUNTERPARTS, PARAMETERS
from tracefx.ops.vocabulary import OPERATIONS

PAGE: Final = Path(__file__).parent.parent / "docs" / "names.md"

MODULES: Final = (
    "jax",
    "jax.numpy",
    "jax.numpy.linalg",
    "jax.numpy.fft",
    "jax.ad_checkpoint",
    "jax.custom_batching",
    "jax.custom_derivatives",
    "jax.debug",
    "jax.distributed",
    "jax.ffi",
    "jax.lax",
    "jax.lax.linalg",
    "jax.random",
    "jax.nn",
    "jax.nn.initializers",
    "jax.tree",
    "jax.tree_util",
    "jax.flatten_util",
    "jax.dtypes",
    "jax.ref",
    "jax.typing",
    "jax.ops",
    "jax.image",
    "jax.scipy.special",
    "jax.scipy.linalg",
    "jax.scipy.signal",
    "jax.scipy.stats",
    *[f"jax.scipy.stats.{module.name}" for module in pkgutil.iter_modules(jax.scipy.stats.__path__)],
    "jax.scipy.fft",
    "jax.scipy.ndimage",
    "jax.scipy.interpolate",
    "jax.scipy.integrate",
    "jax.scipy.optimize",
    "jax.scipy.cluster.vq",
    "jax.scipy.spatial.transform",
    "jax.scipy.sparse.linalg",
    "jax.sharding",
    "jax.export",
    "jax.stages",
    "jax.profiler",
    "jax.errors",
    "jax.dlpack",
    "jax.test_util",
    "jax.core",
)
_MANY_DEVICES: Final = "several processes: `tracefx.distributed`, `tracefx.sharding` and collectives of `tracefx.lax`"
_KERNELS: Final = "custom kernels for GPUs and TPUs: not supported"
_XLA: Final = "hints for XLA's scheduler and compiler: not supported"
_PRIMITIVES: Final = "user-defined primitives and handlers: `tracefx.extend`"
_INTERNALS: Final = "internals of JAX"
OTHER_MODULES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "jax.monitoring": "`tracefx.log_compiles`: a handler of the logger `tracefx` receives the events",
        "jax.api_util": "internals of JAX: `tracefx.tree_util` flattens arguments",
        "jax.extend.core": "programs and primitives: `tracefx.extend`",
        "jax.extend.linear_util": _INTERNALS,
        "jax.extend.random": "`tracefx.random.key(seed, impl=...)`",
        "jax.extend.backend": "`tracefx.devices`",
        "jax.extend.mlir": "`tracefx.export`",
        "jax.extend.sharding": _INTERNALS,
        "jax.extend.source_info_util": "`tracefx.handlers.here`",
        "jax.interpreters.ad": _PRIMITIVES,
        "jax.interpreters.batching": _PRIMITIVES,
        "jax.interpreters.mlir": _PRIMITIVES,
        "jax.interpreters.partial_eval": _PRIMITIVES,
        "jax.interpreters.pxla": _INTERNALS,
        "jax.interpreters.xla": _INTERNALS,
        "jax.example_libraries.optimizers": "libraries such as Optax: `tracefx.interop.jax.from_jax`",
        "jax.example_libraries.stax": "the layers are functions of `tracefx.nn` and `tracefx.lax`",
        **{
            f"jax.experimental.{name}": note
            for name, note in {
                "buffer_callback": "callbacks on device buffers: `tracefx.pure_callback` is called with arrays",
                "checkify": "`tracefx.handlers.check_error` and errors as values; these error categories do not exist",
                "colocated_python": _MANY_DEVICES,
                "compute_on": _XLA,
                "control_deps": _XLA,
                "custom_partitioning": "`tracefx.shard_map` for per-device code; the compiler partitions the rest",
                "fused": _XLA,
                "hijax": "user-defined primitives: `tracefx.extend`",
                "jet": "`tracefx.jet`; rules of primitives are methods of their class",
                "layout": _XLA,
                "mesh_utils": "`tracefx.make_mesh`",
                "mosaic": _KERNELS,
                "multihost_utils": _MANY_DEVICES,
                "ode": "a part of the solver, an internal of JAX: `tracefx.scipy.integrate.odeint`",
                "pallas": _KERNELS,
                "profiler": "`tracefx.profiler`",
                "random": "stateful random numbers: not supported; keys are explicit",
                "rnn": "`tracefx.lax.scan` of a cell; recurrent networks of GPU libraries are not supported",
                "roofline": "`tracefx.handlers.count` computes operations, bytes and memory",
                "scheduling_groups": _XLA,
                "serialize_executable": "`tracefx.compilation_cache` stores executables, `tracefx.export` programs",
                "shard_alike": "`tracefx.lax.with_sharding_constraint`",
                "source_mapper": "`tracefx.pictures` and `as_text(debug_info=True)` show source lines",
                "sparse": "a format that `tracefx.sparse.BCOO` and `tracefx.sparse.BCSR` generalize",
                "sparse.linalg": "`tracefx.scipy.sparse.linalg` has iterative solvers",
                "topologies": "programs are compiled only for existing devices",
                "transfer": _MANY_DEVICES,
                "xla_metadata": _XLA,
            }.items()
        },
    }
)
"""Other modules, with the note for names without a counterpart. `jax.experimental.jax2tf` and `jax.tools.jax_to_ir`
require TensorFlow, and `jax.collect_profile` XProf."""
OWN_NAMES_ONLY: Final = ("jax.experimental.", "jax.example_libraries.")
"""Modules of these packages also have the names that they import."""

RELOCATED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "jax.experimental.checkify": "tracefx.handlers",
        "jax.experimental.jet": "tracefx",
        "jax.experimental.ode": "tracefx.scipy.integrate",
        "jax.experimental.sparse": "tracefx.sparse",
        "jax.export": "tracefx",
        "jax.test_util": "tracefx.testing",
        "jax.core": "tracefx.extend",
        "jax.extend.core": "tracefx.extend",
        "jax.interpreters.ad": "tracefx.extend",
    }
)
"""Modules of JAX whose counterpart has another name."""

ELSEWHERE: Final[Mapping[str, str]] = MappingProxyType(
    {
        **{
            f"jax.{name.removeprefix('tracefx.')}": note
            for name, note in COUNTERPARTS.items()
            if name != "tracefx.experimental"  # a package
        },
        **dict.fromkeys(("jax.lax.psend", "jax.lax.precv"), "`tracefx.lax.ppermute`"),
        **dict.fromkeys(
            [f"jax.ad_checkpoint.{name}" for name in ("Offloadable", "Recompute", "Saveable")],
            "functions `(prim, *avals, **params) -> bool` in `tracefx.checkpoint_policies`",
        ),
        **dict.fromkeys(
            [f"jax.custom_derivatives.{name}" for name in ("custom_jvp_call_p", "custom_vjp_call_p", "remat_opt_p")],
            "the classes in `tracefx.control`",
        ),
        **dict.fromkeys(
            ("jax.debug.DebugEffect", "jax.debug.OrderedDebugEffect"), "`tracefx.core.effects.DebugEffect`"
        ),
        "jax.debug.breakpoint": "`tracefx.handlers.explain`; or `breakpoint()` in a `tracefx.debug.callback`",
        "jax.debug.inspect_array_sharding": "`compiled.output_shardings`, or `x.sharding` of a result",
        "jax.debug.log": "`tracefx.debug.callback` with a logger",
        **dict.fromkeys(
            ("jax.ffi.build_ffi_lowering_function", "jax.ffi.ffi_lowering"),
            "`tracefx.ffi.ffi_call`, or a method `lower` that calls `builder.custom_call`",
        ),
        "jax.ffi.register_ffi_type_id": "`tracefx.ffi.register_ffi_type`",
        "jax.lax.psum_scatter_start": "`tracefx.lax.psum_scatter`",
        **{f"jax.lax.{name}_p": f"`tracefx.lax.{name}`" for name in ("log2", "one_minus_square", "polynomial")},
        "jax.random.random_gamma_p": "a `custom_jvp` function behind `tracefx.random.gamma`",
        "jax.lax.ragged_all_to_all_p": "`tracefx.lax.ragged_all_to_all`, defined in terms of other primitives",
        "jax.lax.copy_p": "`tracefx.numpy.copy`: arrays are immutable",
        "jax.lax.device_put_p": "`tracefx.device_put`",
        "jax.lax.eq_to_p": "the order of `tracefx.lax.sort`",
        "jax.lax.le_to_p": "the order of `tracefx.lax.sort`",
        "jax.lax.lt_to_p": "the order of `tracefx.lax.sort`",
        "jax.lax.stage_p": "`tracefx.lax.stage`",
        "jax.sharding.make_single_device_sharding": "`tracefx.sharding.SingleDeviceSharding`",
        "jax.ref.AbstractRef": "`tracefx.ref.RefType`",
        "jax.export.deserialize": "`tracefx.load`",
        "jax.stages.ArgInfo": "`tracefx.transforms.stages.ArgInfo`",
        "jax.stages.CompilerOptions": "`tracefx.transforms.stages.CompilerOptions`",
        "jax.stages.Compiled": "`tracefx.transforms.stages.CompiledCall`",
        "jax.stages.Lowered": "`tracefx.transforms.stages.LoweredCall`",
        "jax.stages.Traced": "`tracefx.transforms.stages.TracedCall`",
        "jax.stages.Wrapped": "`tracefx.transforms.jit.Jitted`",
        "jax.errors.ConcretizationTypeError": "`tracefx.errors.ConcretizationError`",
        "jax.errors.JaxRuntimeError": "`tracefx.errors.ExecutionError`",
        "jax.errors.NonConcreteBooleanIndexError": "`tracefx.errors.MaskIndexError`",
        "jax.errors.UnexpectedTracerError": "`tracefx.errors.EscapedTracerError`",
        "jax.errors.JAXIndexError": "`IndexError`",
        "jax.errors.JAXTypeError": "`TypeError`",
        "jax.dlpack.from_dlpack": "`tracefx.numpy.from_dlpack`",
        **dict.fromkeys(("jax.test_util.check_jvp", "jax.test_util.check_vjp"), "`tracefx.testing.check_grads`"),
        **dict.fromkeys(
            [f"jax.profiler.{name}" for name in ("ProfileEvent", "ProfileLine", "ProfilePlane")],
            "parts of `tracefx.profiler.ProfileData`",
        ),
        "jax.core.AbstractValue": "`tracefx.extend.ShapedArray`",
        "jax.experimental.sparse.JAXSparse": "`tracefx.sparse.SparseArray`",
        "jax.experimental.sparse.SparseTracer": "a handler, `tracefx.extend.Interpreter`, has its own tracers",
        "jax.core.Trace": "`tracefx.extend.Handler`",
        "jax.core.ensure_compile_time_eval": "`tracefx.ensure_compile_time_eval`",
        "jax.export.default_export_platform": "`tracefx.default_backend`",
    }
)
"""Names whose counterpart has another name or form, with the note on the page."""

_MACHINERY: Final = "a setting or function of JAX's runtime"
_MEMORY: Final = "for Pallas kernels"
_TOKENS: Final = "tokens of ordered effects are implicit"
NOT_HERE: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(
            [
                f"jax.{name}"
                for name in (
                    "CompilerEffortLevel",
                    "Inline",
                    "allow_f16_reductions",
                    "array_garbage_collection_guard",
                    "check_tracer_leaks",
                    "checking_leaks",
                    "clear_caches",
                    "enable_checks",
                    "enable_custom_prng",
                    "jax2tf_associative_scan_reductions",
                    "legacy_prng_key",
                    "make_user_context",
                    "softmax_custom_jvp",
                    "thread_guard",
                    "threefry_partitionable",
                    "transfer_guard",
                    "transfer_guard_device_to_device",
                    "transfer_guard_device_to_host",
                    "transfer_guard_host_to_device",
                )
            ],
            _MACHINERY,
        ),
        **dict.fromkeys(
            [f"jax.{name}" for name in ("empty_ref", "free_ref", "ds", "ref.empty_ref", "ref.free_ref")], _MEMORY
        ),
        **dict.fromkeys(
            [f"jax.lax.{name}" for name in ("after_all", "after_all_p", "create_token", "create_token_p")], _TOKENS
        ),
        **dict.fromkeys(
            ("jax.lax.rng_uniform", "jax.lax.rng_uniform_p"), "random numbers without a key, deprecated in JAX"
        ),
        **dict.fromkeys(
            [f"jax.numpy.{name}" for name in ("int1", "uint1", "float6_e2m3fn", "float6_e3m2fn")],
            "not supported by XLA's CPU backend",
        ),
        **dict.fromkeys(
            [
                f"jax.sharding.{name}"
                for name in (
                    "AbstractDevice",
                    "ManualAxisType",
                    "UnreducedKind",
                )
            ],
            "types have shardings and varying mesh axes; they do not say which sums are pending",
        ),
        **dict.fromkeys(
            [
                f"jax.export.{name}"
                for name in (
                    "DisabledSafetyCheck",
                    "maximum_supported_calling_convention_version",
                    "minimum_supported_calling_convention_version",
                    "register_namedtuple_serialization",
                    "register_pytree_node_serialization",
                )
            ],
            "part of JAX's export format",
        ),
        **dict.fromkeys([f"jax.core.{name}" for name in ("Atom", "ParamDict", "eval_context")], "internals of JAX"),
        "jax.dlpack.is_supported_dtype": "`tracefx.numpy.from_dlpack` and `x.__dlpack__()` raise BufferError",
        **dict.fromkeys(
            ("jax.profiler.ProfileSession", "jax.profiler.export_profile_data"), "`tracefx.profiler.trace` writes files"
        ),
        "jax.ad_checkpoint.checkpoint_name_fwd": "internals of JAX",
        "jax.experimental.sparse.CuSparseEfficiencyWarning": "for kernels of GPU libraries, which are not called",
        "jax.experimental.sparse.bcoo_conv_general_dilated": "only for one axis in JAX; convert to dense arrays",
        "jax.ffi.abstract_token": _TOKENS,
        "jax.profiler.register_subprocess": "for profiles of TPU processes",
        "jax.lax.select_and_scatter_p": "JAX has no public function for it",
        "jax.nn.get_scaled_dot_general_config": "block scaling is supported only on GPUs",
    }
)
"""Names without a counterpart, with the reason."""


@final
@frozen
class Name:
    """A public name of JAX with its counterpart, or with a note."""

    jax: str
    here: str | None
    """The name of the counterpart, if there is one."""
    note: str


def public(module: ModuleType) -> Iterator[str]:
    """Yields the public names of a module, except modules and deprecated names."""
    for name in dir(module):
        if name.startswith("_"):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)
            try:
                found = getattr(module, name)
            except DeprecationWarning:
                continue
        if not inspect.ismodule(found):
            yield name


def own(module: ModuleType) -> Iterator[str]:
    """Yields the public names that a module of `jax.experimental` defines."""
    subject = module.__name__.rpartition(".")[2]
    for name in public(module):
        owner = getattr(getattr(module, name), "__module__", subject)
        if subject in str(owner).split(".") and name not in ("TYPE_CHECKING", "annotations"):
            yield name


def is_here(path: str) -> bool:
    """Whether a dotted path from `tracefx` exists."""
    found: object = tracefx
    for part in path.split(".")[1:]:
        try:
            found = getattr(found, part)
        except AttributeError:
            return False
    return True


def names() -> dict[str, list[Name]]:
    """Returns the names by module of JAX."""
    operations: dict[str, type[Primitive]] = {**{op.name: op for op in OPERATIONS}, **VOCABULARY}
    listed: dict[str, list[Name]] = {}
    for path in (*MODULES, *[path for path in OTHER_MODULES if importlib.util.find_spec(path)]):
        module = importlib.import_module(path)
        rows = listed.setdefault(path, [])
        found_names = own(module) if path.startswith(OWN_NAMES_ONLY) else public(module)
        reason = OTHER_MODULES.get(path, "")
        for name in sorted(found_names, key=lambda n: (n.lower(), n)):
            whole = f"{path}.{name}"
            counterpart = f"{RELOCATED.get(path, 'tracefx' + path.removeprefix('jax'))}.{name}"
            found = getattr(module, name)
            if is_here(counterpart):
                rows.append(Name(whole, counterpart, ""))
            elif isinstance(found, JaxPrimitive) and found.name in operations:
                op = operations[found.name]
                rows.append(Name(whole, f"{op.__module__}.{op.__qualname__}", ""))
            else:
                rows.append(Name(whole, None, ELSEWHERE.get(whole) or NOT_HERE.get(whole, reason)))
    return listed


def has_same_name(row: Name) -> bool:
    """Whether the counterpart is the same name below `tracefx`."""
    return row.here == f"tracefx{row.jax.removeprefix('jax')}"


def has_counterpart(row: Name) -> bool:
    return row.here is not None or row.jax in ELSEWHERE


def counts(rows: Iterable[Name]) -> tuple[int, int, int]:
    """Returns the numbers of names with a counterpart of the same name, with another one, and with none."""
    listed = list(rows)
    same, there = sum(map(has_same_name, listed)), sum(map(has_counterpart, listed))
    return same, there - same, len(listed) - there


def page() -> str:
    """Returns the text of `docs/names.md`."""
    listed = names()
    same, other, none = counts(row for rows in listed.values() for row in rows)
    groups: dict[str, dict[str, list[Name]]] = {}
    for path, rows in listed.items():
        groups.setdefault(".".join(path.split(".")[:2]), {})[path] = rows
    lines = [
        "# Names of JAX and their counterparts",
        "",
        f"These modules of JAX {jax.__version__} have {same + other + none:,} public names. {same:,} have the same",
        f"name in tracefx, {other:,} a counterpart with another name, and {none:,} none; their rows give the reason.",
        "",
        "This page is generated by `python -m tests.names`; a test checks that it is up to date.",
        "",
        "| modules | names | same name | other name | none |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for group, modules in groups.items():
        numbers = counts(row for rows in modules.values() for row in rows)
        cells = [sum(numbers), *numbers]
        lines.append(f"| [`{group}`](#{group.replace('.', '')}) | {' | '.join(f'{each:,}' for each in cells)} |")
    for group, modules in groups.items():
        lines += ["", f"## {group}"]
        for path, rows in modules.items():
            missing = counts(rows)[2]
            summary = f"{path}: {len(rows):,} names{f', {missing:,} without a counterpart' if missing else ''}"
            lines += ["", "<details markdown>", f"<summary>{summary}</summary>", ""]
            lines += ["| JAX | tracefx |", "| --- | --- |"]
            for row in rows:
                name = row.jax.removeprefix(f"{path}.")
                lines.append(f"| `{name}` | {f'`{row.here}`' if row.here else row.note} |")
            lines += ["", "</details>"]
    lines += ["", "## Parameters", "", "Functions refuse most values of these parameters, which their signatures have."]
    lines += ["", "| parameter | values | instead of other values | functions |", "| --- | --- | --- | --- |"]
    functions: dict[str, list[str]] = {}
    for name, restricted in sorted(PARAMETERS.items()):
        for parameter, (values, reason) in restricted.items():
            if reason:
                columns = [f"`{parameter}`", ", ".join([f"`{value!r}`" for value in values]), reason]
                functions.setdefault(" | ".join(columns), []).append(f"`{name}`")
    lines += [f"| {columns} | {', '.join(found)} |" for columns, found in functions.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
