"""Properties that every primitive must satisfy, with JAX as the oracle.

A `Record` tells how to call one primitive and its JAX counterpart, and how to draw arguments. Each property is a
function of a record and arguments that raises `AssertionError`; test files parametrize over records and dtypes and call
these functions:

    @pytest.mark.parametrize(("record", "dtype"), cases(RECORDS), ids=case_id)
    def test_values(record: Record, dtype: DType) -> None:
        for args in record.samples(dtype, rng(record.name, dtype)):
            staged_matches_eager(record, args)

Arguments are NumPy arrays, whose dtype counts as explicit; Python scalars, which are weakly typed; or `Weak` arrays.
Unlike `jax.lax`, tracefx converts a Python number to the dtype of the other operand; where that is not its default
dtype, there is nothing to compare with. All tolerances are defined in `tracefx.testing.tolerances`.
"""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude="jax, ml_dtypes"

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, final

import jax
import jax.numpy as jnp
import numpy as np
from attrs import frozen
from jax._src.lax import lax as jax_lax
from typing_extensions import override

import tracefx as fx
from tests.compiling import compile_with_fallback
from tests.versions import ulps_beside_jax
from tracefx.core import dtypes
from tracefx.core.array import Array
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import DType, NDArray
from tracefx.core.handler import current, handling
from tracefx.core.literal import Literal, Scalar
from tracefx.core.primitive import MappedAxis, Tangent, Zero
from tracefx.core.values import Value, as_value, from_numpy, to_numpy
from tracefx.interpreters.batch import Batch
from tracefx.interpreters.jvp import JVP
from tracefx.ops.structural import convert
from tracefx.testing import (
    abstract_eval_matches_evaluation,
    jvp_is_the_derivative,
    staging_changes_nothing,
    tolerances,
    transpose_is_adjoint,
)
from tracefx.testing.subjects import subsets
from tracefx.testing.tolerances import DERIVATIVE, EXACT, SECOND_DERIVATIVE, SUMMED, Ulps, ulp_distance

jax.config.update("jax_explicit_x64_dtypes", "allow")

# ------------------------------------------------------------------ records


@final
@frozen(eq=False)
class Weak:
    """An array with a weak type, like one computed from Python numbers."""

    value: NDArray


Arg: TypeAlias = NDArray | Scalar | Weak
Args: TypeAlias = tuple[Arg, ...]
Samples: TypeAlias = Callable[[DType, np.random.Generator], list[Args]]


@final
@frozen(eq=False)
class Record:
    """A primitive with its static parameters applied.

    `samples` draws arguments of all kinds, edge values included; two calls return arguments of equal types. `points`
    draws arguments at which the primitive is differentiable, away from kinks and poles; None if no operand has a
    derivative.
    """

    name: str
    function: Callable[..., Array]
    oracle: Callable[..., jax.Array]
    dtypes: tuple[DType, ...]
    samples: Samples
    points: Samples | None = None


def cases(records: Iterable[Record]) -> list[tuple[Record, DType]]:
    return [(record, dtype) for record in records for dtype in record.dtypes]


def case_id(part: Record | DType) -> str:
    return part.name if isinstance(part, Record) else dtypes.short_name(part)


def rng(*key: object) -> np.random.Generator:
    """Returns a generator seeded by `key`, with the same numbers in every run and process."""
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


INTS: Final = (dtypes.int8, dtypes.int32, dtypes.int64)
UINTS: Final = (dtypes.uint8, dtypes.uint32, dtypes.uint64)
NARROW_INTS: Final = (dtypes.int4, dtypes.uint4)
FLOATS: Final = (dtypes.bfloat16, dtypes.float16, dtypes.float32, dtypes.float64)
COMPLEXES: Final = (dtypes.complex64, dtypes.complex128)
SHAPES: Final = ((), (2, 3), (0,))


def normal(shape: tuple[int, ...], dtype: DType, gen: np.random.Generator, scale: float = 1.0) -> NDArray:
    """Draws normally distributed numbers of any dtype, or integers from the whole range of an integer dtype."""
    if dtypes.is_bool(dtype):
        return np.asarray(gen.integers(0, 2, shape)).astype(np.bool_)
    if dtypes.is_integer(dtype):
        info = dtypes.iinfo(dtype)
        wide = np.int64 if dtypes.is_signed(dtype) else np.uint64
        return np.asarray(gen.integers(int(info.min), int(info.max), shape, wide, endpoint=True)).astype(dtype)
    if dtypes.is_complex(dtype):
        return np.asarray((gen.standard_normal(shape) + 1j * gen.standard_normal(shape)) * scale).astype(dtype)
    return np.asarray(gen.standard_normal(shape) * scale).astype(dtype)


