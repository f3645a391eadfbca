"""`count` compared with XLA's cost analysis, of programs before and after compilation."""

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
from tests.laws.examples import sampled
from tests.laws.samples import SAMPLES, Sample
from tracefx import lax
from tracefx.core import ConcreteArray, NDArray, dtypes
from tracefx.extend import Handler, Jaxpr, Literal, Primitive, ShapedArray, Value, bind, current, eval_jaxpr, handling
from tracefx.handlers import Cost, count, count_jaxpr
from tracefx.interpreters.stage import stage
from tracefx.ops.elementwise.arithmetic import Mul
from tracefx.ops.elementwise.elementwise import Add
from tracefx.ops.elementwise.selection import SelectN
from tracefx.ops.elementwise.special import Polygamma, Zeta
from tracefx.ops.elementwise.transcendental import ReciprocalDerivative, Transcendental
from tracefx.ops.shape.array_creation import Iota
from tracefx.ops.structural import BroadcastInDim
from tracefx.passes.dce import dce

# XLA's figures are compared for programs compiled with the default optimisations.
pytestmark = pytest.mark.usefixtures("optimised_hlo")

CASES = {case.name: case for case in (*models(2), *EVERYDAY)}
FLOAT32: Final = 1e-6
"""XLA accumulates its counts in float32, which rounds large ones."""


def analysis(f: Callable[..., Any], *args: Any) -> Mapping[str, float]:
    """Returns XLA's cost analysis of the program of `f` before any of its optimizations."""
    text = fx.jit(f).lower(*args).as_text()
    module = _jax.mlir.mlir_module_to_xla_computation(text).get_hlo_module()
    xla_analysis: Mapping[str, float] = _jax.hlo_module_cost_analysis(jax.devices()[0].client, module)
    return xla_analysis


def xla_counts(xla_analysis: Mapping[str, float]) -> tuple[float, float]:
    return xla_analysis.get("flops", 0.0), xla_analysis.get("transcendentals", 0.0)


def counts_as_xla(cost: Cost) -> tuple[int, int]:
    """Returns the counts as XLA does: integer operations are included in flops."""
    return cost.flops + cost.integer_ops, cost.transcendentals


# ------------------------------------------------------------------ single primitives

COUNTED_DIFFERENTLY: Final = {
    "XLA uses bit operations": "nextafter",
    "on CPUs it is lowered to other operations": "mulhi",
    "XLA reports -1 (unknown) for programs on several devices": "sharding_constraint",
    "XLA counts one flop per element": "bitcast_convert_type",
    "XLA's reduction step has nine operations, for NaN and ties": "argmax argmin",
    "XLA assumes a sort of the flattened array, with one operation per comparison": "sort",
    "XLA counts nothing": "top_k",
    "as sort, to which it is lowered on the CPU": "approx_top_k",
    "XLA counts three operations on each word of the state": "rng_bit_generator",
    "XLA omits the addition of zeros": "random_split random_fold_in random_bits",
    "a LAPACK call, for which XLA counts nothing": (
        "cholesky triangular_solve lu lu_pivots_to_permutation geqrf geqp3 householder_product ormqr qr eigh "
        "eig schur hessenberg tridiagonal tridiagonal_solve svd"
    ),
    "XLA omits the multiplication of the last row": "cholesky_update",
    "XLA rounds logarithms down, and multiplies those of several axes": "fft",
    "lowered to windows of the length of the axis, which XLA later rewrites to a tree": (
        "cumsum cumprod cummax cummin cumlogsumexp"
    ),
    "uses a cumulative sum of the group sizes: as cumsum": "ragged_dot_general",
}
"""Why XLA counts some operations differently, and the names of these operations."""
DIFFERENT: Final = frozenset(" ".join(COUNTED_DIFFERENTLY.values()).split())


def functions_and_operands(samples: Sequence[Sample]) -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Functions with real operands: XLA counts each complex operation as one, whatever its cost."""
    return [
        (sample.within or bind_primitive(sample.prim), operands)
        for sample in samples
        if sample.prim.name not in ("complex", "conj")
        for operands in sample.operands
        if not any(map(np.iscomplexobj, operands)) and not any(map(is_key_of_xla_generator, operands))
    ]


def is_key_of_xla_generator(x: Any) -> bool:
    """Whether the operands are keys for XLA's generator, whose cost is counted under `rng_bit_generator`."""
    return isinstance(x, np.ndarray) and x.dtype in (dtypes.key_rbg, dtypes.key_urbg)


def bind_primitive(prim: Primitive) -> Callable[..., Any]:
    return lambda *xs: list(bind(prim, *xs))


REAL_SAMPLES: Final = {
    name: xla_analysis for name, samples in SAMPLES.items() if (xla_analysis := functions_and_operands(samples))
}


