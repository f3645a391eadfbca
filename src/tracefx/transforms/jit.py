"""`jit`: trace once, compile once, run again and again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Generic, Self, TypeVar, cast, final, overload

from attrs import frozen
from typing_extensions import ParamSpec, override

from tracefx.control.call import Call
from tracefx.core import trees
from tracefx.core.backend import BACKEND, Program
from tracefx.core.handler import CURRENT, ROOT, bind
from tracefx.core.jaxpr import eval_jaxpr
from tracefx.core.settings import DISABLE_JIT
from tracefx.core.values import Value
from tracefx.transforms.arguments import (
    LEAF_TYPES,
    argument_names,
    check_argnums,
    name_of,
    require_callable,
    to_arrays,
    to_values,
)
from tracefx.transforms.shapes import flatten_avals
from tracefx.transforms.stages import LoweredCall, TracedCall
from tracefx.transforms.statics import JitOptions, StaticArguments
from tracefx.transforms.tracing import TRACES, Signature, Trace, keepable, signature, trace

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")


def jit_options(
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Sequence[str] | None = None,
    keep_unused: bool = False,
    inline: bool = False,
) -> JitOptions:
    return JitOptions(
        _numbers("static_argnums", static_argnums),
        _names("static_argnames", static_argnames),
        _numbers("donate_argnums", donate_argnums),
        _names("donate_argnames", donate_argnames),
        keep_unused,
        inline,
    )


def _numbers(option: str, given: int | Sequence[int] | None) -> tuple[int, ...]:
    if given is None:
        return ()
    check_argnums(given, "jit", option)
    return (given,) if isinstance(given, int) else tuple(given)


def _names(option: str, given: str | Sequence[str] | None) -> tuple[str, ...]:
    names = () if given is None else (given,) if isinstance(given, str) else tuple(given)
    if any(not isinstance(n, str) for n in names):
        raise TypeError(f"jit: {option} must be a string or a sequence of strings, got {given!r}")
    return names


@final
class Jitted(Generic[P, R]):
    """A function that XLA compiles, once for each kind of arguments."""

    __wrapped__: Callable[P, R]

    def __init__(self, fun: Callable[P, R], options: JitOptions) -> None:
        require_callable("jit", fun)
        functools.update_wrapper(self, fun)
        self._fun = fun
        self._name = name_of(fun)
        self._where = f"jit of {self._name}: arguments"
        self._options = options
        self._static = StaticArguments.of(fun, options.static_argnums, options.static_argnames, "static")
        self._donate = StaticArguments.of(fun, options.donate_argnums, options.donate_argnames, "donate")
        self._traces = TRACES.traces(fun)
        self._programs: dict[Signature, tuple[Trace, Program]] = {}

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if DISABLE_JIT.value:
            return self._fun(*args, **kwargs)
        values, key = self._flatten(args, kwargs)
        if CURRENT.get() is ROOT:
            found = self._programs.get(key)
            traced, program = self._compile(key, args, kwargs) if found is None else found
            outs: Sequence[Value] = program([*traced.consts, *values] if traced.consts else values)
            return cast(R, traced.out_tree.unflatten(outs))
        traced = self._trace(key, args, kwargs)
        if self._options.inline:
            outs = eval_jaxpr(traced.jaxpr, (), [*traced.consts, *values])
        else:
            outs = bind(Call(traced.name, traced.jaxpr), *traced.consts, *values)
        return cast(R, traced.out_tree.unflatten(to_arrays(outs)))

    def _flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Value], Signature]:
        dynamic, statics = self._static.split(self._where, args, kwargs)
        leaves, in_tree = trees.flatten_leaves(dynamic, LEAF_TYPES)
        values = to_values(leaves, dynamic, self._where)
        return values, signature(in_tree, tuple([v.aval for v in values]), statics)

    def _trace(self, key: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Trace:
        known = self._traces.get((key, self._static))
        if known is not None:
            return known
        dynamic, _ = self._static.split(self._where, args, kwargs)
        fun = self._static.closed_over(self._fun, args, kwargs)
        made = trace(fun, key.in_tree, key.avals, argument_names(fun, self._name, *dynamic), self._name)
        return self._traces.setdefault((key, self._static), made) if keepable(made) else made

    def _compile(self, key: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Trace, Program]:
        traced = self._trace(key, args, kwargs)
        donated = self._donated(key, args, len(traced.consts))
        program = BACKEND.value.compiled(traced.jaxpr, traced.name, donated, self._options.keep_unused)
        return self._programs.setdefault(key, (traced, program))

    def _donated(self, key: Signature, args: tuple[Any, ...], consts: int) -> tuple[int, ...]:
        """The places of donated leaves among the inputs of the program."""
        if not self._donate.numbers and not self._donate.names:
            return ()
        dynamic_places = [i for i in range(len(args)) if i not in self._static.numbers]
        leaf_args, leaf_kwargs = key.in_tree.unflatten(range(key.in_tree.num_leaves))
        chosen = [leaf_args[dynamic_places.index(i)] for i in self._donate.numbers if i in dynamic_places]
        chosen += [leaf_kwargs[name] for name in self._donate.names if name in leaf_kwargs]
        return tuple([consts + i for i in cast("list[int]", trees.leaves(chosen))])

    # ------------------------------------------------------------------ the stages, one at a time

    def trace(self, *args: P.args, **kwargs: P.kwargs) -> TracedCall[P, R]:
        """Trace for these arguments, in which a `ShapeDtypeStruct` may stand for an array; `.jaxpr` is the program."""
        key = self._abstract_signature(args, kwargs)
        traced = self._trace(key, args, kwargs)

        def flatten(*call_args: P.args, **call_kwargs: P.kwargs) -> list[Value]:
            values, given = self._flatten(call_args, call_kwargs)
            if given != key:
                raise TypeError(
                    f"the compiled {self._name} was called with arguments of another kind: {_difference(key, given)}"
                )
            return values

        donated = self._donated(key, args, len(traced.consts))
        return TracedCall(traced, donated, self._options.keep_unused, flatten)

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> LoweredCall[P, R]:
        """Lower to StableHLO for these arguments; `.compile()` compiles the result."""
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """The types of the outputs for these arguments."""
        return self.trace(*args, **kwargs).out_info

    def _abstract_signature(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Signature:
        dynamic, statics = self._static.split(self._where, args, kwargs)
        avals, in_tree = flatten_avals(dynamic, self._where)
        return signature(in_tree, tuple(avals), statics)

    def explain_retrace(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Why a call with these arguments would trace anew: how its key differs from the nearest trace's."""
        key = self._abstract_signature(args, kwargs)
        kept = [k for k, static in self._traces if static == self._static]
        if key in kept:
            return f"{self._name} has a trace for these arguments"
        if not kept:
            return f"{self._name} has not been traced yet"
        differences = [_difference(k, key) for k in kept]
        return f"{self._name} would be traced anew: {min(differences, key=len)}"

    def clear_cache(self) -> None:
        """Forget all traces and compiled programs of this function."""
        self._traces.clear()
        self._programs.clear()

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self: Jitted[Concatenate[S, Q], R], instance: S, owner: type | None = None) -> BoundJitted[Q, R]: ...
    def __get__(self, instance: object, owner: type | None = None) -> object:
        return self if instance is None else BoundJitted(self, instance)

    @override
    def __repr__(self) -> str:
        return f"<jitted {self._fun!r}>"


