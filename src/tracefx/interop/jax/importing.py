"""`from_jax`: functions written with JAX as functions of tracefx."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import FunctionType, MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar, cast, final
from weakref import WeakKeyDictionary

import jax
import numpy as np
from attrs import frozen
from typing_extensions import ParamSpec, override

from tracefx.core import dtypes
from tracefx.core.array import Array
from tracefx.core.avals import ShapedArray, show_avals
from tracefx.core.bounded_cache import insert_bounded
from tracefx.core.equality import strict_key
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import Tracer, as_array, current
from tracefx.core.literal import Literal
from tracefx.core.settings import X64
from tracefx.core.values import Value, as_value
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
from tracefx.interop.jax.unsupported_primitives import UNSUPPORTED
from tracefx.interop.jax.values import as_tracefx, type_to_jax
from tracefx.pytrees.registry import NODE_REGISTRY, type_name
from tracefx.shardings.meshes import MESH
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
"""The rules for JAX's primitives that are no operation of the same name and parameters."""
MAX_IMPORTS: Final = 1024
"""Of calls that an imported function is known for at a time."""


class _Signature(NamedTuple):
    """All that an import depends on beside the function and its rules."""

    in_tree: Any
    avals: tuple[ShapedArray | None, ...]
    """Of the leaves, none for those that are static."""
    statics: tuple[Hashable, ...]
    x64: bool
    axes: tuple[tuple[Hashable, int], ...]
    settings: tuple[object, ...]


@final
@frozen(eq=False)
class _ImportedFunction:
    """A function of JAX for one kind of arguments."""

    program: ImportedProgram
    out_tree: Any
    statics: tuple[tuple[int, object], ...]
    """The leaves of the result that are no arrays, by their places."""

    def results(self, outs: Sequence[Value]) -> Any:
        static, given = dict(self.statics), iter(outs)
        leaves = [static[i] if i in static else as_array(next(given)) for i in range(self.out_tree.num_leaves)]
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
"""Those of JAX's settings that its programs, or whether there is one, depend on."""


def _settings() -> tuple[object, ...]:
    """These, and the meshes in use in both."""
    said = [getattr(jax.config, name, None) for name in _SETTINGS]
    return *said, jax.sharding.get_abstract_mesh(), MESH.value


@final
class _ImportCache:
    """What functions have been imported as, by kinds of arguments; it dies with the function."""

    __slots__ = ("_by_function", "_lock")

    def __init__(self) -> None:
        self._by_function: WeakKeyDictionary[Callable[..., Any], dict[_Signature, _ImportedFunction]] = (
            WeakKeyDictionary()
        )
        self._lock = threading.Lock()

    def of(self, fun: Callable[..., Any]) -> dict[_Signature, _ImportedFunction]:
        """Those of a plain function. What is called in another way, a method say, may be what changes itself."""
        if not isinstance(fun, FunctionType):
            return {}
        with self._lock:
            return self._by_function.setdefault(fun, {})


_IMPORT_CACHE: Final = _ImportCache()


