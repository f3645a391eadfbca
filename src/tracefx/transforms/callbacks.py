"""Calls of Python functions from programs: `pure_callback`, `io_callback`, `debug.callback` and `debug.print`."""

from __future__ import annotations

import itertools
import re
import string
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, final, overload

import numpy as np
from attrs import field, frozen

from tracefx.control.callback import (
    DebugCallback,
    DebugPrint,
    FlatCallback,
    IOCallback,
    PureCallback,
    VmapMethod,
    require_vmap_method,
)
from tracefx.core import Array, ShapedArray, Value, as_value
from tracefx.core.effects import DebugEffect
from tracefx.core.handler import Tracer, bind
from tracefx.filtered_tracebacks import api_boundary
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree, TreeDef
from tracefx.settings import X64
from tracefx.transforms.arguments import LEAF_TYPES, flatten_values, leaf_value, require_callable, to_arrays
from tracefx.transforms.shape_dtype_struct import ShapeDtypeStruct, flatten_avals

# ------------------------------------------------------------------ callbacks with results


@overload
def pure_callback(
    callback: Callable[..., object],
    result_shape_dtypes: ShapeDtypeStruct | Array,
    *args: PyTree,
    sharding: None = None,
    vmap_method: VmapMethod | None = None,
    **kwargs: PyTree,
) -> Array: ...
@overload
def pure_callback(
    callback: Callable[..., object],
    result_shape_dtypes: PyTree,
    *args: PyTree,
    sharding: None = None,
    vmap_method: VmapMethod | None = None,
    **kwargs: PyTree,
) -> Any: ...
@api_boundary
def pure_callback(
    callback: Callable[..., object],
    result_shape_dtypes: PyTree,
    *args: PyTree,
    sharding: None = None,
    vmap_method: VmapMethod | None = None,
    **kwargs: PyTree,
) -> Any:
    """Calls a pure Python function, also from compiled programs.

    A traced program calls `callback` on the host each time it runs. The call may be repeated, merged with an equal one,
    or dropped if its results are unused. It has no derivative unless `custom_jvp` or `custom_vjp` defines one. An
    exception that `callback` raises is raised by the call of the program. A program on several devices gathers the
    arguments on the first device and calls once; inside `shard_map` each device calls with its shards.

    Args:
        callback: A function of arrays that NumPy functions accept. It returns a pytree of arrays or numbers of the
            structure, shapes and dtypes of `result_shape_dtypes`, and has no side effects.
        result_shape_dtypes: A pytree of `ShapeDtypeStruct`, arrays, or other objects with `shape` and `dtype`.
        *args: The positional arguments, pytrees of arrays.
        sharding: Only None, the default, is supported.
        vmap_method: How `vmap` transforms the call. `"sequential"` and `"sequential_unrolled"` call `callback` once per
            batch element. `"expand_dims"` and `"broadcast_all"` call it once, with a leading batch axis in every
            argument; in arguments that are not batched, this axis has size 1, or the size of the batch.
            `"legacy_vectorized"` calls it once, with a leading batch axis in the batched arguments only. None, the
            default, makes `vmap` an error.
        **kwargs: The keyword arguments, pytrees of arrays.

    Returns:
        The results, as a pytree of arrays.

    Raises:
        TypeError: If `callback` is not callable or an argument is not a pytree of arrays. When it runs: if its results
            do not have the structure, shapes and dtypes of `result_shape_dtypes`.
        ValueError: If `vmap_method` is unknown.
        NotImplementedError: If `sharding` is not None, or under `vmap` without a `vmap_method`.

    >>> import numpy as np
    >>> from tracefx import jit
    >>> zeta = lambda x: np.sum(1.0 / np.arange(1, 10_000) ** np.float64(x))
    >>> f = jit(lambda x: pure_callback(zeta, ShapeDtypeStruct((), "float32"), x) + 1)
    >>> round(float(f(2.0)), 3)
    2.645
    """
    require_vmap_method("pure_callback", vmap_method)
    flat = _flatten_call("pure_callback", callback, result_shape_dtypes, args, kwargs, sharding)
    outs = bind(PureCallback(flat.function, flat.results, vmap_method), *flat.values)
    return flat.out_tree.unflatten(to_arrays(outs))