def edges(dtype: DType) -> NDArray:
    """Returns the edge values of a dtype."""
    if dtypes.is_bool(dtype):
        return np.array([False, True])
    if dtypes.is_integer(dtype):
        info = dtypes.iinfo(dtype)
        low, high = int(info.min), int(info.max)
        values = sorted({low, low + 1, 0, 1, 2, 3, high - 1, high, max(-1, low)})
        return np.array(values, np.uint64 if low == 0 else np.int64).astype(dtype)
    real = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, np.inf, -np.inf, np.nan])
    if dtypes.is_complex(dtype):
        finite = (0.0, 1.0, -1.0, 0.5)  # no -0.0: complex arithmetic does not preserve the side of a branch cut
        return np.array([complex(a, b) for a, b in itertools.product(finite, finite)]).astype(dtype)
    return real.astype(dtype)


def pairs(x: NDArray, y: NDArray) -> tuple[NDArray, NDArray]:
    """Pairs every element of one array with every element of another."""
    return np.repeat(x, y.size), np.tile(y, x.size)


# ------------------------------------------------------------------ conversion of arguments


def to_tracefx(x: Arg) -> Value:
    if isinstance(x, Weak):
        return convert(from_numpy(x.value, x.value.dtype), x.value.dtype, weak_type=True)
    return from_numpy(x, x.dtype) if isinstance(x, np.ndarray) else as_value(x)


def to_jax_array(x: Arg) -> jax.Array | Scalar:
    if isinstance(x, Weak):
        weak: jax.Array = jax_lax._convert_element_type(jnp.asarray(x.value, x.value.dtype), weak_type=True)
        return weak
    if not isinstance(x, np.ndarray):
        return x
    if dtypes.is_key(x.dtype):
        keys: jax.Array = jax.random.wrap_key_data(jnp.asarray(key_to_words(x)), impl=_GENERATORS[x.dtype])
        return keys
    return jnp.asarray(x, x.dtype)


_GENERATORS: Final = {dtypes.key_fry: "threefry2x32", dtypes.key_rbg: "rbg", dtypes.key_urbg: "unsafe_rbg"}


def key_to_words(keys: NDArray) -> NDArray:
    """Returns the uint32 words of random keys."""
    flat: NDArray = np.ascontiguousarray(keys).view(np.uint32)
    return flat.reshape((*keys.shape, dtypes.key_data_size(keys.dtype)))


def host_of(x: jax.Array) -> NDArray:
    """Converts a JAX array, or an array of random keys, to the NumPy array that tracefx would hold."""
    if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return np.asarray(x)
    dtype = next(key_dtype for key_dtype, name in _GENERATORS.items() if name == str(jax.random.key_impl(x)))
    return np.array(jax.random.key_data(x)).view(dtype)[..., 0]


def to_argument(x: Arg) -> Array | Scalar:
    """Converts arrays; Python scalars are passed unchanged to the function under test."""
    if isinstance(x, np.ndarray | Weak):
        value = to_tracefx(x)
        assert isinstance(value, Array)
        return value
    return x


def numpy_values(x: Arg) -> NDArray:
    return x.value if isinstance(x, Weak) else np.asarray(x)


def format_arguments(args: Args) -> str:
    """Formats arguments by value if they are small, else by dtype and shape."""
    return ", ".join(
        repr(numpy_values(a).tolist())
        if numpy_values(a).size <= 6
        else f"{numpy_values(a).dtype}{list(numpy_values(a).shape)}"
        for a in args
    )


def aval_of(x: jax.Array) -> ShapedArray:
    """Returns the abstract value of a JAX array.

    JAX's comparisons of weak operands return weak booleans, which promote as all booleans do; those of tracefx are
    never weak.
    """
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return ShapedArray(x.shape, next(dtype for dtype in dtypes.KEY_DTYPES if dtypes.name(dtype) == str(x.dtype)))
    dtype = np.dtype(x.dtype)
    return ShapedArray(x.shape, dtype, bool(x.weak_type) and not dtypes.is_bool(dtype))


# ------------------------------------------------------------------ tolerances


def ulps_of(name: str) -> Ulps:
    """Returns the tolerance of a primitive; sums are exact, because samples of sums are integers."""
    ulps = tolerances.ulps_of(name)
    return EXACT if ulps is SUMMED else ulps


