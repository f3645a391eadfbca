"""Transformations as values: they compose with `@`, and are compared, hashed, printed and pickled by their options.

Calling a transformation on a function returns the transformed function. A transformation also has a *kind*: a type
parameter, used by type checkers only, that describes how the type of the function changes. The kind of a composition is
as precise as Python's type system allows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, ClassVar, Concatenate, Final, Generic, Literal, TypeAlias, TypeVar, final, overload

import attrs
from attrs import frozen
from typing_extensions import ParamSpec, TypeVarTuple, override

from tracefx.core import Array, ArrayLike
from tracefx.core.equality import attrs_fields, strict_key
from tracefx.core.handler import Handler
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree, TreeDescription, describe
from tracefx.settings import checked_repeats
from tracefx.transforms.arguments import check_argnums, python_integers
from tracefx.transforms.function_types import (
    GradientAndAux,
    GradientFunction,
    Pair,
    Several,
    ValueAndGradient,
    WrappedFunction,
)

# ------------------------------------------------------------------ kinds: how a transformation changes a type


class TransformKind:
    """Describes how a transformation changes a function's type. Kinds have no instances and no common subclasses."""


class SameArguments(TransformKind):
    """The parameters keep their types; the result may have any type."""


class Preserving(TransformKind):
    """The parameters and the result keep their types."""


N = TypeVar("N")
H = TypeVar("H")


class Gradients(TransformKind, Generic[N, H]):
    """The result has the type of argument `N`; if `H` is true, it is a pair of that and the auxiliary output."""


class ValuesAndGradients(TransformKind, Generic[N, H]):
    """The result is a pair of the original result and a value of the type of argument `N`."""


class Directional(TransformKind, Generic[H]):
    """The function takes `(primals, tangents)` and returns a pair of results."""


@final
class UnknownArgnum:
    """A value of `N`: one position, unknown to the type checker. With `H` plain `bool` it may be several."""


@final
class UnknownArgnums:
    """A value of `N`: several positions, unknown to the type checker."""


Yes: TypeAlias = Literal[True]
No: TypeAlias = Literal[False]
L0: TypeAlias = Literal[0]
L1: TypeAlias = Literal[1]
L2: TypeAlias = Literal[2]
L3: TypeAlias = Literal[3]
Argnum = TypeVar("Argnum", bound=Literal[0, 1, 2, 3])
Argnum2 = TypeVar("Argnum2", bound=Literal[0, 1, 2, 3])

P = ParamSpec("P")
Ts = TypeVarTuple("Ts")
# Without the bound, pyright reports an error for every operation on the arguments of a lambda.
A = TypeVar("A", bound=Any)
B = TypeVar("B", bound=Any)
C = TypeVar("C", bound=Any)
D = TypeVar("D", bound=Any)
R = TypeVar("R")
X = TypeVar("X")
M = TypeVar("M")
K = TypeVar("K", bound=TransformKind)
K2 = TypeVar("K2", bound=TransformKind)
ResultChanging: TypeAlias = SameArguments | Gradients[Any, Any] | ValuesAndGradients[Any, Any]
S = TypeVar("S", bound=ResultChanging)
S2 = TypeVar("S2", bound=ResultChanging)


# ------------------------------------------------------------------ transformations


