"""Compares a record's function with JAX's, and with its reference if it has one.

Each aspect returns a list of mismatches, so that one run reports all of them. Expected ones are in `differences.py`.
"""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude="jax, ml_dtypes"

from __future__ import annotations

import functools
import itertools
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, final

import jax
import numpy as np
from attrs import frozen

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import attempt, difference, format_outcome
from tests.compiling import compile_with_fallback
from tests.differential import references
from tests.differential.batching import BatchedCall, batch_mismatches, operand_subsets
from tests.differential.records import (
    JAX,
    TRACEFX,
    Call,
    Function,
    Library,
    Mismatches,
    Operand,
    Record,
    arrays,
    cast,
    is_inexact,
    operand_values,
    to_library_array,
    with_same_weak_type,
)
from tests.differential.references import ExpectedResult
from tests.jaxprs import primitive_names
from tests.laws.examples import is_long_profile
from tests.versions import RETURN_LISTS
from tracefx.core import ConcreteArray, NDArray
from tracefx.testing.tolerances import DERIVATIVE, SECOND_DERIVATIVE, Ulps

DEFAULT_DTYPES: Final = ("int32", "bfloat16", "complex64")
"""The dtypes for which values are compared. For other dtypes only types are compared, except in the long profile."""


def suppress_warnings(f: Function) -> Function:
    """Suppresses the warnings of a JAX function. (Functions of tracefx must not warn.)"""

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
    """Compares values, dtypes and weak types, eager and compiled; for the first call also eagerly in other dtypes.

    Compiled results are those of the first call, and of calls with new primitives or infinities or NaN, unless eager
    evaluation compiles them too. The long profile compares compiled results of all calls and dtypes.
    """
    if record.types_only:
        return []
    known = _labelled_calls(record)
    if record.is_plain:
        return _plain_values(record, known)
    wants, seen = _jax_results(record, known, compile_with_jax), set[str]()
    staged = [binds_new_primitives(record, c, seen) or _has_edge_values(c) for c in (*record.calls, *record.values)]
    expected_calls = [
        ExpectedResult(label, each, want, record.ulps, True, is_staged)
        for (label, each), want, is_staged in zip(
            known, wants, [*staged, *[False] * (len(known) - len(staged))], strict=True
        )
    ]
    expected_calls += references.expected_results(record.reference) if record.reference else []
    operand_arrays = [arrays(TRACEFX, a.call) for a in expected_calls]
    mismatches: Mismatches = []
    f = record.via(TRACEFX)
    compilable: list[int] = []
    for i, (a, xs) in enumerate(zip(expected_calls, operand_arrays, strict=True)):
        attempt(a.call.of, f, xs)
        # The second call takes the eager cache's fast path.
        got = attempt(a.call.of, f, xs)
        if found := difference(got, a.want, a.ulps, weak=a.typed):
            mismatches.append(f"value {a.label}: {found}")
        if isinstance(got, Exception) or isinstance(a.want, Exception):
            continue
        if is_long_profile() or not compilable or (a.staged and not _ran_compiled(got)):
            compilable.append(i)
    run_all = compile_with_fallback(
        fx.jit, lambda xss: [expected_calls[i].call.of(f, xs) for i, xs in zip(compilable, xss, strict=True)]
    )
    for i, got in zip(compilable, run_all([operand_arrays[i] for i in compilable]), strict=True):
        a = expected_calls[i]
        if found := difference(got, a.want, a.ulps, weak=a.typed):
            mismatches.append(f"compiled {a.label}: {found}")
    return mismatches


def binds_new_primitives(record: Record, call: Call, seen: set[str]) -> bool:
    """Returns whether the program of a call has primitives that are not in `seen`, to which it adds them."""
    jaxpr = attempt(fx.make_jaxpr(functools.partial(call.of, record.via(TRACEFX))), arrays(TRACEFX, call))
    if isinstance(jaxpr, Exception):
        return True
    new = set(primitive_names(jaxpr.jaxpr)) - seen
    seen |= new
    return bool(new)


def _has_edge_values(call: Call) -> bool:
    """Returns whether an operand has infinities or NaN."""
    inexact = [operand_values(x) for x in call.operands if is_inexact(operand_values(x))]
    return not all(np.isfinite(x.astype(np.complex128)).all() for x in inexact)


