"""Programs of tracefx's own operations as bytes: every operation, generated programs, and files of older versions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from hypothesis import given

import tracefx as fx
import tracefx.numpy as fnp
from tests.closeness import assert_near
from tests.laws.examples import limit_examples
from tests.laws.samples import SAMPLES, Sample
from tracefx.core import dtypes
from tracefx.core.effects import NamedAxisEffect
from tracefx.core.values import from_numpy
from tracefx.errors import SerializationError
from tracefx.programs import VOCABULARY, deserialize, executable_key, parse_jaxpr, serialize
from tracefx.testing.generated_programs import TransformedProgram
from tracefx.testing.strategies import transformed_control_flow_programs, transformed_programs

FILES: Final = Path(__file__).parent / "files"


def same_again(program: fx.ClosedJaxpr) -> None:
    data = serialize(program)
    again = deserialize(data)
    assert again == program
    assert str(again) == str(program)
    assert parse_jaxpr(str(program)) == program.jaxpr
    assert serialize(again) == data
    assert executable_key(again.jaxpr) == executable_key(program.jaxpr)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_operation(name: str) -> None:
    for sample in SAMPLES[name]:
        for operands in sample.operands:
            same_again(fx.make_jaxpr(sample.within or functools.partial(fx.bind, sample.prim))(*operands))


def is_along_an_axis(sample: Sample) -> bool:
    return any(isinstance(effect, NamedAxisEffect) for effect in sample.prim.effects)


def test_every_operation_that_refers_to_a_named_axis() -> None:
    found = set()
    for sample in [s for samples in SAMPLES.values() for s in samples if is_along_an_axis(s)]:
        program = within_an_axis(sample)
        found.add(sample.prim.name)
        assert program.effects
        same_again(program)
    assert len(found) == 8


def within_an_axis(sample: Sample) -> fx.ClosedJaxpr:
    """The program of an operation where its axis is bound outside."""
    found: list[fx.ClosedJaxpr] = []

    def outside(*xs: fx.Array) -> fx.Array:
        found.append(fx.make_jaxpr(functools.partial(fx.bind, sample.prim))(*xs))
        return fnp.zeros(())

    fx.vmap(outside, axis_name="i", axis_size=2)(*sample.operands[0])
    return found[0]


@limit_examples(40)
@given(transformed_programs(max_layers=2))
def test_generated_programs(case: TransformedProgram) -> None:
    same_again(fx.make_jaxpr(case.function(fx, fnp))(*[from_numpy(x, dtypes.float64) for x in case.inputs()]))


@limit_examples(40)
@given(transformed_control_flow_programs(max_layers=2))
def test_generated_programs_with_structure(case: TransformedProgram) -> None:
    program = fx.make_jaxpr(case.function(fx, fnp))(*[from_numpy(x, dtypes.float64) for x in case.inputs()])
    if "=<" in str(program):  # a parameter without a text of its own: a rule
        with pytest.raises(SerializationError, match="and functions can't be serialized"):
            serialize(program)
    else:
        same_again(program)


def test_operations_of_control_flow_are_in_the_vocabulary() -> None:
    assert {"jit", "cond", "scan", "while", "checkpoint", "name", "custom_linear_solve"} <= VOCABULARY.keys()


# ------------------------------------------------------------------ what holds functions


@fx.custom_jvp
def ruled(x: fx.Array) -> fx.Array:
    return fnp.sin(x)


ruled.defjvp(lambda primals, tangents: (ruled(*primals), tangents[0]))


@pytest.mark.parametrize(
    ("f", "holder"),
    [
        (lambda x: fx.pure_callback(np.sin, x, x), "pure_callback"),
        (lambda x: fx.debug.print("{}", x), "debug_print"),
        (lambda x: fx.debug.callback(print, x), "debug_callback"),
        (lambda x: fx.jit(ruled)(x), "custom_jvp_call"),
        (lambda x: fx.checkpoint(fnp.sin, policy=fx.checkpoint_policies.dots_saveable)(x), "checkpoint"),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
def test_functions_are_refused(f: Callable[[fx.Array], object], holder: str) -> None:
    program = fx.make_jaxpr(f)(fnp.ones(3))
    with pytest.raises(SerializationError, match=r"equation \d+ of \d+ at .*test_serialization_own.py:\d+") as caught:
        serialize(program)
    assert holder in str(caught.value)
    assert "functions can't be serialized" in str(caught.value)


# ------------------------------------------------------------------ files of older versions


def test_files_of_version_1() -> None:
    """A program with loops, branches, shared bodies, small integers and named scopes, written by version 1."""
    data = (FILES / "program-1.bin").read_bytes()
    program = deserialize(data)
    assert str(program) + "\n" == (FILES / "program-1.txt").read_text()
    fx.check_jaxpr(program)
    x, n = np.array([0.5, -1.0, 2.0], np.float32), np.int32(2)
    outs = fx.jaxpr_as_fun(program)(x, n)
    stored = np.load(FILES / "program-1.npz")
    assert len(outs) == len(stored.files)
    for i, out in enumerate(outs):
        assert_near(out, stored[f"arr_{i}"])
    assert program.eqns[0].source is not None


def test_what_is_written_is_version_1() -> None:
    program = deserialize((FILES / "program-1.bin").read_bytes())
    assert serialize(program, provenance=True) == (FILES / "program-1.bin").read_bytes()
