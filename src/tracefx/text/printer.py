"""The printer of jaxprs, in JAX's syntax plus a mark for weak types. `parser` reads the result.

The parameters of an equation are the attrs fields of its primitive in the order of declaration. Field metadata:

- `"hide_default": True`: omitted in tracefx's style while the field has its default value (the parser restores it);
- `"erased": True`: a name for display only, e.g. that of a jitted function, and used as the name of shared sub-jaxprs;
- `"print": "name"`: the name of the parameter in the text, if it is not the field's;
- `"jax": "new_dtype"`: JAX's name of the parameter, if it differs; `"jax": False`: JAX has no such parameter.

A primitive whose parameters JAX writes differently has a method `jax_params` (the capability `HasJaxParams`).
"""

from __future__ import annotations

import itertools
import re
import struct
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, TypeAlias, final

import attrs
from typing_extensions import override

from tracefx.bounded_cache import memoize
from tracefx.core import DType, Literal, ShapedArray, dtypes
from tracefx.core.custom_text import CustomText
from tracefx.core.jaxpr import DEFAULT_WIDTH, Atom, ClosedJaxpr, Eqn, Jaxpr, Style, Var, postorder
from tracefx.core.primitive import Primitive
from tracefx.dimensions.symbolic_dimensions import SymbolicDimension
from tracefx.pytrees.registry import TreeDef
from tracefx.pytrees.structures import describe, treedef_text
from tracefx.text.fields import (
    FieldVisitor,
    PlainValue,
    field_text_name,
    is_default,
    subjaxprs_in,
    text_fields,
    text_values,
)
from tracefx.text.pretty_printer import Break, Doc, Group, LazyDocs, Nest, concat, fill, join, render


class HasJaxParams:
    """A capability: the primitive's parameters in JAX's text differ from its fields."""

    __slots__ = ()

    @abstractmethod
    def jax_params(self) -> Mapping[str, object]:
        """Returns JAX's parameters by name, without those that JAX omits. They are printed by `str`, sorted by name."""
        raise NotImplementedError


_MAX_BYTES: Final = 256
"""Longer bytes, such as modules of StableHLO, are shown by their length. The parser does not read this."""

# ------------------------------------------------------------------ names

RESERVED_WORDS: Final = frozenset({"lambda", "let", "in", "nan", "inf", "nanj", "infj"})
"""Words that cannot be variable names; such a variable gets a trailing `_`."""

DTYPES_BY_NAME: Final[Mapping[str, DType]] = {dtypes.name(d): d for d in (*dtypes.ALL_DTYPES, *dtypes.KEY_DTYPES)}
DTYPE_NAMES: Final[Mapping[DType, str]] = {d: name for name, d in DTYPES_BY_NAME.items()}
_RESERVED_NAMES: Final = frozenset(
    {*RESERVED_WORDS, "True", "False", "None", "_", "complex", "dim", "frozenset", "PyTreeDef", *DTYPES_BY_NAME}
) | {dtypes.short_name(d) for d in DTYPES_BY_NAME.values()}


def letters(n: int) -> str:
    """Returns `n` in base 26 with the digits a to z."""
    text = ""
    while True:
        n, digit = divmod(n, 26)
        text = chr(ord("a") + digit) + text
        if n == 0:
            return text


@memoize(1 << 16)
def variable_name(index: int) -> str:
    """Returns the name of the variable with an index. Distinct indices have distinct names.

    >>> variable_name(0), variable_name(26), variable_name(221)
    ('a', 'ba', 'in_')
    """
    name = letters(index) if index >= 0 else f"minus_{-index}"
    return name + "_" if name in RESERVED_WORDS else name


# ------------------------------------------------------------------ parameters


def _params(prim: Primitive, style: Style) -> list[tuple[str, object]]:
    """Returns the parameters of a primitive to print, by name."""
    if style == "jax" and isinstance(prim, HasJaxParams):
        params = dict(prim.jax_params())
    else:
        params = {}
        for f in text_fields(type(prim)):
            value = getattr(prim, f.name)
            if style == "jax":
                name = f.metadata.get("jax", field_text_name(f))
                if name is not False:
                    params[name] = value
            elif not (f.metadata.get("hide_default") and is_default(value, f.default)):
                params[field_text_name(f)] = value
    if style == "tracefx":
        return list(params.items())
    return sorted(params.items(), key=lambda item: (item[0] != "name", item[0]))


