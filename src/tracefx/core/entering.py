"""How a handler gets inside of operations that carry programs.

An operation that is `Enterable` runs its programs under another interpretation: it asks the handler, as an `Entry`,
what each of its programs becomes there, and binds itself with what comes back. So a handler acts in loops, branches
and calls without a word about them, staged and compiled, and an operation does not know who enters it.

Under the handler a value may be several arrays: a `Form` says which, and what else there is to know of it.
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
from tracefx.core.trees import TreeDef
from tracefx.core.values import Value


@final
@frozen
class Form:
    """What a value is under a handler: arrays of the types `avals`, in a tree of a handler's own.

    Without a `tree` it is a plain value, one array that the handler has nothing to say of.
    """

    tree: TreeDef | None = field(eq=lambda tree: (tree is None, tree))  # jaxlib's refuse to be compared with None
    avals: tuple[ShapedArray, ...]

    def like(self, other: Form) -> bool:
        """Whether both are of one structure, whatever the types."""
        if self.tree is None or other.tree is None:
            return self.tree is other.tree
        return self.tree == other.tree

    def step(self) -> Form:
        """What one step of a loop gets of it. The axes of the arrays begin with those of the value."""
        return evolve(self, avals=tuple([a.without_axis(0) for a in self.avals]))

    def stacked(self, length: int) -> Form:
        """What the steps of a loop make of it together."""
        return evolve(self, avals=tuple([a.with_axis(length, 0) for a in self.avals]))

    @override
    def __str__(self) -> str:
        types = show_avals(self.avals)
        return types if self.tree is None else f"{self.tree} of ({types})"


NOTHING: Final = Form(None, ())


def plain(aval: ShapedArray) -> Form:
    return Form(None, (aval,))


@final
@frozen
class Collected:
    """What a handler collects in a program, under a name."""

    name: Hashable
    form: Form


@final
@frozen(eq=False)
class Entered:
    """A program under a handler: `(consts, state, inputs) -> (state, outputs, what is collected)`.

    The state is `taken` in one form and given in another; both are `None` for a program that leaves it as it is.
    """

    jaxpr: Jaxpr
    consts: tuple[Value, ...]
    taken: Form | None
    state: Form | None
    outs: tuple[Form, ...]
    collected: tuple[Collected, ...]


class Entry(Protocol):
    """What a handler offers to an operation that it enters. The handler below it is current meanwhile."""

    has_state: ClassVar[bool]

    def form(self, x: Value) -> Form: ...

    def arrays(self, x: Value, form: Form) -> list[Value]:
        """The arrays of a value, fitted to a form."""
        ...

    def value(self, form: Form, arrays: Sequence[Value]) -> Value:
        """The value that consists of these arrays."""
        ...

    def join(self, x: Form, y: Form, what: str) -> Form:
        """A form that values of both fit; `TypeError`, which calls them `what`, if there is none."""
        ...

    def bare(self, x: Value, what: str) -> Value:
        """The number that decides which way a program takes."""
        ...

    def enter(
        self,
        jaxpr: Jaxpr,
        inputs: Sequence[Form],
        what: str,
        *,
        outs: Sequence[Form | None] = (),
        state: Form | None = None,
        collected: Sequence[Collected] = (),
        bare: bool = False,
    ) -> Entered:
        """What a program becomes, for inputs of these forms. Its outputs are `bare` numbers if they decide something.

        Outputs for which `outs` has a form are fitted to it, as far as they can be. If `state` is given, the program
        takes and gives a state of that form, as far as it can. What is in `collected` is given, and first, by a
        program that has nothing under that name too.
        """
        ...

    def state(self, form: Form | None) -> list[Value]:
        """The arrays of the state, fitted to a form; none without one."""
        ...

    def proceed(self, form: Form, arrays: Sequence[Value]) -> None:
        """What the state is from here on."""
        ...

    def collect(self, collected: Sequence[Collected], arrays: Sequence[Value]) -> None:
        """What programs that were entered have collected; the arrays of one come after those of another."""
        ...

    def absent(self, collected: Collected) -> list[Value]:
        """The arrays of what a loop without a step collects."""
        ...

    def within(self, handler: Handler) -> Handler:
        """The same interpretation on another handler, with nothing in its state: for functions that rules hold."""
        ...

    def run(self, jaxpr: Jaxpr, args: Sequence[Value]) -> Sequence[Value]:
        """Do what a program does, its operations one by one under the handler."""
        ...


class Enterable:
    """A capability: the operation carries programs, and can run them under another interpretation."""

    __slots__ = ()

    @abstractmethod
    def entered(self, entry: Entry, args: Sequence[Value]) -> Sequence[Value]:
        """Bind what the operation becomes if its programs are run by the handler, whose values `args` may be."""
        raise NotImplementedError


def flat(entry: Entry, xs: Sequence[Value], forms: Sequence[Form]) -> list[Value]:
    """The arrays of values, fitted to forms."""
    return [a for x, form in zip(xs, forms, strict=True) for a in entry.arrays(x, form)]


def count(forms: Sequence[Form]) -> int:
    """How many arrays values of these forms are."""
    return sum([len(form.avals) for form in forms])


@final
class Taking:
    """Results taken from the left, value by value."""

    __slots__ = ("_arrays", "_entry", "_place")

    def __init__(self, entry: Entry, arrays: Sequence[Value]) -> None:
        self._entry = entry
        self._arrays = arrays
        self._place = 0

    def take(self, n: int) -> Sequence[Value]:
        taken = self._arrays[self._place : self._place + n]
        self._place += n
        return taken

    def values(self, forms: Sequence[Form]) -> list[Value]:
        return [self._entry.value(form, self.take(len(form.avals))) for form in forms]

    def proceed(self, state: Form | None) -> Self:
        if state is not None:
            self._entry.proceed(state, self.take(len(state.avals)))
        return self

    def collect(self, collected: Sequence[Collected]) -> None:
        self._entry.collect(collected, self.take(count([c.form for c in collected])))


def called(entry: Entry, entered: Entered, outs: Sequence[Value]) -> list[Value]:
    """What comes of a program that runs once, from the results of `entered`."""
    taking = Taking(entry, outs).proceed(entered.state)
    values = taking.values(entered.outs)
    taking.collect(entered.collected)
    return values
