"""Compiled programs compared with JAX's: no more kernels, flops, bytes accessed or memory, and equal results."""

from __future__ import annotations

import re
from typing import Any

import jax
import numpy as np
import pytest
from attrs import astuple, evolve

import tracefx as fx
import tracefx.numpy as fnp
from benchmarks.compiled import EVERYDAY, Case, compiled_by, counts, kernels, models
from benchmarks.libraries import JAX, OURS, Library
from tests.comparison import assert_near
from tests.laws.examples import sampled
from tests.versions import LARGER_PROGRAMS
from tracefx import image, nn, random
from tracefx.core import ConcreteArray
from tracefx.testing.tolerances import ELEMENTARY, PROGRAM
from tracefx.xla.runtime import bindings, buffers

pytestmark = pytest.mark.usefixtures("optimised_hlo")

MODELS = models(2)  # all blocks compile to the same code


@pytest.mark.parametrize("case", sampled((*MODELS, *EVERYDAY), 2), ids=lambda case: case.name)
def test_program_is_no_larger_than_in_jax(case: Case) -> None:
    compiled, jax_compiled = compiled_by(OURS, case), compiled_by(JAX, case)
    cost, jax_cost = counts(compiled), counts(jax_compiled)
    kernels, flops, accessed = LARGER_PROGRAMS.get(case.name, (0, 0, 0))
    allowed = evolve(
        jax_cost,
        kernels=jax_cost.kernels + kernels,
        flops=jax_cost.flops + flops,
        bytes_accessed=jax_cost.bytes_accessed + accessed,
    )
    assert all(a <= b for a, b in zip(astuple(cost), astuple(allowed), strict=True)), f"{cost} against JAX's {jax_cost}"
    results: Any = zip(
        fx.tree.leaves(compiled(*case.arguments)), jax.tree.leaves(jax_compiled(*case.arguments)), strict=True
    )
    for x, y in results:
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        assert_near(x, y, PROGRAM)


def test_longer_program_has_larger_costs() -> None:
    short = Case("short", lambda m: lambda x: m.numpy.sum(x), (np.ones((64, 100), np.float32),))
    long = Case(
        "long", lambda m: lambda x: (x @ x.T, m.numpy.sum(m.numpy.sin(x), axis=0)), (np.ones((64, 100), np.float32),)
    )
    few, many = [counts(compiled_by(OURS, case)) for case in (short, long)]
    assert all(a < b for a, b in zip(astuple(few), astuple(many), strict=True))
    assert counts(compiled_by(JAX, short)) == few
    assert (few.flops, few.transcendentals, few.memory) == (6399, 0, 4 * 6400 + 4)


def test_kernel_count_includes_only_executed_kernels() -> None:
    text = """HloModule m

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add.1 = f32[] add(%a, %b)
}

%fused (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %sin.1 = f32[8]{0} sine(%p)
}

%body (t: (f32[8], s32[])) -> (f32[8], s32[]) {
  %t = (f32[8]{0}, s32[]) parameter(0)
  %x = f32[8]{0} get-tuple-element(%t), index=0
  %n = s32[] get-tuple-element(%t), index=1
  %y = f32[8]{0} fusion(%x), kind=kLoop, calls=%fused
  ROOT %u = (f32[8]{0}, s32[]) tuple(%y, %n)
}

ENTRY %main (x: f32[8]) -> (f32[], f32[2,4]) {
  %x.1 = f32[8]{0} parameter(0)
  %zero = f32[] constant(0)
  %sin = f32[8]{0} fusion(%x.1), kind=kLoop, calls=%fused, metadata={op_name="a(b)"}
  %dot = f32[]{:T(128)} dot(%x.1, %sin), lhs_contracting_dims={0}
  %total = f32[] reduce(%sin, %zero), dimensions={0}, to_apply=%add
  %two = f32[2,4]{1,0} bitcast(%sin)
  ROOT %out = (f32[], f32[2,4]) tuple(%total, %two)
}
"""
    assert kernels(text) == 4


