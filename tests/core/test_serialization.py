"""Serialization of jaxprs: round trips, sharing, provenance, and errors for unsupported parameters."""

from __future__ import annotations

import struct
import sys
from collections.abc import Hashable
from enum import Flag
from pathlib import Path
from typing import Final

import ml_dtypes
import numpy as np
import pytest
from attrs import field, frozen
from hypothesis import given

import tracefx as fx
from tests.core.programs import (
    VALUES,
    VECTOR,
    VOCABULARY,
    WEAK,
    Call,
    Custom,
    Dims,
    Many,
    Mode,
    Program,
    Scale,
    Sin,
    Switch,
    Window,
    chain,
    nested_calls,
    permuted_programs,
    programs,
)
from tests.errors import untyped
from tests.primitives import SameTypes
from tests.subprocesses import output_of
from tracefx.core import ConcreteArray, DType, Literal, ShapedArray, dtypes
from tracefx.core.jaxpr import ClosedJaxpr, Eqn, Jaxpr, Var
from tracefx.core.primitive import Primitive
from tracefx.errors import JaxprTypeError, ParseError, SerializationError
from tracefx.pytrees.trees import structure
from tracefx.serialization import deserialize, serialize
from tracefx.source_location import SourceLocation
from tracefx.testing.strategies import arrays

ROOT: Final = Path(__file__).parent.parent.parent


def zeros(aval: ShapedArray) -> ConcreteArray:
    return ConcreteArray(aval, np.zeros(aval.shape, aval.dtype))


def closed(jaxpr: Jaxpr) -> ClosedJaxpr:
    return ClosedJaxpr(jaxpr, tuple([zeros(v.aval) for v in jaxpr.constvars]))


def write(jaxpr: Jaxpr) -> bytes:
    return serialize(closed(jaxpr), VOCABULARY)


def read(data: bytes) -> Jaxpr:
    return deserialize(data, VOCABULARY).jaxpr


def program_with(prim: Primitive) -> Jaxpr:
    p = Program(VECTOR)
    return p.returns(*p(prim, *p.invars))


# ------------------------------------------------------------------ round trips


@given(programs())
def test_round_trip(jaxpr: Jaxpr) -> None:
    data = write(jaxpr)
    again = deserialize(data, VOCABULARY)
    assert again == closed(jaxpr)
    assert str(again) == str(jaxpr)
    assert serialize(again, VOCABULARY) == data


@given(VALUES)
def test_round_trip_of_parameters(value: object) -> None:
    again = read(write(program_with(Scale(value)))).eqns[0].prim
    assert again == Scale(value)  # nested values have equal types and bits


@pytest.mark.parametrize(
    "value",
    [
        *(2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 2**64, 10**5000, -(10**50), 127, 128, -64, -65),
        *("\ud800\udc00", "\ud800", "\x00", b"", "Ω" * 1000, (), ((),), (1, 1.0, True)),
        *(struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000001))[0], complex(-0.0, float("nan"))),
        *(frozenset({"a"}), frozenset("abc"), frozenset({(1, "x"), (2, "y")}), frozenset({1, "1", None})),
        *(VECTOR, WEAK, Literal(True, WEAK), Literal(2**64 - 1, ShapedArray((), dtypes.uint64))),
        *(Sin(), Scale((1, Scale(2))), (chain(1), 1, chain(0)), frozenset({chain(1), chain(2)})),
        ShapedArray((2**62, 0), dtypes.int4),
        structure(({"a": 1, "b": [2, None]}, Window(3, 4))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_round_trip_of_edge_case_parameters(value: object) -> None:
    assert read(write(program_with(Scale(value)))) == program_with(Scale(value))


def test_round_trip_of_parameters_with_classes_from_annotations() -> None:
    many = Many(
        dims=Dims((1, 2), (3,), Mode.FILL),
        mode=Mode.FILL,
        window=Window(1, 2),
        windows=(Window(0, 0), Dims(())),
        label="kept, though it is neither compared nor shown",
    )
    (again,) = read(write(program_with(many))).eqns
    assert again.prim == many
    assert isinstance(again.prim, Many)
    assert again.prim.label == many.label


@pytest.mark.parametrize("dtype", dtypes.ALL_DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (0,), (2, 0, 3)], ids=str)
def test_constants_of_every_dtype(dtype: DType, shape: tuple[int, ...]) -> None:
    size, width = int(np.prod(shape)), dtype.itemsize
    raw = np.random.default_rng(size).integers(0, 256, size * width, np.uint8)
    if dtypes.is_bool(dtype) or dtypes.itemsize_bits(dtype) < 8:
        raw &= (1 << dtypes.itemsize_bits(dtype) % 8) - 1 if dtype != dtypes.bool_ else 1
    host = raw.view(dtype).reshape(shape) if width else np.zeros(shape, dtype)
    aval = ShapedArray(shape, dtype, weak_type=not shape and dtype == dtypes.float32)
    p = Program(consts=[aval])
    program = ClosedJaxpr(p.returns(*p.constvars), (ConcreteArray(aval, host),))
    again = deserialize(serialize(program, {}), {})
    assert again == program
    (const,) = again.consts
    assert isinstance(const, ConcreteArray)
    assert const.aval == aval
    assert not const.numpy().flags.writeable
    assert const.numpy().tobytes() == host.tobytes()


