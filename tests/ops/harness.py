"""Laws of operations: what every operation must satisfy, JAX being the oracle.

A `Record` says how to call one operation and JAX's counterpart, and makes arguments. Each law is a function of a record
and arguments that raises `AssertionError`; test files parametrize over records and dtypes and call the laws:

    @pytest.mark.parametrize(("record", "dtype"), cases(RECORDS), ids=case_id)
    def test_values(record: Record, dtype: DType) -> None:
        for args in record.samples(dtype, rng(record.name, dtype)):
            stages_as_it_evaluates(record, args)

Arguments are NumPy arrays, whose dtype counts as asked for explicitly; Python scalars, which are weakly typed; or
`Weak` arrays. Unlike `jax.lax`, our functions give a Python number the dtype of the array beside it; where that is not
its default dtype there is nothing to compare with. All tolerances stand in `tracefx.testing.tolerances`.
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
    """An array whose dtype gives way, as one computed from Python numbers."""

    value: NDArray


Arg: TypeAlias = NDArray | Scalar | Weak
Args: TypeAlias = tuple[Arg, ...]
Samples: TypeAlias = Callable[[DType, np.random.Generator], list[Args]]


@final
@frozen(eq=False)
class Record:
    """One operation, with its static parameters applied.

    `samples` makes arguments of any kind, edge values among them; two calls give arguments of the same types.
    `points` makes arguments at which the operation is differentiable, well away from kinks and poles; None where no
    operand has derivatives.
    """

    name: str
    ours: Callable[..., Array]
    oracle: Callable[..., jax.Array]
    dtypes: tuple[DType, ...]
    samples: Samples
    points: Samples | None = None


def cases(records: Iterable[Record]) -> list[tuple[Record, DType]]:
    return [(record, dtype) for record in records for dtype in record.dtypes]


def case_id(part: Record | DType) -> str:
    return part.name if isinstance(part, Record) else dtypes.short_name(part)


def rng(*key: object) -> np.random.Generator:
    """A generator that gives the same numbers in every run and process."""
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


INTS: Final = (dtypes.int8, dtypes.int32, dtypes.int64)
UINTS: Final = (dtypes.uint8, dtypes.uint32, dtypes.uint64)
NARROW_INTS: Final = (dtypes.int4, dtypes.uint4)
FLOATS: Final = (dtypes.bfloat16, dtypes.float16, dtypes.float32, dtypes.float64)
COMPLEXES: Final = (dtypes.complex64, dtypes.complex128)
SHAPES: Final = ((), (2, 3), (0,))


def normal(shape: tuple[int, ...], dtype: DType, gen: np.random.Generator, scale: float = 1.0) -> NDArray:
    """Numbers of any dtype: normally distributed, or drawn from an integer's whole range."""
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
    """The values of a dtype that go wrong first."""
    if dtypes.is_bool(dtype):
        return np.array([False, True])
    if dtypes.is_integer(dtype):
        info = dtypes.iinfo(dtype)
        low, high = int(info.min), int(info.max)
        values = sorted({low, low + 1, 0, 1, 2, 3, high - 1, high, max(-1, low)})
        return np.array(values, np.uint64 if low == 0 else np.int64).astype(dtype)
    real = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, np.inf, -np.inf, np.nan])
    if dtypes.is_complex(dtype):
        finite = (0.0, 1.0, -1.0, 0.5)  # no -0.0: on which side of a branch cut it lies is lost in complex arithmetic
        return np.array([complex(a, b) for a, b in itertools.product(finite, finite)]).astype(dtype)
    return real.astype(dtype)


def pairs(x: NDArray, y: NDArray) -> tuple[NDArray, NDArray]:
    """Every element of one array against every element of another."""
    return np.repeat(x, y.size), np.tile(y, x.size)


# ------------------------------------------------------------------ arguments on both sides


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
    """What random keys are made of."""
    flat: NDArray = np.ascontiguousarray(keys).view(np.uint32)
    return flat.reshape((*keys.shape, dtypes.key_data_size(keys.dtype)))


def host_of(x: jax.Array) -> NDArray:
    """The numbers of a JAX array, or its random keys, as ours are."""
    if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return np.asarray(x)
    dtype = next(ours for ours, name in _GENERATORS.items() if name == str(jax.random.key_impl(x)))
    return np.array(jax.random.key_data(x)).view(dtype)[..., 0]


def to_argument(x: Arg) -> Array | Scalar:
    """As `mine`, Python scalars left for the function under test to deal with."""
    if isinstance(x, np.ndarray | Weak):
        value = to_tracefx(x)
        assert isinstance(value, Array)
        return value
    return x


