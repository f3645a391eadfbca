"""JVP rules of functions with `custom_jvp`: rules that are derived from others, and rules that are found by name.

Rules are Python functions, which cannot be serialized. A `NamedRule`, which can, is the rule of a function of tracefx:
the name of the function, and how the rule was derived from that of the function.
"""

from __future__ import annotations

import importlib
import sys
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import ClassVar, Final, Self, TypeAlias, final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.control.callables import (
    EMPTY_CLOSURE,
    ClosureScope,
    DerivedCallable,
    OutDims,
    closed_over_error,
    derive,
)
from tracefx.core import Value
from tracefx.core.custom_text import CustomText, TextArgs
from tracefx.core.handler import ROOT
from tracefx.core.primitive import BatchDims, MappedAxis, Tangent, Zero
from tracefx.interpreters.batch import Batch
from tracefx.interpreters.callables import BatchRunner
from tracefx.interpreters.masks import drop_zeros, insert_zeros, nonzero_mask, select_masked
from tracefx.pytrees.trees import TreeDef
from tracefx.text.field_annotations import matches_annotation

JVPRule: TypeAlias = Callable[[Sequence[Value], Sequence[Tangent]], tuple[Sequence[Value], Sequence[Tangent]]]
"""A function from `(primals, tangents)` of the operands to `(primals, tangents)` of the outputs."""

# ------------------------------------------------------------------ derived rules


@final
@frozen
class Batched:
    """How a rule was derived: for a whole batch.

    `outs` are the outputs that are batched, or whether all of them are.
    """

    axis: MappedAxis
    dims: tuple[int | None, ...]
    outs: bool | tuple[bool, ...]


@final
@frozen
class Rebound:
    """How a rule was derived: with `count` additional operands first, the values that its function closes over."""

    count: int


@final
@frozen
class Selected:
    """How a rule was derived: restricted to the outputs in the mask `used`."""

    used: tuple[bool, ...]


Derivation: TypeAlias = Batched | Rebound | Selected


