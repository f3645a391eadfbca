"""Every operation is exported: as JAX's primitive of the same name and parameters, or as a table here says."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.closeness import assert_near
from tests.laws.references import jax_function
from tests.laws.samples import SAMPLES
from tests.laws.samples.making import Sample
from tracefx import lax
from tracefx.control.vocabulary import VOCABULARY
from tracefx.extend import bind, bind1
from tracefx.interop.jax import as_jax, as_tracefx, from_jax, to_jax
from tracefx.ops.collectives.pvary import PVary
from tracefx.ops.elementwise.special import Erf
from tracefx.testing.tolerances import DERIVATIVE

jax.config.update("jax_explicit_x64_dtypes", "allow")

MORE: Final = "JAX's function does more than its primitive"
EACH: Final = "JAX's function takes one key at a time"
HANDED_OVER: Final = "JAX lets nobody get at the primitive"
COLLECTIVES: Final = frozenset(
    {"all_gather", "all_to_all", "axis_index", "pmax", "pmin", "ppermute", "psum", "reduce_scatter"}
)
OTHERWISE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cholesky": MORE,
        "dynamic_slice": MORE,
        "dynamic_update_slice": MORE,
        "cholesky_update": "it has derivatives here",
        "symmetric_product": "it has derivatives here",
        "reshape": "JAX's function leaves out what changes nothing",
        "scatter-mul": "it has derivatives here for repeated places",
        "geqrf": HANDED_OVER,
        "geqp3": HANDED_OVER,
        "random_bits": EACH,
        "random_fold_in": EACH,
        "random_split": EACH,
        "rng_bit_generator": EACH,
        "eig": "JAX's function doesn't hand on whether derivatives are wanted",
        "polygamma": "JAX's function has parameters that are operands here",
        "zeta": "JAX's function has parameters that are operands here",
    }
)
"""Operations whose program in JAX is not the one of JAX's function."""


def theirs(x: Any) -> Any:
    """An operand as JAX gets it."""
    if isinstance(x, np.ndarray | np.generic):
        return as_jax(fnp.asarray(x, dtype=x.dtype))
    return as_jax(x) if isinstance(x, fx.Array) else x


def ours(x: Any) -> Any:
    return as_tracefx(x) if isinstance(x, jax.Array) else x


def one(sample: Sample) -> Callable[..., Any]:
    def f(*xs: Any) -> Any:
        return bind(sample.prim, *xs)

    return f if sample.within is None or sample.prim.name in COLLECTIVES else sample.within


def reference_of(sample: Sample) -> Callable[..., Any]:
    def f(*xs: Any) -> Any:
        return jax_function(sample.prim)(*xs)

    return f


def same_numbers(got: Any, want: Any) -> None:
    """The same structure, types and bits."""
    got, want = jax.tree.leaves(got), fx.tree.leaves(want)
    assert len(got) == len(want)
    for x, y in zip(got, want, strict=True):
        back = as_tracefx(x)
        assert (back.shape, back.dtype) == (y.shape, y.dtype)
        if back.dtype.names is not None:
            back, y = fx.random.key_data(back), fx.random.key_data(y)
        np.testing.assert_array_equal(back, y)


def exported(sample: Sample, operands: Sequence[Any]) -> jax.extend.core.ClosedJaxpr:
    if sample.prim.name not in COLLECTIVES:
        return jax.make_jaxpr(to_jax(one(sample)))(*operands)
    along = jax.vmap(to_jax(one(sample)), axis_name="i", axis_size=2)
    return jax.make_jaxpr(lambda *xs: along(*xs))(*operands)


@pytest.mark.parametrize("name", sorted(SAMPLES.keys() - OTHERWISE.keys()))
def test_the_program_is_that_of_jaxs_function(name: str) -> None:
    for sample in SAMPLES[name]:
        for given in sample.operands:
            operands = list(map(theirs, given))
            want = jax.make_jaxpr(reference_of(sample))(*operands)
            assert str(exported(sample, operands)) == str(want)


@pytest.mark.parametrize("name", sorted(OTHERWISE))
def test_other_operations_compute_the_same(name: str) -> None:
    for sample in SAMPLES[name]:
        operands = list(map(theirs, sample.operands[0]))
        got = jax.jit(to_jax(one(sample)))(*operands)
        want = fx.jit(one(sample))(*map(ours, operands))
        same_numbers(got, want)


# `from_jax` leaves out a reshape that changes nothing, and where arrays lie.
@pytest.mark.parametrize("name", sorted(SAMPLES.keys() - {"cholesky", "reshape", "sharding_constraint"}))
def test_what_comes_back_is_the_same_program(name: str) -> None:
    for sample in SAMPLES[name]:
        f = one(sample) if sample.within is None else sample.within
        for given in sample.operands:
            operands = [ours(theirs(fnp.asarray(x) if isinstance(x, int | float) else x)) for x in given]
            with fx.enable_x64(any(getattr(x, "dtype", None) == np.int64 for x in operands)):
                assert fx.make_jaxpr(from_jax(to_jax(f)))(*operands) == fx.make_jaxpr(f)(*operands)


# Not among them are `add_any`, which is `add` here, and sums of arrays with axes of size 1, which are broadcast first.
OF_JAX: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
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


