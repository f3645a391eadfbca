"""What a law is, how it is found broken, and what is said then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.handler import Tracer
from tracefx.core.primitive import Primitive
from tracefx.core.values import Value, to_numpy
from tracefx.testing.errors import LawError
from tracefx.testing.reproducer import LIBRARY, find_reproducer
from tracefx.testing.subjects import Subject, format_value
from tracefx.testing.tolerances import Ulps, ulp_distance


@final
@frozen(eq=False)
class Law:
    """A statement about functions, and how to check it."""

    name: str
    statement: str
    check: Callable[[Subject], None]

    def __call__(self, f: Callable[..., Any] | Primitive, *args: Any, ulps: Ulps | None = None) -> None:
        """Check the law for a function at arguments, which are trees of arrays, or for a primitive at operands.

        Values may be `ulps` apart: by default as far as the table allows the operation, or any program.
        """
        self.check(Subject.of(f, args, ulps))

    @override
    def __repr__(self) -> str:
        return self.name

    def violation(self, subject: Subject, what: str) -> LawError:
        return LawError(f"{self.statement}, but not so for {subject}\n{what}")


def law(statement: str, call: str | None = None) -> Callable[[Callable[[Law, Subject], None]], Law]:
    """Make a law of a function that checks it: `check(law, subject)`, which raises `law.broken(subject, what)`.

    `call` is what of `tracefx.testing` checks it, by default the law itself.

    >>> import tracefx.numpy as fnp
    >>> from tracefx.extend import as_array
    >>> @law("twice as much in gives twice as much out")
    ... def keeps_factors(self: Law, subject: Subject) -> None:
    ...     got = subject.run(*[as_array(x) * 2.0 for x in subject.args])
    ...     want = [as_array(out) * 2.0 for out in subject.outs()]
    ...     require_close(self, subject, got, want, ("of twice as much", "twice as much"))
    >>> keeps_factors(fnp.cumsum, fnp.arange(3.0))
    """

    def made(check: Callable[[Law, Subject], None]) -> Law:
        home = LIBRARY if check.__module__.startswith(f"{LIBRARY}.") else check.__module__

        def checked(subject: Subject) -> None:
            try:
                check(itself, subject)
            except LawError as error:
                raise error.with_reproducer(
                    lambda: find_reproducer(itself.check, call or itself.name, subject, home=home)
                ) from None

        itself = Law(check.__name__, statement, checked)
        return itself

    return made


# ------------------------------------------------------------------ comparing results


def require_close(
    broken: Law,
    subject: Subject,
    got: Sequence[Value],
    want: Sequence[Value],
    names: tuple[str, str],
    ulps: Ulps | None = None,
) -> None:
    """`LawError` unless both are as many values of the same types, equal up to the tolerance, and none is a tracer."""
    what = describe_difference(got, want, names, subject.ulps if ulps is None else ulps)
    if what is not None:
        raise broken.violation(subject, what)


def describe_difference(got: Sequence[Value], want: Sequence[Value], names: tuple[str, str], ulps: Ulps) -> str | None:
    """In which way two sequences of values differ, both shown; `None` if they are equal up to the tolerance."""
    if len(got) != len(want):
        return f"  {names[0]} it has {len(got)} outputs, {names[1]} {len(want)}"
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        what = _difference_of_one(i, g, w, names, ulps)
        if what is not None:
            return what
    return None


def _difference_of_one(i: int, got: Value, want: Value, names: tuple[str, str], ulps: Ulps) -> str | None:
    for x, name in zip((got, want), names, strict=True):
        if isinstance(x, Tracer):
            return f"  output {i}, {name}, is {x!r}, which belongs to {x.handler.title}"

    def with_both(what: str) -> str:
        width = max(map(len, names)) + 1
        both = [f"  {name + ':':<{width}} {format_value(x)}" for name, x in zip(names, (got, want), strict=True)]
        return "\n".join([*both, what])

    if got.aval != want.aval:
        return with_both(f"  output {i} has types {got.aval!r} and {want.aval!r}")
    g, w = to_numpy(got), to_numpy(want)
    allowed = ulps.for_array(w)
    distance = ulp_distance(g, w, allowed.least)
    limit = allowed.of(g.dtype) if dtypes.is_inexact(g.dtype) else 0
    if distance.size and float(np.max(distance)) > limit:
        at = np.unravel_index(int(np.argmax(distance)), distance.shape)
        place = f" at {tuple(map(int, at))}" if at else ""
        how = f"{float(distance[at]):.4g} ulps apart, allowed are {limit:.4g}" if limit else "allowed is no difference"
        return with_both(f"  output {i}{place}: {g[at]} and {w[at]}, {how}")
    return None