class Transform(ABC):
    """A transformation of functions, as a value.

    `(a @ b)(f)` is `a(b(f))`. `@` is associative, and `IdentityTransform()` is its neutral element. Two transformations
    are equal if they have the same type and the same options, however the options were written.

    >>> from tracefx.transforms.gradients import Grad
    >>> from tracefx.transforms.jit import Jit
    >>> pipeline = Jit(static_argnums=1) @ Grad()
    >>> pipeline == Jit(static_argnums=(1,)) @ IdentityTransform() @ Grad(argnums=0), pipeline
    (True, Jit(static_argnums=(1,)) @ Grad())
    >>> float(pipeline(lambda x, n: x**n)(2.0, 3))
    12.0
    """

    __slots__ = ()
    title: ClassVar[str]
    """The name of the transformation in messages, e.g. `vmap`."""

    @abstractmethod
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the transformed function.

        Args:
            fun: The function.

        Returns:
            The transformed function.
        """

    def __call__(self, fun: Callable[..., Any], /) -> Callable[..., Any]:
        return self.transformed(fun)

    def __matmul__(self, other: Transform, /) -> Transform:
        if not isinstance(other, Transform):
            return NotImplemented
        parts = (*_parts(self), *_parts(other))
        if not parts:
            return IdentityTransform()
        if len(parts) == 1:
            return parts[0]
        return ComposedHandlers(parts) if all(isinstance(p, HandlerTransform) for p in parts) else Composed(parts)

    @override
    def __eq__(self, other: object) -> bool:
        return self is other or (type(self) is type(other) and strict_key(self) == strict_key(other))

    @override
    def __hash__(self) -> int:
        return hash(strict_key(self))

    @override
    def __repr__(self) -> str:
        options = [(f.alias or f.name, getattr(self, f.name), f.default) for f in attrs_fields(type(self))]
        changed = [name for name, given, default in options if strict_key(given) != strict_key(default)]
        return f"{type(self).__name__}({', '.join([f'{name}={getattr(self, name)!r}' for name in changed])})"


class TransformOf(Transform, Generic[K]):
    """A transformation whose type parameter is its kind: its effect on a function's type."""

    __slots__ = ()

    @overload
    def __call__(self: TransformOf[Preserving], fun: Callable[P, R], /) -> Callable[P, R]: ...
    @overload
    def __call__(
        self: TransformOf[Gradients[L0, No]], fun: Callable[Concatenate[A, P], object], /
    ) -> GradientFunction[Concatenate[A, P], A]: ...
    @overload
    def __call__(
        self: TransformOf[Gradients[L1, No]], fun: Callable[Concatenate[A, B, P], object], /
    ) -> GradientFunction[Concatenate[A, B, P], B]: ...
    @overload
    def __call__(
        self: TransformOf[Gradients[L2, No]], fun: Callable[Concatenate[A, B, C, P], object], /
    ) -> GradientFunction[Concatenate[A, B, C, P], C]: ...
    @overload
    def __call__(
        self: TransformOf[Gradients[L3, No]], fun: Callable[Concatenate[A, B, C, D, P], object], /
    ) -> GradientFunction[Concatenate[A, B, C, D, P], D]: ...
    @overload
    def __call__(
        self: TransformOf[Gradients[tuple[L0, L1], No]], fun: Callable[Concatenate[A, B, P], object], /
    ) -> GradientFunction[Concatenate[A, B, P], Pair[A, B]]: ...
    @overload
    def __call__(
        self: TransformOf[Gradients[UnknownArgnum, No]], fun: Callable[P, object], /
    ) -> GradientFunction[P, Any]: ...
    @overload
    def __call__(
        self: TransformOf[Gradients[UnknownArgnums, No]], fun: Callable[P, object], /
    ) -> GradientFunction[P, Several]: ...
    @overload
    def __call__(
        self: TransformOf[Gradients[L0, Yes]], fun: Callable[Concatenate[A, P], tuple[object, X]], /
    ) -> GradientAndAux[Concatenate[A, P], A, X]: ...
    @overload
    def __call__(
        self: TransformOf[Gradients[L1, Yes]], fun: Callable[Concatenate[A, B, P], tuple[object, X]], /
    ) -> GradientAndAux[Concatenate[A, B, P], B, X]: ...
    @overload
    def __call__(
        self: TransformOf[Gradients[L2, Yes]], fun: Callable[Concatenate[A, B, C, P], tuple[object, X]], /
    ) -> GradientAndAux[Concatenate[A, B, C, P], C, X]: ...
    @overload
    def __call__(
        self: TransformOf[Gradients[L3, Yes]], fun: Callable[Concatenate[A, B, C, D, P], tuple[object, X]], /
    ) -> GradientAndAux[Concatenate[A, B, C, D, P], D, X]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]  # more precise than for a has_aux that is unknown
        self: TransformOf[Gradients[UnknownArgnum, Yes]], fun: Callable[P, tuple[object, X]], /
    ) -> GradientAndAux[P, Any, X]: ...
    @overload
    def __call__(
        self: TransformOf[Gradients[UnknownArgnums, Yes]], fun: Callable[P, tuple[object, X]], /
    ) -> GradientAndAux[P, Several, X]: ...
    @overload
    def __call__(
        self: TransformOf[ValuesAndGradients[L0, No]], fun: Callable[Concatenate[A, P], object], /
    ) -> ValueAndGradient[Concatenate[A, P], Array, A]: ...
    @overload
    def __call__(
        self: TransformOf[ValuesAndGradients[L1, No]], fun: Callable[Concatenate[A, B, P], object], /
    ) -> ValueAndGradient[Concatenate[A, B, P], Array, B]: ...
    @overload
    def __call__(
        self: TransformOf[ValuesAndGradients[L2, No]], fun: Callable[Concatenate[A, B, C, P], object], /
    ) -> ValueAndGradient[Concatenate[A, B, C, P], Array, C]: ...
    @overload
    def __call__(
        self: TransformOf[ValuesAndGradients[L3, No]], fun: Callable[Concatenate[A, B, C, D, P], object], /
    ) -> ValueAndGradient[Concatenate[A, B, C, D, P], Array, D]: ...
    @overload
    def __call__(
        self: TransformOf[ValuesAndGradients[tuple[L0, L1], No]], fun: Callable[Concatenate[A, B, P], object], /
    ) -> ValueAndGradient[Concatenate[A, B, P], Array, Pair[A, B]]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]  # more precise than for a has_aux that is unknown
        self: TransformOf[ValuesAndGradients[UnknownArgnum, No]], fun: Callable[P, object], /
    ) -> ValueAndGradient[P, Array, Any]: ...
    @overload
    def __call__(
        self: TransformOf[ValuesAndGradients[UnknownArgnums, No]], fun: Callable[P, object], /
    ) -> ValueAndGradient[P, Array, Several]: ...
    @overload
    def __call__(
        self: TransformOf[ValuesAndGradients[L0, Yes]], fun: Callable[Concatenate[A, P], tuple[object, X]], /
    ) -> ValueAndGradient[Concatenate[A, P], tuple[Array, X], A]: ...
    @overload
    def __call__(
        self: TransformOf[ValuesAndGradients[L1, Yes]], fun: Callable[Concatenate[A, B, P], tuple[object, X]], /
    ) -> ValueAndGradient[Concatenate[A, B, P], tuple[Array, X], B]: ...
    @overload
    def __call__(
        self: TransformOf[ValuesAndGradients[L2, Yes]], fun: Callable[Concatenate[A, B, C, P], tuple[object, X]], /
    ) -> ValueAndGradient[Concatenate[A, B, C, P], tuple[Array, X], C]: ...
    @overload
    def __call__(
        self: TransformOf[ValuesAndGradients[L3, Yes]], fun: Callable[Concatenate[A, B, C, D, P], tuple[object, X]], /
    ) -> ValueAndGradient[Concatenate[A, B, C, D, P], tuple[Array, X], D]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]  # more precise than for a has_aux that is unknown
        self: TransformOf[ValuesAndGradients[UnknownArgnum, Yes]], fun: Callable[P, tuple[object, X]], /
    ) -> ValueAndGradient[P, tuple[Array, X], Any]: ...
    @overload
    def __call__(
        self: TransformOf[ValuesAndGradients[UnknownArgnums, Yes]], fun: Callable[P, tuple[object, X]], /
    ) -> ValueAndGradient[P, tuple[Array, X], Several]: ...
    @overload
    def __call__(
        self: TransformOf[Directional[No]], fun: Callable[[*Ts], ArrayLike], /
    ) -> WrappedFunction[[tuple[*Ts], Sequence[Any]], tuple[Array, Array]]: ...
    @overload
    def __call__(
        self: TransformOf[Directional[No]], fun: Callable[[*Ts], R], /
    ) -> WrappedFunction[[tuple[*Ts], Sequence[Any]], tuple[R, R]]: ...
    @overload
    def __call__(
        self: TransformOf[Directional[Yes]], fun: Callable[[*Ts], tuple[ArrayLike, X]], /
    ) -> WrappedFunction[[tuple[*Ts], Sequence[Any]], tuple[Array, Array, X]]: ...
    @overload
    def __call__(
        self: TransformOf[Directional[Yes]], fun: Callable[[*Ts], tuple[R, X]], /
    ) -> WrappedFunction[[tuple[*Ts], Sequence[Any]], tuple[R, R, X]]: ...
    @overload
    def __call__(
        self: TransformOf[Gradients[UnknownArgnum, bool]], fun: Callable[P, object], /
    ) -> WrappedFunction[P, Any]: ...
    @overload
    def __call__(
        self: TransformOf[ValuesAndGradients[UnknownArgnum, bool]], fun: Callable[P, object], /
    ) -> WrappedFunction[P, Any]: ...
    @overload
    def __call__(self: TransformOf[SameArguments], fun: Callable[P, object], /) -> WrappedFunction[P, Any]: ...
    @override
    def __call__(self, fun: Callable[..., Any], /) -> Callable[..., Any]:
        return self.transformed(fun)

    @overload
    def __matmul__(self: TransformOf[Preserving], other: TransformOf[K2], /) -> TransformOf[K2]: ...
    @overload
    def __matmul__(self, other: TransformOf[Preserving], /) -> TransformOf[K]: ...
    @overload
    def __matmul__(
        self: TransformOf[Gradients[N, No]], other: TransformOf[Gradients[M, No]], /
    ) -> TransformOf[Gradients[N, No]]: ...
    @overload
    def __matmul__(self: TransformOf[S], other: TransformOf[S2], /) -> TransformOf[SameArguments]: ...
    @overload
    def __matmul__(self, other: Transform, /) -> Transform: ...
    @override
    def __matmul__(self, other: Transform, /) -> Transform:
        return super().__matmul__(other)