@overload
def io_callback(
    callback: Callable[..., object],
    result_shape_dtypes: ShapeDtypeStruct | Array,
    *args: PyTree,
    sharding: None = None,
    ordered: bool = False,
    **kwargs: PyTree,
) -> Array: ...
@overload
def io_callback(
    callback: Callable[..., object],
    result_shape_dtypes: PyTree,
    *args: PyTree,
    sharding: None = None,
    ordered: bool = False,
    **kwargs: PyTree,
) -> Any: ...
@api_boundary
def io_callback(
    callback: Callable[..., object],
    result_shape_dtypes: PyTree,
    *args: PyTree,
    sharding: None = None,
    ordered: bool = False,
    **kwargs: PyTree,
) -> Any:
    """Calls a Python function that has side effects, also from compiled programs.

    Unlike with `pure_callback`, the call is never dropped, repeated or merged with another: it is executed exactly as
    often as the program reaches it. `vmap` calls `callback` once per batch element.

    Args:
        callback: A function as for `pure_callback`, which may have side effects.
        result_shape_dtypes: A pytree of `ShapeDtypeStruct`, arrays, or other objects with `shape` and `dtype`; None for
            no results.
        *args: The positional arguments, pytrees of arrays.
        sharding: Only None, the default, is supported.
        ordered: Whether the call is executed in program order with respect to other ordered calls, in loops and
            branches too. Inside `shard_map` each device has its own order. False by default: the call is executed when
            its arguments are known.
        **kwargs: The keyword arguments, pytrees of arrays.

    Returns:
        The results, as a pytree of arrays.

    Raises:
        TypeError: As for `pure_callback`, and if `ordered` is not a boolean.
        ValueError: For an ordered call under `vmap`.
        NotImplementedError: If `sharding` is not None.

    >>> from tracefx import jit
    >>> log = []
    >>> @jit
    ... def f(x):
    ...     io_callback(log.append, None, x, ordered=True)
    ...     io_callback(log.append, None, 2 * x, ordered=True)
    >>> f(1.0)
    >>> [float(x) for x in log]
    [1.0, 2.0]
    """
    _require_flag("io_callback", "ordered", ordered)
    flat = _flatten_call("io_callback", callback, result_shape_dtypes, args, kwargs, sharding)
    outs = bind(IOCallback(flat.function, flat.results, ordered), *flat.values)
    return flat.out_tree.unflatten(to_arrays(outs))


class _FlatCall(NamedTuple):
    """A call of a Python function, with flattened arguments and results."""

    function: FlatCallback
    results: tuple[ShapedArray, ...]
    values: list[Value]
    out_tree: TreeDef


def _flatten_call(
    caller: str,
    callback: Callable[..., object],
    result_shape_dtypes: PyTree,
    args: tuple[PyTree, ...],
    kwargs: Mapping[str, PyTree],
    sharding: None,
) -> _FlatCall:
    require_callable(caller, callback)
    if sharding is not None:
        raise NotImplementedError(
            f"{caller}: the first device of a program calls, so sharding must be None, got {sharding!r}"
        )
    avals, out_tree = flatten_avals(result_shape_dtypes, f"{caller}: result_shape_dtypes")
    values, in_tree = flatten_values((args, kwargs), f"{caller}: arguments")
    results = tuple([ShapedArray(a.shape, a.dtype) for a in avals])
    return _FlatCall(FlatCallback(callback, in_tree, out_tree, X64.value), results, values, out_tree)


def _require_flag(caller: str, option: str, given: object) -> None:
    if type(given) is not bool:
        raise TypeError(f"{caller}: {option} must be True or False, got {given!r}")


def effects_barrier() -> None:
    """Waits until the side effects of all programs called so far have been executed.

    It returns at once: a call of a program with side effects returns only after they have been executed.

    >>> effects_barrier()
    """