def is_composed(prim: Primitive) -> bool:
    """Whether XLA may compose a function of others, which tracefx counts as one transcendental function."""
    is_function = isinstance(prim, Transcendental | ReciprocalDerivative | Polygamma | Zeta)
    return is_function and not getattr(prim, "hlo", "").startswith("stablehlo.")


@pytest.mark.parametrize("name", sampled([name for name in REAL_SAMPLES if name not in DIFFERENT], 2))
def test_primitive_counts_match_xla(name: str) -> None:
    for f, operands in REAL_SAMPLES[name]:
        cost = count(f)(*operands)
        flops, transcendentals = xla_counts(analysis(f, *operands))
        if counts_as_xla(cost) != (flops, transcendentals):
            assert is_composed(SAMPLES[name][0].prim)
            assert cost.transcendentals == sum(x.size for x in f(*operands))
            assert flops + transcendentals > cost.transcendentals


@pytest.mark.parametrize("name", sorted(DIFFERENT))
def test_listed_exceptions_still_differ_from_xla(name: str) -> None:
    """Fails if an exception no longer differs from XLA, so that it is removed from the list."""
    assert any(
        counts_as_xla(count(f)(*operands)) != xla_counts(analysis(f, *operands)) for f, operands in REAL_SAMPLES[name]
    )


# ------------------------------------------------------------------ everyday programs, before compilation


@final
@frozen(eq=False)
class XlaImportSimplifier(Handler):
    """Simplifies arithmetic with constants exactly as XLA's import of a program does.

    Uniform constants are folded; products with one, and integer sums with zero, are replaced by the other operand.
    """

    title = "folding"
    inner: Handler
    known: dict[int, tuple[Value, NDArray]] = field(factory=dict)

    def number(self, x: Value) -> NDArray | None:
        if isinstance(x, Literal | ConcreteArray):
            return x.numpy()
        xla_analysis = self.known.get(id(x))
        return None if xla_analysis is None else xla_analysis[1]

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        avals = prim.abstract_eval(*[a.aval for a in args])
        numbers = [self.number(a) for a in args]
        out = avals[0]
        if isinstance(prim, Mul) or (isinstance(prim, Add) and out.dtype.kind in "iu"):
            for x, other in zip(numbers, reversed(args), strict=True):
                if is_uniform(x, 1 if isinstance(prim, Mul) else 0) and other.aval.shape == out.shape:
                    return [other]
        if isinstance(prim, SelectN) and numbers[0] is not None and is_uniform(numbers[0], numbers[0].flat[0]):
            return [args[1 + int(numbers[0].flat[0])]]
        known_operands = [n for n in numbers if n is not None]
        constant = (args and len(known_operands) == len(args)) or (
            isinstance(prim, Iota) and out.shape[prim.dimension] == 1
        )
        if constant and len(avals) == 1 and out.size:
            value = np.asarray(prim.impl(*known_operands)[0])
            if is_uniform(value, value.flat[0]):
                return [self.broadcast_constant(out, value)]
        return self.inner.bind(prim, args)

    def broadcast_constant(self, aval: ShapedArray, value: NDArray) -> Value:
        number = Literal(value.flat[0].item(), aval.update(shape=()))
        if not aval.shape:
            return number
        (out,) = self.inner.bind(BroadcastInDim(aval.shape, ()), [number])
        self.known[id(out)] = out, value
        return out


def is_uniform(x: NDArray | None, number: object) -> bool:
    return x is not None and x.size > 0 and bool(np.all(x == number))


def simplified(jaxpr: Jaxpr) -> Jaxpr:
    def run(*xs: Value) -> list[Value]:
        with handling(XlaImportSimplifier(current())):
            return eval_jaxpr(jaxpr, (), xs)

    program, consts = stage(run, jaxpr.in_avals)
    assert not consts
    return dce(program)


@pytest.mark.parametrize("case", [c for n, c in CASES.items() if not n.startswith("cumsum")], ids=lambda c: c.name)
def test_program_counts_match_xla(case: Case) -> None:
    """The counts are exact after the simplifications that XLA applies at import."""
    f = case.function_of(OURS)
    program = dce(fx.jit(f).trace(*case.arguments).trace.jaxpr)
    xla_analysis = xla_counts(analysis(f, *case.arguments))
    assert counts_as_xla(count_jaxpr(simplified(program))) == pytest.approx(xla_analysis, rel=FLOAT32, abs=0)
    cost = count(f)(*case.arguments)
    assert counts_as_xla(cost)[0] >= xla_analysis[0] * (1 - FLOAT32)
    assert cost.transcendentals == xla_analysis[1]