class HandlerTransform(TransformOf[K]):
    """A transformation that only runs the function under a handler.

    >>> from tracefx import Jvp, Vmap, current
    >>> stack = Vmap(axis_size=3) @ Jvp()
    >>> isinstance(stack, HandlerTransform), type(stack.over(current())).__name__
    (True, 'JVP')
    """

    __slots__ = ()

    @abstractmethod
    def over(self, handler: Handler, /) -> Handler:
        """Returns the transformation's handler, with `handler` as its inner handler.

        Args:
            handler: The handler that interprets what this transformation passes on.

        Returns:
            The new handler.
        """

    # The overloads are more precise than those of the base, which mypy does not accept as an override.
    @overload  # type: ignore[override]
    def __matmul__(self: TransformOf[Preserving], other: HandlerTransform[K2], /) -> HandlerTransform[K2]: ...
    @overload
    def __matmul__(self, other: HandlerTransform[Preserving], /) -> HandlerTransform[K]: ...
    @overload
    def __matmul__(self: TransformOf[Preserving], other: TransformOf[K2], /) -> TransformOf[K2]: ...
    @overload
    def __matmul__(self, other: TransformOf[Preserving], /) -> TransformOf[K]: ...
    @overload
    def __matmul__(self, other: Transform, /) -> Transform: ...
    @override
    def __matmul__(self, other: Transform, /) -> Transform:
        return super().__matmul__(other)


