"""The protocol by which handlers interpret the sub-jaxprs (bodies, branches) of primitives.

A `BodyTransformable` primitive asks the handler, as a `BodyInterpreter`, to transform each of its
sub-jaxprs, and binds itself with the transformed ones. So a handler works inside loops, branches and calls, staged and
compiled, without a rule for each of these primitives, and the primitives do not depend on particular handlers.

Under a handler one value may be represented by several arrays; a `ValueSpec` describes which.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from enum import Enum
from typing import ClassVar, Self, final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.core import ShapedArray, Value, show_avals
from tracefx.core.handler import Handler
from tracefx.core.jaxpr import Jaxpr
from tracefx.pytrees.trees import TreeDef, show_structure


@final
@frozen
class ValueSpec:
    """How a handler represents a value: as arrays of given avals, the leaves of a pytree.

    Args:
        tree: The structure of the representation. `None` for a plain value: one array that is not a tracer of the
            handler.
        avals: The avals of the arrays.

    >>> from tracefx import make_jaxpr
    >>> aval = make_jaxpr(lambda x: x)(1.0).in_avals[0]
    >>> str(ValueSpec(None, (aval,)).stacked(8))
    'f32[8]'
    """

    # jaxlib's TreeDef raises on comparison with None.
    tree: TreeDef | None = field(eq=lambda tree: (tree is None, tree))
    avals: tuple[ShapedArray, ...]

    def same_structure(self, other: ValueSpec) -> bool:
        """Returns whether two specs have the same tree, whatever their avals.

        Args:
            other: Another spec.

        Returns:
            True if both are specs of plain values, or of custom values with equal trees.
        """
        if self.tree is None or other.tree is None:
            return self.tree is other.tree
        return self.tree == other.tree

    def step(self) -> ValueSpec:
        """Returns the spec of one element along the leading axis: what one step of a `scan` gets of a stacked value."""
        return evolve(self, avals=tuple([a.without_axis(0) for a in self.avals]))

    def stacked(self, length: int) -> ValueSpec:
        """Returns the spec with a leading axis of size `length`: the stacked outputs of the steps of a `scan`.

        Args:
            length: The size of the axis.

        Returns:
            The spec.
        """
        return evolve(self, avals=tuple([a.with_axis(length, 0) for a in self.avals]))

    @override
    def __str__(self) -> str:
        types = show_avals(self.avals)
        return types if self.tree is None else f"{show_structure(self.tree, 'one array')} of type ({types})"


def array_spec(aval: ShapedArray) -> ValueSpec:
    """Returns the spec of a plain value."""
    return ValueSpec(None, (aval,))


class BodyKind(Enum):
    """The role of a sub-jaxpr in its primitive.

    >>> BodyKind.STEP.value
    'a step'
    """

    CALLED = "called"
    STEP = "a step"
    CONDITION = "the condition"
    BRANCH = "branch"


@final
@frozen
class BodyName:
    """The name of a sub-jaxpr, for messages and reports: `a step of scan`, `branch 1 of cond`, the name of a function.

    Args:
        owner: The name of the primitive or, for the body of a call, of the called function.
        kind: The role of the sub-jaxpr.
        index: The number of a branch.

    >>> str(BodyName("scan", BodyKind.STEP)), str(BodyName("cond", BodyKind.BRANCH, 1)), str(BodyName("loss"))
    ('a step of scan', 'branch 1 of cond', 'loss')
    """

    owner: str
    kind: BodyKind = BodyKind.CALLED
    index: int = 0

    @override
    def __str__(self) -> str:
        match self.kind:
            case BodyKind.CALLED:
                return self.owner
            case BodyKind.BRANCH:
                return f"branch {self.index} of {self.owner}"
            case BodyKind.STEP | BodyKind.CONDITION:
                return f"{self.kind.value} of {self.owner}"


@final
@frozen
class CollectedSpec:
    """Values that a handler collects inside a body, under a name: their spec.

    Args:
        name: The name.
        spec: The spec.
    """

    name: Hashable
    spec: ValueSpec


@final
@frozen(eq=False)
class TransformedBody:
    """A transformed sub-jaxpr, of the signature `(consts, state, inputs) -> (state, outputs, collected values)`.

    Args:
        jaxpr: The transformed program.
        consts: Values for its leading inputs.
        input_state: The spec of the handler's state as input; `None` for a program that leaves the state unchanged.
        state: The spec of the state as output; `None` for a program that leaves the state unchanged.
        outs: The specs of the outputs.
        collected: The specs of the collected values.
    """

    jaxpr: Jaxpr
    consts: tuple[Value, ...]
    input_state: ValueSpec | None
    state: ValueSpec | None
    outs: tuple[ValueSpec, ...]
    collected: tuple[CollectedSpec, ...]


class BodyInterpreter:
    """The methods of a handler that a primitive calls to transform its bodies, while the inner handler is current.

    `Interpreter` implements them.
    """

    has_state: ClassVar[bool]
    """Whether the handler has a state or collects values."""

    @abstractmethod
    def spec(self, x: Value) -> ValueSpec:
        """Returns the spec of a value.

        Args:
            x: The value: a tracer of the handler, or a plain value.
        """
        raise NotImplementedError

    @abstractmethod
    def arrays(self, x: Value, spec: ValueSpec) -> list[Value]:
        """Returns the arrays that represent a value, converted to a spec.

        Args:
            x: The value.
            spec: The spec.
        """
        raise NotImplementedError

    @abstractmethod
    def value(self, spec: ValueSpec, arrays: Sequence[Value]) -> Value:
        """Returns the value that is represented by these arrays.

        Args:
            spec: The spec of the value.
            arrays: Its arrays.
        """
        raise NotImplementedError

    @abstractmethod
    def join(self, x: ValueSpec, y: ValueSpec, what: str) -> ValueSpec:
        """Returns a spec to which values of both specs can be converted.

        Args:
            x: A spec.
            y: Another spec.
            what: The name of the values, for messages.

        Raises:
            TypeError: If there is none.
        """
        raise NotImplementedError

    @abstractmethod
    def strip_to_plain(self, x: Value, what: str) -> Value:
        """Returns a value as a plain value, e.g. for use as a predicate.

        Args:
            x: The value.
            what: Its name, for messages.
        """
        raise NotImplementedError

    @abstractmethod
    def transform_body(
        self,
        jaxpr: Jaxpr,
        inputs: Sequence[ValueSpec],
        name: BodyName,
        *,
        outs: Sequence[ValueSpec | None] = (),
        state: ValueSpec | None = None,
        collected: Sequence[CollectedSpec] = (),
        plain: bool = False,
    ) -> TransformedBody:
        """Returns the sub-jaxpr as interpreted by the handler. The result may be cached.

        Args:
            jaxpr: The sub-jaxpr.
            inputs: The specs of its inputs.
            name: The name of the sub-jaxpr.
            outs: Specs to which outputs are converted as far as possible; `None` leaves an output as it is.
            state: The spec of the state as input, and as output as far as possible. By default, the current one.
            collected: Specs of values that are returned first, even if the body does not collect them.
            plain: Whether all outputs are stripped to plain values, as for a predicate.
        """
        raise NotImplementedError

    @abstractmethod
    def state(self, spec: ValueSpec | None) -> list[Value]:
        """Returns the arrays of the handler's state, converted to a spec; no arrays for `None`.

        Args:
            spec: The spec, or `None`.
        """
        raise NotImplementedError

    @abstractmethod
    def restore_state(self, spec: ValueSpec, arrays: Sequence[Value]) -> None:
        """Sets the handler's state to the one that these arrays represent.

        Args:
            spec: The spec of the state.
            arrays: Its arrays.
        """
        raise NotImplementedError

    @abstractmethod
    def collect_from_body(self, collected: Sequence[CollectedSpec], arrays: Sequence[Value]) -> None:
        """Adds the values that transformed bodies collected.

        Args:
            collected: The specs of the values, with their names.
            arrays: The arrays of all values, concatenated.
        """
        raise NotImplementedError

    @abstractmethod
    def collected_of_empty_loop(self, collected: CollectedSpec) -> list[Value]:
        """Returns the arrays that a loop without any step collects.

        Args:
            collected: The spec of the value that a step collects, with its name.
        """
        raise NotImplementedError

    @abstractmethod
    def over(self, inner: Handler, /) -> Handler:
        """Returns the handler of a new run over `inner`, with an empty state: for the functions of custom rules.

        Args:
            inner: The inner handler.
        """
        raise NotImplementedError

    @abstractmethod
    def interpret(self, jaxpr: Jaxpr, args: Sequence[Value]) -> Sequence[Value]:
        """Interprets a jaxpr equation by equation under the handler.

        Args:
            jaxpr: The jaxpr, without constvars.
            args: Its inputs.

        Returns:
            Its outputs.
        """
        raise NotImplementedError


class BodyTransformable:
    """A capability: the primitive has sub-jaxprs that a handler can transform.

    >>> from tracefx import jit, make_jaxpr
    >>> (eqn,) = make_jaxpr(jit(lambda x: 2.0 * x))(1.0).eqns
    >>> isinstance(eqn.prim, BodyTransformable)
    True
    """

    __slots__ = ()

    @abstractmethod
    def transform_bodies(self, interpreter: BodyInterpreter, args: Sequence[Value]) -> Sequence[Value]:
        """Binds the primitive with its sub-jaxprs transformed by the handler.

        Args:
            interpreter: The handler.
            args: The operands, which may be tracers of the handler.

        Returns:
            The results, which may be tracers of the handler.
        """
        raise NotImplementedError


def flatten_to_arrays(interpreter: BodyInterpreter, xs: Sequence[Value], specs: Sequence[ValueSpec]) -> list[Value]:
    """Returns the arrays of several values, converted to specs and concatenated."""
    return [a for x, spec in zip(xs, specs, strict=True) for a in interpreter.arrays(x, spec)]


def count(specs: Sequence[ValueSpec]) -> int:
    """Returns the number of arrays of values with these specs."""
    return sum([len(spec.avals) for spec in specs])


@final
class ResultReader:
    """Splits a flat list of results from left to right into values, state and collected values."""

    __slots__ = ("_arrays", "_interpreter", "_place")

    def __init__(self, interpreter: BodyInterpreter, arrays: Sequence[Value]) -> None:
        self._interpreter = interpreter
        self._arrays = arrays
        self._place = 0

    def take(self, n: int) -> Sequence[Value]:
        """Returns the next `n` arrays."""
        arrays = self._arrays[self._place : self._place + n]
        self._place += n
        return arrays

    def values(self, specs: Sequence[ValueSpec]) -> list[Value]:
        """Returns the next values."""
        return [self._interpreter.value(spec, self.take(len(spec.avals))) for spec in specs]

    def restore_state(self, state: ValueSpec | None) -> Self:
        """Sets the handler's state from the next arrays; does nothing for `None`."""
        if state is not None:
            self._interpreter.restore_state(state, self.take(len(state.avals)))
        return self

    def collect_from_body(self, collected: Sequence[CollectedSpec]) -> None:
        """Hands the next arrays to the handler as collected values."""
        self._interpreter.collect_from_body(collected, self.take(count([c.spec for c in collected])))


def unpack_results(interpreter: BodyInterpreter, body: TransformedBody, outs: Sequence[Value]) -> list[Value]:
    """Returns the values that a body which ran once returned; updates the handler's state and collected values."""
    reader = ResultReader(interpreter, outs).restore_state(body.state)
    values = reader.values(body.outs)
    reader.collect_from_body(body.collected)
    return values
