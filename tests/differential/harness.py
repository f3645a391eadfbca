"""The comparison of a record's function with JAX's.

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
from tests.compiling import compiled
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
    like,
    numbers_of,
    passed,
)
from tests.laws.examples import is_long
from tracefx.core.array import Array
from tracefx.core.dtypes import NDArray
from tracefx.testing.laws import every_axes
from tracefx.testing.tolerances import DERIVATIVE, TWICE, Ulps, apart

Found: TypeAlias = list[str]
"""What differs: for each difference the aspect, the call, and what is here and what there."""
USUAL: Final = ("bool", "int32", "bfloat16", "float64", "complex64")
"""The dtypes for which values are compared; for others types are, unless there is time for more."""


def quiet(f: Function) -> Function:
    """`f` of JAX, without what it warns of: ours must not warn."""

    def g(*args: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return f(*args)

    return g


def by_jax(f: Function) -> Function:
    return quiet(compiled(jax.jit, f))


# ------------------------------------------------------------------ comparing results


def leaves_of(out: Any) -> list[Any]:
    """The arrays of a result, in their order."""
    return [x for part in out for x in leaves_of(part)] if isinstance(out, list | tuple) else [out]


def structure(out: Any) -> object:
    """How sequences are nested in a result: whether they are lists or tuples too."""
    return (isinstance(out, list), list(map(structure, out))) if isinstance(out, list | tuple) else None


def compare(got: Any, want: Any, ulps: Ulps | None, *, typed: bool = True) -> str:
    """How two results differ, "" if they agree: in type only without a tolerance; `typed`: whether weak types count."""
    if structure(got) != structure(want):
        return f"{got!r} in place of {want!r}"
    for i, (g, w) in enumerate(zip(leaves_of(got), leaves_of(want), strict=True)):
        where = f"output {i}: " if isinstance(want, list | tuple) else ""
        if difference := _compare_one(g, w, ulps, typed):
            return where + difference
    return ""


def _compare_one(got: Any, want: Any, ulps: Ulps | None, typed: bool) -> str:
    if not isinstance(got, Array):
        return f"{got!r} is no array"
    if (got.shape, got.dtype) != (want.shape, np.dtype(want.dtype)):
        return f"{got.dtype}{list(got.shape)} in place of {want.dtype}{list(want.shape)}"
    # JAX's comparisons of weak operands are weak booleans, which promote as all booleans do; ours are never weak.
    if typed and got.dtype != np.bool_ and got.weak_type != want.weak_type:
        return f"weak_type {got.weak_type}"
    if ulps is None:
        return ""
    g, w = np.asarray(got), np.asarray(want)
    allowed = ulps.for_array(w)
    distance = apart(g, w, allowed.least)
    if not distance.size:
        return ""
    limit = allowed.of(g.dtype) if is_inexact(g) else 0
    worst = int(np.argmax(distance))
    if distance.flat[worst] <= limit:
        return ""
    return (
        f"{g.flat[worst]} in place of {w.flat[worst]} at {worst}: {distance.flat[worst]:.4g} ulps, allowed {limit:.4g}"
    )


def attempt(thunk: Callable[[], Any]) -> Any:
    """The result, or the error."""
    try:
        return thunk()
    except Exception as error:  # whatever it is, it is compared
        return error


def builtin(error: BaseException) -> type:
    """The built-in class that an error belongs to."""
    return next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")


def said(x: Any) -> str:
    """A result, or an error with the beginning of what it says."""
    return f"{type(x).__name__}: {str(x)[:120]}" if isinstance(x, Exception) else repr(x)


def arrays(library: Library, call: Call) -> list[Any]:
    return [passed(library, x) for x in call.operands]


# ------------------------------------------------------------------ values and types

Labelled: TypeAlias = tuple[str, Call]


def values(record: Record) -> Found:
    """Values, dtypes and weak types, evaluated and compiled; of the first call, evaluated, in other dtypes too."""
    known = [*[(f"{c}", c) for c in (*record.calls, *record.values)], *_recast(record)]
    if record.is_plain:
        return _plain_values(record, known)
    found: Found = []
    wanted = _each_of_theirs(record, known, by_jax)
    given = [arrays(OURS, c) for _, c in known]
    f, mine = record.via(OURS), []
    for (label, each), xs, want in zip(known, given, wanted, strict=True):
        got = attempt(lambda each=each, xs=xs: each.of(f, xs))  # type: ignore[misc]
        mine.append(got)
        if difference := _outcome(got, want, record.ulps):
            found.append(f"value {label}: {difference}")
    staged = len(known) if is_long() else len(record.calls) + len(record.values)
    good = [i for i in range(staged) if not isinstance(mine[i], Exception) and not isinstance(wanted[i], Exception)]
    together = compiled(fx.jit, lambda xss: [known[i][1].of(f, xs) for i, xs in zip(good, xss, strict=True)])
    for i, got in zip(good, together([given[i] for i in good]), strict=True):
        if difference := compare(got, wanted[i], record.ulps):
            found.append(f"compiled {known[i][0]}: {difference}")
    return found


def types(record: Record) -> Found:
    """The types of the results of the first call in other dtypes, also one operand at a time. Nothing is compiled."""
    changed = list(_one_recast(record))
    wanted = _each_of_theirs(record, changed, lambda f: quiet(functools.partial(jax.eval_shape, f)))
    found: Found = []
    for (label, each), want in zip(changed, wanted, strict=True):
        got = attempt(lambda each=each: each.of(record.via(OURS), arrays(OURS, each)))  # type: ignore[misc]
        if difference := _outcome(got, want, None):
            found.append(f"dtype {label}: {difference}")
    return found


def _each_of_theirs(record: Record, calls: Sequence[Labelled], evaluate: Callable[[Function], Function]) -> list[Any]:
    """What JAX gives for each call, or its error; all are traced and compiled at one go."""
    errors: dict[int, Exception] = {}
    f = record.via(THEIRS)

    def together(given: Sequence[Any]) -> list[Any]:
        outs = [attempt(lambda c=c, xs=xs: c.of(f, xs)) for (_, c), xs in zip(calls, given, strict=True)]  # type: ignore[misc]
        errors.update({i: out for i, out in enumerate(outs) if isinstance(out, Exception)})
        return [None if isinstance(out, Exception) else out for out in outs]

    try:
        outs = evaluate(together)([arrays(THEIRS, c) for _, c in calls])
    except ValueError as error:
        # Of two products of the same operands that ask for different types, jax 0.10.2 gives both the lowering of one
        # now and then (in one of some 700 runs). A call in a program of its own has nothing to be taken for.
        if len(calls) == 1 or "verifier errors" not in str(error):
            raise
        return [out for call in calls for out in _each_of_theirs(record, [call], evaluate)]
    return [errors.get(i, out) for i, out in enumerate(outs)]


def _outcome(got: Any, want: Any, ulps: Ulps | None) -> str:
    """How results differ, either of which may be an error."""
    if isinstance(want, Exception):
        return "" if isinstance(got, builtin(want)) else f"{said(got)} in place of {said(want)}"
    return said(got) if isinstance(got, Exception) else compare(got, want, ulps)


def _plain_values(record: Record, calls: Sequence[Labelled]) -> Found:
    found: Found = []
    for label, each in calls:
        got, want = [attempt(lambda lib=lib: each.of(record.via(lib), arrays(lib, each))) for lib in (OURS, THEIRS)]  # type: ignore[misc]  # noqa: B023
        if isinstance(want, Exception) or isinstance(got, Exception):
            if difference := _outcome(got, want, None):
                found.append(f"value {label}: {difference}")
        elif type(got) is not type(want) or got != want:
            found.append(f"value {label}: {got!r} in place of {want!r}")
    return found


def _alike(record: Record) -> tuple[Call, str, list[int]] | None:
    """The first call, the dtype of its first operand, and which operands have it."""
    first = next((c for c in record.calls if c.places), None)
    if first is None:
        return None
    main = numbers_of(first.operands[0]).dtype
    return first, str(main), [i for i, x in enumerate(first.operands) if numbers_of(x).dtype == main]


def _recast(record: Record) -> Iterator[Labelled]:
    """The first call with all operands of other dtypes."""
    if found := _alike(record):
        first, main, same = found
        for dtype in record.dtypes:
            if dtype != main and (dtype in USUAL or is_long()):
                yield f"all {dtype}", _with_dtypes(first, dict.fromkeys(same, dtype))


def _one_recast(record: Record) -> Iterator[Labelled]:
    """The first call with one operand of another dtype, or of a function of two operands with every pair of dtypes."""
    found = _alike(record)
    if found is None:
        return
    first, main, same = found
    for dtype in record.dtypes:
        if dtype not in (main, *USUAL):
            yield f"all {dtype}", _with_dtypes(first, dict.fromkeys(same, dtype))
    if len(same) < 2:
        return
    if record.pairs and is_long():
        for one, other in itertools.permutations(record.dtypes, 2):
            yield f"{one} {other}", _with_dtypes(first, {same[0]: one, same[1]: other})
        return
    for i, dtype in itertools.product(same, record.dtypes):
        if dtype != main:
            yield f"operand {i} {dtype}", _with_dtypes(first, {i: dtype})


def _with_dtypes(call: Call, dtypes: dict[int, str]) -> Call:
    return call.at([cast(numbers_of(x), dtypes[i]) if i in dtypes else x for i, x in enumerate(call.operands)])


def other_names(record: Record) -> Found:
    """A function of several names is JAX's function of each."""
    found: Found = []
    for name in record.also:
        module, attribute = name.split(".")
        ours, theirs = [getattr(getattr(library, module), attribute) for library in (OURS, THEIRS)]
        if ours is not record.via(OURS):
            found.append(f"name {name}: it is another function")
        for each in record.calls[:1]:
            got, want = each.of(ours, arrays(OURS, each)), quiet(each.of)(theirs, arrays(THEIRS, each))
            if difference := compare(got, want, record.ulps):
                found.append(f"name {name} {each}: {difference}")
    return found