def _parts(transform: Transform) -> tuple[Transform, ...]:
    if isinstance(transform, Composed):
        return transform.parts
    return () if isinstance(transform, IdentityTransform) else (transform,)


@final
@frozen(eq=False)
class IdentityTransform(HandlerTransform[Preserving]):
    """The transformation that returns its function unchanged.

    >>> IdentityTransform()(len)("abc")
    3
    """

    title: ClassVar[str] = "identity"

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        return fun

    @override
    def over(self, handler: Handler, /) -> Handler:
        return handler


@frozen(eq=False, repr=False)
class Composed(Transform):
    """A composition of transformations, the first outermost. Made by `@` of two or more uncomposed parts."""

    title: ClassVar[str] = "composition"
    parts: tuple[Transform, ...]

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        for part in reversed(self.parts):
            fun = part(fun)
        return fun

    @override
    def __repr__(self) -> str:
        return " @ ".join(map(repr, self.parts))


@final
class ComposedHandlers(Composed, HandlerTransform[Any]):
    """A composition of transformations that each only install a handler."""

    parts: tuple[HandlerTransform[Any], ...]

    @override
    def over(self, handler: Handler, /) -> Handler:
        for part in self.parts:
            handler = part.over(handler)
        return handler


# ------------------------------------------------------------------ options


