"""The comparison of a record's function with JAX's, and with its reference where it has one.

Each aspect gives a list of what differs, so that one run says all. What is known to differ stands in `differences.py`.
"""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude="jax, ml_dtypes"

from __future__ import annotations

import functools
import itertools
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias, final

import jax
import numpy as np
from attrs import frozen

import tracefx as fx
import tracefx.numpy as fnp
from tests.compiling import compile_with_fallback
from tests.differential import references
from tests.differential.batching import BatchedCall, batch_mismatches, operand_subsets
from tests.differential.comparing import (
    Mismatches,
    arrays,
    attempt,
    builtin_error_class,
    compare,
    compare_outcomes,
    format_outcome,
    leaves_of,
)
from tests.differential.records import (
    OURS,
    THEIRS,
    Call,
    Function,
    Library,
    Operand,
    Record,
    cast,
    is_inexact,
    operand_values,
    to_library_array,
    with_same_weak_type,
)
from tests.differential.references import ExpectedResult
from tests.laws.examples import is_long_profile
from tests.versions import RETURN_LISTS
from tracefx.core.dtypes import NDArray
from tracefx.testing.tolerances import DERIVATIVE, SECOND_DERIVATIVE, Ulps

DEFAULT_DTYPES: Final = ("bool", "int32", "bfloat16", "float64", "complex64")
"""The dtypes for which values are compared; for others types are, unless there is time for more."""