@pytest.mark.parametrize("name", sorted(OF_JAX))
def test_functions_of_jax_come_back_as_they_were(name: str) -> None:
    f, x = OF_JAX[name], np.array([[0.5, 1.5], [2.0, -1.0]], np.float32)
    assert str(jax.make_jaxpr(to_jax(from_jax(f)))(x)) == str(jax.make_jaxpr(f)(x))


# ------------------------------------------------------------------ operations without samples

X: Final = np.array([0.5, 1.5, 2.5], np.float32)
Y: Final = np.array([0.25, 0.75, 0.5], np.float32)


def _double(x: fx.Array, *, by: float) -> fx.Array:
    return x * by


# For lambdas, which have no types.
free: Any = lax
checkpoint: Any = fx.checkpoint
grad: Any = fx.grad


@fx.shard_map(mesh=fx.make_mesh((3,), ("d",)), in_specs=fx.P("d"), out_specs=fx.P("d"))
def _apart(x: fx.Array) -> fx.Array:
    return x / free.psum(x.sum(), "d")  # type: ignore[no-any-return]  # see there


PROGRAMS: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {
        "bessel_i0e": lax.bessel_i0e,
        "bessel_i1e": lax.bessel_i1e,
        "beta_density": grad(lambda x: free.betainc(X, X, x).sum()),
        "checkpoint": checkpoint(lambda x: fnp.sin(fnp.sin(x))),
        "composite": lambda x: free.composite(_double, "my.double")(x, by=2.0),
        "cond": lambda x: free.cond(x[0] > 0, fnp.sin, fnp.cos, x),
        "custom_linear_solve": lambda x: free.custom_linear_solve(
            lambda y: 2 * y, x, lambda _, b: b / 2, lambda _, b: b / 2
        ),
        "dce_sink": lambda x: (free.dce_sink(x), fnp.sin(x))[1],
        "gamma_density": grad(lambda x: free.igamma(Y, x).sum()),
        "igamma": lambda x: free.igamma(Y, x),
        "igamma_grad_a": lambda x: free.igamma_grad_a(Y, x),
        "igammac": lambda x: free.igammac(Y, x),
        "jit": fx.jit(fnp.sin),
        "name": lambda x: fx.checkpoint_name(x, "it"),
        "pvary": lambda x: bind1(PVary(("i",)), x),
        "plantable": lambda x: fx.handlers.sow(x, tag="seen", name="x"),
        "platform_index": lambda x: free.platform_dependent(x, cpu=fnp.sin, default=fnp.cos),
        "random_gamma_grad": lambda x: free.random_gamma_grad(Y, x),
        "reduce": lambda x: free.reduce(x, np.float32(1), lambda a, b: a * b + 0, (0,)),
        "reduce_window": lambda x: free.reduce_window(x, np.float32(1), lambda a, b: a * b + 0, (2,), (1,), "VALID"),
        "regularized_incomplete_beta": lambda x: free.betainc(Y, X, x / 3),
        "scan": lambda x: free.scan(lambda c, a: (c * a, c + a), fnp.float32(1), x),
        "shard_map": _apart,
        "sow": lambda x: fx.handlers.sow(x, tag="seen", name="x"),
        "while": lambda x: free.while_loop(lambda c: fnp.sum(c) < 50, lambda c: 2 * c, x),
    }
)
"""Programs in which an operation is."""


def test_every_operation_is_walked() -> None:
    assert SAMPLES.keys() | PROGRAMS.keys() == VOCABULARY.keys()


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_programs_are_exported(name: str) -> None:
    f = PROGRAMS[name]
    program = fx.make_jaxpr(f)(as_tracefx(jnp.asarray(X)))
    assert f" {name}" in str(program)
    got, want = jax.jit(to_jax(f))(X), fx.jit(f)(X)
    for x, y in zip(jax.tree.leaves(got), fx.tree.leaves(want), strict=True):
        assert_near(x, y)


# What handlers of tracefx look for is gone, the platform is asked for in JAX's way, a start is an array there; programs
# for each of several devices go one way only.
@pytest.mark.parametrize(
    "name", sorted(PROGRAMS.keys() - {"plantable", "platform_index", "pvary", "reduce", "shard_map", "sow"})
)
def test_programs_come_back(name: str) -> None:
    f = PROGRAMS[name]
    assert fx.make_jaxpr(from_jax(to_jax(f)))(X) == fx.make_jaxpr(f)(X)


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - {"beta_density", "gamma_density", "igamma_grad_a", "while"}))
def test_programs_have_their_derivatives(name: str) -> None:
    f = PROGRAMS[name]

    def total(x: Any) -> Any:
        return sum([fnp.sum(leaf) for leaf in fx.tree.leaves(f(x))])

    # JAX's special functions are not ours, to the last digits.
    near = functools.partial(assert_near, want=fx.jit(fx.grad(total))(X), tolerance=DERIVATIVE, what=name)
    near(jax.grad(to_jax(total))(X))
    if name != "dce_sink":  # which JAX can't batch
        near(jax.vmap(jax.grad(to_jax(total)))(np.stack([X, X]))[1])


def test_an_accuracy_is_refused_where_jax_has_none() -> None:
    with pytest.raises(NotImplementedError, match="erf takes no accuracy in JAX"):
        jax.make_jaxpr(to_jax(functools.partial(bind1, Erf(lax.AccuracyMode.HIGHEST))))(X)
