"""Tracing of users' functions, and the trace cache shared by `jit`, control flow and everything else that traces."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, final
from weakref import WeakKeyDictionary

from attrs import evolve, frozen

from tracefx.core.avals import Axes, ShapedArray
from tracefx.core.handler import ROOT, Tracer, current, varies
from tracefx.core.jaxpr import ClosedJaxpr, Jaxpr
from tracefx.core.settings import X64
from tracefx.core.source_location import EQN_LOCATION, NAMED_SCOPES
from tracefx.core.values import Value
from tracefx.interpreters.batch import spmd_axes
from tracefx.interpreters.stage import stage
from tracefx.pytrees.trees import TreeDef
from tracefx.shardings.meshes import MESH, Mesh
from tracefx.transforms.arguments import flatten_values, fun_name, to_arrays
from tracefx.transforms.static_arguments import StaticArgument


@final
@frozen(eq=False)
class Trace:
    """The result of tracing a function for one structure and one set of types of its arguments.

    `jaxpr` has no constants: its inputs are `consts`, the values that the function closes over, then the leaves of the
    arguments. `out_tree` is the structure of the output.
    """

    jaxpr: Jaxpr
    consts: tuple[Value, ...]
    out_tree: TreeDef
    name: str

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
    axes: tuple[tuple[Hashable, int], ...]
    mesh: Mesh
    """The mesh in use, which partition specifications refer to."""
    checked: tuple[str, ...] = ()
    """The named mesh axes along which varying-ness is checked."""
    along: tuple[Axes, ...] | None = None
    """The checked axes along which each leaf varies; None means along all."""
    spmd: tuple[str, ...] = ()
    """The mesh axes of `spmd_axis_name` of each enclosing `vmap`, which `shard_map` reads."""

    def difference(self, new: TraceKey, names: Sequence[str]) -> str:
        """Describes how `new` differs from this key; `names` are the names of the leaves of the arguments."""
        parts = []
        if self.in_tree != new.in_tree:
            parts.append(f"the structure of the arguments was {self.in_tree} and is {new.in_tree}")
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
            parts.append(f"the named axes in scope were {dict(self.axes)} and are {dict(new.axes)}")
        if (self.checked, self.along) != (new.checked, new.along):
            parts.append("the mesh axes along which values vary are different")
        if self.spmd != new.spmd:
            parts.append(f"spmd_axis_name of the enclosing vmap was {self.spmd} and is {new.spmd}")
        if self.mesh != new.mesh:
            parts.append(f"the mesh in use was {self.mesh} and is {new.mesh}")
        return "; ".join(parts)


def _show_keys(statics: Sequence[StaticArgument]) -> str:
    return ", ".join(repr(s.key) for s in statics) or "none"


def trace_key(
    in_tree: TreeDef,
    avals: tuple[ShapedArray, ...],
    statics: tuple[StaticArgument, ...],
    along: Callable[[], tuple[Axes, ...]] | None = None,
) -> TraceKey:
    """Returns the key of a trace made here. `along` returns the mesh axes along which each leaf varies."""
    handler = current()
    if handler is ROOT:
        return TraceKey(in_tree, avals, statics, X64.value, (), MESH.value)
    checked = tuple(handler.checked)
    known = along() if along is not None and checked else None
    axes = tuple(handler.axes.items())
    return TraceKey(in_tree, avals, statics, X64.value, axes, MESH.value, checked, known, spmd_axes(handler))


def along(values: Sequence[Value]) -> Callable[[], tuple[Axes, ...]]:
    """Returns a function that computes the mesh axes along which each value varies; it is called only if needed."""
    return lambda: tuple(map(varies, values))


def trace(
    f: Callable[..., Any],
    in_tree: TreeDef,
    avals: tuple[ShapedArray, ...],
    origins: Sequence[str] | None,
    name: str,
    title: str = "jit",
    along: Sequence[Axes] | None = None,
) -> Trace:
    """Traces a function.

    Args:
        f: The function.
        in_tree: The structure of its arguments, `(args, kwargs)`.
        avals: The types of the leaves of the arguments.
        origins: The names of these leaves, for messages.
        name: The name of the function, for messages and programs.
        title: The name of the transformation that traces it, for messages.
        along: The mesh axes along which each leaf varies; by default all checked axes.
    """
    out_tree: TreeDef | None = None

    def flat(*values: Value) -> list[Value]:
        nonlocal out_tree
        args, kwargs = in_tree.unflatten(to_arrays(values))
        outs, out_tree = flatten_values(f(*args, **kwargs), f"the output of {fun_name(f)}")
        return outs

    # The caller may be a rule, with the location of an equation; and scopes belong to the call, not to the trace.
    token, scopes = EQN_LOCATION.set(None), NAMED_SCOPES.set(())
    try:
        jaxpr, consts = stage(flat, avals, current(), origins, title, along)
    finally:
        EQN_LOCATION.reset(token)
        NAMED_SCOPES.reset(scopes)
    assert out_tree is not None
    return Trace(jaxpr.closed(), tuple(consts), out_tree, name)


Traces: TypeAlias = dict[tuple[TraceKey, Hashable], Trace]
MAX_TRACES: Final = 1024  # per function


@final
class TraceCache:
    """Traces by function and key. They die with the function. Traces that closed over a tracer are not cached."""

    __slots__ = ("_by_function", "_lock")

    def __init__(self) -> None:
        self._by_function: WeakKeyDictionary[Callable[..., Any], Traces] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def traces(self, f: Callable[..., Any]) -> Traces:
        """Returns the traces of a function; an empty dict if the function has no weak references."""
        try:
            with self._lock:
                return self._by_function.setdefault(f, {})
        except TypeError:
            return {}


TRACES: Final = TraceCache()


def is_cacheable(trace: Trace) -> bool:
    """Whether a trace may be cached: it closes over no tracers."""
    return not any(isinstance(c, Tracer) for c in trace.consts)