def numpy_values(x: Arg) -> NDArray:
    return x.value if isinstance(x, Weak) else np.asarray(x)


def format_arguments(args: Args) -> str:
    """Arguments by their types, and by their numbers where they are few."""
    return ", ".join(
        repr(numpy_values(a).tolist())
        if numpy_values(a).size <= 6
        else f"{numpy_values(a).dtype}{list(numpy_values(a).shape)}"
        for a in args
    )


def aval_of(x: jax.Array) -> ShapedArray:
    """The type of a JAX array. JAX's comparisons of weak operands are weak booleans, which promote as all booleans do;
    ours are never weak."""
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return ShapedArray(x.shape, next(dtype for dtype in dtypes.KEY_DTYPES if dtypes.name(dtype) == str(x.dtype)))
    dtype = np.dtype(x.dtype)
    return ShapedArray(x.shape, dtype, bool(x.weak_type) and not dtypes.is_bool(dtype))


# ------------------------------------------------------------------ tolerances


def ulps_of(name: str) -> Ulps:
    """The tolerance of an operation, but none for sums: those of samples are of whole numbers."""
    ulps = tolerances.ulps_of(name)
    return EXACT if ulps is SUMMED else ulps


def assert_identical(got: NDArray, want: NDArray, what: str) -> None:
    """Equal shapes, dtypes and bits; any NaN equals any other."""
    assert got.shape == want.shape, f"{what}: shape {got.shape}, expected {want.shape}"
    assert got.dtype == want.dtype, f"{what}: dtype {got.dtype}, expected {want.dtype}"
    if not got.size:
        return
    a, b = [np.ascontiguousarray(x) for x in (got, want)]
    if dtypes.is_complex(a.dtype):
        a, b = [x.view(dtypes.real_dtype(x.dtype)) for x in (a, b)]
    same = a.view(np.uint8).reshape(a.size, -1) == b.view(np.uint8).reshape(b.size, -1)
    wrong = np.flatnonzero(~(same.all(1) | ((a != a) & (b != b)).ravel()))
    assert not wrong.size, f"{what}: {a.flat[wrong[0]]!r} at {wrong[0]}, expected {b.flat[wrong[0]]!r}"


def assert_close(got: NDArray, want: NDArray, tolerance: Ulps, what: str) -> None:
    """Equal shapes and dtypes, NaNs and infinities in the same places, the rest within the tolerance."""
    assert got.shape == want.shape, f"{what}: shape {got.shape}, expected {want.shape}"
    assert got.dtype == want.dtype, f"{what}: dtype {got.dtype}, expected {want.dtype}"
    if not dtypes.is_inexact(got.dtype):
        assert_identical(got, want, what)
        return
    distance = ulp_distance(got, want, tolerance.least)
    allowed = tolerance.of(got.dtype)
    worst = int(np.argmax(distance)) if distance.size else 0
    assert not distance.size or distance.flat[worst] <= allowed, (
        f"{what}: {got.flat[worst]!r} at {worst}, expected {want.flat[worst]!r}: {distance.flat[worst]} ulps apart, "
        f"allowed are {allowed}"
    )


# ------------------------------------------------------------------ laws


def evaluated(record: Record, args: Args) -> Array:
    out = record.ours(*map(to_argument, args))
    assert isinstance(out, Array), f"{record.name} gave {out!r}"
    return out


def results_of_jax(record: Record, samples: Sequence[Args]) -> list[jax.Array]:
    """JAX's result for each sample, computed by one compiled program."""
    return _together([record.oracle] * len(samples), [list(map(to_jax_array, s)) for s in samples])


def agree_with_jax(record: Record, samples: Sequence[Args], wanted: Sequence[jax.Array] | None = None) -> None:
    """Value, shape, dtype and weak type are JAX's at each sample. `wanted` defaults to `results_of_jax`."""
    for args, want in zip(samples, results_of_jax(record, samples) if wanted is None else wanted, strict=True):
        _is_jaxs(record, args, want)


def compiled_results(record: Record, samples: Sequence[Args]) -> list[Array]:
    """Our result for each sample, computed by one compiled program."""
    return fx.jit(lambda given: [record.ours(*args) for args in given])([list(map(to_argument, s)) for s in samples])


