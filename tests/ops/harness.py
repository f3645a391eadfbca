"""Properties that every primitive must satisfy, with JAX as the oracle.

A `Record` tells how to call one primitive in both libraries, and how to draw arguments. `property_tests` returns the
tests of all properties of records, each for the dtypes that are listed:

    test_values, test_vmap, test_derivatives = property_tests(cases(RECORDS), derivatives=cases(RECORDS, is_inexact))

A test runs all dtypes of a record, because both libraries then compile one program in place of one for each dtype.

Arguments are NumPy arrays, whose dtype counts as explicit; Python scalars, which are weakly typed; or `Weak` arrays.
Unlike `jax.lax`, tracefx converts a Python number to the dtype of the other operand; where that is not its default
dtype, there is nothing to compare with. All tolerances are defined in `tracefx.testing.tolerances`.
"""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude="jax, ml_dtypes"

from __future__ import annotations

import functools
import itertools
import os
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, final

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attrs import evolve, frozen
from jax._src.lax import lax as jax_lax
from typing_extensions import override

import tracefx as fx
from tests.comparison import assert_same, to_jax
from tests.compiling import compile_with_fallback, with_either_compile_options
from tests.laws.examples import sampled
from tests.processors import WITHOUT_F16C
from tests.versions import ulps_beside_jax
from tracefx import lax
from tracefx.core import dtypes
from tracefx.core.array import Array
from tracefx.core.dtypes import DType, NDArray, Scalar
from tracefx.core.handler import current, handling
from tracefx.core.literal import Literal
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
from tracefx.testing.tolerances import DERIVATIVE, EXACT, SECOND_DERIVATIVE, SUMMED, Ulps

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

    `call(lax, *args)` calls it in the module `lax` of either library. `samples` draws arguments of all kinds, edge
    values included; two calls return arguments of equal types. `points` draws arguments at which the primitive is
    differentiable, away from kinks and poles; None if no operand has a derivative.
    """

    name: str
    call: Callable[..., Any]
    dtypes: tuple[DType, ...]
    samples: Samples
    points: Samples | None = None

    def function(self, *args: Any) -> Array:
        """Calls tracefx's primitive."""
        out: Array = self.call(lax, *args)
        return out

    def oracle(self, *args: Any) -> jax.Array:
        """Calls JAX's primitive."""
        out: jax.Array = self.call(jax.lax, *args)
        return out


def applied(name: str, *parameters: Any) -> Callable[..., Any]:
    """Returns a `call` of the function of this name, with parameters after its operands."""
    return lambda lax, *operands: getattr(lax, name)(*operands, *parameters)


Cases: TypeAlias = Sequence[tuple[Record, DType]]


def cases(records: Iterable[Record], accepts: Callable[[DType], bool] = lambda dtype: True) -> Cases:
    """Returns all records with all of their dtypes that are accepted."""
    return [(record, dtype) for record in records for dtype in record.dtypes if accepts(dtype)]


def rng(*key: object) -> np.random.Generator:
    """Returns a generator seeded by `key`, with the same numbers in every run and process."""
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


INTS: Final = (dtypes.int8, dtypes.int32, dtypes.int64)
UINTS: Final = (dtypes.uint8, dtypes.uint32, dtypes.uint64)
NARROW_INTS: Final = (dtypes.int4, dtypes.uint4)
FLOATS: Final = (dtypes.bfloat16, dtypes.float16, dtypes.float32, dtypes.float64)
COMPLEXES: Final = (dtypes.complex64, dtypes.complex128)
SHAPES: Final = ((), (2, 3), (0,))
ALL: Final = (
    dtypes.bool_,
    dtypes.int32,
    dtypes.int4,
    dtypes.bfloat16,
    dtypes.float32,
    dtypes.float64,
    dtypes.complex64,
)
NUMBERS: Final = ALL[1:]
PRECISE: Final = (dtypes.float64, dtypes.complex128)


def small_integers(
    shape: tuple[int, ...], dtype: DType, gen: np.random.Generator
) -> np.ndarray[tuple[int, ...], DType]:
    """Draws small integers of any dtype, whose sums and products are exact in any order."""
    if dtypes.is_bool(dtype):
        return np.asarray(gen.integers(0, 2, shape)).astype(np.bool_)
    low = -3 if dtypes.is_signed(dtype) or dtypes.is_inexact(dtype) else 0
    integers = np.asarray(gen.integers(low, 4, shape))
    if dtypes.is_complex(dtype):
        return np.asarray(integers + 1j * gen.integers(low, 4, shape)).astype(dtype)
    return integers.astype(dtype)


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
    if dtype == dtypes.float32:
        real = np.append(real, [-2.5, 1e-30, 3e38, 1e5, -1e5])
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
    return to_jax(x) if isinstance(x, np.ndarray) else x


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
        f"{numpy_values(a).dtype} {numpy_values(a).tolist()}"
        if numpy_values(a).size <= 6
        else f"{numpy_values(a).dtype}{list(numpy_values(a).shape)}"
        for a in args
    )