def refusals(record: Record) -> Found:
    """Errors are of the same built-in class."""
    found: Found = []
    for each in record.refused:
        want = attempt(lambda each=each: quiet(each.of)(record.via(THEIRS), arrays(THEIRS, each)))  # type: ignore[misc]
        got = attempt(lambda each=each: each.of(record.via(OURS), arrays(OURS, each)))  # type: ignore[misc]
        if not isinstance(want, Exception):
            found.append(f"error {each}: JAX gives {want!r}, here {said(got)}")
        elif not isinstance(got, builtin(want)):
            found.append(f"error {each}: {said(got)} in place of {said(want)}")
    return found


# ------------------------------------------------------------------ derivatives


def _drawn(x: Operand | NDArray, what: str) -> NDArray:
    """Normally distributed numbers like `x`, the same in every run."""
    numbers = numbers_of(x)
    rng = np.random.default_rng(zlib.crc32(f"{what} {numbers.shape}".encode()))
    drawn = np.asarray(rng.standard_normal(numbers.shape))
    if numbers.dtype.kind == "c":
        drawn = drawn + 1j * rng.standard_normal(numbers.shape)
    return drawn.astype(numbers.dtype)


@final
@frozen(eq=False)
class Slope:
    """A call whose derivatives are compared: tangents of its inexact operands, cotangents of its inexact outputs."""

    call: Call
    tangents: tuple[NDArray, ...]
    weights: tuple[NDArray | None, ...]

    @staticmethod
    def of(record: Record, call: Call) -> Slope:
        outs = [np.asarray(o) for o in leaves_of(call.of(record.via(OURS), arrays(OURS, call)))]
        return Slope(
            call,
            tuple([_drawn(call.operands[i], f"tangent {i}") for i in call.moving]),
            tuple([_drawn(o, f"weight {i}") if is_inexact(o) else None for i, o in enumerate(outs)]),
        )

    @property
    def choices(self) -> list[tuple[int, ...]]:
        """Which operands are moved: each alone, and all together."""
        moving = self.call.moving
        return [*([(i,) for i in moving] if len(moving) > 1 else []), moving]

    def moved(self, library: Library, chosen: Sequence[int]) -> list[Any]:
        """The tangents of all operands that have one, those that aren't chosen zero."""
        return [
            passed(library, like(self.call.operands[i], t if i in chosen else np.zeros_like(t)))
            for i, t in zip(self.call.moving, self.tangents, strict=True)
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
            return list(pull([passed(library, w) for w in self.weights if w is not None]))

        return pulled


def derivatives(record: Record) -> Found:
    """Tangents, gradients, and tangents of gradients, along each inexact operand alone and along all together."""
    slopes = [Slope.of(record, c) for c in record.calls if c.moving] if record.derivatives else []
    slopes = [s for s in slopes if any(w is not None for w in s.weights)]
    f = record.via(THEIRS)

    def oracle(given: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        outs = []
        for s, xs, ts in zip(slopes, given, tangents, strict=True):
            g, moved = s.restricted(f, xs, s.call.moving), [xs[i] for i in s.call.moving]
            outs.append((jax.jvp(g, moved, ts)[1], jax.jvp(s.pulled(THEIRS, g), moved, ts)))
        return outs

    evaluate = by_jax(oracle)
    given = [arrays(THEIRS, s.call) for s in slopes]
    found: Found = []
    for turn in range(max([len(s.choices) for s in slopes], default=0)):
        choices = [s.choices[min(turn, len(s.choices) - 1)] for s in slopes]
        wanted = evaluate(given, [s.moved(THEIRS, chosen) for s, chosen in zip(slopes, choices, strict=True)])
        for s, chosen, want in zip(slopes, choices, wanted, strict=True):
            if turn < len(s.choices):
                found += _slope_differs(record, s, chosen, *want)
    return found


def _slope_differs(record: Record, s: Slope, chosen: Sequence[int], pushed: Any, pulled: Any) -> Found:
    moving = s.call.moving
    xs = arrays(OURS, s.call)
    f, moved = s.restricted(record.via(OURS), xs, chosen), [xs[i] for i in chosen]
    ts = [t for i, t in zip(moving, s.moved(OURS, chosen), strict=True) if i in chosen]
    pull = s.pulled(OURS, f)
    gradients, seconds = [[g for i, g in zip(moving, part, strict=True) if i in chosen] for part in pulled]
    parts: tuple[tuple[str, Callable[[], Any], Any, Ulps], ...] = (
        ("jvp", lambda: fx.jvp(f, moved, ts)[1], pushed, DERIVATIVE),
        ("grad", lambda: pull(*moved), gradients, DERIVATIVE),
        ("second", lambda: fx.jvp(pull, moved, ts)[1], seconds, TWICE),
    )
    found: Found = []
    for aspect, thunk, want, ulps in parts:
        got = attempt(thunk)
        difference = said(got) if isinstance(got, Exception) else compare(got, want, ulps, typed=False)
        if difference:
            found.append(f"{aspect} {s.call}{'' if tuple(chosen) == moving else f' at {chosen}'}: {difference}")
    return found


# ------------------------------------------------------------------ batches


@final
@frozen(eq=False)
class Batched:
    """A call of a batch, in which some operands are mapped."""

    call: Call
    chosen: tuple[int, ...]

    @property
    def size(self) -> int:
        """A size that no axis has, so that none can be taken for the batch's."""
        return next(n for n in range(3, 9) if all(n not in numbers_of(x).shape for x in self.call.operands))

    @property
    def every_axes(self) -> list[tuple[int | None, ...]]:
        """The ways to lay out the batch, the one in front first."""
        ranks = [numbers_of(x).ndim if i in self.chosen else -1 for i, x in enumerate(self.call.operands)]
        return [axes for axes in every_axes(ranks, most=24) if all(axes[i] is not None for i in self.chosen)]

    @property
    def last(self) -> tuple[int | None, ...]:
        return tuple([-1 if i in self.chosen else None for i in range(len(self.call.operands))])

    def laid_out(self, library: Library, axes: Sequence[int | None]) -> list[Any]:
        return [
            passed(library, x)
            if axis is None
            else passed(library, like(x, np.stack([_varied(numbers_of(x), k) for k in range(self.size)], axis)))
            for x, axis in zip(self.call.operands, axes, strict=True)
        ]

    def mapped(self, library: Library, f: Function, axes: Sequence[int | None], out_axes: int = 0) -> Function:
        over: Function = library.root.vmap(lambda xs: self.call.of(f, xs), in_axes=(list(axes),), out_axes=out_axes)
        return over


def batches(record: Record) -> Found:
    """`vmap` over each operand alone and over all together, along every axis; results along the last axis too."""
    all_batches = []
    for each in record.calls if record.batched else ():
        count = len(each.operands)
        all_batches += [Batched(each, (i,)) for i in range(count)] if count > 1 else []
        all_batches += [Batched(each, tuple(range(count)))] if count else []
    f = record.via(THEIRS)

    def oracle(given: Sequence[Any]) -> list[Any]:
        return [b.mapped(THEIRS, f, b.every_axes[0])(xs) for b, xs in zip(all_batches, given, strict=True)]

    wanted = by_jax(oracle)([b.laid_out(THEIRS, b.every_axes[0]) for b in all_batches])
    found: Found = []
    for b, want in zip(all_batches, wanted, strict=True):
        found += _batch_differs(record, b, want)
    return found


def _batch_differs(record: Record, b: Batched, want: Any) -> Found:
    f = record.via(OURS)
    for axes in b.every_axes:
        got = attempt(lambda axes=axes: b.mapped(OURS, f, axes)(b.laid_out(OURS, axes)))  # type: ignore[misc]
        difference = said(got) if isinstance(got, Exception) else compare(got, want, record.ulps)
        if difference:
            return [f"vmap {b.call} in {axes}: {difference}"]  # the others would differ in the same way
    moved = jax.tree.map(lambda w: np.moveaxis(w, 0, -1), want)
    got = b.mapped(OURS, f, b.last, -1)(b.laid_out(OURS, b.last))
    difference = compare(got, moved, record.ulps, typed=False)
    return [f"vmap {b.call} in and out {b.last}: {difference}"] if difference else []


def _is_in_order(x: NDArray) -> bool:
    """Whether these are different floats in order, which functions may need to be so: edges, knots."""
    if x.ndim != 1 or x.dtype.kind == "c" or not is_inexact(x):
        return False
    steps = np.diff(x.astype(np.float64))
    return bool(np.all(steps > 0) or np.all(steps < 0))


def _in_order(x: NDArray, k: int) -> NDArray:
    return np.asarray(x * x.dtype.type(1 - k / 16) + x.dtype.type(k / 32)).astype(x.dtype)


def _varied(x: NDArray, k: int) -> NDArray:
    """Element `k` of a batch: numbers that stay where the function is defined as far as one can tell."""
    if x.size > 1:
        return _in_order(x, k) if _is_in_order(x) else np.roll(x, k)
    if k == 0 or not x.size:
        return x
    if x.dtype.kind == "b":
        return x ^ bool(k % 2)
    if x.dtype.kind in "iu":
        return x if int(x.ravel()[0]) < k else x - x.dtype.type(k)
    return np.asarray(x * x.dtype.type(1 - k / 8)).astype(x.dtype)
