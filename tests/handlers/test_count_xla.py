"""`count` beside XLA's own analysis: of the program as it is handed to XLA, and as it is compiled."""

# mypy: untyped-calls-exclude="jax,jaxlib"

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final
from typing import Literal as OneOf

import jax
import numpy as np
import pytest
from attrs import field, frozen
from jaxlib import _jax
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from benchmarks.compiled import EVERYDAY, Case, compiled_by, models
from benchmarks.libraries import OURS
from tests.laws.samples import SAMPLES, Sample
from tracefx import lax
from tracefx.core import dtypes
from tracefx.core.dtypes import NDArray
from tracefx.core.values import ConcreteArray
from tracefx.extend import Handler, Jaxpr, Literal, Primitive, ShapedArray, Value, bind, current, eval_jaxpr, handling
from tracefx.handlers import Cost, count, count_jaxpr
from tracefx.interpreters.stage import stage
from tracefx.ops.elementwise.arithmetic import Mul
from tracefx.ops.elementwise.elementwise import Add
from tracefx.ops.elementwise.selection import SelectN
from tracefx.ops.shape.array_creation import Iota
from tracefx.ops.structural import BroadcastInDim
from tracefx.passes.dce import dce

# XLA's own figures are of the programs that users get.
pytestmark = pytest.mark.usefixtures("optimised")

CASES = {case.name: case for case in (*models(2), *EVERYDAY)}
FLOAT32: Final = 1e-6
"""XLA adds its counts up in float32: the last digits of large ones are lost."""


def analysis(f: Callable[..., Any], *args: Any) -> Mapping[str, float]:
    """What XLA counts in the program of `f` before any of its optimizations."""
    text = fx.jit(f).lower(*args).as_text()
    module = _jax.mlir.mlir_module_to_xla_computation(text).get_hlo_module()
    found: Mapping[str, float] = _jax.hlo_module_cost_analysis(jax.devices()[0].client, module)
    return found


def theirs(found: Mapping[str, float]) -> tuple[float, float]:
    return found.get("flops", 0.0), found.get("transcendentals", 0.0)


def ours(cost: Cost) -> tuple[int, int]:
    """XLA calls operations on integers flops, too."""
    return cost.flops + cost.integer_ops, cost.transcendentals


# ------------------------------------------------------------------ single operations

FUNCTIONS: Final = frozenset(
    {"asin", "acos", "sinh", "cosh", "asinh", "acosh", "atanh", "erfc", "erf_inv", "lgamma", "digamma", "polygamma"}
    | {"zeta"}
)
"""Functions that XLA makes of others, by polynomials and cases; they are transcendental functions nonetheless."""

OTHERWISE: Final = {
    "nextafter": "XLA works on the bits",
    "mulhi": "for CPUs it is made of others, which XLA has where it fuses",
    "sharding_constraint": "XLA says -1 of programs on several devices: that it doesn't know",
    "bitcast_convert_type": "XLA counts a flop for an element that is read as another type",
    "argmax": "XLA's step has nine operations: it looks after NaN and the first of equals",
    "argmin": "as argmax",
    "sort": "XLA halves the whole array, not each line, and takes each comparison for one operation",
    "top_k": "XLA counts nothing",
    "approx_top_k": "as sort, which it is on the CPU",
    "rng_bit_generator": "XLA counts three operations on each word of the state",
    "random_split": "XLA leaves the addition of zeros out",
    "random_fold_in": "as random_split",
    "random_bits": "as random_split",
    "cholesky": "LAPACK computes it, of which XLA counts nothing",
    "triangular_solve": "as cholesky",
    "lu": "as cholesky",
    "lu_pivots_to_permutation": "as cholesky",
    "geqrf": "as cholesky",
    "geqp3": "as cholesky",
    "householder_product": "as cholesky",
    "ormqr": "as cholesky",
    "qr": "as cholesky",
    "eigh": "as cholesky",
    "eig": "as cholesky",
    "schur": "as cholesky",
    "hessenberg": "as cholesky",
    "tridiagonal": "as cholesky",
    "tridiagonal_solve": "as cholesky",
    "svd": "as cholesky",
    "cholesky_update": "XLA leaves the multiplication of the last row out",
    "fft": "XLA takes the whole part of a logarithm, and the product of those of several lengths",
    "cumsum": "XLA is given windows as long as the axis; it makes a tree of them later",
    "cumprod": "as cumsum",
    "cummax": "as cumsum",
    "cummin": "as cumsum",
    "cumlogsumexp": "as cumsum",
    "ragged_dot_general": "its groups end where the sum of sizes so far says: as cumsum",
}