@final
class BoundJitted(Generic[P, R]):
    """A jitted method of an instance: the instance is the first argument, traced if it is a pytree or else static."""

    def __init__(self, jitted: Jitted[..., R], instance: object) -> None:
        functools.update_wrapper(self, jitted)
        self.__self__ = instance
        self._jitted = jitted

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._jitted(self.__self__, *args, **kwargs)

    def trace(self, *args: P.args, **kwargs: P.kwargs) -> TracedCall[..., R]:
        return self._jitted.trace(self.__self__, *args, **kwargs)

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> LoweredCall[..., R]:
        return self._jitted.lower(self.__self__, *args, **kwargs)

    def clear_cache(self) -> None:
        self._jitted.clear_cache()

    @override
    def __repr__(self) -> str:
        return f"<bound {self._jitted!r} of {self.__self__!r}>"


def _difference(old: Signature, new: Signature) -> str:
    """What differs between two keys of traces, in words."""
    parts = []
    if old.in_tree != new.in_tree:
        parts.append(f"the structure of the arguments was {old.in_tree} and is {new.in_tree}")
    else:
        changed = [(i, a, b) for i, (a, b) in enumerate(zip(old.avals, new.avals, strict=True)) if a != b]
        parts += [f"leaf {i} of the arguments was {a!r} and is {b!r}" for i, a, b in changed]
    if old.statics != new.statics:
        parts.append(f"the static arguments were {old.statics} and are {new.statics}")
    if old.x64 != new.x64:
        parts.append(f"enable_x64 was {old.x64} and is {new.x64}")
    if old.axes != new.axes:
        parts.append(f"the named axes in scope were {dict(old.axes)} and are {dict(new.axes)}")
    return "; ".join(parts)


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
) -> JitDecorator: ...
def jit(
    fun: Callable[P, R] | None = None,
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Sequence[str] | None = None,
    keep_unused: bool = False,
    inline: bool = False,
) -> Jitted[P, R] | JitDecorator:
    """Compile `fun` with XLA, once for each kind of arguments, and run the compiled program from then on.

    Arguments are traced: inside `fun` they have a shape and a dtype, but no value. Those in `static_argnums` or
    `static_argnames` keep their value and must be hashable; another value is another program. The memory of donated
    arguments may be used for the results. `inline` leaves no trace of the call in an enclosing program. Without `fun`
    it is a decorator with options.

    >>> jit(lambda x: x * x)(3.0)
    Array(9., dtype=float32, weak_type=True)
    """
    options = jit_options(static_argnums, static_argnames, donate_argnums, donate_argnames, keep_unused, inline)
    return JitDecorator(options) if fun is None else Jitted(fun, options)


@final
@frozen
class JitDecorator:
    """`jit` with options, waiting for its function."""

    options: JitOptions

    def __call__(self, fun: Callable[P, R]) -> Jitted[P, R]:
        return Jitted(fun, self.options)