# ------------------------------------------------------------------ tolerances


def ulps_of(name: str) -> Ulps:
    """Returns the tolerance of a primitive, for each element at its own scale.

    Sums are exact, because samples of sums are integers.
    """
    ulps = tolerances.ulps_of(name)
    return EXACT if ulps is SUMMED else evolve(ulps, relative_to_max=False)


FIRST: Final = evolve(DERIVATIVE, relative_to_max=False)
SECOND: Final = evolve(SECOND_DERIVATIVE, relative_to_max=False)
"""The tolerances of derivatives, for each element at its own scale."""


# ------------------------------------------------------------------ properties


def evaluated(record: Record, args: Args) -> Array:
    out = record.function(*map(to_argument, args))
    assert isinstance(out, Array), f"{record.name} gave {out!r}"
    return out


def agree_with_jax(record: Record, samples: Sequence[Args]) -> None:
    """Asserts that value, shape, dtype and weak type match JAX for each sample. JAX compiles one program."""
    wanted = _run_compiled_together([record.oracle] * len(samples), [list(map(to_jax_array, s)) for s in samples])
    for args, want in zip(samples, wanted, strict=True):
        label = f"{record.name} of {format_arguments(args)}"
        assert_same(evaluated(record, args), want, _ulps_against_jax(record, args), label)


def compiled_matches_eager(record: Record, samples: Sequence[Args]) -> None:
    """Asserts that compiled results, of one program, have the types of the eager ones, and their values up to the
    primitive's tolerance.
    """
    compiled = fx.jit(lambda argument_lists: [record.function(*args) for args in argument_lists])(
        [list(map(to_argument, s)) for s in samples]
    )
    for args, got in zip(samples, compiled, strict=True):
        label = f"compiled {record.name} of {format_arguments(args)}"
        assert_same(got, evaluated(record, args), ulps_of(record.name), label)


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


def derivatives_match_jax(record: Record, samples: Sequence[Args], twice: Sequence[Args] = ()) -> None:
    """Asserts that tangents match JAX in type and, up to rounding, in value, for every choice of differentiated
    operands; second derivatives along one direction too, for the samples in `twice`. JAX compiles one program.
    """
    firsts = [case for args in samples for case in TangentCase.of(record, args, "tangents")]
    seconds = [
        (case, t)
        for args in twice
        for case in TangentCase.of(record, args, "second")
        if (t := _second_derivative(case)).aval.dtype != dtypes.float0
    ]
    wanted = _run_compiled_together(
        [*[functools.partial(jax.jvp, case.oracle) for case in firsts], *[case.second for case, _ in seconds]],
        [case.jax_arguments for case in (*firsts, *[case for case, _ in seconds])],
    )
    for case, (want, want_t) in zip(firsts, wanted[: len(firsts)], strict=True):
        out, t = jvp_value(record.function, list(map(to_tracefx, case.args)), case.tangents)
        label = f"jvp of {case}"
        assert out.aval == evaluated(record, case.args).aval, label
        assert t.aval == out.aval.tangent(), f"{label}: tangent {t.aval!r} of {out.aval!r}"
        assert t.aval.dtype == np.dtype(want_t.dtype), label
        if dtypes.is_inexact(t.aval.dtype) and dtypes.itemsize_bits(dtypes.real_dtype(t.aval.dtype)) >= 32:
            assert_same(instantiate_zeros(t), np.asarray(want_t), FIRST, label)
        assert_same(to_numpy(out), np.asarray(want), _ulps_against_jax(record, case.args), label)
    for (case, t), want in zip(seconds, wanted[len(firsts) :], strict=True):
        assert_same(instantiate_zeros(t), np.asarray(want), SECOND, f"second derivative of {case}")


def _second_derivative(case: TangentCase) -> Tangent:
    def first(*xs: Value) -> Value:
        _, t = jvp_value(case.record.function, xs, case.tangents)
        return from_numpy(instantiate_zeros(t), t.aval.dtype) if isinstance(t, Zero) else t

    return jvp_value(first, list(map(to_tracefx, case.args)), case.tangents)[1]


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
        assert_same(got, np.stack([to_numpy(w) for w in want]), ulps_of(record.name), label)


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


# ------------------------------------------------------------------ tests

Test: TypeAlias = Callable[..., None]