def _ran_compiled(result: Any) -> bool:
    """Whether a compiled program returned an array of an eager result: NumPy kernels make no device buffers."""
    return any(isinstance(x, ConcreteArray) and x.buffer is not None for x in fx.tree.leaves(result))


def types(record: Record) -> Mismatches:
    """Compares result types of the first call in other dtypes, also for one operand at a time, without compilation.

    They are the types of traced results, and in the long profile of eager results.
    """
    changed = [*[(f"{c}", c) for c in record.typed], *_cast_single_operands(record)]
    if record.types_only:
        changed += _labelled_calls(record)
    expected = _jax_results(record, changed, lambda f: suppress_warnings(functools.partial(jax.eval_shape, f)))
    mismatches: Mismatches = []
    for (label, each), want in zip(changed, expected, strict=True):
        f = functools.partial(each.of, record.via(TRACEFX))
        got = attempt(f if is_long_profile() else functools.partial(fx.eval_shape, f), arrays(TRACEFX, each))
        if found := difference(got, want):
            mismatches.append(f"dtype {label}: {found}")
    return mismatches


def _labelled_calls(record: Record) -> list[Labelled]:
    """Returns all calls of a record, and the first one in other dtypes."""
    return [*[(f"{c}", c) for c in (*record.calls, *record.values)], *_cast_all_operands(record)]


def _jax_function(record: Record) -> Function:
    """Returns JAX's function, with lists converted to tuples where NumPy returns a tuple."""
    f = record.via(JAX)

    def as_tuple(*args: Any, **kwargs: Any) -> Any:
        out = f(*args, **kwargs)
        return tuple(out) if isinstance(out, list) else out

    return as_tuple if record.name in RETURN_LISTS else f


FAILED_LOWERINGS: Final = ("is not supported", "requires arguments to have the same dtypes")
"""Messages of errors that JAX raises only in lowering, so that tracing a call does not raise them."""


def _jax_results(record: Record, calls: Sequence[Labelled], evaluate: Callable[[Function], Function]) -> list[Any]:
    """Returns JAX's result or error for each call; all calls are traced and compiled in one program."""
    errors: dict[int, Exception] = {}
    f = _jax_function(record)

    def run_all(operand_arrays: Sequence[Any]) -> list[Any]:
        outs = [attempt(c.of, f, xs) for (_, c), xs in zip(calls, operand_arrays, strict=True)]
        errors.update({i: out for i, out in enumerate(outs) if isinstance(out, Exception)})
        return [None if isinstance(out, Exception) else out for out in outs]

    try:
        outs = evaluate(run_all)([arrays(JAX, c) for _, c in calls])
    except (ValueError, TypeError) as error:
        # jax 0.10.2 sometimes (about once in 700 runs) uses one lowering for two products of the same operands with
        # different result types. A program with a single call avoids that. Compilation errors do not name the call.
        is_refused = any(reason in str(error) for reason in FAILED_LOWERINGS)
        if len(calls) == 1 and is_refused:
            return [error]
        if len(calls) == 1 or not (is_refused or "verifier errors" in str(error)):
            raise
        return [out for call in calls for out in _jax_results(record, [call], evaluate)]
    return [errors.get(i, out) for i, out in enumerate(outs)]


def _plain_values(record: Record, calls: Sequence[Labelled]) -> Mismatches:
    mismatches: Mismatches = []
    for label, each in calls:
        got, want = [attempt(each.of, record.via(library), arrays(library, each)) for library in (TRACEFX, JAX)]
        # Sizes are NumPy's integers in some results of JAX.
        if found := difference(got, jax.tree.map(lambda x: x.item() if isinstance(x, np.integer) else x, want)):
            mismatches.append(f"value {label}: {found}")
    return mismatches


def _main_dtype(record: Record) -> tuple[Call, str, list[int]] | None:
    """Returns the first call, the dtype of its first operand, and the indices of operands with that dtype."""
    first = next((c for c in record.calls if c.operand_positions), None)
    if first is None:
        return None
    main = operand_values(first.operands[0]).dtype
    return first, str(main), [i for i, x in enumerate(first.operands) if operand_values(x).dtype == main]


