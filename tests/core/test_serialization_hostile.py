"""Bytes from anyone: a program, or a ParseError, within bounded time and memory. Never anything else."""

from __future__ import annotations

import functools
import tracemalloc
from collections.abc import Callable
from typing import Final

import numpy as np
import pytest
from attrs import frozen
from hypothesis import example, given
from hypothesis import strategies as st
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tests.core.programs import VECTOR, VOCABULARY, Program, Scale, chain, programs
from tests.core.test_serialization import applying, closed
from tests.laws.samples import SAMPLES
from tracefx.core import dtypes
from tracefx.core.avals import ShapedArray
from tracefx.core.effects import Effects
from tracefx.core.jaxpr import ClosedJaxpr, Jaxpr
from tracefx.core.primitive import Primitive
from tracefx.errors import ParseError
from tracefx.programs import check_jaxpr
from tracefx.programs import deserialize as deserialize_own
from tracefx.programs import serialize as serialize_own
from tracefx.serialization import deserialize, serialize
from tracefx.serialization.byte_format import encode_envelope, put_string, put_uint
from tracefx.serialization.program_format import PROGRAM_MAGIC, PROGRAM_VERSION, Tag

HEAD: Final = 26
CHECKSUM: Final = 4
BASE: Final = 200_000
"""Bytes that reading anything may take: caches of annotations, messages."""
EACH: Final = 5_000
"""Bytes that reading a byte may take at most."""


def content(data: bytes) -> bytes:
    return data[HEAD:-CHECKSUM]


def as_file(data: bytes) -> bytes:
    """A file that is whole and has the right checksum, of any content."""
    return encode_envelope(PROGRAM_MAGIC, PROGRAM_VERSION, data)


def uint(n: int) -> bytes:
    out = bytearray()
    put_uint(out, n)
    return bytes(out)


def string(text: str) -> bytes:
    out = bytearray()
    put_string(out, text)
    return bytes(out)


HUGE: Final = uint(2**60)


def program_or_error(data: bytes, read: Callable[[bytes], ClosedJaxpr], write: Callable[[ClosedJaxpr], bytes]) -> None:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        try:
            found = read(data)
        except ParseError:
            return
        finally:
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < BASE + EACH * len(data)
        check_jaxpr(found)
        assert read(write(found)) == found
    finally:
        tracemalloc.stop()


def of_tests(data: bytes) -> None:
    program_or_error(data, lambda d: deserialize(d, VOCABULARY), lambda p: serialize(p, VOCABULARY))


def of_own(data: bytes) -> None:
    program_or_error(data, deserialize_own, serialize_own)


# ------------------------------------------------------------------ programs, damaged


