"""Compiled programs beside JAX's: no more kernels, arithmetic, traffic or memory, and the same results."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from attrs import astuple, evolve

import tracefx as fx
import tracefx.numpy as fnp
from benchmarks.compiled import EVERYDAY, Case, compiled_by, counts, kernels, models
from benchmarks.libraries import JAX, OURS, Library
from tests.closeness import assert_near
from tests.versions import LARGER_PROGRAMS
from tracefx import nn
from tracefx.core.values import ConcreteArray
from tracefx.testing.tolerances import ELEMENTARY, PROGRAM
from tracefx.xla import runtime

pytestmark = pytest.mark.usefixtures("optimised")

MODELS = models(2)  # each block is compiled alike
CASES = {case.name: case for case in (*MODELS, *EVERYDAY)}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_program_is_no_larger_than_jaxs(case: Case) -> None:
    ours, theirs = compiled_by(OURS, case), compiled_by(JAX, case)
    found, wanted = counts(ours), counts(theirs)
    kernels, flops, accessed = LARGER_PROGRAMS.get(case.name, (0, 0, 0))
    allowed = evolve(
        wanted,
        kernels=wanted.kernels + kernels,
        flops=wanted.flops + flops,
        bytes_accessed=wanted.bytes_accessed + accessed,
    )
    assert all(a <= b for a, b in zip(astuple(found), astuple(allowed), strict=True)), f"{found} against JAX's {wanted}"
    results: Any = zip(fx.tree.leaves(ours(*case.arguments)), jax.tree.leaves(theirs(*case.arguments)), strict=True)
    for x, y in results:
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        assert_near(x, y, PROGRAM)


def test_a_longer_program_has_larger_counts() -> None:
    short = Case("short", lambda m: lambda x: m.numpy.sum(x), (np.ones((64, 100), np.float32),))
    long = Case(
        "long", lambda m: lambda x: (x @ x.T, m.numpy.sum(m.numpy.sin(x), axis=0)), (np.ones((64, 100), np.float32),)
    )
    few, many = [counts(compiled_by(OURS, case)) for case in (short, long)]
    assert all(a < b for a, b in zip(astuple(few), astuple(many), strict=True))
    assert counts(compiled_by(JAX, short)) == few
    assert (few.flops, few.transcendentals, few.memory) == (6399, 0, 4 * 6400 + 4)


def test_kernels_are_what_runs() -> None:
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


def test_numbers_that_rules_bring_are_in_the_program() -> None:
    functions: list[Any] = [
        *(fx.grad(fnp.abs), fx.grad(lambda x: fnp.maximum(x, 0)), fx.grad(lambda x: fnp.clip(x, 0, 1)), fnp.std),
        *(nn.softplus, fx.grad(nn.relu), nn.logsumexp, lambda x: fnp.logaddexp(x, 0.0)),
    ]
    for function in functions:
        assert fx.make_jaxpr(function)(2.0).consts == (), function


def test_a_quotient_by_a_number_is_not_kept_for_its_derivative() -> None:
    def shares(m: Library) -> Any:
        return m.core.grad(lambda y, x: m.numpy.sum(m.numpy.sin(m.numpy.exp(-3 * x / y))))

    case = Case("", shares, (np.float32(2), np.ones((64, 100), np.float32)))
    found, wanted = [counts(compiled_by(library, case)) for library in (OURS, JAX)]
    assert (found.kernels, found.memory) <= (wanted.kernels, wanted.memory)


@pytest.mark.parametrize("y", [1e-25, 2.0, 1e25])
def test_derivatives_of_a_quotient_by_a_number_stay_in_range(y: float) -> None:
    x, number = np.array([1.0, -3.0], np.float32) * np.float32(y), np.float32(y)
    _, tangent = fx.jvp(fx.jit(lambda y: x / y), (number,), (np.float32(1),))
    assert_near(tangent, np.array([-1.0, 3.0]) / y, ELEMENTARY)
    slope = fx.jit(fx.grad(lambda y: (x / y).sum()))(number)
    assert_near(slope, 2.0 / y, ELEMENTARY)


# ------------------------------------------------------------------ memory


def test_an_array_goes_to_the_device_once(monkeypatch: pytest.MonkeyPatch) -> None:
    host = np.arange(1 << 20, dtype=np.float32)
    x = fnp.asarray(host)
    assert isinstance(x, ConcreteArray)
    where = address(x)
    puts: list[runtime.Buffer] = []

    def put(array: Any, device: runtime.Device, *, copy: bool = False) -> runtime.Buffer:
        assert array.nbytes == host.nbytes
        puts.append(untouched(array, device, copy=copy))
        return puts[-1]

    untouched = runtime.buffer_from_numpy
    monkeypatch.setattr(runtime, "buffer_from_numpy", put)
    step = fx.jit(lambda x: (x[:8] * 2, x))
    slope = fx.jit(fx.value_and_grad(lambda x: (x[:8] ** 2).sum()))
    for _ in range(3):
        first, handed_on = step(x)
        assert handed_on is x
        value, _ = slope(x)
        assert first.tolist() == [2.0 * i for i in range(8)]
        assert float(value) == 140.0
    assert len(puts) == 1
    assert x.buffer is puts[0]
    assert address(x) == where  # the device borrows the memory that `asarray` filled
    host[:] = -1.0
    assert float(x[3]) == 3.0


def address(x: ConcreteArray) -> int:
    place: int = x.numpy().__array_interface__["data"][0]
    return place