def compiled_matches_eager(record: Record, samples: Sequence[Args], compiled: Sequence[Array] | None = None) -> None:
    """The compiled results have the type of the eager ones, and their values up to the operation's tolerance.

    `compiled` defaults to `compiled_results`.
    """
    for args, got in zip(samples, compiled_results(record, samples) if compiled is None else compiled, strict=True):
        want, what = evaluated(record, args), f"compiled {record.name} of {format_arguments(args)}"
        assert got.aval == want.aval, f"{what}: type {got.aval!r}, evaluated {want.aval!r}"
        assert_close(to_numpy(got), to_numpy(want), ulps_of(record.name), what)


def _is_jaxs(record: Record, args: Args, want: jax.Array) -> None:
    out = evaluated(record, args)
    what = f"{record.name} of {format_arguments(args)}"
    assert repr(out.aval) == repr(aval_of(want)), f"{what}: type {out.aval!r}, JAX has {aval_of(want)!r}"
    assert_close(to_numpy(out), np.asarray(want), _ulps_beside_jax(record, args), what)


def _ulps_beside_jax(record: Record, args: Args) -> Ulps:
    return ulps_beside_jax(record.name, numpy_values(args[0]).dtype, ulps_of(record.name))


def program_of(record: Record, args: Args) -> tuple[Callable[..., Array], list[Value]]:
    """The operation as a function of its arrays, which come with it; Python scalars are part of the function."""
    values = [to_tracefx(a) if isinstance(a, np.ndarray | Weak) else None for a in args]

    def program(*arrays: Array) -> Array:
        rest = iter(arrays)
        return record.ours(*[a if v is None else next(rest) for a, v in zip(args, values, strict=True)])

    program.__name__ = record.name
    return program, [v for v in values if v is not None]


def staged_matches_eager(record: Record, args: Args) -> None:
    """Traced, the operation has the type it has evaluated; the recorded program evaluates to the same bits."""
    program, values = program_of(record, args)
    abstract_eval_matches_evaluation(program, *values)
    staging_changes_nothing(program, *values)


def inexact_positions(args: Args) -> list[int]:
    return [i for i, a in enumerate(args) if not isinstance(a, Scalar) and dtypes.is_inexact(numpy_values(a).dtype)]


def jvp_value(f: Callable[..., Value], args: Sequence[Value], tangents: Mapping[int, Value]) -> tuple[Value, Tangent]:
    """The output and its tangent, for tangents of some of the arguments."""
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
    """Arguments, and tangents of some of them."""

    record: Record
    args: Args
    drawn: Mapping[int, NDArray]

    @staticmethod
    def of(record: Record, args: Args, what: str) -> list[TangentCase]:
        """For every choice of operands that have a tangent, one."""
        gen = rng(record.name, what)
        choices = subsets(inexact_positions(args))
        return [TangentCase(record, args, {i: tangent_of(args[i], gen) for i in chosen}) for chosen in choices]

    @property
    def tangents(self) -> dict[int, Value]:
        return {i: _like(t, to_tracefx(self.args[i])) for i, t in self.drawn.items()}

    @property
    def jax_arguments(self) -> tuple[list[jax.Array | Scalar], list[jax.Array | Scalar]]:
        """What moves in JAX, and the tangents."""
        return [to_jax_array(self.args[i]) for i in self.drawn], [
            _jax_like(t, self.args[i]) for i, t in self.drawn.items()
        ]

    def oracle(self, *xs: jax.Array) -> jax.Array:
        """JAX's function of what moves."""
        given = dict(zip(self.drawn, xs, strict=True))
        return self.record.oracle(*[given.get(i, to_jax_array(a)) for i, a in enumerate(self.args)])

    def second(self, xs: Sequence[jax.Array], ts: Sequence[jax.Array]) -> jax.Array:
        """JAX's second derivative along the tangents."""

        def first(*xs: jax.Array) -> jax.Array:
            out: jax.Array = jax.jvp(self.oracle, xs, tuple(ts))[1]
            return out

        second: jax.Array = jax.jvp(first, tuple(xs), tuple(ts))[1]
        return second

    @override
    def __str__(self) -> str:
        return f"{self.record.name} of {format_arguments(self.args)} at {tuple(self.drawn)}"


def _together(functions: Sequence[Callable[..., Any]], arguments: Sequence[Sequence[Any]]) -> list[Any]:
    """What functions of JAX give, compiled as one program: the number of programs is what time goes by."""
    outs: list[Any] = compile_with_fallback(
        jax.jit, lambda given: [f(*xs) for f, xs in zip(functions, given, strict=True)]
    )(arguments)
    return outs


