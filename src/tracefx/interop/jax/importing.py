"""`from_jax`: turns functions written with JAX into functions of tracefx."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import FunctionType, MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar, final

import jax
import numpy as np
from attrs import frozen
from typing_extensions import ParamSpec, override

from tracefx.bounded_cache import BoundedCache, CachePerObject
from tracefx.core import Array, ShapedArray, Value, as_value, dtypes, show_avals
from tracefx.core.equality import strict_key
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import Tracer, as_array, current
from tracefx.core.meshes import MESH
from tracefx.core.named_sharding import NamedSharding
from tracefx.filtered_tracebacks import api_boundary
from tracefx.interop.jax import (
    hi_primitives,
    importing_control,
    importing_custom_rules,
    importing_devices,
    importing_first_order,
)
from tracefx.interop.jax.converted_function import ConvertedFunction
from tracefx.interop.jax.foreign_primitives import bind_foreign
from tracefx.interop.jax.importing_programs import NO_RULES, ImportedProgram, Importer, ImportRule, UserImportRule
from tracefx.interop.jax.meshes import type_sharding_from_jax
from tracefx.interop.jax.unsupported_primitives import UNSUPPORTED
from tracefx.interop.jax.values import as_tracefx, type_to_jax
from tracefx.ops.annotations.reshard import reshard_value, without_type_sharding
from tracefx.pytrees.registry import NODE_REGISTRY, type_name
from tracefx.settings import X64
from tracefx.transforms.arguments import require_callable

P = ParamSpec("P")
R = TypeVar("R")

RULES: Final[Mapping[str, ImportRule]] = MappingProxyType(
    {
        **importing_first_order.RULES,
        **importing_control.RULES,
        **importing_custom_rules.RULES,
        **hi_primitives.RULES,
        **importing_devices.RULES,
    }
)
"""Import rules by name of JAX's primitive, for those without a tracefx primitive of the same name and parameters."""
MAX_IMPORTS: Final = 1024
"""How many call signatures are cached for each imported function."""


class _Signature(NamedTuple):
    """The cache key of an imported call: all that the import depends on besides the function and its rules."""

    in_tree: Any
    avals: tuple[ShapedArray | None, ...]
    """The avals of the leaves, None for static leaves."""
    statics: tuple[Hashable, ...]
    x64: bool
    axes: tuple[tuple[Hashable, int], ...]
    settings: tuple[object, ...]


@final
@frozen(eq=False)
class _ImportedFunction:
    """A function of JAX, imported for one call signature."""

    program: ImportedProgram
    out_tree: Any
    statics: tuple[tuple[int, object], ...]
    """The non-array leaves of the result, with their indices."""
    out_shardings: tuple[NamedSharding | None, ...]
    """The shardings of the results over explicit mesh axes; JAX has checked those inside, which are automatic here."""

    def results(self, outs: Sequence[Value]) -> Any:
        static, arrays = dict(self.statics), iter(outs)
        leaves = [static[i] if i in static else as_array(next(arrays)) for i in range(self.out_tree.num_leaves)]
        return jax.tree_util.tree_unflatten(self.out_tree, leaves)


_SETTINGS: Final = (
    "jax_allow_f16_reductions",
    "jax_check_static_indices",
    "jax_custom_jvp3",
    "jax_custom_vjp3",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_enable_custom_prng",
    "jax_explicit_x64_dtypes",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_random_seed_offset",
    "jax_remat3",
    "jax_scan3",
    "jax_softmax_custom_jvp",
    "jax_threefry_partitionable",
)
"""The JAX settings that tracing depends on."""


def _settings() -> tuple[object, ...]:
    """Returns the values of these settings and the current meshes of JAX and tracefx."""
    settings = [getattr(jax.config, name, None) for name in _SETTINGS]
    return *settings, jax.sharding.get_abstract_mesh(), MESH.value


_IMPORTS: Final = CachePerObject[Callable[..., Any], _Signature, _ImportedFunction](MAX_IMPORTS)