@given(arrays(extreme=True, weak=True))
def test_generated_constants(x: ConcreteArray) -> None:
    p = Program(consts=[x.aval])
    program = ClosedJaxpr(p.returns(*p.constvars), (x,))
    assert deserialize(serialize(program, {}), {}) == program


def test_small_elements_are_packed() -> None:
    aval = ShapedArray((1000,), dtypes.int4)
    host = np.arange(1000).astype(np.int8).astype(ml_dtypes.int4)
    p = Program(consts=[aval])
    program = ClosedJaxpr(p.returns(*p.constvars), (ConcreteArray(aval, host),))
    data = serialize(program, {})
    assert len(data) < 600
    assert deserialize(data, {}) == program


def test_strided_constants_and_literals() -> None:
    host = np.arange(12, dtype=np.float32).reshape(3, 4).T[::2]
    aval = ShapedArray(host.shape, host.dtype)
    p = Program(consts=[aval, WEAK])
    program = ClosedJaxpr(p.returns(*p.constvars), (ConcreteArray(aval, host), Literal(0.1, WEAK)))
    again = deserialize(serialize(program, {}), {})
    assert again == program
    assert again.consts[1].aval.weak_type


@given(permuted_programs())
def test_round_trip_with_permuted_variable_numbers(jaxpr: Jaxpr) -> None:
    assert read(write(jaxpr)) == jaxpr


# ------------------------------------------------------------------ sharing


def test_shared_sub_jaxpr_is_written_once() -> None:
    body = chain(50)
    p = Program(VECTOR)
    (x,) = p(Call("f", body), *p.invars)
    once = len(write(p.returns(x)))
    for _ in range(10):
        (x,) = p(Call("f", body), *p(Switch((body, body)), x))
    data = write(p.returns(x))
    assert len(data) < once + 300
    bodies = {id(j) for eqn in read(data).eqns for j in getattr(eqn.prim, "jaxprs")()}  # noqa: B009  # all of them have
    assert len(bodies) == 1


def test_nested_shared_sub_jaxprs_have_linear_size() -> None:
    body = nested_calls(chain(1))
    data = write(body)
    assert len(data) < 4000
    assert read(data) == body


def test_equal_primitives_are_written_once() -> None:
    long = "a long parameter" * 5
    p = Program(VECTOR)
    (x,) = p(Scale(long), *p.invars)
    once = len(write(p.returns(x)))
    for _ in range(100):
        (x,) = p(Scale(long), x)
    assert len(write(p.returns(x))) < once + 100 * 12


def test_bytes_are_deterministic_across_processes() -> None:
    script = (
        "from tests.core.test_serialization import *\n"
        "many = Many(things=frozenset({'a', 'b', ('c', 1), None, 2.5}), dims=Dims((1,)))\n"
        "print(write(program_with(many)).hex())"
    )
    assert output_of(script, PYTHONHASHSEED="1") == output_of(script, PYTHONHASHSEED="2")


# ------------------------------------------------------------------ provenance


def test_source_locations_are_optional() -> None:
    location = SourceLocation("model.py", 12, "Model.forward", ("encoder", "layer 1"))
    (eqn,) = chain(1).eqns
    jaxpr = Jaxpr((), chain(1).invars, (Eqn(eqn.prim, eqn.inputs, eqn.outs, location),), chain(1).outs)
    program = closed(jaxpr)
    data = serialize(program, VOCABULARY, provenance=True)
    assert deserialize(data, VOCABULARY).eqns[0].source == location
    assert b"model.py" in data
    without = serialize(program, VOCABULARY)
    assert deserialize(without, VOCABULARY).eqns[0].source is None
    assert b"model.py" not in without


# ------------------------------------------------------------------ unsupported programs


def test_function_parameters_raise_with_their_equation() -> None:
    def rule() -> None: ...

    location = SourceLocation("model.py", 12, "forward")
    body = program_with(Custom(rule))
    body = Jaxpr((), body.invars, tuple([Eqn(e.prim, e.inputs, e.outs, location) for e in body.eqns]), body.outs)
    p = Program(VECTOR)
    (x,) = p(Sin(), *p.invars)
    with pytest.raises(SerializationError) as caught:
        write(p.returns(*p(Call("f", body), x)))
    text = str(caught.value)
    assert text.startswith("equation 0 of 1 at model.py:12 (forward) can't be serialized: Custom.rule: ")
    assert "it is the function test_function_parameters_raise_with_their_equation.<locals>.rule" in text
    assert "b:f32[3] = custom[rule=<" in text.splitlines()[1]
    assert isinstance(caught.value, TypeError)


class Rare(Flag):
    A = 1
    B = 2


@frozen(eq=False)
class Typed(SameTypes):
    name = "typed"
    axis: Hashable = None
    count: int = 0
    rare: Rare = Rare.A
    pairs: tuple[tuple[int, int], ...] = ()
    names: frozenset[str] | None = None