def assert_identical(got: NDArray, want: NDArray, label: str) -> None:
    """Asserts equal shapes, dtypes and bits; NaNs are equal to each other."""
    assert got.shape == want.shape, f"{label}: shape {got.shape}, expected {want.shape}"
    assert got.dtype == want.dtype, f"{label}: dtype {got.dtype}, expected {want.dtype}"
    if not got.size:
        return
    a, b = [np.ascontiguousarray(x) for x in (got, want)]
    if dtypes.is_complex(a.dtype):
        a, b = [x.view(dtypes.real_dtype(x.dtype)) for x in (a, b)]
    same = a.view(np.uint8).reshape(a.size, -1) == b.view(np.uint8).reshape(b.size, -1)
    mismatches = np.flatnonzero(~(same.all(1) | ((a != a) & (b != b)).ravel()))
    assert not mismatches.size, (
        f"{label}: {a.flat[mismatches[0]]!r} at {mismatches[0]}, expected {b.flat[mismatches[0]]!r}"
    )


def assert_close(got: NDArray, want: NDArray, tolerance: Ulps, label: str) -> None:
    """Asserts equal shapes and dtypes, NaNs and infinities at the same indices, and other elements within the
    tolerance.
    """
    assert got.shape == want.shape, f"{label}: shape {got.shape}, expected {want.shape}"
    assert got.dtype == want.dtype, f"{label}: dtype {got.dtype}, expected {want.dtype}"
    if not dtypes.is_inexact(got.dtype):
        assert_identical(got, want, label)
        return
    distance = ulp_distance(got, want, tolerance.least)
    allowed = tolerance.of(got.dtype)
    worst = int(np.argmax(distance)) if distance.size else 0
    assert not distance.size or distance.flat[worst] <= allowed, (
        f"{label}: {got.flat[worst]!r} at {worst}, expected {want.flat[worst]!r}: {distance.flat[worst]} ulps apart, "
        f"allowed are {allowed}"
    )


# ------------------------------------------------------------------ properties


def evaluated(record: Record, args: Args) -> Array:
    out = record.function(*map(to_argument, args))
    assert isinstance(out, Array), f"{record.name} gave {out!r}"
    return out


def results_of_jax(record: Record, samples: Sequence[Args]) -> list[jax.Array]:
    """Returns JAX's result for each sample, computed by one compiled program."""
    return _run_compiled_together([record.oracle] * len(samples), [list(map(to_jax_array, s)) for s in samples])


def agree_with_jax(record: Record, samples: Sequence[Args], wanted: Sequence[jax.Array] | None = None) -> None:
    """Asserts that value, shape, dtype and weak type match JAX for each sample. `wanted` defaults to
    `results_of_jax`.
    """
    for args, want in zip(samples, results_of_jax(record, samples) if wanted is None else wanted, strict=True):
        _assert_matches_jax(record, args, want)


def compiled_results(record: Record, samples: Sequence[Args]) -> list[Array]:
    """Returns tracefx's result for each sample, computed by one compiled program."""
    return fx.jit(lambda argument_lists: [record.function(*args) for args in argument_lists])(
        [list(map(to_argument, s)) for s in samples]
    )


def compiled_matches_eager(record: Record, samples: Sequence[Args], compiled: Sequence[Array] | None = None) -> None:
    """Asserts that compiled results have the types of the eager ones, and their values up to the primitive's tolerance.

    `compiled` defaults to `compiled_results`.
    """
    for args, got in zip(samples, compiled_results(record, samples) if compiled is None else compiled, strict=True):
        want, label = evaluated(record, args), f"compiled {record.name} of {format_arguments(args)}"
        assert got.aval == want.aval, f"{label}: type {got.aval!r}, evaluated {want.aval!r}"
        assert_close(to_numpy(got), to_numpy(want), ulps_of(record.name), label)


def _assert_matches_jax(record: Record, args: Args, want: jax.Array) -> None:
    out = evaluated(record, args)
    label = f"{record.name} of {format_arguments(args)}"
    assert repr(out.aval) == repr(aval_of(want)), f"{label}: type {out.aval!r}, JAX has {aval_of(want)!r}"
    assert_close(to_numpy(out), np.asarray(want), _ulps_against_jax(record, args), label)


def _ulps_against_jax(record: Record, args: Args) -> Ulps:
    return ulps_beside_jax(record.name, numpy_values(args[0]).dtype, ulps_of(record.name))


def program_of(record: Record, args: Args) -> tuple[Callable[..., Array], list[Value]]:
    """Returns the call as a function of its array arguments, and these arrays; Python scalars are closed over."""
    values = [to_tracefx(a) if isinstance(a, np.ndarray | Weak) else None for a in args]

    def program(*arrays: Array) -> Array:
        rest = iter(arrays)
        return record.function(*[a if v is None else next(rest) for a, v in zip(args, values, strict=True)])

    program.__name__ = record.name
    return program, [v for v in values if v is not None]