@final
class FromJax(ConvertedFunction[P, R]):
    """The result of `from_jax`: a function of tracefx that runs a function written with JAX."""

    title = "from_jax"

    def __init__(self, fun: Callable[P, R], rules: Mapping[str, UserImportRule]) -> None:
        require_callable("from_jax", fun)
        functools.update_wrapper(self, fun, updated=())
        super().__init__(fun)
        self._rules = rules
        # The key has no user-defined rules, and the state of callables other than functions may change between calls.
        is_shared = isinstance(fun, FunctionType) and not rules
        self._known = _IMPORTS.of(fun) if is_shared else BoundedCache[_Signature, _ImportedFunction](MAX_IMPORTS)

    @override
    @api_boundary
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        leaves, in_tree = jax.tree_util.tree_flatten((args, kwargs))
        values = [_leaf_value(leaf) for leaf in leaves]
        avals = tuple([None if x is None else x.aval for x in values])
        statics = tuple([_static(x) for x, value in zip(leaves, values, strict=True) if value is None])
        axes = tuple([(name, axis.size) for name, axis in current().axes.items()])
        key = _Signature(in_tree, avals, statics, X64.value, axes, _settings())
        try:
            imported = self._known.get(key)
        except TypeError as error:
            raise self._not_hashable(leaves, values, in_tree) from error
        if imported is None:
            imported = self._known.insert(key, self._import(key, leaves))
        program = imported.program
        arrays = [x for x in values if x is not None]
        outs = eval_jaxpr(program.jaxpr, (), [*program.consts, *map(without_type_sharding, arrays)])
        in_shardings = [x.aval.explicit_sharding for x in arrays]
        sharded = next((each for each in (*in_shardings, *imported.out_shardings) if each is not None), None)
        if sharded is not None:
            shardings = [sharded.update(spec=()) if each is None else each for each in imported.out_shardings]
            outs = [reshard_value(x, each.mesh, each.spec) for x, each in zip(outs, shardings, strict=True)]
        result: R = imported.results(outs)
        return result

    def _import(self, key: _Signature, leaves: Sequence[Any]) -> _ImportedFunction:
        out_tree: Any = None
        statics: list[tuple[int, object]] = []
        static_leaves = [leaf if aval is None else None for leaf, aval in zip(leaves, key.avals, strict=True)]

        @functools.wraps(self._fun, updated=())  # JAX's messages then name the function and its arguments
        def called(*args: Any, **kwargs: Any) -> list[Any]:
            nonlocal out_tree
            arrays = iter(jax.tree_util.tree_leaves((args, kwargs)))
            all_leaves = [
                leaf if aval is None else next(arrays) for leaf, aval in zip(static_leaves, key.avals, strict=True)
            ]
            args, kwargs = jax.tree_util.tree_unflatten(key.in_tree, all_leaves)
            outs, out_tree = jax.tree_util.tree_flatten(self._fun(*args, **kwargs))
            statics[:] = [(i, x) for i, x in enumerate(outs) if not isinstance(x, jax.Array | np.ndarray | np.generic)]
            static_indices = {i for i, _ in statics}
            return [x for i, x in enumerate(outs) if i not in static_indices]

        importer = Importer(RULES, UNSUPPORTED, bind_foreign, self._rules, key.x64, key.axes)
        avals = [aval for aval in key.avals if aval is not None]
        for leaf in leaves:
            if NODE_REGISTRY.is_registered(type(leaf)):
                raise TypeError(
                    f"from_jax: an argument of {self._name} has a {type_name(type(leaf))}, which is registered as a "
                    "pytree node with tracefx but not with JAX: register it with jax.tree_util, which tracefx reads too"
                )
        if not key.x64 and any(dtypes.canonicalize(aval.dtype) != aval.dtype for aval in avals):
            self._require_wide(avals)
        jax_types = [None if aval is None else type_to_jax(aval) for aval in key.avals]
        args, kwargs = jax.tree_util.tree_unflatten(key.in_tree, jax_types)
        try:
            traced = importer.trace(called, args, kwargs)
        except TypeError as error:
            closing_over = self._closing_over(error)
            if closing_over is None:
                raise
            raise closing_over from error
        program = importer.program(traced, [aval.with_explicit_sharding(None) for aval in avals])
        return _ImportedFunction(
            program, out_tree, tuple(statics), tuple(map(type_sharding_from_jax, traced.out_avals))
        )

    def _require_wide(self, avals: Sequence[ShapedArray]) -> None:
        """Raises `TypeError` unless JAX accepts explicit 64-bit dtypes in its 32-bit mode."""
        mode: Any = getattr(jax.config, "jax_explicit_x64_dtypes", None)
        if getattr(mode, "name", "") != "ALLOW":
            raise TypeError(
                f"from_jax: {self._name} was called with arrays of types {show_avals(avals)}, but JAX is set to "
                "compute with 32 bits: call the function inside of `with tracefx.enable_x64():`, or let JAX keep "
                'explicit 64-bit dtypes, with jax.config.update("jax_explicit_x64_dtypes", "allow")'
            )

    def _closing_over(self, error: TypeError) -> TypeError | None:
        """Returns an error that names the closed-over tracefx array that JAX complains of, or None if there is none."""
        for name, value in _captured_arrays(self._fun, set()):
            if type(value).__name__ in str(error):
                advice = f"pass {name} to the function as an argument"
                if not isinstance(value, Tracer):
                    advice += f", or let it close over tracefx.interop.jax.as_jax({name})"
                return TypeError(
                    f"from_jax: {self._name} closes over {name}, a tracefx array {value.aval}, which JAX cannot "
                    f"trace: {advice}"
                )
        return None

    def _not_hashable(self, leaves: Sequence[Any], values: Sequence[Value | None], in_tree: Any) -> TypeError:
        paths, _ = jax.tree_util.tree_flatten_with_path(jax.tree_util.tree_unflatten(in_tree, range(len(leaves))))
        for leaf, value, (path, _) in zip(leaves, values, paths, strict=True):
            if value is None:
                try:
                    hash(leaf)
                except TypeError:
                    (argument_part, *leaf_path) = path
                    return TypeError(
                        f"from_jax: in the {'keyword' if argument_part.idx else 'positional'} arguments of "
                        f"{self._name}, {jax.tree_util.keystr(tuple(leaf_path))} is no array and therefore static, "
                        f"but not hashable: {leaf!r} of type {type(leaf).__name__}. Let the function close over it, "
                        "or register its type with jax.tree_util if it contains arrays"
                    )
        return TypeError(f"from_jax: the structure of the arguments of {self._name} is not hashable: {in_tree}")

    @property
    @override
    def options(self) -> tuple[object, ...]:
        return (dict(self._rules),)


