"""Tracing of users' functions, and the trace cache shared by `jit`, control flow and everything else that traces."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, Self, final

from attrs import evolve, frozen
from typing_extensions import TypeVar

from tracefx.core.avals import ShapedArray
from tracefx.core.backend import BACKEND
from tracefx.core.bounded_cache import BoundedCache, CachePerObject
from tracefx.core.handler import ROOT, NamedAxis, Tracer, current
from tracefx.core.jaxpr import ClosedJaxpr, Jaxpr
from tracefx.core.settings import X64
from tracefx.core.source_location import SOURCE, here
from tracefx.core.values import ConcreteArray, Value
from tracefx.interpreters.batch import spmd_axes
from tracefx.interpreters.stage import stage
from tracefx.pytrees.trees import TreeDef, show_structure
from tracefx.shardings.meshes import MESH, Mesh
from tracefx.transforms.arguments import flatten_values, output_label, to_arrays
from tracefx.transforms.static_arguments import StaticArgument

R = TypeVar("R", default=Any)


@final
@frozen(eq=False)
class Trace(Generic[R]):
    """The result of tracing a function for one structure and one set of types of its arguments.

    `jaxpr` has no constants: its inputs are `consts`, the values that the function closes over, then the leaves of the
    arguments. `out_tree` is the structure of the output, which has the type `R`.
    """

    jaxpr: Jaxpr
    consts: tuple[Value, ...]
    out_tree: TreeDef
    name: str

    def output(self, leaves: Iterable[object]) -> R:
        """Returns the output of the function that has these leaves."""
        out: R = self.out_tree.unflatten(leaves)
        return out

    def with_aliased_consts(self) -> Self:
        """Returns the trace with constants that stay valid when the arrays it closes over are deleted or donated."""
        consts = [c.alias() if isinstance(c, ConcreteArray) else c for c in self.consts]
        return evolve(self, consts=tuple(consts)) if consts else self

    def warn_of_unusable_donations(self, donated: tuple[int, ...], keep_unused: bool, names: Sequence[str]) -> None:
        """Warns, at the user's line, of donated arguments whose memory no result can reuse.

        Args:
            donated: The indices of the donated inputs of the program.
            keep_unused: Whether the compiled program keeps inputs that it does not use.
            names: The names of the leaves of the arguments.
        """
        unusable = BACKEND.value.unusable_donations(self.jaxpr, donated, keep_unused) if donated else ()
        if unusable:
            line = here()
            described = ", ".join([f"{names[i - len(self.consts)]} ({self.jaxpr.in_avals[i]})" for i in unusable])
            message = (
                f"Some donated buffers were not usable: {described}. A donated buffer can only become the memory of a "
                f"result of the same shape and dtype, and {self.name} has no such result left: do not donate the "
                "argument"
            )
            warnings.warn_explicit(message, UserWarning, line.file, line.line)

    def closed(self) -> ClosedJaxpr:
        """Returns the program with the closed-over values as constants."""
        n, jaxpr = len(self.consts), self.jaxpr
        return ClosedJaxpr(evolve(jaxpr, constvars=jaxpr.invars[:n], invars=jaxpr.invars[n:]), self.consts)


class TraceKey(NamedTuple):
    """The key of a trace in the cache: everything that a trace depends on except the function.

    It is a tuple, so that a lookup runs no Python code of tracefx.
    """

    in_tree: TreeDef
    avals: tuple[ShapedArray, ...]
    statics: tuple[StaticArgument, ...]
    x64: bool
    axes: tuple[tuple[Hashable, NamedAxis], ...]
    """The axis environment."""
    mesh: Mesh
    """The mesh in use, which partition specifications refer to."""
    spmd: tuple[str, ...] = ()
    """The mesh axes of `spmd_axis_name` of each enclosing `vmap`, which `shard_map` reads."""

    def without_weak_types(self) -> TraceKey:
        """Returns the key for strongly typed arguments."""
        return self._replace(avals=tuple([a.strong() for a in self.avals]))

    def difference(self, new: TraceKey, names: Sequence[str]) -> str:
        """Describes how `new` differs from this key; `names` are the names of the leaves of the arguments."""
        parts = []
        if self.in_tree != new.in_tree:
            old_structure, new_structure = show_structure(self.in_tree), show_structure(new.in_tree)
            parts.append(f"the structure of the arguments was {old_structure} and is {new_structure}")
        else:
            leaves = zip(names, self.avals, new.avals, strict=True)
            parts += [f"{name} was {a!r} and is {b!r}" for name, a, b in leaves if a != b]
        if [s.key for s in self.statics] != [s.key for s in new.statics]:
            parts.append(f"the static arguments were {_show_keys(self.statics)} and are {_show_keys(new.statics)}")
        else:
            pairs = zip(self.statics, new.statics, strict=True)
            parts += [f"the static argument {a.key!r} was {a.value!r} and is {b.value!r}" for a, b in pairs if a != b]
        if self.x64 != new.x64:
            parts.append(f"enable_x64 was {self.x64} and is {new.x64}")
        if self.axes != new.axes:
            parts.append(f"the named axes in scope were {_show_axes(self.axes)} and are {_show_axes(new.axes)}")
        if self.spmd != new.spmd:
            parts.append(f"spmd_axis_name of the enclosing vmap was {self.spmd} and is {new.spmd}")
        if self.mesh != new.mesh:
            parts.append(f"the mesh in use was {self.mesh} and is {new.mesh}")
        return "; ".join(parts)


def _show_keys(statics: Sequence[StaticArgument]) -> str:
    return ", ".join(repr(s.key) for s in statics) or "none"


def _show_axes(axes: Sequence[tuple[Hashable, NamedAxis]]) -> str:
    shown = [f"{name!r}: {axis.size}{', checked' if axis.check_vma else ''}" for name, axis in axes]
    return f"{{{', '.join(shown)}}}"


def trace_key(in_tree: TreeDef, avals: tuple[ShapedArray, ...], statics: tuple[StaticArgument, ...]) -> TraceKey:
    """Returns the key of a trace made here."""
    handler = current()
    if handler is ROOT:
        return TraceKey(in_tree, avals, statics, X64.value, (), MESH.value)
    axes = tuple(handler.axes.items())
    return TraceKey(in_tree, avals, statics, X64.value, axes, MESH.value, spmd_axes(handler))


def trace(
    f: Callable[..., Any],
    in_tree: TreeDef,
    avals: tuple[ShapedArray, ...],
    origins: Sequence[str] | None,
    name: str,
    title: str = "jit",
) -> Trace:
    """Traces a function.

    Args:
        f: The function.
        in_tree: The structure of its arguments, `(args, kwargs)`.
        avals: The types of the leaves of the arguments.
        origins: The names of these leaves, for messages.
        name: The name of the function, for messages and programs.
        title: The name of the transformation that traces it, for messages.
    """
    out_tree: TreeDef | None = None

    def flat(*values: Value) -> list[Value]:
        nonlocal out_tree
        args, kwargs = in_tree.unflatten(to_arrays(values))
        outs, out_tree = flatten_values(f(*args, **kwargs), output_label(f))
        return outs

    # The caller may be a rule, with the location of an equation; and scopes belong to the call, not to the trace.
    token = SOURCE.set(None)
    try:
        jaxpr, consts = stage(flat, avals, current(), origins, title)
    finally:
        SOURCE.reset(token)
    assert out_tree is not None
    return Trace(jaxpr.closed(), tuple(consts), out_tree, name)


MAX_TRACES: Final = 1024  # per function
TRACES: Final = CachePerObject[Callable[..., Any], tuple[TraceKey, Hashable], Trace](MAX_TRACES)
"""The traces of each function. They die with the function."""


def cache_trace(
    traces: BoundedCache[tuple[TraceKey, Hashable], Trace], key: tuple[TraceKey, Hashable], new: Trace
) -> Trace:
    """Caches a trace, unless it closes over a tracer. Returns the trace in the cache."""
    return new if any(isinstance(c, Tracer) for c in new.consts) else traces.insert(key, new)