def _display_name(prim: Primitive) -> str | None:
    """Returns the display name of a primitive, e.g. of a jitted function."""
    for f in attrs.fields(type(prim)):
        value = getattr(prim, f.name)
        if f.metadata.get("erased") and isinstance(value, str):
            return value
    return None


def float_text(x: float) -> str:
    """Returns `repr(x)`; for a NaN with unusual bits, a notation with these bits."""
    if x == x or struct.pack("<d", x) == struct.pack("<d", float("nan")):
        return repr(x)
    return f"nan(0x{struct.unpack('<Q', struct.pack('<d', x))[0]:x})"


def scalar_text(x: complex | float | int | bool) -> str:
    """Returns a number as text from which every bit can be restored."""
    if type(x) is bool:
        return repr(x)
    if type(x) is int:
        return str(x) if x.bit_length() < 4096 else hex(x)
    if isinstance(x, float):
        return float_text(x)
    plain = x == x and (x.imag == x.imag)
    return repr(x) if plain else f"complex({float_text(x.real)}, {float_text(x.imag)})"


def is_identifier(name: str) -> bool:
    """Whether a name can be written without quotes."""
    return re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) is not None


def callable_name(f: object) -> str:
    """Returns the qualified name of a callable, or of its class."""
    return getattr(f, "__qualname__", None) or type(f).__qualname__


# ------------------------------------------------------------------ shared sub-jaxprs


_MAX_INLINE_EQNS: Final = 10  # equations
_MAX_INLINE_DEPTH: Final = 12  # nested sub-jaxprs


@final
class _SharedBodies:
    """Selects the sub-jaxprs that are printed under a name before the program: those that are used twice or are long.

    In tracefx's style also those that would make the nesting too deep to read.
    """

    def __init__(self, root: Jaxpr, style: Style) -> None:
        order: list[Jaxpr] = [root]
        uses = {id(root): 0}
        inner: dict[int, list[Jaxpr]] = {}
        labels: dict[int, str] = {}
        for program in order:  # appended to while iterated over
            children = inner.setdefault(id(program), [])
            for eqn in program.eqns:
                values = _params(eqn.prim, style)
                for body in subjaxprs_in(tuple([v for _, v in values])):
                    if id(body) not in uses:
                        order.append(body)
                        uses[id(body)] = 0
                    uses[id(body)] += 1
                    children.append(body)
                    label = _display_name(eqn.prim)
                    if label is not None:
                        labels.setdefault(id(body), label)
        printed_twice: set[int] = set()
        todo = [p for p in order if uses[id(p)] > 1]
        while todo:
            program = todo.pop()
            if id(program) not in printed_twice:
                printed_twice.add(id(program))
                todo += inner[id(program)]
        deep = _too_deep(order, inner, printed_twice) if style == "tracefx" else set()
        self.names: dict[int, str] = {}
        self.bodies: list[Jaxpr] = []
        used_names: set[str] = set(_RESERVED_NAMES) if style == "tracefx" else set()
        for program in order[1:]:
            if id(program) in printed_twice or len(program.eqns) > _MAX_INLINE_EQNS or id(program) in deep:
                self.names[id(program)] = _fresh_name(labels.get(id(program), "jaxpr"), used_names, style)
                self.bodies.append(program)
        if style == "tracefx":
            self.bodies = [b for b in postorder(self.bodies, lambda b: inner[id(b)]) if id(b) in self.names]


def _too_deep(order: Sequence[Jaxpr], inner: Mapping[int, Sequence[Jaxpr]], named: set[int]) -> set[int]:
    """Returns the ids of sub-jaxprs to name in addition, so that nesting is at most `_MAX_INLINE_DEPTH`."""
    heights: dict[int, int] = {}
    deep: set[int] = set()
    for program in postorder(order, lambda p: inner[id(p)]):
        height = 1 + max([heights[id(body)] for body in inner[id(program)]], default=0)
        if height > _MAX_INLINE_DEPTH:
            deep.add(id(program))
        heights[id(program)] = (
            0 if id(program) in named or height > _MAX_INLINE_DEPTH or len(program.eqns) > _MAX_INLINE_EQNS else height
        )
    return deep


