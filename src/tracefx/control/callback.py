"""Primitives that call a Python function on the host: `pure_callback`, `io_callback`, `debug_callback`, `debug_print`.

The function receives tracefx arrays, which convert to NumPy arrays, in the pytree structure of the user's arguments. It
runs outside all transformations, with the settings of the point where the primitive was traced, possibly in another
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MethodType
from typing import Literal as OneOf
from typing import TypeAlias, final, get_args

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.core import ConcreteArray, NDArray, ShapedArray, Value, dtypes, to_numpy
from tracefx.core.effects import DebugEffect, Effects, IOEffect
from tracefx.core.equality import StrictlyEqual
from tracefx.core.handler import CURRENT, ROOT, bind
from tracefx.core.host_memory import aligned_empty, read_only_copy
from tracefx.core.named_sharding import Spec
from tracefx.core.primitive import (
    Batchable,
    BatchDims,
    Differentiable,
    MappedAxis,
    Primitive,
    Tangent,
    Transposable,
    UndefinedPrimal,
)
from tracefx.lowering import Builder, IrValue, Lowerable
from tracefx.ops.sharding_rules import unsharded_specs
from tracefx.ops.structural import broadcast_in_dim, move_axis
from tracefx.pytrees import trees
from tracefx.pytrees.trees import TreeDef, keystr
from tracefx.settings import X64
from tracefx.text.printer import callable_name

# ------------------------------------------------------------------ the function


@final
@frozen(eq=False)
class FlatCallback(StrictlyEqual):
    """A user's function of pytrees, with the structures needed to call it with a list of arrays.

    Two are equal if they hold the same function with the same structure of the arguments.

    Args:
        function: The user's function.
        in_tree: The structure of its arguments.
        out_tree: The structure of its result; `None` if the result is ignored.
        x64: The setting `enable_x64` for the call.
        static: The leaves of the arguments that are not arrays, with their indices. None by default.
    """

    function: Callable[..., object]
    in_tree: TreeDef
    # The other fields are not printed in jaxprs: their text is long and says little.
    out_tree: TreeDef | None = field(eq=False, repr=False)
    x64: bool = field(eq=False, repr=False)
    static: tuple[tuple[int, object], ...] = field(default=(), eq=False, repr=False)

    def __call__(
        self, arrays: Sequence[ConcreteArray], results: Sequence[ShapedArray], caller: str
    ) -> list[ConcreteArray]:
        """Calls the function with arrays, and checks that its results have the avals `results`.

        `caller` is the name of the primitive, for error messages.
        """
        static, remaining = dict(self.static), iter(arrays)
        leaves = [static[i] if i in static else next(remaining) for i in range(self.in_tree.num_leaves)]
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
        where = f"{caller}: the result of {callable_name(self.function)}"
        leaves, actual_tree = trees.flatten(tree)
        if len(leaves) != len(results):
            got, declared = trees.show_structure(actual_tree), trees.show_structure(out_tree)
            raise TypeError(f"{where} is {got}, but result_shape_dtypes is {declared}")
        arrays = []
        for i, (leaf, aval) in enumerate(zip(leaves, results, strict=True)):
            array = _as_result(leaf, aval)
            if array is None:
                path, _ = trees.flatten_with_path(out_tree.unflatten(range(len(results))))[0][i]
                actual = np.asarray(leaf)
                raise TypeError(
                    f"{where}{' at ' if path else ''}{keystr(path)} is {actual.dtype.name}{list(actual.shape)}, but "
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
    """Returns a hash that is the same for equal functions; a method is a new object at each access."""
    return hash((id(f.__self__), id(f.__func__))) if isinstance(f, MethodType) else id(f)


def _is_same_function(f: Callable[..., object], g: Callable[..., object]) -> bool:
    if isinstance(f, MethodType) and isinstance(g, MethodType):
        return f.__self__ is g.__self__ and f.__func__ is g.__func__
    return f is g


def _as_result(leaf: object, aval: ShapedArray) -> ConcreteArray | None:
    """Converts a result to an array with the given aval, or returns `None` if its shape or dtype differs.

    64-bit numbers are narrowed as everywhere at the boundary; Python numbers take any dtype of their kind.
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


