"""The importer: runs jaxprs of JAX equation by equation with tracefx primitives under the current handler.

Most primitives have a tracefx primitive of the same name and parameters. The others have an import rule: a function of
the importer, the equation and its operands. Sub-jaxprs are converted to tracefx jaxprs, each once.
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
from tracefx.core import Literal, ShapedArray, Value, as_value, from_numpy, show_avals
from tracefx.core.handler import as_array, bind, current
from tracefx.core.jaxpr import Jaxpr
from tracefx.errors import MissingRuleError
from tracefx.interop.jax.checked_shard_map import CheckedShardMap, varying_axes
from tracefx.interop.jax.parameters import operation_from_jax
from tracefx.interop.jax.source_info import equation_source, own_source
from tracefx.interop.jax.values import as_tracefx, type_from_jax, type_to_jax
from tracefx.interpreters.stage import stage
from tracefx.ops.elementwise.elementwise import Elementwise
from tracefx.ops.structural import broadcast_to, convert_value
from tracefx.source_location import SOURCE, LazySourceLocation, at_location, equation_location

NO_KEYWORDS: Final[Mapping[str, Any]] = MappingProxyType({})
JaxJaxpr: TypeAlias = jax_core.Jaxpr | jax_core.ClosedJaxpr
UserImportRule: TypeAlias = Callable[..., Any]
"""A user-defined import rule: takes arrays, and JAX's parameters as keywords; returns one array or several."""


class JaxEquation(Protocol):
    """The interface of JAX's equations that import rules use."""

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
    """A jaxpr of JAX as a tracefx jaxpr whose leading inputs are its constants."""

    jaxpr: Jaxpr
    consts: tuple[Value, ...]