def _fresh_name(label: str, used_names: set[str], style: Style) -> str:
    """Returns an unused name derived from a label, and marks it as used."""
    base = label.strip("<>")
    if style == "tracefx":
        base = re.sub(r"[^A-Za-z0-9_]", "_", base)
        if not base or base[0].isdigit():
            base = f"jaxpr{base}"
    name, n = base, 0
    while name in used_names:
        n += 1
        name = f"{base}{n}"
    used_names.add(name)
    return name


# ------------------------------------------------------------------ the text


def format_jaxpr(jaxpr: Jaxpr | ClosedJaxpr, *, style: Style = "tracefx", width: int = DEFAULT_WIDTH) -> str:
    """Returns a jaxpr as text.

    In the style `"tracefx"` weak types are marked by `*`, variables are named after their indices, each sub-jaxpr has
    its own names, and `parse_jaxpr` returns an equal jaxpr unless it contains callables. The style `"jax"` reproduces
    JAX's text of the same program.

    Args:
        jaxpr: The program.
        style: `"tracefx"` or `"jax"`.
        width: The approximate line width.

    >>> from tracefx.core.jaxpr import Jaxpr, Var
    >>> x = Var(0, ShapedArray((2,), dtypes.float32))
    >>> format_jaxpr(Jaxpr((), (x,), (), (x, Literal(1.0, ShapedArray((), x.aval.dtype, weak_type=True)))))
    '{ lambda ; a:f32[2]. let in (a, 1.0:f32[]*) }'
    """
    root = jaxpr if isinstance(jaxpr, Jaxpr) else jaxpr.jaxpr
    shared = _SharedBodies(root, style)
    writer = _JaxWriter(shared) if style == "jax" else _JaxprWriter(shared.names)
    parts: list[str] = []
    for body in shared.bodies:
        name = shared.names.pop(id(body))  # so that the body itself is printed, not its name
        text = render(concat(f"let {name} = ", writer.program(body, top=False, width=width), " in"), width)
        shared.names[id(body)] = name
        parts.append(text)
    parts.append(render(writer.program(root, top=True, width=width), width))
    return "\n".join(parts)


def format_eqn(eqn: Eqn) -> str:
    """Returns one equation on one line, without its sub-jaxprs.

    >>> from tracefx.core.jaxpr import Eqn, Var
    >>> class Sin(Primitive):
    ...     name = "sin"
    >>> x, y = [Var(i, ShapedArray((2,), dtypes.float32)) for i in range(2)]
    >>> format_eqn(Eqn(Sin(), (x,), (y,)))
    'b:f32[2] = sin a'
    """
    return render(Group(_BodylessWriter({}).equation(eqn, {})), _UNLIMITED_WIDTH)


VarNames: TypeAlias = dict[int, str]
_UNLIMITED_WIDTH: Final = 10**9
_MIN_EQN_WIDTH: Final = len("() = f")


