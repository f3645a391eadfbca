"""What operations with rules of the user's own share: one that holds a function, and one that holds its program."""

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
    """A call of `fun`, which runs as it is where nobody asks for a rule. Recorded, it becomes a `CustomRuleProgram`."""

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
    """A program that computes, among other things, what a rule is for.

    The rule's operands are the last; its outputs are `count`, from the place `first` on. What is beside them has the
    derivatives, and the batches, that the program itself has.
    """

    jaxpr: Jaxpr
    operands: int
    """How many operands come before the rule's."""
    first: int
    count: int

    @classmethod
    def of(cls, inside: TransformedBody) -> ExtraOutputs:
        taken = 0 if inside.input_state is None else len(inside.input_state.avals)
        given = 0 if inside.state is None else len(inside.state.avals)
        return cls(inside.jaxpr, len(inside.consts) + taken, given, len(inside.outs))

    def merge(self, everything: Sequence[X], ours: Sequence[X]) -> list[X]:
        """All outputs, those of the rule by the rule."""
        return [*everything[: self.first], *ours, *everything[self.first + self.count :]]

    def rule_outputs(self, everything: Sequence[X]) -> Sequence[X]:
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
    """A call of `jaxpr`, which stands for what it computes where nobody asks for a rule."""

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
        """The same with another program, that takes more constants first; rules run under `enter` of their handler."""
        raise NotImplementedError

    @abstractmethod
    def with_extra_outputs(self, among: ExtraOutputs) -> Self:
        """The same with a program that takes and gives more, for which the rule says nothing."""
        raise NotImplementedError

    @override
    def transform_bodies(self, entry: BodyInterpreter, args: Sequence[Value]) -> Sequence[Value]:
        """The rule stays, unless it would have to know of values that it never heard of."""
        forms = [entry.spec(x) for x in args]
        if any(form.tree is not None for form in forms):
            return entry.run(self.jaxpr, args)
        inside = entry.transform_body(self.jaxpr, forms, self.label, outs=list(map(array_spec, self.jaxpr.out_avals)))
        if any(form.tree is not None for form in inside.outs):
            return entry.run(self.jaxpr, args)
        if inside.state is None and not inside.collected:
            prim = self.with_program(inside.jaxpr, len(inside.consts), entry.with_inner)
        else:
            prim = self.with_extra_outputs(ExtraOutputs.of(inside))
        return unpack_results(entry, inside, bind(prim, *inside.consts, *entry.state(inside.input_state), *args))

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        return transpose_call(self.jaxpr, cts, args)

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        return builder.inline(self.jaxpr, operands)
