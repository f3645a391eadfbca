"""Operations that call a Python function on the host: `pure_callback`, `io_callback`, `debug_callback`, `debug_print`.

The function gets tracefx arrays, which convert to NumPy's, in the structure that the user gave them. It runs outside
all transformations, with the settings that were in force where the operation was traced, perhaps in another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MethodType
from typing import Literal as OneOf
from typing import TypeAlias, final

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import NDArray
from tracefx.core.effects import DebugEffect, Effects, IOEffect
from tracefx.core.equality import StrictlyEqual
from tracefx.core.handler import CURRENT, ROOT, bind
from tracefx.core.host_memory import aligned_empty, read_only_copy
from tracefx.core.primitive import (
    Batchable,
    Differentiable,
    MappedAxis,
    Primitive,
    Tangent,
    Transposable,
    UndefinedPrimal,
)
from tracefx.core.settings import X64
from tracefx.core.values import ConcreteArray, Value, to_numpy
from tracefx.lowering import Builder, IrValue, Lowerable
from tracefx.ops.structural import broadcast_in_dim, move_axis
from tracefx.pytrees import trees
from tracefx.pytrees.trees import TreeDef, keystr
from tracefx.text.printer import callable_name

# ------------------------------------------------------------------ the function


@final
@frozen(eq=False)
class FlatCallback(StrictlyEqual):
    """A user's function of trees, and what it takes to call it with a list of arrays.

    Equal if it is the same function in the same structures. Without an `out_tree` its result is ignored. Leaves of its
    arguments that are no arrays are `static`, by their place.
    """

    function: Callable[..., object]
    in_tree: TreeDef
    # The rest is left out of the text of programs, which would say little of it and at length.
    out_tree: TreeDef | None = field(eq=False, repr=False)
    x64: bool = field(eq=False, repr=False)
    static: tuple[tuple[int, object], ...] = field(default=(), eq=False, repr=False)

    def __call__(
        self, arrays: Sequence[ConcreteArray], results: Sequence[ShapedArray], caller: str
    ) -> list[ConcreteArray]:
        """What the function gives for these arrays, which must be of these types. `caller` is for errors to tell."""
        static, given = dict(self.static), iter(arrays)
        leaves = [static[i] if i in static else next(given) for i in range(self.in_tree.num_leaves)]
        args, kwargs = self.in_tree.unflatten(leaves)
        token = CURRENT.set(ROOT)
        try:
            with X64.override(self.x64):
                result = self.function(*args, **kwargs)
                return [] if self.out_tree is None else self._checked(result, self.out_tree, results, caller)
        finally:
            CURRENT.reset(token)

    def _checked(
        self, tree: object, out_tree: TreeDef, results: Sequence[ShapedArray], caller: str
    ) -> list[ConcreteArray]:
        where = f"{caller}: what {callable_name(self.function)} gave"
        leaves, given = trees.flatten(tree)
        if len(leaves) != len(results):
            raise TypeError(f"{where} has the structure {given}, but result_shape_dtypes has {out_tree}")
        arrays = []
        for i, (leaf, aval) in enumerate(zip(leaves, results, strict=True)):
            array = _as_result(leaf, aval)
            if array is None:
                path, _ = trees.flatten_with_path(out_tree.unflatten(range(len(results))))[0][i]
                got = np.asarray(leaf)
                raise TypeError(
                    f"{where}{' at ' if path else ''}{keystr(path)} is {got.dtype.name}{list(got.shape)}, but "
                    f"result_shape_dtypes{keystr(path)} is {aval.dtype.name}{list(aval.shape)}"
                )
            arrays.append(array)
        return arrays

    @override
    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, FlatCallback)
            and _is_same_function(self.function, other.function)
            and (self.in_tree, self.out_tree, self.x64) == (other.in_tree, other.out_tree, other.x64)
            and not self.static
            and not other.static
        )

    @override
    def __hash__(self) -> int:
        return hash((_function_identity(self.function), self.in_tree, self.out_tree, self.x64))


def _function_identity(f: Callable[..., object]) -> int:
    """The same for equal functions. A method is made anew each time an object is asked for it."""
    return hash((id(f.__self__), id(f.__func__))) if isinstance(f, MethodType) else id(f)


def _is_same_function(f: Callable[..., object], g: Callable[..., object]) -> bool:
    if isinstance(f, MethodType) and isinstance(g, MethodType):
        return f.__self__ is g.__self__ and f.__func__ is g.__func__
    return f is g


def _as_result(leaf: object, aval: ShapedArray) -> ConcreteArray | None:
    """A result as an array of the type it must have; `None` if it has another.

    64-bit numbers narrow as they do everywhere when they come in; Python's own take any dtype of their kind.
    """
    if type(leaf) is ConcreteArray and (leaf.aval.shape, leaf.aval.dtype) == (aval.shape, aval.dtype):
        return leaf if leaf.aval == aval else ConcreteArray(aval, leaf.numpy())
    array = np.asarray(leaf)
    fits = array.dtype == aval.dtype or dtypes.canonicalize(array.dtype) == aval.dtype or _is_of_kind(leaf, aval)
    return ConcreteArray(aval, read_only_copy(array, aval.dtype)) if fits and array.shape == aval.shape else None


def _is_of_kind(leaf: object, aval: ShapedArray) -> bool:
    if type(leaf) is float:
        return dtypes.is_float(aval.dtype)
    if type(leaf) is int:
        return dtypes.is_integer(aval.dtype)
    return type(leaf) is complex and dtypes.is_complex(aval.dtype)


# ------------------------------------------------------------------ the operations


@final
@frozen
class CallbackBatch:
    """The function is called for each element of a batch, which the operands at `batched` differ along."""

    size: int
    batched: tuple[bool, ...]


@frozen(eq=False)
class CallbackPrimitive(Primitive, Differentiable, Batchable, Lowerable):
    """Calls `callback`, once for each element of the batches in `mapped`.

    The first of the batches is the outermost loop, the last one the first axis of the operands and results.
    """

    callback: FlatCallback
    batches: tuple[CallbackBatch, ...] = field(default=(), kw_only=True, metadata={"hide_default": True, "jax": False})

    def result_types(self) -> tuple[ShapedArray, ...]:
        """The types of the results of one call of the function."""
        return ()

    @property
    def runs_per_shard(self) -> bool:
        """Whether each device is to call with its parts."""
        return False

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        sizes = tuple([each.size for each in reversed(self.batches)])
        return [ShapedArray((*sizes, *a.shape), a.dtype) for a in self.result_types()]

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return self.run([a if type(a) is ConcreteArray else ConcreteArray(a.aval, to_numpy(a)) for a in args])

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        avals = [x.aval for x in operands]
        by_parts = self.runs_per_shard and not self.batches  # the elements of a batch are whole

        def call(*arrays: NDArray) -> list[NDArray]:
            # Of operands that are parts the shapes are others.
            types = [aval.update(shape=x.shape) for aval, x in zip(avals, arrays, strict=True)] if by_parts else avals
            return [out.numpy() for out in self.run(list(map(ConcreteArray, types, arrays)))]

        does = any(e.observable for e in self.effects)
        return builder.host_call(call, operands, self.abstract_eval(*avals), does, by_parts)

    def run(self, args: Sequence[ConcreteArray]) -> Sequence[ConcreteArray]:
        """Call the function now, for all elements."""
        if not self.batches:
            return self.callback(args, self.result_types(), self.name)
        results = self.abstract_eval()
        outs = [aligned_empty(a.shape, a.dtype) for a in results]
        for place in np.ndindex(*[each.size for each in self.batches]):
            element = [self._element(x, k, place) for k, x in enumerate(args)]
            for out, result in zip(outs, self.callback(element, self.result_types(), self.name), strict=True):
                out[place[::-1]] = result.numpy()
        for out in outs:
            out.flags.writeable = False
        return list(map(ConcreteArray, results, outs))

    def _element(self, x: ConcreteArray, k: int, place: Sequence[int]) -> ConcreteArray:
        """What the call at `place` gets of operand number `k`."""
        index = tuple([i for i, each in zip(place, self.batches, strict=True) if each.batched[k]][::-1])
        aval = ShapedArray(x.aval.shape[len(index) :], x.aval.dtype, x.aval.weak_type)
        return ConcreteArray(aval, np.asarray(x.numpy()[index]))

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        each = CallbackBatch(axis.size, tuple([d is not None for d in dims]))
        outs = bind(evolve(self, batches=(*self.batches, each)), *move_batch_axes_first(args, dims))
        return outs, [0] * len(outs)


def move_batch_axes_first(args: Sequence[Value], dims: Sequence[int | None]) -> list[Value]:
    """Operands with the batch axis in front where they have it."""
    return [a if d is None else move_axis(a, d, 0) for a, d in zip(args, dims, strict=True)]


@frozen(eq=False)
class ValueCallback(CallbackPrimitive, Transposable):
    """A call whose results programs use, of which nobody knows the derivative."""

    result_avals: tuple[ShapedArray, ...]

    @override
    def result_types(self) -> tuple[ShapedArray, ...]:
        return self.result_avals

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        raise self._refusal("differentiated")

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        raise self._refusal("transposed")

    def _refusal(self, done: str) -> ValueError:
        return ValueError(
            f"{self.name} of {callable_name(self.callback.function)} cannot be {done}: what a Python function on the "
            "host does has no derivative. Call it in a function with tracefx.custom_jvp or tracefx.custom_vjp, which "
            "gives the derivative, or on tracefx.lax.stop_gradient(x) if it is to be zero"
        )


VmapMethod: TypeAlias = OneOf["sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized"]


@final
@frozen(eq=False)
class PureCallback(ValueCallback):
    """The results of a function that does nothing else, and so may be called more than once or not at all."""

    name = "pure_callback"
    vmap_method: VmapMethod | None = None

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        method = self.vmap_method
        if method is None:
            raise NotImplementedError(
                f"vmap of pure_callback of {callable_name(self.callback.function)}: say with vmap_method how the "
                f"function is to see the batch of {axis.size}: 'sequential' for one call for each element, "
                "'expand_dims' or 'broadcast_all' for one call with a leading axis"
            )
        if method == "sequential" or method == "sequential_unrolled":
            return super().batch(axis, args, dims)
        operands = move_batch_axes_first(args, dims)
        if method != "legacy_vectorized":
            size = axis.size if method == "broadcast_all" else 1
            operands = [_broadcast_batch(x, size) if d is None else x for x, d in zip(operands, dims, strict=True)]
        outs = bind(evolve(self, result_avals=tuple([a.with_axis(axis.size, 0) for a in self.result_avals])), *operands)
        return outs, [0] * len(outs)


def _broadcast_batch(x: Value, size: int) -> Value:
    return broadcast_in_dim(x, (size, *x.aval.shape), range(1, x.aval.ndim + 1))


@final
@frozen(eq=False)
class IOCallback(ValueCallback):
    """The results of a function that does something, once for each time the program gets there."""

    name = "io_callback"
    ordered: bool = False

    @property
    @override
    def effects(self) -> Effects:
        return frozenset({IOEffect(self.ordered)})

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        if self.ordered:
            raise ValueError(
                f"vmap of io_callback of {callable_name(self.callback.function)}: the elements of a batch have no "
                "order, but ordered=True asks for one; leave it out, or loop over the elements with tracefx.lax.map"
            )
        return super().batch(axis, args, dims)


@frozen(eq=False)
class DebugPrimitive(CallbackPrimitive):
    """A call that shows values, and changes nothing of what is computed."""

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        return bind(self, *primals), ()


@final
@frozen(eq=False)
class DebugCallback(DebugPrimitive):
    """A call of a function that shows its arguments."""

    name = "debug_callback"
    effect: DebugEffect
    partitioned: bool = False

    @property
    @override
    def runs_per_shard(self) -> bool:
        return self.partitioned

    @property
    @override
    def effects(self) -> Effects:
        return frozenset({self.effect})


@final
@frozen(eq=False)
class DebugPrint(DebugPrimitive):
    """Prints its operands as the format `fmt` says."""

    name = "debug_print"
    callback: FlatCallback = field(metadata={"jax": False})
    fmt: str
    ordered: bool = False
    partitioned: bool = False

    @property
    @override
    def runs_per_shard(self) -> bool:
        return self.partitioned

    @property
    @override
    def effects(self) -> Effects:
        return frozenset({DebugEffect(self.ordered)})
