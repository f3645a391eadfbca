"""JAX's programs, run equation by equation with the operations of tracefx, under whatever handler is current.

Most primitives are operations of the same name and parameters. The others have a rule, which is a function of the
translation, the equation and its operands. Programs inside of equations become programs here, each of them once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, final

import jax
import numpy as np
from attrs import field, frozen
from jax.extend import core as jax_core

from tracefx.control.vocabulary import VOCABULARY
from tracefx.core.avals import ShapedArray, show_avals
from tracefx.core.handler import as_array, bind, current
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.literal import Literal
from tracefx.core.source_location import EQN_LOCATION, LazySourceLocation, at_location
from tracefx.core.values import Value, as_value, from_numpy
from tracefx.errors import MissingRuleError
from tracefx.interop.jax.checked_shard_map import CheckedShardMap, varying_axes
from tracefx.interop.jax.importing_source_info import equation_source, own_source
from tracefx.interop.jax.parameters import operation_from_jax
from tracefx.interop.jax.values import as_tracefx, type_from_jax, type_to_jax
from tracefx.interpreters.stage import stage
from tracefx.ops.elementwise.elementwise import Elementwise
from tracefx.ops.structural import broadcast_to, convert_value

NO_KEYWORDS: Final[Mapping[str, Any]] = MappingProxyType({})
JaxJaxpr: TypeAlias = jax_core.Jaxpr | jax_core.ClosedJaxpr
UserImportRule: TypeAlias = Callable[..., Any]
"""What a primitive does, by its user: a function of arrays, and of JAX's parameters by name, to an array or several."""


class JaxEquation(Protocol):
    """What rules ask of one of JAX's equations."""

    @property
    def primitive(self) -> jax_core.Primitive: ...

    @property
    def params(self) -> Mapping[str, Any]: ...

    @property
    def invars(self) -> Sequence[Any]: ...

    @property
    def outvars(self) -> Sequence[Any]: ...

    @property
    def effects(self) -> Collection[object]: ...


class ImportedProgram(NamedTuple):
    """A program of JAX as one of ours, whose first inputs are the arrays that JAX's holds."""

    jaxpr: Jaxpr
    consts: tuple[Value, ...]


