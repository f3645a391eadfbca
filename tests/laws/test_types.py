"""Every primitive accepts and refuses the same operands as JAX's function, with the same errors and result types.

The operands are those of its samples with every dtype, and with one defect at a time."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
from tests.comparison import assert_same, aval_of, to_jax
from tests.compiling import compile_with_fallback
from tests.differential.records import JAX, Weak, to_library_array
from tests.laws.examples import sampled
from tests.laws.samples import SAMPLES, Sample, jax_function
from tests.laws.test_operations import has_derivative, is_differentiable, values
from tests.versions import CHECKS_DTYPES_OF_MATRICES, CHECKS_SHAPES_OF_MATRICES, ulps_beside_jax
from tracefx.core import NDArray, ShapedArray, Value, dtypes, from_numpy, to_numpy
from tracefx.core.handler import bind
from tracefx.core.primitive import Primitive
from tracefx.errors import JaxprTypeError
from tracefx.interpreters.stage import stage
from tracefx.ops.annotations.optimization_barrier import OptimizationBarrier
from tracefx.ops.elementwise.elementwise import Add
from tracefx.ops.elementwise.transcendental import Sin
from tracefx.ops.vocabulary import OPERATIONS
from tracefx.passes.check import check_jaxpr
from tracefx.programs import parse_jaxpr
from tracefx.testing.strategies import DTYPES
from tracefx.testing.tolerances import ulps_of

Avals: TypeAlias = list[ShapedArray]
Verdict: TypeAlias = str
"""The result types as text, or the name of an error."""

# ------------------------------------------------------------------ evaluating the primitive, here and in JAX


def evaluate_primitive(sample: Sample, args: Sequence[Value]) -> list[Value]:
    if sample.within is None:
        return list(bind(sample.prim, *args))
    out: Value | list[Value] = sample.within(*args)
    return out if isinstance(out, list) else [out]


def with_first_operand(sample: Sample, args: Sequence[Any]) -> list[Any]:
    """Returns the operands of JAX's function; the first one of some is fixed in the samples."""
    first = {"polygamma": 1, "zeta": 3}.get(sample.prim.name)
    return [*args] if first is None or not args else [jnp.full_like(args[0], first), *args]


def evaluate_in_jax(sample: Sample, args: Sequence[Any]) -> list[jax.Array]:
    out = jax_function(sample.prim)(*args)
    return list(out) if isinstance(out, list | tuple) else [out]


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_match_jax(name: str) -> None:
    for partitionable in (True, False):  # a parameter of tracefx's generators and a setting of JAX
        samples = [s for s in SAMPLES[name] if s.partitionable == partitionable]
        with jax.threefry_partitionable(partitionable):
            check_samples(name, [(sample, values(operands)) for sample in samples for operands in sample.operands])


def check_samples(name: str, calls: Sequence[tuple[Sample, Sequence[Value]]]) -> None:
    """Asserts that the results of a primitive are JAX's, whose calls are one program."""
    hosts = [[Weak(to_numpy(a)) if a.aval.weak_type else np.asarray(to_numpy(a)) for a in args] for _, args in calls]
    jax_args = [
        with_first_operand(sample, [to_library_array(JAX, x) for x in xs])
        for (sample, _), xs in zip(calls, hosts, strict=True)
    ]
    evaluate = compile_with_fallback(
        jax.jit, lambda lists: [evaluate_in_jax(sample, xs) for (sample, _), xs in zip(calls, lists, strict=True)]
    )
    for (sample, args), wanted in zip(calls, evaluate(jax_args) if calls else [], strict=True):
        for got, want in zip(evaluate_primitive(sample, args), wanted, strict=True):
            ulps = ulps_beside_jax(name, args[0].aval.dtype, ulps_of(name)) if args else ulps_of(name)
            assert_same(got, want, ulps, f"{sample.prim} of {args}")


# ------------------------------------------------------------------ valid and invalid operands

ODD_ONES: Final = (dtypes.bool_, dtypes.int32, dtypes.uint8, dtypes.float16, dtypes.float32, dtypes.complex64)


