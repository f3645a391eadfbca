"""The encoder of serialized jaxprs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NoReturn, cast, final

import attrs
import numpy as np
from typing_extensions import override

from tracefx.core import ConcreteArray, DType, Literal, ShapedArray, Value
from tracefx.core.custom_text import CustomText, class_text_name
from tracefx.core.jaxpr import Atom, ClosedJaxpr, Eqn, Jaxpr, Var, postorder
from tracefx.core.partition_spec import entry_axis_names
from tracefx.core.primitive import Primitive, Vocabulary
from tracefx.dimensions.symbolic_dimensions import SymbolicDimension, is_symbolic_dim
from tracefx.errors import SerializationError
from tracefx.passes.check import check_jaxpr
from tracefx.pytrees.registry import TreeDef
from tracefx.serialization.byte_format import encode_envelope, put_string, put_uint
from tracefx.serialization.dimensions import put_constraints, put_size
from tracefx.serialization.program_format import (
    MAX_AXES,
    MAX_BIG_INTS,
    MAX_EFFECTS,
    MAX_NESTING,
    MAX_SET_SIZE,
    MAX_SHARED_BYTES,
    MAX_VALUE_DEPTH,
    PROGRAM_MAGIC,
    PROGRAM_VERSION,
    SIZE_LIMIT,
    Tag,
    pack,
    packed_bits,
    put_scalar,
)
from tracefx.serialization.trees import put_tree
from tracefx.source_location import SourceLocation, at_location
from tracefx.text.field_annotations import AnnotationResolver, matches_annotation
from tracefx.text.fields import FieldInfo, FieldVisitor, PlainValue, is_default, subjaxprs_in
from tracefx.text.printer import DTYPE_NAMES, callable_name, format_eqn


def serialize(closed: ClosedJaxpr, own: Vocabulary, provenance: bool = False) -> bytes:
    """Serializes a jaxpr with its constants. Shared sub-jaxprs are written once.

    Args:
        closed: The program.
        own: The built-in primitives by name; other primitives must not use these names.
        provenance: Whether to include the source locations: file, line, function and scopes.

    Raises:
        SerializationError: If the program contains functions, tracers, or parameters of classes that no annotation
            names. The message shows the equation.
        JaxprTypeError: If it is not well formed.
        TypeError: If `closed` is not a ClosedJaxpr.
    """
    if not isinstance(closed, ClosedJaxpr):
        raise TypeError(f"serialize takes a ClosedJaxpr, as make_jaxpr returns, got {type(closed).__name__}")
    check_jaxpr(closed)
    return encode_envelope(PROGRAM_MAGIC, PROGRAM_VERSION, _ProgramEncoder(own, provenance).encode(closed))


def _postorder(root: Jaxpr) -> list[Jaxpr]:
    """Returns a jaxpr and all its sub-jaxprs, each once and after its own sub-jaxprs. Checks the nesting depth."""
    inner: dict[int, list[Jaxpr]] = {}

    def children(program: Jaxpr) -> list[Jaxpr]:
        found = [c for eqn in program.eqns for c in subjaxprs_in(eqn.prim, hidden=True)]
        return inner.setdefault(id(program), found)

    ordered = postorder([root], children)
    heights: dict[int, int] = {}
    for program in ordered:
        heights[id(program)] = 1 + max([heights[id(c)] for c in inner[id(program)]], default=0)
    if heights[id(root)] > MAX_NESTING:
        raise SerializationError(
            f"programs are nested {heights[id(root)]} deep; at most {MAX_NESTING} levels can be serialized"
        )
    return ordered


@final
class _Refused(Exception):
    """Raised for a value that cannot be serialized; the message says why."""


@final
class _ProgramEncoder(FieldVisitor[None]):
    """Writes the rules of the grammar, each by the method of the same name."""

    def __init__(self, own: Vocabulary, provenance: bool) -> None:
        self.own = own
        self.provenance = provenance
        self.classes = AnnotationResolver()
        self.types: dict[ShapedArray, int] = {}
        self.locations: dict[SourceLocation, int] = {}
        self.programs: dict[int, int] = {}
        self.operations: dict[bytes, int] = {}
        self.out = bytearray()
        self.hint: object = object
        """The annotation of the field whose value is written."""
        self.depth = 0
        self.longs = 0

    def encode(self, closed: ClosedJaxpr) -> bytes:
        """Returns the content: the tables of types and locations, the programs, and the constants."""
        body = self.out
        programs = _postorder(closed.jaxpr)
        put_uint(body, len(programs))
        for program in programs:
            self.program(program)
            self.programs[id(program)] = len(self.programs)
        put_uint(body, len(closed.consts))
        for i, const in enumerate(closed.consts):
            try:
                self.constant(const)
            except _Refused as refused:
                raise SerializationError(f"constant {i} of the program can't be serialized: {refused}") from None
        tables = bytearray()
        put_uint(tables, len(self.types))
        constraints_written = False
        for aval in self.types:
            put_string(tables, DTYPE_NAMES[aval.dtype])
            dimensions = [n for n in aval.shape if is_symbolic_dim(n)]
            sharding = aval.explicit_sharding
            tables.append(aval.weak_type + 2 * bool(aval.vma) + 4 * bool(dimensions) + 8 * (sharding is not None))
            if dimensions and not constraints_written:
                constraints_written = True
                put_constraints(tables, dimensions[0])
            put_uint(tables, aval.ndim)
            for n in aval.shape:
                if dimensions:
                    put_size(tables, n)
                else:
                    put_uint(tables, n)
            if aval.vma:
                put_uint(tables, len(aval.vma))
                for name in sorted(aval.vma):
                    put_string(tables, name)
            if sharding is not None:
                put_uint(tables, len(sharding.mesh.axis_names))
                for name, n, axis_type in zip(
                    sharding.mesh.axis_names, sharding.mesh.axis_sizes, sharding.mesh.axis_types, strict=True
                ):
                    put_string(tables, name)
                    put_uint(tables, n)
                    put_uint(tables, axis_type.value)
                for entry in sharding.spec:
                    names = entry_axis_names(entry)
                    put_uint(tables, len(names))
                    for name in names:
                        put_string(tables, name)
        put_uint(tables, len(self.locations))
        for location in self.locations:
            put_string(tables, location.file)
            put_uint(tables, location.line)
            put_string(tables, location.function)
            put_uint(tables, len(location.scope))
            for name in location.scope:
                put_string(tables, name)
        return b"".join([tables, body])

    # -------------------------------------------------------------- programs

    def program(self, program: Jaxpr) -> None:
        out = self.out
        order: dict[int, int] = {}

        def bind(vs: Sequence[Var]) -> None:
            put_uint(out, len(vs))
            for v in vs:
                order[v.index] = len(order)
                self.put_aval(v.aval)

        if len(program.effects) > MAX_EFFECTS:
            raise SerializationError(
                f"a program has {len(program.effects)} effects, such as named axes; there may be {MAX_EFFECTS}"
            )
        start = len(out)
        out.append(0)
        bind(program.constvars)
        bind(program.invars)
        put_uint(out, len(program.eqns))
        for i, eqn in enumerate(program.eqns):
            try:
                self.shared_operation(eqn.prim)
                self.atoms(eqn.inputs, order)
            except (_Refused, SerializationError) as refused:
                self.refuse(program, i, refused)
            bind(eqn.outs)
            self.location(eqn)
        self.atoms(program.outs, order)
        numbers = list(order)
        if numbers != list(range(len(numbers))):
            out[start] = 1
            for n in numbers:
                put_uint(out, n)

    def refuse(self, program: Jaxpr, i: int, refused: Exception) -> NoReturn:
        """Raises SerializationError for an equation."""
        eqn = program.eqns[i]
        text = format_eqn(eqn)
        shown = text if len(text) <= 500 else text[:500] + " ..."
        raise SerializationError(
            f"equation {i} of {len(program.eqns)}{at_location(eqn.source)} can't be serialized: {refused}\n    {shown}"
        ) from None

    def atoms(self, atoms: Sequence[Atom], order: Mapping[int, int]) -> None:
        put_uint(self.out, len(atoms))
        for x in atoms:
            if isinstance(x, Literal):
                self.out.append(0)
                self.put_literal(x)
            else:
                put_uint(self.out, 1 + order[x.index])

    def put_literal(self, x: Literal) -> None:
        if x.aval.shape or type(x.val) not in (bool, int, float, complex):
            raise _Refused(f"{x!r} is not a valid literal")
        put_scalar(self.out, x.val)
        self.put_aval(x.aval)

    def location(self, eqn: Eqn) -> None:
        """Writes the source location of an equation, or none."""
        if eqn.source is None or not self.provenance:
            self.out.append(0)
        else:
            put_uint(self.out, 1 + self.locations.setdefault(eqn.source.resolve(), len(self.locations)))

    def put_aval(self, aval: ShapedArray) -> None:
        index = self.types.get(aval)
        if index is None:
            sizes = [n for n in aval.shape if not is_symbolic_dim(n)]
            if aval.ndim > MAX_AXES or any(type(n) is not int or not 0 <= n < SIZE_LIMIT for n in sizes):
                raise SerializationError(
                    f"the type {aval} can't be serialized: arrays have up to {MAX_AXES} axes of at most "
                    f"{SIZE_LIMIT - 1} elements"
                )
            index = self.types[aval] = len(self.types)
        put_uint(self.out, index)

    # -------------------------------------------------------------- primitives and their parameters

    def shared_operation(self, prim: Primitive) -> None:
        """Writes a primitive, or a reference to an equal one that was written before."""
        out, self.out, longs = self.out, bytearray(), self.longs
        self.operation(prim)
        definition, self.out = self.out, out
        index = self.operations.get(bytes(definition))
        if index is not None:
            self.longs = longs
            put_uint(out, 1 + index)
            return
        if len(definition) <= MAX_SHARED_BYTES:
            self.operations[bytes(definition)] = len(self.operations)
        out.append(0)
        out += definition

    def operation(self, prim: Primitive) -> None:
        known = self.own.get(prim.name, type(prim))
        if known is not type(prim):
            raise _Refused(
                f"its class {type(prim).__name__} has the name {prim.name!r} of tracefx's own {known.__name__}, "
                "with which it would be confused"
            )
        put_string(self.out, prim.name)
        self.fields(prim)

    def fields(self, holder: object) -> None:
        """Writes the fields of a primitive or record that do not have their default values."""
        kind = type(holder)
        present: list[tuple[str, FieldInfo, object]] = []
        for name, field in self.classes.fields(kind).items():
            value = getattr(holder, field.attribute)
            if not is_default(value, field.default):
                present.append((name, field, value))
        put_uint(self.out, len(present))
        for name, field, value in present:
            put_string(self.out, name)
            hint = self.classes.hint(kind, field.attribute)
            try:
                self.annotated(value, hint)
                if not matches_annotation(value, hint):
                    raise _Refused(f"it is {_abbreviated(value)}, which its annotation {hint} does not allow")
            except _Refused as refused:
                raise _Refused(f"{kind.__name__}.{field.attribute}: {refused}") from None

    def annotated(self, value: object, hint: object) -> None:
        """Writes a value with this annotation."""
        outer, self.hint = self.hint, hint
        self.value(value)
        self.hint = outer

    @override
    def value(self, value: object) -> None:
        self.depth += 1
        if self.depth > MAX_VALUE_DEPTH:
            raise _Refused(f"values are nested more than {MAX_VALUE_DEPTH} deep")
        super().value(value)
        self.depth -= 1

    @override
    def plain(self, value: PlainValue) -> None:
        if type(value) is int and not -SIZE_LIMIT <= value < SIZE_LIMIT:
            self.longs += 1
            if self.longs > MAX_BIG_INTS:
                raise _Refused(f"operations hold more than {MAX_BIG_INTS} integers beyond 64 bits")
        put_scalar(self.out, value)

    @override
    def dimension(self, value: SymbolicDimension) -> None:
        put_size(self.out, cast(int, value))

    @override
    def dtype(self, value: DType) -> None:
        if value not in DTYPE_NAMES:
            raise _Refused(f"{value} is not a dtype that arrays can have")
        self.out.append(Tag.DTYPE)
        put_string(self.out, DTYPE_NAMES[value])

    @override
    def member(self, value: Enum) -> None:
        kind = type(value)
        self.check_named(kind)
        if value.name not in kind.__members__:
            raise _Refused(f"{value!r} is not a named member")
        self.out.append(Tag.MEMBER)
        put_string(self.out, kind.__name__)
        put_string(self.out, value.name)

    @override
    def jaxpr(self, value: Jaxpr) -> None:
        self.out.append(Tag.PROGRAM)
        put_uint(self.out, self.programs[id(value)])

    @override
    def aval(self, value: ShapedArray) -> None:
        self.out.append(Tag.TYPE)
        self.put_aval(value)

    @override
    def literal(self, value: Literal) -> None:
        self.out.append(Tag.LITERAL)
        self.put_literal(value)

    @override
    def primitive(self, value: Primitive) -> None:
        self.out.append(Tag.OPERATION)
        self.operation(value)

    @override
    def tree(self, value: TreeDef) -> None:
        self.out.append(Tag.TREE)
        put_tree(self.out, value, "it")

    @override
    def elements(self, value: tuple[object, ...]) -> None:
        if type(value) is not tuple:
            self.other(value)
        self.out.append(Tag.TUPLE)
        put_uint(self.out, len(value))
        for v in value:
            self.value(v)

    @override
    def set_elements(self, value: frozenset[object]) -> None:
        """Writes the elements of a set in a canonical order, which is the same in every process."""
        if len(value) > MAX_SET_SIZE:
            raise _Refused(f"it is a set of {len(value)} elements; there may be {MAX_SET_SIZE}")
        self.out.append(Tag.SET)
        put_uint(self.out, len(value))

        def alone(v: object) -> bytes:
            encoder = _ProgramEncoder(self.own, False)
            encoder.programs = self.programs
            encoder.annotated(v, self.hint)
            return repr(list(encoder.types)).encode() + encoder.out

        for v in sorted(value, key=alone):
            self.value(v)

    @override
    def custom(self, value: CustomText) -> None:
        """Writes a value in its custom form."""
        self.check_named(type(value))
        self.out.append(Tag.SHOWN)
        put_string(self.out, value.text_name)
        positional, named = value.text_args()
        put_uint(self.out, len(positional))
        for v in positional:
            self.annotated(v, value.arg_type)
        put_uint(self.out, len(named))
        for name, v in named.items():
            put_string(self.out, name)
            self.annotated(v, value.arg_type)

    @override
    def record(self, value: object) -> None:
        self.check_named(type(value))
        self.out.append(Tag.RECORD)
        put_string(self.out, type(value).__name__)
        self.fields(value)

    @override
    def function(self, value: object) -> NoReturn:
        raise _Refused(f"it is the function {_function_name(value)}, and functions can't be serialized")

    @override
    def other(self, value: object) -> NoReturn:
        kind = type(value)
        raise _Refused(
            f"it is {_abbreviated(value)} of type {kind.__module__}.{kind.__qualname__}, which can't be serialized"
        )

    def check_named(self, kind: type) -> None:
        """Checks that the annotation names the class, so that the decoder can find it."""
        if self.classes.named(class_text_name(kind), self.hint) is not kind:
            raise _Refused(
                f"it holds a {kind.__module__}.{kind.__qualname__}, which the field's annotation {self.hint} does not "
                "name, so the class could not be found again"
            )

    # -------------------------------------------------------------- constants

    def constant(self, const: Value) -> None:
        out = self.out
        if isinstance(const, Literal):
            out.append(0)
            self.put_literal(const)
        elif isinstance(const, ConcreteArray):
            out.append(1)
            self.put_aval(const.aval)
            host = np.ascontiguousarray(const.numpy())
            bits = packed_bits(host.dtype)
            if bits:
                host = pack(host, bits)
            if host.nbytes:
                out += host.reshape(-1).view(np.uint8).data
        else:
            raise _Refused(f"it is the tracer {const}, of which only shape and dtype are known")


def _function_name(value: object) -> str:
    """Returns the name of a function; for a callable object that wraps a function, the name of that function."""
    kind = type(value)
    if attrs.has(kind):
        for f in attrs.fields(kind):
            held = getattr(value, f.name)
            if callable(held):
                return callable_name(held)
    return callable_name(value)


def _abbreviated(value: object) -> str:
    """Returns the `repr`, at most 200 characters of it."""
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + " ..."