def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Bits flipped, bytes removed or put in, numbers made huge."""
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 4)):
            case 0 if at < len(data):
                data = data[:at] + bytes([data[at] ^ 1 << draw(st.integers(0, 7))]) + data[at + 1 :]
            case 1:
                data = data[:at] + data[at + draw(st.integers(1, 5)) :]
            case 2:
                data = data[:at] + draw(st.binary(min_size=1, max_size=4)) + data[at:]
            case 3:
                data = data[:at] + HUGE + data[at + 1 :]
            case _:
                data = data[:at]
    return data


@given(st.data(), programs())
def test_damaged_programs(data: st.DataObject, jaxpr: Jaxpr) -> None:
    whole = content(serialize(closed(jaxpr), VOCABULARY))
    of_tests(as_file(st.composite(damaged)(whole).do_draw(data.conjecture_data)))


@functools.cache
def own() -> tuple[bytes, ...]:
    """The content of programs of every operation, and of control flow."""
    found = [
        fx.make_jaxpr(sample.within or functools.partial(fx.bind, sample.prim))(*sample.operands[0])
        for samples in SAMPLES.values()
        for sample in samples
    ]
    x = np.ones(3, np.float32)
    found += [
        fx.make_jaxpr(lambda c, xs: fx.lax.scan(lambda c, x: (c * x, (c, c > x)), c, xs))(np.float32(1), x),
        fx.make_jaxpr(lambda p, x: fx.lax.cond(p, lambda x: fx.jit(fnp.sin)(x), lambda x: x * x, x))(True, x),
        fx.make_jaxpr(lambda x: fx.lax.while_loop(lambda x: x < 3, lambda x: x + 1, x, max_steps=5))(1.0),
        fx.make_jaxpr(fx.grad(lambda x: fx.checkpoint(fnp.tanh)(x * np.arange(3.0, dtype=np.float32)).sum()))(x),
    ]
    return tuple([content(serialize_own(program)) for program in found])


@given(st.data(), st.integers(0, 10_000))
def test_damaged_programs_of_own_operations(data: st.DataObject, which: int) -> None:
    whole = own()[which % len(own())]
    of_own(as_file(st.composite(damaged)(whole).do_draw(data.conjecture_data)))


@given(st.binary(max_size=200))
@example(b"")
@example(b"\x80" * 20)
@example(b"\xff" * 200)
def test_random_content(data: bytes) -> None:
    of_own(as_file(data))
    with pytest.raises(ParseError):
        deserialize_own(data)


def test_huge_numbers_anywhere() -> None:
    for whole in own()[::9]:
        for at in range(len(whole)):
            of_own(as_file(whole[:at] + HUGE + whole[at + 1 :]))


@given(st.integers(0, 10_000), st.integers(0, 7))
def test_a_flipped_bit_is_found(at: int, bit: int) -> None:
    data = bytearray(serialize(closed(chain(3)), VOCABULARY))
    data[at % len(data)] ^= 1 << bit
    with pytest.raises(ParseError):
        deserialize(data, VOCABULARY)


def test_every_beginning_of_a_file() -> None:
    data = serialize(closed(chain(3)), VOCABULARY)
    for end in range(len(data)):
        with pytest.raises(ParseError, match="is cut off|begins with"):
            deserialize(data[:end], VOCABULARY)
    with pytest.raises(ParseError, match="has something after it"):
        deserialize(data + b"\0", VOCABULARY)
    whole = content(data)
    for end in range(len(whole)):
        with pytest.raises(ParseError):
            deserialize(as_file(whole[:end]), VOCABULARY)
    with pytest.raises(ParseError, match="byte .*: 1 bytes are left over"):
        deserialize(as_file(whole + b"\0"), VOCABULARY)


def test_other_versions() -> None:
    whole = content(serialize(closed(chain(1)), VOCABULARY))
    with pytest.raises(ParseError, match="is of version 2 of the format, but this tracefx reads version 1"):
        deserialize(encode_envelope(PROGRAM_MAGIC, 2, whole), VOCABULARY)


# ------------------------------------------------------------------ programs written by hand


def type_(dtype: str, *shape: int, weak: int = 0) -> bytes:
    return string(dtype) + bytes([weak]) + uint(len(shape)) + b"".join(map(uint, shape))


def file(*parts: bytes, types: tuple[bytes, ...] = (type_("float32", 3),), consts: bytes = b"\0") -> bytes:
    """A file of these types and programs, without places."""
    return as_file(uint(len(types)) + b"".join(types) + b"\0" + uint(len(parts)) + b"".join(parts) + consts)


def unary(operation: bytes) -> bytes:
    """The program of one equation, of one operand and one output of the first type."""
    return b"\0" + b"\0" + b"\1\0" + b"\1" + operation + b"\1\1" + b"\1\0" + b"\0" + b"\1\2"


def op(name: str, **fields: bytes) -> bytes:
    return b"\0" + string(name) + uint(len(fields)) + b"".join([string(k) + v for k, v in fields.items()])


def text(value: str) -> bytes:
    return bytes([Tag.STRING]) + string(value)


def test_a_program_written_by_hand() -> None:
    assert deserialize(file(unary(op("sin"))), VOCABULARY).jaxpr == chain(1)
    assert file(unary(op("sin"))) == serialize(closed(chain(1)), VOCABULARY)


INT: Final = bytes([Tag.INT, 6])
DEEP: Final = (bytes([Tag.TUPLE]) + b"\1") * 10_000
WRONG: Final = [
    (op("nothing"), "no primitive is named 'nothing'"),
    (op("scale"), "Scale needs factor"),
    (op("scale", fact=INT), "Scale has no field 'fact'; its fields are factor"),
    (op("scale", factor=b"\x14"), "there is no value tag with the number 20"),
    (op("scale", factor=DEEP), "values are nested more than 100 deep"),
    (
        op("scale", factor=(b"\x0f" + op("scale")[1:-1] + b"\1" + string("factor")) * 5000),
        "values are nested more than 100",
    ),
    (op("scale", factor=bytes([Tag.TUPLE]) + HUGE), f"{2**60} values can't fit in the"),
    (op("scale", factor=bytes([Tag.STRING]) + HUGE), f"a string of {2**60} bytes can't fit"),
    (op("scale", factor=bytes([Tag.LONG]) + HUGE), f"an integer of {2**60} bytes can't fit"),
    (op("scale", factor=bytes([Tag.STRING, 1, 0xFF])), "a string is not UTF-8"),
    (op("scale", factor=bytes([Tag.INT]) + b"\xff" * 12), "a number has more than 64 bits"),
    (op("scale", factor=bytes([Tag.INT]) + b"\xff" * 9 + b"\x02"), "a number has more than 64 bits"),
    (op("scale", factor=bytes([Tag.DTYPE]) + string("object")), "'object' names no dtype"),
    (op("scale", factor=bytes([Tag.TYPE, 1])), "there is no type 1: there are 1"),
    (op("scale", factor=bytes([Tag.PROGRAM, 0])), "there is no program before this one, 0: there are 0"),
    (op("scale", factor=bytes([Tag.SET, 2]) + 2 * INT), "elements of a set are equal"),
    (op("scale", factor=bytes([Tag.SET]) + uint(1025) + 1025 * INT), "a set has 1025 elements; there may be 1024"),
    (op("scale", factor=bytes([Tag.RECORD]) + string("Dims")), "no class called 'Dims' is named in the annotation"),
    (op("scale", factor=bytes([Tag.RECORD]) + string("Popen")), "no class called 'Popen' is named in the annotation"),
    (op("scale", factor=bytes([Tag.LITERAL]) + text("x") + b"\0"), "a literal must be a number, not a str"),
    (op("scale", factor=bytes([Tag.LITERAL]) + INT + b"\0"), "a literal has the type f32[3], but literals are scalars"),
    (op("many", mode=bytes([Tag.MEMBER]) + string("Mode") + string("NONE")), "Mode has no member 'NONE'"),
    (op("many", mode=bytes([Tag.MEMBER]) + string("Mode") + string("__init__")), "Mode has no member '__init__'"),
    (op("many", mode=bytes([Tag.RECORD]) + string("Mode") + b"\0"), "Mode has members, not fields"),
    (op("many", dims=bytes([Tag.RECORD]) + string("Dims") + b"\0"), "Dims needs lhs"),
    (op("many", dims=bytes([Tag.RECORD]) + string("Dims") + b"\1" + string("lhs") + INT), "Dims.lhs can't be a int"),
    (op("scale", factor=bytes([Tag.TREE, 7])), "there is no container kind with the number 7"),
    (op("scale", factor=bytes([Tag.TREE, 2]) + HUGE), f"{2**60} children can't fit in the"),
    (op("scale", factor=bytes([Tag.TREE]) + b"\x02\x01" * 200 + b"\0"), "containers are nested more than 100 deep"),
    (op("scale", factor=bytes([Tag.TREE, 4, 2]) + text("b") + text("a") + b"\0\0"), "are not in their order"),
    (op("scale", factor=bytes([Tag.TREE, 4, 2]) + text("a") + INT + b"\0\0"), "have no order"),
    (op("scale", factor=bytes([Tag.TREE, 4, 1, Tag.DTYPE])), "there is no plain value tag with the number 9"),
    (
        op("scale", factor=bytes([Tag.TREE, 5, 1]) + string("os.stat_result") + b"\0"),
        "there is no named tuple os.stat_r",
    ),
    (op("scale", factor=bytes([Tag.TREE, 5, 1]) + string("pwd.getpwall") + b"\0"), "there is no named tuple pwd.getpw"),
    (op("scale", factor=bytes([Tag.TREE, 6, 1]) + string("builtins.int") + b"\0\0"), "builtins.int is not registered"),
    (op("many", dims=INT), "Many.dims can't be a int such as this one: it is tests.core.programs.Dims | None"),
    (op("many", text=INT), "Many.text can't be a int"),
    (op("many", dtype=text("float32")), "Many.dtype can't be a str"),
    (op("jit", label=text("f"), jaxpr=INT), "Call.jaxpr can't be a int such as this one"),
    (op("cond", branches=bytes([Tag.TUPLE, 1]) + INT), "Switch.branches can't be a tuple such as this one"),
    (op("cond", branches=bytes([Tag.TUPLE, 0])), "cond doesn't take these operands: IndexError"),
    (op("log to file", message=text("")), "log to file has 0 outputs, but 1 variables take them"),
    (b"\1", "there is no operation 1: there are 1"),
]


@pytest.mark.parametrize(("operation", "message"), WRONG, ids=[f"{i}" for i in range(len(WRONG))])
def test_operations_that_are_wrong(operation: bytes, message: str) -> None:
    data = file(unary(operation))
    of_tests(data)
    with pytest.raises(ParseError, match=r"^a serialized program, byte \d+: ") as caught:
        deserialize(data, VOCABULARY)
    assert message in str(caught.value)


def test_fields_given_twice() -> None:
    twice = b"\0" + string("scale") + b"\2" + 2 * (string("factor") + INT)
    with pytest.raises(ParseError, match="Scale.factor is given twice"):
        deserialize(file(unary(twice)), VOCABULARY)


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ((type_("float31"),), "'float31' names no dtype"),
        ((type_("float32", weak=2),), "whether a type is weak must be 0 or 1, not 2"),
        ((type_("float32", *(1,) * 65),), "a type has 65 axes; there may be 64"),
        ((type_("float32", 2**63),), f"there is no size {2**63}"),
        ((string("float32") + b"\0" + HUGE,), f"{2**60} axes can't fit in the"),
    ],
)
def test_types_that_are_wrong(types: tuple[bytes, ...], message: str) -> None:
    with pytest.raises(ParseError, match=message):
        deserialize(file(unary(op("sin")), types=types), VOCABULARY)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (b"", "there is no program"),
        (b"\2", "whether variables have numbers must be 0 or 1"),
        (b"\0" + HUGE, f"{2**60} constants can't fit"),
        (b"\0\0\1\7", "there is no type 7: there are 3"),
        (b"\0\0\0\0\1\1", "there is no variable 1: there are 1"),
        (b"\1\0\2\0\0\0\0" + b"\0\0", "binds variable a .number 0., which is bound already"),
        (b"\1\0\2\0\0\0\0" + b"\0\2", "there is no variable 2: there are 2"),
        (b"\0\0\1\0\1" + op("sin") + b"\1\2", "there is no variable 2: there are 2"),
        (b"\0\0\1\0\1" + op("sin") + b"\1\1\1\0\3", "there is no place 3: there are 1"),
        (b"\0\0\1\0\1" + op("sin") + b"\0\1\0\0\0", "sin doesn't take these operands: ValueError"),
        (b"\0\0\0\0\1\0" + bytes([Tag.TRUE]) + b"\0", "but literals are scalars"),
        (b"\0\0\0\0\1\0" + bytes([Tag.INT]) + uint(2 * 300) + b"\1", "a int is not a literal of type i8"),
        (b"\0\0\0\0\1\0" + bytes([Tag.FLOAT]) + b"\0" * 6 + b"\xf8\x3f" + b"\1", "which stores it as 1"),
        (b"\0\0\0\0\1\0" + bytes([Tag.COMPLEX]) + b"\0" * 16 + b"\2", "a complex is not a literal of type f32"),
        (b"\0\0\0\0\1\0" + bytes([Tag.NONE]) + b"\2", "a literal must be a number, not a NoneType"),
    ],
)
def test_programs_that_are_wrong(program: bytes, message: str) -> None:
    parts = (program,) if program else ()
    types = (type_("float32", 3), type_("int8"), type_("float32"))
    with pytest.raises(ParseError, match=message):
        deserialize(file(*parts, types=types), VOCABULARY)


@pytest.mark.parametrize(
    ("aval", "data", "message"),
    [
        (type_("float32", 2**40), b"", f"an array of type f32.{2**40}. of {2**42} bytes can't fit in the 0 bytes"),
        (type_("float32", 0, 2**62), b"", "there is no array of type"),
        (type_("bool", 2), b"\1\2", "a truth value is neither 0 nor 1"),
        (type_("int4", 3), b"\x11\x11", "bits after the last element are set"),
        (type_("uint2", 1), b"\x04", "bits after the last element are set"),
        (type_("float32", 2), b"\0" * 8 + b"\1", "1 bytes are left over"),
    ],
)
def test_constants_that_are_wrong(aval: bytes, data: bytes, message: str) -> None:
    program = b"\0\1\0\0\0\0"
    with pytest.raises(ParseError, match=message):
        deserialize(file(program, types=(aval,), consts=b"\1\1\0" + data), VOCABULARY)


def test_constants_that_fit_no_variable() -> None:
    with pytest.raises(ParseError, match="the constants do not fit: the program's constants have the types"):
        deserialize(file(b"\0\1\0\0\0\0"), VOCABULARY)
    types = (type_("float32", 1), type_("float32", 1, weak=1))
    with pytest.raises(ParseError, match="the constants do not fit"):
        deserialize(file(b"\0\1\0\0\0\0", types=types, consts=b"\1\1\1" + b"\0" * 4), VOCABULARY)


def test_numbers_without_bytes_are_as_many_as_one_likes() -> None:
    types = (type_("float0", 2**40),)
    (const,) = deserialize(file(b"\0\1\0\0\0\1\1", types=types, consts=b"\1\1\0"), VOCABULARY).consts
    assert const.aval == ShapedArray((2**40,), dtypes.float0)


def test_a_chain_of_programs() -> None:
    def call(k: int) -> bytes:
        return unary(op("jit", label=text("f"), jaxpr=bytes([Tag.PROGRAM]) + uint(k)))

    def nested(count: int) -> bytes:
        return file(unary(op("sin")), *map(call, range(count - 1)))

    assert len(deserialize(nested(200), VOCABULARY).eqns) == 1
    for count in (201, 5000):
        with pytest.raises(ParseError, match="programs are nested more than 200 deep"):
            deserialize(nested(count), VOCABULARY)


def test_nesting_counts_through_operations_used_again() -> None:
    def calls(k: int) -> bytes:
        """Two calls of program `k`, the second by the number of the first's operation."""
        first = op("jit", label=text("f"), jaxpr=bytes([Tag.PROGRAM]) + uint(k))
        again = uint(k + 2)  # `sin` is the first operation, then come the calls
        equations = b"\2" + first + b"\1\1\1\0\0" + again + b"\1\2\1\0\0"
        return b"\0\0\1\0" + equations + b"\1\3"

    assert len(deserialize(file(unary(op("sin")), *map(calls, range(199))), VOCABULARY).eqns) == 2
    with pytest.raises(ParseError, match="programs are nested more than 200 deep"):
        deserialize(file(unary(op("sin")), *map(calls, range(200))), VOCABULARY)


