"""Derivatives of any order, in both modes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias

from tracefx.core import dtypes
from tracefx.core.primitive import Primitive, Tangent, Zero
from tracefx.core.values import Value, to_numpy
from tracefx.testing.errors import LawError
from tracefx.testing.law import Law, law
from tracefx.testing.laws import (
    finite_differences,
    jvp_is_the_derivative,
    linearize_is_jvp,
    random_tangents,
    require_adjoint,
    require_derivatives,
    transpose_is_adjoint,
)
from tracefx.testing.reproducer import find_reproducer
from tracefx.testing.subjects import (
    Subject,
    array_of_type,
    evaluate_jvp,
    instantiate_zeros,
    linearize_function,
    promote_to_64_bits,
    random_like,
)
from tracefx.testing.tolerances import Ulps

DerivativeMode: TypeAlias = Literal["fwd", "rev"]
MODES: Final[tuple[DerivativeMode, ...]] = ("fwd", "rev")


def check_grads(
    f: Callable[..., Any] | Primitive,
    *args: Any,
    order: int = 2,
    modes: Sequence[DerivativeMode] = MODES,
    ulps: Ulps | None = None,
) -> None:
    """Check derivatives of a function at arguments, up to an order: forward mode against differences, reverse mode
    against forward mode, or against differences where only `"rev"` is among the `modes`.

    Derivatives of higher order are those of derivatives in each of the modes, in turn. Differences are taken in
    float64 wherever the function takes that.

    Raises `LawError` for a wrong derivative, `Inapplicable` if no argument has derivatives.

    >>> import numpy as np
    >>> import tracefx.numpy as fnp
    >>> check_grads(lambda x, y: fnp.sum(x * fnp.exp(y)), np.array([1.0, 2.0]), 0.5)
    >>> check_grads(fnp.sinh, 0.5, order=4, modes=["fwd"])
    """
    if not modes or not set(modes) <= set(MODES):
        raise ValueError(f'check_grads: modes are "fwd" and "rev", one or both, got {modes!r}')
    if order < 1:
        raise ValueError(f"check_grads: order has to be at least 1, got {order}")
    subject = Subject.of(f, args, ulps)

    def check(subject: Subject) -> None:
        _check(subject, order, modes)

    try:
        check(subject)
    except LawError as error:
        options = f"order={order}, modes={tuple(modes)!r}"
        raise error.with_reproducer(lambda: find_reproducer(check, "check_grads", subject, options)) from None


def _check(subject: Subject, order: int, modes: Sequence[DerivativeMode]) -> None:
    if "fwd" in modes:
        jvp_is_the_derivative.check(subject)
    if "rev" in modes:
        for each in (linearize_is_jvp, transpose_is_adjoint) if "fwd" in modes else (_vjp_is_the_derivative,):
            each.check(subject)
    if order > 1:
        for mode in modes:
            _check(_forward_derivative(subject) if mode == "fwd" else _reverse_derivative(subject), order - 1, modes)


@law("<w, differences along v> = <vjp of w, v> for any directions v and w")
def _vjp_is_the_derivative(self: Law, subject: Subject) -> None:
    require_derivatives(subject)
    wide = promote_to_64_bits(subject)
    directions, at = random_tangents(wide, wide.differentiable_args, "directions"), wide.outs()
    slopes, ulps = finite_differences(wide, directions, at)
    linear = linearize_function(wide.run, wide.args, [i in wide.differentiable_args for i in range(len(wide.args))])
    ws: list[Tangent] = [  # of outputs that are said to have no derivative too
        random_like(o.aval, wide.rng(f"cotangent {i}")) if dtypes.is_inexact(o.aval.dtype) else Zero(o.aval.tangent())
        for i, o in enumerate(at)
    ]
    rest = iter(slopes)
    pushed: list[Tangent] = [next(rest) if dtypes.is_inexact(o.aval.dtype) else Zero(o.aval.tangent()) for o in at]
    known = [w if moved else Zero(w.aval) for w, moved in zip(ws, linear.active_outputs, strict=True)]
    require_adjoint(self, wide, directions, ws, pushed, linear.pull(known), ulps)


# ------------------------------------------------------------------ derivatives as functions


def _forward_derivative(subject: Subject) -> Subject:
    """The tangents of the outputs along a fixed direction, as a function of the arguments."""
    directions = [
        to_numpy(random_like(a.aval, subject.rng(f"fixed {i}"))) if i in subject.differentiable_args else None
        for i, a in enumerate(subject.args)
    ]

    def run(*xs: Value) -> list[Value]:
        given: list[Tangent] = [
            Zero(x.aval.tangent()) if d is None else array_of_type(d, x.aval)
            for x, d in zip(xs, directions, strict=True)
        ]
        return [instantiate_zeros(t) for t in evaluate_jvp(subject.run, xs, given)[1] if t.aval.dtype != dtypes.float0]

    return Subject(f"the derivative of {subject.name}", run, subject.args, subject.ulps)


def _reverse_derivative(subject: Subject) -> Subject:
    """The cotangents of the arguments for fixed ones of the outputs, as a function of the arguments."""
    moving = [i in subject.differentiable_args for i in range(len(subject.args))]

    def run(*xs: Value) -> list[Value]:
        linear = linearize_function(subject.run, xs, moving)
        cts: list[Tangent] = []
        for i, (o, moved) in enumerate(zip(linear.outs, linear.active_outputs, strict=True)):
            rng = subject.rng(f"fixed cotangent {i}")
            cts.append(random_like(o.aval, rng) if moved else Zero(o.aval.tangent()))
        pulled = linear.pull(cts)
        return [instantiate_zeros(ct) for ct, moves in zip(pulled, moving, strict=True) if moves]

    return Subject(f"the gradient of {subject.name}", run, subject.args, subject.ulps)
