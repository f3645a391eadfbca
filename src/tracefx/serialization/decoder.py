"""The decoder of serialized jaxprs. Input may come from untrusted sources."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeAlias, TypeVar, final

import numpy as np

from tracefx.core import ConcreteArray, DType, Literal, NDArray, Scalar, ShapedArray, Value, dtypes
from tracefx.core.avals import intern_aval
from tracefx.core.custom_text import CustomText
from tracefx.core.effects import Effect
from tracefx.core.host_memory import read_only_copy
from tracefx.core.jaxpr import Atom, ClosedJaxpr, Eqn, Jaxpr, Var
from tracefx.core.meshes import AbstractMesh, AxisType
from tracefx.core.primitive import Primitive, Vocabulary
from tracefx.core.type_sharding import TypeSharding, type_sharding
from tracefx.errors import JaxprTypeError
from tracefx.passes.check import check_jaxpr
from tracefx.serialization.byte_format import ByteReader, BytesLike, decode_envelope
from tracefx.serialization.dimensions import DimensionReader
from tracefx.serialization.program_format import (
    MAX_AXES,
    MAX_BIG_INTS,
    MAX_EFFECTS,
    MAX_NESTING,
    MAX_SET_SIZE,
    MAX_SHARED_BYTES,
    MAX_VALUE_DEPTH,
    PROGRAM_DESCRIPTION,
    PROGRAM_MAGIC,
    PROGRAM_VERSION,
    SIZE_LIMIT,
    Tag,
    packed_bits,
    read_scalar,
    unpack,
)
from tracefx.serialization.trees import read_tree
from tracefx.source_location import SourceLocation
from tracefx.text.field_annotations import AnnotationResolver, matches_annotation
from tracefx.text.printer import DTYPES_BY_NAME

T = TypeVar("T")


def deserialize(data: BytesLike, vocabulary: Vocabulary) -> ClosedJaxpr:
    """Deserializes a jaxpr with its constants. Time and memory are bounded in terms of the number of bytes.

    Args:
        data: The bytes.
        vocabulary: The primitive classes by name.

    Raises:
        ParseError: If the bytes are malformed, or the program is not well formed.
    """
    return _Decoder(decode_envelope(data, PROGRAM_MAGIC, PROGRAM_VERSION, PROGRAM_DESCRIPTION), vocabulary).decode()


_OperandCode: TypeAlias = int | Literal


@final
class _Decoder:
    """Reads the rules of the grammar, each by the method of the same name."""

    def __init__(self, reader: ByteReader, vocabulary: Vocabulary) -> None:
        self.reader = reader
        self.vocabulary = vocabulary
        self.classes = AnnotationResolver()
        self.dimensions = DimensionReader(reader)
        self.types: list[ShapedArray] = []
        self.locations: list[SourceLocation] = []
        self.programs: list[Jaxpr] = []
        self.nestings: list[int] = []
        self.nesting = 0
        """The nesting depth of the sub-jaxprs in the jaxpr being read."""
        self.reach = 0
        """The nesting depth of the sub-jaxprs in the primitive being read."""
        self.operations: list[tuple[Primitive, int]] = []
        self.depth = 0
        self.longs = 0
        self.readers: dict[int, Callable[[object], object]] = {
            Tag.DTYPE: lambda hint: self.dtype(),
            Tag.TUPLE: lambda hint: tuple([self.value(hint) for _ in range(reader.count("values"))]),
            Tag.SET: self.elements,
            Tag.TYPE: lambda hint: self.aval(),
            Tag.LITERAL: lambda hint: self.literal(),
            Tag.PROGRAM: lambda hint: self.program_before(),
            Tag.OPERATION: lambda hint: self.operation(),
            Tag.RECORD: self.record,
            Tag.MEMBER: self.member,
            Tag.SHOWN: self.shown,
            Tag.TREE: lambda hint: read_tree(reader),
            Tag.DIMENSION: lambda hint: self.dimensions.dimension(),
        }

    def decode(self) -> ClosedJaxpr:
        reader = self.reader
        for _ in range(reader.count("types")):
            self.types.append(self.type_definition())
        for _ in range(reader.count("locations")):
            self.locations.append(self.location_definition())
        count = reader.count("programs")
        if count == 0:
            reader.fail("there is no program")
        for i in range(count):
            self.nesting = 0
            program = self.program()
            if 1 + self.nesting > MAX_NESTING:
                reader.fail(f"programs are nested more than {MAX_NESTING} deep")
            self.checked(program, f"program {i} of {count} is not well formed")
            self.programs.append(program)
            self.nestings.append(1 + self.nesting)
        consts = tuple([self.constant() for _ in range(reader.count("constants"))])
        reader.done()
        closed = ClosedJaxpr(self.programs[-1], consts)
        self.checked(closed, "the constants do not fit")
        return closed

    def checked(self, program: Jaxpr | ClosedJaxpr, problem: str) -> None:
        """Fails unless a program is well formed."""
        try:
            check_jaxpr(program)
        except JaxprTypeError as error:
            self.reader.fail(f"{problem}: {error}", error)
        except Exception as error:  # user-defined primitives may raise any exception
            self.reader.fail(f"{problem}: {type(error).__name__}: {error}", error)

    def type_definition(self) -> ShapedArray:
        reader = self.reader
        dtype = self.dtype()
        flags = reader.byte()
        if flags > 15:
            reader.fail(f"the flags of a type must be 0 to 15, not {flags}")
        symbolic = bool(flags & 4)
        if symbolic:
            self.dimensions.constraints()
        ndim = reader.count("axes")
        if ndim > MAX_AXES:
            reader.fail(f"a type has {ndim} axes; there may be {MAX_AXES}")
        shape = tuple([self.dimensions.size() if symbolic else reader.index(SIZE_LIMIT, "size") for _ in range(ndim)])
        vma = [reader.string("a mesh axis") for _ in range(reader.count("varying mesh axes"))] if flags & 2 else ()
        sharding = self.sharding(ndim) if flags & 8 else None
        return intern_aval(ShapedArray(shape, dtype, bool(flags & 1), frozenset(vma), sharding))

    def sharding(self, ndim: int) -> TypeSharding | None:
        """Returns the sharding of a type with this number of axes."""
        reader = self.reader
        axes = [
            (reader.string("a mesh axis"), reader.index(SIZE_LIMIT, "size"), reader.index(4, "axis type"))
            for _ in range(reader.count("mesh axes"))
        ]
        entries = [tuple([reader.string("a mesh axis") for _ in range(reader.count("mesh axes"))]) for _ in range(ndim)]
        try:
            mesh = AbstractMesh([n for _, n, _ in axes], [name for name, _, _ in axes], [AxisType(t) for *_, t in axes])
            return type_sharding(mesh, entries, ndim)
        except ValueError as error:
            reader.fail(f"a type has an invalid sharding: {error}", error)

    def location_definition(self) -> SourceLocation:
        reader = self.reader
        file, line, function = reader.string("a file's name"), reader.uint(), reader.string("a function's name")
        return SourceLocation(
            file, line, function, tuple([reader.string("a scope") for _ in range(reader.count("scopes"))])
        )

    # -------------------------------------------------------------- programs

    def program(self) -> Jaxpr:
        reader = self.reader
        numbered = reader.flag("whether variables have numbers")
        avals: list[ShapedArray] = []

        def bind(what: str) -> int:
            for _ in range(reader.count(what)):
                avals.append(self.aval())
            return len(avals)

        effects: set[Effect] = set()
        consts, inputs = bind("constants"), bind("inputs")
        eqns: list[tuple[Primitive, list[_OperandCode], int, int, SourceLocation | None]] = []
        for _ in range(reader.count("equations")):
            prim = self.shared_operation()
            self.add_effects(effects, prim)
            operands = self.operands(len(avals))
            first, last = len(avals), bind("outputs")
            location = reader.index(len(self.locations) + 1, "location")
            eqns.append((prim, operands, first, last, self.locations[location - 1] if location else None))
        outs = self.operands(len(avals))
        count = len(avals)
        numbers = [reader.index(count, "variable") for _ in range(count)] if numbered else range(count)
        vs = list(map(Var, numbers, avals))

        def atoms(operands: list[_OperandCode]) -> tuple[Atom, ...]:
            return tuple([x if isinstance(x, Literal) else vs[x] for x in operands])

        return Jaxpr(
            tuple(vs[:consts]),
            tuple(vs[consts:inputs]),
            tuple([Eqn(prim, atoms(xs), tuple(vs[first:last]), location) for prim, xs, first, last, location in eqns]),
            atoms(outs),
        )

    def add_effects(self, effects: set[Effect], prim: Primitive) -> None:
        """Adds the effects of a primitive, whose number is limited."""
        try:
            effects |= prim.effects
        except Exception as error:  # user-defined primitives may raise any exception
            self.reader.fail(f"{prim.name} can't determine its effects: {type(error).__name__}: {error}", error)
        if len(effects) > MAX_EFFECTS:
            self.reader.fail(f"a program has more than {MAX_EFFECTS} effects")

    def operands(self, bound: int) -> list[_OperandCode]:
        reader = self.reader
        operands: list[_OperandCode] = []
        for _ in range(reader.count("operands")):
            number = reader.index(bound + 1, "variable")
            operands.append(number - 1 if number else self.literal())
        return operands

    def literal(self) -> Literal:
        val = self.scalar()
        aval = self.aval()
        if aval.shape:
            self.reader.fail(f"a literal has the type {aval!r}, but literals are scalars")
        try:
            literal = Literal(val, aval)
            literal.numpy()
        except Exception as error:  # NumPy may reject the number with any exception
            self.reader.fail(f"a {type(val).__name__} is not a literal of type {aval!r}: {error}", error)
        return literal

    def scalar(self) -> Scalar:
        tag = self.reader.byte()
        value = read_scalar(self.reader, tag)
        if not isinstance(value, (bool, int, float, complex)):
            self.reader.fail(f"a literal must be a number, not a {type(value).__name__}")
        return value

    def aval(self) -> ShapedArray:
        return self.types[self.reader.index(len(self.types), "type")]

    def dtype(self) -> DType:
        name = self.reader.string("a dtype's name")
        dtype = DTYPES_BY_NAME.get(name)
        if dtype is None:
            self.reader.fail(f"{name!r} names no dtype")
        return dtype

    # -------------------------------------------------------------- primitives and their parameters

    def shared_operation(self) -> Primitive:
        """Reads a primitive, or a reference to an earlier one."""
        reader = self.reader
        number = reader.index(len(self.operations) + 1, "operation")
        if number:
            prim, reach = self.operations[number - 1]
        else:
            start, self.reach = reader.at, 0
            prim, reach = self.operation(), self.reach
            if reader.at - start <= MAX_SHARED_BYTES:
                self.operations.append((prim, reach))
        self.nesting = max(self.nesting, reach)
        return prim

    def operation(self) -> Primitive:
        name = self.reader.string("an operation's name")
        kind = self.vocabulary.get(name)
        if kind is None:
            self.reader.fail(
                f"no primitive is named {name!r}: pass the class of a custom primitive to the function that "
                "reads the program"
            )
        return self.construct(kind)

    def construct(self, kind: type[T]) -> T:
        """Reads the fields of a primitive or record and constructs it."""
        reader = self.reader
        fields = self.classes.fields(kind)
        values: dict[str, object] = {}
        for _ in range(reader.count("fields")):
            name = reader.string("a field's name")
            field = fields.get(name)
            if field is None:
                reader.fail(f"{kind.__name__} has no field {name!r}; its fields are {', '.join(fields) or 'none'}")
            if field.argument in values:
                reader.fail(f"{kind.__name__}.{name} is given twice")
            hint = self.classes.hint(kind, field.attribute)
            value = values[field.argument] = self.value(hint)
            if not matches_annotation(value, hint):
                reader.fail(f"{kind.__name__}.{name} can't be a {type(value).__name__} such as this one: it is {hint}")
        return self.classes.construct(kind, values, reader.fail)

    def value(self, hint: object) -> object:
        self.depth += 1
        if self.depth > MAX_VALUE_DEPTH:
            self.reader.fail(f"values are nested more than {MAX_VALUE_DEPTH} deep")
        tag = self.reader.byte()
        if tag == Tag.LONG:
            self.longs += 1
            if self.longs > MAX_BIG_INTS:
                self.reader.fail(f"operations hold more than {MAX_BIG_INTS} integers beyond 64 bits")
        if tag <= Tag.BYTES:
            value: object = read_scalar(self.reader, tag)
        else:
            read = self.readers.get(tag)
            if read is None:
                self.reader.fail(f"there is no value tag with the number {tag}")
            value = read(hint)
        self.depth -= 1
        return value

    def program_before(self) -> Jaxpr:
        """Reads a reference to an earlier program, and updates the nesting depth."""
        number = self.reader.index(len(self.programs), "program before this one,")
        self.reach = max(self.reach, self.nestings[number])
        return self.programs[number]

    def elements(self, hint: object) -> frozenset[object]:
        """Reads the elements of a frozenset."""
        reader = self.reader
        count = reader.count("elements")
        if count > MAX_SET_SIZE:
            reader.fail(f"a set has {count} elements; there may be {MAX_SET_SIZE}")
        values = [self.value(hint) for _ in range(count)]
        elements = frozenset(values)
        if len(elements) != count:
            reader.fail("elements of a set are equal")
        return elements

    def class_called(self, hint: object) -> type:
        name = self.reader.string("a class's name")
        kind = self.classes.named(name, hint)
        if kind is None:
            self.reader.fail(f"no class called {name!r} is named in the annotation of this field, {hint}")
        return kind

    def record(self, hint: object) -> object:
        kind = self.class_called(hint)
        if issubclass(kind, Enum):
            self.reader.fail(f"{kind.__name__} has members, not fields")
        if issubclass(kind, CustomText):
            self.reader.fail(f"values of {kind.__name__} are not written as their fields")
        return self.construct(kind)

    def shown(self, hint: object) -> CustomText:
        """Reads a value in its custom form (`CustomText`)."""
        kind, reader = self.class_called(hint), self.reader
        if not issubclass(kind, CustomText):
            reader.fail(f"values of {kind.__name__} are written as their fields")
        positional = tuple([self.value(kind.arg_type) for _ in range(reader.count("parts"))])
        named = {}
        for _ in range(reader.count("named parts")):
            name = reader.string("the name of a part")
            named[name] = self.value(kind.arg_type)
        try:
            return kind.from_text_args(positional, named)
        except Exception as error:  # validators may raise any exception
            reader.fail(f"there is no such {kind.text_name}: {error}", error)

    def member(self, hint: object) -> Enum:
        kind, name = self.class_called(hint), self.reader.string("a member's name")
        if not issubclass(kind, Enum) or name not in kind.__members__:
            self.reader.fail(f"{kind.__name__} has no member {name!r}")
        return kind.__members__[name]

    # -------------------------------------------------------------- constants

    def constant(self) -> Value:
        if not self.reader.flag("whether a constant is an array"):
            return self.literal()
        reader, aval = self.reader, self.aval()
        data = reader.take(aval.nbytes, f"an array of type {aval!r}")
        try:
            return ConcreteArray(aval, _decode_array(np.frombuffer(data, np.uint8), aval))
        except ValueError as error:  # NumPy limits the number of elements
            reader.fail(f"there is no array of type {aval!r}: {error}", error)


def _decode_array(data: NDArray, aval: ShapedArray) -> NDArray:
    """Returns the read-only array with these bytes. Raises ValueError for invalid padding bits or bools."""
    dtype, bits = aval.dtype, packed_bits(aval.dtype)
    if dtype == dtypes.float0:  # takes no bytes, but copying many elements would take time
        nothing = np.zeros(aval.shape, dtype)
        nothing.flags.writeable = False
        return nothing
    if bits:
        data, packed = unpack(data, bits)[: aval.size], data
        if packed.size and int(packed[-1]) >> (8 - (-aval.size * bits) % 8):
            raise ValueError("bits after the last element are set")
    if dtypes.is_bool(dtype) and data.size and data.max() > 1:
        raise ValueError("a truth value is neither 0 nor 1")
    return read_only_copy(data.view(dtype).reshape(aval.shape), dtype)
