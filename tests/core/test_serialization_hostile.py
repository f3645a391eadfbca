"""Untrusted bytes deserialize to a program or raise ParseError, within bounded time and memory."""

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
from tests.core.test_serialization import closed, program_with
from tests.laws.samples import SAMPLES
from tracefx.core import ShapedArray, dtypes
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
MAX_BASE_MEMORY: Final = 200_000
"""Memory in bytes that any read may use: caches of annotations, error messages."""
MAX_MEMORY_PER_BYTE: Final = 5_000
"""Memory in bytes that a read may use per byte of input."""


def content(data: bytes) -> bytes:
    return data[HEAD:-CHECKSUM]


def as_file(data: bytes) -> bytes:
    """Wraps any content in a file with a valid header and checksum."""
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


def check_program_or_error(
    data: bytes, read: Callable[[bytes], ClosedJaxpr], write: Callable[[ClosedJaxpr], bytes]
) -> None:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        try:
            program = read(data)
        except ParseError:
            return
        finally:
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < MAX_BASE_MEMORY + MAX_MEMORY_PER_BYTE * len(data)
        check_jaxpr(program)
        assert read(write(program)) == program
    finally:
        tracemalloc.stop()


def check_test_primitives(data: bytes) -> None:
    check_program_or_error(data, lambda d: deserialize(d, VOCABULARY), lambda p: serialize(p, VOCABULARY))


def check_own_primitives(data: bytes) -> None:
    check_program_or_error(data, deserialize_own, serialize_own)


# ------------------------------------------------------------------ damaged files


