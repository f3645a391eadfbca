"""Traces of users' functions, and the cache of them that `jit` and everything that carries a program share."""

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
    """A function traced for one kind of arguments.

    `jaxpr` has no constants: its inputs are the values the function closed over, `consts`, then the arguments' leaves.
    """

    jaxpr: Jaxpr
    consts: tuple[Value, ...]
    out_tree: TreeDef
    name: str

    def closed(self) -> ClosedJaxpr:
        """The program with its constants apart from its inputs."""
        n, jaxpr = len(self.consts), self.jaxpr
        return ClosedJaxpr(evolve(jaxpr, constvars=jaxpr.invars[:n], invars=jaxpr.invars[n:]), self.consts)


class TraceKey(NamedTuple):
    """All that a trace depends on beside the function. A tuple, so that looking one up runs no Python of ours."""

    in_tree: TreeDef
    avals: tuple[ShapedArray, ...]
    statics: tuple[StaticArgument, ...]
    x64: bool
    axes: tuple[tuple[Hashable, int], ...]
    mesh: Mesh
    """The one in use, which says what specifications mean."""
    checked: tuple[str, ...] = ()
    """Those of the named axes along which it is noted of values where they may differ."""
    along: tuple[Axes, ...] | None = None
    """Along which of them the leaves do; unsaid, along all."""
    spmd: tuple[str, ...] = ()
    """The axes of a mesh that each `vmap` in force gives its batch by `spmd_axis_name`: `shard_map` reads them."""

    def difference(self, new: TraceKey, names: Sequence[str]) -> str:
        """What differs in `new`, in words; `names` are what to call the leaves of our arguments."""
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
            parts.append("the axes of the mesh along which values may differ from device to device are others")
        if self.spmd != new.spmd:
            parts.append(f"spmd_axis_name of the vmap in force was {self.spmd} and is {new.spmd}")
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
    """What a trace here depends on; `along` says of the leaves along which axes of a mesh they may differ."""
    handler = current()
    if handler is ROOT:
        return TraceKey(in_tree, avals, statics, X64.value, (), MESH.value)
    checked = tuple(handler.checked)
    known = along() if along is not None and checked else None
    axes = tuple(handler.axes.items())
    return TraceKey(in_tree, avals, statics, X64.value, axes, MESH.value, checked, known, spmd_axes(handler))


def along(values: Sequence[Value]) -> Callable[[], tuple[Axes, ...]]:
    """Along which axes of a mesh values may differ, found out where somebody asks."""
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
    """Trace `f`, which takes the tree of arguments `(args, kwargs)` that `in_tree` builds.

    Messages call the function `name`, and what it is traced for `title`. `along` says of the arguments along which axes
    of a mesh they may differ; unsaid, it is all that are checked.
    """
    out_tree: TreeDef | None = None

    def flat(*values: Value) -> list[Value]:
        nonlocal out_tree
        args, kwargs = in_tree.unflatten(to_arrays(values))
        outs, out_tree = flatten_values(f(*args, **kwargs), f"the output of {fun_name(f)}")
        return outs

    # A rule may be what calls the function, and the next call may come from other scopes: those are the call's.
    token, scopes = EQN_LOCATION.set(None), NAMED_SCOPES.set(())
    try:
        jaxpr, consts = stage(flat, avals, current(), origins, title, along)
    finally:
        EQN_LOCATION.reset(token)
        NAMED_SCOPES.reset(scopes)
    assert out_tree is not None
    return Trace(jaxpr.closed(), tuple(consts), out_tree, name)


Traces: TypeAlias = dict[tuple[TraceKey, Hashable], Trace]
MAX_TRACES: Final = 1024  # of arguments that a function is known for at a time


@final
class TraceCache:
    """Traces by function and signature. They die with the function; one that closed over a tracer is not kept."""

    __slots__ = ("_by_function", "_lock")

    def __init__(self) -> None:
        self._by_function: WeakKeyDictionary[Callable[..., Any], Traces] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def traces(self, f: Callable[..., Any]) -> Traces:
        """The traces kept for a function; a function that can't be a weak key has none but its caller's."""
        try:
            with self._lock:
                return self._by_function.setdefault(f, {})
        except TypeError:
            return {}


TRACES: Final = TraceCache()


def is_cacheable(trace: Trace) -> bool:
    return not any(isinstance(c, Tracer) for c in trace.consts)