def shapes_like(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    yield (2, *shape)
    yield (*shape, 1)
    for i, n in enumerate(shape):
        yield (*shape[:i], *shape[i + 1 :])
        yield (*shape[:i], n + 1, *shape[i + 1 :])
        yield (*shape[:i], 0, *shape[i + 1 :])
    if len(shape) > 1:
        yield ()


def variants(avals: Avals) -> Iterator[Avals]:
    """Every dtype; one operand of another dtype or shape; one operand too few and one too many."""
    for dtype in DTYPES:
        yield [a.update(dtype=dtype) for a in avals]
    for i, aval in enumerate(avals):
        for dtype in ODD_ONES:
            yield [*avals[:i], aval.update(dtype=dtype), *avals[i + 1 :]]
        for shape in shapes_like(aval.shape):
            yield [*avals[:i], aval.update(shape=shape), *avals[i + 1 :]]
    if avals:
        yield avals[:-1]
    yield [*avals, avals[-1] if avals else ShapedArray((2,), dtypes.float32)]


def error_name(error: Exception, expected: Verdict) -> Verdict:
    """The name of the error's built-in base class, preferring `expected` if the error is an instance of it."""
    kinds = [kind.__name__ for kind in (TypeError, ValueError) if isinstance(error, kind)]
    return expected if expected in kinds else next(iter(kinds), type(error).__name__)


def ones(aval: ShapedArray) -> NDArray:
    if dtypes.is_key(aval.dtype):
        return np.ones((*aval.shape, dtypes.key_data_size(aval.dtype)), np.uint32).view(aval.dtype)[..., 0]
    return np.ones(aval.shape).astype(aval.dtype)


def eager_verdict(sample: Sample, avals: Avals, expected: Verdict) -> Verdict:
    args = [from_numpy(ones(a), a.dtype) for a in avals]
    try:
        return str([o.aval for o in evaluate_primitive(sample, args)])
    except Exception as error:
        return error_name(error, expected)


def staged_verdict(sample: Sample, avals: Avals, expected: Verdict) -> Verdict:
    try:
        return str(list(stage(lambda *xs: evaluate_primitive(sample, xs), avals)[0].out_avals))
    except Exception as error:
        return error_name(error, expected)


def jax_verdict(sample: Sample, avals: Avals) -> Verdict:
    args = [to_jax(ones(a)) for a in avals]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # JAX warns about discarded imaginary parts
            outs = jax.eval_shape(lambda *xs: evaluate_in_jax(sample, with_first_operand(sample, xs)), *args)
    except (TypeError, ValueError) as error:
        return type(error).__name__
    except Exception:  # an internal error of JAX
        return REFUSED
    return str([aval_of(o) for o in outs])


ERRORS: Final = frozenset({"TypeError", "ValueError"})
ACCEPTED: Final = "accepted"
REFUSED: Final = "refused"
UNCHECKED_MATRICES: Final[Mapping[str, tuple[Verdict, Verdict]]] = dict.fromkeys(
    (
        *("cholesky", "lu", "geqrf", "householder_product", "qr", "eigh", "eig", "schur", "hessenberg"),
        *("tridiagonal", "tridiagonal_solve", "svd"),
    ),
    ("TypeError", ACCEPTED),
)
"""Where JAX only finds out when compiling that LAPACK has no kernel for a dtype."""

CHECKED_MATRICES: Final[Mapping[str, tuple[Verdict, Verdict]]] = {
    # tracefx computes narrow floats in 32 bits.
    "cholesky_update": (ACCEPTED, "TypeError"),
    "symmetric_product": (ACCEPTED, "TypeError"),
    # JAX checks the shapes first.
    **(dict.fromkeys(("cholesky", "eigh"), ("TypeError", "ValueError")) if CHECKS_SHAPES_OF_MATRICES else {}),
}
"""Where JAX checks the dtypes or shapes of matrices when it traces."""

DIFFERENCES: Final[Mapping[str, tuple[Verdict, Verdict]]] = MappingProxyType(
    {
        # JAX reports the error when it compiles.
        "reshape": ("TypeError", ACCEPTED),
        "cumlogsumexp": ("TypeError", ACCEPTED),
        "select_and_gather_add": ("TypeError", ACCEPTED),
        "select_and_scatter_add": ("TypeError", ACCEPTED),
        "fft": ("ValueError", ACCEPTED),
        # JAX also reports only when compiling that LAPACK lacks 8- and 16-bit dtypes and that batch sizes differ.
        "geqp3": ("TypeError", ACCEPTED),
        "ormqr": ("TypeError", ACCEPTED),
        **(CHECKED_MATRICES if CHECKS_DTYPES_OF_MATRICES else UNCHECKED_MATRICES),
        # JAX orders complex numbers here, although it refuses to compare them.
        "argmax": ("TypeError", ACCEPTED),
        "argmin": ("TypeError", ACCEPTED),
        "clamp": ("TypeError", ACCEPTED),
        # JAX returns operands that already have the requested number of axes, and sums booleans.
        "broadcast_in_dim": ("TypeError", ACCEPTED),
        "psum": ("TypeError", ACCEPTED),
        # JAX refuses 4-bit integers.
        "abs": (ACCEPTED, "TypeError"),
        "reduce_and": (ACCEPTED, "TypeError"),
        "reduce_or": (ACCEPTED, "TypeError"),
        "reduce_xor": (ACCEPTED, "TypeError"),
        # JAX's function refuses blocks of unequal sizes, which the primitive exchanges.
        "all_to_all": (ACCEPTED, "ValueError"),
        # JAX's function checks the number of arguments in another way; so does ours.
        "dot_general": ("TypeError", "ValueError"),
        "dynamic_slice": ("TypeError", "ValueError"),
        "dynamic_update_slice": ("TypeError", "ValueError"),
        # In JAX, the wrappers of these primitives check the operands.
        "threefry2x32": ("TypeError", ACCEPTED),
        "rng_bit_generator": ("TypeError", ACCEPTED),
        "random_seed": ("TypeError", ACCEPTED),
        "random_fold_in": ("TypeError", ACCEPTED),
        "random_bits": ("TypeError", ACCEPTED),
        "random_clone": ("TypeError", ACCEPTED),
        # JAX's compiler shards unevenly if asked to.
        "sharding_constraint": ("ValueError", ACCEPTED),
        # JAX reports a ValueError about sizes.
        "bitcast_convert_type": ("TypeError", "ValueError"),
    }
)
"""Primitives whose verdict differs from that of JAX's function: (ours, JAX's)."""


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_primitive_accepts_and_refuses_the_operands_that_jax_does(operation: type[Primitive]) -> None:
    differences: set[tuple[Verdict, Verdict]] = set()
    refused = 0
    for sample in SAMPLES[operation.name]:
        of_sample = list(variants([a.aval.strong() for a in values(sample.operands[0])]))
        evaluated = set(sampled(range(len(of_sample)), 3))
        for i, avals in enumerate(of_sample):
            want = jax_verdict(sample, avals)
            got = staged_verdict(sample, avals, want)
            case = f"{sample.prim} of {avals}"
            assert got in ERRORS or got.startswith("["), case
            assert i not in evaluated or eager_verdict(sample, avals, want) == got, case
            refused += got in ERRORS
            if got != want and not (got in ERRORS and want == REFUSED):
                difference = tuple([ACCEPTED if v.startswith("[") else v for v in (got, want)])
                assert difference == DIFFERENCES.get(sample.prim.name), f"{case}: {got}, in JAX {want}"
                differences.add((difference[0], difference[1]))
    assert differences == {d for name, d in DIFFERENCES.items() if name == operation.name}
    assert refused or operation is OptimizationBarrier  # it accepts any operands


WITHOUT_COMPLEX_DERIVATIVES: Final = ("reduce_window_max", "reduce_window_min")


@pytest.mark.parametrize("name", [name for name, (each, *_) in SAMPLES.items() if has_derivative(each)])
def test_tangents_have_the_tangent_types_of_the_results(name: str) -> None:
    """In every inexact dtype that the primitive accepts."""
    for sample in filter(is_differentiable, SAMPLES[name]):
        for dtype in filter(dtypes.is_inexact, DTYPES):
            avals = [
                a.aval.update(dtype=dtype) if dtypes.is_inexact(a.aval.dtype) else a.aval
                for a in values(sample.operands[0])
            ]
            refused = name in WITHOUT_COMPLEX_DERIVATIVES and dtypes.is_complex(dtype)
            if refused or staged_verdict(sample, avals, "TypeError") in ERRORS:
                continue

            def pushed(*xs: Value, sample: Sample = sample) -> list[Value]:
                floats = [i for i, x in enumerate(xs) if dtypes.is_inexact(x.aval.dtype)]

                def f(*inputs: Value) -> list[Value]:
                    replaced = dict(zip(floats, inputs, strict=True))
                    return evaluate_primitive(sample, [replaced.get(i, x) for i, x in enumerate(xs)])

                inputs = [xs[i] for i in floats]
                outs, tangents = fx.jvp(f, inputs, inputs)
                for out, t in zip(outs, tangents, strict=True):
                    assert not dtypes.is_inexact(out.aval.dtype) or t.aval == out.aval, sample.prim
                return outs

            stage(pushed, avals)


def test_extra_operands_are_refused_and_not_written_to() -> None:
    """NumPy's ufuncs take an array to write into as an additional argument."""
    x, y = [from_numpy(np.full(2, n, np.float32)) for n in (1, 2)]
    with pytest.raises(TypeError, match="sin takes 1 operand, got 2"):
        bind(Sin(), x, y)
    with pytest.raises(TypeError, match="add takes 2 operands, got 3"):
        bind(Add(), x, x, y)
    assert to_numpy(y).tolist() == [2.0, 2.0]


def test_check_jaxpr_refuses_an_equation_with_a_missing_operand() -> None:
    jaxpr = parse_jaxpr("{ lambda ; a:f32[2]. let b:f32[2] = add a in (b,) }")
    with pytest.raises(JaxprTypeError, match="add takes 2 operands, got 1"):
        check_jaxpr(jaxpr)
