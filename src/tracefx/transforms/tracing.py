"""Tracing of users' functions, and the trace cache shared by `jit`, control flow and everything else that traces."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, Self, final

from attrs import evolve, frozen
from typing_extensions import TypeVar

from tracefx.bounded_cache import BoundedCache, CachePerObject
from tracefx.core import ConcreteArray, ShapedArray, Value
from tracefx.core.backend import BACKEND
from tracefx.core.handler import ROOT, NamedAxis, Tracer, as_array, current
from tracefx.core.jaxpr import ClosedJaxpr, Jaxpr
from tracefx.core.meshes import MESH, BaseMesh
from tracefx.errors import RefError
from tracefx.interpreters.batch import spmd_axes
from tracefx.interpreters.refs import Ref
from tracefx.interpreters.stage import stage_with_refs
from tracefx.pytrees.trees import TreeDef, show_structure
from tracefx.settings import NUMERIC_OPTIONS, X64, NumericOptions
from tracefx.source_location import SOURCE, here
from tracefx.transforms.arguments import flatten_values, output_label, to_arrays
from tracefx.transforms.static_arguments import StaticArgument

R = TypeVar("R", default=Any)


@final
@frozen(eq=False)
class Trace(Generic[R]):
    """The result of tracing a function for one structure and one set of types of its arguments.

    `jaxpr` has no constants: its inputs are `consts`, the values that the function closes over, then the leaves of the
    arguments. `out_tree` is the structure of the output, which has the type `R`.

    The contents of references that the function closes over are the last of `consts`: first those of `read`, then those
    of `written`. The first outputs of `jaxpr` are the new contents of `written` and of `written_arguments`.
    """

    jaxpr: Jaxpr
    constants: tuple[Value, ...]
    out_tree: TreeDef
    name: str
    read: tuple[Ref, ...] = ()
    """The references that the function closes over and only reads."""
    written: tuple[Ref, ...] = ()
    """The references that the function closes over and writes."""
    ref_arguments: tuple[int, ...] = ()
    """The leaves of the arguments that are references."""
    written_arguments: tuple[int, ...] = ()
    """The references among the arguments that the function writes, by their numbers in `ref_arguments`."""

    @property
    def consts(self) -> tuple[Value, ...]:
        """The values that the function closes over, with the current contents of references."""
        if not self.closes_over_refs:
            return self.constants
        return (*self.constants, *[ref[...] for ref in (*self.read, *self.written)])

    @property
    def closed_over(self) -> tuple[Value | Ref, ...]:
        """The sources of `consts`: values and references."""
        return (*self.constants, *self.read, *self.written)

    @property
    def closes_over_refs(self) -> bool:
        """Whether the function closes over references."""
        return bool(self.read or self.written)

    @property
    def uses_refs(self) -> bool:
        """Whether the function has references as arguments or closes over references."""
        return bool(self.ref_arguments) or self.closes_over_refs

    @property
    def ref_outputs(self) -> int:
        """The number of outputs of the program that are new contents of references."""
        return len(self.written) + len(self.written_arguments)

    @property
    def out_avals(self) -> tuple[ShapedArray, ...]:
        """The types of the leaves of the function's output."""
        return self.jaxpr.out_avals[self.ref_outputs :]

    def write_refs(self, outs: Sequence[Value], arguments: Sequence[Ref] = ()) -> Sequence[Value]:
        """Writes the new contents of references, and returns the leaves of the function's output.

        Args:
            outs: The outputs of the program.
            arguments: The arguments that are references.
        """
        if not self.ref_outputs:
            return outs
        refs = [*self.written, *[arguments[i] for i in self.written_arguments]]
        for ref, contents in zip(refs, outs, strict=False):
            ref[...] = contents
        return outs[self.ref_outputs :]

    def output(self, leaves: Iterable[object]) -> R:
        """Returns the output of the function that has these leaves."""
        out: R = self.out_tree.unflatten(leaves)
        return out

    def with_aliased_consts(self) -> Self:
        """Returns the trace with constants that stay valid when the arrays it closes over are deleted or donated."""
        consts = [c.alias() if isinstance(c, ConcreteArray) else c for c in self.constants]
        return evolve(self, constants=tuple(consts)) if consts else self

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
    mesh: BaseMesh
    """The mesh in use, which partition specifications refer to."""
    spmd: tuple[str, ...] = ()
    """The mesh axes of `spmd_axis_name` of each enclosing `vmap`, which `shard_map` reads."""
    refs: tuple[int, ...] = ()
    """The leaves that are references, whose contents have the types in `avals`."""
    options: NumericOptions = NUMERIC_OPTIONS.default

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
            parts += [
                f"{names[i]} was {'an array' if i in new.refs else 'a reference'} and is "
                f"{'a reference' if i in new.refs else 'an array'}"
                for i in sorted({*self.refs} ^ {*new.refs})
            ]
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
        if self.options is not new.options:
            parts.append(f"the options were {self.options} and are {new.options}")
        if self.mesh != new.mesh:
            parts.append(f"the mesh in use was {self.mesh} and is {new.mesh}")
        return "; ".join(parts)


