"""Python functions called from programs: `pure_callback`, `io_callback`, `debug.callback`, `debug.print`."""

from __future__ import annotations

import itertools
import re
import string
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast, final, get_args, overload

import numpy as np
from attrs import field, frozen

from tracefx.control.callback import DebugCallback, DebugPrint, FlatCallback, IOCallback, PureCallback, VmapMethod
from tracefx.core.array import Array
from tracefx.core.avals import ShapedArray
from tracefx.core.effects import DebugEffect
from tracefx.core.handler import Tracer, bind
from tracefx.core.settings import X64
from tracefx.core.values import Value, as_value
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree, TreeDef
from tracefx.transforms.arguments import LEAF_TYPES, flatten_values, leaf_value, require_callable, to_arrays
from tracefx.transforms.shape_dtype_struct import ShapeDtypeStruct, flatten_avals

# ------------------------------------------------------------------ for their results

_VMAP_METHODS: Final = get_args(VmapMethod)


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
def pure_callback(
    callback: Callable[..., object],
    result_shape_dtypes: PyTree,
    *args: PyTree,
    sharding: None = None,
    vmap_method: VmapMethod | None = None,
    **kwargs: PyTree,
) -> Any:
    """`callback(*args, **kwargs)`, in programs too, where it is called each time that they run.

    The function gets arrays, which NumPy's functions take, and gives a tree of arrays or numbers, whose leaves have
    the shapes and dtypes of those of `result_shape_dtypes`: arrays, `ShapeDtypeStruct`s and the like. It must do
    nothing else: it may be called more than once, or not at all if nobody needs its results. It has no derivative but
    what `custom_jvp` or `custom_vjp` give it. What it raises is raised by the call of the program. A program on several
    devices brings the arguments together on the first one, which calls; inside of `shard_map` each calls for its part.

    `vmap_method` says what `vmap` makes of it: `"sequential"` and `"sequential_unrolled"` call it for each element of
    the batch; `"expand_dims"` and `"broadcast_all"` call it once, with a leading axis for the batch in all arguments,
    which has size 1, or is repeated, in those that are the same for all elements; `"legacy_vectorized"` gives it to
    the others only.

    Raises TypeError if what the function gives is of other types, ValueError for a `vmap_method` that there isn't, and
    NotImplementedError under `vmap` if there is none.

    >>> import numpy as np
    >>> from tracefx import jit
    >>> zeta = lambda x: np.sum(1.0 / np.arange(1, 10_000) ** np.float64(x))
    >>> f = jit(lambda x: pure_callback(zeta, ShapeDtypeStruct((), "float32"), x) + 1)
    >>> round(float(f(2.0)), 3)
    2.645
    """
    if vmap_method is not None and vmap_method not in _VMAP_METHODS:
        raise ValueError(
            f"pure_callback: vmap_method must be None or one of {', '.join(_VMAP_METHODS)}, got {vmap_method!r}"
        )
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
def io_callback(
    callback: Callable[..., object],
    result_shape_dtypes: PyTree,
    *args: PyTree,
    sharding: None = None,
    ordered: bool = False,
    **kwargs: PyTree,
) -> Any:
    """`callback(*args, **kwargs)` for what it does: it is called exactly as often as the program gets there.

    As `pure_callback`, but the call is never dropped, repeated or merged with another. Ordered calls happen in the
    order of the program, in its loops and branches too; others whenever their arguments are known. `vmap` calls the
    function for each element of the batch. It refuses ordered calls with ValueError. Inside of `shard_map` each device
    has its own order, and does not wait for the others.

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
    """A call of a function on trees, flattened."""

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
    """Return when what the programs called so far do on the host has been done.

    A call of a program that does anything there returns when it is done, so there is nothing to wait for.
    """


# ------------------------------------------------------------------ for what they show


@overload
def debug_callback(
    callback: Callable[..., object], *args: object, ordered: bool = False, partitioned: bool = False, **kwargs: object
) -> None: ...
@overload
def debug_callback(*, ordered: bool = False, partitioned: bool = False) -> Callable[..., None]: ...
def debug_callback(
    callback: Callable[..., object] | None = None,
    *args: object,
    ordered: bool = False,
    partitioned: bool = False,
    **kwargs: object,
) -> Callable[..., None] | None:
    """Call `callback(*args, **kwargs)`, for debugging, in programs too: it sees the values that they compute with.

    It changes nothing of what is computed, and happens as often as that: under `grad` it sees the values, not their
    derivatives; under `vmap` it is called for each element of the batch. Ordered calls happen in the order of the
    program. Arguments that are no arrays are passed on as they are; what the function returns is ignored.

    Without `callback` the result is the function with these options, for arguments that go by the same names.
    A program on several devices calls once, with whole arrays. With `partitioned` each device calls with its parts, as
    the compiler has cut them, and nothing is brought together; not so ordered calls, and those under `vmap`. Inside of
    `shard_map` each device calls with its part.

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
def debug_print(
    fmt: str | None = None,
    *args: object,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    **kwargs: object,
) -> Callable[..., None] | None:
    """Print `fmt.format(*args, **kwargs)`, in programs too, where the values are those that they compute with.

    The format is no f-string, which would print what the value is while the program is traced. It is printed as often
    as what it shows is computed, once for each element of a batch under `vmap`. Ordered ones are printed in the order
    of the program. With `partitioned` each device prints its parts. Without `fmt` the result is the function with these
    options.

    Raises ValueError for arguments that the format doesn't use, KeyError and IndexError for those it lacks, when the
    function is called or traced.

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
        printer = _Printer(fmt, any(True for _ in _format_fields(fmt)), dict(np.get_printoptions()))
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
    """A function whose result is ignored, and what it is called with; leaves that are no arrays are static."""
    leaves, in_tree = trees.flatten_with_known_types((args, kwargs), LEAF_TYPES)
    values: list[Value] = []
    static = []
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Tracer):
            values.append(leaf_value(leaf, i, (args, kwargs), "the arguments of a callback"))
            continue
        try:
            values.append(as_value(cast("Array", leaf)))  # or something else, which is what is to be found out
        except TypeError:
            static.append((i, leaf))
    return FlatCallback(callback, in_tree, None, X64.value, tuple(static)), values


# ------------------------------------------------------------------ formats


@final
@frozen(eq=False)
class _Printer:
    """Prints its arguments as a format says, numbers as NumPy was set to print them where the format was given."""

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


def _format_fields(fmt: str) -> Iterator[str]:
    """The names of a format's fields, and of those in the specifications of fields."""
    for _, name, spec, _ in string.Formatter().parse(fmt):
        if name is not None:
            yield name
            yield from _format_fields(spec or "")


def _check_format(fmt: str, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    """Raise what is wrong with a format for these arguments, without looking into them."""
    firsts = [re.split(r"[.\[]", name, maxsplit=1)[0] for name in _format_fields(fmt)]
    if "" in firsts and any(first.isdecimal() for first in firsts):
        raise ValueError(f"debug.print: the format {fmt!r} must number either all of its fields or none of them")
    automatic = itertools.count()
    places = {int(first) if first else next(automatic) for first in firsts if not first or first.isdecimal()}
    names = {first for first in firsts if first and not first.isdecimal()}
    told = f"the format {fmt!r} of debug.print"
    if places and max(places) >= len(args):
        raise IndexError(f"{told} shows positional argument {max(places)}, but there are {len(args)} of them")
    if missing := sorted(names - kwargs.keys()):
        raise KeyError(f"{told} shows {', '.join(missing)}, which it was not given")
    unused = [f"positional argument {i}" for i in range(len(args)) if i not in places]
    unused += [f"keyword argument {name!r}" for name in kwargs if name not in names]
    if unused:
        raise ValueError(
            f"{told} leaves {', '.join(unused)} unused. If it was an f-string, which is formatted before the values "
            'are known, leave out the f: debug.print("{x}", x=x)'
        )