def test_draws_of_one_shape_share_a_function_that_is_not_inlined_on_the_cpu() -> None:
    def draws(key: fx.Array) -> tuple[fx.Array, ...]:
        return tuple(random.normal(k, (100,)) for k in random.split(key, 3))

    traced = fx.jit(draws).trace(random.key(0))
    on_cpu, on_gpu = traced.lower().as_text(), traced.lower(lowering_platforms=("cuda",)).as_text()
    assert on_cpu.count("func.func private @random_bits") == on_gpu.count("func.func private @random_bits") == 1
    assert "inlineable" in on_cpu
    assert "inlineable" not in on_gpu
    assert len(re.findall(r"call\(.*to_apply=%random_bits", traced.lower().compile().as_text())) == 3


def test_remainders_of_the_span_of_integers_are_computed_once() -> None:
    text = fx.jit(lambda key: random.randint(key, (100,), 0, 7)).lower(random.key(0)).as_text()
    assert len(re.findall("stablehlo.remainder.*tensor<100xui32>", text)) == 3


def test_resized_leading_axis_of_an_image_stays_in_place() -> None:
    program = fx.make_jaxpr(lambda x: image.resize(x, (4, 9, 3), "linear"))(np.ones((8, 9, 3), np.float32))
    assert [eqn.prim.name for eqn in program.jaxpr.eqns] == ["dot_general"]


def test_constants_of_rules_are_literals() -> None:
    functions: list[Any] = [
        *(fx.grad(fnp.abs), fx.grad(lambda x: fnp.maximum(x, 0)), fx.grad(lambda x: fnp.clip(x, 0, 1)), fnp.std),
        *(nn.softplus, fx.grad(nn.relu), nn.logsumexp, lambda x: fnp.logaddexp(x, 0.0)),
    ]
    for function in functions:
        assert fx.make_jaxpr(function)(2.0).consts == (), function


def test_quotient_by_a_constant_has_no_residuals() -> None:
    def gradient(m: Library) -> Any:
        return m.core.grad(lambda y, x: m.numpy.sum(m.numpy.sin(m.numpy.exp(-3 * x / y))))

    case = Case("", gradient, (np.float32(2), np.ones((64, 100), np.float32)))
    cost, jax_cost = [counts(compiled_by(library, case)) for library in (OURS, JAX)]
    assert (cost.kernels, cost.memory) <= (jax_cost.kernels, jax_cost.memory)


@pytest.mark.parametrize("y", [1e-25, 2.0, 1e25])
def test_derivative_of_a_quotient_by_a_constant_does_not_overflow(y: float) -> None:
    x, number = np.array([1.0, -3.0], np.float32) * np.float32(y), np.float32(y)
    _, tangent = fx.jvp(fx.jit(lambda y: x / y), (number,), (np.float32(1),))
    assert_near(tangent, np.array([-1.0, 3.0]) / y, ELEMENTARY)
    slope = fx.jit(fx.grad(lambda y: (x / y).sum()))(number)
    assert_near(slope, 2.0 / y, ELEMENTARY)


# ------------------------------------------------------------------ memory


def test_array_is_transferred_to_the_device_once(monkeypatch: pytest.MonkeyPatch) -> None:
    host = np.arange(1 << 20, dtype=np.float32)
    x = fnp.asarray(host)
    assert isinstance(x, ConcreteArray)
    where = address(x)
    transfers: list[bindings.Buffer] = []

    def put(array: Any, device: bindings.Device, *, copy: bool = False) -> bindings.Buffer:
        assert array.nbytes == host.nbytes
        transfers.append(untouched(array, device, copy=copy))
        return transfers[-1]

    untouched = buffers.buffer_from_numpy
    monkeypatch.setattr(buffers, "buffer_from_numpy", put)
    step = fx.jit(lambda x: (x[:8] * 2, x))
    slope = fx.jit(fx.value_and_grad(lambda x: (x[:8] ** 2).sum()))
    for _ in range(3):
        first, handed_on = step(x)
        assert isinstance(handed_on, ConcreteArray)
        assert handed_on.buffer is x.buffer
        value, _ = slope(x)
        assert first.tolist() == [2.0 * i for i in range(8)]
        assert float(value) == 140.0
    assert len(transfers) == 1
    assert x.buffer is transfers[0]
    assert address(x) == where  # the device borrows the memory that `asarray` filled
    host[:] = -1.0
    assert float(x[3]) == 3.0


def address(x: ConcreteArray) -> int:
    pointer: int = x.numpy().__array_interface__["data"][0]
    return pointer
