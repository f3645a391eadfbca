"""`explain`: what every line of a function did, operation by operation."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Hashable
from typing import Any, ClassVar, Final, Generic, ParamSpec, TypeVar, cast, final

import numpy as np
from attrs import field, frozen
from typing_extensions import override

from tracefx.core.array import Array
from tracefx.core.avals import ShapedArray, show_avals
from tracefx.core.dtypes import DType, NDArray
from tracefx.core.handler import current, handling
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.source_location import SourceLocation
from tracefx.handlers.array_summary import MAX_PRINTED_ELEMENTS, Summary, format_array
from tracefx.handlers.instrumentation import Instrument, OperationInfo, Position, RuntimeCallback, relative_path
from tracefx.transforms.arguments import require_callable
from tracefx.transforms.transform import Transform, WrappedFunction
from tracefx.transforms.transformed_function import wrap_transformed

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
MAX_STORED_ELEMENTS: Final = 100
"""Of how many elements a result is kept as it is, by default."""


def explain(fun: Callable[P, R], *, keep: int = MAX_STORED_ELEMENTS) -> WrappedFunction[P, Explanation[R]]:
    """A function that calls `fun` once and tells what each line of the user's code did.

    The explanation has what `fun` gave, `.out`, and all operations in their order, `.operations`, those inside of
    compiled functions, loops and branches too: each with the types of its operands and results, how often it ran, and a
    summary of the elements of each result over all runs. Results of at most `keep` elements are kept as they were the
    last time. `.lines` groups them by line, `.first(condition)` finds one, and `str` shows all beside the source.

    Under `jit` the explanation has types alone, since there are no values when the function is traced.

    Raises TypeError if `fun` can't be called or `keep` is no integer, ValueError if it is negative.

    >>> import tracefx.numpy as fnp
    >>> found = explain(lambda x: fnp.log(x - 1))(fnp.array([1.0, 0.5]))
    >>> [(op.name, op.nans, op.infs) for op in found.operations]
    [('sub', 0, 0), ('log', 1, 1)]
    >>> found.first(lambda op: op.has_nan).name
    'log'
    """
    if type(keep) is not int:
        raise TypeError(f"explain: keep must be a number of elements, got {keep!r} of type {type(keep).__name__}")
    if keep < 0:
        raise ValueError(f"explain: keep must be a number of elements, got {keep}")
    return cast("WrappedFunction[P, Explanation[R]]", Explain(keep)(fun))


@final
@frozen(eq=False, repr=False)
class Explain(Transform):
    """`explain` as a value."""

    title: ClassVar[str] = "explain"
    keep: int = MAX_STORED_ELEMENTS

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        require_callable(self.title, fun)

        @wrap_transformed(self, fun)
        def explained(*args: Any, **kwargs: Any) -> Explanation[Any]:
            record = _ExplainHooks(self.keep)
            with handling(Instrument(current(), self.title, record)):
                out = fun(*args, **kwargs)
            return Explanation(out, tuple([seen.operation() for seen in record.records.values()]))

        return explained


# ------------------------------------------------------------------ what is told


@final
@frozen(eq=False)
class ExplainedOperation:
    """An operation, and what came of it.

    `count` says how often it was done: in a branch that was not taken never. `summaries` has an entry for each result,
    over all times, `values` the results of the last time, `None` for those that are large.
    """

    applied: OperationInfo = field(repr=False)
    name: str = field(init=False)
    count: int
    summaries: tuple[Summary, ...]
    values: tuple[NDArray | None, ...] = field(repr=False)

    @name.default
    def _name(self) -> str:
        return self.applied.name

    @property
    def operands(self) -> tuple[ShapedArray, ...]:
        """The types of the operands."""
        return self.applied.operands

    @property
    def results(self) -> tuple[ShapedArray, ...]:
        """The types of the results."""
        return self.applied.results

    @property
    def place(self) -> SourceLocation | None:
        return self.applied.place

    @property
    def enclosing_bodies(self) -> tuple[str, ...]:
        """The bodies it is in, e.g. `("jit(f)", "a step of scan")`."""
        return self.applied.enclosing_bodies

    @property
    def has_bodies(self) -> bool:
        """Whether it is a call, a loop, a branch or the like, whose own operations are told of too."""
        return self.applied.has_bodies

    @property
    def dtypes(self) -> tuple[DType, ...]:
        """The dtypes of the results."""
        return tuple([a.dtype for a in self.results])

    @property
    def nans(self) -> int:
        """How many elements of the results were NaN, over all times."""
        return sum([s.nans for s in self.summaries])

    @property
    def infs(self) -> int:
        return sum([s.infs for s in self.summaries])

    @property
    def has_nan(self) -> bool:
        return self.nans > 0

    @property
    def has_inf(self) -> bool:
        return self.infs > 0

    @property
    def broadcasts(self) -> bool:
        """Whether a result has more elements than any operand has."""
        largest = max([a.size for a in self.operands], default=0)
        return bool(self.operands) and any(a.size > largest for a in self.results)

    @override
    def __str__(self) -> str:
        types = f"{self.name} {show_avals(self.operands)} -> {show_avals(self.results)}"
        return f"{types}  {self._result_text()}".rstrip()

    def _result_text(self) -> str:
        if not self.count:
            return "not run"
        times = f"{self.count} times " if self.count > 1 else ""
        texts = [
            s.text() if x is None or self.count > 1 or x.size > MAX_PRINTED_ELEMENTS else format_array(x)
            for s, x in zip(self.summaries, self.values, strict=True)
        ]
        return f"{times}{', '.join(texts)}".rstrip()


@final
@frozen(eq=False)
class ExplainedLine:
    """A line of the user's code, and the operations it caused. `file` is empty if it is not known.

    `function` is the one that was running when it first did something.
    """

    file: str
    line: int
    function: str
    operations: tuple[ExplainedOperation, ...]

    @property
    def text(self) -> str:
        """The line's text, if its source can be found."""
        return linecache.getline(self.file, self.line).strip()

    @override
    def __str__(self) -> str:
        outermost = min([len(op.enclosing_bodies) for op in self.operations], default=0)
        rows = [
            f"{relative_path(self.file)}:{self.line}  {self.text}".rstrip()
            if self.file
            else "from no line that is known"
        ]
        rows += [f"{'  ' * (2 + len(op.enclosing_bodies) - outermost)}{op}" for op in self.operations]
        return "\n".join(rows)