def _compares_values(record: Record, dtype: str) -> bool:
    """Whether values are compared for a dtype; plain results, which have no type of their own, are always compared."""
    return record.is_plain or dtype in DEFAULT_DTYPES or is_long_profile()


def _cast_all_operands(record: Record) -> Iterator[Labelled]:
    """Yields the first call with all its operands cast to other dtypes."""
    if main_dtype := _main_dtype(record):
        first, main, same = main_dtype
        for dtype in record.dtypes:
            if dtype != main and _compares_values(record, dtype):
                yield f"all {dtype}", _with_dtypes(first, dict.fromkeys(same, dtype))


def _cast_single_operands(record: Record) -> Iterator[Labelled]:
    """Yields the first call with one operand cast to another dtype; for `pairs`, two operands to all pairs."""
    main_dtype = _main_dtype(record)
    if main_dtype is None:
        return
    first, main, same = main_dtype
    for dtype in record.dtypes:
        if dtype != main and dtype not in DEFAULT_DTYPES and not record.is_plain:
            yield f"all {dtype}", _with_dtypes(first, dict.fromkeys(same, dtype))
    if len(same) < 2:
        return
    if record.pairs and is_long_profile():
        for first_dtype, second_dtype in itertools.permutations(record.dtypes, 2):
            yield f"{first_dtype} {second_dtype}", _with_dtypes(first, {same[0]: first_dtype, same[1]: second_dtype})
        return
    for i, dtype in itertools.product(same, record.dtypes):
        if dtype != main:
            yield f"operand {i} {dtype}", _with_dtypes(first, {i: dtype})


def _with_dtypes(call: Call, dtypes: dict[int, str]) -> Call:
    return call.at([cast(operand_values(x), dtypes[i]) if i in dtypes else x for i, x in enumerate(call.operands)])


def other_names(record: Record) -> Mismatches:
    """Checks that aliases are the same function and agree with JAX's function of that name."""
    mismatches: Mismatches = []
    for name in record.also:
        module, attribute = name.split(".")
        tracefx_function, jax_function = [getattr(getattr(library, module), attribute) for library in (TRACEFX, JAX)]
        if tracefx_function is not record.via(TRACEFX):
            mismatches.append(f"name {name}: it is another function")
        for each in record.calls[:1]:
            got, want = (
                each.of(tracefx_function, arrays(TRACEFX, each)),
                suppress_warnings(each.of)(jax_function, arrays(JAX, each)),
            )
            if found := difference(got, want, record.ulps):
                mismatches.append(f"name {name} {each}: {found}")
    return mismatches


def refusals(record: Record) -> Mismatches:
    """Checks that errors have the same built-in class as in JAX."""
    mismatches: Mismatches = []
    for each in record.refused:
        want = attempt(suppress_warnings(each.of), record.via(JAX), arrays(JAX, each))
        got = attempt(each.of, record.via(TRACEFX), arrays(TRACEFX, each))
        if not isinstance(want, Exception):
            mismatches.append(f"error {each}: JAX gives {want!r}, here {format_outcome(got)}")
        elif found := difference(got, want):
            mismatches.append(f"error {each}: {found}")
    return mismatches


# ------------------------------------------------------------------ derivatives


def _random_like(x: Operand | NDArray, seed_label: str) -> NDArray:
    """Returns normally distributed numbers with the shape and dtype of `x`, seeded by label and shape."""
    numbers = operand_values(x)
    rng = np.random.default_rng(zlib.crc32(f"{seed_label} {numbers.shape}".encode()))
    drawn = np.asarray(rng.standard_normal(numbers.shape))
    if numbers.dtype.kind == "c":
        drawn = drawn + 1j * rng.standard_normal(numbers.shape)
    return drawn.astype(numbers.dtype)


