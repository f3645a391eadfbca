"""The serialization format: an independent reader, written from docs/serialization.md alone, reads the files."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tracefx.core import Literal
from tracefx.core.jaxpr import ClosedJaxpr, HasSubjaxprs, Jaxpr, Var
from tracefx.programs import deserialize, serialize

T = TypeVar("T")
FILES: Final = Path(__file__).parent / "files"


class ReferenceReader:
    """Reads a file into tuples, by the rules of docs/serialization.md."""

    def __init__(self, data: bytes, magic: bytes) -> None:
        assert data[:16] == magic
        assert struct.unpack("<H", data[16:18]) == (1,)
        (length,) = struct.unpack("<Q", data[18:26])
        assert len(data) == 26 + length + 4
        assert struct.unpack("<I", data[-4:]) == (zlib.crc32(data[:-4]),)
        self.data, self.at = data[26:-4], 0
        self.types: list[tuple[str, int, list[int], list[str]]] = []
        self.operations: list[Any] = []

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def take(self, n: int) -> bytes:
        self.at += n
        return self.data[self.at - n : self.at]

    def uint(self) -> int:
        n = shift = 0
        while (byte := self.byte()) & 0x80:
            n |= (byte & 0x7F) << shift
            shift += 7
        return n | byte << shift

    def string(self) -> str:
        return self.take(self.uint()).decode("utf-8", "surrogatepass")

    def some(self, rule: Callable[[], T]) -> list[T]:
        return [rule() for _ in range(self.uint())]

    # -------------------------------------------------------------- programs

    def content(self) -> tuple[Any, ...]:
        self.types = self.some(self.type)
        locations = self.some(lambda: (self.string(), self.uint(), self.string(), self.some(self.string)))
        programs, constants = self.some(self.program), self.some(self.constant)
        assert self.at == len(self.data)
        return locations, programs, constants

    def type(self) -> tuple[str, int, list[int], list[str]]:
        name, flags, sizes = self.string(), self.byte(), self.some(self.uint)
        return name, flags, sizes, self.some(self.string) if flags & 2 else []

    def program(self) -> tuple[Any, ...]:
        numbered = self.byte()
        constants, inputs = self.some(self.uint), self.some(self.uint)
        equations = self.some(self.equation)
        outputs = self.some(self.atom)
        count = len(constants) + len(inputs) + sum([len(outs) for _, _, outs, _ in equations])
        numbers = [self.uint() for _ in range(count)] if numbered else list(range(count))
        return constants, inputs, equations, outputs, numbers

    def equation(self) -> tuple[Any, ...]:
        return self.operation(), self.some(self.atom), self.some(self.uint), self.uint()

    def atom(self) -> Any:
        n = self.uint()
        return n - 1 if n else self.literal()

    def literal(self) -> tuple[Any, int]:
        return self.value(), self.uint()

    def operation(self) -> Any:
        n = self.uint()
        if n:
            return self.operations[n - 1]
        start = self.at
        definition = self.definition()
        if self.at - start <= 256:
            self.operations.append(definition)
        return definition

    def definition(self) -> tuple[str, dict[str, Any]]:
        return self.string(), dict(self.some(lambda: (self.string(), self.value())))

    def constant(self) -> Any:
        if self.byte() == 0:
            return self.literal()
        kind = self.uint()
        name, _, shape, _ = self.types[kind]
        bits = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4_e2m1fn": 4, "float0": 0}.get(name)
        size = int(np.prod(shape, dtype=np.int64))
        width = 8 * np.dtype(name).itemsize if bits is None else bits
        return kind, self.take(-(-size * width // 8))

    def value(self) -> Any:
        tag = self.byte()
        match tag:
            case 0 | 1 | 2:
                return (None, False, True)[tag]
            case 3:
                n = self.uint()
                return -(n + 1) // 2 if n % 2 else n // 2
            case 4:
                return int.from_bytes(self.take(self.uint()), "little", signed=True)
            case 5:
                return struct.unpack("<d", self.take(8))[0]
            case 6:
                return complex(*struct.unpack("<dd", self.take(16)))
            case 7 | 9:
                return self.string()
            case 8:
                return self.take(self.uint())
            case 10 | 11:
                return tuple(self.some(self.value))
            case 12 | 14:
                return ("program" if tag == 14 else "type", self.uint())
            case 13:
                return self.literal()
            case 15 | 16:
                return self.definition()
            case 17:
                return self.string(), self.string()
            case _:
                raise AssertionError(tag)

    # -------------------------------------------------------------- functions

    def function(self) -> tuple[Any, ...]:
        name, trees = self.string(), (self.tree(), self.tree())
        platforms, kept_inputs = self.some(self.string), self.some(self.uint)
        module, program = self.take(self.uint()), self.take(self.uint())
        assert self.at == len(self.data)
        return name, trees, platforms, kept_inputs, module, program

    def tree(self) -> Any:
        kind = self.byte()
        if kind < 2:
            return ("leaf", "none")[kind]
        n = self.uint()
        if kind in (2, 3):
            return (("tuple", "list")[kind - 2], [self.tree() for _ in range(n)])
        head = [self.value() for _ in range(n)] if kind == 4 else self.string()
        metadata = self.value() if kind == 6 else None
        return (["dict", "named", "custom"][kind - 4], head, metadata, [self.tree() for _ in range(n)])


def check(page: ReferenceReader, parsed: tuple[Any, ...], expected: Jaxpr, programs: list[Any]) -> None:
    """Asserts that the tuples describe the given program."""
    constants, inputs, equations, outputs, numbers = parsed
    bound: list[Var] = [*expected.constvars, *expected.invars, *[v for eqn in expected.eqns for v in eqn.outs]]
    assert [v.index for v in bound] == numbers
    assert (len(constants), len(inputs)) == (len(expected.constvars), len(expected.invars))

    def check_atom(read: Any, x: Var | Literal) -> None:
        if isinstance(x, Literal):
            assert repr(read[0]) == repr(x.val)
            check_type(read[1], x)
        else:
            assert bound[read] == x

    def check_type(number: int, x: Var | Literal) -> None:
        name, flags, shape, vma = page.types[number]
        assert ("float0" if x.aval.dtype.names else x.aval.dtype.name, x.aval.shape) == (name, tuple(shape))
        assert (x.aval.weak_type, sorted(x.aval.vma)) == (bool(flags & 1), vma)

    for number, v in zip([*constants, *inputs], bound, strict=False):
        check_type(number, v)
    for ((name, fields), operands, outs, _), eqn in zip(equations, expected.eqns, strict=True):
        assert name == eqn.prim.name
        for read, x in zip(operands, eqn.inputs, strict=True):
            check_atom(read, x)
        for number, v in zip(outs, eqn.outs, strict=True):
            check_type(number, v)
        if isinstance(eqn.prim, HasSubjaxprs):
            values = [v for value in fields.values() for v in (value if isinstance(value, tuple) else (value,))]
            flat = [*fields.values(), *values]
            found = [v[1] for v in flat if isinstance(v, tuple) and len(v) == 2 and v[0] == "program"]
            assert len(found) == len(eqn.prim.jaxprs())
    for read, x in zip(outputs, expected.outs, strict=True):
        check_atom(read, x)


def check_with_reference_reader(data: bytes) -> None:
    page = ReferenceReader(data, b"tracefx program\n")
    _, programs, constants = page.content()
    program = deserialize(data)
    check(page, programs[-1], program.jaxpr, programs)
    bodies: dict[int, Jaxpr] = {}
    todo = [program.jaxpr]
    while todo:
        for eqn in todo.pop().eqns:
            if isinstance(eqn.prim, HasSubjaxprs):
                todo += [body for body in eqn.prim.jaxprs() if id(body) not in bodies]
                bodies.update({id(body): body for body in eqn.prim.jaxprs()})
    assert len(programs) == 1 + len(bodies)
    assert len(constants) == len(program.consts)


def nested(x: fx.Array) -> fx.Array:
    inner = fx.jit(lambda y: fnp.tanh(y) * 2.5)
    carry, rows = fx.lax.scan(lambda c, _: (inner(c), inner(c) > 0), x, None, length=3)
    return fx.lax.cond(fnp.any(rows), lambda c: inner(c), lambda c: -c, carry) + np.arange(3, dtype=np.float32)


PROGRAMS: Final[dict[str, Callable[[], ClosedJaxpr]]] = {
    "nested": lambda: fx.make_jaxpr(nested)(fnp.ones(3)),
    "gradient": lambda: fx.make_jaxpr(fx.grad(lambda x: fnp.sum(nested(x))))(fnp.ones(3)),
    "small elements": lambda: fx.make_jaxpr(lambda: fnp.asarray(np.ones(5, bool)) & fnp.ones(5, "int4").astype(bool))(),
    "batch": lambda: fx.make_jaxpr(fx.vmap(lambda x: x[fnp.array([1, 0])]))(fnp.ones((2, 3))),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_reference_reader_reads_programs(name: str) -> None:
    check_with_reference_reader(serialize(PROGRAMS[name](), provenance=name == "nested"))


def test_reference_reader_reads_the_file_of_version_1() -> None:
    check_with_reference_reader((FILES / "program-1.bin").read_bytes())


def test_reference_reader_reads_exported_functions() -> None:
    f = fx.jit(lambda x, *, n: {"a": [x, None], "b": n})
    data = fx.export(f)(fnp.ones(2), n=1.0).serialize()
    name, (arguments, result), platforms, kept_inputs, module, program = ReferenceReader(
        data, b"tracefx exported"
    ).function()
    assert (name, platforms, kept_inputs) == ("<lambda>", ["cpu"], [0, 1])
    assert arguments == ("tuple", [("tuple", ["leaf"]), ("dict", ["n"], None, ["leaf"])])
    assert result == ("dict", ["a", "b"], None, [("list", ["leaf", "none"]), "leaf"])
    assert module[:4] == b"ML\xefR"
    check_with_reference_reader(program)
