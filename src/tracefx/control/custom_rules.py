"""Base classes of primitives with user-defined rules: those that hold a function, and those that hold its jaxpr."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Self, TypeVar, final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.control import callables
from tracefx.core import ShapedArray, Value, accepts, show_avals
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import ROOT, Handler, bind
from tracefx.core.jaxpr import HasBody, Jaxpr
from tracefx.core.primitive import (
    Batchable,
    BatchDims,
    Differentiable,
    Expandable,
    MappedAxis,
    Primitive,
    Tangent,
    Transposable,
    UndefinedPrimal,
)
from tracefx.interpreters.batch import Batch
from tracefx.interpreters.body_transform import (
    BodyInterpreter,
    BodyName,
    BodyTransformable,
    TransformedBody,
    array_spec,
    unpack_results,
)
from tracefx.interpreters.callables import BatchRunner, HasCallables
from tracefx.interpreters.jaxpr_transforms import batch_jaxpr
from tracefx.lowering import Builder, IrValue, Lowerable
from tracefx.passes.dce import Prunable, dce
from tracefx.passes.varying import HasTypedBodies
from tracefx.text.printer import HasJaxParams

X = TypeVar("X")


@frozen(eq=False)
class CustomRuleCall(Primitive, Expandable, Differentiable, HasCallables):
    """A call of `fun`, which runs as it is where no transformation uses the rule. Staged as a `CustomRuleProgram`.

    Args:
        label: The name of the function.
        fun: The function, of values.
    """

    label: str
    fun: callables.FlatFunction

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        return self.fun(*args)

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return callables.require_no_tracers(self.label, self.fun(*args))


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
    HasBody,
    Primitive,
    HasTypedBodies,
    BodyTransformable,
    Expandable,
    Differentiable,
    Transposable,
    Batchable,
    Lowerable,
):
    """A call of `jaxpr`, which is evaluated where no transformation uses the rule.

    Args:
        label: The name of the function that the jaxpr was traced from.
        jaxpr: The body, without constants.
    """

    label: str = field(metadata={"print": "name", "erased": True})
    jaxpr: Jaxpr = field(metadata={"print": "call_jaxpr"})

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        expected = self.jaxpr.in_avals
        if not accepts(expected, avals):
            raise TypeError(f"{self.name} of {self.label} takes ({show_avals(expected)}), got ({show_avals(avals)})")
        return self.jaxpr.out_avals

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return eval_jaxpr(self.jaxpr, (), args)

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        return eval_jaxpr(self.jaxpr, (), args)

    @abstractmethod
    def with_program(self, jaxpr: Jaxpr, consts: int, enter: Callable[[Handler], Handler] | None = None) -> Self:
        """Returns the primitive with another jaxpr, which takes `consts` additional constants first.

        Its rules run under `enter(handler)`, where `handler` is the current handler; by default under that handler.
        """
        raise NotImplementedError

    @abstractmethod
    def with_extra_outputs(self, extra: ExtraOutputs) -> Self:
        """Returns the primitive with a jaxpr that has additional operands and outputs that the rule does not cover."""
        raise NotImplementedError

    @override
    def transform_bodies(self, interpreter: BodyInterpreter, args: Sequence[Value]) -> Sequence[Value]:
        """Keeps the rule, unless operands or outputs are own values of the handler, which the rule cannot handle."""
        specs = [interpreter.spec(x) for x in args]
        if any(spec.tree is not None for spec in specs):
            return interpreter.interpret(self.jaxpr, args)
        outs = list(map(array_spec, self.jaxpr.out_avals))
        body = interpreter.transform_body(self.jaxpr, specs, BodyName(self.label), outs=outs)
        if any(spec.tree is not None for spec in body.outs):
            return interpreter.interpret(self.jaxpr, args)
        if body.state is None and not body.collected:
            prim = self.with_program(body.jaxpr, len(body.consts), interpreter.over)
        else:
            prim = self.with_extra_outputs(ExtraOutputs.of(body))
        return unpack_results(interpreter, body, bind(prim, *body.consts, *interpreter.state(body.input_state), *args))

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        return callables.transpose_call(self.jaxpr, cts, args)

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        return builder.inline(self.jaxpr, operands)


@frozen(eq=False)
class CustomDerivativeCall(CustomRuleCall):
    """A call of `fun` with a user-defined derivative. Staged as a `CustomDerivativeProgram`."""

    @abstractmethod
    def batch_rule(self, mapper: BatchRunner, dims: BatchDims, out: callables.OutDims) -> Self:
        """Returns the primitive with the rule for a whole batch, with batched outputs as `out` determines."""

    @override
    def batch_callables(
        self, mapper: BatchRunner, args: Sequence[Value], dims: BatchDims
    ) -> tuple[Sequence[Value], BatchDims]:
        out = callables.OutDims(self.label, mapper.axis, any(d is not None for d in dims))
        prim = evolve(self, fun=callables.batch_function(mapper, self.fun, dims, out)).batch_rule(mapper, dims, out)
        outs = bind(prim, *args)
        return outs, out.of(outs)


@frozen(eq=False)
class CustomDerivativeProgram(CustomRuleProgram, Prunable, HasJaxParams):
    """A call of `jaxpr` with a user-defined derivative.

    A subclass has the fields `num_consts`, the number of leading operands that are closed-over values, which are not
    differentiable, and `symbolic_zeros`.
    """

    @abstractmethod
    def batch_rule(self, mapper: BatchRunner, dims: BatchDims, out: callables.OutDims) -> Self:
        """Returns the primitive with the rule for a whole batch, with batched outputs as `out` determines."""

    @abstractmethod
    def select_outputs(self, used: tuple[bool, ...]) -> Self:
        """Returns the primitive with the rule restricted to the outputs in the mask `used`."""

    @override
    def prune(self, used_outs: tuple[bool, ...]) -> tuple[Self, tuple[bool, ...], tuple[bool, ...]]:
        """Removes unused outputs. All operands remain, since the rule may use operands that the function does not."""
        jaxpr = dce(self.jaxpr, used_outs)
        if jaxpr is self.jaxpr:
            return self, (True,) * len(jaxpr.invars), used_outs
        prim = self if all(used_outs) else self.select_outputs(used_outs)
        return evolve(prim, jaxpr=jaxpr), (True,) * len(jaxpr.invars), used_outs

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        forced = (any(d is not None for d in dims),) * len(self.jaxpr.outs)
        derived = batch_jaxpr(self.jaxpr, axis, tuple(dims), forced)
        prim = self.batch_rule(Batch(ROOT, axis), dims, callables.OutDims(self.label, axis, derived.out_dims))
        return bind(prim.with_program(derived.jaxpr, len(derived.consts)), *derived.consts, *args), derived.out_dims