def test_long_operations_are_not_for_several_equations() -> None:
    long = op("scale", factor=text("x" * 300))
    program = b"\0\0\1\0\2" + long + b"\1\1\1\0\0" + b"\1" + b"\1\1\1\0\0" + b"\0"
    with pytest.raises(ParseError, match="there is no operation 1: there are 1"):
        deserialize(file(program), VOCABULARY)
    p = Program(VECTOR)
    for _ in range(3):
        p(Scale("x" * 300), *p.invars)
    assert deserialize(serialize(closed(p.returns()), VOCABULARY), VOCABULARY).jaxpr == p.returns()


def test_effects_are_bounded() -> None:
    def reduced(count: int) -> bytes:
        """Sums over so many named axes."""
        names = [bytes([Tag.TUPLE, 1]) + text(f"axis {i}") for i in range(count)]
        sizes = bytes([Tag.TUPLE, 1]) + INT
        equations = [op("psum", axes=name, axis_sizes=sizes) + b"\1\1\1\0\0" for name in names]
        return file(b"\0\0\1\0" + uint(count) + b"".join(equations) + b"\0")

    assert len(deserialize_own(reduced(64)).effects) == 64
    with pytest.raises(ParseError, match="a program has more than 64 effects"):
        deserialize_own(reduced(65))


