"""How a handler gets inside of operations that carry programs.

An operation that is `BodyTransformable` runs its programs under another interpretation: it asks the handler, as an
`BodyInterpreter`,
what each of its programs becomes there, and binds itself with what comes back. So a handler acts in loops, branches
and calls without a word about them, staged and compiled, and an operation does not know who enters it.

Under the handler a value may be several arrays: a `ValueSpec` says which, and what else there is to know of it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from typing import ClassVar, Final, Protocol, Self, final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.core.avals import ShapedArray, show_avals
from tracefx.core.handler import Handler
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.values import Value
from tracefx.pytrees.trees import TreeDef


@final
@frozen
class ValueSpec:
    """What a value is under a handler: arrays of the types `avals`, in a tree of a handler's own.

    Without a `tree` it is a plain value, one array that the handler has nothing to say of.
    """

    tree: TreeDef | None = field(eq=lambda tree: (tree is None, tree))  # jaxlib's refuse to be compared with None
    avals: tuple[ShapedArray, ...]

    def same_structure(self, other: ValueSpec) -> bool:
        """Whether both are of one structure, whatever the types."""
        if self.tree is None or other.tree is None:
            return self.tree is other.tree
        return self.tree == other.tree

    def step(self) -> ValueSpec:
        """What one step of a loop gets of it. The axes of the arrays begin with those of the value."""
        return evolve(self, avals=tuple([a.without_axis(0) for a in self.avals]))

    def stacked(self, length: int) -> ValueSpec:
        """What the steps of a loop make of it together."""
        return evolve(self, avals=tuple([a.with_axis(length, 0) for a in self.avals]))

    @override
    def __str__(self) -> str:
        types = show_avals(self.avals)
        return types if self.tree is None else f"{self.tree} of ({types})"


EMPTY_SPEC: Final = ValueSpec(None, ())


def array_spec(aval: ShapedArray) -> ValueSpec:
    return ValueSpec(None, (aval,))


@final
@frozen
class CollectedSpec:
    """What a handler collects in a program, under a name."""

    name: Hashable
    spec: ValueSpec


@final
@frozen(eq=False)
class TransformedBody:
    """A program under a handler: `(consts, state, inputs) -> (state, outputs, what is collected)`.

    The state is `taken` in one form and given in another; both are `None` for a program that leaves it as it is.
    """

    jaxpr: Jaxpr
    consts: tuple[Value, ...]
    input_state: ValueSpec | None
    state: ValueSpec | None
    outs: tuple[ValueSpec, ...]
    collected: tuple[CollectedSpec, ...]


class BodyInterpreter(Protocol):
    """What a handler offers to an operation that it enters. The handler below it is current meanwhile."""

    has_state: ClassVar[bool]

    def spec(self, x: Value) -> ValueSpec: ...

    def arrays(self, x: Value, form: ValueSpec) -> list[Value]:
        """The arrays of a value, fitted to a form."""
        ...

    def value(self, form: ValueSpec, arrays: Sequence[Value]) -> Value:
        """The value that consists of these arrays."""
        ...

    def join(self, x: ValueSpec, y: ValueSpec, what: str) -> ValueSpec:
        """A form that values of both fit; `TypeError`, which calls them `what`, if there is none."""
        ...

    def strip_to_plain(self, x: Value, what: str) -> Value:
        """The number that decides which way a program takes."""
        ...

    def transform_body(
        self,
        jaxpr: Jaxpr,
        inputs: Sequence[ValueSpec],
        what: str,
        *,
        outs: Sequence[ValueSpec | None] = (),
        state: ValueSpec | None = None,
        collected: Sequence[CollectedSpec] = (),
        bare: bool = False,
    ) -> TransformedBody:
        """What a program becomes, for inputs of these forms. Its outputs are `bare` numbers if they decide something.

        Outputs for which `outs` has a form are fitted to it, as far as they can be. If `state` is given, the program
        takes and gives a state of that form, as far as it can. What is in `collected` is given, and first, by a
        program that has nothing under that name too.
        """
        ...

    def state(self, form: ValueSpec | None) -> list[Value]:
        """The arrays of the state, fitted to a form; none without one."""
        ...

    def restore_state(self, form: ValueSpec, arrays: Sequence[Value]) -> None:
        """What the state is from here on."""
        ...

    def collect_from_body(self, collected: Sequence[CollectedSpec], arrays: Sequence[Value]) -> None:
        """What programs that were entered have collected; the arrays of one come after those of another."""
        ...

    def collected_of_empty_loop(self, collected: CollectedSpec) -> list[Value]:
        """The arrays of what a loop without a step collects."""
        ...

    def with_inner(self, handler: Handler) -> Handler:
        """The same interpretation on another handler, with nothing in its state: for functions that rules hold."""
        ...

    def run(self, jaxpr: Jaxpr, args: Sequence[Value]) -> Sequence[Value]:
        """Do what a program does, its operations one by one under the handler."""
        ...


class BodyTransformable:
    """A capability: the operation carries programs, and can run them under another interpretation."""

    __slots__ = ()

    @abstractmethod
    def transform_bodies(self, entry: BodyInterpreter, args: Sequence[Value]) -> Sequence[Value]:
        """Bind what the operation becomes if its programs are run by the handler, whose values `args` may be."""
        raise NotImplementedError


def flatten_to_arrays(entry: BodyInterpreter, xs: Sequence[Value], forms: Sequence[ValueSpec]) -> list[Value]:
    """The arrays of values, fitted to forms."""
    return [a for x, form in zip(xs, forms, strict=True) for a in entry.arrays(x, form)]


def count(forms: Sequence[ValueSpec]) -> int:
    """How many arrays values of these forms are."""
    return sum([len(form.avals) for form in forms])


@final
class ResultReader:
    """Results taken from the left, value by value."""

    __slots__ = ("_arrays", "_entry", "_place")

    def __init__(self, entry: BodyInterpreter, arrays: Sequence[Value]) -> None:
        self._entry = entry
        self._arrays = arrays
        self._place = 0

    def take(self, n: int) -> Sequence[Value]:
        taken = self._arrays[self._place : self._place + n]
        self._place += n
        return taken

    def values(self, forms: Sequence[ValueSpec]) -> list[Value]:
        return [self._entry.value(form, self.take(len(form.avals))) for form in forms]

    def restore_state(self, state: ValueSpec | None) -> Self:
        if state is not None:
            self._entry.restore_state(state, self.take(len(state.avals)))
        return self

    def collect_from_body(self, collected: Sequence[CollectedSpec]) -> None:
        self._entry.collect_from_body(collected, self.take(count([c.spec for c in collected])))


def unpack_results(entry: BodyInterpreter, entered: TransformedBody, outs: Sequence[Value]) -> list[Value]:
    """What comes of a program that runs once, from the results of `entered`."""
    taking = ResultReader(entry, outs).restore_state(entered.state)
    values = taking.values(entered.outs)
    taking.collect_from_body(entered.collected)
    return values