@final
@frozen(eq=False)
class Explanation(Generic[R_co]):
    """What a call did: its result, and its operations."""

    out: R_co
    operations: tuple[ExplainedOperation, ...]

    @property
    def lines(self) -> tuple[ExplainedLine, ...]:
        """The lines in the order in which they first did something."""
        found: dict[tuple[str, int], list[ExplainedOperation]] = {}
        for op in self.operations:
            found.setdefault((op.applied.file, op.applied.line), []).append(op)
        return tuple([ExplainedLine(*key, _function_name(ops[0]), tuple(ops)) for key, ops in found.items()])

    def first(self, condition: Callable[[ExplainedOperation], object]) -> ExplainedOperation | None:
        """The first operation that the condition holds for, if there is one.

        Operations with bodies come before those inside of them, and are asked after these.
        """
        found = self.where(condition)
        return next((op for op in found if not op.has_bodies), next(iter(found), None))

    def where(self, condition: Callable[[ExplainedOperation], object]) -> tuple[ExplainedOperation, ...]:
        """All operations that the condition holds for."""
        return tuple([op for op in self.operations if condition(op)])

    @override
    def __str__(self) -> str:
        rows: list[str] = []
        function = None
        for line in self.lines:
            if line.function != function:
                function = line.function
                rows.append(f"{function}:" if function else "elsewhere:")
            rows += [f"  {row}" for row in str(line).splitlines()]
        return "\n".join(rows) or "no operations"


def _function_name(op: ExplainedOperation) -> str:
    return "" if op.place is None else op.place.function


# ------------------------------------------------------------------ while it runs


@final
class _OperationRecord:
    """An operation, and what has come of it so far."""

    __slots__ = ("applied", "count", "keep", "summaries", "values")

    def __init__(self, applied: OperationInfo, keep: int) -> None:
        self.applied = applied
        self.keep = keep
        self.count = 0
        self.summaries: tuple[Summary, ...] = ()
        self.values: tuple[NDArray | None, ...] = ()

    def __call__(self, *results: Array) -> None:
        arrays = [np.asarray(x) for x in results]
        new = [Summary.of(a) for a in arrays]
        self.summaries = tuple([a | b for a, b in zip(self.summaries, new, strict=True)] if self.count else new)
        self.values = tuple([a if a.size <= self.keep else None for a in arrays])
        self.count += 1

    def operation(self) -> ExplainedOperation:
        return ExplainedOperation(self.applied, self.count, self.summaries, self.values)


@final
@frozen(eq=False)
class _ExplainHooks:
    """Keeps all operations by their positions: a body that is traced again has its own again."""

    keep: int
    records: dict[Position, _OperationRecord] = field(factory=dict)
    cache_key: Hashable = None
    counts_steps: bool = False

    def before(self, position: Position, op: OperationInfo, depth: int) -> RuntimeCallback | None:
        self.records[position] = _OperationRecord(op, self.keep)  # so that it comes before what is inside
        return None

    def enter_body(self, body: str, jaxpr: Jaxpr, depth: int) -> RuntimeCallback | None:
        return None

    def after(self, position: Position, op: OperationInfo, depth: int) -> RuntimeCallback | None:
        self.records[position] = _OperationRecord(op, self.keep)
        return self.records[position]
