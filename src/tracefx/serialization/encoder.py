"""The encoder of serialized jaxprs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import NoReturn, cast, final

import attrs
import numpy as np

from tracefx.core.avals import ShapedArray
from tracefx.core.equality import strict_key
from tracefx.core.jaxpr import Atom, ClosedJaxpr, Eqn, Jaxpr, Var
from tracefx.core.literal import Literal
from tracefx.core.primitive import Primitive
from tracefx.core.source_location import SourceLocation, at_location
from tracefx.core.values import ConcreteArray, Value
from tracefx.errors import SerializationError
from tracefx.passes.check import check_jaxpr
from tracefx.pytrees.registry import NODE_REGISTRY
from tracefx.serialization.byte_format import encode_envelope, put_string, put_uint
from tracefx.serialization.program_format import (
    DTYPE_NAMES,
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
    Vocabulary,
    pack,
    packed_bits,
)
from tracefx.serialization.scalars import put_scalar
from tracefx.serialization.trees import put_tree
from tracefx.text.custom_text import CustomText, class_text_name
from tracefx.text.field_annotations import AnnotationResolver, FieldInfo, is_named_tuple, matches_annotation
from tracefx.text.printer import callable_name, format_eqn


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


def _subjaxprs_in(value: object) -> Iterator[Jaxpr]:
    """Iterates over the direct sub-jaxprs in a parameter value."""
    if isinstance(value, Jaxpr):
        yield value
    elif isinstance(value, (tuple, frozenset)):
        for v in value:
            yield from _subjaxprs_in(v)
    elif attrs.has(type(value)):
        for f in attrs.fields(cast(type[attrs.AttrsInstance], type(value))):
            if f.init:
                yield from _subjaxprs_in(getattr(value, f.name))


def _postorder(root: Jaxpr) -> list[Jaxpr]:
    """Returns a jaxpr and all its sub-jaxprs, each once and after its own sub-jaxprs. Checks the nesting depth."""
    ordered: list[Jaxpr] = []
    heights: dict[int, int] = {}
    inner: dict[int, list[Jaxpr]] = {}
    todo = [(root, False)]
    while todo:
        program, seen = todo.pop()
        if id(program) in heights:
            continue
        if seen:
            heights[id(program)] = 1 + max([heights[id(c)] for c in inner[id(program)]], default=0)
            ordered.append(program)
        else:
            inner[id(program)] = [c for eqn in program.eqns for c in _subjaxprs_in(eqn.prim)]
            todo.append((program, True))
            todo += [(c, False) for c in reversed(inner[id(program)])]
    if heights[id(root)] > MAX_NESTING:
        raise SerializationError(
            f"programs are nested {heights[id(root)]} deep; at most {MAX_NESTING} levels can be serialized"
        )
    return ordered


@final
class _Refused(Exception):
    """Raised for a value that cannot be serialized; the message says why."""


@final
class _ProgramEncoder:
    """Writes the rules of the grammar, each by the method of the same name."""

    def __init__(self, own: Vocabulary, provenance: bool) -> None:
        self.own = own
        self.provenance = provenance
        self.classes = AnnotationResolver()
        self.types: dict[ShapedArray, int] = {}
        self.places: dict[SourceLocation, int] = {}
        self.programs: dict[int, int] = {}
        self.operations: dict[bytes, int] = {}
        self.depth = 0
        self.longs = 0

    def encode(self, closed: ClosedJaxpr) -> bytes:
        """Returns the content: the tables of types and locations, the programs, and the constants."""
        body = bytearray()
        programs = _postorder(closed.jaxpr)
        put_uint(body, len(programs))
        for program in programs:
            self.program(body, program)
            self.programs[id(program)] = len(self.programs)
        put_uint(body, len(closed.consts))
        for i, const in enumerate(closed.consts):
            try:
                self.constant(body, const)
            except _Refused as refused:
                raise SerializationError(f"constant {i} of the program can't be serialized: {refused}") from None
        tables = bytearray()
        put_uint(tables, len(self.types))
        for aval in self.types:
            put_string(tables, DTYPE_NAMES[aval.dtype])
            tables.append(aval.weak_type)
            put_uint(tables, aval.ndim)
            for n in aval.shape:
                put_uint(tables, n)
        put_uint(tables, len(self.places))
        for place in self.places:
            put_string(tables, place.file)
            put_uint(tables, place.line)
            put_string(tables, place.function)
            put_uint(tables, len(place.scope))
            for name in place.scope:
                put_string(tables, name)
        return b"".join([tables, body])

    # -------------------------------------------------------------- programs

    def program(self, out: bytearray, program: Jaxpr) -> None:
        order: dict[int, int] = {}

        def bind(vs: Sequence[Var]) -> None:
            put_uint(out, len(vs))
            for v in vs:
                order[v.index] = len(order)
                self.aval(out, v.aval)

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
                self.shared_operation(out, eqn.prim)
                self.atoms(out, eqn.inputs, order)
            except (_Refused, SerializationError) as refused:
                self.refuse(program, i, refused)
            bind(eqn.outs)
            self.place(out, eqn)
        self.atoms(out, program.outs, order)
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

    def atoms(self, out: bytearray, atoms: Sequence[Atom], order: Mapping[int, int]) -> None:
        put_uint(out, len(atoms))
        for x in atoms:
            if isinstance(x, Literal):
                out.append(0)
                self.literal(out, x)
            else:
                put_uint(out, 1 + order[x.index])

    def literal(self, out: bytearray, x: Literal) -> None:
        if x.aval.shape or type(x.val) not in (bool, int, float, complex):
            raise _Refused(f"{x!r} is not a valid literal")
        put_scalar(out, x.val)
        self.aval(out, x.aval)

    def place(self, out: bytearray, eqn: Eqn) -> None:
        """Writes the source location of an equation, or none."""
        if eqn.source is None or not self.provenance:
            out.append(0)
        else:
            put_uint(out, 1 + self.places.setdefault(eqn.source.resolve(), len(self.places)))

    def aval(self, out: bytearray, aval: ShapedArray) -> None:
        index = self.types.get(aval)
        if index is None:
            if aval.ndim > MAX_AXES or any(type(n) is not int or not 0 <= n < SIZE_LIMIT for n in aval.shape):
                raise SerializationError(
                    f"the type {aval} can't be serialized: arrays have up to {MAX_AXES} axes of at most "
                    f"{SIZE_LIMIT - 1} elements"
                )
            index = self.types[aval] = len(self.types)
        put_uint(out, index)

    # -------------------------------------------------------------- primitives and their parameters

    def shared_operation(self, out: bytearray, prim: Primitive) -> None:
        """Writes a primitive, or a reference to an equal one that was written before."""
        definition, longs = bytearray(), self.longs
        self.operation(definition, prim)
        index = self.operations.get(bytes(definition))
        if index is not None:
            self.longs = longs
            put_uint(out, 1 + index)
            return
        if len(definition) <= MAX_SHARED_BYTES:
            self.operations[bytes(definition)] = len(self.operations)
        out.append(0)
        out += definition

    def operation(self, out: bytearray, prim: Primitive) -> None:
        known = self.own.get(prim.name, type(prim))
        if known is not type(prim):
            raise _Refused(
                f"its class {type(prim).__name__} has the name {prim.name!r} of tracefx's own {known.__name__}, "
                "with which it would be confused"
            )
        put_string(out, prim.name)
        self.fields(out, prim)

    def fields(self, out: bytearray, holder: object) -> None:
        """Writes the fields of a primitive or record that do not have their default values."""
        kind = type(holder)
        present: list[tuple[str, FieldInfo, object]] = []
        for name, field in self.classes.fields(kind).items():
            value = getattr(holder, field.attribute)
            if field.required or strict_key(value) != strict_key(field.default):
                present.append((name, field, value))
        put_uint(out, len(present))
        for name, field, value in present:
            put_string(out, name)
            hint = self.classes.hint(kind, field.attribute)
            try:
                self.value(out, value, hint)
                if not matches_annotation(value, hint):
                    raise _Refused(f"it is {_abbreviated(value)}, which its annotation {hint} does not allow")
            except _Refused as refused:
                raise _Refused(f"{kind.__name__}.{field.attribute}: {refused}") from None

    def value(self, out: bytearray, value: object, hint: object) -> None:
        self.depth += 1
        if self.depth > MAX_VALUE_DEPTH:
            raise _Refused(f"values are nested more than {MAX_VALUE_DEPTH} deep")
        if type(value) is int and not -SIZE_LIMIT <= value < SIZE_LIMIT:
            self.longs += 1
            if self.longs > MAX_BIG_INTS:
                raise _Refused(f"operations hold more than {MAX_BIG_INTS} integers beyond 64 bits")
        if not put_scalar(out, value):
            self.structure(out, value, hint)
        self.depth -= 1

    def structure(self, out: bytearray, value: object, hint: object) -> None:
        kind = type(value)
        if isinstance(value, np.dtype):
            if value not in DTYPE_NAMES:
                raise _Refused(f"{value} is not a dtype that arrays can have")
            out.append(Tag.DTYPE)
            put_string(out, DTYPE_NAMES[value])
        elif isinstance(value, Enum):
            self.named(kind, hint)
            if value.name not in kind.__members__:  # type: ignore[attr-defined]  # an enum
                raise _Refused(f"{value!r} is not a named member")
            out.append(Tag.MEMBER)
            put_string(out, kind.__name__)
            put_string(out, value.name)
        elif isinstance(value, Jaxpr):
            out.append(Tag.PROGRAM)
            put_uint(out, self.programs[id(value)])
        elif isinstance(value, ShapedArray):
            out.append(Tag.TYPE)
            self.aval(out, value)
        elif isinstance(value, Literal):
            out.append(Tag.LITERAL)
            self.literal(out, value)
        elif isinstance(value, Primitive):
            out.append(Tag.OPERATION)
            self.operation(out, value)
        elif NODE_REGISTRY.native is not None and NODE_REGISTRY.native.is_treedef(value):
            out.append(Tag.TREE)
            put_tree(out, value, "it")
        elif kind is tuple:
            assert isinstance(value, tuple)
            out.append(Tag.TUPLE)
            put_uint(out, len(value))
            for v in value:
                self.value(out, v, hint)
        elif kind is frozenset:
            assert isinstance(value, frozenset)
            self.elements(out, value, hint)
        elif isinstance(value, CustomText):
            self.named(kind, hint)
            out.append(Tag.SHOWN)
            put_string(out, value.text_name)
            self.shown(out, value)
        elif is_named_tuple(kind) or (attrs.has(kind) and not callable(value)):
            self.named(kind, hint)
            out.append(Tag.RECORD)
            put_string(out, kind.__name__)
            self.fields(out, value)
        elif callable(value):
            raise _Refused(f"it is the function {_function_name(value)}, and functions can't be serialized")
        else:
            raise _Refused(
                f"it is {_abbreviated(value)} of type {kind.__module__}.{kind.__qualname__}, which can't be serialized"
            )

    def shown(self, out: bytearray, value: CustomText) -> None:
        """Writes a value in its custom form (`CustomText`)."""
        positional, named = value.text_args()
        put_uint(out, len(positional))
        for v in positional:
            self.value(out, v, value.arg_type)
        put_uint(out, len(named))
        for name, v in named.items():
            put_string(out, name)
            self.value(out, v, value.arg_type)

    def elements(self, out: bytearray, values: frozenset[object], hint: object) -> None:
        """Writes the elements of a set in a canonical order, which is the same in every process."""
        if len(values) > MAX_SET_SIZE:
            raise _Refused(f"it is a set of {len(values)} elements; there may be {MAX_SET_SIZE}")
        out.append(Tag.SET)
        put_uint(out, len(values))

        def alone(v: object) -> bytes:
            encoder, encoded = _ProgramEncoder(self.own, False), bytearray()
            encoder.programs = self.programs
            encoder.value(encoded, v, hint)
            return repr(list(encoder.types)).encode() + encoded

        for v in sorted(values, key=alone):
            self.value(out, v, hint)

    def named(self, kind: type, hint: object) -> None:
        """Checks that the annotation names the class, so that the decoder can find it."""
        if self.classes.named(class_text_name(kind), hint) is not kind:
            raise _Refused(
                f"it holds a {kind.__module__}.{kind.__qualname__}, which the field's annotation {hint} does not name, "
                "so the class could not be found again"
            )

    # -------------------------------------------------------------- constants

    def constant(self, out: bytearray, const: Value) -> None:
        if isinstance(const, Literal):
            out.append(0)
            self.literal(out, const)
        elif isinstance(const, ConcreteArray):
            out.append(1)
            self.aval(out, const.aval)
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
    if attrs.has(type(value)):
        for f in attrs.fields(cast(type[attrs.AttrsInstance], type(value))):
            held = getattr(value, f.name)
            if callable(held):
                return callable_name(held)
    return callable_name(value)


def _abbreviated(value: object) -> str:
    """Returns the `repr`, at most 200 characters of it."""
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + " ..."