class _JaxprWriter(FieldVisitor[Doc]):
    """Converts jaxprs to documents in tracefx's style."""

    pads = False
    """Whether empty parts are surrounded by blanks."""

    def __init__(self, shared: Mapping[int, str]) -> None:
        self.shared = shared

    # -------------------------------------------------------------- atoms

    @override
    def aval(self, value: ShapedArray) -> str:
        return repr(value)

    def variable(self, v: Var, names: VarNames) -> str:
        return names.get(v.index) or variable_name(v.index)

    def operand(self, x: Atom, names: VarNames) -> str:
        return self.literal(x) if isinstance(x, Literal) else self.variable(x, names)

    @override
    def literal(self, value: Literal) -> str:
        return f"{scalar_text(value.val)}:{self.aval(value.aval)}"

    def binders(self, vs: Iterable[Var], names: VarNames) -> Doc:
        return fill("", [f"{self.variable(v, names)}:{self.aval(v.aval)}" for v in vs])

    # -------------------------------------------------------------- programs

    def names(self, program: Jaxpr, top: bool) -> VarNames:
        """Returns the names that are not the default ones: `_` for unused variables whose position gives the index."""
        used = _used_indices(program)
        names: VarNames = {}
        position = len(program.constvars) + len(program.invars)
        for eqn in program.eqns:
            for v in eqn.outs:
                if v.index == position and v.index not in used:
                    names[position] = "_"
                position += 1
        return names

    def program(self, program: Jaxpr, top: bool, width: int = _UNLIMITED_WIDTH) -> Doc:
        if id(program) in self.shared:
            return self.shared[id(program)]
        names = self.names(program, top)
        constvars = self.binders(program.constvars, names)
        invars = self.binders(program.invars, names)
        body: Doc = ""
        if len(program.eqns) * _MIN_EQN_WIDTH > width:  # these never fit on one line
            body = Nest(LazyDocs(lambda: self.lines(program.eqns, names)))
            outs: Doc = LazyDocs(
                lambda: iter([self.outputs(program.outs, names)])
            )  # after the equations, since names are assigned in order
        else:
            eqns = [self.equation(e, names) for e in program.eqns]
            if eqns or self.pads:
                body = Nest(concat(Break(), join(Break("; "), eqns)))
            outs = self.outputs(program.outs, names)
        end = ",)" if len(program.outs) == 1 else ")"
        lines = concat("{ lambda ", constvars, "; ", invars, ". let", body, Break(), "in (", outs, end)
        return Group(concat(Nest(lines), " }"))

    def lines(self, eqns: Sequence[Eqn], names: VarNames) -> Iterator[Doc]:
        for eqn in eqns:
            yield Break()
            yield self.equation(eqn, names)

    def outputs(self, outs: Sequence[Atom], names: VarNames) -> Doc:
        return fill(",", [self.operand(x, names) for x in outs])

    def equation(self, eqn: Eqn, names: VarNames) -> Doc:
        outs = self.binders(eqn.outs, names) if eqn.outs else "()"
        prim = self.application(eqn.prim)
        operands = fill("", [self.operand(x, names) for x in eqn.inputs])
        return concat(outs, " = ", prim, " ", operands) if eqn.inputs else concat(outs, " = ", prim)

    # -------------------------------------------------------------- parameters

    def application(self, prim: Primitive) -> Doc:
        """Returns the name of an equation's primitive and its parameters."""
        params = _params(prim, "tracefx")
        return concat(_quoted_name(prim.name), self.params(params)) if params else _quoted_name(prim.name)

    def params(self, params: Sequence[tuple[str, object]]) -> Doc:
        pairs = [concat(f"{name}=", self.value(value)) for name, value in params]
        return Group(concat(Nest(concat("[", Break(""), join(Break(), pairs))), Break(""), "]"))

    @override
    def plain(self, value: PlainValue) -> Doc:
        if isinstance(value, bytes) and len(value) > _MAX_BYTES:
            return f"<{len(value)} bytes>"
        return repr(value) if value is None or isinstance(value, (str, bytes)) else scalar_text(value)

    @override
    def dimension(self, value: SymbolicDimension) -> Doc:
        return f"dim({value})"

    @override
    def dtype(self, value: DType) -> Doc:
        return DTYPE_NAMES.get(value, f"<{value}>")

    @override
    def member(self, value: Enum) -> Doc:
        return f"{type(value).__name__}.{value.name}" if value.name else f"<{value!r}>"

    @override
    def jaxpr(self, value: Jaxpr) -> Doc:
        return self.program(value, top=False)

    @override
    def primitive(self, value: Primitive) -> Doc:
        return concat(_quoted_name(value.name), self.params(_params(value, "tracefx")))

    @override
    def elements(self, value: tuple[object, ...]) -> Doc:
        parts = [self.value(v) for v in value]
        if parts and all(isinstance(v, Jaxpr) for v in value):
            return Group(concat(Nest(concat("(", Break(""), join(Break(), parts))), Break(""), ")"))
        return concat("(", join(", ", parts), ",)" if len(parts) == 1 else ")")

    @override
    def set_elements(self, value: frozenset[object]) -> Doc:
        texts = sorted(render(Group(self.value(v)), _UNLIMITED_WIDTH) for v in value)
        return f"frozenset({{{', '.join(texts)}}})" if texts else "frozenset()"

    @override
    def custom(self, value: CustomText) -> Doc:
        positional, named = value.text_args()
        parts = [self.value(v) for v in positional]
        parts += [concat(f"{_quoted_name(name)}=", self.value(v)) for name, v in named.items()]
        return concat(f"{value.text_name}(", join(", ", parts), ")")

    @override
    def record(self, value: object) -> Doc:
        parts = [concat(f"{name}=", self.value(v)) for name, v in text_values(value)]
        return concat(f"{type(value).__name__}(", join(", ", parts), ")")

    @override
    def function(self, value: object) -> Doc:
        return self.record(value) if attrs.has(type(value)) else f"<{callable_name(value)}>"

    @override
    def tree(self, value: TreeDef) -> Doc:
        text = treedef_text(describe(value))
        return f"<{value!r}>" if text is None else f"PyTreeDef({text})"

    @override
    def other(self, value: object) -> Doc:
        return f"<{value!r}>"