def property_tests(
    values: Cases,
    batches: Cases | None = None,
    derivatives: Cases = (),
    *,
    compiled: Callable[[DType, list[Args]], list[Args]] = lambda dtype, samples: samples[:1],
    not_differentiated_by_jax: Cases = (),
) -> tuple[Test, Test, Test]:
    """Returns the tests of values, batches and derivatives.

    Args:
        values: the records and dtypes whose eager, traced and compiled calls are compared.
        batches: those that are batched; None means those in `values`.
        derivatives: those whose derivatives are compared, if they have any.
        compiled: returns the samples of a dtype that are compiled.
        not_differentiated_by_jax: those whose derivatives are not compared with JAX.
    """

    @_each_record(values)
    def test_values(record: Record, dtypes_: Sequence[DType]) -> None:
        drawn = {dtype: record.samples(dtype, rng(record.name, dtype)) for dtype in _sampled_dtypes(dtypes_)}
        samples = [args for each in drawn.values() for args in each]
        with_either_compile_options(lambda: agree_with_jax(record, samples))
        for args in samples:
            staged_matches_eager(record, args)
        staged = [args for dtype, each in drawn.items() for args in compiled(dtype, each)]
        with_either_compile_options(lambda: compiled_matches_eager(record, staged))

    @_each_record(values if batches is None else batches)
    def test_vmap(record: Record, dtypes_: Sequence[DType]) -> None:
        for dtype in sampled(dtypes_, 3):  # batching rules hardly depend on the dtype
            batch = [record.samples(dtype, rng(record.name, dtype, i)) for i in range(3)]
            for elements in zip(*batch, strict=True):
                vmap_matches_loop(record, elements)

    @_each_record([(record, dtype) for record, dtype in derivatives if record.points and dtypes.is_inexact(dtype)])
    def test_derivatives(record: Record, dtypes_: Sequence[DType]) -> None:
        assert record.points is not None
        drawn = {dtype: record.points(dtype, rng(record.name, dtype, "points")) for dtype in dtypes_}
        precise = [args for dtype, each in drawn.items() if dtype in PRECISE for args in each]
        by_jax = [dtype for dtype in dtypes_ if (record, dtype) not in not_differentiated_by_jax]
        derivatives_match_jax(
            record,
            [args for dtype in by_jax for args in drawn[dtype]],
            [args for dtype in by_jax if dtype in PRECISE for args in drawn[dtype]],
        )
        for args in [args for each in drawn.values() for args in each]:
            transpose_matches_jvp(record, args)
        for args in precise:
            if all(numpy_values(a).size for a in args):
                jvp_matches_finite_differences(record, args)

    return test_values, test_vmap, test_derivatives


def _sampled_dtypes(each: Sequence[DType]) -> list[DType]:
    """Returns all dtypes under the profile `long`, otherwise float32 and every other one, counted from the last.

    The last one is complex if any is.
    """
    chosen = sampled(reversed(each), 2)
    return [dtype for dtype in each if dtype in chosen or dtype == dtypes.float32]


def _each_record(each_case: Cases) -> pytest.MarkDecorator:
    """Parametrizes a test by the records, with their dtypes.

    float16 has a case of its own where XLA cannot convert it (`tests.processors`), so that only this case is skipped.
    """
    has_float16 = WITHOUT_F16C not in os.environ.get("XLA_FLAGS", "")
    dtypes_of: dict[tuple[Record, str], list[DType]] = {}
    for record, dtype in each_case:
        suffix = "" if has_float16 or dtype != dtypes.float16 else " float16"
        dtypes_of.setdefault((record, suffix), []).append(dtype)
    parameters = [(record, each) for (record, _), each in dtypes_of.items()]
    names = [f"{record.name}{suffix}" for record, suffix in dtypes_of]
    return pytest.mark.parametrize(("record", "dtypes_"), parameters, ids=names)


def check_raises(error: type[Exception], words: str, call: Callable[[], object]) -> None:
    """Asserts that the call raises exactly this error class with a message containing these words in order."""
    with pytest.raises(error) as error_info:
        call()
    rest = str(error_info.value)
    for word in words.split():
        assert word in rest, f"{word!r} should be in {rest!r}"
        rest = rest.partition(word)[2]


def error_tests(*calls: tuple[type[Exception], str, Callable[[], object]]) -> Test:
    """Returns a test that each call raises an error of this class, with a message containing these words."""

    @pytest.mark.parametrize(("error", "words", "call"), calls)
    def test_invalid_arguments_raise(error: type[Exception], words: str, call: Callable[[], object]) -> None:
        check_raises(error, words, call)

    return test_invalid_arguments_raise


def printing_tests(**programs: tuple[Callable[..., Any], Sequence[Any]]) -> Test:
    """Returns a test that programs print as in JAX: `program(lax, *args)`, with its arguments."""

    @pytest.mark.parametrize("name", programs)
    def test_programs_print_as_in_jax(name: str) -> None:
        program, args = programs[name]
        got = fx.make_jaxpr(functools.partial(program, lax))(*args)
        assert got.jaxpr.text(style="jax") == str(jax.make_jaxpr(functools.partial(program, jax.lax))(*args))

    return test_programs_print_as_in_jax