def subjects(samples: Sequence[Sample]) -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Functions and operands, real ones: of complex numbers XLA counts one operation each, whatever it takes."""
    return [
        (sample.within or applying(sample.prim), operands)
        for sample in samples
        if sample.prim.name not in ("complex", "conj")
        for operands in sample.operands
        if not any(map(np.iscomplexobj, operands)) and not any(map(is_of_xlas_generator, operands))
    ]


def is_of_xlas_generator(x: Any) -> bool:
    """Whether the operands are keys for it: what it counts stands under `rng_bit_generator`."""
    return isinstance(x, np.ndarray) and x.dtype in (dtypes.key_rbg, dtypes.key_urbg)


def applying(prim: Primitive) -> Callable[..., Any]:
    return lambda *xs: list(bind(prim, *xs))


REAL: Final = {name: found for name, samples in SAMPLES.items() if (found := subjects(samples))}


@pytest.mark.parametrize("name", [name for name in REAL if name not in FUNCTIONS and name not in OTHERWISE])
def test_operations_are_counted_as_xla_counts_them(name: str) -> None:
    for f, operands in REAL[name]:
        assert ours(count(f)(*operands)) == theirs(analysis(f, *operands))


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_functions_that_xla_composes_count_as_one(name: str) -> None:
    for f, operands in REAL[name]:
        flops, transcendentals = theirs(analysis(f, *operands))
        cost = count(f)(*operands)
        assert cost.transcendentals == sum(x.size for x in f(*operands))
        assert flops + transcendentals > cost.transcendentals


@pytest.mark.parametrize("name", sorted(OTHERWISE))
def test_what_is_counted_otherwise_still_is(name: str) -> None:
    """An exception that isn't one any more is to be taken off the list."""
    assert any(ours(count(f)(*operands)) != theirs(analysis(f, *operands)) for f, operands in REAL[name])


# ------------------------------------------------------------------ everyday programs, as XLA gets them


@final
@frozen(eq=False)
class Folding(Handler):
    """Does what XLA's import of a program does to arithmetic with constants, and nothing else.

    What is one number everywhere is known; products with one, and sums of integers with zero, are the other operand.
    """

    title = "folding"
    inner: Handler
    known: dict[int, tuple[Value, NDArray]] = field(factory=dict)

    def number(self, x: Value) -> NDArray | None:
        if isinstance(x, Literal | ConcreteArray):
            return x.numpy()
        found = self.known.get(id(x))
        return None if found is None else found[1]

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        avals = prim.abstract_eval(*[a.aval for a in args])
        numbers = [self.number(a) for a in args]
        out = avals[0]
        if isinstance(prim, Mul) or (isinstance(prim, Add) and out.dtype.kind in "iu"):
            for x, other in zip(numbers, reversed(args), strict=True):
                if uniform(x, 1 if isinstance(prim, Mul) else 0) and other.aval.shape == out.shape:
                    return [other]
        if isinstance(prim, SelectN) and numbers[0] is not None and uniform(numbers[0], numbers[0].flat[0]):
            return [args[1 + int(numbers[0].flat[0])]]
        given = [n for n in numbers if n is not None]
        constant = (args and len(given) == len(args)) or (isinstance(prim, Iota) and out.shape[prim.dimension] == 1)
        if constant and len(avals) == 1 and out.size:
            value = np.asarray(prim.impl(*given)[0])
            if uniform(value, value.flat[0]):
                return [self.filled(out, value)]
        return self.inner.bind(prim, args)

    def filled(self, aval: ShapedArray, value: NDArray) -> Value:
        number = Literal(value.flat[0].item(), aval.update(shape=()))
        if not aval.shape:
            return number
        (out,) = self.inner.bind(BroadcastInDim(aval.shape, ()), [number])
        self.known[id(out)] = out, value
        return out


def uniform(x: NDArray | None, number: object) -> bool:
    return x is not None and x.size > 0 and bool(np.all(x == number))


def folded(jaxpr: Jaxpr) -> Jaxpr:
    def run(*xs: Value) -> list[Value]:
        with handling(Folding(current())):
            return eval_jaxpr(jaxpr, (), xs)

    program, consts = stage(run, jaxpr.in_avals)
    assert not consts
    return dce(program)


@pytest.mark.parametrize("case", [c for n, c in CASES.items() if not n.startswith("cumsum")], ids=lambda c: c.name)
def test_a_program_is_counted_as_xla_counts_it(case: Case) -> None:
    """But for products with one and the like, which XLA leaves out when it reads the program, to the operation."""
    f = case.function_of(OURS)
    program = dce(fx.jit(f).trace(*case.arguments).trace.jaxpr)
    found = theirs(analysis(f, *case.arguments))
    assert ours(count_jaxpr(folded(program))) == pytest.approx(found, rel=FLOAT32, abs=0)
    whole = count(f)(*case.arguments)
    assert ours(whole)[0] >= found[0] * (1 - FLOAT32)
    assert whole.transcendentals == found[1]


def test_a_loop_is_counted_whole_where_xla_counts_one_step() -> None:
    w = np.ones((4, 4), np.float32)

    def run(unroll: int, xs: Any) -> Any:
        return lax.scan(lambda h, x: (fnp.tanh(h @ w + x), None), fnp.zeros(4, np.float32), xs, unroll=unroll)[0]

    step = 2 * 4 * 4 + 4
    long, short = np.ones((20, 4), np.float32), np.ones((10, 4), np.float32)
    for xs in (long, short):
        assert ours(count(lambda xs: run(1, xs))(xs)) == (len(xs) * step, len(xs) * 4)
        unrolled = theirs(analysis(lambda xs: run(len(xs), xs), xs))
        assert unrolled == (len(xs) * step, len(xs) * 4)
    of_long, of_short = [theirs(analysis(lambda xs: run(1, xs), xs)) for xs in (long, short)]
    assert of_long == of_short == (step + 2, 4)  # and the counter