# ------------------------------------------------------------------ debugging


@overload
def debug_callback(
    callback: Callable[..., object], *args: object, ordered: bool = False, partitioned: bool = False, **kwargs: object
) -> None: ...
@overload
def debug_callback(*, ordered: bool = False, partitioned: bool = False) -> Callable[..., None]: ...
@api_boundary
def debug_callback(
    callback: Callable[..., object] | None = None,
    *args: object,
    ordered: bool = False,
    partitioned: bool = False,
    **kwargs: object,
) -> Callable[..., None] | None:
    """Calls a Python function for debugging, also from compiled programs, with concrete values.

    The call does not change what is computed, and is executed as often as the program reaches it. Under `grad` it gets
    the primal values; under `vmap` it is executed once per batch element. A program on several devices calls once, with
    whole arrays; inside `shard_map` each device calls with its shards.

    Args:
        callback: The function to call; its result is ignored. None, the default, makes the result a function that takes
            the callback and its arguments.
        *args: The positional arguments. Leaves that are not arrays are passed on unchanged.
        ordered: Whether the call is executed in program order with respect to other ordered calls. False by default.
        partitioned: Whether each device calls with its shards, as partitioned by the compiler, instead of one call with
            whole arrays. It does not apply to ordered calls and under `vmap`. False by default.
        **kwargs: The keyword arguments, likewise.

    Returns:
        None, or, without `callback`, a function `call(callback, *args, **kwargs)` with these options.

    Raises:
        TypeError: If `callback` is not callable, or an option is not a boolean.

    >>> from tracefx import jit
    >>> @jit
    ... def f(x):
    ...     y = x * x
    ...     debug_callback(lambda y, name: print(name, "is", y), y, name="the square")
    ...     return y
    >>> f(3.0)
    the square is 9.0
    Array(9., dtype=float32, weak_type=True)
    """
    _require_flag("debug.callback", "ordered", ordered)
    _require_flag("debug.callback", "partitioned", partitioned)

    def call(callback: Callable[..., object], *args: object, **kwargs: object) -> None:
        require_callable("debug.callback", callback)
        function, values = _flatten_debug_call(callback, args, kwargs)
        bind(DebugCallback(function, DebugEffect(ordered), partitioned), *values)

    if callback is not None:
        call(callback, *args, **kwargs)
        return None
    _require_no_arguments("debug.callback", "callback", args, kwargs)
    return call


@overload
def debug_print(
    fmt: str,
    *args: object,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    **kwargs: object,
) -> None: ...
@overload
def debug_print(
    *, ordered: bool = False, partitioned: bool = False, skip_format_check: bool = False
) -> Callable[..., None]: ...
@api_boundary
def debug_print(
    fmt: str | None = None,
    *args: object,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    **kwargs: object,
) -> Callable[..., None] | None:
    """Prints `fmt.format(*args, **kwargs)`, also from compiled programs, with concrete values.

    It prints as often as the program reaches it, and once per batch element under `vmap`.

    Args:
        fmt: A format string, not an f-string: an f-string is formatted while the program is traced. If it has no
            fields, the positional arguments are printed after it. None, the default, makes the result a function that
            takes the format and its arguments.
        *args: The arguments of numbered and automatic fields: arrays or any objects.
        ordered: Whether it prints in program order with respect to other ordered effects. False by default.
        partitioned: Whether each device prints its shards. False by default.
        skip_format_check: Whether to omit the check that the fields of the format match the arguments. False by
            default.
        **kwargs: The arguments of named fields.

    Returns:
        None, or, without `fmt`, a function `print(fmt, *args, **kwargs)` with these options.

    Raises:
        TypeError: If `fmt` is not a string, or an option is not a boolean.
        ValueError: If an argument is not used by the format.
        IndexError: If a positional argument is missing.
        KeyError: If a keyword argument is missing.

    >>> from tracefx import jit
    >>> @jit
    ... def f(x):
    ...     debug_print("x = {x:.2f}, {}", "and so on", x=x)
    >>> f(3.0)
    x = 3.00, and so on
    """
    _require_flag("debug.print", "ordered", ordered)
    _require_flag("debug.print", "partitioned", partitioned)

    def show(fmt: str, *args: object, **kwargs: object) -> None:
        if not isinstance(fmt, str):
            raise TypeError(f"debug.print takes a format string first, got {fmt!r} of type {type(fmt).__name__}")
        if not skip_format_check:
            _check_format(fmt, args, kwargs)
        printer = _Printer(fmt, any(True for _ in format_fields(fmt)), dict(np.get_printoptions()))
        function, values = _flatten_debug_call(printer, args, kwargs)
        bind(DebugPrint(function, fmt, ordered, partitioned), *values)

    if fmt is not None:
        show(fmt, *args, **kwargs)
        return None
    _require_no_arguments("debug.print", "fmt", args, kwargs)
    return show