@final
@frozen
class HashableTree:
    """A pytree as an option: its leaves and a description of its structure, which can be hashed and pickled."""

    leaves: tuple[Hashable, ...]
    structure: TreeDescription

    @property
    def tree(self) -> PyTree:
        """The pytree."""
        return self.leaves[0] if self.structure == LEAF_DESCRIPTION else self.structure.build().unflatten(self.leaves)


LEAF_DESCRIPTION: Final = TreeDescription("leaf")
_AXIS_TYPES: Final[frozenset[type]] = frozenset({int, type(None)})


def to_hashable_tree(tree: PyTree) -> HashableTree:
    """Returns a pytree, in which None is a leaf, as a `HashableTree`. Returns a `HashableTree` unchanged."""
    if isinstance(tree, HashableTree):
        return tree
    if tree is None or isinstance(tree, int):
        return HashableTree((tree,), LEAF_DESCRIPTION)  # the common case needs no jaxlib
    leaves, treedef = trees.flatten_with_known_types(tree, _AXIS_TYPES, none_is_leaf=True)
    return HashableTree(tuple(leaves), describe(treedef))


def to_argnums(given: int | Sequence[int]) -> int | tuple[int, ...]:
    """Converts `argnums`: a sequence becomes a tuple; an integer stays one, since it has another meaning."""
    return python_integers(given) if isinstance(given, Sequence) else python_integers([given])[0]


def to_positions(given: int | Sequence[int] | None) -> tuple[int, ...]:
    """Converts an option that names positional arguments: to a sorted tuple; None and `()` name none."""
    numbers = python_integers(() if given is None else given if isinstance(given, Sequence) else (given,))
    return numbers if any(isinstance(n, bool) or not isinstance(n, int) for n in numbers) else tuple(sorted({*numbers}))


def to_argnames(given: str | Iterable[str] | None) -> tuple[str, ...]:
    """Converts an option that names arguments by keyword: to a sorted tuple; None and `()` name none."""
    if given is None or isinstance(given, str) or not isinstance(given, Iterable):
        return () if given is None else (given,)
    names = tuple(given)
    return names if any(not isinstance(n, str) for n in names) else tuple(sorted({*names}))


Positions: TypeAlias = tuple[int, ...] | None
"""Positions of arguments; None if names of arguments imply them."""
Names: TypeAlias = tuple[str, ...] | None
"""Names of arguments; None if positions of arguments imply them."""


def optional_positions(given: int | Sequence[int] | None) -> Positions:
    """Converts like `to_positions`, but keeps None."""
    return None if given is None else to_positions(given)


def optional_names(given: str | Iterable[str] | None) -> Names:
    """Converts like `to_argnames`, but keeps None."""
    return None if given is None else to_argnames(given)


def validate_argnums(transform: Transform, option: attrs.Attribute[Any], given: object) -> None:
    """Validates `argnums`: raises TypeError unless it consists of integers."""
    check_argnums(given, transform.title, option.alias or option.name)


def validate_argnames(transform: Transform, option: attrs.Attribute[Any], given: tuple[str, ...]) -> None:
    """Validates names of arguments: raises TypeError unless they are strings."""
    if any(not isinstance(n, str) for n in given):
        raise TypeError(
            f"{transform.title}: {option.alias or option.name} must be a string or a sequence of strings, got {given!r}"
        )


validate_positions: Final = attrs.validators.optional(validate_argnums)
validate_names: Final = attrs.validators.optional(validate_argnames)


def validate_flag(transform: Transform, option: attrs.Attribute[bool], given: bool) -> None:
    """Validates a boolean option: raises TypeError for anything but True and False."""
    if not isinstance(given, bool):
        raise TypeError(f"{transform.title}: {option.alias} must be True or False, got {given!r}")


def validate_repeats(transform: Transform, _: object, given: object) -> None:
    """Validates the option `repeats`: raises ValueError for anything but None and a mode."""
    if given is not None:
        checked_repeats(f"{transform.title}: repeats", given)