def suppress_warnings(f: Function) -> Function:
    """`f` of JAX, without what it warns of: ours must not warn."""

    def g(*args: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return f(*args)

    return g


def compile_with_jax(f: Function) -> Function:
    return suppress_warnings(compile_with_fallback(jax.jit, f))


# ------------------------------------------------------------------ values and types

Labelled: TypeAlias = tuple[str, Call]


def values(record: Record) -> Mismatches:
    """Values, dtypes and weak types, evaluated and compiled; of the first call, evaluated, in other dtypes too."""
    known = [*[(f"{c}", c) for c in (*record.calls, *record.values)], *_recast(record)]
    if record.is_plain:
        return _plain_values(record, known)
    staged = len(known) if is_long_profile() else len(record.calls) + len(record.values)
    asked = [
        ExpectedResult(label, each, want, record.ulps, True, i < staged)
        for i, ((label, each), want) in enumerate(
            zip(known, _each_of_theirs(record, known, compile_with_jax), strict=True)
        )
    ]
    asked += references.expected_results(record.reference) if record.reference else []
    given = [arrays(OURS, a.call) for a in asked]
    found: Mismatches = []
    f, good = record.via(OURS), []
    for i, (a, xs) in enumerate(zip(asked, given, strict=True)):
        attempt(lambda a=a, xs=xs: a.call.of(f, xs))  # type: ignore[misc]
        # How functions are evaluated is looked for where a kind of arguments comes again.
        got = attempt(lambda a=a, xs=xs: a.call.of(f, xs))  # type: ignore[misc]
        if difference := compare_outcomes(got, a.want, a.ulps, typed=a.typed):
            found.append(f"value {a.label}: {difference}")
        if a.staged and not isinstance(got, Exception) and not isinstance(a.want, Exception):
            good.append(i)
    together = compile_with_fallback(
        fx.jit, lambda xss: [asked[i].call.of(f, xs) for i, xs in zip(good, xss, strict=True)]
    )
    for i, got in zip(good, together([given[i] for i in good]), strict=True):
        if difference := compare(got, asked[i].want, asked[i].ulps, typed=asked[i].typed):
            found.append(f"compiled {asked[i].label}: {difference}")
    return found


def types(record: Record) -> Mismatches:
    """The types of the results of the first call in other dtypes, also one operand at a time. Nothing is compiled."""
    changed = [*[(f"{c}", c) for c in record.typed], *_one_recast(record)]
    wanted = _each_of_theirs(record, changed, lambda f: suppress_warnings(functools.partial(jax.eval_shape, f)))
    found: Mismatches = []
    for (label, each), want in zip(changed, wanted, strict=True):
        got = attempt(lambda each=each: each.of(record.via(OURS), arrays(OURS, each)))  # type: ignore[misc]
        if difference := compare_outcomes(got, want, None):
            found.append(f"dtype {label}: {difference}")
    return found


def _theirs(record: Record) -> Function:
    """JAX's function; where it returns a list and NumPy a tuple, it returns a tuple."""
    f = record.via(THEIRS)

    def as_tuple(*args: Any, **kwargs: Any) -> Any:
        out = f(*args, **kwargs)
        return tuple(out) if isinstance(out, list) else out

    return as_tuple if record.name in RETURN_LISTS else f


FAILED_LOWERINGS: Final = ("is not supported", "requires arguments to have the same dtypes")
"""Messages of JAX's errors that lowering raises, so that tracing a call alone does not find them."""


def _each_of_theirs(record: Record, calls: Sequence[Labelled], evaluate: Callable[[Function], Function]) -> list[Any]:
    """What JAX gives for each call, or its error; all are traced and compiled at one go."""
    errors: dict[int, Exception] = {}
    f = _theirs(record)

    def together(given: Sequence[Any]) -> list[Any]:
        outs = [attempt(lambda c=c, xs=xs: c.of(f, xs)) for (_, c), xs in zip(calls, given, strict=True)]  # type: ignore[misc]
        errors.update({i: out for i, out in enumerate(outs) if isinstance(out, Exception)})
        return [None if isinstance(out, Exception) else out for out in outs]

    try:
        outs = evaluate(together)([arrays(THEIRS, c) for _, c in calls])
    except (ValueError, TypeError) as error:
        # Of two products of the same operands that ask for different types, jax 0.10.2 gives both the lowering of one
        # now and then (in one of some 700 runs). A call in a program of its own has nothing to be taken for. What it
        # cannot compile it says with no call's name.
        is_refused = any(reason in str(error) for reason in FAILED_LOWERINGS)
        if len(calls) == 1 and is_refused:
            return [error]
        if len(calls) == 1 or not (is_refused or "verifier errors" in str(error)):
            raise
        return [out for call in calls for out in _each_of_theirs(record, [call], evaluate)]
    return [errors.get(i, out) for i, out in enumerate(outs)]


def _plain_values(record: Record, calls: Sequence[Labelled]) -> Mismatches:
    found: Mismatches = []
    for label, each in calls:
        got, want = [attempt(lambda lib=lib: each.of(record.via(lib), arrays(lib, each))) for lib in (OURS, THEIRS)]  # type: ignore[misc]  # noqa: B023
        if isinstance(want, Exception) or isinstance(got, Exception):
            if difference := compare_outcomes(got, want, None):
                found.append(f"value {label}: {difference}")
        elif type(got) is not type(want) or got != want:
            found.append(f"value {label}: {got!r} in place of {want!r}")
    return found


def _alike(record: Record) -> tuple[Call, str, list[int]] | None:
    """The first call, the dtype of its first operand, and which operands have it."""
    first = next((c for c in record.calls if c.operand_positions), None)
    if first is None:
        return None
    main = operand_values(first.operands[0]).dtype
    return first, str(main), [i for i, x in enumerate(first.operands) if operand_values(x).dtype == main]


def _recast(record: Record) -> Iterator[Labelled]:
    """The first call with all operands of other dtypes."""
    if found := _alike(record):
        first, main, same = found
        for dtype in record.dtypes:
            if dtype != main and (dtype in DEFAULT_DTYPES or is_long_profile()):
                yield f"all {dtype}", _with_dtypes(first, dict.fromkeys(same, dtype))


def _one_recast(record: Record) -> Iterator[Labelled]:
    """The first call with one operand of another dtype, or of a function of two operands with every pair of dtypes."""
    found = _alike(record)
    if found is None:
        return
    first, main, same = found
    for dtype in record.dtypes:
        if dtype not in (main, *DEFAULT_DTYPES):
            yield f"all {dtype}", _with_dtypes(first, dict.fromkeys(same, dtype))
    if len(same) < 2:
        return
    if record.pairs and is_long_profile():
        for one, other in itertools.permutations(record.dtypes, 2):
            yield f"{one} {other}", _with_dtypes(first, {same[0]: one, same[1]: other})
        return
    for i, dtype in itertools.product(same, record.dtypes):
        if dtype != main:
            yield f"operand {i} {dtype}", _with_dtypes(first, {i: dtype})


def _with_dtypes(call: Call, dtypes: dict[int, str]) -> Call:
    return call.at([cast(operand_values(x), dtypes[i]) if i in dtypes else x for i, x in enumerate(call.operands)])


def other_names(record: Record) -> Mismatches:
    """A function of several names is JAX's function of each."""
    found: Mismatches = []
    for name in record.also:
        module, attribute = name.split(".")
        ours, theirs = [getattr(getattr(library, module), attribute) for library in (OURS, THEIRS)]
        if ours is not record.via(OURS):
            found.append(f"name {name}: it is another function")
        for each in record.calls[:1]:
            got, want = each.of(ours, arrays(OURS, each)), suppress_warnings(each.of)(theirs, arrays(THEIRS, each))
            if difference := compare(got, want, record.ulps):
                found.append(f"name {name} {each}: {difference}")
    return found


def refusals(record: Record) -> Mismatches:
    """Errors are of the same built-in class."""
    found: Mismatches = []
    for each in record.refused:
        want = attempt(lambda each=each: suppress_warnings(each.of)(record.via(THEIRS), arrays(THEIRS, each)))  # type: ignore[misc]
        got = attempt(lambda each=each: each.of(record.via(OURS), arrays(OURS, each)))  # type: ignore[misc]
        if not isinstance(want, Exception):
            found.append(f"error {each}: JAX gives {want!r}, here {format_outcome(got)}")
        elif not isinstance(got, builtin_error_class(want)):
            found.append(f"error {each}: {format_outcome(got)} in place of {format_outcome(want)}")
    return found


# ------------------------------------------------------------------ derivatives


def _random_like(x: Operand | NDArray, what: str) -> NDArray:
    """Normally distributed numbers like `x`, the same in every run."""
    numbers = operand_values(x)
    rng = np.random.default_rng(zlib.crc32(f"{what} {numbers.shape}".encode()))
    drawn = np.asarray(rng.standard_normal(numbers.shape))
    if numbers.dtype.kind == "c":
        drawn = drawn + 1j * rng.standard_normal(numbers.shape)
    return drawn.astype(numbers.dtype)


@final
@frozen(eq=False)
class DerivativeCase:
    """A call whose derivatives are compared: tangents of its inexact operands, cotangents of its inexact outputs."""

    call: Call
    differentiable_operands: tuple[int, ...]
    """Which operands have tangents."""
    tangents: tuple[NDArray, ...]
    weights: tuple[NDArray | None, ...]

    @staticmethod
    def of(record: Record, call: Call) -> DerivativeCase:
        outs = [np.asarray(o) for o in leaves_of(call.of(record.via(OURS), arrays(OURS, call)))]
        moving = tuple([i for i in call.differentiable_operands if record.along is None or i in record.along])
        return DerivativeCase(
            call,
            moving,
            tuple([_random_like(call.operands[i], f"tangent {i}") for i in moving]),
            tuple([_random_like(o, f"weight {i}") if is_inexact(o) else None for i, o in enumerate(outs)]),
        )

    @property
    def operand_subsets(self) -> list[tuple[int, ...]]:
        """Which operands are moved: each alone, and all together."""
        return [
            *([(i,) for i in self.differentiable_operands] if len(self.differentiable_operands) > 1 else []),
            self.differentiable_operands,
        ]

    def moved(self, library: Library, chosen: Sequence[int]) -> list[Any]:
        """The tangents of all operands that have one, those that aren't chosen zero."""
        return [
            to_library_array(
                library, with_same_weak_type(self.call.operands[i], t if i in chosen else np.zeros_like(t))
            )
            for i, t in zip(self.differentiable_operands, self.tangents, strict=True)
        ]

    def restricted(self, f: Function, xs: Sequence[Any], chosen: Sequence[int]) -> Function:
        """`f` as a function of the chosen operands, and of its outputs those that have derivatives."""

        def of_chosen(*moved: Any) -> Any:
            full = list(xs)
            for i, x in zip(chosen, moved, strict=True):
                full[i] = x
            outs = leaves_of(self.call.of(f, full))
            return [o for o, w in zip(outs, self.weights, strict=True) if w is not None]

        return of_chosen

    def pulled(self, library: Library, f: Function) -> Function:
        """The cotangents of the operands of `f`: the gradient of the weighted sum of its outputs."""

        def pulled(*xs: Any) -> list[Any]:
            _, pull = library.root.vjp(f, *xs)
            return list(pull([to_library_array(library, w) for w in self.weights if w is not None]))

        return pulled


def derivatives(record: Record) -> Mismatches:
    """Tangents, gradients, and tangents of gradients, along each inexact operand alone and along all together."""
    slopes = [DerivativeCase.of(record, c) for c in record.calls] if record.derivatives else []
    slopes = [s for s in slopes if s.differentiable_operands and any(w is not None for w in s.weights)]
    f = record.via(THEIRS)

    errors: dict[tuple[int, str], Exception] = {}

    def kept(i: int, aspect: str, out: Any) -> Any:
        """The result, or None in the place of an error, which is no value that a jitted function can return."""
        if isinstance(out, Exception):
            errors[i, aspect] = out
            return None
        return out

    def oracle(given: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        outs = []
        for i, (s, xs, ts) in enumerate(zip(slopes, given, tangents, strict=True)):
            g, moved = s.restricted(f, xs, s.differentiable_operands), [xs[j] for j in s.differentiable_operands]
            pull = s.pulled(THEIRS, g)
            pushed = attempt(functools.partial(_tangents, g, moved, ts))
            both = attempt(functools.partial(jax.jvp, pull, moved, ts))
            if isinstance(both, Exception):
                both = attempt(functools.partial(pull, *moved)), both
            parts = zip(("jvp", "grad", "second"), (pushed, *both), strict=True)
            outs.append([kept(i, aspect, out) for aspect, out in parts])
        return outs

    evaluate = compile_with_jax(oracle)
    given = [arrays(THEIRS, s.call) for s in slopes]
    found = references.slopes(record, record.reference) if record.reference else []
    for turn in range(max([len(s.operand_subsets) for s in slopes], default=0)):
        choices = [s.operand_subsets[min(turn, len(s.operand_subsets) - 1)] for s in slopes]
        wanted = evaluate(given, [s.moved(THEIRS, chosen) for s, chosen in zip(slopes, choices, strict=True)])
        for i, (s, chosen, want) in enumerate(zip(slopes, choices, wanted, strict=True)):
            if turn < len(s.operand_subsets):
                parts = zip(("jvp", "grad", "second"), want, strict=True)
                found += _derivative_mismatches(
                    record, s, chosen, *[errors.get((i, aspect), out) for aspect, out in parts]
                )
    return found


def _tangents(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The tangents of the outputs by JAX."""
    return jax.jvp(f, primals, tangents)[1]


def _derivative_mismatches(
    record: Record, s: DerivativeCase, chosen: Sequence[int], pushed: Any, gradient: Any, second: Any
) -> Mismatches:
    """How the tangents, the gradient and its tangents differ from JAX's, each of which may be an error."""
    moving = s.differentiable_operands
    xs = arrays(OURS, s.call)
    f, moved = s.restricted(record.via(OURS), xs, chosen), [xs[i] for i in chosen]
    ts = [t for i, t in zip(moving, s.moved(OURS, chosen), strict=True) if i in chosen]
    pull = s.pulled(OURS, f)
    gradients, seconds = [
        part if isinstance(part, Exception) else [g for i, g in zip(moving, part, strict=True) if i in chosen]
        for part in (gradient, second)
    ]
    parts: tuple[tuple[str, Callable[[], Any], Any, Ulps], ...] = (
        ("jvp", lambda: fx.jvp(f, moved, ts)[1], pushed, DERIVATIVE),
        ("grad", lambda: pull(*moved), gradients, DERIVATIVE),
        ("second", lambda: fx.jvp(pull, moved, ts)[1], seconds, SECOND_DERIVATIVE),
    )
    found: Mismatches = []
    for aspect, thunk, want, ulps in parts:
        if difference := compare_outcomes(attempt(thunk), want, ulps, typed=False):
            found.append(f"{aspect} {s.call}{'' if tuple(chosen) == moving else f' at {chosen}'}: {difference}")
    return found


# ------------------------------------------------------------------ batches


def batches(record: Record) -> Mismatches:
    """`vmap` over each operand alone and over all together, along every axis; results along the last axis too.

    Each is compared with its elements one after the other, of which the first is the call whose values are JAX's.
    """
    found = references.batches(record, record.reference) if record.reference else []
    f = record.via(OURS)
    for each in record.calls if record.batched else ():
        for chosen in operand_subsets(each):
            b = BatchedCall(each, chosen)
            rows = attempt(lambda b=b: [b.call.of(f, xs) for xs in b.elements(OURS)])  # type: ignore[misc]
            if isinstance(rows, Exception):
                found.append(f"vmap {each}, one after the other: {format_outcome(rows)}")
                continue
            want = fx.tree.map(lambda *parts: fnp.stack(parts), *rows)
            found += batch_mismatches(record, b, want, record.ulps)
    return found
