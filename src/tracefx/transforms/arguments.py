"""Arguments of transformed functions: conversion between pytrees and values, `argnums`, and names in messages."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any, Final, TypeAlias, final

import numpy as np
from attrs import frozen

from tracefx.core import ArrayLike, ConcreteArray, Literal, NDArray, ShapedArray, Value, as_value, is_arraylike
from tracefx.core.handler import CURRENT, Tracer, as_array, require_not_escaped
from tracefx.core.literal import argument_literal
from tracefx.core.values import jax_hint, numpy_aval
from tracefx.dimensions.symbolic_dimensions import is_symbolic_dim
from tracefx.errors import RefError
from tracefx.interpreters.batch import BatchTracer
from tracefx.interpreters.jvp import JVPTracer
from tracefx.interpreters.recording import StageTracer
from tracefx.interpreters.refs import Ref, RefLike, read_refs, ref_arguments
from tracefx.pytrees import trees
from tracefx.pytrees.trees import KeyPath, PyTree, TreeDef, keystr
from tracefx.settings import X64

AnyFunction: TypeAlias = Callable[..., object]
LeafNames: TypeAlias = Callable[[int], str]
"""Returns the name of a leaf, given by its number, for messages."""

LEAF_TYPES: Final[frozenset[type]] = frozenset(
    {ConcreteArray, StageTracer, JVPTracer, BatchTracer, np.ndarray, bool, int, float, complex, np.float32, np.int32}
)


def fun_name(f: object) -> str:
    """Returns the name of a function in messages and programs; for a `functools.partial`, that of its function."""
    name = getattr(f, "__name__", None)
    return name or (fun_name(f.func) if isinstance(f, functools.partial) else type(f).__name__)


def fun_label(f: object) -> str:
    """Returns the name of a function in messages; for a lambda, with the line that defines it."""
    name = fun_name(f)
    return f"<lambda>{_defined_at(f)}" if name == "<lambda>" else name


def output_label(f: object) -> str:
    """Returns the name of a function's output in messages, with the line that defines the function."""
    return f"{fun_name(f)}{_defined_at(f)}: the output"


def _defined_at(f: object) -> str:
    """Returns ` at file:line` for a function that is written in Python."""
    code = getattr(inspect.unwrap(f) if callable(f) else f, "__code__", None)
    return f" at {code.co_filename}:{code.co_firstlineno}" if isinstance(code, CodeType) else ""


def show_object(x: object) -> str:
    """Returns a value with its type, for messages; only the type if the text has an address or several lines."""
    text, kind = repr(x), type(x).__name__
    return f"an object of type {kind}" if " at 0x" in text or "\n" in text else f"{text} of type {kind}"


def require_callable(transform: str, f: object, argument: str = "") -> None:
    """Raises TypeError, in the name of a transformation and of its argument, unless `f` is callable."""
    if not callable(f):
        expected = f"{transform}: {argument} must be a function" if argument else f"{transform} takes a function"
        raise TypeError(f"{expected}, got {show_object(f)}; pass the function itself, without calling it")


def flatten_values(tree: PyTree, what: str | LeafNames) -> tuple[list[Value], TreeDef]:
    """Flattens a pytree to values. Raises a TypeError that names a leaf that is not an array; see `leaf_value`."""
    if type(tree) in LEAF_TYPES:
        return [tree if type(tree) is ConcreteArray else leaf_value(tree, 0, tree, what)], trees.leaf()
    leaves, treedef = trees.flatten_with_known_types(tree, LEAF_TYPES)
    return to_values(leaves, tree, what), treedef


def flatten_values_and_refs(tree: PyTree, what: str) -> tuple[list[Value], TreeDef, dict[int, Ref]]:
    """Flattens a pytree that may have references as leaves: returns their contents, and the references by position."""
    leaves, treedef = trees.flatten_with_known_types(tree, LEAF_TYPES)
    refs = ref_arguments(what, leaves)
    return to_values(read_refs(leaves, refs), tree, what), treedef, refs


