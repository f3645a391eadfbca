"""The sizes of dimension variables: computed from the shapes of arguments, and checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tracefx.core import Shape, ShapedArray
from tracefx.dimensions.bounds import SymbolicScope
from tracefx.dimensions.symbolic_dimensions import (
    Polynomial,
    Scope,
    evaluate,
    has_symbolic_dims,
    is_symbolic_dim,
    variables_of,
)
from tracefx.errors import ShapeError


class SolvedVariable(NamedTuple):
    """A dimension variable as a function of an axis size: `(size - rest) / coefficient`."""

    name: str
    argument: int
    axis: int
    coefficient: int
    rest: Polynomial
    """A polynomial of variables that are solved before."""


def is_symbolic(avals: Iterable[ShapedArray]) -> bool:
    """Whether some shape has a symbolic dimension."""
    return any(has_symbolic_dims(aval.shape) for aval in avals)


def scope_of(avals: Iterable[ShapedArray], name: str) -> Scope:
    """Returns the scope of the symbolic dimensions in shapes; raises ValueError if there are several."""
    scopes = [n.scope for aval in avals for n in aval.shape if is_symbolic_dim(n)]
    for scope in scopes:
        scopes[0].require_same(scope, f"export of {name}")
    return scopes[0]


def solve_variables(avals: Sequence[ShapedArray], name: str) -> list[SolvedVariable]:
    """Returns the dimension variables in the shapes of arguments, in an order in which they can be computed.

    A variable must occur in a size that has no other unsolved variables and is linear in it.

    Raises:
        ValueError: If some variable cannot be computed.
    """
    todo = [
        (argument, axis, n.polynomial)
        for argument, aval in enumerate(avals)
        for axis, n in enumerate(aval.shape)
        if is_symbolic_dim(n)
    ]
    solved: dict[str, SolvedVariable] = {}
    while True:
        count = len(solved)
        for argument, axis, polynomial in todo:
            unknown = [
                (term, k) for term, k in polynomial.terms if not variables_of(Polynomial.of({term: k})) <= solved.keys()
            ]
            factor = unknown[0][0].factor if len(unknown) == 1 else None
            if factor is not None and factor.is_variable:
                rest = dict(polynomial.terms)
                coefficient = rest.pop(unknown[0][0])
                solved[factor.name] = SolvedVariable(factor.name, argument, axis, coefficient, Polynomial.of(rest))
        if len(solved) == count:
            break
    missing = frozenset().union(*[variables_of(polynomial) for *_, polynomial in todo]) - solved.keys()
    if missing:
        raise ValueError(
            f"export of {name}: the dimension variables {', '.join(sorted(missing))} cannot be computed from the "
            "shapes of the arguments: each variable must be a size, or the only unknown of a size in which it is "
            "linear, such as 2*a + 1"
        )
    return list(solved.values())


def match_shapes(
    avals: Sequence[ShapedArray], shapes: Sequence[Shape], names: Sequence[str], function: str, made: str = "exported"
) -> tuple[tuple[str, int], ...]:
    """Returns the sizes of the dimension variables for which shapes of arguments match symbolic ones.

    Args:
        avals: The types of the arguments for which the function was exported or traced.
        shapes: The shapes of the arguments of a call, of the same ranks.
        names: The arguments in messages.
        function: The name of the function.
        made: What was done for the types, in messages. "exported" by default.

    Raises:
        ShapeError: If there are no such sizes. It is a ValueError and a TypeError.
    """
    sizes: dict[str, int] = {}
    origins: list[str] = []

    def fail(problem: str) -> ShapeError:
        types = ", ".join([f"{name} of type {aval}" for name, aval in zip(names, avals, strict=True)])
        where = f" ({'; '.join(origins)})" if origins else ""
        return ShapeError(f"{function} was {made} for {types}, but {problem}{where}")

    for name, argument, axis, coefficient, rest in solve_variables(avals, function):
        size = shapes[argument][axis]
        value, remainder = divmod(size - evaluate(rest, sizes), coefficient)
        expected = avals[argument].shape[axis]
        if remainder != 0 or not value >= 1:
            raise fail(
                f"called with the size {size} of {names[argument]} along axis {axis}, which is not {expected} for an "
                f"integer {name} >= 1"
            )
        sizes[name] = value
        origins.append(f"{name} = {value}, from {expected} = {size} along axis {axis} of {names[argument]}")
    for aval, shape, name in zip(avals, shapes, names, strict=True):
        for axis, (expected, size) in enumerate(zip(aval.shape, shape, strict=True)):
            if is_symbolic_dim(expected):
                value = evaluate(expected.polynomial, sizes)
                if value != size:
                    raise fail(
                        f"called with the size {size} of {name} along axis {axis}, which is not {expected} = {value}"
                    )
    scope = scope_of(avals, function)
    for text, constraint in scope.checked if isinstance(scope, SymbolicScope) else ():
        if variables_of(constraint.polynomial) <= sizes.keys():
            value = evaluate(constraint.polynomial, sizes)
            if not (value == 0 if constraint.is_equality else value >= 0):
                raise fail(f"called with sizes that do not satisfy the constraint {text}")
    return tuple(sorted(sizes.items()))
