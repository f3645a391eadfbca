"""Jaxprs: programs as immutable values, compared by content."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import Callable, Hashable
from typing import ClassVar, Final, Protocol, Self, TypeAlias, TypeVar, cast, final
from typing import Literal as TypingLiteral

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.core.avals import ShapedArray
from tracefx.core.bounded_cache import insert_bounded
from tracefx.core.effects import Effects
from tracefx.core.equality import StrictlyEqual, strict_key
from tracefx.core.fast_init import slot_setter
from tracefx.core.late_binding import LateBound
from tracefx.core.literal import Literal
from tracefx.core.primitive import Primitive
from tracefx.core.source_location import Provenance
from tracefx.core.values import ConcreteArray, Value

R = TypeVar("R")

Style: TypeAlias = TypingLiteral["tracefx", "jax"]
DEFAULT_WIDTH: Final = 80


@final
@frozen(init=False)
class Var:
    """A variable is its number and its type, so equal programs are equal values. Numbers are dense in a jaxpr."""

    index: int
    aval: ShapedArray

    def __init__(self, index: int, aval: ShapedArray) -> None:
        _set_index(self, index)
        _set_aval(self, aval)


_set_index, _set_aval = [slot_setter(Var, name) for name in ("index", "aval")]

Atom: TypeAlias = Var | Literal


@final
@frozen(init=False)
class Eqn:
    """`outs = prim inputs`; where it was written takes no part in equality."""

    prim: Primitive = field(eq=strict_key)
    inputs: tuple[Atom, ...]
    outs: tuple[Var, ...]
    source: Provenance | None = field(default=None, eq=False, repr=False)

    def __init__(
        self, prim: Primitive, inputs: tuple[Atom, ...], outs: tuple[Var, ...], source: Provenance | None = None
    ) -> None:
        _set_prim(self, prim)
        _set_inputs(self, inputs)
        _set_outs(self, outs)
        _set_source(self, source)


_set_prim, _set_inputs, _set_outs, _set_source = [
    slot_setter(Eqn, name) for name in ("prim", "inputs", "outs", "source")
]


@final
class Memo:
    """Results derived from one jaxpr object: its transformed versions, its executable. Dies with the object.

    Neither compared nor pickled. Two threads may compute the same result; one of the two is kept. There is a bound,
    since a program mapped over axes of ever other sizes has a derived one for each.
    """

    __slots__ = ("_results", "known_equal")
    LIMIT: ClassVar[int] = 512

    def __init__(self) -> None:
        self.known_equal: weakref.ref[Jaxpr] | None = None
        """The last program found equal to this one."""
        self._results: dict[Hashable, object] = {}

    def get(self, key: Hashable, compute: Callable[[], R]) -> R:
        found = self._results.get(key, self)
        if found is self:
            found = insert_bounded(self._results, key, compute(), self.LIMIT)
        return cast(R, found)

    @override
    def __reduce__(self) -> tuple[type[Memo], tuple[()]]:
        return Memo, ()


@final
@frozen(eq=False, repr=False)
class Jaxpr(StrictlyEqual):
    """A program: types of constants and inputs, equations in order, outputs.

    `constvars` stand for constants hoisted out of the program, `invars` for its inputs.
    """

    constvars: tuple[Var, ...]
    invars: tuple[Var, ...]
    eqns: tuple[Eqn, ...]
    outs: tuple[Atom, ...]
    memo: Memo = field(factory=Memo, eq=False, repr=False, init=False)

    def _content(self) -> tuple[object, ...]:
        return self.constvars, self.invars, self.eqns, self.outs

    @override
    def __eq__(self, other: object) -> bool:
        """Equality by content. A pair of bodies that several equations share is compared once."""
        if self is other:
            return True
        if not isinstance(other, Jaxpr):
            return NotImplemented
        if hash(self) != hash(other):
            return False
        known = self.memo.known_equal
        if known is not None and known() is other:
            return True
        equal = self._content() == other._content()
        if equal:
            self.memo.known_equal = weakref.ref(other)
        return equal

    @override
    def __hash__(self) -> int:
        return self.memo.get("hash", lambda: hash(self._content()))

    @property
    def in_avals(self) -> tuple[ShapedArray, ...]:
        return tuple([v.aval for v in self.invars])

    @property
    def out_avals(self) -> tuple[ShapedArray, ...]:
        return tuple([a.aval for a in self.outs])

    @property
    def effects(self) -> Effects:
        """What its equations do or need beside computing."""
        return self.memo.get("effects", lambda: frozenset().union(*[e.prim.effects for e in self.eqns]))

    @property
    def var_count(self) -> int:
        """One more than the largest index of a variable."""
        return self.memo.get("var_count", self._count_vars)

    def _count_vars(self) -> int:
        indices = [v.index for v in self.constvars + self.invars]
        indices += [v.index for eqn in self.eqns for v in eqn.outs]
        return max(indices, default=-1) + 1

    @property
    def last_uses(self) -> tuple[tuple[int, ...], ...]:
        """For each equation the variables it reads or binds that nothing reads afterwards."""
        return self.memo.get("last_uses", self._find_last_uses)

    def _find_last_uses(self) -> tuple[tuple[int, ...], ...]:
        used = {x.index for x in self.outs if type(x) is Var}
        found = []
        for eqn in reversed(self.eqns):
            last = {x.index for x in (*eqn.inputs, *eqn.outs) if type(x) is Var} - used
            used |= last
            found.append(tuple(last))
        found.reverse()
        return tuple(found)

    def text(self, style: Style = "tracefx", width: int = DEFAULT_WIDTH) -> str:
        """Returns the program as text: in tracefx's own style, which `parse_jaxpr` reads, or as JAX prints it."""
        return JAXPR_FORMATTER.value(self, style=style, width=width)

    @override
    def __repr__(self) -> str:
        return self.text()

    @override
    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return NOTEBOOK_HTML.value(self)

    def closed(self) -> Jaxpr:
        """The same program with its constants as leading inputs."""
        return evolve(self, constvars=(), invars=self.constvars + self.invars) if self.constvars else self


