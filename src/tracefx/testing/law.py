"""`Law` and the decorator `law`, which defines one; comparison of results, and the messages of violations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core import Value, dtypes, to_numpy
from tracefx.core.handler import Tracer
from tracefx.core.primitive import Primitive
from tracefx.filtered_tracebacks import api_boundary
from tracefx.testing.errors import LawError, ViolationManner
from tracefx.testing.reproducer import LIBRARY, find_reproducer
from tracefx.testing.subjects import Subject, format_value
from tracefx.testing.tolerances import Ulps, ulp_distance

MAX_ROUNDING: Final = 1024.0
"""Smaller distances, in ulps, look like rounding errors: messages then name the argument `ulps`."""


@final
@frozen(eq=False)
class Law:
    """A property that every function must have, and the function that checks it.

    Attributes:
        name: the name of the law.
        statement: the property, as a sentence.
        check: raises LawError if a subject violates the law.

    >>> import tracefx.numpy as fnp
    >>> from tracefx.testing import jit_changes_nothing
    >>> jit_changes_nothing(fnp.square, fnp.arange(3.0))
    >>> jit_changes_nothing.statement
    'the compiled function gives the same results as eager evaluation'
    """

    name: str
    statement: str
    check: Callable[[Subject], None]

    @api_boundary
    def __call__(self, f: Callable[..., Any] | Primitive, *args: Any, ulps: Ulps | None = None) -> None:
        """Checks the law.

        Args:
            f: a function of trees of arrays, or a primitive.
            *args: the arguments or operands.
            ulps: the tolerance in units in the last place; by default that of the table for the primitive, or that of
                programs of many operations for functions.

        Raises:
            Inapplicable: if the law says nothing about the arguments.
            LawError: if the law is violated.
        """
        self.check(Subject.of(f, args, ulps))

    @override
    def __repr__(self) -> str:
        return self.name

    def violation(self, subject: Subject, what: str, manner: ViolationManner = ViolationManner.OTHER) -> LawError:
        """Returns the error for a violation of the law.

        Args:
            subject: The function and the arguments that violate it.
            what: A description of the results.
            manner: How the law is violated; the smallest violating program violates it in the same manner.

        Returns:
            The error, for the caller to raise.
        """
        return LawError(f"{self.statement}: violated by {subject}\n{what}", manner)


def law(statement: str, call: str | None = None) -> Callable[[Callable[[Law, Subject], None]], Law]:
    """Returns a decorator that turns a checking function into a law.

    The function is called as `check(law, subject)` and raises `law.violation(subject, what)`. Errors of other kinds are
    passed on.

    Args:
        statement: the property, as a sentence.
        call: the name in `tracefx.testing` of the function that checks the law; by default that of the law.

    Returns:
        The decorator.

    Raises:
        LawError: When the law is called, if the function raises it, with a reproducer added.

    >>> import tracefx.numpy as fnp
    >>> from tracefx.extend import as_array
    >>> @law("doubling the arguments doubles the results")
    ... def keeps_factors(self: Law, subject: Subject) -> None:
    ...     got = subject.run(*[as_array(x) * 2.0 for x in subject.args])
    ...     want = [as_array(out) * 2.0 for out in subject.outs()]
    ...     require_close(self, subject, got, want, ("f(2 x)", "2 f(x)"))
    >>> keeps_factors(fnp.cumsum, fnp.arange(3.0))
    """

    def decorator(check: Callable[[Law, Subject], None]) -> Law:
        module = LIBRARY if check.__module__.startswith(f"{LIBRARY}.") else check.__module__

        def check_with_reproducer(subject: Subject) -> None:
            try:
                check(new_law, subject)
            except LawError as error:
                found = error
                raise found.with_reproducer(
                    lambda: find_reproducer(new_law.check, call or new_law.name, subject, found, home=module)
                ) from None

        new_law = Law(check.__name__, statement, check_with_reproducer)
        return new_law

    return decorator


# ------------------------------------------------------------------ comparing results


def require_close(
    broken: Law,
    subject: Subject,
    got: Sequence[Value],
    want: Sequence[Value],
    names: tuple[str, str],
    ulps: Ulps | None = None,
) -> None:
    """Requires two sequences of values to agree.

    Args:
        broken: the law that is violated otherwise.
        subject: the subject of the check.
        got: values.
        want: the expected values.
        names: what both are, for the message.
        ulps: the tolerance; by default that of the subject.

    Raises:
        LawError: if they differ in number, shapes, dtypes, or by more than the tolerance, or if a value is a tracer.

    >>> from tracefx.testing import jit_changes_nothing
    >>> subject = Subject.of(np.sqrt, [2.0], None)
    >>> require_close(jit_changes_nothing, subject, subject.outs(), subject.outs(), ("compiled", "evaluated"))
    """
    difference = describe_difference(got, want, names, subject.ulps if ulps is None else ulps)
    if difference is not None:
        raise broken.violation(subject, difference, _manner(got, want))


def _manner(got: Sequence[Value], want: Sequence[Value]) -> ViolationManner:
    """Returns how two different sequences of values differ."""
    if [x.aval for x in got] != [x.aval for x in want] or any(isinstance(x, Tracer) for x in (*got, *want)):
        return ViolationManner.TYPES
    floats = [to_numpy(x) for x in (*got, *want) if dtypes.is_inexact(x.aval.dtype)]
    return ViolationManner.NAN if any(np.any(x != x) for x in floats) else ViolationManner.VALUES


def describe_difference(got: Sequence[Value], want: Sequence[Value], names: tuple[str, str], ulps: Ulps) -> str | None:
    """Describes how two sequences of values differ, showing both; None if they are equal up to the tolerance."""
    if len(got) != len(want):
        return f"  {names[0]}: {len(got)} outputs, {names[1]}: {len(want)} outputs"
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        difference = _difference_of_one(i, g, w, names, ulps)
        if difference is not None:
            return difference
    return None


def _difference_of_one(i: int, got: Value, want: Value, names: tuple[str, str], ulps: Ulps) -> str | None:
    """Describes how output `i` differs; None if it agrees."""
    for x, name in zip((got, want), names, strict=True):
        if isinstance(x, Tracer):
            return f"  output {i}, {name}, is {x!r}, a leaked tracer of {x.handler.title}"

    def with_both(text: str) -> str:
        width = max(map(len, names)) + 1
        both = [f"  {name + ':':<{width}} {format_value(x)}" for name, x in zip(names, (got, want), strict=True)]
        return "\n".join([*both, text])

    if got.aval != want.aval:
        return with_both(f"  output {i} has types {got.aval!r} and {want.aval!r}")
    g, w = to_numpy(got), to_numpy(want)
    tolerance = ulps.for_array(w)
    distance = ulp_distance(g, w, tolerance.least)
    limit = tolerance.of(g.dtype) if dtypes.is_inexact(g.dtype) else 0
    if distance.size and float(np.max(distance)) > limit:
        position = np.unravel_index(int(np.argmax(distance)), distance.shape)
        where = f" at {tuple(map(int, position))}" if position else ""
        apart = float(distance[position])
        if limit:
            explanation = f"{apart:.4g} ulps apart, at most {limit:.4g} allowed"
        elif apart < MAX_ROUNDING:
            explanation = f"{apart:.4g} ulps apart, must be equal unless the argument `ulps` allows rounding errors"
        else:
            explanation = "must be equal"
        return with_both(f"  output {i}{where}: {g[position]} and {w[position]}, {explanation}")
    return None
