"""Serialization of tracefx's own primitives: every primitive, generated programs, files of older versions."""

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
from tests.comparison import assert_near
from tests.laws.examples import limit_examples
from tests.laws.samples import SAMPLES, Sample
from tracefx.core import dtypes, from_numpy
from tracefx.core.effects import NamedAxisEffect
from tracefx.errors import SerializationError
from tracefx.programs import VOCABULARY, deserialize, executable_key, parse_jaxpr, serialize
from tracefx.testing.generated_programs import TransformedProgram
from tracefx.testing.strategies import transformed_control_flow_programs, transformed_programs

FILES: Final = Path(__file__).parent / "files"


def check_round_trip(program: fx.ClosedJaxpr) -> None:
    data = serialize(program)
    again = deserialize(data)
    assert again == program
    assert str(again) == str(program)
    assert parse_jaxpr(str(program)) == program.jaxpr
    assert serialize(again) == data
    assert executable_key(again.jaxpr) == executable_key(program.jaxpr)


@pytest.mark.parametrize("name", SAMPLES)
def test_round_trip_of_every_primitive(name: str) -> None:
    for sample in SAMPLES[name]:
        for operands in sample.operands:
            check_round_trip(fx.make_jaxpr(sample.within or functools.partial(fx.bind, sample.prim))(*operands))


def refers_to_a_named_axis(sample: Sample) -> bool:
    return any(isinstance(effect, NamedAxisEffect) for effect in sample.prim.effects)


def test_round_trip_of_every_primitive_with_a_named_axis() -> None:
    collected = set()
    for sample in [s for samples in SAMPLES.values() for s in samples if refers_to_a_named_axis(s)]:
        program = program_within_axis(sample)
        collected.add(sample.prim.name)
        assert program.effects
        check_round_trip(program)
    assert len(collected) == 8


def program_within_axis(sample: Sample) -> fx.ClosedJaxpr:
    """Returns the program of a primitive inside a binding of its named axis."""
    collected: list[fx.ClosedJaxpr] = []

    def outside(*xs: fx.Array) -> fx.Array:
        collected.append(fx.make_jaxpr(functools.partial(fx.bind, sample.prim))(*xs))
        return fnp.zeros(())

    fx.vmap(outside, axis_name="i", axis_size=2)(*sample.operands[0])
    return collected[0]


@limit_examples(40)
@given(transformed_programs(max_layers=2))
def test_round_trip_of_generated_programs(case: TransformedProgram) -> None:
    check_round_trip(fx.make_jaxpr(case.function(fx, fnp))(*[from_numpy(x, dtypes.float64) for x in case.inputs()]))


@limit_examples(40)
@given(transformed_control_flow_programs(max_layers=2))
def test_round_trip_of_generated_programs_with_control_flow(case: TransformedProgram) -> None:
    program = fx.make_jaxpr(case.function(fx, fnp))(*[from_numpy(x, dtypes.float64) for x in case.inputs()])
    if "=<" in str(program):  # a parameter without a textual form, such as a custom rule
        with pytest.raises(SerializationError, match="and functions can't be serialized"):
            serialize(program)
    else:
        check_round_trip(program)


def test_control_flow_primitives_are_in_the_vocabulary() -> None:
    assert {"jit", "cond", "scan", "while", "checkpoint", "name", "custom_linear_solve"} <= VOCABULARY.keys()


# ------------------------------------------------------------------ primitives with callables


@fx.custom_jvp
def with_custom_rule(x: fx.Array) -> fx.Array:
    return fnp.sin(x)


with_custom_rule.defjvp(lambda primals, tangents: (with_custom_rule(*primals), tangents[0]))


@pytest.mark.parametrize(
    ("f", "holder"),
    [
        (lambda x: fx.pure_callback(np.sin, x, x), "pure_callback"),
        (lambda x: fx.debug.print("{}", x), "debug_print"),
        (lambda x: fx.debug.callback(print, x), "debug_callback"),
        (lambda x: fx.jit(with_custom_rule)(x), "custom_jvp_call"),
        (lambda x: fx.checkpoint(fnp.sin, policy=fx.checkpoint_policies.dots_saveable)(x), "checkpoint"),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
def test_callables_raise(f: Callable[[fx.Array], object], holder: str) -> None:
    program = fx.make_jaxpr(f)(fnp.ones(3))
    with pytest.raises(SerializationError, match=r"equation \d+ of \d+ at .*test_serialization_own.py:\d+") as caught:
        serialize(program)
    assert holder in str(caught.value)
    assert "functions can't be serialized" in str(caught.value)


# ------------------------------------------------------------------ files of older versions


def test_read_files_of_version_1() -> None:
    """A program with loops, branches, shared sub-jaxprs, small integers and named scopes, written by version 1."""
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


def test_written_version_is_1() -> None:
    program = deserialize((FILES / "program-1.bin").read_bytes())
    assert serialize(program, provenance=True) == (FILES / "program-1.bin").read_bytes()