@final
class FromJax(ConvertedFunction[P, R]):
    """A function written with JAX, as a function of tracefx: what `from_jax` gives."""

    title = "from_jax"

    def __init__(self, fun: Callable[P, R], rules: Mapping[str, UserImportRule]) -> None:
        require_callable("from_jax", fun)
        functools.update_wrapper(self, fun, updated=())
        super().__init__(fun)
        self._rules = rules
        self._known = {} if rules else _IMPORT_CACHE.of(fun)

    @override
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        leaves, in_tree = jax.tree_util.tree_flatten((args, kwargs))
        values = [_leaf_value(leaf) for leaf in leaves]
        avals = tuple([None if x is None else x.aval for x in values])
        statics = tuple([_static(x) for x, value in zip(leaves, values, strict=True) if value is None])
        key = _Signature(in_tree, avals, statics, X64.value, tuple(current().axes.items()), _settings())
        try:
            imported = self._known.get(key)
        except TypeError as error:
            raise self._not_hashable(leaves, values, in_tree) from error
        if imported is None:
            imported = insert_bounded(self._known, key, self._import(key, leaves), MAX_IMPORTS)
        program = imported.program
        given = [x for x in values if x is not None]
        outs = eval_jaxpr(program.jaxpr, (), [*program.consts, *given])
        return cast(R, imported.results(outs))

    def _import(self, key: _Signature, leaves: Sequence[Any]) -> _ImportedFunction:
        out_tree: Any = None
        statics: list[tuple[int, object]] = []
        held = [leaf if aval is None else None for leaf, aval in zip(leaves, key.avals, strict=True)]  # and no arrays

        @functools.wraps(self._fun, updated=())  # so that JAX's messages name the function and its arguments
        def called(*args: Any, **kwargs: Any) -> list[Any]:
            nonlocal out_tree
            given = iter(jax.tree_util.tree_leaves((args, kwargs)))
            full = [leaf if aval is None else next(given) for leaf, aval in zip(held, key.avals, strict=True)]
            args, kwargs = jax.tree_util.tree_unflatten(key.in_tree, full)
            outs, out_tree = jax.tree_util.tree_flatten(self._fun(*args, **kwargs))
            statics[:] = [(i, x) for i, x in enumerate(outs) if not isinstance(x, jax.Array | np.ndarray | np.generic)]
            places = {i for i, _ in statics}
            return [x for i, x in enumerate(outs) if i not in places]

        translation = Importer(RULES, UNSUPPORTED, bind_foreign, self._rules, key.x64, key.axes)
        avals = [aval for aval in key.avals if aval is not None]
        for leaf in leaves:
            if NODE_REGISTRY.is_registered(type(leaf)):
                raise TypeError(
                    f"from_jax: an argument of {self._name} has a {type_name(type(leaf))}, which is a node of trees "
                    "for tracefx and not for JAX: register the type with jax.tree_util, which tracefx knows, instead"
                )
        if not key.x64 and any(dtypes.canonicalize(aval.dtype) != aval.dtype for aval in avals):
            self._require_wide(avals)
        types = [None if aval is None else type_to_jax(aval) for aval in key.avals]
        args, kwargs = jax.tree_util.tree_unflatten(key.in_tree, types)
        try:
            traced = translation.trace(called, args, kwargs)
        except TypeError as error:
            closing_over = self._closing_over(error)
            if closing_over is None:
                raise
            raise closing_over from error
        return _ImportedFunction(translation.program(traced, avals), out_tree, tuple(statics))

    def _require_wide(self, avals: Sequence[ShapedArray]) -> None:
        """JAX takes arrays of 64 bits as they are if it is told to."""
        mode: Any = getattr(jax.config, "jax_explicit_x64_dtypes", None)
        if getattr(mode, "name", "") != "ALLOW":
            raise TypeError(
                f"from_jax: {self._name} was called with arrays of types {show_avals(avals)}, but JAX is set to "
                "compute with 32 bits: call the function inside of `with tracefx.enable_x64():`, or let JAX keep "
                'dtypes that are asked for, with jax.config.update("jax_explicit_x64_dtypes", "allow")'
            )

    def _closing_over(self, error: TypeError) -> TypeError | None:
        """What JAX says of an array of ours that the function has from around it is not where the array comes from."""
        for name, value in _captured_arrays(self._fun, set()):
            if type(value).__name__ in str(error):
                advice = f"pass {name} to the function as an argument"
                if not isinstance(value, Tracer):
                    advice += f", or let it close over tracefx.interop.jax.as_jax({name})"
                return TypeError(
                    f"from_jax: {self._name} closes over {name}, an array {value.aval} of tracefx, which JAX doesn't "
                    f"know: {advice}"
                )
        return None

    def _not_hashable(self, leaves: Sequence[Any], values: Sequence[Value | None], in_tree: Any) -> TypeError:
        paths, _ = jax.tree_util.tree_flatten_with_path(jax.tree_util.tree_unflatten(in_tree, range(len(leaves))))
        for leaf, value, (path, _) in zip(leaves, values, paths, strict=True):
            if value is None:
                try:
                    hash(leaf)
                except TypeError:
                    (which, *rest) = path
                    return TypeError(
                        f"from_jax: in the {'keyword' if which.idx else 'positional'} arguments of {self._name}, "
                        f"{jax.tree_util.keystr(tuple(rest))} is no array, so that a program is traced for it, but it "
                        f"can't be hashed: {leaf!r} of type {type(leaf).__name__}. Let the function close over it, or "
                        "register its type with jax.tree_util if it holds arrays"
                    )
        return TypeError(f"from_jax: the structure of the arguments of {self._name} can't be hashed: {in_tree}")

    @property
    @override
    def options(self) -> tuple[object, ...]:
        return (dict(self._rules),)


def _captured_arrays(fun: object, seen: set[object]) -> Iterator[tuple[str, Value]]:
    """The arrays of tracefx that a function has from around it, with their names there; those it calls have, too."""
    if not isinstance(fun, FunctionType) or fun in seen:
        return
    seen.add(fun)
    around = {name: fun.__globals__[name] for name in fun.__code__.co_names if name in fun.__globals__}
    for name, cell in zip(fun.__code__.co_freevars, fun.__closure__ or (), strict=True):
        with suppress(ValueError):  # nothing is in the cell yet
            around[name] = cell.cell_contents
    for name, value in around.items():
        if isinstance(value, Value) and isinstance(value, Array):
            yield name, value
        yield from _captured_arrays(value, seen)


def _leaf_value(leaf: object) -> Value | None:
    """A leaf as a value, if it is an array of any kind. Python numbers are none: the function gets them as they are."""
    if isinstance(leaf, Array | Literal | np.ndarray | np.generic):
        return as_value(leaf)
    return as_tracefx(leaf) if isinstance(leaf, jax.Array) else None


def _static(leaf: object) -> Hashable:
    return strict_key(leaf)


def from_jax(fun: Callable[P, R], *, rules: Mapping[str, UserImportRule] | None = None) -> Callable[P, R]:
    """`fun`, which is written with JAX, as a function of tracefx: transformations and handlers see all that it does.

    JAX traces it once for each kind of arguments, and what it finds is done by the operations of tracefx under the
    handlers that are in force. Arguments and results are trees of JAX's: what Flax, Equinox and Optax have registered.
    Leaves that are arrays are traced. All others, Python's numbers too, are handed to the function as they are: one is
    traced for each of their values, which have to be hashable. Derivatives that the function defines are kept, as are
    the names of what it calls and the lines where it was written. With `tracefx.enable_x64` JAX computes with 64 bits
    too.

    Of JAX's primitives nearly all are operations here, and those of other libraries do what their implementation does
    in JAX, by the rules that they have there. `rules` says what others do, by their names: functions of arrays, and by
    keyword of the parameters that JAX gives, to an array or several.

    The function is one of arrays: what it changes or looks up outside of them is what was there when it was traced, as
    with `jax.jit`. Raises MissingRuleError for a primitive without a counterpart, TypeError for an argument that is no
    array and can't be hashed.

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