@pytest.mark.parametrize(
    ("prim", "message"),
    [
        (Scale(range(3)), r"Scale.factor: it is range\(0, 3\) of type builtins.range, which can't be serialized"),
        (Scale(np.float32(1)), "of type numpy.float32, which can't be serialized"),
        (Scale((1, Mode.CLIP)), "it holds a tests.core.programs.Mode, which the field's annotation <class 'object'>"),
        (Typed(axis=Dims(())), "it holds a tests.core.programs.Dims, which the field's annotation"),
        (Typed(count=True), "Typed.count: it is True, which its annotation <class 'int'> does not allow"),
        (untyped(Typed)(pairs=((1, 2, 3),)), "Typed.pairs: it is .*, which its annotation .* does not allow"),
        (Typed(rare=Rare(0)), "<Rare: 0> is not a named member"),
        (Typed(names=frozenset(map(str, range(1025)))), "it is a set of 1025 elements; there may be 1024"),
    ],
)
def test_unsupported_parameters_raise(prim: Primitive, message: str) -> None:
    with pytest.raises(SerializationError, match=message):
        write(program_with(prim))


def test_fields_that_match_their_annotations() -> None:
    prim = Typed(("i", 1), 3, Rare.B, ((1, 2), (3, 4)), frozenset({"x"}))
    assert deserialize(write(program_with(prim)), {"typed": Typed}).eqns[0].prim == prim


def test_primitive_with_the_name_of_another_raises() -> None:
    class Sine(SameTypes):
        name = "sin"

    with pytest.raises(SerializationError, match="Sine has the name 'sin' of tracefx's own Sin"):
        write(program_with(Sine()))


def test_depth_limit_of_parameters() -> None:
    value: object = ()
    for _ in range(99):
        value = (value,)
    assert read(write(program_with(Scale(value)))) == program_with(Scale(value))
    with pytest.raises(SerializationError, match="values are nested more than 100 deep"):
        write(program_with(Scale((value,))))


def test_nesting_limit_of_sub_jaxprs() -> None:
    body = chain(1)
    for _ in range(199):
        p = Program(VECTOR)
        body = p.returns(*p(Call("f", body), *p.invars))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)  # for the other functions in this test
    try:
        again = read(write(body))
        assert again == body
        p = Program(VECTOR)
        with pytest.raises(SerializationError, match="programs are nested 201 deep; at most 200"):
            write(p.returns(*p(Call("f", body), *p.invars)))
    finally:
        sys.setrecursionlimit(limit)


def test_invalid_array_types_raise() -> None:
    with pytest.raises(SerializationError, match="arrays have up to 64 axes"):
        write(Program(ShapedArray((1,) * 65, dtypes.float32)).returns())
    with pytest.raises(SerializationError, match="arrays have up to 64 axes of at most"):
        write(Program(ShapedArray((2**63,), dtypes.float32)).returns())


def test_ill_typed_programs_raise() -> None:
    with pytest.raises(JaxprTypeError, match="bound nowhere before"):
        write(Jaxpr((), (), (), (Var(0, VECTOR),)))
    with pytest.raises(TypeError, match="serialize takes a ClosedJaxpr, as make_jaxpr returns, got Jaxpr"):
        untyped(serialize)(chain(1), {})


def test_fields_without_eq_and_repr_are_serialized() -> None:
    @frozen(eq=False)
    class Hidden(SameTypes):
        name = "hidden"
        note: str = field(eq=False, repr=False)

    (eqn,) = deserialize(write(program_with(Hidden("kept"))), {"hidden": Hidden}).eqns
    assert getattr(eqn.prim, "note") == "kept"  # noqa: B009  # a class of this test's
    with pytest.raises(ParseError, match="no primitive is named 'hidden'"):
        read(write(program_with(Hidden(""))))
    with pytest.raises(TypeError, match=r"custom primitives are given by their classes, .* got Hidden\(\)"):
        untyped(fx.programs.deserialize)(b"", Hidden("kept"))


def test_input_types_of_deserialize() -> None:
    data = write(chain(1))
    for kind in (bytes, bytearray, memoryview):
        assert deserialize(kind(data), VOCABULARY).jaxpr == chain(1)
    with pytest.raises(TypeError, match="a serialized program is read from bytes, got str; read the file first"):
        untyped(deserialize)("program", VOCABULARY)


def test_limit_of_integers_beyond_64_bits() -> None:
    many = tuple([2**70 + i for i in range(64)])
    assert read(write(program_with(Scale(many)))) == program_with(Scale(many))
    p = Program(VECTOR)
    for _ in range(100):
        p(Scale(2**70), *p.invars)  # one shared primitive
    assert read(write(p.returns())) == p.returns()
    with pytest.raises(SerializationError, match="operations hold more than 64 integers beyond 64 bits"):
        write(program_with(Scale((*many, 2**70))))
    p = Program()
    literals = [Literal(2**64 - 1 - i, ShapedArray((), dtypes.uint64)) for i in range(200)]
    assert read(write(p.returns(*literals))) == p.returns(*literals)  # literals are not counted