def batch_jvp_rule(mapper: BatchRunner, rule: JVPRule, dims: BatchDims, out: OutDims) -> JVPRule:
    """Returns the JVP rule for a whole batch, with batched outputs as `out` determines."""

    @derive(rule, Batched(mapper.axis, tuple(dims), out.settled))
    def batched(primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[list[Value], list[Tangent]]:
        n, mask = len(primals), nonzero_mask(tangents)
        out_mask: tuple[bool, ...] = ()

        def both(*values: Value) -> list[Value]:
            nonlocal out_mask
            outs, out_tangents = rule(values[:n], insert_zeros(values[n:], mask, [x.aval for x in values[:n]]))
            out_mask = nonzero_mask(out_tangents)
            return [*outs, *drop_zeros(out_tangents)]

        values, value_dims = mapper.run(both, [*primals, *drop_zeros(tangents)], [*dims, *select_masked(dims, mask)])
        count = len(out_mask)
        moved = zip(values[count:], value_dims[count:], strict=True)
        pairs = [next(moved) if m else None for m in out_mask]
        settled = out.settle(value_dims[:count], [None if pair is None else pair[1] for pair in pairs])
        outs = list(map(out.move_axis_first, values[:count], value_dims[:count], settled))
        return outs, [
            Zero(x.aval.tangent()) if pair is None else out.move_axis_first(*pair, mapped)
            for x, pair, mapped in zip(outs, pairs, settled, strict=True)
        ]

    return batched


def rebind_jvp_rule(label: str, rule: JVPRule, scope: ClosureScope, count: int) -> JVPRule:
    """Returns the JVP rule of a primitive whose first `count` operands are the values its functions closed over."""
    # Values of traces, which the rule may use, cannot be named.
    how = (scope.cache_key, Rebound(count)) if scope.bind_static else (Rebound(count), scope.cache_key)

    @derive(rule, *how)
    def rebound(primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        if any(nonzero_mask(tangents[:count])):
            raise closed_over_error(label)
        return scope.rebind(rule, primals[:count])(primals[count:], tangents[count:])

    return rebound if count or scope.named_axes else rule


def select_outputs(rule: JVPRule, used: tuple[bool, ...]) -> JVPRule:
    """Returns the rule restricted to the outputs in the mask `used`."""

    @derive(rule, Selected(used))
    def selected(primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        outs, out_tangents = rule(primals, tangents)
        return select_masked(outs, used), select_masked(out_tangents, used)

    return selected


# ------------------------------------------------------------------ named rules

StaticValue: TypeAlias = bool | int | float | str | None
_PACKAGES: Final = tuple([f"tracefx.{name}." for name in ("lax", "nn", "numpy", "random", "scipy")])
"""The packages whose functions are found by name. Importing their modules only defines functions and constants."""


class HasJVPRule:
    """A capability of functions: they have a JVP rule, and may be found by their name."""

    @abstractmethod
    def jvp_rule(self, statics: Mapping[int, object], in_tree: TreeDef) -> JVPRule:
        """Returns the rule of the primitive that a call binds.

        Args:
            statics: The non-differentiated arguments by position.
            in_tree: The structure of the other arguments.
        """
        raise NotImplementedError


@final
@frozen
class RuleOf:
    """How a rule was derived: from the rule of a function, for a call of it.

    `key` is the key of `statics` in caches.
    """

    function: HasJVPRule
    in_tree: TreeDef
    symbolic_zeros: bool
    key: Hashable
    statics: Mapping[int, object] = field(eq=False)


@final
@frozen
class NamedRule(CustomText):
    """The JVP rule of a function of tracefx, which is found by its name when the rule is called.

    Raises:
        ValueError: If this version of tracefx has no such function with a rule.
    """

    text_name: ClassVar[str] = "named_rule"
    arg_type: ClassVar[object] = Batched | Rebound | Selected
    function: str
    """The module and the name in it, such as `tracefx.nn.activations._relu`."""
    in_tree: TreeDef
    statics: tuple[tuple[int, StaticValue], ...] = ()
    derivations: tuple[Derivation, ...] = ()

    def __attrs_post_init__(self) -> None:
        _find_function(self.function)

    @override
    def text_args(self) -> TextArgs:
        named = {"statics": self.statics, "derivations": self.derivations}
        return (self.function, self.in_tree), {name: value for name, value in named.items() if value}

    @classmethod
    @override
    def from_text_args(cls, values: tuple[object, ...], named: Mapping[str, object]) -> Self:
        hints = {"statics": tuple[tuple[int, StaticValue], ...], "derivations": tuple[Derivation, ...]}
        if not all(name in hints and matches_annotation(value, hints[name]) for name, value in named.items()):
            raise ValueError(f"{dict(named)!r} are not static arguments and derivations")
        if not matches_annotation(values, tuple[str, TreeDef]):
            raise ValueError(f"{values!r} are not the name of a function and a structure of arguments")
        return cls(*values, **named)  # type: ignore[arg-type]  # checked above

    def __call__(
        self, primals: Sequence[Value], tangents: Sequence[Tangent]
    ) -> tuple[Sequence[Value], Sequence[Tangent]]:
        rule = _find_function(self.function).jvp_rule(dict(self.statics), self.in_tree)
        label = self.function.rpartition(".")[2].lstrip("_")
        for how in self.derivations:
            match how:
                case Batched(axis, dims, outs):
                    settled = outs if isinstance(outs, bool) else [0 if b else None for b in outs]
                    rule = batch_jvp_rule(Batch(ROOT, axis), rule, dims, OutDims(label, axis, settled))
                case Rebound(count):
                    rule = rebind_jvp_rule(label, rule, EMPTY_CLOSURE, count)
                case Selected(used):
                    rule = select_outputs(rule, used)
        return rule(primals, tangents)


def named_rule(rule: Callable[..., object]) -> NamedRule | None:
    """Returns the rule as a `NamedRule`; None unless it belongs to a function of tracefx, with static arguments."""
    if isinstance(rule, NamedRule):
        return rule
    if not isinstance(rule, DerivedCallable):
        return None
    how = rule.how[0] if rule.how else None
    if isinstance(how, RuleOf):
        name, values = _name_of(how.function), tuple(how.statics.items())
        if name is not None and matches_annotation(values, tuple[tuple[int, StaticValue], ...]):
            return NamedRule(name, how.in_tree, values)  # type: ignore[arg-type]  # checked above
    elif isinstance(how, Derivation) and (source := named_rule(rule.source)):
        return evolve(source, derivations=(*source.derivations, how))
    return None


def _name_of(function: HasJVPRule) -> str | None:
    """Returns the name by which a function of tracefx is found."""
    module = str(function.__module__)  # for a user's function, it may be an object of any type
    if not module.startswith(_PACKAGES):
        return None
    names = [name for name, value in vars(sys.modules[module]).items() if value is function]
    return f"{module}.{names[0]}" if names else None


def _find_function(path: str) -> HasJVPRule:
    """Returns the function with this name; raises ValueError if there is none."""
    module, _, name = path.rpartition(".")
    found = None
    if path.startswith(_PACKAGES) and all(part.isidentifier() for part in path.split(".")) and "__" not in module:
        try:
            found = vars(importlib.import_module(module)).get(name)
        except ImportError:
            found = None
    if not isinstance(found, HasJVPRule):
        raise ValueError(f"this version of tracefx has no function {path!r} with a derivative rule")
    return found
