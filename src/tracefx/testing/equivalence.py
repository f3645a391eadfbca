"""`check_equivalent` compares two functions; `assert_transforms_commute` checks that two transformations commute."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard, final

from attrs import evolve, frozen
from typing_extensions import override

from tracefx import numpy as fnp
from tracefx.core import Array, Value, as_value, dtypes
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import bind
from tracefx.core.primitive import MappedAxis, Primitive
from tracefx.filtered_tracebacks import api_boundary
from tracefx.ops.structural import batch_first
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree
from tracefx.testing.errors import Inapplicable, LawError, Reproducer
from tracefx.testing.generated_programs import AnyCallable
from tracefx.testing.law import describe_difference
from tracefx.testing.laws import pulled_back, random_tangents, require_derivatives
from tracefx.testing.reproducer import definition_of, import_of, indented_text, script, source_of
from tracefx.testing.subjects import (
    Subject,
    as_arrays,
    evaluate_batch,
    evaluate_jvp,
    instantiate_zeros,
    linearize_function,
    staged,
)
from tracefx.testing.tolerances import DERIVATIVE, PROGRAM, Ulps, tolerance_or
from tracefx.transforms.arguments import fun_label
from tracefx.transforms.jit import jit
from tracefx.transforms.staging import make_jaxpr
from tracefx.transforms.transform import Transform

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

FunctionTransform: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]] | Transform
"""A function transformation, e.g. `fx.grad` or `fx.Vmap() @ fx.Grad()`."""

# ------------------------------------------------------------------ outcomes of calls


@final
@frozen(eq=False)
class Outcome:
    """The outcome of a call: the leaves and the structure of its result, or the exception that it raised."""

    leaves: tuple[Value, ...]
    tree: object
    error: Exception | None = None

    @staticmethod
    def of(f: AnyCallable, args: Sequence[PyTree]) -> Outcome:
        """Calls the function and returns the outcome. `Inapplicable` is raised."""
        try:
            leaves, tree = trees.flatten(f(*args))
            return Outcome(tuple([as_value(leaf, "an output") for leaf in leaves]), tree)
        except Inapplicable:
            raise
        except Exception as error:  # an outcome, compared with that of the other function
            return Outcome((), None, error)

    @override
    def __str__(self) -> str:
        if self.error is not None:
            return f"raises {type(self.error).__name__}: {self.error}"
        return f"returns {', '.join([repr(x.aval) for x in self.leaves]) or 'nothing'}"


def describe_outcome_difference(got: Outcome, want: Outcome, names: tuple[str, str], ulps: Ulps) -> str | None:
    """Returns how two outcomes differ, or None if they are equal up to the tolerance."""
    if got.error is not None or want.error is not None:
        if type(got.error) is type(want.error):
            return None
        return f"  {names[0]} {got}\n  {names[1]} {want}"
    if got.tree != want.tree:
        return f"  {names[0]} returns the tree {got.tree}\n  {names[1]} returns the tree {want.tree}"
    return describe_difference(got.leaves, want.leaves, names, ulps)


# ------------------------------------------------------------------ transformations to compare under


@final
@frozen(eq=False, repr=False)
class SubjectTransform:
    """A transformation that computes all results of one kind, e.g. all derivatives, at any arguments."""

    name: str
    title: str
    of: Callable[[Subject], list[Value]]

    def __call__(self, f: AnyCallable) -> AnyCallable:
        def transformed(*args: PyTree) -> list[Array]:
            return as_arrays(self.of(evolve(Subject.of(f, args), name="f")))

        return transformed

    @override
    def __repr__(self) -> str:
        return self.name


def _jvp_outputs(subject: Subject) -> list[Value]:
    """Returns the outputs and their tangents along a random direction."""
    require_derivatives(subject)
    tangents = random_tangents(subject, subject.differentiable_args, "tangents")
    outs, pushed = evaluate_jvp(subject.run, subject.args, tangents)
    return [*outs, *[instantiate_zeros(t) for t in pushed if t.aval.dtype != dtypes.float0]]


def _vjp_outputs(subject: Subject) -> list[Value]:
    """Returns the cotangents of the arguments for random cotangents of the outputs."""
    require_derivatives(subject)
    is_differentiated = [i in subject.differentiable_args for i in range(len(subject.args))]
    linear = linearize_function(subject.run, subject.args, is_differentiated)
    return pulled_back(subject, linear, "cotangents")


def _batch_outputs(subject: Subject) -> list[Value]:
    """Returns the outputs for batches along the first and along the last axes.

    The batch is built by traceable operations, since the arguments may be traced.
    """
    sides = {n for a in subject.args for n in a.aval.shape}
    size = next(n for n in range(2, 4 + len(sides)) if n not in sides)
    rows = [[_vary_element(x, k) for k in range(size)] for x in as_arrays(subject.args)]
    outs: list[Value] = []
    for axes in ((0,) * len(rows), tuple([a.aval.ndim for a in subject.args])):
        args = [fnp.stack(row, axis) for row, axis in zip(rows, axes, strict=True)]
        for out, axis, _ in evaluate_batch(subject.run, args, axes, size):
            outs.append(batch_first(out, axis, MappedAxis(size)))
    return outs


def _vary_element(x: Array, k: int) -> Array:
    """Returns element `k` of a batch: the numbers of `x` rotated; if there is only one, slightly smaller."""
    if x.size > 1:
        return fnp.roll(x, k)
    return x * (1 - k / 8) if dtypes.is_inexact(x.dtype) else x


def _compiled_outputs(subject: Subject) -> list[Value]:
    compiled = jit(lambda *xs: as_arrays(subject.run(*xs)))
    return [as_value(o) for o in compiled(*as_arrays(subject.args))]


COMPILED: Final = SubjectTransform("COMPILED", "compiled", _compiled_outputs)
BATCHED: Final = SubjectTransform("BATCHED", "over a batch", _batch_outputs)
FORWARD: Final = SubjectTransform("FORWARD", "in forward mode", _jvp_outputs)
REVERSE: Final = SubjectTransform("REVERSE", "in reverse mode", _vjp_outputs)
TRANSFORMS: Final[tuple[FunctionTransform, ...]] = (COMPILED, BATCHED, FORWARD, REVERSE)
"""The default transformations under which functions are compared: compiled, batched, forward mode, reverse mode."""


# ------------------------------------------------------------------ comparing functions


FUNCTION_LABELS: Final = ("the first", "the second")


@api_boundary
def check_equivalent(
    f: Callable[..., PyTree],
    g: Callable[..., PyTree],
    *arguments: SearchStrategy[Any] | PyTree,
    transforms: Sequence[FunctionTransform] = TRANSFORMS,
    ulps: Ulps | None = None,
    max_examples: int | None = None,
) -> None:
    """Checks that two functions are equivalent.

    They must agree in values, dtypes, weak types, tree structures and the classes of exceptions, and so must their
    batched versions and their derivatives in both modes; each compiled function must agree with its eager evaluation.

    Args:
        f: the first function.
        g: the second function.
        *arguments: for each argument a tree of arrays, or a Hypothesis strategy for such trees. With strategies,
            arguments at which the functions differ are shrunk.
        transforms: the transformations under which the functions are compared, e.g. `(*TRANSFORMS, fx.hessian)`.
        ulps: the tolerance for values; by default that for programs of many operations. Derivatives have the wider of
            this and the tolerance for derivatives.
        max_examples: how often arguments are drawn; by default as the Hypothesis profile says.

    Raises:
        LawError: if the functions differ: it says where, with both programs and Python code that reproduces it.

    >>> import tracefx.numpy as fnp
    >>> check_equivalent(lambda x: fnp.log(fnp.exp(x) + 1), lambda x: fnp.logaddexp(x, 0), fnp.arange(3.0))
    >>> check_equivalent(lambda x: x * 2, lambda x: x + 2, 2.0)
    Traceback (most recent call last):
        ...
    tracefx.testing.errors.LawError: the functions are equivalent: violated by <lambda> at ..., over...
    """
    tolerance = tolerance_or(ulps, PROGRAM)

    def at(*args: PyTree) -> None:
        _equivalent_at(f, g, args, transforms, tolerance)

    if any(map(_is_strategy, arguments)):
        _for_all(at, arguments, max_examples)
    else:
        if not arguments:
            f()  # raises TypeError if arguments are missing, which would count as an equal result
        at(*arguments)


def _is_strategy(x: object) -> TypeGuard[SearchStrategy[Any]]:
    """Returns whether this is a Hypothesis strategy, without importing Hypothesis."""
    hypothesis = sys.modules.get("hypothesis.strategies")
    return hypothesis is not None and isinstance(x, hypothesis.SearchStrategy)


def _for_all(at: Callable[..., None], arguments: Sequence[object], max_examples: int | None) -> None:
    """Runs a check at arguments drawn from strategies."""
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as st

    profile = settings()

    @settings(
        max_examples=profile.max_examples if max_examples is None else max_examples,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.tuples(*[x if _is_strategy(x) else st.just(x) for x in arguments]))
    def run(args: tuple[object, ...]) -> None:
        at(*args)

    try:
        run()
    except LawError as error:
        error.__notes__ = []  # Hypothesis's notes repeat the message
        raise error from None


def _equivalent_at(
    f: AnyCallable, g: AnyCallable, args: Sequence[PyTree], transforms: Sequence[FunctionTransform], ulps: Ulps
) -> None:
    """Raises LawError if the functions differ at these arguments."""
    difference = _first_difference(f, g, args, transforms, ulps)
    if difference is None:
        return
    where, text = difference
    call = f"{message_label(f)} and {message_label(g)} of ({', '.join(map(source_of, args))})"
    error = LawError(f"the functions are equivalent: violated by {call}{where}\n{text}")
    raise error.with_reproducer(lambda: _reproducer(f, g, args, transforms, ulps))


def _first_difference(
    f: AnyCallable, g: AnyCallable, args: Sequence[PyTree], transforms: Sequence[FunctionTransform], ulps: Ulps
) -> tuple[str, str] | None:
    """Returns the transformation under which the functions differ first, as text, and how; None if they agree."""
    plain = [Outcome.of(h, args) for h in (f, g)]
    difference = describe_outcome_difference(plain[0], plain[1], FUNCTION_LABELS, ulps)
    if difference is not None:
        return "", difference
    for t in transforms:
        is_same = t is COMPILED or t is BATCHED
        try:
            outcomes = [Outcome.of(t(h), args) for h in (f, g)]
        except Inapplicable:
            continue
        tolerance = ulps if is_same else DERIVATIVE.widen_to(ulps)
        difference = describe_outcome_difference(outcomes[0], outcomes[1], FUNCTION_LABELS, tolerance)
        if difference is not None:
            return f", {_transform_title(t)}", difference
        if t is COMPILED and all(x.error is None for x in plain):
            for name, evaluated, compiled in zip(FUNCTION_LABELS, plain, outcomes, strict=True):
                leaves = evolve(evaluated, tree=compiled.tree)
                difference = describe_outcome_difference(
                    compiled, leaves, (f"{name} compiled", f"{name} evaluated"), ulps
                )
                if difference is not None:
                    return f", {_transform_title(t)}", difference
    return None


def _transform_title(t: FunctionTransform) -> str:
    return t.title if isinstance(t, SubjectTransform) else f"under {display_name(t)}"


def display_name(f: object) -> str:
    """Returns the name of a function or transformation."""
    return repr(f) if isinstance(f, Transform | SubjectTransform) else getattr(f, "__name__", type(f).__name__)


def message_label(f: object) -> str:
    """Returns the name of a function in messages; of a lambda with its line, because many have that name."""
    return fun_label(f) if display_name(f) == "<lambda>" else display_name(f)


def _reproducer(
    f: AnyCallable, g: AnyCallable, args: Sequence[PyTree], transforms: Sequence[FunctionTransform], ulps: Ulps
) -> Reproducer:
    """Returns both programs, and Python code that calls the functions by import if possible, else by their programs."""
    subjects = [Subject.of(h, args) for h in (f, g)]
    try:
        programs = [staged(s.run, [a.aval for a in s.args]) for s in subjects]
    except Exception:  # one of the functions can't be traced
        programs = []
    texts = [
        f"{which} is this program:\n{indented_text(p[0])}" for which, p in zip(FUNCTION_LABELS, programs, strict=False)
    ]
    options = ""
    if tuple(transforms) != TRANSFORMS:
        transform_sources = [_source_of_transform(t) for t in transforms]
        if not all(transform_sources):
            return Reproducer("\n".join(texts))
        options = f"transforms=[{', '.join(map(str, transform_sources))}]"
    imports = [import_of(f), import_of(g)]
    definitions: list[str | None]
    if all(imports):
        definitions, names = imports, [display_name(f), display_name(g)]
        if names[0] == names[1] and imports[0] != imports[1]:
            names[1] = f"other_{names[0]}"
            definitions = [imports[0], f"{imports[1]} as {names[1]}"]
        argument_sources = list(map(source_of, args))
    else:
        names = ["f", "g"]
        definitions = [definition_of(name, *p) for name, p in zip(names, programs, strict=False)]
        argument_sources = list(map(source_of, subjects[0].args))
        as_programs = [lambda *xs, p=p: eval_jaxpr(p[0], p[1], [as_value(x) for x in xs]) for p in programs]
        if (
            len(programs) < 2
            or None in definitions
            or _first_difference(as_programs[0], as_programs[1], as_arrays(subjects[0].args), transforms, ulps) is None
        ):
            return Reproducer("\n".join(texts))
    lines = list(dict.fromkeys([d for d in definitions if d is not None]))
    return Reproducer(
        "\n".join(texts), script("\n".join(lines), "check_equivalent", [*names, *argument_sources], ulps, options)
    )


def _source_of_transform(t: FunctionTransform) -> str | None:
    """Returns Python code for a transformation, or None if there is none."""
    if isinstance(t, SubjectTransform):
        return t.name
    if isinstance(t, Transform):
        return " @ ".join([f"fx.{part}" for part in repr(t).split(" @ ")])
    name = getattr(t, "__name__", "")
    return f"fx.{name}" if getattr(sys.modules["tracefx"], name, None) is t else None


# ------------------------------------------------------------------ comparing orders of transformations


@api_boundary
def assert_transforms_commute(
    a: FunctionTransform,
    b: FunctionTransform,
    f: Callable[..., PyTree] | Primitive,
    *args: PyTree,
    ulps: Ulps | None = None,
) -> None:
    """Checks that two transformations commute: `a(b(f))` and `b(a(f))` return the same or raise the same.

    Args:
        a: a transformation, as a value (`fx.Vmap()`) or a function of functions (`fx.vmap`).
        b: another transformation.
        f: a function of trees of arrays, or a primitive.
        *args: the arguments of the transformed functions.
        ulps: the tolerance; by default that for derivatives.

    Raises:
        LawError: if the results differ.

    >>> import tracefx as fx
    >>> import tracefx.numpy as fnp
    >>> assert_transforms_commute(fx.jit, fx.vmap, fnp.sin, fnp.arange(3.0))
    >>> assert_transforms_commute(fx.Vmap(), fx.Jvp(), fnp.dot, (fnp.ones((2, 3)),) * 2, (fnp.ones((2, 3)),) * 2)
    """
    function = f if not isinstance(f, Primitive) else _as_function(f)
    names = (f"{display_name(a)} of {display_name(b)}", f"{display_name(b)} of {display_name(a)}")
    orders = (a(b(function)), b(a(function)))
    got, want = [Outcome.of(order, args) for order in orders]
    difference = describe_outcome_difference(got, want, names, DERIVATIVE.widen_to(tolerance_or(ulps, PROGRAM)))
    if difference is None:
        return
    call = f"{display_name(f)}({', '.join(map(source_of, args))})"

    def evidence() -> Reproducer:
        texts: list[str] = []
        for name, order in zip(names, orders, strict=True):
            with suppress(Exception):  # functions that can't be traced have no program
                texts.append(f"{name} is this program:\n{indented_text(make_jaxpr(order)(*args).jaxpr)}")
        transform_sources = [_source_of_transform(a), _source_of_transform(b)]
        line = import_of(f)
        if line is None or None in transform_sources:
            return Reproducer("\n".join(texts))
        python = script(
            line,
            "assert_transforms_commute",
            [*map(str, transform_sources), display_name(f), *map(source_of, args)],
            tolerance_or(ulps, PROGRAM),
        )
        return Reproducer("\n".join(texts), python)

    raise LawError(
        f"{display_name(a)} and {display_name(b)} commute: violated by {call}\n{difference}"
    ).with_reproducer(evidence)


def _as_function(prim: Primitive) -> AnyCallable:
    def bound(*xs: Any) -> list[Array]:
        return as_arrays(bind(prim, *xs))

    return bound