# ------------------------------------------------------------------ the primitives


@final
@frozen
class CallbackBatch:
    """One level of `vmap` around a callback: the function is called for each batch element.

    Args:
        size: The size of the batch.
        batched: For each operand, whether it is batched.
    """

    size: int
    batched: tuple[bool, ...]


@frozen(eq=False)
class CallbackPrimitive(Primitive, Differentiable, Batchable, Lowerable):
    """Base of callback primitives: calls `callback` once for each element of the batches in `batches`.

    Args:
        callback: The function on the host.
        batches: The first of the batches is the outermost loop; the last one is the first axis of operands and
            results. None by default.
    """

    callback: FlatCallback
    batches: tuple[CallbackBatch, ...] = field(default=(), kw_only=True, metadata={"hide_default": True, "jax": False})

    def result_types(self) -> tuple[ShapedArray, ...]:
        """Returns the avals of the results of one call of the function."""
        return ()

    @property
    def runs_per_shard(self) -> bool:
        """Whether each device calls the function with its shards."""
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
        per_shard = self.runs_per_shard and not self.batches  # batch elements are not sharded

        def call(*arrays: NDArray) -> list[NDArray]:
            # The shapes of shards differ from those of the operands.
            types = [aval.update(shape=x.shape) for aval, x in zip(avals, arrays, strict=True)] if per_shard else avals
            return [out.numpy() for out in self.run(list(map(ConcreteArray, types, arrays)))]

        has_side_effect = any(e.observable for e in self.effects)
        return builder.host_call(call, operands, self.abstract_eval(*avals), has_side_effect, per_shard)

    def run(self, args: Sequence[ConcreteArray]) -> Sequence[ConcreteArray]:
        """Calls the function now, for all batch elements."""
        if not self.batches:
            return self.callback(args, self.result_types(), self.name)
        results = self.abstract_eval()
        outs = [aligned_empty(a.shape, a.dtype) for a in results]
        for index in np.ndindex(*[each.size for each in self.batches]):
            element = [self._element(x, k, index) for k, x in enumerate(args)]
            for out, result in zip(outs, self.callback(element, self.result_types(), self.name), strict=True):
                out[index[::-1]] = result.numpy()
        for out in outs:
            out.flags.writeable = False
        return list(map(ConcreteArray, results, outs))

    def _element(self, x: ConcreteArray, k: int, position: Sequence[int]) -> ConcreteArray:
        """Returns operand number `k` for the call at the batch index `position`."""
        index = tuple([i for i, each in zip(position, self.batches, strict=True) if each.batched[k]][::-1])
        aval = ShapedArray(x.aval.shape[len(index) :], x.aval.dtype, x.aval.weak_type)
        return ConcreteArray(aval, np.asarray(x.numpy()[index]))

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        each = CallbackBatch(axis.size, tuple([d is not None for d in dims]))
        outs = bind(evolve(self, batches=(*self.batches, each)), *move_batch_axes_first(args, dims))
        return outs, [0] * len(outs)


def move_batch_axes_first(args: Sequence[Value], dims: BatchDims) -> list[Value]:
    """Returns the operands with their batch axes, if any, first."""
    return [a if d is None else move_axis(a, d, 0) for a, d in zip(args, dims, strict=True)]


