"""All laws at once, for a primitive or a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from attrs import frozen
from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.errors import MissingRuleError
from tracefx.core.jaxpr import eval_jaxpr
from tracefx.core.primitive import Linear, Primitive, Tangent, Zero
from tracefx.core.values import Value, to_numpy
from tracefx.interpreters.transpose import backward
from tracefx.testing.laws import (
    LAWS,
    Inapplicable,
    Law,
    adjoint,
    compare,
    jvp_is_the_derivative,
    law,
    linearize_is_jvp,
    transpose_is_adjoint,
)
from tracefx.testing.subjects import Subject, dense, of_type, push, random_like, staged, widened
from tracefx.testing.tolerances import DERIVATIVE, Ulps


@final
@frozen
class Report:
    """Which laws hold, by their names, and why the others were not checked."""

    held: tuple[str, ...]
    left_out: Mapping[str, str]

    @override
    def __str__(self) -> str:
        lines = [f"{name}: holds" for name in self.held]
        return "\n".join([*lines, *[f"{name}: left out, since {why}" for name, why in self.left_out.items()]])


def _check_all(laws: Sequence[Law], subjects: Sequence[Subject]) -> Report:
    held: list[str] = []
    left_out: dict[str, str] = {}
    for each in laws:
        reasons: list[str] = []
        for subject in subjects:
            try:
                each.check(subject)
            except (MissingRuleError, Inapplicable) as error:
                reasons.append(str(error))
        if len(reasons) < len(subjects):
            held.append(each.name)
        else:
            left_out[each.name] = reasons[0]
    return Report(tuple(held), left_out)


def check_primitive(
    prim: Primitive, *samples: Sequence[Any], laws: Sequence[Law] = LAWS, ulps: Ulps | None = None
) -> Report:
    """Check every law that the primitive's rules allow, at each sample, a sequence of operands.

    The report says which laws hold, and which were left out because a rule is missing or no operand has derivatives.
    Values may be `ulps` apart where they are computed in different ways: by default as far as the table of tolerances
    says for a primitive of this name, which for one that it doesn't know is not at all.

    Raises `LawError` for the first law that is broken, `ValueError` without samples.

    >>> import numpy as np
    >>> from tracefx.ops.powers import IntegerPow
    >>> report = check_primitive(IntegerPow(3), [np.array([0.5, -1.0, 2.0], np.float32)])
    >>> len(report.held), dict(report.left_out)
    (13, {})
    """
    if not isinstance(prim, Primitive):
        raise TypeError(f"check_primitive takes a primitive, an instance such as MultiplyAdd(), got {prim!r}")
    if not samples:
        raise ValueError(
            f"check_primitive needs samples of the operands of {prim.name}: a sequence of them, or several"
        )
    return _check_all(laws, [Subject.of(prim, sample, ulps) for sample in samples])


def check_function(f: Callable[..., Any], *args: Any, laws: Sequence[Law] = LAWS, ulps: Ulps | None = None) -> Report:
    """Check every law for a function of trees of arrays to trees of arrays, at arguments.

    Raises `LawError` for the first law that is broken.

    >>> import tracefx.numpy as fnp
    >>> report = check_function(lambda d: fnp.tanh(d["w"] @ d["x"]), {"w": fnp.ones((2, 3)), "x": fnp.arange(3.0)})
    >>> report.left_out
    {}
    """
    return _check_all(laws, [Subject.of(f, args, ulps)])


def check_grads(f: Callable[..., Any] | Primitive, *args: Any, order: int = 2) -> None:
    """Check derivatives of a function at arguments, up to an order: forward mode against differences, reverse mode
    against forward mode.

    Raises `LawError` for a wrong derivative, `ValueError` if no argument has derivatives.

    >>> import numpy as np
    >>> import tracefx.numpy as fnp
    >>> check_grads(lambda x, y: fnp.sum(x * fnp.exp(y)), np.array([1.0, 2.0]), 0.5)
    """
    subject = Subject.of(f, args)
    for n in range(order):
        for each in (jvp_is_the_derivative, linearize_is_jvp, transpose_is_adjoint):
            each.check(subject)
        if n < order - 1:
            subject = _derivative_of(subject)


def _derivative_of(subject: Subject) -> Subject:
    """The tangents of the outputs along a fixed direction, as a function of the arguments."""
    directions = [
        to_numpy(random_like(a.aval, subject.rng(f"fixed {i}"))) if i in subject.moving else None
        for i, a in enumerate(subject.args)
    ]

    def run(*xs: Value) -> list[Value]:
        tangents: list[Tangent] = [
            Zero(x.aval.tangent()) if d is None else of_type(d, x.aval) for x, d in zip(xs, directions, strict=True)
        ]
        return [dense(t) for t in push(subject.run, xs, tangents)[1] if t.aval.dtype != dtypes.float0]

    return Subject(f"the derivative of {subject.name}", run, subject.args, subject.ulps)


@law("a linear function of sums and multiples gives sums and multiples, and its transpose is its adjoint")
def _is_linear(self: Law, subject: Subject) -> None:
    if len(subject.moving) < len(subject.args):
        raise Inapplicable("every argument of a linear function has to be an array of floats or complex numbers")
    subject = widened(subject)
    rng = subject.rng("linear")
    xs, ys = [[random_like(a.aval, rng) for a in subject.args] for _ in range(2)]
    sums = [of_type(to_numpy(x) + 3 * to_numpy(y), x.aval) for x, y in zip(xs, ys, strict=True)]
    f_x, f_y = subject.run(*xs), subject.run(*ys)
    want = [of_type(to_numpy(a) + 3 * to_numpy(b), a.aval) for a, b in zip(f_x, f_y, strict=True)]
    compare(self, subject.at(sums), subject.run(*sums), want, ("f(x + 3 y)", "f(x) + 3 f(y)"), DERIVATIVE)
    jaxpr, consts = staged(subject.run, [x.aval for x in xs])
    ws = [random_like(o.aval, rng) for o in f_x]
    pulled = [
        Zero(x.aval) if ct is None else ct
        for x, ct in zip(xs, backward(jaxpr, consts, [Linear(x.aval) for x in xs], ws), strict=True)
    ]
    adjoint(self, subject.at(xs), xs, ws, eval_jaxpr(jaxpr, consts, xs), pulled)


def check_linear(f: Callable[..., Any] | Primitive, *args: Any) -> None:
    """Check that a function is linear in all of its arguments together, and that transposing it gives its adjoint.

    Only the types of the arguments count. Raises `LawError` if it is not so.

    >>> import numpy as np
    >>> check_linear(lambda x, y: x[::-1] - 2.0 * y, np.ones(3), np.ones(3))
    """
    _is_linear(f, *args)
