"""Jaxprs: programs as immutable values, compared by content."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Protocol, Self, TypeAlias, cast, final
from typing import Literal as TypingLiteral

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.bounded_cache import Memo, memoize_on_object
from tracefx.core.avals import ShapedArray
from tracefx.core.effects import Effects
from tracefx.core.equality import StrictlyEqual, strict_key
from tracefx.core.fast_init import slot_setter
from tracefx.core.late_binding import LateBound
from tracefx.core.literal import Literal
from tracefx.core.primitive import Primitive
from tracefx.core.values import ConcreteArray, Value
from tracefx.source_location import Provenance

Style: TypeAlias = TypingLiteral["tracefx", "jax"]
DEFAULT_WIDTH: Final = 80


@final
@frozen(init=False)
class Var:
    """A variable of a jaxpr: an index and an aval. Indices are dense, so equal programs have equal variables.

    Args:
        index: The number of the variable in its jaxpr.
        aval: The type.

    >>> from tracefx import make_jaxpr
    >>> make_jaxpr(lambda x: 2.0 * x)(1.0).jaxpr.invars
    (Var(index=0, aval=f32[]*),)
    """

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
    """An equation `outs = prim inputs`: one application of a primitive.

    Args:
        prim: The primitive with its parameters.
        inputs: The operands: variables and literals.
        outs: The variables that it binds.
        source: The source location; not compared.

    >>> from tracefx import make_jaxpr
    >>> (eqn,) = make_jaxpr(lambda x: 2.0 * x)(1.0).eqns
    >>> eqn.prim.name, eqn.inputs, eqn.outs
    ('mul', (Literal(val=2.0, aval=f32[]*), Var(index=0, aval=f32[]*)), (Var(index=1, aval=f32[]*),))
    """

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
@frozen(eq=False, repr=False)
class Jaxpr(StrictlyEqual):
    """A program: input variables, a list of equations in order, and outputs. It has no free variables.

    Args:
        constvars: Variables of the constants that were hoisted out of the program.
        invars: Variables of the inputs.
        eqns: The equations, in an order in which each variable is bound before it is used.
        outs: The outputs: variables or literals.

    >>> from tracefx import make_jaxpr, numpy as fnp
    >>> make_jaxpr(lambda x: 2 * fnp.sin(x))(1.0).jaxpr
    { lambda ; a:f32[]*. let b:f32[]* = sin a; c:f32[]* = mul 2.0:f32[]* b in (c,) }
    """

    constvars: tuple[Var, ...]
    invars: tuple[Var, ...]
    eqns: tuple[Eqn, ...]
    outs: tuple[Atom, ...]
    memo: Memo = field(factory=Memo, eq=False, repr=False, init=False)

    def _content(self) -> tuple[object, ...]:
        """Returns the fields that equality compares."""
        return self.constvars, self.invars, self.eqns, self.outs

    @override
    def __eq__(self, other: object) -> bool:
        """Compares by content. The result for a pair of shared sub-jaxprs is cached, so they are compared once."""
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
    @memoize_on_object
    def __hash__(self) -> int:
        return hash(self._content())

    @property
    def in_avals(self) -> tuple[ShapedArray, ...]:
        """The avals of the inputs."""
        return tuple([v.aval for v in self.invars])

    @property
    def out_avals(self) -> tuple[ShapedArray, ...]:
        """The avals of the outputs."""
        return tuple([a.aval for a in self.outs])

    @property
    @memoize_on_object
    def effects(self) -> Effects:
        """The union of the effects of the equations."""
        return frozenset().union(*[e.prim.effects for e in self.eqns])

    @property
    @memoize_on_object
    def var_count(self) -> int:
        """One more than the largest variable index: the length of an environment for evaluation."""
        indices = [v.index for v in self.constvars + self.invars]
        indices += [v.index for eqn in self.eqns for v in eqn.outs]
        return max(indices, default=-1) + 1

    @property
    @memoize_on_object
    def last_uses(self) -> tuple[tuple[int, ...], ...]:
        """For each equation, the indices of the variables that it reads or binds and that nothing reads afterwards."""
        used = {x.index for x in self.outs if type(x) is Var}
        result = []
        for eqn in reversed(self.eqns):
            last = {x.index for x in (*eqn.inputs, *eqn.outs) if type(x) is Var} - used
            used |= last
            result.append(tuple(last))
        result.reverse()
        return tuple(result)

    def text(self, style: Style = "tracefx", width: int = DEFAULT_WIDTH) -> str:
        """Returns the program as text.

        Args:
            style: `"tracefx"`, which `parse_jaxpr` reads, or `"jax"`, which follows JAX's notation. The former by
                default.
            width: The line width.

        Returns:
            The text.
        """
        return JAXPR_FORMATTER.value(self, style=style, width=width)

    @override
    def __repr__(self) -> str:
        return self.text()

    @override
    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str | None:
        return NOTEBOOK_HTML.value(self)

    def closed(self) -> Jaxpr:
        """Returns the program with its constants as leading inputs."""
        return evolve(self, constvars=(), invars=self.constvars + self.invars) if self.constvars else self


def single_eqn_jaxpr(prim: Primitive, avals: Sequence[ShapedArray]) -> Jaxpr:
    """Returns the jaxpr of one equation that applies a primitive to inputs of the types `avals`."""
    inputs = tuple([Var(i, aval) for i, aval in enumerate(avals)])
    outs = tuple([Var(len(avals) + i, aval) for i, aval in enumerate(prim.abstract_eval(*avals))])
    return Jaxpr((), inputs, (Eqn(prim, inputs, outs),), outs)


@final
@frozen(eq=False, repr=False)
class ClosedJaxpr:
    """A jaxpr together with its constants, which `make_jaxpr` returns. Constants are compared by aval and bytes.

    Args:
        jaxpr: The program.
        consts: One value per `jaxpr.constvars`.

    >>> import numpy as np
    >>> from tracefx import make_jaxpr
    >>> table = np.arange(3.0)
    >>> closed = make_jaxpr(lambda x: x * table)(2.0)
    >>> closed
    { lambda a:f32[3]; b:f32[]*. let
        c:f32[] = convert_element_type[new_dtype=float32 weak_type=False] b
        d:f32[3] = mul c a
      in (d,) }
    >>> closed.consts, closed.out_avals
    ((Array([0., 1., 2.], dtype=float32),), (f32[3],))
    """

    jaxpr: Jaxpr
    consts: tuple[Value, ...]

    @property
    def in_avals(self) -> tuple[ShapedArray, ...]:
        """The avals of the inputs, without the constants."""
        return self.jaxpr.in_avals

    @property
    def out_avals(self) -> tuple[ShapedArray, ...]:
        """The avals of the outputs."""
        return self.jaxpr.out_avals

    @property
    def eqns(self) -> tuple[Eqn, ...]:
        """The equations of the jaxpr."""
        return self.jaxpr.eqns

    @property
    def effects(self) -> Effects:
        """The union of the effects of the equations."""
        return self.jaxpr.effects

    def text(self, style: Style = "tracefx", width: int = DEFAULT_WIDTH) -> str:
        """Returns the program as text.

        Args:
            style: `"tracefx"`, which `parse_jaxpr` reads, or `"jax"`, which follows JAX's notation. The former by
                default.
            width: The line width.

        Returns:
            The text, without the values of the constants.
        """
        return self.jaxpr.text(style, width)

    def _repr_html_(self) -> str | None:
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
    """Formats a jaxpr as text; `text/printer.py` provides it."""

    def __call__(self, jaxpr: Jaxpr, *, style: Style, width: int) -> str: ...


JAXPR_FORMATTER: Final[LateBound[JaxprFormatter]] = LateBound("the printer of jaxprs")
NOTEBOOK_HTML: Final[LateBound[Callable[[object], str | None]]] = LateBound("the notebook display of programs")
"""Formats a jaxpr or a stage of a jitted call as HTML; returns None for a program whose text is short."""


def _content(const: Value) -> Hashable:
    """Returns what equality compares of a constant."""
    if isinstance(const, Literal):
        return strict_key(const)
    if isinstance(const, ConcreteArray):
        return (const.aval, const.numpy().tobytes())
    return id(const)


class HasSubjaxprs:
    """A capability: the primitive has sub-jaxprs (bodies, branches). Generic code accesses them by these methods.

    >>> from tracefx import jit, make_jaxpr
    >>> (eqn,) = make_jaxpr(jit(lambda x: 2.0 * x))(1.0).eqns
    >>> isinstance(eqn.prim, HasSubjaxprs), eqn.prim.jaxprs()
    (True, ({ lambda ; a:f32[]*. let b:f32[]* = mul 2.0:f32[]* a in (b,) },))
    """

    __slots__ = ()

    @abstractmethod
    def jaxprs(self) -> tuple[Jaxpr, ...]:
        """Returns the sub-jaxprs. None of them has constvars."""
        raise NotImplementedError

    @abstractmethod
    def with_jaxprs(self, *jaxprs: Jaxpr) -> Self:
        """Returns the same primitive with other sub-jaxprs that have the same input and output avals.

        Args:
            *jaxprs: The sub-jaxprs, in the order of `jaxprs()`.
        """
        raise NotImplementedError


class HasBody(HasSubjaxprs):
    """A capability: the primitive, a frozen attrs class, has one sub-jaxpr, its field `jaxpr`.

    It comes before `Primitive` among the bases, so that the effects are those of the body.
    """

    __slots__ = ()
    jaxpr: Jaxpr

    @override
    def jaxprs(self) -> tuple[Jaxpr, ...]:
        return (self.jaxpr,)

    @override
    def with_jaxprs(self, *jaxprs: Jaxpr) -> Self:
        changed: Self = evolve(cast(Any, self), jaxpr=jaxprs[0])
        return changed

    @property
    def effects(self) -> Effects:
        """The effects of the body."""
        return self.jaxpr.effects


def subjaxprs_postorder(jaxpr: Jaxpr) -> list[Jaxpr]:
    """Returns all sub-jaxprs of a jaxpr, at any depth, each after its own sub-jaxprs and without duplicates."""

    def bodies(program: Jaxpr) -> Sequence[Jaxpr]:
        return [body for e in program.eqns if isinstance(e.prim, HasSubjaxprs) for body in e.prim.jaxprs()]

    return postorder([jaxpr], bodies)[:-1]


def postorder(roots: Sequence[Jaxpr], children: Callable[[Jaxpr], Sequence[Jaxpr]]) -> list[Jaxpr]:
    """Returns all jaxprs reachable from the roots, each after its children and without duplicates.

    Iterative, since calls may be nested deeper than Python's recursion limit.

    Args:
        roots: The jaxprs to start from.
        children: A function that returns the sub-jaxprs of a jaxpr. It is called once for each.
    """
    result: list[Jaxpr] = []
    seen: set[int] = set()
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        program, done = stack.pop()
        if done:
            result.append(program)
        elif id(program) not in seen:
            seen.add(id(program))
            stack.append((program, True))
            stack += [(child, False) for child in reversed(children(program))]
    return result