def staged_matches_eager(record: Record, args: Args) -> None:
    """Asserts that tracing predicts the type of the eager result and that the traced program evaluates to the same
    bits.
    """
    program, values = program_of(record, args)
    abstract_eval_matches_evaluation(program, *values)
    staging_changes_nothing(program, *values)


def inexact_positions(args: Args) -> list[int]:
    return [i for i, a in enumerate(args) if not isinstance(a, Scalar) and dtypes.is_inexact(numpy_values(a).dtype)]


def jvp_value(f: Callable[..., Value], args: Sequence[Value], tangents: Mapping[int, Value]) -> tuple[Value, Tangent]:
    """Returns the output and its tangent, given tangents of some of the arguments."""
    with handling(JVP(current())) as h:
        out = f(*[h.wrap(a, tangents[i]) if i in tangents else a for i, a in enumerate(args)])
    return h.unwrap(out)


def instantiate_zeros(t: Tangent) -> NDArray:
    return np.zeros(t.aval.shape, t.aval.dtype) if isinstance(t, Zero) else to_numpy(t)


def tangent_of(x: Arg, gen: np.random.Generator) -> NDArray:
    return normal(numpy_values(x).shape, numpy_values(x).dtype, gen)


@final
@frozen(eq=False)
class TangentCase:
    """Arguments of a record, with tangents for some of them."""

    record: Record
    args: Args
    drawn: Mapping[int, NDArray]

    @staticmethod
    def of(record: Record, args: Args, label: str) -> list[TangentCase]:
        """Returns one case for every nonempty choice of operands that have a tangent."""
        gen = rng(record.name, label)
        choices = subsets(inexact_positions(args))
        return [TangentCase(record, args, {i: tangent_of(args[i], gen) for i in positions}) for positions in choices]

    @property
    def tangents(self) -> dict[int, Value]:
        return {i: _like(t, to_tracefx(self.args[i])) for i, t in self.drawn.items()}

    @property
    def jax_arguments(self) -> tuple[list[jax.Array | Scalar], list[jax.Array | Scalar]]:
        """Returns the differentiated arguments as JAX arrays, and their tangents."""
        return [to_jax_array(self.args[i]) for i in self.drawn], [
            _jax_like(t, self.args[i]) for i, t in self.drawn.items()
        ]

    def oracle(self, *xs: jax.Array) -> jax.Array:
        """Calls the JAX counterpart as a function of the differentiated arguments."""
        replaced = dict(zip(self.drawn, xs, strict=True))
        return self.record.oracle(*[replaced.get(i, to_jax_array(a)) for i, a in enumerate(self.args)])

    def second(self, xs: Sequence[jax.Array], ts: Sequence[jax.Array]) -> jax.Array:
        """Returns JAX's second derivative along the tangents."""

        def first(*xs: jax.Array) -> jax.Array:
            out: jax.Array = jax.jvp(self.oracle, xs, tuple(ts))[1]
            return out

        second: jax.Array = jax.jvp(first, tuple(xs), tuple(ts))[1]
        return second

    @override
    def __str__(self) -> str:
        return f"{self.record.name} of {format_arguments(self.args)} at {tuple(self.drawn)}"


def _run_compiled_together(functions: Sequence[Callable[..., Any]], arguments: Sequence[Sequence[Any]]) -> list[Any]:
    """Runs JAX functions compiled as one program, because each compilation costs time."""
    outs: list[Any] = compile_with_fallback(
        jax.jit, lambda argument_lists: [f(*xs) for f, xs in zip(functions, argument_lists, strict=True)]
    )(arguments)
    return outs


def jvp_matches_jax(record: Record, samples: Sequence[Args]) -> None:
    """Asserts that tangents match JAX in type and, up to rounding, in value, for every choice of differentiated
    operands.
    """
    tangent_cases = [case for args in samples for case in TangentCase.of(record, args, "tangents")]
    wanted = _run_compiled_together(
        [functools.partial(jax.jvp, case.oracle) for case in tangent_cases],
        [case.jax_arguments for case in tangent_cases],
    )
    for case, (want, want_t) in zip(tangent_cases, wanted, strict=True):
        out, t = jvp_value(record.function, list(map(to_tracefx, case.args)), case.tangents)
        label = f"jvp of {case}"
        assert out.aval == evaluated(record, case.args).aval, label
        assert t.aval == out.aval.tangent(), f"{label}: tangent {t.aval!r} of {out.aval!r}"
        assert t.aval.dtype == np.dtype(want_t.dtype), label
        if dtypes.is_inexact(t.aval.dtype) and dtypes.itemsize_bits(dtypes.real_dtype(t.aval.dtype)) >= 32:
            assert_close(instantiate_zeros(t), np.asarray(want_t), DERIVATIVE, label)
        assert_close(to_numpy(out), np.asarray(want), _ulps_against_jax(record, case.args), label)