def test_scan_counts_all_steps_where_xla_counts_one() -> None:
    w = np.ones((4, 4), np.float32)

    def run(unroll: int, xs: Any) -> Any:
        return lax.scan(lambda h, x: (fnp.tanh(h @ w + x), None), fnp.zeros(4, np.float32), xs, unroll=unroll)[0]

    step = 2 * 4 * 4 + 4
    long, short = np.ones((20, 4), np.float32), np.ones((10, 4), np.float32)
    for xs in (long, short):
        assert counts_as_xla(count(lambda xs: run(1, xs))(xs)) == (len(xs) * step, len(xs) * 4)
        unrolled = xla_counts(analysis(lambda xs: run(len(xs), xs), xs))
        assert unrolled == (len(xs) * step, len(xs) * 4)
    long_counts, short_counts = [xla_counts(analysis(lambda xs: run(1, xs), xs)) for xs in (long, short)]
    assert long_counts == short_counts == (step + 2, 4)  # plus the counter


# ------------------------------------------------------------------ everyday programs, compiled


@functools.cache
def compiled_case(name: str) -> Any:
    return compiled_by(OURS, CASES[name])


PRODUCTS: Final = (
    *("2-block transformer", "2-block transformer, gradient", "MLP step", "attention, gradient"),
    *("matrix product, gradient", "einsum, gradient", "einsum of three, gradient", "gated layer, gradient"),
)
"""Programs dominated by matrix products."""

SINGLE_TRANSCENDENTALS: Final = (
    *("2-block transformer", "2-block transformer, gradient", "MLP step", "softmax", "logsumexp", "layer norm"),
    *("cross entropy, gradient", "attention, gradient", "Adam", "standardized", "slice, gradient", "jacrev"),
)
"""Programs in which XLA evaluates every transcendental function once."""

USES_MORE_MEMORY: Final = {
    "matrix product, gradient": "XLA transposes operands before it multiplies them",
    "convolution, gradient": "XLA transposes images and kernels before it convolves them",
    "convolutions by example, gradient": "the same",
    "cumsum": "XLA rewrites it to a tree of windows",
    "cumsum, gradient": "as cumsum",
    "elements, gradient": "XLA stores a converted copy of the indices",
}
"""Compiled programs that use more memory than the model, and the reason."""


@pytest.mark.parametrize("name", PRODUCTS)
def test_flops_match_compiled_programs_of_matrix_products(name: str) -> None:
    case = CASES[name]
    xla_analysis, _ = xla_counts(compiled_case(name).cost_analysis())
    # Fusion changes the number of elementwise operations, but matrix products dominate.
    assert counts_as_xla(count(case.function_of(OURS))(*case.arguments))[0] == pytest.approx(xla_analysis, rel=0.015)


@pytest.mark.parametrize("name", SINGLE_TRANSCENDENTALS)
def test_transcendentals_match_compiled_programs(name: str) -> None:
    case = CASES[name]
    _, xla_analysis = xla_counts(compiled_case(name).cost_analysis())
    assert count(case.function_of(OURS))(*case.arguments).transcendentals == xla_analysis


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_compiled_peak_memory_is_at_most_the_model(case: Case) -> None:
    xla_memory = compiled_case(case.name).memory_analysis()
    cost = count(case.function_of(OURS))(*case.arguments)
    assert xla_memory.argument_bytes == cost.argument_bytes
    needed = (
        cost.argument_bytes + cost.output_bytes + xla_memory.temp_bytes
    )  # XLA's results include a table of pointers
    assert (needed > cost.peak_bytes) == (case.name in USES_MORE_MEMORY)


# ------------------------------------------------------------------ compiled loops


def recurrent(checkpoint: int | OneOf["binomial"] | None) -> Callable[..., Any]:
    def loss(w: Any, u: Any, xs: Any) -> Any:
        start = fnp.zeros((32, 128), np.float32)
        h, _ = lax.scan(lambda h, x: (fnp.tanh(h @ w + x @ u), None), start, xs, checkpoint=checkpoint)
        return fnp.sum(h)

    return fx.grad(loss, (0, 1))


def stacked_layers(wrap: Callable[..., Any]) -> Callable[..., Any]:
    def layer(x: Any, weights: Any) -> Any:
        return fnp.tanh(x @ weights[0]) @ weights[1] + x, None

    return fx.grad(lambda weights, x: fnp.sum(lax.scan(wrap(layer), x, weights)[0]))


def bounded_while(x: Any) -> Any:
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
        (stacked_layers(lambda layer: layer), LAYERS, 0.80, 0.90),
        (stacked_layers(fx.checkpoint), LAYERS, 0.80, 0.90),
        (bounded_while, (f32(300, 300),), 0.99, 1.01),
    ],
)
def test_compiled_loop_memory_is_near_the_model(
    f: Callable[..., Any], args: tuple[Any, ...], least: float, most: float
) -> None:
    cost = count(f)(*args)
    xla_memory = fx.jit(f).lower(*args).compile().memory_analysis()
    needed = cost.argument_bytes + cost.output_bytes + xla_memory.temp_bytes
    assert least <= needed / cost.peak_bytes <= most
