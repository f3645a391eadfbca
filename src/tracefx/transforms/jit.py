"""`jit`: trace once, compile once, run again and again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Concatenate, Generic, Self, final, overload

from attrs import field, frozen
from typing_extensions import ParamSpec, TypeVar, override

from tracefx.bounded_cache import BoundedCache
from tracefx.control.call import Call
from tracefx.core import NDArray, Value
from tracefx.core.backend import BACKEND, Runnable
from tracefx.core.device import Device
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import CURRENT, ROOT, bind
from tracefx.core.meshes import MESH
from tracefx.core.sharding import RequestedShardings, single_device_sharding
from tracefx.dimensions.bounds import SymbolicScope
from tracefx.errors import DeviceMismatchError
from tracefx.filtered_tracebacks import api_boundary
from tracefx.interpreters.refs import Ref, read_refs, ref_arguments
from tracefx.interpreters.stage import Stage
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree
from tracefx.settings import DISABLE_JIT, NUMERIC_OPTIONS, REPEATS, X64, RepeatsMode
from tracefx.shardings.sharded_array import ShardedArray
from tracefx.transforms.arguments import (
    LEAF_TYPES,
    argument_names,
    fun_name,
    require_arrays,
    require_callable,
    to_arrays,
    to_inputs,
    to_values,
)
from tracefx.transforms.async_compilation import PendingProgram
from tracefx.transforms.fast_path import DonatingProgram, RepeatedCall
from tracefx.transforms.shape_dtype_struct import flatten_avals_and_refs
from tracefx.transforms.shardings import committed_sharding, constrain_shardings, explicit_inputs, shardings_for
from tracefx.transforms.stages import CompilerOptions, LoweredCall, TracedCall
from tracefx.transforms.static_arguments import DynamicArguments, StaticArguments
from tracefx.transforms.symbolic_traces import symbolic_key, trace_at_sizes
from tracefx.transforms.tracing import (
    MAX_TRACES,
    TRACES,
    Trace,
    TraceKey,
    cache_trace,
    check_not_closed_over,
    trace,
    trace_key,
)
from tracefx.transforms.transform import (
    Names,
    Positions,
    Preserving,
    TransformOf,
    optional_names,
    optional_positions,
    validate_flag,
    validate_names,
    validate_positions,
    validate_repeats,
)
from tracefx.transforms.transformed_function import importable_name

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")


@final
@frozen(eq=False, repr=False, kw_only=True)
class Jit(TransformOf[Preserving]):
    """`jit` with its options, as a transformation value. The options are described at `jit`.

    >>> Jit(static_argnums=1) == Jit(static_argnums=(1,))
    True
    """

    title: ClassVar[str] = "jit"
    static_argnums: Positions = field(default=None, converter=optional_positions, validator=validate_positions)
    static_argnames: Names = field(default=None, converter=optional_names, validator=validate_names)
    donate_argnums: Positions = field(default=None, converter=optional_positions, validator=validate_positions)
    donate_argnames: Names = field(default=None, converter=optional_names, validator=validate_names)
    keep_unused: bool = field(default=False, validator=validate_flag)
    inline: bool = field(default=False, validator=validate_flag)
    in_shardings: PyTree = None
    out_shardings: PyTree = None
    shapes: PyTree = None
    compiler_options: CompilerOptions | None = None
    repeats: RepeatsMode | None = field(default=None, validator=validate_repeats)
    async_compile: bool = field(default=False, validator=validate_flag)

    @override
    def __call__(self, fun: Callable[P, R], /) -> Jitted[P, R]:
        return Jitted(fun, self)

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        return Jitted(fun, self)


@final
class Jitted(RepeatedCall[P, R]):
    """A function compiled with XLA: one program per structure, shapes and dtypes of the arguments.

    `jit` returns it. It has `trace`, `lower`, `eval_shape`, `explain_retrace` and `clear_cache` beside the call.
    """

    __wrapped__: Callable[P, R]
    __name__: str

    def __init__(self, fun: Callable[P, R], options: Jit) -> None:
        require_callable("jit", fun)
        functools.update_wrapper(self, fun)
        self._fun = fun
        self._name, self._in_shardings = fun_name(fun), options.in_shardings
        self._where = f"jit of {self._name}: arguments"
        self._options = options
        self._static = StaticArguments.of(fun, options.static_argnums, options.static_argnames, "static")
        self._donate = StaticArguments.of(fun, options.donate_argnums, options.donate_argnames, "donate")
        conflicting = {*self._static.numbers, *self._static.names} & {*self._donate.numbers, *self._donate.names}
        if conflicting:
            raise ValueError(
                f"jit of {self._name}: the arguments {sorted(map(str, conflicting))} are both static and donated, but "
                "only traced arguments have buffers to donate"
            )
        self._traces = TRACES.of(fun)
        self._programs = BoundedCache[TraceKey, tuple[Trace[R], Runnable]](MAX_TRACES)
        self._scope = None if options.shapes is None else SymbolicScope()
        self._has_shardings = options.in_shardings is not None or options.out_shardings is not None
        self._set_recent(())

    @override
    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        if DISABLE_JIT.value:
            return self._fun(*args, **kwargs)
        if CURRENT.get() is ROOT:
            inputs, key, refs = self._flatten_concrete(args, kwargs)
            traced, program = self._programs.get(key) or self._compile(key, args, kwargs)
            check_not_closed_over(self._where, refs, traced)
            if isinstance(program, PendingProgram):
                program = program.compiled() or program
            try:
                outs = program([*traced.consts, *inputs])
            except DeviceMismatchError as error:
                consts = [f"an array of type {const.aval}, which {self._name} closes over," for const in traced.consts]
                raise error.with_names([*consts, *self._leaf_names(key)]) from None
            if not isinstance(program, PendingProgram) and not traced.uses_refs:
                self._remember(key, traced, program)
            return traced.output(traced.write_refs(outs, refs))
        if self._options.compiler_options and isinstance(CURRENT.get(), Stage):
            raise ValueError(
                f"jit of {self._name}: compiler_options apply to a whole program, so only the outermost jit may "
                f"have them, not one that is called inside another; got {self._options.compiler_options!r}"
            )
        values, key, refs = self._flatten(self._static, args, kwargs)
        traced = self._trace(key, args, kwargs)
        check_not_closed_over(self._where, refs, traced)
        requested = self._requested_shardings(key, traced) if self._has_shardings else None
        if requested is not None:
            values = constrain_shardings(values, requested.inputs[len(traced.consts) :])
        results: Sequence[Value]
        if self._options.inline:
            results = eval_jaxpr(traced.jaxpr, (), [*traced.consts, *values])
        else:
            results = bind(Call(traced.name, traced.jaxpr), *traced.consts, *values)
        if requested is not None:
            results = constrain_shardings(results, requested.outputs)
        return traced.output(to_arrays(traced.write_refs(results, refs)))

    def _flatten_concrete(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Value | NDArray], TraceKey, Sequence[Ref]]:
        """Does the work of `_flatten` outside of all transformations: NumPy arrays remain NumPy arrays."""
        dynamic, statics = self._static.split(self._where, args, kwargs)
        leaves, in_tree = trees.flatten_with_known_types(dynamic, LEAF_TYPES)
        refs: dict[int, Ref] = {}
        try:
            inputs, avals = to_inputs(explicit_inputs(leaves, self._in_shardings, in_tree), dynamic, self._where)
        except TypeError:
            leaves, refs = self._read_refs(leaves, dynamic, len(args))
            if not refs:
                raise
            inputs, avals = to_inputs(leaves, dynamic, self._where)
        options = NUMERIC_OPTIONS.value
        key = TraceKey(in_tree, tuple(avals), statics, X64.value, (), MESH.value, (), tuple(refs), options)
        return inputs, key, tuple(refs.values())

    def _flatten(
        self, static: StaticArguments, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Value], TraceKey, Sequence[Ref]]:
        """Returns the values of the traced leaves, the key of the trace, and the arguments that are references."""
        dynamic, statics = static.split(self._where, args, kwargs)
        leaves, in_tree = trees.flatten_with_known_types(dynamic, LEAF_TYPES)
        refs: dict[int, Ref] = {}
        try:
            values = to_values(explicit_inputs(leaves, self._in_shardings, in_tree), dynamic, self._where)
        except TypeError:
            leaves, refs = self._read_refs(leaves, dynamic, len(args))
            if not refs:
                raise
            values = to_values(leaves, dynamic, self._where)
        return values, trace_key(in_tree, tuple([v.aval for v in values]), statics, tuple(refs)), tuple(refs.values())

    def _read_refs(
        self, leaves: Sequence[object], dynamic: DynamicArguments, count: int
    ) -> tuple[list[object], dict[int, Ref]]:
        """Returns the leaves with references replaced by their contents, and the references by their positions."""
        require_arrays(leaves, lambda: self._argument_names(dynamic, count))
        refs = ref_arguments(self._where, leaves)
        return read_refs(leaves, refs), refs

    def _trace(self, key: TraceKey, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Trace[R]:
        cache_key = key, self._static
        cached = self._traces.get(cache_key)
        if cached is not None:
            return cached
        symbolic = symbolic_key(key, self._options.shapes, self._scope, self._name)
        if symbolic is not key:
            traced = self._trace(symbolic, args, kwargs)
            at_sizes = trace_at_sizes(traced, symbolic.avals, key.avals, self._leaf_names(key))
            return cache_trace(self._traces, cache_key, at_sizes)
        dynamic, _ = self._static.split(self._where, args, kwargs)
        fun = self._static.bind_static(self._fun, args, kwargs)
        names = self._argument_names(dynamic, len(args))
        new = trace(fun, key.in_tree, key.avals, names, self._name, writes_refs=True, refs=key.refs)
        return cache_trace(self._traces, cache_key, new)

    def _argument_names(self, dynamic: DynamicArguments, count: int) -> list[str]:
        """Returns the names, for messages, of the traced leaves of a call with `count` positional arguments."""
        return argument_names(self._fun, self._name, *dynamic, self._static.dynamic_positions(count))

    def _leaf_names(self, key: TraceKey) -> list[str]:
        args, kwargs = key.in_tree.unflatten(range(key.in_tree.num_leaves))
        return self._argument_names((args, kwargs), len(args) + sum(isinstance(s.key, int) for s in key.statics))

    def _compile(self, key: TraceKey, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Trace[R], Runnable]:
        traced = self._trace(key, args, kwargs)
        donated = self._donated(key, args, traced)
        requested = self._requested_shardings(key, traced) if self._has_shardings else None
        dynamic, _ = self._static.split(self._where, args, kwargs)
        leaves = trees.flatten_with_known_types(dynamic, LEAF_TYPES)[0]
        any_sharded = any(type(leaf) is ShardedArray for leaf in (*traced.consts, *leaves))
        backend, options = BACKEND.value, self._options
        parts = traced.jaxpr, traced.name, donated, options.keep_unused
        names = self._leaf_names(key) if donated else []
        donated_names = {i: names[i - len(traced.consts)] for i in donated}
        requested_shardings = (
            self._requested_shardings_for_call(key, traced, args, kwargs) if options.compiler_options else None
        )

        def compile_program() -> Runnable:
            with REPEATS.override(options.repeats or REPEATS.value):
                if options.compiler_options:
                    program: Runnable = backend.lower(*parts, requested_shardings).compile(options.compiler_options)
                else:
                    program = backend.compiled(*parts, requested, any_sharded)
            return DonatingProgram(program, donated_names) if donated else program

        if options.async_compile and not self._has_shardings:
            interpreted = backend.interpreted(*parts)
            program: Runnable = PendingProgram(compile_program, interpreted, donated_names)
        else:
            program = compile_program()
        return self._programs.insert(key, (traced.with_aliased_consts(), program))

    def _requested_shardings_for_call(
        self, key: TraceKey, traced: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> RequestedShardings | None:
        """Returns the requested shardings, completed by those of committed arguments; None if there are none at all."""
        dynamic, _ = self._static.split(self._where, args, kwargs)
        leaves = (*traced.consts, *trees.flatten_with_known_types(dynamic, LEAF_TYPES)[0])
        placements = list(map(committed_sharding, leaves))
        if not self._has_shardings and not any(placements):
            return None
        requested_shardings = self._requested_shardings(key, traced)
        inputs = [request or sharding for request, sharding in zip(requested_shardings.inputs, placements, strict=True)]
        return RequestedShardings(tuple(inputs), requested_shardings.outputs)

    def _requested_shardings(self, key: TraceKey, traced: Trace) -> RequestedShardings:
        """Returns the shardings of inputs and outputs that `in_shardings` and `out_shardings` request."""
        args, _ = key.in_tree.unflatten(range(key.in_tree.num_leaves))
        positional = trees.structure(args)
        where, options = f"jit of {self._name}", self._options
        given = shardings_for(options.in_shardings, positional, f"{where}: in_shardings", "the arguments")
        named = key.in_tree.num_leaves - positional.num_leaves
        outs = shardings_for(options.out_shardings, traced.out_tree, f"{where}: out_shardings", "the output")
        outs = (None,) * traced.ref_outputs + outs
        return RequestedShardings((None,) * len(traced.consts) + given + (None,) * named, outs)

    def _donated(self, key: TraceKey, args: tuple[Any, ...], traced: Trace) -> tuple[int, ...]:
        """Returns the indices of the donated leaves among the inputs of the program; warns of unusable ones."""
        if not self._donate.numbers and not self._donate.names:
            return ()
        dynamic_places = self._static.dynamic_positions(len(args))
        leaf_args, leaf_kwargs = key.in_tree.unflatten(range(key.in_tree.num_leaves))
        chosen = [leaf_args[dynamic_places.index(i)] for i in self._donate.numbers if i in dynamic_places]
        chosen += [leaf_kwargs[name] for name in self._donate.names if name in leaf_kwargs]
        donated = tuple([len(traced.consts) + i for i in trees.leaves(chosen)])
        traced.warn_of_unusable_donations(donated, self._options.keep_unused, self._leaf_names(key))
        return donated

    # ------------------------------------------------------------------ the stages, one at a time

    @api_boundary
    def trace(self, *args: P.args, **kwargs: P.kwargs) -> TracedCall[P, R]:
        """Traces the function, without compiling or running it.

        Args:
            *args: The positional arguments. A `ShapeDtypeStruct` may replace an array.
            **kwargs: The keyword arguments, likewise.

        Returns:
            A `TracedCall`, whose `jaxpr` is the program.

        >>> print(jit(lambda x: x * 2.0).trace(1.0).jaxpr)
        { lambda ; a:f32[]*. let b:f32[]* = mul a 2.0:f32[]* in (b,) }
        """
        key = self._abstract_signature(args, kwargs)
        traced = self._trace(key, args, kwargs)
        static = self._static.optional(key.statics, len(args) + len(kwargs) - len(key.statics))

        def flatten(*call_args: P.args, **call_kwargs: P.kwargs) -> tuple[list[Value], TraceKey, Sequence[Ref]]:
            values, given, refs = self._flatten(static, call_args, call_kwargs)
            if given != key and given.without_weak_types() != key.without_weak_types():
                difference = key.difference(given, self._leaf_names(key))
                raise TypeError(
                    f"the compiled {self._name} was called with other arguments than it was compiled for: {difference}"
                )
            return values, given, refs

        return TracedCall(
            traced,
            key.in_tree,
            self._donated(key, args, traced),
            self._options.keep_unused,
            self._requested_shardings_for_call(key, traced, args, kwargs),
            static,
            self._where,
            flatten,
            self._options.compiler_options or {},
            self._options.repeats,
        )

    @api_boundary
    def lower(self, *args: P.args, **kwargs: P.kwargs) -> LoweredCall[P, R]:
        """Traces the function and lowers it to StableHLO, without compiling or running it.

        Args:
            *args: The positional arguments. A `ShapeDtypeStruct` may replace an array.
            **kwargs: The keyword arguments, likewise.

        Returns:
            A `LoweredCall`, whose `compile()` returns the compiled program.

        >>> compiled = jit(lambda x: 2.0 * x).lower(1.0).compile()
        >>> compiled(3.0)
        Array(6., dtype=float32, weak_type=True)
        """
        return self.trace(*args, **kwargs).lower()

    @api_boundary
    def eval_shape(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Returns the shapes and dtypes of the outputs, without compiling or running the function.

        Args:
            *args: The positional arguments, as for `trace`.
            **kwargs: The keyword arguments, likewise.

        Returns:
            A pytree of `ShapeDtypeStruct`, of the structure of the output.
        """
        return self.trace(*args, **kwargs).out_info

    def _abstract_signature(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TraceKey:
        dynamic, statics = self._static.split(self._where, args, kwargs)
        avals, in_tree, refs = flatten_avals_and_refs(dynamic, self._where, self._where)
        return trace_key(in_tree, tuple(avals), statics, refs)

    @api_boundary
    def explain_retrace(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Explains why a call with these arguments would be traced again.

        Args:
            *args: The positional arguments, as for `trace`.
            **kwargs: The keyword arguments, likewise.

        Returns:
            A sentence with the differences between this call and the most similar one in the cache, or that there is a
            trace for these arguments, or that there is none at all.

        >>> square = jit(lambda x: x * x)
        >>> square.explain_retrace(1.0)
        '<lambda> has not been traced yet'
        >>> y = square(1.0)
        >>> square.explain_retrace(1)
        '<lambda> would be traced anew: the argument `x` of <lambda> was f32[]* and is i32[]*'
        """
        key = symbolic_key(self._abstract_signature(args, kwargs), self._options.shapes, self._scope, self._name)
        cached = [k for k, static in self._traces if static == self._static]
        if key in cached:
            return f"{self._name} has a trace for these arguments"
        if not cached:
            return f"{self._name} has not been traced yet"
        differences = [k.difference(key, self._leaf_names(k)) for k in cached]
        return f"{self._name} would be traced anew: {min(differences, key=len)}"

    def clear_cache(self) -> None:
        """Discards all traces and compiled programs of this function."""
        self._traces.clear()
        self._programs.clear()
        self._set_recent(())

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self: Callable[Concatenate[S, Q], R], instance: S, owner: type | None = None) -> BoundJitted[Q, R]: ...
    def __get__(self, instance: object, owner: type | None = None) -> object:
        return self if instance is None else BoundJitted(self, instance)

    @override
    def __repr__(self) -> str:
        return f"<jitted {self._fun!r}>"

    @override
    def __reduce__(self) -> str | tuple[object, ...]:
        """Pickles a decorated function by reference, any other by its function and options."""
        return importable_name(self) or (Jitted, (self._fun, self._options))


@final
class BoundJitted(Generic[P, R]):
    """A jitted method bound to an instance: the first argument, traced unless it is listed as static."""

    __name__: str

    def __init__(self, jitted: Jitted[..., R], instance: object) -> None:
        functools.update_wrapper(self, jitted)
        self.__self__ = instance
        self._jitted = jitted

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._jitted(self.__self__, *args, **kwargs)

    def trace(self, *args: P.args, **kwargs: P.kwargs) -> TracedCall[..., R]:
        """Traces the method, as `Jitted.trace` does."""
        return self._jitted.trace(self.__self__, *args, **kwargs)

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> LoweredCall[..., R]:
        """Lowers the method, as `Jitted.lower` does."""
        return self._jitted.lower(self.__self__, *args, **kwargs)

    def eval_shape(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Returns the shapes and dtypes of the outputs, as `Jitted.eval_shape` does."""
        return self._jitted.eval_shape(self.__self__, *args, **kwargs)

    def explain_retrace(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Explains why a call would be traced again, as `Jitted.explain_retrace` does."""
        return self._jitted.explain_retrace(self.__self__, *args, **kwargs)

    def clear_cache(self) -> None:
        """Discards all traces and compiled programs of the function, for all instances."""
        self._jitted.clear_cache()

    @override
    def __repr__(self) -> str:
        return f"<bound {self._jitted!r} of {self.__self__!r}>"

    @override
    def __reduce__(self) -> tuple[object, ...]:
        return BoundJitted, (self._jitted, self.__self__)


@overload
def jit(
    fun: Callable[P, R],
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Sequence[str] | None = None,
    keep_unused: bool = False,
    inline: bool = False,
    in_shardings: PyTree = None,
    out_shardings: PyTree = None,
    shapes: PyTree = None,
    compiler_options: CompilerOptions | None = None,
    repeats: RepeatsMode | None = None,
    async_compile: bool = False,
    device: Device | None = None,
    backend: str | None = None,
) -> Jitted[P, R]: ...
@overload
def jit(
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Sequence[str] | None = None,
    keep_unused: bool = False,
    inline: bool = False,
    in_shardings: PyTree = None,
    out_shardings: PyTree = None,
    shapes: PyTree = None,
    compiler_options: CompilerOptions | None = None,
    repeats: RepeatsMode | None = None,
    async_compile: bool = False,
    device: Device | None = None,
    backend: str | None = None,
) -> Jit: ...
def jit(
    fun: Callable[P, R] | None = None,
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Sequence[str] | None = None,
    keep_unused: bool = False,
    inline: bool = False,
    in_shardings: PyTree = None,
    out_shardings: PyTree = None,
    shapes: PyTree = None,
    compiler_options: CompilerOptions | None = None,
    repeats: RepeatsMode | None = None,
    async_compile: bool = False,
    device: Device | None = None,
    backend: str | None = None,
) -> Jitted[P, R] | Jit:
    """Compiles `fun` with XLA for the shapes and dtypes of its arguments.

    The first call traces `fun`: it runs the Python code of `fun` once, with tracers in place of the arrays in its
    arguments. A tracer has a shape and a dtype but no concrete value. The operations on tracers are recorded as a
    program, which XLA compiles. Later calls run that program, and no Python code of `fun`. Without `fun`, `jit` returns
    the transformation with these options, for use as a decorator.

    `fun` has to be pure. Its Python side effects (printing, appending to a list) happen at tracing only, and the values
    of global and closed-over variables at tracing are constants of the program. `tracefx.debug.print` and
    `tracefx.io_callback` have an effect at every run, and so do reads and writes of references (`tracefx.new_ref`).

    Python control flow runs while `fun` is traced: a `for` loop is unrolled into the program, and a condition must not
    depend on a traced value. For that there are `tracefx.lax.cond`, `tracefx.lax.scan`, `tracefx.lax.while_loop` and
    `tracefx.numpy.where`. Shapes must not depend on traced values either: make such an argument static.

    `fun` is traced and compiled again for a call with other structures of pytrees, other shapes, dtypes or weak types,
    other static arguments, another `enable_x64` setting or another mesh in use (`set_mesh`). New values of arrays and
    Python numbers reuse the program. Traces belong to the function object, so `jit(f)` twice traces `f` once, but a new
    lambda in each iteration of a loop is traced each time. `explain_retrace` of the result says why a call would be
    traced again.

    Jitted functions can be transformed and nested: inside another traced function, the call becomes one equation of the
    enclosing program. With `disable_jit`, `fun` runs as Python code, for debugging.

    The program runs on the devices of committed arguments, or on those of `in_shardings` and `out_shardings`; otherwise
    on the default device.

    Args:
        fun: A pure function. Its traced arguments and its output are pytrees of arrays.
        static_argnums: Positions of arguments that are not traced. They keep their concrete values, must be hashable,
            and each new value is traced and compiled separately. For the `self` of a method, use 0. None by default.
        static_argnames: Names of such arguments. None by default. If one of `static_argnums` and `static_argnames` is
            None and the signature of `fun` is known, positions imply names and names imply positions.
        donate_argnums: Positions of arguments whose buffers the program may reuse for results of the same shape and
            dtype, which saves memory. The call deletes these arrays: they cannot be used afterwards. A warning names
            those that no result can reuse. None by default.
        donate_argnames: Names of such arguments. None by default.
        keep_unused: Whether the compiled program keeps inputs that it does not use. False by default.
        inline: Whether a call inside another traced function is expanded into the equations of `fun`, without a call in
            the enclosing program. False by default.
        in_shardings: The shardings of the positional arguments: a sharding, a `PartitionSpec` of the mesh in use, or a
            pytree of them that is a prefix of the arguments. None, the default and a valid leaf, leaves it open.
        out_shardings: The shardings of the output, likewise.
        shapes: Shapes of the positional arguments with dimension variables, such as `("b, n", None)`, as for
            `symbolic_args_specs`, which gives them with constraints: `fun` is traced once for all sizes, and compiled
            for each. Dimension variables are at least 1. None, the default and a valid leaf, means known sizes.
        compiler_options: XLA's options for the compilation, by name; for the outermost `jit` only. None by default.
        repeats: `"share"` compiles runs of equal blocks, such as layers, once; `"auto"` does so unless temporaries
            would take much more memory; `"inline"` compiles each block. `"pieces"` makes an executable of each kind of
            block and of what is between them, so that a program with more layers, or another loss, compiles only what
            is new. For the outermost `jit` only. None, the default, means the setting `tracefx.repeats`: `"auto"`.
        async_compile: Whether calls do not wait for the compilation: another thread compiles the program, and the calls
            before it is ready are interpreted, like eager code. Their results can differ in the last digits. An error
            of the compilation is raised by the first call after it. Programs on several devices, or with a value of
            more than 256 MiB, are waited for. For the outermost `jit` only; `lower(...).compile()` always waits. False
            by default.
        device: The device of the program, which `in_shardings` and `out_shardings` can set, too. None by default.
        backend: A platform, which means its first device. None by default.

    Returns:
        A function like `fun`, a `Jitted`; without `fun` a `Jit`. Its methods `trace` and `lower` give the program
        before compilation, and `lower(...).compile()` compiles it ahead of the first call.

    Raises:
        TypeError: If `fun` is not callable or an option has a wrong type. When the result is called: for a traced
            argument that is not an array.
        ConcretizationError: When the result is called, if `fun` needs the concrete value of a traced argument. It is a
            TypeError.
        ValueError: For options that do not fit the function: unknown arguments, arguments both static and donated,
            shardings that do not fit. When the result is called: for a static argument that is not hashable.
        RuntimeError: When the result is called, if a donated array is also passed as another argument.

    >>> jit(lambda x: x * x)(3.0)
    Array(9., dtype=float32, weak_type=True)

    A static argument may decide about Python control flow:

    >>> @jit(static_argnames="n")
    ... def power(x, n):
    ...     return 1.0 if n == 0 else x * power(x, n - 1)
    >>> power(2.0, n=3)
    Array(8., dtype=float32, weak_type=True)

    Side effects happen when the function is traced, not when the program runs:

    >>> @jit
    ... def double(x):
    ...     print(f"tracing for {x.aval}")
    ...     return 2 * x
    >>> double(1.0), double(2.0)
    tracing for f32[]
    (Array(2., dtype=float32, weak_type=True), Array(4., dtype=float32, weak_type=True))
    >>> double(1)
    tracing for i32[]
    Array(2, dtype=int32, weak_type=True)
    """
    if device is not None or backend is not None:
        if in_shardings is not None or out_shardings is not None or (device is not None and backend is not None):
            raise ValueError("jit: only one of device, backend, and in_shardings with out_shardings can be given")
        in_shardings = out_shardings = single_device_sharding(device or BACKEND.value.local_devices(backend or "")[0])
    transform = Jit(
        static_argnums=static_argnums,
        static_argnames=static_argnames,
        donate_argnums=donate_argnums,
        donate_argnames=donate_argnames,
        keep_unused=keep_unused,
        inline=inline,
        in_shardings=in_shardings,
        out_shardings=out_shardings,
        shapes=shapes,
        compiler_options=compiler_options,
        repeats=repeats,
        async_compile=async_compile,
    )
    return transform if fun is None else transform(fun)