def test_memory_where_little_says_much() -> None:
    wide = type_("float32", *(2**62,) * 64)
    inputs = uint(3000) + b"\0" * 3000
    body = b"\0\0" + inputs + b"\0\0"
    call = op("jit", label=text("f"), jaxpr=bytes([Tag.PROGRAM, 0])) + b"\1\1\0\0"  # one operand for 3000
    of_tests(file(body, b"\0\0\1\0\1" + call + b"\0", types=(wide,)))
    of_tests(file(body, types=(wide,)))
    literals = (b"\0" + bytes([Tag.TRUE]) + b"\0") * 3000
    of_tests(file(b"\0\0\0\0" + uint(3000) + literals, types=(type_("bool"),)))


def test_operations_of_others_may_fail_in_any_way() -> None:
    @frozen(eq=False)
    class Broken(Primitive):
        name = "scale"
        factor: object

        @property
        @override
        def effects(self) -> Effects:
            raise KeyError("effects")

    data = serialize(closed(applying(Scale(1))), VOCABULARY)
    with pytest.raises(ParseError, match="scale can't determine its effects: KeyError"):
        deserialize(data, {"scale": Broken})


def test_integers_beyond_64_bits_are_few() -> None:
    def long(k: int) -> bytes:
        """Those that Python takes longest to tell from each other: they have one hash."""
        n = (2**61 - 1) * k
        return bytes([Tag.LONG, 10]) + n.to_bytes(10, "little")

    def tuple_of(count: int) -> bytes:
        return bytes([Tag.TUPLE]) + uint(count) + b"".join(map(long, range(count)))

    assert len(deserialize(file(unary(op("scale", factor=tuple_of(64)))), VOCABULARY).eqns) == 1
    with pytest.raises(ParseError, match="operations hold more than 64 integers beyond 64 bits"):
        deserialize(file(unary(op("scale", factor=tuple_of(65)))), VOCABULARY)
    with pytest.raises(ParseError, match="operations hold more than 64 integers beyond 64 bits"):
        deserialize_own(file(unary(op("rev", dimensions=tuple_of(20_000)))))