def _captured_arrays(fun: object, seen: set[object]) -> Iterator[tuple[str, Value]]:
    """Yields the names and values of tracefx arrays that a function, or a function that it uses, closes over."""
    if not isinstance(fun, FunctionType) or fun in seen:
        return
    seen.add(fun)
    captured = {name: fun.__globals__[name] for name in fun.__code__.co_names if name in fun.__globals__}
    for name, cell in zip(fun.__code__.co_freevars, fun.__closure__ or (), strict=True):
        with suppress(ValueError):  # the cell is empty
            captured[name] = cell.cell_contents
    for name, value in captured.items():
        if isinstance(value, Value) and isinstance(value, Array):
            yield name, value
        yield from _captured_arrays(value, seen)


def _leaf_value(leaf: object) -> Value | None:
    """Converts an array leaf of any kind to a value; returns None for static leaves, Python numbers included."""
    if isinstance(leaf, Array | np.ndarray | np.generic):
        return as_value(leaf)
    return as_tracefx(leaf) if isinstance(leaf, jax.Array) else None


def _static(leaf: object) -> Hashable:
    return strict_key(leaf)


def from_jax(fun: Callable[P, R], *, rules: Mapping[str, UserImportRule] | None = None) -> Callable[P, R]:
    """Turns `fun`, which is written with JAX, into a function of tracefx.

    JAX traces `fun` once for each call signature; the result is run with the primitives of tracefx under the current
    handler, so all transformations and handlers of tracefx apply to it. Most primitives of JAX have a counterpart in
    tracefx; primitives of other libraries run their JAX implementation and keep the rules registered with JAX.
    User-defined derivatives, names of called functions and source locations are preserved.

    As with `jax.jit`, `fun` should be pure: whatever it reads or changes outside of its arguments is fixed when it is
    traced. With `tracefx.enable_x64` JAX traces in 64-bit mode too.

    Args:
        fun: a function of pytrees, of all node types that are registered with JAX (Flax, Equinox, Optax, ...). Array
            leaves of its arguments are traced; all other leaves, Python numbers too, are static: they must be hashable,
            and the function is traced anew for each of their values.
        rules: additional rules by name of JAX's primitive, which take precedence over the built-in ones. A rule takes
            tracefx arrays, and the primitive's parameters as keywords, and returns one array or several. None adds
            no rules.

    Returns:
        A function with the same signature that takes and returns tracefx arrays.

    Raises:
        MissingRuleError: when called, if `fun` uses a primitive that has no counterpart in tracefx.
        TypeError: when called, if a static argument is not hashable; or if `fun` is not callable.

    >>> import jax
    >>> import tracefx as fx
    >>> @from_jax
    ... def loss(w, x):
    ...     return jax.numpy.sum(jax.nn.relu(x @ w) ** 2)
    >>> x = fx.numpy.ones((2, 3))
    >>> fx.grad(loss)(fx.numpy.arange(3.0), x)
    Array([12., 12., 12.], dtype=float32)
    """
    return FromJax(fun, NO_RULES if rules is None else MappingProxyType(dict(rules)))