def _like(t: NDArray, x: Value) -> Value:
    return convert(from_numpy(t, t.dtype), x.aval.dtype, x.aval.weak_type)


def _jax_like(t: NDArray, x: Arg) -> jax.Array | Scalar:
    return to_jax_array(Weak(t)) if isinstance(x, Weak) else to_jax_array(t)


def jvp_matches_finite_differences(record: Record, args: Args) -> None:
    """Asserts that tangents match central differences in float64."""
    program, values = program_of(record, args)
    if any(dtypes.is_inexact(v.aval.dtype) for v in values):
        jvp_is_the_derivative(program, *values)


def transpose_matches_jvp(record: Record, args: Args) -> None:
    """Asserts `<J v, w> = <v, Jᵀ w>`, and that cotangents have the types of their primals."""
    program, values = program_of(record, args)
    if any(dtypes.is_inexact(v.aval.dtype) for v in values):
        transpose_is_adjoint(program, *values)


def second_derivatives_match_jax(record: Record, samples: Sequence[Args]) -> None:
    """Asserts that second derivatives along one direction match JAX."""
    got: list[tuple[TangentCase, Tangent]] = []
    for case in [case for args in samples for case in TangentCase.of(record, args, "second")]:

        def first(*xs: Value, tangents: Mapping[int, Value] = case.tangents) -> Value:
            _, t = jvp_value(record.function, xs, tangents)
            return from_numpy(instantiate_zeros(t), t.aval.dtype) if isinstance(t, Zero) else t

        _, t = jvp_value(first, list(map(to_tracefx, case.args)), case.tangents)
        if t.aval.dtype != dtypes.float0:
            got.append((case, t))
    wanted = _run_compiled_together([case.second for case, _ in got], [case.jax_arguments for case, _ in got])
    for (case, t), want in zip(got, wanted, strict=True):
        assert_close(instantiate_zeros(t), np.asarray(want), SECOND_DERIVATIVE, f"second derivative of {case}")


def batched(f: Callable[..., Value], args: Sequence[Value], axes: Sequence[int | None], size: int) -> NDArray:
    """Returns the outputs for a batch, with the batch axis in front."""
    with handling(Batch(current(), MappedAxis(size))) as h:
        out = f(*[h.wrap(a, axis) for a, axis in zip(args, axes, strict=True)])
    val, dim = h.unwrap(out)
    host = to_numpy(val)
    return np.broadcast_to(host, (size, *host.shape)) if dim is None else np.moveaxis(host, dim, 0)


def vmap_matches_loop(record: Record, samples: Sequence[Args]) -> None:
    """Asserts that `vmap` equals a Python loop, for every choice of batched operands and batch axes.

    `samples` contains one tuple of arguments per batch element, all of equal types.
    """
    first = samples[0]
    choices = [[None, *range(numpy_values(a).ndim + 1)] if isinstance(a, np.ndarray) else [None] for a in first]
    for axes in itertools.product(*choices):
        if all(axis is None for axis in axes):
            continue
        stacked = [
            to_argument(a) if axis is None else to_tracefx(np.stack([numpy_values(s[i]) for s in samples], axis))
            for i, (a, axis) in enumerate(zip(first, axes, strict=True))
        ]
        got = _batched_with_scalars(record, stacked, axes, len(samples))
        want = [
            evaluated(record, tuple([f if axis is None else a for f, a, axis in zip(first, sample, axes, strict=True)]))
            for sample in samples
        ]
        label = f"vmap of {record.name} over {axes} of {[numpy_values(a).shape for a in first]}"
        assert_close(got, np.stack([to_numpy(w) for w in want]), ulps_of(record.name), label)


def _batched_with_scalars(
    record: Record, args: Sequence[Value | Scalar], axes: Sequence[int | None], size: int
) -> NDArray:
    """Passes Python scalars unchanged, so that the function determines their dtype."""
    arrays = [a for a in args if isinstance(a, Array | Literal)]
    array_axes = [axis for a, axis in zip(args, axes, strict=True) if isinstance(a, Array | Literal)]

    def f(*xs: Value) -> Value:
        rest = iter(xs)
        return record.function(*[next(rest) if isinstance(a, Array | Literal) else a for a in args])

    return batched(f, arrays, array_axes, size)
