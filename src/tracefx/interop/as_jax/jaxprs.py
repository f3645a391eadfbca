"""Jaxprs with the attributes that they have in JAX: `jaxpr.outvars`, `eqn.primitive`, `eqn.params`, ..."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, final

import numpy as np
from attrs import fields, frozen
from typing_extensions import override

from tracefx.core import ShapedArray, Value, as_value, evaluation, jaxpr, literal, primitive
from tracefx.core.effects import NO_EFFECTS, Effects
from tracefx.core.handler import as_array
from tracefx.interop.as_jax.primitive import (
    BUILTIN_PRIMITIVES,
    AppliedPrimitive,
    AsParameter,
    BuiltinPrimitive,
    Parameters,
    Primitive,
)
from tracefx.source_location import Provenance
from tracefx.text.printer import HasJaxParams
from tracefx.transforms.staging import make_jaxpr as _make_jaxpr


class Var:
    """A variable of a jaxpr, compared by identity.

    Args:
        aval: The shape and dtype.
    """

    __slots__ = ("__weakref__", "aval")

    def __init__(self, aval: ShapedArray) -> None:
        self.aval = aval

    @override
    def __repr__(self) -> str:
        return f"Var(id={id(self)}):{self.aval}"


@final
class DropVar(Var):
    """The variable of a result that nothing uses."""

    __slots__ = ()


@final
class Literal:
    """A number in a program.

    Args:
        val: The number: a NumPy scalar, or a Python number if its dtype is weak.
        aval: Its dtype.
    """

    __slots__ = ("aval", "val")

    def __init__(self, val: Any, aval: ShapedArray) -> None:
        self.val, self.aval = val, aval

    @override
    def __repr__(self) -> str:
        return str(self.val)


Atom: TypeAlias = Var | Literal


@final
@frozen
class SourceInfo:
    """The source location of an equation.

    Args:
        location: The line, and the scopes of `named_scope`; None if it is unknown.
    """

    location: Provenance | None = None

    @property
    def name_stack(self) -> str:
        """The scopes, separated by slashes."""
        return "" if self.location is None else "/".join(self.location.scope)

    @override
    def __str__(self) -> str:
        return str(self.location)


@final
class JaxprEqn:
    """An equation of a jaxpr.

    Args:
        invars: The operands.
        outvars: The variables that it binds.
        primitive: The primitive.
        params: Its parameters.
        effects: Its effects; none by default.
        source_info: Its source location; unknown by default.
        ctx: Ignored: there are no settings that equations depend on.
    """

    __slots__ = ("ctx", "effects", "invars", "outvars", "params", "primitive", "source_info")

    def __init__(
        self,
        invars: Sequence[Atom],
        outvars: Sequence[Var],
        primitive: Primitive,
        params: Mapping[str, Any],
        effects: Effects = NO_EFFECTS,
        source_info: SourceInfo = SourceInfo(),  # immutable
        ctx: object = None,
    ) -> None:
        self.invars, self.outvars = list(invars), list(outvars)
        self.primitive, self.params = primitive, dict(params)
        self.effects, self.source_info, self.ctx = effects, source_info, ctx

    def replace(self, **changes: Any) -> JaxprEqn:
        """Returns the equation with other attributes."""
        return JaxprEqn(**{name: changes.get(name, getattr(self, name)) for name in self.__slots__})

    @override
    def __repr__(self) -> str:
        inner = Jaxpr([], [x for x in self.invars if isinstance(x, Var)], self.outvars, [self])
        return str(to_program(inner).text("jax"))


@final
class Jaxpr(AsParameter):
    """A program: a list of equations.

    Args:
        constvars: The variables of constants.
        invars: The variables of the inputs.
        outvars: The outputs.
        eqns: The equations.
        effects: The effects; by default those of the equations.
        debug_info: Names for messages; None by default.
    """

    def __init__(
        self,
        constvars: Sequence[Var],
        invars: Sequence[Var],
        outvars: Sequence[Atom],
        eqns: Sequence[JaxprEqn],
        effects: Effects = NO_EFFECTS,
        debug_info: object = None,
        is_high: bool = False,
    ) -> None:
        self.constvars, self.invars, self.outvars, self.eqns = list(constvars), list(invars), list(outvars), list(eqns)
        self.effects = effects or frozenset().union(*[eqn.effects for eqn in self.eqns])
        self.debug_info, self.is_high = debug_info, is_high

    @property
    def in_avals(self) -> list[ShapedArray]:
        """The avals of the inputs."""
        return [v.aval for v in self.invars]

    @property
    def out_avals(self) -> list[ShapedArray]:
        """The avals of the outputs."""
        return [x.aval for x in self.outvars]

    def replace(self, **changes: Any) -> Jaxpr:
        """Returns the program with other attributes."""
        names = ("constvars", "invars", "outvars", "eqns", "debug_info", "is_high")
        kept = {} if "eqns" in changes else {"effects": self.effects}
        return Jaxpr(**{**{name: getattr(self, name) for name in names}, **kept, **changes})

    @override
    def as_parameter(self) -> jaxpr.Jaxpr:
        return to_program(self)

    @override
    def __repr__(self) -> str:
        return to_program(self).text("jax")


@final
class ClosedJaxpr(AsParameter):
    """A program with the values of its constants.

    Args:
        jaxpr: The program.
        consts: One value per `jaxpr.constvars`.
    """

    def __init__(self, jaxpr: Jaxpr, consts: Sequence[Any]) -> None:
        self.jaxpr, self.consts = jaxpr, list(consts)

    @property
    def in_avals(self) -> list[ShapedArray]:
        """The avals of the inputs."""
        return self.jaxpr.in_avals

    @property
    def out_avals(self) -> list[ShapedArray]:
        """The avals of the outputs."""
        return self.jaxpr.out_avals

    @property
    def literals(self) -> list[Any]:
        """The constants."""
        return self.consts

    @property
    def eqns(self) -> list[JaxprEqn]:
        """The equations."""
        return self.jaxpr.eqns

    @property
    def effects(self) -> Effects:
        """The effects."""
        return self.jaxpr.effects

    def replace(self, *, jaxpr: Jaxpr | None = None, consts: Sequence[Any] | None = None) -> ClosedJaxpr:
        """Returns the program with another jaxpr, other constants, or both; None keeps them."""
        return ClosedJaxpr(self.jaxpr if jaxpr is None else jaxpr, self.consts if consts is None else consts)

    def map_jaxpr(self, f: Callable[[Jaxpr], Jaxpr]) -> ClosedJaxpr:
        """Returns the program with the jaxpr `f(self.jaxpr)`."""
        return ClosedJaxpr(f(self.jaxpr), self.consts)

    @override
    def as_parameter(self) -> jaxpr.Jaxpr:
        if self.consts:
            raise ValueError("a program in the parameters of a primitive has no constants: pass them as operands")
        return to_program(self.jaxpr)

    @override
    def __repr__(self) -> str:
        return repr(self.jaxpr)


# ------------------------------------------------------------------ from and to programs of tracefx


def from_program(program: jaxpr.Jaxpr) -> Jaxpr:
    """Returns a program of tracefx as a jaxpr of JAX."""
    used = {x.index for eqn in program.eqns for x in eqn.inputs if isinstance(x, jaxpr.Var)}
    used |= {x.index for x in program.outs if isinstance(x, jaxpr.Var)}
    views: dict[int, Var] = {}

    def define(v: jaxpr.Var, droppable: bool = False) -> Var:
        views[v.index] = (DropVar if droppable and v.index not in used else Var)(v.aval)
        return views[v.index]

    def atom(x: jaxpr.Atom) -> Atom:
        if isinstance(x, jaxpr.Var):
            return views[x.index]
        return Literal(x.val if x.aval.weak_type else np.asarray(x.val).astype(x.aval.dtype)[()], x.aval)

    constvars, invars = list(map(define, program.constvars)), list(map(define, program.invars))
    eqns = []
    for eqn in program.eqns:
        inputs, (prim, params) = list(map(atom, eqn.inputs)), open_primitive(eqn.prim)
        outs = [define(v, droppable=True) for v in eqn.outs]
        eqns.append(JaxprEqn(inputs, outs, prim, params, eqn.prim.effects, SourceInfo(eqn.source)))
    return Jaxpr(constvars, invars, list(map(atom, program.outs)), eqns, program.effects)


def open_primitive(prim: primitive.Primitive) -> tuple[Primitive, dict[str, Any]]:
    """Returns a primitive of tracefx as the primitive and the parameters that an equation of JAX has."""
    if isinstance(prim, AppliedPrimitive):
        return prim.owner, dict(prim.params.values)
    cls: Any = type(prim)
    params = {f.alias: getattr(prim, f.name) for f in fields(cls) if f.init} if hasattr(cls, "__attrs_attrs__") else {}
    others = dict(prim.jax_params()) if isinstance(prim, HasJaxParams) else {}
    builtin = BUILTIN_PRIMITIVES.get(prim.name) or BuiltinPrimitive(cls)
    return builtin, {name: _view(x) for name, x in {**others, **params}.items()}


def _view(x: Any) -> Any:
    """Returns a parameter with closed jaxprs of JAX in the place of programs."""
    if isinstance(x, jaxpr.Jaxpr):
        return ClosedJaxpr(from_program(x), ())
    return tuple(map(_view, x)) if type(x) is tuple else x


def to_program(view: Jaxpr) -> jaxpr.Jaxpr:
    """Returns a jaxpr of JAX as a program of tracefx."""
    variables: dict[Var, jaxpr.Var] = {}

    def define(v: Var) -> jaxpr.Var:
        return variables.setdefault(v, jaxpr.Var(len(variables), v.aval))

    def atom(x: Atom) -> jaxpr.Atom:
        return variables[x] if isinstance(x, Var) else literal.Literal(np.asarray(x.val).item(), x.aval)

    constvars, invars = tuple(map(define, view.constvars)), tuple(map(define, view.invars))
    eqns = []
    for eqn in view.eqns:
        inputs = tuple(map(atom, eqn.invars))
        eqns.append(jaxpr.Eqn(_close(eqn), inputs, tuple(map(define, eqn.outvars)), eqn.source_info.location))
    return jaxpr.Jaxpr(constvars, invars, tuple(eqns), tuple(map(atom, view.outvars)))


def _close(eqn: JaxprEqn) -> primitive.Primitive:
    if isinstance(eqn.primitive, BuiltinPrimitive):
        return eqn.primitive.with_params(eqn.params)
    return AppliedPrimitive(eqn.primitive, Parameters(eqn.params))


def close(closed: jaxpr.ClosedJaxpr) -> ClosedJaxpr:
    """Returns a closed program of tracefx as one of JAX."""
    return ClosedJaxpr(from_program(closed.jaxpr), list(map(as_array, closed.consts)))


# ------------------------------------------------------------------ functions of JAX


def make_jaxpr(fun: Callable[..., Any], *args: Any, return_shape: bool = False, **options: Any) -> Callable[..., Any]:
    """`jax.make_jaxpr`: returns a function that traces `fun` and returns its `ClosedJaxpr`.

    Args:
        fun: The function.
        *args: Further arguments of `tracefx.make_jaxpr`.
        return_shape: Whether the function also returns the shapes and dtypes of the outputs; False by default.
        **options: Further arguments of `tracefx.make_jaxpr`.
    """
    traced: Callable[..., Any] = _make_jaxpr(fun, *args, return_shape=True, **options)

    @functools.wraps(fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        closed, shape = traced(*args, **kwargs)
        return (close(closed), shape) if return_shape else close(closed)

    return call


def eval_jaxpr(jaxpr: Jaxpr, consts: Sequence[Any], *args: Any, propagate_source_info: bool = True) -> list[Any]:
    """Evaluates a program on constants and inputs; returns the list of the outputs."""
    values: list[list[Value]] = [[as_value(x) for x in xs] for xs in (consts, args)]
    return list(map(as_array, evaluation.eval_jaxpr(to_program(jaxpr), *values)))


def jaxpr_as_fun(closed: ClosedJaxpr) -> Callable[..., list[Any]]:
    """Returns the function that evaluates a closed program."""
    return functools.partial(eval_jaxpr, closed.jaxpr, closed.consts)


def jaxprs_in_params(params: Mapping[str, Any]) -> Iterator[Jaxpr]:
    """Iterates over the programs in the parameters of an equation."""
    for value in params.values():
        for x in value if isinstance(value, tuple | list) else (value,):
            if isinstance(x, ClosedJaxpr):
                yield x.jaxpr
            elif isinstance(x, Jaxpr):
                yield x


def subjaxprs(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """Iterates over the programs in the equations of a program."""
    for eqn in jaxpr.eqns:
        yield from jaxprs_in_params(eqn.params)


def gensym(suffix: str = "") -> Callable[[ShapedArray], Var]:
    """Returns a function that makes a new variable with an aval."""
    return Var