def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Draws damaged data: flipped bits, removed or inserted bytes, huge numbers."""
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
def test_damaged_files(data: st.DataObject, jaxpr: Jaxpr) -> None:
    whole = content(serialize(closed(jaxpr), VOCABULARY))
    check_test_primitives(as_file(st.composite(damaged)(whole).do_draw(data.conjecture_data)))


@functools.cache
def own_programs() -> tuple[bytes, ...]:
    """Returns the serialized content of programs with every primitive, and of control flow."""
    jaxprs = [
        fx.make_jaxpr(sample.within or functools.partial(fx.bind, sample.prim))(*sample.operands[0])
        for samples in SAMPLES.values()
        for sample in samples
    ]
    x = np.ones(3, np.float32)
    jaxprs += [
        fx.make_jaxpr(lambda c, xs: fx.lax.scan(lambda c, x: (c * x, (c, c > x)), c, xs))(np.float32(1), x),
        fx.make_jaxpr(lambda p, x: fx.lax.cond(p, lambda x: fx.jit(fnp.sin)(x), lambda x: x * x, x))(True, x),
        fx.make_jaxpr(lambda x: fx.lax.while_loop(lambda x: x < 3, lambda x: x + 1, x, max_steps=5))(1.0),
        fx.make_jaxpr(fx.grad(lambda x: fx.checkpoint(fnp.tanh)(x * np.arange(3.0, dtype=np.float32)).sum()))(x),
    ]
    return tuple([content(serialize_own(program)) for program in jaxprs])


@given(st.data(), st.integers(0, 10_000))
def test_damaged_files_of_own_primitives(data: st.DataObject, index: int) -> None:
    whole = own_programs()[index % len(own_programs())]
    check_own_primitives(as_file(st.composite(damaged)(whole).do_draw(data.conjecture_data)))


@given(st.binary(max_size=200))
@example(b"")
@example(b"\x80" * 20)
@example(b"\xff" * 200)
def test_random_content(data: bytes) -> None:
    check_own_primitives(as_file(data))
    with pytest.raises(ParseError):
        deserialize_own(data)


def test_huge_number_at_any_position() -> None:
    for whole in own_programs()[::9]:
        for at in range(len(whole)):
            check_own_primitives(as_file(whole[:at] + HUGE + whole[at + 1 :]))


@given(st.integers(0, 10_000), st.integers(0, 7))
def test_flipped_bit_is_detected(at: int, bit: int) -> None:
    data = bytearray(serialize(closed(chain(3)), VOCABULARY))
    data[at % len(data)] ^= 1 << bit
    with pytest.raises(ParseError):
        deserialize(data, VOCABULARY)


def test_truncated_files() -> None:
    data = serialize(closed(chain(3)), VOCABULARY)
    for end in range(len(data)):
        with pytest.raises(ParseError, match="is truncated|begins with"):
            deserialize(data[:end], VOCABULARY)
    with pytest.raises(ParseError, match="has extra bytes at the end"):
        deserialize(data + b"\0", VOCABULARY)
    whole = content(data)
    for end in range(len(whole)):
        with pytest.raises(ParseError):
            deserialize(as_file(whole[:end]), VOCABULARY)
    with pytest.raises(ParseError, match="byte .*: 1 bytes are left over"):
        deserialize(as_file(whole + b"\0"), VOCABULARY)


def test_other_format_versions() -> None:
    whole = content(serialize(closed(chain(1)), VOCABULARY))
    with pytest.raises(ParseError, match="is of version 2 of the format, but this tracefx reads version 1"):
        deserialize(encode_envelope(PROGRAM_MAGIC, 2, whole), VOCABULARY)


# ------------------------------------------------------------------ programs written by hand


def type_(dtype: str, *shape: int, weak: int = 0) -> bytes:
    return string(dtype) + bytes([weak]) + uint(len(shape)) + b"".join(map(uint, shape))


def file(*parts: bytes, types: tuple[bytes, ...] = (type_("float32", 3),), consts: bytes = b"\0") -> bytes:
    """Returns a file with these types and programs, without source locations."""
    return as_file(uint(len(types)) + b"".join(types) + b"\0" + uint(len(parts)) + b"".join(parts) + consts)


def unary(operation: bytes) -> bytes:
    """Returns a program of one equation, with one operand and one output of the first type."""
    return b"\0" + b"\0" + b"\1\0" + b"\1" + operation + b"\1\1" + b"\1\0" + b"\0" + b"\1\2"


def op(name: str, **fields: bytes) -> bytes:
    return b"\0" + string(name) + uint(len(fields)) + b"".join([string(k) + v for k, v in fields.items()])


def text(value: str) -> bytes:
    return bytes([Tag.STRING]) + string(value)


def test_handwritten_program() -> None:
    assert deserialize(file(unary(op("sin"))), VOCABULARY).jaxpr == chain(1)
    assert file(unary(op("sin"))) == serialize(closed(chain(1)), VOCABULARY)


INT: Final = bytes([Tag.INT, 6])
DEEP: Final = (bytes([Tag.TUPLE]) + b"\1") * 10_000
WRONG: Final = [
    (op("nothing"), "no primitive is named 'nothing'"),
    (op("scale"), "Scale needs factor"),
    (op("scale", fact=INT), "Scale has no field 'fact'; its fields are factor"),
    (op("scale", factor=b"\x7f"), "there is no value tag with the number 127"),
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
def test_invalid_primitives(operation: bytes, message: str) -> None:
    data = file(unary(operation))
    check_test_primitives(data)
    with pytest.raises(ParseError, match=r"^a serialized program, byte \d+: ") as caught:
        deserialize(data, VOCABULARY)
    assert message in str(caught.value)


def test_duplicate_fields() -> None:
    twice = b"\0" + string("scale") + b"\2" + 2 * (string("factor") + INT)
    with pytest.raises(ParseError, match="Scale.factor is given twice"):
        deserialize(file(unary(twice)), VOCABULARY)


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ((type_("float31"),), "'float31' names no dtype"),
        ((type_("float32", weak=16),), "the flags of a type must be 0 to 15, not 16"),
        ((type_("float32", weak=2) + HUGE,), f"{2**60} varying mesh axes can't fit in the"),
        ((type_("float32", *(1,) * 65),), "a type has 65 axes; there may be 64"),
        ((type_("float32", 2**63),), f"there is no size {2**63}"),
        ((string("float32") + b"\0" + HUGE,), f"{2**60} axes can't fit in the"),
    ],
)
def test_invalid_types(types: tuple[bytes, ...], message: str) -> None:
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
        (b"\0\0\1\0\1" + op("sin") + b"\1\1\1\0\3", "there is no location 3: there are 1"),
        (b"\0\0\1\0\1" + op("sin") + b"\0\1\0\0\0", "sin doesn't take these operands: ValueError"),
        (b"\0\0\0\0\1\0" + bytes([Tag.TRUE]) + b"\0", "but literals are scalars"),
        (b"\0\0\0\0\1\0" + bytes([Tag.INT]) + uint(2 * 300) + b"\1", "a int is not a literal of type i8"),
        (b"\0\0\0\0\1\0" + bytes([Tag.FLOAT]) + b"\0" * 6 + b"\xf8\x3f" + b"\1", "which stores it as 1"),
        (b"\0\0\0\0\1\0" + bytes([Tag.COMPLEX]) + b"\0" * 16 + b"\2", "a complex is not a literal of type f32"),
        (b"\0\0\0\0\1\0" + bytes([Tag.NONE]) + b"\2", "a literal must be a number, not a NoneType"),
    ],
)
def test_invalid_programs(program: bytes, message: str) -> None:
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
def test_invalid_constants(aval: bytes, data: bytes, message: str) -> None:
    program = b"\0\1\0\0\0\0"
    with pytest.raises(ParseError, match=message):
        deserialize(file(program, types=(aval,), consts=b"\1\1\0" + data), VOCABULARY)


def test_constants_that_match_no_variable() -> None:
    with pytest.raises(ParseError, match="the constants do not fit: the program's constants have the types"):
        deserialize(file(b"\0\1\0\0\0\0"), VOCABULARY)
    types = (type_("float32", 1), type_("float32", 1, weak=1))
    with pytest.raises(ParseError, match="the constants do not fit"):
        deserialize(file(b"\0\1\0\0\0\0", types=types, consts=b"\1\1\1" + b"\0" * 4), VOCABULARY)


def test_constants_without_bytes_may_have_any_size() -> None:
    types = (type_("float0", 2**40),)
    (const,) = deserialize(file(b"\0\1\0\0\0\1\1", types=types, consts=b"\1\1\0"), VOCABULARY).consts
    assert const.aval == ShapedArray((2**40,), dtypes.float0)


def test_nesting_limit() -> None:
    def call(k: int) -> bytes:
        return unary(op("jit", label=text("f"), jaxpr=bytes([Tag.PROGRAM]) + uint(k)))

    def nested(count: int) -> bytes:
        return file(unary(op("sin")), *map(call, range(count - 1)))

    assert len(deserialize(nested(200), VOCABULARY).eqns) == 1
    for count in (201, 5000):
        with pytest.raises(ParseError, match="programs are nested more than 200 deep"):
            deserialize(nested(count), VOCABULARY)


def test_nesting_limit_with_reused_primitives() -> None:
    def calls(k: int) -> bytes:
        """Returns two calls of program `k`; the second refers to the primitive of the first by its index."""
        first = op("jit", label=text("f"), jaxpr=bytes([Tag.PROGRAM]) + uint(k))
        again = uint(k + 2)  # `sin` has index 0, then the calls follow
        equations = b"\2" + first + b"\1\1\1\0\0" + again + b"\1\2\1\0\0"
        return b"\0\0\1\0" + equations + b"\1\3"

    assert len(deserialize(file(unary(op("sin")), *map(calls, range(199))), VOCABULARY).eqns) == 2
    with pytest.raises(ParseError, match="programs are nested more than 200 deep"):
        deserialize(file(unary(op("sin")), *map(calls, range(200))), VOCABULARY)


def test_long_primitives_are_not_shared_between_equations() -> None:
    long = op("scale", factor=text("x" * 300))
    program = b"\0\0\1\0\2" + long + b"\1\1\1\0\0" + b"\1" + b"\1\1\1\0\0" + b"\0"
    with pytest.raises(ParseError, match="there is no operation 1: there are 1"):
        deserialize(file(program), VOCABULARY)
    p = Program(VECTOR)
    for _ in range(3):
        p(Scale("x" * 300), *p.invars)
    assert deserialize(serialize(closed(p.returns()), VOCABULARY), VOCABULARY).jaxpr == p.returns()


def test_limit_of_effects() -> None:
    def reduced(count: int) -> bytes:
        """Returns a program of sums over `count` named axes."""
        names = [bytes([Tag.TUPLE, 1]) + text(f"axis {i}") for i in range(count)]
        sizes = bytes([Tag.TUPLE, 1]) + INT
        equations = [op("psum", axes=name, axis_sizes=sizes) + b"\1\1\1\0\0" for name in names]
        return file(b"\0\0\1\0" + uint(count) + b"".join(equations) + b"\0")

    assert len(deserialize_own(reduced(64)).effects) == 64
    with pytest.raises(ParseError, match="a program has more than 64 effects"):
        deserialize_own(reduced(65))


def test_memory_limit_with_compact_descriptions() -> None:
    wide = type_("float32", *(2**62,) * 64)
    inputs = uint(3000) + b"\0" * 3000
    body = b"\0\0" + inputs + b"\0\0"
    call = op("jit", label=text("f"), jaxpr=bytes([Tag.PROGRAM, 0])) + b"\1\1\0\0"  # one operand for 3000 inputs
    check_test_primitives(file(body, b"\0\0\1\0\1" + call + b"\0", types=(wide,)))
    check_test_primitives(file(body, types=(wide,)))
    literals = (b"\0" + bytes([Tag.TRUE]) + b"\0") * 3000
    check_test_primitives(file(b"\0\0\0\0" + uint(3000) + literals, types=(type_("bool"),)))


def test_errors_of_user_defined_primitives() -> None:
    @frozen(eq=False)
    class Broken(Primitive):
        name = "scale"
        factor: object

        @property
        @override
        def effects(self) -> Effects:
            raise KeyError("effects")

    data = serialize(closed(program_with(Scale(1))), VOCABULARY)
    with pytest.raises(ParseError, match="scale can't determine its effects: KeyError"):
        deserialize(data, {"scale": Broken})


def test_limit_of_integers_beyond_64_bits() -> None:
    def long(k: int) -> bytes:
        """Returns integers with equal hashes, the slowest ones to compare in a dictionary."""
        n = (2**61 - 1) * k
        return bytes([Tag.LONG, 10]) + n.to_bytes(10, "little")

    def tuple_of(count: int) -> bytes:
        return bytes([Tag.TUPLE]) + uint(count) + b"".join(map(long, range(count)))

    assert len(deserialize(file(unary(op("scale", factor=tuple_of(64)))), VOCABULARY).eqns) == 1
    with pytest.raises(ParseError, match="operations hold more than 64 integers beyond 64 bits"):
        deserialize(file(unary(op("scale", factor=tuple_of(65)))), VOCABULARY)
    with pytest.raises(ParseError, match="operations hold more than 64 integers beyond 64 bits"):
        deserialize_own(file(unary(op("rev", dimensions=tuple_of(20_000)))))