def jvp_matches_jax(record: Record, samples: Sequence[Args]) -> None:
    """Tangents are JAX's in type, and in value up to rounding, for every choice of operands that have one."""
    moves = [move for args in samples for move in TangentCase.of(record, args, "tangents")]
    wanted = _together(
        [functools.partial(jax.jvp, move.oracle) for move in moves], [move.jax_arguments for move in moves]
    )
    for move, (want, want_t) in zip(moves, wanted, strict=True):
        out, t = jvp_value(record.ours, list(map(to_tracefx, move.args)), move.tangents)
        what = f"jvp of {move}"
        assert out.aval == evaluated(record, move.args).aval, what
        assert t.aval == out.aval.tangent(), f"{what}: tangent {t.aval!r} of {out.aval!r}"
        assert t.aval.dtype == np.dtype(want_t.dtype), what
        if dtypes.is_inexact(t.aval.dtype) and dtypes.itemsize_bits(dtypes.real_dtype(t.aval.dtype)) >= 32:
            assert_close(instantiate_zeros(t), np.asarray(want_t), DERIVATIVE, what)
        assert_close(to_numpy(out), np.asarray(want), _ulps_beside_jax(record, move.args), what)


def _like(t: NDArray, x: Value) -> Value:
    return convert(from_numpy(t, t.dtype), x.aval.dtype, x.aval.weak_type)


def _jax_like(t: NDArray, x: Arg) -> jax.Array | Scalar:
    return to_jax_array(Weak(t)) if isinstance(x, Weak) else to_jax_array(t)


def jvp_matches_finite_differences(record: Record, args: Args) -> None:
    """Tangents are what central differences give, in float64."""
    program, values = program_of(record, args)
    if any(dtypes.is_inexact(v.aval.dtype) for v in values):
        jvp_is_the_derivative(program, *values)


def transpose_matches_jvp(record: Record, args: Args) -> None:
    """`<J v, w> = <v, Jᵀ w>`, and cotangents have the types of what they belong to."""
    program, values = program_of(record, args)
    if any(dtypes.is_inexact(v.aval.dtype) for v in values):
        transpose_is_adjoint(program, *values)


def second_derivatives_match_jax(record: Record, samples: Sequence[Args]) -> None:
    """Second derivatives along one direction are JAX's."""
    got: list[tuple[TangentCase, Tangent]] = []
    for move in [move for args in samples for move in TangentCase.of(record, args, "second")]:

        def first(*xs: Value, tangents: Mapping[int, Value] = move.tangents) -> Value:
            _, t = jvp_value(record.ours, xs, tangents)
            return from_numpy(instantiate_zeros(t), t.aval.dtype) if isinstance(t, Zero) else t

        _, t = jvp_value(first, list(map(to_tracefx, move.args)), move.tangents)
        if t.aval.dtype != dtypes.float0:
            got.append((move, t))
    wanted = _together([move.second for move, _ in got], [move.jax_arguments for move, _ in got])
    for (move, t), want in zip(got, wanted, strict=True):
        assert_close(instantiate_zeros(t), np.asarray(want), SECOND_DERIVATIVE, f"second derivative of {move}")


def batched(f: Callable[..., Value], args: Sequence[Value], axes: Sequence[int | None], size: int) -> NDArray:
    """The outputs for a batch, batch axis in front."""
    with handling(Batch(current(), MappedAxis(size))) as h:
        out = f(*[h.wrap(a, axis) for a, axis in zip(args, axes, strict=True)])
    val, dim = h.unwrap(out)
    host = to_numpy(val)
    return np.broadcast_to(host, (size, *host.shape)) if dim is None else np.moveaxis(host, dim, 0)


def vmap_matches_loop(record: Record, samples: Sequence[Args]) -> None:
    """`vmap` is a Python loop, for every choice of batched operands and of their batch axes.

    `samples` are arguments of the same types, one tuple for each element of the batch.
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
            evaluated(record, tuple([f if axis is None else a for f, a, axis in zip(first, each, axes, strict=True)]))
            for each in samples
        ]
        what = f"vmap of {record.name} over {axes} of {[numpy_values(a).shape for a in first]}"
        assert_close(got, np.stack([to_numpy(w) for w in want]), ulps_of(record.name), what)


def _batched_with_scalars(
    record: Record, args: Sequence[Value | Scalar], axes: Sequence[int | None], size: int
) -> NDArray:
    """Python scalars reach the function as they are, so that it gives them a dtype."""
    arrays = [a for a in args if isinstance(a, Array | Literal)]
    kept = [axis for a, axis in zip(args, axes, strict=True) if isinstance(a, Array | Literal)]

    def f(*xs: Value) -> Value:
        rest = iter(xs)
        return record.ours(*[next(rest) if isinstance(a, Array | Literal) else a for a in args])

    return batched(f, arrays, kept, size)