@frozen(eq=False)
class ValueCallback(CallbackPrimitive, Transposable):
    """A callback whose results programs use, and which has no derivative.

    Args:
        result_avals: The avals of the results of one call.
    """

    result_avals: tuple[ShapedArray, ...]

    @override
    def result_types(self) -> tuple[ShapedArray, ...]:
        return self.result_avals

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return unsharded_specs(outs)

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        raise self._refusal("differentiated")

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        raise self._refusal("transposed")

    def _refusal(self, done: str) -> ValueError:
        return ValueError(
            f"{self.name} of {callable_name(self.callback.function)} cannot be {done}: a Python function on the host "
            "has no derivative. Call it in a function with tracefx.custom_jvp or tracefx.custom_vjp, which "
            "defines the derivative, or on tracefx.lax.stop_gradient(x) if the derivative is to be zero"
        )


VmapMethod: TypeAlias = OneOf["sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized"]


def require_vmap_method(where: str, method: object) -> None:
    """Raises ValueError unless `method` is None or a `VmapMethod`."""
    if method is not None and method not in get_args(VmapMethod):
        raise ValueError(
            f"{where}: vmap_method must be None or one of {', '.join(get_args(VmapMethod))}, got {method!r}"
        )


@final
@frozen(eq=False)
class PureCallback(ValueCallback):
    """A callback without side effects, which may therefore be called more than once or not at all.

    Args:
        vmap_method: How the callback is batched, as in `pure_callback`. By default, `None`: `vmap` is an error.
    """

    name = "pure_callback"
    vmap_method: VmapMethod | None = None

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        method = self.vmap_method
        if method is None:
            raise NotImplementedError(
                f"vmap of pure_callback of {callable_name(self.callback.function)}: set vmap_method to tell how the "
                f"function handles the batch of {axis.size}: 'sequential' for one call for each element, "
                "'expand_dims' or 'broadcast_all' for one call with a leading axis"
            )
        if method == "sequential" or method == "sequential_unrolled":
            return super().batch(axis, args, dims)
        batched = evolve(self, result_avals=tuple([axis.add_to(a, 0) for a in self.result_avals]))
        return batch_vectorized(batched, method, axis, args, dims)


def batch_vectorized(
    batched: Primitive, method: VmapMethod, axis: MappedAxis, args: Sequence[Value], dims: BatchDims
) -> tuple[Sequence[Value], BatchDims]:
    """Batches a call by one call, `batched`, whose operands and results have a leading axis."""
    operands = move_batch_axes_first(args, dims)
    if method != "legacy_vectorized":
        size = axis.size if method == "broadcast_all" else 1
        operands = [_broadcast_batch(x, size) if d is None else x for x, d in zip(operands, dims, strict=True)]
    outs = bind(batched, *operands)
    return outs, [0] * len(outs)


def _broadcast_batch(x: Value, size: int) -> Value:
    return broadcast_in_dim(x, (size, *x.aval.shape), range(1, x.aval.ndim + 1))


@final
@frozen(eq=False)
class IOCallback(ValueCallback):
    """A callback with side effects, which is called each time the program reaches it.

    Args:
        ordered: Whether the calls happen in the order of the program. False by default.
    """

    name = "io_callback"
    ordered: bool = False

    @property
    @override
    def effects(self) -> Effects:
        return frozenset({IOEffect(self.ordered)})

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        if self.ordered:
            raise ValueError(
                f"vmap of io_callback of {callable_name(self.callback.function)}: the elements of a batch have no "
                "order, but ordered=True requires one; omit it, or loop over the elements with tracefx.lax.map"
            )
        return super().batch(axis, args, dims)


@frozen(eq=False)
class DebugPrimitive(CallbackPrimitive):
    """A callback with a debug effect, which changes no computed value."""

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        return bind(self, *primals), ()


@final
@frozen(eq=False)
class DebugCallback(DebugPrimitive):
    """Calls a function with the values of its operands, for debugging.

    Args:
        effect: The debug effect, which may be ordered.
        partitioned: Whether each device calls the function with its shards. False by default.
    """

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
    """Prints its operands.

    Args:
        callback: The function that prints.
        fmt: The format string.
        ordered: Whether the lines are printed in the order of the program. False by default.
        partitioned: Whether each device prints its shards. False by default.
    """

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