@memoize(4096)
def _quoted_name(name: str) -> str:
    """Returns a name, in quotes unless it is an identifier."""
    return name if is_identifier(name) else repr(name)


@final
class _BodylessWriter(_JaxprWriter):
    """Prints sub-jaxprs as `{ ... }`."""

    @override
    def program(self, program: Jaxpr, top: bool, width: int = _UNLIMITED_WIDTH) -> Doc:
        return "{ ... }"


@final
class _JaxWriter(_JaxprWriter):
    """Prints in JAX's style: names continue in sub-jaxprs, and those of a jitted function's body follow its call."""

    pads = True

    def __init__(self, shared: _SharedBodies) -> None:
        super().__init__(shared.names)
        used_names = frozenset(shared.names.values())
        self._bodies: dict[int, VarNames] = {}
        self._fresh = (name for n in itertools.count() if (name := letters(n)) not in used_names)

    @override
    def aval(self, value: ShapedArray) -> str:
        return str(value)

    @override
    def variable(self, v: Var, names: VarNames) -> str:
        name = names.get(v.index)
        if name is None:
            name = names[v.index] = next(self._fresh)
        return name

    @override
    def literal(self, value: Literal) -> str:
        return str(value)

    @override
    def names(self, program: Jaxpr, top: bool) -> VarNames:
        if not top:
            return self._bodies.pop(id(program), {})
        used = _used_indices(program)
        return {v.index: "_" for eqn in program.eqns for v in eqn.outs if v.index not in used}

    @override
    def equation(self, eqn: Eqn, names: VarNames) -> Doc:
        outs: list[Doc] = [self.binders(eqn.outs, names), " = "] if eqn.outs else []
        params = _params(eqn.prim, "jax")
        if eqn.prim.name == "jit":
            for body in subjaxprs_in(tuple([value for _, value in params])):
                if id(body) not in self.shared:
                    self._bodies[id(body)] = self.names_of_call(body, eqn, names)
        prim = concat(eqn.prim.name, self.params(params)) if params else eqn.prim.name
        return concat(*outs, prim, " ", fill("", [self.operand(x, names) for x in eqn.inputs]))

    def names_of_call(self, body: Jaxpr, eqn: Eqn, names: VarNames) -> VarNames:
        """Returns names of the inputs and outputs of a jitted body: those of the call's operands and results."""
        inner: VarNames = {}
        for inner_atoms, outer_atoms in ((body.invars, eqn.inputs), (body.outs, eqn.outs)):
            named: set[int] = set()
            for v, x in zip(inner_atoms, outer_atoms, strict=False):
                if isinstance(v, Literal) or isinstance(x, Literal) or x.index in named or v.index in inner:
                    continue
                named.add(x.index)
                inner[v.index] = self.variable(x, names)
        return inner

    @override
    def value(self, value: object) -> Doc:
        if isinstance(value, Jaxpr) or (isinstance(value, tuple) and any(True for _ in subjaxprs_in(value))):
            return super().value(value)
        if callable(value) and not attrs.has(type(value)):
            return callable_name(value).rpartition(".")[2]
        return str(value)


def _used_indices(program: Jaxpr) -> set[int]:
    """Returns the indices of the variables that equations or outputs read."""
    atoms = [x for eqn in program.eqns for x in eqn.inputs]
    atoms += program.outs
    return {x.index for x in atoms if not isinstance(x, Literal)}
