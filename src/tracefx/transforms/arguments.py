"""Arguments of transformed functions: trees to values and back, `argnums`, and what messages call them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Final, TypeAlias

import numpy as np

from tracefx.core.array import ArrayLike, is_arraylike
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import NDArray
from tracefx.core.handler import CURRENT, Tracer, as_array, require_not_escaped
from tracefx.core.settings import X64
from tracefx.core.values import ConcreteArray, Value, as_value, jax_hint, numpy_aval
from tracefx.interpreters.batch import BatchTracer
from tracefx.interpreters.jvp import JVPTracer
from tracefx.interpreters.recording import StageTracer
from tracefx.pytrees import trees
from tracefx.pytrees.trees import KeyPath, PyTree, TreeDef, keystr

AnyFunction: TypeAlias = Callable[..., object]

LEAF_TYPES: Final[frozenset[type]] = frozenset(
    {ConcreteArray, StageTracer, JVPTracer, BatchTracer, np.ndarray, bool, int, float, complex, np.float32, np.int32}
)


def fun_name(f: object) -> str:
    """What messages and programs call a function."""
    return getattr(f, "__name__", None) or type(f).__name__


def require_callable(transform: str, f: object) -> None:
    if not callable(f):
        raise TypeError(f"{transform} takes a function, got {f!r} of type {type(f).__name__}")


def flatten_values(tree: PyTree, what: str) -> tuple[list[Value], TreeDef]:
    """The leaves of a tree as values; a leaf that is no array is a `TypeError` that says where in `what` it is."""
    if type(tree) in LEAF_TYPES:
        return [tree if type(tree) is ConcreteArray else leaf_value(tree, 0, tree, what)], trees.leaf()
    leaves, treedef = trees.flatten_with_known_types(tree, LEAF_TYPES)
    return to_values(leaves, tree, what), treedef


def to_values(leaves: Sequence[object], tree: PyTree, what: str) -> list[Value]:
    """The leaves of `tree` as values."""
    return [
        leaf if type(leaf) is ConcreteArray else leaf_value(leaf, i, tree, what)  # the common case without a call
        for i, leaf in enumerate(leaves)
    ]


def to_inputs(leaves: Sequence[object], tree: PyTree, what: str) -> tuple[list[Value | NDArray], list[ShapedArray]]:
    """The leaves of `tree` for a compiled program, with their types. NumPy arrays that need no conversion stay."""
    x64 = X64.value
    values: list[Value | NDArray] = []
    avals = []
    for i, leaf in enumerate(leaves):
        if type(leaf) is ConcreteArray:
            values.append(leaf)
            avals.append(leaf.aval)
        elif type(leaf) is np.ndarray and (aval := numpy_aval(leaf.shape, dtype := leaf.dtype, x64)).dtype is dtype:
            values.append(leaf)
            avals.append(aval)
        else:
            value = leaf_value(leaf, i, tree, what)
            values.append(value)
            avals.append(value.aval)
    return values, avals


def leaf_value(leaf: object, i: int, tree: PyTree, what: str) -> Value:
    """Leaf number `i` of `tree` as a value.

    `TypeError` if it is no array, `EscapedTracerError` if its transformation is not in force here.
    """
    if isinstance(leaf, Tracer):
        if leaf.handler is not CURRENT.get():
            require_not_escaped(leaf, f"in {what}")
        return leaf
    if is_arraylike(leaf):
        return as_value(leaf)
    path, _ = trees.flatten_with_path(tree)[0][i]
    raise TypeError(
        f"{what}{keystr(path)} must be an array or a number, got {leaf!r} of type {type(leaf).__name__}{jax_hint(leaf)}"
    )


def to_arrays(values: Sequence[ArrayLike]) -> list[object]:
    """Values as users get them: literals have become arrays."""
    return [as_array(v) for v in values]


def argument_names(
    f: AnyFunction, name: str, args: Sequence[object], kwargs: Mapping[str, object], places: Sequence[int]
) -> list[str]:
    """One phrase a leaf of `(args, kwargs)`, such as "the argument `x['a']` of loss", for messages.

    `places` are the positions that `args`, which need not be all of them, have in a call of `f`.
    """
    paths, _ = trees.flatten_with_path((tuple(args), dict(kwargs)))
    parameters = _positional(f)
    return [f"the argument {_argument(path, parameters, places)} of {name}" for path, _ in paths]


def _positional(f: AnyFunction) -> Callable[[int], str]:
    """What the function calls its positional arguments."""
    names: Sequence[str]
    rest: Sequence[str]
    if type(f) is FunctionType and not f.__dict__:  # nothing says another signature; `inspect` takes 30 µs to say so
        code = f.__code__
        after = code.co_argcount + code.co_kwonlyargcount
        names = code.co_varnames[: code.co_argcount]
        rest = code.co_varnames[after : after + 1] if code.co_flags & inspect.CO_VARARGS else ()
    else:
        try:
            parameters = list(inspect.signature(f).parameters.values())
        except (TypeError, ValueError):
            return str
        names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        rest = [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]

    def called(place: int) -> str:
        if place < len(names):
            return names[place]
        return f"{rest[0]}[{place - len(names)}]" if rest else str(place)

    return called


def _argument(path: KeyPath, parameters: Callable[[int], str], places: Sequence[int]) -> str:
    _, which, *rest = path
    place = getattr(which, "idx", None)
    name = parameters(places[place]) if isinstance(place, int) else str(getattr(which, "key", which))
    return f"`{name}{keystr(tuple(rest))}`"


def normalize_argnums(argnums: int | Sequence[int], count: int, transform: str, f: object) -> tuple[int, ...]:
    """`argnums` as non-negative positions among `count` positional arguments."""
    if type(argnums) is int and 0 <= argnums < count:
        return (argnums,)
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for n in numbers:
        if not -count <= n < count:
            raise ValueError(
                f"{transform} of {fun_name(f)}: argnums {argnums!r} names argument {n}, but it was called with "
                f"{count} positional argument{'s' if count != 1 else ''}"
            )
    places = tuple([n % count for n in numbers])
    if len(set(places)) != len(places):
        raise ValueError(f"{transform} of {fun_name(f)}: argnums {argnums!r} names an argument twice")
    return places


def check_argnums(argnums: object, transform: str, option: str = "argnums") -> None:
    """`TypeError` unless `argnums` is an integer or a sequence of integers."""
    numbers = argnums if isinstance(argnums, tuple | list) else (argnums,)
    if any(isinstance(n, bool) or not isinstance(n, int) for n in numbers):
        raise TypeError(f"{transform}: {option} must be an integer or a tuple of integers, got {argnums!r}")
