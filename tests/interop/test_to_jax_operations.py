"""`to_jax` of every primitive: as the JAX primitive of the same name and parameters, or as the tables here say."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near, assert_same
from tests.laws.examples import sampled
from tests.laws.samples import SAMPLES, jax_function
from tests.laws.samples.making import Sample
from tracefx import lax
from tracefx.control.vocabulary import VOCABULARY
from tracefx.extend import bind, bind1
from tracefx.interop.jax import as_jax, as_tracefx, from_jax, to_jax
from tracefx.interop.jax.exporting import RULES
from tracefx.interop.jax.exporting_programs import JAX_PRIMITIVES
from tracefx.ops.collectives.pvary import PVary
from tracefx.ops.elementwise.special import Erf
from tracefx.testing.tolerances import DERIVATIVE

jax.config.update("jax_explicit_x64_dtypes", "allow")

EXTRA_EQUATIONS: Final = "JAX's function does more than its primitive"
ONE_KEY: Final = "JAX's function takes one key at a time"
NOT_ACCESSIBLE: Final = "JAX does not expose the primitive"
COLLECTIVES: Final = frozenset(
    {"all_gather", "all_to_all", "axis_index", "pmax", "pmin", "ppermute", "psum", "reduce_scatter"}
)
OTHER_JAXPRS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cholesky": EXTRA_EQUATIONS,
        "dynamic_slice": EXTRA_EQUATIONS,
        "dynamic_update_slice": EXTRA_EQUATIONS,
        "cholesky_update": "tracefx has derivatives",
        "symmetric_product": "tracefx has derivatives",
        "reshape": "JAX's function drops reshapes without effect",
        "scatter-mul": "tracefx has derivatives for repeated indices",
        "geqrf": NOT_ACCESSIBLE,
        "geqp3": NOT_ACCESSIBLE,
        "random_bits": ONE_KEY,
        "random_fold_in": ONE_KEY,
        "random_split": ONE_KEY,
        "rng_bit_generator": ONE_KEY,
        "eig": "JAX's function does not pass on whether derivatives are needed",
        "polygamma": "JAX's function has parameters that are operands in tracefx",
        "zeta": "JAX's function has parameters that are operands in tracefx",
    }
)
"""Primitives whose exported jaxpr differs from that of the JAX function, with the reasons."""


def to_jax_operand(x: Any) -> Any:
    """Converts an operand for JAX."""
    if isinstance(x, np.ndarray | np.generic):
        return as_jax(fnp.asarray(x, dtype=x.dtype))
    return as_jax(x) if isinstance(x, fx.Array) else x


def to_fx_operand(x: Any) -> Any:
    return as_tracefx(x) if isinstance(x, jax.Array) else x


def binding_function(sample: Sample) -> Callable[..., Any]:
    def f(*xs: Any) -> Any:
        return bind(sample.prim, *xs)

    return f if sample.within is None or sample.prim.name in COLLECTIVES else sample.within


def jax_function_of(sample: Sample) -> Callable[..., Any]:
    def f(*xs: Any) -> Any:
        return jax_function(sample.prim)(*xs)

    return f


def exported_jaxpr(sample: Sample, operands: Sequence[Any]) -> jax.extend.core.ClosedJaxpr:
    if sample.prim.name not in COLLECTIVES:
        return jax.make_jaxpr(to_jax(binding_function(sample)))(*operands)
    mapped = jax.vmap(to_jax(binding_function(sample)), axis_name="i", axis_size=2)
    return jax.make_jaxpr(lambda *xs: mapped(*xs))(*operands)


UNKNOWN_TO_JAX: Final = {
    name for name, samples in SAMPLES.items() if name not in JAX_PRIMITIVES and type(samples[0].prim) not in RULES
}
"""Primitives that are exported as a primitive of tracefx."""


@pytest.mark.parametrize("name", sorted(SAMPLES.keys() - OTHER_JAXPRS.keys() - UNKNOWN_TO_JAX))
def test_exported_jaxpr_matches_jax_function(name: str) -> None:
    for sample in SAMPLES[name]:
        for sample_operands in sample.operands:
            operands = list(map(to_jax_operand, sample_operands))
            want = jax.make_jaxpr(jax_function_of(sample))(*operands)
            assert str(exported_jaxpr(sample, operands)) == str(want)


@pytest.mark.parametrize("name", sorted({*OTHER_JAXPRS, *UNKNOWN_TO_JAX}))
def test_other_primitives_give_the_same_values(name: str) -> None:
    for sample in SAMPLES[name]:
        operands = list(map(to_jax_operand, sample.operands[0]))
        got = jax.jit(to_jax(binding_function(sample)))(*operands)
        want = fx.jit(binding_function(sample))(*map(to_fx_operand, operands))
        assert_same(got, want)


NOT_IMPORTED_AS_EXPORTED: Final = {
    *("cholesky", "dimension_value", "mesh_cast", "reshape", "reshard", "sharding_constraint")
}


@pytest.mark.parametrize("name", sorted(SAMPLES.keys() - NOT_IMPORTED_AS_EXPORTED))
def test_primitives_roundtrip(name: str) -> None:
    for sample in SAMPLES[name]:
        f = binding_function(sample) if sample.within is None else sample.within
        for sample_operands in sample.operands:
            operands = [
                to_fx_operand(to_jax_operand(fnp.asarray(x) if isinstance(x, int | float) else x))
                for x in sample_operands
            ]
            with fx.enable_x64(any(getattr(x, "dtype", None) == np.int64 for x in operands)):
                assert fx.make_jaxpr(from_jax(to_jax(f)))(*operands) == fx.make_jaxpr(f)(*operands)


# Excluded: `add_any`, which becomes `add`, and sums with axes of size 1, which are broadcast first.
JAX_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {
        "argmax": lambda x: jnp.argmax(x, 1),
        "astype": lambda x: x.astype("bfloat16"),
        "checkpoint": jax.checkpoint(jnp.sin),
        "cond": lambda x: jax.lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
        "convolve": lambda x: jnp.convolve(x[0], x[1]),
        "cumsum": lambda x: jnp.cumsum(x, 0),
        "dynamic_update_slice": lambda x: jax.lax.dynamic_update_slice(x, x[:1], (1, 0)),
        "einsum": lambda x: jnp.einsum("ij,kj->ik", x, x),
        "fft": jnp.fft.fft,
        "fori_loop": lambda x: jax.lax.fori_loop(0, 3, lambda i, c: c * x, x),
        "gelu": jax.nn.gelu,
        "index": lambda x: x[jnp.array([1, 0])],
        "jit": jax.jit(jnp.tanh),
        "matmul": lambda x: x @ x.T,
        "norm": jnp.linalg.norm,
        "scan": lambda x: jax.lax.scan(lambda c, a: (c + a, c * a), x[0], x),
        "set": lambda x: x.at[0].set(1.0),
        "sort": jnp.sort,
        "svd": jnp.linalg.svd,
        "vmap": jax.vmap(jax.nn.gelu),
        "where": lambda x: jnp.where(x > 0, x, 0.0),
        "while_loop": lambda x: jax.lax.while_loop(lambda c: c.sum() < 9.0, lambda c: c * 2, x),
    }
)


@pytest.mark.parametrize("name", sorted(JAX_FUNCTIONS))
def test_jax_functions_roundtrip(name: str) -> None:
    f, x = JAX_FUNCTIONS[name], np.array([[0.5, 1.5], [2.0, -1.0]], np.float32)
    assert str(jax.make_jaxpr(to_jax(from_jax(f)))(x)) == str(jax.make_jaxpr(f)(x))


# ------------------------------------------------------------------ primitives without samples

X: Final = np.array([0.5, 1.5, 2.5], np.float32)
Y: Final = np.array([0.25, 0.75, 0.5], np.float32)


def _double(x: fx.Array, *, by: float) -> fx.Array:
    return x * by


def _factorized(x: fx.Array) -> fx.Array:
    importlib.import_module("jaxlib.cpu._lapack").initialize()  # without which its kernels end the process
    a = fnp.reshape(untyped_lax.slice(x, (0,), (1,)), (1, 1))
    types = [fx.ShapeDtypeStruct(a.shape, a.dtype), fx.ShapeDtypeStruct((), np.int32)]
    factor: fx.Array = fx.ffi.ffi_call("lapack_spotrf_ffi", types)(a, uplo=np.uint8(ord("L")))[0]
    return factor


# Typed as Any for use in lambdas, which have no annotations.
untyped_lax: Any = lax
checkpoint: Any = fx.checkpoint
grad: Any = fx.grad


@fx.shard_map(mesh=fx.make_mesh((3,), ("d",)), in_specs=fx.P("d"), out_specs=fx.P("d"))
def _shard_mapped(x: fx.Array) -> fx.Array:
    return x / untyped_lax.psum(x.sum(), "d")  # type: ignore[no-any-return]  # untyped_lax is Any


_CALL: Final = fx.load(bytes(jax.export.export(jax.jit(jnp.sin))(X).serialize(vjp_order=1))).jaxpr.eqns[0].prim

PROGRAMS: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {
        "bessel_i0e": lax.bessel_i0e,
        "bessel_i1e": lax.bessel_i1e,
        "beta_density": grad(lambda x: untyped_lax.betainc(X, X, x).sum()),
        "call_stablehlo": lambda x: bind1(_CALL, x),
        "checkpoint": checkpoint(lambda x: fnp.sin(fnp.sin(x))),
        "composite": lambda x: untyped_lax.composite(_double, "my.double")(x, by=2.0),
        "cond": lambda x: untyped_lax.cond(x[0] > 0, fnp.sin, fnp.cos, x),
        "custom_linear_solve": lambda x: untyped_lax.custom_linear_solve(
            lambda y: 2 * y, x, lambda _, b: b / 2, lambda _, b: b / 2
        ),
        "dce_sink": lambda x: (untyped_lax.dce_sink(x), fnp.sin(x))[1],
        "ffi_call": _factorized,
        "gamma_density": grad(lambda x: untyped_lax.igamma(Y, x).sum()),
        "igamma": lambda x: untyped_lax.igamma(Y, x),
        "igamma_grad_a": lambda x: untyped_lax.igamma_grad_a(Y, x),
        "igammac": lambda x: untyped_lax.igammac(Y, x),
        "jit": fx.jit(fnp.sin),
        "name": lambda x: fx.checkpoint_name(x, "it"),
        "pvary": lambda x: bind1(PVary(("i",)), x),
        "plantable": lambda x: fx.handlers.sow(x, tag="seen", name="x"),
        "platform_index": lambda x: untyped_lax.platform_dependent(x, cpu=fnp.sin, default=fnp.cos),
        "random_gamma_grad": lambda x: untyped_lax.random_gamma_grad(Y, x),
        "reduce": lambda x: untyped_lax.reduce(x, np.float32(1), lambda a, b: a * b + 0, (0,)),
        "reduce_window": lambda x: untyped_lax.reduce_window(
            x, np.float32(1), lambda a, b: a * b + 0, (2,), (1,), "VALID"
        ),
        "regularized_incomplete_beta": lambda x: untyped_lax.betainc(Y, X, x / 3),
        "scan": lambda x: untyped_lax.scan(lambda c, a: (c * a, c + a), fnp.float32(1), x),
        "shard_map": _shard_mapped,
        "sow": lambda x: fx.handlers.sow(x, tag="seen", name="x"),
        "while": lambda x: untyped_lax.while_loop(lambda c: fnp.sum(c) < 50, lambda c: 2 * c, x),
    }
)
"""Maps the name of a primitive to a function that binds it."""


def test_every_primitive_is_tested() -> None:
    assert SAMPLES.keys() | PROGRAMS.keys() == VOCABULARY.keys()


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_programs_are_exported(name: str) -> None:
    f = PROGRAMS[name]
    program = fx.make_jaxpr(f)(as_tracefx(jnp.asarray(X)))
    assert f" {name}" in str(program)
    got, want = jax.jit(to_jax(f))(X), fx.jit(f)(X)
    for x, y in zip(jax.tree.leaves(got), fx.tree.leaves(want), strict=True):
        assert_near(x, y)


# Excluded, because they are exported as other primitives: tags for handlers of tracefx, the platform index, the initial
# value of a reduction (an array in JAX), and `shard_map`.
@pytest.mark.parametrize(
    "name", sorted(PROGRAMS.keys() - {"plantable", "platform_index", "pvary", "reduce", "shard_map", "sow"})
)
def test_programs_roundtrip(name: str) -> None:
    f = PROGRAMS[name]
    assert fx.make_jaxpr(from_jax(to_jax(f)))(X) == fx.make_jaxpr(f)(X)


# Excluded, because they have no derivative or reverse mode.
@pytest.mark.parametrize(
    "name",
    sampled(sorted(PROGRAMS.keys() - {"beta_density", "ffi_call", "gamma_density", "igamma_grad_a", "while"}), 2),
)
def test_gradients_of_programs(name: str) -> None:
    f = PROGRAMS[name]

    def total(x: Any) -> Any:
        return sum([fnp.sum(leaf) for leaf in fx.tree.leaves(f(x))])

    # JAX's special functions differ from tracefx's in the last digits.
    assert_near_gradient = functools.partial(
        assert_near, want=fx.jit(fx.grad(total))(X), tolerance=DERIVATIVE, what=name
    )
    assert_near_gradient(jax.grad(to_jax(total))(X))
    if name != "dce_sink":  # JAX can't batch it
        assert_near_gradient(jax.vmap(jax.grad(to_jax(total)))(np.stack([X, X]))[1])


def test_unsupported_accuracy_is_rejected() -> None:
    with pytest.raises(NotImplementedError, match="erf takes no accuracy in JAX"):
        jax.make_jaxpr(to_jax(functools.partial(bind1, Erf(lax.AccuracyMode.HIGHEST))))(X)