def _show_keys(statics: Sequence[StaticArgument]) -> str:
    return ", ".join(repr(s.key) for s in statics) or "none"


def _show_axes(axes: Sequence[tuple[Hashable, NamedAxis]]) -> str:
    shown = [f"{name!r}: {axis.size}{', checked' if axis.check_vma else ''}" for name, axis in axes]
    return f"{{{', '.join(shown)}}}"


def trace_key(
    in_tree: TreeDef,
    avals: tuple[ShapedArray, ...],
    statics: tuple[StaticArgument, ...],
    refs: tuple[int, ...] = (),
) -> TraceKey:
    """Returns the key of a trace made here."""
    handler, options = current(), NUMERIC_OPTIONS.value
    if handler is ROOT:
        return TraceKey(in_tree, avals, statics, X64.value, (), MESH.value, (), refs, options)
    axes = tuple(handler.axes.items())
    return TraceKey(in_tree, avals, statics, X64.value, axes, MESH.value, spmd_axes(handler), refs, options)


def trace(
    f: Callable[..., Any],
    in_tree: TreeDef,
    avals: tuple[ShapedArray, ...],
    origins: Sequence[str] | None,
    name: str,
    title: str = "jit",
    *,
    writes_refs: bool = False,
    refs: tuple[int, ...] = (),
) -> Trace:
    """Traces a function.

    Args:
        f: The function.
        in_tree: The structure of its arguments, `(args, kwargs)`.
        avals: The types of the leaves of the arguments.
        origins: The names of these leaves, for messages.
        name: The name of the function, for messages and programs.
        title: The name of the transformation that traces it, for messages.
        writes_refs: Whether the caller writes references back (`Trace.write_refs`). Otherwise the function may only
            read those that it closes over.
        refs: The leaves of the arguments that are references.
    """
    out_tree: TreeDef | None = None
    written_arguments: tuple[int, ...] = ()

    def flat(*values: Value) -> list[Value]:
        nonlocal out_tree, written_arguments
        leaves = to_arrays(values)
        arguments = {i: Ref(as_array(values[i]), origins[i] if origins else f"argument {i}") for i in refs}
        args, kwargs = in_tree.unflatten([arguments.get(i, leaf) for i, leaf in enumerate(leaves)])
        outs, out_tree = flatten_values(f(*args, **kwargs), output_label(f))
        contents = [ref[...] for ref in arguments.values()]
        written_arguments = tuple([n for n, i in enumerate(refs) if contents[n] is not leaves[i]])
        return [*[contents[n] for n in written_arguments], *outs]

    # The caller may be a rule, with the location of an equation; and scopes belong to the call, not to the trace.
    token = SOURCE.set(None)
    try:
        jaxpr, consts, read, written = stage_with_refs(flat, avals, current(), origins, title)
    finally:
        SOURCE.reset(token)
    assert out_tree is not None
    if written and not writes_refs:
        raise RefError(
            f"{written[0].description} is written in {name}, which {title} traces: functions under {title} may only "
            "read references from outside. Return the new contents"
        )
    return Trace(jaxpr, tuple(consts), out_tree, name, read, written, refs, written_arguments)


MAX_TRACES: Final = 1024  # per function
TRACES: Final = CachePerObject[Callable[..., Any], tuple[TraceKey, Hashable], Trace](MAX_TRACES)
"""The traces of each function. They die with the function."""


def cache_trace(
    traces: BoundedCache[tuple[TraceKey, Hashable], Trace], key: tuple[TraceKey, Hashable], new: Trace
) -> Trace:
    """Caches a trace, unless it closes over a tracer, or a reference of an outer trace. Returns the cached trace."""
    if any(isinstance(c, Tracer) for c in new.constants) or any(ref.is_local for ref in (*new.read, *new.written)):
        return new
    return traces.insert(key, new)


def check_not_closed_over(where: str, arguments: Sequence[Ref], traced: Trace) -> None:
    """Raises RefError if an argument of a traced function is a reference that the function also closes over.

    `where` is the name of the arguments in messages.
    """
    for ref in arguments if traced.closes_over_refs else ():
        if ref in traced.read or ref in traced.written:
            raise RefError(f"{where}: {ref.description} is also closed over by the function: use the argument only")