def _require_no_arguments(caller: str, first: str, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    if args or kwargs:
        raise TypeError(f"{caller} without {first} takes options only, got the arguments {(*args, *kwargs)!r}")


def _flatten_debug_call(
    callback: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[FlatCallback, list[Value]]:
    """Returns a callback without results, and its operands. Leaves that are not arrays are static."""
    leaves, in_tree = trees.flatten_with_known_types((args, kwargs), LEAF_TYPES)
    values: list[Value] = []
    static = []
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Tracer):
            values.append(leaf_value(leaf, i, (args, kwargs), "the arguments of a callback"))
            continue
        try:
            values.append(as_value(leaf))  # as_value raises TypeError for other objects
        except TypeError:
            static.append((i, leaf))
    return FlatCallback(callback, in_tree, None, X64.value, tuple(static)), values


# ------------------------------------------------------------------ formats


@final
@frozen(eq=False)
class _Printer:
    """Prints its arguments with a format, under the NumPy print options of the time when the format was given."""

    fmt: str
    has_fields: bool = field(eq=False, repr=False)
    options: Mapping[str, Any] = field(eq=False, repr=False)

    def __call__(self, *args: object, **kwargs: object) -> None:
        if self.has_fields:
            with np.printoptions(**self.options):
                text = self.fmt.format(*args, **kwargs)
        else:
            text = " ".join([self.fmt, *map(str, args)])
        sys.stdout.write(text + "\n")


def format_fields(fmt: str) -> Iterator[str]:
    """Yields the names of the fields of a format, and of the fields in their format specifications."""
    for _, name, spec, _ in string.Formatter().parse(fmt):
        if name is not None:
            yield name
            yield from format_fields(spec or "")


def _check_format(fmt: str, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    """Raises an error if the fields of a format do not match these arguments. It formats nothing."""
    firsts = [re.split(r"[.\[]", name, maxsplit=1)[0] for name in format_fields(fmt)]
    if "" in firsts and any(first.isdecimal() for first in firsts):
        raise ValueError(f"debug.print: the format {fmt!r} must number either all of its fields or none of them")
    automatic = itertools.count()
    positions = {int(first) if first else next(automatic) for first in firsts if not first or first.isdecimal()}
    names = {first for first in firsts if first and not first.isdecimal()}
    format_text = f"the format {fmt!r} of debug.print"
    if positions and max(positions) >= len(args):
        raise IndexError(f"{format_text} uses positional argument {max(positions)}, but there are {len(args)} of them")
    if missing := sorted(names - kwargs.keys()):
        raise KeyError(f"{format_text} uses {', '.join(missing)}, but no arguments have these names")
    unused = [f"positional argument {i}" for i in range(len(args)) if i not in positions]
    unused += [f"keyword argument {name!r}" for name in kwargs if name not in names]
    if unused:
        raise ValueError(
            f"{format_text} does not use {', '.join(unused)}. If it is an f-string, which is formatted while "
            'the program is traced, remove the f: debug.print("{x}", x=x)'
        )