def to_values(leaves: Sequence[object], tree: PyTree, what: str | LeafNames) -> list[Value]:
    """Converts the leaves of `tree` to values."""
    return [
        leaf if type(leaf) is ConcreteArray else leaf_value(leaf, i, tree, what)  # saves a call in the common case
        for i, leaf in enumerate(leaves)
    ]


def to_inputs(leaves: Sequence[object], tree: PyTree, what: str) -> tuple[list[Value | NDArray], list[ShapedArray]]:
    """Converts the leaves of `tree` to inputs of a compiled program. Returns them with their types.

    NumPy arrays that need no conversion are returned unchanged. Equal numbers share a literal, with its device buffer.
    """
    x64 = X64.value
    values: list[Value | NDArray] = []
    avals = []
    for i, leaf in enumerate(leaves):
        value: Value
        if type(leaf) is ConcreteArray:
            value = leaf
        elif type(leaf) is np.ndarray and (aval := numpy_aval(leaf.shape, dtype := leaf.dtype, x64)).dtype is dtype:
            values.append(leaf)
            avals.append(aval)
            continue
        else:
            value = leaf_value(leaf, i, tree, what)
            if type(value) is Literal:
                value = argument_literal(value.val, value.aval)
        values.append(value)
        avals.append(value.aval)
    return values, avals


def leaf_value(leaf: object, i: int, tree: PyTree, what: str | LeafNames) -> Value:
    """Converts leaf number `i` of `tree` to a value. `what` is the name of the tree, or gives those of its leaves.

    Raises:
        TypeError: If the leaf is not an array or a number.
        EscapedTracerError: If it is a tracer of a transformation that is not running here.
    """
    if isinstance(leaf, Tracer):
        if leaf.handler is not CURRENT.get():
            require_not_escaped(leaf, f"in {what if isinstance(what, str) else what(i)}")
        return leaf
    if is_arraylike(leaf) or is_symbolic_dim(leaf):
        return as_value(leaf)
    name = element_name(what, tree, i) if isinstance(what, str) else what(i)
    if isinstance(leaf, RefLike):
        kind = "a reference to an array" if isinstance(leaf, Ref) else "a view of a reference"
        raise RefError(
            f"{name} must be an array or a number, got {kind}: use its contents, ref[...]. Functions may close over "
            "references that are made outside"
        )
    raise TypeError(f"{name} must be an array or a number, got {show_object(leaf)}{jax_hint(leaf)}")


def element_name(what: str, tree: PyTree, i: int) -> str:
    """Names leaf number `i` of a pytree: `output[1]` if `what` is `the output`, which is the name of a single leaf."""
    path = keystr(trees.flatten_with_path(tree)[0][i][0])
    return re.sub(r"\bthe (\w+)$", r"\1", what) + path if path else what


def to_arrays(values: Sequence[ArrayLike]) -> list[object]:
    """Converts values to arrays, as users see them: literals become arrays."""
    return [as_array(v) for v in values]


def argument_names(
    f: AnyFunction, name: str, args: Sequence[object], kwargs: Mapping[str, object], positions: Sequence[int]
) -> list[str]:
    """Returns one name per leaf of `(args, kwargs)`, such as "the argument `x['a']` of loss", for messages.

    `positions` are the positions of `args`, which may be only some of the arguments, in the call of `f`.
    """
    paths, _ = trees.flatten_with_path((tuple(args), dict(kwargs)))
    parameters = _positional(f)
    return [f"the argument {_argument(path, parameters, positions)} of {name}" for path, _ in paths]


@final
@frozen
class ArgumentNames:
    """The names of the leaves of a call's arguments, which are computed when a message needs them.

    `positions` are the positions of `args`, which may be only some of the arguments, in the call of `fun`.
    """

    fun: AnyFunction
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    positions: Sequence[int]

    def __getitem__(self, leaf: int) -> str:
        return argument_names(self.fun, fun_name(self.fun), self.args, self.kwargs, self.positions)[leaf]