@final
@frozen(eq=False)
class DerivativeCase:
    """A call with tangents for its inexact operands and cotangents for its inexact outputs."""

    call: Call
    differentiable_operands: tuple[int, ...]
    """Indices of the operands that have tangents."""
    tangents: tuple[NDArray, ...]
    weights: tuple[NDArray | None, ...]
    has_all_aspects: bool
    """Whether JVPs, second derivatives, and derivatives in each operand alone are compared besides gradients."""

    @staticmethod
    def of(record: Record, call: Call, *, has_all_aspects: bool = True) -> DerivativeCase:
        outs = [np.asarray(o) for o in fx.tree.leaves(call.of(record.via(TRACEFX), arrays(TRACEFX, call)))]
        differentiable = tuple([i for i in call.differentiable_operands if record.along is None or i in record.along])
        return DerivativeCase(
            call,
            differentiable,
            tuple([_random_like(call.operands[i], f"tangent {i}") for i in differentiable]),
            tuple([_random_like(o, f"weight {i}") if is_inexact(o) else None for i, o in enumerate(outs)]),
            has_all_aspects,
        )

    @property
    def has_derivatives(self) -> bool:
        """Whether there are inexact operands and inexact outputs."""
        return bool(self.differentiable_operands) and any(w is not None for w in self.weights)

    @property
    def operand_subsets(self) -> list[tuple[int, ...]]:
        """Returns sets of operands to differentiate: each alone, and all together."""
        alone = [(i,) for i in self.differentiable_operands] if self.has_all_aspects else []
        return [*(alone if len(alone) > 1 else []), self.differentiable_operands]

    def tangent_arrays(self, library: Library, chosen: Sequence[int]) -> list[Any]:
        """Returns the tangents of all differentiable operands; they are zero for operands not in `chosen`."""
        return [
            to_library_array(
                library, with_same_weak_type(self.call.operands[i], t if i in chosen else np.zeros_like(t))
            )
            for i, t in zip(self.differentiable_operands, self.tangents, strict=True)
        ]

    def restrict(self, f: Function, xs: Sequence[Any], chosen: Sequence[int]) -> Function:
        """Returns `f` as a function of the chosen operands that returns only the inexact outputs."""

        def restricted_f(*inputs: Any) -> Any:
            full = list(xs)
            for i, x in zip(chosen, inputs, strict=True):
                full[i] = x
            outs = fx.tree.leaves(self.call.of(f, full))
            return [o for o, w in zip(outs, self.weights, strict=True) if w is not None]

        return restricted_f

    def vjp_function(self, library: Library, f: Function) -> Function:
        """Returns a function of the operands of `f` that returns their cotangents."""

        def cotangents(*xs: Any) -> list[Any]:
            _, pull = library.root.vjp(f, *xs)
            return list(pull([to_library_array(library, w) for w in self.weights if w is not None]))

        return cotangents


def derivatives(record: Record) -> Mismatches:
    """Compares JVPs, gradients, and JVPs of gradients, in each inexact operand alone and in all together.

    Calls after the first differentiable one are compared only if they have new primitives, and only by their gradients
    in all operands together. The long profile compares all calls like the first.
    """
    slopes = _derivative_cases(record) if record.derivatives else []
    f = record.via(JAX)

    errors: dict[tuple[int, str], Exception] = {}

    def result_or_none(i: int, aspect: str, out: Any) -> Any:
        """Returns the result, or None for an error, which a jitted function cannot return, and records the error."""
        if isinstance(out, Exception):
            errors[i, aspect] = out
            return None
        return out

    def jax_derivatives(operand_arrays: Sequence[Any], tangents: Sequence[Any]) -> list[dict[str, Any]]:
        outs = []
        for i, (s, xs, ts) in enumerate(zip(slopes, operand_arrays, tangents, strict=True)):
            g, inputs = s.restrict(f, xs, s.differentiable_operands), [xs[j] for j in s.differentiable_operands]
            pull = s.vjp_function(JAX, g)
            if not s.has_all_aspects:
                outs.append({"grad": result_or_none(i, "grad", attempt(pull, *inputs))})
                continue
            pushed = attempt(_tangents, g, inputs, ts)
            both = attempt(jax.jvp, pull, inputs, ts)
            if isinstance(both, Exception):
                both = attempt(pull, *inputs), both
            parts = zip(("jvp", "grad", "second"), (pushed, *both), strict=True)
            outs.append({aspect: result_or_none(i, aspect, out) for aspect, out in parts})
        return outs

    evaluate = compile_with_jax(jax_derivatives)
    operand_arrays = [arrays(JAX, s.call) for s in slopes]
    mismatches = references.slopes(record, record.reference) if record.reference else []
    for subset_index in range(max([len(s.operand_subsets) for s in slopes], default=0)):
        subsets = [s.operand_subsets[min(subset_index, len(s.operand_subsets) - 1)] for s in slopes]
        expected = evaluate(
            operand_arrays, [s.tangent_arrays(JAX, chosen) for s, chosen in zip(slopes, subsets, strict=True)]
        )
        for i, (s, chosen, want) in enumerate(zip(slopes, subsets, expected, strict=True)):
            if subset_index < len(s.operand_subsets):
                outcomes = {aspect: errors.get((i, aspect), out) for aspect, out in want.items()}
                mismatches += _derivative_mismatches(record, s, chosen, outcomes)
    return mismatches