@final
@frozen(eq=False, repr=False)
class ClosedJaxpr:
    """A jaxpr with the constants it was traced with. Constants compare by type and bytes."""

    jaxpr: Jaxpr
    consts: tuple[Value, ...]

    @property
    def in_avals(self) -> tuple[ShapedArray, ...]:
        return self.jaxpr.in_avals

    @property
    def out_avals(self) -> tuple[ShapedArray, ...]:
        return self.jaxpr.out_avals

    @property
    def eqns(self) -> tuple[Eqn, ...]:
        return self.jaxpr.eqns

    @property
    def effects(self) -> Effects:
        return self.jaxpr.effects

    def text(self, style: Style = "tracefx", width: int = DEFAULT_WIDTH) -> str:
        """The program as text: `Jaxpr.text`."""
        return self.jaxpr.text(style, width)

    def _repr_html_(self) -> str:
        return NOTEBOOK_HTML.value(self)

    @override
    def __repr__(self) -> str:
        return self.text()

    @override
    def __str__(self) -> str:
        return self.text()

    @override
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ClosedJaxpr):
            return NotImplemented
        return self.jaxpr == other.jaxpr and list(map(_content, self.consts)) == list(map(_content, other.consts))

    @override
    def __hash__(self) -> int:
        return hash((self.jaxpr, *map(_content, self.consts)))


class JaxprFormatter(Protocol):
    """Formats a program as text; `text/printer.py` provides it."""

    def __call__(self, jaxpr: Jaxpr, *, style: Style, width: int) -> str: ...


JAXPR_FORMATTER: Final[LateBound[JaxprFormatter]] = LateBound("the printer of programs")
NOTEBOOK_HTML: Final[LateBound[Callable[[Jaxpr | ClosedJaxpr], str]]] = LateBound("what notebooks show of programs")
"""A program as HTML."""


def _content(const: Value) -> Hashable:
    if isinstance(const, Literal):
        return const
    if isinstance(const, ConcreteArray):
        return (const.aval, const.numpy().tobytes())
    return id(const)


class HasSubjaxprs:
    """A capability: the operation has bodies. Generic code reaches them here."""

    __slots__ = ()

    @abstractmethod
    def jaxprs(self) -> tuple[Jaxpr, ...]:
        """The bodies, none of which has constvars."""
        raise NotImplementedError

    @abstractmethod
    def with_jaxprs(self, *jaxprs: Jaxpr) -> Self:
        """The same operation with other bodies of the same types."""
        raise NotImplementedError


def subjaxprs_postorder(jaxpr: Jaxpr) -> list[Jaxpr]:
    """All programs in a program, at any depth, each after those that are in it.

    Found without recursion: calls may be nested deeper than Python's stack allows.
    """
    found: list[Jaxpr] = []
    seen: set[int] = set()
    stack = [(jaxpr, False)]
    while stack:
        program, done = stack.pop()
        if done:
            found.append(program)
        elif id(program) not in seen:
            seen.add(id(program))
            stack.append((program, True))
            stack += [(b, False) for e in program.eqns if isinstance(e.prim, HasSubjaxprs) for b in e.prim.jaxprs()]
    return found[:-1]
