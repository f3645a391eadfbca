"""The static types of transformed functions: how the type of a gradient follows from that of an argument.

A gradient consists of arrays, whatever the leaves of the argument were. So the type of the gradient is

- `Array` for an array, a NumPy array or a Python number,
- `dict[K, Array]` and `list[Array]` for a dict and a list of NumPy arrays or Python numbers,
- the type of the argument for every other type, whose leaves are then declared as arrays,
- `Any` for an argument without annotation, and for a dict or list of `Any`.

The classes below are generic in the parameters `P` and the type `G` of the argument. `__call__` is overloaded on the
type of `self`, which is how `G` determines the type of the result. The classes have no instances. They are no protocols
because mypy compares the types of overloads with each other, and for protocols with many overloads it takes very long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, Generic, Protocol, Self, TypeAlias, TypeVar, final, overload

from typing_extensions import ParamSpec, TypeVarTuple

from tracefx.core import Array, ArrayLike, NDArray, Scalar

P = ParamSpec("P")
Q = ParamSpec("Q")
Ts = TypeVarTuple("Ts")
R = TypeVar("R")
S = TypeVar("S")
X = TypeVar("X")
Y = TypeVar("Y")
K = TypeVar("K")
G = TypeVar("G")
H = TypeVar("H", bound="NDArray | Scalar")
L = TypeVar("L", bound="ArrayLike")
L2 = TypeVar("L2", bound="ArrayLike")
A_co = TypeVar("A_co", covariant=True)
B_co = TypeVar("B_co", covariant=True)
G_co = TypeVar("G_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)
X_co = TypeVar("X_co", covariant=True)
C_contra = TypeVar("C_contra", contravariant=True)


@final
class Untyped:
    """A type without values. Only `Any` is assignable to it, so an overload for it is one for unknown types."""


@final
class Pair(Generic[A_co, B_co]):
    """The type `G` of two arguments, for `argnums=(0, 1)`. It has no values."""


PartlyUntyped: TypeAlias = Untyped | dict[Any, Untyped] | list[Untyped] | Pair[Untyped, object] | Pair[object, Untyped]
"""Unknown types, and containers of them, whose elements may be containers themselves."""


@final
class Several:
    """The type `G` of a sequence of arguments that the type checker does not know. It has no values."""


class NamedTupleLike(Protocol):
    """A named tuple. Overloads for it stand before those for tuples, whose type has no fields."""

    def _asdict(self) -> dict[str, Any]: ...


class _Wrapper(Protocol):
    """A function made from another one."""

    __name__: str

    @property
    def __wrapped__(self) -> Callable[..., Any]: ...


class WrappedFunction(_Wrapper, Protocol[P, R_co]):
    """The type of a transformed function: a `Callable[P, R]` that binds to instances as a method.

    Differentiation is annotated with this type instead of `Callable` because of mypy: where two overloads match an
    untyped function and both return a `Callable`, mypy joins the two into a type that it refuses to call.
    """

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(
        self: WrappedFunction[Concatenate[S, Q], R], instance: S, owner: type | None = None
    ) -> Callable[Q, R]: ...


class GradientFunction(_Wrapper, Generic[P, G_co]):
    """A function that returns the gradient with respect to an argument of type `G`."""

    @overload
    def __call__(self: GradientFunction[P, PartlyUntyped], *args: P.args, **kwargs: P.kwargs) -> Any: ...
    @overload
    def __call__(self: GradientFunction[P, Several], *args: P.args, **kwargs: P.kwargs) -> tuple[Any, ...]: ...
    @overload
    def __call__(self: GradientFunction[P, ArrayLike], *args: P.args, **kwargs: P.kwargs) -> Array: ...
    @overload
    def __call__(self: GradientFunction[P, dict[K, H]], *args: P.args, **kwargs: P.kwargs) -> dict[K, Array]: ...
    @overload
    def __call__(self: GradientFunction[P, list[H]], *args: P.args, **kwargs: P.kwargs) -> list[Array]: ...
    @overload
    def __call__(
        self: GradientFunction[P, Pair[ArrayLike, ArrayLike]], *args: P.args, **kwargs: P.kwargs
    ) -> tuple[Array, Array]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]  # two arrays match the overload before
        self: GradientFunction[P, Pair[ArrayLike, Y]], *args: P.args, **kwargs: P.kwargs
    ) -> tuple[Array, Y]: ...
    @overload
    def __call__(
        self: GradientFunction[P, Pair[X, ArrayLike]], *args: P.args, **kwargs: P.kwargs
    ) -> tuple[X, Array]: ...
    @overload
    def __call__(self: GradientFunction[P, Pair[X, Y]], *args: P.args, **kwargs: P.kwargs) -> tuple[X, Y]: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> G_co: ...
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(
        self: GradientFunction[Concatenate[S, Q], G], instance: S, owner: type | None = None
    ) -> GradientFunction[Q, G]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any: ...


class GradientAndAux(_Wrapper, Generic[P, G_co, X_co]):
    """A function that returns a gradient with respect to an argument of type `G`, and an auxiliary output."""

    @overload
    def __call__(self: GradientAndAux[P, PartlyUntyped, X], *args: P.args, **kwargs: P.kwargs) -> tuple[Any, X]: ...
    @overload
    def __call__(
        self: GradientAndAux[P, Several, X], *args: P.args, **kwargs: P.kwargs
    ) -> tuple[tuple[Any, ...], X]: ...
    @overload
    def __call__(self: GradientAndAux[P, ArrayLike, X], *args: P.args, **kwargs: P.kwargs) -> tuple[Array, X]: ...
    @overload
    def __call__(
        self: GradientAndAux[P, dict[K, H], X], *args: P.args, **kwargs: P.kwargs
    ) -> tuple[dict[K, Array], X]: ...
    @overload
    def __call__(self: GradientAndAux[P, list[H], X], *args: P.args, **kwargs: P.kwargs) -> tuple[list[Array], X]: ...
    @overload
    def __call__(
        self: GradientAndAux[P, Pair[ArrayLike, ArrayLike], X], *args: P.args, **kwargs: P.kwargs
    ) -> tuple[tuple[Array, Array], X]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]  # two arrays match the overload before
        self: GradientAndAux[P, Pair[ArrayLike, Y], X], *args: P.args, **kwargs: P.kwargs
    ) -> tuple[tuple[Array, Y], X]: ...
    @overload
    def __call__(
        self: GradientAndAux[P, Pair[Y, ArrayLike], X], *args: P.args, **kwargs: P.kwargs
    ) -> tuple[tuple[Y, Array], X]: ...
    @overload
    def __call__(
        self: GradientAndAux[P, Pair[Y, G], X], *args: P.args, **kwargs: P.kwargs
    ) -> tuple[tuple[Y, G], X]: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> tuple[G_co, X_co]: ...
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(
        self: GradientAndAux[Concatenate[S, Q], G, X], instance: S, owner: type | None = None
    ) -> GradientAndAux[Q, G, X]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any: ...


class ValueAndGradient(_Wrapper, Generic[P, V_co, G_co]):
    """A function that returns a value of type `V`, and its gradient with respect to an argument of type `G`."""

    @overload
    def __call__(self: ValueAndGradient[P, X, PartlyUntyped], *args: P.args, **kwargs: P.kwargs) -> tuple[X, Any]: ...
    @overload
    def __call__(
        self: ValueAndGradient[P, X, Several], *args: P.args, **kwargs: P.kwargs
    ) -> tuple[X, tuple[Any, ...]]: ...
    @overload
    def __call__(self: ValueAndGradient[P, X, ArrayLike], *args: P.args, **kwargs: P.kwargs) -> tuple[X, Array]: ...
    @overload
    def __call__(
        self: ValueAndGradient[P, X, dict[K, H]], *args: P.args, **kwargs: P.kwargs
    ) -> tuple[X, dict[K, Array]]: ...
    @overload
    def __call__(self: ValueAndGradient[P, X, list[H]], *args: P.args, **kwargs: P.kwargs) -> tuple[X, list[Array]]: ...
    @overload
    def __call__(
        self: ValueAndGradient[P, X, Pair[ArrayLike, ArrayLike]], *args: P.args, **kwargs: P.kwargs
    ) -> tuple[X, tuple[Array, Array]]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]  # two arrays match the overload before
        self: ValueAndGradient[P, X, Pair[ArrayLike, Y]], *args: P.args, **kwargs: P.kwargs
    ) -> tuple[X, tuple[Array, Y]]: ...
    @overload
    def __call__(
        self: ValueAndGradient[P, X, Pair[Y, ArrayLike]], *args: P.args, **kwargs: P.kwargs
    ) -> tuple[X, tuple[Y, Array]]: ...
    @overload
    def __call__(
        self: ValueAndGradient[P, X, Pair[Y, G]], *args: P.args, **kwargs: P.kwargs
    ) -> tuple[X, tuple[Y, G]]: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> tuple[V_co, G_co]: ...
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(
        self: ValueAndGradient[Concatenate[S, Q], X, G], instance: S, owner: type | None = None
    ) -> ValueAndGradient[Q, X, G]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any: ...


class HessianFunction(_Wrapper, Generic[P, G_co]):
    """A function that returns the second derivatives with respect to an argument of type `G`: an array for an array."""

    @overload
    def __call__(self: HessianFunction[P, Untyped], *args: P.args, **kwargs: P.kwargs) -> Any: ...
    @overload
    def __call__(self: HessianFunction[P, ArrayLike], *args: P.args, **kwargs: P.kwargs) -> Array: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(
        self: HessianFunction[Concatenate[S, Q], G], instance: S, owner: type | None = None
    ) -> HessianFunction[Q, G]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any: ...


class PullbackFunction(Generic[C_contra, *Ts]):
    """A function from a cotangent of type `C` to a tuple of cotangents of arguments of the types `Ts`.

    Of one or two arguments, those that are arrays, NumPy arrays or Python numbers have arrays as cotangents.
    """

    @overload
    def __call__(self: PullbackFunction[C_contra, Untyped], cotangents: C_contra, /) -> tuple[Any]: ...
    @overload
    def __call__(self: PullbackFunction[C_contra, Untyped, X], cotangents: C_contra, /) -> tuple[Any, Any]: ...
    @overload
    def __call__(self: PullbackFunction[C_contra, X, Untyped], cotangents: C_contra, /) -> tuple[Any, Any]: ...
    @overload
    def __call__(self: PullbackFunction[C_contra, L], cotangents: C_contra, /) -> tuple[Array]: ...
    @overload
    def __call__(self: PullbackFunction[C_contra, L, L2], cotangents: C_contra, /) -> tuple[Array, Array]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]  # two arrays match the overload before
        self: PullbackFunction[C_contra, L, X], cotangents: C_contra, /
    ) -> tuple[Array, X]: ...
    @overload
    def __call__(self: PullbackFunction[C_contra, X, L], cotangents: C_contra, /) -> tuple[X, Array]: ...
    @overload
    def __call__(self, cotangents: C_contra, /) -> tuple[*Ts]: ...
    def __call__(self, cotangents: C_contra, /) -> Any: ...
