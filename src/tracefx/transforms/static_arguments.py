"""Static arguments: which arguments of a traced function are not traced, but part of the cache key."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, TypeAlias, TypeVar, cast, final

from attrs import evolve, frozen
from typing_extensions import override

from tracefx.bounded_cache import memoize
from tracefx.core.equality import COMPARED_BY_VALUE, strict_key
from tracefx.transforms.arguments import fun_label

R = TypeVar("R")
DynamicArguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]


@final
class StaticArgument:
    """A static argument of a call. Two are equal if type and content agree; floats are compared by their bits.

    The hash is that of the value when the object was constructed. An argument that was mutated since, so that its hash
    changed, is not equal to what it was.

    Raises:
        TypeError: If the value is not hashable.
    """

    __slots__ = ("_hash", "_strict", "key", "value")

    def __init__(self, key: int | str, value: Any) -> None:
        self.key = key
        self.value = value
        self._strict = strict_key(value)
        self._hash = hash((key, self._strict))

    @property
    def has_constant_hash(self) -> bool:
        """Whether the value keeps its hash: it cannot be mutated, or is hashed by its identity."""
        return _has_constant_hash(self.value)

    @override
    def __eq__(self, other: object) -> bool:
        return (
            type(other) is StaticArgument
            and self._hash == other._hash
            and self.key == other.key
            and self._strict == other._strict
        )

    @override
    def __hash__(self) -> int:
        return self._hash


SplitStatics: TypeAlias = Callable[
    [tuple[Any, ...], dict[str, Any]], tuple[DynamicArguments, tuple[StaticArgument, ...]]
]
"""Splits the arguments of a call into the traced ones and the static ones."""


@final
@frozen
class StaticArguments:
    """The static arguments of a function: positions, for positional arguments, and names, for keyword arguments.

    If only one is given and the signature is known, it implies the other: `static_argnums=1` of `f(x, n)` also holds
    for `f(x, n=3)`, unless `static_argnames=()` is given too.
    Calls of a compiled program may omit them: calls with `traced_count` arguments do; their static arguments are
    `omitted`.
    """

    numbers: tuple[int, ...]
    names: tuple[str, ...]
    omitted: tuple[StaticArgument, ...] = ()
    traced_count: int | None = None

    @classmethod
    def of(
        cls, fun: Callable[..., object], numbers: Sequence[int] | None, names: Sequence[str] | None, option: str
    ) -> StaticArguments:
        """Returns the static arguments of `fun`; the signature completes those of which only one is not None.

        `option` is "static" or "donate", for messages.

        Raises:
            ValueError: For positions and names that the function does not have.
        """
        infer_numbers, infer_names = numbers is None, names is None
        numbers, names = tuple(numbers or ()), tuple(names or ())
        if not numbers and not names:
            return NO_STATIC_ARGUMENTS
        try:
            parameters = list(inspect.signature(fun).parameters.values())
        except (TypeError, ValueError):
            return cls(numbers, names)
        by_position = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        by_keyword = {p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
        has_var_positional = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        count = len(by_position)
        for n in numbers:
            if not has_var_positional and not -count <= n < count:
                raise ValueError(
                    f"jit of {fun_label(fun)}: {option}_argnums names argument {n}, but the function takes "
                    f"{count} positional argument{'s' if count != 1 else ''}"
                )
        for name in names:
            if name not in by_keyword and all(p.kind is not p.VAR_KEYWORD for p in parameters):
                raise ValueError(
                    f"jit of {fun_label(fun)}: {option}_argnames names {name!r}, which the function does not "
                    f"take by keyword; it takes {', '.join(sorted(by_keyword)) or 'none'}"
                )
        positions = {n % count if n < 0 else n for n in numbers}
        if infer_numbers:
            positions = {by_position.index(name) for name in names if name in by_position}
        elif infer_names:
            names = tuple([by_position[i] for i in positions if i < count and by_position[i] in by_keyword])
        return cls(tuple(sorted(positions)), tuple(sorted({*names})))

    def optional(self, statics: tuple[StaticArgument, ...], traced_count: int) -> StaticArguments:
        """Returns the static arguments of a program compiled for `statics`, which calls may omit."""
        return evolve(self, omitted=statics, traced_count=traced_count) if statics else self

    def split(
        self, where: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[DynamicArguments, tuple[StaticArgument, ...]]:
        """Splits the arguments of a call into the traced ones and the static ones. The latter must be hashable."""
        if self is NO_STATIC_ARGUMENTS:
            return (args, kwargs), ()
        if len(args) + len(kwargs) == self.traced_count:
            return (args, kwargs), self.omitted
        dynamic, given = self.partition(args, kwargs)
        statics = []
        for key, value in given:
            try:
                statics.append(_hashed(key, value))
            except TypeError as error:
                raise ValueError(
                    f"{where.removesuffix(': arguments')}: the static argument {key!r} must be hashable, since "
                    f"it is part of the cache key, but {value!r} of type {type(value).__name__} is not; "
                    "pass a tuple instead of a list, a Python number instead of an array"
                ) from error
        return dynamic, tuple(statics)

    def split_or_none(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[DynamicArguments, tuple[StaticArgument, ...] | None]:
        """Splits the arguments of a call as `split` does, but with None for static arguments that are not hashable."""
        dynamic, given = self.partition(args, kwargs)
        try:
            return dynamic, tuple([_hashed(key, value) for key, value in given])
        except TypeError:
            return dynamic, None

    def partition(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[DynamicArguments, list[tuple[int | str, Any]]]:
        """Returns the traced arguments of a call, and the positions or names of the static ones with their values."""
        numbers, names = self.numbers, self.names
        given: list[tuple[int | str, Any]] = []
        dynamic = []
        for i, x in enumerate(args):  # loops instead of comprehensions: each call of a jitted function runs this
            if i in numbers:
                given.append((i, x))
            else:
                dynamic.append(x)
        if kwargs and names:
            kwargs = {**kwargs}
            for name in names:
                if name in kwargs:
                    given.append((name, kwargs.pop(name)))
        return (tuple(dynamic), kwargs), given

    def dynamic_positions(self, count: int) -> list[int]:
        """Returns the positions of the traced arguments among `count` positional arguments."""
        return [i for i in range(count) if i not in self.numbers]

    def bind_static(self, fun: Callable[..., R], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[..., R]:
        """Returns `fun` as a function of its traced arguments, with the static arguments of this call bound."""
        if self is NO_STATIC_ARGUMENTS:
            return fun
        total = len(args)
        static = {i: args[i] for i in self.numbers if i < total}
        static_kwargs = {k: kwargs[k] for k in self.names if k in kwargs}

        @functools.wraps(fun)  # messages name the user's function
        def of_traced(*dynamic: Any, **dynamic_kwargs: Any) -> R:
            remaining = iter(dynamic)
            merged = [static[i] if i in static else next(remaining) for i in range(total)]
            return fun(*merged, **static_kwargs, **dynamic_kwargs)

        return of_traced


def traced_arguments(
    statics: tuple[StaticArgument, ...], traced_count: int, split: SplitStatics
) -> Callable[[tuple[Any, ...], dict[str, Any]], DynamicArguments | None]:
    """Returns a function that returns the traced arguments of calls whose static arguments are `statics`, else None.

    If the static arguments of a call are the very objects, `split` is not called: comparing identities takes a third of
    the time.

    Args:
        statics: The static arguments.
        traced_count: The number of traced positional arguments.
        split: `StaticArguments.split`.
    """
    by_position = {s.key: s.value for s in statics if isinstance(s.key, int)}
    by_name = {s.key: s.value for s in statics if isinstance(s.key, str)}
    pairs, name_pairs = tuple(by_position.items()), tuple(by_name.items())
    count = traced_count + len(by_position) if all(s.has_constant_hash for s in statics) else -1
    positions = [i for i in range(count) if i not in by_position]
    is_contiguous = not positions or positions == [*range(positions[0], positions[-1] + 1)]
    chosen = [slice(*((positions[0], positions[-1] + 1) if positions else (0, 0)))] if is_contiguous else positions
    select: Callable[[tuple[Any, ...]], tuple[Any, ...]] = itemgetter(*chosen)

    def traced_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> DynamicArguments | None:
        if len(args) == count:
            for i, value in pairs:
                if args[i] is not value:
                    break
            else:
                for name, value in name_pairs:
                    if kwargs.get(name, pairs) is not value:
                        break
                else:
                    if name_pairs:
                        kwargs = {k: x for k, x in kwargs.items() if k not in by_name}
                    return select(args), kwargs
        dynamic, given = split(args, kwargs)
        return dynamic if given == statics else None

    return traced_of


def _has_constant_hash(value: object) -> bool:
    """Whether the object keeps its hash: it cannot be mutated, or is hashed by its identity."""
    kind = type(value)
    if kind is tuple:
        return all(map(_has_constant_hash, cast("tuple[object, ...]", value)))
    return kind in COMPARED_BY_VALUE or kind in (float, complex) or kind.__hash__ is object.__hash__


NO_STATIC_ARGUMENTS: Final = StaticArguments((), ())
_plain_static: Final = memoize(1024, typed=True)(StaticArgument)
"""Constructs static arguments of plain values, which equal ones share, so that comparing them is fast."""


def _hashed(key: int | str, value: Any) -> StaticArgument:
    return _plain_static(key, value) if type(value) in COMPARED_BY_VALUE else StaticArgument(key, value)
