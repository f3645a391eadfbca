"""The parser of jaxprs in the text format: the inverse of `printer` in tracefx's style."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, NoReturn, TypeAlias, TypeVar, final

from tracefx.core import Literal, Scalar, ShapedArray, dtypes
from tracefx.core.avals import NOT_VARYING, MeshAxes
from tracefx.core.custom_text import CustomText
from tracefx.core.jaxpr import Atom, Eqn, Jaxpr, Var
from tracefx.core.meshes import MESH
from tracefx.core.named_sharding import NamedSharding, Spec, type_sharding
from tracefx.core.partition_spec import PartitionEntry, entry_axis_names
from tracefx.core.primitive import Primitive, Vocabulary
from tracefx.dimensions.bounds import SymbolicScope
from tracefx.dimensions.parser import parse_dimensions
from tracefx.dimensions.symbolic_dimensions import has_symbolic_dims
from tracefx.errors import ParseError
from tracefx.pytrees.trees import PyTree, TreeDef, structure
from tracefx.text.field_annotations import AnnotationResolver
from tracefx.text.fields import FieldInfo
from tracefx.text.printer import DTYPES_BY_NAME, RESERVED_WORDS, variable_name

T = TypeVar("T")

MAX_PARSE_DEPTH: Final = 100
"""The maximal nesting of sub-jaxprs and parameters."""


def parse_jaxpr(text: str, vocabulary: Vocabulary) -> Jaxpr:
    """Parses a jaxpr in tracefx's text format.

    `parse_jaxpr(str(jaxpr), vocabulary) == jaxpr` for every well-formed jaxpr without callables; a shared sub-jaxpr is
    a single object again. Variables may have any names. The classes of parameter values (enums, frozen attrs classes,
    named tuples) are those named in the annotations of the primitive's fields; nothing else is called. The result is
    not type-checked: use `check_jaxpr`.

    Args:
        text: The text.
        vocabulary: The primitive classes by name.

    Raises:
        ParseError: If the text is malformed. The message has the line, the column and what was expected there.

    >>> class Sin(Primitive):
    ...     name = "sin"
    >>> parse_jaxpr("{ lambda ; x:f32[3]. let y:f32[3] = sin x in (y, 1.0:f32[]*) }", {"sin": Sin})
    { lambda ; a:f32[3]. let b:f32[3] = sin a in (b, 1.0:f32[]*) }
    """
    return _Parser(text, vocabulary).parse()


# ------------------------------------------------------------------ tokens

_FLOAT = r"-?(?:inf|nan(?:\(0x[0-9a-f]{1,16}\))?|\d+(?:\.\d*)?(?:e[+-]?\d+)?)"
_ESCAPE = r"\\(?:[\\'\"nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U00(?:0[0-9a-f]|10)[0-9a-f]{4})"
_TOKEN: Final = re.compile(
    rf"""
      (?P<blank>\s+)
    | (?P<complex>\({_FLOAT}[+-]{_FLOAT.removeprefix("-?")}j\)|{_FLOAT}j(?!\w))
    | (?P<number>-?0x[0-9a-f]+(?!\w)|{_FLOAT}(?!\w))
    | (?P<string>b?'(?:[^\\'\n]|{_ESCAPE})*'|b?"(?:[^\\"\n]|{_ESCAPE})*")
    | (?P<name>key<[a-z]+>|[A-Za-z_]\w*)
    | (?P<opaque><(?s:.*))  # the rest of the text cannot be parsed
    | (?P<mark>[{{}}()\[\].,;:=*@+^-])
    """,
    re.VERBOSE | re.ASCII,
)
_COMPLEX: Final = re.compile(rf"\(({_FLOAT})([+-]{_FLOAT.removeprefix('-?')})j\)")
_END: Final = "end"


@final
class _Token:
    """A token: its kind (a group of `_TOKEN`, or the end), its text and its position."""

    __slots__ = ("kind", "start", "text")

    def __init__(self, kind: str, text: str, start: int) -> None:
        self.kind = kind
        self.text = text
        self.start = start


def _tokenize(text: str) -> Iterator[_Token]:
    """Iterates over the tokens of a text, followed by the end token."""
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            what = "a string without an end" if text[at] in "'\"" else "not part of a program"
            raise _parse_error(text, at, f"{text[at]!r} is {what}")
        kind = match.lastgroup
        assert kind is not None
        if kind != "blank":
            yield _Token(kind, match.group(), at)
        at = match.end()
    yield _Token(_END, "", len(text))


def _parse_error(text: str, at: int, problem: str) -> ParseError:
    """Returns the error with line, column and the line of text."""
    start = text.rfind("\n", 0, at) + 1
    line, column = text.count("\n", 0, at) + 1, at - start + 1
    code = text[start:].partition("\n")[0]
    first = max(0, column - 60)  # of a long line, only the part around the error
    shown = code[first : first + 100]
    return ParseError(f"line {line}, column {column}: {problem}\n    {shown}\n    {' ' * (column - 1 - first)}^")


def _unescape(body: str) -> str:
    simple = {"n": "\n", "r": "\r", "t": "\t"}

    def char(match: re.Match[str]) -> str:
        code = match.group()[1:]
        return chr(int(code[1:], 16)) if len(code) > 1 else simple.get(code, code)

    return re.sub(_ESCAPE, char, body)


def _float(text: str) -> float:
    if "(" in text:
        bits = int(text.partition("(")[2].rstrip(")"), 16)
        return float(struct.unpack("<d", struct.pack("<Q", bits))[0])
    return float(text)


def _complex(text: str) -> complex:
    match = _COMPLEX.fullmatch(text)
    return complex(_float(match[1]), _float(match[2])) if match else complex(0.0, _float(text[:-1]))


# ------------------------------------------------------------------ programs


@final
class _Scope:
    """The variables of one jaxpr while it is parsed, by name."""

    def __init__(self) -> None:
        self.vars: dict[str, int] = {}
        self.avals: list[ShapedArray] = []
        self.names: list[str] = []

    def numbers(self) -> list[int]:
        """Returns the variable indices: those that the names spell if they form a permutation, else the positions."""
        numbers = [position if name == "_" else _index_of_name(name) for position, name in enumerate(self.names)]
        return numbers if sorted(numbers) == list(range(len(numbers))) else list(range(len(numbers)))


def _index_of_name(name: str) -> int:
    """Returns the index whose `variable_name` this is; -1 if there is none."""
    number = 0
    letters = name.removesuffix("_") if name[:-1] in RESERVED_WORDS else name
    if len(letters) > 8:  # no program has that many variables
        return -1
    for c in letters:
        if not "a" <= c <= "z":
            return -1
        number = 26 * number + ord(c) - ord("a")
    return number if variable_name(number) == name else -1


_Operand: TypeAlias = int | Literal
"""A literal, or the position of a variable in its jaxpr, as long as indices are unknown."""


@final
class _Parser:
    """A recursive-descent parser with one token of lookahead."""

    def __init__(self, text: str, vocabulary: Vocabulary) -> None:
        self.text = text
        self.rest = _tokenize(text)
        self.word = next(self.rest)
        self.after = self.word
        """The lookahead token. Tokens are made lazily."""
        self.move()
        self.vocabulary = vocabulary
        self.classes = AnnotationResolver()
        self.depth = 0
        self.scope = SymbolicScope()
        self.shared: dict[str, Jaxpr] = {}
        self.avals: dict[tuple[str, tuple[int, ...], MeshAxes, bool, Spec], ShapedArray] = {}

    # -------------------------------------------------------------- tokens

    def move(self) -> None:
        """Advances by one token."""
        self.word = self.after
        self.after = next(self.rest, self.after)

    def take(self) -> _Token:
        """Returns the current token and advances."""
        word = self.word
        self.move()
        return word

    def at(self, text: str) -> bool:
        """Whether the current token is this mark or name."""
        return self.word.text == text and self.word.kind in ("mark", "name")

    def skip(self, text: str) -> bool:
        """Advances and returns True if the current token is this mark or name."""
        if self.at(text):
            self.move()
            return True
        return False

    def expect(self, text: str, where: str) -> None:
        """Advances over this mark or name; fails for any other token."""
        if not self.skip(text):
            self.expected(f"{text!r} {where}")

    def expected(self, what: str) -> NoReturn:
        found = repr(self.word.text) if self.word.kind != _END else "the end of the text"
        self.fail(f"expected {what}, found {found}")

    def fail(self, problem: str, word: _Token | None = None, cause: Exception | None = None) -> NoReturn:
        raise _parse_error(self.text, (word or self.word).start, problem) from cause

    def name(self, what: str) -> _Token:
        if self.word.kind != "name":
            self.expected(what)
        return self.take()

    def items(self, end: str, item: Callable[[], T], what: str) -> list[T]:
        """Parses comma-separated items up to and including `end`."""
        items: list[T] = []
        while not self.skip(end):
            items.append(item())
            if not self.at(end):
                self.expect(",", f"or {end!r} after {what}")
        return items

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_PARSE_DEPTH:
            self.fail(f"sub-jaxprs and parameters are nested more than {MAX_PARSE_DEPTH} deep")

    # -------------------------------------------------------------- programs

    def parse(self) -> Jaxpr:
        while self.skip("let"):
            name = self.name("the name of a shared body")
            if name.text in self.shared:
                self.fail(f"a body named {name.text!r} exists already", name)
            self.expect("=", "after the name of a shared body")
            body = self.program()
            self.expect("in", "after a shared body")
            self.shared[name.text] = body
        jaxpr = self.program()
        if self.word.kind != _END:
            self.expected("the end of the text")
        return jaxpr

    def program(self) -> Jaxpr:
        self.deeper()
        self.expect("{", "where a program begins")
        self.expect("lambda", "after '{'")
        scope = _Scope()
        while not self.skip(";"):
            self.bind(scope, *self.binder("';' or a constant's variable"))
        consts = len(scope.names)
        while not self.skip("."):
            self.bind(scope, *self.binder("'.' or an input's variable"))
        inputs = len(scope.names)
        self.expect("let", "after the inputs")
        eqns: list[tuple[Primitive, list[_Operand], int, int]] = []
        while not (self.at("in") and self.after.text == "("):
            eqns.append(self.equation(scope))
            self.skip(";")
        self.take()
        self.take()
        outs = self.items(")", lambda: self.operand(scope), "an output")
        self.expect("}", "where a program ends")
        self.depth -= 1

        vs = [Var(n, aval) for n, aval in zip(scope.numbers(), scope.avals, strict=True)]

        def atoms(operands: Sequence[_Operand]) -> tuple[Atom, ...]:
            return tuple([vs[x] if isinstance(x, int) else x for x in operands])

        return Jaxpr(
            tuple(vs[:consts]),
            tuple(vs[consts:inputs]),
            tuple([Eqn(prim, atoms(operands), tuple(vs[first:last])) for prim, operands, first, last in eqns]),
            atoms(outs),
        )

    def binder(self, what: str) -> tuple[_Token, ShapedArray]:
        name = self.name(what)
        self.expect(":", f"and a type after variable {name.text!r}")
        return name, self.aval()

    def bind(self, scope: _Scope, name: _Token, aval: ShapedArray) -> None:
        if name.text in scope.vars:
            self.fail(f"variable {name.text!r} is bound already", name)
        if name.text != "_":
            scope.vars[name.text] = len(scope.names)
        scope.names.append(name.text)
        scope.avals.append(aval)

    def equation(self, scope: _Scope) -> tuple[Primitive, list[_Operand], int, int]:
        outs: list[tuple[_Token, ShapedArray]] = []
        if self.skip("("):
            self.expect(")", "where an equation has no outputs")
        else:
            outs.append(self.binder("'in' or an output's variable"))
            while not self.at("="):
                outs.append(self.binder("'=' or an output's variable"))
        self.expect("=", "after the outputs")
        prim, operands = self.application(scope)
        first = len(scope.names)
        for name, aval in outs:
            self.bind(scope, name, aval)
        return prim, operands, first, len(scope.names)

    def application(self, scope: _Scope) -> tuple[Primitive, list[_Operand]]:
        prim = self.primitive()
        operands: list[_Operand] = []
        while self.at_operand():
            operands.append(self.operand(scope))
        return prim, operands

    def at_operand(self) -> bool:
        """Whether the current token begins an operand rather than the next equation."""
        word = self.word
        if word.kind == "name":  # a name followed by a type begins the next equation, unless it is a literal
            if word.text == "complex" and self.after.text == "(":
                return True
            if word.text == "in":
                return self.after.text != "("
            return word.text in ("True", "False") or self.after.text != ":"
        return word.kind in ("number", "complex")

    def operand(self, scope: _Scope) -> _Operand:
        word = self.word
        if word.kind in ("number", "complex") or word.text in ("True", "False", "complex"):
            return self.literal(self.scalar())
        name = self.name("a variable or a literal")
        position = scope.vars.get(name.text)
        if position is None:
            self.fail(f"variable {name.text!r} is bound nowhere before", name)
        return position

    # -------------------------------------------------------------- atoms

    def aval(self) -> ShapedArray:
        name = self.name("a type such as f32[3]")
        self.expect("[", f"and a shape after {name.text!r}")
        dimensions = self.items("]", self.dimension, "a dimension")
        shape, entries = tuple([n for n, _ in dimensions]), tuple([entry for _, entry in dimensions])
        vma = self.varying_axes() if self.skip("{") else NOT_VARYING
        key = (name.text, shape, vma, self.skip("*"), entries)
        aval = self.avals.get(key)
        if aval is None:
            try:
                dtype = dtypes.from_short_name(name.text)
            except ValueError as error:
                self.fail(str(error), name, error)
            aval = self.avals[key] = ShapedArray(shape, dtype, key[3], vma, self.sharding(entries, name))
        return aval

    def varying_axes(self) -> MeshAxes:
        """Parses the rest of `{V:x}` or `{V:(x,y)}`."""
        self.expect("V", "for varying mesh axes")
        self.expect(":", "after 'V'")
        names = self.items(")", self.mesh_axis, "a mesh axis") if self.skip("(") else [self.mesh_axis()]
        self.expect("}", "after the mesh axes")
        return frozenset(names)

    def mesh_axis(self) -> str:
        word = self.word
        name = self.string() if word.kind == "string" else self.name("the name of a mesh axis").text
        return name if isinstance(name, str) else self.fail(f"{name!r} is not the name of a mesh axis", word)

    def dimension(self) -> tuple[int, PartitionEntry]:
        if not self.word.text.isdecimal() or self.after.text in ("*", "+", "-"):
            return self.symbolic_dimension(",", "]"), None
        size = self.integer(self.take())
        if not self.skip("@"):
            return size, None
        return size, tuple(self.items(")", self.mesh_axis, "a mesh axis")) if self.skip("(") else self.mesh_axis()

    def symbolic_dimension(self, *ends: str) -> int:
        """Parses an expression of dimension variables, up to one of these marks."""
        first, depth = self.word, 0
        while depth or self.word.text not in ends:
            if self.word.kind not in ("name", "number", "mark"):
                self.expected("a dimension")
            depth += self.at("(") - self.at(")")
            self.move()
        text = self.text[first.start : self.word.start].strip()
        try:
            (size,) = parse_dimensions(text, self.scope, simplified=False)
        except ValueError as error:
            self.fail(f"expected a dimension, found {text!r}: {error}", first, error)
        return size if has_symbolic_dims((size,)) else self.fail(f"expected a dimension, found {text!r}", first)

    def sharding(self, entries: Spec, at: _Token) -> NamedSharding | None:
        """Returns the sharding of a type, over the mesh in use."""
        mesh = MESH.value.abstract_mesh
        unknown = {name for entry in entries for name in entry_axis_names(entry)}.difference(mesh.explicit_axes)
        if unknown:
            self.fail(
                f"{', '.join(map(repr, sorted(unknown)))} must be explicit axes of the mesh in use: parse the program "
                "inside `with set_mesh(...)` or `with use_abstract_mesh(...)`",
                at,
            )
        return type_sharding(mesh, entries, len(entries))

    def integer(self, word: _Token) -> int:
        try:
            return int(word.text, 16 if "x" in word.text else 10)
        except ValueError as error:  # Python limits the number of digits
            self.fail(f"a number of {len(word.text)} digits is too long", word, error)

    def scalar(self) -> Scalar:
        word = self.take()
        if word.text in ("True", "False"):
            return word.text == "True"
        if word.kind == "complex":
            return _complex(word.text)
        if word.text == "complex":
            self.expect("(", "after 'complex'")
            parts = self.items(")", self.real, "a part of a complex number")
            if len(parts) != 2:
                self.fail(f"a complex number has two parts, not {len(parts)}", word)
            return complex(*parts)
        whole = word.text.lstrip("-").startswith("0x") or word.text.lstrip("-").isdecimal()
        return self.integer(word) if whole else _float(word.text)

    def real(self) -> float:
        if self.word.kind != "number":
            self.expected("a number")
        return float(self.scalar().real)

    def literal(self, val: Scalar) -> Literal:
        start = self.word
        self.expect(":", "and a type after a literal")
        aval = self.aval()
        try:
            literal = Literal(val, aval)
            literal.numpy()
        except Exception as error:  # NumPy may reject the number with any exception
            self.fail(f"{val!r} is not a literal of type {aval!r}: {error}", start, error)
        return literal

    # -------------------------------------------------------------- primitives and their parameters

    def primitive(self) -> Primitive:
        word = self.word
        if word.kind not in ("name", "string"):
            self.expected("an operation")
        name = self.string() if word.kind == "string" else self.take().text
        kind = self.vocabulary.get(name) if isinstance(name, str) else None
        if kind is None:
            known = ", ".join(sorted(self.vocabulary)[:12]) + (", ..." if len(self.vocabulary) > 12 else "")
            self.fail(f"no primitive is named {name!r}; there are {known or 'none'}", word)
        fields = self.classes.fields(kind)
        values: dict[str, object] = {}
        if self.skip("["):
            while not self.skip("]"):
                self.field(kind, fields, values, "']' or a parameter's name")
        return self.construct(kind, values, word)

    def field(self, kind: type, fields: Mapping[str, FieldInfo], values: dict[str, object], what: str) -> None:
        name = self.name(what)
        field = fields.get(name.text)
        if field is None:
            self.fail(f"{kind.__name__} has no field {name.text!r}; its fields are {', '.join(fields) or 'none'}", name)
        if field.argument in values:
            self.fail(f"{name.text!r} is given twice", name)
        self.expect("=", f"after {name.text!r}")
        values[field.argument] = self.value(self.classes.hint(kind, field.attribute))

    def construct(self, kind: type[T], values: Mapping[str, object], word: _Token) -> T:
        return self.classes.construct(kind, values, lambda problem, cause: self.fail(problem, word, cause))

    def value(self, hint: object) -> object:
        self.deeper()
        value = self.shallow_value(hint)
        self.depth -= 1
        return value

    def shallow_value(self, hint: object) -> object:
        word, after = self.word, self.after.text
        if (
            word.kind in ("number", "complex")
            or word.text in ("True", "False")
            or (word.text, after) == ("complex", "(")
        ):
            scalar = self.scalar()
            return self.literal(scalar) if self.at(":") else scalar
        if word.kind == "string":
            return self.primitive() if after == "[" else self.string()
        if (word.text, after) == ("dim", "("):
            self.move()
            self.move()
            size = self.symbolic_dimension(")")
            self.move()
            return size
        if word.kind == "name":
            return self.named_value(hint)
        if word.kind == "opaque":
            shown = re.match(r"<[^\s\]),]{0,80}", word.text)
            assert shown is not None
            self.fail(f"{shown[0]} is a value without a text form, e.g. a function, and can't be parsed")
        if self.at("{"):
            return self.program()
        if self.skip("("):
            return self.tuple_of_values(hint)
        self.expected("a value")

    def tuple_of_values(self, hint: object) -> tuple[object, ...]:
        values: list[object] = []
        while not self.skip(")"):
            values.append(self.value(hint))
            if not self.at(")") and not self.skip(",") and not isinstance(values[-1], Jaxpr):
                self.expected("',' or ')' after a value")
        return tuple(values)

    def named_value(self, hint: object) -> object:
        word, after = self.word, self.after.text
        name = word.text
        if after == "[":
            return self.primitive() if name in self.vocabulary else self.aval()
        self.take()
        if after == ".":
            return self.member(self.class_called(word, hint), word)
        if name == "PyTreeDef":
            return self.structure(word)
        if after == "(":
            return self.frozenset_of_values(hint) if name == "frozenset" else self.record(word, hint)
        if name == "None":
            return None
        if name in self.shared:
            return self.shared[name]
        if name in DTYPES_BY_NAME:
            return DTYPES_BY_NAME[name]
        self.fail(f"{name!r} is not a value: no dtype and no shared body has this name", word)

    def frozenset_of_values(self, hint: object) -> frozenset[object]:
        word = self.take()
        if self.at("{") and self.after.text != "lambda":
            self.take()
            values = self.items("}", lambda: self.value(hint), "a value")
            self.expect(")", "after a set")
        else:
            values = self.items(")", lambda: self.value(hint), "a value")
        try:
            return frozenset(values)
        except TypeError as error:
            self.fail(str(error), word, error)

    def structure(self, word: _Token) -> TreeDef:
        """Parses a pytree structure in Python notation, with `*` for leaves."""
        self.expect("(", "after 'PyTreeDef'")
        tree = self.container()
        self.expect(")", "after a structure")
        try:
            return structure(tree)
        except Exception as error:  # jaxlib may raise any exception
            self.fail(f"this is not a pytree structure: {error}", word, error)

    def container(self) -> PyTree:
        self.deeper()
        tree: PyTree = None
        if self.skip("*"):
            tree = 0
        elif self.skip("("):
            tree = tuple(self.items(")", self.container, "a part of a tuple"))
        elif self.skip("["):
            tree = self.items("]", self.container, "a part of a list")
        elif self.skip("{"):
            tree = dict(self.items("}", self.entry, "an entry of a dict"))
        elif not self.skip("None"):
            self.expected("a structure: *, None, a tuple, a list or a dict")
        self.depth -= 1
        return tree

    def entry(self) -> tuple[object, PyTree]:
        word = self.word
        if word.kind not in ("string", "number") and word.text not in ("True", "False"):
            self.expected("'}' or a key")
        key = self.string() if word.kind == "string" else self.scalar()
        self.expect(":", "after a key")
        return key, self.container()

    def class_called(self, word: _Token, hint: object) -> type:
        kind = self.classes.named(word.text, hint)
        if kind is None:
            self.fail(f"no class called {word.text!r} is named in the annotation of this parameter", word)
        return kind

    def member(self, kind: type, word: _Token) -> Enum:
        self.take()
        name = self.name("the name of a member")
        if not issubclass(kind, Enum) or name.text not in kind.__members__:
            self.fail(f"{word.text} has no member {name.text!r}", name)
        return kind.__members__[name.text]

    def record(self, word: _Token, hint: object) -> object:
        self.take()
        kind = self.class_called(word, hint)
        if issubclass(kind, Enum):
            self.fail(f"write a member of {word.text} as {word.text}.NAME", word)
        if issubclass(kind, CustomText):
            return self.shown(kind, word)
        fields = self.classes.fields(kind)
        values: dict[str, object] = {}
        self.items(")", lambda: self.field(kind, fields, values, "')' or a field's name"), "a field")
        return self.construct(kind, values, word)

    def shown(self, kind: type[CustomText], word: _Token) -> CustomText:
        """Parses a value in its custom text form."""
        positional: list[object] = []
        named: dict[str, object] = {}

        def part() -> None:
            if self.after.text != "=" or self.after.kind != "mark" or self.word.kind not in ("name", "string"):
                positional.append(self.value(kind.arg_type))
                return
            at = self.word
            name = self.take().text if at.kind == "name" else self.string()
            if not isinstance(name, str) or name in named:
                self.fail(f"{name!r} is given twice" if name in named else "a name must be a string, not bytes", at)
            self.move()
            named[name] = self.value(kind.arg_type)

        self.items(")", part, "a part")
        try:
            return kind.from_text_args(tuple(positional), named)
        except Exception as error:  # validators may raise any exception
            self.fail(f"there is no such {word.text}: {error}", word, error)

    def string(self) -> str | bytes:
        word = self.take()
        text = word.text
        if text.startswith("b"):
            try:
                return _unescape(text[2:-1]).encode("latin-1")
            except UnicodeEncodeError as error:
                self.fail("bytes hold characters up to \\xff", word, error)
        return _unescape(text[1:-1])
