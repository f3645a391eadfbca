"""`to_jax`: turns functions of tracefx into functions that JAX can trace."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from types import MappingProxyType
from typing import Any, Final, TypeVar, final

import jax
import jax.numpy as jnp
import numpy as np
from typing_extensions import ParamSpec, override

from tracefx.bounded_cache import MemoKey, memoize_on_object
from tracefx.core import Array, Value
from tracefx.core.handler import Tracer
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.partition_spec import PartitionSpec
from tracefx.filtered_tracebacks import api_boundary
from tracefx.interop.jax import exporting_callbacks, exporting_control, exporting_devices, exporting_first_order
from tracefx.interop.jax.converted_function import ConvertedFunction
from tracefx.interop.jax.exporting_programs import (
    Exporter,
    ExportRule,
    UserExportRule,
    constant_to_jax,
    is_under_jit,
    jax_settings,
    x64_if_needed,
)
from tracefx.interop.jax.meshes import spec_to_jax, type_sharding_from_jax
from tracefx.interop.jax.tracefx_primitive import export_fallback
from tracefx.interop.jax.values import as_jax, type_from_jax
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree, keystr
from tracefx.transforms.arguments import LEAF_TYPES, argument_names, require_callable, show_object
from tracefx.transforms.static_arguments import DynamicArguments, StaticArguments
from tracefx.transforms.tracing import TRACES, Trace, TraceKey, cache_trace, trace, trace_key

P = ParamSpec("P")
R = TypeVar("R")

RULES: Final[Mapping[type[Any], ExportRule]] = MappingProxyType(
    {
        **exporting_first_order.RULES,
        **exporting_control.RULES,
        **exporting_callbacks.RULES,
        **exporting_devices.RULES,
    }
)
"""Export rules by class of primitive, for those without a JAX primitive of the same name and parameters."""

_DEFAULT_EXPORTER: Final = Exporter(RULES, export_fallback)


@final
class ToJax(ConvertedFunction[P, R]):
    """The result of `to_jax`: a function that JAX can trace and that runs a function of tracefx."""

    title = "to_jax"

    def __init__(self, fun: Callable[P, R], static: StaticArguments, rules: Mapping[str, UserExportRule]) -> None:
        functools.update_wrapper(self, fun)
        super().__init__(fun)
        self._static = static
        self._rules = rules
        self._export = Exporter(RULES, export_fallback, rules) if rules else _DEFAULT_EXPORTER

    @override
    @api_boundary
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        where = f"to_jax of {self._name}: arguments"
        dynamic, statics = self._static.split(where, args, kwargs)
        leaves, in_tree = trees.flatten_with_known_types(dynamic, LEAF_TYPES)
        arrays = [_to_jax_array(leaf, i, dynamic, where) for i, leaf in enumerate(leaves)]
        types: list[Any] = list(map(jax.typeof, arrays))
        avals = tuple([type_from_jax(t).with_explicit_sharding(type_sharding_from_jax(t)) for t in types])
        with jax_settings():
            traced = self._trace(trace_key(in_tree, avals, statics), args, kwargs, dynamic)
        meshes = [jax.sharding.get_abstract_mesh(), *[t.sharding.mesh for t in types]]
        mesh = next((each for each in meshes if jax.sharding.AxisType.Explicit in each.axis_types), None)
        return traced.output(_run(self._export, traced, arrays, mesh))

    def _trace(
        self, key: TraceKey, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic: DynamicArguments
    ) -> Trace[R]:
        traces, cache_key = TRACES.of(self._fun), (key, self._static)
        cached = traces.get(cache_key)
        if cached is not None:
            return cached
        origins = argument_names(self._fun, self._name, *dynamic, self._static.dynamic_positions(len(args)))
        fun = self._static.bind_static(self._fun, args, kwargs)
        return cache_trace(traces, cache_key, trace(fun, key.in_tree, key.avals, origins, self._name, "to_jax"))

    @property
    @override
    def options(self) -> tuple[object, ...]:
        return self._static, dict(self._rules)


def to_jax(
    fun: Callable[P, R],
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    rules: Mapping[str, UserExportRule] | None = None,
) -> Callable[P, R]:
    """Turns `fun`, a function of tracefx, into one that JAX can trace: `jax.jit`, `jax.grad`, `jax.vmap` apply to it.

    tracefx traces `fun` once for each call signature, with JAX's 64-bit setting and named axes. The result is run with
    JAX's primitives of the same names; operations without a counterpart become one primitive of JAX that has their
    rules, so user-defined derivatives are preserved. Called on concrete arrays, the function is compiled by JAX.

    Args:
        fun: a function of pytrees of arrays.
        static_argnums: indices of positional arguments that are static: `fun` gets them as they are. None by default.
        static_argnames: names of static arguments. None by default.
        rules: additional rules by name of tracefx's primitive, which take precedence over the built-in ones. A rule
            takes the primitive and JAX arrays and returns one array or several. None adds no rules.

    Returns:
        A function with the same signature that takes and returns pytrees of JAX's arrays, tracers and random keys.

    Raises:
        TypeError: when called, for an argument that is neither an array nor static.
        MissingRuleError: when called, for an operation without a counterpart in JAX that cannot be compiled.
        EscapedTracerError: when called, if `fun` closes over a tracer of tracefx.

    >>> import jax
    >>> import tracefx.numpy as fnp
    >>> norm = to_jax(lambda x: fnp.sqrt(fnp.sum(x * x)))
    >>> jax.grad(norm)(jax.numpy.array([3.0, 4.0]))
    Array([0.6, 0.8], dtype=float32)
    >>> jax.make_jaxpr(norm)(jax.numpy.ones(2))
    { lambda ; a:f32[2]. let
        b:f32[2] = mul a a
        c:f32[] = reduce_sum[axes=(0,) out_sharding=None] b
        d:f32[] = sqrt c
      in (d,) }
    """
    require_callable("to_jax", fun)
    numbers = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    static = StaticArguments.of(fun, numbers or None, names or None, "static")
    return ToJax(fun, static, MappingProxyType({} if rules is None else dict(rules)))


def _run(export: Exporter, traced: Trace, arrays: Sequence[jax.Array], mesh: Any) -> list[jax.Array]:
    """Runs a traced function: equation by equation under `jax.jit` (which keeps source locations), else compiled.

    With a mesh that has explicit axes, these are automatic inside, and results have the shardings of their types.
    """
    program, name = traced.jaxpr, traced.name
    inputs = [*_constants(traced), *arrays]
    if mesh is None and is_under_jit():
        return export.run(program, inputs)
    in_use = mesh is None or mesh == jax.sharding.get_abstract_mesh()
    with x64_if_needed(program), nullcontext() if in_use else jax.sharding.use_abstract_mesh(mesh):
        return _compiled(program, export, name, mesh)(*inputs)


@memoize_on_object
def _compiled(program: Jaxpr, export: Exporter, name: str, mesh: Any) -> Callable[..., list[jax.Array]]:
    run = export.function(program, name)
    if mesh is not None:
        names = tuple([n for n, t in zip(mesh.axis_names, mesh.axis_types, strict=True) if t.name == "Explicit"])
        specs = [spec_to_jax(PartitionSpec(*aval.spec)) for aval in program.out_avals]
        run = jax.sharding.auto_axes(run, axes=names, out_sharding=specs)
    return jax.jit(run, inline=True)


_CONSTANTS: Final = MemoKey[tuple[tuple[Value, ...], list[jax.Array]]]("constants, and as arrays of JAX")


def _constants(traced: Trace) -> Sequence[jax.Array]:
    """Returns the closed-over constants as JAX arrays, memoized."""
    if not traced.consts:
        return ()
    consts = traced.consts
    ids = tuple(map(id, consts))  # the memo keeps the constants alive
    return traced.jaxpr.memo.get(_CONSTANTS, ids, lambda: (consts, list(map(constant_to_jax, consts))))[1]


def _to_jax_array(leaf: object, i: int, tree: PyTree, where: str) -> jax.Array:
    """Converts leaf number `i` of the arguments to an array of JAX."""
    if isinstance(leaf, jax.Array):
        return leaf
    if isinstance(leaf, Tracer):
        raise TypeError(
            f"{where} contain {leaf}, which {leaf.handler.title} of tracefx traces, but this is a function for JAX: "
            "call the function that to_jax was applied to"
        )
    if isinstance(leaf, Array):
        return as_jax(leaf)
    if isinstance(leaf, bool | int | float | complex | np.ndarray | np.generic):
        return jnp.asarray(leaf)
    path, _ = trees.flatten_with_path(tree)[0][i]
    raise TypeError(
        f"{where}{keystr(path)} must be an array or a number, got {show_object(leaf)}; list the argument in "
        "static_argnums or static_argnames if it is static"
    )