def _positional(f: AnyFunction) -> Callable[[int], str]:
    """Returns a function from a position to the name of the positional parameter of `f`."""
    names: Sequence[str]
    remaining: Sequence[str]
    if type(f) is FunctionType and not f.__dict__:  # no other signature is declared; `inspect` takes 30 µs
        code = f.__code__
        after = code.co_argcount + code.co_kwonlyargcount
        names = code.co_varnames[: code.co_argcount]
        remaining = code.co_varnames[after : after + 1] if code.co_flags & inspect.CO_VARARGS else ()
    else:
        try:
            parameters = list(inspect.signature(f).parameters.values())
        except (TypeError, ValueError):
            return str
        names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        remaining = [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]

    def called(position: int) -> str:
        if position < len(names):
            return names[position]
        return f"{remaining[0]}[{position - len(names)}]" if remaining else str(position)

    return called


def _argument(path: KeyPath, parameters: Callable[[int], str], positions: Sequence[int]) -> str:
    """Returns an argument's name in a message: the parameter, with the path of the leaf in it."""
    _, which, *remaining = path
    position = getattr(which, "idx", None)
    name = parameters(positions[position]) if isinstance(position, int) else str(getattr(which, "key", which))
    return f"`{name}{keystr(tuple(remaining))}`"


class ArgnumsError(ValueError, TypeError):
    """`argnums` names an argument that is not passed, or one twice. JAX raises TypeError or ValueError."""


def normalize_argnums(argnums: int | Sequence[int], count: int, transform: str, f: object) -> tuple[int, ...]:
    """Returns `argnums` as non-negative positions among `count` positional arguments."""
    if type(argnums) is int and 0 <= argnums < count:
        return (argnums,)
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for n in numbers:
        if not -count <= n < count:
            raise ArgnumsError(
                f"{transform} of {fun_label(f)}: argnums {argnums!r} names argument {n}, but it was called with "
                f"{count} positional argument{'s' if count != 1 else ''}"
            )
    positions = tuple([n % count for n in numbers])
    if len(set(positions)) != len(positions):
        raise ArgnumsError(f"{transform} of {fun_label(f)}: argnums {argnums!r} names an argument twice")
    return positions


def python_integers(numbers: Iterable[int | np.integer]) -> tuple[int, ...]:
    """Returns positions of arguments with NumPy integers as Python's."""
    return tuple([int(n) if isinstance(n, np.integer) else n for n in numbers])


def check_argnums(argnums: object, transform: str, option: str = "argnums") -> None:
    """Raises TypeError unless `argnums` is an integer or a sequence of integers."""
    numbers = argnums if isinstance(argnums, tuple | list) else (argnums,)
    if any(isinstance(n, bool) or not isinstance(n, int) for n in numbers):
        raise TypeError(f"{transform}: {option} must be an integer or a tuple of integers, got {argnums!r}")


_STATIC_OR_TREE: Final = (
    "; if the program may depend on its value, mark the argument as static, by static_argnums or static_argnames (for "
    "`self`, static_argnums=0); if it is a container of arrays, register its type as a pytree node"
)


def require_arrays(leaves: Sequence[object], names: Callable[[], Sequence[str]]) -> None:
    """Raises a TypeError that names the argument of a jitted function for a leaf that is not an array."""
    for i, leaf in enumerate(leaves):
        if not is_arraylike(leaf) and not isinstance(leaf, RefLike):
            raise TypeError(
                f"jit: {names()[i]} must be an array or a number, got {show_object(leaf)}"
                f"{jax_hint(leaf) or _STATIC_OR_TREE}"
            ) from None  # the error that led here gives a path instead of the argument's name


class WrappedSignature:
    """The attribute `__signature__` of objects that wrap functions: `inspect` need not follow `__wrapped__`."""

    def __get__(self, instance: object, owner: type | None = None) -> inspect.Signature:
        if instance is not None:
            with contextlib.suppress(TypeError, ValueError):  # built-in functions without a signature
                return inspect.signature(vars(instance)["__wrapped__"])
        raise AttributeError("__signature__")