def _derivative_cases(record: Record) -> list[DerivativeCase]:
    """Returns the calls whose derivatives are compared."""
    cases: list[DerivativeCase] = []
    seen: set[str] = set()
    for c in record.calls:
        case = DerivativeCase.of(record, c, has_all_aspects=not cases or is_long_profile())
        if case.has_derivatives and (binds_new_primitives(record, c, seen) or case.has_all_aspects):
            cases.append(case)
    return cases


def _tangents(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """Returns the output tangents computed by JAX."""
    return jax.jvp(f, primals, tangents)[1]


def _derivative_mismatches(
    record: Record, s: DerivativeCase, chosen: Sequence[int], expected: Mapping[str, Any]
) -> Mismatches:
    """Compares those of JVP, gradient, and JVP of the gradient that are expected with JAX's results or errors."""
    differentiable = s.differentiable_operands
    xs = arrays(TRACEFX, s.call)
    f, inputs = s.restrict(record.via(TRACEFX), xs, chosen), [xs[i] for i in chosen]
    ts = [t for i, t in zip(differentiable, s.tangent_arrays(TRACEFX, chosen), strict=True) if i in chosen]
    pull = s.vjp_function(TRACEFX, f)
    compute: Mapping[str, tuple[Callable[[], Any], Ulps]] = {
        "jvp": (lambda: fx.jvp(f, inputs, ts)[1], DERIVATIVE),
        "grad": (lambda: pull(*inputs), DERIVATIVE),
        "second": (lambda: fx.jvp(pull, inputs, ts)[1], SECOND_DERIVATIVE),
    }
    mismatches: Mismatches = []
    for aspect, want in expected.items():
        if aspect != "jvp" and not isinstance(want, Exception):
            want = [g for i, g in zip(differentiable, want, strict=True) if i in chosen]
        thunk, ulps = compute[aspect]
        if found := difference(attempt(thunk), want, ulps, weak=False):
            mismatches.append(f"{aspect} {s.call}{'' if tuple(chosen) == differentiable else f' at {chosen}'}: {found}")
    return mismatches


# ------------------------------------------------------------------ batches


def batches(record: Record) -> Mismatches:
    """Compares `vmap` over each operand alone and over all together, along every axis, with out_axes 0 and -1.

    The expected result is computed element by element; the first element is the call that is compared with JAX. Calls
    after the first one are batched over each operand alone only if they have new primitives, and in the long profile.
    """
    mismatches = references.batches(record, record.reference) if record.reference else []
    f = record.via(TRACEFX)
    seen: set[str] = set()
    for each in record.calls if record.batched else ():
        has_all_subsets = binds_new_primitives(record, each, seen) or is_long_profile()
        for chosen in operand_subsets(each) if has_all_subsets else operand_subsets(each)[-1:]:
            b = BatchedCall(each, chosen)
            rows = attempt(b.evaluate_elements, f)
            if isinstance(rows, Exception):
                mismatches.append(f"vmap {each}, one after the other: {format_outcome(rows)}")
                continue
            want = fx.tree.map(lambda *parts: fnp.stack(parts), *rows)
            mismatches += batch_mismatches(record, b, want, record.ulps)
    return mismatches
