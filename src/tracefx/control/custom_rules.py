"""Base classes of primitives with user-defined rules: one that holds a function, and one that holds its jaxpr."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Self, TypeVar, final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.control.callables import FlatFunction, require_no_tracers, transpose_call
from tracefx.core.avals import Axes, ShapedArray, show_avals
from tracefx.core.body_transform import BodyInterpreter, BodyTransformable, TransformedBody, array_spec, unpack_results
from tracefx.core.callables import HasCallables
from tracefx.core.effects import Effects
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import Handler, bind
from tracefx.core.jaxpr import HasSubjaxprs, Jaxpr
from tracefx.core.primitive import (
    Batchable,
    Differentiable,
    Expandable,
    Primitive,
    Tangent,
    Transposable,
    UndefinedPrimal,
)
from tracefx.core.values import Value
from tracefx.core.varying import Flow, HasVaryingRule
from tracefx.lowering import Builder, IrValue, Lowerable

X = TypeVar("X")


@frozen(eq=False)
class CustomRuleCall(Primitive, Expandable, Differentiable, HasCallables):
    """A call of `fun`, which runs as it is where no transformation uses the rule. Staged as a `CustomRuleProgram`."""

    label: str
    fun: FlatFunction

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        return self.fun(*args)

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return require_no_tracers(self.label, self.fun(*args))


@final
@frozen
class ExtraOutputs:
    """A jaxpr whose outputs include those that a user-defined rule covers.

    The last operands are those of the rule. The outputs that the rule covers are `count` outputs starting at index
    `first`; for the others, derivatives and batching follow from the jaxpr itself.
    """

    jaxpr: Jaxpr
    operands: int
    """The number of operands before those of the rule."""
    first: int
    count: int

    @classmethod
    def of(cls, body: TransformedBody) -> ExtraOutputs:
        """Describes an interpreted body, whose state and collected values the rule does not cover."""
        state_in = 0 if body.input_state is None else len(body.input_state.avals)
        state_out = 0 if body.state is None else len(body.state.avals)
        return cls(body.jaxpr, len(body.consts) + state_in, state_out, len(body.outs))

    def merge(self, everything: Sequence[X], ours: Sequence[X]) -> list[X]:
        """Returns all outputs, where those that the rule covers are replaced by `ours`."""
        return [*everything[: self.first], *ours, *everything[self.first + self.count :]]

    def rule_outputs(self, everything: Sequence[X]) -> Sequence[X]:
        """Returns the outputs that the rule covers."""
        return everything[self.first : self.first + self.count]


@frozen(eq=False)
class CustomRuleProgram(
    Primitive,
    HasSubjaxprs,
    BodyTransformable,
    Expandable,
    Differentiable,
    Transposable,
    Batchable,
    Lowerable,
    HasVaryingRule,
):
    """A call of `jaxpr`, which is evaluated where no transformation uses the rule."""

    label: str = field(metadata={"print": "name", "erased": True})
    jaxpr: Jaxpr = field(metadata={"print": "call_jaxpr"})

    @override
    def jaxprs(self) -> tuple[Jaxpr, ...]:
        return (self.jaxpr,)

    @override
    def with_jaxprs(self, *jaxprs: Jaxpr) -> Self:
        return evolve(self, jaxpr=jaxprs[0])

    @property
    @override
    def effects(self) -> Effects:
        return self.jaxpr.effects

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        expected = self.jaxpr.in_avals
        if avals != expected:
            raise TypeError(f"{self.name} of {self.label} takes ({show_avals(expected)}), got ({show_avals(avals)})")
        return self.jaxpr.out_avals

    @override
    def varies(self, operands: Sequence[Axes], count: int, flow: Flow) -> Sequence[Axes]:
        return flow.through(self.jaxpr, operands)

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return eval_jaxpr(self.jaxpr, (), args)

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        return eval_jaxpr(self.jaxpr, (), args)

    @abstractmethod
    def with_program(self, jaxpr: Jaxpr, consts: int, enter: Callable[[Handler], Handler]) -> Self:
        """Returns the primitive with another jaxpr, which takes `consts` additional constants first.

        Its rules run under `enter(handler)`, where `handler` is the current handler.
        """
        raise NotImplementedError

    @abstractmethod
    def with_extra_outputs(self, extra: ExtraOutputs) -> Self:
        """Returns the primitive with a jaxpr that has additional operands and outputs that the rule does not cover."""
        raise NotImplementedError

    @override
    def transform_bodies(self, entry: BodyInterpreter, args: Sequence[Value]) -> Sequence[Value]:
        """Keeps the rule, unless operands or outputs are own values of the handler, which the rule cannot handle."""
        specs = [entry.spec(x) for x in args]
        if any(spec.tree is not None for spec in specs):
            return entry.run(self.jaxpr, args)
        body = entry.transform_body(self.jaxpr, specs, self.label, outs=list(map(array_spec, self.jaxpr.out_avals)))
        if any(spec.tree is not None for spec in body.outs):
            return entry.run(self.jaxpr, args)
        if body.state is None and not body.collected:
            prim = self.with_program(body.jaxpr, len(body.consts), entry.with_inner)
        else:
            prim = self.with_extra_outputs(ExtraOutputs.of(body))
        return unpack_results(entry, body, bind(prim, *body.consts, *entry.state(body.input_state), *args))

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        return transpose_call(self.jaxpr, cts, args)

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        return builder.inline(self.jaxpr, operands)