@final
@frozen(eq=False)
class Importer:
    """What one import of a program knows: the rules, the settings that JAX traces with, and what it has translated.

    Rules of derivatives keep it, and trace more of JAX when they are asked.
    """

    rules: Mapping[str, ImportRule]
    """For the primitives that are no operations of the same name and parameters."""
    reasons: Mapping[str, str]
    """Why primitives are not translated."""
    fallback: ImportRule
    """For those of other libraries."""
    user_rules: Mapping[str, UserImportRule]
    """The user's rules, which go before all others."""
    x64: bool
    axes: tuple[tuple[Hashable, int], ...]
    """The named axes in scope and their sizes."""
    checked_shard_map: CheckedShardMap | None = None
    """The `shard_map` around, if its types say along which axes values may differ."""
    programs: dict[Hashable, tuple[JaxJaxpr, ImportedProgram]] = field(factory=dict, init=False)
    """By the identity of JAX's program, which is kept so that nothing else takes its place, the types of its inputs,
    and, if it has equations without a line of their own, the place of the equation that calls it."""
    consts: dict[int, tuple[object, Value]] = field(factory=dict, init=False)
    """The same for arrays: one that several programs hold is one here."""

    # -------------------------------------------------------------- tracing JAX

    def settings(self) -> AbstractContextManager[None]:
        """JAX's settings while it traces."""
        settings: AbstractContextManager[None] = jax.enable_x64(self.x64)
        return settings

    def trace(
        self, f: Callable[..., Sequence[object]], args: Sequence[Any], kwargs: Mapping[str, Any] = NO_KEYWORDS
    ) -> jax_core.ClosedJaxpr:
        """JAX's program of a function, for arguments with types of JAX in the places of arrays."""
        with self.settings():
            return jax.make_jaxpr(f, axis_env=self.axes)(*args, **kwargs)

    def trace_like(
        self, f: Callable[..., Sequence[object]], avals: Sequence[ShapedArray], like: Sequence[Any]
    ) -> jax_core.ClosedJaxpr:
        """`traced` where JAX had values of types `like`, whose values may differ along axes as those do."""
        types = list(map(type_to_jax, avals))
        if self.checked_shard_map is None:
            return self.trace(f, types)
        with self.settings():
            return self.checked_shard_map.trace(f, types, list(map(varying_axes, like)))

    def size(self, name: Hashable) -> int:
        """How large a named axis is."""
        return dict(self.axes)[name]

    # -------------------------------------------------------------- programs

    def program(self, theirs: JaxJaxpr, avals: Sequence[ShapedArray] | None = None) -> ImportedProgram:
        """A program of JAX as one of ours, for inputs of these types, which differ from JAX's in weakness at most."""
        given = tuple(input_types(theirs) if avals is None else avals)
        key = id(theirs), given, self._around(theirs)
        known = self.programs.get(key)
        if known is None:
            known = self.programs[key] = theirs, self.staged(lambda *xs: self.run(theirs, xs), given)
        return known[1]

    def _around(self, theirs: JaxJaxpr) -> Hashable:
        around = EQN_LOCATION.get()
        if around is None or all(own_source(eqn.source_info) is not None for eqn in open_jaxpr(theirs)[0].eqns):
            return None
        return (around.code, around.lasti) if isinstance(around, LazySourceLocation) else around

    def staged(self, f: Callable[..., Sequence[Value]], avals: Sequence[ShapedArray]) -> ImportedProgram:
        """What a function of values does, as a program."""
        jaxpr, consts = stage(f, avals, current(), title="from_jax")
        return ImportedProgram(jaxpr.closed(), tuple(consts))

    def run(self, theirs: JaxJaxpr, args: Sequence[Value]) -> list[Value]:
        """Do under the current handler what a program of JAX does."""
        jaxpr, consts = open_jaxpr(theirs)
        env: dict[Any, Value] = dict(zip(jaxpr.constvars, map(self.constant, consts), strict=True))
        env.update(zip(jaxpr.invars, args, strict=True))

        def read(atom: Any) -> Value:
            return self.literal(atom) if isinstance(atom, jax_core.Literal) else env[atom]

        around = EQN_LOCATION.get()
        token = EQN_LOCATION.set(around)
        try:
            for eqn in jaxpr.eqns:
                EQN_LOCATION.set(equation_source(eqn.source_info, around))
                outs = self.bind(eqn, [read(x) for x in eqn.invars])
                env.update(zip(eqn.outvars, outs, strict=True))
        finally:
            EQN_LOCATION.reset(token)
        return [read(x) for x in jaxpr.outvars]

    def bind(self, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
        """Do what one equation does."""
        name = eqn.primitive.name
        outs: Sequence[Value]
        if (own := self.user_rules.get(name)) is not None:
            outs = _apply_user_rule(own, eqn, args)
        elif (rule := self.rules.get(name)) is not None:
            outs = rule(self, eqn, args)
        elif name in VOCABULARY and name not in self.reasons:
            outs = bind(operation_from_jax(name, eqn.params), *_broadcast_operands(name, eqn, args))
        elif name in self.reasons:
            raise self.missing_rule_error(name)
        else:
            outs = self.fallback(self, eqn, args)
        _require_types(eqn, outs)
        return outs

    def missing_rule_error(self, name: str) -> MissingRuleError:
        reason = self.reasons.get(name, "it has effects, or does what JAX can't trace")
        return MissingRuleError(
            f"from_jax: JAX's primitive {name!r}{at_location(EQN_LOCATION.get())} has no counterpart in tracefx: "
            f"{reason}. To say "
            f"what it does, give from_jax(f, rules={{{name!r}: rule}}), where rule(*arrays, **parameters) gets the "
            "parameters that JAX's primitive has and computes the results with tracefx"
        )

    # -------------------------------------------------------------- values

    def literal(self, atom: Any) -> Value:
        aval = type_from_jax(atom.aval)
        if aval.shape or not _is_number(aval):
            return self.constant(atom.val)
        return Literal(np.asarray(atom.val).item(), aval)

    def constant(self, x: object) -> Value:
        """An array that JAX's program holds."""
        known = self.consts.get(id(x))
        if known is None:
            known = self.consts[id(x)] = x, _constant(x)
        return known[1]


ImportRule: TypeAlias = Callable[[Importer, JaxEquation, Sequence[Value]], Sequence[Value]]
NO_RULES: Final[Mapping[str, UserImportRule]] = MappingProxyType({})


def _is_number(aval: ShapedArray) -> bool:
    return aval.dtype.names is None  # neither random keys nor float0


def _constant(x: object) -> Value:
    if isinstance(x, jax.Array):
        return as_tracefx(x)
    host = np.asarray(x)
    if not host.ndim and host.dtype.names is None:
        return as_value(host[()]) if host.dtype.itemsize < 8 else from_numpy(host, host.dtype)
    return from_numpy(host, host.dtype)


def open_jaxpr(theirs: JaxJaxpr) -> tuple[jax_core.Jaxpr, Sequence[object]]:
    """A program of JAX apart from the arrays that it holds."""
    return (theirs.jaxpr, theirs.consts) if isinstance(theirs, jax_core.ClosedJaxpr) else (theirs, ())


def input_types(theirs: JaxJaxpr) -> list[ShapedArray]:
    """The types of the inputs of a program of JAX."""
    return [type_from_jax(v.aval) for v in open_jaxpr(theirs)[0].invars]


def result_types(eqn: JaxEquation) -> list[ShapedArray]:
    """The types of an equation's results, as JAX has them."""
    return [type_from_jax(v.aval) for v in eqn.outvars]


def retype_values(values: Sequence[Value], avals: Sequence[ShapedArray]) -> list[Value]:
    """The values, their types weak or not as `avals` are."""
    return [
        x if x.aval == aval else convert_value(x, aval.dtype, aval.weak_type)
        for x, aval in zip(values, avals, strict=True)
    ]


def _broadcast_operands(name: str, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """Operands as elementwise operations take them here: JAX's stretch axes of size 1."""
    if len(args) < 2 or not issubclass(VOCABULARY[name], Elementwise):
        return args
    shape = eqn.outvars[0].aval.shape
    return [x if x.aval.shape in ((), shape) else broadcast_to(x, shape) for x in args]


def _apply_user_rule(rule: UserImportRule, eqn: JaxEquation, args: Sequence[Value]) -> list[Value]:
    found = rule(*[as_array(x) for x in args], **eqn.params)
    outs = found if isinstance(found, tuple | list) else [found]
    if len(outs) != len(eqn.outvars):
        raise TypeError(
            f"from_jax: the rule for {eqn.primitive.name!r} gave {len(outs)} result{'s' * (len(outs) != 1)}, but JAX's "
            f"primitive has {len(eqn.outvars)}{at_location(EQN_LOCATION.get())}"
        )
    return [as_value(x, f"from_jax: what the rule for {eqn.primitive.name!r} gave") for x in outs]


def _require_types(eqn: JaxEquation, outs: Sequence[Value]) -> None:
    """`TypeError` unless results have the shapes and dtypes that JAX says. Whether a type is weak is no matter."""
    for v, x in zip(eqn.outvars, outs, strict=True):
        aval = x.aval
        if aval.shape != v.aval.shape or (aval.dtype != v.aval.dtype and aval.dtype.names is None):
            raise TypeError(
                f"from_jax: {eqn.primitive.name}{at_location(EQN_LOCATION.get())} gave "
                f"{show_avals([o.aval for o in outs])} where "
                f"JAX's primitive gives {show_avals(result_types(eqn))}"
            )