# ------------------------------------------------------------------ everyday programs, compiled


@functools.cache
def compiled(name: str) -> Any:
    return compiled_by(OURS, CASES[name])


PRODUCTS: Final = (
    "2-block transformer",
    "2-block transformer, gradient",
    "MLP step",
    "attention, gradient",
    "matrix product, gradient",
    "einsum, gradient",
    "einsum of three, gradient",
    "gated layer, gradient",
)
"""Programs that are matrix products above all."""

PLAIN: Final = (
    *("2-block transformer", "2-block transformer, gradient", "MLP step", "softmax", "logsumexp", "layer norm"),
    *("cross entropy, gradient", "attention, gradient", "Adam", "standardized", "slice, gradient", "jacrev"),
)
"""Programs of which XLA computes every transcendental function once."""

LARGER: Final = {
    "matrix product, gradient": "XLA transposes operands before it multiplies them",
    "convolution, gradient": "XLA transposes images and kernels before it convolves them",
    "convolutions by example, gradient": "the same",
    "cumsum": "XLA makes a tree of windows",
    "cumsum, gradient": "as cumsum",
    "elements, gradient": "XLA keeps the places in numbers of its own",
}
"""Compiled programs that hold more than the model does, and why."""


@pytest.mark.parametrize("name", PRODUCTS)
def test_flops_of_a_compiled_program_of_products_are_those_counted(name: str) -> None:
    case = CASES[name]
    found, _ = theirs(compiled(name).cost_analysis())
    # XLA makes one operation of several on single elements, or several of one: the products are most of the work.
    assert ours(count(case.function_of(OURS))(*case.arguments))[0] == pytest.approx(found, rel=0.015)


@pytest.mark.parametrize("name", PLAIN)
def test_transcendentals_of_a_compiled_program_are_those_counted(name: str) -> None:
    case = CASES[name]
    _, found = theirs(compiled(name).cost_analysis())
    assert count(case.function_of(OURS))(*case.arguments).transcendentals == found


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_compiled_program_holds_no_more_than_the_model(case: Case) -> None:
    planned = compiled(case.name).memory_analysis()
    cost = count(case.function_of(OURS))(*case.arguments)
    assert planned.argument_bytes == cost.argument_bytes
    needed = cost.argument_bytes + cost.output_bytes + planned.temp_bytes  # XLA's results include a table of pointers
    assert (needed > cost.peak_bytes) == (case.name in LARGER)


# ------------------------------------------------------------------ loops, compiled


def recurrent(checkpoint: int | OneOf["binomial"] | None) -> Callable[..., Any]:
    def loss(w: Any, u: Any, xs: Any) -> Any:
        start = fnp.zeros((32, 128), np.float32)
        h, _ = lax.scan(lambda h, x: (fnp.tanh(h @ w + x @ u), None), start, xs, checkpoint=checkpoint)
        return fnp.sum(h)

    return fx.grad(loss, (0, 1))


def layered(wrap: Callable[..., Any]) -> Callable[..., Any]:
    def layer(x: Any, weights: Any) -> Any:
        return fnp.tanh(x @ weights[0]) @ weights[1] + x, None

    return fx.grad(lambda weights, x: fnp.sum(lax.scan(wrap(layer), x, weights)[0]))


def settled(x: Any) -> Any:
    return lax.while_loop(lambda x: fnp.sum(x) < 1, lambda x: fnp.tanh(x @ x), x)


def f32(*shape: int) -> Any:
    return fx.ShapeDtypeStruct(shape, "float32")


NETWORK: Final = f32(128, 128), f32(64, 128), f32(100, 32, 64)
LAYERS: Final = (f32(8, 64, 256), f32(8, 256, 64)), f32(512, 64)


@pytest.mark.parametrize(
    ("f", "args", "least", "most"),
    [
        (recurrent(None), NETWORK, 0.99, 1.02),
        (recurrent(10), NETWORK, 0.99, 1.06),
        (recurrent("binomial"), NETWORK, 0.99, 1.02),
        (layered(lambda layer: layer), LAYERS, 0.80, 0.90),
        (layered(fx.checkpoint), LAYERS, 0.80, 0.90),
        (settled, (f32(300, 300),), 0.99, 1.01),
    ],
)
def test_a_compiled_loop_holds_what_the_model_does(
    f: Callable[..., Any], args: tuple[Any, ...], least: float, most: float
) -> None:
    cost = count(f)(*args)
    planned = fx.jit(f).lower(*args).compile().memory_analysis()
    needed = cost.argument_bytes + cost.output_bytes + planned.temp_bytes
    assert least <= needed / cost.peak_bytes <= most