@final
@frozen(eq=False)
class Importer:
    """The state of one import: rules, trace settings, and caches of converted jaxprs and constants.

    Imported derivative rules keep a reference to it and trace more JAX functions when they run.
    """

    rules: Mapping[str, ImportRule]
    """Import rules by name, for primitives without a tracefx primitive of the same name and parameters."""
    reasons: Mapping[str, str]
    """Why primitives are unsupported, by name."""
    fallback: ImportRule
    """The rule for all remaining primitives, which other libraries define."""
    user_rules: Mapping[str, UserImportRule]
    """User-defined rules by name; they take precedence over all others."""
    x64: bool
    axes: tuple[tuple[Hashable, int], ...]
    """The axis environment: named axes and their sizes."""
    checked_shard_map: CheckedShardMap | None = None
    """The enclosing `shard_map` if JAX tracks varying mesh axes (vma) in its types."""
    programs: dict[Hashable, tuple[JaxJaxpr, ImportedProgram]] = field(factory=dict, init=False)
    """The cache of converted jaxprs. Keys: identity of JAX's jaxpr (which is kept alive), avals of the inputs, and the
    location of the calling equation if some equations of the jaxpr have no location of their own."""
    consts: dict[int, tuple[object, Value]] = field(factory=dict, init=False)
    """The cache of converted constants, by identity: an array that several jaxprs share is converted once."""

    # -------------------------------------------------------------- tracing JAX

    def settings(self) -> AbstractContextManager[None]:
        """Returns a context with the JAX settings of this import."""
        settings: AbstractContextManager[None] = jax.enable_x64(self.x64)
        return settings

    def trace(
        self, f: Callable[..., Sequence[object]], args: Sequence[Any], kwargs: Mapping[str, Any] = NO_KEYWORDS
    ) -> jax_core.ClosedJaxpr:
        """Traces a function with JAX, with JAX's types in place of array arguments."""
        with self.settings():
            return jax.make_jaxpr(f, axis_env=self.axes)(*args, **kwargs)

    def trace_like(
        self, f: Callable[..., Sequence[object]], avals: Sequence[ShapedArray], like: Sequence[Any]
    ) -> jax_core.ClosedJaxpr:
        """Like `trace` for inputs of types `avals`, which vary over the same mesh axes as JAX's types `like`."""
        jax_types = list(map(type_to_jax, avals))
        if self.checked_shard_map is None:
            return self.trace(f, jax_types)
        with self.settings():
            return self.checked_shard_map.trace(f, jax_types, list(map(varying_axes, like)))

    def size(self, name: Hashable) -> int:
        """Returns the size of a named axis."""
        return dict(self.axes)[name]

    # -------------------------------------------------------------- jaxprs

    def program(self, jax_jaxpr: JaxJaxpr, avals: Sequence[ShapedArray] | None = None) -> ImportedProgram:
        """Converts a jaxpr of JAX for inputs of types `avals`, by default its own; only weak types may differ."""
        in_avals = tuple(input_types(jax_jaxpr) if avals is None else avals)
        key = id(jax_jaxpr), in_avals, self._around(jax_jaxpr)
        cached = self.programs.get(key)
        if cached is None:
            cached = self.programs[key] = jax_jaxpr, self.staged(lambda *xs: self.run(jax_jaxpr, xs), in_avals)
        return cached[1]

    def _around(self, jax_jaxpr: JaxJaxpr) -> Hashable:
        caller = equation_location()
        if caller is None or all(own_source(eqn.source_info) is not None for eqn in open_jaxpr(jax_jaxpr)[0].eqns):
            return None
        return (caller.code, caller.lasti) if isinstance(caller, LazySourceLocation) else caller

    def staged(self, f: Callable[..., Sequence[Value]], avals: Sequence[ShapedArray]) -> ImportedProgram:
        """Traces a function of values to a jaxpr."""
        jaxpr, consts = stage(f, avals, current(), title="from_jax")
        return ImportedProgram(jaxpr.closed(), tuple(consts))

    def run(self, jax_jaxpr: JaxJaxpr, args: Sequence[Value]) -> list[Value]:
        """Runs a jaxpr of JAX under the current handler."""
        jaxpr, consts = open_jaxpr(jax_jaxpr)
        env: dict[Any, Value] = dict(zip(jaxpr.constvars, map(self.constant, consts), strict=True))
        env.update(zip(jaxpr.invars, args, strict=True))

        def read(atom: Any) -> Value:
            return self.literal(atom) if isinstance(atom, jax_core.Literal) else env[atom]

        outer, caller = SOURCE.get(), equation_location()
        token = SOURCE.set(outer)
        try:
            for eqn in jaxpr.eqns:
                SOURCE.set(equation_source(eqn.source_info, caller) or outer)
                outs = self.bind(eqn, [read(x) for x in eqn.invars])
                env.update(zip(eqn.outvars, outs, strict=True))
        finally:
            SOURCE.reset(token)
        return [read(x) for x in jaxpr.outvars]

    def bind(self, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
        """Runs one equation of JAX under the current handler."""
        name = eqn.primitive.name
        outs: Sequence[Value]
        if (user_rule := self.user_rules.get(name)) is not None:
            outs = _apply_user_rule(user_rule, eqn, args)
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
        reason = self.reasons.get(name, "it has effects, or JAX can't trace its implementation")
        return MissingRuleError(
            f"from_jax: JAX's primitive {name!r}{at_location(equation_location())} has no counterpart in tracefx: "
            f"{reason}. To define "
            f"it, pass rules={{{name!r}: rule}} to from_jax, where rule(*arrays, **parameters) takes the "
            "parameters of JAX's primitive and computes the results with tracefx"
        )

    # -------------------------------------------------------------- values

    def literal(self, atom: Any) -> Value:
        aval = type_from_jax(atom.aval)
        if aval.shape or not _is_number(aval):
            return self.constant(atom.val)
        return Literal(np.asarray(atom.val).item(), aval)

    def constant(self, x: object) -> Value:
        """Converts a constant of JAX's jaxpr, memoized."""
        cached = self.consts.get(id(x))
        if cached is None:
            cached = self.consts[id(x)] = x, _constant(x)
        return cached[1]


ImportRule: TypeAlias = Callable[[Importer, JaxEquation, Sequence[Value]], Sequence[Value]]
NO_RULES: Final[Mapping[str, UserImportRule]] = MappingProxyType({})


def _is_number(aval: ShapedArray) -> bool:
    return aval.dtype.names is None  # structured dtypes represent random keys and float0


def _constant(x: object) -> Value:
    if isinstance(x, jax.Array):
        return as_tracefx(x)
    host = np.asarray(x)
    if not host.ndim and host.dtype.names is None:
        return as_value(host[()]) if host.dtype.itemsize < 8 else from_numpy(host, host.dtype)
    return from_numpy(host, host.dtype)


def open_jaxpr(jax_jaxpr: JaxJaxpr) -> tuple[jax_core.Jaxpr, Sequence[object]]:
    """Splits a jaxpr of JAX into the open jaxpr and its constants."""
    return (jax_jaxpr.jaxpr, jax_jaxpr.consts) if isinstance(jax_jaxpr, jax_core.ClosedJaxpr) else (jax_jaxpr, ())


def input_types(jax_jaxpr: JaxJaxpr) -> list[ShapedArray]:
    """Returns the avals of the inputs of a jaxpr of JAX."""
    return [type_from_jax(v.aval) for v in open_jaxpr(jax_jaxpr)[0].invars]


def result_types(eqn: JaxEquation) -> list[ShapedArray]:
    """Returns the avals of the results that JAX's equation declares."""
    return [type_from_jax(v.aval) for v in eqn.outvars]


def retype_values(values: Sequence[Value], avals: Sequence[ShapedArray]) -> list[Value]:
    """Converts values to the weak or strong types of `avals`."""
    return [
        x if x.aval == aval else convert_value(x, aval.dtype, aval.weak_type)
        for x, aval in zip(values, avals, strict=True)
    ]


def _broadcast_operands(name: str, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """Broadcasts operands of elementwise primitives: JAX's implicitly broadcast axes of size 1."""
    if len(args) < 2 or not issubclass(VOCABULARY[name], Elementwise):
        return args
    shape = eqn.outvars[0].aval.shape
    return [x if x.aval.shape in ((), shape) else broadcast_to(x, shape) for x in args]


def _apply_user_rule(rule: UserImportRule, eqn: JaxEquation, args: Sequence[Value]) -> list[Value]:
    result = rule(*[as_array(x) for x in args], **eqn.params)
    outs = result if isinstance(result, tuple | list) else [result]
    if len(outs) != len(eqn.outvars):
        raise TypeError(
            f"from_jax: the rule for {eqn.primitive.name!r} returned {len(outs)} result{'s' * (len(outs) != 1)}, but "
            f"JAX's primitive has {len(eqn.outvars)}{at_location(equation_location())}"
        )
    return [as_value(x, f"from_jax: the result of the rule for {eqn.primitive.name!r}") for x in outs]


def _require_types(eqn: JaxEquation, outs: Sequence[Value]) -> None:
    """Raises `TypeError` unless the results have the shapes and dtypes that JAX declares; weak types may differ."""
    for v, x in zip(eqn.outvars, outs, strict=True):
        aval = x.aval
        if aval.shape != v.aval.shape or (aval.dtype != v.aval.dtype and aval.dtype.names is None):
            raise TypeError(
                f"from_jax: {eqn.primitive.name}{at_location(equation_location())} returned "
                f"{show_avals([o.aval for o in outs])} where "
                f"JAX's primitive returns {show_avals(result_types(eqn))}"
            )
